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
//! | `local` | the back end of a program that is alone |

mod any;
mod communicator;
mod element;
mod error;
mod host;
mod local;
mod region;
pub mod transport;

pub use any::AnyCommunicator;
pub use communicator::{Communicator, SharedMemory, TAG_MAX, Tag};
pub use element::{Element, ReduceOp};
pub use error::{Cause, Error, Result};
pub use local::LocalBackend;
pub use region::{SharedRegion, Writing};
