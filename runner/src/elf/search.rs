//! What a program is linked to, and what that is linked to: as the dynamic linker finds it (ld.so(8)).

use std::cell::OnceCell;
use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::cache::Cache;
use super::{Dynamic, Elf};

/// The most libraries of a program that are looked at.
const MOST: usize = 1024;

/// Where the system's libraries are, if its cache does not say.
const DEFAULT: [&str; 6] = [
    if cfg!(target_arch = "x86_64") { "/lib/x86_64-linux-gnu" } else { "/lib/aarch64-linux-gnu" },
    if cfg!(target_arch = "x86_64") { "/usr/lib/x86_64-linux-gnu" } else { "/usr/lib/aarch64-linux-gnu" },
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Looks for what programs are linked to.
#[derive(Debug)]
pub struct Search {
    library_path: Vec<PathBuf>,
    cache: OnceCell<Cache>,
}

/// A program or library whose own libraries are to be found.
struct Object {
    needed: Vec<OsString>,
    /// Those of `DT_RPATH`, also of what has loaded it.
    rpath: Rc<[PathBuf]>,
    runpath: Option<Vec<PathBuf>>,
}

impl Object {
    fn new(path: &Path, dynamic: Dynamic, above: &[PathBuf]) -> Self {
        let origin = path.parent().unwrap_or(Path::new("/"));
        let runpath = dynamic.runpath.map(|list| folders(&list, origin));
        let own = dynamic.rpath.filter(|_| runpath.is_none()).map(|list| folders(&list, origin));
        let rpath = own.into_iter().flatten().chain(above.iter().cloned()).collect();
        Self { needed: dynamic.needed, rpath, runpath }
    }
}

/// The folders of a list; `$ORIGIN` is that of the file in which it stands.
fn folders(list: &OsStr, origin: &Path) -> Vec<PathBuf> {
    let one = |text: &[u8]| {
        let mut folder = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.iter().position(|&byte| byte == b'$') {
            folder.extend_from_slice(&rest[..at]);
            folder.extend_from_slice(origin.as_os_str().as_bytes());
            // Of other variables ($LIB, $PLATFORM) it is not known here what they are.
            rest = [&b"$ORIGIN"[..], b"${ORIGIN}"].iter().find_map(|name| rest[at..].strip_prefix(*name))?;
        }
        folder.extend_from_slice(rest);
        Some(PathBuf::from(OsStr::from_bytes(&folder)))
    };
    list.as_bytes().split(|&byte| byte == b':').filter_map(one).collect()
}

impl Search {
    /// Of programs that have this `LD_LIBRARY_PATH`.
    #[must_use]
    pub fn new(library_path: Option<&OsStr>) -> Self {
        let list = library_path.filter(|list| !list.is_empty());
        let library_path = list.map(|list| {
            let folders = list.as_bytes().split(|byte| b":;".contains(byte));
            folders.map(|folder| OsStr::from_bytes(if folder.is_empty() { b"." } else { folder }).into())
        });
        Self { library_path: library_path.into_iter().flatten().collect(), cache: OnceCell::new() }
    }

    /// What `look` finds first among the names of the libraries that the dynamic linker would load with a
    /// program, in its order.
    pub fn find<T>(&self, program: &Path, mut look: impl FnMut(&OsStr) -> Option<T>) -> Option<T> {
        let path = program.canonicalize().ok()?;
        let elf = Elf::open(&path)?;
        let mut queue = VecDeque::from([Object::new(&path, elf.dynamic()?, &[])]);
        let mut seen = HashSet::new();
        while let Some(object) = queue.pop_front() {
            for name in &object.needed {
                if seen.len() >= MOST || !seen.insert(name.clone()) {
                    continue;
                }
                if let Some(found) = look(name) {
                    return Some(found);
                }
                if let Some((path, dynamic)) = self.load(name, &object) {
                    queue.push_back(Object::new(&path, dynamic, &object.rpath));
                }
            }
        }
        None
    }

    fn load(&self, name: &OsStr, by: &Object) -> Option<(PathBuf, Dynamic)> {
        let open = |path: PathBuf| {
            let dynamic = Elf::open(&path)?.dynamic()?;
            Some((path, dynamic))
        };
        if name.as_bytes().contains(&b'/') {
            return open(name.into());
        }
        let rpath = by.rpath.iter().filter(|_| by.runpath.is_none());
        let folders = rpath.chain(&self.library_path).chain(by.runpath.iter().flatten());
        folders
            .map(|folder| folder.join(name))
            .find_map(open)
            .or_else(|| self.cache.get_or_init(Cache::read).find(name).iter().cloned().find_map(open))
            .or_else(|| DEFAULT.iter().map(|folder| Path::new(folder).join(name)).find_map(open))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Workshop;
    use super::*;

    /// The names of all libraries of a program.
    fn all(program: &Path, library_path: Option<&str>) -> Vec<String> {
        let mut names = Vec::new();
        Search::new(library_path.map(OsStr::new)).find(program, |name| {
            names.push(name.to_str().unwrap().to_owned());
            None::<()>
        });
        names
    }

    #[test]
    fn libraries_of_libraries_are_found() {
        let Some(shop) = Workshop::new("search") else { return };
        shop.library("deep/libdeep.so.1", &[]);
        let tags = "-Wl,--enable-new-dtags,-rpath";
        shop.library("near/libnear.so.2", &["deep/libdeep.so.1"]);
        shop.library("there/libnear.so.2", &["deep/libdeep.so.1", &format!("{tags},$ORIGIN/../deep")]);
        let linked_to =
            |to: &str, near: &str, flags: &str| shop.gcc(to, &[near, flags, "-Wl,-rpath-link,deep"]);
        let has = |names: &[String], name: &str| names.iter().any(|other| other == name);

        // Nowhere but in LD_LIBRARY_PATH.
        let plain = linked_to("plain", "near/libnear.so.2", "-O1");
        assert_eq!(all(&plain, None)[0], "libnear.so.2");
        assert!(!has(&all(&plain, None), "libdeep.so.1"));
        let near = shop.path("near").display().to_string();
        assert!(has(&all(&plain, Some(&near)), "libdeep.so.1"));
        assert!(has(&all(&plain, Some(&format!("/no/such:{near}"))), "libdeep.so.1"));

        // RUNPATH is that of the file in which it stands; it comes behind LD_LIBRARY_PATH.
        let run = linked_to("bin/run", "there/libnear.so.2", &format!("{tags},${{ORIGIN}}/../there"));
        assert!(has(&all(&run, None), "libdeep.so.1"));
        shop.library("other/libnear.so.2", &[]);
        let other = shop.path("other").display().to_string();
        assert!(!has(&all(&run, Some(&other)), "libdeep.so.1"));

        // RPATH goes for what it loads too, and comes before LD_LIBRARY_PATH.
        let old = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../near:$ORIGIN/../deep";
        let old = linked_to("bin/old", "near/libnear.so.2", old);
        assert!(has(&all(&old, Some(&other)), "libdeep.so.1"));

        // Those of the system.
        assert!(has(&all(&plain, None), "libc.so.6"));
        // By a link, and of something else.
        std::os::unix::fs::symlink(&run, shop.path("link")).unwrap();
        assert!(has(&all(&shop.path("link"), None), "libdeep.so.1"));
        assert!(all(Path::new("/etc/passwd"), None).is_empty());
        assert!(all(Path::new("/no/such"), None).is_empty());
    }

    #[test]
    fn a_circle_ends() {
        let Some(shop) = Workshop::new("circle") else { return };
        shop.library("liba.so.1", &[]);
        shop.library("libb.so.1", &["liba.so.1"]);
        shop.library("liba.so.1", &["libb.so.1"]);
        let program = shop.gcc("p", &["./liba.so.1", "-Wl,-rpath-link,.", "-Wl,-rpath,$ORIGIN"]);
        let names = all(&program, None);
        let count = |name: &str| names.iter().filter(|other| *other == name).count();
        assert_eq!((count("liba.so.1"), count("libb.so.1")), (1, 1), "{names:?}");
    }
}
