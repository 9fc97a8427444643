//! The protocol under loom. Run: `RUSTFLAGS="--cfg loom" cargo test --release -p bdrun-ipc --lib`.

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Futex, Pager, State, StateWord, Woken};

/// The futex: a value is compared and the sleeper queued in one step under a lock, as the kernel does.
#[derive(Default)]
pub(crate) struct ModelFutex {
    lock: Mutex<()>,
    sleepers: Condvar,
}

impl Futex for ModelFutex {
    fn wait(&self, word: &AtomicU32, value: u32) {
        let guard = self.lock.lock().unwrap();
        if word.load(Ordering::SeqCst) == value {
            drop(self.sleepers.wait(guard).unwrap());
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        drop(self.lock.lock().unwrap());
        self.sleepers.notify_all();
    }
}

/// The bell of the master: a flag under the same kind of lock.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

#[derive(Default)]
struct Shared {
    word: StateWord,
    futex: ModelFutex,
    bell: Bell,
    message: AtomicBool,
    done: AtomicBool,
}

struct ModelPager<'a> {
    shared: &'a Shared,
    can_evict: bool,
    resident: bool,
    /// Restores that bring in a part only.
    partly: usize,
}

impl Pager for ModelPager<'_> {
    fn is_whole(&self) -> bool {
        self.resident
    }

    fn evict(&mut self) {
        self.resident = self.resident && !self.can_evict;
    }

    fn restore(&mut self) -> bool {
        assert!(!self.resident);
        self.resident = self.partly == 0;
        self.partly = self.partly.saturating_sub(1);
        self.resident
    }

    fn blocked(&mut self) {
        self.shared.bell.ring();
    }

    fn changed(&mut self) {
        self.shared.bell.ring();
    }
}

fn receive(shared: &Shared, can_evict: bool, partly: usize) {
    let mut pager = ModelPager { shared, can_evict, resident: true, partly };
    while !shared.message.load(Ordering::SeqCst) {
        shared.word.wait(&shared.futex, &mut pager, || shared.message.load(Ordering::SeqCst));
        assert!(pager.resident, "ran without its memory");
        assert_eq!(shared.word.load().state(), State::Running);
    }
    shared.done.store(true, Ordering::SeqCst);
    shared.bell.ring();
}

fn send(shared: &Shared) {
    shared.message.store(true, Ordering::SeqCst);
    if shared.word.wake(&shared.futex) == Woken::NeedsMaster {
        shared.bell.ring();
    }
}

pub(crate) fn check(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(body);
}

fn shared() -> Arc<Shared> {
    let shared = Arc::new(Shared::default());
    assert!(shared.word.birth());
    shared
}

#[test]
fn a_message_wakes_its_receiver() {
    check(4, || {
        let shared = shared();
        let sender = thread::spawn({
            let shared = shared.clone();
            move || send(&shared)
        });
        receive(&shared, true, 0);
        sender.join().unwrap();
    });
}

/// Two senders, of which the receiver needs both: the second wake-up may fall on any state.
#[test]
fn two_wakers() {
    check(3, || {
        let shared = shared();
        let other = Arc::new(AtomicBool::new(false));
        let first = thread::spawn({
            let shared = shared.clone();
            move || send(&shared)
        });
        let second = thread::spawn({
            let (shared, other) = (shared.clone(), other.clone());
            move || {
                other.store(true, Ordering::SeqCst);
                shared.word.wake(&shared.futex);
            }
        });
        receive(&shared, true, 0);
        let mut pager = ModelPager { shared: &shared, can_evict: true, resident: true, partly: 0 };
        while !other.load(Ordering::SeqCst) {
            shared.word.wait(&shared.futex, &mut pager, || other.load(Ordering::SeqCst));
        }
        first.join().unwrap();
        second.join().unwrap();
    });
}

fn with_master(can_evict: bool, partly: usize, evictions: usize, preemptions: usize) {
    check(preemptions, move || {
        let shared = shared();
        let sender = thread::spawn({
            let shared = shared.clone();
            move || send(&shared)
        });
        let rank = thread::spawn({
            let shared = shared.clone();
            move || receive(&shared, can_evict, partly)
        });
        // The master evicts so often if it can, also what is out in part, and brings the rank back as soon as
        // it is runnable.
        let mut left = evictions;
        while !shared.done.load(Ordering::SeqCst) {
            let now = shared.word.load();
            match now.state() {
                State::Blocked | State::Evicted if left > 0 => {
                    left -= usize::from(shared.word.try_evict(&shared.futex));
                }
                State::Evicted if now.runnable() => {
                    shared.word.try_restore(&shared.futex);
                }
                _ => shared.bell.wait(),
            }
        }
        sender.join().unwrap();
        rank.join().unwrap();
    });
}

#[test]
fn evicted_and_restored_by_the_master() {
    with_master(true, 0, 1, 3);
}

#[test]
fn moved_in_parts() {
    with_master(true, 1, 2, 2);
}

/// A rank that is out in part when it begins to wait.
#[test]
fn a_wait_begun_outside() {
    check(3, || {
        let shared = shared();
        let sender = thread::spawn({
            let shared = shared.clone();
            move || send(&shared)
        });
        let rank = thread::spawn({
            let shared = shared.clone();
            move || {
                let mut pager = ModelPager { shared: &shared, can_evict: true, resident: false, partly: 0 };
                while !shared.message.load(Ordering::SeqCst) {
                    shared.word.wait(&shared.futex, &mut pager, || shared.message.load(Ordering::SeqCst));
                    assert!(pager.resident, "ran without its memory");
                }
                shared.done.store(true, Ordering::SeqCst);
                shared.bell.ring();
            }
        });
        while !shared.done.load(Ordering::SeqCst) {
            let now = shared.word.load();
            match now.state() {
                State::Evicted if now.runnable() => {
                    shared.word.try_restore(&shared.futex);
                }
                _ => shared.bell.wait(),
            }
        }
        sender.join().unwrap();
        rank.join().unwrap();
    });
}

#[test]
fn eviction_that_fails_leaves_the_rank_wakeable() {
    with_master(false, 0, 1, 3);
}
