//! The API of a rank: what a program that runs under `bdrun` calls.
//!
//! ```standalone_crate
//! #[global_allocator]
//! static HEAP: bdrun_worker::SbHeap = bdrun_worker::SbHeap; // the whole heap may live on storage
//!
//! fn main() -> Result<(), bdrun_worker::Error> {
//!     let world = bdrun_worker::init()?; // under bdrun one of its ranks, alone size 1
//!     let comm = world.communicator();
//!     let sum = comm.allreduce(&[comm.rank() as u64], |a, b| a + b)?; // a blocking point: others run now
//!     if comm.rank() == 0 {
//!         println!("{} ranks, whose numbers add up to {}", comm.size(), sum[0]);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The examples hold for any number of ranks: a test of the project runs them all with four.
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

/// Its program is a test too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
pub use sbmalloc::SbHeap;
pub use world::{World, init};
