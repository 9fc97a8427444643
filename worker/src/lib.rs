//! The API of a rank: what a program that runs under `bdrun` calls.
//!
//! ```no_run
//! let world = bdrun_worker::init()?;
//! let comm = world.communicator();
//! let sum = comm.allreduce(&[comm.rank() as u64], |a, b| a + b)?;
//! # Ok::<(), bdrun_worker::Error>(())
//! ```
//!
//! What it is: message passing in the manner of MPI (names, order of messages and meaning of the collectives
//! follow MPI 4.1, chapters 3 and 6) between the ranks of one job, where every call that may wait is a
//! scheduling point: while it waits, the rank's memory may be written to scratch and given to another rank.
//!
//! What it asks for: that nobody but the rank's own threads, no transfer of io_uring or AIO either, writes to
//! its memory during such a call ([`init`]).
//!
//! What it is not: a cluster transport, an MPI ABI, or a thread-safe library: only the thread that called
//! [`init`] communicates.
//!
//! | module | answers |
//! |---|---|
//! | [`Communicator`] (`communicator`) | the typed calls: send, receive, probe, split, duplicate |
//! | `collective` | the typed collectives, each written once over one primitive of the back end |
//! | `alltoall` | of these the exchange of all with all |
//! | [`backend`] | what a back end must provide |
//! | [`local`] | ranks as threads of one process; size 1 without a launcher |
//! | `shm` | ranks as processes under `bdrun`, through the shared segment |
//! | [`matching`] | pure: which message belongs to which receive |
//! | `site` | where in the program a rank waits |
//! | `meter` | looking at a rank that computes with memory out |
//! | [`front`] | ranks whose messages another library makes: MPI |
//! | [`preload`] | programs not written for us, under `libsbmalloc.so` |
//! | `runtime` | attaching, the one place where a rank waits, who pays for its memory |

mod alltoall;
mod apart;
pub mod backend;
mod collective;
mod communicator;
mod error;
pub mod front;
pub mod local;
pub mod matching;
mod meter;
pub mod preload;
mod runtime;
mod shm;
mod site;
mod world;

pub use alltoall::Received;
pub use communicator::{Communicator, RecvRequest, SendRequest, wait_any};
pub use error::{Error, Result};
pub use matching::{Source, Status, Tag, TagSel};
pub use world::{World, init};
