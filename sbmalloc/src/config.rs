//! Process-wide settings, kept in static memory because the pager that reads them must not allocate.

use crate::lock::Lock;
use crate::store::StoreKind;
use crate::sys::PathBuf as FixedPath;
use crate::threads::Unparked;
use crate::tracker::TrackerKind;
use std::ffi::CStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Longest scratch directory, in bytes.
const MAX_DIR: usize = 3072;
/// Scratch directories that are used.
pub(crate) const MAX_DIRS: usize = 8;

/// Settings of the crate; see [`configure`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Directories of the scratch files, at most 8, best each on a disk of its own: memory is spread over
    /// them in stripes of 8 MiB. Empty means `$BDRUN_SCRATCH`, a list with colons between, else `$TMPDIR`,
    /// else `/var/tmp`.
    pub scratch_dirs: Vec<PathBuf>,
    /// Tracker of arenas made afterwards whose options name none, and of the heap, made at the first
    /// allocation. [`TrackerKind::Auto`] means what `$BDRUN_TRACKER` says, if it says anything.
    pub tracker: TrackerKind,
    /// How scratch files made from now on are written.
    pub store: StoreKind,
    /// Whether what nobody touches before it is restored is compressed on its way out
    /// ([`ArenaSet::expect_restores`](crate::ArenaSet::expect_restores)).
    pub compression: Compression,
    /// Check every block read back against its checksum (0.04 s per GiB).
    pub verify: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scratch_dirs: vec![],
            tracker: TrackerKind::Auto,
            store: StoreKind::Auto,
            compression: Compression::Auto,
            verify: true,
        }
    }
}

/// Whether memory is compressed on its way to the scratch file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// What `$BDRUN_COMPRESS` says, if it says `lz4` or `none`. Else by LZ4 while that takes less time than
    /// the disk is spared, as measured in this process.
    #[default]
    Auto,
    /// By LZ4, whatever shrinks by an eighth.
    Lz4,
    /// Not at all.
    None,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Lz4 => "lz4",
            Self::None => "none",
        })
    }
}

impl Compression {
    /// What a value of `BDRUN_COMPRESS` means; what cannot be understood counts as `auto`.
    fn from_bytes(text: &[u8]) -> Self {
        match text {
            b"lz4" => Self::Lz4,
            b"none" => Self::None,
            _ => Self::Auto,
        }
    }
}

/// Why [`configure`] refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The directory's name is too long or holds a NUL byte.
    #[error("{0:?} cannot be a scratch directory: longer than {MAX_DIR} bytes, empty, or with a NUL in it")]
    BadDirectory(PathBuf),
    /// More directories than are used.
    #[error("{0} scratch directories: at most {MAX_DIRS} can be used")]
    TooManyDirectories(usize),
}

struct Settings {
    dirs: [FixedPath<{ MAX_DIR + 1 }>; MAX_DIRS],
    /// How many there are; 0 until they are named or used, and never changed after.
    dir_count: usize,
    tracker: TrackerKind,
    store: StoreKind,
}

static SETTINGS: Lock<Settings> = Lock::new(Settings {
    dirs: [const { FixedPath::new() }; MAX_DIRS],
    dir_count: 0,
    tracker: TrackerKind::Auto,
    store: StoreKind::Auto,
});
static VERIFY: AtomicBool = AtomicBool::new(true);
/// A [`Compression`].
static COMPRESSION: AtomicU8 = AtomicU8::new(Compression::Auto as u8);

/// Sets where and how memory is moved out. Call it before the first evict: a scratch file once made stays
/// where it is, and the directory, once named here or used, is never changed.
///
/// # Errors
/// See [`ConfigError`]; whether a directory can be written shows at the first evict.
pub fn configure(config: Config) -> Result<(), ConfigError> {
    if config.scratch_dirs.len() > MAX_DIRS {
        return Err(ConfigError::TooManyDirectories(config.scratch_dirs.len()));
    }
    let is_bad = |dir: &&PathBuf| {
        let bytes = dir.as_os_str().as_bytes();
        bytes.is_empty() || bytes.len() > MAX_DIR || bytes.contains(&0)
    };
    if let Some(bad) = config.scratch_dirs.iter().find(is_bad) {
        return Err(ConfigError::BadDirectory(bad.clone()));
    }
    let mut settings = settings();
    if settings.dir_count == 0 {
        config.scratch_dirs.iter().for_each(|dir| settings.add(dir.as_os_str().as_bytes()));
    }
    settings.tracker = config.tracker;
    settings.store = config.store;
    COMPRESSION.store(config.compression as u8, Ordering::Relaxed);
    VERIFY.store(config.verify, Ordering::Relaxed);
    Ok(())
}

/// The pager takes this lock too, when all others are parked: nobody is to be parked while he holds it.
fn settings() -> Unparked<'static, Settings> {
    Unparked::lock(&SETTINGS)
}

/// Takes or lets go of the lock of the settings, over a fork.
///
/// # Safety
/// As for the lock.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { SETTINGS.hold_or_let_go(hold) };
}

pub(crate) fn verify() -> bool {
    VERIFY.load(Ordering::Relaxed)
}

/// What to do, with the environment's word.
pub(crate) fn compression() -> Compression {
    const LZ4: u8 = Compression::Lz4 as u8;
    const NONE: u8 = Compression::None as u8;
    match COMPRESSION.load(Ordering::Relaxed) {
        LZ4 => Compression::Lz4,
        NONE => Compression::None,
        _ => Compression::from_bytes(variable(c"BDRUN_COMPRESS")),
    }
}

/// The value of a variable of the environment; empty if there is none.
fn variable(name: &CStr) -> &'static [u8] {
    // SAFETY: getenv reads the environment block; programs that change it while threads run are
    // in breach of `std::env::set_var`'s contract already.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: getenv returns a terminated string.
    if value.is_null() { &[] } else { unsafe { CStr::from_ptr(value) }.to_bytes() }
}

pub(crate) fn default_tracker() -> TrackerKind {
    settings().tracker
}

pub(crate) fn default_store() -> StoreKind {
    settings().store
}

impl Settings {
    /// Adds a directory unless it is empty, too long, or one too many.
    fn add(&mut self, dir: &[u8]) {
        if !dir.is_empty() && dir.len() <= MAX_DIR && self.dir_count < MAX_DIRS {
            self.dirs[self.dir_count].push(dir);
            self.dir_count += 1;
        }
    }

    /// Takes the directories from the environment if none were named.
    fn fix_dirs(&mut self) {
        if self.dir_count == 0 {
            variable(c"BDRUN_SCRATCH").split(|&b| b == b':').for_each(|dir| self.add(dir));
        }
        for last in [variable(c"TMPDIR"), b"/var/tmp"] {
            if self.dir_count == 0 {
                self.add(last);
            }
        }
    }
}

/// How many scratch directories there are; fixed by the first call.
pub(crate) fn scratch_dirs() -> usize {
    let mut settings = settings();
    settings.fix_dirs();
    settings.dir_count
}

/// Scratch directory `i`, below [`scratch_dirs`].
pub(crate) fn scratch_dir(i: usize) -> &'static CStr {
    let mut settings = settings();
    settings.fix_dirs();
    let dir: *const CStr = settings.dirs[i].as_cstr();
    // SAFETY: it lies in a static, and once there are directories none is ever written again.
    unsafe { &*dir }
}
