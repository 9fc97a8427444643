//! mimalloc's operating system: two arenas, and the account.
//!
//! Small blocks lie in mimalloc's segments of 32 MiB, which are parts of one arena; what mimalloc commits and
//! decommits of it, in chunks, is charged and uncharged. The data of mimalloc's threads are runs of the arena of
//! large blocks.
//!
//! **Charging happens before mimalloc's slow path, not inside.** A charge may block, and an account may allocate
//! on the thread it is called on. So `prepare`, called where mimalloc is about to take a fresh page and
//! nothing is half done, charges the most that can be committed in doing so; `commit` takes it from there, and
//! `settle` leaves the rest to whoever comes next. mimalloc holds no lock while it commits: segments
//! belong to one thread, and their place in the arena is claimed by one atomic operation on a bitmap.
//!
//! Uncharging does happen inside (a purge, at a free or at an allocation), so an account must not allocate in it.

use super::{RUNS, SMALL, arena};
use crate::account;
use crate::arena::{GRANULES_FROM, Inner};
use crate::sys::GRANULE;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes charged that no page took. At most what the threads that make pages at this moment may need.
static SPARE: AtomicUsize = AtomicUsize::new(0);

/// Takes up to `most` bytes of [`SPARE`].
fn take_spare(most: usize) -> usize {
    let mut spare = SPARE.load(Ordering::Relaxed);
    loop {
        let took = spare.min(most);
        if took == 0 {
            return 0;
        }
        match SPARE.compare_exchange_weak(spare, spare - took, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return took,
            Err(now) => spare = now,
        }
    }
}

/// Uncharges what is spare; returns whether there was any.
pub(super) fn give_spare_back() -> bool {
    let spare = SPARE.swap(0, Ordering::Relaxed);
    account::uncharge(spare);
    spare > 0
}

#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_reserve(base: *mut *mut c_void, size: *mut usize) -> bool {
    let Some(small) = arena(&SMALL) else { return false };
    // SAFETY: mimalloc passes two words of its own.
    unsafe {
        *base = small.base as *mut c_void;
        *size = small.len();
    }
    true
}

/// Memory for the data of a thread, charged here: the thread has no heap yet that a charge could find half
/// changed. Should the charge itself allocate, the thread gets two heaps, of which the first is not used again.
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

/// Charges what is missing for `need` bytes, before a page is made.
#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_prepare(credit: *mut usize, mut need: usize) -> bool {
    let Some(small) = arena(&SMALL) else { return false };
    if small.committed.load(Ordering::Relaxed) > GRANULES_FROM {
        // See Inner::commit_span. The header of a new segment lies in the same granule as its first page.
        need = crate::sys::round_up(need, GRANULE);
    }
    let took = take_spare(need);
    if took < need && account::charge(need - took).is_err() {
        SPARE.fetch_add(took, Ordering::Relaxed);
        return false;
    }
    // SAFETY: a word of the calling thread. Written only now, for an allocation inside the charge used it.
    unsafe { *credit = need };
    true
}

#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_settle(credit: *mut usize) {
    // SAFETY: a word of the calling thread.
    let left = unsafe { ptr::replace(credit, 0) };
    if left > 0 {
        SPARE.fetch_add(left, Ordering::Relaxed);
    }
}

fn span_of(small: &Inner, at: *mut c_void) -> usize {
    at as usize - small.base
}

#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_commit(credit: *mut usize, at: *mut c_void, size: usize) -> bool {
    let Some(small) = arena(&SMALL) else { return false };
    small.commit_span(span_of(small, at), size, |bytes| {
        // SAFETY: a word of the calling thread.
        let credit = unsafe { &mut *credit };
        let enough = *credit >= bytes;
        if enough {
            *credit -= bytes;
        }
        enough
    })
}

#[unsafe(no_mangle)]
extern "C" fn sbmalloc_prim_decommit(at: *mut c_void, size: usize) {
    if let Some(small) = arena(&SMALL) {
        account::uncharge(small.decommit_span(span_of(small, at), size));
    }
}
