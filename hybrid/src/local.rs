//! A program that is alone: every call is the identity, or nothing.

use std::cell::RefCell;

use bytemuck::Pod;

use crate::queue::{NEVER, Queue, deliver};
use crate::transport::{Combine, Result, Transport, exit_code};
use crate::{SharedMemory, SharedRegion, Tag};

/// One process, without anything that communicates. Of size zero: what it calls, the compiler removes. Its
/// communicators are one: what is sent to oneself in one is received in any of them.
///
/// ```
/// use bdrun_hybrid::{Communicator, LocalBackend, ReduceOp};
///
/// assert_eq!(size_of::<LocalBackend>(), 0);
/// let mut sum = [0.0];
/// LocalBackend.allreduce(&[1.5], &mut sum, ReduceOp::Sum)?;
/// assert_eq!((sum, LocalBackend.rank(), LocalBackend.size()), ([1.5], 0, 1));
/// # Ok::<(), bdrun_hybrid::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalBackend;

thread_local! {
    /// Messages that the rank has sent to itself.
    static TO_ITSELF: RefCell<Queue<Tag>> = const { RefCell::new(Queue::new()) };
}

impl Transport for LocalBackend {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn barrier(&self) -> Result<()> {
        Ok(())
    }

    fn broadcast(&self, _: &mut [u8], _: usize) -> Result<()> {
        Ok(())
    }

    fn allgatherv(&self, send: &[u8], recv: &mut [u8], counts: &[usize], displs: &[usize]) -> Result<()> {
        recv[displs[0]..][..counts[0]].copy_from_slice(send);
        Ok(())
    }

    fn allreduce(&self, send: &[u8], recv: &mut [u8], _: usize, _: &Combine<'_>) -> Result<()> {
        recv.copy_from_slice(send);
        Ok(())
    }

    fn send(&self, data: &[u8], _: usize, tag: Tag) -> Result<()> {
        TO_ITSELF.with_borrow_mut(|messages| messages.push(tag, data.to_vec()));
        Ok(())
    }

    fn recv(&self, data: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        let message = TO_ITSELF.with_borrow_mut(|messages| messages.take(&tag)).ok_or(NEVER)?;
        deliver(&message, data, from, tag)
    }

    fn abort(&self, code: i32) -> ! {
        std::process::exit(exit_code(code))
    }

    fn handle(&self) -> Box<dyn Transport> {
        Box::new(Self)
    }
}

impl SharedMemory for LocalBackend {
    fn split_local(&self) -> crate::Result<Self> {
        Ok(Self)
    }

    fn create_shared_region<T: Pod>(&self, len: usize) -> crate::Result<SharedRegion<T>> {
        SharedRegion::create(self, len)
    }
}
