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
//! | which functions are written by hand? | [`special`] |
//! | what do the functions do that this ABI has for attributes? | [`attributes`] |
//! | what does `libmpi_cxx.so.40` need? | [`cxx`] |
//! | what is only in Fortran's terms, or was removed from the standard? | [`fortran`], [`removed`] |

#![expect(missing_docs, clippy::missing_safety_doc, reason = "the standard says what they do")]

pub mod attributes;
pub mod cxx;
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
use bdrun_mpi::entry::{answer, at, call, calls, fit, fit_or_undefined, read};
use bdrun_mpi::face::{Face, Kind, Limits, Meaning, Object, Statuses};
use bdrun_mpi::failure::Told;
use bdrun_mpi::handle;

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
        bsend_overhead: numbers::BSEND_OVERHEAD,
    },
    // What this ABI has numbers for: those that are new in 4.1 it does not have.
    version: (4, 0),
    abi: (-1, -1),
    handle: handle_out,
    number: number_out,
    error: numbers::error_in,
    status: Statuses { size: size_of::<face::Status>(), read: status_in, write: status_out },
    automatic: None,
    duplicate: None,
    all_handles: || usize::MAX,
};

/// Before the program's first call.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        bdrun_mpi::entry::begin(&FACE);
    }
    begin
};

/// The program's handle.
fn handle_out(kind: Kind, value: u64) -> u64 {
    let given = match kind {
        Kind::Comm => face::comm_out(handle::Comm(value)),
        Kind::Datatype => face::datatype_out(handle::Datatype(value)),
        Kind::Win => face::win_out(handle::Win(value)),
        Kind::File => face::file_out(handle::File(value)),
        Kind::Session => face::session_out(handle::Session(value)),
    };
    given as u64
}

/// The program's number.
fn number_out(meaning: Meaning, value: i64) -> c_int {
    match meaning {
        Meaning::Error => face::error_out(value),
        Meaning::Keyval => face::keyval_out(value),
        Meaning::Rank => face::rank_out(value),
        Meaning::Order => face::order_out(value),
        Meaning::Distribution => face::distribution_out(value),
        Meaning::Darg => face::darg_out(value),
        Meaning::Flavor => numbers::named_out(numbers::FLAVORS, value),
        Meaning::Model => numbers::named_out(numbers::MODELS, value),
    }
}

unsafe fn status_in(at: *const u8) -> bdrun_mpi::args::Status {
    // SAFETY: the caller's: a status, aligned.
    unsafe { face::status_in(at.cast()) }
}

unsafe fn status_out(at: *mut u8, status: &bdrun_mpi::args::Status) {
    // SAFETY: the caller's: there is room for a status, aligned.
    unsafe { face::status_out(at.cast(), status) }
}

include!(concat!(env!("OUT_DIR"), "/functions.rs"));
