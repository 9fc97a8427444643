//! mimalloc's operating system: two arenas, and the account.
//!
//! Small blocks lie in mimalloc's segments of 32 MiB, which are parts of one arena. Memory of it is charged
//! when mimalloc first makes blocks of it, by the 4 KiB page, and uncharged when mimalloc decommits it. The
//! data of mimalloc's threads are runs of the arena of large blocks.
//!
//! **Charging happens inside mimalloc's slow path, with no lock held.** A charge may block and move this very
//! heap out and in. mimalloc calls [`sbmalloc_prim_commit`] for a page of the calling thread's heap only,
//! before it changes anything: no other thread waits for that heap, and what they free into it they leave on
//! atomic lists. A new segment's place in the arena has been claimed by one atomic operation on a bitmap. So
//! other threads allocate and free meanwhile. The calling thread cannot: an account must not allocate from
//! the heap.

use super::{RUNS, SMALL, arena};
use crate::account;
use std::ffi::c_void;
use std::ptr;

/// Reserves the arenas and hands one to mimalloc, at the first allocation.
#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_reserve() {
    arena(&SMALL);
}

/// Memory for the data of a thread, which has no heap yet.
#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_alloc(size: usize, align: usize) -> *mut c_void {
    let run = arena(&RUNS).and_then(|runs| runs.alloc_run(size, align));
    run.map_or(ptr::null_mut(), |at| at as *mut c_void)
}

#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_free(at: *mut c_void) {
    if let Some(runs) = arena(&RUNS) {
        runs.free_run(at as usize);
    }
}

#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_commit(at: *mut c_void, size: usize) -> bool {
    arena(&SMALL).is_some_and(|small| {
        small.commit_span(at as usize - small.base, size, |bytes| account::charge(bytes).is_ok())
    })
}

#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_decommit(at: *mut c_void, size: usize) {
    if let Some(small) = arena(&SMALL) {
        account::uncharge(small.decommit_span(at as usize - small.base, size));
    }
}
