//! From state words to scheduler events.

use std::sync::atomic::Ordering::SeqCst;

use bdrun_ipc::collective::Comm;
use bdrun_ipc::pool::bytes_in;
use bdrun_ipc::segment::{EvictFailure, RankBlock, Segment, Waiting};
use bdrun_ipc::state::{State, Word};

use super::Job;
use crate::exit::Ending;
use crate::scheduler::{Event, Wait};

/// What the scheduler was told of a rank, so that only news is told.
#[derive(Default)]
pub(super) struct Seen {
    /// What was ordered and not yet answered.
    pub pending: Option<Pending>,
    /// The word, the number of waits, what was asked for and what was granted when last told.
    told: Option<(Word, u64, u64, u64)>,
    granted: u64,
    /// How many restores were ordered.
    pub orders: u32,
    /// The number of its waits when the order was given that is not answered: if that has changed, it has run since.
    pub waits: u64,
    /// It was out when last looked at.
    out: bool,
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
            self.observe(rank);
        }
    }

    /// Look at every rank; was there anything new?
    pub(super) fn observe_all(&mut self) -> bool {
        let before = self.events.len();
        for rank in 0..self.setup.segment.np() {
            self.observe(rank);
        }
        self.events.len() > before
    }

    /// Look at a rank and tell what is new.
    pub(super) fn observe(&mut self, rank: u32) {
        let segment = self.setup.segment.clone();
        if rank >= segment.np() {
            return;
        }
        let block = segment.rank(rank);
        let word = block.word.load();
        let record = &mut self.ranks[rank as usize].seen;
        self.largest_rank = self.largest_rank.max(bytes_in(&block.held));
        let ran = record.pending.is_some() && block.waits.load(SeqCst) != record.waits;
        match record.pending {
            Some(order) if ran && word.state() == State::Evicted => {
                // Answered, and out again by itself.
                record.pending = None;
                record.out = false;
                self.events.push(match order {
                    Pending::Evict => Event::EvictLost { rank },
                    Pending::Restore => Event::Restored { rank },
                });
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
                    let (granted, held) = (bytes_in(&block.granted), bytes_in(&block.need));
                    let part = (state == State::Evicted).then_some((granted, held));
                    match block.eviction_failure() {
                        Some(EvictFailure::NoSpace) => {
                            let need = bytes_in(&block.evict_need);
                            record.out = part.is_some();
                            self.events.push(Event::DiskFull { rank, need, part });
                        }
                        Some(EvictFailure::Refused) => self.events.push(Event::EvictRefused { rank }),
                        Some(EvictFailure::Io) => {
                            let text = format!("rank {rank}: its memory cannot be written to scratch");
                            self.end(Ending::ScratchBroken(text));
                            return;
                        }
                        None if part.is_some() => {
                            record.granted = granted;
                            record.out = true;
                            self.events.push(Event::Evicted { rank, granted, held });
                        }
                        None => self.events.push(Event::EvictLost { rank }),
                    }
                }
            },
            Some(Pending::Restore) => match word.state() {
                State::Blocked | State::Running => {
                    record.pending = None;
                    self.events.push(Event::Restored { rank });
                }
                State::Evicted => {
                    record.pending = None;
                    let granted = bytes_in(&block.granted);
                    record.granted = granted;
                    record.out = true;
                    self.events.push(Event::RestoredPartly { rank, granted, orders: record.orders });
                }
                _ => return,
            },
            None => {}
        }
        let request = bytes_in(&block.request);
        let granted = bytes_in(&block.granted);
        let news = (word, block.waits.load(SeqCst), request, granted);
        let record = &mut self.ranks[rank as usize].seen;
        if record.told == Some(news) {
            return;
        }
        let self_evicted = word.state() == State::Evicted && !record.out;
        record.out = word.state() == State::Evicted;
        record.told = Some(news);
        if matches!(word.state(), State::Blocked | State::Running) && granted != record.granted {
            record.granted = granted;
            self.events.push(Event::Granted { rank, bytes: granted });
        }
        if self_evicted {
            let held = bytes_in(&block.need);
            let wait = (!word.runnable()).then(|| wait(&segment, block));
            self.events.push(Event::Left { rank, wait, granted, held });
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

    /// The next look at this rank tells everything anew.
    pub(super) fn forget(&mut self, rank: u32) {
        self.ranks[rank as usize].seen.told = None;
    }

    /// Ask the ranks to ring when they block, exactly while somebody waits for room.
    pub(super) fn update_wants(&mut self) {
        let wants = u32::from(self.scheduler.wants_room());
        if self.setup.segment.header().pool.wants.swap(wants, SeqCst) == 0 && wants == 1 {
            self.setup.mail.give_spares_back(&self.setup.segment);
            // Those that blocked before were not asked to ring.
            self.observe_all();
        }
    }
}

/// What a blocked rank waits for, as the scheduler sees it.
fn wait(segment: &Segment, block: &RankBlock) -> Wait {
    match block.waiting() {
        // The source is a rank of the communicator; only of the first one is that the node's number.
        Waiting::Message { context: 0, source, .. } => Wait::Message { from: source },
        Waiting::Message { .. } | Waiting::AnyMessage => Wait::Message { from: None },
        Waiting::Collective { comm, number } => match Comm::at(segment, comm) {
            Ok(comm) => Wait::Collective { missing: comm.missing(segment, number) },
            Err(_) => Wait::Other,
        },
        Waiting::Nothing | Waiting::Memory { .. } => Wait::Other,
    }
}
