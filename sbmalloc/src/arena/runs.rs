//! Runs of chunks: first fit over a bitmap, growth and shrinking in place.

use super::{Inner, charged};
use crate::account;
use crate::sys::{self, CHUNK, GRANULE, PAGE};
use std::sync::atomic::Ordering;

/// From so many chunks it is looked for room before they are paid for.
const WORTH_A_LOOK: usize = (64 << 20) / CHUNK;

/// What allocation knows, under its lock. The bitmap itself lies in the side tables.
pub(super) struct Space {
    /// No chunk below is free.
    hint: usize,
}

impl Space {
    pub const fn new() -> Self {
        Self { hint: 0 }
    }
}

impl Inner {
    fn taken(&self, i: usize) -> bool {
        self.tables.map_word(i / 64).load(Ordering::Relaxed) >> (i % 64) & 1 == 1
    }

    /// Sets or clears the bits of `n` chunks from `start`.
    pub(super) fn paint(&self, start: usize, n: usize, taken: bool) {
        let (mut i, end) = (start, start + n);
        while i < end {
            let count = (64 - i % 64).min(end - i);
            let bits = if count == 64 { u64::MAX } else { ((1 << count) - 1) << (i % 64) };
            let word = self.tables.map_word(i / 64);
            let old = word.load(Ordering::Relaxed);
            word.store(if taken { old | bits } else { old & !bits }, Ordering::Relaxed);
            i += count;
        }
    }

    /// The first chunk at or after `i` (and below `end`) whose bit is `taken`, else `end`.
    fn next(&self, mut i: usize, end: usize, taken: bool) -> usize {
        while i < end {
            let word = self.tables.map_word(i / 64).load(Ordering::Relaxed);
            let word = (if taken { word } else { !word }) >> (i % 64);
            if word != 0 {
                return (i + word.trailing_zeros() as usize).min(end);
            }
            i = (i / 64 + 1) * 64;
        }
        end
    }

    /// Finds `n` free chunks whose address is a multiple of `align`.
    pub(super) fn find(&self, space: &mut Space, n: usize, align: usize) -> Option<usize> {
        let top = self.top.load(Ordering::Relaxed);
        let mut i = self.next(space.hint.min(top), top, false);
        space.hint = i;
        loop {
            let address = (self.base + i * CHUNK).checked_next_multiple_of(align)?;
            i = (address - self.base) / CHUNK;
            if i.checked_add(n)? > self.chunks {
                return None;
            }
            // Above the high-water mark everything is free, and its bitmap was never touched.
            let end = (i + n).min(top.max(i));
            let blocked = self.next(i, end, true);
            if blocked == end {
                return Some(i);
            }
            i = self.next(blocked, top, false);
        }
    }

    /// Whether so many chunks may be found. A look before a charge that would evict others, or end the job,
    /// for what cannot be had; small ones are not worth it.
    pub(super) fn may_have_room(&self, n: usize, align: usize) -> bool {
        n < WORTH_A_LOOK || (n <= self.chunks && self.find(&mut self.space.lock(), n, align).is_some())
    }

    /// A run of `bytes` that reads as zeros, or `None` if the account or the address space refuses.
    pub(crate) fn alloc_run(&self, bytes: usize, align: usize) -> Option<usize> {
        let bytes = charged(bytes.max(1));
        let n = bytes.div_ceil(CHUNK);
        if !self.may_have_room(n, align.max(CHUNK)) {
            return None;
        }
        // Charged before any lock is taken: the account may block, and evict this very arena meanwhile.
        account::charge(bytes).ok()?;
        let mut space = self.space.lock();
        let Some(i) = self.find(&mut space, n, align.max(CHUNK)) else {
            drop(space);
            account::uncharge(bytes);
            return None;
        };
        self.paint(i, n, true);
        self.raise_top(i + n, (i + n) * CHUNK);
        drop(space);
        self.tables.run_pages(i).store((bytes / PAGE) as u32, Ordering::Relaxed);
        self.commit(i * CHUNK, bytes);
        Some(self.base + i * CHUNK)
    }

    /// Bytes charged for the run that starts at `address`.
    pub(crate) fn run_bytes(&self, address: usize) -> usize {
        self.tables.run_pages((address - self.base) / CHUNK).load(Ordering::Relaxed) as usize * PAGE
    }

    /// Frees the run that starts at `address`.
    pub(crate) fn free_run(&self, address: usize) {
        let i = (address - self.base) / CHUNK;
        let bytes = self.run_bytes(address);
        let n = bytes.div_ceil(CHUNK);
        self.discard(i * CHUNK, n * CHUNK);
        self.release(i, n);
        self.forget(i * CHUNK, bytes);
        account::uncharge(bytes);
    }

    pub(super) fn release(&self, i: usize, n: usize) {
        let mut space = self.space.lock();
        self.paint(i, n, false);
        space.hint = space.hint.min(i);
    }

    /// Makes the run at `address` `bytes` long where it lies; false if it cannot be. New chunks read as
    /// zeros, the rest of the old last chunk as whatever was left there.
    pub(crate) fn resize_run(&self, address: usize, bytes: usize) -> bool {
        let i = (address - self.base) / CHUNK;
        let (old, new) = (self.run_bytes(address), charged(bytes.max(1)));
        let (have, want) = (old.div_ceil(CHUNK), new.div_ceil(CHUNK));
        if new < old {
            if want < have {
                self.discard((i + want) * CHUNK, (have - want) * CHUNK);
            }
            self.tables.run_pages(i).store((new / PAGE) as u32, Ordering::Relaxed);
            self.drop_rest(i * CHUNK + new, (i * CHUNK + old).min((i + want) * CHUNK));
            if want < have {
                self.release(i + want, have - want);
            }
            self.forget(i * CHUNK + new, old - new);
            account::uncharge(old - new);
        } else if new > old {
            // A look first: a charge may evict somebody for nothing.
            if i + want > self.chunks || !self.free_after(i + have, want - have) {
                return false;
            }
            if account::charge(new - old).is_err() {
                return false;
            }
            if want > have {
                let space = self.space.lock();
                if !self.free_after(i + have, want - have) {
                    drop(space);
                    account::uncharge(new - old);
                    return false;
                }
                self.paint(i + have, want - have, true);
                self.raise_top(i + want, (i + want) * CHUNK);
            }
            self.tables.run_pages(i).store((new / PAGE) as u32, Ordering::Relaxed);
            self.commit(i * CHUNK + old, new - old);
        }
        true
    }

    /// Takes pages of a chunk out of RAM that are no longer paid for, whatever they read as afterwards. Where
    /// the chunk is out they are few, and leave with the next evict.
    fn drop_rest(&self, from: usize, to: usize) {
        if from < to && !self.is_out(from / GRANULE) {
            self.tracker.tracker().note(self, from, to - from);
            // Locked pages refuse, and stay.
            let _ = sys::advise(self.base + from, to - from, libc::MADV_DONTNEED);
        }
    }

    fn free_after(&self, i: usize, n: usize) -> bool {
        let top = self.top.load(Ordering::Relaxed);
        let end = (i + n).min(top.max(i));
        n == 0 || i >= top || (!self.taken(i) && self.next(i, end, true) == end)
    }
}
