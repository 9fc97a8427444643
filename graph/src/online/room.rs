//! What makes room, and where results go.

use super::{Effect, Online, Place, State, WINDOW};
use crate::graph::{Output, TaskId};

/// Bytes of the inputs of a task that waits for room, which is asked for at each event.
#[derive(Debug)]
pub(super) struct Summed {
    pub(super) task: TaskId,
    /// All of them: they are made, so that stays.
    inputs: u64,
    /// Those that are on scratch only.
    away: u64,
}

/// Of tasks with so few inputs it is not remembered.
const FEW: usize = 16;

impl Online {
    /// What staging a task takes, all of whose inputs are made, beyond what is in memory.
    pub(super) fn takes(&mut self, task: TaskId) -> u64 {
        let found = self.summed.iter().find(|sums| sums.task == task);
        let (inputs, away) = match found {
            Some(sums) => (sums.inputs, sums.away),
            None => {
                let (inputs, away) = self.sums(task);
                #[cfg(test)]
                {
                    self.added += self.graph.needs(task).len() as u64;
                }
                if self.graph.needs(task).len() > FEW {
                    // Those that were next before another order was taken are dropped with all others.
                    if self.summed.len() > 2 * WINDOW * self.workers {
                        self.summed.clear();
                    }
                    self.summed.push(Summed { task, inputs, away });
                }
                (inputs, away)
            }
        };
        #[cfg(test)]
        assert_eq!((inputs, away), self.sums(task));
        away + self.sizes.expected(task, || inputs)
    }

    fn sums(&self, task: TaskId) -> (u64, u64) {
        let (mut inputs, mut away) = (0, 0);
        for input in self.graph.needs(task) {
            let bytes = self.graph.bytes(input);
            inputs += bytes;
            if self.states[input.index()] == State::Away {
                away += bytes;
            }
        }
        (inputs, away)
    }

    /// Notes that a result is on scratch only, or not any more.
    pub(super) fn is_away(&mut self, task: TaskId, is: bool) {
        let bytes = self.graph.bytes(task);
        for sums in &mut self.summed {
            if self.graph.needs.row(sums.task.index()).binary_search(&task.0).is_ok() {
                sums.away = if is { sums.away + bytes } else { sums.away - bytes };
            }
        }
    }

    /// Decides where results go that are done.
    pub(super) fn place_results(&mut self) {
        let mut at = 0;
        while at < self.unplaced.len() {
            let task = self.unplaced[at];
            let too_much = |online: &Self| online.used.saturating_sub(online.budget);
            // What takes nothing does not wait.
            let place = if too_much(self) == 0 || self.graph.bytes(task) == 0 {
                Some(Place::Memory)
            } else {
                // What is needed later leaves for it. If that is not enough it goes to scratch itself.
                let next = self.next_use(task);
                let is_enough = self.evict(Some(task), next, u32::MAX, too_much(self));
                match (too_much(self), is_enough) {
                    (0, _) => Some(Place::Memory),
                    // It waits for what leaves.
                    (_, true) => None,
                    (_, false) => Some(Place::Scratch),
                }
            };
            let Some(place) = place else {
                at += 1;
                continue;
            };
            self.unplaced.remove(at);
            self.states[task.index()] = State::Stores(place);
            if place == Place::Scratch {
                // No second copy.
                let bytes = self.graph.bytes(task);
                self.back = None;
                self.hold(task, bytes);
            }
            self.effects.push(Effect::Store(task, place));
        }
    }

    /// What takes more than is there lets others leave.
    pub(super) fn shed(&mut self) {
        if self.used > self.budget {
            self.evict(None, 0, u32::MAX, self.used - self.budget);
        }
    }

    /// Whether a result in memory is used by nobody now.
    fn can_leave(&self, task: TaskId) -> bool {
        self.pins[task.index()] == 0 && matches!(self.states[task.index()], State::Here { .. })
    }

    /// The place of the first task that uses the result and is not done.
    fn next_use(&mut self, task: TaskId) -> u32 {
        let users = self.users.row(task.index());
        let first = &mut self.first[task.index()];
        while let Some(&user) = users.get(*first as usize) {
            if matches!(
                self.states[user as usize],
                State::Waits | State::Staged { .. } | State::Queued | State::Runs
            ) {
                return self.places[user as usize];
            }
            // What is done stays so, but for who dies. Each is passed once.
            *first += 1;
            #[cfg(test)]
            {
                self.passed += 1;
            }
        }
        u32::MAX
    }

    /// Makes room for the head. Says whether there is.
    pub(super) fn make_room(&mut self, task: TaskId, place: u32, takes: u64) -> bool {
        if self.alone.contains(&task) {
            // All that can leave does.
            self.evict(Some(task), 0, u32::MAX, u64::MAX);
            return self.is_idle();
        }
        // While all workers have something to do nobody leaves for what they give back in a moment.
        let back = if self.active.len() < self.workers { 0 } else { self.comes_back() };
        let needed = (self.used + takes).saturating_sub(self.budget + back);
        let first = self.active.iter().map(|&task| self.places[task.index()]).min();
        self.evict(Some(task), place, first.unwrap_or(u32::MAX), needed);
        if self.used + takes <= self.budget {
            return true;
        }
        if !self.is_idle() {
            return false;
        }
        self.counts.too_large += 1;
        true
    }

    /// What those that are staged or run give back when they are done: what they take beyond their results,
    /// and inputs that nobody else needs.
    fn comes_back(&mut self) -> u64 {
        let back = self.back.unwrap_or_else(|| {
            let back = self.sum_back();
            #[cfg(test)]
            {
                self.added +=
                    self.active.iter().map(|&task| self.graph.needs(task).len() as u64).sum::<u64>();
            }
            back
        });
        #[cfg(test)]
        assert_eq!(back, self.sum_back());
        self.back = Some(back);
        back
    }

    fn sum_back(&self) -> u64 {
        let stays = |task: TaskId| self.uses[task.index()] > 0 || self.graph.output(task) == Output::Kept;
        let mut back = 0;
        for &task in &self.active {
            let result = if stays(task) { self.graph.bytes(task) } else { 0 };
            back += self.holds[task.index()].saturating_sub(result);
            for input in self.graph.needs(task) {
                let pins = self.pins[input.index()];
                // Shared by so many of them.
                if self.uses[input.index()] == pins && self.graph.output(input) != Output::Kept {
                    back += self.holds[input.index()] / u64::from(pins.max(1));
                }
            }
        }
        back
    }

    /// Lets results leave until so many bytes have gone or leave, those first that are needed furthest away,
    /// and none that is needed up to `place`, or by `by`, or was made at place `made` or later. What is on
    /// scratch goes at once. Says whether that is enough.
    fn evict(&mut self, by: Option<TaskId>, place: u32, made: u32, bytes: u64) -> bool {
        let mut gone = self.leaving;
        if gone >= bytes {
            return true;
        }
        let mut victims = Vec::new();
        for &(next, task) in self.here.iter().rev() {
            if next <= place && bytes != u64::MAX {
                break;
            }
            #[cfg(test)]
            {
                self.looked += 1;
            }
            let is_needed =
                by.is_some_and(|by| self.graph.needs.row(by.index()).binary_search(&task.0).is_ok());
            if self.can_leave(task) && !is_needed && self.places[task.index()] < made {
                victims.push(task);
                gone += self.graph.bytes(task);
                if gone >= bytes {
                    break;
                }
            }
        }
        for task in victims {
            let held = self.graph.bytes(task);
            let is_written = self.states[task.index()] == (State::Here { written: true });
            self.is_here(task, false);
            if is_written {
                self.states[task.index()] = State::Away;
                self.is_away(task, true);
                self.hold(task, 0);
                self.effects.push(Effect::Forget(task, Place::Memory));
            } else {
                self.states[task.index()] = State::Leaves;
                self.leaving += held;
                self.moving += 1;
                self.counts.written += held;
                self.effects.push(Effect::Write(task));
            }
        }
        gone >= bytes
    }

    pub(super) fn written(&mut self, task: TaskId) {
        assert_eq!(self.states[task.index()], State::Leaves, "{}", self.graph.key(task));
        self.moving -= 1;
        self.leaving -= self.graph.bytes(task);
        if self.pins[task.index()] > 0 {
            // Somebody was staged who uses it.
            self.states[task.index()] = State::Here { written: true };
            return self.is_here(task, true);
        }
        self.states[task.index()] = State::Away;
        self.is_away(task, true);
        self.hold(task, 0);
        self.effects.push(Effect::Forget(task, Place::Memory));
        if self.uses[task.index()] == 0 && self.graph.output(task) != Output::Kept {
            self.forget(task);
        }
    }

    pub(super) fn read(&mut self, task: TaskId) {
        assert_eq!(self.states[task.index()], State::Comes, "{}", self.graph.key(task));
        self.moving -= 1;
        self.states[task.index()] = State::Here { written: true };
        self.is_here(task, true);
        // Who waits for it is among the few that are staged, whoever else uses it.
        for at in 0..self.active.len() {
            let user = self.active[at];
            if self.graph.needs.row(user.index()).binary_search(&task.0).is_err() {
                continue;
            }
            if let State::Staged { missing } = &mut self.states[user.index()] {
                *missing -= 1;
                if *missing == 0 {
                    self.queue(user);
                }
            }
        }
    }

    /// Nobody needs the result any more.
    pub(super) fn forget(&mut self, task: TaskId) {
        match self.states[task.index()] {
            State::Here { written } => {
                self.is_here(task, false);
                self.effects.push(Effect::Forget(task, Place::Memory));
                if written {
                    self.effects.push(Effect::Forget(task, Place::Scratch));
                }
            }
            State::Away => self.effects.push(Effect::Forget(task, Place::Scratch)),
            // Once it is written.
            State::Leaves => return,
            state => panic!("{} is {state:?} and not needed", self.graph.key(task)),
        }
        self.hold(task, 0);
        self.states[task.index()] = State::Gone;
    }

    /// Notes that a result is in memory and could leave, or not any more. What takes nothing makes no room.
    pub(super) fn is_here(&mut self, task: TaskId, is: bool) {
        if !is {
            self.here.remove(&(self.next[task.index()], task));
        } else if self.graph.bytes(task) > 0 {
            let next = self.next_use(task);
            self.next[task.index()] = next;
            self.here.insert((next, task));
        }
    }

    /// Notes that a task that uses a result is done, or is not done after all.
    pub(super) fn is_used_next(&mut self, task: TaskId) {
        if self.here.remove(&(self.next[task.index()], task)) {
            self.is_here(task, true);
        }
    }
}
