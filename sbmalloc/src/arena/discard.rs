//! Giving back the content of a range so that its old bytes can never come back.
//!
//! Resident memory is dropped with `MADV_DONTNEED`; its file block, if there is one, is noticed absent and
//! punched at the next evict. On a granule that is mapped from the file `MADV_DONTNEED` would bring the old
//! content back, so there the file is punched first.
//!
//! Under the evicted mapping this happens with the pager's lock held: an evict may put another granule's
//! image where a block lay, and what was decided before would punch that.
//!
//! Elsewhere the pager may park this thread and change the mapping. That is why a block is first
//! marked [`STALE`] (from then on no restore reads it, and the next evict punches it if we do not), and why
//! everything is done again if the epoch has moved: then what was done may have been done to the other kind
//! of mapping. The chunks are not free before the end, so nobody writes to them meanwhile.

use super::{HOLE, Inner, STALE, STORED};
use crate::pager;
use crate::sys::{self, CHUNK, GRANULE};
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

impl Inner {
    /// Makes the bytes `[start, start+len)`, whole chunks, read as zeros and gives their memory back.
    pub(crate) fn discard(&self, start: usize, len: usize) {
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            self.tracker.tracker().note(self, start, len);
            let mut granules = start / GRANULE..(start + len).div_ceil(GRANULE);
            if granules.clone().any(|g| self.is_out(g)) {
                let _pager = pager::exclude();
                while let Some(out) = self.stretch(granules.clone(), true, usize::MAX) {
                    granules.start = out.end;
                    let range = start.max(out.start * GRANULE)..(start + len).min(out.end * GRANULE);
                    for part in self.alike(range) {
                        self.punch_mapped(part.start, part.end);
                    }
                }
            }
            if sys::advise(self.base + start, len, libc::MADV_DONTNEED).is_err() {
                // Locked pages refuse; they must still read as zeros.
                // SAFETY: the range belongs to a run being given back: nobody else uses it.
                unsafe { std::ptr::write_bytes((self.base + start) as *mut u8, 0, len) };
            }
            fence(Ordering::SeqCst);
            if self.epoch.load(Ordering::Acquire) == epoch {
                return;
            }
        }
    }

    /// Parts of a range of granules that are out, in turn all packed and not.
    fn alike(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let is_packed = |at: usize| self.has_packed() && self.is_packed(at / GRANULE);
            let (start, first) = ((at < range.end).then_some(at)?, is_packed(at));
            let mut next = (start / GRANULE + 1..range.end.div_ceil(GRANULE)).map(|g| g * GRANULE);
            at = next.find(|&at| is_packed(at) != first).unwrap_or(range.end);
            Some(start..at)
        })
    }

    fn punch_mapped(&self, from: usize, to: usize) {
        let blocks = from / CHUNK..to / CHUNK;
        let mut any = false;
        for i in blocks.clone() {
            let was = self.block(i).compare_exchange(STORED, STALE, Ordering::AcqRel, Ordering::Acquire);
            any |= was != Err(HOLE);
        }
        if !any {
            return;
        }
        if self.is_packed(from / GRANULE) {
            // Where a packed block lies in the file are others. A stale one is left out by the restore, which
            // comes before anybody looks.
            return;
        }
        let punched = self.store().map(|s| s.punch(from as u64, (to - from) as u64));
        if punched == Some(Ok(())) {
            for i in blocks {
                let _ = self.block(i).compare_exchange(STALE, HOLE, Ordering::AcqRel, Ordering::Acquire);
            }
        } else {
            // No holes here: cover the file instead. The blocks stay stale, so the restore puts zeros.
            let _ = sys::map_anon_over(self.base + from, to - from);
        }
    }
}
