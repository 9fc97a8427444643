//! What rank 0 and the others tell each other.

use serde::{Deserialize, Serialize};

/// A result so small that it is told rather than put into shared memory, in bytes.
pub(crate) const TOLD: u64 = 4096;

/// A result: its bytes, and what is needed besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub head: Vec<u8>,
    pub bytes: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Bytes {
    Told(Vec<u8>),
    /// In shared memory.
    Lie {
        at: u64,
        len: u64,
    },
}

impl Bytes {
    pub fn len(&self) -> u64 {
        match self {
            Self::Told(bytes) => bytes.len() as u64,
            Self::Lie { len, .. } => *len,
        }
    }
}

/// What a rank is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Run a task. What it is given is not changed before it has answered; where its result goes if that is
    /// not told, nobody else has a use for.
    Run { task: u32, inputs: Vec<Part>, into: Option<u64> },
    /// Write a result to scratch.
    Write { part: Part, to: u64 },
    /// Read it from there.
    Read { from: u64, len: u64, into: Option<u64> },
    /// There is nothing more to do; or why nobody goes on.
    End(Option<String>),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The task's result.
    Made(Part),
    Written,
    /// The bytes that were read, or where they were put.
    Read(Bytes),
    /// It went wrong; and whether a function has kept what it was given all the same.
    Failed(Fault, bool),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// A function, at this step of the task's body.
    Task { step: usize, cause: String },
    /// The result has so many bytes, and that is too many.
    Size(u64),
    /// Scratch cannot be written or read.
    Scratch(String),
}

/// The first word of each rank: what it is about to do, and on which machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Of graph and plan.
    pub digest: u64,
    /// See [`crate::Ranks::data`].
    pub data: u128,
    pub boot: String,
}

/// And the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Welcome {
    Shared(crate::memory::Names),
    Refused(String),
}
