//! Which back end: what the environment says, or what it shows.

use std::fmt;

use crate::{AnyCommunicator, Communicator, LocalBackend};

/// The environment variable that names the back end, or says `auto`.
pub const ENV: &str = "BDRUN_COMM";

/// The environment variable by which a job script says how many ranks there must be.
pub const EXPECTED_RANKS: &str = "BDRUN_EXPECTED_RANKS";

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
    /// [`EXPECTED_RANKS`] is no number of ranks.
    #[error("{EXPECTED_RANKS}={0}: it must be a number of ranks, 1 or more")]
    Expected(String),
    /// Another number of ranks than expected.
    #[error(
        "{found} ranks by {backend}, and {expected} are expected ({who}): does the launcher belong to the back end?"
    )]
    Ranks {
        /// How many there are.
        found: usize,
        /// By which back end.
        backend: Kind,
        /// How many there must be.
        expected: usize,
        /// Who says so.
        who: &'static str,
    },
    /// Another rank has no communicator.
    #[error("rank {rank} has no communicator: {why}")]
    Elsewhere {
        /// The first that has none.
        rank: usize,
        /// What it says. Its launcher may end it before it can.
        why: String,
    },
    /// A call of the back end.
    #[error(transparent)]
    Comm(#[from] crate::Error),
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

/// What `srun` tells them.
const STEP: &str = "SLURM_STEP_NUM_TASKS";

fn detected(env: &dyn Fn(&str) -> Option<String>) -> (Kind, &'static str) {
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

/// How many ranks there must be, and who says so: the program, else [`EXPECTED_RANKS`], else of MPI the
/// launcher. A rank whose MPI is not the launcher's would believe to be alone.
fn expected_ranks(
    explicit: Option<usize>,
    kind: Kind,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<(usize, &'static str)>, SelectError> {
    if let Some(ranks) = explicit {
        return Ok(Some((ranks, "the program")));
    }
    let said = env(EXPECTED_RANKS).map(|said| said.trim().to_owned());
    if let Some(said) = said.filter(|said| !said.is_empty()) {
        return match said.parse() {
            Ok(ranks) if ranks > 0 => Ok(Some((ranks, EXPECTED_RANKS))),
            _ => Err(SelectError::Expected(said)),
        };
    }
    if kind != Kind::Mpi {
        return Ok(None);
    }
    let said = |name: &'static str| env(name)?.trim().parse().ok().map(|ranks| (ranks, name));
    // A step of Slurm says it in a job's script too, of which there is one.
    let step = || said(STEP).filter(|(tasks, _)| *tasks > 1);
    Ok(["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"].into_iter().find_map(said).or_else(step))
}

/// Whether there are as many ranks as there must be.
fn as_expected(
    (kind, found): (Kind, usize),
    explicit: Option<usize>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(), SelectError> {
    match expected_ranks(explicit, kind, env)? {
        Some((expected, who)) if expected != found => {
            Err(SelectError::Ranks { found, backend: kind, expected, who })
        }
        _ => Ok(()),
    }
}

/// The first rank that cannot go on, and why, on all ranks (a collective). All go on, or none: to end MPI is
/// a collective, where one that fails would wait for the others in theirs.
pub(crate) fn wrong_on_any(
    comm: &AnyCommunicator,
    error: Option<&dyn fmt::Display>,
) -> Result<Option<(usize, String)>, crate::Error> {
    let text = error.map(ToString::to_string).unwrap_or_default();
    let counts: Vec<usize> = comm.allgather(&[text.len() as u64])?.iter().map(|&len| len as usize).collect();
    let displs: Vec<usize> = (0..counts.len()).map(|rank| counts[..rank].iter().sum()).collect();
    let Some(rank) = counts.iter().position(|len| *len > 0) else { return Ok(None) };
    let mut all = vec![0; counts.iter().sum()];
    comm.allgatherv(text.as_bytes(), &mut all, &counts, &displs)?;
    let why = String::from_utf8_lossy(&all[displs[rank]..][..counts[rank]]).into_owned();
    Ok(Some((rank, why)))
}

/// The communicator of all ranks, on the back end that [`select`] finds in this process's environment, of as
/// many ranks as are expected: as [`EXPECTED_RANKS`] says, else those that a launcher of MPI has started.
/// Once in a process, in the thread that is to communicate; before any other thread is started, as MPI and
/// bdrun ask.
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
    create(&|name| std::env::var(name).ok(), None).map(|(comm, _)| comm)
}

/// What is said of a back end that the program itself names.
pub(crate) const COMM_NAMED: &str = "as the program asks";

/// The same, in an environment, of so many ranks if the program says how many; and what said so.
pub(crate) fn create(
    env: &dyn Fn(&str) -> Option<String>,
    ranks: Option<usize>,
) -> Result<(AnyCommunicator, &'static str), SelectError> {
    let (kind, why) = select(env, &Kind::built())?;
    let comm = open(kind, env).map_err(|cause| SelectError::Failed { kind, why, cause })?;
    let found = as_expected((kind, comm.size()), ranks, env);
    let wrong = wrong_on_any(&comm, found.as_ref().err().map(|error| error as &dyn fmt::Display))?;
    found?;
    match wrong {
        None => Ok((comm, why)),
        Some((rank, why)) => Err(SelectError::Elsewhere { rank, why }),
    }
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

    #[test]
    fn how_many_ranks_there_must_be_the_program_says_first() {
        let expected = |explicit, kind, set: &[(&str, &str)]| {
            let env =
                |name: &str| set.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned());
            expected_ranks(explicit, kind, &env).map_err(|error| error.to_string())
        };
        let all = [(EXPECTED_RANKS, "6"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMI_SIZE", "3")];
        assert_eq!(expected(Some(2), Kind::Mpi, &all), Ok(Some((2, "the program"))));
        assert_eq!(expected(None, Kind::Local, &all), Ok(Some((6, EXPECTED_RANKS))));
        assert_eq!(expected(None, Kind::Mpi, &all[1..]), Ok(Some((4, "OMPI_COMM_WORLD_SIZE"))));
        assert_eq!(expected(None, Kind::Mpi, &all[2..]), Ok(Some((3, "PMI_SIZE"))));
        assert_eq!(expected(None, Kind::Mpi, &[(STEP, "8")]), Ok(Some((8, STEP))));
        assert_eq!(expected(None, Kind::Mpi, &[(STEP, "1")]), Ok(None));
        assert_eq!(expected(None, Kind::Bdrun, &all[1..]), Ok(None), "another launcher's, above bdrun");
        assert_eq!(expected(None, Kind::Shm, &[(EXPECTED_RANKS, " ")]), Ok(None), "nothing is said");
        for value in ["four", "0", "-1", "4.0"] {
            let error = expected(None, Kind::Shm, &[(EXPECTED_RANKS, value)]).unwrap_err();
            assert!(error.starts_with(&format!("BDRUN_EXPECTED_RANKS={value}: ")), "{error}");
        }
    }

    #[test]
    fn another_number_of_ranks_than_expected_is_told() {
        let none = |_: &str| None;
        let error = as_expected((Kind::Mpi, 1), Some(4), &none).unwrap_err();
        assert!(matches!(error, SelectError::Ranks { found: 1, expected: 4, .. }), "{error}");
        assert!(as_expected((Kind::Mpi, 4), Some(4), &none).is_ok());
        // Open MPI's launcher, and another MPI, to which each rank is alone.
        let env = |name: &str| (name == "OMPI_COMM_WORLD_SIZE").then(|| "4".to_owned());
        let error = as_expected((Kind::Mpi, 1), None, &env).unwrap_err().to_string();
        assert!(error.contains("1 ranks by mpi, and 4 are expected (OMPI_COMM_WORLD_SIZE)"), "{error}");
        assert!(as_expected((Kind::Local, 1), None, &env).is_ok(), "nobody expects a number");
    }
}
