//! Ranges of arenas that the program has given other rights than to read and write: guard pages, code, sealed
//! data.
//!
//! Moving memory makes new mappings, which are readable and writable, and looking at it needs the right to
//! read. So the ranges are kept in a table; the pager lifts them before it begins and puts them back at its
//! end, with all other threads parked. The table is changed under a lock the pager does not take: a thread
//! may be parked in the middle of [`set`]. Therefore what is protected is in the table at every moment: a
//! range is opened before its entry goes, has its entry before it is closed, and the kernel hears the last
//! word at the end, in case the pager put an old one back in between.

use crate::lock::Lock;
use crate::sys::{self, Errno, RW};
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Most ranges at a time.
const SLOTS: usize = 4096;

struct Slot {
    start: AtomicUsize,
    /// 0: the slot is free.
    end: AtomicUsize,
    rights: AtomicI32,
    /// Threads that have it open for a moment ([`writable`]): the pager, which may park one, leaves it so.
    open: AtomicUsize,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        rights: AtomicI32::new(0),
        open: AtomicUsize::new(0),
    }
}; SLOTS];
/// Slots below are or were in use.
static USED: AtomicUsize = AtomicUsize::new(0);
static CHANGING: Lock<()> = Lock::new(());

fn slots() -> impl Iterator<Item = &'static Slot> {
    TABLE[..USED.load(Ordering::Acquire)].iter()
}

impl Slot {
    fn range(&self) -> Range<usize> {
        let end = self.end.load(Ordering::Acquire);
        self.start.load(Ordering::Relaxed)..end
    }

    fn give(&self, range: Range<usize>, rights: i32) {
        let _ = sys::set_protection(range.start, range.len(), rights);
    }

    fn overlaps(&self, other: &Range<usize>) -> bool {
        let own = self.range();
        own.end != 0 && own.start < other.end && other.start < own.end
    }
}

/// Adds an entry; the lock is held.
fn add(range: Range<usize>, rights: i32) -> bool {
    if range.is_empty() {
        return true;
    }
    let used = USED.load(Ordering::Relaxed);
    let at = slots().position(|slot| slot.end.load(Ordering::Relaxed) == 0).unwrap_or(used);
    let Some(slot) = TABLE.get(at) else { return false };
    slot.start.store(range.start, Ordering::Relaxed);
    slot.rights.store(rights, Ordering::Relaxed);
    slot.open.store(0, Ordering::Relaxed);
    slot.end.store(range.end, Ordering::Release);
    USED.store(used.max(at + 1), Ordering::Release);
    true
}

/// Whether no range ever had other rights.
pub(crate) fn is_unused() -> bool {
    USED.load(Ordering::Acquire) == 0
}

/// Gives a range rights; what lies in it loses those it had before.
pub(crate) fn set(range: Range<usize>, rights: i32) -> Result<(), Errno> {
    if rights == RW && USED.load(Ordering::Acquire) == 0 {
        return Ok(()); // as always
    }
    let _changing = CHANGING.lock();
    let before = slots().filter(|slot| slot.overlaps(&range)).count();
    if before == 0 && rights == RW {
        return Ok(());
    }
    let free = SLOTS - slots().filter(|slot| slot.end.load(Ordering::Relaxed) != 0).count();
    // Each range before leaves at most one rest more than it was.
    if free < 2 + usize::from(rights != RW) {
        return Err(Errno(libc::ENOMEM));
    }
    if before > 0 {
        sys::set_protection(range.start, range.len(), RW)?;
    }
    for slot in slots().filter(|slot| slot.overlaps(&range)) {
        let (was, its) = (slot.range(), slot.rights.load(Ordering::Relaxed));
        // The rests first: they must not be without an entry. Only a range that is cut in two needs both
        // slots, and there is at most one of those.
        add(was.start..range.start.max(was.start), its);
        add(range.end.min(was.end)..was.end, its);
        slot.end.store(0, Ordering::Release);
    }
    if rights != RW {
        add(range.clone(), rights);
    }
    sys::set_protection(range.start, range.len(), rights).inspect_err(|_| {
        for slot in slots().filter(|slot| slot.range() == range) {
            slot.end.store(0, Ordering::Release);
        }
    })
}

/// While it lives, every range is readable and writable. For the pager, with the other threads parked.
pub(crate) struct Lifted(());

impl Lifted {
    pub fn new() -> Self {
        each(|slot, range| slot.give(range, RW));
        Self(())
    }
}

impl Drop for Lifted {
    fn drop(&mut self) {
        // Code cannot be executed where the scratch directory is mounted `noexec`; it can be once restored.
        each(|slot, range| {
            if slot.open.load(Ordering::Acquire) == 0 {
                slot.give(range, slot.rights.load(Ordering::Relaxed));
            }
        });
    }
}

fn each(f: impl Fn(&Slot, Range<usize>)) {
    for slot in slots() {
        let range = slot.range();
        if range.end != 0 {
            f(slot, range);
        }
    }
}

/// Makes a range writable until dropped; other threads see it too. The pager leaves it so if it comes
/// meanwhile.
pub(crate) fn writable(range: Range<usize>) -> impl Drop {
    struct Back(Range<usize>);
    impl Drop for Back {
        fn drop(&mut self) {
            if is_unused() {
                return;
            }
            let _changing = CHANGING.lock();
            for slot in slots().filter(|slot| slot.overlaps(&self.0)) {
                // An entry that was made meanwhile does not count this.
                let open = slot.open.load(Ordering::Relaxed).saturating_sub(1);
                slot.open.store(open, Ordering::Release);
                if open == 0 {
                    slot.give(slot.range(), slot.rights.load(Ordering::Relaxed));
                }
            }
        }
    }
    if !is_unused() {
        let _changing = CHANGING.lock();
        let overlapping = || slots().filter(|slot| slot.overlaps(&range));
        overlapping().for_each(|slot| {
            slot.open.fetch_add(1, Ordering::Release);
        });
        if overlapping().next().is_some() {
            let _ = sys::set_protection(range.start, range.len(), RW);
        }
    }
    Back(range)
}

/// Keeps other threads from changing rights over a fork.
///
/// # Safety
/// Let go only by the thread that took it, or in its child.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { CHANGING.hold_or_let_go(hold) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when the pager comes while a thread empties such memory.
    #[test]
    fn the_pager_leaves_open_what_is_being_written() {
        let at = sys::map_anon_aligned(2 * sys::PAGE, sys::PAGE).expect("memory");
        let range = at..at + sys::PAGE;
        set(range.clone(), libc::PROT_NONE).expect("closed");
        let is_writable = || sys::advise(at, sys::PAGE, libc::MADV_POPULATE_WRITE).is_ok();
        let can_tell = sys::advise(at + sys::PAGE, sys::PAGE, libc::MADV_POPULATE_WRITE).is_ok();
        assert!(!is_writable());
        let open = writable(range.clone());
        drop(Lifted::new());
        assert!(is_writable() || !can_tell, "Linux before 5.14 cannot tell");
        drop(open);
        assert!(!is_writable());
        drop(Lifted::new());
        assert!(!is_writable());
        set(range, RW).expect("as before");
    }
}
