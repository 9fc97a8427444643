//! The synthetic jobs, and what may go wrong while they run.

use crate::scheduler::{Effect, Rank};

/// What ranks do at the end of each phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Nothing: independent partitions.
    Nothing,
    /// All meet at a barrier.
    Barrier,
    /// Each sends to the next rank and waits for the one before it.
    Ring,
    /// Each waits for the rank before it, then sends to the next: one runs at a time. Rank 0 begins.
    Token,
    /// All wait for a message that nobody sends: a job that is wrong.
    Hang,
}

/// A bulk-synchronous job: `np` ranks of some size, for some phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Number of ranks.
    pub np: u32,
    /// Number of phases, at least 1.
    pub phases: u32,
    /// Bytes a rank holds in its first phase.
    pub bytes: u64,
    /// Bytes by which a rank's size varies with its number, from 0 to this.
    pub spread: u64,
    /// Bytes it grows by in each later phase.
    pub growth: u64,
    /// The least it asks the pool for at once, bytes; at least 1.
    pub chunk: u64,
    /// Whether it gives back half of what it holds before it waits.
    pub shrinks: bool,
    /// What happens between phases.
    pub exchange: Exchange,
    /// Bytes of each message.
    pub message: u64,
    /// A rank that is larger than the others, and its size in bytes.
    pub huge: Option<(Rank, u64)>,
    /// A rank that fails, and in which phase.
    pub fails: Option<(Rank, u32)>,
    /// Whether ranks can be paged. Those that cannot never say what they wait for, so let them exchange nothing.
    pub pageable: bool,
}

impl Job {
    /// `np` ranks of `bytes` each that meet at a barrier after each of `phases` phases.
    #[must_use]
    pub fn sweep(np: u32, bytes: u64, phases: u32) -> Self {
        Self {
            np,
            phases,
            bytes,
            spread: 0,
            growth: 0,
            chunk: bytes.max(1),
            shrinks: false,
            exchange: Exchange::Barrier,
            message: 0,
            huge: None,
            fails: None,
            pageable: true,
        }
    }

    /// What a rank holds in a phase, bytes.
    #[must_use]
    pub fn size(&self, rank: Rank, phase: u32) -> u64 {
        match self.huge {
            Some((huge, bytes)) if huge == rank => bytes,
            _ => {
                // Any fixed scatter will do.
                let scatter = u64::from(rank).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                self.bytes + scatter % (self.spread + 1) + self.growth * u64::from(phase)
            }
        }
    }
}

/// What goes wrong, and how often. All is drawn from `seed`: the same numbers make the same run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chaos {
    /// The seed of everything drawn. 0: nothing is drawn, things happen in the order they were begun.
    pub seed: u64,
    /// Up to so many things happen before the scheduler hears of them; makes it lose races.
    pub lag: u32,
    /// Of 256 evictions, so many are refused.
    pub refused: u8,
    /// Of 256 orders that take memory, so many are denied although there is enough.
    pub denied: u8,
    /// Of 256 times that a resident is woken, so many are never reported.
    pub unseen: u8,
    /// Of 256 times that a resident waits, so many find it out in part and not able to go on.
    pub leaves: u8,
    /// Of 256 batches, so many ask for the eviction of any rank.
    pub unasked: u8,
    /// Bytes of scratch; `None` for any number.
    pub scratch: Option<u64>,
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// [`Effect::Finish`] or [`Effect::Fail`].
    pub end: Effect,
    /// Bytes moved out.
    pub evicted_bytes: u64,
    /// Bytes moved in.
    pub restored_bytes: u64,
    /// Ranks moved out.
    pub evictions: u64,
    /// Evictions that lost the race against a wake-up.
    pub lost: u64,
    /// Orders denied.
    pub denied: u64,
    /// Restores of ranks that had nothing to run for.
    pub needless: u64,
    /// Times that a rank was given more than there was.
    pub overdrafts: u64,
    /// Events handled.
    pub events: u64,
    /// The most ranks brought in while one that was ready waited.
    pub longest_wait: u64,
    /// The most bytes held at once.
    pub peak: u64,
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
