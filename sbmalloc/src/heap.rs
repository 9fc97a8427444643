//! The process-wide heap: small blocks from dlmalloc, large ones as runs of their own.
//!
//! Two arenas, reserved at the first allocation. Small blocks (below [`LARGE`]) come from dlmalloc, whose
//! memory is one segment that grows and shrinks at its end like `brk`. Large ones are runs of chunks: given
//! back whole when freed, grown in place where there is room, known to be zero when fresh.
//!
//! **Charging happens outside the heap's lock.** dlmalloc asks for memory with the lock held, so it is given
//! only what was charged before (*credit*); without credit the allocation fails inside, the lock is released,
//! the need is charged, which may block and move this very heap out and in, and the allocation is tried again.

use crate::account;
use crate::arena::{ArenaOptions, Inner};
use crate::config;
use crate::lock::Lock;
use crate::set::PROCESS;
use crate::sys::{CHUNK, GRANULE};
use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Bytes from which on a block gets a run of its own.
const LARGE: usize = 256 << 10;
/// Alignments from which on a block gets a run of its own, whatever its size.
const LARGE_ALIGN: usize = CHUNK / 2;
/// Small blocks in use from which on their segment grows by whole granules, so as to get huge pages.
const GRANULES_FROM: usize = 32 << 20;

/// The arena of small blocks, of large ones; set once, together.
static SMALL: AtomicPtr<Inner> = AtomicPtr::new(ptr::null_mut());
static RUNS: AtomicPtr<Inner> = AtomicPtr::new(ptr::null_mut());
/// Set when no address space was to be had, so that not every allocation tries again.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Bytes charged that dlmalloc may take.
static CREDIT: AtomicUsize = AtomicUsize::new(0);
/// Bytes dlmalloc was refused for want of credit in the allocation just tried. Under the heap's lock.
static WANT: AtomicUsize = AtomicUsize::new(0);
/// Bytes dlmalloc gave back that are still to be uncharged. Under the heap's lock.
static REFUND: AtomicUsize = AtomicUsize::new(0);
/// End of the segment of small blocks, from the arena's base. Under the heap's lock.
static BREAK: AtomicUsize = AtomicUsize::new(0);

static HEAP: Lock<Dlmalloc<Segment>> = Lock::new(Dlmalloc::new_with_allocator(Segment));

fn arena(slot: &AtomicPtr<Inner>) -> Option<&'static Inner> {
    let at = slot.load(Ordering::Acquire);
    if at.is_null() {
        return reserve().then(|| arena(slot)).flatten();
    }
    // SAFETY: the heap's arenas are never dropped.
    Some(unsafe { &*at })
}

#[cold]
fn reserve() -> bool {
    static ONCE: Lock<()> = Lock::new(());
    let _once = ONCE.lock();
    if REFUSED.load(Ordering::Relaxed) {
        return false;
    }
    if SMALL.load(Ordering::Relaxed).is_null() {
        let options = ArenaOptions { tracker: Some(config::heap_tracker()), ..ArenaOptions::default() };
        let made =
            Inner::create(&options, &PROCESS).and_then(|a| Inner::create(&options, &PROCESS).map(|b| (a, b)));
        let Ok((small, runs)) = made else {
            REFUSED.store(true, Ordering::Relaxed);
            return false;
        };
        RUNS.store(runs.as_ptr(), Ordering::Release);
        SMALL.store(small.as_ptr(), Ordering::Release);
    }
    true
}

/// dlmalloc's system: the end of the small blocks' arena. Called under the heap's lock only.
struct Segment;

// SAFETY: memory handed out is part of the arena, is handed out once, and stays readable and writable.
unsafe impl dlmalloc::Allocator for Segment {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        const REFUSE: (*mut u8, usize, u32) = (ptr::null_mut(), 0, 0);
        let Some(arena) = arena(&SMALL) else { return REFUSE };
        let start = BREAK.load(Ordering::Relaxed);
        let mut end = start + size.next_multiple_of(CHUNK);
        if end > GRANULES_FROM {
            end = end.next_multiple_of(GRANULE);
        }
        if end > arena.len() {
            return REFUSE;
        }
        let size = end - start;
        let credit = CREDIT.load(Ordering::Relaxed);
        if credit < size {
            WANT.store(size - credit, Ordering::Relaxed);
            return REFUSE;
        }
        CREDIT.store(credit - size, Ordering::Relaxed);
        BREAK.store(end, Ordering::Relaxed);
        arena.commit_to(end, size);
        ((arena.base + start) as *mut u8, size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, at: *mut u8, old: usize, new: usize) -> bool {
        let Some(arena) = arena(&SMALL) else { return false };
        let end = at as usize + old - arena.base;
        if end != BREAK.load(Ordering::Relaxed) || !(old - new).is_multiple_of(CHUNK) {
            return false;
        }
        let cut = old - new;
        arena.decommit(end - cut, cut);
        BREAK.store(end - cut, Ordering::Relaxed);
        REFUND.fetch_add(cut, Ordering::Relaxed);
        true
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        crate::sys::PAGE
    }
}

/// Runs `f` on the heap, charging what it lacks and trying again until it has a result or charging fails.
fn with_heap(mut f: impl FnMut(&mut Dlmalloc<Segment>) -> *mut u8) -> *mut u8 {
    loop {
        let (at, want, refund) = {
            let mut heap = HEAP.lock();
            let at = f(&mut heap);
            (at, take(&WANT), take(&REFUND))
        };
        account::uncharge(refund);
        if !at.is_null() || want == 0 || account::charge(want).is_err() {
            return at;
        }
        let heap = HEAP.lock();
        CREDIT.store(CREDIT.load(Ordering::Relaxed) + want, Ordering::Relaxed);
        drop(heap);
    }
}

/// Reads and clears one of the words above; the lock makes it one step.
fn take(word: &AtomicUsize) -> usize {
    let value = word.load(Ordering::Relaxed);
    if value != 0 {
        word.store(0, Ordering::Relaxed);
    }
    value
}

/// Whether a block of this layout is a run of its own. Its address tells as well, see [`is_run`].
fn wants_run(size: usize, align: usize) -> bool {
    size >= LARGE || align >= LARGE_ALIGN
}

fn is_run(at: *const u8) -> Option<&'static Inner> {
    let runs = RUNS.load(Ordering::Acquire);
    // SAFETY: the heap's arenas are never dropped.
    unsafe { runs.as_ref() }.filter(|runs| runs.holds(at as usize))
}

/// A block of `size` bytes at a multiple of `align`, or null.
#[inline]
pub(crate) fn alloc(size: usize, align: usize) -> *mut u8 {
    if wants_run(size, align) {
        return alloc_run(size, align);
    }
    // SAFETY: any size and alignment is fine for dlmalloc.
    with_heap(|heap| unsafe { heap.malloc(size, align) })
}

fn alloc_run(size: usize, align: usize) -> *mut u8 {
    let run = arena(&RUNS).and_then(|runs| runs.alloc_run(size, align));
    run.map_or(ptr::null_mut(), |at| at as *mut u8)
}

/// As [`alloc`], reading as zeros.
#[inline]
pub(crate) fn alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    if wants_run(size, align) {
        return alloc_run(size, align); // a fresh run is zero
    }
    // SAFETY: any size and alignment is fine for dlmalloc.
    let at = with_heap(|heap| unsafe { heap.malloc(size, align) });
    if !at.is_null() {
        // SAFETY: just allocated with this size. Outside the lock, which calloc would hold meanwhile.
        unsafe { at.write_bytes(0, size) };
    }
    at
}

/// Frees a block.
///
/// # Safety
/// `at` came from [`alloc`] with this size and alignment, and was not freed before.
#[inline]
pub(crate) unsafe fn free(at: *mut u8, size: usize, align: usize) {
    if let Some(runs) = is_run(at) {
        return runs.free_run(at as usize);
    }
    let refund = {
        let mut heap = HEAP.lock();
        // SAFETY: not in the runs' arena, so it is dlmalloc's.
        unsafe { heap.free(at, size, align) };
        take(&REFUND)
    };
    account::uncharge(refund);
}

/// Makes a block `new` bytes long, here or elsewhere; null, with the block as it was, if that cannot be.
///
/// # Safety
/// `at` came from [`alloc`] with this size and alignment, and was not freed before.
#[inline]
pub(crate) unsafe fn realloc(at: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
    match is_run(at) {
        // A run that has become small moves to the small blocks, or it would keep a chunk for good.
        Some(runs) if wants_run(new, align) && runs.resize_run(at as usize, new) => return at,
        None if !wants_run(new, align) => {
            // SAFETY: not a run, so it is dlmalloc's; sizes as promised.
            return with_heap(|heap| unsafe { heap.realloc(at, old, align, new) });
        }
        _ => {}
    }
    let to = alloc(new, align);
    if !to.is_null() {
        // SAFETY: both blocks are at least that long, and the new one is distinct.
        unsafe {
            ptr::copy_nonoverlapping(at, to, old.min(new));
            free(at, old, align);
        }
    }
    to
}

/// The heap on arenas, to be installed with `#[global_allocator]`.
///
/// Thread-safe. The pager may move it at any blocking point; it never serves the pager itself. After a
/// `fork` the child may use it if no other thread of the parent was allocating at that moment; a child that
/// only execs is always fine.
///
/// ```no_run
/// #[global_allocator]
/// static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SbHeap;

// SAFETY: blocks come from dlmalloc or are runs of their own, both honour size and alignment; nothing panics
// or unwinds but on a broken invariant of the tables.
unsafe impl GlobalAlloc for SbHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        alloc(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        alloc_zeroed(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: GlobalAlloc's contract.
        unsafe { free(at, layout.size(), layout.align()) };
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // SAFETY: GlobalAlloc's contract.
        unsafe { realloc(at, layout.size(), layout.align(), new) }
    }
}

/// Gives memory that small blocks no longer use back, as far as it lies at the end of theirs.
/// Returns whether there was any.
pub fn trim() -> bool {
    let (any, refund) = {
        let mut heap = HEAP.lock();
        // SAFETY: trimming has no preconditions.
        (unsafe { heap.trim(0) }, take(&REFUND))
    };
    account::uncharge(refund);
    any
}
