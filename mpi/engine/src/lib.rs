//! MPI's calls, in terms of no ABI.
//!
//! Handles and numbers have the values of the standard's ABI (MPI-5.0, annex A.1) here: what is predefined lies
//! below [`handle::MADE`], what a program makes is counted from there. A face converts its own to these and back,
//! and says what depends on it ([`face`]).
//!
//! | question | module |
//! |---|---|
//! | what does a call take and give? | [`calls`] (generated from the table), [`args`], [`handle`] |
//! | what has gone wrong, and who is told? | [`failure`] |
//! | what does a face provide? | [`face`] |

pub mod args;
pub mod calls;
pub mod entry;
pub mod face;
pub mod failure;
pub mod handle;

use calls::{
    Attributes, Collectives, Communicators, Datatypes, Environment, Errors, Files, Groups, Infos, Languages,
    Messages, Operations, Partitioned, Processes, Requests, Tools, Topologies, Windows,
};

/// This process's MPI.
#[derive(Debug)]
pub struct Mpi {}

impl Mpi {
    /// Not initialised.
    const fn new() -> Self {
        Self {}
    }
}

impl Attributes for Mpi {}
impl Collectives for Mpi {}
impl Communicators for Mpi {}
impl Datatypes for Mpi {}
impl Environment for Mpi {}
impl Errors for Mpi {}
impl Files for Mpi {}
impl Groups for Mpi {}
impl Infos for Mpi {}
impl Languages for Mpi {}
impl Messages for Mpi {}
impl Operations for Mpi {}
impl Partitioned for Mpi {}
impl Processes for Mpi {}
impl Requests for Mpi {}
impl Tools for Mpi {}
impl Topologies for Mpi {}
impl Windows for Mpi {}
