//! Threads while memory is moved: where their stacks may lie (not in that memory, as those of coroutines do),
//! and what becomes of their signals.

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
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

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

/// A stack of their own for signals may lie in memory that is to be moved: Python's faulthandler has its from
/// `malloc`. Nobody waits on that.
#[test]
fn a_thread_waits_on_the_stack_that_it_runs_on() {
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Memory, HugePolicy::Never));
    let inside = Block::aligned(&arena, STACK, PAGE);
    let outside = vec![0_u64; STACK / 8];
    let at = [inside.at.as_ptr().cast::<c_void>(), outside.as_ptr().cast_mut().cast()];
    for (stack, handling, moves) in [(at[0], at[1], false), (std::ptr::null_mut(), at[0], true)] {
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

/// Signals that a thread blocks, bit 0 for signal 1. Takes no lock, which one that is parked may hold.
fn blocked(tid: i32) -> u64 {
    let mut path = [0_u8; 64];
    write!(&mut path[..], "/proc/self/task/{tid}/status\0").expect("short");
    let mut text = [0_u8; 8192];
    // SAFETY: opens, reads into an array of that length, and closes.
    let len = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        let len = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        usize::try_from(len).expect("it can be read")
    };
    let text = std::str::from_utf8(&text[..len]).expect("text");
    let mask = text.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("it is said");
    u64::from_str_radix(mask.trim(), 16).expect("a number")
}

/// Also the C library's own, by which a thread is cancelled, and unwound, wherever it is.
#[test]
fn no_signal_is_handled_while_memory_is_moved() {
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Memory, HugePolicy::Never));
    let mut memory = Block::new(&arena, STACK);
    memory.fill(1);
    let (stop, tid) = (AtomicBool::new(false), AtomicI32::new(0));
    // SAFETY: no preconditions.
    let own = || unsafe { libc::gettid() };
    let (mut of_parked, mut of_mover) = (0, 0);
    std::thread::scope(|scope| {
        let _stops = StopOnDrop(&stop);
        scope.spawn(|| {
            tid.store(own(), Ordering::Relaxed);
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        while tid.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let mut look = |_| {
            (of_parked, of_mover) = (blocked(tid.load(Ordering::Relaxed)), blocked(own()));
        };
        set.page_out_to(0, 0, &mut look).expect("evict");
        set.page_in().expect("restore");
    });
    let of = |signals: &[i32]| signals.iter().fold(0, |mask, signal| mask | 1_u64 << (signal - 1));
    let never = of(&[libc::SIGKILL, libc::SIGSTOP]);
    let faults = of(&[libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP]);
    assert_eq!(of_parked, !never, "{of_parked:x}");
    assert_eq!(of_mover, !never & !faults, "{of_mover:x}");
    memory.check(1);
}

extern "C" fn ignore(_: i32) {}

/// Nothing is broken then, so nobody need end.
#[test]
fn who_leaves_no_signal_for_this_is_not_moved() {
    // In a process of its own, whose signals nobody else needs.
    const ALONE: &str = "SBMALLOC_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let me = std::env::current_exe().expect("this program");
        let mut alone = std::process::Command::new(me);
        let name = "who_leaves_no_signal_for_this_is_not_moved";
        let out = alone.args([name, "--exact"]).env(ALONE, "1").output().expect("run");
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && said.contains("1 passed"), "{}: {said}", out.status);
        return;
    }
    let handle = |handler| {
        for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
            // SAFETY: the default, or a handler that does nothing.
            assert_ne!(unsafe { libc::signal(signal, handler) }, libc::SIG_ERR);
        }
    };
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Memory, HugePolicy::Never));
    let mut memory = Block::new(&arena, STACK);
    memory.fill(1);
    handle(ignore as *const () as usize);
    // There is another thread, that of the tests.
    let refused = set.page_out_at_once().expect_err("it cannot be stopped");
    assert!(matches!(refused, PagerError::Blind { .. }) && refused.is_passing(), "{refused}");
    assert!(!set.is_evicted(), "nothing was moved");
    handle(libc::SIG_DFL);
    set.page_out().expect("now it can");
    memory.check(1);
}
