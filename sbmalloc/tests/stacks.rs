//! Stacks that lie in the memory that is to be moved, as those of coroutines do: nothing is moved then.

#[path = "conformance/common.rs"]
#[expect(dead_code, reason = "shared with the conformance suite")]
mod common;
mod moves;

use common::{Block, arena};
use moves::Moves;
use sbmalloc::pager::PagerError;
use sbmalloc::{ArenaSet, HugePolicy, PAGE, StoreKind, TrackerKind};
use std::cell::Cell;
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
    work_on(work);
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

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a thread is to run on, and where its signals are to be handled.
struct Places<'a> {
    work: &'a Work,
    stack: *mut c_void,
    handling: *mut c_void,
}

// SAFETY: the test lets go of the memory once the thread is joined.
unsafe impl Send for Places<'_> {}

thread_local! {
    static HERE: Cell<*const Work> = const { Cell::new(std::ptr::null()) };
}

extern "C" fn coroutine() {
    work_on(HERE.get());
}

/// Writes to its stack until it is told to stop.
fn work_on(work: *const Work) {
    // SAFETY: whoever starts it keeps that until it is over.
    let work = unsafe { &*work };
    let mut words = [0_u64; 512];
    while !work.stop.load(Ordering::Relaxed) {
        words.iter_mut().for_each(|word| *word = std::hint::black_box(*word + 1));
        assert!(words.iter().all(|word| *word == words[0]), "a write was lost");
        work.rounds.store(words[511], Ordering::Relaxed);
    }
}

/// Works on a stack as a coroutine, with another one for signals.
fn in_places(places: Places<'_>) {
    // SAFETY: zeros are valid for all three, which are filled; both stacks are as long as is said, and
    // nobody else's.
    unsafe {
        let mut before: libc::stack_t = std::mem::zeroed();
        let now = libc::stack_t { ss_sp: places.handling, ss_flags: 0, ss_size: STACK };
        assert_eq!(libc::sigaltstack(&raw const now, &raw mut before), 0);
        let (mut back, mut there): (libc::ucontext_t, libc::ucontext_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        assert_eq!(libc::getcontext(&raw mut there), 0);
        HERE.set(places.work);
        if places.stack.is_null() {
            coroutine();
        } else {
            there.uc_stack.ss_sp = places.stack;
            there.uc_stack.ss_size = STACK;
            there.uc_link = &raw mut back;
            libc::makecontext(&raw mut there, coroutine, 0);
            assert_eq!(libc::swapcontext(&raw mut back, &raw const there), 0);
        }
        assert_eq!(libc::sigaltstack(&raw const before, std::ptr::null_mut()), 0);
    }
}

impl Work {
    /// Until it has worked some more.
    fn goes_on(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        while self.rounds.load(Ordering::Relaxed) <= before {
            std::thread::yield_now();
        }
    }
}

/// A stack of their own for signals is what many runtimes have, because those that their threads run on are
/// small: Go's, for one.
#[test]
fn a_thread_waits_on_the_stack_that_it_has_for_signals() {
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Memory, HugePolicy::Never));
    let inside = Block::aligned(&arena, STACK, PAGE);
    let outside = vec![0_u64; STACK / 8];
    let at = [inside.at.as_ptr().cast::<c_void>(), outside.as_ptr().cast_mut().cast()];
    for (stack, handling, moves) in [(at[0], at[1], true), (std::ptr::null_mut(), at[0], false)] {
        let work = Work { set, stop: false.into(), rounds: 0.into(), own: None.into() };
        let places = Places { work: &work, stack, handling };
        std::thread::scope(|scope| {
            // Also if this fails: the thread is waited for.
            let _stops = StopOnDrop(&work.stop);
            scope.spawn(move || in_places(places));
            work.goes_on();
            for _ in 0..20 {
                if moves {
                    set.page_out().expect("what it runs on is left alone while it waits");
                } else {
                    let refused = set.page_out_at_once();
                    assert!(matches!(refused, Err(PagerError::ThreadsBusy { .. })), "{refused:?}");
                }
                assert_eq!(set.is_evicted(), moves);
                work.goes_on();
                set.page_in().expect("restore");
                work.goes_on();
            }
        });
    }
}
