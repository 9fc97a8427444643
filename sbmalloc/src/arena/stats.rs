//! What an arena holds, where it is, and what moving it has cost so far.

use super::{Arena, Inner, STORED};
use crate::pager::{self, Moved};
use crate::scan::{self, Query};
use crate::set::ArenaSet;
use crate::store::Store;
use crate::sys::{CHUNK, Fd};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sums over the evicts and restores of an arena. Written by the pager only.
#[derive(Default)]
pub(crate) struct Totals {
    evictions: AtomicU64,
    restores: AtomicU64,
    evicted: AtomicU64,
    restored: AtomicU64,
    written: AtomicU64,
    read: AtomicU64,
    scanned: AtomicU64,
    punched: AtomicU64,
}

fn add(sum: &AtomicU64, n: u64) {
    sum.fetch_add(n, Ordering::Relaxed);
}

impl Totals {
    /// An evict begins that may give back what the arena has in RAM.
    pub fn begin_evict(&self) {
        add(&self.evictions, 1);
    }

    /// A restore begins that may bring in what is out.
    pub fn begin_restore(&self) {
        add(&self.restores, 1);
    }

    /// Counts what an evict did between two moments.
    pub fn evicted(&self, from: Moved, to: Moved) {
        add(&self.evicted, to.freed_or_filled - from.freed_or_filled);
        add(&self.written, to.bytes - from.bytes);
        add(&self.scanned, to.scanned - from.scanned);
        add(&self.punched, to.punched - from.punched);
    }

    /// Counts what a restore did between two moments.
    pub fn restored(&self, from: Moved, to: Moved) {
        add(&self.restored, to.freed_or_filled - from.freed_or_filled);
        add(&self.read, to.bytes - from.bytes);
        add(&self.scanned, to.scanned - from.scanned);
    }
}

/// One arena at a moment, and what moving it has cost since it was made. All sizes are in bytes.
///
/// Made by [`Arena::stats`] and [`ArenaSet::stats`]. The fields are looked up one after the other, so while
/// other threads allocate, or the pager is at work, they need not fit together to the byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaStats {
    /// Address space set aside.
    pub reserved: usize,
    /// Committed and charged, in RAM or out: a multiple of 4 KiB.
    pub held: usize,
    /// Of `held`, what was moved out and has not been restored or freed since.
    pub out: usize,
    /// Pages of the process's own that are in RAM now, as the kernel has them: less than `held - out` where
    /// committed memory was never touched. `None` on kernels before Linux 6.7,
    /// which do not tell.
    pub in_ram: Option<usize>,
    /// Of `in_ram`, what lies in huge pages (2 MiB). `None` as above.
    pub huge: Option<usize>,
    /// Blocks of 64 KiB that the scratch file holds and that would be read by a restore.
    pub stored_blocks: usize,
    /// Space the scratch files take, as their file systems report it: 0 before the first evict.
    pub on_scratch: u64,
    /// Evicts begun while something of it was in RAM.
    pub evictions: u64,
    /// Restores begun while something of it was out.
    pub restores: u64,
    /// RAM given back by all evicts.
    pub evicted: u64,
    /// RAM taken by all restores.
    pub restored: u64,
    /// Written to the scratch file.
    pub written: u64,
    /// Read from the scratch file by restores. What the kernel brought in by itself, because it was touched
    /// while it was out, is not counted.
    pub read: u64,
    /// Compared or verified by checksum.
    pub scanned: u64,
    /// Given back by evicts that punched holes into the scratch file.
    pub punched: u64,
}

impl Arena {
    /// The figures of this arena.
    ///
    /// Costs two or three system calls and a look at one byte per 64 KiB of the arena's highest use;
    /// allocates nothing.
    ///
    /// ```
    /// use sbmalloc::{Arena, ArenaOptions, SbVec};
    /// let arena = Arena::new(&ArenaOptions::default())?;
    /// let mut numbers = SbVec::new_in(&arena);
    /// numbers.resize(1 << 20, 7u64);
    /// assert_eq!(arena.stats().held, 8 << 20);
    /// // SAFETY: only threads write to what is moved.
    /// unsafe { sbmalloc::pager::evict() }?;
    /// assert_eq!((arena.stats().out, arena.stats().written), (8 << 20, 8 << 20));
    /// // SAFETY: as above.
    /// unsafe { sbmalloc::pager::restore() }?;
    /// assert_eq!((arena.stats().out, arena.stats().read), (0, 8 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> ArenaStats {
        self.inner().stats()
    }
}

impl ArenaSet {
    /// The figures of every arena of the set, for [`PROCESS`](crate::PROCESS) those of the heap among them:
    /// the one of small blocks first, then that of large ones, if the heap has been used at all.
    pub fn stats(&'static self) -> impl Iterator<Item = ArenaStats> {
        // One at a time under the pager's lock: the caller may allocate, and so page, in between.
        (0..crate::MAX_ARENAS).filter_map(|slot| {
            let _pager = pager::exclude();
            self.arena(slot).map(Inner::stats)
        })
    }
}

impl Inner {
    fn stats(&self) -> ArenaStats {
        let load = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let extent = self.extent();
        let pages = self.present_pages();
        let stored = |i: &usize| self.block(*i).load(Ordering::Relaxed) == STORED;
        ArenaStats {
            reserved: self.len(),
            held: self.committed.load(Ordering::Relaxed),
            out: self.out.load(Ordering::Relaxed),
            in_ram: pages.map(|p| p.present),
            huge: pages.map(|p| p.huge),
            stored_blocks: (0..extent / CHUNK).filter(stored).count(),
            on_scratch: self.store().map_or(0, |store| on_disk(store, extent as u64)),
            evictions: load(&self.totals.evictions),
            restores: load(&self.totals.restores),
            evicted: load(&self.totals.evicted),
            restored: load(&self.totals.restored),
            written: load(&self.totals.written),
            read: load(&self.totals.read),
            scanned: load(&self.totals.scanned),
            punched: load(&self.totals.punched),
        }
    }
}

/// Space that all files of the store take, which hold `extent` bytes.
fn on_disk(store: &dyn Store, extent: u64) -> u64 {
    let size = |fd| {
        // SAFETY: a zeroed stat is valid, and the kernel fills it.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &mut stat) == 0 { stat.st_blocks as u64 * 512 } else { 0 }
        }
    };
    // The files take turns, so the first comes back after the last.
    let first = store.mapping_fd(0);
    let (mut sum, mut end) = (size(first), store.piece_end(0));
    while end < extent && store.mapping_fd(end) != first {
        sum += size(store.mapping_fd(end));
        end = store.piece_end(end);
    }
    sum
}

/// Pages of the process's own, in bytes.
#[derive(Clone, Copy, Default)]
struct Present {
    present: usize,
    huge: usize,
}

impl Inner {
    /// What of the arena is in RAM; `None` if the kernel does not tell (before Linux 6.7).
    fn present_pages(&self) -> Option<Present> {
        let map = Fd::open(c"/proc/thread-self/pagemap", libc::O_RDONLY).ok()?;
        let mut found = Present::default();
        present_in(&map, self.base, self.len(), &mut found)?;
        Some(found)
    }
}

/// Adds what of `[base, base+len)` is in RAM; `None` if the kernel does not tell.
fn present_in(map: &Fd, base: usize, len: usize, found: &mut Present) -> Option<()> {
    let not = scan::OF_FILE | scan::ZERO_PAGE;
    let query = Query { inverted: not, all_of: scan::IN_RAM | not, report: scan::HUGE, ..Query::default() };
    let mut regions = [[0; 3]; 64];
    let added = scan::each(map, &mut regions, [base, base + len], query, |[from, to, kinds]| {
        let bytes = (to - from) as usize;
        found.present += bytes;
        found.huge += if kinds & scan::HUGE != 0 { bytes } else { 0 };
        Ok::<(), Infallible>(())
    });
    added.ok()
}
