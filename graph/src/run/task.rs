//! A task, wherever it runs.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::failure::{Failure, Named, RunError};
use crate::body::FunctionId;
use crate::graph::{Graph, TaskId};

/// A result. Clones share the memory (an `Arc`, say): it is counted once.
pub trait Block: Clone + Send {
    /// Bytes of memory that it takes.
    fn bytes(&self) -> u64;
}

impl Block for Arc<Vec<u8>> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
}

/// What a function is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: FunctionId,
    /// The task.
    pub task: TaskId,
    /// The step of the task's body, from 0: [`crate::passes::Rewritten::origin`] knows which task it was.
    pub step: usize,
}

/// Runs a task: calls its functions with its arguments, and sees that its result is no larger than the graph
/// says. An argument is handed over at its last use ([`crate::Programs::evaluate`]).
///
/// # Errors
/// [`RunError::Task`] if a function fails or panics, [`RunError::Size`].
pub fn run_task<V: Block>(
    graph: &Graph,
    task: TaskId,
    arguments: Vec<V>,
    call: impl Fn(Call, Vec<V>) -> Result<V, Failure>,
) -> Result<V, RunError> {
    let mut step = 0;
    let each = |function, arguments| {
        let this = Call { function, task, step };
        step += 1;
        // Whatever a function leaves half done is its own: it is not called again.
        match catch_unwind(AssertUnwindSafe(|| call(this, arguments))) {
            Ok(result) => result,
            Err(panic) => Err(panicked(&*panic).into()),
        }
    };
    match graph.programs().evaluate(graph.body(task), arguments, each) {
        Ok(value) => checked(graph, task, value),
        Err((step, cause)) => Err(RunError::task(graph, task, step, cause)),
    }
}

/// A result that is no larger than the graph says.
pub(super) fn checked<V: Block>(graph: &Graph, task: TaskId, value: V) -> Result<V, RunError> {
    let (bytes, declared) = (value.bytes(), graph.bytes(task));
    if bytes > declared {
        return Err(RunError::Size { task: Named::new(graph, task), bytes, declared });
    }
    Ok(value)
}

/// What a panic said.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.as_deref().unwrap_or("without a text"))
}
