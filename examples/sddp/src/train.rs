//! Stochastic dual dynamic programming (Pereira & Pinto 1991): forward to find states worth knowing about,
//! backward to learn what they cost, until the bounds are close.
//!
//! | step | on | communicates |
//! |---|---|---|
//! | forward pass | a contiguous block of trajectories per rank, threads of its pool | – |
//! | upper bound | costs of all trajectories, summed in their order by every rank | allgatherv |
//! | backward pass, stage after stage from the last | the same block | allgatherv of cuts, in the order of trajectories; barriers around the leader's write to the pool |
//! | lower bound | the first stage, by rank 0 | broadcast |
//!
//! The results' bits depend on case and [`Settings`] alone, not on ranks, threads or back end: each solve's
//! inputs are named (`workspace`), random numbers are hashes (`noise`), and what is summed is summed in the
//! order of trajectories.

use bdrun_hybrid::{Communicator, SharedMemory};

use crate::bounds::{Estimate, Iteration, Stopped, Stopping, block};
use crate::case::Case;
use crate::error::{Error, Result};
use crate::passes::{self, Problem, Trajectory, View};
use crate::pool::{Openings, Pool, distinct};
use crate::workspace::{Space, Spaces, again};

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// At most so many iterations.
    pub iterations: u64,
    /// Trajectories of each forward pass, of all ranks together.
    pub forward: usize,
    /// Of the inflows that trajectories draw.
    pub seed: u64,
    /// When to end earlier.
    pub stopping: Stopping,
    /// Whether the ranks of a node share tree and pool.
    pub share: bool,
}

/// What training ends with, the same on all ranks.
pub struct Trained {
    /// With the pool of cuts.
    pub problem: Problem,
    /// All iterations.
    pub history: Vec<Iteration>,
    /// Why it ended.
    pub stopped: Stopped,
    /// Solves of this rank that found nothing from the basis they began with, and began again without one.
    pub again: u64,
}

/// Trains a policy (a collective). `tell` hears of each iteration, on every rank.
///
/// # Errors
/// Settings that cannot be, a stage that HiGHS does not solve, ranks that cannot communicate. The other ranks
/// then wait: whoever gets an error [aborts](Communicator::abort).
pub fn train<C: SharedMemory>(
    (comm, node): (&C, &C),
    spaces: &Spaces,
    case: &Case,
    settings: &Settings,
    mut tell: impl FnMut(&Iteration),
) -> Result<Trained> {
    let &Settings { iterations, forward, seed, stopping, share } = settings;
    if iterations == 0 || forward == 0 {
        return Err(Error::Option("there must be at least one iteration and one trajectory".into()));
    }
    let (rank, size) = (comm.rank(), comm.size());
    let capacity = usize::try_from(iterations).ok().and_then(|count| count.checked_mul(forward));
    let capacity = capacity.and_then(|count| count.checked_mul(case.stages.len() - 1));
    let capacity = capacity.ok_or_else(|| Error::Option(format!("{iterations} iterations are too many")))?;
    let openings = Openings::new(node, case, share)?;
    let mut problem = Problem::new(case, openings, Pool::new(node, case, capacity, share)?)?;
    let mut trajectories: Vec<Trajectory> =
        (block(rank, size, forward)..block(rank + 1, size, forward)).map(Trajectory::new).collect();
    let mut history = vec![];
    let stopped = loop {
        let number = history.len() as u64 + 1;
        passes::forward(problem.view(), spaces, &mut trajectories, (seed, number))?;
        let costs: Vec<f64> = trajectories.iter().map(|trajectory| trajectory.cost).collect();
        let upper = Estimate::of(&gather(comm, &costs, forward, 1)?);
        for stage in (1..case.stages.len()).rev() {
            let own = passes::backward(problem.view(), spaces, &trajectories, stage)?;
            let width = case.reservoirs.len() + 1;
            let cuts = gather(comm, &own, forward, width)?;
            problem.pool.bring(stage - 1, distinct(&cuts, width));
        }
        let lower = lower_bound(comm, problem.view(), spaces, (&trajectories, forward))?;
        problem.pool.keep()?;
        let cuts = (problem.pool.len() / (case.reservoirs.len() + 1)) as u64;
        let iteration = Iteration { number, lower, upper, cuts };
        history.push(iteration);
        tell(&iteration);
        if let Some(reason) = stopping.after(&history) {
            break reason;
        }
        if number == iterations {
            break Stopped::Iterations;
        }
    };
    Ok(Trained { problem, history, stopped, again: again(spaces) })
}

/// `width` numbers of each trajectory, from the blocks that the ranks have of them to all of them on each
/// rank.
///
/// # Errors
/// If ranks cannot communicate.
pub fn gather(comm: &impl Communicator, own: &[f64], count: usize, width: usize) -> Result<Vec<f64>> {
    let size = comm.size();
    let starts: Vec<usize> = (0..=size).map(|rank| width * block(rank, size, count)).collect();
    let counts: Vec<usize> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut all = vec![0.0; width * count];
    comm.allgatherv(own, &mut all, &counts, &starts[..size])?;
    Ok(all)
}

/// Cost of the first stage with all cuts, from the basis of the first trajectory: by the rank that has that,
/// which is not 0 where there are fewer trajectories than ranks.
fn lower_bound(
    comm: &impl Communicator,
    problem: View<'_>,
    spaces: &Spaces,
    (own, count): (&[Trajectory], usize),
) -> Result<f64> {
    let mut lower = [0.0];
    let first = own.first().filter(|trajectory| trajectory.scenario == 0);
    if let Some(trajectory) = first {
        let (lp, inflow) = (&problem.stages[0], problem.tree.inflow(0, 0));
        let solve = |space: &mut Space| {
            let space = space.get()?;
            space.begin(0, lp, problem.cuts.of(0), Some(&trajectory.bases[0]))?;
            space.solve(0, lp, problem.initial, inflow)
        };
        lower[0] = passes::on_the_pool(|| spaces.with(solve))?;
    }
    let size = comm.size();
    let owner = (0..size).find(|rank| block(rank + 1, size, count) > 0).unwrap_or(0);
    comm.broadcast(&mut lower, owner)?;
    Ok(lower[0])
}
