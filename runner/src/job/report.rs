//! Progress while the job runs, and the account at its end.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use super::{Job, KILLED_PATIENCE, OUTPUT_PATIENCE};
use crate::cli::Options;
use crate::display::{JobProgress, Snapshot};
use crate::exit::Ending;
use crate::stats::{RankStats, Stats, VERSION};

/// Measures the disk rate between two snapshots.
#[derive(Default)]
pub(super) struct Meter {
    last: Option<(Instant, u64)>,
}

impl Meter {
    fn rate(&mut self, moved: u64) -> f64 {
        let now = Instant::now();
        let rate = self.last.map_or(0.0, |(then, before)| {
            moved.saturating_sub(before) as f64 / now.duration_since(then).as_secs_f64().max(1e-3)
        });
        self.last = Some((now, moved));
        rate
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The account of a job that never came to run a rank.
pub(super) fn without_ranks(options: &Options, ending: &Ending, begin: Instant) -> Stats {
    Stats {
        version: VERSION,
        status: ending.status().into(),
        exit_code: ending.code(),
        np: options.np,
        wall_s: begin.elapsed().as_secs_f64(),
        resident_limit: options.resident_limit(),
        error: (!ending.is_success()).then(|| ending.to_string()),
        ..Stats::default()
    }
}

impl Job<'_> {
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let segment = self.setup.segment.clone();
        let header = segment.header();
        let counts = self.scheduler.counts();
        let mut moved = 0;
        let mut progress: Option<JobProgress> = None;
        for rank in 0..segment.np() {
            let block = segment.rank(rank);
            moved += block.written.load(SeqCst) + block.read.load(SeqCst);
            if let Some(report) = block.progress() {
                let sum = progress.get_or_insert_with(JobProgress::default);
                // Ranks may be in different parts of the work: the part that most recently began on the lowest rank
                // that has not finished it is shown.
                if sum.label != report.label && (sum.label.is_empty() || sum.done >= sum.total) {
                    *sum = JobProgress { label: report.label.clone(), done: 0, total: 0 };
                }
                if sum.label == report.label {
                    sum.done += report.done;
                    sum.total += report.total;
                }
            }
        }
        let budget = header.pool.budget();
        Snapshot {
            elapsed_s: self.begin.elapsed().as_secs_f64(),
            np: segment.np(),
            running: header.tokens.running(),
            resident: counts.resident,
            evicted: counts.evicted,
            done: counts.exited,
            held_bytes: (budget as i64 - header.pool.free()).max(0) as u64,
            budget_bytes: budget,
            disk_bytes_per_s: self.meter.rate(moved),
            progress,
        }
    }

    /// End everything that still runs and give account.
    pub(super) fn finish(self) -> (Stats, Ending) {
        let ending = self.ending.unwrap_or_else(|| Ending::Internal("the job ended for no reason".into()));
        let wall_s = self.begin.elapsed().as_secs_f64();
        let patience = if ending.is_success() { OUTPUT_PATIENCE } else { KILLED_PATIENCE };
        let farewell = self.supervisor.finish(patience);
        let segment = &self.setup.segment;
        let pool = &segment.header().pool;
        let (message_bytes, spilled_message_bytes) = pool.messages();
        let ranks: Vec<RankStats> = (0..segment.np())
            .map(|rank| {
                let block = segment.rank(rank);
                let record = &self.ranks[rank as usize];
                let status = record
                    .status
                    .clone()
                    .unwrap_or_else(|| if record.pid.is_some() { "stopped".into() } else { "unborn".into() });
                RankStats {
                    rank,
                    status,
                    peak_bytes: block.peak.load(SeqCst),
                    evicted_bytes: block.evicted.load(SeqCst),
                    restored_bytes: block.restored.load(SeqCst),
                    running_s: seconds(block.running_ns.load(SeqCst)),
                    waiting_s: seconds(block.waiting_ns.load(SeqCst)),
                    paging_s: seconds(block.paging_ns.load(SeqCst)),
                }
            })
            .collect();
        let sum = |of: fn(&RankStats) -> u64| ranks.iter().map(of).sum();
        let block_sum = |of: fn(&bdrun_ipc::segment::RankBlock) -> u64| {
            (0..segment.np()).map(|rank| of(segment.rank(rank))).sum()
        };
        let most_running = segment.header().tokens.most_running();
        let stats = Stats {
            version: VERSION,
            status: ending.status().into(),
            exit_code: ending.code(),
            np: segment.np(),
            wall_s,
            budget_bytes: pool.budget(),
            resident_limit: self.setup.limits.resident,
            demand_bytes: pool.demand_highest(),
            peak_resident_bytes: pool.resident_highest(),
            evicted_bytes: sum(|r| r.evicted_bytes),
            restored_bytes: sum(|r| r.restored_bytes),
            message_bytes,
            spilled_message_bytes,
            // Programs that know nothing of us compute as long as they live.
            max_running: if most_running == 0 { self.most_alive } else { most_running },
            max_resident: self.most_resident,
            ranks,
            error: (!ending.is_success()).then(|| ending.to_string()),
            overdraft_rank: self.scheduler.overdraft_rank(),
            scratch_written_bytes: block_sum(|b| b.written.load(SeqCst)),
            scratch_read_bytes: block_sum(|b| b.read.load(SeqCst)),
            evictions: block_sum(|b| u64::from(b.evictions.load(SeqCst))),
            chaos_evictions: self.chaos.evictions,
            cgroup_peak_bytes: farewell.cgroup.and_then(|c| c.peak),
        };
        (stats, ending)
    }
}
