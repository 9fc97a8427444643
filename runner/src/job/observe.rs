//! What state words tell the core.

use std::sync::atomic::Ordering::SeqCst;

use bdrun_ipc::collective::Comm;
use bdrun_ipc::pool::bytes_in;
use bdrun_ipc::segment::{EvictFailure, RankBlock, Segment, Waiting};
use bdrun_ipc::state::{State, Word};

use super::Job;
use super::record::{Record, While};
use crate::exit::Ending;
use crate::residency::{Activity, Event, Memory, Outcome, Wait};
use crate::units::Bytes;

/// The word, the number of waits, what was asked for and what was granted.
type Told = (Word, u64, u64, u64);

/// What the core was told of a rank, so that only news is told.
#[derive(Default)]
pub(super) struct Seen {
    /// What was ordered and not yet answered.
    pub pending: Option<Pending>,
    /// What was last told.
    told: Option<Told>,
    granted: u64,
    /// How many restores were ordered.
    pub orders: u32,
    /// The number of its waits when the order was given that is not answered: if that has changed, it has run
    /// since.
    pub waits: u64,
    /// It was out when last looked at.
    pub out: bool,
    /// Bytes that threads of it lacked.
    pub lacks: u64,
    /// It was told that it ends.
    ends: bool,
}

impl Seen {
    /// Whether this is news, and then whether the rank is out by itself: the core knows of nothing that could
    /// have moved it.
    fn is_news(&mut self, now: Told) -> Option<bool> {
        if self.told == Some(now) {
            return None;
        }
        self.told = Some(now);
        let is_out = now.0.state() == State::Evicted;
        let was_out = std::mem::replace(&mut self.out, is_out);
        Some(is_out && !was_out)
    }

    /// Nothing of it counts as told. That it is out neither: if that was told while the core waited for an
    /// answer, it was not heard.
    fn forget(&mut self) {
        (self.told, self.out) = (None, false);
    }
}

/// An order that its rank has not yet answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pending {
    Evict,
    Restore,
}

impl Job<'_> {
    /// Look at the ranks that have rung.
    pub(super) fn observe_rung(&mut self) {
        let segment = self.setup.segment.clone();
        for rank in segment.attention().take() {
            self.record_legs(rank);
            self.observe(rank);
        }
    }

    /// Look at every rank; was there anything new?
    pub(super) fn observe_all(&mut self) -> bool {
        let before = self.events.len();
        let ranks: Vec<u32> = self.ranks.iter().map(|(rank, _)| rank).collect();
        ranks.into_iter().for_each(|rank| self.observe(rank));
        self.events.len() > before
    }

    /// Look at a rank and tell what is new.
    pub(super) fn observe(&mut self, rank: u32) {
        let segment = self.setup.segment.clone();
        if rank >= self.np() || self.is_stranger(rank) {
            return;
        }
        let block = segment.rank(rank);
        let word = block.word.load();
        self.observe_threads(rank);
        if matches!(self.ranks[rank as usize].evicted_while, Some(While::Computes)) {
            // It stands, or is about to, whatever its word says.
            return;
        }
        let besides = self.besides(rank);
        let record = &mut self.ranks[rank as usize].seen;
        self.largest_rank = self.largest_rank.max(bytes_in(&block.held));
        let ran = record.pending.is_some() && block.waits.load(SeqCst) != record.waits;
        match record.pending {
            Some(order) if ran && word.state() == State::Evicted => {
                // Answered, and out again by itself.
                record.pending = None;
                record.out = false;
                let outcome = match order {
                    Pending::Evict => Outcome::Lost,
                    Pending::Restore => Outcome::Restored,
                };
                self.events.push(Event::Done { rank, outcome });
            }
            Some(Pending::Evict) => match word.state() {
                State::Evicting => {
                    let granted = bytes_in(&block.granted);
                    if granted != record.granted {
                        record.granted = granted;
                        self.events.push(Event::Granted { rank, bytes: granted });
                    }
                    return;
                }
                state => {
                    record.pending = None;
                    let granted = bytes_in(&block.granted);
                    let all = bytes_in(&block.need);
                    let memory = |asked| Memory { asked, other: besides };
                    let part = (state == State::Evicted).then_some((memory(granted), memory(all)));
                    let outcome = match block.eviction_failure() {
                        Some(EvictFailure::NoSpace) => {
                            record.out = part.is_some();
                            Outcome::Full { need: bytes_in(&block.evict_need), part }
                        }
                        Some(EvictFailure::Refused) => {
                            self.say_in_vain(rank);
                            Outcome::Refused { lasting: false }
                        }
                        Some(EvictFailure::InUse) => {
                            self.say_in_use(rank);
                            Outcome::Refused { lasting: false }
                        }
                        Some(EvictFailure::Io) => {
                            // It has said why.
                            self.read_control(rank);
                            let text = format!("rank {rank}: its memory cannot be written to scratch");
                            self.end(Ending::ScratchBroken(text));
                            return;
                        }
                        None if part.is_some() => {
                            record.granted = granted;
                            record.out = true;
                            self.ranks[rank as usize].in_vain = 0;
                            self.evicted_itself(rank, granted, all);
                            return self.observe(rank);
                        }
                        None => Outcome::Lost,
                    };
                    self.events.push(Event::Done { rank, outcome });
                }
            },
            Some(Pending::Restore) => match word.state() {
                State::Blocked | State::Running => {
                    record.pending = None;
                    self.events.push(Event::Done { rank, outcome: Outcome::Restored });
                }
                State::Evicted => {
                    record.pending = None;
                    let granted = bytes_in(&block.granted);
                    record.granted = granted;
                    record.out = true;
                    let outcome = Outcome::RestoredPartly { asked: granted, orders: record.orders };
                    self.events.push(Event::Done { rank, outcome });
                }
                _ => return,
            },
            None => {}
        }
        let request = bytes_in(&block.request);
        let granted = bytes_in(&block.granted);
        let news = (word, block.waits.load(SeqCst), request, granted);
        let record = &mut self.ranks[rank as usize].seen;
        if block.ends.load(SeqCst) != 0 && !std::mem::replace(&mut record.ends, true) {
            self.events.push(Event::Ending { rank });
        }
        let Some(self_evicted) = record.is_news(news) else { return };
        // Also of one that is out: a fork by another thread brings everything in.
        let is_there = matches!(word.state(), State::Blocked | State::Running | State::Evicted);
        if is_there && !self_evicted {
            self.tell_granted(rank);
        }
        if self_evicted {
            self.ranks[rank as usize].seen.granted = granted;
            let all = bytes_in(&block.need);
            let wait = (!word.runnable()).then(|| wait(&segment, block));
            self.events.push(Event::EvictedItself { rank, wait, asked: granted, all });
        }
        match word.state() {
            State::Running => self.events.push(Event::Running { rank }),
            State::Blocked | State::Evicted
                if request > 0 && matches!(block.waiting(), Waiting::Memory { .. }) =>
            {
                self.chaos_instead_of_memory(rank);
                self.events.push(Event::NeedsMemory { rank, bytes: request });
            }
            State::Blocked => self.events.push(Event::Blocked { rank, wait: wait(&segment, block) }),
            State::Evicted if word.runnable() => self.events.push(Event::Runnable { rank }),
            _ => {}
        }
    }

    /// What it has now, if that is news.
    pub(super) fn tell_granted(&mut self, rank: u32) {
        let granted = bytes_in(&self.setup.segment.rank(rank).granted);
        let seen = &mut self.ranks[rank as usize].seen;
        if granted != std::mem::replace(&mut seen.granted, granted) {
            self.events.push(Event::Granted { rank, bytes: granted });
        }
    }

    /// A rank has ended: nobody of it lacks anything.
    pub(super) fn observe_end(&mut self, rank: u32) {
        let before = std::mem::take(&mut self.ranks[rank as usize].seen.lacks);
        if before > 0 {
            self.lacks = self.lacks.saturating_sub(before);
            self.events.push(Event::Lacks { rank, bytes: self.lacks });
        }
    }

    /// What threads of a rank lack beside the one that waits, and what was taken for a fork of it.
    fn observe_threads(&mut self, rank: u32) {
        let segment = self.setup.segment.clone();
        let block = segment.rank(rank);
        let lacks = bytes_in(&block.lacks);
        let before = std::mem::replace(&mut self.ranks[rank as usize].seen.lacks, lacks);
        if lacks != before {
            self.lacks = self.lacks.saturating_sub(before).saturating_add(lacks);
            self.events.push(Event::Lacks { rank, bytes: self.lacks });
        }
        let forked = block.forked.swap(0, SeqCst);
        if forked > 0 {
            self.note(&format!(
                "rank {rank} made a copy of itself (fork) while parts of it were out: they came in for that, {} more than was free",
                Bytes(forked)
            ));
        }
    }

    /// Nothing has happened for a while, and everything that was told was taken in. A rank that is out by
    /// itself, and that the core takes for one in RAM, would wait for ever. There should be none; if there
    /// is, it is better to say so and to go on.
    pub(super) fn tell_what_was_not_heard(&mut self) {
        // Ranks of a wide job tell nothing.
        if self.setup.segment.is_wide() || self.observe_all() {
            return;
        }
        let segment = self.setup.segment.clone();
        let is_unheard = |&(rank, record): &(u32, &Record)| {
            let block = segment.rank(rank);
            let now = (block.word.load(), block.waits.load(SeqCst));
            let is_told = record.seen.told.is_some_and(|told| (told.0, told.1) == now);
            let answers = record.seen.pending.is_some() || record.order.is_some();
            let inside = matches!(self.core.activity(rank), Some(Activity::Running | Activity::Waiting));
            now.0.state() == State::Evicted && is_told && inside && !answers
        };
        let unheard: Vec<u32> = self.ranks.iter().filter(is_unheard).map(|(rank, _)| rank).collect();
        for rank in unheard {
            self.note(&format!(
                "rank {rank} left RAM by itself, which was not heard: it is brought back now; a fault of bdrun, please report it"
            ));
            self.forget(rank);
            self.observe(rank);
        }
    }

    /// The next look at this rank tells everything anew.
    pub(super) fn forget(&mut self, rank: u32) {
        self.ranks[rank as usize].seen.forget();
    }

    /// Ask the ranks to ring when they block, exactly while somebody waits for room.
    pub(super) fn update_wants(&mut self) {
        let wants = u32::from(self.core.wants_room());
        if self.setup.segment.header().pool.wants.swap(wants, SeqCst) == 0 && wants == 1 {
            self.setup.mail.give_spares_back(&self.setup.segment);
            // Those that blocked before were not asked to ring.
            self.observe_all();
        }
    }
}

/// What a blocked rank waits for, as the core sees it.
pub(super) fn wait(segment: &Segment, block: &RankBlock) -> Wait {
    match block.waiting() {
        // It goes on by itself, however late: others, and the machine, may keep it from the processor.
        _ if block.timed.load(SeqCst) != 0 => Wait::Other,
        // The source is a rank of the communicator; only of the first one is that the node's number.
        Waiting::Message { context: 0, source, .. } => Wait::Message { from: source },
        Waiting::Message { .. } | Waiting::Anything => Wait::Message { from: None },
        Waiting::Collective { comm, number } => match Comm::at(segment, comm) {
            Ok(comm) => Wait::Collective { missing: comm.missing(segment, number) },
            Err(_) => Wait::Other,
        },
        Waiting::Nothing | Waiting::Memory { .. } => Wait::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It left by itself just before it was to be interrupted, or refused to be: the core hears of it only
    /// when that order has ended, and took it for one that computes until then.
    #[test]
    fn what_was_not_heard_is_told_anew() {
        let told = |state| (Word(state as u32), 7, 0, 1 << 20);
        let mut seen = Seen::default();
        assert_eq!(seen.is_news(told(State::Running)), Some(false));
        assert_eq!(seen.is_news(told(State::Evicted)), Some(true));
        assert_eq!(seen.is_news(told(State::Evicted)), None);
        seen.forget();
        assert_eq!(seen.is_news(told(State::Evicted)), Some(true));
        assert_eq!(seen.is_news(told(State::Running)), Some(false));
        assert_eq!(seen.is_news(told(State::Evicted)), Some(true));
    }

    /// One that the core had moved out is not taken for one that left by itself.
    #[test]
    fn who_was_ordered_out_did_not_leave_by_itself() {
        let mut seen = Seen { out: true, ..Seen::default() };
        assert_eq!(seen.is_news((Word(State::Evicted as u32), 7, 0, 0)), Some(false));
    }
}
