//! The place of a wait, as the pager is told.

use std::cell::OnceCell;

use sbmalloc::pager;

use super::Runtime;
use crate::site;

/// Where a rank waits, or [`pager::EVERYTHING`] if nobody would notice what it uses afterwards. That takes
/// two system calls to find out, so it is asked only if memory is moved.
pub(super) struct Place<'a> {
    runtime: Option<&'a Runtime>,
    /// Of the call, when it began to wait: another thread may go on to another.
    call: u64,
    site: OnceCell<u64>,
}

impl<'a> Place<'a> {
    /// That of the call which the program is in.
    pub fn of_call(runtime: &'a Runtime) -> Self {
        Self { runtime: Some(runtime), call: site::current(), site: OnceCell::new() }
    }

    /// This one.
    pub fn known(site: u64) -> Self {
        Self { runtime: None, call: site, site: OnceCell::new() }
    }

    /// Its key. By the thread that waits.
    pub fn site(&self) -> u64 {
        *self.site.get_or_init(|| match self.runtime {
            Some(runtime) if runtime.meter.is_open() && !runtime.meter.is_here() => pager::EVERYTHING,
            _ => self.call,
        })
    }
}
