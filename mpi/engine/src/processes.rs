//! Processes that come and go (MPI-5.0, chapter 11): none does. Nobody has started this job from another.

use crate::Mpi;
use crate::calls::{Communicators, Processes};
use crate::failure::Answer;
use crate::handle::Comm;

impl Processes for Mpi {
    unsafe fn comm_disconnect(&self, comm: Comm) -> Answer<Comm> {
        // What was sent has left, and whoever still uses it holds it.
        // SAFETY: the caller's.
        unsafe { self.comm_free(comm) }
    }

    unsafe fn comm_get_parent(&self) -> Answer<Comm> {
        Ok(Comm::NULL)
    }
}
