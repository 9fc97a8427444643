//! HiGHS (Huangfu & Hall 2018), as far as stages need it: one instance solves one program again and again,
//! from a basis that is given.
//!
//! The library is loaded at run time (`library`): to compile it takes some minutes, CMake and libclang, which
//! whoever builds the workspace would need (README).

mod library;

pub use library::Library;

use std::ffi::{CString, c_void};

use crate::error::{Error, Result};
use crate::lp::Lp;
use library::Int;

/// `kHighsMatrixFormatRowwise`.
const ROWWISE: Int = 2;
/// `kHighsObjSenseMinimize`.
const MINIMISE: Int = 1;
/// `kHighsModelStatusOptimal`.
const OPTIMAL: Int = 7;
/// `kHighsBasisStatusBasic`.
pub const BASIC: i32 = 1;
/// `kHighsBasisStatusLower`.
pub const LOWER: i32 = 0;

/// How far bounds (hm³, m³/s, MW, M$) and optimality conditions (M$ for a unit of them) may be missed. HiGHS'
/// own 1e-7 could be seen in the sixth digit of a bound.
const TOLERANCE: f64 = 1e-9;
/// Where rounding does not permit that: HiGHS' own.
const LOOSE: f64 = 1e-7;

/// An instance. It is used by one thread at a time.
pub struct Solver {
    library: &'static Library,
    instance: *mut c_void,
    columns: usize,
    rows: usize,
    /// Solves that found nothing where they began, and began again.
    pub again: u64,
}

// SAFETY: an instance is plain memory of the C++ heap, bound to no thread; `&mut self` keeps threads apart.
// What HiGHS keeps for each thread (its task executor) it makes where it runs.
unsafe impl Send for Solver {}

impl Solver {
    /// An instance that solves by the dual simplex method on the thread that calls, and prints nothing.
    ///
    /// # Errors
    /// If there is no library, or it does not know these options.
    pub fn new() -> Result<Self> {
        let library = Library::get()?;
        // SAFETY: it takes nothing.
        let instance = unsafe { (library.Highs_create)() };
        let solver = Self { library, instance, columns: 0, rows: 0, again: 0 };
        solver.flag("output_flag", false)?;
        solver.text("presolve", "off")?;
        solver.text("solver", "simplex")?;
        solver.text("parallel", "off")?;
        solver.int("threads", 1)?;
        solver.int("simplex_strategy", 1)?; // dual, on one thread
        // Where solves begin near their end, to take the perturbation back costs more than it spares, and it
        // is then that optima are missed.
        solver.number("dual_simplex_cost_perturbation_multiplier", 0.0)?;
        solver.tolerance(TOLERANCE)?;
        Ok(solver)
    }

    fn tolerance(&self, tolerance: f64) -> Result<()> {
        self.number("primal_feasibility_tolerance", tolerance)?;
        self.number("dual_feasibility_tolerance", tolerance)
    }

    /// Lets presolve work, for a large program that is solved once.
    ///
    /// # Errors
    /// If the library does not know the option.
    pub fn presolve(&mut self) -> Result<()> {
        self.text("presolve", "on")
    }

    /// Takes a program, and forgets the one before with all it knew of it.
    ///
    /// # Errors
    /// If HiGHS refuses it.
    pub fn load(&mut self, lp: &Lp) -> Result<()> {
        let (columns, rows) = (lp.cost.len(), lp.start.len());
        assert!(lp.lower.len() == columns && lp.upper.len() == columns, "as many bounds as columns");
        assert!(lp.row_lower.len() == rows && lp.row_upper.len() == rows, "as many bounds as rows");
        assert_eq!(lp.index.len(), lp.value.len(), "as many columns as values");
        // SAFETY: the arrays have the lengths that are said (above), and are copied.
        let status = unsafe {
            (self.library.Highs_passLp)(
                self.instance,
                columns as Int,
                rows as Int,
                lp.index.len() as Int,
                ROWWISE,
                MINIMISE,
                0.0,
                lp.cost.as_ptr(),
                lp.lower.as_ptr(),
                lp.upper.as_ptr(),
                lp.row_lower.as_ptr(),
                lp.row_upper.as_ptr(),
                lp.start.as_ptr(),
                lp.index.as_ptr(),
                lp.value.as_ptr(),
            )
        };
        (self.columns, self.rows) = (columns, rows);
        accepted("Highs_passLp", status)
    }

    /// Forgets the basis, its factors and all that was learned while it solved; the program stays.
    ///
    /// # Errors
    /// None that is known.
    pub fn forget(&mut self) -> Result<()> {
        // SAFETY: the instance lives.
        accepted("Highs_clearSolver", unsafe { (self.library.Highs_clearSolver)(self.instance) })
    }

    /// Where the next solve begins: a status for each column and row (`kHighsBasisStatus…`).
    ///
    /// # Errors
    /// If it is no basis.
    pub fn set_basis(&mut self, columns: &[i32], rows: &[i32]) -> Result<()> {
        assert!(columns.len() == self.columns && rows.len() == self.rows, "one status each");
        // SAFETY: there are as many statuses as columns and rows; they are copied.
        let status = unsafe { (self.library.Highs_setBasis)(self.instance, columns.as_ptr(), rows.as_ptr()) };
        accepted("Highs_setBasis", status)
    }

    /// The basis of the last solve.
    ///
    /// # Errors
    /// If there is none.
    pub fn basis(&self, columns: &mut Vec<i32>, rows: &mut Vec<i32>) -> Result<()> {
        columns.resize(self.columns, 0);
        rows.resize(self.rows, 0);
        // SAFETY: there is room for as many statuses as there are columns and rows.
        let status =
            unsafe { (self.library.Highs_getBasis)(self.instance, columns.as_mut_ptr(), rows.as_mut_ptr()) };
        accepted("Highs_getBasis", status)
    }

    /// Makes the first rows equations with these right-hand sides.
    ///
    /// # Errors
    /// If HiGHS refuses them.
    pub fn set_sides(&mut self, sides: &[f64]) -> Result<()> {
        assert!(!sides.is_empty() && sides.len() <= self.rows, "sides of its rows");
        let last = sides.len() as Int - 1;
        // SAFETY: rows 0 … last exist, and each has a side; they are copied.
        let status = unsafe {
            (self.library.Highs_changeRowsBoundsByRange)(
                self.instance,
                0,
                last,
                sides.as_ptr(),
                sides.as_ptr(),
            )
        };
        accepted("Highs_changeRowsBoundsByRange", status)
    }

    /// Solves, and returns the least cost. What cannot be solved from where it begins is solved again from
    /// nothing, and then less exactly: what that depends on are the program and where it began, as everything
    /// else does.
    ///
    /// # Errors
    /// If there is no optimum, or HiGHS does not find it.
    pub fn solve(&mut self) -> Result<f64> {
        if let Ok(cost) = self.once() {
            return Ok(cost);
        }
        self.again += 1;
        self.forget()?;
        if let Ok(cost) = self.once() {
            return Ok(cost);
        }
        self.forget()?;
        self.tolerance(LOOSE)?;
        let last = self.once();
        self.tolerance(TOLERANCE)?;
        last
    }

    fn once(&mut self) -> Result<f64> {
        // SAFETY: the instance lives.
        let (status, model) = unsafe {
            ((self.library.Highs_run)(self.instance), (self.library.Highs_getModelStatus)(self.instance))
        };
        accepted("Highs_run", status)?;
        if model != OPTIMAL {
            return Err(failed(
                "Highs_run",
                format!("ends with model status {model} (optimal is {OPTIMAL})"),
            ));
        }
        // SAFETY: as above.
        Ok(unsafe { (self.library.Highs_getObjectiveValue)(self.instance) })
    }

    /// Values of the columns, and of each row what the least cost changes by when its side grows by 1.
    ///
    /// # Errors
    /// If there is no solution.
    pub fn solution(&self, values: &mut Vec<f64>, duals: &mut Vec<f64>) -> Result<()> {
        values.resize(self.columns, 0.0);
        duals.resize(self.rows, 0.0);
        let none = std::ptr::null_mut();
        // SAFETY: there is room for a value of each column and row; what is not wanted is null.
        let status = unsafe {
            (self.library.Highs_getSolution)(
                self.instance,
                values.as_mut_ptr(),
                none,
                none,
                duals.as_mut_ptr(),
            )
        };
        accepted("Highs_getSolution", status)
    }

    fn flag(&self, option: &str, value: bool) -> Result<()> {
        let name = option_name(option);
        // SAFETY: the name ends in 0.
        let status = unsafe {
            (self.library.Highs_setBoolOptionValue)(self.instance, name.as_ptr(), Int::from(value))
        };
        accepted("Highs_setBoolOptionValue", status)
    }

    fn int(&self, option: &str, value: Int) -> Result<()> {
        let name = option_name(option);
        // SAFETY: the name ends in 0.
        let status = unsafe { (self.library.Highs_setIntOptionValue)(self.instance, name.as_ptr(), value) };
        accepted("Highs_setIntOptionValue", status)
    }

    fn number(&self, option: &str, value: f64) -> Result<()> {
        let name = option_name(option);
        // SAFETY: the name ends in 0.
        let status =
            unsafe { (self.library.Highs_setDoubleOptionValue)(self.instance, name.as_ptr(), value) };
        accepted("Highs_setDoubleOptionValue", status)
    }

    fn text(&self, option: &str, value: &str) -> Result<()> {
        let (name, value) = (option_name(option), option_name(value));
        // SAFETY: both end in 0; they are copied.
        let status = unsafe {
            (self.library.Highs_setStringOptionValue)(self.instance, name.as_ptr(), value.as_ptr())
        };
        accepted("Highs_setStringOptionValue", status)
    }
}

impl Drop for Solver {
    fn drop(&mut self) {
        // SAFETY: it was made by `Highs_create`, and nobody has it any more.
        unsafe { (self.library.Highs_destroy)(self.instance) }
    }
}

fn option_name(text: &str) -> CString {
    CString::new(text).expect("our options have no zero in them")
}

/// Warnings (1) are of things that were put right.
fn accepted(call: &'static str, status: Int) -> Result<()> {
    if status < 0 { Err(failed(call, format!("returned {status}"))) } else { Ok(()) }
}

fn failed(call: &'static str, answer: String) -> Error {
    Error::Solver { stage: 0, call, answer }
}
