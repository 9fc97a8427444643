//! Ranks that ask: phases, and memory for them.

use super::NOTHING;
use crate::residency::sim::{Exchange, World};
use crate::residency::{Can, Event, Rank, Wait, signed};

impl World<'_> {
    /// It has done what it was to do before something else.
    pub(super) fn has_computed(&mut self, rank: Rank) {
        self.pause(rank);
        let (program, process) = (&self.programs[rank as usize], &mut self.processes[rank as usize]);
        if process.tells {
            process.worked = true;
        } else if program.joins.is_some_and(|joins| process.done >= joins - NOTHING) {
            process.tells = true;
            let preempt = self.programs[rank as usize].mute;
            self.news(Event::Can { rank, can: Can { preempt, ..Can::NATIVE } });
        } else if process.done >= 1.0 - NOTHING {
            return self.end_by_itself(rank);
        }
        self.act(rank);
    }

    /// A native rank goes on until it computes, waits or ends.
    pub(super) fn act_native(&mut self, rank: Rank) {
        loop {
            let (program, process) = (&self.programs[rank as usize], &self.processes[rank as usize]);
            let (phase, from) = (process.phase, program.joins.unwrap_or(0.0));
            if phase >= program.phases {
                return self.wind_up(rank);
            }
            if phase == program.phases / 2 && self.awaited(rank).is_some() {
                return self.wait(rank, Wait::Other);
            }
            if program.exchange == Exchange::Token && !self.processes[rank as usize].has_token {
                if let Some(wait) = self.receive(rank) {
                    return self.wait(rank, wait);
                }
                self.processes[rank as usize].has_token = true;
            }
            let process = &self.processes[rank as usize];
            if !process.has_memory {
                if !self.take_memory(rank, program.asks_in(phase)) {
                    return;
                }
                self.processes[rank as usize].has_memory = true;
            }
            if !self.processes[rank as usize].worked {
                let part = f64::from(phase + 1) / f64::from(program.phases);
                return self.compute(rank, from + (1.0 - from) * part);
            }
            if let Some(wait) = self.meets(rank) {
                return self.wait(rank, wait);
            }
            self.next_phase(rank);
        }
    }

    pub(in crate::residency::sim) fn next_phase(&mut self, rank: Rank) {
        let process = &mut self.processes[rank as usize];
        process.phase += 1;
        (process.worked, process.has_memory) = (false, false);
        (process.sent, process.has_token) = (false, false);
    }

    /// Takes the memory of a phase; false where it is lacking.
    pub(in crate::residency::sim) fn take_memory(&mut self, rank: Rank, target: u64) -> bool {
        let chunk = self.programs[rank as usize].chunk.max(1);
        loop {
            let holds = self.processes[rank as usize].asked;
            let bytes = chunk.min(target.saturating_sub(holds));
            if bytes == 0 {
                break;
            }
            if signed(bytes) > self.free() {
                self.processes[rank as usize].needs = bytes;
                self.news(Event::Granted { rank, bytes: holds });
                self.news(Event::NeedsMemory { rank, bytes });
                return false;
            }
            self.asked += bytes;
            self.processes[rank as usize].asked += bytes;
        }
        let process = &mut self.processes[rank as usize];
        process.most = process.most.max(process.asked + process.away);
        self.news(Event::Granted { rank, bytes: self.processes[rank as usize].asked });
        true
    }
}
