//! What earlier runs say of this job, and what this one adds to it: the job's side of [`crate::learn`].

use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;

use super::{Job, ended};
use crate::budget;
use crate::cli::Options;
use crate::display::JobProgress;
use crate::exit::Ending;
use crate::launch::Launch;
use crate::learn::{Known, Learned};
use crate::measure::own_max_rss;
use crate::stats::{MemoryUse, Stats};
use crate::whole::{self, Unwritten};

/// The file that was asked for, or that lies beside the journal.
fn path(options: &Options) -> Option<PathBuf> {
    let beside = || {
        let mut name = options.journal.path()?.0.as_os_str().to_owned();
        name.push(".learned");
        Some(name.into())
    };
    options.learn.learn.clone().or_else(beside)
}

/// Whether what the job will have shown can be written down at its end.
pub(super) fn check(options: &Options) -> Result<(), Ending> {
    path(options).map_or(Ok(()), |path| whole::check(&path)).map_err(unwritten)
}

fn unwritten(error: Unwritten) -> Ending {
    Ending::Setup(format!("--learn: {error}"))
}

/// What is known of a job before it begins.
pub(super) fn known(options: &Options, launch: &Launch) -> Result<Known, Ending> {
    let expect = options.learn.expect();
    let mut known = match path(options) {
        Some(path) => Learned::read(&path)?.of(launch, expect),
        None => Known::nothing(expect),
    };
    // Output in the order of the ranks is held back until it is its rank's turn.
    known.informed.largest_first = !options.launch.keep_order;
    Ok(known)
}

impl Job<'_> {
    /// What ranks asked for, and what bdrun's own share of the memory is: byte-seconds over the ranks' lives.
    pub(super) fn memory_uses(&self) -> (MemoryUse, MemoryUse) {
        let mut user = MemoryUse { memory_limit: self.options.rank_memory, ..self.ended.user };
        for (rank, _) in self.ranks.iter() {
            let rank = self.stats_of(rank);
            ended::add_use(&mut user, &rank, ended::lived(&rank));
        }
        let estimated = budget::fixed(self.most_alive, 1.0);
        let reserved = budget::fixed(self.most_alive, self.setup.known.overhead);
        let besides = self.ranks.iter().map(|(_, record)| record.most_besides).fold(0, u64::saturating_add);
        let used = own_max_rss().saturating_add(besides);
        let of_all = self.begin.elapsed().as_secs_f64();
        let proxy = MemoryUse {
            memory_reserve: reserved,
            max_memory: used,
            memory_limit: None,
            estimated_memory: Some(estimated),
            cumulative_memory_reserve: reserved as f64 * of_all,
            cumulative_max_memory: used as f64 * of_all,
            cumulative_estimated_memory: Some(estimated as f64 * of_all),
        };
        (user, proxy)
    }

    /// Writes down what the job has shown.
    pub(super) fn learn(&self, stats: &Stats) -> Result<(), Ending> {
        let Some(path) = path(self.options) else { return Ok(()) };
        // Somebody else may have written meanwhile.
        let mut learned = Learned::read(&path)?;
        let overhead = stats.job_proxy.and_then(|proxy| {
            let estimated = proxy.estimated_memory.filter(|&bytes| bytes > 0)?;
            Some(proxy.max_memory as f64 / estimated as f64)
        });
        learned.add(&self.setup.launch, stats, overhead);
        learned.write(&path).map_err(unwritten)
    }

    /// How far a job of independent ranks is: by the time that each is known to take, or else as
    /// if all took the same. In milliseconds of work.
    pub(super) fn ranks_done(&self) -> Option<JobProgress> {
        if !self.setup.alone || self.np() < 2 || self.coming.is_some() {
            return None;
        }
        if self.setup.deals {
            let (done, total) = (u64::from(self.parts_over()), u64::from(self.np()));
            return Some(JobProgress { label: "parts".into(), done, total });
        }
        // Of those that have ended, how long they took in all, and how many they are, those included that had
        // before this job began.
        let (mut done, mut lives, mut over) = (self.ended.lived_s, self.ended.lives, self.ended.tally.sum());
        for (_, record) in self.ranks.iter().filter(|(_, record)| record.status.is_some()) {
            over += 1;
            if let Some(process) = record.process {
                (done, lives) = (done + process.end - process.start, lives + 1);
            }
        }
        let (known, count) = self.known_left;
        let mean = match lives + count {
            0 => 1.0,
            all => ((done + known) / f64::from(all)).max(1e-3),
        };
        let left = self.np().saturating_sub(over + count);
        let total = done + known + mean * f64::from(left);
        for (rank, record) in self.ranks.iter() {
            if let Some(born) = record.born.filter(|_| record.status.is_none()) {
                let takes = self.setup.known.seconds(rank).unwrap_or(mean);
                done += born.elapsed().as_secs_f64().min(takes);
            }
        }
        let millis = |seconds: f64| (seconds * 1e3) as u64;
        let label = if self.setup.launch.part(0).is_some() { "parts" } else { "ranks" };
        Some(JobProgress { label: label.into(), done: millis(done), total: millis(total).max(1) })
    }

    /// What of its memory besides what it asked for a rank was seen to hold.
    pub(super) fn note_besides(&mut self, rank: u32, bytes: u64) {
        if self.setup.segment.rank(rank).attached.load(SeqCst) != 0 {
            let record = &mut self.ranks[rank as usize];
            record.most_besides = record.most_besides.max(bytes);
        }
    }
}
