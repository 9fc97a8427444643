//! Processes that come and go (MPI-5.0, chapter 11): none does. Nobody has started this job from another, and
//! nobody can be started or met; what is wrong with a call for it is said first.

use std::ffi::{c_char, c_void};

use bdrun_mpi_core::error::Class;

use crate::Mpi;
use crate::args::{Handles, Ints, IntsOut};
use crate::calls::{Communicators, Processes};
use crate::failure::{Answer, unsupported};
use crate::handle::{Comm, Info};

impl Mpi {
    /// What a call that needs a root and an info says of its arguments, then that it cannot be.
    fn cannot(&self, call: &str, (root, comm): (i64, Comm), info: Info) -> Answer<Comm> {
        let of = self.intra(comm)?;
        if usize::try_from(root).map_or(true, |root| root >= of.group.size()) {
            return Err(Class::Root.into());
        }
        self.content_of(info)?;
        Err(unsupported(call))
    }
}

impl Processes for Mpi {
    unsafe fn comm_disconnect(&self, comm: Comm) -> Answer<Comm> {
        // What was sent has left, and whoever still uses it holds it.
        // SAFETY: the caller's.
        unsafe { self.comm_free(comm) }
    }

    unsafe fn comm_get_parent(&self) -> Answer<Comm> {
        Ok(Comm::NULL)
    }

    unsafe fn comm_accept(&self, _: *const c_char, info: Info, root: i64, comm: Comm) -> Answer<Comm> {
        self.cannot("MPI_Comm_accept", (root, comm), info)
    }

    unsafe fn comm_connect(&self, _: *const c_char, info: Info, root: i64, comm: Comm) -> Answer<Comm> {
        self.cannot("MPI_Comm_connect", (root, comm), info)
    }

    unsafe fn comm_spawn(
        &self,
        _: *const c_char,
        _: *mut c_void,
        maxprocs: i64,
        info: Info,
        root: i64,
        comm: Comm,
        _: IntsOut,
    ) -> Answer<Comm> {
        let said = self.cannot("MPI_Comm_spawn", (root, comm), info);
        if maxprocs < 0 { Err(Class::Arg.into()) } else { said }
    }

    unsafe fn comm_spawn_multiple(
        &self,
        _: i64,
        _: *mut c_void,
        _: *mut c_void,
        _: Ints,
        _: Handles<Info>,
        root: i64,
        comm: Comm,
        _: IntsOut,
    ) -> Answer<Comm> {
        self.cannot("MPI_Comm_spawn_multiple", (root, comm), Info::NULL)
    }
}
