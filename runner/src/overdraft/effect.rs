//! What the overdraft core wants done.

use crate::scheduler::Rank;

/// An order to the shell, or something it has to tell. Each order is answered by exactly one of the events named, or by
/// [`super::Event::Exited`] if the rank ended first; until then nothing else is ordered of that rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Start the rank. Answered by `Spawned` or `SpawnFailed`.
    Admit {
        /// The rank.
        rank: Rank,
        /// Bytes it is expected to need. Nothing is set aside physically.
        reserve: u64,
    },
    /// Stop the rank where it is and page it out. Answered by `Evicted`, `EvictRefused` or `DiskFull`;
    /// `EvictProgress` tells meanwhile what has become free.
    Evict {
        /// The rank.
        rank: Rank,
    },
    /// Bring the rank back and let it run. Answered by `Restored`. That it cannot be brought back is for the shell to
    /// deal with: it ends the job.
    Restore {
        /// The rank.
        rank: Rank,
    },
    /// Make the rank stand still, with all its memory. Answered by `Held` or `HoldRefused`.
    Hold {
        /// The rank.
        rank: Rank,
    },
    /// Let a held rank run. Answered by `Continued`.
    Continue {
        /// The rank.
        rank: Rank,
    },
    /// The rank does not fit even alone in RAM: page parts of it out until it holds `target` bytes, and let it run on,
    /// with what it touches coming back. It stands still while its parts leave. Answered by `Shrunk`, `ShrinkRefused` or
    /// `DiskFull`, and ordered again as it grows.
    Shrink {
        /// The rank.
        rank: Rank,
        /// Bytes of RAM it may hold afterwards.
        target: u64,
    },
    /// Nothing can be paged, and holding does not help: kill the rank, the youngest. It will be admitted again with
    /// more. Answered by `Exited` (with `stopped` true if this killed it).
    Stop {
        /// The rank.
        rank: Rank,
        /// Bytes it held.
        used: u64,
    },
    /// The rank holds more than it may: kill it, "memory limit exceeded". Answered by `Exited` (with `stopped` false).
    OverLimit {
        /// The rank.
        rank: Rank,
        /// Bytes it holds.
        bytes: u64,
        /// Bytes it may hold: the limit of a rank, or, enforced, what the others leave of the budget.
        limit: u64,
    },
    /// To be told, once for each rank: it needs more than there is and cannot be paged in parts, so the budget is exceeded
    /// as long as it runs. Not answered.
    Overdraft {
        /// The rank.
        rank: Rank,
        /// Bytes it holds.
        bytes: u64,
        /// Bytes of other ranks, which cannot be paged; 0 if it needs more than the budget all by itself.
        beside: u64,
    },
}
