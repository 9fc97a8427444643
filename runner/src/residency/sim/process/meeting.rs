//! Ranks that wait for each other: barriers, messages, tokens.

use super::Place;
use crate::residency::sim::{Exchange, World};
use crate::residency::{Event, Rank, Wait, signed};

impl World<'_> {
    /// What it must wait for at the end of its phase, if anything. It has sent what it sends before that.
    pub(super) fn meets(&mut self, rank: Rank) -> Option<Wait> {
        let program = &self.programs[rank as usize];
        let at = self.members.binary_search(&rank).unwrap_or(0);
        let np = self.members.len();
        if !std::mem::replace(&mut self.processes[rank as usize].sent, true) {
            if program.shrinks {
                let gives = self.processes[rank as usize].asked / 2;
                self.asked -= gives;
                self.processes[rank as usize].asked -= gives;
                self.news(Event::Granted { rank, bytes: self.processes[rank as usize].asked });
            }
            match program.exchange {
                Exchange::Ring | Exchange::Token => self.send(self.members[(at + 1) % np], program.message),
                Exchange::Barrier => self.at_barrier += 1,
                _ => {}
            }
        }
        match program.exchange {
            Exchange::Nothing => None,
            Exchange::Barrier if self.at_barrier == np => {
                self.at_barrier = 0;
                for other in self.members.clone() {
                    if matches!(self.processes[other as usize].waits, Some(Wait::Collective { .. })) {
                        self.next_phase(other);
                        self.wake(other);
                    }
                }
                None
            }
            Exchange::Barrier => Some(Wait::Collective { missing: (np - self.at_barrier) as u32 }),
            Exchange::Hang => Some(Wait::Message { from: None }),
            Exchange::Ring => self.receive(rank),
            Exchange::Token => None,
        }
    }

    /// Takes the message of the one before, or says that it must wait for it.
    pub(super) fn receive(&mut self, rank: Rank) -> Option<Wait> {
        let (at, np) = (self.members.binary_search(&rank).unwrap_or(0), self.members.len());
        let process = &mut self.processes[rank as usize];
        if process.inbox == 0 {
            return Some(Wait::Message { from: Some(self.members[(at + np - 1) % np]) });
        }
        process.inbox -= 1;
        self.messages -= self.programs[rank as usize].message.min(self.messages);
        None
    }

    pub(super) fn send(&mut self, to: Rank, bytes: u64) {
        // What finds no room goes to scratch and takes no memory.
        if signed(bytes) <= self.free() {
            self.messages += bytes;
        }
        let process = &mut self.processes[to as usize];
        process.inbox += 1;
        if matches!(process.waits, Some(Wait::Message { .. })) {
            self.wake(to);
        }
    }

    /// It waits, and tells; perhaps it turns out to have half of its memory on scratch.
    pub(in crate::residency::sim) fn wait(&mut self, rank: Rank, wait: Wait) {
        let (leaves, scratch) = (self.draw.chance(self.machine.leaves), self.machine.scratch - self.scratch);
        let process = &mut self.processes[rank as usize];
        process.waits = Some(wait);
        if self.programs[rank as usize].mute {
            return;
        }
        let (all, out) = (process.asked, process.asked / 2);
        if !leaves || out == 0 || out as f64 > scratch || process.place != Place::Inside {
            return self.news(Event::Blocked { rank, wait });
        }
        process.asked -= out;
        (process.all_asked, process.inside, process.place) = (all, process.asked, Place::Out);
        process.must_hold = all;
        (process.own, process.total) = (true, all);
        self.scratch += out as f64;
        self.report.moved_out += out as f64;
        self.asked -= out;
        let asked = process.asked;
        self.news(Event::EvictedItself { rank, wait: Some(wait), asked, all });
    }

    /// A peer, or a grant, ends what it waits for.
    pub(in crate::residency::sim) fn wake(&mut self, rank: Rank) {
        let unseen = self.draw.chance(self.machine.unseen);
        let process = &mut self.processes[rank as usize];
        process.waits = None;
        match process.place {
            Place::Inside => {
                if !unseen && !self.programs[rank as usize].mute {
                    self.news(Event::Running { rank });
                }
                self.act(rank);
            }
            Place::Leaving | Place::Out => {
                process.ready_at = Some(self.brought_in);
                if !self.programs[rank as usize].mute {
                    self.news(Event::Runnable { rank });
                }
            }
            _ => {}
        }
    }

    /// It passes those that have been ready for longer.
    pub(super) fn has_come_in(&mut self, rank: Rank) {
        let process = &mut self.processes[rank as usize];
        if let Some(since) = process.ready_at.take() {
            self.report.longest_wait = self.report.longest_wait.max(self.brought_in - since);
        }
        self.brought_in += u64::from(!std::mem::take(&mut process.for_no_need));
    }
}
