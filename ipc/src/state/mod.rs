//! A rank's state word and the protocol that moves it. The proof that no wake-up is lost stands in
//! `README.md` beside this file; `cargo test` with `--cfg loom` checks it over all interleavings (bounded
//! preemption).

use crate::sync::{AtomicU32, Ordering, fence};

#[cfg(all(test, loom))]
pub(crate) mod model;

/// Where a rank is. One rank, one word; every transition is one compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Not yet started.
    Unborn = 0,
    /// Being read back from scratch by its own thread.
    Restoring = 1,
    /// In RAM, computing or about to.
    Running = 2,
    /// In RAM, waiting.
    Blocked = 3,
    /// Told to leave RAM.
    Evicting = 4,
    /// On scratch, wholly or in part.
    Evicted = 5,
    /// Ended.
    Exited = 6,
}

/// Set on a rank that is not in RAM, or on its way in or out, when what it waits for has come.
pub const RUNNABLE: u32 = 1 << 8;

/// A word taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u32);

impl Word {
    const fn new(state: State, runnable: bool) -> Self {
        Self(state as u32 | if runnable { RUNNABLE } else { 0 })
    }

    /// The state. Unknown numbers (a damaged segment) read as `Exited`, on which nobody acts.
    pub fn state(self) -> State {
        match self.0 & 0xff {
            0 => State::Unborn,
            1 => State::Restoring,
            2 => State::Running,
            3 => State::Blocked,
            4 => State::Evicting,
            5 => State::Evicted,
            _ => State::Exited,
        }
    }

    /// Has what it waits for come?
    pub fn runnable(self) -> bool {
        self.0 & RUNNABLE != 0
    }
}

/// Sleeping and waking on a word; the futex outside of model checking.
pub trait Futex {
    /// Sleep while the word has this value; may return early.
    fn wait(&self, word: &AtomicU32, value: u32);
    /// Wake whoever sleeps on the word.
    fn wake(&self, word: &AtomicU32);
}

/// What the waiting rank does on the master's word, and how it tells.
pub trait Pager {
    /// Whether the rank can run as it is: nothing of it was moved since it last did.
    fn is_whole(&self) -> bool;
    /// Leave RAM, as far as was ordered. Whether it is [whole](Self::is_whole) afterwards tells what became
    /// of it.
    fn evict(&mut self);
    /// Come back, as far as there is memory for it. `false`: not far enough to run. Does not return if the
    /// data cannot be had.
    fn restore(&mut self) -> bool;
    /// This rank is blocked: tell the master if it is looking for memory.
    fn blocked(&mut self);
    /// Tell the master that the word has changed in answer to it.
    fn changed(&mut self);
    /// The rank would not wait any longer, whether or not anything has come. Said once.
    fn is_over(&mut self) -> bool {
        false
    }
}

/// What became of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The rank is running anyway and will look for itself.
    Awake,
    /// It was asleep in RAM and now runs.
    Started,
    /// It is on scratch and was marked runnable: the master must bring it in.
    NeedsMaster,
}

/// The word in shared memory.
#[repr(transparent)]
#[derive(Debug)]
pub struct StateWord(AtomicU32);

impl Default for StateWord {
    fn default() -> Self {
        Self(AtomicU32::new(State::Unborn as u32))
    }
}

impl StateWord {
    /// The present value.
    pub fn load(&self) -> Word {
        Word(self.0.load(Ordering::SeqCst))
    }

    fn swap_from(&self, from: Word, state: State, runnable: bool) -> bool {
        let to = Word::new(state, runnable);
        self.0.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// By the master: the rank's process is started, in RAM.
    pub fn birth(&self) -> bool {
        self.swap_from(Word::new(State::Unborn, false), State::Running, false)
    }

    /// By the master: the process has ended.
    pub fn exit(&self) {
        self.0.store(State::Exited as u32, Ordering::SeqCst);
    }

    /// By a rank whose process has executed another program: whoever was to wait or to move is gone, with all
    /// memory.
    pub fn resume(&self) {
        self.0.store(State::Running as u32, Ordering::SeqCst);
    }

    /// By anybody, after having made true what the rank may wait for: see that it runs.
    pub fn wake(&self, futex: &impl Futex) -> Woken {
        // Pairs with the fence in `wait`: either we see the rank blocked, or it sees what we did.
        fence(Ordering::SeqCst);
        loop {
            let now = self.load();
            match now.state() {
                State::Unborn | State::Running | State::Exited => return Woken::Awake,
                State::Blocked => {
                    if self.swap_from(now, State::Running, false) {
                        futex.wake(&self.0);
                        return Woken::Started;
                    }
                }
                state @ (State::Evicting | State::Restoring | State::Evicted) => {
                    if now.runnable() {
                        return Woken::Awake;
                    }
                    if self.swap_from(now, state, true) {
                        // Evicting and Restoring ranks are awake; they see the bit at their next transition
                        // and ring.
                        return if state == State::Evicted { Woken::NeedsMaster } else { Woken::Awake };
                    }
                }
            }
        }
    }

    /// By the master: take a blocked rank for eviction, or one that is out in part for more of it. `false`:
    /// it was woken in between.
    pub fn try_evict(&self, futex: &impl Futex) -> bool {
        loop {
            let now = self.load();
            let taken = match now.state() {
                State::Blocked => self.swap_from(now, State::Evicting, false),
                State::Evicted => self.swap_from(now, State::Evicting, now.runnable()),
                _ => return false,
            };
            if taken {
                futex.wake(&self.0);
                return true;
            }
        }
    }

    /// By the master: bring an evicted rank back. `false`: it is not evicted.
    pub fn try_restore(&self, futex: &impl Futex) -> bool {
        loop {
            let now = self.load();
            if now.state() != State::Evicted {
                return false;
            }
            if self.swap_from(now, State::Restoring, now.runnable()) {
                futex.wake(&self.0);
                return true;
            }
        }
    }

    /// By the rank, running: wait until somebody who made `satisfied` true has called [`wake`](Self::wake),
    /// and do what the master asks meanwhile. May return although nothing is satisfied: the caller looks
    /// again and waits again. `satisfied` reads shared memory only.
    pub fn wait(&self, futex: &impl Futex, pager: &mut impl Pager, satisfied: impl Fn() -> bool) {
        // One that cannot run on with what it has in RAM waits as if it had been evicted.
        let state = if pager.is_whole() { State::Blocked } else { State::Evicted };
        self.0.store(state as u32, Ordering::SeqCst);
        // Pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        if satisfied() {
            self.wake(futex);
        }
        if state == State::Evicted {
            pager.changed();
        } else {
            pager.blocked();
        }
        loop {
            let now = self.load();
            match now.state() {
                State::Running => return,
                State::Blocked | State::Evicted => {
                    futex.wait(&self.0, now.0);
                    if pager.is_over() && self.wake(futex) == Woken::NeedsMaster {
                        pager.changed();
                    }
                }
                State::Evicting if now.runnable() && pager.is_whole() => {
                    // Woken before anything was moved: stay. The master sees that it has lost this one.
                    if self.swap_from(now, State::Running, false) {
                        pager.changed();
                        return;
                    }
                }
                State::Evicting => {
                    pager.evict();
                    self.arrive(if pager.is_whole() { State::Blocked } else { State::Evicted });
                    pager.changed();
                }
                State::Restoring => {
                    let runs = pager.restore();
                    self.arrive(if runs { State::Blocked } else { State::Evicted });
                    pager.changed();
                }
                // The master has given this process up.
                State::Unborn | State::Exited => return,
            }
        }
    }

    /// End of a move by this rank: into `state`, with the runnable bit carried along, or turned into Running
    /// in RAM.
    fn arrive(&self, state: State) {
        loop {
            let now = self.load();
            if now.state() == State::Exited {
                return;
            }
            let done = if state == State::Blocked && now.runnable() {
                self.swap_from(now, State::Running, false)
            } else {
                self.swap_from(now, state, now.runnable())
            };
            if done {
                return;
            }
        }
    }
}
