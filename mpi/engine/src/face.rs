//! What a face provides.

use crate::handle::{Comm, File, Session, Win};

/// The most bytes of strings, with their ends. They differ from ABI to ABI.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the standard's names: MPI_MAX_…")]
pub struct Limits {
    pub processor_name: usize,
    pub error_string: usize,
    pub object_name: usize,
    pub library_version: usize,
    pub info_key: usize,
    pub info_value: usize,
    pub port_name: usize,
    pub datarep: usize,
}

/// What depends on the ABI.
#[derive(Debug)]
pub struct Face {
    /// Its name, for people.
    pub name: &'static str,
    /// Lengths of strings.
    pub limits: Limits,
    /// `MPI_VERSION` and `MPI_SUBVERSION`.
    pub version: (i64, i64),
}

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
