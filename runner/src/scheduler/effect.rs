//! What the scheduler wants done.

use super::Rank;
use crate::display::units::Bytes;

/// An order to the shell. Each takes its bytes out of the shared pool *before* the next event is handled; where the
/// pool no longer has them the order is dropped (a restore: takes what there is) and answered with
/// [`super::Event::Denied`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start the process with so many bytes set aside.
    Spawn {
        /// The rank.
        rank: Rank,
        /// Bytes to take for it.
        reserve: u64,
    },
    /// Move a blocked rank, or one that is out in part, out of RAM until it holds `keep` bytes. Answered by `Evicted`,
    /// `EvictLost`, `EvictRefused` or `DiskFull`; `Granted` tells what it has given back meanwhile.
    Evict {
        /// The rank.
        rank: Rank,
        /// Bytes of the budget that it keeps; 0: it leaves altogether.
        keep: u64,
    },
    /// Bring a rank back, or give one that is on its way back more memory to go on with. It runs once it holds `all`;
    /// with less it comes as far as that. Answered by `Restored` or `RestoredPartly`, and by `Denied` if the pool had less.
    Restore {
        /// The rank.
        rank: Rank,
        /// Bytes to take for it, on top of what it holds.
        bytes: u64,
        /// Bytes it must hold to run: what it held and what it asked for on top.
        all: u64,
        /// Take them even if the pool has less: nobody else holds anything.
        overdraft: bool,
    },
    /// Give a resident what it asked for and let it run. Answered by `Running` (or any later state) or `Denied`.
    Grant {
        /// The rank.
        rank: Rank,
        /// Bytes to take for it, on top of what it holds.
        bytes: u64,
        /// Take them even if the pool has less: nobody else holds anything.
        overdraft: bool,
    },
    /// End the job. Nothing follows.
    Fail(Failure),
    /// Every rank has ended well. Nothing follows.
    Finish,
}

/// Why a job cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A rank of a communicating job failed.
    #[error("rank {rank} failed")]
    RankFailed {
        /// The rank.
        rank: Rank,
    },
    /// A process could not be started.
    #[error("rank {rank} could not be started")]
    SpawnFailed {
        /// The rank.
        rank: Rank,
    },
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
    /// Scratch is full and no resident can go on.
    #[error("scratch is full: rank {rank} needs {} more and no resident rank can go on", Bytes(*need))]
    ScratchFull {
        /// The rank that could not be evicted, or else the one that waits.
        rank: Rank,
        /// Bytes that found no room.
        need: u64,
    },
    /// Memory is held by ranks that wait but cannot be paged.
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
