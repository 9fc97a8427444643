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
//! | what does a face provide? | [`face`]; the standard's: [`standard`] |

pub mod args;
pub mod calls;
pub mod entry;
mod errors;
pub mod face;
pub mod failure;
mod groups;
pub mod handle;
mod infos;
mod slab;
pub mod standard;
mod text;

use std::sync::{Mutex, OnceLock};

use bdrun_mpi_core::error::Codes;
use bdrun_mpi_core::group::Group;

use calls::{
    Attributes, Collectives, Communicators, Datatypes, Environment, Files, Languages, Messages, Operations,
    Partitioned, Processes, Requests, Tools, Topologies, Windows,
};
use face::Face;
use failure::Answer;
use slab::Slab;

/// This process's MPI.
#[derive(Debug)]
pub struct Mpi {
    face: OnceLock<&'static Face>,
    /// Error codes that the program has added.
    codes: Mutex<Codes>,
    groups: Slab<Group>,
    infos: Slab<infos::Shared>,
}

impl Mpi {
    /// Not initialised.
    const fn new() -> Self {
        Self {
            face: OnceLock::new(),
            codes: Mutex::new(Codes::new()),
            groups: Slab::new(),
            infos: Slab::new(),
        }
    }

    fn face(&self) -> &'static Face {
        self.face.get().copied().unwrap_or(&standard::FACE)
    }
}

impl Attributes for Mpi {}
impl Collectives for Mpi {}
impl Communicators for Mpi {}
impl Datatypes for Mpi {}
impl Environment for Mpi {
    unsafe fn get_version(&self) -> Answer<(i64, i64)> {
        Ok(self.face().version)
    }
}
impl Files for Mpi {}
impl Languages for Mpi {}
impl Messages for Mpi {}
impl Operations for Mpi {}
impl Partitioned for Mpi {}
impl Processes for Mpi {}
impl Requests for Mpi {}
impl Tools for Mpi {}
impl Topologies for Mpi {}
impl Windows for Mpi {}
