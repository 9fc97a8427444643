//! Moving bytes and wake-ups between the ranks of one node.
//!
//! What it is: the layout of the shared segment that the master makes and every rank maps, and the protocols
//! in it: state words, the memory pool, tokens, inboxes, mail, collectives, and the control connection. What
//! it is not: policy (the master's scheduler), typed messages (the `worker` crate), or paging (`sbmalloc`).
//!
//! Rules that hold throughout. Only atomics in the segment are ever referenced; other bytes there are copied
//! through raw pointers by their one owner of the moment. Nothing read from the segment or a socket is
//! trusted: every index and length is checked before use. Nothing here allocates while a rank is blocked, so
//! the pager may take the whole heap away in between.
//!
//! | module | answers |
//! |---|---|
//! | [`state`] | may this rank run, sleep, be evicted? The wake-up protocol, with its proof in `src/state/README.md` |
//! | [`segment`] | where lies what; making and opening |
//! | [`pool`] | how much of the budget is free; demand and peaks |
//! | [`tokens`] | how many ranks compute at once |
//! | [`critical`] | how many are in the critical section, in what order |
//! | [`bell`] | how a rank gets the master's attention |
//! | [`inbox`] | headers and small messages, in order of arrival |
//! | [`lane`] | the same for pairs of ranks that talk often: which [`ring`] each has
//! | [`mail`] | large payloads, in RAM while there is room, else on scratch |
//! | [`collective`] | parts deposited by ranks that may leave RAM |
//! | [`steps`] | what a rank did, wait by wait, where that is recorded |
//! | [`control`] | rare structured frames to the master |
//! | [`spread`], [`far`] | which ranks are on other nodes, and what the master's gateway does for them |
//! | [`door`] | which processes are given the segment's and the mail's descriptors |
//! | [`note`] | which programs bring this runtime |
//! | [`wire`] | encoding of values and frames |

mod sync;

pub mod ring;
pub mod state;

#[cfg(not(loom))]
pub mod bell;
#[cfg(not(loom))]
pub mod collective;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
pub mod critical;
#[cfg(not(loom))]
pub mod door;
#[cfg(not(loom))]
pub mod far;
#[cfg(not(loom))]
pub mod futex;
#[cfg(not(loom))]
pub mod inbox;
#[cfg(not(loom))]
pub mod lane;
#[cfg(not(loom))]
pub mod mail;
#[cfg(not(loom))]
pub mod note;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
pub mod segment;
mod spares;
#[cfg(not(loom))]
pub mod spread;
#[cfg(not(loom))]
pub mod steps;
#[cfg(not(loom))]
pub mod tokens;
#[cfg(not(loom))]
pub mod wire;

#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub use error::{Error, Result};
