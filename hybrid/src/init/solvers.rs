//! Solvers that would start threads of their own: each thread of the pool has one, so they must not.

use super::{Env, InitError};

/// Variables that keep solvers to one thread, and the values they must have: HiGHS, Intel's MKL (CPLEX and
/// others), OpenMP.
pub const SOLVER_VARIABLES: [(&str, &str); 3] =
    [("HIGHS_PARALLEL", "false"), ("MKL_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1")];

/// A variable that has not the value it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Its name.
    pub variable: &'static str,
    /// What it was.
    pub was: Option<String>,
    /// What it must be.
    pub must_be: &'static str,
}

/// Those that have not.
pub fn wrong(env: Env<'_>) -> Vec<Wrong> {
    let look = |(variable, must_be): (&'static str, &'static str)| {
        let was = env(variable);
        (was.as_deref() != Some(must_be)).then_some(Wrong { variable, was, must_be })
    };
    SOLVER_VARIABLES.into_iter().filter_map(look).collect()
}

/// Sets them. Before anything else is done: what the back end loads may start threads.
pub fn set(wrong: &[Wrong]) -> Result<(), InitError> {
    if wrong.is_empty() {
        return Ok(());
    }
    let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
    if threads != 1 {
        let list = |wrong: &Wrong| format!("{}={}", wrong.variable, wrong.must_be);
        return Err(InitError::Solvers { missing: wrong.iter().map(list).collect::<Vec<_>>().join(" ") });
    }
    for Wrong { variable, must_be, .. } in wrong {
        // SAFETY: no other thread reads or writes the environment: the process has this one only (just seen),
        // and who could start another is here.
        unsafe { std::env::set_var(variable, must_be) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_has_another_value_is_found() {
        let good = |name: &str| {
            SOLVER_VARIABLES.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned())
        };
        assert_eq!(wrong(&good), []);
        let many = |name: &str| if name == "OMP_NUM_THREADS" { Some("8".into()) } else { good(name) };
        let omp = Wrong { variable: "OMP_NUM_THREADS", was: Some("8".into()), must_be: "1" };
        assert_eq!(wrong(&many), [omp]);
        assert_eq!(wrong(&|_| None).len(), 3);
    }

    #[test]
    fn they_are_not_set_beside_other_threads() {
        // Tests run in threads of their own.
        assert!(set(&[]).is_ok());
        let error = set(&wrong(&|_| None)).unwrap_err().to_string();
        assert!(error.contains("HIGHS_PARALLEL=false MKL_NUM_THREADS=1 OMP_NUM_THREADS=1"), "{error}");
    }
}
