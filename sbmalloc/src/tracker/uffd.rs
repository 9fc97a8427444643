//! The kernel's asynchronous write protection (`userfaultfd`, Linux 6.7) and `PAGEMAP_SCAN`.
//!
//! After a restore the pages are write-protected; the kernel itself lifts the protection of a page at the
//! first write, whoever writes, a system call included: nobody waits on the descriptor, and none fails.
//! `PAGEMAP_SCAN` then tells the pages whose protection is gone. Whatever else takes it away (a page given
//! back, a mapping moved over it, a child of fork, the descriptor closed) makes the page look written: the
//! safe side.
//!
//! A write to a protected huge page splits its *mapping* (the page stays, and comes back whole with the
//! next restore). That, and a fault for each page written, costs more than hashing where most is written.

use super::Tracker;
use super::choose::{self, When};
use super::word::{BLOCKS, Word, bits};
use crate::arena::{Inner, STORED};
use crate::lock::Lock;
use crate::scan::{self, Query, Region, ScanError};
use crate::sys::{CHUNK, Errno, Fd, GRANULE, PAGE};
use crate::threads::Unparked;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Asynchronous write protection. Granules where it does not pay are left alone if `selective`.
pub(super) struct Uffd {
    pub selective: bool,
}

impl Tracker for Uffd {
    fn attach(&self, _: &Inner) -> Result<(), Errno> {
        match self.selective {
            true => Ok(()),
            false => Kernel::with(|_| Ok(())),
        }
    }

    fn arm(&self, arena: &Inner, start: usize, len: usize) -> Result<(), Errno> {
        let when = if self.selective { choose::when() } else { When::Always };
        let wanted = |g: usize| {
            let word = Word(arena.track(g).load(Ordering::Relaxed));
            let (pays, word) = match &when {
                When::Never => (false, word.unarmed()),
                When::Always => (true, word.unarmed()),
                When::IfItPays(costs) => word.decide(costs),
            };
            arena.track(g).store(word.0, Ordering::Release);
            let mut blocks = g * BLOCKS..(g + 1) * BLOCKS;
            // Protecting what is not there would only make page tables.
            pays && blocks.any(|i| arena.block(i).load(Ordering::Acquire) == STORED)
        };
        let mut granules = start / GRANULE..(start + len) / GRANULE;
        while let Some(first) = granules.find(|&g| wanted(g)) {
            let last = granules.find(|&g| !wanted(g)).unwrap_or(granules.end);
            Kernel::with(|kernel| kernel.protect(arena.base + first * GRANULE, (last - first) * GRANULE))?;
            for g in first..last {
                let word = Word(arena.track(g).load(Ordering::Relaxed)).armed();
                arena.track(g).store(word.0, Ordering::Release);
            }
        }
        Ok(())
    }

    fn note(&self, arena: &Inner, start: usize, len: usize) {
        let (first, last) = (start / CHUNK, (start + len).div_ceil(CHUNK));
        for g in first / BLOCKS..last.div_ceil(BLOCKS) {
            let from = first.max(g * BLOCKS) - g * BLOCKS;
            let to = last.min((g + 1) * BLOCKS) - g * BLOCKS;
            arena.track(g).fetch_or(bits(from..to), Ordering::AcqRel);
        }
    }

    fn collect(&self, arena: &Inner, range: Range<usize>) {
        // What is out is not tracked here: the pages written are private copies.
        let is_armed = |g: usize| {
            let word = Word(arena.track(g).load(Ordering::Acquire));
            word.is_armed() && !arena.is_out(g) && {
                arena.track(g).store(word.uncounted().0, Ordering::Release);
                true
            }
        };
        let mut granules = range.start / GRANULE..range.end.div_ceil(GRANULE);
        while let Some(first) = granules.find(|&g| is_armed(g)) {
            let last = granules.find(|&g| !is_armed(g)).unwrap_or(granules.end);
            let scanned = Kernel::with(|kernel| {
                kernel.written(arena.base + first * GRANULE, arena.base + last * GRANULE, |from, to| {
                    let (mut at, end) = ((from - arena.base) / PAGE, (to - arena.base) / PAGE);
                    while at < end {
                        let g = at * PAGE / GRANULE;
                        let (begin, stop) = (g * (GRANULE / PAGE), end.min((g + 1) * (GRANULE / PAGE)));
                        let word = Word(arena.track(g).load(Ordering::Relaxed));
                        arena.track(g).store(word.written(at - begin..stop - begin).0, Ordering::Release);
                        at = stop;
                    }
                })
            });
            if scanned.is_err() {
                for g in first..last {
                    let word = Word(arena.track(g).load(Ordering::Relaxed)).unarmed();
                    arena.track(g).store(word.0, Ordering::Release);
                }
            }
        }
    }

    fn may_be_dirty(&self, arena: &Inner, g: usize) -> bool {
        Word(arena.track(g).load(Ordering::Acquire)).any_dirty()
    }

    fn block_may_be_dirty(&self, arena: &Inner, i: usize) -> bool {
        Word(arena.track(i / BLOCKS).load(Ordering::Acquire)).may_be_dirty(i % BLOCKS)
    }
}

const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xAA;
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_WP: u64 = 2;
const WRITEPROTECT_MODE_WP: u64 = 1;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;

/// Regions asked for at a time.
const REGIONS: usize = 512;

/// The two descriptors, of this process: a child of fork must not use its parent's, which act on the parent.
struct Open {
    uffd: Fd,
    pagemap: Fd,
    owner: libc::pid_t,
}

/// Where they are, and where the kernel's answers go: neither is ever on a stack, of which each page that was
/// once touched stays.
struct Place {
    open: Option<Open>,
    regions: [Region; REGIONS],
}

static KERNEL: Lock<Place> = Lock::new(Place { open: None, regions: [[0; 3]; REGIONS] });

/// The two descriptors, open, and room for the kernel's answers.
pub(super) struct Kernel<'a> {
    open: &'a Open,
    regions: &'a mut [Region],
}

/// Takes or lets go of the lock of the descriptors, over a fork.
///
/// # Safety
/// As for the lock.
pub(super) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { KERNEL.hold_or_let_go(hold) };
}

impl Open {
    fn new(owner: libc::pid_t) -> Result<Self, Errno> {
        // Faults in system calls need no privilege here: the kernel resolves them itself.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
        // SAFETY: makes a new descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(Errno::last());
        }
        let uffd = Fd(fd as i32).out_of_the_way();
        let wanted = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED | FEATURE_WP_HUGETLBFS_SHMEM;
        let mut api = [UFFD_API, wanted, 0];
        call(&uffd, UFFDIO_API, &mut api)?;
        let pagemap = Fd::open(c"/proc/thread-self/pagemap", libc::O_RDONLY)?.out_of_the_way();
        Ok(Self { uffd, pagemap, owner })
    }
}

impl Kernel<'_> {
    /// Calls `f` with the descriptors, opened if need be.
    ///
    /// # Errors
    /// The kernel's, if it has no asynchronous write protection or does not permit it; and those of `f`.
    pub fn with<T>(f: impl FnOnce(&mut Kernel<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        // SAFETY: getpid has no preconditions.
        let me = unsafe { libc::getpid() };
        // The pager takes this lock too, when all others are parked.
        let mut kernel = Unparked::lock(&KERNEL);
        let Place { open, regions } = &mut *kernel;
        if open.as_ref().is_none_or(|open| open.owner != me) {
            *open = None;
            let new = Open::new(me)?;
            Kernel { open: &new, regions }.written(PAGE, 2 * PAGE, |_, _| {})?; // older kernels know no scan
            *open = Some(new);
        }
        let open = open.as_ref().ok_or(Errno(libc::ENOSYS))?;
        f(&mut Kernel { open, regions })
    }

    /// Protects `[at, at+len)`: private anonymous memory of the caller's, or a mapping of a memfd.
    pub fn protect(&mut self, at: usize, len: usize) -> Result<(), Errno> {
        let mut register = [at as u64, len as u64, REGISTER_MODE_WP, 0];
        call(&self.open.uffd, UFFDIO_REGISTER, &mut register)?;
        let mut protect = [at as u64, len as u64, WRITEPROTECT_MODE_WP];
        call(&self.open.uffd, UFFDIO_WRITEPROTECT, &mut protect)
    }

    /// Calls `f` with each stretch of addresses in `[start, end)` that may have been written.
    pub fn written(
        &mut self,
        start: usize,
        end: usize,
        mut f: impl FnMut(usize, usize),
    ) -> Result<(), Errno> {
        let query = Query { all_of: scan::WRITTEN, report: scan::WRITTEN, ..Query::default() };
        let scanned = scan::each(&self.open.pagemap, self.regions, [start, end], query, |[from, to, _]| {
            f(from as usize, to as usize);
            Ok::<(), Infallible>(())
        });
        scanned.map_err(|e| match e {
            ScanError::Unknown => Errno(libc::ENOTTY),
            ScanError::At(_, e) => e,
            ScanError::Caller(never) => match never {},
        })
    }
}

/// An ioctl whose structure is `N` 64-bit words.
fn call<const N: usize>(fd: &Fd, request: libc::c_ulong, words: &mut [u64; N]) -> Result<(), Errno> {
    // SAFETY: callers pass the structure that the request names, which the kernel reads and writes; the
    // ranges in it are the caller's, and protecting them changes no content.
    if unsafe { libc::ioctl(fd.0, request, words.as_mut_ptr()) } == 0 { Ok(()) } else { Err(Errno::last()) }
}
