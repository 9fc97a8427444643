//! What a face provides.

use std::ffi::c_int;

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
    /// The program's handle of an object, of which callbacks get the address: a face whose handles are
    /// shorter uses the first bytes.
    pub word: fn(Object) -> u64,
    /// The program's number of an error code.
    pub error: fn(i64) -> c_int,
}

impl Face {
    /// The program's handle of an object.
    #[must_use]
    pub fn word(&self, of: Object) -> u64 {
        (self.word)(of)
    }

    /// The program's number of an error code.
    #[must_use]
    pub fn code(&self, code: i64) -> c_int {
        (self.error)(code)
    }
}

impl Object {
    /// The value of its handle; of none it is null.
    #[must_use]
    pub const fn value(self) -> u64 {
        match self {
            Self::Comm(comm) => comm.0,
            Self::Win(win) => win.0,
            Self::File(file) => file.0,
            Self::Session(session) => session.0,
            Self::Nothing => 0,
        }
    }
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
