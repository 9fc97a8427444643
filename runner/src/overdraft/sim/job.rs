//! The synthetic programs, the machine they run on, and what came of it.

use crate::overdraft::Limits;
use crate::scheduler::Rank;

/// How a program's memory goes with its work, as a part of its peak.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Curve {
    /// Nearly all at once, and it stays.
    Flat,
    /// Grows evenly to the peak.
    Even,
    /// Grows slowly at first; the peak is at the very end.
    Late,
    /// A tenth of the peak, until at this part of the work it takes all.
    Sudden(f64),
    /// Grows to the peak and falls to nothing so many times.
    Saw(u32),
}

/// Work over which a sudden change happens, as a part of all work.
const EDGE: f64 = 0.05;

impl Curve {
    /// The part of the peak that is held when this part of the work is done.
    #[must_use]
    pub fn at(self, done: f64) -> f64 {
        match self {
            Self::Flat => (done / EDGE).min(1.0),
            Self::Even => done,
            Self::Late => done.powi(3),
            Self::Sudden(at) => 0.1 * (done / EDGE).min(1.0) + 0.9 * ((done - at) / EDGE).clamp(0.0, 1.0),
            Self::Saw(teeth) => (done * f64::from(teeth.max(1))).fract(),
        }
    }

    /// The fastest it grows: parts of the peak for all the work.
    #[must_use]
    pub fn steepest(self) -> f64 {
        match self {
            // A sudden one that takes all at the beginning takes the tenth with it.
            Self::Flat | Self::Sudden(_) => 1.0 / EDGE,
            Self::Even => 1.0,
            Self::Late => 3.0,
            Self::Saw(teeth) => f64::from(teeth.max(1)),
        }
    }
}

/// One program.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// The most it holds, bytes.
    pub peak: f64,
    /// Processor time it needs, seconds.
    pub work: f64,
    /// How its memory goes with that.
    pub curve: Curve,
    /// Of what it holds, so many bytes at most cannot be paged.
    pub fixed: f64,
    /// It sleeps: its work takes time, but no processor.
    pub sleeps: bool,
    /// It refuses to be paged, always.
    pub unpageable: bool,
    /// Half done, it waits for the end of this rank, if that has begun.
    pub waits_for: Option<Rank>,
    /// What it uses of a processor as it waits: it asks again and again.
    pub polls: f64,
    /// What is declared of its size, in any unit.
    pub declared: Option<u64>,
}

impl Program {
    /// A program that holds `peak` bytes and computes for `work` seconds.
    #[must_use]
    pub fn new(peak: f64, work: f64, curve: Curve) -> Self {
        Self {
            peak,
            work,
            curve,
            fixed: 0.0,
            sleeps: false,
            unpageable: false,
            waits_for: None,
            polls: 0.0,
            declared: None,
        }
    }

    /// All of it can be paged, whenever that is wanted.
    #[must_use]
    pub fn is_pageable(&self) -> bool {
        !self.unpageable && self.fixed == 0.0
    }

    /// The fastest it grows, bytes a second.
    #[must_use]
    pub fn fastest(&self) -> f64 {
        self.curve.steepest() * self.peak / self.work
    }
}

/// The machine, and what goes wrong on it. All is drawn from `seed`: the same numbers make the same run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// What the job may use.
    pub limits: Limits,
    /// Bytes a second that can be moved to or from scratch.
    pub disk: f64,
    /// From an order to page a rank out until that begins, seconds.
    pub latency: f64,
    /// From an order to stand still, or end, until that is so, seconds.
    pub holding: f64,
    /// Bytes of scratch; infinite for any number.
    pub scratch: f64,
    /// The seed of everything drawn. 0: nothing is drawn.
    pub seed: u64,
    /// Of 256 evictions, so many are refused for now.
    pub refused: u8,
    /// Of 256 samples, so many tell what was so at the look before.
    pub late: u8,
    /// Of 256 looks, so many ask for the eviction of any rank.
    pub chaos: u8,
    /// Check everything after every event, which looks at every rank.
    pub check: bool,
}

impl Machine {
    /// A machine on which nothing goes wrong, with a disk of 1 GB/s.
    #[must_use]
    pub fn new(budget: u64, processors: u32) -> Self {
        let limits = Limits {
            budget,
            processors,
            resident: u32::MAX,
            rank_limit: None,
            may_page: true,
            may_freeze: true,
            may_stop: true,
            enforce: false,
        };
        Self {
            limits,
            disk: 1e9,
            latency: 0.02,
            holding: 0.005,
            scratch: f64::INFINITY,
            seed: 0,
            refused: 0,
            late: 0,
            chaos: 0,
            check: true,
        }
    }
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Seconds.
    pub time: f64,
    /// Bytes moved out, and in.
    pub moved_out: f64,
    /// Bytes moved in.
    pub moved_in: f64,
    /// Ranks paged out.
    pub evictions: u64,
    /// The most times that one rank was.
    pub most_evictions: u32,
    /// Ranks made to stand still.
    pub holds: u64,
    /// Ranks stopped, to be admitted again.
    pub stops: u64,
    /// Orders to page parts of a rank out.
    pub shrinks: u64,
    /// Ranks said to need more than there is.
    pub overdrafts: u64,
    /// Ranks that ended for holding more than they may.
    pub over_limit: u64,
    /// The most ranks in RAM at once.
    pub most_inside: usize,
    /// The most bytes of RAM used at once.
    pub peak: f64,
    /// The longest time between two looks, seconds.
    pub longest_look: f64,
    /// Looks.
    pub looks: u64,
    /// Events handled.
    pub events: u64,
    /// Ranks in the order they were admitted; one that was stopped is there again.
    pub order: Vec<Rank>,
}
