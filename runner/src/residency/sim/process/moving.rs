//! What has left and what has come back.

use super::Place;
use crate::residency::sim::World;
use crate::residency::{Event, Memory, Outcome, Rank};

impl World<'_> {
    /// What was to move has moved.
    pub(super) fn has_moved(&mut self, rank: Rank) {
        self.moving -= 1;
        let process = &mut self.processes[rank as usize];
        let (bytes, ..) = process.moves.take().unwrap_or_default();
        if process.place == Place::Returning {
            self.scratch -= bytes;
            self.report.moved_in += bytes * self.programs[rank as usize].fill;
            if process.own {
                process.inside += bytes as u64;
                return self.has_returned(rank);
            }
            process.out = 0.0;
            process.place = Place::Inside;
            self.has_come_in(rank);
            self.news(Event::Done { rank, outcome: Outcome::Restored });
            self.progress(rank);
            return self.act(rank);
        }
        let program = &self.programs[rank as usize];
        self.report.moved_out += bytes * program.fill;
        self.report.written += bytes * program.fill * program.dirty;
        if process.own {
            return self.has_left(rank);
        }
        process.out += bytes;
        let (other, whole) = (self.ram(rank) as u64, self.ram(rank) + self.processes[rank as usize].out);
        self.see(rank, other);
        let process = &mut self.processes[rank as usize];
        if process.place == Place::Shrinking {
            process.partial |= process.out > 0.0;
            process.place = Place::Inside;
            let full = Outcome::Full { need: 1, part: None };
            let outcome = if process.disk_full { full } else { Outcome::Shrunk { left: other } };
            self.news(Event::Done { rank, outcome });
            return self.act(rank);
        }
        self.report.evictions += 1;
        process.evictions += 1;
        self.report.most_evictions = self.report.most_evictions.max(process.evictions);
        process.place = Place::Out;
        process.ready_at = Some(self.brought_in);
        // It may have joined on its way out: then it comes back as those do.
        (process.own, process.all_asked, process.inside) = (process.tells, process.asked, process.asked);
        process.must_hold = process.all_asked;
        process.total = process.asked;
        let asked = process.asked;
        let (left, all) = (Memory { asked, other }, Memory { asked, other: whole as u64 });
        let full = Outcome::Full { need: 1, part: Some((left, all)) };
        let outcome = if process.disk_full { full } else { Outcome::Evicted { left, all } };
        self.news(Event::Done { rank, outcome });
    }

    /// One that moves itself has left, or a part of it.
    pub(super) fn has_left(&mut self, rank: Rank) {
        let process = &mut self.processes[rank as usize];
        let holds = process.asked - process.step;
        process.inside = process.inside.min(holds);
        self.asked -= process.step;
        process.asked = holds;
        if process.asked > process.keep {
            self.news(Event::Granted { rank, bytes: holds });
            return self.leave_own(rank, false);
        }
        process.place = Place::Out;
        // It never must hold less than it does.
        process.all_asked = process.must_hold.max(holds.min(process.total));
        if process.needs > 0 && process.ready_at.is_none() {
            process.ready_at = Some(self.brought_in);
        }
        // What it did not ask for goes at the end.
        let room = self.machine.scratch - self.scratch;
        let goes = (self.ram(rank) - self.programs[rank as usize].fixed).max(0.0).min(room.max(0.0));
        let process = &mut self.processes[rank as usize];
        if process.keep == 0 && process.out == 0.0 && goes >= 1.0 {
            self.scratch += goes;
            self.report.moved_out += goes;
            self.report.written += goes;
            self.processes[rank as usize].out = goes;
        }
        let other = self.ram(rank) as u64;
        self.see(rank, other);
        let process = &self.processes[rank as usize];
        let (needs, all, whole) = (process.needs, process.all_asked, other + process.out as u64);
        let interrupted = process.interrupted;
        self.report.evictions += 1;
        let (left, all) = (Memory { asked: holds, other }, Memory { asked: all, other: whole });
        self.news(Event::Done { rank, outcome: Outcome::Evicted { left, all } });
        if needs > 0 && !interrupted {
            // Told again, as the shell does: by the time it is heard the rank may have been ordered back.
            self.news(Event::NeedsMemory { rank, bytes: needs });
        }
    }

    pub(super) fn has_returned(&mut self, rank: Rank) {
        let process = &mut self.processes[rank as usize];
        self.scratch -= std::mem::take(&mut process.out);
        let more = process.asked.min(process.all_asked) - process.inside;
        if more > 0 {
            return self.move_bytes(rank, more as f64);
        }
        if process.asked < process.wanted {
            process.place = Place::Out;
            let (asked, orders) = (process.asked, process.orders);
            let runs = process.waits.is_none() && process.needs == 0;
            self.news(Event::Done { rank, outcome: Outcome::RestoredPartly { asked, orders } });
            if runs {
                self.news(Event::Runnable { rank });
            }
            return;
        }
        process.place = Place::Inside;
        process.away = process.total.saturating_sub(process.inside);
        let needs = process.needs;
        if !std::mem::take(&mut process.interrupted) {
            process.needs = 0;
        }
        self.has_come_in(rank);
        let process = &self.processes[rank as usize];
        let (waits, still_needs) = (process.waits, process.needs > 0);
        self.news(Event::Done { rank, outcome: Outcome::Restored });
        if let Some(wait) = waits.filter(|_| !self.programs[rank as usize].mute) {
            self.report.needless += 1;
            self.news(Event::Blocked { rank, wait });
        } else if still_needs {
            self.news(Event::NeedsMemory { rank, bytes: needs });
        }
        self.progress(rank);
        self.act(rank);
    }
}
