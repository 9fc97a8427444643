//! That a task's bits are those of its inputs, whatever the workspace has solved before.

use bdrun_hybrid::LocalBackend;
use bdrun_sddp::basis::Basis;
use bdrun_sddp::case::Case;
use bdrun_sddp::lp::StageLp;
use bdrun_sddp::pool::{Openings, Tree};
use bdrun_sddp::workspace::Workspace;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{bundled, has_highs};

/// Numbers of a solution, as bits.
type Bits = Vec<u64>;

/// Solves of one stage.
#[derive(Debug, Clone)]
struct Task {
    stage: usize,
    /// How many of the cuts there are.
    cuts: usize,
    /// Where between their bounds the reservoirs are.
    storage: Vec<f64>,
    openings: Vec<usize>,
    /// Begins where another task ended: one of the first bases.
    basis: Option<usize>,
}

struct System {
    case: Case,
    stages: Vec<StageLp>,
    /// The same for each stage.
    cuts: Vec<f64>,
}

impl System {
    fn new() -> Self {
        let case = Case::read(&bundled("cascade.toml")).expect("the bundled case");
        let stages =
            (0..case.stages.len()).map(|stage| StageLp::new(&case, stage).expect("a stage")).collect();
        // Tangents of a bowl: many of them are tight somewhere.
        let n = case.reservoirs.len();
        let slope = |k: usize, i: usize| -0.05 - 0.4 * ((k * 37 + i * 11) % 29) as f64 / 29.0;
        let cuts = (0..60).flat_map(|k| {
            let slopes: Vec<f64> = (0..n).map(|i| slope(k, i)).collect();
            let at = slopes.iter().zip(&case.reservoirs).map(|(s, r)| s * s * r.maximum).sum::<f64>();
            [900.0 - at].into_iter().chain(slopes).collect::<Vec<_>>()
        });
        Self { cuts: cuts.collect(), stages, case }
    }

    fn run(
        &self,
        tree: Tree<'_>,
        space: &mut Workspace,
        task: &Task,
        bases: &[(usize, Basis)],
    ) -> (Bits, Basis) {
        let (stage, n) = (&self.stages[task.stage], self.case.reservoirs.len());
        let between =
            |(share, r): (&f64, &bdrun_sddp::case::Reservoir)| r.minimum + share * (r.maximum - r.minimum);
        let storage: Vec<f64> = task.storage.iter().zip(&self.case.reservoirs).map(between).collect();
        let basis = task.basis.map(|at| &bases[at].1).filter(|_| task.cuts > 0);
        let cuts = std::iter::once(&self.cuts[..task.cuts * (n + 1)]);
        space.begin(task.stage, stage, cuts, basis).expect("begin");
        let mut bits = vec![];
        for opening in &task.openings {
            let cost =
                space.solve(task.stage, stage, &storage, tree.inflow(task.stage, *opening)).expect("solved");
            let all =
                [cost].into_iter().chain(space.values.iter().copied()).chain(space.duals.iter().copied());
            bits.extend(all.map(f64::to_bits));
        }
        (bits, space.basis(task.stage, stage).expect("a basis"))
    }
}

fn task() -> impl Strategy<Value = Task> {
    let storage = prop::collection::vec(0.0..1.0, 4);
    let openings = prop::collection::vec(0..20usize, 1..6);
    // Few stages and numbers of cuts: often the workspace has the program already.
    (1..4usize, 0..3usize, storage, openings, prop::option::of(0..3usize)).prop_map(
        |(stage, cuts, storage, openings, basis)| Task { stage, cuts: 30 * cuts, storage, openings, basis },
    )
}

#[test]
fn a_task_knows_nothing_of_those_before() {
    if !has_highs() {
        return;
    }
    let system = System::new();
    let openings = Openings::new(&LocalBackend, &system.case, false).expect("a tree");
    // Bases of stages that were solved with few cuts: for programs with as many or more.
    let mut space = Workspace::new().expect("HiGHS");
    let bases: Vec<(usize, Basis)> = (0..3)
        .map(|at| {
            let task =
                Task { stage: 1 + at, cuts: 30, storage: vec![0.3; 4], openings: vec![at], basis: None };
            (30, system.run(openings.view(), &mut space, &task, &[]).1)
        })
        .collect();
    let config = Config { cases: 60, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let tasks = prop::collection::vec(task(), 1..8);
    let check = |(tasks, last): (Vec<Task>, Task)| {
        let mut used = Workspace::new().expect("HiGHS");
        for task in &tasks {
            system.run(openings.view(), &mut used, task, &bases);
        }
        let mut fresh = Workspace::new().expect("HiGHS");
        let expected = system.run(openings.view(), &mut fresh, &last, &bases);
        prop_assert!(expected.0.len() > 10);
        prop_assert_eq!(system.run(openings.view(), &mut used, &last, &bases), expected);
        Ok(())
    };
    runner.run(&(tasks, task()), check).expect("the same");
}
