//! Whether this process is the rank, or a child of fork that has its memory and not its account.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

/// Set in children of `fork`.
static FORKED: AtomicBool = AtomicBool::new(false);

/// A mark that children of fork do not inherit.
pub(crate) struct Alive {
    /// 1 in the process that made it; the kernel makes it zero in children, whichever way they are made; they
    /// share it after `vfork`. For programs not written for us: it costs a page of each rank.
    page: Option<&'static AtomicU32>,
}

impl Alive {
    pub fn new(native: bool) -> Self {
        let page = if native { None } else { wiped_in_children() };
        if page.is_none() {
            extern "C" fn in_child() {
                FORKED.store(true, SeqCst);
            }
            // SAFETY: the handler stores a flag.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
        Self { page }
    }

    /// In the middle of `malloc`: no system call.
    pub fn is_rank(&self) -> bool {
        self.page.map_or_else(|| !FORKED.load(SeqCst), |page| page.load(SeqCst) != 0)
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
