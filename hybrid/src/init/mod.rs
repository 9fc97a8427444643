//! Setting up a rank: what it communicates by, its threads, and where their memory lies, in the order in
//! which these depend on one another.
//!
//! | step | what |
//! |---|---|
//! | 1 | the back end: before any thread, as MPI and bdrun ask; as many ranks as are expected |
//! | 2 | topology: rank, size, the scheduler |
//! | 3 | the communicator of the node |
//! | 4 | the pool of threads |
//! | 5 | solvers start no threads: seen to (what is missing is set before step 1, which may start threads) |
//! | 6 | where pages come from, in this thread and the pool's |
//! | 7 | workspaces: one for each thread of the pool, made there |
//! | 8 | rank 0 says how it is |

mod numa;
mod scheduler;
mod solvers;
mod summary;
mod threads;
mod workspaces;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::select::{self, COMM_NAMED, wrong_on_any};
use crate::{AnyCommunicator, Communicator, Kind, ReduceOp, SelectError, SharedMemory};
pub use numa::{Numa, NumaPolicy, first_touched};
pub use scheduler::Scheduler;
pub use solvers::{SOLVER_VARIABLES, Wrong};
pub use summary::Summary;
pub use threads::{ThreadSource, Threads, resolve_threads};
pub use workspaces::Workspaces;

/// Tells the value of an environment variable.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What a program asks for; the rest is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HybridConfig {
    /// The back end; none: as [`create_communicator`](crate::create_communicator). [`Kind::Local`] is
    /// single-process mode: nothing communicates.
    pub backend: Option<Kind>,
    /// Threads of the pool; none: as [`resolve_threads`].
    pub threads: Option<usize>,
    /// Ranks that there must be; none: as [`create_communicator`](crate::create_communicator).
    pub ranks: Option<usize>,
    /// Where pages come from.
    pub numa: NumaPolicy,
    /// Rank 0 says nothing; [`Hybrid::summary`] has it.
    pub quiet: bool,
}

/// Why a rank could not be set up. `main` may return it: its `Debug` is a sentence.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// It is done once in a process.
    #[error("this process was set up already")]
    Twice,
    /// No back end.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// A call of the back end.
    #[error(transparent)]
    Comm(#[from] crate::Error),
    /// A pool without threads.
    #[error("a pool of 0 threads was asked for")]
    NoThreads,
    /// A variable has no value that it can have.
    #[error("{variable}={value}: it must be {wanted}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it can be.
        wanted: &'static str,
    },
    /// Another rank could not be set up.
    #[error("rank {rank} could not be set up: {why}")]
    Elsewhere {
        /// The first that could not.
        rank: usize,
        /// What it says. Its launcher may end it before it can.
        why: String,
    },
    /// Solvers would start threads, and the environment cannot be changed any more.
    #[error(
        "there are other threads already, so the environment cannot be changed: start the program with {missing}"
    )]
    Solvers {
        /// What must be set.
        missing: String,
    },
    /// The pool was not made: somebody has made it already.
    #[error("the pool of threads: {0}")]
    Pool(#[from] rayon::ThreadPoolBuildError),
}

impl std::fmt::Debug for InitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A rank that is set up: its communicators, its pool of threads (Rayon's global one), what each of these
/// has.
///
/// ```standalone_crate
/// use bdrun_hybrid::{Communicator, Hybrid, HybridConfig};
/// use rayon::prelude::*;
///
/// let hybrid = Hybrid::init(HybridConfig { threads: Some(2), ..HybridConfig::default() })?;
/// let (rank, size) = (hybrid.comm().rank(), hybrid.comm().size());
/// let first = 1_000 * rank / size;
/// let mine: Vec<f64> = (first..1_000 * (rank + 1) / size).into_par_iter().map(|x| x as f64).collect();
/// let sum = hybrid.comm().reduce_elements(&mine, bdrun_hybrid::ReduceOp::Sum)?;
/// assert_eq!(sum, Some(499_500.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Hybrid<W = ()> {
    node: AnyCommunicator,
    comm: AnyCommunicator,
    workspaces: Workspaces<W>,
    summary: Summary,
}

impl Hybrid<()> {
    /// Sets up this rank, in the order above. Once in a process, first thing in `main`.
    ///
    /// # Errors
    /// [`InitError`].
    pub fn init(config: HybridConfig) -> Result<Self, InitError> {
        Self::init_with(config, |_| ())
    }
}

impl<W: Send> Hybrid<W> {
    /// The same, with a workspace for each thread of the pool, which that thread makes: `make` is given its
    /// number.
    ///
    /// # Errors
    /// [`InitError`].
    pub fn init_with(config: HybridConfig, make: impl Fn(usize) -> W + Sync) -> Result<Self, InitError> {
        static DONE: AtomicBool = AtomicBool::new(false);
        if DONE.swap(true, SeqCst) {
            return Err(InitError::Twice);
        }
        let plain: Env<'_> = &|name| std::env::var(name).ok();
        let solvers = solvers::wrong(plain);
        solvers::set(&solvers)?;
        // 1: the back end.
        let named = |name: &str| match config.backend {
            Some(kind) if name == select::ENV => Some(kind.name().to_owned()),
            _ => plain(name),
        };
        let (comm, because) = select::create(&named, config.ranks)?;
        let because = if config.backend.is_some() { COMM_NAMED } else { because };
        // 2: topology.
        let (rank, ranks, backend) = (comm.rank(), comm.size(), comm.kind());
        let nodefile = |path: &str| std::fs::read_to_string(path).ok();
        let scheduler = Scheduler::detect(plain, &nodefile);
        let set_up = resolve_threads(config.threads, plain).and_then(|threads| {
            // 3: the pool.
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads.count)
                .thread_name(|thread| format!("pool-{thread}"))
                .build_global()?;
            // 4: solvers. The back end may have changed the environment.
            match solvers::wrong(plain).into_iter().next() {
                Some(Wrong { variable, was, must_be }) => {
                    let value = was.unwrap_or_default();
                    Err(InitError::Variable { variable, value, wanted: must_be })
                }
                None => Ok(threads),
            }
        });
        let error = set_up.as_ref().err();
        let wrong = wrong_on_any(&comm, error.map(|error| error as &dyn std::fmt::Display))?;
        let threads = set_up?;
        if let Some((rank, why)) = wrong {
            return Err(InitError::Elsewhere { rank, why });
        }
        // 5: the node's communicator.
        let node = comm.split_local()?;
        let mut nodes = [0u64];
        comm.allreduce(&[u64::from(node.is_leader())], &mut nodes, ReduceOp::Sum)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // 6, 7: where pages come from, and the first of them.
        let numa = numa::apply(config.numa, numa::nodes());
        let workspaces = Workspaces::new(make);
        // 8: what there is.
        let summary = Summary {
            backend,
            because,
            ranks,
            nodes: nodes[0] as usize,
            ranks_here: node.size(),
            threads,
            processors,
            scheduler,
            numa,
            solvers,
        };
        if rank == 0 && !config.quiet {
            eprintln!("{summary}");
        }
        Ok(Self { node, comm, workspaces, summary })
    }

    /// Does a rank's work. If it fails, this says why and ends the job: the other ranks would wait for what
    /// this one does not do any more, and an MPI waits at its end for all of them.
    ///
    /// ```standalone_crate
    /// use bdrun_hybrid::{Communicator, Hybrid, HybridConfig};
    ///
    /// let hybrid = Hybrid::init(HybridConfig::default())?;
    /// let square = hybrid.run(|hybrid| "7".parse::<u64>().map(|x| x * x + hybrid.comm().rank() as u64));
    /// assert!(square >= 49);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<T, E: std::fmt::Display>(&self, work: impl FnOnce(&Self) -> Result<T, E>) -> T {
        work(self).unwrap_or_else(|error| {
            let rank = self.comm.rank();
            match self.comm.size() {
                1 => eprintln!("{error}"),
                _ => eprintln!("rank {rank}: {error}"),
            }
            self.comm.abort(1)
        })
    }

    /// All ranks.
    #[must_use]
    pub const fn comm(&self) -> &AnyCommunicator {
        &self.comm
    }

    /// Those of this node.
    #[must_use]
    pub const fn node(&self) -> &AnyCommunicator {
        &self.node
    }

    /// Threads of the pool.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.summary.threads.count
    }

    /// What each of them has; threads may be given it.
    #[must_use]
    pub const fn workspaces(&self) -> &Workspaces<W> {
        &self.workspaces
    }

    /// The same, to change them all while no thread uses its own.
    pub const fn workspaces_mut(&mut self) -> &mut Workspaces<W> {
        &mut self.workspaces
    }

    /// How the job is set up.
    #[must_use]
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }
}
