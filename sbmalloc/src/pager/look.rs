//! Looking at what the kernel brought in of granules that are out: how much, and whether it is right.

use super::damage::Wrong;
use super::history::Seen;
use super::own::{Buffers, Session};
use super::pagemap::{Pagemap, WINDOW};
use super::{PagerError, Touched, exclude, plan};
use crate::arena::{Inner, STORED};
use crate::checksum;
use crate::config;
use crate::protection;
use crate::set::ArenaSet;
use crate::store::read_all;
use crate::sys::{CHUNK, Errno, Fd, GRANULE, PAGE};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Granules in a window.
pub(super) const WINDOW_GRANULES: usize = WINDOW * PAGE / GRANULE;
/// Granules looked at in one go.
const LOOK: usize = 256;
const GRANULE_BLOCKS: usize = GRANULE / CHUNK;
pub(super) const BLOCK_PAGES: usize = CHUNK / PAGE;

/// What is there of a granule that is out.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    there: u16,
    stretches: u16,
    written: bool,
}

impl Count {
    /// So many adjacent pages more.
    fn add(&mut self, pages: u16, private: bool) {
        self.there += pages;
        self.stretches += 1;
        self.written |= private;
    }

    /// Whether so much was used of a granule that holds so many pages that to bring it in as a whole costs
    /// less than to let come in what is touched.
    fn is_worth_bringing(self, held: u16) -> bool {
        plan::is_worth_bringing(held, self.there, self.stretches)
    }
}

impl Session {
    /// Counts the pages that are there of granules that are out. If a phase went on, and `ends`, learns from
    /// them.
    pub fn look(&mut self, set: &ArenaSet, ends: bool) -> Result<(), PagerError> {
        let Self { pagemap, buffers, .. } = self;
        let buffers: &mut Buffers = buffers;
        let in_phase = ends && set.sites(buffers).in_phase();
        for arena in set.arenas().filter(|a| a.is_evicted()) {
            let mut granules = 0..arena.granules();
            while let Some(out) = arena.stretch(granules.clone(), true, LOOK) {
                granules.start = out.end;
                let mut counts = [Count::default(); LOOK];
                let from = arena.base + out.start * GRANULE;
                pagemap.each(&mut buffers.window, from, out.len() * GRANULE, &mut |pages, private| {
                    by_unit(pages, from, GRANULE, |k, pages| counts[k].add(pages, private));
                    Ok(())
                })?;
                for (g, count) in out.zip(counts) {
                    arena.set_touched(g, count.there);
                    if in_phase && arena.held(g) > 0 {
                        let seen = match count.written {
                            _ if !count.is_worth_bringing(arena.held(g)) => Seen::Untouched,
                            false => Seen::Read,
                            true => Seen::Written,
                        };
                        let sites = set.sites(buffers);
                        for (slot, byte) in sites.out(seen, |slot| arena.history(slot, g)) {
                            arena.set_history(slot, g, byte);
                        }
                    }
                }
            }
        }
        if ends {
            set.sites(buffers).close();
        }
        Ok(())
    }

    /// As [`verify`], within a session.
    pub fn verify_touched(&mut self, set: &ArenaSet) -> Result<(), PagerError> {
        let Self { pagemap, buffers, .. } = self;
        set.arenas().try_for_each(|arena| verify_arena(pagemap, buffers, arena))
    }
}

/// What of the memory that is out has been touched. Learns nothing; other threads go on meanwhile.
pub(super) fn touched(buffers: &mut Buffers, set: &ArenaSet) -> Result<Touched, PagerError> {
    let pagemap = Pagemap::open()?;
    let (mut out, mut there, mut dense) = (0, 0, 0);
    for arena in set.arenas().filter(|a| a.is_evicted()) {
        let mut granules = 0..arena.granules();
        while let Some(left) = arena.stretch(granules.clone(), true, usize::MAX) {
            granules.start = left.end;
            let (from, len) = (arena.base + left.start * GRANULE, left.len() * GRANULE);
            out += left.clone().map(|g| arena.held(g) as usize * PAGE).sum::<usize>();
            let (mut granule, mut count) = (left.start, Count::default());
            let mut next = |g: usize, pages: u16, private: bool| {
                if g != granule {
                    let count = std::mem::take(&mut count);
                    let worth = count.is_worth_bringing(arena.held(granule));
                    dense += if worth { usize::from(count.there) * PAGE } else { 0 };
                    granule = g;
                }
                count.add(pages, private);
            };
            pagemap.each(&mut buffers.window, from, len, &mut |pages, private| {
                there += pages.len();
                by_unit(pages, from, GRANULE, |k, pages| next(left.start + k, pages, private));
                Ok(())
            })?;
            next(left.end, 0, false);
        }
    }
    let in_ram = set.committed().saturating_sub(out) + there;
    let much = set.sites(buffers).much(set.committed(), out);
    Ok(Touched { in_ram, much: dense >= much, soon: dense >= much / 4 })
}

/// Verifies what the kernel brought in and nobody has verified. Other threads go on meanwhile.
pub(super) fn verify(set: &ArenaSet) -> Result<(), PagerError> {
    let mut buffers = exclude();
    let pagemap = Pagemap::open()?;
    set.arenas().try_for_each(|arena| verify_arena(&pagemap, &mut buffers, arena))
}

/// As [`verify`], of one arena.
fn verify_arena(pagemap: &Pagemap, buffers: &mut Buffers, arena: &Inner) -> Result<(), PagerError> {
    if !arena.is_evicted() || !config::verify() {
        return Ok(());
    }
    let Buffers { window, block, .. } = buffers;
    let mut granules = 0..arena.granules();
    while let Some(out) = arena.stretch(granules.clone(), true, usize::MAX) {
        granules.start = out.end;
        let (from, len) = (arena.base + out.start * GRANULE, out.len() * GRANULE);
        pagemap.each(window, from, len, &mut |pages, private| {
            let blocks = (pages.start - arena.base) / CHUNK..(pages.end - arena.base).div_ceil(CHUNK);
            for i in blocks.filter(|_| !private) {
                let (g, bit) = (i / GRANULE_BLOCKS, 1 << (i % GRANULE_BLOCKS));
                if arena.checked(g) & bit == 0 {
                    verify_block(pagemap, &mut block.0, arena, i)?;
                    arena.set_checked(g, bit);
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Calls `f` with each unit of `unit` bytes, counted from address `from`, that the page range has pages in,
/// and how many.
fn by_unit(pages: Range<usize>, from: usize, unit: usize, mut f: impl FnMut(usize, u16)) {
    let mut at = pages.start;
    while at < pages.end {
        let k = (at - from) / unit;
        let next = pages.end.min(from + (k + 1) * unit);
        f(k, ((next - at) / PAGE) as u16);
        at = next;
    }
}

/// Verifies block `i` of a granule that is out: what the process sees of it, or what the file holds if some
/// of it has been written. Threads may write and free it meanwhile.
fn verify_block(
    pagemap: &Pagemap,
    copy: &mut [u8; CHUNK],
    arena: &Inner,
    i: usize,
) -> Result<(), PagerError> {
    let is_stored = || arena.block(i).load(Ordering::Acquire) == STORED;
    if !is_stored() {
        return Ok(()); // freed; what is there of it, if anything, means nothing
    }
    let at = arena.base + i * CHUNK;
    if protection::is_unused() {
        for (k, word) in copy.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // SAFETY: inside the arena, which stays mapped while the pager's lock is held, and readable where
            // no rights were ever taken away. Volatile, as others may write it; torn values are found out
            // below.
            *word = unsafe { ((at + k * 8) as *const [u8; 8]).read_volatile() };
        }
    } else {
        read_closed(copy, at)?;
    }
    let mut entries = [0; BLOCK_PAGES];
    let page = pagemap.read(&mut entries, at, CHUNK)?;
    let is_of_file = (0..BLOCK_PAGES).any(|p| page(p).is_private());
    if is_of_file {
        read_block(arena, copy, i)?;
    }
    if checksum::of_block(copy) == arena.sum(i) || !is_stored() {
        return Ok(());
    }
    let wrong = Wrong::new(i, copy);
    if !is_of_file {
        return Err(wrong.was_seen(arena, copy));
    }
    match wrong.read_again(arena, copy) {
        Err(e) if is_stored() => Err(e),
        _ => Ok(()), // right in the end, or freed meanwhile
    }
}

/// Reads a block that the program may have closed, or close meanwhile: the kernel reads it for whoever may
/// trace the process, whatever the rights of its pages.
fn read_closed(copy: &mut [u8; CHUNK], at: usize) -> Result<(), PagerError> {
    let failed = |errno| PagerError::Blind { op: "read /proc/thread-self/mem", errno };
    let memory = Fd::open(c"/proc/thread-self/mem", libc::O_RDONLY).map_err(failed)?;
    let mut done = 0;
    while done < copy.len() {
        match memory.pread(&mut copy[done..], (at + done) as u64) {
            Ok(0) => return Err(failed(Errno(libc::EIO))),
            Ok(n) => done += n,
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(())
}

/// Reads what the file holds at block `i`, unverified.
pub(super) fn read_block(arena: &Inner, to: &mut [u8; CHUNK], i: usize) -> Result<(), PagerError> {
    let failed = |e| PagerError::io("read the scratch file", i * CHUNK, e);
    let store = arena.store().ok_or(failed(Errno(libc::EBADF)))?;
    // SAFETY: the buffer has the block's size.
    let read = unsafe { read_all(store, (i * CHUNK) as u64, to.as_mut_ptr(), CHUNK) };
    read.map_err(|(_, e)| failed(e))
}
