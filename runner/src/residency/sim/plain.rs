//! Who decides in the simulator: the core, or, to compare with, one of two rules that every textbook has.
//! They move ranks as a whole: first come, first served; who came in first goes first (`fifo`), or who has
//! done nothing for longest (`lru`).

use std::collections::BTreeSet;
use std::time::Duration;

use super::Machine;
use crate::residency::{Can, Core, Effect, Event, Failure, Informed, Limits, Memory, Next, Outcome, Rank};

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// bdrun's core.
    #[default]
    Ours,
    /// Who came in first goes first.
    Fifo,
    /// Who has done nothing for longest goes first.
    Lru,
}

/// Who decides in this run.
#[derive(Debug)]
pub(super) enum Master {
    Core(Box<Core>),
    Plain(Box<Plain>),
}

impl Master {
    pub fn new(machine: &Machine, ranks: &[(Can, Option<u64>)], informed: &Informed) -> Self {
        match (machine.policy, ranks.first()) {
            // Ranks come while others run.
            (Policy::Ours, Some(&(can, _))) if machine.comes > 0.0 => {
                Self::Core(Box::new(if machine.shared {
                    Core::shared_out(machine.limits, can, ranks.len() as u32).informed(informed)
                } else {
                    Core::open(machine.limits, can)
                }))
            }
            (Policy::Ours, _) => Self::Core(Box::new(Core::new(machine.limits, ranks).informed(informed))),
            (policy, _) => Self::Plain(Box::new(Plain::new(machine.limits, policy, ranks))),
        }
    }

    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match self {
            Self::Core(core) => core.handle(event, effects),
            Self::Plain(plain) => plain.handle(event, effects),
        }
    }

    pub fn sanity_check(&self) {
        if let Self::Core(core) = self {
            core.sanity_check();
        }
    }

    /// Whoever asks gets an answer, whatever is going on.
    pub fn explain_check(&self, rank: Option<Rank>) {
        if let (Self::Core(core), Some(rank)) = (self, rank) {
            let situation = core.situation(rank);
            assert!(situation.is_none_or(|situation| (situation.ahead == 0) == situation.first.is_none()));
        }
    }

    pub fn next_look(&self) -> Duration {
        match self {
            Self::Core(core) => core.next_look(),
            Self::Plain(_) => Duration::from_millis(20),
        }
    }

    pub fn kept_free(&self) -> u64 {
        match self {
            Self::Core(core) => core.kept_free(),
            Self::Plain(_) => 0,
        }
    }

    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Core(core) => core.is_quiet(),
            Self::Plain(plain) => plain.is_quiet(),
        }
    }

    pub fn limits(&self) -> &Limits {
        match self {
            Self::Core(core) => core.limits(),
            Self::Plain(plain) => &plain.limits,
        }
    }

    /// Whether ranks may wait for each other.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Core(core) => core.together,
            Self::Plain(_) => true,
        }
    }

    /// Ranks in RAM.
    pub fn resident(&self) -> u32 {
        match self {
            Self::Core(core) => core.counts().resident,
            Self::Plain(plain) => plain.inside.len() as u32,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Unborn,
    Starting,
    Resident,
    Evicting,
    Out,
    Restoring,
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct State {
    can: Can,
    life: Life,
    /// It waits for others; it waits for so many bytes; of one that is out: it would run.
    waits: bool,
    needs: u64,
    ready: bool,
    holds: Memory,
    all: Memory,
    /// When it came in, when it last did something, since when it is in line: counts of events.
    came: u64,
    did: u64,
    lines_up: u64,
    /// It refused to leave.
    stays: bool,
}

/// The two rules.
#[derive(Debug)]
pub(super) struct Plain {
    limits: Limits,
    policy: Policy,
    ranks: Vec<State>,
    /// Not begun, in RAM (or on the way), in line for memory in RAM or out of it (by since when).
    unborn: BTreeSet<Rank>,
    inside: BTreeSet<Rank>,
    line: BTreeSet<(u64, Rank)>,
    /// Those from which an event will come by itself.
    active: BTreeSet<Rank>,
    leaving: BTreeSet<Rank>,
    free: i64,
    known: bool,
    now: u64,
    largest: u64,
    gone: usize,
    ended: bool,
}

impl Plain {
    fn new(limits: Limits, policy: Policy, ranks: &[(Can, Option<u64>)]) -> Self {
        let state = |can| State {
            can,
            life: Life::Unborn,
            waits: false,
            needs: 0,
            ready: false,
            holds: Memory::default(),
            all: Memory::default(),
            came: 0,
            did: 0,
            lines_up: 0,
            stays: false,
        };
        Self {
            limits,
            policy,
            ranks: ranks.iter().map(|&(can, _)| state(can)).collect(),
            unborn: (0..ranks.len() as Rank).collect(),
            inside: BTreeSet::new(),
            line: BTreeSet::new(),
            active: BTreeSet::new(),
            leaving: BTreeSet::new(),
            free: 0,
            known: false,
            now: 0,
            largest: 0,
            gone: 0,
            ended: false,
        }
    }

    fn is_quiet(&self) -> bool {
        !self.ended && self.active.is_empty()
    }

    fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        self.now += 1;
        if self.ended {
            return;
        }
        if let Event::Pool { asked, messages, measured, .. } = event {
            let used = asked.saturating_add(messages).saturating_add(measured);
            self.free = i64::try_from(self.limits.budget).unwrap_or(i64::MAX)
                - i64::try_from(used).unwrap_or(i64::MAX);
            self.known = true;
            return;
        }
        if let Some(rank) = event.rank()
            && let Some(mut state) = self.ranks.get(rank as usize).copied()
            && state.life != Life::Gone
        {
            self.take_in(&mut state, event);
            self.put(rank, state);
        }
        if self.gone == self.ranks.len() {
            self.ended = true;
            return effects.push(Effect::Finish);
        }
        if matches!(event, Event::Sample { .. }) || !self.known {
            return;
        }
        self.serve(effects, false);
        if event == Event::Settled && effects.is_empty() {
            self.serve(effects, true);
            if effects.is_empty() {
                self.ended = true;
                effects.push(Effect::Fail(Failure::Deadlock { waiting: self.inside.len() as u32 }));
            }
        }
    }

    fn put(&mut self, rank: Rank, state: State) {
        let before = std::mem::replace(&mut self.ranks[rank as usize], state);
        let change = |set: &mut BTreeSet<Rank>, is: bool| {
            if is {
                set.insert(rank)
            } else {
                set.remove(&rank)
            };
        };
        use Life::{Evicting, Out, Resident, Restoring, Starting, Unborn};
        change(&mut self.unborn, state.life == Unborn);
        change(&mut self.inside, matches!(state.life, Starting | Resident | Evicting | Restoring));
        let runs = state.life == Resident && !state.waits && state.needs == 0;
        change(&mut self.active, runs || matches!(state.life, Starting | Evicting | Restoring));
        change(&mut self.leaving, state.life == Evicting);
        self.line.remove(&(before.lines_up, rank));
        let lacks = (state.life == Out && state.ready) || (state.life == Resident && state.needs > 0);
        if lacks {
            self.line.insert((state.lines_up, rank));
        }
    }

    fn take_in(&mut self, state: &mut State, event: Event) {
        let now = self.now;
        match event {
            Event::Can { can, .. } => {
                state.can = can;
                if state.life == Life::Starting {
                    state.life = Life::Resident;
                }
            }
            Event::Sample { bytes, .. } if matches!(state.life, Life::Starting | Life::Resident) => {
                state.holds.other = bytes
            }
            Event::Granted { bytes, .. } => state.holds.asked = bytes,
            Event::Running { .. } if state.life == Life::Resident => {
                (state.waits, state.needs, state.did) = (false, 0, now);
            }
            Event::Blocked { .. } if matches!(state.life, Life::Starting | Life::Resident) => {
                (state.waits, state.needs, state.did, state.life) = (true, 0, now, Life::Resident);
            }
            Event::NeedsMemory { bytes, .. } => {
                if state.needs == 0 && !(state.life == Life::Out && state.ready) {
                    state.lines_up = now;
                }
                (state.needs, state.ready, state.did) = (bytes, true, now);
            }
            Event::EvictedItself { wait, asked, all, .. } => {
                (state.life, state.ready, state.needs) = (Life::Out, wait.is_none(), 0);
                state.waits = wait.is_some();
                state.lines_up = now;
                state.holds.asked = asked;
                state.all = Memory { asked: all, other: state.holds.other };
            }
            Event::Runnable { .. } if matches!(state.life, Life::Out | Life::Evicting | Life::Restoring) => {
                if !state.ready {
                    state.lines_up = now;
                }
                (state.ready, state.waits) = (true, false);
            }
            Event::Done { outcome, .. } => self.done(state, outcome),
            Event::Exited { peak, next, .. } => {
                self.largest = self.largest.max(peak);
                let again = next != Next::Over;
                self.gone += usize::from(!again);
                let life = if again { Life::Unborn } else { Life::Gone };
                let none = Memory::default();
                *state = State {
                    life,
                    waits: false,
                    needs: 0,
                    ready: false,
                    holds: none,
                    all: none,
                    stays: false,
                    ..*state
                };
            }
            // Others have taken it since the pool was told.
            Event::Denied { bytes, .. } => match state.life {
                // It goes as far as it can, and that is told.
                Life::Restoring if state.can.asks && state.all.other == state.holds.other => {}
                Life::Restoring => (state.life, state.ready) = (Life::Out, true),
                Life::Starting => state.life = Life::Unborn,
                Life::Resident => {
                    state.holds.asked = state.holds.asked.saturating_sub(bytes);
                    state.needs = bytes;
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn done(&mut self, state: &mut State, outcome: Outcome) {
        let now = self.now;
        match outcome {
            Outcome::Started | Outcome::Restored => {
                if outcome == Outcome::Restored {
                    state.holds = Memory { asked: state.all.asked + state.needs, ..state.all };
                }
                (state.life, state.came, state.did) = (Life::Resident, now, now);
                (state.waits, state.ready, state.needs, state.stays) = (false, false, 0, false);
            }
            Outcome::Evicted { left, all } => {
                (state.life, state.holds, state.all) = (Life::Out, left, all);
                // One that does not tell may always run; of others that is told.
                state.ready |= !state.can.tells;
                (state.needs, state.lines_up) = (0, now);
            }
            Outcome::RestoredPartly { asked, .. } => {
                (state.life, state.holds.asked) = (Life::Out, asked);
                state.lines_up = now;
            }
            Outcome::Lost => (state.life, state.waits, state.needs) = (Life::Resident, false, 0),
            Outcome::Refused { .. } => (state.life, state.stays) = (Life::Resident, true),
            Outcome::Full { part, .. } => {
                state.stays = true;
                state.life = if part.is_some() { Life::Out } else { Life::Resident };
                if let Some((left, all)) = part {
                    (state.holds, state.all) = (left, all);
                }
            }
            _ => {}
        }
    }

    /// First come, first served; whoever is first and cannot be served has room made for it, or gets what is
    /// not there, if nobody else will do anything.
    fn serve(&mut self, effects: &mut Vec<Effect>, overdraft: bool) {
        let mut overdraft = overdraft;
        let mut lacks = 0i64;
        for (_, rank) in self.line.clone() {
            let mut state = self.ranks[rank as usize];
            let inside = state.life == Life::Resident;
            let all = state.all.asked + state.needs;
            let other = state.all.other.saturating_sub(state.holds.other);
            let bytes = if inside { state.needs } else { all.saturating_sub(state.holds.asked) + other };
            let place = inside || (self.inside.len() as u32) < self.limits.resident;
            let fits = i64::try_from(bytes).unwrap_or(i64::MAX) <= self.free;
            if !(fits && place || overdraft) {
                lacks = i64::try_from(bytes).unwrap_or(i64::MAX) - self.free.max(0);
                if !place {
                    lacks = lacks.max(1);
                }
                break;
            }
            if !fits {
                effects.push(Effect::Overdraft { rank, bytes, beside: 0 });
            }
            let given = !fits;
            overdraft = false;
            self.free -= i64::try_from(bytes).unwrap_or(i64::MAX);
            if inside {
                effects.push(Effect::Grant { rank, bytes, overdraft: given });
                (state.needs, state.waits) = (0, false);
                state.holds.asked += bytes;
            } else {
                effects.push(Effect::Restore { rank, bytes, all, overdraft: given });
                state.life = Life::Restoring;
            }
            self.put(rank, state);
        }
        if lacks <= 0 && self.line.is_empty() {
            lacks = self.begin(effects, overdraft);
        }
        let over = -self.free;
        self.make_room(lacks.max(over), effects);
    }

    /// Begins those that fit; what the next lacks.
    fn begin(&mut self, effects: &mut Vec<Effect>, overdraft: bool) -> i64 {
        let mut overdraft = overdraft;
        while let Some(&rank) = self.unborn.first() {
            let mut state = self.ranks[rank as usize];
            let places = if state.can.tells {
                self.limits.resident
            } else {
                self.limits.resident.min(self.limits.processors)
            };
            let place = (self.inside.len() as u32) < places;
            let bytes = if state.can.asks { self.limits.first_reserve } else { self.largest };
            let fits = i64::try_from(bytes).unwrap_or(i64::MAX) <= self.free || self.inside.is_empty();
            if !(fits && place || overdraft) {
                // Those that do not tell leave no place to others before they end.
                let waits = state.can.tells && !place || state.can.asks;
                return if waits { (bytes as i64 - self.free.max(0)).max(1) } else { 0 };
            }
            overdraft = false;
            effects.push(Effect::Start { rank, reserve: if state.can.asks { bytes } else { 0 } });
            self.free -= bytes as i64;
            state.life = Life::Starting;
            (state.holds.asked, state.came, state.did) =
                (if state.can.asks { bytes } else { 0 }, self.now, self.now);
            self.put(rank, state);
        }
        0
    }

    /// Sends out who is next by the rule, until what is on its way out makes room for so much.
    fn make_room(&mut self, lacks: i64, effects: &mut Vec<Effect>) {
        let going = |plain: &Self| -> i64 {
            let holds = plain.leaving.iter().map(|&rank| plain.ranks[rank as usize].holds.total());
            holds.fold(0, |sum, bytes| sum + bytes as i64)
        };
        let mut coming = going(self);
        while lacks > coming.max(0) || (lacks > 0 && self.leaving.is_empty()) {
            if self.leaving.len() as u32 >= self.limits.moves {
                return;
            }
            let first = self.line.first().map(|&(_, rank)| rank);
            let key = |rank: &Rank| {
                let state = &self.ranks[*rank as usize];
                // Those that wait for others, those that compute and cannot tell, those that wait for memory.
                let class = if state.waits { 0 } else { 1 + u8::from(state.needs > 0) };
                let age = if self.policy == Policy::Fifo { state.came } else { state.did };
                (class, age)
            };
            let oldest = self.inside.iter().filter(|&&rank| !self.ranks[rank as usize].can.tells);
            let oldest = oldest.min_by_key(|&&rank| self.ranks[rank as usize].came).copied();
            let may = |rank: &&Rank| {
                let state = &self.ranks[**rank as usize];
                let leaves = state.waits || state.needs > 0 || (!state.can.tells && Some(**rank) != oldest);
                state.life == Life::Resident
                    && state.can.evict
                    && !state.stays
                    && leaves
                    && Some(**rank) != first
            };
            let Some(rank) = self.inside.iter().filter(may).min_by_key(|rank| key(rank)).copied() else {
                return;
            };
            let mut state = self.ranks[rank as usize];
            effects.push(Effect::Evict { rank, keep: 0, preempt: false });
            (state.life, state.ready) = (Life::Evicting, false);
            coming += state.holds.total() as i64;
            self.put(rank, state);
        }
    }
}
