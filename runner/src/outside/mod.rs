//! Independent ranks, held and moved from outside: the threads that do it. Who is moved when is decided by
//! [`crate::overdraft`]; how it is done to a process is in [`sbmalloc::other`].

mod mover;
mod parts;

pub use mover::{Mover, Order, Report, Scratch};
pub use parts::InParts;
