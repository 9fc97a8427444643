//! `libmpi_mpifh.so.40`: what programs in Fortran call of Open MPI 4.1, and what its libraries of modules do
//! (`libmpi_usempif08.so.40` is used as a distribution has it). It only converts, and calls `libmpi.so.40`.
//! Most of it is generated from the table (`mpi/table`).
//!
//! | question | module |
//! |---|---|
//! | how do arguments become C's? | `face` |
//! | which functions are written by hand? | [`special`], [`attributes`], [`callbacks`], [`removed`] |
//! | which names have they? | [`exports`] |

#![expect(missing_docs, clippy::missing_safety_doc, reason = "the standard says what they do")]

#[path = "../../common/calls/attributes.rs"]
pub mod attributes;
#[path = "../../common/calls/callbacks.rs"]
pub mod callbacks;
mod face;
#[path = "../../common/calls/members.rs"]
mod members;
#[path = "../../common/calls/removed.rs"]
pub mod removed;
#[path = "../../common/calls/special.rs"]
pub mod special;

/// C's functions.
#[allow(clashing_extern_declarations, reason = "addresses of functions are passed without their types")]
mod c {
    use crate::face::*;
    use std::ffi::{c_int, c_void};
    include!(concat!(env!("OUT_DIR"), "/c.rs"));
}

/// Numbers of C's.
mod constants {
    use std::ffi::c_int;
    include!(concat!(env!("OUT_DIR"), "/constants.rs"));
}

/// What is generated.
pub mod calls {
    use crate::face::*;
    use crate::members::{neighbours, peers};
    use crate::{c, face};
    use bdrun_mpi_fortran::args::*;
    use bdrun_mpi_fortran::text;
    use std::ffi::{c_int, c_void};
    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}

pub mod exports {
    use crate::attributes::*;
    use crate::callbacks::*;
    use crate::calls::*;
    use crate::face::{sizeof_1, sizeof_2, sizeof_4, sizeof_8, sizeof_16, sizeof_32};
    use crate::removed::*;
    use crate::special::*;
    use bdrun_mpi_fortran::exports;
    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}
