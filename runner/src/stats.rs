//! The `--stats` file: one JSON object that says what a job did. Its names are stable.
//!
//! Version 1. All bytes are plain counts, all times seconds of wall clock as floating-point numbers. Fields
//! may be added behind these in later versions without a new version number; none is renamed or changes its
//! meaning without one. The file is written aside and renamed, so it is either whole or not there.

use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::exit::Ending;
use crate::whole::{self, Unwritten};

/// The version written into [`Stats::version`].
pub const VERSION: u32 = 1;

/// What a job did, as `--stats` writes it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// The version of this schema: 1.
    pub version: u32,
    /// How the job ended, one of the words of [`crate::exit::Ending::status`]; `ok` when all went well.
    pub status: String,
    /// The exit code of `bdrun`; see [`crate::exit`].
    pub exit_code: u8,
    /// Number of ranks.
    pub np: u32,
    /// Seconds from the start of `bdrun` to the end of the last rank.
    pub wall_s: f64,
    /// Bytes of RAM the job was allowed to hold.
    pub budget_bytes: u64,
    /// How many ranks were allowed to be resident at once.
    pub resident_limit: u32,
    /// The highest sum, at one moment, of what ranks held from the allocator, in RAM or out, plus messages.
    pub demand_bytes: u64,
    /// The highest sum of managed memory and messages in RAM at one moment.
    pub peak_resident_bytes: u64,
    /// Bytes of ranks' memory moved out of RAM, whether or not they had to be written again.
    pub evicted_bytes: u64,
    /// Bytes of ranks' memory brought back.
    pub restored_bytes: u64,
    /// Bytes of messages sent between ranks.
    pub message_bytes: u64,
    /// Of them, those that went through scratch because memory was tight.
    pub spilled_message_bytes: u64,
    /// The most ranks that computed at one moment.
    pub max_running: u32,
    /// The most ranks that were resident at one moment.
    pub max_resident: u32,
    /// Every rank, in order; of a job of more than 65,536, if nobody has asked for more than the summary,
    /// only those that are worth a look.
    pub ranks: Vec<RankStats>,
    /// The sums of the others.
    #[serde(skip)]
    pub rest: RankStats,
    /// The message of an ending other than `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The rank that needed more than there was, alone or beside what of others could not be paged, if one
    /// did: the budget was exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdraft_rank: Option<u32>,
    /// Bytes written to scratch files for evictions: what had changed since it was last written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub scratch_written_bytes: u64,
    /// Bytes read back from scratch files.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub scratch_read_bytes: u64,
    /// How many times a rank was evicted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub evictions: u64,
    /// Evictions ordered by `--chaos`, those that came too late included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chaos_evictions: u64,
    /// The kernel's high-water mark of the ranks' cgroup (`--enforce`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_peak_bytes: Option<u64>,
    /// The budget was named by the user, not found by bdrun.
    #[serde(skip)]
    pub budget_named: bool,
    /// Bytes that were there for the job when it began (`MemAvailable`, or a tighter limit).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub available_bytes: u64,
    /// What was set aside for ranks and what they held, summed over them (seed 002).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_job: Option<MemoryUse>,
    /// The same of what bdrun itself and its runtime in the ranks take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_proxy: Option<MemoryUse>,
    /// The most that `budget_bytes` was, where that was more than it is at the end (`--memory auto`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub budget_most_bytes: u64,
    /// What was measured from outside, of a job whose ranks were paged from outside.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub measured: Option<JobMeasured>,
}

/// What the kernel told of all ranks of a job together. The peaks are of sums over the ranks, each at one
/// moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobMeasured {
    /// The most that was seen in RAM: private and shared memory and page tables. Measured, hence between two
    /// looks it may have been more.
    pub measured_peak_bytes: u64,
    /// The most private (anonymous) memory seen in RAM: what paging can take out.
    pub private_bytes: u64,
    /// The most shared memory seen in RAM, a segment once for each rank that maps it.
    pub shared_bytes: u64,
    /// The most seen in RAM of what is not managed, so that paging cannot take it out: shared memory, page
    /// tables.
    pub unmanaged_bytes: u64,
    /// The most memory that was paged out at one moment.
    pub out_bytes: u64,
    /// Seconds of processor time, user and kernel, of all processes, those of tries that were stopped
    /// included.
    pub cpu_s: f64,
    /// The longest time from one look at the ranks to the next, or to the end of a rank, seconds.
    pub longest_gap_s: f64,
    /// Why ranks could not be paged out, if that is so: then they were only admitted, frozen, and if need be
    /// stopped and tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paging_refused: Option<String>,
}

/// Memory that was set aside, and used, with the names of seed 002. Bytes; cumulative: bytes times seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Set aside.
    pub memory_reserve: u64,
    /// Held at most.
    pub max_memory: u64,
    /// What a rank may hold (`--rank-memory`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// What was estimated before anything was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_memory: Option<u64>,
    /// Set aside, over the time that ranks lived.
    pub cumulative_memory_reserve: f64,
    /// Held at most, over that time.
    pub cumulative_max_memory: f64,
    /// Estimated, over that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cumulative_estimated_memory: Option<f64>,
}

impl JobMeasured {
    /// With that of another node.
    fn and(self, other: Self) -> Self {
        Self {
            measured_peak_bytes: self.measured_peak_bytes.saturating_add(other.measured_peak_bytes),
            private_bytes: self.private_bytes.saturating_add(other.private_bytes),
            shared_bytes: self.shared_bytes.saturating_add(other.shared_bytes),
            unmanaged_bytes: self.unmanaged_bytes.saturating_add(other.unmanaged_bytes),
            out_bytes: self.out_bytes.saturating_add(other.out_bytes),
            cpu_s: self.cpu_s + other.cpu_s,
            longest_gap_s: self.longest_gap_s.max(other.longest_gap_s),
            paging_refused: self.paging_refused.or(other.paging_refused),
        }
    }
}

impl MemoryUse {
    /// With that of another node.
    fn and(self, other: Self) -> Self {
        Self {
            memory_reserve: self.memory_reserve.saturating_add(other.memory_reserve),
            max_memory: self.max_memory.saturating_add(other.max_memory),
            memory_limit: self.memory_limit,
            estimated_memory: sum(self.estimated_memory, other.estimated_memory, u64::saturating_add),
            cumulative_memory_reserve: self.cumulative_memory_reserve + other.cumulative_memory_reserve,
            cumulative_max_memory: self.cumulative_max_memory + other.cumulative_max_memory,
            cumulative_estimated_memory: sum(
                self.cumulative_estimated_memory,
                other.cumulative_estimated_memory,
                |one, other| one + other,
            ),
        }
    }
}

/// Of what there may be, both.
fn sum<T>(one: Option<T>, other: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_nothing(n: &f64) -> bool {
    *n == 0.0
}

/// What one rank did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RankStats {
    /// Its number.
    pub rank: u32,
    /// How it ended: `ok`, `exit N`, `signal N`, `timeout` (`--rank-timeout`), `stopped` (ended because the
    /// job did), `earlier` (was done before the job began) or `unborn` (never started).
    pub status: String,
    /// The most bytes it held from the allocator at one moment, in RAM or out.
    pub peak_bytes: u64,
    /// Bytes of its memory moved out of RAM.
    pub evicted_bytes: u64,
    /// Bytes of its memory brought back.
    pub restored_bytes: u64,
    /// Seconds it ran.
    pub running_s: f64,
    /// Seconds it waited: for messages, for memory, for a processor, or evicted.
    pub waiting_s: f64,
    /// Seconds it spent moving its memory out and in.
    pub paging_s: f64,
    /// How many times it was evicted.
    #[serde(default)]
    pub evictions: u64,
    /// What was declared of its size (`--size-column`, or of the file that `--glob` found).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// What was set aside for it when it began, bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserve_bytes: u64,
    /// It ended so soon that it may have held more than was seen: nothing is learned from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hardly_seen: bool,
    /// Its part, if the job has parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Of a job of independent ranks: program and arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// How its process ended, that of the last try; of such a job.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessStats>,
    /// What was measured from outside.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub measured: Option<RankMeasured>,
}

impl RankStats {
    /// Adds what another has done.
    pub(crate) fn add(&mut self, other: &Self) {
        self.evictions = self.evictions.saturating_add(other.evictions);
        self.evicted_bytes = self.evicted_bytes.saturating_add(other.evicted_bytes);
        self.restored_bytes = self.restored_bytes.saturating_add(other.restored_bytes);
        self.running_s += other.running_s;
        self.waiting_s += other.waiting_s;
        self.paging_s += other.paging_s;
        if let Some(measured) = &other.measured {
            let sum = self.measured.get_or_insert_default();
            sum.cpu_s += measured.cpu_s;
            sum.held_s += measured.held_s;
        }
    }
}

/// The life of a rank's process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessStats {
    /// When it began, seconds since 1970.
    pub start: f64,
    /// When it had ended, seconds since 1970.
    pub end: f64,
    /// Its exit code; 0 if a signal ended it.
    pub exit_code: i32,
    /// The signal that ended it, or 0.
    pub signal: i32,
}

/// What the kernel told of one rank, children included. Each the most at one moment, where nothing else is
/// said.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RankMeasured {
    /// Private (anonymous) memory in RAM; pages that its processes share after a `fork` once.
    pub private_bytes: u64,
    /// Shared memory in RAM.
    pub shared_bytes: u64,
    /// Memory in RAM that paging cannot take out: shared memory, page tables.
    pub unmanaged_bytes: u64,
    /// Memory that was paged out.
    pub out_bytes: u64,
    /// Processes.
    pub processes: u32,
    /// Seconds of processor time, user and kernel.
    pub cpu_s: f64,
    /// Times it gave its processor up by itself, and times that was taken away: the context switches of its
    /// processes, as far as they were waited for.
    #[serde(default)]
    pub switches: [u64; 2],
    /// Seconds it was held: stopped or out, with no say in it.
    pub held_s: f64,
    /// Seconds it ran in parts, larger than the budget all by itself.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub parts_s: f64,
    /// Times it waited for a page meanwhile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parts_faults: u64,
}

/// Instead of a path.
const STDOUT: &str = "-";

impl Stats {
    /// The job had ended well, but for this.
    pub(crate) fn ended_by(&mut self, ending: &Ending) {
        (self.status, self.exit_code) = (ending.status().into(), ending.code());
        self.error = Some(ending.to_string());
    }

    /// The most bytes of RAM that the job was ever allowed to hold.
    #[must_use]
    pub fn most_budget(&self) -> u64 {
        self.budget_bytes.max(self.budget_most_bytes)
    }

    /// It was allowed to hold so much, at some time.
    pub(crate) fn set_most_budget(&mut self, most: u64) {
        self.budget_most_bytes = if most > self.budget_bytes { most } else { 0 };
    }

    /// Adds what another node of the job did: sums, also of budgets and of what each held at most.
    pub(crate) fn add_node(&mut self, other: Self) {
        let most = self.most_budget().saturating_add(other.most_budget());
        let sums = [
            (&mut self.budget_bytes, other.budget_bytes),
            (&mut self.demand_bytes, other.demand_bytes),
            (&mut self.peak_resident_bytes, other.peak_resident_bytes),
            (&mut self.evicted_bytes, other.evicted_bytes),
            (&mut self.restored_bytes, other.restored_bytes),
            (&mut self.message_bytes, other.message_bytes),
            (&mut self.spilled_message_bytes, other.spilled_message_bytes),
            (&mut self.scratch_written_bytes, other.scratch_written_bytes),
            (&mut self.scratch_read_bytes, other.scratch_read_bytes),
            (&mut self.evictions, other.evictions),
            (&mut self.chaos_evictions, other.chaos_evictions),
            (&mut self.available_bytes, other.available_bytes),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.set_most_budget(most);
        self.resident_limit = self.resident_limit.saturating_add(other.resident_limit);
        self.max_running = self.max_running.saturating_add(other.max_running);
        self.max_resident = self.max_resident.saturating_add(other.max_resident);
        self.wall_s = self.wall_s.max(other.wall_s);
        self.overdraft_rank = self.overdraft_rank.or(other.overdraft_rank);
        self.user_job = sum(self.user_job.take(), other.user_job, MemoryUse::and);
        self.job_proxy = sum(self.job_proxy.take(), other.job_proxy, MemoryUse::and);
        self.measured = sum(self.measured.take(), other.measured, JobMeasured::and);
        self.rest.add(&other.rest);
        self.ranks.extend(other.ranks);
        self.ranks.sort_by_key(|rank| rank.rank);
    }

    /// Writes the object as indented JSON to `path`, whole or not at all. `-` is standard output.
    ///
    /// # Errors
    /// With the path at fault; an older file stays as it was.
    pub fn write(&self, path: &Path) -> Result<(), Unwritten> {
        if path == Path::new(STDOUT) {
            let written = serde_json::to_string_pretty(self)
                .map_err(io::Error::from)
                .and_then(|text| writeln!(io::stdout().lock(), "{text}"));
            return written.map_err(|source| Unwritten { path: path.to_owned(), source });
        }
        whole::write(path, |out| {
            serde_json::to_writer_pretty(&mut *out, self)?;
            out.write_all(b"\n")
        })
    }

    /// Whether [`Stats::write`] will be able to, as far as can be known before.
    ///
    /// # Errors
    /// As there.
    pub fn check(path: &Path) -> Result<(), Unwritten> {
        if path == Path::new(STDOUT) { Ok(()) } else { whole::check(path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The promised names in the promised order; a change here breaks users' scripts.
    const NAMES: &[&str] = &[
        "version",
        "status",
        "exit_code",
        "np",
        "wall_s",
        "budget_bytes",
        "resident_limit",
        "demand_bytes",
        "peak_resident_bytes",
        "evicted_bytes",
        "restored_bytes",
        "message_bytes",
        "spilled_message_bytes",
        "max_running",
        "max_resident",
        "ranks",
    ];
    const RANK_NAMES: &[&str] = &[
        "rank",
        "status",
        "peak_bytes",
        "evicted_bytes",
        "restored_bytes",
        "running_s",
        "waiting_s",
        "paging_s",
        "evictions",
    ];

    fn assert_in_order(text: &str, names: &[&str]) {
        let mut from = 0;
        for name in names {
            let at = text[from..].find(&format!("\"{name}\":"));
            from += at.unwrap_or_else(|| panic!("{name} is missing or out of order in {text}")) + 1;
        }
    }

    #[test]
    fn names_are_stable() {
        let stats = Stats {
            version: VERSION,
            status: "ok".into(),
            ranks: vec![RankStats::default()],
            ..Stats::default()
        };
        let text = serde_json::to_string(&stats).unwrap();
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(object.len(), NAMES.len(), "no extra field unless there is something to say");
        assert_in_order(&text, NAMES);
        assert_in_order(&serde_json::to_string(&stats.ranks[0]).unwrap(), RANK_NAMES);
    }

    /// Behind the others, and only for jobs that were measured.
    #[test]
    fn measured_fields_are_on_the_same_level() {
        let measured = JobMeasured { cpu_s: 1.5, private_bytes: 7, ..JobMeasured::default() };
        let rank = RankStats {
            measured: Some(RankMeasured { processes: 3, ..RankMeasured::default() }),
            ..RankStats::default()
        };
        let stats = Stats { ranks: vec![rank], measured: Some(measured), ..Stats::default() };
        let value = serde_json::to_value(&stats).unwrap();
        for name in ["measured_peak_bytes", "shared_bytes", "unmanaged_bytes", "out_bytes", "longest_gap_s"] {
            assert_eq!(value[name].as_f64(), Some(0.0), "{name}");
        }
        assert_eq!((value["cpu_s"].as_f64(), value["private_bytes"].as_u64()), (Some(1.5), Some(7)));
        assert_eq!(value["ranks"][0]["processes"].as_u64(), Some(3));
        assert_eq!(value["ranks"][0]["held_s"].as_f64(), Some(0.0));
        assert_eq!(serde_json::from_value::<Stats>(value).unwrap(), stats);
        let unmeasured = Stats { ranks: vec![RankStats::default()], ..Stats::default() };
        let text = serde_json::to_string(&unmeasured).unwrap();
        assert_eq!(serde_json::from_str::<Stats>(&text).unwrap(), unmeasured);
    }

    /// Each node's budget may have been more at some time.
    #[test]
    fn the_most_that_budgets_were_is_summed() {
        let node = |budget_bytes, most| {
            let mut stats = Stats { budget_bytes, ..Stats::default() };
            stats.set_most_budget(most);
            stats
        };
        let mut first = node(100, 100);
        assert_eq!((first.budget_most_bytes, first.most_budget()), (0, 100));
        first.add_node(node(50, 70));
        assert_eq!((first.budget_bytes, first.most_budget()), (150, 170));
        first.add_node(node(50, 0));
        assert_eq!((first.budget_bytes, first.most_budget()), (200, 220));
    }

    #[test]
    fn written_whole_and_read_back() {
        let dir = std::env::temp_dir().join(format!("bdrun-stats-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("stats.json");
        let stats = Stats { version: VERSION, np: 4, overdraft_rank: Some(2), ..Stats::default() };
        stats.write(&path).unwrap();
        let back: Stats = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(back, stats);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "nothing is left aside");

        let error = stats.write(&dir.join("no/such/stats.json")).unwrap_err();
        assert!(error.to_string().contains("no/such/stats.json"), "{error}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
