//! What the master keeps of independent ranks.

use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::cli::Options;
use crate::exit::Ending;
use crate::measure::{Group, Permits, Sample, Sampler};
use crate::outside::{Mover, Scratch};
use crate::overdraft::{self, Overdraft};
use crate::stats::{JobMeasured, RankMeasured};
use crate::supervisor::Supervisor;

use super::SharedOutput;
use super::accounts::Accounts;
use super::listen::Message;
use super::setup::Setup;
use super::shrink::Partial;

/// What the time from an order until the first memory is free is taken for before it was measured once.
pub(super) const REACTION: Duration = Duration::from_millis(20);
/// From one look at memory to the next, before the core says.
const FIRST_LOOK: Duration = Duration::from_millis(5);

/// Everything about the independent ranks of a job.
pub(super) struct Outside {
    pub core: Overdraft,
    pub sampler: Sampler,
    pub permits: Permits,
    pub ranks: Vec<Rank>,
    pub accounts: Accounts,
    pub reaction: Duration,
    /// It was said that ranks come in by turns.
    pub told_turns: bool,
    /// What was seen of all of them together.
    pub seen: JobMeasured,
    pub sender: Sender<Message>,
}

/// What the master keeps of one of them.
#[derive(Default)]
pub(super) struct Rank {
    pub group: Option<Group>,
    /// Which try of it this is.
    pub nth: u32,
    pub mover: Option<Mover>,
    /// It runs in parts, by its mover.
    pub partial: Option<Partial>,
    pub scratch: Scratch,
    /// The order that the mover carries out.
    pub order: Option<Ordered>,
    /// What it was last seen to hold.
    pub last: Sample,
    /// Said to be impossible to page.
    pub fixed: bool,
    /// It was said why it cannot be paged out.
    pub told_fixed: bool,
    /// We have killed it to make room.
    pub stopping: bool,
    /// Since when it stands still.
    pub still: Option<Instant>,
    pub still_for: Duration,
    /// Since when it lives, and how long it lived in earlier tries.
    pub born: Option<Instant>,
    pub lived: Duration,
    /// Processor time of earlier tries.
    pub spent: Duration,
}

/// An order under way.
#[derive(Clone, Copy)]
pub(super) struct Ordered {
    pub what: What,
    pub at: Instant,
    pub freed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Evict,
    Hold,
    Freeze,
    Return,
    Shrink,
}

impl Outside {
    /// For a job of independent ranks; none for a co-operative one, which it becomes where ranks cannot be paged from outside
    /// and a library can be put in front of the program.
    pub fn start(
        options: &Options,
        setup: &mut Setup,
        supervisor: &Supervisor,
        sender: &Sender<Message>,
        output: &SharedOutput,
    ) -> Result<Option<Self>, Ending> {
        if !setup.independent {
            return Ok(None);
        }
        let permits = supervisor.permits();
        if let Err(why) = &permits.ptrace {
            let note = |text: &str| super::lock(output).note(text);
            if let Some(library) = setup.fallback.take() {
                note(&format!("ranks cannot be paged from outside: {why}; using --preload"));
                (setup.preload, setup.independent) = (Some(library), false);
                return Ok(None);
            }
            note(&format!("ranks cannot be paged out here, only held ({}): {why}", permits.freezer));
        }
        let paging_refused = permits.ptrace.as_ref().err().cloned();
        let config = sbmalloc::Config { scratch_dirs: setup.scratch_dirs.clone(), ..Default::default() };
        sbmalloc::configure(config).map_err(|error| Ending::Setup(error.to_string()))?;
        let limits = overdraft::Limits {
            budget: setup.limits.budget,
            processors: options.processor_count(),
            resident: options.resident_limit(),
            rank_limit: options.rank_memory,
            may_page: permits.ptrace.is_ok(),
            may_freeze: true,
            may_stop: options.launch.rerun,
            enforce: options.enforce,
        };
        // Output in the order of the ranks is held back until it is its rank's turn, so they had better run in that order.
        let declared = |rank| setup.launch.declared(rank).filter(|_| !options.launch.keep_order);
        let sizes: Vec<_> = (0..options.np).map(declared).collect();
        let sampler = Sampler::start(FIRST_LOOK, sender.clone())
            .map_err(|error| Ending::Setup(format!("memory cannot be measured: {error}")))?;
        Ok(Some(Self {
            core: Overdraft::new(limits, &sizes),
            sampler,
            permits,
            ranks: sizes.iter().map(|_| Rank::default()).collect(),
            accounts: Accounts::new(options.np, setup.limits.first_reserve),
            reaction: REACTION,
            told_turns: false,
            seen: JobMeasured { paging_refused, ..JobMeasured::default() },
            sender: sender.clone(),
        }))
    }

    pub fn counts(&self) -> overdraft::Counts {
        self.core.counts()
    }

    /// What was measured of a rank; none of one that joined the co-operative runtime, which measures itself.
    pub fn account(&self, rank: u32) -> Option<RankMeasured> {
        let Rank { last, still_for, spent, partial, .. } = &self.ranks[rank as usize];
        let (parts_faults, parts_s) = partial.as_ref().map_or((0, 0.0), Partial::account);
        (!self.accounts.is_adopted(rank)).then(|| RankMeasured {
            private_bytes: last.peak_private,
            shared_bytes: last.peak_shared,
            unmanaged_bytes: last.shared + last.page_tables,
            out_bytes: self.accounts.out_of(rank).1,
            processes: last.peak_processes,
            cpu_s: (*spent + last.cpu).as_secs_f64(),
            held_s: still_for.as_secs_f64(),
            parts_s,
            parts_faults,
        })
    }

    /// The same of all together.
    pub fn job_account(&self) -> JobMeasured {
        let cpu_s = self.ranks.iter().map(|rank| (rank.spent + rank.last.cpu).as_secs_f64()).sum();
        JobMeasured { cpu_s, ..self.seen.clone() }
    }

    /// After a look: the highest sums so far.
    pub fn note_peaks(&mut self, gap: Duration) {
        let accounts = &self.accounts;
        let living = || {
            (0..)
                .zip(&self.ranks)
                .filter(|(rank, record)| record.group.is_some() && !accounts.is_adopted(*rank))
        };
        let sum = |of: &dyn Fn(&Rank) -> u64| living().map(|(_, record)| of(record)).sum::<u64>();
        let seen = &self.seen;
        self.seen = JobMeasured {
            measured_peak_bytes: seen.measured_peak_bytes.max(accounts.held()),
            private_bytes: seen.private_bytes.max(sum(&|rank| rank.last.private)),
            shared_bytes: seen.shared_bytes.max(sum(&|rank| rank.last.shared)),
            unmanaged_bytes: seen.unmanaged_bytes.max(sum(&|rank| rank.last.shared + rank.last.page_tables)),
            out_bytes: seen.out_bytes.max(living().map(|(rank, _)| accounts.out_of(rank).0).sum()),
            longest_gap_s: seen.longest_gap_s.max(gap.as_secs_f64()),
            ..seen.clone()
        };
    }
}

impl Ordered {
    pub(super) fn new(what: What) -> Self {
        Self { what, at: Instant::now(), freed: false }
    }
}

impl Rank {
    /// It stands still from now on, or no longer.
    pub(super) fn stand(&mut self, still: bool) {
        if !still {
            self.still_for += self.still.take().map_or(Duration::ZERO, |since| since.elapsed());
        } else {
            self.still.get_or_insert_with(Instant::now);
        }
    }
}
