//! Windows whose members are on several nodes: they share no words, so that who has a member's lock, and
//! whether all was done that was asked of it, is told by messages. Each member has the words of its own lock,
//! and gives it to others, in turn, in whatever call it is.

use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, PoisonError};

use bdrun_mpi_core::error::Class;

use super::Window;
use super::active::{DONE, LOCK, LOCKED, UNLOCK};
use super::control::{Hold, Ticket};
use crate::Mpi;
use crate::communicators::bytes_of;
use crate::failure::Answer;

/// Of a window whose members are on several nodes.
#[derive(Debug, Default)]
pub struct Apart {
    /// Others that wait for this one's lock, and with what.
    waiting: Mutex<Vec<(usize, Ticket)>>,
    /// Numbers of the tickets with which this one got others' locks.
    given: Mutex<HashMap<usize, u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is said of a lock.
fn said(Ticket { hold, number, .. }: Ticket) -> [i64; 2] {
    [(hold == Hold::Exclusive).into(), number as i64]
}

fn heard(target: usize, bytes: &[u8]) -> Option<Ticket> {
    let [hold, number] = *bytes.as_chunks().0 else { return None };
    let hold = if i64::from_le_bytes(hold) == 0 { Hold::Shared } else { Hold::Exclusive };
    Some(Ticket { target, hold, number: u64::from_le_bytes(number) })
}

impl Mpi {
    pub(super) fn say_apart(&self, window: &Window, to: usize, tag: i32, said: &[i64]) -> Answer<()> {
        let process = window.comm.group.members()[to];
        self.act();
        self.link()?.send(process, window.head(tag)?, &[&bytes_of(said.iter().copied())])
    }

    /// Waits for the lock of a member elsewhere.
    pub(super) fn lock_apart(
        &self,
        window: &Window,
        apart: &Apart,
        target: usize,
        hold: Hold,
    ) -> Answer<Ticket> {
        let wanted = Ticket { target, hold, number: 0 };
        self.say_apart(window, target, LOCK, &said(wanted))?;
        self.wait_until(|| lock(&apart.given).contains_key(&target))?;
        let number = lock(&apart.given).remove(&target).ok_or(Class::Internal)?;
        Ok(Ticket { number, ..wanted })
    }

    /// Gives it back, which is something that is asked: the window is there until it is done.
    pub(super) fn unlock_apart(&self, window: &Window, ticket: Ticket) -> Answer<()> {
        let asked = &window.asked[ticket.target];
        asked.fetch_add(1, SeqCst);
        let told = self.say_apart(window, ticket.target, UNLOCK, &said(ticket));
        told.inspect_err(|_| _ = asked.fetch_sub(1, SeqCst))
    }

    /// Gives this one's lock to those elsewhere whose turn it is.
    pub(super) fn give_locks(&self, window: &Window) -> Answer<()> {
        let Some(apart) = &window.apart else { return Ok(()) };
        let own = self.link()?.process();
        let mut waiting = lock(&apart.waiting);
        // Who reads lets the next one read.
        while let Some(at) = waiting.iter().position(|&(_, ticket)| window.control.is_due(ticket)) {
            let (to, ticket) = waiting.swap_remove(at);
            window.control.enter(ticket, &mut |process| self.wake_own(own, process));
            self.say_apart(window, to, LOCKED, &said(ticket))?;
        }
        Ok(())
    }

    /// A thread of this process waits for the lock, as those elsewhere do not.
    fn wake_own(&self, own: u32, process: u32) {
        if process == own {
            self.tell_threads();
        }
    }

    /// What a member elsewhere says.
    pub(super) fn hear_apart(&self, window: &Window, from: usize, tag: i32, bytes: &[u8]) -> Answer<()> {
        let (apart, own) = (window.apart.as_ref().ok_or(Class::Internal)?, window.comm.rank);
        match tag {
            DONE => _ = window.control.done(from, own).fetch_add(1, SeqCst),
            LOCK => {
                let wanted = heard(own, bytes).ok_or(Class::Internal)?;
                let process = window.comm.group.members()[from];
                let ticket = window.control.queue(own, wanted.hold, process);
                lock(&apart.waiting).push((from, ticket));
                self.give_locks(window)?;
            }
            LOCKED => {
                let ticket = heard(from, bytes).ok_or(Class::Internal)?;
                lock(&apart.given).insert(from, ticket.number);
            }
            UNLOCK => {
                let ticket = heard(own, bytes).ok_or(Class::Internal)?;
                let process = self.link()?.process();
                window.control.leave(ticket, &mut |other| self.wake_own(process, other));
                self.give_locks(window)?;
                self.say_apart(window, from, DONE, &[])?;
            }
            _ => return Err(Class::Internal.into()),
        }
        self.tell_threads();
        Ok(())
    }
}
