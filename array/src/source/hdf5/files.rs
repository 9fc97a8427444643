//! Which files a dataset's elements lie in: its own, which is another one than was named if it is behind an
//! external link, and those that it is put together of (virtual ones) or stored in (external storage).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::library::{Id, Library, Locked};
use super::object::{Object, VIRTUAL};
use crate::source::never_again;

/// The library's descriptor of a file, as long as that is open.
fn descriptor(library: &Library, file: &Object) -> Option<RawFd> {
    let mut handle: *mut c_void = std::ptr::null_mut();
    // SAFETY: the file is open, of the default driver, whose handle is a pointer to its descriptor as long as
    // the file is open. Where it is another's, the number is none of a descriptor.
    unsafe {
        let is_known = (library.H5Fget_vfd_handle)(file.id, 0, &raw mut handle) >= 0 && !handle.is_null();
        is_known.then(|| handle.cast::<c_int>().read()).filter(|&number| number >= 0)
    }
}

/// The library opens files so that programs which are started meanwhile inherit them, and with them its lock:
/// nobody could open the file until those have ended, whoever they are.
pub(super) fn keep_from_children(library: &Library, file: &Object) {
    if let Some(number) = descriptor(library, file) {
        // SAFETY: what is no descriptor is refused.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// The same of files that the library opens by itself in a call, and does not tell of: those with the parts
/// of virtual datasets, and whatever links lead to. What another thread opens meanwhile is kept from programs
/// as well, if it is not given to one by its number.
pub(super) fn keep_new_from_children<T>(call: impl FnOnce() -> T) -> T {
    let before = regular_files();
    let result = call();
    for number in regular_files().difference(&before) {
        // SAFETY: what is no descriptor any more is refused.
        unsafe { libc::fcntl(*number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    result
}

/// Descriptors of those that this process has open; not that of the list itself, which is closed again.
fn regular_files() -> BTreeSet<RawFd> {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let is_file =
        |entry: &std::fs::DirEntry| std::fs::metadata(entry.path()).is_ok_and(|data| data.is_file());
    let files = names.filter(is_file);
    files.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The file that a dataset is in, by the library and by the kernel: not the one that was named, if the
/// dataset is behind an external link. Without the latter where the library does not read it as a file.
pub(super) fn own(locked: &Locked, dataset: &Object) -> io::Result<(Object, Option<File>)> {
    let library = &locked.library;
    // SAFETY: the dataset is open.
    let id = unsafe { (library.H5Iget_file_id)(dataset.id) };
    let file = Object::file(library, id, || "H5Iget_file_id failed".into())?;
    let opened = descriptor(library, &file).and_then(|number| {
        // SAFETY: the library has it open as long as `file` is; what is no descriptor is refused.
        unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().ok()
    });
    Ok((file, opened.map(File::from)))
}

/// Whether two are one file.
pub(super) fn are_same(one: &File, other: &File) -> io::Result<bool> {
    let which = |file: &File| file.metadata().map(|data| (data.dev(), data.ino()));
    Ok(which(one)? == which(other)?)
}

/// A text that the library puts where it is told, and says how long it is.
fn told(mut ask: impl FnMut(*mut c_char, usize) -> isize) -> Vec<u8> {
    let length = usize::try_from(ask(std::ptr::null_mut(), 0)).unwrap_or(0);
    let mut text = vec![0_u8; length + 1];
    ask(text.as_mut_ptr().cast(), text.len());
    text.truncate(length);
    text
}

/// The name of a dataset in its own file.
pub(super) fn name(Locked { library, .. }: &Locked, dataset: &Object) -> String {
    // SAFETY: the dataset is open; it writes no more than it is told that there is room for.
    let name = told(|to, room| unsafe { (library.H5Iget_name)(dataset.id, to, room) });
    String::from_utf8_lossy(&name).into_owned()
}

/// A file as a dataset in another one names it, and the dataset there; none of files of elements alone.
type Part = (Vec<u8>, Option<Vec<u8>>);

/// Where a dataset's elements are, beside its own file.
fn parts(Locked { library, .. }: &Locked, created: &Object) -> BTreeSet<Part> {
    let mut found = BTreeSet::new();
    // SAFETY: it is a property list.
    let external = unsafe { (library.H5Pget_external_count)(created.id) };
    for number in 0..c_uint::try_from(external).unwrap_or(0) {
        let mut name = vec![0_u8; LONGEST];
        let (mut offset, mut size) = (0_i64, 0_u64);
        // SAFETY: it writes no more of a name than it is told that there is room for, and two numbers.
        let code = unsafe {
            let to = name.as_mut_ptr().cast();
            (library.H5Pget_external)(created.id, number, LONGEST, to, &raw mut offset, &raw mut size)
        };
        if code >= 0 {
            name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(LONGEST));
            found.insert((name, None));
        }
    }
    // SAFETY: it is a property list.
    let is_virtual = unsafe { (library.H5Pget_layout)(created.id) } == VIRTUAL;
    let mut count = 0;
    // SAFETY: it is one of that layout; it writes a number.
    if !is_virtual || unsafe { (library.H5Pget_virtual_count)(created.id, &raw mut count) } < 0 {
        return found;
    }
    for number in 0..count {
        type Ask = unsafe extern "C" fn(Id, usize, *mut c_char, usize) -> isize;
        // SAFETY: there are more of them; it writes no more than it is told that there is room for.
        let of = |ask: Ask| told(|to, room| unsafe { ask(created.id, number, to, room) });
        found.insert((of(library.H5Pget_virtual_filename), Some(of(library.H5Pget_virtual_dsetname))));
    }
    found
}

/// No longer name can be opened.
const LONGEST: usize = libc::PATH_MAX as usize;

/// The folders of a dataset's own file: by the name that the library has of it, and by what that leads to.
fn folders(Locked { library, .. }: &Locked, dataset: &Object, file: &File) -> Vec<PathBuf> {
    // SAFETY: the dataset is open; it writes no more than it is told that there is room for.
    let name = told(|to, room| unsafe { (library.H5Fget_name)(dataset.id, to, room) });
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
    let names = [Some(PathBuf::from(OsString::from_vec(name))), real].into_iter().flatten();
    names.filter_map(|name| Some(name.parent()?.to_path_buf())).collect()
}

/// Where the library looks for a file that a dataset in another one names: all the places, whichever comes
/// first. `folders` are those of the other one.
fn places(name: &[u8], folders: &[PathBuf]) -> BTreeSet<PathBuf> {
    let name = Path::new(OsStr::from_bytes(name));
    let mut all = folders.to_vec();
    for given in ["HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"].into_iter().filter_map(std::env::var_os) {
        for prefix in given.as_bytes().split(|&byte| byte == b':') {
            let behind = |folder: &PathBuf, rest: &[u8]| {
                let mut whole = folder.clone().into_os_string();
                whole.push(OsStr::from_bytes(rest));
                PathBuf::from(whole)
            };
            match prefix.strip_prefix(b"${ORIGIN}".as_slice()) {
                Some(rest) => all.extend(folders.iter().map(|folder| behind(folder, rest))),
                None => all.push(OsStr::from_bytes(prefix).into()),
            }
        }
    }
    // Where this program is.
    all.push(PathBuf::new());
    // What is not where its whole name says may be beside the other one.
    let names = [Some(name.as_os_str()), name.file_name().filter(|_| name.is_absolute())];
    let names = names.into_iter().flatten();
    names.flat_map(|name| all.iter().map(move |folder| folder.join(name))).collect()
}

/// The same of all names that one with the number of a block in it (`%b`) stands for, as far as there are
/// such files. None if nobody can say.
fn all_places(name: &[u8], folders: &[PathBuf]) -> Option<BTreeSet<PathBuf>> {
    if !name.contains(&b'%') {
        return Some(places(name, folders));
    }
    let mut found = BTreeSet::new();
    for place in places(name, folders) {
        let (folder, name) = (place.parent()?, place.file_name()?.as_bytes());
        if folder.as_os_str().as_bytes().contains(&b'%') {
            return None;
        }
        let before = name.split(|&byte| byte == b'%').next()?;
        let behind = name.rsplit(|&byte| byte == b'%').next()?.get(1..)?;
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.as_bytes().starts_with(before) && name.as_bytes().ends_with(behind) {
                found.insert(entry.path());
            }
        }
    }
    Some(found)
}

/// What all files with a dataset's elements are, so that it is another text if one of them changes, or could
/// have.
pub(super) fn stamps(locked: &Locked, dataset: &Object) -> String {
    let mut found = Vec::new();
    if add_stamps(locked, dataset, 0, &mut found).is_err() {
        found.push(never_again());
    }
    found.join(" ")
}

/// Datasets put together of such, and so on.
const DEEPEST: usize = 4;

fn add_stamps(locked: &Locked, dataset: &Object, depth: usize, found: &mut Vec<String>) -> io::Result<()> {
    let (file, opened) = own(locked, dataset)?;
    let Some(opened) = opened else {
        found.push(never_again());
        return Ok(());
    };
    found.push(format!("{} {}", crate::source::stamp(&opened), name(locked, dataset)));
    let created = Object::properties_of(locked, dataset)?;
    let folders = folders(locked, dataset, &opened);
    for (name, inner) in parts(locked, &created) {
        // Of patterns of datasets none can be opened.
        let is_known = depth < DEEPEST && !inner.as_ref().is_some_and(|inner| inner.contains(&b'%'));
        let places =
            if inner.is_some() { all_places(&name, &folders) } else { Some(places(&name, &folders)) };
        let Some(places) = places.filter(|_| is_known) else {
            found.push(never_again());
            continue;
        };
        let inner = inner.map(|inner| String::from_utf8_lossy(&inner).into_owned());
        let go_on = |file: &Object, found: &mut Vec<String>| {
            let Some(inner) = &inner else { return Ok(()) };
            add_stamps(locked, &Object::open_dataset(locked, file, inner)?, depth + 1, found)
        };
        if name == b"." && inner.is_some() {
            go_on(&file, found)?;
            continue;
        }
        for place in places {
            let told = place.metadata().map(|data| (data.is_file(), crate::source::told(&data)));
            let (is_file, text) = told.unwrap_or_else(|error| (false, error.kind().to_string()));
            found.push(text);
            if is_file && inner.is_some() {
                go_on(&Object::open_file(locked, &place)?, found)?;
            }
        }
    }
    Ok(())
}
