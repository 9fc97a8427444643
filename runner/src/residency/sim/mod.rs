//! Drives the core with synthetic jobs, and checks what it must never do.
//!
//! The simulated world is a machine with processors, a disk and memory. Some programs take memory without
//! asking, and wait without telling; others ask a pool, wake each other without the core, and tell it late;
//! some begin as the ones and become the others. The core learns of it only through looks and events, and its
//! orders take time.
//!
//! Processors and disk are shared evenly. Their clocks run at the speed of one share, so that what is due at
//! some time of theirs stays so whoever comes and goes: a step costs O(log ranks).

mod job;
mod orders;
mod plain;
mod process;
mod recorder;
mod script;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

pub(crate) use job::Draw;
pub use job::{Curve, Exchange, Machine, Program, Report, Step, Then};
pub use plain::Policy;
pub use recorder::{Did, Recorder};

use super::{Effect, Event, Informed, Rank, signed};
use plain::Master;
use process::{Place, Process};
use script::{Gate, Tokens};

/// A job that takes so much longer than one rank after the other does not end, seconds.
const FOREVER: f64 = 2e3;

/// So long nothing is heard before it is said that nothing happens, seconds.
const SETTLED: f64 = 0.03;

/// On which clock something is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// Seconds.
    Wall,
    /// Seconds of a processor that each of those that compute has used.
    Processor,
    /// Bytes that each of those that move has moved.
    Disk,
}

/// What is due, first the time; it is void if the rank's generation is another by then.
type Due = Reverse<(u64, u64, Rank, u32)>;

#[derive(Debug, Default)]
struct Agenda {
    /// By [`Clock`].
    due: [BinaryHeap<Due>; 3],
    /// What each shows.
    now: [f64; 3],
    count: u64,
}

impl Agenda {
    fn push(&mut self, clock: Clock, after: f64, rank: Rank, generation: u32) {
        self.count += 1;
        let at = (self.now[clock as usize] + after.max(0.0)).to_bits();
        self.due[clock as usize].push(Reverse((at, self.count, rank, generation)));
    }

    /// How far a clock is from the next that is due on it.
    fn next(&self, clock: Clock) -> f64 {
        let due = self.due[clock as usize].peek();
        due.map_or(f64::INFINITY, |Reverse((at, ..))| {
            (f64::from_bits(*at) - self.now[clock as usize]).max(0.0)
        })
    }
}

/// The world of one run.
struct World<'a> {
    programs: &'a [Program],
    machine: Machine,
    draw: Draw,
    core: Master,
    processes: Vec<Process>,
    agenda: Agenda,
    /// How many compute, and how many move.
    computing: u32,
    moving: u32,
    /// Processors used by those that ask again and again, and by those that sleep most of the time.
    polling: f64,
    /// Not told yet.
    news: VecDeque<Event>,
    tell_at: f64,
    heard_at: f64,
    /// When the budget may change again.
    changes_at: f64,
    /// How many have come, if they do while it runs.
    came: usize,
    /// Those whose memory is looked at.
    measured: BTreeSet<Rank>,
    /// Those that tell and meet the others, in order.
    members: Vec<Rank>,
    at_barrier: usize,
    /// Who waits for the end of whom.
    waiters: BTreeMap<Rank, Vec<Rank>>,
    /// Of the pool, bytes.
    asked: u64,
    messages: u64,
    /// Sum of what the looks saw of those in RAM, bytes.
    seen: u64,
    /// Processor seconds used since the last look.
    busy: f64,
    scratch: f64,
    brought_in: u64,
    ended: usize,
    /// What programs with scripts meet at, and compute with.
    gates: Vec<Gate>,
    tokens: Tokens,
    recorder: Option<Recorder>,
    end: Option<Effect>,
    report: Report,
}

/// Runs a job to its end.
///
/// # Panics
/// When the core breaks a promise: gives an order that cannot be carried out, gives out what is not there,
/// forgets a rank, or never comes to an end.
#[must_use]
pub fn run(programs: &[Program], machine: Machine) -> Report {
    run_recorded(programs, machine, None).0
}

/// The same; what ranks did is written down.
///
/// # Panics
/// As [`run`] does.
#[must_use]
pub fn run_recorded(
    programs: &[Program],
    machine: Machine,
    recorder: Option<Recorder>,
) -> (Report, Option<Recorder>) {
    let ranks: Vec<_> = programs.iter().map(|program| (program.can, program.declared)).collect();
    let meets = |program: &Program| program.exchange != Exchange::Nothing;
    let members: Vec<Rank> =
        (0..).zip(programs).filter(|(_, program)| meets(program)).map(|(rank, _)| rank).collect();
    let mut processes = vec![Process::UNBORN; programs.len()];
    if let Some(&first) = members.first() {
        processes[first as usize].inbox = u32::from(programs[first as usize].exchange == Exchange::Token);
    }
    let mut waiters = BTreeMap::<Rank, Vec<Rank>>::new();
    for (rank, program) in (0..).zip(programs) {
        if let Some(other) = program.waits_for {
            waiters.entry(other).or_default().push(rank);
        }
    }
    let known = (0..).zip(programs).filter_map(|(rank, program)| Some((rank, program.known?))).collect();
    let informed = Informed { known, largest_first: true, ..Informed::default() };
    let mut world = World {
        programs,
        machine,
        draw: Draw::new(machine.seed),
        core: Master::new(&machine, &ranks, &informed),
        processes,
        agenda: Agenda::default(),
        computing: 0,
        moving: 0,
        polling: 0.0,
        news: VecDeque::new(),
        tell_at: f64::INFINITY,
        heard_at: 0.0,
        changes_at: 0.0,
        came: 0,
        measured: BTreeSet::new(),
        members,
        at_barrier: 0,
        waiters,
        asked: 0,
        messages: 0,
        seen: 0,
        busy: 0.0,
        scratch: 0.0,
        brought_in: 0,
        ended: 0,
        gates: Gate::of(programs),
        tokens: Tokens::new(machine.limits.processors),
        recorder,
        end: None,
        report: Report::default(),
    };
    // Whoever does not tell when it waits has a turn of two seconds for each of its messages, among all that
    // do the same.
    let mute = programs.iter().filter(|program| program.mute).count() as f64;
    let forever = FOREVER * (1.0 + mute) + programs.iter().map(|program| program.work).sum::<f64>();
    let forever = if machine.patience > 0.0 { machine.patience } else { forever };
    let mut looked = 0.0;
    while world.end.is_none() {
        world.look(world.now() - looked);
        looked = world.now();
        while world.end.is_none() {
            let until = looked + world.core.next_look().as_secs_f64();
            if world.now() >= until {
                break;
            }
            world.advance(until.min(world.tell_at));
            if world.now() >= world.tell_at {
                world.tell(&[]);
            }
        }
        let state = || {
            let there = |process: &&Process| !matches!(process.place, Place::Unborn | Place::Gone);
            let processes: Vec<_> = world.processes.iter().filter(there).collect();
            format!("{:?} {processes:?}", world.core)
        };
        if world.now() >= forever && machine.patience > 0.0 {
            break;
        }
        assert!(world.now() < forever, "it does not end: {}", state());
    }
    world.finish()
}

impl World<'_> {
    fn now(&self) -> f64 {
        self.agenda.now[Clock::Wall as usize]
    }

    fn finish(mut self) -> (Report, Option<Recorder>) {
        if self.end == Some(Effect::Finish) {
            assert_eq!(self.ended, self.programs.len(), "finished too early");
            assert!(self.scratch.abs() < 1.0, "scratch is left: {}", self.scratch);
            assert_eq!(self.asked, 0);
        }
        self.report.time = self.now();
        self.report.end = self.end;
        (self.report, self.recorder)
    }

    /// Measures everybody and tells.
    fn look(&mut self, elapsed: f64) {
        let mut events = Vec::new();
        let mut used = (self.asked + self.messages) as f64;
        for rank in self.measured.clone() {
            self.progress(rank);
            let ram = self.ram(rank);
            used += ram;
            let before = self.processes[rank as usize].seen;
            let bytes = if self.draw.chance(self.machine.late) { before } else { ram as u64 };
            // What comes in was counted when that was ordered.
            if self.processes[rank as usize].place != Place::Returning {
                self.see(rank, ram as u64);
            }
            let process = &self.processes[rank as usize];
            let freed = process.moved(self.agenda.now[Clock::Disk as usize]) as u64;
            match process.place {
                Place::Leaving | Place::Shrinking if freed > 0 && !process.own => {
                    events.push(Event::Freed { rank, bytes: freed });
                }
                _ => {
                    let program = &self.programs[rank as usize];
                    let fixed = if program.silent { 0 } else { program.fixed.min(ram) as u64 };
                    events.push(Event::Sample { rank, bytes, fixed });
                }
            }
        }
        self.report.peak = self.report.peak.max(used);
        let busy = if elapsed > 0.0 { self.busy / elapsed } else { 0.0 };
        self.busy = 0.0;
        self.report.looks += 1;
        let reaction = Duration::from_secs_f64(self.machine.latency + 64e6 / self.machine.disk);
        let idle = f64::from(self.machine.limits.processors) - busy;
        events.push(Event::Looked { elapsed: Duration::from_secs_f64(elapsed), busy, idle, reaction });
        let arrived = (self.now() / self.machine.comes.max(1e-9)) as usize;
        if self.machine.comes > 0.0 && self.came < self.programs.len() && self.came < arrived {
            let (before, all) = (self.came, self.programs.len());
            self.came = arrived.min(all);
            let more = self.came < all;
            if self.machine.shared {
                // In another order than that of their numbers.
                events.extend((before..self.came).map(|nth| self.given((all - 1 - nth) as Rank)));
                events.extend((!more).then_some(Event::Came { ranks: all as u32, more }));
            } else {
                events.push(Event::Came { ranks: self.came as u32, more });
            }
        }
        if self.draw.chance(self.machine.elastic) && self.now() >= self.changes_at {
            self.changes_at = self.now() + 1.0;
            let budget = self.machine.limits.budget / 100 * (30 + self.draw.below(71));
            events.push(Event::LimitChanged { budget });
        }
        if self.draw.chance(self.machine.chaos) {
            let rank = self.draw.below(self.programs.len() as u64) as u32;
            events.push(Event::Chaos { rank });
        }
        if self.core.is_quiet() && self.news.is_empty() && self.now() > self.heard_at + SETTLED {
            // As the shell does: it looks at everybody, and if nothing turns up nothing happens.
            let runs = |process: &Process| process.tells && process.place == Place::Inside && process.runs();
            let running = (0..).zip(&self.processes).filter(|(_, process)| runs(process));
            let seen: Vec<Event> = running.map(|(rank, _)| Event::Running { rank }).collect();
            events.extend(if seen.is_empty() { vec![Event::Settled] } else { seen });
        }
        self.tell(&events);
    }

    /// Another node gives a rank to this one.
    fn given(&self, rank: Rank) -> Event {
        let Program { declared, known, .. } = self.programs[rank as usize];
        Event::Given { rank, declared: declared.unwrap_or(0), known: known.unwrap_or(0) }
    }

    /// What the looks say of a rank.
    fn see(&mut self, rank: Rank, bytes: u64) {
        let seen = &mut self.processes[rank as usize].seen;
        self.seen = self.seen - *seen + bytes;
        *seen = bytes;
    }

    /// What is free in the pool, bytes.
    fn free(&self) -> i64 {
        let charged = self.seen.saturating_add(self.core.kept_free());
        let used = self.asked.saturating_add(self.messages).saturating_add(charged);
        signed(self.core.limits().budget).saturating_sub(signed(used))
    }

    /// Something is to be told before long.
    fn news(&mut self, event: Event) {
        if self.news.is_empty() {
            let lag = self.machine.lag * self.draw.below(1001) as f64 / 1000.0;
            self.tell_at = self.now() + lag;
        }
        self.news.push_back(event);
    }

    /// Tells what is new, and this, and carries out what is ordered.
    fn tell(&mut self, besides: &[Event]) {
        let many = 20_000_000 + 1000 * self.programs.len() as u64;
        if self.machine.patience > 0.0 && self.report.events >= many {
            self.agenda.now[Clock::Wall as usize] = f64::INFINITY;
            return;
        }
        assert!(self.report.events < many, "it does not end, at {} s: {:?}", self.now(), self.core);
        let news: Vec<Event> = self.news.drain(..).collect();
        self.tell_at = f64::INFINITY;
        if !news.is_empty() {
            self.heard_at = self.now();
        }
        let (measured, kept) = (self.seen, self.core.kept_free());
        let pool = Event::Pool { asked: self.asked, messages: self.messages, measured, kept };
        let mut effects = Vec::new();
        for event in [pool].iter().chain(&news).chain(besides) {
            let begun = std::time::Instant::now();
            self.core.handle(*event, &mut effects);
            self.report.core_time += begun.elapsed().as_secs_f64();
            self.report.events += 1;
            if self.machine.check > 0 && self.report.events.is_multiple_of(u64::from(self.machine.check)) {
                self.core.sanity_check();
                // Whoever asks gets an answer, whatever is going on.
                self.core.explain_check(event.rank());
            }
            for effect in effects.drain(..) {
                self.carry_out(effect);
                if let (Event::Chaos { .. }, Effect::Evict { rank, .. }) = (event, effect) {
                    self.processes[rank as usize].for_no_need = true;
                }
            }
            if self.end.is_some() {
                return;
            }
        }
        self.report.resident = self.report.resident.max(self.core.resident());
    }

    /// Lets time pass until the next thing happens, at most until some time.
    fn advance(&mut self, until: f64) {
        let share = (f64::from(self.machine.limits.processors) / f64::from(self.computing.max(1))).min(1.0);
        let speed = self.machine.disk / f64::from(self.moving.max(1));
        let rates = [1.0, share, speed];
        let clocks = [Clock::Wall, Clock::Processor, Clock::Disk];
        let (passes, first) = clocks
            .into_iter()
            .map(|clock| (self.agenda.next(clock) / rates[clock as usize], Some(clock)))
            .fold((until - self.now(), None), |least, next| if next.0 < least.0 { next } else { least });
        let passes = passes.max(0.0);
        let used = passes * (share * f64::from(self.computing) + self.polling);
        self.busy += used;
        self.report.used += used;
        for clock in clocks {
            self.agenda.now[clock as usize] += passes * rates[clock as usize];
        }
        let Some(clock) = first else {
            self.agenda.now[Clock::Wall as usize] = until;
            return;
        };
        if let Some(Reverse((at, _, rank, generation))) = self.agenda.due[clock as usize].pop() {
            self.agenda.now[clock as usize] = self.agenda.now[clock as usize].max(f64::from_bits(at));
            if generation == script::RESTED {
                self.has_rested(rank);
            } else if generation == script::HEARD {
                self.is_heard(rank);
            } else if self.processes[rank as usize].generation == generation {
                self.happen(rank, clock);
            }
            if self.machine.check > 0 {
                self.note_peak();
            }
        }
    }

    /// How much is used at this moment.
    fn note_peak(&mut self) {
        let mut used = (self.asked + self.messages) as f64;
        for rank in self.measured.clone() {
            self.progress(rank);
            used += self.ram(rank);
        }
        self.report.peak = self.report.peak.max(used);
    }
}
