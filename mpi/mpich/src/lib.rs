//! `libmpi.so.12`: MPICH's ABI (5.0, and all that is compatible with 3.1: Intel MPI, MVAPICH, Cray). Its
//! functions are generated from the table (`mpi/table`).
//!
//! | question | module |
//! |---|---|
//! | how do handles, statuses and addresses become the engine's? | [`face`], [`handles`] |
//! | how do numbers that mean something? | [`numbers`], from the table |
//! | what does the engine ask for? | [`asked`] |
//! | what has only MPICH? | [`data`]: objects; [`fortran`]: handles for Fortran; [`removed`]: names of MPI-1 |
//!
//! What is not here: `MPIX_` and `QMPI_` (extensions of MPICH's), `MPIR_` and `MPII_` (its own) but for
//! `MPIR_Dup_fn`, which `MPI_COMM_DUP_FN` is.

#![expect(missing_docs, clippy::missing_safety_doc, reason = "the standard says what they do")]

mod asked;
mod data;
mod face;
mod fortran;
mod handles;
mod numbers;
/// The same names as Open MPI's ABI has.
#[path = "../../openmpi/src/removed.rs"]
mod removed;

/// Generated from the constants.
#[allow(dead_code, reason = "a file's handle is a pointer; some numbers are only read")]
mod convert {
    include!(concat!(env!("OUT_DIR"), "/convert.rs"));
}

use std::ffi::{c_char, c_int, c_void};

use bdrun_mpi::args::{Ints, IntsOut, Meant};
use bdrun_mpi::calls::{
    Attributes as _, Collectives as _, Communicators as _, Datatypes as _, Environment as _, Errors as _,
    Files as _, Groups as _, Infos as _, Languages as _, Messages as _, Operations as _, Partitioned as _,
    Processes as _, Requests as _, Tools as _, Topologies as _, Windows as _,
};
use bdrun_mpi::entry::{answer, at, call, calls, fit, fit_or_undefined, read};
use bdrun_mpi::face::Object;
use bdrun_mpi::failure::Told;

include!(concat!(env!("OUT_DIR"), "/functions.rs"));
