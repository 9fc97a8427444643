//! `libmpi_abi.so.1`: the ABI of the standard (MPI-5.0, chapter 20). Its functions are generated from the
//! table (`mpi/table`); here is how its handles, numbers and statuses become those of the engine, which are
//! the same.

#![expect(missing_docs, clippy::missing_safety_doc, reason = "the standard says what they do")]

mod extensions;
mod face;
mod fortran;
mod memory;

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
