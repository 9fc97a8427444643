//! What a rank does, for people who look: the lives of the core in fewer words.

use serde::{Deserialize, Serialize};

use super::rank::{Doing, Life};
use super::{Core, Effect, Event, Rank};

/// What a rank that lives does, as far as the core knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Its process is being started.
    Starting,
    /// It computes.
    Running,
    /// In RAM; it waits for others, or for memory.
    Waiting,
    /// In RAM; it was made to stand still.
    Held,
    /// Its memory, or a part of it, is on its way to scratch.
    Evicting,
    /// Out of RAM, wholly or in part: it cannot run as it is.
    Out,
    /// Its memory comes back.
    Restoring,
}

impl Activity {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Starting,
        Self::Running,
        Self::Waiting,
        Self::Held,
        Self::Evicting,
        Self::Out,
        Self::Restoring,
    ];
}

impl Core {
    /// What a rank does; none of one that does not live.
    #[must_use]
    pub fn activity(&self, rank: Rank) -> Option<Activity> {
        let state = self.ranks.get(rank as usize)?;
        Some(match state.life {
            Life::Unborn | Life::Gone => return None,
            Life::Starting => Activity::Starting,
            Life::Resident if state.doing == Doing::Runs => Activity::Running,
            Life::Resident => Activity::Waiting,
            Life::Holding | Life::Resuming => Activity::Running,
            Life::Held | Life::Stopping => Activity::Held,
            Life::Evicting | Life::Shrinking => Activity::Evicting,
            Life::Out => Activity::Out,
            Life::Restoring => Activity::Restoring,
        })
    }
}

impl Event {
    /// The rank that it is about.
    #[must_use]
    pub const fn rank(self) -> Option<Rank> {
        match self {
            Self::Can { rank, .. }
            | Self::Interrupted { rank }
            | Self::Done { rank, .. }
            | Self::Denied { rank, .. }
            | Self::Granted { rank, .. }
            | Self::Freed { rank, .. }
            | Self::Running { rank }
            | Self::Blocked { rank, .. }
            | Self::EvictedItself { rank, .. }
            | Self::Runnable { rank }
            | Self::NeedsMemory { rank, .. }
            | Self::Lacks { rank, .. }
            | Self::Chaos { rank }
            | Self::Ending { rank }
            | Self::Sample { rank, .. }
            | Self::Given { rank, .. }
            | Self::Exited { rank, .. } => Some(rank),
            Self::Pool { .. }
            | Self::Looked { .. }
            | Self::LimitChanged { .. }
            | Self::Halt
            | Self::Came { .. }
            | Self::Settled => None,
        }
    }
}

impl Effect {
    /// The rank that it is about.
    #[must_use]
    pub const fn rank(self) -> Option<Rank> {
        match self {
            Self::Start { rank, .. }
            | Self::Evict { rank, .. }
            | Self::Restore { rank, .. }
            | Self::Grant { rank, .. }
            | Self::Hold { rank }
            | Self::Resume { rank }
            | Self::Shrink { rank, .. }
            | Self::Stop { rank, .. }
            | Self::OverLimit { rank, .. }
            | Self::Overdraft { rank, .. }
            | Self::Crowded { rank, .. } => Some(rank),
            Self::Fail(_) | Self::Finish => None,
        }
    }
}
