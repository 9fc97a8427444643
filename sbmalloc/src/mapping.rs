//! Memory that programs map, unmap, advise and protect themselves: what the preloaded `libsbmalloc.so` does
//! in place of `mmap`, `munmap`, `madvise` and `mprotect`.
//!
//! One arena, reserved at the first call. All addresses and lengths here are whole pages; whoever calls has
//! checked them as the kernel would.

use crate::arena::{ArenaOptions, Inner};
use crate::lock::Lock;
use crate::pager;
use crate::protection;
use crate::set::PROCESS;
use crate::sys::{self, Errno};
use crate::tracker::TrackerKind;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Address space for mappings.
const RESERVE: usize = 256 << 30;

static MAPS: AtomicPtr<Inner> = AtomicPtr::new(ptr::null_mut());
/// Set when no address space was to be had, so that not every call tries again.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// Held while the arena is reserved.
static ONCE: Lock<()> = Lock::new(());

fn maps() -> Option<&'static Inner> {
    // SAFETY: the arena is never dropped.
    unsafe { MAPS.load(Ordering::Acquire).as_ref() }
}

#[cold]
fn reserve() -> Option<&'static Inner> {
    let _once = ONCE.lock();
    if maps().is_none() && !REFUSED.load(Ordering::Relaxed) {
        // The tracker that sees what the kernel writes: programs read files into such memory.
        let options =
            ArenaOptions { reserve: RESERVE, tracker: Some(TrackerKind::Hash), ..ArenaOptions::default() };
        match Inner::create(&options, &PROCESS) {
            Ok(made) => MAPS.store(made.as_ptr(), Ordering::Release),
            Err(_) => REFUSED.store(true, Ordering::Relaxed),
        }
    }
    maps()
}

/// Private anonymous memory of `len` bytes that reads as zeros; `None` if the account or the address space
/// refuses.
pub fn map(len: usize) -> Option<NonNull<u8>> {
    let arena = maps().or_else(reserve)?;
    NonNull::new(arena.map_pages(len)? as *mut u8)
}

/// The part of `[at, at+len)` that lies where [`map`] takes its memory from, mapped or not.
pub fn part(at: usize, len: usize) -> Option<Range<usize>> {
    within(maps()?, at, len)
}

fn within(arena: &Inner, at: usize, len: usize) -> Option<Range<usize>> {
    let from = at.max(arena.base);
    let to = at.saturating_add(len).min(arena.base + arena.len());
    (from < to).then_some(from..to)
}

/// Whether all of `range`, which [`part`] returned, is mapped.
pub fn is_mapped(range: Range<usize>) -> bool {
    maps().is_some_and(|arena| arena.has_pages(range.start - arena.base, range.len()))
}

/// Unmaps `range`, which [`part`] returned. What lies in the same 64 KiB as memory still mapped stays
/// readable.
///
/// # Safety
/// Nothing refers to it any more.
pub unsafe fn unmap(range: Range<usize>) {
    if let Some(arena) = maps() {
        // Taken away rights would hit whoever gets the memory next; that it fails for want of a slot cannot
        // be, as nothing is added.
        let _ = protection::set(range.clone(), sys::RW);
        arena.unmap_pages(range.start - arena.base, range.len());
    }
}

/// The first part of `[at, at+len)` that lies in an arena of the process, whichever it is.
pub fn part_in_any_arena(at: usize, len: usize) -> Option<Range<usize>> {
    // The pager's lock keeps arenas from going away meanwhile.
    let _pager = pager::exclude();
    PROCESS.arenas().filter_map(|arena| within(arena, at, len)).min_by_key(|part| part.start)
}

/// Makes `range` read as zeros, in RAM or out, and gives back what can be of its memory. It must be a part
/// that [`part_in_any_arena`] returned.
///
/// # Safety
/// The range is the caller's, its content is no longer wanted, and its arena stays.
pub unsafe fn empty(range: Range<usize>) {
    let arena = {
        let _pager = pager::exclude();
        let owner = PROCESS.arenas().find(|arena| arena.holds(range.start)).map(ptr::from_ref);
        // SAFETY: the arena stays, by this function's contract.
        owner.and_then(|arena| unsafe { arena.as_ref() })
    };
    if let Some(arena) = arena {
        let _writable = protection::writable(range.clone());
        // SAFETY: this function's contract; writable now.
        unsafe { arena.empty_pages(range.start - arena.base, range.len()) };
    }
}

/// Gives `range`, a part that [`part_in_any_arena`] returned, other rights, which outlast evicts and
/// restores.
///
/// # Errors
/// `ENOMEM` if too many ranges have rights of their own; otherwise the kernel's.
///
/// # Safety
/// The range is the caller's. Rights taken away are given back before the memory is freed.
pub unsafe fn protect(range: Range<usize>, protection: i32) -> Result<(), Errno> {
    protection::set(range, protection)
}

/// Takes or lets go of the lock under which the arena is reserved, over a fork.
///
/// # Safety
/// As for the lock.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { ONCE.hold_or_let_go(hold) };
}
