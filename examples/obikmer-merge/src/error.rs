//! What can go wrong, and how the ranks agree that it did.

use std::io;
use std::path::PathBuf;

use bdrun_worker::Communicator;

/// Why the job failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments do not fit.
    #[error("{0}")]
    Usage(String),
    /// A sequence file is malformed or truncated.
    #[error("{}: record {record}: {what}", file.display())]
    Sequence {
        /// The file.
        file: PathBuf,
        /// The record, as far as it is known.
        record: String,
        /// What is wrong with it.
        what: String,
    },
    /// An index is damaged or does not fit.
    #[error("{}: {what}", path.display())]
    Index {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// Messages failed.
    #[error(transparent)]
    Communication(#[from] bdrun_worker::Error),
    /// Something grew beyond what the format holds.
    #[error("{0}")]
    Limit(String),
    /// Ranks contradict each other: a defect of this program.
    #[error("internal: {0}")]
    Internal(String),
    /// Another rank failed, and reports it.
    #[error("rank {rank}: {message}")]
    Elsewhere {
        /// The rank.
        rank: usize,
        /// Its error.
        message: String,
    },
}

/// Result with [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Adds what was tried to an I/O error.
pub trait Context<T> {
    /// `what` is evaluated only on failure.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { what: what(), source })
    }
}

/// The end of a phase: every rank learns whether all succeeded. If not, the lowest failing rank keeps its
/// error and the others get [`Error::Elsewhere`], so that all stop and one reports.
pub fn agree<T>(comm: &Communicator, mine: Result<T>) -> Result<T> {
    if let Err(Error::Communication(_)) = mine {
        // Whoever cannot talk cannot agree either; the launcher ends the others.
        return mine;
    }
    let all = comm.allgather_value(&mine.as_ref().err().map(ToString::to_string))?;
    match all.into_iter().enumerate().find_map(|(rank, message)| Some((rank, message?))) {
        None => mine,
        Some((rank, _)) if rank == comm.rank() => mine,
        Some((rank, message)) => Err(Error::Elsewhere { rank, message }),
    }
}
