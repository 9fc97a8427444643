//! What a series of looks tells: how fast memory grows, how busy the processors are, and what follows: how
//! much is kept free, how soon to look again, how many ranks should run.

use std::time::Duration;

use super::Limits;

/// The least and the most time between two looks.
pub(super) const SOONEST: Duration = Duration::from_millis(2);
const LATEST: Duration = Duration::from_millis(100);

/// A processor that fills fresh memory gets about so many bytes in a second: what may happen although nothing
/// did so far.
const FILLS: f64 = (2_u64 << 30) as f64;

/// The growth of the job is remembered so long: this is when half of it is forgotten.
const HALF_LIFE: f64 = 0.5;

/// Slower growth than this is none, bytes a second.
const STEADY: f64 = 65536.0;

/// Until an order to stand still takes effect.
const HOLDING: Duration = Duration::from_millis(10);

/// Processors are judged over so much time.
const WINDOW: Duration = Duration::from_secs(1);

/// Below this part of the processors, more ranks are wanted; above the second, no more than processors.
const IDLE: f64 = 0.85;
const FULL: f64 = 0.95;

/// What a rank uses of a processor while it asks again and again whether it may go on. If all together use no
/// more than that for each, and half of the processors, nobody does anything.
const POLLS: f64 = 0.1;

/// Whoever uses less of a processor takes no memory to speak of.
const NOTHING: f64 = 0.01;

/// Processor time that says nothing, seconds: it is told in ticks.
const TICKS: f64 = 0.1;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Pace {
    /// Time of the job: the sum of all that elapsed.
    pub clock: Duration,
    /// How many looks there were.
    pub looks: u64,
    /// How many ranks should run.
    pub wanted: u32,
    /// For so long nobody has done anything.
    pub idle: Duration,
    /// Nobody had for long, and since then only those did that say so: the processor seconds used besides,
    /// beyond what asking again and again takes.
    pub still: Option<f64>,
    /// Processor seconds used in the time for which nobody has done anything, beyond the same.
    idled: f64,
    /// Processors used at the last look.
    busy: f64,
    /// Bytes by which ranks grew since the last look.
    grown: u64,
    /// Growth of the job lately, bytes a second.
    growth: f64,
    /// Time between the last two looks.
    look: Duration,
    reaction: Duration,
    window: Window,
    /// Somebody has begun to run; two looks later they tell what he does.
    stirred: u8,
}

/// Sums over the time since processors were last judged.
#[derive(Debug, Default)]
struct Window {
    time: Duration,
    /// Processors used × seconds.
    busy: f64,
    /// Active ranks × seconds.
    active: f64,
}

/// What the ranks did since the last look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doing {
    pub active: u32,
    /// Somebody comes, goes, is held or ends: the processors say nothing about how many should run.
    pub disturbed: bool,
    /// Somebody starts, comes or goes, but for those that are sent out and back as a test.
    pub moves: bool,
    /// Somebody runs who says when he waits, and cannot be interrupted.
    pub telling: bool,
}

impl Pace {
    pub fn new(limits: &Limits) -> Self {
        Self {
            clock: Duration::ZERO,
            looks: 0,
            wanted: limits.processors,
            idle: Duration::ZERO,
            still: None,
            idled: 0.0,
            busy: 0.0,
            grown: 0,
            growth: 0.0,
            look: LATEST,
            reaction: Duration::ZERO,
            window: Window::default(),
            stirred: 2,
        }
    }

    /// A rank holds so many bytes more than at the last look.
    pub fn grew(&mut self, bytes: u64) {
        self.grown = self.grown.saturating_add(bytes);
    }

    /// A look is complete.
    pub fn looked(
        &mut self,
        elapsed: Duration,
        [busy, idle]: [f64; 2],
        reaction: Duration,
        doing: Doing,
        limits: &Limits,
    ) {
        let busy = if busy.is_finite() { busy.max(0.0) } else { 0.0 };
        self.clock += elapsed;
        self.looks += 1;
        self.busy = busy;
        self.stirred = self.stirred.saturating_sub(1);
        self.look = elapsed.clamp(SOONEST, Duration::from_secs(1));
        self.reaction = reaction.min(Duration::from_secs(10));
        let seconds = elapsed.as_secs_f64().max(0.001);
        let remembered = self.growth * 0.5_f64.powf(seconds / HALF_LIFE);
        self.growth = (self.grown as f64 / seconds).max(remembered);
        self.grown = 0;
        if self.growth < STEADY {
            self.growth = 0.0;
        }
        if doing.telling {
            self.be_patient();
        } else if !doing.moves {
            // How many run differs from look to look.
            let polls = (POLLS * f64::from(doing.active)).min(f64::from(limits.processors) / 2.0);
            let idled = (busy - polls) * elapsed.as_secs_f64();
            self.still = self.still.map(|before| before + idled).filter(|&idled| idled <= TICKS);
            self.idle += elapsed;
            self.idled += idled;
            if self.idled > TICKS {
                self.be_patient();
            }
        }
        // Those that are short are not seen: what they use, and what it takes to make them, is not idle.
        let idle = if idle.is_finite() { idle.max(0.0) } else { 0.0 };
        self.judge(elapsed, (f64::from(limits.processors) - idle).max(busy), doing, limits);
    }

    /// A rank begins to run: what was used of the processors so far says nothing of it.
    pub fn stir(&mut self) {
        self.stirred = 2;
    }

    /// From here on it counts anew for how long nobody does anything.
    pub fn be_patient(&mut self) {
        self.idle = Duration::ZERO;
        self.idled = 0.0;
    }

    /// How many ranks should run: as many as processors, or more where those leave processors idle. Between
    /// the two bounds it stays what it is.
    fn judge(&mut self, elapsed: Duration, busy: f64, doing: Doing, limits: &Limits) {
        if doing.disturbed {
            self.window = Window::default();
            return;
        }
        let seconds = elapsed.as_secs_f64();
        self.window.time += elapsed;
        self.window.busy += busy * seconds;
        self.window.active += f64::from(doing.active) * seconds;
        if self.window.time < WINDOW {
            return;
        }
        let window = std::mem::take(&mut self.window);
        let seconds = window.time.as_secs_f64();
        let (busy, active) = (window.busy / seconds, window.active / seconds);
        let processors = f64::from(limits.processors);
        if busy < IDLE * processors && active > 0.75 * f64::from(self.wanted) {
            // As many as would be needed if more were like these, but not in one leap.
            let enough = active * processors / busy.max(0.01);
            let wanted = enough.min(active * 1.5 + 1.0).ceil();
            self.wanted = self.wanted.max(wanted.min(f64::from(limits.resident)) as u32);
        } else if busy > FULL * processors {
            // Those that end are not replaced for a while.
            let fewer = self.wanted.min(doing.active).saturating_sub(1 + doing.active / 8);
            self.wanted = limits.processors.max(fewer);
        }
    }

    /// Bytes to be kept free so that nobody need be made to stand still: what grows until an order to evict
    /// takes effect, and where anybody may begin to grow never less than a 32nd of the budget.
    pub fn margin(&self, limits: &Limits, may_begin: bool) -> u64 {
        let grows = self.growth * (self.look + self.reaction).as_secs_f64();
        let least = if may_begin { limits.budget / 32 } else { 0 };
        least.max(grows as u64).min(limits.budget / 2).max(self.small_margin(limits, may_begin))
    }

    /// Bytes below which those that grow are made to stand still at once: what grows until that takes effect.
    pub fn small_margin(&self, limits: &Limits, may_begin: bool) -> u64 {
        let least = if may_begin { limits.budget / 64 } else { 0 };
        least.max(self.grows_soon()).min(limits.budget / 4)
    }

    /// What grows until an order to stand still, or to end, takes effect, bytes.
    pub fn grows_soon(&self) -> u64 {
        (self.growth * (self.look + HOLDING).as_secs_f64()) as u64
    }

    /// Whether anybody grows.
    pub fn is_growing(&self) -> bool {
        self.growth > 0.0
    }

    /// How soon to look again when `running` ranks run and `free` bytes are free: twice before these can be
    /// used up. `asking`: those run that ask for most of what they take. They are not expected to grow
    /// besides, but may while they compute: where much is free they are looked at seldom even so.
    pub fn next_look(&self, running: u32, asking: bool, free: u64, limits: &Limits) -> Duration {
        let compute = asking && (self.busy > NOTHING || self.stirred > 0);
        let halves = |fills: f64| Duration::from_secs_f64((free as f64 / fills / 2.0).min(1.0));
        let latest = if compute {
            halves(f64::from(limits.processors) * FILLS).clamp(10 * SOONEST, LATEST)
        } else {
            LATEST
        };
        if running == 0 && !self.is_growing() {
            return latest;
        }
        if free == 0 && !self.is_growing() {
            // Nothing can be saved, and it seems that nothing need be.
            return 10 * SOONEST;
        }
        let may_grow = self.growth.max(f64::from(running.min(limits.processors)) * FILLS);
        halves(may_grow).clamp(SOONEST, latest)
    }
}
