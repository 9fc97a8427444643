//! Memory that a program maps and unmaps by the page, as it would with `mmap`.
//!
//! An arena used this way has no runs: the word that holds a run's length elsewhere holds here which pages of
//! the chunk are mapped, one bit each. So any page can be unmapped, across the borders of mappings too, and
//! whoever clears the last bit of a chunk gives it back. Whole chunks are charged: the RAM of a chunk's
//! unmapped pages is given back with the chunk.

use super::Inner;
use crate::account;
use crate::sys::{CHUNK, PAGE};
use std::ops::Range;
use std::sync::atomic::Ordering;

const _: () = assert!(CHUNK / PAGE < 32, "a chunk's pages are bits of a u32");

/// The chunks that `[start, start+len)`, whole pages, touches, each with the bits of its pages in it.
fn chunks(start: usize, len: usize) -> impl Iterator<Item = (usize, u32)> {
    (start / CHUNK..(start + len).div_ceil(CHUNK)).map(move |i| {
        let from = start.max(i * CHUNK) - i * CHUNK;
        let to = (start + len).min((i + 1) * CHUNK) - i * CHUNK;
        let below = |bytes: usize| (1u32 << (bytes / PAGE)) - 1;
        (i, below(to) & !below(from))
    })
}

impl Inner {
    /// Maps `len` bytes, whole pages that read as zeros, at a multiple of 64 KiB; `None` if the account or
    /// the address space refuses.
    pub(crate) fn map_pages(&self, len: usize) -> Option<usize> {
        let n = len.div_ceil(CHUNK);
        if !self.may_have_room(n, CHUNK) {
            return None;
        }
        account::charge(n * CHUNK).ok()?;
        let mut space = self.space.lock();
        let Some(first) = self.find(&mut space, n, CHUNK) else {
            drop(space);
            account::uncharge(n * CHUNK);
            return None;
        };
        self.paint(first, n, true);
        self.raise_top(first + n, (first + n) * CHUNK);
        drop(space);
        for (i, bits) in chunks(first * CHUNK, len) {
            self.tables.run_pages(i).store(bits, Ordering::Release);
        }
        self.commit(first * CHUNK, n * CHUNK);
        Some(self.base + first * CHUNK)
    }

    /// Unmaps the pages `[start, start+len)`, offsets from the base; what is not mapped there stays so.
    pub(crate) fn unmap_pages(&self, start: usize, len: usize) {
        let mut freed = 0..0;
        for (i, bits) in chunks(start, len) {
            let before = self.tables.run_pages(i).fetch_and(!bits, Ordering::AcqRel);
            if before == 0 || before & !bits != 0 {
                continue;
            }
            if freed.end == i {
                freed.end += 1;
            } else {
                self.give_back(std::mem::replace(&mut freed, i..i + 1));
            }
        }
        self.give_back(freed);
    }

    /// Frees chunks without a mapped page.
    fn give_back(&self, chunks: Range<usize>) {
        if chunks.is_empty() {
            return;
        }
        let bytes = chunks.len() * CHUNK;
        self.discard(chunks.start * CHUNK, bytes);
        self.release(chunks.start, chunks.len());
        self.forget(chunks.start * CHUNK, bytes);
        account::uncharge(bytes);
    }

    /// Whether all pages of `[start, start+len)` are mapped.
    pub(crate) fn has_pages(&self, start: usize, len: usize) -> bool {
        chunks(start, len).all(|(i, bits)| self.tables.run_pages(i).load(Ordering::Acquire) & bits == bits)
    }

    /// Makes the pages `[start, start+len)` read as zeros, in RAM or out. The RAM of whole blocks is given
    /// back; the pages at the ends, which share a block of the file with others, are written.
    ///
    /// # Safety
    /// The pages are mapped and writable, and the program wants them empty.
    pub(crate) unsafe fn empty_pages(&self, start: usize, len: usize) {
        let end = start + len;
        let (first, last) = (start.next_multiple_of(CHUNK), end / CHUNK * CHUNK);
        let zero = |from: usize, to: usize| {
            // SAFETY: in bounds of the arena; this function's contract.
            unsafe { std::ptr::write_bytes((self.base + from) as *mut u8, 0, to - from) };
        };
        if first >= last {
            return zero(start, end);
        }
        zero(start, first);
        self.discard(first, last - first);
        zero(last, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_in_the_bits_of_its_chunk() {
        assert_eq!(chunks(0, CHUNK).collect::<Vec<_>>(), [(0, 0xffff)]);
        assert_eq!(chunks(PAGE, CHUNK).collect::<Vec<_>>(), [(0, 0xfffe), (1, 1)]);
        assert_eq!(chunks(15 * PAGE, 18 * PAGE).collect::<Vec<_>>(), [(0, 0x8000), (1, 0xffff), (2, 1)]);
        assert_eq!(chunks(CHUNK, 0).count(), 0);
    }
}
