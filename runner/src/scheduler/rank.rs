//! What the scheduler knows of one rank.

use super::Wait;

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Unborn,
    /// A spawn was ordered.
    Spawning,
    Resident,
    /// An eviction was ordered. Still counts as resident.
    Evicting,
    /// Out of RAM, wholly or in part: it cannot run as it is.
    Evicted,
    /// A restore was ordered. Counts as resident already.
    Restoring,
    Exited,
}

/// What a rank does, or will do once it is in RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Runs. Of an evicted rank: what it waited for is there.
    Runs,
    Waits(Wait),
    /// Waits for so many bytes on top of what it holds or held.
    NeedsMemory(u64),
}

/// An order that took memory and that may be denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending {
    /// The pool's word on which the order was based.
    pub pool_round: u64,
}

/// Everything about one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RankState {
    pub life: Life,
    pub doing: Doing,
    /// It can be paged.
    pub attached: bool,
    /// How far its next run is, as of when it was last looked at; see `victim.rs`.
    pub distance: u8,
    /// How often in a row it refused to be evicted.
    pub refusals: u8,
    /// Not to be asked to leave before this event.
    pub refused_until: Option<u64>,
    /// Bytes of the budget it holds.
    pub granted: u64,
    /// Of an evicted rank: bytes of the budget it must hold to run.
    pub held: u64,
    /// Of one being evicted: what it will still hold, bytes.
    pub keep: u64,
    /// Of one being evicted: it was out in part before.
    pub was_out: bool,
    /// The event since which it waits: blocked, in need of memory, or ready.
    pub since: u64,
    /// How many ranks had been brought in when it became ready.
    pub turn: u64,
    /// How many restores were ordered.
    pub orders: u32,
    pub pending: Option<Pending>,
}

impl RankState {
    pub const UNBORN: Self = Self {
        life: Life::Unborn,
        doing: Doing::Runs,
        attached: false,
        distance: 0,
        refusals: 0,
        refused_until: None,
        granted: 0,
        held: 0,
        keep: 0,
        was_out: false,
        since: 0,
        turn: 0,
        orders: 0,
        pending: None,
    };

    /// In RAM, or coming or going.
    pub fn is_resident(&self) -> bool {
        matches!(self.life, Life::Spawning | Life::Resident | Life::Evicting | Life::Restoring)
    }

    /// It takes one of the places for residents: so does one that is out but for a part.
    pub fn has_place(&self) -> bool {
        self.is_resident() || (self.life == Life::Evicted && self.granted > 0)
    }

    /// Something will be heard of it without any order.
    pub fn is_active(&self) -> bool {
        match self.life {
            Life::Spawning | Life::Evicting | Life::Restoring => true,
            Life::Resident => self.doing == Doing::Runs || self.pending.is_some(),
            Life::Unborn | Life::Evicted | Life::Exited => false,
        }
    }

    /// A resident that waits for memory which has not been ordered yet: how much.
    pub fn need(&self) -> Option<u64> {
        match self.doing {
            Doing::NeedsMemory(bytes) if self.life == Life::Resident && self.pending.is_none() => Some(bytes),
            _ => None,
        }
    }

    /// A rank that would run if it were in RAM, and is not wholly on its way: all the bytes it must hold for that.
    pub fn comeback(&self) -> Option<u64> {
        let all = match self.doing {
            Doing::Runs => self.held,
            Doing::NeedsMemory(bytes) => self.held.saturating_add(bytes),
            Doing::Waits(_) => return None,
        };
        match self.life {
            Life::Evicted => Some(all),
            Life::Restoring if self.granted < all => Some(all),
            _ => None,
        }
    }

    /// What it lacks for that, bytes.
    pub fn lacks(&self) -> Option<u64> {
        self.comeback().map(|all| all.saturating_sub(self.granted))
    }

    /// Of an evicted rank: bytes to be read before it can run, at most.
    pub fn on_scratch(&self) -> u64 {
        self.held.saturating_sub(self.granted)
    }

    /// It may be asked to leave: it waits in RAM, or is out but for a part.
    pub fn is_evictable(&self) -> bool {
        let waits = match self.life {
            Life::Resident => self.doing != Doing::Runs,
            Life::Evicted => self.granted > 0,
            _ => false,
        };
        waits && self.attached && self.pending.is_none() && self.refused_until.is_none()
    }

    /// An eviction is ordered, down to `keep` bytes.
    pub fn leave(&mut self, keep: u64) {
        self.was_out = self.life == Life::Evicted;
        self.life = Life::Evicting;
        self.keep = keep;
    }

    /// An eviction did not happen: it is where it was.
    pub fn stay(&mut self) {
        self.life = if self.was_out { Life::Evicted } else { Life::Resident };
        self.keep = 0;
    }

    /// It could not leave: it stays, and is left alone for a while, each time longer. What holds it (a peer that
    /// reads its memory) passes with the events of others.
    pub fn refuse(&mut self, now: u64) {
        self.stay();
        self.refused_until = Some(now + (8 << self.refusals));
        self.refusals = (self.refusals + 1).min(12);
    }
}
