//! One test of a program at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: a program that one starts while another opens a file may have that, and its lock.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
