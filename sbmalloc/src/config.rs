//! Process-wide settings, kept in static memory because the pager that reads them must not allocate.

use crate::lock::Lock;
use crate::store::StoreKind;
use crate::sys::PathBuf as FixedPath;
use crate::tracker::{self, TrackerChoice, TrackerKind};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest scratch directory, in bytes.
const MAX_DIR: usize = 3072;

/// Settings of the crate; see [`configure`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of the scratch files; `None` means `$BDRUN_SCRATCH`, else `$TMPDIR`, else `/var/tmp`.
    pub scratch_dir: Option<PathBuf>,
    /// Tracker of explicit arenas made afterwards whose options name none. [`TrackerKind::Auto`] means what
    /// `$BDRUN_TRACKER` says, if it says anything. The heap, made at the first
    /// allocation, uses the same, but `Auto` for [`TrackerKind::Mprotect`], under which system calls fail.
    pub tracker: TrackerKind,
    /// How scratch files made from now on are written.
    pub store: StoreKind,
    /// Check every block read back against its checksum (0.04 s per GiB).
    pub verify: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { scratch_dir: None, tracker: TrackerKind::Auto, store: StoreKind::Auto, verify: true }
    }
}

/// Why [`configure`] refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The directory's name is too long or holds a NUL byte.
    #[error("{0:?} cannot be a scratch directory: longer than {MAX_DIR} bytes, empty, or with a NUL in it")]
    BadDirectory(PathBuf),
}

struct Settings {
    dir: FixedPath<{ MAX_DIR + 1 }>,
    dir_set: bool,
    tracker: TrackerKind,
    store: StoreKind,
}

static SETTINGS: Lock<Settings> = Lock::new(Settings {
    dir: FixedPath::new(),
    dir_set: false,
    tracker: TrackerKind::Auto,
    store: StoreKind::Auto,
});
static VERIFY: AtomicBool = AtomicBool::new(true);

/// Sets where and how memory is moved out. Call it before the first evict: a scratch file once made stays
/// where it is, and the directory, once named here or used, is never changed.
///
/// # Errors
/// [`ConfigError::BadDirectory`] if the name does not fit; whether it can be written shows at the first evict.
pub fn configure(config: Config) -> Result<(), ConfigError> {
    let mut settings = SETTINGS.lock();
    if let Some(dir) = config.scratch_dir {
        let bytes = dir.as_os_str().as_bytes();
        if bytes.is_empty() || bytes.len() > MAX_DIR || bytes.contains(&0) {
            drop(settings);
            return Err(ConfigError::BadDirectory(dir));
        }
        if !settings.dir_set {
            settings.dir.push(bytes);
            settings.dir_set = true;
        }
    }
    settings.tracker = config.tracker;
    settings.store = config.store;
    VERIFY.store(config.verify, Ordering::Relaxed);
    Ok(())
}

pub(crate) fn verify() -> bool {
    VERIFY.load(Ordering::Relaxed)
}

pub(crate) fn default_tracker() -> TrackerKind {
    match SETTINGS.lock().tracker {
        // Between the others `Auto` itself decides, at the first restore.
        TrackerKind::Auto => match tracker::from_environment() {
            TrackerChoice::Mprotect => TrackerKind::Mprotect,
            TrackerChoice::Cow => TrackerKind::Cow,
            _ => TrackerKind::Auto,
        },
        tracker => tracker,
    }
}

/// The tracker of the heap, whose memory is handed to system calls.
pub(crate) fn heap_tracker() -> TrackerKind {
    match default_tracker() {
        TrackerKind::Mprotect => TrackerKind::Auto,
        tracker => tracker,
    }
}

pub(crate) fn default_store() -> StoreKind {
    SETTINGS.lock().store
}

/// The scratch directory; fixed by the first call.
pub(crate) fn scratch_dir() -> &'static CStr {
    let mut settings = SETTINGS.lock();
    if !settings.dir_set {
        settings.dir_set = true;
        for name in [c"BDRUN_SCRATCH", c"TMPDIR"] {
            // SAFETY: getenv reads the environment block; programs that change it while threads run are
            // in breach of `std::env::set_var`'s contract already.
            let value = unsafe { libc::getenv(name.as_ptr()) };
            if !value.is_null() {
                // SAFETY: getenv returns a terminated string.
                let bytes = unsafe { CStr::from_ptr(value) }.to_bytes();
                if !bytes.is_empty() && bytes.len() <= MAX_DIR {
                    settings.dir.push(bytes);
                    break;
                }
            }
        }
        if settings.dir.as_bytes().is_empty() {
            settings.dir.push(b"/var/tmp");
        }
    }
    let dir: *const CStr = settings.dir.as_cstr();
    // SAFETY: it lies in a static and `dir_set` keeps it from ever being written again.
    unsafe { &*dir }
}
