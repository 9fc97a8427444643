//! What the core is told.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Rank;

/// What can be done with a rank, and what it does by itself. That may change while it lives ([`Event::Can`]):
/// a script becomes a native rank, a tracer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Can {
    /// It asks before it takes memory (of the pool). What it holds besides is measured.
    pub asks: bool,
    /// It tells when it waits, and for what.
    pub tells: bool,
    /// It can be paged out when it waits; one that does not tell, at any moment.
    pub evict: bool,
    /// One that tells can be paged out while it computes as well, as a whole.
    pub preempt: bool,
    /// When one that asks leaves, what it did not ask for does, too.
    pub whole: bool,
    /// Parts of it can be paged out while it runs.
    pub shrink: bool,
    /// It can be made to stand still.
    pub hold: bool,
    /// It may be ended to make room, and begun again later.
    pub rerun: bool,
}

impl Can {
    /// Nothing.
    pub const NONE: Self = Self {
        asks: false,
        tells: false,
        evict: false,
        preempt: false,
        whole: false,
        shrink: false,
        hold: false,
        rerun: false,
    };
    /// A native rank.
    pub const NATIVE: Self = Self { asks: true, tells: true, evict: true, whole: true, ..Self::NONE };
    /// Any program that may be traced.
    pub const PROGRAM: Self = Self { evict: true, whole: true, shrink: true, hold: true, ..Self::NONE };
}

/// What a blocked rank waits for, as far as it tells how long that may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A message, from one rank or from any.
    Message {
        /// The rank it must come from; `None` for any source.
        from: Option<Rank>,
    },
    /// A collective operation.
    Collective {
        /// How many ranks had not arrived when this one blocked.
        missing: u32,
    },
    /// Something the core cannot judge. Nobody is called deadlocked while a rank waits for this.
    Other,
}

/// Bytes of a rank, by how they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// It asked for them.
    pub asked: u64,
    /// They were measured.
    pub other: u64,
}

impl Memory {
    /// All of them.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.asked.saturating_add(self.other)
    }
}

/// How an order ended. Each order is answered by one of these, or by [`Event::Exited`], or by
/// [`Event::Denied`] where the pool no longer had what it takes (a restore of one that asks goes as far as it
/// can, and is answered besides).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// `Start`: the process was started.
    Started,
    /// `Start`: it could not be, and is not tried again.
    NotStarted,
    /// `Evict`: the rank has left RAM, as far as was ordered or was possible.
    Evicted {
        /// What it still holds.
        left: Memory,
        /// What it must hold to run again.
        all: Memory,
    },
    /// `Evict`: the rank was woken before its eviction could begin, and runs.
    Lost,
    /// `Evict`, `Shrink`: the rank cannot be paged; it goes on as before.
    Refused {
        /// It never can be (another user's process, no privilege for parts); else it may be in a while.
        lasting: bool,
    },
    /// `Evict`, `Shrink`: scratch is full.
    Full {
        /// Bytes that found no room.
        need: u64,
        /// After an `Evict` of one that is out in part: what it still holds, and what it must hold to run.
        /// Else it goes on as before.
        part: Option<(Memory, Memory)>,
    },
    /// `Restore`: the rank is back in RAM and runs (or says at once that it waits).
    Restored,
    /// `Restore`: a part of the rank is back, as much as it was given memory for.
    RestoredPartly {
        /// Bytes of the budget that it holds.
        asked: u64,
        /// How many `Restore` orders had been carried out for it by then, in the whole job. If another has
        /// been given since, it is on its way again, and this is overtaken.
        orders: u32,
    },
    /// `Hold`: it stands still, with all its memory.
    Held,
    /// `Hold`: it cannot be made to stand still; it runs, and is not asked again.
    NotHeld,
    /// `Continue`: it runs again.
    Resumed,
    /// `Shrink`: a part of it is out, and it runs on.
    Shrunk {
        /// Bytes it still holds, measured.
        left: u64,
    },
}

/// What follows the end of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Over,
    /// It was ended by [`super::Effect::Stop`], and is begun again. One that ended before the order reached
    /// it is over.
    Stopped,
    /// It failed, and is begun again.
    Retry {
        /// Bytes that it needs at least, for all we know.
        least: u64,
    },
}

/// Something that happened. Events about one rank come in the order they happened; those that have been
/// overtaken (a wake-up of a rank that has ended) are legal and change nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The truth of the shared pool. Sent before every batch of other events, read after they were taken off
    /// their queue and after all orders before have been carried out: whatever the events of the batch tell
    /// of it is already in it.
    Pool {
        /// Bytes that ranks were given.
        asked: u64,
        /// Bytes of messages in RAM.
        messages: u64,
        /// Bytes charged for what is measured.
        measured: u64,
        /// Bytes charged for its growth ([`super::Core::kept_free`]).
        kept: u64,
    },
    /// What a rank holds that it did not ask for, measured.
    Sample {
        /// The rank.
        rank: Rank,
        /// Bytes of RAM, all its processes together.
        bytes: u64,
        /// Of these, bytes that cannot be paged out (shared, locked, of files).
        fixed: u64,
    },
    /// A look at memory is complete: all its samples have been told. Nothing is decided between them. The
    /// first look starts the job.
    Looked {
        /// Time since the look before.
        elapsed: Duration,
        /// Processors that the ranks used since, or waited for while others used them, on average (1.5: one
        /// and a half of them).
        busy: f64,
        /// Processors that nobody uses, on average, of those that ranks may use.
        idle: f64,
        /// As measured lately: the time from an order to evict until the first memory is free.
        reaction: Duration,
    },
    /// What can be done with the rank, from now on.
    Can {
        /// The rank.
        rank: Rank,
        /// What.
        can: Can,
    },
    /// It has begun to ask and tell while it is on its way out, ordered as a stranger: it leaves as it is.
    Interrupted {
        /// The rank.
        rank: Rank,
    },
    /// An order has ended.
    Done {
        /// The rank.
        rank: Rank,
        /// How.
        outcome: Outcome,
    },
    /// The pool no longer had all the bytes of a start, restore or grant.
    Denied {
        /// The rank.
        rank: Rank,
        /// Bytes that were not there.
        bytes: u64,
    },
    /// What the rank asked for has changed by itself. Of one that is being evicted: it has given some back
    /// already.
    Granted {
        /// The rank.
        rank: Rank,
        /// Bytes it holds of the pool now.
        bytes: u64,
    },
    /// Of one that is being evicted or shrunk: what is measured of it has become less.
    Freed {
        /// The rank.
        rank: Rank,
        /// Bytes that have left so far.
        bytes: u64,
    },
    /// A resident was seen to run.
    Running {
        /// The rank.
        rank: Rank,
    },
    /// A resident was seen to wait.
    Blocked {
        /// The rank.
        rank: Rank,
        /// For what.
        wait: Wait,
    },
    /// A resident waits, and is out in part already: what it has in RAM is not enough for it to go on after
    /// this wait.
    EvictedItself {
        /// The rank.
        rank: Rank,
        /// For what; `None` if that is there already.
        wait: Option<Wait>,
        /// Bytes of the pool that it holds.
        asked: u64,
        /// Bytes it must hold to run again.
        all: u64,
    },
    /// What an evicted rank (or one being evicted) waits for is there.
    Runnable {
        /// The rank.
        rank: Rank,
    },
    /// The rank is blocked until it is granted memory, in RAM or out of it.
    NeedsMemory {
        /// The rank.
        rank: Rank,
        /// Bytes on top of what it holds, or held when it was evicted.
        bytes: u64,
    },
    /// Threads of ranks, beside those that wait as ranks, wait for memory. They take it when it is free, and
    /// run on.
    Lacks {
        /// The one of which that has changed.
        rank: Rank,
        /// Bytes, of all ranks together.
        bytes: u64,
    },
    /// It has done all that it does and its process is about to end, which takes the kernel tens of
    /// milliseconds. It keeps its memory until then, but takes no place of another.
    Ending {
        /// The rank.
        rank: Rank,
    },
    /// All processes of the rank have ended, and everything they held is free. Legal at any moment; of one
    /// that was never begun: it need not be (it was done in an earlier job, or is given up).
    Exited {
        /// The rank.
        rank: Rank,
        /// The most it ever held, bytes, as far as it is known; else 0.
        peak: u64,
        /// Whether it is begun again.
        next: Next,
    },
    /// Page this rank out if it can be, whether or not anybody needs its memory, and bring it back when it
    /// may run (`--chaos`).
    Chaos {
        /// The rank.
        rank: Rank,
    },
    /// So many ranks are known now, those before included.
    Came {
        /// How many: their numbers are below that.
        ranks: u32,
        /// Whether others may come.
        more: bool,
    },
    /// A rank that was over here ([`Core::shared_out`](super::Core::shared_out)) is to be run here after all.
    Given {
        /// The rank.
        rank: Rank,
        /// Its declared size, in whatever unit; 0: it has none.
        declared: u64,
        /// What it is known to need, bytes; 0: that is not known.
        known: u64,
    },
    /// Nobody else is begun, nor begun again: who was not is over.
    Halt,
    /// The budget was changed. The pool has been changed before, so the last [`Event::Pool`] tells.
    LimitChanged {
        /// The new budget, bytes.
        budget: u64,
    },
    /// The shell has looked at every rank's state and has nothing more to tell: nothing has happened for tens
    /// of milliseconds. Ranks wake each other without the master, so what it knows is a little old; what
    /// cannot be taken back waits for this.
    Settled,
}
