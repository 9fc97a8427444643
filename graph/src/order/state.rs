//! A graph of which some tasks have run.

use super::depth::{Ground, stays};
use crate::csr::Csr;
use crate::graph::{Graph, TaskId};

#[cfg(test)]
thread_local! {
    /// Inputs and uses of tasks that were looked at on this thread.
    pub(crate) static LOOKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Notes for tests that so many inputs, or uses, are looked at.
#[inline]
pub(super) fn looks(at: usize) {
    #[cfg(test)]
    LOOKED.set(LOOKED.get() + at as u64);
    _ = at;
}

/// Lists from which what has run is removed now and then.
#[derive(Clone)]
pub(crate) struct Rows {
    all: Csr,
    /// Where each begins: what is before has run.
    firsts: Vec<u32>,
    /// And where it ends.
    lengths: Vec<u32>,
}

impl Rows {
    fn new(all: &Csr) -> Self {
        let lengths = (0..all.rows()).map(|row| all.row(row).len() as u32).collect();
        Self { all: all.clone(), firsts: vec![0; all.rows()], lengths }
    }

    #[inline]
    pub(crate) fn row(&self, row: usize) -> &[u32] {
        &self.all.row(row)[self.firsts[row] as usize..self.lengths[row] as usize]
    }

    /// Passes over what has run at the front, for good: nobody walks over it again, however few are taken
    /// from a long list at a time.
    #[inline]
    fn pass(&mut self, row: usize, ran: &[bool]) {
        let entries = &self.all.row(row)[..self.lengths[row] as usize];
        let first = &mut self.firsts[row];
        while let Some(&entry) = entries.get(*first as usize)
            && ran[entry as usize]
        {
            *first += 1;
            looks(1);
        }
    }

    /// Removes what has run once that is half: so many have not.
    #[inline]
    fn trim(&mut self, row: usize, left: u32, ran: &[bool]) {
        if left * 2 > self.lengths[row] || self.lengths[row] < 8 {
            return;
        }
        let entries = &mut self.all.row_mut(row)[..self.lengths[row] as usize];
        looks(entries.len());
        let mut kept = 0;
        for at in 0..entries.len() {
            if !ran[entries[at] as usize] {
                entries[kept] = entries[at];
                kept += 1;
            }
        }
        (self.firsts[row], self.lengths[row]) = (0, kept as u32);
    }
}

/// What has run, what is live, and what could run at no price.
#[derive(Clone)]
pub(crate) struct State<'a> {
    pub(crate) graph: &'a Graph,
    /// The needs and consumers of each task; some of them may have run.
    pub(crate) needs: Rows,
    pub(crate) consumers: Rows,
    pub(crate) ran: Vec<bool>,
    /// Of each task, how many inputs have yet to run.
    pub(crate) missing: Vec<u32>,
    /// Of each result, how many have yet to use it.
    pub(crate) left: Vec<u32>,
    /// Of each task, bytes of inputs that nobody else has yet to use, and that it frees.
    frees: Vec<u64>,
    pub(crate) live: u64,
    /// The most that was live, or may be.
    pub(crate) peak: u64,
    pub(crate) order: Vec<TaskId>,
    /// Ready tasks that may have become free to run.
    free: Vec<TaskId>,
    path: Vec<(u32, u32)>,
}

impl<'a> State<'a> {
    pub(crate) fn new(graph: &'a Graph, ground: &Ground, peak: u64) -> Self {
        let mut frees = vec![0; graph.len()];
        for input in graph.tasks().filter(|&input| !stays(graph, input)) {
            if let &[only] = graph.consumers.row(input.index()) {
                frees[only as usize] += graph.bytes(input);
            }
        }
        Self {
            graph,
            needs: Rows::new(&ground.needs),
            consumers: Rows::new(&graph.consumers),
            ran: vec![false; graph.len()],
            missing: graph.tasks().map(|task| graph.needs(task).len() as u32).collect(),
            left: graph.tasks().map(|task| graph.consumers(task).len() as u32).collect(),
            frees,
            live: 0,
            peak: peak.max(ground.least),
            order: Vec::with_capacity(graph.len()),
            free: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Runs a task whose inputs have run.
    pub(crate) fn run(&mut self, task: TaskId) {
        debug_assert!(self.missing[task.index()] == 0 && !self.ran[task.index()]);
        let graph = self.graph;
        self.ran[task.index()] = true;
        self.order.push(task);
        self.live += graph.bytes(task);
        self.peak = self.peak.max(self.live + graph.work(task));
        looks(graph.needs(task).len() + graph.consumers(task).len());
        for input in graph.needs(task) {
            let left = &mut self.left[input.index()];
            *left -= 1;
            if *left == 0 {
                if !stays(graph, input) {
                    self.live -= graph.bytes(input);
                }
                continue;
            }
            if *left == 1 {
                // Whoever is last frees it.
                let last = self.consumers.row(input.index()).iter().find(|&&last| !self.ran[last as usize]);
                let last = *last.expect("one use is left");
                if !stays(graph, input) {
                    self.frees[last as usize] += graph.bytes(input);
                }
                if self.missing[last as usize] == 0 {
                    self.free.push(TaskId(last));
                }
            }
            self.consumers.trim(input.index(), self.left[input.index()], &self.ran);
        }
        for consumer in graph.consumers(task) {
            let missing = &mut self.missing[consumer.index()];
            *missing -= 1;
            if *missing == 0 {
                self.free.push(consumer);
            } else {
                self.needs.trim(consumer.index(), *missing, &self.ran);
                self.needs.pass(consumer.index(), &self.ran);
            }
        }
        if self.left[task.index()] == 0 && !stays(graph, task) {
            self.live -= graph.bytes(task);
        }
    }

    /// What a task frees, if it runs next.
    #[cfg(test)]
    pub(super) fn frees(&self, task: TaskId) -> u64 {
        self.frees[task.index()]
    }

    /// The next ready task that takes no more than was taken already, neither while it runs nor afterwards:
    /// no order is better for letting it wait.
    pub(crate) fn free(&mut self) -> Option<TaskId> {
        while let Some(task) = self.free.pop() {
            if self.ran[task.index()] {
                continue;
            }
            looks(1);
            let graph = self.graph;
            let bytes = graph.bytes(task);
            let remains = if graph.consumers(task).len() == 0 && !stays(graph, task) { 0 } else { bytes };
            if remains <= self.frees[task.index()] && self.live + bytes + graph.work(task) <= self.peak {
                return Some(task);
            }
        }
        None
    }

    /// Adds to `trail` what has to run for `goal`, and marks it as run, if with it the trail has no more than
    /// `most` tasks; only the first ones if there are more than `steps`.
    pub(crate) fn cone(&mut self, goal: TaskId, most: usize, steps: usize, trail: &mut Vec<TaskId>) -> bool {
        if self.ran[goal.index()] {
            return true;
        }
        let path = &mut self.path;
        path.clear();
        path.push((goal.0, 0));
        while let Some((task, place)) = path.last_mut() {
            let at = *task as usize;
            if *place == 0 && self.missing[at] as usize > most.saturating_sub(trail.len()) {
                return false;
            }
            let row = self.needs.row(at);
            while let Some(&input) = row.get(*place as usize)
                && self.ran[input as usize]
            {
                *place += 1;
                looks(1);
            }
            looks(1);
            match row.get(*place as usize) {
                Some(&input) => {
                    *place += 1;
                    if trail.len() + path.len() >= most {
                        return false;
                    }
                    path.push((input, 0));
                }
                None => {
                    self.ran[at] = true;
                    trail.push(TaskId(*task));
                    path.pop();
                    if trail.len() >= steps {
                        return true;
                    }
                }
            }
        }
        true
    }

    /// Undoes the marks of [`State::cone`].
    pub(crate) fn unmark(&mut self, trail: &[TaskId]) {
        trail.iter().for_each(|task| self.ran[task.index()] = false);
    }
}

/// Tasks in the order of `wish`, but each behind its inputs, and what is free to run (at a peak of `peak`
/// bytes) at once. The wish may leave out tasks that others need.
pub(crate) fn smooth(graph: &Graph, ground: &Ground, wish: &[TaskId], peak: u64) -> Vec<TaskId> {
    let mut state = State::new(graph, ground, peak);
    let mut trail = Vec::new();
    for &task in wish {
        if state.ran[task.index()] {
            continue;
        }
        if state.missing[task.index()] == 0 {
            trail.push(task);
        } else {
            state.cone(task, usize::MAX, usize::MAX, &mut trail);
            state.unmark(&trail);
        }
        for task in trail.drain(..) {
            if !state.ran[task.index()] {
                state.run(task);
            }
            while let Some(free) = state.free() {
                state.run(free);
            }
        }
    }
    state.order
}
