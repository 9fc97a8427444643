//! Progress while the job runs, and the account at its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Instant, SystemTime};

use bdrun_ipc::segment::Progress;

use super::{Elsewhere, Job, KILLED_PATIENCE, output};
use crate::cli::{Memory, Options};
use crate::display::{JobProgress, Snapshot};
use crate::exit::Ending;
use crate::history::History;
use crate::stats::{Stats, VERSION};

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

/// So many parts of the work are kept that nobody is in: who is behind may still come to them. A program may
/// call each of its steps a part of its own.
const LEFT: usize = 64;

/// What the ranks have said of their work, part by part.
#[derive(Default)]
pub(super) struct Work {
    /// In the order in which they began.
    parts: BTreeMap<u64, Part>,
    /// By their labels.
    numbers: HashMap<String, u64>,
    begun: u64,
    /// The part that each rank is in.
    present: BTreeMap<u32, u64>,
    /// Those that nobody is in.
    left: BTreeSet<u64>,
}

/// A part of the work, such as `merge`.
struct Part {
    label: String,
    /// How many are in it.
    present: u32,
    /// Done and total of the ranks that have begun it.
    ranks: BTreeMap<u32, (u64, u64)>,
}

impl Work {
    fn report(&mut self, rank: u32, report: Progress) {
        let number = self.number(report.label);
        let before = self.present.insert(rank, number);
        if before != Some(number) {
            self.leave(rank, before);
        }
        if let Some(part) = self.parts.get_mut(&number) {
            part.present += u32::from(before != Some(number));
            part.ranks.insert(rank, (report.done, report.total));
        }
        self.left.remove(&number);
        while self.left.len() > LEFT {
            let first = self.left.pop_first().and_then(|first| self.parts.remove(&first));
            first.and_then(|first| self.numbers.remove(&first.label));
        }
    }

    /// A rank has gone on: it has done all of the part before, also if its last report of it was overtaken.
    fn leave(&mut self, rank: u32, before: Option<u64>) {
        let Some((number, part)) = before.and_then(|number| Some((number, self.parts.get_mut(&number)?)))
        else {
            return;
        };
        if let Some(record) = part.ranks.get_mut(&rank) {
            record.0 = record.1;
        }
        part.present -= 1;
        if part.present == 0 {
            self.left.insert(number);
        }
    }

    /// That of the part with this label, which may be a new one.
    fn number(&mut self, label: String) -> u64 {
        if let Some(&number) = self.numbers.get(&label) {
            return number;
        }
        let number = self.begun;
        self.begun += 1;
        self.numbers.insert(label.clone(), number);
        self.parts.insert(number, Part { label, present: 0, ranks: BTreeMap::new() });
        number
    }

    /// The part that most ranks are in, summed over all: those that have not begun it will have as much to do
    /// as the others.
    fn summed(&self, np: u32) -> Option<JobProgress> {
        let part = self.parts.values().max_by_key(|part| part.present)?;
        let (done, total) = part.ranks.values().fold((0, 0), |sum, r| (sum.0 + r.0.min(r.1), sum.1 + r.1));
        let total = (u128::from(total) * u128::from(np) / part.ranks.len().max(1) as u128) as u64;
        Some(JobProgress { label: part.label.clone(), done, total })
    }
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

/// What is left of a job.
pub(super) struct Finished {
    pub stats: Stats,
    pub ending: Ending,
    /// How long the end may wait for whoever reads.
    pub until: Option<Instant>,
    pub history: Option<History>,
    /// It is the only node, or the first: it tells what all have done.
    pub is_first: bool,
    /// Those that are to be left once that was told.
    pub elsewhere: Option<Elsewhere>,
}

impl Job<'_> {
    /// How many ranks are in RAM. One that waits for its time to begin (`--delay`) has its place there for
    /// the core, and no process.
    pub(super) fn resident(&self) -> u32 {
        self.core.counts().resident.saturating_sub(self.delayed.len() as u32)
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        let segment = self.setup.segment.clone();
        let header = segment.header();
        let counts = self.core.counts();
        let mut reports = Vec::new();
        for (rank, _) in self.ranks.iter().filter(|_| !segment.is_wide()) {
            reports.extend(segment.rank(rank).progress().map(|report| (rank, report)));
        }
        reports.into_iter().for_each(|(rank, report)| self.work.report(rank, report));
        let [written, read] = self.moved_bytes();
        let moved = written.saturating_add(read);
        let budget = header.pool.budget();
        let outside = self.watch.running(&self.ranks);
        Snapshot {
            elapsed_s: self.begin.elapsed().as_secs_f64(),
            np: self.np(),
            running: header.tokens.running() + outside,
            resident: self.resident(),
            evicted: counts.out,
            done: if self.setup.deals { self.parts_over() } else { self.over_here(counts.exited) },
            held_bytes: (budget as i64 - header.pool.free()).max(0) as u64,
            budget_bytes: budget,
            disk_bytes_per_s: self.meter.rate(moved),
            progress: self.work.summed(self.np()).or_else(|| self.ranks_done()),
            failed: self.failures,
        }
    }

    /// End everything that still runs and give account; also until when what bdrun itself says may wait to be
    /// read, and what happened when.
    pub(super) fn finish(mut self) -> Finished {
        // Those that are held die with the threads that hold them, at the latest.
        let _held: Vec<_> = self.ranks.iter_mut().map(|record| record.holder.take()).collect();
        let wall_s = self.begin.elapsed().as_secs_f64();
        if self.ending.as_ref().is_some_and(Ending::is_success) {
            let left = self.who_left().into_iter().chain(self.never_received());
            left.for_each(|left| self.note(&left));
        }
        self.supervisor.stop(KILLED_PATIENCE);
        if let Err(error) = self.await_journal() {
            let mut ending = self.ending.take().unwrap_or(Ending::Success);
            output::but_for(&mut ending, Ending::Setup(error), |text| self.note(text));
            self.ending = Some(ending);
        }
        self.say_what_is_left();
        let until = self.await_output();
        let farewell = self.supervisor.finish(KILLED_PATIENCE);
        for (rank, pid) in &farewell.stuck {
            self.note(&format!(
                "rank {rank} was killed and has not ended: its process {pid} hangs in the system (an uninterruptible sleep), or somebody traces it"
            ));
        }
        let ending =
            self.ending.take().unwrap_or_else(|| Ending::Internal("the job ended for no reason".into()));
        let segment = &self.setup.segment;
        let pool = &segment.header().pool;
        let (message_bytes, spilled_message_bytes) = pool.messages();
        let message_bytes = message_bytes.saturating_add(bdrun_ipc::lane::bytes(segment));
        let most_running = segment.header().tokens.most_running();
        let (budget_bytes, demand_bytes) = (pool.budget(), pool.demand_highest());
        let peak_resident_bytes = pool.resident_highest();
        let [scratch_written_bytes, scratch_read_bytes] = self.moved_bytes();
        let cpu_s = self.ended.cpu_s;
        let (user_job, job_proxy) = self.memory_uses();
        let (ranks, rest) = self.all_stats();
        let mut sum = rest.clone();
        ranks.iter().for_each(|rank| sum.add(rank));
        let mut stats = Stats {
            version: VERSION,
            status: ending.status().into(),
            exit_code: ending.code(),
            np: self.np(),
            wall_s,
            budget_bytes,
            resident_limit: self.setup.limits.resident,
            demand_bytes,
            peak_resident_bytes,
            evicted_bytes: sum.evicted_bytes,
            restored_bytes: sum.restored_bytes,
            message_bytes,
            spilled_message_bytes,
            // Programs that know nothing of us compute as long as they live.
            max_running: if most_running == 0 { self.most_alive } else { most_running },
            max_resident: self.most_resident,
            ranks,
            rest,
            error: (!ending.is_success()).then(|| ending.to_string()),
            overdraft_rank: self.core.overdraft_rank(),
            scratch_written_bytes,
            scratch_read_bytes,
            evictions: sum.evictions,
            chaos_evictions: self.chaos.evictions,
            cgroup_peak_bytes: farewell.cgroup.and_then(|c| c.peak),
            user_job: Some(user_job),
            job_proxy: Some(job_proxy),
            available_bytes: self.setup.available,
            budget_named: matches!(self.options.memory, Some(Memory::Bytes(_))),
            budget_most_bytes: 0,
            measured: self.setup.independent.then(|| self.watch.job_account(&self.ranks, cpu_s)),
        };
        stats.set_most_budget(self.follow.as_ref().map_or(0, |follow| follow.most));
        let is_first = self.elsewhere.as_ref().is_none_or(Elsewhere::is_first);
        let mut ending = ending;
        let mut elsewhere = self.elsewhere.take();
        if let Some(elsewhere) = &mut elsewhere {
            let began = SystemTime::now() - self.begin.elapsed();
            ending = elsewhere.leave(&mut stats, began, &mut self.history, ending, &self.letters);
        }
        if is_first && self.setup.deals {
            self.add_who_never_began(&mut stats);
        }
        // All that the others have told is in it now.
        if is_first
            && let Err(unwritten) = self.learn(&stats)
            && output::but_for(&mut ending, unwritten, |text| self.note(text))
        {
            stats.ended_by(&ending);
        }
        Finished { stats, ending, until, history: self.history.take(), is_first, elsewhere }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(label: &str, done: u64, total: u64) -> Progress {
        Progress { label: label.into(), done, total }
    }

    #[test]
    fn the_part_that_most_ranks_are_in_is_shown_for_all() {
        let mut work = Work::default();
        assert_eq!(work.summed(4), None);
        work.report(0, report("read", 5, 10));
        let read = |done, total| Some(JobProgress { label: "read".into(), done, total });
        // Three ranks have not said anything yet.
        assert_eq!(work.summed(4), read(5, 40));
        (1..4).for_each(|rank| work.report(rank, report("read", 10, 10)));
        work.report(0, report("merge", 1, 2));
        // Rank 0 has gone on, so it has read all.
        assert_eq!(work.summed(4), read(40, 40));
        (1..3).for_each(|rank| work.report(rank, report("merge", 2, 2)));
        assert_eq!(work.summed(4), Some(JobProgress { label: "merge".into(), done: 5, total: 8 }));
    }

    /// Each step is a part of its own: what nobody is in is forgotten, and what somebody is in is not.
    #[test]
    fn a_label_for_each_step_is_not_kept_for_ever() {
        let mut work = Work::default();
        work.report(9, report("read", 5, 10));
        for step in 0..10_000 {
            (0..3).for_each(|rank| work.report(rank, report(&format!("step {step}"), 1, 2)));
        }
        assert!(work.parts.len() <= LEFT + 2, "{}", work.parts.len());
        assert_eq!((work.numbers.len(), work.left.len()), (work.parts.len(), LEFT));
        let last = JobProgress { label: "step 9999".into(), done: 3, total: 8 };
        assert_eq!(work.summed(4), Some(last));
        (0..3).for_each(|rank| work.report(rank, report("read", 2, 10)));
        assert_eq!(work.summed(4), Some(JobProgress { label: "read".into(), done: 11, total: 40 }));
        // One that goes back to an earlier part is in it.
        work.report(9, report("step 9999", 2, 2));
        work.report(9, report("read", 10, 10));
        let present: Vec<u32> = work.parts.values().map(|part| part.present).filter(|&n| n > 0).collect();
        assert_eq!(present, [4]);
    }
}
