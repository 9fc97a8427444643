/// Why a call of a communicator or of a shared region failed: which rank of which communicator made which
/// call, and the cause. `main` may return it: its `Debug` is the same sentence as its `Display`.
#[derive(thiserror::Error)]
#[error("rank {rank}: {call}: {cause}")]
pub struct Error {
    /// The rank that made the call, in the communicator it was made on.
    pub rank: usize,
    /// The call.
    pub call: &'static str,
    /// What went wrong.
    #[source]
    pub cause: Cause,
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Result of the calls of this crate that communicate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong in a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// A rank number outside `0..size`.
    #[error("there is no rank {peer} in this communicator of {size}")]
    NoSuchRank {
        /// The rank asked for.
        peer: usize,
        /// Number of ranks.
        size: usize,
    },
    /// Arguments that do not fit each other.
    #[error("{0}")]
    Argument(String),
    /// A message has another length than the buffer for it. It is lost.
    #[error("the message of rank {from} (tag {tag}) has {bytes} bytes, the buffer {room}")]
    Length {
        /// The sender.
        from: usize,
        /// The message's tag.
        tag: u32,
        /// Bytes of the message.
        bytes: usize,
        /// Bytes of the buffer.
        room: usize,
    },
    /// Ranks of one communicator called different collectives, or the same with different arguments.
    #[error("ranks of one communicator made different calls: {0}")]
    Mismatch(String),
    /// A rank that is waited for has ended.
    #[error("rank {peer} has ended, and was waited for")]
    Lost {
        /// Which one.
        peer: usize,
    },
    /// A rank has ended the job by `abort`.
    #[error("rank {by} has ended the job with code {code}")]
    Aborted {
        /// Which one.
        by: usize,
        /// With which code.
        code: i32,
    },
    /// What a rank would wait for can never come.
    #[error("{0}")]
    Never(&'static str),
    /// A shared region was opened for writing, and no fence came after.
    #[error("the region was opened for writing, and no fence came after that")]
    Unfenced,
    /// The operating system refused something.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
    /// The library or the runtime below failed, in its words.
    #[error("{0}")]
    Backend(String),
}

impl Cause {
    /// The error of a call that a rank made.
    pub(crate) const fn of(self, rank: usize, call: &'static str) -> Error {
        Error { rank, call, cause: self }
    }
}
