//! A rank that asks for its memory, and what it holds besides: that is moved from outside, after what it
//! asked for has left by itself; or all of it, where it computes.
//!
//! The rank's own runtime and the thread that holds it are never at work at the same time. A rank that waits
//! moves out what it asked for, and stands in that wait when it is stopped; it is let go before it is told to
//! come back. Of one that computes everything leaves as it is, whatever its word says: what it is doing is
//! looked at when it is back. So does one that began to ask when it was already on its way out
//! (`Job::adopt`).

use std::sync::atomic::Ordering::SeqCst;

use bdrun_ipc::pool::bytes_in;
use bdrun_ipc::state::{State, Word};
use sbmalloc::other::Refusal;

use crate::exit::Ending;
use crate::holder::{Order, Report};
use crate::measure::Sample;
use crate::residency::{Event, Memory, Outcome};

use super::Job;
use super::observe::wait;
use super::orders::{Executor, Restore};
use super::own::Own;
use super::record::{Ordered, What, While};
use super::watch::Watch;

/// Evicts in a row that were refused, before that is said.
const IN_VAIN: u32 = 6;

/// How one leaves that was taken for one that computes.
#[derive(Debug, PartialEq, Eq)]
enum Leaves {
    /// As one that waits. It is out already, and says by its word when it may go on: no thread may hold it as
    /// if it computed, or nobody heard that word.
    ByItself,
    AsItIs,
    Not,
}

impl Leaves {
    /// `movable`: a thread can hold it.
    fn of(word: Word, movable: bool) -> Self {
        match word.state() {
            State::Evicted => Self::ByItself,
            _ if movable => Self::AsItIs,
            _ => Self::Not,
        }
    }
}

impl Job<'_> {
    /// A rank that waits has moved out by itself what it asked for, but for `asked` bytes, and must hold
    /// `all` of it to run. What it holds besides follows, if that is worth it and was wanted.
    pub(super) fn evicted_itself(&mut self, rank: u32, asked: u64, all: u64) {
        let goes = self.setup.segment.rank(rank).keep.load(SeqCst) == 0;
        if goes && self.besides(rank) > 0 && self.can_be_moved(rank) {
            self.evict_besides(rank, While::Waits { asked, all });
        } else {
            self.left(rank, asked, all);
        }
    }

    /// The same, and nothing of the rest leaves.
    fn left(&mut self, rank: u32, asked: u64, all: u64) {
        let other = self.besides(rank);
        let (left, all) = (Memory { asked, other }, Memory { asked: all, other });
        self.done(rank, Outcome::Evicted { left, all });
    }

    /// Of what a rank did not ask for, bytes that are in RAM and will be when it is back.
    pub(super) fn besides(&self, rank: u32) -> u64 {
        self.watch.accounts.held_by(rank).min(self.ranks[rank as usize].besides_inside)
    }

    /// A rank that computes leaves as it is. The core may take one for such that has left by itself: that was
    /// seen in the same look as what the order follows from.
    pub(super) fn preempt(&mut self, rank: u32) {
        let segment = self.setup.segment.clone();
        let block = segment.rank(rank);
        let word = block.word.load();
        match Leaves::of(word, self.can_be_moved(rank)) {
            Leaves::ByItself => {
                // If it was told, that changes nothing; if not, the core would take it for one that computes
                // until it is back.
                let (asked, all) = (bytes_in(&block.granted), bytes_in(&block.need));
                let wait = (!word.runnable()).then(|| wait(&segment, block));
                self.events.push(Event::EvictedItself { rank, wait, asked, all });
                self.executor(rank).evict(self, rank, 0);
            }
            Leaves::AsItIs => self.evict_besides(rank, While::Computes),
            Leaves::Not => {
                self.done(rank, Outcome::Refused { lasting: false });
                self.forget(rank);
                self.observe(rank);
            }
        }
    }

    /// A rank is out, and its other threads take memory for what they touch of it: they stand still until it
    /// is back.
    pub(super) fn hold_threads(&mut self, rank: u32) {
        let record = &self.ranks[rank as usize];
        if record.seen.pending.is_none() && record.seen.out && self.can_be_moved(rank) {
            let block = self.setup.segment.rank(rank);
            let leaving = While::Waits { asked: bytes_in(&block.granted), all: bytes_in(&block.need) };
            let record = &mut self.ranks[rank as usize];
            (record.order, record.evicted_while) = (Some(Ordered::new(What::Hold)), Some(leaving));
            self.start_holder(rank, None);
        }
    }

    /// One whose threads stand has a part of its memory in RAM, and is to leave: by itself, so it is let go.
    pub(super) fn let_leave(&mut self, rank: u32, keep: u64) {
        let record = &mut self.ranks[rank as usize];
        record.leaves = Some(keep);
        record.order = Some(Ordered::new(What::Resume));
        if let Some(holder) = &record.holder {
            holder.order(Order::Resume);
        }
    }

    fn can_be_moved(&self, rank: u32) -> bool {
        let record = &self.ranks[rank as usize];
        !record.fixed
            && record.group.is_some()
            && record.holder.is_none()
            && self.watch.permits.ptrace.is_ok()
    }

    fn evict_besides(&mut self, rank: u32, leaving: While) {
        let record = &mut self.ranks[rank as usize];
        (record.order, record.evicted_while) = (Some(Ordered::new(What::Evict)), Some(leaving));
        self.watch.sampler.set_out(rank, true);
        self.start_holder(rank, Some(Order::Evict));
    }

    /// Brings back what a thread holds, and then what the rank moves itself, or gives one on its way more of
    /// that.
    pub(super) fn restore_all(&mut self, rank: u32, Restore { bytes, all, overdraft }: Restore) {
        let segment = self.setup.segment.clone();
        let (pool, block) = (&segment.header().pool, segment.rank(rank));
        let accounts = &self.watch.accounts;
        let (held, out, lent) = (accounts.held_by(rank), accounts.out_of(rank).0, accounts.lent_by(rank));
        // What it did not ask for, and what leaves with that, comes as a whole or not at all; else as much as
        // there is.
        let (whole, wanted) = (out + lent > 0, bytes.saturating_sub(out + lent));
        let free = pool.free().saturating_add_unsigned(self.kept_free);
        let fits = overdraft || free >= i64::try_from(bytes).unwrap_or(i64::MAX);
        let got = match whole {
            false => pool.take_up_to(wanted),
            true if fits && pool.take(wanted) => wanted,
            true => 0,
        };
        let forced = got < wanted && overdraft && self.force(rank, wanted - got);
        let asked = if forced { wanted } else { got };
        let denied = whole && !(fits && asked == wanted);
        if denied || asked < wanted {
            self.events.push(Event::Denied { rank, bytes: if whole { bytes } else { wanted - asked } });
        }
        if denied {
            return;
        }
        self.lend(rank, 0);
        self.charge(rank, held + out, 0);
        block.all.store(all, SeqCst);
        block.granted.fetch_add(asked, SeqCst);
        let record = &mut self.ranks[rank as usize];
        record.seen.orders = record.seen.orders.wrapping_add(1);
        if record.order.is_some_and(|order| order.what == What::Resume) {
            return;
        }
        record.order = Some(Ordered::new(What::Resume));
        if let Some(holder) = &record.holder {
            holder.order(Order::Resume);
        }
    }

    /// What has become of an order to a rank that asks.
    pub(super) fn answered_besides(&mut self, rank: u32, leaving: While, report: Report) {
        match report {
            Report::Held => {
                self.ranks[rank as usize].stand(true);
                if matches!(leaving, While::Computes) {
                    // Others compute meanwhile. It has none when it goes on, and gives none back. If it was
                    // woken to take one just now, another is.
                    self.setup.segment.header().tokens.release_of_ended(rank);
                }
            }
            Report::Freed(freed) => self.freed(rank, freed),
            Report::Evicted { out, freed, written, took, full } => {
                self.note_evicted(rank, freed, written, took);
                self.is_evicted(rank, leaving, out, full.is_some());
            }
            Report::Restored { filled, took } => {
                self.note_restored(rank, filled, took);
                self.is_restored(rank, leaving);
            }
            Report::Resumed => self.is_restored(rank, leaving),
            Report::Full { .. } => self.stays(rank, leaving, true),
            Report::Refused(why) => {
                self.say_stays(rank, &why);
                self.stays(rank, leaving, false);
            }
            // Its exit is told by the supervisor.
            Report::Gone => drop(self.ranks[rank as usize].let_go()),
            Report::Broken(text) => {
                self.kill(rank);
                self.end(Ending::ScratchBroken(format!("rank {rank}: {text}")));
            }
            // Not of an order that such a rank is given.
            Report::InParts(_) | Report::NotFrozen(_) => {}
        }
    }

    fn is_evicted(&mut self, rank: u32, leaving: While, out: u64, full: bool) {
        let granted = bytes_in(&self.setup.segment.rank(rank).granted);
        let held = self.besides(rank);
        let remains = self.watch.sampler.remains(rank).unwrap_or_default();
        let besides = |asked| Watch::besides(&Sample { asked, ..remains });
        let (left, all) = match leaving {
            While::Waits { asked, all } => {
                let left = Memory { asked, other: besides(granted).min(held) };
                (left, Memory { asked: all, other: held })
            }
            While::Computes => {
                let left = Memory { asked: 0, other: besides(0).min(granted + held) };
                self.lend(rank, granted);
                // No look has seen what one holds besides that has begun to ask on its way out.
                let whole =
                    Sample { asked: granted, private: remains.private.saturating_add(out), ..remains };
                let other = held.max(left.other).max(Watch::besides(&whole));
                (left, Memory { asked: granted, other })
            }
        };
        self.charge(rank, left.other, all.other - left.other);
        let part = Some((left, all));
        let outcome = match full {
            false => Outcome::Evicted { left, all },
            true => Outcome::Full { need: all.total().saturating_sub(out), part },
        };
        self.done(rank, outcome);
    }

    fn is_restored(&mut self, rank: u32, leaving: While) {
        let (_, leaves) = self.is_resumed(rank);
        match leaving {
            While::Waits { .. } => self.goes_on(rank, leaves),
            While::Computes => {
                self.done(rank, Outcome::Restored);
                self.forget(rank);
                self.observe(rank);
            }
        }
    }

    /// The threads of a rank that is out were let go, so that it comes back, or leaves.
    fn goes_on(&mut self, rank: u32, leaves: Option<u64>) {
        match leaves {
            Some(keep) => Own.evict(self, rank, keep),
            None => self.restore_itself(rank),
        }
    }

    /// Nothing of it could be moved from outside, or it could not be stopped.
    fn stays(&mut self, rank: u32, leaving: While, full: bool) {
        let (ordered, leaves) = self.is_resumed(rank);
        match (leaving, ordered) {
            (While::Waits { .. }, Some(What::Resume)) => return self.goes_on(rank, leaves),
            // That its threads stand was not the core's order.
            (While::Waits { .. }, Some(What::Hold)) => return,
            _ => {}
        }
        let outcome = match leaving {
            // It has left by itself, so there is room for others.
            While::Waits { asked, all } => return self.left(rank, asked, all),
            While::Computes if full => Outcome::Full { need: self.besides(rank), part: None },
            While::Computes => Outcome::Refused { lasting: false },
        };
        self.done(rank, outcome);
        self.forget(rank);
        self.observe(rank);
    }

    /// No thread holds it any more. What was ordered of it last, and with how much of its memory it is to
    /// leave now, if it is.
    fn is_resumed(&mut self, rank: u32) -> (Option<What>, Option<u64>) {
        let record = &mut self.ranks[rank as usize];
        record.evicted_while = None;
        let last = (record.let_go(), record.leaves.take());
        record.stand(false);
        self.watch.sampler.set_out(rank, false);
        last
    }

    /// Says once of a rank that it is not paged while somebody else than its threads may use its memory.
    pub(super) fn say_in_use(&mut self, rank: u32) {
        if !std::mem::replace(&mut self.ranks[rank as usize].told_fixed, true) {
            self.note(&format!(
                "rank {rank} cannot be paged out now: it has asynchronous I/O of its own (io_uring, AIO, a GPU or an RDMA device), which may be at work on its memory"
            ));
        }
    }

    /// Says so once, where it never leaves. Now and then it cannot on any busy machine.
    pub(super) fn say_in_vain(&mut self, rank: u32) {
        let record = &mut self.ranks[rank as usize];
        record.in_vain += 1;
        if record.in_vain == IN_VAIN && !std::mem::replace(&mut record.told_fixed, true) {
            self.note(&format!(
                "rank {rank} cannot be paged out now: a thread of it does not stand still when it is told to (it blocks all signals, say), or cannot be seen (/proc)"
            ));
        }
    }

    /// Says once of a rank that what it did not ask for stays in RAM.
    fn say_stays(&mut self, rank: u32, why: &Refusal) {
        let record = &mut self.ranks[rank as usize];
        record.fixed |= why.is_lasting();
        if record.fixed {
            let attached = self.setup.segment.rank(rank).attached.load(SeqCst) != 0;
            let can = crate::residency::Can { whole: false, preempt: false, ..self.watch.native(attached) };
            self.events.push(Event::Can { rank, can });
        }
        let told = &mut self.ranks[rank as usize].told_fixed;
        if !why.is_momentary() && !std::mem::replace(told, true) {
            self.note(&format!(
                "what rank {rank} holds besides the memory of bdrun's allocator stays in RAM: {why}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use bdrun_ipc::state::RUNNABLE;

    use super::*;

    /// Held as one that computes it would stand for ever: that what it waits for is there was told to nobody.
    #[test]
    fn who_has_left_by_itself_is_not_held_as_if_it_computed() {
        let word = |state: State, runnable: bool| Word(state as u32 | if runnable { RUNNABLE } else { 0 });
        for movable in [false, true] {
            assert_eq!(Leaves::of(word(State::Evicted, false), movable), Leaves::ByItself);
            assert_eq!(Leaves::of(word(State::Evicted, true), movable), Leaves::ByItself);
        }
        for state in [State::Running, State::Blocked] {
            assert_eq!(Leaves::of(word(state, false), true), Leaves::AsItIs);
            assert_eq!(Leaves::of(word(state, false), false), Leaves::Not);
        }
    }
}
