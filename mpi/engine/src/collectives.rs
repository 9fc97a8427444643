//! Collective communication (MPI-5.0, chapter 6).

use crate::Mpi;
use crate::calls::Collectives;
use crate::failure::Answer;
use crate::handle::{Comm, Request};
use crate::operation::{Operation, Waits};

impl Collectives for Mpi {
    unsafe fn barrier(&self, comm: Comm) -> Answer<()> {
        self.comm(comm)?.meet(self.link()?, "MPI_Barrier", &[])?.wait()
    }

    unsafe fn ibarrier(&self, comm: Comm) -> Answer<Request> {
        let comm = self.comm(comm)?;
        let meeting = comm.meet(self.link()?, "MPI_Ibarrier", &[])?;
        let operation = Operation::begun(Waits::Meeting(meeting, Box::new(|_| Ok(()))));
        Ok(self.new_request(comm, operation))
    }
}
