//! What can be wrong with a graph, an order or a budget.

use crate::run::Named;

/// A graph that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Two tasks have one key.
    #[error("task {key} is there twice{}", twice(.first, .second))]
    Duplicate {
        /// The key.
        key: String,
        /// Where the first task came from.
        first: String,
        /// Where the second one came from.
        second: String,
    },
    /// A task needs what no task makes.
    #[error("task {} needs {key}, which no task makes", named(.task, .origin))]
    Unknown {
        /// What is needed.
        key: String,
        /// By whom.
        task: String,
        /// Where that task came from.
        origin: String,
    },
    /// Tasks need each other.
    #[error("these tasks need each other in a circle: {}", circle(.0))]
    Cycle(
        /// Key and origin of each task on the circle; each one needs the next, the last one the first.
        Vec<(String, String)>,
    ),
    /// A source has inputs.
    #[error("task {} is a source, which is read from storage, and yet has inputs", named(.key, .origin))]
    SourceWithInputs {
        /// Its key.
        key: String,
        /// Where it came from.
        origin: String,
    },
    /// A body of another graph, or one that is given inputs which the task has not.
    #[error(
        "the body of task {} is no program of its graph, or is given an input that it has not",
        named(.key, .origin)
    )]
    Body {
        /// Its key.
        key: String,
        /// Where it came from.
        origin: String,
    },
    /// A cost that is no number of seconds.
    #[error("task {} costs {seconds} seconds, which is none that it can take", named(.key, .origin))]
    Cost {
        /// Its key.
        key: String,
        /// Where it came from.
        origin: String,
        /// What was said.
        seconds: String,
    },
    /// Bytes that cannot be.
    #[error("with task {} the results and the work of all tasks have 2^63 bytes or more", named(.key, .origin))]
    Bytes {
        /// The key of the task with which they are too many.
        key: String,
        /// Where it came from.
        origin: String,
    },
    /// Too many tasks.
    #[error("a graph has fewer than 2^31 tasks")]
    TooMany,
}

/// A task by key and origin, as far as that is known.
fn named(key: &str, origin: &str) -> String {
    Named { key: key.into(), origin: origin.into() }.to_string()
}

fn twice(first: &str, second: &str) -> String {
    match (first, second) {
        ("", "") => String::new(),
        (one, "") | ("", one) => format!(": one is from {one}"),
        (first, second) => format!(": from {first} and from {second}"),
    }
}

fn circle(tasks: &[(String, String)]) -> String {
    let mut text: Vec<String> = tasks.iter().map(|(key, origin)| named(key, origin)).collect();
    text.extend(tasks.first().map(|(key, _)| key.clone()));
    text.join(" needs ")
}

/// An order in which a graph cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Not as many as there are tasks.
    #[error("the order names {named} tasks of {tasks}")]
    Count {
        /// So many it names.
        named: usize,
        /// So many there are.
        tasks: usize,
    },
    /// A task twice, or one that there is not.
    #[error("place {place} of the order names a task again, or one that there is not")]
    Repeated {
        /// From 0.
        place: usize,
    },
    /// A task before what it needs.
    #[error("the task at place {place} of the order runs before an input of it")]
    TooEarly {
        /// From 0.
        place: usize,
    },
}

/// A budget in which a graph cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "task {} needs {needed} bytes at once (inputs {inputs}, result {result}, work {work}), \
     more than the budget of {budget}",
    named(.key, .origin)
)]
pub struct TooLarge {
    /// The task that needs most.
    pub key: String,
    /// Where it came from.
    pub origin: String,
    /// Bytes of inputs, result and work together.
    pub needed: u64,
    /// Bytes of its inputs.
    pub inputs: u64,
    /// Bytes of its result.
    pub result: u64,
    /// Bytes it takes beyond both while it runs.
    pub work: u64,
    /// Bytes there are.
    pub budget: u64,
}
