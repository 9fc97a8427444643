//! Programs of which each step is known: gates at which they meet, tokens with which they compute.

use std::collections::VecDeque;

use super::process::{Place, Process};
use super::{Clock, Program, Then, World};
use crate::residency::{Event, Rank, Wait};

/// The generation of what is due for one that rests: it is never void.
pub(super) const RESTED: u32 = u32::MAX;

/// The same of what is heard.
pub(super) const HEARD: u32 = u32::MAX - 1;

/// A gate: open when all that ever arrive there have.
#[derive(Debug, Default)]
pub(super) struct Gate {
    missing: u32,
    waiting: Vec<Rank>,
}

impl Gate {
    /// Those of all scripts.
    pub fn of(programs: &[Program]) -> Vec<Self> {
        let mut gates = Vec::<Self>::new();
        let opened = programs.iter().flat_map(|program| program.script.iter()).flat_map(|step| &step.opens);
        for &gate in opened {
            if gates.len() <= gate as usize {
                gates.resize_with(gate as usize + 1, Self::default);
            }
            gates[gate as usize].missing += 1;
        }
        gates
    }
}

/// As many compute as there are processors; the others stand in line.
#[derive(Debug)]
pub(super) struct Tokens {
    free: u32,
    line: VecDeque<Rank>,
}

impl Tokens {
    pub fn new(processors: u32) -> Self {
        Self { free: processors.max(1), line: VecDeque::new() }
    }
}

impl Process {
    /// Bytes of what it asked for that must be in RAM when it goes on after what it waits for.
    pub(super) fn goes_on_with(&self, program: &Program) -> u64 {
        // In the middle of a step it goes on with what it had.
        if !self.sent {
            return self.asked;
        }
        let needs = program.script.get(self.phase as usize + 1).map_or(0, |step| step.needs);
        if needs == 0 { self.total } else { needs.min(self.total) }
    }
}

impl World<'_> {
    /// Goes on with its script until it computes, waits or ends.
    pub(super) fn act_script(&mut self, rank: Rank) {
        let program = &self.programs[rank as usize];
        loop {
            if !self.has_token(rank) {
                return;
            }
            self.record_run(rank);
            let process = &self.processes[rank as usize];
            let Some(step) = program.script.get(process.phase as usize) else {
                return self.has_done_all(rank);
            };
            if !process.has_memory {
                let most = step.most.max(1).saturating_sub(process.away);
                if !self.take_memory(rank, most) {
                    self.give_token(rank);
                    return self.record_lack(rank);
                }
                self.processes[rank as usize].has_memory = true;
            }
            let process = &self.processes[rank as usize];
            if !process.worked {
                return self.compute(rank, (process.done + step.work / program.work).min(1.0));
            }
            if !process.sent {
                self.gives_back(rank, step.holds);
                self.processes[rank as usize].sent = true;
                for &gate in &step.opens {
                    self.arrives(rank, gate);
                }
            }
            match step.then {
                Then::Gate { gate, from }
                    if self.gates.get(gate as usize).is_some_and(|gate| gate.missing > 0) =>
                {
                    let gate = &mut self.gates[gate as usize];
                    gate.waiting.push(rank);
                    let missing = gate.missing;
                    let wait = match from {
                        Some(_) => Wait::Message { from },
                        None => Wait::Collective { missing },
                    };
                    return self.wait_script(rank, Some(wait), step.then);
                }
                Then::Pause(seconds) if !self.processes[rank as usize].rested => {
                    self.agenda.push(Clock::Wall, seconds, rank, RESTED);
                    return self.wait_script(rank, Some(Wait::Other), step.then);
                }
                _ => {}
            }
            // It may need what is out.
            let process = &self.processes[rank as usize];
            let needs = program.script.get(process.phase as usize + 1).map_or(0, |next| next.needs);
            let total = process.asked + process.away;
            let lacks = process.away > 0 && (needs == 0 || needs.min(total) > process.asked);
            if lacks && process.place == Place::Inside && process.phase as usize + 1 < program.script.len() {
                return self.wait_script(rank, None, Then::Nothing);
            }
            self.next_phase(rank);
            let process = &mut self.processes[rank as usize];
            process.rested = false;
        }
    }

    /// It waits, and tells; if it lacks what is out for what comes then it is out.
    fn wait_script(&mut self, rank: Rank, wait: Option<Wait>, then: Then) {
        self.give_token(rank);
        self.record_wait(rank, then);
        let program = &self.programs[rank as usize];
        let process = &mut self.processes[rank as usize];
        process.total = process.asked + process.away;
        let all = process.goes_on_with(program);
        if process.away == 0 || all <= process.asked || process.place != Place::Inside {
            let Some(wait) = wait else { return };
            if self.machine.hears > 0.0 && process.place == Place::Inside {
                process.waits = Some(wait);
                return self.agenda.push(Clock::Wall, self.machine.hears, rank, HEARD);
            }
            return self.wait(rank, wait);
        }
        (process.waits, process.away) = (wait, 0);
        (process.all_asked, process.inside, process.place) = (all, process.asked, Place::Out);
        process.must_hold = all;
        process.own = true;
        if wait.is_none() {
            process.ready_at = Some(self.brought_in);
        }
        let asked = process.asked;
        self.news(Event::EvictedItself { rank, wait, asked, all });
    }

    /// It holds no more than this.
    fn gives_back(&mut self, rank: Rank, holds: u64) {
        let process = &mut self.processes[rank as usize];
        let freed = process.away.saturating_sub(holds);
        process.away -= freed;
        self.scratch -= freed as f64;
        let over = process.asked.saturating_sub(holds - process.away);
        if over > 0 {
            process.asked -= over;
            self.asked -= over;
            let bytes = self.processes[rank as usize].asked;
            self.news(Event::Granted { rank, bytes });
        }
    }

    /// It has come to a gate.
    fn arrives(&mut self, rank: Rank, gate: u32) {
        let gate = &mut self.gates[gate as usize];
        gate.missing -= 1;
        if gate.missing == 0 {
            for other in std::mem::take(&mut gate.waiting) {
                self.record_wake(other, rank);
                self.wake(other);
            }
        }
    }

    /// It is heard that it waits, if it still does.
    pub(super) fn is_heard(&mut self, rank: Rank) {
        let process = &self.processes[rank as usize];
        if let Some(wait) = process.waits.filter(|_| process.place == Place::Inside) {
            self.news(Event::Blocked { rank, wait });
        }
    }

    /// It has waited as long as it was to.
    pub(super) fn has_rested(&mut self, rank: Rank) {
        self.processes[rank as usize].rested = true;
        self.record_rest(rank);
        if self.processes[rank as usize].waits == Some(Wait::Other) {
            self.wake(rank);
        }
    }

    /// Whether it may compute; else it stands in line.
    fn has_token(&mut self, rank: Rank) -> bool {
        let process = &mut self.processes[rank as usize];
        if process.token || !self.programs[rank as usize].tokens {
            return true;
        }
        if self.tokens.free > 0 {
            self.tokens.free -= 1;
            process.token = true;
            process.in_line = false;
            return true;
        }
        if !std::mem::replace(&mut process.in_line, true) {
            self.tokens.line.push_back(rank);
        }
        false
    }

    /// It does not compute any more: the next in line does.
    pub(super) fn give_token(&mut self, rank: Rank) {
        let process = &mut self.processes[rank as usize];
        process.in_line = false;
        if !self.programs[rank as usize].tokens || !std::mem::take(&mut process.token) {
            return;
        }
        self.tokens.free += 1;
        while self.tokens.free > 0 {
            let Some(next) = self.tokens.line.pop_front() else { return };
            let process = &mut self.processes[next as usize];
            if std::mem::take(&mut process.in_line) && process.runs() {
                self.act(next);
            }
        }
    }

    /// It has done the last step.
    fn has_done_all(&mut self, rank: Rank) {
        self.record_done(rank);
        self.give_token(rank);
        self.wind_up(rank);
    }
}
