//! Whether this process is the rank, or a child of fork that has its memory and not its account.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A mark that children of fork do not inherit, whichever way they are made; they share it after `vfork`.
pub(crate) struct Alive {
    /// 1 in the process that made it; the kernel makes it zero in children.
    page: Option<&'static AtomicU32>,
    /// For kernels that cannot.
    process: i32,
}

impl Alive {
    pub fn new() -> Self {
        // SAFETY: getpid has no preconditions.
        Self { page: wiped_in_children(), process: unsafe { libc::getpid() } }
    }

    /// In the middle of `malloc`: no system call where the kernel wipes pages.
    pub fn is_rank(&self) -> bool {
        match self.page {
            Some(page) => page.load(SeqCst) != 0,
            // SAFETY: getpid has no preconditions.
            None => self.process == unsafe { libc::getpid() },
        }
    }
}

fn wiped_in_children() -> Option<&'static AtomicU32> {
    const PAGE: usize = 4096;
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping of zeros, which are a valid integer; it is never unmapped.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), PAGE, rights, kind, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, PAGE); // before Linux 4.14
            return None;
        }
        let page: &'static AtomicU32 = &*page.cast();
        page.store(1, SeqCst);
        Some(page)
    }
}
