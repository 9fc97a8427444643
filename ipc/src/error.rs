use std::io;

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

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |errno| Error::System { what, source: errno.into() }
}
