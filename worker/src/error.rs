use std::io;

/// Why a call of this crate failed. Every error names the rank or the call it belongs to.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank number outside `0..size`.
    #[error("{call}: rank {rank} does not exist (the communicator has {size})")]
    NoSuchRank {
        /// The call that was made.
        call: &'static str,
        /// The rank asked for.
        rank: usize,
        /// Number of ranks in the communicator.
        size: usize,
    },
    /// A message was longer than the buffer for it (MPI_ERR_TRUNCATE). The message stays unreceived.
    #[error("message of {bytes} bytes from rank {from} (tag {tag}) does not fit a buffer of {room} bytes")]
    Truncated {
        /// Sender.
        from: usize,
        /// Tag of the message.
        tag: u32,
        /// Length of the message in bytes.
        bytes: usize,
        /// Room in bytes.
        room: usize,
    },
    /// A message's length is not a multiple of the element's size.
    #[error("{call}: {bytes} bytes from rank {from} are no whole number of {size}-byte elements")]
    ElementSize {
        /// The call that was made.
        call: &'static str,
        /// Sender.
        from: usize,
        /// Length in bytes.
        bytes: usize,
        /// Size of an element in bytes.
        size: usize,
    },
    /// Arguments that do not fit each other, on one rank or across ranks.
    #[error("{call}: {what}")]
    Argument {
        /// The call that was made.
        call: &'static str,
        /// What does not fit.
        what: String,
    },
    /// Ranks of one communicator called different collectives.
    #[error("rank {rank} called {ours} while another rank of the communicator called {theirs}")]
    Mismatch {
        /// This rank.
        rank: usize,
        /// What this rank called.
        ours: &'static str,
        /// What another rank called.
        theirs: String,
    },
    /// A value could not be serialised or what arrived could not be decoded.
    #[error("{call}: {what}")]
    Encoding {
        /// The call that was made.
        call: &'static str,
        /// What the encoder says.
        what: String,
    },
    /// The runtime below failed (shared segment, scratch, control connection).
    #[error("bdrun runtime: {0}")]
    Runtime(String),
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Result of the calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A sentence with the rank, as `main` prints what it returns: `Error: rank 3: send: rank 7 does not exist
/// (the communicator has 4)`.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(rank) = std::env::var("BDRUN_RANK").ok().filter(|rank| rank.parse::<u32>().is_ok()) {
            write!(f, "rank {rank}: ")?;
        }
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_main_returns_is_printed_as_a_sentence() {
        let error = Error::NoSuchRank { call: "send", rank: 7, size: 4 };
        assert_eq!(format!("{error:?}"), "send: rank 7 does not exist (the communicator has 4)");
    }
}
