//! Forward and backward: what a rank computes of its own trajectories, on the threads of its pool. Nothing
//! here communicates.

use rayon::prelude::*;

use crate::basis::Basis;
use crate::case::Case;
use crate::error::Result;
use crate::lp::StageLp;
use crate::noise::sample;
use crate::pool::{Cuts, Openings, Pool, Tree};
use crate::workspace::{Spaces, Workspace};

/// Tasks for each thread: more balance the load, fewer load programs less often. Results do not depend on it.
const CHUNKS: usize = 4;

/// What is solved, the same on all ranks.
pub struct Problem {
    /// The programs, in order.
    stages: Vec<StageLp>,
    /// Storage before the first stage, hm³.
    initial: Vec<f64>,
    /// What a M$ of each stage is worth in the first.
    present: Vec<f64>,
    /// Inflows of a stage.
    branches: usize,
    /// Inflows.
    openings: Openings,
    /// The cuts so far.
    pub pool: Pool,
}

impl Problem {
    /// Of a case.
    ///
    /// # Errors
    /// If the case was not validated.
    pub fn new(case: &Case, openings: Openings, pool: Pool) -> Result<Self> {
        let stages = (0..case.stages.len()).map(|stage| StageLp::new(case, stage)).collect::<Result<_>>()?;
        let worth = |worth: &mut f64, stage: usize| {
            let now = *worth;
            *worth *= case.discount(stage);
            Some(now)
        };
        let present = (0..case.stages.len()).scan(1.0, worth).collect();
        Ok(Self { stages, initial: case.initial(), present, branches: case.openings, openings, pool })
    }

    /// For threads of a pool to read: the problem itself has communicators in it, which are not for them.
    pub fn view(&self) -> View<'_> {
        let Self { stages, initial, present, branches, openings, pool } = self;
        View { stages, initial, present, branches: *branches, tree: openings.view(), cuts: pool.view() }
    }
}

/// What is solved, to read.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The programs, in order.
    pub stages: &'a [StageLp],
    /// Storage before the first stage, hm³.
    pub initial: &'a [f64],
    /// What a M$ of each stage is worth in the first.
    pub present: &'a [f64],
    /// Inflows of a stage.
    pub branches: usize,
    /// Inflows.
    pub tree: Tree<'a>,
    /// The cuts so far.
    pub cuts: Cuts<'a>,
}

impl View<'_> {
    /// How many reservoirs there are.
    pub const fn reservoirs(&self) -> usize {
        self.initial.len()
    }
}

/// A trajectory: the states it passed in the last forward pass, and where to begin the next time.
#[derive(Clone, Default)]
pub struct Trajectory {
    /// Its number, of all ranks.
    pub scenario: usize,
    /// Storage before each stage, `[stage][reservoir]`, hm³.
    pub states: Vec<f64>,
    /// Basis of each stage's last solution; none before the first pass.
    pub bases: Vec<Basis>,
    /// Present cost of all stages, M$.
    pub cost: f64,
}

impl Trajectory {
    /// Of a scenario, before its first pass.
    pub fn new(scenario: usize) -> Self {
        Self { scenario, ..Self::default() }
    }

    /// Storage before a stage.
    pub fn state(&self, stage: usize, reservoirs: usize) -> &[f64] {
        &self.states[stage * reservoirs..][..reservoirs]
    }
}

/// Passes through all stages with the cuts there are, each trajectory with the inflows that it draws.
///
/// # Errors
/// If a stage was not solved.
pub fn forward(
    problem: View<'_>,
    spaces: &Spaces,
    trajectories: &mut [Trajectory],
    (seed, iteration): (u64, u64),
) -> Result<()> {
    let draw = |stage: usize, scenario: usize, inflow: &mut [f64]| {
        let opening = sample(seed, iteration, stage, scenario, problem.branches);
        inflow.copy_from_slice(problem.tree.inflow(stage, opening));
    };
    along(problem, spaces, trajectories, draw)
}

/// [`forward`], with inflows (m³/s) that `draw` writes for a stage and a scenario.
///
/// # Errors
/// If a stage was not solved.
pub fn along(
    problem: View<'_>,
    spaces: &Spaces,
    trajectories: &mut [Trajectory],
    draw: impl Fn(usize, usize, &mut [f64]) + Sync,
) -> Result<()> {
    // The trajectories of a chunk go from stage to stage together, so that a thread loads each program once.
    let size = trajectories.len().div_ceil(CHUNKS * rayon::current_num_threads()).max(1);
    on_the_pool(|| {
        trajectories.par_chunks_mut(size).try_for_each(|chunk| {
            spaces.with(|space| {
                let space = space.get()?;
                chunk.iter_mut().for_each(|trajectory| {
                    trajectory.states.clear();
                    trajectory.states.extend(problem.initial);
                    trajectory.bases.resize(problem.stages.len(), Basis::default());
                    trajectory.cost = 0.0;
                });
                for stage in 0..problem.stages.len() {
                    for trajectory in &mut *chunk {
                        step(problem, space, trajectory, stage, &draw)?;
                    }
                }
                Ok(())
            })
        })
    })
}

/// A trajectory through a stage. It begins with the basis that its own last pass through the stage ended
/// with.
fn step(
    problem: View<'_>,
    space: &mut Workspace,
    trajectory: &mut Trajectory,
    stage: usize,
    draw: impl Fn(usize, usize, &mut [f64]),
) -> Result<()> {
    let (n, lp) = (problem.reservoirs(), &problem.stages[stage]);
    let mut inflow = vec![0.0; n];
    draw(stage, trajectory.scenario, &mut inflow);
    let basis = Some(&trajectory.bases[stage]).filter(|basis| **basis != Basis::default());
    space.begin(stage, lp, problem.cuts.of(stage), basis)?;
    space.solve(stage, lp, trajectory.state(stage, n), &inflow)?;
    trajectory.bases[stage] = space.basis(stage, lp)?;
    trajectory.cost += problem.present[stage] * lp.immediate(&space.values);
    if stage + 1 < problem.stages.len() {
        let next = trajectory.states.len();
        trajectory.states.resize(next + n, 0.0);
        lp.storage(&space.values, &mut trajectory.states[next..]);
    }
    Ok(())
}

/// For each trajectory the cut that `stage` (from 1) with all its openings puts on the stage before, at the
/// state that the trajectory passed: α, β₁ … βₙ with α in M$ and β in M$/hm³, one behind the other.
///
/// # Errors
/// If a stage was not solved.
pub fn backward(
    problem: View<'_>,
    spaces: &Spaces,
    trajectories: &[Trajectory],
    stage: usize,
) -> Result<Vec<f64>> {
    let width = problem.reservoirs() + 1;
    let mut cuts = vec![0.0; trajectories.len() * width];
    let pairs = trajectories.par_iter().zip(cuts.par_chunks_mut(width)).with_max_len(1);
    on_the_pool(|| {
        pairs.try_for_each(|(trajectory, cut)| {
            spaces.with(|space| trial(problem, space.get()?, trajectory, stage, cut))
        })
    })?;
    Ok(cuts)
}

/// One trajectory's cut. The first opening begins with the basis of the forward pass, each other one where
/// the one before it ended.
fn trial(
    problem: View<'_>,
    space: &mut Workspace,
    trajectory: &Trajectory,
    stage: usize,
    cut: &mut [f64],
) -> Result<()> {
    let (n, lp) = (problem.reservoirs(), &problem.stages[stage]);
    let state = trajectory.state(stage, n);
    space.begin(stage, lp, problem.cuts.of(stage), Some(&trajectory.bases[stage]))?;
    cut.fill(0.0);
    for inflow in problem.tree.of(stage).chunks_exact(n) {
        cut[0] += space.solve(stage, lp, state, inflow)?;
        cut[1..].iter_mut().zip(&space.duals).for_each(|(slope, dual)| *slope += dual);
    }
    cut.iter_mut().for_each(|number| *number /= problem.branches as f64);
    let (intercept, slopes) = cut.split_at_mut(1);
    intercept[0] -= slopes.iter().zip(state).map(|(slope, storage)| slope * storage).sum::<f64>();
    Ok(())
}

/// Runs it on a thread of the pool: Rayon would do what is not worth to be split on the thread that asks,
/// which has no workspace.
pub fn on_the_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| work())
}
