//! Running a plan.
//!
//! | module | answers |
//! |---|---|
//! | `program` | which step of a plan waits for which |
//! | `dispatch` | which step starts next; why the budget is kept and nothing gets stuck |
//! | `simulate` | how long it takes, and how much memory, if costs are as declared |
//! | `threads` | steps on threads |
//! | `store` | where results are that are not in memory |
//! | `failure` | what went wrong, where it came from |
//! | `progress` | how far it is; cancelling |
//! | `trace` | what happened when |

mod dispatch;
mod failure;
mod program;
mod progress;
mod simulate;
mod store;
mod threads;
mod trace;

pub use failure::{Failure, Named, RunError, SOURCES, TaskFailure};
pub use program::Step;
pub use progress::{Progress, Stage};
pub use simulate::{Simulated, simulate};
pub use store::{Extent, FileStore, Fill, NoStore, Spill, Store};
pub use threads::{Block, Call, Outcome, Threads};
pub use trace::{Event, What};
