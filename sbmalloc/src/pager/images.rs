//! Packed granules: the blocks of a granule, compressed one by one, lie one behind the other in the file,
//! from the granule's own place on. What each takes is kept in the arena's tables, so that a damaged file can
//! at worst yield wrong bytes, which the checksums find.
//!
//! They are made and taken apart in memory of the pager's own, [`PLACES`] at a time, that is given back to
//! the system after each evict or restore.

use super::PagerError;
use super::judge::{self, Judge};
use super::lz4::{self, State};
use super::own::block_bytes;
use crate::arena::{HOLE, Inner, STALE, STORED};
use crate::checksum;
use crate::config::{self, Compression};
use crate::sys::{self, CHUNK, Errno, GRANULE, PAGE};
use std::sync::atomic::Ordering;

/// Images that are made, written or read at a time.
const PLACES: usize = 4;
/// What the arena's tables say of a block in an image: how many bytes it takes, in these bits; how many pages
/// it has, in those from [`PAGES_SHIFT`] on; and whether it lies there as it is. 0 if it is not in it.
const BYTES: u32 = (1 << 24) - 1;
const PAGES_SHIFT: u32 = 24;
const AS_IT_IS: u32 = 1 << 31;
const _: () = assert!(CHUNK <= BYTES as usize && CHUNK / PAGE < 1 << (31 - PAGES_SHIFT));

/// A block of `len` bytes, whole pages, that takes `used` of an image.
fn entry(len: usize, used: usize) -> u32 {
    used as u32 | ((len / PAGE) as u32) << PAGES_SHIFT | if used == len { AS_IT_IS } else { 0 }
}

/// Bytes of an image that a block takes.
fn bytes_of(entry: u32) -> usize {
    (entry & BYTES) as usize
}
const GRANULE_BLOCKS: usize = GRANULE / CHUNK;

/// A block of a granule at a glance: its checksum and the bytes in use, or `None` if it reads as zeros.
pub(super) type Content = Option<(u128, usize)>;

/// Where images are, and the codec.
pub(crate) struct Images {
    /// Address of the first place, 0 before the first use.
    at: usize,
    busy: [bool; PLACES],
    state: State,
    judge: Judge,
    /// Since when the disk has had nothing to do but what is not packed, and what it has moved since.
    span: Option<(u64, usize)>,
}

/// Monotonic nanoseconds.
fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of a processor that this thread has had.
fn computed() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Images {
    pub const fn new() -> Self {
        Self { at: 0, busy: [false; PLACES], state: State::new(), judge: Judge::new(), span: None }
    }

    /// Nothing is under way: every place is free.
    pub fn reset(&mut self) {
        self.busy = [false; PLACES];
        self.span = None;
    }

    /// Takes a place, if one is free.
    pub fn take(&mut self) -> Result<Option<usize>, Errno> {
        let Some(k) = self.busy.iter().position(|busy| !busy) else { return Ok(None) };
        if self.at == 0 {
            self.at = sys::map_anon_aligned(PLACES * GRANULE, PAGE)?;
        }
        self.busy[k] = true;
        Ok(Some(self.at + k * GRANULE))
    }

    /// Whether an address is a place.
    pub fn holds(&self, at: usize) -> bool {
        self.at != 0 && at.wrapping_sub(self.at) < PLACES * GRANULE
    }

    pub fn give(&mut self, at: usize) {
        self.busy[(at - self.at) / GRANULE] = false;
    }

    /// Gives the memory back. Nothing is under way.
    pub fn rest(&mut self) {
        self.reset();
        if self.at != 0 {
            let _ = sys::advise(self.at, PLACES * GRANULE, libc::MADV_DONTNEED);
        }
    }

    /// Whether the next granule is to be packed, if it can be.
    pub fn wanted(&mut self, how: Compression) -> bool {
        self.judge.wants(how)
    }

    /// A transfer of what is not packed begins; whether the disk was idle.
    pub fn begin(&mut self, was_idle: bool) {
        if was_idle {
            self.span = Some((now(), 0));
        }
    }

    /// One has ended. Once enough has, the disk's rate is known.
    pub fn ended(&mut self, bytes: usize, is_idle: bool) {
        const ENOUGH: usize = 8 << 20;
        let Some((since, moved)) = &mut self.span else { return };
        *moved += bytes;
        if *moved >= ENOUGH || is_idle && *moved >= ENOUGH / 8 {
            let time = now();
            self.judge.disk(*moved, time.saturating_sub(*since).max(1));
            self.span = (!is_idle).then_some((time, 0));
        } else if is_idle {
            self.span = None;
        }
    }

    /// Makes the image of granule `g`, of which these are the contents, at a place: its bytes, in whole
    /// pages, and what each block takes of it. `None` if it is not worth it.
    pub fn make(
        &mut self,
        arena: &Inner,
        g: usize,
        contents: &[Content; GRANULE_BLOCKS],
        at: usize,
    ) -> Option<(usize, [u32; GRANULE_BLOCKS])> {
        self.span = None; // the disk may have to wait for us from here on
        // Not what others compute meanwhile: once it seems not to pay it is not tried for a long time.
        let begin = computed();
        // SAFETY: a place that was taken, so nobody else's, as large as a granule.
        let image = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, GRANULE) };
        let (mut looked, mut used, mut takes) = (0, 0, [0; GRANULE_BLOCKS]);
        let blocks = contents.iter().enumerate().filter_map(|(k, content)| Some((k, (*content)?.1)));
        let mut is_made = true;
        for (k, len) in blocks {
            let bytes = &block_bytes(arena, g * GRANULE_BLOCKS + k)[..len];
            let room = &mut image[used..judge::MOST];
            let most = room.len().min(len - 1);
            let n = match self.state.compress(bytes, &mut room[..most]) {
                Some(n) => n,
                None if room.len() >= len => {
                    room[..len].copy_from_slice(bytes);
                    len
                }
                None => {
                    is_made = false;
                    break;
                }
            };
            takes[k] = entry(len, n);
            (looked, used) = (looked + len, used + n);
            if judge::is_hopeless(looked, used) {
                is_made = false;
                break;
            }
        }
        let len = used.next_multiple_of(PAGE);
        is_made &= looked > 0 && judge::is_smaller(looked, used);
        self.judge.tried(if is_made { looked - len } else { 0 }, computed().saturating_sub(begin));
        image[used..len].fill(0);
        is_made.then_some((len, takes))
    }
}

/// Bytes of the image of a packed granule in the file; 0 if it holds nothing.
pub(super) fn image_len(arena: &Inner, g: usize) -> usize {
    let blocks = g * GRANULE_BLOCKS..(g + 1) * GRANULE_BLOCKS;
    let used = blocks.map(|i| bytes_of(arena.packed_block(i))).sum::<usize>();
    used.next_multiple_of(PAGE)
}

/// The image of granule `g` at `at` was written: its blocks are stored, or holes.
pub(super) fn stored(arena: &Inner, g: usize) {
    for i in g * GRANULE_BLOCKS..(g + 1) * GRANULE_BLOCKS {
        let state = if arena.packed_block(i) == 0 { HOLE } else { STORED };
        arena.block(i).store(state, Ordering::Release);
    }
}

/// The file's blocks of granule `g`, which is not out, mean nothing any more: whatever comes next writes all
/// of it. `packed`: in which form that will be.
pub(super) fn forsake(arena: &Inner, g: usize, packed: bool) {
    for i in g * GRANULE_BLOCKS..(g + 1) * GRANULE_BLOCKS {
        arena.block(i).store(STALE, Ordering::Release);
    }
    arena.tracker.tracker().note(arena, g * GRANULE, GRANULE);
    arena.set_packed_form(g, packed);
}

/// Takes the image of granule `g`, at `at`, apart into the granule's place in a staging, `to`; verifies it.
/// Blocks that are not stored stay as they are. Returns the bytes there are.
///
/// # Safety
/// At `at` lie the bytes of the image, at `to` a granule nobody else knows.
pub(super) unsafe fn take_apart(arena: &Inner, g: usize, at: usize, to: usize) -> Result<usize, PagerError> {
    let (mut from, mut bytes) = (0, 0);
    for k in 0..GRANULE_BLOCKS {
        let i = g * GRANULE_BLOCKS + k;
        let entry = arena.packed_block(i);
        let (len, n) = (bytes_of(entry), ((entry & !AS_IT_IS) >> PAGES_SHIFT) as usize * PAGE);
        // SAFETY: what the blocks take together is the image's size, by this function's contract.
        let packed = unsafe { std::slice::from_raw_parts((at + from) as *const u8, len) };
        from += len;
        if len == 0 || arena.block(i).load(Ordering::Acquire) != STORED {
            continue;
        }
        let corrupt = PagerError::Corrupt { offset: (i * CHUNK) as u64 };
        let block = (to + k * CHUNK) as *mut u8;
        if entry & AS_IT_IS != 0 {
            // SAFETY: a block of the staging; one that lies as it is takes as many bytes as it has.
            unsafe { std::ptr::copy_nonoverlapping(packed.as_ptr(), block, n) };
        // SAFETY: as above. Not a byte more, as the codec may write to all that it is given.
        } else if unsafe { lz4::decompress(packed, block, n) } != Some(n) {
            return Err(corrupt);
        }
        if config::verify() {
            // SAFETY: just filled, and known to nobody else.
            let plain = unsafe { std::slice::from_raw_parts(block, n) };
            if checksum::of_block(plain) != arena.sum(i) {
                return Err(corrupt);
            }
        }
        bytes += n;
    }
    Ok(bytes)
}
