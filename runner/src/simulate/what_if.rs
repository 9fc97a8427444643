//! The settings that are tried, and what comes of each. Pure.

use serde::Serialize;

use super::rates::Rates;
use super::record::Record;
use super::{Synthetic, replay, synthetic};
use crate::residency::sim::{self, Machine, Policy, Program};
use crate::residency::{Effect, Limits};

/// What is taken where nothing was seen to move: a disk of our measurements (docs/benchmarks.md), bytes a
/// second.
pub const USUAL: Rates = Rates { out: 2.0e9, back: 1.2e9, out_s: 0.0, back_s: 0.0, hears_s: 0.0 };

/// A simulated job that takes so much longer than it would one rank after the other is given up.
const PATIENCE: f64 = 20.0;

/// What leaves of a rank at once, bytes (docs/architecture.md, "Ranks move in parts").
const GROUP: u64 = 64 << 20;

/// So exactly the smallest budget is looked for: the factor between the two that are left.
const EXACT: f64 = 1.05;

/// A job to be simulated.
#[derive(Debug)]
pub struct Job {
    programs: Vec<Program>,
    limits: Limits,
    rates: Rates,
    /// Bytes read of those that came back, as a part.
    read: f64,
    /// Seconds beside what is simulated.
    around_s: f64,
    /// Seconds after which it is given up.
    patience: f64,
    /// Whether the rates were seen.
    pub rates_are_known: bool,
}

/// Under what it is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Bytes of RAM.
    pub budget_bytes: u64,
    /// Processors.
    pub processors: u32,
    /// Ranks in RAM at once, at most.
    pub resident: u32,
    /// Who decides.
    #[serde(serialize_with = "name")]
    pub policy: Policy,
}

fn name<S: serde::Serializer>(policy: &Policy, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(word(*policy))
}

/// What a policy is called.
#[must_use]
pub const fn word(policy: Policy) -> &'static str {
    match policy {
        Policy::Ours => "ours",
        Policy::Fifo => "fifo",
        Policy::Lru => "lru",
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    /// All ranks ended.
    pub ends: bool,
    /// And never was more used than the budget.
    pub fits: bool,
    /// Seconds.
    pub wall_s: f64,
    /// Bytes written to and read from scratch.
    pub written_bytes: u64,
    /// See `written_bytes`.
    pub read_bytes: u64,
    /// Times that a rank was evicted.
    pub evictions: u64,
    /// The most ranks in RAM.
    pub max_resident: u32,
    /// Processors that computed, on average.
    pub busy: f64,
}

impl Job {
    /// One that was recorded.
    #[must_use]
    pub fn recorded(record: &Record) -> Self {
        let share = |part: u64, of: u64| if of > 0 { part as f64 / of as f64 } else { 1.0 };
        let known = |seen: f64, usual: f64| if seen > 0.0 { seen } else { usual };
        Self {
            rates_are_known: record.rates.out > 0.0 && record.rates.back > 0.0,
            rates: Rates {
                out: known(record.rates.out, USUAL.out),
                back: known(record.rates.back, USUAL.back),
                ..record.rates
            },
            read: share(record.read, record.restored),
            around_s: record.around_s,
            ..Self::new(replay::programs(record), record.limits)
        }
    }

    /// One that is made up, in half of the memory that it needs, if nothing else is said.
    #[must_use]
    pub fn synthetic(asked: &Synthetic, processors: u32) -> Self {
        let programs = synthetic::programs(asked);
        let machine = Machine::new(1 << 30, processors);
        let job = Self::new(programs, Limits { moves: 2 * processors, ..machine.limits });
        let half = job.all() / 2;
        Self { limits: Limits { budget: half.max(job.largest()), ..job.limits }, ..job }
    }

    fn new(programs: Vec<Program>, limits: Limits) -> Self {
        let seconds: f64 =
            programs.iter().map(|program| program.work + program.starting + program.ending).sum();
        let patience = PATIENCE * (seconds + 10.0);
        Self { programs, limits, rates: USUAL, read: 1.0, around_s: 0.0, patience, rates_are_known: false }
    }

    /// Other rates of the disk, bytes a second to and from scratch, of a job of which so many bytes were read
    /// of those that came back, and written of those that left.
    pub fn set_disk(&mut self, read: f64, write: f64) {
        let dirty = self.programs.iter().map(|program| program.dirty).sum::<f64>()
            / self.programs.len().max(1) as f64;
        self.rates = Rates { out: write / dirty.max(0.01), back: read / self.read.max(0.01), ..self.rates };
        self.rates_are_known = true;
    }

    /// How fast memory is taken to move.
    #[must_use]
    pub const fn rates(&self) -> Rates {
        self.rates
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.programs.len() as u32
    }

    fn sizes(&self) -> impl Iterator<Item = u64> {
        self.programs.iter().map(|program| {
            let asked = program.script.iter().map(|step| step.most).max();
            let grown = program.asks_in(program.phases.saturating_sub(1));
            asked.unwrap_or(grown).max(program.asks) + program.peak as u64
        })
    }

    /// Bytes of the largest rank.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.sizes().max().unwrap_or(0)
    }

    /// Bytes that are enough for everything: all ranks at their largest, and what is set aside.
    #[must_use]
    pub fn all(&self) -> u64 {
        let sum = self.sizes().fold(0, u64::saturating_add);
        sum.saturating_add(sum / 8).saturating_add(u64::from(self.ranks()) << 20).saturating_add(64 << 20)
    }

    /// As it was.
    #[must_use]
    pub fn as_it_was(&self) -> Setting {
        let Limits { budget, processors, resident, .. } = self.limits;
        let resident = resident.min(self.ranks().max(1));
        Setting { budget_bytes: budget, processors, resident, policy: Policy::Ours }
    }

    /// With room for everything.
    #[must_use]
    pub fn in_ram(&self, setting: Setting) -> Setting {
        Setting { budget_bytes: self.all(), resident: self.ranks().max(1), ..setting }
    }

    /// Runs it.
    #[must_use]
    pub fn run(&self, setting: Setting) -> Outcome {
        let machine = self.machine(setting);
        let report = sim::run(&self.programs, machine);
        let ends = report.end == Some(Effect::Finish);
        // What grows without asking is seen a little late.
        let unasked = self.programs.iter().any(|program| program.peak > 0.0);
        let slack = if unasked { setting.budget_bytes / 16 } else { 0 };
        let most = (setting.budget_bytes.saturating_add(slack)) as f64;
        Outcome {
            ends,
            fits: ends && report.overdrafts == 0 && report.over_limit == 0 && report.peak <= most,
            wall_s: report.time + self.around_s,
            written_bytes: report.written as u64,
            read_bytes: (report.moved_in * self.read) as u64,
            evictions: report.evictions,
            max_resident: report.resident,
            busy: report.used / report.time.max(1e-9),
        }
    }

    fn machine(&self, setting: Setting) -> Machine {
        let Setting { budget_bytes: budget, processors, resident, policy } = setting;
        let as_it_was = self.as_it_was();
        let mut limits = self.limits;
        if setting.budget_bytes != as_it_was.budget_bytes || resident != as_it_was.resident {
            // As `job/setup.rs` has it.
            limits.first_reserve =
                (budget / 4 / u64::from(resident.max(1))).clamp(64 << 10, 1 << 20).min(budget);
            limits.ahead = budget / 3;
        }
        if processors != as_it_was.processors {
            limits.moves = 2 * processors;
            // With `-j` as many live as compute: that is what is tried then.
            if limits.alive == as_it_was.processors {
                limits.alive = processors;
            }
        }
        let limits = Limits { budget, processors, resident, ..limits };
        Machine {
            limits,
            disk: self.rates.out,
            read: self.rates.back,
            beside: (self.rates.out_s, self.rates.back_s),
            latency: 0.003,
            holding: 0.002,
            hears: self.rates.hears_s,
            group: GROUP,
            policy,
            patience: self.patience,
            check: 0,
            ..Machine::new(budget, processors)
        }
    }

    /// The smallest budget in which it ends without exceeding it, about: between the largest rank and one in
    /// which it does.
    #[must_use]
    pub fn smallest(&self, setting: Setting) -> Option<(Setting, Outcome)> {
        let with = |budget_bytes: f64| Setting { budget_bytes: budget_bytes.ceil() as u64, ..setting };
        let tried = |setting: Setting| (setting, self.run(setting));
        let mut good = [setting, with(2.0 * setting.budget_bytes as f64), with(self.all() as f64)]
            .into_iter()
            .map(tried)
            .find(|(_, outcome)| outcome.fits)?;
        let mut bad = (self.largest() as f64 / 2.0).max(65_536.0);
        while good.0.budget_bytes as f64 > bad * EXACT {
            let between = tried(with((bad * good.0.budget_bytes as f64).sqrt()));
            if between.1.fits {
                good = between;
            } else {
                bad = between.0.budget_bytes as f64;
            }
        }
        Some(good)
    }
}
