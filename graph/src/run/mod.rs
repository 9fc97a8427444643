//! Running a plan.
//!
//! | module | answers |
//! |---|---|
//! | `program` | which step of a plan waits for which |
//! | `dispatch` | which step starts next; why the budget is kept and nothing gets stuck |
//! | `simulate` | how long it takes, and how much memory, if costs are as declared |
//! | `task` | what a task is given, and what may come of it |
//! | `threads` | steps on threads |
//! | `store` | where results are that are not in memory |
//! | `scratch` | where scratch is |
//! | `gaps` | which bytes of it are free |
//! | `failure` | what went wrong, where it came from |
//! | `progress` | how far it is; cancelling |
//! | `trace` | what happened when |

mod dispatch;
mod failure;
mod gaps;
mod program;
mod progress;
mod scratch;
mod simulate;
mod store;
mod task;
mod threads;
mod trace;

pub use dispatch::Dispatch;
pub(crate) use failure::sources;
pub use failure::{Failure, Named, RunError, SOURCES, TaskFailure};
pub use gaps::Gaps;
pub use program::{Program, Step};
pub use progress::{Progress, Stage};
pub use scratch::{scratch_directory, scratch_error, scratch_file};
pub use simulate::{Simulated, simulate};
pub use store::{Extent, FileStore, Fill, Lend, Lent, NoStore, Spill, Store};
pub use task::{Block, Call, run_task};
pub use threads::{Outcome, Threads};
pub use trace::{Event, What};
