//! The deterministic equivalent of a small case: one linear program over its whole scenario tree, whose least
//! cost is that of the best policy. What the bounds are checked against.

use crate::case::Case;
use crate::error::{Error, Result};
use crate::highs::Solver;
use crate::lp::{Lp, StageLp};
use crate::noise::Inflows;

/// More nodes would take hours.
pub const MOST_NODES: usize = 200_000;

/// The program of the whole tree.
///
/// # Errors
/// If it has more than [`MOST_NODES`] nodes.
pub fn equivalent(case: &Case) -> Result<Lp> {
    let (n, openings) = (case.reservoirs.len(), case.openings);
    let mut nodes = Some(1usize);
    let mut level = Some(1usize);
    for _ in 1..case.stages.len() {
        level = level.and_then(|count| count.checked_mul(openings));
        nodes = nodes.zip(level).and_then(|(nodes, level)| nodes.checked_add(level));
    }
    if nodes.is_none_or(|nodes| nodes > MOST_NODES) {
        let (stages, count) =
            (case.stages.len(), nodes.map_or("too many".to_owned(), |nodes| nodes.to_string()));
        return Err(Error::Option(format!(
            "the tree of {stages} stages with {openings} openings has {count} nodes; the limit is {MOST_NODES}"
        )));
    }
    let mut tree = vec![0.0; case.stages.len() * openings * n];
    Inflows::new(case)?.tree(&mut tree);
    let mut lp = Lp::default();
    // Of each node of the stage before: where its columns begin, and its probability times the worth of its
    // M$.
    let mut above: Vec<(Option<usize>, f64)> = vec![(None, 1.0)];
    for stage in 0..case.stages.len() {
        let program = StageLp::new(case, stage)?;
        let base = program.base();
        let theta = program.columns() - 1;
        let branches = if stage == 0 { 1 } else { openings };
        let mut level = Vec::with_capacity(above.len() * branches);
        for (parent, worth) in &above {
            for opening in 0..branches {
                let weight = worth / branches as f64;
                let first = lp.cost.len();
                (0..theta).for_each(|i| lp.column(weight * base.cost[i], base.lower[i], base.upper[i]));
                let inflow = &tree[(stage * openings + opening) * n..][..n];
                let before = if parent.is_none() { case.initial() } else { vec![0.0; n] };
                let mut sides = vec![0.0; n];
                program.balances(&before, inflow, &mut sides);
                for row in 0..program.rows() {
                    let end = base.start.get(row + 1).map_or(base.index.len(), |end| *end as usize);
                    let own = (base.start[row] as usize..end)
                        .map(|at| (first + base.index[at] as usize, base.value[at]));
                    let storage = parent.filter(|_| row < n).map(|columns| (columns + row, -1.0));
                    let side = sides.get(row).copied().unwrap_or(base.row_lower[row]);
                    lp.row(side, side, own.chain(storage));
                }
                level.push((Some(first), weight * case.discount(stage)));
            }
        }
        above = level;
    }
    Ok(lp)
}

/// Its least cost, M$.
///
/// # Errors
/// If the tree is too large, or HiGHS does not solve it.
pub fn solve(case: &Case) -> Result<f64> {
    let lp = equivalent(case)?;
    let mut solver = Solver::new()?;
    solver.presolve()?;
    solver.load(&lp)?;
    solver.solve()
}
