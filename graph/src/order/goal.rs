//! Goals: from what is live, the run of tasks that frees most next, looked at some way ahead.
//!
//! Greedy rules look at one task: what it takes and what it frees. Here the unit is a *goal*, a task near
//! what is live, with everything that has to run for it, and then what that makes possible. So a mean that
//! all blocks of a product wait for is computed when it is what the next blocks need (the fail case of Dask's
//! first scheduler). A use of a result that is not the last one counts as part of its release, more the fewer
//! are left: what is nearly done with is finished before what is not.

use std::cmp::Reverse;

use super::depth::{Ground, stays};
use super::state::{State, looks};
use crate::graph::{Graph, TaskId};

/// How to look.
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
    /// So many tasks may be looked at; then as few as can be.
    pub(crate) effort: u64,
}

/// How goals are compared that need no more than the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// By the bytes that remain.
    Net,
    /// By the bytes that remain, for each task.
    Rate,
}

/// What a run of tasks does to the live bytes.
#[derive(Clone, Copy, Debug)]
struct Outlook {
    /// So much more is live at most.
    hill: i64,
    /// So much more is live at the end, less what counts as freed.
    net: f64,
    /// The first tasks of the trail.
    tasks: usize,
}

/// So many tasks are run towards a goal that is too far to be rated.
const STEPS: usize = 4;
/// Of tasks that have many, to look at so many inputs is as much effort as to look at a task.
const INPUTS: u64 = 32;

/// Tasks by what is missing for them, to the nearest half power of two; of those the one that was added last
/// comes first, so that what belongs together stays together.
#[derive(Default)]
struct Near {
    /// By cost: nothing, then from each half power of two on.
    stacks: Vec<Vec<(u64, u32)>>,
    /// Which stacks are not empty, one bit for each.
    filled: [u64; 3],
}

impl Near {
    fn push(&mut self, cost: u64, task: u32) {
        let stack = match cost.checked_ilog2() {
            None => 0,
            Some(0) => 1,
            Some(log) => (2 * log + (cost >> (log - 1) & 1) as u32 + 1) as usize,
        };
        if stack >= self.stacks.len() {
            self.stacks.resize_with(stack + 1, Vec::new);
        }
        self.stacks[stack].push((cost, task));
        self.filled[stack / 64] |= 1 << (stack % 64);
    }

    fn pop(&mut self) -> Option<(u64, u32)> {
        let word = self.filled.iter().position(|&word| word != 0)?;
        let stack = word * 64 + self.filled[word].trailing_zeros() as usize;
        let entry = self.stacks[stack].pop();
        if self.stacks[stack].is_empty() {
            self.filled[word] &= !(1 << (stack % 64));
        }
        entry
    }
}

struct Search<'a> {
    state: State<'a>,
    sight: Sight,
    hill: &'a [u64],
    /// Of each task, hills of inputs that have yet to run.
    cost: Vec<u64>,
    /// Tasks that have an input which has run, by what is missing for them. Entries may be out of date.
    near: Near,
    trail: Vec<TaskId>,
    best: Vec<TaskId>,
    picked: Vec<(u64, u32)>,
    users: Vec<u32>,
}

/// An order in which after each goal the one is run next that is rated best; outputs that have nothing to do
/// with what is live in the order of `ends`.
pub(crate) fn goals(graph: &Graph, ground: &Ground, ends: &[TaskId], sight: &mut Sight) -> Vec<TaskId> {
    // Hills of a graph that is no tree may be of any size.
    let cost = |task| {
        graph.needs(task).fold(0, |sum: u64, input: TaskId| sum.saturating_add(ground.hill[input.index()]))
    };
    let mut search = Search {
        state: State::new(graph, ground, sight.budget),
        sight: *sight,
        hill: &ground.hill,
        cost: graph.tasks().map(cost).collect(),
        near: Near::default(),
        trail: Vec::new(),
        best: Vec::new(),
        picked: Vec::new(),
        users: Vec::new(),
    };
    let mut ends = ends.iter().copied();
    while search.state.order.len() < graph.len() {
        if search.ahead() {
            continue;
        }
        // Nothing is begun: the next output, by its first task.
        let Some(end) = ends.find(|end| !search.state.ran[end.index()]) else { break };
        search.towards(end, 1);
        search.commit();
    }
    sight.effort = search.sight.effort;
    search.state.order
}

impl Search<'_> {
    /// Makes the first tasks for `goal` the best.
    fn towards(&mut self, goal: TaskId, steps: usize) {
        self.best.clear();
        self.state.cone(goal, usize::MAX, steps, &mut self.best);
        self.state.unmark(&self.best);
    }

    /// Runs the best goal among those near, if there are any.
    fn ahead(&mut self) -> bool {
        self.picked.clear();
        while self.picked.len() < self.sight.goals {
            let Some(entry) = self.near.pop() else { break };
            let at = entry.1 as usize;
            if !self.state.ran[at] && entry.0 == self.cost[at] && !self.picked.contains(&entry) {
                self.picked.push(entry);
            }
        }
        let Some(&(_, nearest)) = self.picked.first() else { return false };
        let mut chosen: Option<Outlook> = None;
        for place in 0..self.picked.len() {
            let goal = TaskId(self.picked[place].1);
            for release in [false, true] {
                if release && !self.users(goal) {
                    break;
                }
                let Some(outlook) = self.look(goal, release) else { continue };
                if chosen.as_ref().is_none_or(|best| self.better(&outlook, best)) {
                    self.trail.truncate(outlook.tasks);
                    std::mem::swap(&mut self.best, &mut self.trail);
                    chosen = Some(outlook);
                }
            }
        }
        if chosen.is_none() {
            self.towards(TaskId(nearest), STEPS);
        }
        let picked = std::mem::take(&mut self.picked);
        for &(cost, goal) in picked.iter().rev() {
            if self.best.last() != Some(&TaskId(goal)) {
                self.near.push(cost, goal);
            }
        }
        self.picked = picked;
        self.commit();
        true
    }

    fn better(&self, one: &Outlook, other: &Outlook) -> bool {
        let room = self.state.peak as i64 - self.state.live as i64;
        match (one.hill <= room, other.hill <= room) {
            (true, false) => true,
            (false, true) => false,
            (false, false) => (one.hill, one.net) < (other.hill, other.net),
            (true, true) => match self.sight.rule {
                Rule::Net => (one.net, one.hill) < (other.net, other.hill),
                Rule::Rate => {
                    let rate = |outlook: &Outlook| outlook.net / outlook.tasks as f64;
                    (rate(one), one.hill) < (rate(other), other.hill)
                }
            },
        }
    }

    /// Notes all that have yet to use that result which `goal` uses of which the fewest uses are left, if not
    /// too many.
    fn users(&mut self, goal: TaskId) -> bool {
        let graph = self.state.graph;
        let is_live = |input: &TaskId| self.state.ran[input.index()] && self.state.left[input.index()] > 1;
        let inputs = graph.needs(goal).take(32).filter(is_live);
        let input = inputs.min_by_key(|input| (self.state.left[input.index()], Reverse(graph.bytes(*input))));
        self.users.clear();
        let Some(input) = input.filter(|input| (self.state.left[input.index()] as usize) < self.sight.tasks)
        else {
            return false;
        };
        let users = self.state.consumers.row(input.index()).iter();
        self.users.extend(users.filter(|&&user| user != goal.0 && !self.state.ran[user as usize]).copied());
        // The nearest is popped first.
        self.users.sort_by_key(|&user| Reverse(self.cost[user as usize]));
        true
    }

    /// What running all that `goal` needs would do, then the users if they are to be, and then what that
    /// makes possible; the best of these ends. None if it is too far.
    fn look(&mut self, goal: TaskId, release: bool) -> Option<Outlook> {
        if self.sight.effort == 0 {
            (self.sight.goals, self.sight.tasks) = (1, 8);
        }
        let graph = self.state.graph;
        let mut trail = std::mem::take(&mut self.trail);
        trail.clear();
        let (mut live, mut hill, mut credit, mut done) = (0_i64, 0_i64, 0.0, 0);
        let mut looked = 1;
        let mut best: Option<Outlook> = None;
        let mut at = goal;
        loop {
            if !self.state.cone(at, self.sight.tasks, usize::MAX, &mut trail) {
                self.state.unmark(&trail[done..]);
                self.sight.effort = self.sight.effort.saturating_sub((trail.len() - done) as u64);
                trail.truncate(done);
                break;
            }
            for &task in &trail[done..] {
                let bytes = graph.bytes(task) as i64;
                live += bytes;
                hill = hill.max(live + graph.work(task) as i64);
                // They are gone through here, and once more at the end.
                let inputs = graph.needs(task).len();
                looked += 1 + inputs as u64 / INPUTS;
                looks(2 * inputs);
                for input in graph.needs(task) {
                    let left = &mut self.state.left[input.index()];
                    *left -= 1;
                    if stays(graph, input) {
                        continue;
                    }
                    let size = graph.bytes(input);
                    let uses = graph.consumers(input).len() as u32;
                    if *left == 0 {
                        live -= size as i64;
                        credit -= released(uses, 1) * size as f64;
                    } else {
                        credit += (released(uses, *left) - released(uses, *left + 1)) * size as f64;
                    }
                }
                if graph.consumers(task).len() == 0 && !stays(graph, task) {
                    live -= bytes;
                }
            }
            done = trail.len();
            if release && let Some(user) = self.users.pop() {
                at = TaskId(user);
                continue;
            }
            let outlook = Outlook { hill, net: live as f64 - credit, tasks: done };
            if best.as_ref().is_none_or(|best| self.better(&outlook, best)) {
                best = Some(outlook);
            }
            // On to what this makes nearest.
            let next =
                self.state.consumers.row(at.index()).iter().filter(|&&next| !self.state.ran[next as usize]);
            let next = next.take(8).min_by_key(|&&next| self.cost[next as usize]);
            match next {
                Some(&next) if done < self.sight.tasks => at = TaskId(next),
                _ => break,
            }
        }
        self.state.unmark(&trail[..done]);
        for &task in &trail[..done] {
            for input in graph.needs(task) {
                self.state.left[input.index()] += 1;
            }
        }
        self.sight.effort = self.sight.effort.saturating_sub(looked);
        self.trail = trail;
        best
    }

    /// Runs the best, and after each task what is free.
    fn commit(&mut self) {
        let best = std::mem::take(&mut self.best);
        for &task in &best {
            if !self.state.ran[task.index()] {
                self.run(task);
                while let Some(free) = self.state.free() {
                    self.run(free);
                }
            }
        }
        self.best = best;
    }

    fn run(&mut self, task: TaskId) {
        self.state.run(task);
        let hill = self.hill[task.index()];
        for consumer in self.state.graph.consumers(task) {
            let cost = &mut self.cost[consumer.index()];
            *cost = cost.saturating_sub(hill);
            self.near.push(*cost, consumer.0);
        }
    }
}

/// The part of a result that counts as freed when of its uses so many are left.
fn released(uses: u32, left: u32) -> f64 {
    let done = f64::from(uses - left) / f64::from(uses);
    done * done
}
