use crate::runtime::{Program, Runtime};
use crate::{Communicator, Error, Result, local, shm};

/// A rank's place in its job.
pub struct World {
    communicator: Communicator,
    runtime: Option<&'static Runtime>,
}

/// Join the job: under `bdrun` as one of its ranks, otherwise as the only rank there is.
///
/// From then on the calling thread is the one that communicates, and the rank may be paged out whenever it
/// waits.
///
/// **What is asked of the program**: while it is in a call of this library, or allocates, nobody but its own
/// threads writes to memory of the allocator. So whatever it began that no thread waits for (io_uring, AIO,
/// RDMA, whichever library makes it) has ended by then, or goes to buffers of another allocator, for example
/// mapped by the program itself; and no process shares its address space (`CLONE_VM`) but a child that is
/// about to execute another program. What is written nevertheless is lost if the rank is moved.
///
/// ```
/// let world = bdrun_worker::init()?;
/// let comm = world.communicator();
/// println!("rank {} of {}", comm.rank(), comm.size());
/// # Ok::<(), bdrun_worker::Error>(())
/// ```
///
/// # Errors
/// [`Error::Runtime`](crate::Error::Runtime) if the process was started by a `bdrun` of another version, or
/// another process of the same rank, or an earlier call, has joined already.
pub fn init() -> Result<World> {
    Ok(match Runtime::attach(Program::Native)? {
        Some(runtime) => World { communicator: shm::world(runtime), runtime: Some(runtime) },
        None => World { communicator: local::alone(), runtime: None },
    })
}

impl World {
    /// All ranks of the job.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// let comm = world.communicator();
    /// assert!(comm.rank() < comm.size());
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// Was this process started by `bdrun`?
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// if !world.is_launched() {
    ///     eprintln!("alone; to use all processors: bdrun -np N PROGRAM");
    ///     assert_eq!(world.communicator().size(), 1);
    /// }
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn is_launched(&self) -> bool {
        self.runtime.is_some()
    }

    /// The node of this rank: ranks of the same have one `bdrun`, and one budget. Of a job over several nodes
    /// they count from 0; two of them may be on one machine.
    ///
    /// ```
    /// let world = bdrun_worker::init()?;
    /// assert!(world.is_launched() || world.node() == 0);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn node(&self) -> u32 {
        self.runtime.map_or(0, |runtime| runtime.segment.spread().node)
    }

    /// The job's memory budget in bytes; `None` without `bdrun`.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// // A cache that takes a tenth of this rank's share.
    /// let share = world.budget_bytes().map(|budget| budget / world.communicator().size() as u64);
    /// let cache = share.map_or(64 << 20, |share| share / 10);
    /// assert!(cache > 0);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn budget_bytes(&self) -> Option<u64> {
        self.runtime.map(|r| r.segment.header().pool.budget())
    }

    /// Count `bytes` of the budget as used by memory that ranks share, which the program itself maps (a
    /// memfd, say): once for all of them, until [`give_back`](Self::give_back). Waits until they are free, as
    /// for memory that is allocated. Such memory stays in RAM: of what ranks share nothing is moved to
    /// scratch.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// // One rank counts what all will map, and one gives it back when none has it mapped any more.
    /// if world.communicator().rank() == 0 {
    ///     world.set_aside(1 << 20)?;
    /// }
    /// world.communicator().barrier()?;
    /// if world.communicator().rank() == 0 {
    ///     world.give_back(1 << 20);
    /// }
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument): the whole budget is less.
    pub fn set_aside(&self, bytes: u64) -> Result<()> {
        let Some(runtime) = self.runtime else { return Ok(()) };
        let budget = runtime.segment.header().pool.budget();
        if bytes > budget {
            let what = format!("{bytes} bytes are to be shared, and the job's budget is {budget}");
            return Err(Error::Argument { call: "set_aside", what });
        }
        runtime.set_aside(bytes);
        Ok(())
    }

    /// What was counted by [`set_aside`](Self::set_aside), by any rank, is mapped by none any more.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// world.set_aside(1 << 16)?;
    /// // … map it, use it, unmap it …
    /// world.give_back(1 << 16);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn give_back(&self, bytes: u64) {
        if let Some(runtime) = self.runtime {
            runtime.give_back(bytes);
        }
    }

    /// Tell the person who watches how far this rank is: `done` of `total` units of the work called `label`
    /// (24 bytes at most are shown). `bdrun` shows the sum over the ranks. Costs a few stores.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// for block in 0..10 {
    ///     // … the work …
    ///     world.progress("blocks", block + 1, 10);
    /// }
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn progress(&self, label: &str, done: u64, total: u64) {
        if let Some(runtime) = self.runtime {
            runtime.block().set_progress(label, done, total);
        }
    }
}
