//! Drives the scheduler with synthetic jobs, and checks what it must never do.
//!
//! The simulated world is what the shell and the ranks are in reality: a pool from which running ranks take memory
//! without asking, peers that wake each other without the scheduler, orders that come too late. The scheduler learns
//! of it only through its events, up to [`Chaos::lag`] of them late.

mod job;
mod program;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use job::{Chaos, Exchange, Job, Outcome};

use super::{Effect, Event, Limits, Rank, Scheduler, Wait};
pub(crate) use job::Draw;

/// Where a simulated rank really is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Unborn,
    Coming,
    Resident,
    Going,
    Out,
    Gone,
}

/// A simulated rank.
#[derive(Debug, Clone)]
struct Process {
    place: Place,
    /// What it waits for; runs if none.
    waits: Option<Wait>,
    /// Waits for so many bytes.
    needs: u64,
    holds: u64,
    /// Once it was evicted: all it has, in RAM or out, until it runs again.
    size: u64,
    /// Of it, in RAM, bytes.
    inside: u64,
    /// Before it was told to go it was out in part.
    was_out: bool,
    /// An eviction goes as far as this.
    keep: u64,
    /// It runs only with this.
    all: u64,
    orders: u32,
    phase: u32,
    /// It has its memory, and has sent what it sends, in this phase.
    worked: bool,
    /// Messages that have come and have not been taken.
    inbox: u32,
    /// How many were brought in before it became ready.
    ready_at: Option<u64>,
}

/// Something that will happen by itself.
#[derive(Debug, Clone, Copy)]
enum Step {
    Start(Rank),
    Run(Rank),
    Leave(Rank),
    Return(Rank),
}

/// The world of one run.
struct World<'a> {
    job: &'a Job,
    chaos: Chaos,
    draw: Draw,
    scheduler: Scheduler,
    ranks: Vec<Process>,
    agenda: VecDeque<Step>,
    /// Not told yet.
    news: VecDeque<Event>,
    free: i64,
    messages: u64,
    scratch: u64,
    at_barrier: u32,
    brought_in: u64,
    check: bool,
    outcome: Outcome,
}

/// Runs a job to its end. `check` calls [`Scheduler::sanity_check`] after every event, which looks at every rank.
///
/// # Panics
/// When the scheduler breaks a promise: gives out what is not there, moves a rank that cannot be moved, gets stuck, or
/// forgets a rank.
#[must_use]
pub fn run(job: &Job, limits: Limits, chaos: Chaos, check: bool) -> Outcome {
    let mut world = World::new(job, limits, chaos, check);
    loop {
        let more = 1 + world.draw.below(u64::from(chaos.lag));
        for _ in 0..more {
            if !world.step() {
                break;
            }
        }
        if let Some(end) = world.tell(false) {
            return world.finish(end);
        }
        if world.agenda.is_empty() && world.news.is_empty() {
            if let Some(end) = world.tell(true) {
                return world.finish(end);
            }
            assert!(
                !world.agenda.is_empty() || !world.news.is_empty(),
                "stuck: {:?} {:?}",
                world.scheduler.counts(),
                world.scheduler
            );
        }
    }
}

impl<'a> World<'a> {
    fn new(job: &'a Job, limits: Limits, chaos: Chaos, check: bool) -> Self {
        let process = Process {
            place: Place::Unborn,
            waits: None,
            needs: 0,
            holds: 0,
            size: 0,
            inside: 0,
            was_out: false,
            keep: 0,
            all: 0,
            orders: 0,
            phase: 0,
            worked: false,
            inbox: 0,
            ready_at: None,
        };
        let mut ranks = vec![process; job.np as usize];
        if job.exchange == Exchange::Token {
            ranks[0].inbox = 1;
        }
        Self {
            job,
            chaos,
            draw: Draw::new(chaos.seed),
            scheduler: Scheduler::new(job.np, limits),
            ranks,
            agenda: VecDeque::new(),
            news: VecDeque::new(),
            free: super::signed(limits.budget),
            messages: 0,
            scratch: 0,
            at_barrier: 0,
            brought_in: 0,
            check,
            outcome: Outcome {
                end: Effect::Finish,
                evicted_bytes: 0,
                restored_bytes: 0,
                evictions: 0,
                lost: 0,
                denied: 0,
                needless: 0,
                overdrafts: 0,
                events: 0,
                longest_wait: 0,
                peak: 0,
            },
        }
    }

    fn finish(mut self, end: Effect) -> Outcome {
        if end == Effect::Finish {
            assert!(self.ranks.iter().all(|process| process.place == Place::Gone), "finished too early");
            assert_eq!(self.scratch, 0);
        }
        self.outcome.end = end;
        self.outcome
    }

    /// Tells the scheduler everything new and carries out what it orders; the job's end, if it came.
    fn tell(&mut self, settled: bool) -> Option<Effect> {
        let mut batch: Vec<Event> = self.news.drain(..).collect();
        batch.insert(0, Event::Pool { free: self.free, messages: self.messages });
        if self.draw.chance(self.chaos.unasked) {
            let rank = self.draw.below(self.ranks.len() as u64) as u32;
            batch.push(Event::Chaos { rank });
        }
        if settled {
            batch.push(Event::Settled);
        }
        let mut effects = Vec::new();
        for event in batch {
            self.scheduler.handle(event, &mut effects);
            self.outcome.events += 1;
            if self.check {
                self.scheduler.sanity_check();
            }
            for effect in effects.drain(..) {
                if matches!(effect, Effect::Finish | Effect::Fail(_)) {
                    return Some(effect);
                }
                self.carry_out(&effect);
            }
        }
        None
    }

    /// Takes memory out of the pool if it is there, or in any case in an overdraft.
    fn take(&mut self, bytes: u64, overdraft: bool) -> bool {
        let bytes = super::signed(bytes);
        if !overdraft && (bytes > self.free && bytes > 0) {
            return false;
        }
        self.free -= bytes;
        self.outcome.peak =
            self.outcome.peak.max(self.scheduler.limits().budget.saturating_add_signed(-self.free));
        true
    }

    fn carry_out(&mut self, effect: &Effect) {
        match *effect {
            Effect::Spawn { rank, reserve } => {
                assert_eq!(self.ranks[rank as usize].place, Place::Unborn, "{effect:?}");
                if self.pays(rank, reserve, false) {
                    let process = &mut self.ranks[rank as usize];
                    process.place = Place::Coming;
                    process.holds = reserve;
                    self.agenda.push_back(Step::Start(rank));
                }
            }
            Effect::Restore { rank, bytes, all, overdraft } => {
                let process = &self.ranks[rank as usize];
                assert!(matches!(process.place, Place::Out | Place::Coming), "{effect:?}");
                assert_eq!(all, process.size + process.needs, "{effect:?}");
                assert!(process.holds + bytes <= all, "{effect:?} {process:?}");
                let got = self.pays_up_to(rank, bytes, overdraft);
                let process = &mut self.ranks[rank as usize];
                process.holds += got;
                process.all = all;
                process.orders += 1;
                if process.place == Place::Out {
                    process.place = Place::Coming;
                    self.agenda.push_back(Step::Return(rank));
                }
            }
            Effect::Grant { rank, bytes, overdraft } => {
                let process = &self.ranks[rank as usize];
                assert_eq!((process.place, process.needs), (Place::Resident, bytes), "{effect:?}");
                if self.pays(rank, bytes, overdraft) {
                    let process = &mut self.ranks[rank as usize];
                    process.holds += bytes;
                    process.needs = 0;
                    self.wake(rank);
                }
            }
            Effect::Evict { rank, keep } => self.evict(rank, keep),
            Effect::Fail(_) | Effect::Finish => unreachable!("the end is handled before"),
        }
        assert!(
            self.free >= 0 || self.scheduler.overdraft_rank().is_some(),
            "more was given out than there was: {effect:?}"
        );
    }

    /// Takes what an order costs, or denies it.
    fn pays(&mut self, rank: Rank, bytes: u64, overdraft: bool) -> bool {
        let paid = if overdraft { self.is_alone(rank) } else { !self.draw.chance(self.chaos.denied) };
        if paid && self.take(bytes, overdraft) {
            self.outcome.overdrafts += u64::from(overdraft);
            return true;
        }
        self.deny(rank, bytes);
        false
    }

    /// The same for a restore, which takes what there is.
    fn pays_up_to(&mut self, rank: Rank, bytes: u64, overdraft: bool) -> u64 {
        let mut got = bytes.min(u64::try_from(self.free).unwrap_or(0));
        if overdraft && self.is_alone(rank) {
            self.outcome.overdrafts += 1;
            got = bytes;
        } else if self.draw.chance(self.chaos.denied) {
            got = self.draw.below(got + 1);
        }
        assert!(self.take(got, overdraft));
        if got < bytes {
            self.deny(rank, bytes - got);
        }
        got
    }

    fn deny(&mut self, rank: Rank, bytes: u64) {
        self.outcome.denied += 1;
        self.news.push_back(Event::Denied { rank, bytes });
    }

    /// Whether nobody else holds memory: one who was woken a moment ago may, and the scheduler not know yet.
    fn is_alone(&self, rank: Rank) -> bool {
        self.ranks.iter().zip(0..).all(|(process, other)| process.holds == 0 || other == rank)
    }

    fn evict(&mut self, rank: Rank, keep: u64) {
        let refused = self.draw.chance(self.chaos.refused);
        let process = &mut self.ranks[rank as usize];
        let runs = process.waits.is_none() && process.needs == 0;
        match process.place {
            Place::Gone => self.lose(rank),
            Place::Resident if runs => self.lose(rank),
            Place::Resident | Place::Out if refused => {
                let (place, wait) = (process.place, process.waits);
                let (granted, held) = (process.holds, process.size);
                self.news.push_back(Event::EvictRefused { rank });
                if place == Place::Out {
                    // It may have left by itself, which was not heard while an answer was awaited.
                    self.news.push_back(Event::Left { rank, wait, granted, held });
                }
            }
            Place::Resident | Place::Out => {
                if process.place == Place::Resident {
                    (process.size, process.inside) = (process.holds, process.holds);
                }
                process.was_out = process.place == Place::Out;
                // It may have given some back meanwhile.
                process.keep = keep.min(process.holds);
                process.place = Place::Going;
                self.agenda.push_back(Step::Leave(rank));
            }
            Place::Unborn | Place::Coming | Place::Going => panic!("rank {rank} is not there: {process:?}"),
        }
    }

    fn lose(&mut self, rank: Rank) {
        self.outcome.lost += 1;
        self.news.push_back(Event::EvictLost { rank });
    }

    /// The next thing that happens by itself.
    fn step(&mut self) -> bool {
        let at = self.draw.below(self.agenda.len() as u64);
        let Some(step) = self.agenda.swap_remove_front(usize::try_from(at).unwrap_or(0)) else {
            return false;
        };
        match step {
            Step::Start(rank) => {
                self.ranks[rank as usize].place = Place::Resident;
                self.news.push_back(Event::Spawned { rank });
                if self.job.pageable {
                    self.news.push_back(Event::Attached { rank });
                }
                self.agenda.push_back(Step::Run(rank));
            }
            Step::Leave(rank) => self.leave(rank),
            Step::Return(rank) => self.come_back(rank),
            Step::Run(rank) => self.run_rank(rank),
        }
        true
    }

    /// Moves a part of what is to go, or all of it.
    fn leave(&mut self, rank: Rank) {
        let in_parts = self.draw.chance(128);
        let process = &mut self.ranks[rank as usize];
        let going = process.holds - process.keep;
        let step = if in_parts { going / 2 } else { going };
        let holds = process.holds - step;
        // What was set aside and not used goes first.
        let written = process.inside.saturating_sub(holds);
        if self.chaos.scratch.is_some_and(|room| self.scratch + written > room) {
            let runs = process.waits.is_none() && process.needs == 0;
            let out = process.was_out || process.inside < process.size;
            let part = out.then_some((process.holds, process.size));
            process.place = if part.is_some() { Place::Out } else { Place::Resident };
            self.news.push_back(Event::DiskFull { rank, need: written, part });
            if runs && part.is_none() {
                self.agenda.push_back(Step::Run(rank));
            }
            return;
        }
        process.holds = holds;
        process.inside -= written;
        self.scratch += written;
        self.free += super::signed(step);
        self.outcome.evicted_bytes += written;
        if in_parts {
            self.news.push_back(Event::Granted { rank, bytes: holds });
            self.agenda.push_back(Step::Leave(rank));
            return;
        }
        process.place = Place::Out;
        if process.needs > 0 && process.ready_at.is_none() {
            process.ready_at = Some(self.brought_in);
        }
        let held = process.size;
        self.outcome.evictions += 1;
        let needs = process.needs;
        self.news.push_back(Event::Evicted { rank, granted: holds, held });
        if needs > 0 {
            // Told again, as the shell does: by the time it is heard the rank may have been ordered back.
            self.news.push_back(Event::NeedsMemory { rank, bytes: needs });
        }
    }

    fn come_back(&mut self, rank: Rank) {
        let process = &mut self.ranks[rank as usize];
        let read = process.holds.min(process.size) - process.inside;
        process.inside += read;
        self.scratch -= read;
        self.outcome.restored_bytes += read;
        if process.holds < process.all {
            process.place = Place::Out;
            let (granted, orders) = (process.holds, process.orders);
            self.news.push_back(Event::RestoredPartly { rank, granted, orders });
            let process = &self.ranks[rank as usize];
            if process.waits.is_none() && process.needs == 0 {
                self.news.push_back(Event::Runnable { rank });
            }
            return;
        }
        process.place = Place::Resident;
        process.needs = 0;
        if let Some(since) = process.ready_at.take() {
            self.outcome.longest_wait = self.outcome.longest_wait.max(self.brought_in - since);
        }
        self.brought_in += 1;
        self.news.push_back(Event::Restored { rank });
        if let Some(wait) = process.waits {
            self.outcome.needless += 1;
            self.news.push_back(Event::Blocked { rank, wait });
        } else {
            self.agenda.push_back(Step::Run(rank));
        }
    }

    /// A peer, or a grant, ends what the rank waits for.
    fn wake(&mut self, rank: Rank) {
        let unseen = self.draw.chance(self.chaos.unseen);
        let process = &mut self.ranks[rank as usize];
        process.waits = None;
        match process.place {
            Place::Resident => {
                self.agenda.push_back(Step::Run(rank));
                if !unseen {
                    self.news.push_back(Event::Running { rank });
                }
            }
            Place::Going | Place::Out => {
                process.ready_at = Some(self.brought_in);
                self.news.push_back(Event::Runnable { rank });
            }
            Place::Coming | Place::Unborn | Place::Gone => {}
        }
    }
}
