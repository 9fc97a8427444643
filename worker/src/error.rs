/// Why a call of this crate failed. Every error names the call or the rank it belongs to, and is a sentence:
/// `main` may return it.
///
/// ```
/// # let world = bdrun_worker::init()?;
/// # let comm = world.communicator();
/// let nobody = comm.size();
/// let error = comm.send(nobody, 7, &[1u8]).unwrap_err();
/// assert!(error.to_string().contains("there is no rank"));
/// # Ok::<(), bdrun_worker::Error>(())
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank number outside `0..size`.
    #[error("{call}: there is no rank {rank} in this communicator of {size} (the last is {})", size.saturating_sub(1))]
    NoSuchRank {
        /// The call that was made.
        call: &'static str,
        /// The rank asked for.
        rank: usize,
        /// Number of ranks in the communicator.
        size: usize,
    },
    /// A message was longer than the buffer for it (MPI_ERR_TRUNCATE). The message stays unreceived.
    #[error(
        "recv_into: the message of {bytes} bytes from rank {from} (tag {tag}) does not fit the buffer of {room} bytes (recv \
         takes one of any length, probe says how long it is)"
    )]
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
    #[error(
        "{call}: the {bytes} bytes from rank {from} are no whole number of elements of {size} bytes (both ranks must name \
         the same type)"
    )]
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
    #[error(
        "{ours}: rank {rank} of the communicator called it where another rank called {theirs} (all must call the same \
         collectives in the same order)"
    )]
    Mismatch {
        /// This rank, in the communicator.
        rank: usize,
        /// What this rank called.
        ours: &'static str,
        /// What another rank called.
        theirs: String,
    },
    /// A value could not be serialised, or what arrived could not be decoded.
    #[error("{call}: {what}")]
    Encoding {
        /// The call that was made.
        call: &'static str,
        /// Which of the two, and what the encoder says.
        what: String,
    },
    /// The runtime below failed (shared segment, scratch, control connection).
    #[error("bdrun runtime: {0}")]
    Runtime(String),
}

/// Result of the calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What `main` prints of it in this rank of the job.
    fn said_by(&self, rank: Option<&str>) -> String {
        match rank.filter(|rank| rank.parse::<u32>().is_ok()) {
            Some(rank) => format!("rank {rank}: {self}"),
            None => self.to_string(),
        }
    }
}

/// A sentence with the rank of the job, as `main` prints what it returns: `Error: rank 3: send: there is no
/// rank 7 in this communicator of 4 (the last is 3)`.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.said_by(std::env::var("BDRUN_RANK").ok().as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each kind, and words that it must say. A new kind does not compile before it is here.
    fn each() -> Vec<(Error, &'static [&'static str])> {
        let all = vec![
            Error::NoSuchRank { call: "send", rank: 7, size: 4 },
            Error::Truncated { from: 2, tag: 5, bytes: 24, room: 16 },
            Error::ElementSize { call: "recv", from: 1, bytes: 10, size: 8 },
            Error::Argument { call: "scatter", what: "5 elements cannot be cut for 4 ranks".into() },
            Error::Mismatch { rank: 1, ours: "barrier", theirs: "broadcast".into() },
            crate::communicator::decode::<String>("recv_value", &[9]).unwrap_err(),
            Error::Runtime("init was called twice".into()),
        ];
        let words = |error: &Error| -> &'static [&'static str] {
            match error {
                Error::NoSuchRank { .. } => &["send: there is no rank 7", "communicator of 4", "last is 3"],
                Error::Truncated { .. } => &["24 bytes", "rank 2", "tag 5", "16 bytes", "probe"],
                Error::ElementSize { .. } => &["recv: ", "10 bytes", "rank 1", "8 bytes", "same type"],
                Error::Argument { .. } => &["scatter: 5 elements cannot be cut"],
                Error::Mismatch { .. } => &["barrier: rank 1", "called broadcast", "same order"],
                Error::Encoding { .. } => &["recv_value: what arrived is no value", "Rust type"],
                Error::Runtime(_) => &["bdrun runtime: init was called twice"],
            }
        };
        all.into_iter().map(|error| (words(&error), error)).map(|(words, error)| (error, words)).collect()
    }

    #[test]
    fn what_main_returns_is_printed_as_a_sentence_with_the_rank() {
        for (error, words) in each() {
            let said = error.said_by(Some("3"));
            assert!(said.starts_with("rank 3: ") && said.ends_with(&error.to_string()), "{said}");
            for word in words {
                assert!(said.contains(word), "'{word}': {said}");
            }
            // No structure, no names of the program's, one line.
            for foreign in ["{", "}", "::", "Some(", "\n", "  ", "NoSuch", "ElementSize"] {
                assert!(!said.contains(foreign), "{said}");
            }
            // Alone, or where the environment says nonsense.
            assert_eq!(error.said_by(None), error.to_string());
            assert_eq!(error.said_by(Some("three")), error.to_string());
        }
    }

    #[test]
    fn the_way_of_main_is_that_of_debug() {
        let error = Error::NoSuchRank { call: "send", rank: 7, size: 4 };
        let rank = std::env::var("BDRUN_RANK").ok();
        assert_eq!(format!("{error:?}"), error.said_by(rank.as_deref()));
        let boxed: Box<dyn std::error::Error> = Box::new(Error::Runtime("no".into()));
        assert!(format!("{boxed:?}").ends_with("bdrun runtime: no"));
    }
}
