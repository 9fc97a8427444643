//! What the simulated ranks do: compute, take memory, send, wait.

use super::*;
use crate::scheduler::signed;

impl World<'_> {
    /// Lets a rank compute until it blocks or ends.
    pub(super) fn run_rank(&mut self, rank: Rank) {
        loop {
            let phase = self.ranks[rank as usize].phase;
            if self.job.fails == Some((rank, phase)) {
                self.news.push_back(Event::Exited { rank, ok: false });
                return;
            }
            if phase == self.job.phases {
                let process = &mut self.ranks[rank as usize];
                process.place = Place::Gone;
                self.free += signed(process.holds);
                process.holds = 0;
                self.news.push_back(Event::Exited { rank, ok: true });
                return;
            }
            if !self.ranks[rank as usize].worked && !self.work(rank, phase) {
                return;
            }
            if let Some(wait) = self.wait(rank) {
                self.ranks[rank as usize].waits = Some(wait);
                if !self.leaves(rank, wait) {
                    self.news.push_back(Event::Blocked { rank, wait });
                }
                return;
            }
            let process = &mut self.ranks[rank as usize];
            process.phase += 1;
            process.worked = false;
        }
    }

    /// A rank that waits turns out to have half of its memory on scratch.
    fn leaves(&mut self, rank: Rank, wait: Wait) -> bool {
        let process = &mut self.ranks[rank as usize];
        let (held, out) = (process.holds, process.holds / 2);
        let full = self.chaos.scratch.is_some_and(|room| self.scratch + out > room);
        if full || out == 0 || !self.job.pageable || !self.draw.chance(self.chaos.leaves) {
            return false;
        }
        process.holds -= out;
        (process.size, process.inside, process.place) = (held, process.holds, Place::Out);
        let granted = process.holds;
        self.scratch += out;
        self.free += signed(out);
        self.outcome.evicted_bytes += out;
        self.news.push_back(Event::Left { rank, wait: Some(wait), granted, held });
        true
    }

    /// Takes the memory of this phase and sends what is sent before waiting; false where memory is lacking.
    fn work(&mut self, rank: Rank, phase: u32) -> bool {
        let target = self.job.size(rank, phase);
        while self.ranks[rank as usize].holds < target {
            let holds = self.ranks[rank as usize].holds;
            let bytes = self.job.chunk.min(target - holds);
            if !self.take(bytes, false) {
                self.ranks[rank as usize].needs = bytes;
                self.news.push_back(Event::Granted { rank, bytes: holds });
                self.news.push_back(Event::NeedsMemory { rank, bytes });
                return false;
            }
            self.ranks[rank as usize].holds += bytes;
        }
        let process = &mut self.ranks[rank as usize];
        process.worked = true;
        if self.job.shrinks {
            self.free += signed(process.holds - process.holds / 2);
            process.holds /= 2;
        }
        self.news.push_back(Event::Granted { rank, bytes: process.holds });
        match self.job.exchange {
            Exchange::Ring => self.send((rank + 1) % self.job.np),
            Exchange::Barrier => self.at_barrier += 1,
            Exchange::Nothing | Exchange::Token | Exchange::Hang => {}
        }
        true
    }

    /// What the rank must wait for at the end of its phase, if anything.
    fn wait(&mut self, rank: Rank) -> Option<Wait> {
        let np = self.job.np;
        match self.job.exchange {
            Exchange::Nothing => None,
            Exchange::Barrier => {
                if self.ranks[rank as usize].waits.is_none() && self.at_barrier == np {
                    self.at_barrier = 0;
                    for other in 0..np {
                        if matches!(self.ranks[other as usize].waits, Some(Wait::Collective { .. })) {
                            self.pass_barrier(other);
                        }
                    }
                    return None;
                }
                Some(Wait::Collective { missing: np - self.at_barrier })
            }
            Exchange::Ring | Exchange::Token => {
                let from = (rank + np - 1) % np;
                let process = &mut self.ranks[rank as usize];
                if process.inbox == 0 {
                    return Some(Wait::Message { from: Some(from) });
                }
                process.inbox -= 1;
                let held = self.job.message.min(self.messages);
                self.messages -= held;
                self.free += signed(held);
                if self.job.exchange == Exchange::Token {
                    self.send((rank + 1) % np);
                }
                None
            }
            Exchange::Hang => Some(Wait::Message { from: None }),
        }
    }

    /// Lets a waiting rank go on to the next phase.
    fn pass_barrier(&mut self, rank: Rank) {
        let process = &mut self.ranks[rank as usize];
        process.phase += 1;
        process.worked = false;
        self.wake(rank);
    }

    fn send(&mut self, to: Rank) {
        // What finds no room goes to scratch and takes no memory.
        if self.take(self.job.message, false) {
            self.messages += self.job.message;
        }
        let process = &mut self.ranks[to as usize];
        process.inbox += 1;
        if process.waits.is_some() {
            self.wake(to);
        }
    }
}
