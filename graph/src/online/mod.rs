//! Running a graph whose sizes are found out while it runs: a state machine without threads, memory or a
//! clock. Whoever runs it tells it what has happened ([`Online::handle`]) and does what it says
//! ([`Effect`]).
//!
//! Nothing is known of a task but what it needs and to which *group* of similar tasks it belongs. What one
//! of a group took is expected of the next ([`sizes`](self)); with what is learned the order is made anew,
//! and taken if it promises to be better. Results are in memory, or on scratch, or on their way.
//!
//! # Why it ends, and what it takes
//!
//! A task is *staged* when its inputs are, or are brought, in memory and what it is expected to take is
//! *reserved*. It is staged if that is within the budget. The *head* is the first in the order that waits
//! for nothing but this; for it, results make room that nobody uses now, those first that are needed
//! furthest away (Belady 1966), if a worker is idle, or else for what is not given back anyway when those
//! that run are done. While others run, what was made ahead of them in the order does not leave for
//! what is even further ahead: one after the other, neither would be there yet.
//!
//! 1. If tasks take what is expected of them, the budget is kept: all that is in memory, or expected to
//!    come, is counted, from the moment it is decided until it has really gone.
//! 2. Nothing gets stuck: if nothing is on its way, no result is in use, so all but the head's inputs can
//!    make room. If even that is not enough the head is staged alone, which is said ([`Effect::Run`]).
//! 3. The head does not wait for ever: others are staged only if they are among the next ones of the order
//!    behind the first that was not staged, and there are finitely many of these.
//!
//! | module | answers |
//! |---|---|
//! | `sizes` | what is expected of a task |
//! | `room` | what makes room, and where results go |

mod room;
mod sizes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::csr::Csr;
use crate::graph::{Graph, Output, TaskId};
use crate::order::{self, Effort, order, peak};
use crate::plan::{self, Plan};
use room::Summed;
use sizes::Sizes;

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Into memory that all workers share.
    Memory,
    /// Into a file.
    Scratch,
}

/// What is to be done. What takes time is answered by an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Run the task, on any worker that is idle: there is one. Its inputs are in memory.
    Run {
        /// Which.
        task: TaskId,
        /// Whether more memory is taken then than the budget, as far as is known. No other runs with it.
        too_large: bool,
    },
    /// Put the result of a task that is done where it goes.
    Store(TaskId, Place),
    /// Write a result to scratch; it stays in memory until that is done.
    Write(TaskId),
    /// Read a result into memory; it stays on scratch as well.
    Read(TaskId),
    /// A result is not needed any more here; it may be elsewhere.
    Forget(TaskId, Place),
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A task is done; its worker still holds the result.
    Done {
        /// Which.
        task: TaskId,
        /// The size of its result, in bytes.
        bytes: u64,
        /// What it took at most beyond its inputs, its result among it, in bytes.
        took: u64,
    },
    /// A result was stored, and its worker is idle.
    Stored(TaskId),
    /// A result was written.
    Written(TaskId),
    /// A result was read.
    Read(TaskId),
    /// The worker that ran the task ended before its result was stored, and there is another one. The task
    /// runs again, alone.
    Died(TaskId),
    /// While it runs, a task has been seen to take so many bytes beyond its inputs.
    Took(TaskId, u64),
    /// There are so many bytes from now on.
    Budget(u64),
}

/// Where a task, and then its result, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its inputs are not all there, or it waits for memory.
    Waits,
    /// Inputs are on their way.
    Staged { missing: u32 },
    /// It waits for a worker.
    Queued,
    /// A worker runs it.
    Runs,
    /// It is done, and its result waits for room.
    Done,
    /// Its result is being stored.
    Stores(Place),
    /// Its result is in memory, and perhaps on scratch as well.
    Here { written: bool },
    /// It is being written.
    Leaves,
    /// It is on scratch.
    Away,
    /// It is being read.
    Comes,
    /// Nobody needs it any more.
    Gone,
}

/// What was done, to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tasks whose results are there, or were.
    pub done: u64,
    /// Bytes that were written to scratch, stored there at once among them.
    pub written: u64,
    /// Bytes that were read from scratch.
    pub read: u64,
    /// Bytes that were taken at most, as far as is known.
    pub most: u64,
    /// Tasks that ran alone because they were expected to take more than the budget.
    pub too_large: u64,
    /// How often the order was made anew, and taken.
    pub orders: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Online {
    graph: Graph,
    sizes: Sizes,
    budget: u64,
    workers: usize,
    effort: Effort,
    order: Vec<TaskId>,
    /// Of each task its place in the order.
    places: Vec<u32>,
    /// Of each result the tasks that use it, as they are in the order, and which of them is the first that is
    /// not done, or one before it.
    users: Csr,
    first: Vec<u32>,
    /// The first place whose task was not staged.
    cursor: usize,
    states: Vec<State>,
    /// Inputs that are not made yet.
    waits: Vec<u32>,
    /// Tasks that use the result and are not done.
    uses: Vec<u32>,
    /// Tasks that are staged or run and use the result.
    pins: Vec<u32>,
    /// What was reserved for a task beyond its inputs, or is in memory of its result.
    holds: Vec<u64>,
    /// Tasks that died: they run alone.
    alone: Vec<TaskId>,
    /// By place: tasks all of whose inputs are made.
    ready: BTreeSet<(u32, TaskId)>,
    /// By place: tasks that wait for a worker.
    queued: BTreeSet<(u32, TaskId)>,
    /// Tasks that are done and whose results wait for room.
    unplaced: Vec<TaskId>,
    /// Results that could make room, by the place of the first task that uses them and is not done.
    here: BTreeSet<(u32, TaskId)>,
    /// By which each is there.
    next: Vec<u32>,
    /// Tasks that are staged or run.
    active: Vec<TaskId>,
    /// How many of these run; how many results are written or read.
    running: usize,
    moving: usize,
    used: u64,
    /// Of it, what leaves.
    leaving: u64,
    /// What was summed up of tasks with many inputs that wait for room.
    summed: Vec<Summed>,
    /// What those that are staged or run give back; none if that is to be summed up anew.
    back: Option<u64>,
    ends_left: usize,
    /// After so many tasks the order is made anew.
    order_at: u64,
    counts: Counts,
    effects: Vec<Effect>,
    /// Users of results that were found to be done.
    #[cfg(test)]
    passed: u64,
    /// Results that were looked at, to find some that make room.
    #[cfg(test)]
    looked: u64,
    /// Inputs that were summed up, of tasks that wait, are staged or run.
    #[cfg(test)]
    added: u64,
}

/// How far behind the first task that was not staged others are, for each worker.
const WINDOW: usize = 2;
/// After so many tasks the order is made anew for the first time, and then each time after so many times
/// more.
const FIRST_ORDER: u64 = 16;
const NEXT_ORDER: u64 = 2;
/// No source is expected to make more, whatever budget there is.
const MOST_UNKNOWN: u64 = 1 << 40;

impl Online {
    /// Of a graph whose sizes are not looked at, with a group for each task, a budget in bytes, and so many
    /// workers.
    ///
    /// # Panics
    /// If there is not a group for each task, or no worker.
    pub fn new(graph: Graph, groups: Vec<u32>, budget: u64, workers: usize, effort: Effort) -> Self {
        assert!(groups.len() == graph.len() && workers > 0);
        let tasks = graph.len();
        let waits: Vec<u32> = graph.tasks().map(|task| graph.needs(task).len() as u32).collect();
        let uses = graph.tasks().map(|task| graph.consumers(task).len() as u32).collect();
        let mut online = Self {
            sizes: Sizes::new(groups, (budget / (4 * workers as u64)).min(MOST_UNKNOWN), budget / 2),
            budget,
            workers,
            effort,
            order: Vec::new(),
            places: vec![0; tasks],
            users: graph.consumers.clone(),
            first: vec![0; tasks],
            cursor: 0,
            states: vec![State::Waits; tasks],
            waits,
            uses,
            pins: vec![0; tasks],
            holds: vec![0; tasks],
            alone: Vec::new(),
            ready: BTreeSet::new(),
            queued: BTreeSet::new(),
            unplaced: Vec::new(),
            here: BTreeSet::new(),
            next: vec![0; tasks],
            active: Vec::new(),
            running: 0,
            moving: 0,
            used: 0,
            leaving: 0,
            summed: Vec::new(),
            back: None,
            ends_left: tasks,
            order_at: FIRST_ORDER,
            counts: Counts::default(),
            effects: Vec::new(),
            #[cfg(test)]
            passed: 0,
            #[cfg(test)]
            looked: 0,
            #[cfg(test)]
            added: 0,
            graph,
        };
        // Here they are written, as all else.
        online.graph.sources.fill(false);
        online
    }

    /// What is known before: that a task of this one's group had a result of so many bytes, and took so many
    /// beyond its inputs.
    pub fn learn(&mut self, task: TaskId, bytes: u64, took: u64) {
        self.sizes.learn(task, bytes, took.max(bytes));
    }

    /// Begins.
    pub fn begin(&mut self) {
        self.sizes.guess(&mut self.graph, &self.states);
        let order = order(&self.graph, self.effort);
        // What moves least is not known where no size is.
        let order = match self.sizes.are_known() {
            true => self.least_moved(&order.tasks).order().collect(),
            false => order.tasks,
        };
        self.take_order(order);
        self.pump();
    }

    /// What is to be done now. It is taken once.
    pub fn effects(&mut self) -> std::vec::Drain<'_, Effect> {
        self.effects.drain(..)
    }

    /// Whether all results that were asked for are made. Those that are kept are in memory or on scratch.
    pub fn is_done(&self) -> bool {
        self.ends_left == 0 && self.moving == 0
    }

    /// The graph, with what was measured of what is done, and what is expected of the rest.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// In which order its tasks are to run, as was decided last.
    pub fn order(&self) -> &[TaskId] {
        &self.order
    }

    /// Bytes that there are now.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes that are taken now, as far as is known.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Whether a result can be read in memory now, or on scratch.
    pub fn place(&self, task: TaskId) -> Option<Place> {
        match self.states[task.index()] {
            State::Here { .. } | State::Leaves => Some(Place::Memory),
            State::Away | State::Comes => Some(Place::Scratch),
            _ => None,
        }
    }

    /// Something has happened.
    ///
    /// # Panics
    /// If it cannot have.
    pub fn handle(&mut self, event: Event) {
        // What is written or read is nothing that those give back who run.
        if !matches!(event, Event::Written(_) | Event::Read(_) | Event::Budget(_)) {
            self.back = None;
        }
        match event {
            Event::Done { task, bytes, took } => self.done(task, bytes, took.max(bytes)),
            Event::Stored(task) => self.stored(task),
            Event::Written(task) => self.written(task),
            Event::Read(task) => self.read(task),
            Event::Died(task) => self.died(task),
            Event::Took(task, bytes) => {
                if self.states[task.index()] == State::Runs && bytes > self.holds[task.index()] {
                    self.hold(task, bytes);
                }
                self.shed();
            }
            Event::Budget(bytes) => {
                self.budget = bytes;
                self.shed();
            }
        }
        self.pump();
        self.counts.most = self.counts.most.max(self.used);
    }

    fn done(&mut self, task: TaskId, bytes: u64, took: u64) {
        assert_eq!(self.states[task.index()], State::Runs, "{}", self.graph.key(task));
        self.sizes.learn(task, bytes, took);
        self.graph.bytes[task.index()] = bytes;
        self.graph.work[task.index()] = took;
        // Until it is stored the worker holds it as well.
        self.hold(task, 2 * bytes);
        self.states[task.index()] = State::Done;
        self.unplaced.push(task);
        self.alone.retain(|&other| other != task);
    }

    fn stored(&mut self, task: TaskId) {
        let State::Stores(place) = self.states[task.index()] else {
            panic!("{} is stored and was not to be", self.graph.key(task))
        };
        self.running -= 1;
        self.active.retain(|&other| other != task);
        self.counts.done += 1;
        self.ends_left -= 1;
        let bytes = self.graph.bytes(task);
        match place {
            Place::Memory => {
                self.hold(task, bytes);
                self.states[task.index()] = State::Here { written: false };
                self.is_here(task, true);
            }
            Place::Scratch => {
                self.hold(task, 0);
                self.counts.written += bytes;
                self.states[task.index()] = State::Away;
            }
        }
        if self.uses[task.index()] == 0 && self.graph.output(task) != Output::Kept {
            self.forget(task);
        }
        // Not before: what is stored may be part of an input.
        for at in 0..self.graph.needs.row(task.index()).len() {
            let input = TaskId(self.graph.needs.row(task.index())[at]);
            self.pins[input.index()] -= 1;
            self.uses[input.index()] -= 1;
            if self.uses[input.index()] == 0 && self.graph.outputs[input.index()] != Output::Kept {
                self.forget(input);
            } else {
                self.is_used_next(input);
            }
        }
        for consumer in self.graph.consumers.row(task.index()).iter().map(|&consumer| TaskId(consumer)) {
            self.waits[consumer.index()] -= 1;
            if self.waits[consumer.index()] == 0 {
                self.ready.insert((self.places[consumer.index()], consumer));
            }
        }
        if self.counts.done >= self.order_at {
            self.order_at = self.counts.done * NEXT_ORDER;
            self.order_anew();
        }
    }

    fn died(&mut self, task: TaskId) {
        match self.states[task.index()] {
            State::Runs | State::Stores(_) => {}
            State::Done => self.unplaced.retain(|&other| other != task),
            state => panic!("{} died and is {state:?}", self.graph.key(task)),
        }
        self.running -= 1;
        self.active.retain(|&other| other != task);
        for input in self.graph.needs.row(task.index()) {
            self.pins[*input as usize] -= 1;
            // It may have been passed as done.
            self.first[*input as usize] = 0;
        }
        self.hold(task, 0);
        self.states[task.index()] = State::Waits;
        for at in 0..self.graph.needs.row(task.index()).len() {
            self.is_used_next(TaskId(self.graph.needs.row(task.index())[at]));
        }
        self.ready.insert((self.places[task.index()], task));
        if !self.alone.contains(&task) {
            self.alone.push(task);
        }
    }

    /// What is in memory for a task, or reserved.
    fn hold(&mut self, task: TaskId, bytes: u64) {
        let holds = &mut self.holds[task.index()];
        self.used = self.used - *holds + bytes;
        *holds = bytes;
    }

    /// Makes an order with what was learned, and takes it if it is better.
    fn order_anew(&mut self) {
        if !self.sizes.guess(&mut self.graph, &self.states) {
            return;
        }
        let order = order(&self.graph, self.effort);
        let (new, now) = (self.least_moved(&order.tasks), self.plan(&self.order));
        let new_order: Vec<TaskId> = new.order().collect();
        let peak = |order: &[TaskId]| peak(&self.graph, order).bytes;
        let is_better = match now.moved() {
            0 => new.moved() == 0 && peak(&new_order) < peak(&self.order) / 10 * 9,
            moves => new.moved() < moves / 10 * 9,
        };
        if is_better {
            self.counts.orders += 1;
            self.take_order(new_order);
        }
    }

    /// What moves little within the budget, as far as is known.
    fn least_moved(&self, order: &[TaskId]) -> Plan {
        plan::least_moved(&self.graph, order, self.planned()).expect("every task fits")
    }

    fn plan(&self, order: &[TaskId]) -> Plan {
        plan::plan(&self.graph, order, self.planned()).expect("every task fits")
    }

    /// The budget with which is planned: what takes more than there is runs all the same.
    fn planned(&self) -> u64 {
        let largest = self.graph.tasks().map(|task| self.graph.need(task)).max();
        self.budget.max(largest.unwrap_or_default())
    }

    fn take_order(&mut self, order: Vec<TaskId>) {
        debug_assert!(order::check(&self.graph, &order).is_ok());
        for (place, task) in order.iter().enumerate() {
            self.places[task.index()] = place as u32;
        }
        self.order = order;
        for task in 0..self.graph.len() {
            self.users.row_mut(task).sort_unstable_by_key(|&user| self.places[user as usize]);
        }
        self.first.fill(0);
        self.cursor = 0;
        for (_, task) in std::mem::take(&mut self.here) {
            self.is_here(task, true);
        }
        let is_ready =
            |task: &TaskId| self.states[task.index()] == State::Waits && self.waits[task.index()] == 0;
        self.ready =
            self.graph.tasks().filter(is_ready).map(|task| (self.places[task.index()], task)).collect();
        let queued = std::mem::take(&mut self.queued);
        self.queued = queued.into_iter().map(|(_, task)| (self.places[task.index()], task)).collect();
    }

    /// Decides all that can be decided.
    fn pump(&mut self) {
        loop {
            self.place_results();
            self.start();
            if !self.stage() {
                break;
            }
        }
    }

    /// Starts what has its inputs, where a worker is idle.
    fn start(&mut self) {
        // Where more is taken than there is, one at a time.
        while self.running < self.workers && (self.used <= self.budget || self.running == 0) {
            let Some((_, task)) = self.queued.pop_first() else { break };
            self.states[task.index()] = State::Runs;
            self.running += 1;
            let too_large = self.used > self.budget;
            self.effects.push(Effect::Run { task, too_large });
        }
    }

    /// Stages one task, if one can be. Says whether it did.
    fn stage(&mut self) -> bool {
        while self.order.get(self.cursor).is_some_and(|task| self.states[task.index()] != State::Waits) {
            self.cursor += 1;
        }
        // One more than there are workers, so that inputs come while others run.
        if self.active.len() - self.running >= self.workers || self.active.len() >= 2 * self.workers {
            return false;
        }
        // What runs alone does.
        let is_on = |task: &TaskId| self.states[task.index()] != State::Waits;
        if self.alone.iter().any(is_on) {
            return false;
        }
        let window = (self.cursor + WINDOW * self.workers) as u32;
        let is_head_alone = self.ready.first().is_some_and(|(_, head)| self.alone.contains(head));
        let next: Vec<(u32, TaskId)> =
            self.ready.iter().take_while(|(place, _)| *place < window.max(1)).copied().collect();
        // If what the order has next waits for others, which wait for nothing, these go first.
        let next = match (next.is_empty(), self.is_idle()) {
            (true, true) => self.ready.first().copied().into_iter().collect(),
            _ => next,
        };
        for (at, &(place, task)) in next.iter().enumerate() {
            let is_head = at == 0;
            if !is_head && (is_head_alone || self.alone.contains(&task)) {
                continue;
            }
            // Of a group of which nothing is known one is tried at a time.
            if self.active.iter().any(|&other| self.sizes.are_alike_and_unknown(task, other)) {
                continue;
            }
            let takes = self.takes(task);
            let fits = !is_head_alone && self.used + takes <= self.budget;
            let is_staged = fits || is_head && self.make_room(task, place, takes);
            if is_staged {
                self.ready.remove(&(place, task));
                self.bring(task);
                return true;
            }
        }
        false
    }

    /// Whether nothing is on its way.
    fn is_idle(&self) -> bool {
        self.active.is_empty() && self.moving == 0
    }

    fn bring(&mut self, task: TaskId) {
        let takes = self.sizes.expected(task, || self.graph.needs(task).map(|of| self.graph.bytes(of)).sum());
        self.summed.retain(|sums| sums.task != task);
        self.back = None;
        self.hold(task, takes);
        self.active.push(task);
        let mut missing = 0;
        for at in 0..self.graph.needs.row(task.index()).len() {
            let input = TaskId(self.graph.needs.row(task.index())[at]);
            self.pins[input.index()] += 1;
            match self.states[input.index()] {
                State::Away => {
                    let bytes = self.graph.bytes(input);
                    self.hold(input, bytes);
                    self.states[input.index()] = State::Comes;
                    self.is_away(input, false);
                    self.moving += 1;
                    self.counts.read += bytes;
                    self.effects.push(Effect::Read(input));
                    missing += 1;
                }
                State::Comes => missing += 1,
                _ => {}
            }
        }
        if missing == 0 {
            self.queue(task);
        } else {
            self.states[task.index()] = State::Staged { missing };
        }
    }

    fn queue(&mut self, task: TaskId) {
        self.states[task.index()] = State::Queued;
        self.queued.insert((self.places[task.index()], task));
    }
}
