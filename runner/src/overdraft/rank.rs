//! What the overdraft core knows of one rank.

use std::time::Duration;

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// Not started, or stopped and to be started again.
    Unborn,
    /// An admission was ordered.
    Starting,
    Running,
    /// A hold was ordered.
    Holding,
    Held,
    /// A held rank was told to go on.
    Continuing,
    /// An eviction was ordered.
    Evicting,
    Out,
    /// A restore was ordered. Counts with its whole size already.
    Restoring,
    /// Parts of it are being paged out.
    Shrinking,
    /// It was told to end, for lack of memory or because it exceeded a limit.
    Stopping,
    /// Ended, adopted or given up.
    Gone,
}

/// Why a rank leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Memory is short.
    Memory,
    /// It is another's turn.
    Turn,
    /// A test of programs.
    Chaos,
}

/// A rank that has not grown for so long does not grow.
const GROWS_FOR: Duration = Duration::from_millis(100);

/// What a rank held at most counts for so long as what it will need again.
const REMEMBERED: Duration = Duration::from_secs(30);

/// Everything about one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RankState {
    pub life: Life,
    /// When it was admitted, counted in admissions: its age.
    pub seq: u64,
    /// Bytes it is expected to need.
    pub reserve: u64,
    /// Bytes it holds in RAM, as last measured; of one being restored, all it will hold.
    pub bytes: u64,
    /// Of these, bytes that cannot be paged.
    pub fixed: u64,
    /// Of one that is going or out, all it has, in RAM or on scratch, bytes.
    pub size: u64,
    /// The most it held lately, bytes, and when, as time of the job.
    pub high: u64,
    pub high_at: Duration,
    /// The most it ever held, bytes.
    pub peak: u64,
    /// Of one being evicted or shrunk, bytes it held when that was ordered.
    pub from: u64,
    /// Of one being evicted or shrunk, bytes it will still hold.
    pub keep: u64,
    /// When it last held more than the time before, as time of the job, if that is not long ago.
    pub grew_at: Option<Duration>,
    /// It was begun although it was not expected to fit, and has not come back since for certain.
    pub overbooked: bool,
    /// It was held when its eviction was ordered.
    pub was_held: bool,
    /// It was out when it was told to end.
    pub was_out: bool,
    /// It leaves for no need of memory, and comes back at once.
    pub eager: bool,
    /// It leaves because memory is short.
    pub for_memory: bool,
    /// Parts of it are out while it runs.
    pub partial: bool,
    /// It can never be paged.
    pub unpageable: bool,
    /// It can never be paged in parts.
    pub unshrinkable: bool,
    /// It cannot be held.
    pub unholdable: bool,
    /// How often in a row it refused to be evicted.
    pub refusals: u8,
    /// Not to be asked to leave before this look.
    pub refused_until: Option<u64>,
    /// When it went out, counted in events.
    pub out_since: u64,
    /// It was said that it needs more than there is.
    pub told: bool,
    /// The size that was declared for it, in any unit.
    pub declared: Option<u64>,
    /// When it was last stopped for lack of memory, counted in events.
    pub stopped_at: Option<u64>,
}

impl RankState {
    pub const UNBORN: Self = Self {
        life: Life::Unborn,
        seq: 0,
        reserve: 0,
        bytes: 0,
        fixed: 0,
        size: 0,
        high: 0,
        high_at: Duration::ZERO,
        peak: 0,
        from: 0,
        keep: 0,
        grew_at: None,
        overbooked: false,
        was_held: false,
        was_out: false,
        eager: false,
        for_memory: false,
        partial: false,
        unpageable: false,
        unshrinkable: false,
        unholdable: false,
        refusals: 0,
        refused_until: None,
        out_since: 0,
        told: false,
        declared: None,
        stopped_at: None,
    };

    /// In RAM to stay, as far as we know.
    pub fn is_inside(&self) -> bool {
        matches!(
            self.life,
            Life::Starting
                | Life::Running
                | Life::Holding
                | Life::Held
                | Life::Continuing
                | Life::Restoring
                | Life::Shrinking
        )
    }

    /// It takes one of the places for residents: so does one that will be back at once.
    pub fn has_place(&self) -> bool {
        self.is_inside()
            || self.life == Life::Evicting
            || (self.life == Life::Stopping && !self.was_out)
            || (self.life == Life::Out && self.eager)
    }

    /// It computes, or is about to.
    pub fn is_active(&self) -> bool {
        matches!(
            self.life,
            Life::Starting | Life::Running | Life::Continuing | Life::Restoring | Life::Shrinking
        )
    }

    /// It may be asked to leave, if anybody may be.
    pub fn is_evictable(&self) -> bool {
        matches!(self.life, Life::Running | Life::Held)
            && !self.unpageable
            && !self.partial
            && self.refused_until.is_none()
            && self.bytes > self.fixed
    }

    /// It runs, has grown lately, and can be held.
    pub fn is_growing(&self) -> bool {
        self.life == Life::Running && self.grew_at.is_some() && !self.unholdable
    }

    /// It may be stopped.
    pub fn is_stoppable(&self) -> bool {
        matches!(self.life, Life::Running | Life::Held)
    }

    /// Bytes of RAM to be counted for it.
    pub fn present(&self) -> u64 {
        match self.life {
            Life::Unborn | Life::Gone => 0,
            _ => self.bytes,
        }
    }

    /// Bytes of these that will be free without another order.
    pub fn leaving(&self) -> u64 {
        match self.life {
            Life::Evicting | Life::Shrinking => self.bytes.saturating_sub(self.keep),
            Life::Stopping => self.bytes,
            _ => 0,
        }
    }

    /// Bytes of RAM it needs, now or later, for all we know.
    pub fn expected(&self) -> u64 {
        self.needs(self.high.max(self.reserve))
    }

    /// Bytes of RAM it needs before long.
    pub fn soon(&self) -> u64 {
        self.needs(self.reserve / 2)
    }

    /// Bytes of RAM to be counted for it, if it is in RAM at least so many.
    fn needs(&self, least: u64) -> u64 {
        match self.life {
            Life::Unborn | Life::Gone => 0,
            Life::Evicting | Life::Out if !self.eager => self.bytes,
            Life::Stopping => self.bytes,
            Life::Evicting | Life::Out => self.wants(),
            _ => self.bytes.max(least),
        }
    }

    /// Bytes to be counted for one that is out, when it comes back.
    pub fn wants(&self) -> u64 {
        self.size.max(self.reserve)
    }

    /// Its memory was measured, at this time of the job.
    pub fn measured(&mut self, bytes: u64, fixed: u64, clock: Duration) {
        if bytes > self.bytes {
            self.grew_at = Some(clock);
        } else if self.grew_at.is_some_and(|at| clock.saturating_sub(at) > GROWS_FOR) {
            self.grew_at = None;
        }
        if bytes >= self.high || clock.saturating_sub(self.high_at) > REMEMBERED {
            self.high = bytes;
            self.high_at = clock;
        }
        self.peak = self.peak.max(bytes);
        self.bytes = bytes;
        self.fixed = fixed.min(bytes);
    }

    /// An eviction is ordered.
    pub fn leave(&mut self, why: Why) {
        self.was_held = self.life == Life::Held;
        self.life = Life::Evicting;
        self.size = self.bytes;
        self.from = self.bytes;
        self.keep = self.fixed;
        self.eager = why == Why::Chaos;
        self.for_memory = why == Why::Memory;
    }

    /// It is told to end.
    pub fn stop(&mut self) {
        self.was_out = self.life == Life::Out;
        self.life = Life::Stopping;
    }

    /// Parts of it are to leave.
    pub fn shrink(&mut self, target: u64) {
        self.life = Life::Shrinking;
        self.from = self.bytes;
        self.keep = target;
    }

    /// A restore is ordered: from now on all of it counts.
    pub fn come_back(&mut self, clock: Duration) {
        self.life = Life::Restoring;
        // Unless it was out for no need, it comes back because it fits.
        self.overbooked &= !self.for_memory;
        self.bytes = self.size;
        self.high = self.size;
        self.high_at = clock;
        self.grew_at = None;
    }

    /// An eviction, or the paging of parts, did not happen: it goes on as before.
    pub fn stay(&mut self) {
        self.life = if self.was_held { Life::Held } else { Life::Running };
        self.was_held = false;
        self.eager = false;
    }

    /// It could not leave: it goes on as before, and is left alone until some look, or for ever.
    pub fn refuse(&mut self, lasting: bool, looks: u64) {
        self.stay();
        self.unpageable |= lasting;
        self.refused_until = (!lasting).then_some(looks + (4 << self.refusals));
        self.refusals = (self.refusals + 1).min(10);
    }

    /// It is in RAM as a whole and runs.
    pub fn arrive(&mut self) {
        self.life = Life::Running;
        self.was_held = false;
        self.eager = false;
    }
}
