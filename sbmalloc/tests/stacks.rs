//! Stacks that lie in the memory that is to be moved, as those of coroutines do: nothing is moved then.

#[path = "conformance/common.rs"]
#[expect(dead_code, reason = "shared with the conformance suite")]
mod common;
mod moves;

use common::{Block, arena};
use moves::Moves;
use sbmalloc::pager::PagerError;
use sbmalloc::{ArenaSet, HugePolicy, StoreKind, TrackerKind};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const STACK: usize = 256 << 10;

struct Work {
    set: &'static ArenaSet,
    stop: AtomicBool,
    rounds: AtomicU64,
    own: std::sync::Mutex<Option<PagerError>>,
}

/// Moves memory itself, or writes to its stack until it is told to stop.
extern "C" fn work(work: *mut c_void) -> *mut c_void {
    // SAFETY: the test joins this thread before it drops that.
    let work = unsafe { &*work.cast::<Work>() };
    *work.own.lock().expect("sound") = work.set.page_out_at_once().err();
    let mut words = [0_u64; 512];
    while !work.stop.load(Ordering::Relaxed) {
        words.iter_mut().for_each(|word| *word = std::hint::black_box(*word + 1));
        work.rounds.store(words[511], Ordering::Relaxed);
    }
    std::ptr::null_mut()
}

#[test]
fn no_stack_is_moved_while_somebody_runs_on_it() {
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Memory, HugePolicy::Never));
    let mut stack = Block::new(&arena, STACK);
    let work_for_it = Work { set, stop: false.into(), rounds: 0.into(), own: None.into() };
    // SAFETY: the stack and what the thread is given outlive it, as it is joined; both structures are the C
    // library's to fill.
    let thread = unsafe {
        let (mut how, mut thread) = (std::mem::zeroed(), std::mem::zeroed());
        assert_eq!(libc::pthread_attr_init(&raw mut how), 0);
        assert_eq!(libc::pthread_attr_setstack(&raw mut how, stack.at.as_ptr().cast(), STACK), 0);
        let its = (&raw const work_for_it).cast_mut().cast();
        assert_eq!(libc::pthread_create(&raw mut thread, &raw const how, work, its), 0);
        libc::pthread_attr_destroy(&raw mut how);
        thread
    };
    while work_for_it.rounds.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    let others = set.page_out_at_once();
    let is_out = set.is_evicted();
    work_for_it.stop.store(true, Ordering::Relaxed);
    // SAFETY: the thread made above, joined once.
    assert_eq!(unsafe { libc::pthread_join(thread, std::ptr::null_mut()) }, 0);
    assert_eq!(work_for_it.own.into_inner().expect("sound"), Some(PagerError::OwnStack));
    assert!(matches!(others, Err(PagerError::ThreadsBusy { .. })), "{others:?}");
    assert!(!is_out, "nothing was moved");
    // Nobody runs on it any more.
    stack.fill(1);
    set.page_out().expect("evict");
    assert!(set.is_evicted());
    set.page_in().expect("restore");
}
