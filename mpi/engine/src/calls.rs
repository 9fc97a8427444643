//! All calls, by chapter: generated from the table (`mpi/table/functions.txt`).
//!
//! # Safety
//! Of each call: what it is given is what the standard says it is. Buffers hold what their counts and
//! datatypes say, arrays have as many elements, strings end, functions have the type that the standard gives
//! them.

#![expect(clippy::missing_safety_doc, reason = "said above, of all")]
#![expect(clippy::too_many_arguments, reason = "the standard's")]
#![expect(clippy::type_complexity, reason = "of calls that give much")]
#![expect(clippy::missing_errors_doc, reason = "the standard's")]

use std::ffi::{c_char, c_int, c_void};

use crate::args::{Buffer, Handles, Ints, IntsOut, Meant, Status, Statuses, Weights};
use crate::failure::{Answer, Told, unsupported};
use crate::handle::{Comm, Datatype, Errhandler, File, Group, Info, Message, Op, Request, Session, Win};

include!(concat!(env!("OUT_DIR"), "/calls.rs"));
