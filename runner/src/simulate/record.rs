//! What `--trace` keeps of a job for the simulator, and how it is read back.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::rates::Rates;
use crate::history::{History, Leg, Span};
use crate::residency::{Activity, Can, Limits, Rank};
use crate::stats::{RankStats, Stats};

/// Under which it stands in the file of a trace.
pub const KEY: &str = "bdrun_record";

/// Of what is written.
const VERSION: u32 = 1;

/// A job that was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Of the format.
    pub version: u32,
    /// The command line.
    pub line: String,
    /// How it ended, as in the statistics.
    pub status: String,
    /// Seconds from its begin to its end.
    pub wall_s: f64,
    /// Of them, those before the first rank was begun and after the last had ended.
    pub around_s: f64,
    /// What it might use, at the beginning.
    pub limits: Limits,
    /// The least and the most of the budget, if that did not stay what it was (`--memory auto`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budgets: Option<[u64; 2]>,
    /// Bytes of memory that left RAM and came back; bytes written to and read from scratch.
    pub evicted: u64,
    /// See `evicted`.
    pub restored: u64,
    /// See `evicted`.
    pub written: u64,
    /// See `evicted`.
    pub read: u64,
    /// How fast memory left and came.
    pub rates: Rates,
    /// The most ranks in RAM.
    pub max_resident: u32,
    /// Seconds that ranks computed, all together.
    pub running_s: f64,
    /// All of them.
    pub ranks: Vec<RankRecord>,
}

/// A rank of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RankRecord {
    /// What could be done with it.
    pub can: Can,
    /// When it was ordered to begin, was there, and had ended: seconds since the job began. All 0: it never
    /// was.
    pub ordered: f64,
    /// See `ordered`.
    pub begun: f64,
    /// See `ordered`.
    pub ended: f64,
    /// Seconds it computed, by the master's account, and of a processor.
    pub ran_s: f64,
    /// See `ran_s`; none if that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// Times it gave its processor up by itself, and times that was taken away; none if that was not
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<[u64; 2]>,
    /// The most it held, bytes; what left RAM of it, and what was written of that.
    pub peak: u64,
    /// See `peak`.
    pub evicted: u64,
    /// See `peak`.
    pub written: u64,
    /// What was declared of its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// What it did, wait by wait, if it told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legs: Vec<Leg>,
    /// What it held that it did not ask for: when it had computed so many seconds, so many bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<(f64, u64)>,
}

impl Record {
    /// That of a job; none if it never came so far.
    #[must_use]
    pub fn of(line: &str, stats: &Stats, history: &History) -> Option<Self> {
        let &(limits, can) = history.rules.as_ref()?;
        let end = stats.wall_s;
        let none = RankStats::default();
        let ranks: Vec<RankRecord> = (0..stats.np)
            .map(|rank| {
                RankRecord::of(rank, can, history, stats.ranks.get(rank as usize).unwrap_or(&none), end)
            })
            .collect();
        let lived = || ranks.iter().filter(|rank| rank.ended > 0.0);
        let first = lived().map(|rank| rank.ordered).fold(end, f64::min);
        let last = lived().map(|rank| rank.ended).fold(0.0, f64::max);
        let spans: Vec<Vec<Span>> = (0..stats.np).map(|rank| history.lanes.of(rank, end).collect()).collect();
        let told: Vec<(&[Span], &[Leg])> =
            spans.iter().zip(&ranks).map(|(spans, rank)| (&spans[..], &rank.legs[..])).collect();
        let rates = Rates::of(&told, stats.evicted_bytes, stats.restored_bytes);
        Some(Self {
            version: VERSION,
            line: line.to_owned(),
            status: stats.status.clone(),
            wall_s: end,
            around_s: (first + end - last).clamp(0.0, end),
            limits,
            budgets: budgets(history, limits.budget),
            evicted: stats.evicted_bytes,
            restored: stats.restored_bytes,
            written: stats.scratch_written_bytes,
            read: stats.scratch_read_bytes,
            rates,
            max_resident: stats.max_resident,
            running_s: lived().map(|rank| rank.ran_s).sum(),
            ranks,
        })
    }

    /// Reads it from the file of a trace.
    ///
    /// # Errors
    /// A sentence that says what the file is, or is not.
    pub fn read(path: &Path) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct File {
            bdrun_record: Option<Record>,
            #[serde(rename = "traceEvents")]
            events: Option<serde::de::IgnoredAny>,
            wall_s: Option<f64>,
            ranks: Option<serde::de::IgnoredAny>,
        }
        let name = path.display();
        let file = std::fs::File::open(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
        let how = "a record is what a job with --trace FILE leaves behind";
        let file: File = match serde_json::from_reader(io::BufReader::with_capacity(1 << 20, file)) {
            Ok(file) => file,
            Err(error) if error.is_eof() => {
                return Err(format!(
                    "{name} ends in the middle: the job was killed, or is not at its end; {how}"
                ));
            }
            Err(error) if error.is_io() => return Err(format!("{name} cannot be read: {error}")),
            Err(error) => return Err(format!("{name} is no record of bdrun ({error}); {how}")),
        };
        match file {
            File { bdrun_record: Some(record), .. } => {
                record.checked().map_err(|why| format!("{name}: {why}"))
            }
            File { events: Some(_), .. } => Err(format!(
                "{name} is a trace, but not of a job that ran under this version of bdrun; {how}"
            )),
            File { wall_s: Some(_), ranks: Some(_), .. } => {
                Err(format!("{name} is what --stats writes: sums, of which nothing can be run again; {how}"))
            }
            _ => Err(format!("{name} is no record of bdrun; {how}")),
        }
    }

    fn checked(self) -> Result<Self, String> {
        if self.version != VERSION {
            return Err(format!("it is a record of version {}, this bdrun reads {VERSION}", self.version));
        }
        if self.ranks.iter().all(|rank| rank.ended <= 0.0) {
            return Err("no rank of that job was ever begun".into());
        }
        Ok(self)
    }
}

/// See [`Record::budgets`].
fn budgets(history: &History, first: u64) -> Option<[u64; 2]> {
    let all = || history.series.samples().iter().map(|sample| sample.budget).chain([first]);
    let [least, most] = [all().min()?, all().max()?];
    (least < most).then_some([least, most])
}

impl RankRecord {
    fn of(rank: Rank, can: Can, history: &History, stats: &RankStats, end: f64) -> Self {
        let all: Vec<Span> = history.lanes.of(rank, end).collect();
        // Of one that was begun several times the last try counts.
        let from = all.iter().rposition(|span| span.activity == Activity::Starting).unwrap_or(0);
        let spans = &all[from..];
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
            return Self { can, ..Self::default() };
        };
        let begun = if first.activity == Activity::Starting { first.to } else { first.from };
        let legs = history.legs.of(rank).to_vec();
        let ran_until = |t: f64| -> f64 {
            let runs = spans.iter().filter(|span| span.activity == Activity::Running);
            runs.map(|span| (span.to.min(t) - span.from).max(0.0)).sum()
        };
        let mut sizes: Vec<(f64, u64)> = history.sizes.of(rank).to_vec();
        for (t, _) in &mut sizes {
            *t = (ran_until(*t) * 1e6).round() / 1e6;
        }
        sizes.dedup_by(|next, before| {
            let same = next.0 <= before.0;
            before.1 = if same { next.1.max(before.1) } else { before.1 };
            same
        });
        Self {
            can,
            ordered: first.from,
            begun,
            ended: last.to,
            ran_s: if legs.is_empty() { ran_until(f64::INFINITY) } else { stats.running_s },
            cpu_s: stats.measured.as_ref().map(|measured| measured.cpu_s),
            switches: stats.measured.as_ref().map(|measured| measured.switches),
            peak: stats.peak_bytes,
            evicted: stats.evicted_bytes,
            written: legs.last().map_or(0, |leg| leg.moved[2]),
            size: stats.size,
            legs,
            sizes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Sample;

    #[test]
    fn a_budget_that_followed_what_was_there_is_noted() {
        let mut history = History::new(1);
        for (n, budget) in [100, 100, 40, 70].into_iter().enumerate() {
            history.series.add(Sample { t: n as f64, budget, ..Sample::default() });
        }
        assert_eq!(budgets(&history, 100), Some([40, 100]));
        assert_eq!(budgets(&history, 200), Some([40, 200]));
        let mut steady = History::new(1);
        steady.series.add(Sample { budget: 100, ..Sample::default() });
        assert_eq!(budgets(&steady, 100), None);
    }
}
