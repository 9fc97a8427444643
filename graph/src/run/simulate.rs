//! An execution in mind: the same decisions as on threads, with times as declared.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::dispatch::Dispatch;
use super::program::{Program, Step};
use crate::graph::Graph;
use crate::plan::Plan;

/// What an execution would take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simulated {
    /// Seconds.
    pub seconds: f64,
    /// Bytes of memory at most.
    pub peak: u64,
    /// Bytes of memory from each second on: when it changes, and to what.
    pub memory: Vec<(f64, u64)>,
}

/// How an execution of the plan on so many threads, and one that transfers, would go, if tasks take what the
/// graph says and scratch moves so many bytes a second.
///
/// # Panics
/// If no step can start, which is a defect.
pub fn simulate(graph: &Graph, plan: &Plan, threads: usize, bytes_per_second: f64) -> Simulated {
    let seconds = |step: Step| match step {
        Step::Run(task) => graph.seconds(task),
        Step::Write(task) | Step::Read(task) => graph.bytes(task) as f64 / bytes_per_second,
    };
    simulate_by(&Program::new(graph, plan), threads, seconds)
}

pub(super) fn simulate_by(
    program: &Program,
    threads: usize,
    mut seconds: impl FnMut(Step) -> f64,
) -> Simulated {
    let mut dispatch = Dispatch::new(program);
    let mut simulated = Simulated::default();
    // Threads that are free: those that compute, which transfer if they have nothing else to do, and one
    // more.
    let mut free = [threads.max(1), 1];
    let mut running: BinaryHeap<Reverse<(Time, usize, usize)>> = BinaryHeap::new();
    let mut now = 0.0;
    while !dispatch.is_done() {
        loop {
            let next = if free[0] > 0
                && let Some(step) = dispatch.start(false).or_else(|| dispatch.start(true))
            {
                Some((step, 0))
            } else if free[1] > 0 {
                dispatch.start(true).map(|step| (step, 1))
            } else {
                None
            };
            let Some((step, thread)) = next else { break };
            free[thread] -= 1;
            running.push(Reverse((Time(now + seconds(program.steps[step])), step, thread)));
            simulated.memory.push((now, dispatch.used()));
        }
        let Reverse((time, step, thread)) = running.pop().expect("a step can start when none runs");
        now = time.0;
        free[thread] += 1;
        let freed = dispatch.finish(step, |_| ());
        dispatch.give_back(freed);
        simulated.memory.push((now, dispatch.used()));
    }
    Simulated { seconds: now, peak: dispatch.most(), ..simulated }
}

/// Seconds, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{self, Effort};
    use crate::plan::plan;
    use crate::testing::{Random, random_graph};

    /// Random graphs, budgets and times: every execution ends, and keeps its budget.
    #[test]
    fn every_execution_ends_within_its_budget() {
        let (mut faster, mut moved) = (0, 0);
        for seed in 0..1500 {
            let mut random = Random::new(seed);
            let count = 1 + random.below(80) as usize;
            let graph = random_graph(&mut random, count);
            let order = order::order(&graph, Effort { visits: 0, ..Effort::default() });
            let most = graph.tasks().map(|task| graph.need(task)).max().unwrap();
            let threads = 1 + random.below(4) as usize;
            let budget = match random.below(3) {
                0 => most,
                1 => most + random.below(order.peak.bytes),
                _ => order::bound(&graph, &order.tasks, threads),
            };
            let plan = plan(&graph, &order.tasks, budget.max(most)).unwrap();
            moved += usize::from(plan.moved() > 0);
            let program = Program::new(&graph, &plan);
            assert!(program.profile.iter().all(|&live| live <= plan.budget), "seed {seed}");
            // What is dropped later is released after its last use already.
            let most = program.profile.iter().copied().max().unwrap_or(0);
            assert!(
                most == plan.peak || (most < plan.peak && plan.moved() > 0),
                "seed {seed}: {most} {plan:?}"
            );
            let mut times = Random::new(seed + 1);
            let mut sum = 0.0;
            let simulated = simulate_by(&program, threads, |_| {
                let time = times.below(100) as f64;
                sum += time;
                time
            });
            assert!(simulated.peak <= plan.budget, "seed {seed}: {} of {}", simulated.peak, plan.budget);
            assert!(simulated.memory.last().is_none_or(|last| last.1 <= plan.budget));
            faster += usize::from(simulated.seconds < sum * 0.7);
            // One thread that starts steps in their order takes what was planned.
            if threads == 1 && plan.moved() == 0 && budget == order.peak.bytes {
                assert_eq!(simulated.peak, order.peak.bytes, "seed {seed}");
            }
        }
        assert!(faster > 300 && moved > 200, "{faster} {moved}");
    }
}
