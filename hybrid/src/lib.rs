//! Hybrid ranks: one communicator over what a program finds where it runs, memory that the ranks of a node
//! share, and a pool of threads in each rank.
//!
//! What it is: the calls that a bulk-synchronous program needs ([`Communicator`], [`SharedMemory`]), the same
//! over one process, shared memory, bdrun, and a real MPI.
//!
//! What it is not: all of MPI. Programs that want that call MPI; under bdrun that works as it is.
//!
//! | module | answers |
//! |---|---|
//! | `communicator` | the typed calls, written once over one trait |
//! | [`transport`] | what a back end must provide |
//! | `element` | how numbers are reduced |
//! | `region` | memory that the ranks of a node share |
//! | `host` | which ranks are on this machine |
//! | `queue` | messages that wait to be received |
//! | `select` | which back end it is |
//! | `init` | how a rank is set up: back end, pool of threads, memory |
//! | `local` | a program that is alone |
//! | `bdrun` | a rank of bdrun |
//! | `shm` | processes of one machine |
//! | `mpi` | a rank of a real MPI |
//! | [`conformance`] | what every back end must do |

/// Its program is a test too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod any;
#[cfg(feature = "bdrun")]
mod bdrun;
mod communicator;
pub mod conformance;
mod element;
mod error;
mod host;
mod init;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
mod queue;
mod region;
mod select;
#[cfg(feature = "shm")]
mod shm;
pub mod transport;

pub use any::AnyCommunicator;
#[cfg(feature = "bdrun")]
pub use bdrun::BdrunBackend;
pub use communicator::{Communicator, SharedMemory, TAG_MAX, Tag};
pub use element::{Element, ReduceOp};
pub use error::{Cause, Error, Result};
pub use init::{
    Env, Hybrid, HybridConfig, InitError, Numa, NumaPolicy, SOLVER_VARIABLES, Scheduler, Summary,
    ThreadSource, Threads, Workspaces, Wrong, first_touched, resolve_threads,
};
pub use local::LocalBackend;
#[cfg(feature = "mpi")]
pub use mpi::{LIBRARY as MPI_LIBRARY, MpiBackend};
pub use region::{SharedRegion, Writing};
pub use select::{ENV as COMM_ENV, EXPECTED_RANKS, Kind, SelectError, create_communicator, select};
#[cfg(feature = "shm")]
pub use shm::{ENV as SHM_ENV, ShmBackend, Spec as ShmSpec};
