//! What the overdraft core is told.

use std::time::Duration;

use crate::scheduler::Rank;

/// Something that happened. Events about one rank come in the order they happened; an event that has been overtaken
/// (an eviction that ends after its rank did) is legal and changes nothing.
///
/// A look at memory is told as one [`Event::Sample`] for each rank in RAM, followed by one [`Event::Looked`]. Nothing is
/// decided between the samples: only `Looked`, and events about single ranks, lead to orders.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The process was started. Answers [`super::Effect::Admit`].
    Spawned {
        /// The rank.
        rank: Rank,
    },
    /// The process could not be started; it is not tried again. Answers [`super::Effect::Admit`].
    SpawnFailed {
        /// The rank.
        rank: Rank,
    },
    /// All processes of the rank have ended, and everything they held is free. Legal at any moment, and answers
    /// whatever was ordered of the rank.
    Exited {
        /// The rank.
        rank: Rank,
        /// The most it ever held in RAM, bytes, as far as it is known; 0 if it is not.
        peak: u64,
        /// It was ended by our own [`super::Effect::Stop`], and is to be admitted again. A rank that ended by itself
        /// before the order reached it, or that was killed for [`super::Effect::OverLimit`], says false.
        stopped: bool,
    },
    /// A process of the rank brought the co-operative runtime after all: the rank is the scheduler's from now on, and is
    /// counted in `others` of [`Event::Looked`]. From the first one on, admission is the scheduler's, so all ranks that
    /// have not been started are given up here.
    Adopted {
        /// The rank.
        rank: Rank,
    },
    /// What a rank holds, measured.
    Sample {
        /// The rank.
        rank: Rank,
        /// Bytes of RAM it holds now, all its processes together.
        bytes: u64,
        /// Of these, bytes that cannot be paged out (shared, pinned, file-backed).
        fixed: u64,
    },
    /// A look at memory is complete: all its samples have been told.
    Looked {
        /// Time since the look before.
        elapsed: Duration,
        /// Bytes of the budget that others hold or ask for: adopted ranks, messages, the master.
        others: u64,
        /// Processors that the ranks used since the look before, on average (1.5: one and a half of them).
        busy: f64,
        /// As measured lately: the time from an order to evict until the first memory is free.
        reaction: Duration,
    },
    /// A part of a rank that is being evicted, or shrunk, has left RAM.
    EvictProgress {
        /// The rank.
        rank: Rank,
        /// Bytes that became free since the order, all together.
        freed: u64,
    },
    /// The rank is out and stands still. Answers [`super::Effect::Evict`].
    Evicted {
        /// The rank.
        rank: Rank,
        /// Bytes on scratch.
        out: u64,
        /// Bytes it still holds in RAM.
        left: u64,
    },
    /// The rank cannot be paged; it goes on as before the order (runs, or is held if it was). Answers
    /// [`super::Effect::Evict`].
    EvictRefused {
        /// The rank.
        rank: Rank,
        /// It will never be possible (pinned memory, another user's process); else it may be in a while.
        lasting: bool,
    },
    /// Parts of the rank cannot be paged out while it runs; it runs on as it is. It may still be possible to page it out as a
    /// whole. Answers [`super::Effect::Shrink`].
    ShrinkRefused {
        /// The rank.
        rank: Rank,
        /// It will never be possible (it takes privileges); else it may be in a while.
        lasting: bool,
    },
    /// Scratch is full. Answers [`super::Effect::Evict`] and [`super::Effect::Shrink`].
    DiskFull {
        /// The rank.
        rank: Rank,
        /// Bytes on scratch. After an `Evict` with 0 the rank goes on as before the order; with more it stands still,
        /// the rest of it in RAM, and a restore brings it back. After a `Shrink` it runs on in any case.
        out: u64,
    },
    /// The rank is back in RAM as a whole and runs. Answers [`super::Effect::Restore`].
    Restored {
        /// The rank.
        rank: Rank,
    },
    /// A part of the rank has been paged out, and it runs on. Answers [`super::Effect::Shrink`].
    Shrunk {
        /// The rank.
        rank: Rank,
        /// Bytes on scratch, all together.
        out: u64,
        /// Bytes it still holds in RAM.
        left: u64,
    },
    /// The rank stands still and keeps its memory. Answers [`super::Effect::Hold`].
    Held {
        /// The rank.
        rank: Rank,
    },
    /// The rank cannot be made to stand still; it runs, and is not asked again. Answers [`super::Effect::Hold`].
    HoldRefused {
        /// The rank.
        rank: Rank,
    },
    /// A held rank runs again. Answers [`super::Effect::Continue`].
    Continued {
        /// The rank.
        rank: Rank,
    },
    /// The budget was changed.
    LimitChanged {
        /// The new budget, bytes.
        budget: u64,
    },
    /// Page this rank out now if it is in RAM and can be paged, and bring it back as soon as it is out: a test of
    /// programs (`--chaos`).
    Chaos {
        /// The rank.
        rank: Rank,
    },
}
