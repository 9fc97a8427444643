//! Drives the core with synthetic jobs, and checks what it must never do.
//!
//! The simulated world is a machine with processors, a disk and memory that programs take without asking. The core learns
//! of it only by looks, as often as it wants them, and its orders take time.

mod job;
mod process;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use job::{Curve, Machine, Outcome, Program};

use super::{Effect, Event, Overdraft};
use crate::scheduler::Rank;
use crate::scheduler::sim::Draw;
use process::{Place, Process};

/// From the order until a program begins, seconds.
const STARTING: f64 = 0.005;

/// A job that takes so much longer than one rank after the other does not end, seconds.
const FOREVER: f64 = 2e3;

/// The world of one run.
struct World<'a> {
    programs: &'a [Program],
    machine: Machine,
    draw: Draw,
    core: Overdraft,
    processes: Vec<Process>,
    /// Those begun and not ended.
    alive: Vec<Rank>,
    now: f64,
    /// Processor seconds used since the last look.
    busy: f64,
    scratch: f64,
    ended: usize,
    outcome: Outcome,
}

/// Runs a job to its end.
///
/// # Panics
/// When the core breaks a promise: gives an order that cannot be carried out, stops the oldest, forgets a rank, or never
/// comes to an end.
#[must_use]
pub fn run(programs: &[Program], machine: Machine) -> Outcome {
    let sizes: Vec<_> = programs.iter().map(|program| program.declared).collect();
    let mut world = World {
        programs,
        machine,
        draw: Draw::new(machine.seed),
        core: Overdraft::new(machine.limits, &sizes),
        processes: vec![Process::UNBORN; programs.len()],
        alive: Vec::new(),
        now: 0.0,
        busy: 0.0,
        scratch: 0.0,
        ended: 0,
        outcome: Outcome::default(),
    };
    let forever = FOREVER + programs.iter().map(|program| program.work).sum::<f64>();
    let mut looked = 0.0;
    while world.ended < programs.len() {
        world.look(world.now - looked);
        looked = world.now;
        while world.ended < programs.len() {
            let until = looked + world.core.next_look().as_secs_f64();
            if world.now >= until {
                break;
            }
            world.advance(until);
        }
        let state = || format!("{:?} {:?}", world.core.counts(), world.core);
        assert!(world.now < forever, "it does not end: {}", state());
    }
    assert!(world.core.is_done(), "all have ended, and it is not known: {:?}", world.core.counts());
    assert!(world.scratch.abs() < 1.0, "scratch is left: {}", world.scratch);
    world.outcome.time = world.now;
    world.outcome
}

impl World<'_> {
    /// Measures everybody and tells.
    fn look(&mut self, elapsed: f64) {
        for rank in self.alive.clone() {
            let process = &mut self.processes[rank as usize];
            let (ram, before) = (process.ram as u64, process.seen);
            process.seen = ram;
            let bytes = if self.draw.chance(self.machine.late) { before } else { ram };
            let fixed = self.programs[rank as usize].fixed.min(process.ram) as u64;
            self.tell(Event::Sample { rank, bytes, fixed });
        }
        let busy = if elapsed > 0.0 { self.busy / elapsed } else { 0.0 };
        self.busy = 0.0;
        self.outcome.looks += 1;
        self.outcome.longest_look = self.outcome.longest_look.max(elapsed);
        let reaction = Duration::from_secs_f64(self.machine.latency + 64e6 / self.machine.disk);
        let elapsed = Duration::from_secs_f64(elapsed);
        self.tell(Event::Looked { elapsed, others: 0, busy, reaction });
        if self.draw.chance(self.machine.chaos) {
            let rank = self.draw.below(self.programs.len() as u64) as u32;
            self.tell(Event::Chaos { rank });
        }
    }

    fn tell(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.core.handle(event, &mut effects);
        self.outcome.events += 1;
        if self.machine.check {
            self.core.sanity_check();
        }
        for effect in effects {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let (now, machine) = (self.now, self.machine);
        match effect {
            Effect::Admit { rank, reserve } => {
                assert!(reserve <= machine.limits.budget, "{effect:?}");
                self.outcome.order.push(rank);
                let age = self.outcome.order.len();
                self.alive.push(rank);
                self.outcome.most_inside = self.outcome.most_inside.max(self.alive.len());
                let process = self.of(rank, &[Place::Unborn], effect);
                process.place = Place::Starting;
                process.due = Some(now + STARTING);
                process.age = age;
            }
            Effect::Evict { rank } => {
                let refused = self.draw.chance(machine.refused);
                let program = &self.programs[rank as usize];
                if refused || program.unpageable {
                    self.of(rank, &[Place::Running, Place::Held], effect);
                    self.tell(Event::EvictRefused { rank, lasting: program.unpageable });
                    return;
                }
                self.outcome.evictions += 1;
                let process = self.of(rank, &[Place::Running, Place::Held], effect);
                process.evictions += 1;
                let evictions = process.evictions;
                process.stands = process.place == Place::Held;
                process.place = Place::Leaving;
                process.due = Some(now + machine.latency);
                self.outcome.most_evictions = self.outcome.most_evictions.max(evictions);
            }
            Effect::Restore { rank } => {
                let process = self.of(rank, &[Place::Out], effect);
                process.place = Place::Returning;
                process.moves = process.out;
            }
            Effect::Hold { rank } => {
                self.outcome.holds += 1;
                self.of(rank, &[Place::Running], effect).hold(now + machine.holding);
            }
            Effect::Continue { rank } => {
                self.of(rank, &[Place::Held], effect).place = Place::Running;
                self.tell(Event::Continued { rank });
            }
            Effect::Shrink { rank, target } => {
                self.outcome.shrinks += 1;
                if self.programs[rank as usize].unpageable {
                    self.tell(Event::ShrinkRefused { rank, lasting: true });
                    return;
                }
                let process = self.of(rank, &[Place::Running], effect);
                process.place = Place::Shrinking;
                process.target = target as f64;
                process.due = Some(now + machine.latency);
            }
            Effect::Stop { rank, .. } => {
                self.outcome.stops += 1;
                assert!(machine.limits.may_stop, "{effect:?}");
                let other = |&&other: &&Rank| other != rank && !self.is_ending(other);
                assert!(self.alive.iter().any(|one| other(&one)), "the only one is never stopped");
                self.end_soon(rank, true);
            }
            Effect::OverLimit { rank, .. } => {
                self.outcome.over_limit += 1;
                self.end_soon(rank, false);
            }
            Effect::Overdraft { .. } => self.outcome.overdrafts += 1,
        }
    }

    /// The process, which must be where the order says it is.
    fn of(&mut self, rank: Rank, places: &[Place], effect: Effect) -> &mut Process {
        let process = &mut self.processes[rank as usize];
        assert!(places.contains(&process.place), "{effect:?} of {process:?}");
        process
    }

    fn is_ending(&self, rank: Rank) -> bool {
        matches!(self.processes[rank as usize].place, Place::Ending { .. })
    }

    fn end_soon(&mut self, rank: Rank, again: bool) {
        let at = self.now + self.machine.holding;
        let process = &mut self.processes[rank as usize];
        assert!(matches!(process.place, Place::Running | Place::Held | Place::Out), "{process:?}");
        process.stands = process.place != Place::Running;
        process.place = Place::Ending { again };
        process.due = Some(at);
    }

    /// Lets time pass until the next thing happens, at most until some time.
    fn advance(&mut self, until: f64) {
        let computing = self.alive.iter().filter(|&&rank| self.computes(rank)).count();
        let share = (f64::from(self.machine.limits.processors) / computing.max(1) as f64).min(1.0);
        let moving = self.alive.iter().filter(|&&rank| self.processes[rank as usize].moves > 0.0).count();
        let speed = self.machine.disk / moving.max(1) as f64;
        let mut passes = until - self.now;
        for &rank in &self.alive {
            passes = passes.min(self.next_of(rank, share, speed));
        }
        let passes = passes.max(0.0);
        self.now = if passes >= until - self.now { until } else { self.now + passes };
        for rank in self.alive.clone() {
            self.pass(rank, passes, share, speed);
        }
        let used: f64 = self.alive.iter().map(|&rank| self.processes[rank as usize].ram).sum();
        self.outcome.peak = self.outcome.peak.max(used);
        for rank in self.alive.clone() {
            self.happen(rank);
        }
    }
}
