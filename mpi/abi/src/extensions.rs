//! What is there beyond MPI: `mpi/include/bdrun.h`. Of this face alone: who includes that header compiles
//! with `bdcc`, and programs that were made for another MPI do not know of it.

use std::ffi::c_int;

use bdrun_mpi::extensions::Seat;
use bdrun_mpi::failure::Answer;
use bdrun_mpi_core::error::Class;

use crate::face::{Comm, comm_in, comm_out, on_comm};
use crate::{Object, call, calls, fit};

/// Writes what a call gives.
unsafe fn told<T>(
    name: &'static &'static str,
    comm: Comm,
    at: *mut T,
    given: impl FnOnce() -> Answer<T>,
) -> c_int {
    let body = || {
        if at.is_null() {
            return Err(Class::Arg.into());
        }
        let given = given()?;
        // SAFETY: the caller's: there is room for it.
        unsafe { at.write(given) };
        Ok(())
    };
    call(name, || on_comm(comm), body)
}

macro_rules! seats {
    ($($name:ident $field:ident,)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(comm: Comm, at: *mut c_int) -> c_int {
                let number = |seat: Seat| fit(seat.$field as i64);
                // SAFETY: the caller's.
                unsafe { told(&stringify!($name), comm, at, || calls().seat(comm_in(comm)?).and_then(number)) }
            }
        )*
    };
}

seats! {
    bdrun_local_rank local_rank,
    bdrun_local_size local_size,
    bdrun_local_root local_root,
    bdrun_node_rank node,
    bdrun_node_count nodes,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_comm_node(comm: Comm, newcomm: *mut Comm) -> c_int {
    // SAFETY: the caller's.
    unsafe { told(&"bdrun_comm_node", comm, newcomm, || calls().comm_of_node(comm_in(comm)?).map(comm_out)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_comm_cyclic(comm: Comm, newcomm: *mut Comm) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        told(&"bdrun_comm_cyclic", comm, newcomm, || calls().comm_by_turns(comm_in(comm)?).map(comm_out))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_enter_critical() -> c_int {
    call(&"bdrun_enter_critical", || Object::Nothing, || calls().enter_critical())
}

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_exit_critical() -> c_int {
    call(&"bdrun_exit_critical", || Object::Nothing, || calls().exit_critical())
}
