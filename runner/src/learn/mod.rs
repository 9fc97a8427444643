//! What ranks needed, kept from run to run (`--learn`): the next one starts informed.
//!
//! One JSON file, whole or not there: of each command, what each part (or rank) of it held at most and how
//! long it took. A job of the same command knows what each of its parts will need; one of the same program
//! with other arguments knows what such ranks need in general. Of runs at the same time the last one writes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::exit::Ending;
use crate::launch::Launch;
use crate::residency::{Expect, Informed, Rank};
use crate::stats::{RankStats, Stats};
use crate::whole;

/// Of the file.
const VERSION: u32 = 1;

/// So many commands are kept, those that ran last.
const COMMANDS: usize = 64;

/// A part that is known is taken to need so much more than it did: what is measured is never quite the same.
const MORE: f64 = 1.05;

/// So many runs of a command are remembered for what its processes took beside the budget, and for how many
/// ranks they had.
const RUNS: usize = 20;

/// So many parts of a command are kept that did not run lately, or as many as [`TIMES`] the ranks of the
/// largest of those runs, if that is more. Where each run has parts of its own (files of a day) all that were
/// ever seen would be read and written each time, and decide what is expected.
const PARTS: usize = 4096;
const TIMES: usize = 4;

/// What our own share of a rank may be taken for, relative to what is estimated (seed 002: of `job_proxy`).
const OVERHEAD: (f64, f64) = (0.5, 2.0);

/// What is known, of all commands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// The version; the name says what the file is.
    bdrun_learned: u32,
    /// By the command line as a template.
    commands: BTreeMap<String, Command>,
}

/// What is known of one command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Command {
    /// The program.
    program: String,
    /// When it last ran, seconds since 1970.
    at: f64,
    /// Of each run: what a process took beside what was asked for, relative to what is estimated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    overhead: Vec<f64>,
    /// How many ranks each of the last runs had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<u32>,
    /// How many runs there were.
    #[serde(default)]
    runs: u64,
    /// By the text of the part; without parts by number and how many there are.
    parts: BTreeMap<String, Part>,
}

/// What one part needed when it last ended well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Part {
    /// What was declared of its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// The most it held, bytes.
    peak: u64,
    /// How long it ran, seconds.
    seconds: f64,
    /// In which run that was.
    #[serde(default)]
    run: u64,
}

/// Leaves the last of them.
fn keep_last<T>(runs: &mut Vec<T>) {
    runs.drain(..runs.len().saturating_sub(RUNS));
}

impl Command {
    /// Leaves out parts that did not run for longest, where there are too many.
    fn forget_old_parts(&mut self) {
        let largest = self.ranks.iter().max().map_or(0, |&ranks| ranks as usize);
        let most = largest.saturating_mul(TIMES).max(PARTS);
        let Some(over) = self.parts.len().checked_sub(most).filter(|&over| over > 0) else { return };
        let mut by_age: Vec<(u64, String)> =
            self.parts.iter().map(|(name, part)| (part.run, name.clone())).collect();
        by_age.sort_unstable();
        for (_, name) in &by_age[..over] {
            self.parts.remove(name);
        }
    }
}

/// What is known of a job before it begins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// What the core is told.
    pub informed: Informed,
    /// How long each rank is expected to run, seconds; 0: nothing is known.
    pub seconds: Vec<f64>,
    /// What processes take beside the budget, relative to what is estimated.
    pub overhead: f64,
}

impl Known {
    /// How long a rank takes, seconds.
    #[must_use]
    pub fn seconds(&self, rank: Rank) -> Option<f64> {
        self.seconds.get(rank as usize).copied().filter(|&seconds| seconds > 0.0)
    }

    /// How long all of those take of which it is known, seconds, and how many they are.
    #[must_use]
    pub fn in_all(&self) -> (f64, u32) {
        let known = self.seconds.iter().filter(|&&seconds| seconds > 0.0);
        known.fold((0.0, 0), |(sum, count), seconds| (sum + seconds, count + 1))
    }

    /// Nothing but how careful to be.
    #[must_use]
    pub fn nothing(expect: Expect) -> Self {
        let informed = Informed { expect, largest_first: true, ..Informed::default() };
        Self { informed, seconds: Vec::new(), overhead: 1.0 }
    }
}

fn key(launch: &Launch, rank: Rank) -> String {
    launch.part(rank).unwrap_or_else(|| format!("rank {rank} of {}", launch.np()))
}

fn command(launch: &Launch) -> String {
    let lines = launch.described().into_iter().filter(|(name, _)| name.starts_with("the command"));
    lines.map(|(_, line)| line).collect::<Vec<_>>().join(" : ")
}

fn program(launch: &Launch) -> String {
    let path = launch.program(0);
    Path::new(&path).file_name().unwrap_or(&path).to_string_lossy().into_owned()
}

impl Learned {
    /// What is in a file; nothing, if there is none.
    ///
    /// # Errors
    /// [`Ending::Setup`]: it cannot be read, or is none of ours.
    pub fn read(path: &Path) -> Result<Self, Ending> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(cannot(path, &error.to_string())),
        };
        let learned: Self = serde_json::from_slice(&bytes)
            .map_err(|error| cannot(path, &format!("it is none of bdrun's: {error}")))?;
        match learned.bdrun_learned {
            VERSION => Ok(learned),
            other => Err(cannot(path, &format!("its version is {other}, and this bdrun's {VERSION}"))),
        }
    }

    /// What that says of a job.
    #[must_use]
    pub fn of(&self, launch: &Launch, expect: Expect) -> Known {
        let mut known = Known::nothing(expect);
        let program = program(launch);
        let same = self.commands.get(&command(launch));
        // The same program with other arguments is better than nothing.
        let like = || self.commands.values().filter(|command| command.program == program).collect();
        let commands: Vec<&Command> = same.map_or_else(like, |same| vec![same]);
        let parts = commands.iter().flat_map(|command| command.parts.values());
        known.informed.peaks = parts.map(|part| (part.size, part.peak)).collect();
        let mut overhead: Vec<f64> =
            commands.iter().flat_map(|command| command.overhead.iter().copied()).collect();
        overhead.sort_by(f64::total_cmp);
        let quantile = (overhead.len() as f64 * expect.quantile) as usize;
        if let Some(&most) = overhead.get(quantile.min(overhead.len().saturating_sub(1))) {
            known.overhead = most.clamp(OVERHEAD.0, OVERHEAD.1);
        }
        let Some(same) = same else { return known };
        known.seconds = vec![0.0; launch.np() as usize];
        for rank in 0..launch.np() {
            let Some(part) = same.parts.get(&key(launch, rank)) else { continue };
            known.seconds[rank as usize] = part.seconds;
            // One that declares another size is another.
            if part.size == launch.declared(rank) {
                known.informed.known.push((rank, (part.peak as f64 * MORE) as u64));
            }
        }
        known
    }

    /// Adds what a job has shown: its ranks that ended well, and, if it is known, what its processes took
    /// beside the budget relative to what was estimated.
    pub fn add(&mut self, launch: &Launch, stats: &Stats, overhead: Option<f64>) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let command = self.commands.entry(command(launch)).or_default();
        (command.program, command.at) = (program(launch), at);
        command.overhead.extend(overhead);
        keep_last(&mut command.overhead);
        command.ranks.push(launch.np());
        keep_last(&mut command.ranks);
        command.runs += 1;
        let shows = |rank: &&RankStats| rank.status == "ok" && rank.peak_bytes > 0 && !rank.hardly_seen;
        for rank in stats.ranks.iter().filter(shows) {
            let seconds = rank.process.map_or(rank.running_s, |process| process.end - process.start);
            let part =
                Part { size: launch.declared(rank.rank), peak: rank.peak_bytes, seconds, run: command.runs };
            command.parts.insert(key(launch, rank.rank), part);
        }
        command.forget_old_parts();
        self.bdrun_learned = VERSION;
        while self.commands.len() > COMMANDS {
            let oldest = self.commands.iter().min_by(|a, b| a.1.at.total_cmp(&b.1.at));
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { return };
            self.commands.remove(&oldest);
        }
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), whole::Unwritten> {
        whole::write(path, |out: &mut dyn Write| {
            serde_json::to_writer(&mut *out, self)?;
            out.write_all(b"\n")
        })
    }
}

fn cannot(path: &Path, what: &str) -> Ending {
    Ending::Setup(format!("--learn: {} cannot be used: {what}; remove it to begin anew", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn launch(parts: &[&str], command: &str) -> Launch {
        crate::launch::tests::of_parts(&parts.join("\n"), command).unwrap()
    }

    fn stats(ranks: &[(&str, u64)]) -> Stats {
        let rank = |(rank, &(status, mib)): (u32, &(&str, u64))| RankStats {
            rank,
            status: status.into(),
            peak_bytes: mib * MIB,
            running_s: mib as f64,
            ..RankStats::default()
        };
        Stats { ranks: (0..).zip(ranks).map(rank).collect(), ..Stats::default() }
    }

    #[test]
    fn what_was_learned_is_known_the_next_time() {
        let mut learned = Learned::default();
        let first = launch(&["a", "b", "c"], "wc {}");
        learned.add(&first, &stats(&[("ok", 100), ("exit 1", 300), ("ok", 200)]), Some(1.25));
        let bytes = serde_json::to_vec(&learned).unwrap();
        let learned: Learned = serde_json::from_slice(&bytes).unwrap();
        // Parts are known by what they are, wherever they stand.
        let known = learned.of(&launch(&["z", "c", "a"], "wc {}"), Expect::default());
        let needs: Vec<_> = known.informed.known.iter().map(|&(rank, bytes)| (rank, bytes / MIB)).collect();
        assert_eq!(needs, [(1, 210), (2, 105)]);
        assert_eq!(known.seconds, [0.0, 200.0, 100.0]);
        assert_eq!(known.informed.peaks.len(), 2, "who failed shows nothing");
        assert_eq!(known.overhead, 1.25);
        // Of another command of the same program only what its ranks need in general.
        let known = learned.of(&launch(&["a"], "wc -l {}"), Expect::default());
        assert!(known.informed.known.is_empty() && known.informed.peaks.len() == 2);
        let mut short = stats(&[("ok", 1)]);
        short.ranks[0].hardly_seen = true;
        let mut nothing = Learned::default();
        nothing.add(&first, &short, None);
        assert!(nothing.of(&first, Expect::default()).informed.peaks.is_empty());
        let known = learned.of(&launch(&["a"], "cat {}"), Expect::default());
        assert_eq!(known, Known::nothing(Expect::default()));
    }

    #[test]
    fn the_overhead_stays_between_half_and_twice_the_estimate() {
        let job = launch(&["a"], "wc {}");
        for (seen, known) in [(0.1, 0.5), (0.7, 0.7), (9.0, 2.0)] {
            let mut learned = Learned::default();
            (0..2 * RUNS).for_each(|_| learned.add(&job, &stats(&[("ok", 1)]), Some(seen)));
            assert_eq!(learned.of(&job, Expect::default()).overhead, known);
            assert_eq!(learned.commands.values().next().unwrap().overhead.len(), RUNS);
        }
    }

    #[test]
    fn old_commands_are_forgotten() {
        let mut learned = Learned::default();
        for n in 0..COMMANDS + 5 {
            learned.add(&launch(&["a"], &format!("wc -{n}")), &stats(&[("ok", 1)]), None);
        }
        assert_eq!(learned.commands.len(), COMMANDS);
        assert!(learned.commands.keys().any(|name| name.contains(&format!("-{}", COMMANDS + 4))));
        assert!(!learned.commands.keys().any(|name| name.contains("-0")));
    }

    /// Each run has parts of its own, and some that are in all of them.
    #[test]
    fn parts_that_did_not_run_for_long_are_forgotten() {
        let mut learned = Learned::default();
        let name = |run: usize, n: usize| if n == 0 { "all".into() } else { format!("{run:04}-{n}") };
        let names = |run: usize| (0..100).map(|n| name(run, n)).collect::<Vec<String>>();
        let job = |names: &[String]| launch(&names.iter().map(String::as_str).collect::<Vec<_>>(), "wc {}");
        for run in 0..200 {
            learned.add(&job(&names(run)), &stats(&[("ok", 7); 100]), None);
        }
        let command = learned.commands.values().next().unwrap();
        assert_eq!((command.parts.len(), command.ranks.len()), (PARTS, RUNS));
        let known = |run| learned.of(&job(&names(run)), Expect::default()).informed.known.len();
        assert_eq!((known(199), known(180), known(0)), (100, 100, 1), "the one that is in all of them");
        // One that is large is known as a whole, also after small ones.
        let many: Vec<String> = (0..3 * PARTS).map(|n| format!("many-{n}")).collect();
        let many = job(&many);
        learned.add(&many, &stats(&vec![("ok", 7); 3 * PARTS]), None);
        learned.add(&job(&names(200)), &stats(&[("ok", 7); 100]), None);
        assert_eq!(learned.of(&many, Expect::default()).informed.known.len(), 3 * PARTS);
    }

    #[test]
    fn other_files_are_refused() {
        let path = std::env::temp_dir().join(format!("bdrun-learned-{}", std::process::id()));
        for text in ["hello", "{}", "{\"bdrun_learned\":2,\"commands\":{}}"] {
            std::fs::write(&path, text).unwrap();
            let error = Learned::read(&path).unwrap_err().to_string();
            assert!(error.contains("--learn"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Learned::read(&path).unwrap(), Learned::default());
    }
}
