//! Goals: from what is live, the run of tasks that frees most next, looked at some way ahead.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::depth::{Ground, descend, stays};
use crate::csr::Csr;
use crate::graph::{Graph, TaskId};

/// How far to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// So many goals are compared.
    pub(crate) goals: usize,
    /// So many tasks of each.
    pub(crate) tasks: usize,
    /// How a goal is rated.
    pub(crate) rule: Rule,
    /// Bytes that may be live before goals are rated by what they take.
    pub(crate) budget: u64,
    /// Begin with the outputs that were added last.
    pub(crate) reverse: bool,
}

/// How goals are compared that need no more than was needed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// By the bytes that remain.
    Net,
    /// By the bytes that remain, for each second.
    Rate,
    /// By the least hill.
    Hill,
}

/// So many tasks are run towards a goal that is too far to be rated.
const STEPS: usize = 4;

/// Lists from which what has run is removed now and then.
struct Rows {
    all: Csr,
    lengths: Vec<u32>,
}

impl Rows {
    fn new(all: &Csr) -> Self {
        let lengths = (0..all.rows()).map(|row| all.row(row).len() as u32).collect();
        Self { all: all.clone(), lengths }
    }

    fn row(&self, row: usize) -> &[u32] {
        &self.all.row(row)[..self.lengths[row] as usize]
    }

    /// Removes what has run once that is half: so many have not.
    fn trim(&mut self, row: usize, left: u32, ran: &[bool]) {
        if left * 2 > self.lengths[row] || self.lengths[row] < 8 {
            return;
        }
        let entries = &mut self.all.row_mut(row)[..self.lengths[row] as usize];
        let mut kept = 0;
        for at in 0..entries.len() {
            if !ran[entries[at] as usize] {
                entries[kept] = entries[at];
                kept += 1;
            }
        }
        self.lengths[row] = kept as u32;
    }
}

/// What a run of tasks does to the live bytes.
#[derive(Clone, Copy, Debug)]
struct Outlook {
    /// So much more is live at most.
    hill: i64,
    /// So much more is live at the end; parts of results that have more uses count as freed with each.
    net: f64,
    /// Its tasks, of the trail.
    tasks: usize,
}

struct Search<'a> {
    graph: &'a Graph,
    sight: Sight,
    ran: Vec<bool>,
    /// Hills, and what each task needs.
    hill: &'a [u64],
    needs: Rows,
    consumers: Rows,
    /// Inputs that have yet to run.
    missing: Vec<u32>,
    /// Hills of inputs that have yet to run.
    cost: Vec<u64>,
    /// Uses that are left of each result.
    left: Vec<u32>,
    live: u64,
    peak: u64,
    order: Vec<TaskId>,
    /// Tasks that have an input which is live, by what is missing for them. Entries may be out of date.
    near: BinaryHeap<(Reverse<u64>, u32)>,
    /// Ready tasks that may be run at no price.
    free: Vec<TaskId>,
    path: Vec<(u32, u32)>,
    trail: Vec<TaskId>,
    best: Vec<TaskId>,
    picked: Vec<(Reverse<u64>, u32)>,
}

/// An order in which after each goal the one is run next that is rated best.
pub(crate) fn goals(graph: &Graph, ground: &Ground, sight: Sight) -> Vec<TaskId> {
    let tasks = graph.len();
    let mut search = Search {
        graph,
        sight,
        hill: &ground.hill,
        needs: Rows::new(&ground.needs),
        consumers: Rows::new(&graph.consumers),
        ran: vec![false; tasks],
        missing: graph.tasks().map(|task| graph.needs(task).len() as u32).collect(),
        cost: graph.tasks().map(|task| graph.needs(task).map(|input| ground.hill[input.index()]).sum()).collect(),
        left: graph.tasks().map(|task| graph.consumers(task).len() as u32).collect(),
        live: 0,
        peak: graph.tasks().map(|task| graph.need(task)).max().unwrap_or(0).max(sight.budget),
        order: Vec::with_capacity(tasks),
        near: BinaryHeap::new(),
        free: Vec::new(),
        path: Vec::new(),
        trail: Vec::new(),
        best: Vec::new(),
        picked: Vec::new(),
    };
    search.all();
    search.order
}

impl Search<'_> {
    fn all(&mut self) {
        let ends: Vec<TaskId> = self.graph.tasks().filter(|&task| self.graph.consumers(task).len() == 0).collect();
        let mut next = 0;
        while self.order.len() < self.graph.len() {
            if self.ahead() {
                continue;
            }
            // Nothing is begun: the next output, by its nearest beginning.
            while next < ends.len() && self.ran[self.end(&ends, next).index()] {
                next += 1;
            }
            let end = self.end(&ends, next);
            let first = self.first(end);
            self.run(first);
            self.settle();
        }
    }

    fn end(&self, ends: &[TaskId], at: usize) -> TaskId {
        ends[if self.sight.reverse { ends.len() - 1 - at } else { at }]
    }

    /// The task that has to run first for `end`.
    fn first(&self, end: TaskId) -> TaskId {
        let mut at = end;
        loop {
            match self.needs.row(at.index()).iter().find(|&&input| !self.ran[input as usize]) {
                Some(&input) => at = TaskId(input),
                None => return at,
            }
        }
    }

    /// Runs the best goal among those near, if there are any.
    fn ahead(&mut self) -> bool {
        self.picked.clear();
        while self.picked.len() < self.sight.goals {
            let Some(entry) = self.near.pop() else { break };
            let at = entry.1 as usize;
            if !self.ran[at] && entry.0.0 == self.cost[at] && !self.picked.contains(&entry) {
                self.picked.push(entry);
            }
        }
        let mut chosen: Option<(Outlook, usize)> = None;
        for place in 0..self.picked.len() {
            let goal = TaskId(self.picked[place].1);
            let Some(outlook) = self.look(goal) else { continue };
            if chosen.as_ref().is_none_or(|(best, _)| self.better(&outlook, best)) {
                self.trail.truncate(outlook.tasks);
                std::mem::swap(&mut self.best, &mut self.trail);
                chosen = Some((outlook, place));
            }
        }
        let picked = std::mem::take(&mut self.picked);
        if chosen.is_none()
            && let Some(&(_, goal)) = picked.first()
        {
            // All are too far: some steps towards the nearest.
            self.best.clear();
            self.trail.clear();
            let mut trail = std::mem::take(&mut self.best);
            self.cone(TaskId(goal), usize::MAX, STEPS, &mut trail);
            trail.iter().for_each(|task| self.ran[task.index()] = false);
            self.best = trail;
        }
        let found = !picked.is_empty();
        self.near.extend(picked.iter().copied());
        self.picked = picked;
        if found {
            let run = std::mem::take(&mut self.best);
            for &task in &run {
                if !self.ran[task.index()] {
                    self.run(task);
                    self.settle();
                }
            }
            self.best = run;
        }
        found
    }

    fn better(&self, one: &Outlook, other: &Outlook) -> bool {
        let room = self.peak as i64 - self.live as i64;
        let fits = |outlook: &Outlook| outlook.hill <= room;
        match (fits(one), fits(other)) {
            (true, false) => true,
            (false, true) => false,
            (true, true) => match self.sight.rule {
                Rule::Hill => (one.hill, one.net) < (other.hill, other.net),
                Rule::Net => (one.net, one.hill) < (other.net, other.hill),
                Rule::Rate => {
                    let rate = |outlook: &Outlook| outlook.net / outlook.tasks as f64;
                    (rate(one), one.hill) < (rate(other), other.hill)
                }
            },
            (false, false) => (one.hill, one.net) < (other.hill, other.net),
        }
    }

    /// What running all that `goal` needs would do, and then what it makes possible; the best of these ends. None
    /// if it is too far.
    fn look(&mut self, goal: TaskId) -> Option<Outlook> {
        let mut trail = std::mem::take(&mut self.trail);
        trail.clear();
        let (mut live, mut hill, mut credit, mut done) = (0_i64, 0_i64, 0.0, 0);
        let mut best: Option<Outlook> = None;
        let mut at = goal;
        loop {
            if !self.cone(at, self.sight.tasks, usize::MAX, &mut trail) {
                for &task in &trail[done..] {
                    self.ran[task.index()] = false;
                }
                trail.truncate(done);
                break;
            }
            for &task in &trail[done..] {
                let bytes = self.graph.bytes(task) as i64;
                live += bytes;
                hill = hill.max(live + self.graph.work(task) as i64);
                for &input in self.graph.needs.row(task.index()) {
                    let left = &mut self.left[input as usize];
                    let size = self.graph.bytes(TaskId(input));
                    if !stays(self.graph, TaskId(input)) {
                        if *left == 1 {
                            live -= size as i64;
                            credit -= Self::credited(self.graph.consumers.row(input as usize).len() as u32, 1) * size as f64;
                        } else {
                            let uses = self.graph.consumers.row(input as usize).len() as u32;
                            credit += (Self::credited(uses, *left - 1) - Self::credited(uses, *left)) * size as f64;
                        }
                    }
                    *left -= 1;
                }
                if self.graph.consumers.row(task.index()).is_empty() && !stays(self.graph, task) {
                    live -= bytes;
                }
            }
            done = trail.len();
            let outlook = Outlook { hill, net: live as f64 - credit, tasks: done };
            if best.as_ref().is_none_or(|best| self.better(&outlook, best)) {
                best = Some(outlook);
            }
            // On to what this makes nearest.
            let next = self.consumers.row(at.index()).iter().filter(|&&next| !self.ran[next as usize]);
            let next = next.take(8).min_by_key(|&&next| self.cost[next as usize]);
            match next {
                Some(&next) if done < self.sight.tasks => at = TaskId(next),
                _ => break,
            }
        }
        for &task in &trail[..done] {
            self.ran[task.index()] = false;
            for &input in self.graph.needs.row(task.index()) {
                self.left[input as usize] += 1;
            }
        }
        self.trail = trail;
        best
    }

    /// The part of a result that counts as freed when of its uses so many are left.
    fn credited(uses: u32, left: u32) -> f64 {
        let done = f64::from(uses - left) / f64::from(uses);
        done * done
    }

    /// Adds what has to run for `goal`, if with it the trail has no more than `most` tasks; only the first ones of it
    /// if there are more than `steps`.
    fn cone(&mut self, goal: TaskId, most: usize, steps: usize, trail: &mut Vec<TaskId>) -> bool {
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        path.push((goal.0, 0));
        let mut is_near = true;
        while let Some((task, place)) = path.last_mut() {
            let at = *task as usize;
            if *place == 0 && self.missing[at] as usize > most.saturating_sub(trail.len()) {
                is_near = false;
                break;
            }
            match self.needs.row(at).get(*place as usize) {
                Some(&input) => {
                    *place += 1;
                    if !self.ran[input as usize] {
                        if trail.len() + path.len() >= most {
                            is_near = false;
                            break;
                        }
                        path.push((input, 0));
                    }
                }
                None => {
                    self.ran[at] = true;
                    trail.push(TaskId(*task));
                    path.pop();
                    if trail.len() >= steps {
                        break;
                    }
                }
            }
        }
        self.path = path;
        is_near
    }

    fn run(&mut self, task: TaskId) {
        debug_assert!(self.missing[task.index()] == 0 && !self.ran[task.index()]);
        self.ran[task.index()] = true;
        self.order.push(task);
        self.live += self.graph.bytes(task);
        self.peak = self.peak.max(self.live + self.graph.work(task));
        for at in 0..self.graph.needs.row(task.index()).len() {
            let input = TaskId(self.graph.needs.row(task.index())[at]);
            let left = &mut self.left[input.index()];
            *left -= 1;
            if *left == 0 && !stays(self.graph, input) {
                self.live -= self.graph.bytes(input);
            } else if *left == 1 {
                // Whoever is last frees it.
                let last = self.consumers.row(input.index()).iter().find(|&&last| !self.ran[last as usize]);
                let last = *last.expect("one use is left");
                if self.missing[last as usize] == 0 {
                    self.free.push(TaskId(last));
                }
            }
            self.consumers.trim(input.index(), self.left[input.index()], &self.ran);
        }
        let hill = self.hill[task.index()];
        for &consumer in self.graph.consumers.row(task.index()) {
            let at = consumer as usize;
            self.missing[at] -= 1;
            self.cost[at] -= hill;
            self.near.push((Reverse(self.cost[at]), consumer));
            self.needs.trim(at, self.missing[at], &self.ran);
            if self.missing[at] == 0 {
                self.free.push(TaskId(consumer));
            }
        }
        if self.left[task.index()] == 0 && !stays(self.graph, task) {
            self.live -= self.graph.bytes(task);
        }
    }

    /// Runs what is ready and takes no more than was taken already, neither while it runs nor afterwards: no order
    /// is better for letting it wait.
    fn settle(&mut self) {
        while let Some(task) = self.free.pop() {
            if self.ran[task.index()] {
                continue;
            }
            let graph = self.graph;
            let last = |input: &TaskId| self.left[input.index()] == 1 && !stays(graph, *input);
            let freed: u64 = graph.needs(task).filter(last).map(|input| graph.bytes(input)).sum();
            let bytes = graph.bytes(task);
            let remains = if graph.consumers(task).len() == 0 && !stays(graph, task) { 0 } else { bytes };
            if remains <= freed && self.live + bytes + graph.work(task) <= self.peak {
                self.run(task);
            }
        }
    }
}

/// As [`super::depth::depth_first`], outputs in the order of another order's first tasks.
pub(crate) fn repeated(graph: &Graph, ground: &Ground, order: &[TaskId]) -> Vec<TaskId> {
    let mut ran = vec![false; graph.len()];
    let mut again = Vec::with_capacity(graph.len());
    for &task in order.iter().filter(|&&task| graph.consumers(task).len() == 0) {
        descend(&ground.needs, task, &mut ran, &mut again);
    }
    again
}
