//! How many threads a rank's pool has.

use super::{Env, InitError};

/// A number of threads, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// How many; at least 1.
    pub count: usize,
    /// What it comes from.
    pub source: ThreadSource,
}

/// What a number of threads comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadSource {
    /// The program said so.
    Explicit,
    /// This environment variable.
    Variable(&'static str),
    /// Nothing says anything.
    Default,
}

impl std::fmt::Display for ThreadSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Explicit => "as the program asks",
            Self::Variable(name) => name,
            Self::Default => "the default",
        })
    }
}

/// Variables that say how many, the first one first.
const VARIABLES: [&str; 2] = ["RAYON_NUM_THREADS", "SLURM_CPUS_PER_TASK"];

/// What the program asks for, else `RAYON_NUM_THREADS`, else `SLURM_CPUS_PER_TASK`, else 1. A variable that
/// is empty says nothing, nor does `RAYON_NUM_THREADS=0`, which to Rayon is "as if it was not there".
///
/// ```
/// use bdrun_hybrid::{ThreadSource, Threads, resolve_threads};
///
/// let slurm = |name: &str| (name == "SLURM_CPUS_PER_TASK").then(|| "16".to_owned());
/// let threads = Threads { count: 16, source: ThreadSource::Variable("SLURM_CPUS_PER_TASK") };
/// assert_eq!(resolve_threads(None, &slurm)?, threads);
/// assert_eq!(resolve_threads(Some(2), &slurm)?.count, 2);
/// assert_eq!(resolve_threads(None, &|_| None)?.count, 1);
/// # Ok::<(), bdrun_hybrid::InitError>(())
/// ```
///
/// # Errors
/// [`InitError::Variable`]: the variable that counts is no number from 1 to 65535; [`InitError::NoThreads`]:
/// the program asks for none.
pub fn resolve_threads(explicit: Option<usize>, env: Env<'_>) -> Result<Threads, InitError> {
    match explicit {
        Some(0) => return Err(InitError::NoThreads),
        Some(count) => return Ok(Threads { count, source: ThreadSource::Explicit }),
        None => {}
    }
    for variable in VARIABLES {
        let Some(value) =
            env(variable).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        else {
            continue;
        };
        match value.parse::<u16>() {
            Ok(0) if variable == VARIABLES[0] => {}
            Ok(count) if count > 0 => {
                return Ok(Threads { count: count.into(), source: ThreadSource::Variable(variable) });
            }
            _ => return Err(InitError::Variable { variable, value, wanted: "a number from 1 to 65535" }),
        }
    }
    Ok(Threads { count: 1, source: ThreadSource::Default })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The first source that says something is the one that counts, whatever the later ones say.
        #[test]
        fn the_first_that_says_something_counts(
            explicit in proptest::option::of(1usize..100),
            rayon in proptest::option::of(0u16..100),
            slurm in proptest::option::of(1u16..100),
        ) {
            let env = |name: &str| match name {
                "RAYON_NUM_THREADS" => rayon.map(|n| format!(" {n}\n")),
                "SLURM_CPUS_PER_TASK" => slurm.map(|n| n.to_string()),
                other => panic!("{other} is not asked for"),
            };
            let expected = explicit
                .map(|count| (count, ThreadSource::Explicit))
                .or(rayon.filter(|n| *n > 0).map(|n| (n.into(), ThreadSource::Variable(VARIABLES[0]))))
                .or(slurm.map(|n| (n.into(), ThreadSource::Variable(VARIABLES[1]))))
                .unwrap_or((1, ThreadSource::Default));
            let got = resolve_threads(explicit, &env).unwrap();
            prop_assert_eq!((got.count, got.source), expected);
        }
    }

    #[test]
    fn what_is_no_number_is_told_unless_an_earlier_source_counts() {
        let env = |rayon: &'static str, slurm: &'static str| {
            move |name: &str| Some(if name == VARIABLES[0] { rayon } else { slurm }.to_owned())
        };
        for wrong in ["many", "-1", "1.5", "65536"] {
            let said = resolve_threads(None, &env(wrong, "2")).unwrap_err().to_string();
            assert!(said.contains("RAYON_NUM_THREADS") && said.contains(wrong), "{said}");
            assert_eq!(resolve_threads(Some(3), &env(wrong, "2")).unwrap().count, 3);
            assert_eq!(resolve_threads(None, &env("4", wrong)).unwrap().count, 4);
        }
        assert_eq!(resolve_threads(None, &env("", "5")).unwrap().count, 5);
        assert!(resolve_threads(None, &env("0", "0")).is_err(), "a task without processors");
        assert!(matches!(resolve_threads(Some(0), &env("1", "1")), Err(InitError::NoThreads)));
    }
}
