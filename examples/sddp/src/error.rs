//! What can go wrong, in sentences for the user.

use std::path::PathBuf;

/// An error of this program; its text says what to do where that is known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A case is not TOML, or lacks something.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The case's file.
        path: PathBuf,
        /// What is wrong, with the line.
        source: Box<toml::de::Error>,
    },
    /// A case whose numbers make no system.
    #[error("the case: {0}")]
    Case(String),
    /// An option that cannot be.
    #[error("{0}")]
    Option(String),
    /// A policy that cannot be used.
    #[error("{}: {reason}", path.display())]
    Policy {
        /// The policy's file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// HiGHS is not there, or not one that we can call.
    #[error(
        "HiGHS cannot be loaded: {0}. `pip install highsbox` has it; BDRUN_HIGHS=…/libhighs.so says where"
    )]
    Library(String),
    /// HiGHS did not solve a linear program.
    #[error("stage {stage}: HiGHS's `{call}` {answer}")]
    Solver {
        /// Stage, from 1; 0 is the deterministic equivalent.
        stage: usize,
        /// Function of its C API.
        call: &'static str,
        /// What it returned.
        answer: String,
    },
    /// The rank could not be set up.
    #[error(transparent)]
    Start(#[from] bdrun_hybrid::InitError),
    /// Ranks could not communicate.
    #[error(transparent)]
    Communication(#[from] bdrun_hybrid::Error),
}

impl Error {
    /// For `map_err` where `path` was read or written.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// The usual result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
