//! What the members of a window share beside its memory: locks, and how much of what each has asked for was
//! done.
//!
//! A lock is a fair one for readers and writers: who comes takes a ticket. `readers` and `writers` say whose
//! turn it is to read, and to write. A reader lets the next one read at once; who unlocks lets the next one
//! write. Nobody need be awake for another to get it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bdrun_mpi_core::group::Process;

use super::mapping::Mapping;

/// Words of each member, before one for each that may wait for its lock.
const WORDS: usize = 4;

/// All of it, mapped.
#[derive(Debug)]
pub struct Control {
    map: Mapping,
    members: usize,
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// With others.
    Shared,
    /// Alone.
    Exclusive,
}

/// The right to a lock, in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Whose memory it is for.
    pub target: usize,
    /// How it will be held.
    pub hold: Hold,
    /// Tickets for one member are numbered from 0.
    pub number: u64,
}

impl Control {
    /// Bytes for so many members.
    pub const fn bytes(members: usize) -> usize {
        members * (WORDS + 2 * members) * size_of::<AtomicU64>()
    }

    /// In memory of so many bytes, of zeros at first.
    pub const fn new(map: Mapping, members: usize) -> Self {
        Self { map, members }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!((at + 1) * size_of::<AtomicU64>() <= Self::bytes(self.members));
        // SAFETY: within the mapping, which lives as long as `self` and is aligned to a page; atomics may be
        // written by other processes.
        unsafe { &*self.map.at().cast::<AtomicU64>().add(at) }
    }

    fn of(&self, target: usize, word: usize) -> &AtomicU64 {
        assert!(target < self.members && word < WORDS + self.members);
        self.word(target * (WORDS + self.members) + word)
    }

    fn tickets(&self, target: usize) -> &AtomicU64 {
        self.of(target, 0)
    }

    fn readers(&self, target: usize) -> &AtomicU64 {
        self.of(target, 1)
    }

    fn writers(&self, target: usize) -> &AtomicU64 {
        self.of(target, 2)
    }

    /// Who waits with a ticket: as many do at most as there are members.
    fn place(&self, target: usize, number: u64) -> &AtomicU64 {
        self.of(target, WORDS + (number % self.members as u64) as usize)
    }

    /// A process comes for a lock.
    pub fn queue(&self, target: usize, hold: Hold, process: Process) -> Ticket {
        let number = self.tickets(target).fetch_add(1, SeqCst);
        self.place(target, number).store((number + 1) << 32 | u64::from(process), SeqCst);
        Ticket { target, hold, number }
    }

    /// Whether it is its turn.
    pub fn is_due(&self, ticket: Ticket) -> bool {
        let turn = match ticket.hold {
            Hold::Shared => self.readers(ticket.target),
            Hold::Exclusive => self.writers(ticket.target),
        };
        turn.load(SeqCst) == ticket.number
    }

    /// It is, and the process takes the lock. `wake` is called with who may have got it, too.
    pub fn enter(&self, ticket: Ticket, wake: &mut dyn FnMut(Process)) {
        if ticket.hold == Hold::Shared {
            self.readers(ticket.target).store(ticket.number + 1, SeqCst);
            self.call(ticket.target, ticket.number + 1, wake);
        }
    }

    /// It gives it back.
    pub fn leave(&self, ticket: Ticket, wake: &mut dyn FnMut(Process)) {
        if ticket.hold == Hold::Exclusive {
            // First: the next writer, if it got in between, would have its own word overwritten.
            self.readers(ticket.target).store(ticket.number + 1, SeqCst);
            self.call(ticket.target, ticket.number + 1, wake);
        }
        let next = self.writers(ticket.target).fetch_add(1, SeqCst) + 1;
        self.call(ticket.target, next, wake);
    }

    fn call(&self, target: usize, number: u64, wake: &mut dyn FnMut(Process)) {
        let waiting = self.place(target, number).load(SeqCst);
        // The ticket's low half, which no two that wait have in common.
        if waiting >> 32 == (number + 1) & u64::from(u32::MAX) {
            wake(waiting as Process);
        }
    }

    /// Whether what cannot be done in one step is being done to a member's memory.
    pub fn busy(&self, target: usize) -> &AtomicU64 {
        self.of(target, 3)
    }

    /// How much of what `origin` has asked of `target` was done.
    pub fn done(&self, target: usize, origin: usize) -> &AtomicU64 {
        assert!(target < self.members && origin < self.members);
        self.word(self.members * (WORDS + self.members) + target * self.members + origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    /// Members that read and write in turns: never one that writes beside another, and nobody waits whose
    /// turn it is without being told.
    #[test]
    fn locks_are_given_in_turn() {
        const MEMBERS: usize = 5;
        const ROUNDS: usize = 2000;
        let control = Control::new(Mapping::make(Control::bytes(MEMBERS)).unwrap().0, MEMBERS);
        let inside = AtomicUsize::new(0);
        let bells: [(Mutex<u64>, Condvar); MEMBERS] = Default::default();
        std::thread::scope(|scope| {
            for member in 0..MEMBERS {
                let (control, inside, bells) = (&control, &inside, &bells);
                scope.spawn(move || {
                    let mut wake = |process: Process| {
                        *bells[process as usize].0.lock().unwrap() += 1;
                        bells[process as usize].1.notify_one();
                    };
                    for round in 0..ROUNDS {
                        let (target, alone) = ((round / 7) % 2, (member + round) % 3 == 0);
                        let hold = if alone { Hold::Exclusive } else { Hold::Shared };
                        let ticket = control.queue(target, hold, member as Process);
                        let mut rung = bells[member].0.lock().unwrap();
                        while !control.is_due(ticket) {
                            let seen = *rung;
                            let long = Duration::from_secs(60);
                            let woken = bells[member].1.wait_timeout_while(rung, long, |rung| *rung == seen);
                            let (guard, timeout) = woken.unwrap();
                            assert!(!timeout.timed_out(), "nobody has woken {member}");
                            rung = guard;
                        }
                        drop(rung);
                        control.enter(ticket, &mut wake);
                        let weight = if alone { 1000 } else { 1 };
                        if target == 0 {
                            let others = inside.fetch_add(weight, SeqCst);
                            assert!(others < if alone { 1 } else { 1000 }, "{others} beside {hold:?}");
                            inside.fetch_sub(weight, SeqCst);
                        }
                        control.leave(ticket, &mut wake);
                    }
                });
            }
        });
        for target in 0..2 {
            assert_eq!(control.writers(target).load(SeqCst), control.tickets(target).load(SeqCst));
        }
    }
}
