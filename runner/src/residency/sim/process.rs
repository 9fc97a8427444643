//! What happens to one simulated process: it computes, takes memory, sends, waits, moves, ends.

mod asking;
mod meeting;
mod moving;

use super::{Clock, World};
use crate::residency::{Event, Next, Outcome, Rank, Wait};

/// Rounding, in seconds, bytes, and parts of the work.
const NOTHING: f64 = 1e-9;
/// What is touched to ask again and again whether it may go on, bytes.
const ASKING: f64 = 20_000.0;

/// Where a simulated process really is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Place {
    Unborn,
    Starting,
    Inside,
    /// Still running; it will stand still.
    Holding,
    Held,
    /// On its way out. One that does not move itself runs until that is due.
    Leaving,
    Out,
    Returning,
    /// Like `Leaving`, of a part.
    Shrinking,
    Gone,
}

/// A simulated process.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub place: Place,
    /// What was ordered is void if this is another by then.
    pub generation: u32,
    /// When its next state begins.
    due_at: f64,
    /// It was told to end, and perhaps to begin again.
    pub ending: Option<bool>,
    /// It stands still although it is told to go.
    pub stands: bool,
    /// The part of its work that is done, as of these times of the processors' clock and the wall's.
    pub(super) done: f64,
    as_of: (f64, f64),
    /// It computes until this is done.
    until: Option<f64>,
    polls: bool,
    /// It tells. (It may have joined.)
    pub tells: bool,
    /// It moves itself.
    pub own: bool,
    /// It was interrupted, and left as it was.
    pub interrupted: bool,
    /// Of what it did not ask for, bytes on scratch; and of what moves, bytes, as of some time of the disk's
    /// clock, and what that clock shows for each byte.
    pub out: f64,
    moves: Option<(f64, f64, f64)>,
    /// Bytes that are about to.
    moves_soon: Option<f64>,
    /// Shrinking goes so far, bytes.
    pub target: f64,
    /// Parts of it are out while it runs.
    partial: bool,
    disk_full: bool,
    /// What the last look saw, bytes.
    pub seen: u64,
    evictions: u32,
    /// How often it has failed.
    pub(super) failed: u32,
    peak: f64,
    /// Bytes it asked for and has been given; and, once it was evicted, all it must have to run, and what of
    /// it is in RAM.
    pub asked: u64,
    pub all_asked: u64,
    /// The same, if it held nothing.
    pub must_hold: u64,
    pub inside: u64,
    /// All it asked for and holds, wherever, once it was evicted; and while it runs, what of it is out.
    pub total: u64,
    /// The most it held since it last waited.
    pub(super) most: u64,
    /// See `total`.
    pub away: u64,
    /// It leaves with so much at once, down to so much.
    pub step: u64,
    pub keep: u64,
    pub was_out: bool,
    /// It runs only with this.
    pub wanted: u64,
    pub orders: u32,
    /// What it waits for, or for how many bytes; runs if for neither.
    pub waits: Option<Wait>,
    pub needs: u64,
    pub(super) phase: u32,
    /// It has its memory, has computed, and has sent what it sends, in this phase.
    pub(super) has_memory: bool,
    pub(super) worked: bool,
    pub(super) sent: bool,
    has_token: bool,
    /// Of one with a script: it has rested, has a token, is in line for one, has done all and is about to
    /// end.
    pub(super) rested: bool,
    pub(super) token: bool,
    pub(super) in_line: bool,
    pub(super) winding: bool,
    /// Messages that have come and have not been taken.
    pub inbox: u32,
    /// It was sent out for no need: that it comes back passes nobody.
    pub for_no_need: bool,
    /// How many were brought in before it became ready.
    pub ready_at: Option<u64>,
}

impl Process {
    pub const UNBORN: Self = Self {
        place: Place::Unborn,
        generation: 0,
        due_at: f64::INFINITY,
        ending: None,
        stands: false,
        done: 0.0,
        as_of: (0.0, 0.0),
        until: None,
        polls: false,
        tells: false,
        own: false,
        interrupted: false,
        out: 0.0,
        moves: None,
        moves_soon: None,
        target: 0.0,
        partial: false,
        disk_full: false,
        seen: 0,
        evictions: 0,
        failed: 0,
        peak: 0.0,
        asked: 0,
        all_asked: 0,
        must_hold: 0,
        inside: 0,
        total: 0,
        most: 0,
        away: 0,
        step: 0,
        keep: 0,
        was_out: false,
        wanted: 0,
        orders: 0,
        waits: None,
        needs: 0,
        phase: 0,
        has_memory: false,
        worked: false,
        sent: false,
        has_token: false,
        rested: false,
        token: false,
        in_line: false,
        winding: false,
        inbox: 0,
        for_no_need: false,
        ready_at: None,
    };

    /// It can go on, where it is.
    pub fn runs(&self) -> bool {
        let there = match self.place {
            Place::Inside | Place::Holding => true,
            Place::Leaving | Place::Shrinking => !self.own && self.due_at.is_finite() && !self.stands,
            _ => false,
        };
        there && self.waits.is_none() && self.needs == 0 && !self.winding
    }

    /// Bytes that have moved, at this time of the disk's clock.
    pub fn moved(&self, disk: f64) -> f64 {
        self.moves.map_or(0.0, |(bytes, since, each)| ((disk - since) / each).clamp(0.0, bytes))
    }
}

impl World<'_> {
    /// Something happens to it after some time, and nothing that was due before.
    pub(super) fn due(&mut self, rank: Rank, clock: Clock, after: f64) {
        let process = &mut self.processes[rank as usize];
        process.generation += 1;
        process.due_at = f64::INFINITY;
        if clock == Clock::Wall {
            process.due_at = self.agenda.now[0] + after;
        }
        self.agenda.push(clock, after, rank, self.processes[rank as usize].generation);
    }

    /// The same beside what it does until then.
    pub(super) fn due_also(&mut self, rank: Rank, after: f64) {
        self.processes[rank as usize].due_at = self.now() + after;
        self.agenda.push(Clock::Wall, after, rank, self.processes[rank as usize].generation);
    }

    /// Bytes begin to move, perhaps after a while.
    pub(super) fn move_bytes(&mut self, rank: Rank, bytes: f64) {
        let process = &mut self.processes[rank as usize];
        let (out, back) = self.machine.beside;
        let beside = if process.place == Place::Returning { back } else { out };
        if beside > 0.0 && process.own {
            process.moves_soon = Some(bytes);
            return self.due(rank, Clock::Wall, beside);
        }
        self.begin_to_move(rank, bytes);
    }

    pub(super) fn begin_to_move(&mut self, rank: Rank, bytes: f64) {
        let process = &mut self.processes[rank as usize];
        let out = matches!(process.place, Place::Leaving | Place::Shrinking);
        // The clock shows bytes written.
        let each = if out || self.machine.read <= 0.0 { 1.0 } else { self.machine.disk / self.machine.read };
        let each = each * self.programs[rank as usize].fill;
        process.moves = Some((bytes, self.agenda.now[Clock::Disk as usize], each));
        if out {
            self.scratch += bytes;
        }
        self.moving += 1;
        self.due(rank, Clock::Disk, bytes * each);
    }

    /// Bytes of RAM that it holds and did not ask for.
    pub(super) fn ram(&self, rank: Rank) -> f64 {
        let (process, program) = (&self.processes[rank as usize], &self.programs[rank as usize]);
        if matches!(process.place, Place::Unborn | Place::Starting | Place::Gone) {
            return 0.0;
        }
        let moved = if process.own { 0.0 } else { process.moved(self.agenda.now[Clock::Disk as usize]) };
        let out = if process.place == Place::Returning { process.out - moved } else { process.out + moved };
        let done = if process.tells { process.done.min(program.joins.unwrap_or(1.0)) } else { process.done };
        (program.unasked(done.min(1.0)) - out).max(0.0)
    }

    /// Whom it waits for without telling.
    fn awaited(&self, rank: Rank) -> Option<Rank> {
        let there = |&other: &Rank| {
            !matches!(self.processes[other as usize].place, Place::Unborn | Place::Gone) && other != rank
        };
        let half = self.processes[rank as usize].done >= 0.5 - NOTHING;
        self.programs[rank as usize].waits_for.filter(|_| half).filter(there)
    }

    /// Brings what is done up to now.
    pub(super) fn progress(&mut self, rank: Rank) {
        let (program, now) = (&self.programs[rank as usize], (self.agenda.now[1], self.agenda.now[0]));
        let process = &mut self.processes[rank as usize];
        if let Some(until) = process.until {
            let passed =
                if program.sleeps.is_some() { now.1 - process.as_of.1 } else { now.0 - process.as_of.0 };
            // What is out comes back when it is touched.
            let rate = if process.partial { 0.5 } else { 1.0 };
            process.done = (process.done + passed * rate / program.work).min(until);
            if process.partial {
                let all = program.unasked(process.done.min(1.0));
                let back = (self.machine.disk / 8.0 * (now.1 - process.as_of.1)).min(process.out);
                let out = (process.out - back).min(all);
                self.scratch -= process.out - out;
                process.out = out;
            }
        }
        if process.partial && process.polls {
            let all = program.unasked(process.done.min(1.0));
            let out = process.out.min((all - program.fixed - ASKING).max(0.0));
            self.scratch -= process.out - out;
            process.out = out;
        }
        process.as_of = now;
        let ram = self.ram(rank);
        let process = &mut self.processes[rank as usize];
        process.peak = process.peak.max(ram + process.asked as f64);
    }

    /// Computes until this part of its work is done.
    pub(super) fn compute(&mut self, rank: Rank, until: f64) {
        self.progress(rank);
        let program = &self.programs[rank as usize];
        let process = &mut self.processes[rank as usize];
        process.generation += 1;
        process.until = Some(until);
        let rate = if process.partial { 0.5 } else { 1.0 };
        let (needs, generation) = ((until - process.done).max(0.0) * program.work / rate, process.generation);
        let due_at = process.due_at;
        let clock = if program.sleeps.is_some() { Clock::Wall } else { Clock::Processor };
        match program.sleeps {
            Some(part) => self.polling += part,
            None => self.computing += 1,
        }
        self.agenda.push(clock, needs, rank, generation);
        if due_at.is_finite() {
            self.agenda.push(Clock::Wall, due_at - self.now(), rank, generation);
        }
    }

    /// Stops computing, or asking.
    pub(super) fn pause(&mut self, rank: Rank) {
        self.progress(rank);
        let program = &self.programs[rank as usize];
        let process = &mut self.processes[rank as usize];
        if process.until.take().is_some() {
            match program.sleeps {
                Some(part) => self.polling -= part,
                None => self.computing -= 1,
            }
            process.generation += 1;
            if process.due_at.is_finite() {
                let (after, generation) = (process.due_at - self.agenda.now[0], process.generation);
                self.agenda.push(Clock::Wall, after, rank, generation);
            }
        }
        if std::mem::take(&mut process.polls) {
            self.polling -= program.polls;
        }
    }

    /// What it does next, if it can go on where it is.
    pub(super) fn act(&mut self, rank: Rank) {
        let process = &self.processes[rank as usize];
        if !process.runs() || process.until.is_some() || process.polls {
            return;
        }
        if process.tells && !self.programs[rank as usize].script.is_empty() {
            return self.act_script(rank);
        }
        if process.tells {
            return self.act_native(rank);
        }
        let program = &self.programs[rank as usize];
        if self.awaited(rank).is_some() {
            self.processes[rank as usize].polls = true;
            self.polling += program.polls;
            return;
        }
        let half = program.waits_for.map(|_| 0.5);
        let stops = [half, program.joins, Some(1.0)].into_iter().flatten();
        let next = stops.filter(|&stop| stop > process.done + NOTHING).fold(1.0, f64::min);
        self.compute(rank, next);
    }

    /// Something is due: that it has moved, that its next state begins, or that it has computed.
    pub(super) fn happen(&mut self, rank: Rank, clock: Clock) {
        if clock == Clock::Disk {
            return self.has_moved(rank);
        }
        if self.processes[rank as usize].due_at <= self.now() + NOTHING {
            self.processes[rank as usize].due_at = f64::INFINITY;
            self.begin(rank);
        }
        self.progress(rank);
        let process = &self.processes[rank as usize];
        if process.until.is_some_and(|until| process.done >= until - NOTHING) {
            self.has_computed(rank);
        }
    }

    /// Its next state begins.
    fn begin(&mut self, rank: Rank) {
        let process = &mut self.processes[rank as usize];
        if let Some(again) = process.ending {
            return self.end(rank, if again { Next::Stopped } else { Next::Over });
        }
        if process.winding {
            return self.end(rank, Next::Over);
        }
        if let Some(bytes) = process.moves_soon.take() {
            return self.begin_to_move(rank, bytes);
        }
        match process.place {
            Place::Starting => {
                process.place = Place::Inside;
                process.tells = self.programs[rank as usize].can.tells;
                self.news(Event::Done { rank, outcome: Outcome::Started });
                self.progress(rank);
                self.act(rank);
            }
            Place::Holding => {
                process.place = Place::Held;
                self.pause(rank);
                self.news(Event::Done { rank, outcome: Outcome::Held });
            }
            Place::Leaving => self.begin_leaving(rank),
            Place::Shrinking => {
                self.pause(rank);
                let (all, room) = (self.ram(rank), (self.machine.scratch - self.scratch).max(0.0));
                let process = &mut self.processes[rank as usize];
                let all = (all - process.target.max(self.programs[rank as usize].fixed)).max(0.0);
                process.disk_full = all > room;
                self.move_bytes(rank, all.min(room));
            }
            _ => {}
        }
    }

    /// It stands still, and what it holds begins to move, as far as there is scratch.
    fn begin_leaving(&mut self, rank: Rank) {
        self.pause(rank);
        let room = (self.machine.scratch - self.scratch).max(0.0);
        let all = (self.ram(rank) - self.programs[rank as usize].fixed).max(0.0);
        let process = &mut self.processes[rank as usize];
        process.disk_full = all > room;
        if process.disk_full && room < all / 2.0 {
            process.place = if process.stands { Place::Held } else { Place::Inside };
            let outcome = Outcome::Full { need: (all - room) as u64, part: None };
            self.news(Event::Done { rank, outcome });
            return self.act(rank);
        }
        self.move_bytes(rank, all.min(room));
    }

    /// It has done all, and is gone after a while.
    pub(super) fn wind_up(&mut self, rank: Rank) {
        let program = &self.programs[rank as usize];
        if program.ending <= 0.0 {
            return self.end_by_itself(rank);
        }
        let (ending, mute) = (program.ending, program.mute);
        self.processes[rank as usize].winding = true;
        if !mute {
            self.news(Event::Ending { rank });
        }
        self.due(rank, Clock::Wall, ending);
    }

    /// It has done its work, or fails at the end of it, and begins again.
    pub(super) fn end_by_itself(&mut self, rank: Rank) {
        let (program, process) = (&self.programs[rank as usize], &self.processes[rank as usize]);
        let fails = !process.tells && process.failed < program.fails;
        let next = if fails { Next::Retry { least: process.peak as u64 } } else { Next::Over };
        self.processes[rank as usize].failed += u32::from(fails);
        self.end(rank, next);
    }

    /// It ends, or begins again some time.
    pub(super) fn end(&mut self, rank: Rank, next: Next) {
        let again = next != Next::Over;
        self.pause(rank);
        self.give_token(rank);
        self.record_end(rank);
        let process = &mut self.processes[rank as usize];
        if process.moves.take().is_some() {
            self.moving -= 1;
        }
        let on_scratch = if process.own { process.total.saturating_sub(process.inside) } else { 0 };
        let own_out = if process.place == Place::Out { on_scratch as f64 } else { process.away as f64 };
        self.scratch -= process.out + own_out;
        self.asked -= process.asked;
        let (peak, generation) = (process.peak as u64, process.generation);
        let (evictions, failed) = (process.evictions, process.failed);
        self.see(rank, 0);
        let place = if again { Place::Unborn } else { Place::Gone };
        let process = &mut self.processes[rank as usize];
        *process = Process { evictions, failed, place, generation: generation + 1, ..Process::UNBORN };
        self.measured.remove(&rank);
        self.ended += usize::from(!again);
        self.news(Event::Exited { rank, peak, next });
        for other in self.waiters.get(&rank).cloned().unwrap_or_default() {
            self.no_longer_waits(other);
        }
    }

    /// Whom it may have waited for has ended.
    fn no_longer_waits(&mut self, rank: Rank) {
        let process = &self.processes[rank as usize];
        if process.polls {
            self.pause(rank);
            self.act(rank);
        } else if process.waits == Some(Wait::Other) {
            self.wake(rank);
        }
    }
}
