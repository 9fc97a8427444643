//! MPI's calls, in terms of no ABI.
//!
//! Handles and numbers have the values of the standard's ABI (MPI-5.0, annex A.1) here: what is predefined
//! lies below [`handle::MADE`], what a program makes is counted from there. A face converts its own to these
//! and back, and says what depends on it ([`face`]).
//!
//! | question | module |
//! |---|---|
//! | what does a call take and give? | [`calls`] (generated from the table), [`args`], [`handle`] |
//! | what has gone wrong, and who is told? | [`failure`] |
//! | what does a face provide? | [`face`] |

pub mod args;
mod attributes;
pub mod calls;
mod datatypes;
pub mod entry;
mod errors;
pub mod face;
pub mod failure;
mod groups;
pub mod handle;
mod infos;
mod operations;
mod slab;
mod text;

use std::sync::{Mutex, OnceLock};

use bdrun_mpi_core::error::Codes;
use bdrun_mpi_core::group::Group;

use calls::{
    Collectives, Communicators, Environment, Files, Languages, Messages, Partitioned, Processes, Requests,
    Tools, Topologies, Windows,
};
use face::{Face, Limits};
use slab::Slab;

/// This process's MPI.
#[derive(Debug)]
pub struct Mpi {
    face: OnceLock<&'static Face>,
    /// Error codes that the program has added.
    codes: Mutex<Codes>,
    groups: Slab<Group>,
    infos: Slab<infos::Shared>,
    ops: Slab<operations::Made>,
    types: datatypes::Types,
}

/// Of the standard: until a face has said its own.
static STANDARD: Face = Face {
    name: "MPI-5.0",
    limits: Limits {
        processor_name: 256,
        error_string: 512,
        object_name: 128,
        library_version: 8192,
        info_key: 256,
        info_value: 1024,
        port_name: 1024,
        datarep: 128,
    },
    version: (5, 0),
};

impl Mpi {
    /// Not initialised.
    const fn new() -> Self {
        Self {
            face: OnceLock::new(),
            codes: Mutex::new(Codes::new()),
            groups: Slab::new(),
            infos: Slab::new(),
            ops: Slab::new(),
            types: datatypes::Types::new(),
        }
    }

    fn face(&self) -> &'static Face {
        self.face.get().copied().unwrap_or(&STANDARD)
    }
}

impl Collectives for Mpi {}
impl Communicators for Mpi {}
impl Environment for Mpi {}
impl Files for Mpi {}
impl Languages for Mpi {}
impl Messages for Mpi {}
impl Partitioned for Mpi {}
impl Processes for Mpi {}
impl Requests for Mpi {}
impl Tools for Mpi {}
impl Topologies for Mpi {}
impl Windows for Mpi {}
