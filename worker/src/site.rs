//! Where in the program a rank waits: the key by which the pager learns what is used after it.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static CURRENT: AtomicU64 = AtomicU64::new(0);
/// How often it became another one.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The caller of the caller is about to make a call that may wait. Every public call that may wait says so
/// first, and is itself `#[track_caller]`, so that of calls that call each other the outermost counts.
#[track_caller]
pub(crate) fn enter() {
    let place = Location::caller();
    // Distinct for distinct places of this process, which is all that is needed; files are few and lie apart.
    let key =
        (place.file().as_ptr() as u64) ^ (u64::from(place.line()) << 40) ^ (u64::from(place.column()) << 24);
    if CURRENT.swap(key.max(1), Relaxed) != key.max(1) {
        CHANGES.fetch_add(1, Relaxed);
    }
}

/// A front says where its program is, and how often it became another place.
pub(crate) fn set(key: u64, changes: u64) {
    CURRENT.store(key, Relaxed);
    CHANGES.store(changes, Relaxed);
}

/// How often the program has gone from one place to another so far, whether or not it waited there.
pub(crate) fn changes() -> u64 {
    CHANGES.load(Relaxed)
}

/// Where the program waits now; 0 if it never said.
pub(crate) fn current() -> u64 {
    CURRENT.load(Relaxed)
}
