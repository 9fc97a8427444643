//! What a face provides.

use std::ffi::c_int;

use crate::args::Status;
use crate::handle::{Comm, File, Handle, Session, Win};

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
    pub bsend_overhead: i64,
}

/// What depends on the ABI, where no face is between the engine and the program: functions of the program's
/// that the engine calls, arrays in which numbers of several meanings stand, values of attributes.
#[derive(Debug)]
pub struct Face {
    /// Its name, for people.
    pub name: &'static str,
    /// Lengths of strings.
    pub limits: Limits,
    /// `MPI_VERSION` and `MPI_SUBVERSION`.
    pub version: (i64, i64),
    /// `MPI_ABI_VERSION` and `MPI_ABI_SUBVERSION`; -1 where it is not the standard's ABI.
    pub abi: (i64, i64),
    /// The program's handle for one of the engine's. One of fewer bytes is the first of them.
    pub handle: fn(Kind, u64) -> u64,
    /// The program's number for one of the engine's.
    pub number: fn(Meaning, i64) -> c_int,
    /// The engine's error code for one that a function of the program returned.
    pub error: fn(c_int) -> i64,
    /// How a function of the program is given a status, and what it has made of it.
    pub status: Statuses,
    /// `MPI_BUFFER_AUTOMATIC`, if there is one.
    pub automatic: Option<usize>,
    /// `MPI_COMM_DUP_FN` and its like, if they are no function that can be called.
    pub duplicate: Option<usize>,
    /// `MPI_T_PVAR_ALL_HANDLES`.
    pub all_handles: fn() -> usize,
}

impl Face {
    /// The program's handle of an object.
    #[must_use]
    pub fn word(&self, object: Object) -> u64 {
        match object {
            Object::Comm(handle) => (self.handle)(Kind::Comm, handle.value()),
            Object::Win(handle) => (self.handle)(Kind::Win, handle.value()),
            Object::File(handle) => (self.handle)(Kind::File, handle.value()),
            Object::Session(handle) => (self.handle)(Kind::Session, handle.value()),
            Object::Nothing | Object::Tools => (self.handle)(Kind::Comm, Comm::NULL.value()),
        }
    }

    /// The program's number of an error code.
    #[must_use]
    pub fn code(&self, code: i64) -> c_int {
        (self.number)(Meaning::Error, code)
    }
}

/// What a handle is of, in functions of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's names")]
pub enum Kind {
    Comm,
    Datatype,
    Win,
    File,
    Session,
}

/// `MPI_DISTRIBUTE_DFLT_DARG`, for the engine. Of each ABI it is a number that in the others is a size of
/// blocks like any other: so here it is no `int`.
pub const DEFAULT_DARG: i64 = i64::MIN;

/// What a number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// An error code.
    Error,
    /// The key of an attribute.
    Keyval,
    /// A rank: of `MPI_HOST` and `MPI_IO`.
    Rank,
    /// `MPI_ORDER_C` and its like, as `MPI_Type_get_contents` tells it.
    Order,
    /// `MPI_DISTRIBUTE_BLOCK` and its like, as above.
    Distribution,
    /// An argument of a distribution, as above.
    Darg,
    /// Of `MPI_WIN_CREATE_FLAVOR`.
    Flavor,
    /// Of `MPI_WIN_MODEL`.
    Model,
}

/// The program's `MPI_Status`.
#[derive(Debug, Clone, Copy)]
pub struct Statuses {
    /// Its bytes. It is aligned to 8.
    pub size: usize,
    /// Reads one.
    pub read: unsafe fn(*const u8) -> Status,
    /// Writes one.
    pub write: unsafe fn(*mut u8, &Status),
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
    /// Nobody's: tools are only told the code.
    Tools,
}
