//! What the core knows of one rank.

use super::{Can, Memory, Rank, Wait};

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// Not started, or stopped and to be started again.
    Unborn,
    /// A start was ordered.
    Starting,
    /// In RAM, whatever it does.
    Resident,
    /// A hold was ordered.
    Holding,
    Held,
    /// A held rank was told to go on.
    Resuming,
    /// An eviction was ordered. It is still there.
    Evicting,
    /// Out of RAM, wholly or in part: it cannot run as it is.
    Out,
    /// A restore was ordered. Counts as being there with all that was ordered.
    Restoring,
    /// Parts of it are being paged out.
    Shrinking,
    /// It was told to end.
    Stopping,
    Gone,
}

/// What a rank does, or will do once it is in RAM. One that does not tell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Runs,
    Waits(Wait),
    /// Waits for so many bytes on top of what it holds or held.
    Needs(u64),
}

/// Why a rank leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Memory is short, or somebody waits for it.
    Memory,
    /// It is another's turn.
    Turn,
    /// A test of programs.
    Chaos,
}

/// A rank that has not grown for so long does not grow, microseconds.
const GROWS_FOR: u64 = 100_000;

/// What a rank held at most counts for so long as what it will need again, microseconds.
const REMEMBERED: u64 = 30_000_000;

/// One that is out is told so often to leave with what it took again, and is not for this, or a 64th of what
/// it needs.
const IN_VAIN: u8 = 3;
const CRUMBS: u64 = 1 << 20;

/// Everything about one rank. Times are microseconds of the job; 0: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RankState {
    pub life: Life,
    pub doing: Doing,
    pub can: Can,
    /// What it holds in RAM; of one being restored also what is on its way.
    pub holds: Memory,
    /// Of one that is going, out or coming: what it must hold to run.
    pub all: Memory,
    /// Of one being evicted or shrunk: what it will still hold.
    pub keep: Memory,
    /// Of one that is moved, measured bytes that it held when that was ordered.
    pub from: u64,
    /// Of what is measured, bytes that cannot be paged.
    pub fixed: u64,
    /// Bytes it is expected to need.
    pub reserve: u64,
    /// The most that was measured lately, and when.
    pub high: u64,
    pub high_at: u64,
    /// The most it ever held, bytes.
    pub peak: u64,
    /// When it last held more than the time before, if that is not long ago.
    pub grew_at: u64,
    /// Its age: when it was started, counted in starts.
    pub seq: u64,
    /// The event since which it waits, or lacks something.
    pub since: u64,
    /// How many ranks had been brought in when it began to lack something.
    pub turn: u64,
    /// The size that was declared for it, in any unit; 0 if none was.
    pub declared: u64,
    /// By what it stands in line: its declared size, or bytes. 0: by its number.
    pub order: u64,
    /// The event when it was last stopped.
    pub stopped_at: u64,
    /// Not to be asked to leave before this event, or look if it does not tell.
    pub refused_until: u64,
    /// The pool's word on which an order was based that may be denied.
    pub pending: u64,
    /// How many restores were ordered.
    pub orders: u32,
    /// How far its next run is, as of when it was last looked at (`victim.rs`).
    pub distance: u8,
    /// How often in a row it refused to be evicted.
    pub refusals: u8,
    /// How often in a row it was told to leave when it was out but for a part.
    pub in_vain: u8,
    /// What it needs (`reserve`) is known from an earlier run of it.
    pub known: bool,
    /// Unborn, and to be admitted by what is expected of it (`queue.rs`).
    pub queued: bool,
    /// It was begun although it was not expected to fit, and has not come back since for certain.
    pub overbooked: bool,
    /// Of one being evicted: where it goes back to if it cannot be.
    pub was_held: bool,
    pub was_out: bool,
    /// It leaves for no need of memory, and comes back at once.
    pub eager: bool,
    /// It leaves because memory is short.
    pub for_memory: bool,
    /// Parts of it are out while it runs.
    pub partial: bool,
    /// What it was told to hold at most, of what was measured.
    pub target: u64,
    /// It was said that it needs more than there is.
    pub told: bool,
    /// It came in because it was its turn, and has not waited since: it is not interrupted.
    pub has_turn: bool,
    /// It was interrupted, and left as it was: it comes back as a whole or not at all.
    pub interrupted: bool,
    /// Its process is about to end.
    pub ends: bool,
}

impl RankState {
    pub const UNBORN: Self = Self {
        life: Life::Unborn,
        doing: Doing::Runs,
        can: Can::NONE,
        holds: Memory { asked: 0, other: 0 },
        all: Memory { asked: 0, other: 0 },
        keep: Memory { asked: 0, other: 0 },
        from: 0,
        fixed: 0,
        reserve: 0,
        high: 0,
        high_at: 0,
        peak: 0,
        grew_at: 0,
        seq: 0,
        since: 0,
        turn: 0,
        declared: 0,
        order: 0,
        stopped_at: 0,
        refused_until: 0,
        pending: 0,
        orders: 0,
        distance: 0,
        refusals: 0,
        in_vain: 0,
        known: false,
        queued: false,
        overbooked: false,
        was_held: false,
        was_out: false,
        eager: false,
        for_memory: false,
        partial: false,
        target: 0,
        told: false,
        has_turn: false,
        interrupted: false,
        ends: false,
    };

    /// In RAM to stay, as far as we know.
    pub fn is_inside(&self) -> bool {
        use Life::{Held, Holding, Resident, Restoring, Resuming, Shrinking, Starting};
        matches!(self.life, Starting | Resident | Holding | Held | Resuming | Restoring | Shrinking)
    }

    /// It takes one of the places for residents: so does one that is out but for a part that it asked for, or
    /// will be back at once.
    pub fn has_place(&self) -> bool {
        self.is_inside()
            || self.life == Life::Evicting
            || (self.life == Life::Stopping && !self.was_out)
            || (self.life == Life::Out && (self.eager || self.holds.asked > 0))
    }

    /// It computes for all we know, or will without another order.
    pub fn is_active(&self) -> bool {
        match self.life {
            Life::Starting | Life::Resuming | Life::Restoring | Life::Shrinking => true,
            Life::Resident => self.doing == Doing::Runs || self.pending != 0,
            _ => false,
        }
    }

    /// Something will be heard of it without any order.
    pub fn will_be_heard_of(&self) -> bool {
        self.is_active() || matches!(self.life, Life::Evicting | Life::Holding | Life::Stopping)
    }

    /// A resident that waits for memory which has not been ordered yet: how much.
    pub fn need(&self) -> Option<u64> {
        match self.doing {
            Doing::Needs(bytes) if self.life == Life::Resident && self.pending == 0 => Some(bytes),
            _ => None,
        }
    }

    /// Of one that would run if it were in RAM, and is not wholly on its way: all that it must hold for that.
    pub fn all_to_run(&self) -> Option<Memory> {
        let asked = match self.doing {
            Doing::Runs => self.all.asked,
            Doing::Needs(bytes) => self.all.asked.saturating_add(bytes),
            Doing::Waits(_) => return None,
        };
        let on_its_way = self.life == Life::Restoring && self.holds.asked < asked;
        (self.life == Life::Out || on_its_way).then_some(Memory { asked, other: self.all.other })
    }

    /// What it lacks for that, bytes.
    pub fn lacks(&self) -> Option<u64> {
        let all = self.all_to_run()?;
        let asked = all.asked.saturating_sub(self.holds.asked);
        Some(asked.saturating_add(all.other.saturating_sub(self.holds.other)))
    }

    /// Of what it did not ask for, bytes that are out.
    pub fn other_out(&self) -> u64 {
        self.all.other.saturating_sub(self.holds.other)
    }

    /// Of an evicted rank that comes back in parts: bytes to be read before it can run, at most.
    pub fn on_scratch(&self) -> u64 {
        let parts = self.other_out() == 0 && !self.interrupted;
        if parts { self.all.asked.saturating_sub(self.holds.asked) } else { 0 }
    }

    /// Bytes that are free if it leaves when it waits.
    pub fn weight(&self) -> u64 {
        let other = if self.can.whole { self.holds.other.saturating_sub(self.fixed) } else { 0 };
        self.holds.asked.saturating_add(other)
    }

    /// It would run if it were in RAM, and stands in line for that.
    pub fn claims(&self) -> bool {
        self.all_to_run().is_some() && !self.eager
    }

    /// The order of those that lack least.
    pub fn lacks_least(&self, rank: Rank) -> (u64, u64, Rank) {
        (self.lacks().unwrap_or(0), self.since, rank)
    }

    /// It waits for others, and may be asked to leave.
    pub fn is_victim(&self) -> bool {
        self.evictable_waiting() && self.waits()
    }

    /// It refused to leave, and is left alone for now.
    pub fn has_refused(&self) -> bool {
        self.refused_until != 0 && self.life != Life::Gone
    }

    /// It holds more than was expected of it, or was not expected to fit.
    pub fn is_over(&self) -> bool {
        self.holds.other > self.reserve || self.overbooked
    }

    /// It waits for what others do.
    pub fn waits(&self) -> bool {
        matches!(self.doing, Doing::Waits(_)) && !matches!(self.life, Life::Unborn | Life::Gone)
    }

    /// It may be asked to leave when it waits: it tells, and does, in RAM or out but for a part of it.
    pub fn evictable_waiting(&self) -> bool {
        let waits = match self.life {
            Life::Resident => self.doing != Doing::Runs,
            Life::Out => self.holds.asked > 0 && !self.holds_crumbs(),
            _ => false,
        };
        waits && self.can.tells && self.can.evict && self.pending == 0 && self.refused_until == 0
    }

    /// It is out, and other threads of it take some memory again as soon as there is any: they would be paged
    /// out without an end, and those who need more than there is wait for that.
    fn holds_crumbs(&self) -> bool {
        self.in_vain > IN_VAIN && self.holds.asked <= (self.all.asked / 64).max(CRUMBS)
    }

    /// It may be asked to leave at any moment.
    pub fn evictable_running(&self) -> bool {
        matches!(self.life, Life::Resident | Life::Held)
            && self.can.evict
            && !self.can.tells
            && !self.partial
            && self.refused_until == 0
            && self.holds.other > self.fixed
    }

    /// It tells when it waits, computes, and may be interrupted for others.
    pub fn preemptible(&self) -> bool {
        self.life == Life::Resident
            && self.doing == Doing::Runs
            && self.can.tells
            && self.can.preempt
            && !self.ends
            && self.pending == 0
            && self.refused_until == 0
    }

    /// It runs, has grown lately, and can be held.
    pub fn is_growing(&self) -> bool {
        self.life == Life::Resident && self.grew_at != 0 && self.can.hold
    }

    /// It may be ended to make room.
    pub fn is_stoppable(&self) -> bool {
        matches!(self.life, Life::Resident | Life::Held) && !self.can.tells
    }

    /// Bytes that are measured, or on their way in.
    pub fn other(&self) -> u64 {
        match self.life {
            Life::Unborn | Life::Gone => 0,
            _ => self.holds.other,
        }
    }

    /// Bytes that will be free without another order.
    pub fn freeing(&self) -> u64 {
        match self.life {
            Life::Evicting | Life::Shrinking => self.holds.total().saturating_sub(self.keep.total()),
            Life::Stopping => self.holds.total(),
            _ => 0,
        }
    }

    /// Measured bytes it needs, now or later, for all we know.
    pub fn expected(&self) -> u64 {
        self.needs(self.high.max(self.reserve))
    }

    /// Measured bytes it needs before long.
    pub fn soon(&self) -> u64 {
        self.needs(self.reserve / 2)
    }

    /// Measured bytes to be counted for it, if it is in RAM at least so many.
    fn needs(&self, least: u64) -> u64 {
        match self.life {
            Life::Unborn | Life::Gone => 0,
            Life::Evicting | Life::Out if self.eager => self.wants(),
            Life::Evicting | Life::Out | Life::Stopping => self.holds.other,
            _ if self.can.asks => self.holds.other,
            _ => self.holds.other.max(least),
        }
    }

    /// Measured bytes to be counted for one that is out, when it comes back.
    pub fn wants(&self) -> u64 {
        self.all.other.max(if self.can.asks { 0 } else { self.reserve })
    }

    /// Its memory was measured.
    pub fn measured(&mut self, bytes: u64, fixed: u64, clock: u64) {
        if bytes > self.holds.other {
            self.grew_at = clock.max(1);
        } else if clock.saturating_sub(self.grew_at) > GROWS_FOR {
            self.grew_at = 0;
        }
        if bytes >= self.high || clock.saturating_sub(self.high_at) > REMEMBERED {
            (self.high, self.high_at) = (bytes, clock);
        }
        self.holds.other = bytes;
        self.peak = self.peak.max(self.holds.total());
        self.fixed = fixed.min(bytes);
    }

    /// An eviction is ordered, of all that it asked for but `keep` bytes.
    pub fn evict(&mut self, why: Why, keep: u64) {
        (self.was_held, self.was_out) = (self.life == Life::Held, self.life == Life::Out);
        if !self.was_out {
            self.all = self.holds;
        }
        self.in_vain = self.in_vain.saturating_add(u8::from(self.was_out));
        self.life = Life::Evicting;
        self.from = self.holds.other;
        let goes = keep == 0 && (self.can.whole || !self.can.tells);
        self.keep = Memory { asked: keep, other: if goes { self.fixed } else { self.holds.other } };
        (self.eager, self.for_memory) = (why == Why::Chaos && !self.can.tells, why == Why::Memory);
    }

    /// It is told to end.
    pub fn stop(&mut self) {
        self.was_out = self.life == Life::Out;
        self.life = Life::Stopping;
    }

    /// Parts of it are to leave.
    pub fn shrink(&mut self, target: u64) {
        self.life = Life::Shrinking;
        self.target = target;
        self.from = self.holds.other;
        self.keep = Memory { other: target, ..self.holds };
    }

    /// A restore is ordered with so many bytes that it asked for; all that was measured comes back.
    pub fn restore(&mut self, asked: u64, clock: u64) {
        self.life = Life::Restoring;
        // Unless it was out for no need, it comes back because it fits.
        self.overbooked &= !self.for_memory;
        self.from = self.holds.other;
        self.holds.asked = self.holds.asked.saturating_add(asked);
        self.holds.other = self.all.other.max(self.holds.other);
        (self.high, self.high_at, self.grew_at) = (self.holds.other, clock, 0);
        self.orders = self.orders.wrapping_add(1);
    }

    /// An order did not happen: it is where it was.
    pub fn stay(&mut self) {
        self.life = match (self.was_out, self.was_held) {
            (true, _) => Life::Out,
            (_, true) => Life::Held,
            _ => Life::Resident,
        };
        (self.was_held, self.was_out, self.eager) = (false, false, false);
        (self.interrupted, self.in_vain) = (false, 0);
    }

    /// It could not leave: it goes on as before, and is left alone until some event or look (`now` is what it
    /// counts in), each time longer.
    pub fn refuse(&mut self, lasting: bool, now: u64) {
        self.stay();
        self.can.evict &= !lasting;
        let first = if self.can.tells { 8 } else { 4 };
        self.refused_until = if lasting { 0 } else { now + (first << self.refusals) };
        self.refusals = (self.refusals + 1).min(if self.can.tells { 12 } else { 10 });
    }

    /// It is in RAM as a whole and runs.
    pub fn arrive(&mut self) {
        self.life = Life::Resident;
        self.doing = Doing::Runs;
        self.pending = 0;
        (self.was_held, self.was_out, self.eager) = (false, false, false);
        self.interrupted = false;
    }
}

#[cfg(test)]
mod tests {
    /// Bar: 300 bytes for each of a million, with the sets it is in.
    #[test]
    fn little_is_known_of_each() {
        assert!(size_of::<super::RankState>() <= 232, "{}", size_of::<super::RankState>());
    }
}
