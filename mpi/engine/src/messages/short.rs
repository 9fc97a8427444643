//! The short way of a plain message: blocking calls on elements of a predefined datatype that lie one behind
//! the other, between ranks of a node. Nothing is allocated, and no clock is read; what is checked is what
//! the other way (`calls.rs`) checks, and whatever is not right, or not known here, goes that way and is told
//! there.

use std::sync::Arc;

use bdrun_mpi_core::matching::{Envelope, Want};

use super::{ANY_SOURCE, ANY_TAG, MOST_TAG, status_of, truncated};
use crate::Mpi;
use crate::args::{Buffer, Status};
use crate::comm::Communicator;
use crate::failure::{Answer, Told};
use crate::handle::{Comm, Datatype};
use crate::link::{Head, Mode};
use crate::node::Direct;

/// One that is there from the beginning, or one that was made.
enum Found<'a> {
    Lent(&'a Communicator),
    Made(Arc<Communicator>),
}

impl std::ops::Deref for Found<'_> {
    type Target = Communicator;

    #[inline]
    fn deref(&self) -> &Communicator {
        match self {
            Self::Lent(comm) => comm,
            Self::Made(comm) => comm,
        }
    }
}

impl Mpi {
    #[inline]
    fn find(&self, comm: Comm) -> Option<Found<'_>> {
        Some(match comm {
            Comm::WORLD => Found::Lent(&self.world().ok()?.all),
            _ => Found::Made(self.comms.get(comm)?),
        })
    }

    /// Where such elements are, and how many bytes.
    #[inline]
    fn plain(&self, buffer: Buffer, count: i64, datatype: Datatype) -> Option<(*mut u8, usize)> {
        let Buffer::At(at) = buffer else { return None };
        let bytes = usize::try_from(count).ok()?.checked_mul(self.types.plain_size(datatype)?)?;
        if at.is_null() || isize::try_from(bytes).is_err() {
            // With no bytes it may be null; a slice may not.
            return (bytes == 0).then_some((std::ptr::NonNull::dangling().as_ptr(), 0));
        }
        Some((at, bytes))
    }

    /// Sends a message; none: it goes the other way.
    ///
    /// # Safety
    /// The memory is what the program said it is, and nobody writes it meanwhile.
    #[inline]
    pub(super) unsafe fn send_shortly(
        &self,
        (buffer, count, datatype): (Buffer, i64, Datatype),
        (dest, tag, comm): (i64, i64, Comm),
    ) -> Option<Answer<()>> {
        let node = self.node.get()?;
        let comm = self.find(comm)?;
        let (at, bytes) = self.plain(buffer, count, datatype)?;
        let &to = comm.peers().members().get(usize::try_from(dest).ok()?)?;
        if !(0..=MOST_TAG).contains(&tag) {
            return None;
        }
        let context = comm.place().ok()?.context;
        let head = Head { context, source: comm.rank as u32, tag: tag as i32, mode: Mode::Plain };
        // SAFETY: the caller's.
        let sent = node.send_at(to, head, &[unsafe { std::slice::from_raw_parts(at, bytes) }]);
        if sent.is_ok() {
            self.act();
            self.tools.sent(bytes as u64);
        }
        Some(sent)
    }

    /// Receives a message if it comes soon; none: it is waited for, and received, the other way.
    ///
    /// Of the messages that a receive fits it gets the first, and a message goes to the first receive:
    /// nothing is taken here but while no message is kept and no receive waits. So it is the first that has
    /// come of its sender, and nobody else wants it. Another thread neither posts nor takes one meanwhile,
    /// since that needs the lock.
    ///
    /// # Safety
    /// The memory is what the program said it is, and nobody else uses it meanwhile.
    #[inline]
    pub(super) unsafe fn receive_shortly(
        &self,
        (buffer, count, datatype): (Buffer, i64, Datatype),
        (source, tag, comm): (i64, i64, Comm),
    ) -> Option<Answer<Told<Status>>> {
        let node = self.node.get()?;
        let comm = self.find(comm)?;
        let (at, room) = self.plain(buffer, count, datatype)?;
        let source = match source {
            ANY_SOURCE => None,
            _ => Some(u32::try_from(source).ok().filter(|&rank| (rank as usize) < comm.peers().size())?),
        };
        let tag = match tag {
            ANY_TAG => None,
            0..=MOST_TAG => Some(tag as i32),
            _ => return None,
        };
        let (context, want) = (comm.place().ok()?.context, Want { source, tag });
        // What another thread may find must be told to it, and what it finds to this one.
        if !self.threads.is_one() || !self.is_main_thread() || !self.traffic().matcher.is_empty() {
            return None;
        }
        self.act();
        loop {
            if !node.looks() {
                return None;
            }
            let traffic = self.traffic();
            if !traffic.matcher.is_empty() {
                return None;
            }
            // SAFETY: the caller's.
            let into = unsafe { std::slice::from_raw_parts_mut(at, room) };
            let taken = node.take_first(context, want, into);
            drop(traffic);
            match taken {
                Ok(Direct::Nothing) => {}
                Ok(Direct::Other) => return None,
                Ok(Direct::Taken(envelope, len)) => return Some(Ok(Self::taken(envelope, len, room as u64))),
                Err(failure) => return Some(Err(failure)),
            }
        }
    }

    #[inline]
    fn taken(envelope: Envelope, len: u64, room: u64) -> Told<Status> {
        let failure = (len > room).then(|| truncated(len, room));
        Told { given: status_of(envelope, len.min(room)), failure }
    }
}
