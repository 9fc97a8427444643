//! Task graphs over blocks.
mod body;
mod builder;
mod csr;
mod error;
mod graph;
pub mod order;
pub mod passes;
pub mod plan;
pub mod run;

pub use body::{Argument, Body, BodyId, FunctionId, ProgramId, Programs, Step};
pub use builder::{Builder, Inputs, Task};
pub use csr::Csr;
pub use error::{GraphError, OrderError, TooLarge};
pub use graph::{Graph, Output, TaskId};
#[cfg(test)]
mod testing;
