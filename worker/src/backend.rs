//! What a back end of the communicator provides. Everything typed is written once above it.

use crate::matching::{Source, Status, Tag, TagSel, Ticket};
use crate::{Error, Result};

/// The parts that the ranks of a collective deposited, readable once all have.
pub trait Parts {
    /// Bytes that `rank` deposited.
    fn len(&self, rank: usize) -> usize;
    /// Copy `into.len()` bytes of the part of `rank`, from `offset` on.
    fn read(&self, rank: usize, offset: usize, into: &mut [u8]) -> Result<()>;
    /// The same of several ranks: who it is, from where on, and where it goes. Cheaper than one by one where
    /// parts lie on other nodes.
    fn read_all(&self, wanted: Vec<(usize, usize, &mut [u8])>) -> Result<()> {
        wanted.into_iter().try_for_each(|(rank, offset, into)| self.read(rank, offset, into))
    }
    /// Bytes of the folded result; 0 when the collective has none.
    fn folded_len(&self) -> usize;
    /// Copy `into.len()` bytes of the folded result, from `offset` on.
    fn read_folded(&self, offset: usize, into: &mut [u8]) -> Result<()>;
}

/// Computes the folded result from all parts; runs once, in the rank that arrives last.
pub type Fold<'a> = dyn FnMut(&dyn Parts) -> Result<Vec<u8>> + 'a;

/// Reads what this rank needs of the parts; runs once in every rank.
pub type Read<'a> = dyn FnMut(&dyn Parts) -> Result<()> + 'a;

/// One rank's end of a communicator.
///
/// Sends never wait: what does not fit memory lies on scratch. Receives, probes and collectives may wait, and
/// then the rank may be evicted.
pub trait Backend {
    /// This rank, `0..size`.
    fn rank(&self) -> usize;
    /// Number of ranks.
    fn size(&self) -> usize;
    /// Send a copy of `data`.
    fn send(&self, to: usize, tag: Tag, data: &[u8]) -> Result<()>;
    /// Post a receive.
    fn post(&self, from: Source, tag: TagSel) -> Ticket;
    /// Has the receive got its message? Does not wait.
    fn test(&self, ticket: Ticket) -> Result<Option<Status>>;
    /// Wait until one of the receives has its message; which of `tickets`, and what it is.
    fn wait_any(&self, tickets: &[Ticket]) -> Result<(usize, Status)>;
    /// The same of receives of any communicators of this rank; which of them. Where all of these have their
    /// tickets from one place it is nothing else.
    fn wait_any_of(&self, receives: &[(&dyn Backend, Ticket)]) -> Result<usize> {
        let tickets: Vec<Ticket> = receives.iter().map(|&(_, ticket)| ticket).collect();
        self.wait_any(&tickets).map(|(i, _)| i)
    }
    /// Why no message will come for a receive that has none, if that is known.
    fn in_vain(&self, _ticket: Ticket) -> Option<String> {
        None
    }
    /// Copy the payload of a receive that has its message and end it. `into` has exactly the message's
    /// length.
    fn fetch(&self, ticket: Ticket, into: &mut [u8]) -> Result<()>;
    /// End a receive that nobody waits for any more.
    fn cancel(&self, ticket: Ticket);
    /// Is there an unclaimed message that fits? With `wait`, wait for it.
    fn probe(&self, from: Source, tag: TagSel, wait: bool) -> Result<Option<Status>>;
    /// The primitive of every collective: deposit a part (given in pieces), leave RAM if need be until all
    /// ranks have deposited theirs, then read. All ranks pass the same `name`, or every one gets
    /// [`Error::Mismatch`].
    fn collective(
        &self,
        name: &'static str,
        part: &[&[u8]],
        fold: Option<&mut Fold<'_>>,
        read: &mut Read<'_>,
    ) -> Result<()>;
    /// Is memory looked for, so that what a rank holds while it waits will be moved out?
    fn memory_is_wanted(&self) -> bool {
        false
    }
    /// A communicator of the given ranks of this one (in this order; contains this rank; the same on all of
    /// them). Called by all ranks of this communicator at once, with `members` empty where a rank joins none.
    fn subgroup(&self, members: &[usize]) -> Result<Option<Box<dyn Backend>>>;
}

/// The check that every back end makes first.
pub fn check_rank(call: &'static str, rank: usize, size: usize) -> Result<()> {
    if rank < size { Ok(()) } else { Err(Error::NoSuchRank { call, rank, size }) }
}
