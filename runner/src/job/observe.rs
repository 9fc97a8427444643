//! From state words to scheduler events.

use std::sync::atomic::Ordering::SeqCst;

use bdrun_ipc::collective::Comm;
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
    /// The word and the number of waits when last told.
    told: Option<(Word, u64, u64)>,
    granted: u64,
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
        self.largest_rank = self.largest_rank.max(block.held.load(SeqCst));
        match record.pending {
            Some(Pending::Evict) => match word.state() {
                State::Evicting => return,
                State::Evicted => {
                    record.pending = None;
                    record.granted = 0;
                    self.events.push(Event::Evicted { rank, held: block.held.load(SeqCst) });
                }
                _ => {
                    record.pending = None;
                    match block.eviction_failure() {
                        Some(EvictFailure::NoSpace) => {
                            self.events.push(Event::DiskFull { rank, need: block.evict_need.load(SeqCst) });
                        }
                        Some(EvictFailure::Refused) => self.events.push(Event::EvictRefused { rank }),
                        Some(EvictFailure::Io) => {
                            let text = format!("rank {rank}: its memory cannot be written to scratch");
                            self.end(Ending::ScratchBroken(text));
                            return;
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
                _ => return,
            },
            None => {}
        }
        let request = block.request.load(SeqCst);
        let news = (word, block.waits.load(SeqCst), request);
        let record = &mut self.ranks[rank as usize].seen;
        if record.told == Some(news) {
            return;
        }
        record.told = Some(news);
        let granted = block.granted.load(SeqCst);
        if matches!(word.state(), State::Blocked | State::Running) && granted != record.granted {
            record.granted = granted;
            self.events.push(Event::Granted { rank, bytes: granted });
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
