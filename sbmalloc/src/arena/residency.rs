//! Where the granules of an arena are: resident, or *out*, mapped from the scratch file; and what of the
//! committed bytes is in RAM.
//!
//! The file has a granule raw, block by block in place, or *packed*: compressed, from the granule's place on.
//! One that is out and packed has nothing mapped that could be read: nobody may touch it before it is
//! restored.
//!
//! A granule changes its place only with other threads parked. They count what they commit and free at any
//! time, and may be parked in the middle of it: the figure of what is in RAM errs upwards then.

use super::Inner;
use crate::sys::{GRANULE, PAGE};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The granule is mapped from the file.
const OUT: u8 = 1;
/// It is out, and pages of it were there when the pager last looked.
const TOUCHED: u8 = 2;
/// Pages written while it was out were merged into what is being restored.
const MERGED: u8 = 4;
/// From here on: the number of the phase for which it was brought in, 0 for none.
const PHASE_SHIFT: u32 = 3;

/// Forms of a granule in the file.
const RAW: u8 = 0;
const PACKED: u8 = 1;

/// Committed bytes of all arenas that are not in RAM.
static AWAY: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn out_bytes() -> usize {
    AWAY.load(Ordering::Relaxed)
}

/// Calls `f` with each granule that `[start, start+bytes)` touches, and the pages of it.
fn by_granule(start: usize, bytes: usize, mut f: impl FnMut(usize, u16)) {
    let (mut at, end) = (start, start + bytes);
    while at < end {
        let g = at / GRANULE;
        let next = end.min((g + 1) * GRANULE);
        f(g, ((next - at) / PAGE) as u16);
        at = next;
    }
}

impl Inner {
    /// Whether any granule is out.
    pub fn is_evicted(&self) -> bool {
        self.out_granules.load(Ordering::Acquire) > 0
    }

    /// Granules below the high-water mark.
    pub fn granules(&self) -> usize {
        self.extent() / GRANULE
    }

    pub fn is_out(&self, g: usize) -> bool {
        self.tables.note(g).load(Ordering::Acquire) & OUT != 0
    }

    /// The next stretch of granules in `granules` that are out, or that are not; at most `most` of them.
    pub fn stretch(&self, granules: Range<usize>, out: bool, most: usize) -> Option<Range<usize>> {
        let first = granules.clone().find(|&g| self.is_out(g) == out)?;
        let limit = granules.end.min(first.saturating_add(most));
        let end = (first..limit).find(|&g| self.is_out(g) != out).unwrap_or(limit);
        Some(first..end)
    }

    /// Granule `g` was just mapped from the file. Pager only.
    pub fn set_out(&self, g: usize) {
        self.set_place(g, true, 0);
    }

    /// Granule `g` was just moved over, for phase `phase`. Pager only.
    pub fn set_in(&self, g: usize, phase: u8) {
        self.set_place(g, false, phase);
    }

    fn set_place(&self, g: usize, out: bool, phase: u8) {
        let note = if out { OUT } else { phase << PHASE_SHIFT };
        let was = self.tables.note(g).swap(note, Ordering::AcqRel) & OUT != 0;
        let by = isize::from(out) - isize::from(was);
        if by != 0 {
            self.out_granules.fetch_add(by as usize, Ordering::AcqRel);
            self.set.count_out(by);
            if self.has_packed_form(g) {
                self.packed_out.fetch_add(by as usize, Ordering::AcqRel);
                self.set.count_packed(by);
            }
        }
        self.tables.checked(g).store(0, Ordering::Relaxed);
        if !out {
            self.forget_advice(g);
        }
        self.set_away(g, if out { u16::MAX } else { 0 });
    }

    /// Notes that `pages` pages of granule `g`, which is out, are there. Pager only.
    pub fn set_touched(&self, g: usize, pages: u16) {
        let note = self.tables.note(g);
        match pages {
            0 => note.fetch_and(!TOUCHED, Ordering::Relaxed),
            _ => note.fetch_or(TOUCHED, Ordering::Relaxed),
        };
        if pages > 0 {
            self.forget_advice(g);
        }
        let held = self.held(g);
        self.set_away(g, held.saturating_sub(pages));
    }

    /// Whether granule `g` was brought in for phase `phase` and not since.
    pub fn is_of_phase(&self, g: usize, phase: u8) -> bool {
        self.tables.note(g).load(Ordering::Relaxed) >> PHASE_SHIFT == phase
    }

    /// Whether the file has granule `g` packed, wherever the granule is.
    pub fn has_packed_form(&self, g: usize) -> bool {
        self.tables.form(g).load(Ordering::Acquire) == PACKED
    }

    /// How the file has granule `g`, which is not out, from now on. Pager only.
    pub fn set_packed_form(&self, g: usize, packed: bool) {
        debug_assert!(!self.is_out(g));
        let (form, now) = (self.tables.form(g), if packed { PACKED } else { RAW });
        if form.load(Ordering::Relaxed) != now {
            form.store(now, Ordering::Release);
        }
    }

    /// Whether granule `g` is out and must be restored before it is touched.
    pub fn is_packed(&self, g: usize) -> bool {
        self.is_out(g) && self.has_packed_form(g)
    }

    /// Whether any granule is.
    pub fn has_packed(&self) -> bool {
        self.packed_out.load(Ordering::Acquire) > 0
    }

    /// What block `i` takes of its packed granule, as `images` has it. Pager only.
    pub fn packed_block(&self, i: usize) -> u32 {
        self.tables.packed(i).load(Ordering::Relaxed)
    }

    pub fn set_packed_block(&self, i: usize, n: u32) {
        self.tables.packed(i).store(n, Ordering::Relaxed);
    }

    pub fn is_touched(&self, g: usize) -> bool {
        self.tables.note(g).load(Ordering::Relaxed) & TOUCHED != 0
    }

    /// Remembers that pages were merged into granule `g`, until [`take_merged`](Self::take_merged). Pager
    /// only.
    pub fn set_merged(&self, g: usize) {
        self.tables.note(g).fetch_or(MERGED, Ordering::Relaxed);
    }

    pub fn take_merged(&self, g: usize) -> bool {
        self.tables.note(g).fetch_and(!MERGED, Ordering::Relaxed) & MERGED != 0
    }

    /// The blocks verified since the granule was mapped, a bit each. Pager only.
    pub fn checked(&self, g: usize) -> u32 {
        self.tables.checked(g).load(Ordering::Relaxed)
    }

    pub fn set_checked(&self, g: usize, bits: u32) {
        self.tables.checked(g).fetch_or(bits, Ordering::Relaxed);
    }

    /// What is remembered of granule `g` at a slot. Pager only.
    pub fn history(&self, slot: usize, g: usize) -> u8 {
        self.tables.history(slot, g).load(Ordering::Relaxed)
    }

    pub fn set_history(&self, slot: usize, g: usize, byte: u8) {
        let at = self.tables.history(slot, g);
        if at.load(Ordering::Relaxed) != byte {
            at.store(byte, Ordering::Relaxed);
        }
    }

    /// Pages committed in granule `g`.
    pub fn held(&self, g: usize) -> u16 {
        self.tables.held(g).load(Ordering::Acquire)
    }

    /// Committed bytes of granule `g` that are not in RAM.
    pub fn away(&self, g: usize) -> usize {
        self.tables.away(g).load(Ordering::Acquire) as usize * PAGE
    }

    /// Committed bytes of granule `g` in RAM: an upper bound, as of when the pager last looked.
    pub fn ram(&self, g: usize) -> usize {
        (self.held(g) as usize * PAGE).saturating_sub(self.away(g))
    }

    /// Committed bytes of the arena in RAM.
    pub fn in_ram(&self) -> usize {
        let out = self.out.load(Ordering::Relaxed);
        self.committed.load(Ordering::Relaxed).saturating_sub(out)
    }

    /// Counts bytes as committed, and in RAM.
    pub(super) fn commit(&self, start: usize, bytes: usize) {
        self.committed.fetch_add(bytes, Ordering::Relaxed);
        by_granule(start, bytes, |g, pages| {
            self.tables.held(g).fetch_add(pages, Ordering::AcqRel);
        });
    }

    /// Counts bytes as given back; the caller uncharges them once it holds no lock.
    pub(super) fn forget(&self, start: usize, bytes: usize) {
        by_granule(start, bytes, |g, pages| {
            let held = self.tables.held(g).fetch_sub(pages, Ordering::AcqRel) - pages;
            self.lower_away(g, held);
        });
        self.committed.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What is away is at most what is held. Others may free, and the pager may look, at the same time.
    fn lower_away(&self, g: usize, held: u16) {
        let away = self.tables.away(g);
        let mut now = away.load(Ordering::Acquire);
        while now > held {
            match away.compare_exchange(now, held, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let cut = (now - held) as usize * PAGE;
                    self.out.fetch_sub(cut, Ordering::Relaxed);
                    AWAY.fetch_sub(cut, Ordering::Relaxed);
                    return;
                }
                Err(seen) => now = seen,
            }
        }
    }

    fn set_away(&self, g: usize, pages: u16) {
        let now = pages.min(self.held(g));
        let before = self.tables.away(g).swap(now, Ordering::AcqRel);
        let (now, before) = (now as usize * PAGE, before as usize * PAGE);
        self.out.fetch_add(now, Ordering::Relaxed);
        AWAY.fetch_add(now, Ordering::Relaxed);
        self.out.fetch_sub(before, Ordering::Relaxed);
        AWAY.fetch_sub(before, Ordering::Relaxed);
    }

    /// Takes the arena, which is about to go, out of the counts.
    pub(super) fn leave_out(&self) {
        AWAY.fetch_sub(self.out.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        let granules = self.out_granules.swap(0, Ordering::Relaxed);
        self.set.count_out(-(granules as isize));
        let packed = self.packed_out.swap(0, Ordering::Relaxed);
        self.set.count_packed(-(packed as isize));
    }
}
