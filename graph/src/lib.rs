//! Task graphs over blocks, run in little memory.
//!
//! ```
//! use std::sync::Arc;
//!
//! use bdrun_graph::order::{self, Effort};
//! use bdrun_graph::plan::plan;
//! use bdrun_graph::run::{Call, NoStore, Progress, Threads};
//! use bdrun_graph::{Builder, FunctionId, Inputs, Output, Task};
//!
//! // A graph is data: keys, functions by number, sizes in bytes.
//! let (read, add) = (FunctionId(0), FunctionId(1));
//! let mut builder = Builder::default();
//! for key in ["x", "y"] {
//!     let task = Task::new(key, read, Inputs::Keys(&[]));
//!     builder.add(Task { bytes: 4, source: true, ..task })?;
//! }
//! let sum = Task::new("sum", add, Inputs::Keys(&["x", "y"]));
//! let sum = builder.add(Task { bytes: 4, output: Output::Kept, origin: "job.rs:12", ..sum })?;
//! let graph = builder.build()?;
//!
//! // Before anything runs it is known what it takes: with one thread, and with two.
//! let order = order::order(&graph, Effort::default());
//! assert_eq!(order.peak.bytes, 12);
//! let budget = order::bound(&graph, &order.tasks, 2);
//! let plan = plan(&graph, &order.tasks, budget)?;
//!
//! // What functions do is known to whoever runs it.
//! let call = |call: Call, inputs: Vec<Arc<Vec<u8>>>| match call.function {
//!     FunctionId(0) => Ok(Arc::new(vec![1, 2, 3, 4])),
//!     _ => Ok(Arc::new(inputs[0].iter().zip(&*inputs[1]).map(|(x, y)| x + y).collect())),
//! };
//! let threads = Threads { compute: 2, transfer: 1 };
//! let mut outcome = threads.run(&graph, &plan, &NoStore, &Progress::default(), call)?;
//! assert_eq!(outcome.take(sum)?, Some(Arc::new(vec![2, 4, 6, 8])));
//! assert!(outcome.peak <= budget);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it is: the pure part (graphs, passes, orders, plans of what is spilled, the decisions of an
//! execution, without I/O or a clock) and an execution on the threads of one process. What it is not: arrays,
//! files of data, or an execution on ranks (that is `bdrun-graph-ranks`, by [`run::Dispatch`]). Why the
//! budget is kept and nothing gets stuck: the README.
//!
//! | module | answers |
//! |---|---|
//! | [`Graph`] (`graph`, `csr`) | what is to be computed |
//! | [`Builder`] (`builder`) | how a graph is put together, and what must hold of it |
//! | [`Programs`] (`body`) | what a task computes: a function, or several put together |
//! | [`passes`] | graphs made into others: culled, fused, inlined |
//! | [`order`] | in which order to run one, and what that takes |
//! | [`plan`] | what is written out and read again within a budget |
//! | [`run`] | running a plan |
//! | [`online`] | running a graph whose sizes are found out while it runs |
//! | [`draw`] | pictures |

mod body;
mod builder;
mod csr;
pub mod draw;
mod error;
mod graph;
pub mod online;
pub mod order;
pub mod passes;
pub mod plan;
pub mod run;
#[cfg(test)]
mod testing;

pub use body::{Argument, Body, BodyId, FunctionId, ProgramId, Programs, Step};
pub use builder::{Builder, Inputs, Task};
pub use csr::Csr;
pub use error::{GraphError, OrderError, TooLarge};
pub use graph::{Graph, Output, TaskId};
