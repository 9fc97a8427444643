//! What a policy costs: trajectories that it has not seen.

use bdrun_hybrid::Communicator;

use crate::bounds::{Estimate, block};
use crate::case::Case;
use crate::error::{Error, Result};
use crate::noise::Inflows;
use crate::passes::{Trajectory, View, along, forward};
use crate::train::gather;
use crate::workspace::Spaces;

/// Trajectories that are computed together: as many as a rank keeps in memory.
const BATCH: usize = 1024;

/// No iteration of training: simulated trajectories draw other openings than trained ones of the same seed.
const SIMULATION: u64 = 0;

/// Simulates `scenarios` trajectories (a collective) and returns each one's present cost in M$, in order.
/// Their inflows are drawn from the opening tree, or, with `fresh`, from the distribution that the tree is a
/// sample of.
///
/// Each one's bits depend on its number and `seed` only: all begin with the bases of one reference
/// trajectory.
///
/// # Errors
/// If a stage was not solved, or ranks cannot communicate.
pub fn simulate(
    comm: &impl Communicator,
    spaces: &Spaces,
    (case, problem): (&Case, View<'_>),
    scenarios: usize,
    (seed, fresh): (u64, bool),
) -> Result<(Vec<f64>, Estimate)> {
    if scenarios == 0 {
        return Err(Error::Option("there must be at least one scenario".into()));
    }
    let inflows = Inflows::new(case)?;
    let mut reference = [Trajectory::new(0)];
    let first =
        |stage: usize, _: usize, inflow: &mut [f64]| inflow.copy_from_slice(problem.tree.inflow(stage, 0));
    along(problem, spaces, &mut reference, first)?;
    let [reference] = reference;
    let (start, end) =
        (block(comm.rank(), comm.size(), scenarios), block(comm.rank() + 1, comm.size(), scenarios));
    let mut costs = Vec::with_capacity(end - start);
    for batch in (start..end).step_by(BATCH) {
        let numbers = batch..end.min(batch + BATCH);
        let mut trajectories: Vec<Trajectory> =
            numbers.map(|scenario| Trajectory { scenario, ..reference.clone() }).collect();
        if fresh {
            let draw = |stage: usize, scenario: usize, inflow: &mut [f64]| {
                inflows.fresh(seed, stage, scenario, inflow)
            };
            along(problem, spaces, &mut trajectories, draw)?;
        } else {
            forward(problem, spaces, &mut trajectories, (seed, SIMULATION))?;
        }
        costs.extend(trajectories.iter().map(|trajectory| trajectory.cost));
    }
    let costs = gather(comm, &costs, scenarios, 1)?;
    let estimate = Estimate::of(&costs);
    Ok((costs, estimate))
}
