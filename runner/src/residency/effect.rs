//! What the core wants done.

use super::Rank;
use crate::units::Bytes;

/// An order to the shell, or something it has to tell. Orders are carried out one after the other, before the
/// next event is handled; while one is not answered ([`super::Outcome`]) nothing else is ordered of that
/// rank, but for more memory for one that is on its way back. What an order takes is taken out of the pool at
/// once, or it is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Start the process.
    Start {
        /// The rank.
        rank: Rank,
        /// Bytes to take for it if it asks; else what it is expected to need, and nothing is taken.
        reserve: u64,
    },
    /// Move a rank out of RAM. [`super::Event::Granted`] and [`super::Event::Freed`] tell what it has given
    /// back meanwhile.
    Evict {
        /// The rank.
        rank: Rank,
        /// Bytes of the pool that it keeps. 0: it leaves altogether.
        keep: u64,
        /// Also if it computes. Else that one that tells has been woken since is answered by
        /// [`super::Outcome::Lost`].
        preempt: bool,
    },
    /// Bring a rank back, or give one that is on its way back more memory. It runs once it holds `all` of
    /// what it asked for.
    Restore {
        /// The rank.
        rank: Rank,
        /// Bytes to take for it, on top of what it holds.
        bytes: u64,
        /// Bytes it must hold to run.
        all: u64,
        /// Take them even if there are less: nobody can make room for it.
        overdraft: bool,
    },
    /// Give a resident what it asked for and let it run. Answered by [`super::Event::Running`], and what it
    /// does then.
    Grant {
        /// The rank.
        rank: Rank,
        /// Bytes to take for it, on top of what it holds.
        bytes: u64,
        /// Take them even if there are less.
        overdraft: bool,
    },
    /// Make the rank stand still, with all its memory.
    Hold {
        /// The rank.
        rank: Rank,
    },
    /// Let a held rank run.
    Resume {
        /// The rank.
        rank: Rank,
    },
    /// Page parts of a rank out until it holds `target` bytes, and let it run on, with what it touches coming
    /// back.
    Shrink {
        /// The rank.
        rank: Rank,
        /// Bytes of RAM it may hold afterwards.
        target: u64,
    },
    /// Kill the rank: nobody can be paged or held. It is started again with more. Answered by `Exited`.
    Stop {
        /// The rank.
        rank: Rank,
        /// Bytes it held.
        used: u64,
    },
    /// Kill the rank for good: it holds more than it may. Answered by `Exited`.
    OverLimit {
        /// The rank.
        rank: Rank,
        /// Bytes it holds.
        bytes: u64,
        /// Bytes it may hold: the limit of a rank, or, enforced, what the others leave of the budget.
        limit: u64,
    },
    /// To be told, once for each rank: because of it more is used than there is. Not answered.
    Overdraft {
        /// The rank.
        rank: Rank,
        /// Bytes it needs.
        bytes: u64,
        /// Bytes of others, which cannot leave; 0 if it needs more than the budget by itself.
        beside: u64,
    },
    /// To be told: it comes in although all places are taken, by ranks that cannot be paged. Not answered.
    Crowded {
        /// The rank.
        rank: Rank,
        /// How many there are now.
        resident: u32,
    },
    /// End the job. Nothing follows.
    Fail(Failure),
    /// Every rank has ended. Nothing follows.
    Finish,
}

/// Why a job cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A single rank needs more than the budget and the limit is enforced.
    #[error(
        "rank {rank} needs {} at once; the budget is {} ({} of it held by messages), and --enforce permits no more",
        Bytes(*need), Bytes(*budget), Bytes(*messages)
    )]
    RankTooLarge {
        /// The rank.
        rank: Rank,
        /// All it needs at once, bytes.
        need: u64,
        /// The budget, bytes.
        budget: u64,
        /// Bytes of messages in RAM.
        messages: u64,
    },
    /// A rank wants more than a rank may hold.
    #[error("rank {rank} needs {}; a rank may hold {} (--rank-memory)", Bytes(*need), Bytes(*limit))]
    RankOverLimit {
        /// The rank.
        rank: Rank,
        /// All it needs, bytes.
        need: u64,
        /// What it may hold, bytes.
        limit: u64,
    },
    /// Scratch is full and nobody in RAM can go on.
    #[error("scratch is full: rank {rank} needs {} more and no resident rank can go on", Bytes(*need))]
    ScratchFull {
        /// The rank that could not be evicted, or else the one that waits.
        rank: Rank,
        /// Bytes that found no room.
        need: u64,
    },
    /// Memory, or all places, are held by ranks that wait but cannot be paged.
    #[error(
        "rank {rank} needs {}, but {} are held by {holders} ranks that wait and cannot be paged",
        Bytes(*need), Bytes(*held)
    )]
    Unpageable {
        /// The rank that waits for memory or a place.
        rank: Rank,
        /// What it needs, bytes.
        need: u64,
        /// Bytes others hold.
        held: u64,
        /// How many others hold memory or a place.
        holders: u32,
    },
    /// Every rank waits for another.
    #[error("deadlock: {waiting} ranks wait and nobody can wake another")]
    Deadlock {
        /// How many ranks wait.
        waiting: u32,
    },
}
