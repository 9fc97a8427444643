//! Independent ranks, held and moved from outside: the threads that do it. Who is moved when is decided by
//! [`crate::residency`]; how it is done to a process is in [`sbmalloc::other`].

mod parts;
mod thread;

pub use parts::InParts;
pub(crate) use parts::pause;
pub use thread::{Holder, Order, Report, Scratch};
