//! `libmpi.so.40`: the ABI of Open MPI 4.1, and of 5.0 where that has more. Its functions, its objects and
//! the tables of its numbers are generated from the table (`mpi/table`). A superset: what is newer than Open
//! MPI is there as well.
//!
//! A handle is an address, of an object that holds the engine's handle. Those of what is predefined are
//! exported ([`objects`]); an executable may have copied them into itself, and then its copy is the one that
//! counts, for us too.
//!
//! | question | module |
//! |---|---|
//! | how does a handle become the engine's, and back? | [`objects`] |
//! | what do numbers mean? | [`numbers`] |
//! | how do arguments become the engine's? | `face` |
//! | what is told otherwise than the table says? | [`special`] |
//! | what do the functions do that this ABI has for attributes? | [`attributes`] |
//! | what is only in Fortran's terms, or was removed from the standard? | [`fortran`], [`removed`] |
//! | how is what the program gave called? | [`callbacks`] |

#![expect(missing_docs, clippy::missing_safety_doc, reason = "the standard says what they do")]

pub mod attributes;
pub mod callbacks;
mod face;
pub mod fortran;
pub mod numbers;
pub mod objects;
pub mod removed;
pub mod special;

use std::ffi::{c_char, c_int, c_void};

use bdrun_mpi::args::{Ints, IntsOut, Meant};
use bdrun_mpi::calls::{
    Attributes as _, Collectives as _, Communicators as _, Datatypes as _, Environment as _, Errors as _,
    Files as _, Groups as _, Infos as _, Languages as _, Messages as _, Operations as _, Partitioned as _,
    Processes as _, Requests as _, Tools as _, Topologies as _, Windows as _,
};
use bdrun_mpi::entry::{answer, at, calls, fit, read};
use bdrun_mpi::face::{Face, Limits, Object};
use bdrun_mpi::failure::Answer;

/// What depends on this ABI.
pub static FACE: Face = Face {
    name: "Open MPI",
    limits: Limits {
        processor_name: numbers::MAX_PROCESSOR_NAME as usize,
        error_string: numbers::MAX_ERROR_STRING as usize,
        object_name: numbers::MAX_OBJECT_NAME as usize,
        library_version: 256,
        info_key: numbers::MAX_INFO_KEY as usize,
        info_value: numbers::MAX_INFO_VAL as usize,
        port_name: numbers::MAX_PORT_NAME as usize,
        datarep: numbers::MAX_DATAREP_STRING as usize,
    },
    version: (3, 1),
};

/// Makes a call; what it returns to the program is a code of this ABI.
#[inline(always)]
fn call(on: impl FnOnce() -> Object, body: impl FnOnce() -> Answer<()>) -> c_int {
    match bdrun_mpi::entry::call(on, body) {
        0 => 0,
        code => face::error_out(code.into()),
    }
}

include!(concat!(env!("OUT_DIR"), "/functions.rs"));
