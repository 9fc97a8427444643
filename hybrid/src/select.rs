//! Which back end: what the environment says, or what it shows.

use std::fmt;

use crate::{AnyCommunicator, LocalBackend};

/// The environment variable that names the back end, or says `auto`.
pub const ENV: &str = "BDRUN_COMM";

/// A back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One process.
    Local,
    /// A rank of bdrun.
    Bdrun,
    /// A rank of an MPI.
    Mpi,
    /// Processes of one machine.
    Shm,
}

impl Kind {
    /// All that there are.
    pub const ALL: [Self; 4] = [Self::Local, Self::Bdrun, Self::Mpi, Self::Shm];

    /// As [`ENV`] names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Bdrun => "bdrun",
            Self::Mpi => "mpi",
            Self::Shm => "shm",
        }
    }

    /// Those that this program was built with.
    #[must_use]
    pub fn built() -> Vec<Self> {
        let is_built = |kind: &Self| match kind {
            Self::Local => true,
            Self::Bdrun => cfg!(feature = "bdrun"),
            Self::Mpi => cfg!(feature = "mpi"),
            Self::Shm => cfg!(feature = "shm"),
        };
        Self::ALL.into_iter().filter(is_built).collect()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why there is no communicator. `main` may return it: its `Debug` is a sentence.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The environment names something unknown.
    #[error("{ENV}={name}: this program has {}, or auto", list(built))]
    Unknown {
        /// What it names.
        name: String,
        /// What there is.
        built: Vec<Kind>,
    },
    /// The environment names a back end, or shows one, that the program was built without.
    #[error("{kind} ({why}): this program was built without it, and has {} ({ENV} names one)", list(built))]
    NotBuilt {
        /// Which one.
        kind: Kind,
        /// What says so.
        why: &'static str,
        /// What there is.
        built: Vec<Kind>,
    },
    /// It could not be set up.
    #[error("{kind} ({why}): {cause}")]
    Failed {
        /// Which one.
        kind: Kind,
        /// What says that it is this one.
        why: &'static str,
        /// What went wrong.
        #[source]
        cause: crate::Cause,
    },
}

impl fmt::Debug for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn list(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

/// Chooses, and tells by what: [`ENV`], else the first of: bdrun's control socket, a launcher of MPI (or a
/// Slurm step of several tasks), the name of a job in shared memory; else one process.
///
/// # Errors
/// [`SelectError::Unknown`], [`SelectError::NotBuilt`].
pub fn select(
    env: &dyn Fn(&str) -> Option<String>,
    built: &[Kind],
) -> Result<(Kind, &'static str), SelectError> {
    let named = env(ENV).filter(|name| !name.is_empty() && name != "auto");
    let (kind, why) = match named {
        Some(name) => match Kind::ALL.into_iter().find(|kind| kind.name() == name) {
            Some(kind) => (kind, ENV),
            None => return Err(SelectError::Unknown { name, built: built.to_vec() }),
        },
        None => detected(env),
    };
    match built.contains(&kind) {
        true => Ok((kind, why)),
        false => Err(SelectError::NotBuilt { kind, why, built: built.to_vec() }),
    }
}

/// What launchers of MPI tell the ranks that they start: Open MPI's and PRRTE's, MPICH's Hydra and others
/// with its protocol, all with PMIx.
const LAUNCHERS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK"];

fn detected(env: &dyn Fn(&str) -> Option<String>) -> (Kind, &'static str) {
    const STEP: &str = "SLURM_STEP_NUM_TASKS";
    if env("BDRUN_FDS").is_some() {
        return (Kind::Bdrun, "BDRUN_FDS");
    }
    if let Some(launcher) = LAUNCHERS.into_iter().find(|name| env(name).is_some()) {
        return (Kind::Mpi, launcher);
    }
    // Set in a job's script too, of which there is one.
    if env(STEP).and_then(|tasks| tasks.parse::<u64>().ok()).is_some_and(|tasks| tasks > 1) {
        return (Kind::Mpi, STEP);
    }
    if env("BDRUN_SHM_NAME").is_some() {
        return (Kind::Shm, "BDRUN_SHM_NAME");
    }
    (Kind::Local, "nothing says otherwise")
}

/// The communicator of all ranks, on the back end that [`select`] finds in this process's environment. Once
/// in a process, in the thread that is to communicate; before any other thread is started, as MPI and bdrun
/// ask.
///
/// ```
/// use bdrun_hybrid::Communicator;
///
/// let comm = bdrun_hybrid::create_communicator()?;
/// println!("rank {} of {}", comm.rank(), comm.size());
/// comm.barrier()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SelectError`].
pub fn create_communicator() -> Result<AnyCommunicator, SelectError> {
    create(&|name| std::env::var(name).ok()).map(|(comm, _)| comm)
}

/// What is said of a back end that the program itself names.
pub(crate) const COMM_NAMED: &str = "as the program asks";

/// The same, in an environment; and what said so.
pub(crate) fn create(
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(AnyCommunicator, &'static str), SelectError> {
    let (kind, why) = select(env, &Kind::built())?;
    let comm = open(kind, env).map_err(|cause| SelectError::Failed { kind, why, cause })?;
    Ok((comm, why))
}

fn open(kind: Kind, env: &dyn Fn(&str) -> Option<String>) -> crate::transport::Result<AnyCommunicator> {
    Ok(match kind {
        #[cfg(feature = "bdrun")]
        Kind::Bdrun => AnyCommunicator::Bdrun(crate::BdrunBackend::join()?),
        #[cfg(feature = "mpi")]
        Kind::Mpi => AnyCommunicator::Mpi(crate::MpiBackend::init(env)?),
        #[cfg(feature = "shm")]
        Kind::Shm => {
            let spec = crate::shm::Spec::read(env).map_err(crate::Cause::Backend)?;
            AnyCommunicator::Shm(crate::ShmBackend::join(&spec)?)
        }
        // Those that it was built without are not chosen.
        _ => {
            let _ = env;
            AnyCommunicator::Local(LocalBackend)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(set: &[(&str, &str)], built: &[Kind]) -> Result<(Kind, &'static str), String> {
        let env = |name: &str| set.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned());
        select(&env, built).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_named_is_taken_whatever_is_there() {
        let around = [("BDRUN_FDS", "203"), ("PMI_RANK", "0"), ("BDRUN_SHM_NAME", "a")];
        for kind in Kind::ALL {
            let set = [&around[..], &[(ENV, kind.name())]].concat();
            assert_eq!(chosen(&set, &Kind::ALL), Ok((kind, ENV)));
        }
    }

    #[test]
    fn what_the_environment_shows_is_found_in_this_order() {
        let signs = [
            (("BDRUN_FDS", "203"), Kind::Bdrun),
            (("OMPI_COMM_WORLD_SIZE", "2"), Kind::Mpi),
            (("PMI_RANK", "1"), Kind::Mpi),
            (("PMIX_RANK", "1"), Kind::Mpi),
            (("SLURM_STEP_NUM_TASKS", "2"), Kind::Mpi),
            (("BDRUN_SHM_NAME", "a"), Kind::Shm),
        ];
        for (at, (first, kind)) in signs.into_iter().enumerate() {
            let set: Vec<_> = signs[at..].iter().map(|(sign, _)| *sign).collect();
            assert_eq!(chosen(&set, &Kind::ALL), Ok((kind, first.0)));
            let auto = [&set[..], &[(ENV, "auto")]].concat();
            assert_eq!(chosen(&auto, &Kind::ALL), Ok((kind, first.0)));
        }
        for alone in [&[][..], &[("SLURM_STEP_NUM_TASKS", "1")], &[("SLURM_JOB_ID", "7")], &[(ENV, "")]] {
            assert_eq!(chosen(alone, &Kind::ALL).map(|(kind, _)| kind), Ok(Kind::Local));
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_that_lists_what_is() {
        let two = [Kind::Local, Kind::Shm];
        let unknown = chosen(&[(ENV, "tcp")], &two).unwrap_err();
        assert!(unknown.contains("BDRUN_COMM=tcp") && unknown.contains("local, shm, or auto"), "{unknown}");
        for set in [(ENV, "mpi"), ("PMI_RANK", "0")] {
            let missing = chosen(&[set], &two).unwrap_err();
            assert!(missing.starts_with(&format!("mpi ({})", set.0)), "{missing}");
            assert!(missing.contains("built without it, and has local, shm"), "{missing}");
        }
    }
}
