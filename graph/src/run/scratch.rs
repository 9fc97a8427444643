//! Where scratch is, and files there.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A directory for what does not fit, if none is named: the first of `BDRUN_SCRATCH` (of several with colons
/// between the first), `TMPDIR` and `/var/tmp`. Of the latter two none that lies in memory (a tmpfs), if
/// there is a choice: what is written there is where it was, and nobody counts it.
pub fn scratch_directory() -> PathBuf {
    choose(std::env::var_os("BDRUN_SCRATCH"), std::env::var_os("TMPDIR"), is_memory)
}

fn choose(
    named: Option<OsString>,
    temporary: Option<OsString>,
    is_memory: impl Fn(&Path) -> bool,
) -> PathBuf {
    let named = named.unwrap_or_default();
    if let Some(first) = named.as_bytes().split(|&byte| byte == b':').find(|name| !name.is_empty()) {
        return OsStr::from_bytes(first).into();
    }
    let others = temporary.into_iter().chain(["/var/tmp".into()]).map(PathBuf::from);
    let others: Vec<PathBuf> = others.filter(|directory| directory.is_dir()).collect();
    let disk = others.iter().find(|directory| !is_memory(directory));
    disk.or(others.first()).cloned().unwrap_or_else(std::env::temp_dir)
}

/// Whether files in a directory lie in memory, as far as the kernel says.
fn is_memory(directory: &Path) -> bool {
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { return false };
    let mut about = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends with a zero, and there is room for what is said of it.
    if unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call has succeeded, so it was written.
    let kind = unsafe { about.assume_init() }.f_type as u64 & u64::from(u32::MAX);
    kind == libc::TMPFS_MAGIC as u64 || kind == RAMFS_MAGIC
}

/// An error of scratch, with the directory: who did not name it does not know which it is.
pub fn scratch_error(directory: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
}

/// A file without a name on a directory. Where the file system always gives names (no `O_TMPFILE`) it has one
/// for a moment: whoever is killed just then leaves an empty file `.bdrun-graph-…`.
///
/// # Errors
/// If none can be made there.
pub fn scratch_file(directory: &Path) -> io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut open = OpenOptions::new();
    open.read(true).write(true).mode(0o600);
    match open.clone().custom_flags(libc::O_TMPFILE).open(directory) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {}
        made => return made,
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    loop {
        // In containers one that was killed between the two calls may have had the same number.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = directory.join(format!(".bdrun-graph-{}-{number}-{since:x}", std::process::id()));
        match open.create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                let file = made?;
                // What stays is named.
                std::fs::remove_file(&path).map_err(|error| scratch_error(&path, error))?;
                return Ok(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_file_never_has_a_name() {
        let file = scratch_file(&std::env::temp_dir()).unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let link = link.to_string_lossy().into_owned();
        if link.contains(".bdrun-graph-") {
            return bdrun_skipped::skipped("kernel", format!("the file system of {link} always names files"));
        }
        assert!(link.contains("/#"), "{link}");
    }

    #[test]
    fn scratch_is_where_it_is_said_and_not_in_memory() {
        let choose = |named: &str, temporary: &str, memory: &[&str]| {
            let some = |name: &str| Some(OsString::from(name)).filter(|name| !name.is_empty());
            let is_memory = |directory: &Path| memory.contains(&&*directory.to_string_lossy());
            choose(some(named), some(temporary), is_memory).to_string_lossy().into_owned()
        };
        assert_eq!(choose("/disk/one:/disk/two", "/usr", &[]), "/disk/one");
        // Who names one knows why; an empty list names none.
        assert_eq!(choose("/usr", "/etc", &["/usr"]), "/usr");
        assert_eq!(choose(":", "/usr", &[]), "/usr");
        assert_eq!(choose("", "", &[]), "/var/tmp");
        assert_eq!(choose("", "/no such directory", &[]), "/var/tmp");
        assert_eq!(choose("", "/usr", &["/usr"]), "/var/tmp");
        assert_eq!(choose("", "/usr", &["/usr", "/var/tmp"]), "/usr");
    }

    #[test]
    fn what_the_kernel_says_is_memory() {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let is_tmpfs = mounts.lines().any(|line| line.contains(" /dev/shm tmpfs "));
        assert_eq!(is_memory(Path::new("/dev/shm")), is_tmpfs);
        assert!(!is_memory(Path::new("/proc")) && !is_memory(Path::new("/no such directory")));
    }
}
