//! What the master keeps of all ranks together that it measures, and pages from outside.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bdrun_ipc::pool::bytes_in;
use bdrun_ipc::state::State;

use crate::cli::Options;
use crate::exit::Ending;
use crate::launch::Launch;
use crate::measure::{Idle, Permits, Sample, Sampler, Tells, Told};
use crate::post::Post;
use crate::residency::Can;
use crate::stats::{JobMeasured, RankMeasured};
use crate::supervisor::Supervisor;

use super::SharedOutput;
use super::accounts::Accounts;
use super::listen::Message;
use super::record::{Record, Records};
use super::setup::Setup;
use super::shrink::Partial;

/// What the time from an order until the first memory is free is taken for before it was measured once.
pub(super) const REACTION: Duration = Duration::from_millis(20);
/// From one look at memory to the next, before the core says.
const FIRST_LOOK: Duration = Duration::from_millis(5);

/// What a rank of our runtime holds besides what it asked for, bytes: of that no account is kept.
const RUNTIME: u64 = 512 << 10;

/// Up to so many bytes more are not counted: what its runtime needs while it works.
pub(super) const OWN: u64 = 2 << 20;

/// Who looks at ranks, and what was seen.
pub(super) struct Watch {
    pub sampler: Sampler,
    pub permits: Permits,
    pub accounts: Accounts,
    pub reaction: Duration,
    pub idle: Idle,
    /// It was said that ranks come in by turns.
    pub told_turns: bool,
    /// What was seen of all of them together.
    pub seen: JobMeasured,
    /// When a look was last told.
    looked: Option<Instant>,
    pub post: Post<Message>,
}

/// Independent ranks, for the core: what can be done with each, and its size.
pub(super) fn independent(options: &Options, launch: &Launch, can: Can) -> Vec<(Can, Option<u64>)> {
    // Output in the order of the ranks is held back until it is its rank's turn, so they had better run in
    // that order.
    let declared = |rank| launch.declared(rank).filter(|_| !options.launch.keep_order);
    (0..options.np).map(|rank| (can, declared(rank))).collect()
}

impl Watch {
    /// Of a job of independent ranks. It becomes a co-operative one where ranks cannot be paged from outside
    /// and a library can be put in front of the program. Of that only what its ranks do not ask for is
    /// measured; none if that cannot be.
    pub fn start(
        options: &Options,
        setup: &mut Setup,
        supervisor: &Supervisor,
        post: &Post<Message>,
        output: &SharedOutput,
    ) -> Result<Self, Ending> {
        let permits = supervisor.permits();
        if let Some(why) = permits.ptrace.as_ref().err().filter(|_| setup.independent) {
            let note = |text: &str| super::lock(output).note(text);
            if let Some(library) = setup.fallback.take() {
                note(&format!("ranks cannot be paged from outside: {why}; using --preload"));
                (setup.preload, setup.independent) = (Some(library), false);
                setup.provide_files(options)?;
            } else {
                note(&format!("ranks cannot be paged out here, only held ({}): {why}", permits.freezer));
            }
        }
        let paging_refused = permits.ptrace.as_ref().err().cloned();
        let config = sbmalloc::Config { scratch_dirs: setup.scratch_dirs.clone(), ..Default::default() };
        sbmalloc::configure(config).map_err(|error| Ending::Setup(error.to_string()))?;
        let segment = setup.segment.clone();
        let tells: Tells = Box::new(move |rank| {
            let block = segment.rank(rank);
            let waits = matches!(block.word.load().state(), State::Blocked | State::Evicted);
            let moved = block.evicted.load(SeqCst).wrapping_add(block.restored.load(SeqCst));
            let waits = waits.then(|| block.waits.load(SeqCst));
            Told { asked: bytes_in(&block.granted), waits, moved }
        });
        let sampler = Sampler::start(FIRST_LOOK, tells, setup.spare.clone(), post.clone())
            .map_err(|error| Ending::Setup(format!("memory cannot be measured: {error}")))?;
        Ok(Self {
            sampler,
            permits,
            accounts: Accounts::new(setup.limits.first_reserve, !setup.independent),
            reaction: REACTION,
            idle: Idle::new(),
            told_turns: false,
            seen: JobMeasured { paging_refused, ..JobMeasured::default() },
            looked: None,
            post: post.clone(),
        })
    }

    /// What can be done with each rank at first, and its declared size.
    pub fn begin(&self, options: &Options, setup: &Setup) -> Vec<(Can, Option<u64>)> {
        if !setup.independent {
            return vec![(self.native(false), None); options.np as usize];
        }
        independent(options, &setup.launch, self.stranger(options))
    }

    /// What can be done with a rank that knows nothing of bdrun.
    pub fn stranger(&self, options: &Options) -> Can {
        let pages = self.permits.ptrace.is_ok();
        Can { evict: pages, shrink: pages, rerun: options.launch.rerun, ..Can::PROGRAM }
    }

    /// What can be done with a rank of our own runtime. Before it has attached it does not tell when it
    /// waits.
    pub fn native(&self, attached: bool) -> Can {
        let moves = self.permits.ptrace.is_ok();
        Can { evict: attached, whole: moves, preempt: moves, ..Can::NATIVE }
    }

    /// Bytes of a rank that asks, that it did not ask for, as a look saw it. Few are what its runtime needs
    /// while it works.
    pub fn besides(sample: &Sample) -> u64 {
        let besides = sample.not_asked_for(RUNTIME);
        if besides < OWN { 0 } else { besides }
    }

    /// How many ranks run that are paged from outside, as far as is known.
    pub fn running(&self, ranks: &Records) -> u32 {
        let runs = |(rank, record): &(u32, &Record)| {
            record.group.is_some() && record.still.is_none() && !self.accounts.is_adopted(*rank)
        };
        u32::try_from(ranks.iter().filter(runs).count()).unwrap_or(u32::MAX)
    }

    /// What was measured of a rank; none of one that joined the co-operative runtime, which measures itself.
    pub fn account(&self, rank: u32, record: &Record) -> Option<RankMeasured> {
        let Record { last, still_for, spent, switches, partial, .. } = record;
        let (parts_faults, parts_s) = partial.as_ref().map_or((0, 0.0), Partial::account);
        (!self.accounts.is_adopted(rank)).then(|| RankMeasured {
            private_bytes: last.peak_private,
            shared_bytes: last.peak_shared,
            unmanaged_bytes: last.peak_unmanaged,
            out_bytes: self.accounts.out_of(rank).1,
            processes: last.peak_processes,
            cpu_s: (*spent + last.cpu).as_secs_f64(),
            switches: *switches,
            held_s: still_for.as_secs_f64(),
            parts_s,
            parts_faults,
        })
    }

    /// The same of all together: those that are left, and the processor time of those that have ended.
    pub fn job_account(&self, ranks: &Records, ended: f64) -> JobMeasured {
        let cpu_s = ranks.iter().map(|(_, rank)| (rank.spent + rank.last.cpu).as_secs_f64()).sum::<f64>();
        JobMeasured { cpu_s: cpu_s + ended, ..self.seen.clone() }
    }

    /// A rank has ended: if that was long after the last look, it was not looked at for so long.
    pub fn note_gap(&mut self) {
        let gap = self.looked.map_or(Duration::ZERO, |looked| looked.elapsed());
        self.seen.longest_gap_s = self.seen.longest_gap_s.max(gap.as_secs_f64());
    }

    /// After a look: the highest sums so far.
    pub fn note_peaks(&mut self, ranks: &Records, gap: Duration) {
        self.looked = Some(Instant::now());
        let accounts = &self.accounts;
        let living =
            || ranks.iter().filter(|(rank, record)| record.group.is_some() && !accounts.is_adopted(*rank));
        let sum = |of: &dyn Fn(&Record) -> u64| living().map(|(_, record)| of(record)).sum::<u64>();
        let seen = &self.seen;
        self.seen = JobMeasured {
            measured_peak_bytes: seen.measured_peak_bytes.max(accounts.held()),
            private_bytes: seen.private_bytes.max(sum(&|rank| rank.last.private)),
            shared_bytes: seen.shared_bytes.max(sum(&|rank| rank.last.shared)),
            unmanaged_bytes: seen.unmanaged_bytes.max(sum(&|rank| rank.last.unmanaged())),
            out_bytes: seen.out_bytes.max(living().map(|(rank, _)| accounts.out_of(rank).0).sum()),
            longest_gap_s: seen.longest_gap_s.max(gap.as_secs_f64()),
            ..seen.clone()
        };
    }
}
