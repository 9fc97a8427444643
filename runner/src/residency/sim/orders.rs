//! What is ordered is done, if it can be.

use super::process::{Place, Process};
use super::{Clock, World};
use crate::residency::{Effect, Event, Memory, Outcome, Rank, signed};

impl World<'_> {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        let machine = self.machine;
        match effect {
            // It has ended, and that is not told yet.
            Effect::Hold { rank }
            | Effect::Shrink { rank, .. }
            | Effect::Stop { rank, .. }
            | Effect::OverLimit { rank, .. }
                if self.has_ended(rank) => {}
            Effect::Start { rank, reserve } => {
                let bytes = if self.programs[rank as usize].can.asks { reserve } else { 0 };
                self.of(rank, &[Place::Unborn], effect);
                if !self.pays(rank, bytes, false) {
                    return;
                }
                self.asked += bytes;
                self.report.order.push(rank);
                let process = &mut self.processes[rank as usize];
                (process.place, process.asked) = (Place::Starting, bytes);
                let most = self.machine.limits.alive;
                let is_alive = |process: &&Process| !matches!(process.place, Place::Unborn | Place::Gone);
                let alive = || self.processes.iter().filter(is_alive).count() as u32;
                assert!(most == u32::MAX || alive() <= most, "{effect:?}: {most} are alive");
                if self.programs[rank as usize].peak > 0.0 {
                    self.measured.insert(rank);
                }
                self.due(rank, Clock::Wall, self.programs[rank as usize].starting);
                self.record_start(rank);
            }
            Effect::Evict { rank, keep, preempt } => self.evict(rank, keep, preempt, effect),
            Effect::Restore { rank, bytes, all, overdraft } => {
                let process = self.of(rank, &[Place::Out, Place::Returning], effect);
                if process.own {
                    let other = if process.place == Place::Out { process.out as u64 } else { 0 };
                    let asked = bytes - other;
                    let needs = if process.interrupted { 0 } else { process.needs };
                    assert_eq!(all, process.all_asked + needs, "{effect:?} {process:?}");
                    assert!(process.asked + asked <= all, "{effect:?} {process:?}");
                    assert!(!process.interrupted || process.asked + asked == all, "{effect:?} {process:?}");
                    let got = if other == 0 && !process.interrupted {
                        self.pays_up_to(rank, asked, overdraft)
                    } else if self.pays(rank, bytes, overdraft) {
                        let whole = self.ram(rank) as u64 + other;
                        self.see(rank, whole);
                        asked
                    } else {
                        return;
                    };
                    self.asked += got;
                    let process = &mut self.processes[rank as usize];
                    process.asked += got;
                    process.wanted = all;
                } else if !self.pays(rank, bytes, overdraft) {
                    return;
                } else {
                    let whole = (self.ram(rank) + self.processes[rank as usize].out) as u64;
                    self.see(rank, whole);
                }
                let process = &mut self.processes[rank as usize];
                process.orders += 1;
                if process.place == Place::Out {
                    process.place = Place::Returning;
                    let read = if process.own {
                        process.asked.min(process.all_asked).saturating_sub(process.inside) as f64
                    } else {
                        process.out
                    };
                    self.move_bytes(rank, read);
                }
            }
            Effect::Grant { rank, bytes, overdraft } => {
                let process = self.of(rank, &[Place::Inside], effect);
                assert_eq!(process.needs, bytes, "{effect:?} {process:?}");
                if self.pays(rank, bytes, overdraft) {
                    self.asked += bytes;
                    let process = &mut self.processes[rank as usize];
                    process.asked += bytes;
                    process.needs = 0;
                    self.news(Event::Running { rank });
                    self.wake(rank);
                }
            }
            Effect::Hold { rank } => {
                self.report.holds += 1;
                self.of(rank, &[Place::Inside], effect).place = Place::Holding;
                self.due_also(rank, machine.holding);
            }
            Effect::Resume { rank } => {
                self.of(rank, &[Place::Held], effect).place = Place::Inside;
                self.news(Event::Done { rank, outcome: Outcome::Resumed });
                self.act(rank);
            }
            Effect::Shrink { rank, target } => {
                self.report.shrinks += 1;
                let unpageable = self.programs[rank as usize].unpageable;
                let process = self.of(rank, &[Place::Inside, Place::Held], effect);
                process.stands = process.place == Place::Held;
                if unpageable {
                    // If it stood still it runs from now on.
                    process.place = Place::Inside;
                    let stood = std::mem::take(&mut process.stands);
                    self.news(Event::Done { rank, outcome: Outcome::Refused { lasting: true } });
                    if stood {
                        self.act(rank);
                    }
                    return;
                }
                process.place = Place::Shrinking;
                process.target = target as f64;
                self.due_also(rank, machine.latency);
            }
            Effect::Stop { rank, .. } => {
                self.report.stops += 1;
                assert!(self.programs[rank as usize].can.rerun, "{effect:?}");
                self.end_soon(rank, true, effect);
            }
            Effect::OverLimit { rank, .. } => {
                self.report.over_limit += 1;
                self.end_soon(rank, false, effect);
            }
            Effect::Overdraft { .. } => self.report.overdrafts += 1,
            Effect::Crowded { .. } => {}
            Effect::Fail(_) | Effect::Finish => self.end = Some(effect),
        }
    }

    /// Its process has ended, perhaps to begin again once that is told: what is ordered until then finds
    /// nobody.
    fn has_ended(&self, rank: Rank) -> bool {
        let process = &self.processes[rank as usize];
        process.place == Place::Gone || (process.place == Place::Unborn && process.failed > 0)
    }

    /// The process, which must be where the order says it is.
    fn of(&mut self, rank: Rank, places: &[Place], effect: Effect) -> &mut Process {
        let process = &mut self.processes[rank as usize];
        assert!(places.contains(&process.place), "{effect:?} of {process:?}");
        process
    }

    fn end_soon(&mut self, rank: Rank, again: bool, effect: Effect) {
        self.of(rank, &[Place::Inside, Place::Held, Place::Out], effect).ending = Some(again);
        self.due_also(rank, self.machine.holding);
    }

    /// Takes what an order costs, or denies it.
    fn pays(&mut self, rank: Rank, bytes: u64, overdraft: bool) -> bool {
        // As in the shell: where nobody asks nobody else can have taken it.
        let free = self.free().saturating_add(signed(self.core.kept_free()));
        let there = bytes == 0 || !self.core.is_shared() || signed(bytes) <= free;
        let paid = overdraft || (there && !self.draw.chance(self.machine.denied));
        if !paid {
            self.deny(rank, bytes);
        }
        paid
    }

    /// The same for a restore of one that asks, which takes what there is.
    fn pays_up_to(&mut self, rank: Rank, bytes: u64, overdraft: bool) -> u64 {
        let mut got = bytes.min(u64::try_from(self.free()).unwrap_or(0));
        if overdraft {
            got = bytes;
        } else if self.draw.chance(self.machine.denied) {
            got = self.draw.below(got + 1);
        }
        if got < bytes {
            self.deny(rank, bytes - got);
        }
        got
    }

    fn deny(&mut self, rank: Rank, bytes: u64) {
        self.report.denied += 1;
        self.news(Event::Denied { rank, bytes });
    }

    fn evict(&mut self, rank: Rank, keep: u64, preempt: bool, effect: Effect) {
        let (refused, latency) = (self.draw.chance(self.machine.refused), self.machine.latency);
        if self.has_ended(rank) || self.processes[rank as usize].ending.is_some() {
            return;
        }
        let program = &self.programs[rank as usize];
        let process = &mut self.processes[rank as usize];
        if !process.tells {
            if refused || program.unpageable {
                let outcome = Outcome::Refused { lasting: program.unpageable };
                self.of(rank, &[Place::Inside, Place::Held], effect);
                self.news(Event::Done { rank, outcome });
                return;
            }
            let process = self.of(rank, &[Place::Inside, Place::Held], effect);
            process.stands = process.place == Place::Held;
            (process.place, process.own) = (Place::Leaving, false);
            self.due_also(rank, latency);
            return;
        }
        if process.winding {
            // Whoever was to interrupt it finds that it is gone, and leaves it to its end to tell that.
            if !preempt {
                self.news(Event::Done { rank, outcome: Outcome::Lost });
            }
            return;
        }
        if process.place == Place::Inside && preempt && !refused && !program.unpageable {
            // Whatever it does by now.
            assert!((program.can.preempt || program.mute) && keep == 0, "{effect:?}");
            self.pause(rank);
            self.give_token(rank);
            self.report.preemptions += 1;
            let process = &mut self.processes[rank as usize];
            process.total = process.asked + std::mem::take(&mut process.away);
            (process.all_asked, process.inside, process.ready_at) =
                (process.asked, process.asked, Some(self.brought_in));
            process.must_hold = process.all_asked;
            (process.was_out, process.own, process.keep) = (false, true, 0);
            (process.place, process.interrupted) = (Place::Leaving, true);
            return self.leave_own(rank, true);
        }
        match process.place {
            Place::Inside if process.runs() && !preempt => {
                self.report.lost += 1;
                self.news(Event::Done { rank, outcome: Outcome::Lost });
            }
            Place::Inside | Place::Out if refused || program.unpageable => {
                let (waits, asked, all) = (process.waits, process.asked, process.all_asked);
                let is_out = process.place == Place::Out;
                self.news(Event::Done { rank, outcome: Outcome::Refused { lasting: false } });
                if is_out {
                    self.news(Event::EvictedItself { rank, wait: waits, asked, all });
                } else {
                    self.tell_anew(rank, preempt);
                }
            }
            Place::Inside | Place::Out => {
                if process.place == Place::Inside {
                    process.total = process.asked + std::mem::take(&mut process.away);
                    (process.all_asked, process.inside) = (process.total, process.asked);
                    if !program.script.is_empty() {
                        process.all_asked = process.goes_on_with(program);
                    }
                    process.must_hold = process.all_asked;
                }
                (process.was_out, process.own) = (process.place == Place::Out, true);
                // It may have given some back meanwhile.
                process.keep = keep.min(process.asked);
                process.place = Place::Leaving;
                self.leave_own(rank, true);
            }
            _ => panic!("{effect:?} of {process:?}"),
        }
    }

    /// What it did since an order was not heard while the answer was awaited. A need is told anew only by who
    /// was interrupted: any other's is met, or still to be.
    fn tell_anew(&mut self, rank: Rank, interrupted: bool) {
        let Process { waits, needs, .. } = self.processes[rank as usize];
        match waits.filter(|_| !self.programs[rank as usize].mute) {
            Some(wait) => self.news(Event::Blocked { rank, wait }),
            None if needs > 0 && interrupted => self.news(Event::NeedsMemory { rank, bytes: needs }),
            _ => {}
        }
    }

    /// Moves a part of what is to go, or all of it, of one that moves itself.
    pub(super) fn leave_own(&mut self, rank: Rank, first: bool) {
        let in_parts = self.draw.chance(128);
        let process = &mut self.processes[rank as usize];
        let preempt = process.interrupted;
        let in_parts = in_parts && !preempt;
        let going = process.asked - process.keep;
        let group = if preempt { u64::MAX } else { self.machine.group };
        process.step = if in_parts { going / 2 } else { going.min(group) };
        // What was set aside and not used goes first.
        let written = process.inside.saturating_sub(process.asked - process.step);
        if self.scratch + written as f64 > self.machine.scratch {
            let out = process.was_out || process.inside < process.all_asked;
            let other = process.seen;
            let now = (Memory { asked: process.asked, other }, Memory { asked: process.all_asked, other });
            process.place = if out { Place::Out } else { Place::Inside };
            process.interrupted &= out;
            let runs = process.waits.is_none() && process.needs == 0;
            let outcome = Outcome::Full { need: written, part: out.then_some(now) };
            self.news(Event::Done { rank, outcome });
            match out {
                true => {}
                false if runs => self.act(rank),
                false => self.tell_anew(rank, preempt),
            }
            return;
        }
        if first {
            self.move_bytes(rank, written as f64);
        } else {
            self.begin_to_move(rank, written as f64);
        }
    }
}
