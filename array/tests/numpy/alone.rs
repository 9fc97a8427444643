//! Tests of a program that do not run at the same time: a program that one starts while another opens a file
//! may have that, and its lock, until it is another program.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static ALONE: RwLock<()> = RwLock::new(());

/// One that opens files for which locks matter: no other test runs.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    ALONE.write().unwrap_or_else(PoisonError::into_inner)
}

/// One that starts programs, and minds no lock.
pub fn beside() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}
