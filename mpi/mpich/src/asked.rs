//! What the engine asks for.

use std::ffi::{c_int, c_void};

use bdrun_mpi::face::{Face, Kind, Limits, Meaning, Statuses};
use bdrun_mpi::handle;

use crate::handles::Word;
use crate::{convert, face, numbers};

/// What depends on this ABI.
pub static FACE: Face = Face {
    name: "MPICH",
    limits: Limits {
        processor_name: convert::MPI_MAX_PROCESSOR_NAME as usize,
        error_string: convert::MPI_MAX_ERROR_STRING as usize,
        object_name: convert::MPI_MAX_OBJECT_NAME as usize,
        library_version: convert::MPI_MAX_LIBRARY_VERSION_STRING as usize,
        info_key: convert::MPI_MAX_INFO_KEY as usize,
        info_value: convert::MPI_MAX_INFO_VAL as usize,
        port_name: convert::MPI_MAX_PORT_NAME as usize,
        datarep: convert::MPI_MAX_DATAREP_STRING as usize,
        bsend_overhead: convert::MPI_BSEND_OVERHEAD,
    },
    version: (convert::MPI_VERSION, convert::MPI_SUBVERSION),
    abi: (-1, -1),
    handle: handle_out,
    number: number_out,
    error: error_in,
    status: Statuses { size: size_of::<face::Status>(), read: status_in, write: status_out },
    // -2
    automatic: Some(usize::MAX - 1),
    // A function: `MPIR_Dup_fn`.
    duplicate: None,
    all_handles: || crate::data::MPI_T_PVAR_ALL_HANDLES.0 as usize,
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
    let small = |value: c_int| u64::from(value as u32);
    match kind {
        Kind::Comm => small(handle::Comm(value).out()),
        Kind::Datatype => small(handle::Datatype(value).out()),
        Kind::Win => small(handle::Win(value).out()),
        Kind::File => handle::File(value).out() as u64,
        Kind::Session => small(handle::Session(value).out()),
    }
}

/// The program's number.
fn number_out(meaning: Meaning, value: i64) -> c_int {
    match meaning {
        Meaning::Error => numbers::error_out(value),
        Meaning::Keyval => numbers::keyval_out(value),
        Meaning::Rank => numbers::rank_out(value),
        Meaning::Order => numbers::order_out(value),
        Meaning::Distribution => numbers::distribution_out(value),
        Meaning::Darg => numbers::darg_out(value),
        Meaning::Flavor => numbers::flavor_out(value),
        Meaning::Model => numbers::model_out(value),
    }
}

fn error_in(value: c_int) -> i64 {
    numbers::error_in(value).unwrap_or(i64::MIN)
}

unsafe fn status_in(at: *const u8) -> bdrun_mpi::args::Status {
    // SAFETY: the caller's: a status, aligned.
    unsafe { face::status_in(at.cast::<c_void>().cast()) }
}

unsafe fn status_out(at: *mut u8, status: &bdrun_mpi::args::Status) {
    // SAFETY: the caller's: there is room for a status, aligned.
    unsafe { face::status_out(at.cast::<c_void>().cast(), status) }
}
