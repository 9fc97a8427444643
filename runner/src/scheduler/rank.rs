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

/// Bytes that an order took and that may be denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending {
    pub bytes: u64,
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
    /// Bytes it will hold once restored.
    pub held: u64,
    /// The event since which it waits: blocked, in need of memory, or ready.
    pub since: u64,
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
        since: 0,
        pending: None,
    };

    /// In RAM, or coming or going.
    pub fn is_resident(&self) -> bool {
        matches!(self.life, Life::Spawning | Life::Resident | Life::Evicting | Life::Restoring)
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

    /// An evicted rank that would run if it were in RAM: what it needs for that.
    pub fn comeback(&self) -> Option<u64> {
        match self.doing {
            Doing::Runs if self.life == Life::Evicted => Some(self.held),
            Doing::NeedsMemory(bytes) if self.life == Life::Evicted => Some(self.held.saturating_add(bytes)),
            _ => None,
        }
    }

    /// It may be asked to leave.
    pub fn is_evictable(&self) -> bool {
        self.life == Life::Resident
            && self.attached
            && self.doing != Doing::Runs
            && self.pending.is_none()
            && self.refused_until.is_none()
    }

    /// It could not leave: it stays, and is left alone for a while, each time longer. What holds it (a peer that
    /// reads its memory) passes with the events of others.
    pub fn refuse(&mut self, now: u64) {
        self.life = Life::Resident;
        self.refused_until = Some(now + (8 << self.refusals));
        self.refusals = (self.refusals + 1).min(12);
    }
}
