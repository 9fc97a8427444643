use std::io;
use std::path::PathBuf;

use crate::control::FailureKind;

/// What can go wrong between ranks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The scratch directory has no room for a message.
    #[error("no room on scratch for a message of {bytes} bytes")]
    ScratchFull {
        /// Bytes that were to be written.
        bytes: u64,
    },
    /// A message, or a part of a collective, that lies on scratch cannot be written or read, or is not what
    /// was written.
    #[error("cannot {what} scratch in {} (offset {offset}): {source}", directory.display())]
    Scratch {
        /// What was tried.
        what: &'static str,
        /// The scratch directory, as far as it is known.
        directory: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What the system said, or what is wrong.
        source: io::Error,
    },
    /// The segment is not one of this program's version.
    #[error("the shared segment is not of this version: {0}")]
    Version(String),
    /// Something in the segment is out of bounds: a rank wrote where it must not.
    #[error("the shared segment is damaged: {0}")]
    Damaged(String),
    /// A fixed table is full.
    #[error("too many {what} at one time (at most {most})")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: u64,
    },
    /// A frame on the control connection was malformed.
    #[error("control connection: {0}")]
    Frame(String),
}

impl Error {
    /// Which of the reasons with an exit code of their own it is, and bytes that were needed, for the master
    /// to be told; `None`: it is the caller's alone.
    pub fn reason(&self) -> Option<(FailureKind, u64)> {
        match self {
            Self::ScratchFull { bytes } => Some((FailureKind::ScratchFull, *bytes)),
            Self::Scratch { .. } => Some((FailureKind::Scratch, 0)),
            Self::Damaged(_) | Self::Version(_) => Some((FailureKind::Runtime, 0)),
            Self::System { .. } | Self::TooMany { .. } | Self::Frame(_) => None,
        }
    }
}

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |errno| Error::System { what, source: of_the_system(errno) }
}

/// What the system said. That there is a limit for files nobody thinks of where it is memory that is made so
/// long.
pub(crate) fn of_the_system(errno: rustix::io::Errno) -> io::Error {
    let said = io::Error::from(errno);
    if errno == rustix::io::Errno::FBIG {
        let more = "files, also those in memory, may be no longer than `ulimit -f` says: set it to unlimited";
        return io::Error::new(said.kind(), format!("{said}; {more}"));
    }
    said
}
