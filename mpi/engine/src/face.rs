//! What a face provides.

use crate::handle::{Comm, File, Session, Win};

/// Whose error handler is told of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// A communicator's.
    Comm(Comm),
    /// A window's.
    Win(Win),
    /// A file's.
    File(File),
    /// A session's.
    Session(Session),
    /// That of `MPI_COMM_SELF` (MPI-5.0, section 9.3).
    Nothing,
}
