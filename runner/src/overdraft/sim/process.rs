//! What happens to one simulated process.

use super::{World, job::Program};
use crate::overdraft::Event;
use crate::scheduler::Rank;

/// Rounding, in seconds, bytes, and parts of the work.
const NOTHING: f64 = 1e-9;

/// Where a simulated process really is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Place {
    Unborn,
    Starting,
    Running,
    /// Still running; it will stand still.
    Holding,
    Held,
    /// Still running until its time is due; then what it holds moves out.
    Leaving,
    Out,
    Returning,
    /// Like `Leaving`, of a part.
    Shrinking,
    /// Still running until its time is due.
    Ending {
        again: bool,
    },
    Gone,
}

/// A simulated process.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub place: Place,
    /// The part of its work that is done.
    done: f64,
    /// Bytes in RAM, and on scratch.
    pub ram: f64,
    pub out: f64,
    /// Bytes still to be moved.
    pub moves: f64,
    /// When its next state begins.
    pub due: Option<f64>,
    /// Shrinking goes so far, bytes.
    pub target: f64,
    /// It stands still although it is told to go.
    pub stands: bool,
    /// Parts of it are out while it runs.
    partial: bool,
    /// What the last look saw, bytes.
    pub seen: u64,
    /// Counted in admissions.
    pub age: usize,
    pub evictions: u32,
    /// Scratch had no room for all of it.
    disk_full: bool,
    peak: f64,
}

impl Process {
    pub const UNBORN: Self = Self {
        place: Place::Unborn,
        done: 0.0,
        ram: 0.0,
        out: 0.0,
        moves: 0.0,
        due: None,
        target: 0.0,
        stands: false,
        partial: false,
        seen: 0,
        age: 0,
        evictions: 0,
        disk_full: false,
        peak: 0.0,
    };

    pub fn hold(&mut self, at: f64) {
        self.place = Place::Holding;
        self.due = Some(at);
    }

    fn runs(&self) -> bool {
        match self.place {
            Place::Running | Place::Holding => true,
            Place::Leaving | Place::Shrinking | Place::Ending { .. } => self.due.is_some() && !self.stands,
            _ => false,
        }
    }
}

impl World<'_> {
    fn waits(&self, rank: Rank) -> bool {
        let process = &self.processes[rank as usize];
        let waits_for = self.programs[rank as usize].waits_for.filter(|_| process.done >= 0.5);
        waits_for
            .is_some_and(|other| !matches!(self.processes[other as usize].place, Place::Unborn | Place::Gone))
    }

    /// It uses a processor.
    pub(super) fn computes(&self, rank: Rank) -> bool {
        let process = &self.processes[rank as usize];
        process.runs() && !self.programs[rank as usize].sleeps && !self.waits(rank)
    }

    /// The part of its work it does in a second.
    fn rate(&self, rank: Rank, share: f64) -> f64 {
        let program = &self.programs[rank as usize];
        let process = &self.processes[rank as usize];
        if !process.runs() || self.waits(rank) {
            return 0.0;
        }
        let share = if program.sleeps { 1.0 } else { share };
        // What is out comes back when it is touched.
        let touches = if process.partial { 0.5 } else { 1.0 };
        share * touches / program.work
    }

    /// Time until the next thing happens to it, seconds.
    pub(super) fn next_of(&self, rank: Rank, share: f64, speed: f64) -> f64 {
        let process = &self.processes[rank as usize];
        let mut next = f64::INFINITY;
        if let Some(due) = process.due {
            next = due - self.now;
        }
        if process.moves > 0.0 {
            next = next.min(process.moves / speed);
        }
        let rate = self.rate(rank, share);
        if rate > 0.0 {
            let half = self.programs[rank as usize].waits_for.is_some() && process.done < 0.5;
            next = next.min((if half { 0.5 } else { 1.0 } - process.done).max(0.0) / rate);
        }
        next
    }

    /// Time passes for it.
    pub(super) fn pass(&mut self, rank: Rank, seconds: f64, share: f64, speed: f64) {
        let rate = self.rate(rank, share);
        let program: &Program = &self.programs[rank as usize];
        let computes = self.computes(rank);
        let polls = self.processes[rank as usize].runs() && self.waits(rank);
        let process = &mut self.processes[rank as usize];
        if rate > 0.0 {
            let half = program.waits_for.is_some() && process.done < 0.5;
            process.done += seconds * rate;
            if half && process.done > 0.5 - NOTHING {
                process.done = 0.5;
            }
            let all = program.peak * program.curve.at(process.done.min(1.0));
            if process.partial {
                let back = (self.machine.disk / 8.0 * seconds).min(process.out);
                let out = (process.out - back).min(all);
                self.scratch -= process.out - out;
                process.out = out;
            }
            process.ram = all - process.out;
            process.peak = process.peak.max(process.ram);
        }
        if computes {
            self.busy += seconds * share;
        } else if polls {
            self.busy += seconds * program.polls;
        }
        if process.moves > 0.0 {
            let moved = (speed * seconds).min(process.moves);
            process.moves -= moved;
            if process.moves < 0.5 {
                process.moves = 0.0;
            }
            if process.place == Place::Returning {
                process.out -= moved;
                process.ram += moved;
                self.scratch -= moved;
                self.outcome.moved_in += moved;
            } else {
                process.out += moved;
                process.ram -= moved;
                self.scratch += moved;
                self.outcome.moved_out += moved;
            }
        }
    }

    /// What is due happens to it.
    pub(super) fn happen(&mut self, rank: Rank) {
        let now = self.now;
        let process = &mut self.processes[rank as usize];
        if process.done > 1.0 - NOTHING && process.runs() {
            self.end(rank, false);
            return;
        }
        let due = process.due.is_some_and(|due| due <= now + NOTHING);
        if due {
            process.due = None;
        }
        let arrived = process.due.is_none() && process.moves == 0.0;
        match process.place {
            Place::Starting if due => {
                process.place = Place::Running;
                self.tell(Event::Spawned { rank });
            }
            Place::Holding if due => {
                process.place = Place::Held;
                self.tell(Event::Held { rank });
            }
            Place::Ending { again } if due => self.end(rank, again),
            Place::Leaving if due => self.begin_leaving(rank),
            Place::Leaving if arrived => self.left(rank),
            Place::Leaving if process.moves > 0.0 => {
                let freed = process.out as u64;
                self.tell(Event::EvictProgress { rank, freed });
            }
            Place::Shrinking if due => {
                let (all, room) = (process.ram - process.target, self.machine.scratch - self.scratch);
                process.disk_full = all > room;
                process.moves = all.min(room).max(0.0);
            }
            Place::Shrinking if arrived => {
                process.partial |= process.out > 0.0;
                process.place = Place::Running;
                let (out, left) = (process.out as u64, process.ram as u64);
                if process.disk_full {
                    self.tell(Event::DiskFull { rank, out: 0 });
                } else {
                    self.tell(Event::Shrunk { rank, out, left });
                }
            }
            Place::Returning if arrived => {
                process.ram += process.out;
                process.out = 0.0;
                process.place = Place::Running;
                self.tell(Event::Restored { rank });
            }
            _ => {}
        }
    }

    /// It stands still, and what it holds begins to move, as far as there is scratch.
    fn begin_leaving(&mut self, rank: Rank) {
        let room = (self.machine.scratch - self.scratch).max(0.0);
        let fixed = self.programs[rank as usize].fixed;
        let process = &mut self.processes[rank as usize];
        let all = (process.ram - fixed).max(0.0);
        process.disk_full = all > room;
        if process.disk_full && room < all / 2.0 {
            process.place = if process.stands { Place::Held } else { Place::Running };
            process.evictions -= 1;
            self.outcome.evictions -= 1;
            self.tell(Event::DiskFull { rank, out: 0 });
            return;
        }
        process.moves = all.min(room);
        if process.moves < 0.5 {
            process.moves = 0.0;
            self.left(rank);
        }
    }

    fn left(&mut self, rank: Rank) {
        let process = &mut self.processes[rank as usize];
        process.place = Place::Out;
        let (out, left) = (process.out as u64, process.ram as u64);
        if process.disk_full && out > 0 {
            self.tell(Event::DiskFull { rank, out });
        } else {
            self.tell(Event::Evicted { rank, out, left });
        }
    }

    fn end(&mut self, rank: Rank, again: bool) {
        let process = &mut self.processes[rank as usize];
        self.scratch -= process.out;
        let (peak, evictions) = (process.peak as u64, process.evictions);
        *process = Process { evictions, ..Process::UNBORN };
        process.place = if again { Place::Unborn } else { Place::Gone };
        self.alive.retain(|&other| other != rank);
        self.ended += usize::from(!again);
        self.tell(Event::Exited { rank, peak, stopped: again });
    }
}
