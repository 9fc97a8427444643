//! What a thread solves stages with: an instance of HiGHS and buffers, used again and again.
//!
//! **Results depend on what is solved, never on what the thread has solved before.** A task is a run of
//! solves of one stage: it [`begin`](Workspace::begin)s with an instance that has forgotten all but the
//! program, from a basis that the caller names, and goes on from solve to solve. So its bits are those of the
//! tasks' own inputs, whichever thread of whichever rank it runs on (tested:
//! `a_task_knows_nothing_of_those_before`).

use crate::basis::Basis;
use crate::error::{Error, Result};
use crate::highs::Solver;
use crate::lp::{Lp, StageLp};

/// One thread's.
pub struct Workspace {
    solver: Solver,
    lp: Lp,
    /// Stage, and numbers of the cuts, of the program that the solver has.
    loaded: Option<(usize, usize)>,
    /// Values of the columns in the last solution.
    pub values: Vec<f64>,
    /// M$ for each unit of a row's side, in the last solution; of the first n rows M$/hm³.
    pub duals: Vec<f64>,
    sides: Vec<f64>,
    columns: Vec<i32>,
    rows: Vec<i32>,
}

impl Workspace {
    /// With a solver that has no program yet.
    ///
    /// # Errors
    /// If there is no HiGHS.
    pub fn new() -> Result<Self> {
        let (values, duals, sides) = (vec![], vec![], vec![]);
        let (columns, rows) = (vec![], vec![]);
        let solver = Solver::new()?;
        Ok(Self { solver, lp: Lp::default(), loaded: None, values, duals, sides, columns, rows })
    }

    /// Begins a task: solves of `stage` (number `at`) with `cuts` (α, β₁ … βₙ each, in parts), from `basis`
    /// if there is one. Cuts of a stage are only ever added: their number says which they are.
    ///
    /// # Errors
    /// What HiGHS refuses.
    pub fn begin<'a>(
        &mut self,
        at: usize,
        stage: &StageLp,
        cuts: impl Iterator<Item = &'a [f64]> + Clone,
        basis: Option<&Basis>,
    ) -> Result<()> {
        self.begin_program(at, stage, cuts, basis).map_err(|error| of_stage(error, at))
    }

    fn begin_program<'a>(
        &mut self,
        at: usize,
        stage: &StageLp,
        cuts: impl Iterator<Item = &'a [f64]> + Clone,
        basis: Option<&Basis>,
    ) -> Result<()> {
        let key = Some((at, cuts.clone().map(<[f64]>::len).sum()));
        if self.loaded == key {
            self.solver.forget()?;
        } else {
            self.loaded = None;
            stage.with_cuts(cuts, &mut self.lp);
            self.solver.load(&self.lp)?;
            self.loaded = key;
        }
        if let Some(basis) = basis {
            let rows = self.lp.start.len();
            basis.statuses((stage.columns(), &mut self.columns), (rows, &mut self.rows));
            self.solver.set_basis(&self.columns, &self.rows)?;
        }
        Ok(())
    }

    /// Solves the stage that was begun with, from `storage` (hm³) and `inflow` (m³/s), and returns its cost
    /// with that of all later stages (M$). [`values`](Self::values) and [`duals`](Self::duals) are of that
    /// solution.
    ///
    /// # Errors
    /// If HiGHS finds no optimum.
    pub fn solve(&mut self, at: usize, stage: &StageLp, storage: &[f64], inflow: &[f64]) -> Result<f64> {
        self.sides.resize(storage.len(), 0.0);
        stage.balances(storage, inflow, &mut self.sides);
        let mut solve = || {
            self.solver.set_sides(&self.sides)?;
            let cost = self.solver.solve()?;
            self.solver.solution(&mut self.values, &mut self.duals)?;
            Ok(cost)
        };
        solve().map_err(|error| of_stage(error, at))
    }

    /// The basis of the last solution.
    ///
    /// # Errors
    /// If there is none.
    pub fn basis(&mut self, at: usize, stage: &StageLp) -> Result<Basis> {
        self.solver.basis(&mut self.columns, &mut self.rows).map_err(|error| of_stage(error, at))?;
        Ok(Basis::of(&self.columns, &self.rows, stage.rows()))
    }
}

/// Names the stage.
fn of_stage(error: Error, at: usize) -> Error {
    match error {
        Error::Solver { call, answer, .. } => Error::Solver { stage: at + 1, call, answer },
        other => other,
    }
}

/// What each thread of the pool has: a workspace, made on that thread.
pub struct Space(Option<Workspace>);

/// Those of all threads.
pub type Spaces = bdrun_hybrid::Workspaces<Space>;

impl Space {
    /// For [`Hybrid::init_with`](bdrun_hybrid::Hybrid::init_with). Where there is no HiGHS, who needs it is
    /// told.
    pub fn new() -> Self {
        Self(Workspace::new().ok())
    }

    /// The workspace.
    ///
    /// # Errors
    /// If there is no HiGHS.
    pub fn get(&mut self) -> Result<&mut Workspace> {
        match &mut self.0 {
            Some(space) => Ok(space),
            none => Ok(none.insert(Workspace::new()?)),
        }
    }
}

impl Default for Space {
    fn default() -> Self {
        Self::new()
    }
}

/// Solves of all threads so far that found nothing from the basis they began with, and began again.
pub fn again(spaces: &Spaces) -> u64 {
    rayon::broadcast(|_| spaces.with(|space| space.0.as_ref().map_or(0, |space| space.solver.again)))
        .iter()
        .sum()
}
