//! A plan as steps that wait for each other.

use crate::csr::Csr;
use crate::graph::{Graph, Output, TaskId};
use crate::plan::{Action, Plan, is_again};

/// What a step does. The time that a result is in memory, from the step that makes or reads it to the last
/// that uses it, is its *stay*, named by that first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run the task (again, if it is a source whose result was dropped).
    Run(TaskId),
    /// Write the task's result to scratch.
    Write(TaskId),
    /// Read it from there.
    Read(TaskId),
}

impl Step {
    /// The task it is about.
    pub fn task(self) -> TaskId {
        match self {
            Self::Run(task) | Self::Write(task) | Self::Read(task) => task,
        }
    }

    /// Whether it moves bytes rather than compute.
    pub fn is_transfer(self) -> bool {
        matches!(self, Self::Write(_) | Self::Read(_))
    }
}

/// The steps of a plan in its order, and which wait for which. A step is its place in this order.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) steps: Vec<Step>,
    /// Of each step the stays of what it is given, by arguments (some may be there twice).
    pub(super) arguments: Csr,
    /// Of each step the stays it uses, each once.
    pub(super) uses: Csr,
    /// How many steps each one waits for, and who waits for it.
    pub(super) waits: Vec<u32>,
    pub(super) waiters: Csr,
    /// How many use each stay; one more for what is kept.
    pub(super) users: Vec<u32>,
    /// Bytes that a step takes when it starts, and that of these are its result.
    pub(super) takes: Vec<u64>,
    pub(super) result: Vec<u64>,
    /// Bytes that are live while it runs if steps run one after the other.
    pub(super) profile: Vec<u64>,
    /// The last stay of each result that is kept, if it ends in memory.
    pub(super) kept: Vec<(TaskId, u32)>,
    pub(super) budget: u64,
}

const NONE: u32 = u32::MAX;

impl Program {
    /// That of a plan of the graph.
    pub fn new(graph: &Graph, plan: &Plan) -> Self {
        let count = plan.actions.iter().filter(|action| !matches!(action, Action::Drop(_))).count();
        let mut steps = Vec::with_capacity(count);
        let mut arguments = Csr::with_capacity(count, graph.inputs.entries());
        let mut uses = Csr::with_capacity(count, graph.needs.entries());
        let mut awaited = Csr::with_capacity(count, graph.needs.entries());
        let (mut takes, mut result) = (Vec::with_capacity(count), Vec::with_capacity(count));
        // The present stay of each result, and the step that wrote it.
        let (mut stay, mut wrote) = (vec![NONE; graph.len()], vec![NONE; graph.len()]);
        let mut users: Vec<u32> = Vec::with_capacity(count);
        for &action in &plan.actions {
            let at = steps.len() as u32;
            let (step, takes_now, result_now) = match action {
                Action::Drop(task) => {
                    stay[task.index()] = NONE;
                    continue;
                }
                Action::Write(task) => {
                    let from = std::mem::replace(&mut stay[task.index()], NONE);
                    wrote[task.index()] = at;
                    arguments.push([from]);
                    uses.push([from]);
                    awaited.push([from]);
                    users[from as usize] += 1;
                    (Step::Write(task), 0, 0)
                }
                Action::Read(task) => {
                    stay[task.index()] = at;
                    arguments.push([]);
                    uses.push([]);
                    let bytes = graph.bytes(task);
                    if wrote[task.index()] == NONE {
                        debug_assert!(is_again(graph, task));
                        awaited.push([]);
                        (Step::Run(task), bytes + graph.work(task), bytes)
                    } else {
                        awaited.push([wrote[task.index()]]);
                        (Step::Read(task), bytes, bytes)
                    }
                }
                Action::Run(task) => {
                    arguments.push(graph.inputs(task).map(|input| stay[input.index()]));
                    uses.push(graph.needs(task).map(|input| stay[input.index()]));
                    awaited.push(graph.needs(task).map(|input| stay[input.index()]));
                    graph.needs(task).for_each(|input| users[stay[input.index()] as usize] += 1);
                    stay[task.index()] = at;
                    let bytes = graph.bytes(task);
                    (Step::Run(task), bytes + graph.work(task), bytes)
                }
            };
            steps.push(step);
            takes.push(takes_now);
            result.push(result_now);
            users.push(0);
        }
        let mut kept = Vec::new();
        for task in graph.tasks().filter(|&task| graph.output(task) == Output::Kept) {
            let stay = stay[task.index()];
            if stay != NONE {
                users[stay as usize] += 1;
                kept.push((task, stay));
            }
        }
        let waits = (0..count).map(|step| awaited.row(step).len() as u32).collect();
        let waiters = awaited.transposed(count);
        let mut program = Self {
            steps,
            arguments,
            uses,
            waits,
            waiters,
            users,
            takes,
            result,
            profile: Vec::new(),
            kept,
            budget: plan.budget,
        };
        program.profile = program.profile();
        program
    }

    /// Its steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The stays of what a step is given, by arguments; of what is written the one. Some may be there twice.
    pub fn arguments(&self, step: usize) -> &[u32] {
        self.arguments.row(step)
    }

    /// The results that are kept and end in memory, each with its last stay.
    pub fn kept(&self) -> &[(TaskId, u32)] {
        &self.kept
    }

    fn profile(&self) -> Vec<u64> {
        let mut users = self.users.clone();
        let mut live = 0;
        let mut profile = Vec::with_capacity(self.steps.len());
        for step in 0..self.steps.len() {
            profile.push(live + self.takes[step]);
            live += self.result[step];
            for &stay in self.uses.row(step) {
                users[stay as usize] -= 1;
                if users[stay as usize] == 0 {
                    live -= self.result[stay as usize];
                }
            }
            if users[step] == 0 {
                live -= self.result[step];
            }
        }
        profile
    }
}
