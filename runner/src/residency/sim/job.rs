//! The synthetic programs, the machine they run on, and what came of it.

use std::sync::Arc;

use super::plain::Policy;
use crate::residency::{Can, Effect, Limits, Rank};

/// How the memory that a program does not ask for goes with its work, as a part of its peak.
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

/// What ranks that tell do at the end of each phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Nothing: independent partitions.
    Nothing,
    /// All that tell meet at a barrier.
    Barrier,
    /// Each sends to the next that tells and waits for the one before it.
    Ring,
    /// Each waits for the one before it, then sends to the next: one runs at a time. The first begins.
    Token,
    /// All wait for a message that nobody sends: a job that is wrong.
    Hang,
}

/// What a program of which that is known does next: it takes memory, computes, opens gates, waits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// Processor time, seconds.
    pub work: f64,
    /// Bytes that it asked for and holds meanwhile, in RAM or out.
    pub most: u64,
    /// The same when it has computed: the rest is given back.
    pub holds: u64,
    /// So much of what it holds must be in RAM for it to compute; 0: all.
    pub needs: u64,
    /// Gates at which it has then arrived. A gate is open when all that ever arrive there have.
    pub opens: Vec<u32>,
    /// What it waits for after that.
    pub then: Then,
}

/// What a program waits for between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Then {
    /// Nothing.
    #[default]
    Nothing,
    /// Until a gate is open, of a collective or of a message from a rank.
    Gate {
        /// Which.
        gate: u32,
        /// Whose message; none: a collective.
        from: Option<Rank>,
    },
    /// So many seconds.
    Pause(f64),
}

/// One program.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// What can be done with it at first.
    pub can: Can,
    /// Processor time it needs, seconds.
    pub work: f64,
    /// At this part of its work, if any, it becomes a native rank.
    pub joins: Option<f64>,
    /// The most it holds that it does not ask for, bytes, and how that goes with its work.
    pub peak: f64,
    /// See `peak`.
    pub curve: Curve,
    /// Of this, so many bytes at most cannot be paged.
    pub fixed: f64,
    /// That is only seen when the rest has left.
    pub silent: bool,
    /// Of a rank that asks: into how many phases its work falls.
    pub phases: u32,
    /// Bytes it asks for in the first of them, and by how many more in each later one.
    pub asks: u64,
    /// See `asks`.
    pub growth: u64,
    /// The least it asks for at once, bytes; at least 1.
    pub chunk: u64,
    /// Whether it gives back half before it waits.
    pub shrinks: bool,
    /// What happens between phases, and with how many bytes in each message.
    pub exchange: Exchange,
    /// See `exchange`.
    pub message: u64,
    /// It sleeps most of the time: its work takes time, but of a processor only this part.
    pub sleeps: Option<f64>,
    /// It does not tell when it waits for others, although it tells when it needs memory.
    pub mute: bool,
    /// It fails so often at its end, and is begun again, if it does not tell.
    pub fails: u32,
    /// It refuses to be paged, always.
    pub unpageable: bool,
    /// Half done, it waits for the end of this rank, if that has begun.
    pub waits_for: Option<Rank>,
    /// What it uses of a processor as it waits so: it asks again and again.
    pub polls: f64,
    /// What is declared of its size, in any unit.
    pub declared: Option<u64>,
    /// What an earlier run says it needs, bytes.
    pub known: Option<u64>,
    /// What it does, step by step, instead of phases; empty: that is not known. `work` is their sum.
    pub script: Arc<[Step]>,
    /// Instead of the curve, points of it: the part of the work, the part of the peak. Empty: none.
    pub points: Arc<[(f64, f64)]>,
    /// It computes only with one of as many tokens as there are processors; without them they are shared.
    pub tokens: bool,
    /// From the order until it begins, and from its last step until it is gone, seconds.
    pub starting: f64,
    /// See `starting`.
    pub ending: f64,
    /// Of what leaves, the part that is moved (the rest was never used), and of that the part that has to be
    /// written.
    pub fill: f64,
    /// See `fill`.
    pub dirty: f64,
}

/// From the order until a program begins, seconds, if nothing is known of that.
const STARTING: f64 = 0.005;

impl Program {
    /// A program that takes up to `peak` bytes without asking, and computes for `work` seconds.
    #[must_use]
    pub fn new(peak: f64, work: f64, curve: Curve) -> Self {
        Self {
            can: Can { rerun: true, ..Can::PROGRAM },
            work,
            joins: None,
            peak,
            curve,
            fixed: 0.0,
            silent: false,
            phases: 1,
            asks: 0,
            growth: 0,
            chunk: 1,
            shrinks: false,
            exchange: Exchange::Nothing,
            message: 0,
            sleeps: None,
            mute: false,
            fails: 0,
            unpageable: false,
            waits_for: None,
            polls: 0.0,
            declared: None,
            known: None,
            script: Arc::default(),
            points: Arc::default(),
            tokens: false,
            starting: STARTING,
            ending: 0.0,
            fill: 1.0,
            dirty: 1.0,
        }
    }

    /// A native rank that asks for `asks` bytes in each of `phases` phases of 10 ms, and meets the others
    /// after each.
    #[must_use]
    pub fn native(asks: u64, phases: u32, exchange: Exchange) -> Self {
        let work = 0.01 * f64::from(phases);
        let can = Can::NATIVE;
        Self { can, phases, asks, chunk: asks.max(1), exchange, ..Self::new(0.0, work, Curve::Flat) }
    }

    /// Bytes that it holds and did not ask for when this part of its work is done.
    #[must_use]
    pub fn unasked(&self, done: f64) -> f64 {
        let after = self.points.partition_point(|&(at, _)| at <= done);
        let part = match (self.points.get(after.wrapping_sub(1)), self.points.get(after)) {
            (None, None) => self.curve.at(done),
            (None, Some(&(_, part))) | (Some(&(_, part)), None) => part,
            (Some(&(from, low)), Some(&(to, high))) => {
                low + (high - low) * (done - from) / (to - from).max(1e-12)
            }
        };
        self.peak * part
    }

    /// Bytes it asks for in a phase.
    #[must_use]
    pub fn asks_in(&self, phase: u32) -> u64 {
        self.asks + self.growth * u64::from(phase)
    }

    /// All of it can be paged, whenever that is wanted.
    #[must_use]
    pub fn is_pageable(&self) -> bool {
        !self.unpageable && self.fixed == 0.0
    }

    /// The fastest it grows without asking, bytes a second.
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
    /// Bytes a second that can be moved to scratch, and from it (0: as many).
    pub disk: f64,
    /// See `disk`.
    pub read: f64,
    /// Seconds that a move takes beside, out and in, of a rank that moves itself.
    pub beside: (f64, f64),
    /// Seconds until it is heard that a rank waits.
    pub hears: f64,
    /// Of a rank that moves itself out so many bytes at most leave at once, and are others' then.
    pub group: u64,
    /// Who decides.
    pub policy: Policy,
    /// A job that takes longer is given up, seconds; 0: it fails the simulator.
    pub patience: f64,
    /// From an order to page a rank out until that begins, seconds.
    pub latency: f64,
    /// From an order to stand still, or end, until that is so, seconds.
    pub holding: f64,
    /// Bytes of scratch; infinite for any number.
    pub scratch: f64,
    /// The seed of everything drawn. 0: nothing is drawn.
    pub seed: u64,
    /// Up to so many seconds pass until it is heard what ranks tell.
    pub lag: f64,
    /// Of 256 evictions, so many are refused for now.
    pub refused: u8,
    /// Of 256 orders that take memory, so many are denied although there is enough.
    pub denied: u8,
    /// Of 256 times that a resident is woken, so many are never reported.
    pub unseen: u8,
    /// Of 256 times that a resident waits, so many find it out in part and not able to go on.
    pub leaves: u8,
    /// Of 256 samples, so many tell what was so at the look before.
    pub late: u8,
    /// Of 256 looks, so many ask for the eviction of any rank.
    pub chaos: u8,
    /// Of 256 looks, so many find that the job may use another part of what it may use at most; a second
    /// apart at least.
    pub elastic: u8,
    /// Ranks come one after another, so many seconds apart, to a job whose ranks are all alike; 0: all are
    /// there from the beginning.
    pub comes: f64,
    /// They are known from the beginning and may differ, and are given to this node one after another.
    pub shared: bool,
    /// After so many events everything is checked, which looks at every rank; 0: never, and no peak is taken.
    pub check: u32,
}

impl Machine {
    /// A machine on which nothing goes wrong, with a disk of 1 GB/s.
    #[must_use]
    pub fn new(budget: u64, processors: u32) -> Self {
        let limits = Limits {
            alive: u32::MAX,
            budget,
            processors,
            resident: u32::MAX,
            rank_limit: None,
            enforce: false,
            first_reserve: 1 << 20,
            moves: 4,
            part: 1 << 20,
            ahead: budget / 4,
        };
        Self {
            limits,
            disk: 1e9,
            read: 0.0,
            beside: (0.0, 0.0),
            hears: 0.0,
            group: u64::MAX,
            policy: Policy::Ours,
            patience: 0.0,
            latency: 0.02,
            holding: 0.005,
            scratch: f64::INFINITY,
            seed: 0,
            lag: 0.0,
            refused: 0,
            denied: 0,
            unseen: 0,
            leaves: 0,
            late: 0,
            chaos: 0,
            elastic: 0,
            comes: 0.0,
            shared: false,
            check: 1,
        }
    }
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// [`Effect::Finish`] or [`Effect::Fail`].
    pub end: Option<Effect>,
    /// Seconds.
    pub time: f64,
    /// Bytes moved out.
    pub moved_out: f64,
    /// Bytes moved in.
    pub moved_in: f64,
    /// Bytes that had to be written for that.
    pub written: f64,
    /// Processor seconds used.
    pub used: f64,
    /// The most ranks in RAM at once, for the core.
    pub resident: u32,
    /// Ranks paged out.
    pub evictions: u64,
    /// The most times that one rank was for which nobody waited by telling.
    pub most_evictions: u32,
    /// Evictions that lost the race against a wake-up.
    pub lost: u64,
    /// Ranks paged out that tell, while they computed.
    pub preemptions: u64,
    /// Orders denied.
    pub denied: u64,
    /// Restores of ranks that had nothing to run for.
    pub needless: u64,
    /// Ranks made to stand still.
    pub holds: u64,
    /// Ranks stopped, to be started again.
    pub stops: u64,
    /// Orders to page parts of a rank out.
    pub shrinks: u64,
    /// Ranks said to need more than there is.
    pub overdrafts: u64,
    /// Ranks that ended for holding more than they may.
    pub over_limit: u64,
    /// The most bytes of RAM used at once.
    pub peak: f64,
    /// The most ranks brought in while one that was ready waited.
    pub longest_wait: u64,
    /// Looks.
    pub looks: u64,
    /// Events handled, and seconds of a real clock that took, if nothing was checked after each.
    pub events: u64,
    /// See `events`.
    pub core_time: f64,
    /// Ranks in the order they were started; one that was stopped is there again.
    pub order: Vec<Rank>,
}

/// A small generator (xorshift64*): the simulator needs speed and repeatability, not quality.
#[derive(Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`; always 0 without a seed.
    pub fn below(&mut self, bound: u64) -> u64 {
        if self.0 == 0 || bound == 0 {
            return 0;
        }
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    /// True `of_256` times of 256; never without a seed.
    pub fn chance(&mut self, of_256: u8) -> bool {
        self.0 != 0 && self.below(256) < u64::from(of_256)
    }
}
