//! What the scheduler is told.

use super::Rank;

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
    /// Something the scheduler cannot judge. Nobody is called deadlocked while a rank waits for this.
    Other,
}

/// Something that happened. Events about one rank come in the order they happened; events that have been overtaken
/// (a wake-up of a rank that exited meanwhile) are legal and change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The process was started.
    Spawned {
        /// The rank.
        rank: Rank,
    },
    /// Somebody else has decided that the rank is started ([`super::Scheduler::of_independent_ranks`]).
    Admitted {
        /// The rank.
        rank: Rank,
    },
    /// The rank was ended to make room, and is to be admitted again some time.
    Returned {
        /// The rank.
        rank: Rank,
    },
    /// The process could not be started.
    SpawnFailed {
        /// The rank.
        rank: Rank,
    },
    /// The rank said hello: it can be paged from now on. Ranks that never do are never evicted.
    Attached {
        /// The rank.
        rank: Rank,
    },
    /// The truth from the shared pool. Sent before every batch of other events, read after they were taken off
    /// their queue and after all effects of the batch before have been carried out: whatever the events of this
    /// batch tell is already in it, so it alone decides what is free.
    Pool {
        /// Budget − granted − messages in RAM, bytes; negative in an overdraft.
        free: i64,
        /// Bytes of messages in RAM.
        messages: u64,
    },
    /// What the rank holds of the budget has changed by itself. Of one that is being evicted: it has given some back
    /// already.
    Granted {
        /// The rank.
        rank: Rank,
        /// All it holds now, bytes.
        bytes: u64,
    },
    /// A resident was seen to be blocked.
    Blocked {
        /// The rank.
        rank: Rank,
        /// What it waits for.
        wait: Wait,
    },
    /// A resident waits, and is out in part already: what it has in RAM is not enough for it to go on after this wait.
    Left {
        /// The rank.
        rank: Rank,
        /// What it waits for; `None` if that is there already.
        wait: Option<Wait>,
        /// Bytes of the budget that it holds.
        granted: u64,
        /// Bytes it must hold to run again.
        held: u64,
    },
    /// A resident was seen to run.
    Running {
        /// The rank.
        rank: Rank,
    },
    /// What an evicted rank (or one being evicted) waits for is there.
    Runnable {
        /// The rank.
        rank: Rank,
    },
    /// The rank is blocked until it is granted memory, whether resident or evicted.
    NeedsMemory {
        /// The rank.
        rank: Rank,
        /// Bytes on top of what it holds (resident) or held when it was evicted.
        bytes: u64,
    },
    /// The rank has left RAM, as far as was ordered or was possible.
    Evicted {
        /// The rank.
        rank: Rank,
        /// Bytes of the budget that it still holds.
        granted: u64,
        /// Bytes it must hold to run again.
        held: u64,
    },
    /// The rank was woken before its eviction could begin, and runs.
    EvictLost {
        /// The rank.
        rank: Rank,
    },
    /// The rank cannot be paged now (its memory is being read by a peer, a thread cannot be stopped). Still blocked.
    EvictRefused {
        /// The rank.
        rank: Rank,
    },
    /// The rank could not be evicted, or not as far as ordered, because scratch is full.
    DiskFull {
        /// The rank.
        rank: Rank,
        /// Bytes that found no room.
        need: u64,
        /// If it is out in part: bytes it still holds, and bytes it must hold to run. Else it holds what it held.
        part: Option<(u64, u64)>,
    },
    /// The rank is back in RAM and runs (or says at once that it is blocked).
    Restored {
        /// The rank.
        rank: Rank,
    },
    /// A part of the rank is back in RAM: as much as it was given memory for.
    RestoredPartly {
        /// The rank.
        rank: Rank,
        /// Bytes of the budget that it holds.
        granted: u64,
        /// How many `Restore` orders had been carried out for it by then, in the whole job. If another has been given since,
        /// it is on its way again, and this is overtaken.
        orders: u32,
    },
    /// The pool no longer had all the bytes of a spawn, restore or grant. Of a spawn or a grant nothing was carried out; a
    /// restore goes as far as it can.
    Denied {
        /// The rank.
        rank: Rank,
        /// Bytes that were not there.
        bytes: u64,
    },
    /// The process has ended, and everything it held is free.
    Exited {
        /// The rank.
        rank: Rank,
        /// Whether it ended well.
        ok: bool,
    },
    /// Page this rank out if it waits, whether or not anybody needs its memory: a test of programs (`--chaos`).
    Chaos {
        /// The rank.
        rank: Rank,
    },
    /// The budget was changed. The shared pool has been changed before, so the last [`Event::Pool`] tells.
    LimitChanged {
        /// The new budget, bytes.
        budget: u64,
    },
    /// The shell has looked at every rank's state and has nothing more to tell: nothing has happened for a while
    /// (tens of milliseconds). Residents wake each other without the master, so what it knows of them is always a
    /// little old; decisions that cannot be taken back (calling a deadlock, giving up because scratch is full)
    /// wait for this.
    Settled,
}
