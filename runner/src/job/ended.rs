//! What is kept of ranks that have ended: sums, and of each what the statistics tell. Of very many, and if
//! nobody has asked for more, only of those that are worth a look.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, UNIX_EPOCH};

use super::{Job, resume};
use crate::display;
use crate::journal;
use crate::launch::Given;
use crate::stats::{MemoryUse, ProcessStats, RankStats, Stats};

/// So many are kept before it is looked at which are worth it.
const MANY: usize = 512;

/// How many ended how.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    /// Before the job began, and well.
    pub earlier: u32,
    pub well: u32,
    pub failed: u32,
    pub stopped: u32,
    /// Never began.
    pub unborn: u32,
}

impl Tally {
    /// How many in all.
    pub fn sum(self) -> u32 {
        self.earlier + self.well + self.failed + self.stopped + self.unborn
    }

    pub fn add(&mut self, status: &str) {
        match status {
            super::resume::EARLIER => self.earlier += 1,
            "ok" => self.well += 1,
            "stopped" => self.stopped += 1,
            "unborn" => self.unborn += 1,
            _ => self.failed += 1,
        }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Of each rank something is kept.
    all: bool,
    ranks: Vec<RankStats>,
    /// The sums of those that were kept and are not any more.
    rest: RankStats,
    /// By the first of several nodes: how the last try of each rank of another ended. A node that is lost
    /// gives no account.
    tried: HashMap<u32, journal::Ended>,
    pub tally: Tally,
    /// What was set aside for them and what they held.
    pub user: MemoryUse,
    /// Bytes written to scratch for them, and read.
    pub written: u64,
    pub read: u64,
    /// The processor time they used.
    pub cpu_s: f64,
    /// For so long those lived that began and ended, in all, seconds.
    pub lived_s: f64,
    /// How many of those there were.
    pub lives: u32,
}

/// Adds what one held, and what was set aside for it, which lived for so many seconds.
pub(super) fn add_use(user: &mut MemoryUse, rank: &RankStats, lived: f64) {
    user.memory_reserve += rank.reserve_bytes;
    user.max_memory += rank.peak_bytes;
    user.cumulative_memory_reserve += rank.reserve_bytes as f64 * lived;
    user.cumulative_max_memory += rank.peak_bytes as f64 * lived;
}

/// How long a rank lived, seconds.
pub(super) fn lived(rank: &RankStats) -> f64 {
    rank.process.map_or(rank.running_s + rank.waiting_s, |process| process.end - process.start)
}

impl Ended {
    /// Nobody yet. `all`: something is to be kept of each.
    pub fn new(all: bool) -> Self {
        Self { all, ..Self::default() }
    }

    /// A rank has ended for good, for which so many bytes were written to scratch, and read.
    pub fn add(&mut self, rank: RankStats, [written, read]: [u64; 2]) {
        self.tally.add(&rank.status);
        add_use(&mut self.user, &rank, lived(&rank));
        self.written = self.written.saturating_add(written);
        self.read = self.read.saturating_add(read);
        self.cpu_s += rank.measured.as_ref().map_or(0.0, |measured| measured.cpu_s);
        if rank.process.is_some() {
            self.lived_s += lived(&rank);
            self.lives += 1;
        }
        self.ranks.push(rank);
        if !self.all && self.ranks.len() > MANY {
            for left_out in display::keep_notable(&mut self.ranks) {
                self.rest.add(&left_out);
            }
        }
    }

    /// A try of a rank has ended at another node.
    pub fn tried(&mut self, rank: u32, ended: journal::Ended) {
        if self.all {
            self.tried.insert(rank, ended);
        }
    }

    /// Of a rank that was dealt out, and of which no account came: the same with what was heard of it, if
    /// anything was. `limit`: that of `--rank-timeout`.
    fn as_heard(&self, stats: RankStats, limit: Option<Duration>) -> RankStats {
        let Some(&journal::Ended { exit, signal, stopped, began, lived, peak, .. }) =
            self.tried.get(&stats.rank)
        else {
            return stats;
        };
        let status = match (exit, signal) {
            _ if stopped && limit.is_some_and(|limit| lived > limit) => "timeout".into(),
            _ if stopped => "stopped".into(),
            (0, 0) => "ok".into(),
            (exit, 0) => format!("exit {exit}"),
            (_, signal) => format!("signal {signal}"),
        };
        let start = began.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let process = ProcessStats { start, end: start + lived.as_secs_f64(), exit_code: exit, signal };
        // Whether it was looked at often enough is not known.
        RankStats { status, peak_bytes: peak, process: Some(process), hardly_seen: true, ..stats }
    }

    /// What is kept of a rank.
    pub fn get(&self, rank: u32) -> Option<&RankStats> {
        self.ranks.iter().find(|stats| stats.rank == rank)
    }

    /// All that is kept, and the sums of what is not.
    pub fn take(&mut self) -> (Vec<RankStats>, RankStats) {
        (std::mem::take(&mut self.ranks), std::mem::take(&mut self.rest))
    }
}

impl Job<'_> {
    /// What the statistics tell of a rank.
    pub(super) fn stats_of(&self, rank: u32) -> RankStats {
        let seconds = |nanoseconds: &AtomicU64| nanoseconds.load(SeqCst) as f64 / 1e9;
        let block = self.setup.segment.rank(rank);
        let record = &self.ranks[rank as usize];
        let launch = &self.setup.launch;
        let words = |given: Given| {
            let words = std::iter::once(given.program).chain(given.args);
            words.map(|word| word.to_string_lossy().into_owned()).collect()
        };
        // Only what is written at the end says that.
        let told = self.options.wants_all_ranks();
        RankStats {
            rank,
            status: resume::status(record).into(),
            part: launch.part(rank).filter(|_| told),
            argv: if told && self.setup.alone { words(launch.given(rank)) } else { Vec::new() },
            process: record.process.filter(|_| self.setup.alone),
            size: launch.declared(rank),
            reserve_bytes: record.reserve,
            hardly_seen: record.hardly_seen,
            peak_bytes: record.peak(block),
            evicted_bytes: block.evicted.load(SeqCst),
            restored_bytes: block.restored.load(SeqCst),
            running_s: seconds(&block.running_ns),
            waiting_s: seconds(&block.waiting_ns),
            paging_s: seconds(&block.paging_ns),
            evictions: block.evictions.load(SeqCst).into(),
            measured: self.watch.account(rank, record),
        }
    }

    /// A rank is over, whatever became of it: what is kept of it is what the statistics tell. Those that may
    /// have talked to others keep what others may still ask for.
    pub(super) fn retire(&mut self, rank: u32) {
        if let Some(seconds) = self.setup.known.seconds(rank) {
            self.known_left = (self.known_left.0 - seconds, self.known_left.1 - 1);
        }
        if !self.setup.independent || !self.is_stranger(rank) {
            return;
        }
        let block = self.setup.segment.rank(rank);
        let moved = [block.written.load(SeqCst), block.read.load(SeqCst)];
        self.ended.add(self.stats_of(rank), moved);
        self.ranks.remove(rank);
        self.watch.accounts.forget(rank);
        self.setup.segment.leave(rank);
        if !self.np_is_known {
            self.piped.forget(rank);
            self.setup.launch.forget(rank);
        }
    }

    /// Bytes written to scratch for all ranks, and read.
    pub(super) fn moved_bytes(&self) -> [u64; 2] {
        let mut moved = [self.ended.written, self.ended.read];
        for (rank, _) in self.ranks.iter() {
            let block = self.setup.segment.rank(rank);
            for (sum, bytes) in moved.iter_mut().zip([&block.written, &block.read]) {
                // Written by ranks: whatever it is, the report is made.
                *sum = sum.saturating_add(bytes.load(SeqCst));
            }
        }
        moved
    }

    /// Of ranks that were dealt out, those whom no node has begun, and those of nodes that are lost: each is
    /// in the statistics where all are.
    pub(super) fn add_who_never_began(&self, stats: &mut Stats) {
        stats.ranks.dedup_by_key(|rank| rank.rank);
        if !self.ended.all {
            return;
        }
        let mut told = std::mem::take(&mut stats.ranks).into_iter().peekable();
        let missing = |rank| self.ended.as_heard(self.stats_of(rank), self.options.launch.rank_timeout);
        let one = |rank| told.next_if(|stats| stats.rank == rank).unwrap_or_else(|| missing(rank));
        stats.ranks = (0..self.np()).map(one).collect();
    }

    /// What the statistics tell of all ranks of which something is kept, in order, and the sums of the
    /// others.
    pub(super) fn all_stats(&mut self) -> (Vec<RankStats>, RankStats) {
        let living: Vec<RankStats> = self.ranks.iter().map(|(rank, _)| self.stats_of(rank)).collect();
        let (mut ranks, rest) = self.ended.take();
        ranks.extend(living);
        ranks.sort_unstable_by_key(|stats| stats.rank);
        if self.ended.all && !self.setup.deals {
            let mut next = ranks.into_iter().peekable();
            let one = |rank| next.next_if(|stats| stats.rank == rank).unwrap_or_else(|| self.stats_of(rank));
            let all = if self.setup.segment.is_spread() { self.setup.segment.here() } else { 0..self.np() };
            ranks = all.map(one).collect();
        }
        (ranks, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of ranks that have ended at a node that is lost what it had told of them stands in the statistics.
    #[test]
    fn what_was_heard_of_a_rank_stands_for_its_account() {
        let mut ended = Ended::new(true);
        let (began, lived) = (UNIX_EPOCH + Duration::from_secs(100), Duration::from_secs(3));
        let how = |exit, signal, stopped| {
            let (peak, file) = (7 << 20, None);
            journal::Ended { exit, signal, stopped, began, lived, peak, file }
        };
        let unborn =
            |rank| RankStats { rank, status: "unborn".into(), size: Some(5), ..RankStats::default() };
        // The second is run again.
        let tries =
            [(1, how(0, 0, false)), (2, how(4, 0, false)), (2, how(0, 0, false)), (3, how(4, 0, false))];
        tries.into_iter().for_each(|(rank, tried)| ended.tried(rank, tried));
        ended.tried(4, how(0, 9, false));
        ended.tried(5, how(0, 0, true));
        let limit = Duration::from_secs(2);
        let status = |rank, limit| ended.as_heard(unborn(rank), limit).status;
        let all: Vec<String> = (0..6).map(|rank| status(rank, None)).collect();
        assert_eq!(all, ["unborn", "ok", "ok", "exit 4", "signal 9", "stopped"]);
        assert_eq!(status(5, Some(limit)), "timeout");
        let heard = ended.as_heard(unborn(1), Some(limit));
        let process = ProcessStats { start: 100.0, end: 103.0, exit_code: 0, signal: 0 };
        assert_eq!((heard.process, heard.peak_bytes, heard.size), (Some(process), 7 << 20, Some(5)));
        assert_eq!(ended.as_heard(unborn(0), None), unborn(0));
    }

    #[test]
    fn of_very_many_those_worth_a_look_are_kept_and_all_are_summed() {
        let mut ended = Ended::new(false);
        for rank in 0..10_000_u32 {
            let status = if rank == 4321 { "exit 3" } else { "ok" };
            let peak_bytes = if rank == 777 { 1 << 30 } else { u64::from(rank % 1000) };
            let stats = RankStats {
                rank,
                status: status.into(),
                peak_bytes,
                running_s: 1.0,
                evicted_bytes: 2,
                reserve_bytes: 3,
                ..RankStats::default()
            };
            ended.add(stats, [5, 7]);
        }
        assert_eq!((ended.tally.well, ended.tally.failed), (9999, 1));
        assert_eq!((ended.written, ended.read, ended.user.memory_reserve), (50_000, 70_000, 30_000));
        assert!(ended.get(777).is_some() && ended.get(4321).is_some());
        let (kept, rest) = ended.take();
        assert!(kept.len() <= MANY, "{}", kept.len());
        let seconds = rest.running_s + kept.iter().map(|rank| rank.running_s).sum::<f64>();
        assert!((seconds - 10_000.0).abs() < 1e-6);
        assert_eq!(rest.evicted_bytes + 2 * kept.len() as u64, 20_000);
    }
}
