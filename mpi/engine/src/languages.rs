//! Handles as numbers, and what is known of other languages (MPI-5.0, chapters 19 and 20).

use std::ffi::c_int;

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::info::Info as Content;

use crate::Mpi;
use crate::args::Buffer;
use crate::calls::Languages;
use crate::failure::Answer;
use crate::handle::{
    Comm, Datatype, Errhandler, File, Group, Handle, Info, Message, Op, Request, Session, Win,
};

/// The number of a handle.
fn number(handle: impl Handle) -> Answer<i64> {
    c_int::try_from(handle.value()).map(i64::from).map_err(|_| Class::ValueTooLarge.into())
}

/// The handle of a number.
fn numbered<H: Handle>(number: i64) -> Answer<H> {
    Ok(H::new(u64::try_from(number).map_err(|_| Class::Arg)?))
}

macro_rules! numbers {
    ($($of:ident $from:ident $to:ident)*) => {
        $(
            unsafe fn $from(&self, value: i64) -> Answer<$of> {
                numbered(value)
            }

            unsafe fn $to(&self, handle: $of) -> Answer<i64> {
                number(handle)
            }
        )*
    };
}

impl Languages for Mpi {
    numbers! {
        Comm comm_fromint comm_toint
        Datatype type_fromint type_toint
        Errhandler errhandler_fromint errhandler_toint
        File file_fromint file_toint
        Group group_fromint group_toint
        Info info_fromint info_toint
        Message message_fromint message_toint
        Op op_fromint op_toint
        Request request_fromint request_toint
        Session session_fromint session_toint
        Win win_fromint win_toint
    }

    unsafe fn abi_get_version(&self) -> Answer<(i64, i64)> {
        Ok(self.face().abi)
    }

    unsafe fn abi_get_info(&self) -> Answer<Info> {
        let mut content = Content::default();
        for key in ["mpi_aint_size", "mpi_count_size", "mpi_offset_size"] {
            content.set(key.as_bytes(), b"8", self.limits())?;
        }
        Ok(self.new_info(content))
    }

    unsafe fn abi_get_fortran_info(&self) -> Answer<Info> {
        // Nobody has said how large Fortran's types are.
        Ok(Info::NULL)
    }

    unsafe fn abi_get_fortran_booleans(&self, _: i64, _: Buffer, _: Buffer) -> Answer<i64> {
        Ok(0)
    }
}
