//! The process-wide heap: small blocks from mimalloc, large ones as runs of their own.
//!
//! Two arenas, reserved at the first allocation. Small blocks (below [`LARGE`]) come from mimalloc, whose
//! operating system is [`prim`]: its segments lie in one arena, and nothing of it elsewhere but some 40 KiB
//! of static data. Large ones are runs of chunks of the other: given back whole when freed, grown in place
//! where there is room, known to be zero when fresh. A block's layout tells which it is, and so does its
//! address.
//!
//! Memory is charged as it is committed, by the page. mimalloc gives freed
//! memory back itself, some time after it was freed and only while it is at work (see `mimalloc/README.md`);
//! [`trim`] does so at once.

mod prim;

use crate::arena::{ArenaOptions, DEFAULT_RESERVE, Inner};
use crate::lock::Lock;
use crate::set::PROCESS;
use crate::sys::{self, CHUNK};
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Bytes from which on a block gets a run of its own. Below, mimalloc keeps freed memory for a moment, and
/// what is used again at once costs no page faults; above, growing in place and giving back at once are worth
/// more.
const LARGE: usize = 8 << 20;
/// Of the 128 TiB of addresses a process has, so many are large blocks' at most: less than 2^32 pages, by
/// which they are counted.
const MOST_FOR_RUNS: usize = (16 << 40) - CHUNK;
const _: () = assert!(MOST_FOR_RUNS / sys::PAGE <= u32::MAX as usize);
/// Alignments from which on a block gets a run of its own, whatever its size.
const LARGE_ALIGN: usize = CHUNK / 2;

unsafe extern "C" {
    fn sb_mi_malloc(size: usize) -> *mut c_void;
    fn sb_mi_zalloc(size: usize) -> *mut c_void;
    fn sb_mi_malloc_aligned(size: usize, align: usize) -> *mut c_void;
    fn sb_mi_zalloc_aligned(size: usize, align: usize) -> *mut c_void;
    fn sb_mi_realloc(at: *mut c_void, size: usize) -> *mut c_void;
    fn sb_mi_realloc_aligned(at: *mut c_void, size: usize, align: usize) -> *mut c_void;
    fn sb_mi_free(at: *mut c_void);
    fn sb_mi_usable_size(at: *const c_void) -> usize;
    fn sb_mi_collect(force: bool);
    fn sb_mi_option_set(option: libc::c_int, value: libc::c_long);
    fn sbmalloc_prim_manage(base: *mut c_void, size: usize) -> bool;
}

/// The arena of mimalloc's segments, of large blocks; set once, together.
static SMALL: AtomicPtr<Inner> = AtomicPtr::new(ptr::null_mut());
static RUNS: AtomicPtr<Inner> = AtomicPtr::new(ptr::null_mut());
/// Set when no address space was to be had, so that not every allocation tries again.
static REFUSED: AtomicBool = AtomicBool::new(false);
static ONCE: Lock<()> = Lock::new(());

fn arena(slot: &AtomicPtr<Inner>) -> Option<&'static Inner> {
    let at = slot.load(Ordering::Acquire);
    if at.is_null() {
        return reserve().then(|| arena(slot)).flatten();
    }
    // SAFETY: the heap's arenas are never dropped.
    Some(unsafe { &*at })
}

/// Addresses for large blocks, where there is so much RAM, in bytes: a rank may have all of it, in pieces.
fn room_for_runs(memory: usize) -> usize {
    memory.saturating_mul(2).clamp(DEFAULT_RESERVE, MOST_FOR_RUNS)
}

#[cold]
fn reserve() -> bool {
    let _once = ONCE.lock();
    if REFUSED.load(Ordering::Relaxed) {
        return false;
    }
    if SMALL.load(Ordering::Relaxed).is_null() {
        let options = ArenaOptions::default();
        let of_runs = ArenaOptions { reserve: room_for_runs(sys::memory()), ..options };
        let made =
            Inner::create(&options, &PROCESS).and_then(|a| Inner::create(&of_runs, &PROCESS).map(|b| (a, b)));
        let Ok((small, runs)) = made else {
            REFUSED.store(true, Ordering::Relaxed);
            return false;
        };
        // SAFETY: complete, and never dropped; mimalloc may have the whole range, which reads as zeros.
        if !unsafe { sbmalloc_prim_manage(small.as_ref().base as *mut c_void, small.as_ref().len()) } {
            REFUSED.store(true, Ordering::Relaxed);
            return false;
        }
        RUNS.store(runs.as_ptr(), Ordering::Release);
        SMALL.store(small.as_ptr(), Ordering::Release);
    }
    true
}

/// Takes or lets go of the lock under which the arenas are reserved, over a fork.
///
/// # Safety
/// As for the lock.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { ONCE.hold_or_let_go(hold) };
}

/// Whether a block of this layout is a run of its own.
#[inline]
const fn wants_run(size: usize, align: usize) -> bool {
    size >= LARGE || align >= LARGE_ALIGN
}

/// Whether mimalloc aligns a block of `size` bytes to `align` of itself.
#[inline]
const fn is_plain(size: usize, align: usize) -> bool {
    align <= 8 || (align <= 16 && size > 8)
}

/// The arena of large blocks, if `at` is one of them.
#[inline]
fn runs_of(at: *const u8) -> Option<&'static Inner> {
    let runs = RUNS.load(Ordering::Acquire);
    // SAFETY: the heap's arenas are never dropped.
    unsafe { runs.as_ref() }.filter(|runs| runs.holds(at as usize))
}

#[cold]
fn alloc_run(size: usize, align: usize) -> *mut u8 {
    let run = arena(&RUNS).and_then(|runs| runs.alloc_run(size, align));
    run.map_or(ptr::null_mut(), |at| at as *mut u8)
}

#[cold]
fn free_run(at: *mut u8) {
    if let Some(runs) = arena(&RUNS) {
        runs.free_run(at as usize);
    }
}

/// A block of `size` bytes at a multiple of `align`, a power of two; null if there is no memory.
#[inline]
pub fn alloc(size: usize, align: usize) -> *mut u8 {
    if wants_run(size, align) {
        return alloc_run(size, align);
    }
    // SAFETY: any size will do, and any power of two.
    let at =
        unsafe { if is_plain(size, align) { sb_mi_malloc(size) } else { sb_mi_malloc_aligned(size, align) } };
    at.cast()
}

/// As [`alloc`], reading as zeros.
#[inline]
pub fn alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    if wants_run(size, align) {
        return alloc_run(size, align); // a fresh run is zero
    }
    // SAFETY: any size will do, and any power of two.
    let at =
        unsafe { if is_plain(size, align) { sb_mi_zalloc(size) } else { sb_mi_zalloc_aligned(size, align) } };
    at.cast()
}

/// Frees a block of any size; nothing if it is null.
///
/// # Safety
/// `at` came from this heap and was not freed before.
#[inline]
pub unsafe fn free(at: *mut u8) {
    if runs_of(at).is_some() {
        return free_run(at);
    }
    // SAFETY: the caller's; not a run, so it is mimalloc's.
    unsafe { sb_mi_free(at.cast()) };
}

/// As [`free`], for a block whose layout is known.
///
/// # Safety
/// `at` came from this heap with this size and alignment, and was not freed before.
#[inline]
pub(crate) unsafe fn free_sized(at: *mut u8, size: usize, align: usize) {
    if wants_run(size, align) {
        return free_run(at);
    }
    // SAFETY: the caller's; alloc and realloc made it mimalloc's.
    unsafe { sb_mi_free(at.cast()) };
}

/// Makes a block `new` bytes long, here or elsewhere; null, with the block as it was, if that cannot be.
/// A null block is one of no bytes.
///
/// # Safety
/// `at` is null or came from this heap with this alignment, and was not freed before.
#[inline]
pub unsafe fn realloc(at: *mut u8, new: usize, align: usize) -> *mut u8 {
    let runs = runs_of(at);
    if runs.is_some() || wants_run(new, align) {
        // SAFETY: the caller's.
        return unsafe { realloc_run(runs, at, new, align) };
    }
    // SAFETY: not a run, so it is mimalloc's.
    let to = unsafe {
        match is_plain(new, align) {
            true => sb_mi_realloc(at.cast(), new),
            false => sb_mi_realloc_aligned(at.cast(), new, align),
        }
    };
    to.cast()
}

/// [`realloc`] where the block is a run, or is to be one.
///
/// # Safety
/// As there; `runs` is the arena of large blocks if `at` is one.
#[cold]
unsafe fn realloc_run(runs: Option<&Inner>, at: *mut u8, new: usize, align: usize) -> *mut u8 {
    // A run that has become small moves to the small blocks, or it would keep a chunk for good.
    if runs.is_some_and(|runs| wants_run(new, align) && runs.resize_run(at as usize, new)) {
        return at;
    }
    let to = alloc(new, align);
    if !to.is_null() && !at.is_null() {
        // SAFETY: both blocks are at least that long, and the new one is distinct.
        unsafe {
            ptr::copy_nonoverlapping(at, to, usable_size(at).min(new));
            free(at);
        }
    }
    to
}

/// Bytes that may be used of a block, at least what was asked for; 0 if it is null.
///
/// # Safety
/// `at` is null or came from this heap and was not freed.
pub unsafe fn usable_size(at: *const u8) -> usize {
    match runs_of(at) {
        Some(runs) => runs.run_bytes(at as usize),
        // SAFETY: not a run, so it is mimalloc's.
        None => unsafe { sb_mi_usable_size(at.cast()) },
    }
}

/// As [`free`], if the block lies in this heap; whether it does.
///
/// # Safety
/// If it lies in this heap, it came from it and was not freed before.
#[inline]
pub unsafe fn free_owned(at: *mut u8) -> bool {
    let small = SMALL.load(Ordering::Acquire);
    // SAFETY: the heap's arenas are never dropped; what lies in the one of small blocks is mimalloc's.
    unsafe {
        if small.as_ref().is_some_and(|small| small.holds(at as usize)) {
            sb_mi_free(at.cast());
            return true;
        }
    }
    let is_run = runs_of(at).is_some();
    if is_run {
        free_run(at);
    }
    is_run
}

/// Whether an address lies in this heap.
pub fn owns(at: *const u8) -> bool {
    let small = SMALL.load(Ordering::Acquire);
    // SAFETY: the heap's arenas are never dropped.
    runs_of(at).is_some() || unsafe { small.as_ref() }.is_some_and(|small| small.holds(at as usize))
}

/// Whether memory that small blocks no longer use is given back at once, as suits a process whose memory is
/// scarce, or a few milliseconds later if it is not used again by then, which costs less time (the default).
pub fn give_back_at_once(yes: bool) {
    /// `mi_option_purge_delay` of mimalloc.h, in milliseconds.
    const PURGE_DELAY: libc::c_int = 15;
    // SAFETY: stores a number.
    unsafe { sb_mi_option_set(PURGE_DELAY, if yes { 0 } else { 10 }) };
}

/// Gives back what this thread's small blocks no longer use, and what no thread's do. Returns whether there
/// was any.
pub fn trim() -> bool {
    if SMALL.load(Ordering::Acquire).is_null() {
        return false;
    }
    let before = crate::held_bytes();
    // SAFETY: frees what was allocated; collecting has no preconditions. A thread that has not allocated yet
    // has no heap, and mimalloc would collect nothing.
    unsafe {
        sb_mi_free(sb_mi_malloc(1));
        sb_mi_collect(true);
    }
    crate::held_bytes() < before
}

/// The heap on arenas, to be installed with `#[global_allocator]`.
///
/// Thread-safe. The pager may move it at any blocking point; it never serves the pager itself.
///
/// ```no_run
/// #[global_allocator]
/// static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SbHeap;

// SAFETY: blocks come from mimalloc or are runs of their own, both honour size and alignment; nothing panics
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
        unsafe { free_sized(at, layout.size(), layout.align()) };
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // SAFETY: GlobalAlloc's contract.
        unsafe { realloc(at, new, layout.align()) }
    }
}
