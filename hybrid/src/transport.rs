//! What a back end provides: messages and collectives of bytes. The typed calls ([`crate::Communicator`]) are
//! written once, upon it.

use crate::{Cause, Tag};

/// Result of a back end: the caller adds rank and call.
pub type Result<T> = std::result::Result<T, Cause>;

/// Combines the part of one rank, by bytes, with what is there already.
pub type Combine<'a> = dyn Fn(&mut [u8], &[u8]) + 'a;

/// Ranks that exchange bytes, seen from one of them.
///
/// Arguments were checked by the caller as far as one rank can: ranks exist, lengths fit each other.
/// Collectives are called by all ranks, in the same order. Calls that wait are `#[track_caller]`, for back
/// ends to which it means something from where the program makes them.
pub trait Transport {
    /// This rank, `0..size`.
    fn rank(&self) -> usize;
    /// Number of ranks.
    fn size(&self) -> usize;
    /// Waits until all ranks have come.
    ///
    /// # Errors
    /// As each back end has them; so of all calls here.
    #[track_caller]
    fn barrier(&self) -> Result<()>;
    /// `data` of `root` becomes everybody's; all have the same length.
    #[track_caller]
    fn broadcast(&self, data: &mut [u8], root: usize) -> Result<()>;
    /// `send` of rank `i` comes to `recv[displs[i]..][..counts[i]]` of all, which do not overlap.
    #[track_caller]
    fn allgatherv(&self, send: &[u8], recv: &mut [u8], counts: &[usize], displs: &[usize]) -> Result<()>;
    /// What `combine` makes of the parts of all ranks, in rank order, to all; all have the same length, a
    /// multiple of `element`, and `combine` works on any run of whole elements.
    #[track_caller]
    fn allreduce(&self, send: &[u8], recv: &mut [u8], element: usize, combine: &Combine<'_>) -> Result<()>;
    /// Sends `data`. May wait until it is received.
    #[track_caller]
    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()>;
    /// The next message of `from` with that tag, which has the length of `data`.
    #[track_caller]
    fn recv(&self, data: &mut [u8], from: usize, tag: Tag) -> Result<()>;
    /// Ends the job.
    fn abort(&self, code: i32) -> !;
    /// Another handle for the same communicator.
    fn handle(&self) -> Box<dyn Transport>;
    /// Counts bytes of memory that ranks share in the job's budget, where there is one; waits until they are
    /// free.
    fn set_aside(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
    /// What was counted is mapped by no rank any more.
    fn give_back(&self, _bytes: u64) {}
    /// Whether no rank but this one is there, so that nothing need be said.
    fn is_alone(&self) -> bool {
        self.size() == 1
    }
}

/// What the shell sees of a job that was ended with a code: never success.
pub(crate) const fn exit_code(code: i32) -> i32 {
    match code & 0xff {
        0 => 1,
        code => code,
    }
}
