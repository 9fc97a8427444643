use std::marker::PhantomData;
use std::rc::Rc;

use bytemuck::Pod;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::{Backend, check_rank};
use crate::matching::{Source, Status, Tag, TagSel, Ticket};
use crate::{Error, Result, site};

/// Ranks that talk to each other, seen from one of them.
///
/// Elements are plain old data ([`bytemuck::Pod`]); values that are not (strings, nested vectors) go through
/// serde with the `_value` calls. Every call that waits is a scheduling point.
pub struct Communicator {
    pub(crate) backend: Rc<dyn Backend>,
}

impl Communicator {
    /// A communicator on a back end.
    pub fn new(backend: Box<dyn Backend>) -> Self {
        Self { backend: Rc::from(backend) }
    }

    /// The back end, for a call that may wait.
    #[track_caller]
    pub(crate) fn waiting(&self) -> &dyn Backend {
        site::enter();
        &*self.backend
    }

    /// This rank, `0..size`.
    pub fn rank(&self) -> usize {
        self.backend.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.backend.size()
    }

    /// Send a copy of `data` to rank `to`. Never waits (MPI's buffered mode, without a buffer to attach).
    pub fn send<T: Pod>(&self, to: usize, tag: Tag, data: &[T]) -> Result<()> {
        check_rank("send", to, self.size())?;
        self.backend.send(to, tag, bytemuck::cast_slice(data))
    }

    /// As [`send`](Self::send), with a request to wait for; it is complete at once.
    pub fn isend<T: Pod>(&self, to: usize, tag: Tag, data: &[T]) -> Result<SendRequest> {
        self.send(to, tag, data)?;
        Ok(SendRequest(()))
    }

    /// Receive a message of any length.
    #[track_caller]
    pub fn recv<T: Pod>(&self, from: impl Into<Source>, tag: impl Into<TagSel>) -> Result<(Vec<T>, Status)> {
        self.irecv(from, tag)?.wait()
    }

    /// Receive into a buffer; how many elements came is in the status. A longer message is
    /// [`Error::Truncated`] and stays unreceived.
    #[track_caller]
    pub fn recv_into<T: Pod>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagSel>,
        into: &mut [T],
    ) -> Result<Status> {
        let request = self.irecv::<T>(from, tag)?;
        let (_, status) = self.waiting().wait_any(&[request.ticket])?;
        let room = std::mem::size_of_val(into);
        if status.bytes > room {
            return Err(Error::Truncated { from: status.source, tag: status.tag, bytes: status.bytes, room });
        }
        self.backend.fetch(request.ticket, &mut bytemuck::cast_slice_mut(into)[..status.bytes])?;
        Ok(status)
    }

    /// Post a receive and go on; [`RecvRequest::wait`] gives the message.
    pub fn irecv<T: Pod>(&self, from: impl Into<Source>, tag: impl Into<TagSel>) -> Result<RecvRequest<T>> {
        let from = from.into();
        if let Source::Rank(rank) = from {
            check_rank("recv", rank, self.size())?;
        }
        let ticket = self.backend.post(from, tag.into());
        Ok(RecvRequest { backend: self.backend.clone(), ticket, element: PhantomData })
    }

    /// Send to one rank and receive from another, in no danger of waiting for each other.
    #[track_caller]
    pub fn sendrecv<T: Pod>(
        &self,
        to: usize,
        data: &[T],
        from: impl Into<Source>,
        tag: Tag,
    ) -> Result<(Vec<T>, Status)> {
        self.send(to, tag, data)?;
        self.recv(from, tag)
    }

    /// Wait for a message that fits, without receiving it.
    #[track_caller]
    pub fn probe(&self, from: impl Into<Source>, tag: impl Into<TagSel>) -> Result<Status> {
        match self.waiting().probe(from.into(), tag.into(), true)? {
            Some(status) => Ok(status),
            None => Err(Error::Runtime("a waiting probe returned nothing".into())),
        }
    }

    /// Is there a message that fits?
    pub fn iprobe(&self, from: impl Into<Source>, tag: impl Into<TagSel>) -> Result<Option<Status>> {
        self.backend.probe(from.into(), tag.into(), false)
    }

    /// Send a serde value.
    pub fn send_value<V: Serialize>(&self, to: usize, tag: Tag, value: &V) -> Result<()> {
        self.send(to, tag, &encode("send_value", value)?)
    }

    /// Receive a serde value.
    #[track_caller]
    pub fn recv_value<V: DeserializeOwned>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagSel>,
    ) -> Result<(V, Status)> {
        let (bytes, status) = self.recv::<u8>(from, tag)?;
        Ok((decode("recv_value", &bytes)?, status))
    }

    /// Ranks of equal `color` form a communicator of their own, ordered by `key`, then by rank here
    /// (MPI_Comm_split). `None` joins none.
    #[track_caller]
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        let mine = [color.map_or(-1, i64::from), key];
        let all = self.allgather(&mine)?;
        let mut members: Vec<usize> = match color {
            None => Vec::new(),
            Some(_) => (0..self.size()).filter(|&r| all[2 * r] == mine[0]).collect(),
        };
        members.sort_by_key(|&r| (all[2 * r + 1], r));
        Ok(self.waiting().subgroup(&members)?.map(Self::new))
    }

    /// The same ranks in a communicator whose messages do not mix with this one's (MPI_Comm_dup).
    #[track_caller]
    pub fn duplicate(&self) -> Result<Self> {
        let everybody: Vec<usize> = (0..self.size()).collect();
        match self.waiting().subgroup(&everybody)? {
            Some(backend) => Ok(Self::new(backend)),
            None => Err(Error::Runtime("duplicate gave no communicator".into())),
        }
    }
}

/// A receive that was posted. Dropping it cancels it; a message that it had got stays unreceived.
pub struct RecvRequest<T: Pod> {
    backend: Rc<dyn Backend>,
    ticket: Ticket,
    element: PhantomData<T>,
}

impl<T: Pod> RecvRequest<T> {
    /// Has the message come? Does not wait.
    pub fn test(&self) -> Result<Option<Status>> {
        self.backend.test(self.ticket)
    }

    /// Wait for the message and take it.
    #[track_caller]
    pub fn wait(self) -> Result<(Vec<T>, Status)> {
        site::enter();
        let (_, status) = self.backend.wait_any(&[self.ticket])?;
        let size = std::mem::size_of::<T>();
        if size == 0 || status.bytes % size != 0 {
            return Err(Error::ElementSize { call: "recv", from: status.source, bytes: status.bytes, size });
        }
        let mut data = vec![T::zeroed(); status.bytes / size];
        self.backend.fetch(self.ticket, bytemuck::cast_slice_mut(&mut data))?;
        Ok((data, status))
    }
}

impl<T: Pod> Drop for RecvRequest<T> {
    fn drop(&mut self) {
        self.backend.cancel(self.ticket);
    }
}

/// Wait until one of the receives (not none) has its message; its index.
#[track_caller]
pub fn wait_any<T: Pod>(requests: &[RecvRequest<T>]) -> Result<usize> {
    let first = requests
        .first()
        .ok_or(Error::Argument { call: "wait_any", what: "there is no request to wait for".into() })?;
    site::enter();
    let tickets: Vec<Ticket> = requests.iter().map(|r| r.ticket).collect();
    first.backend.wait_any(&tickets).map(|(i, _)| i)
}

/// A send that was begun; sends are complete at once, this is for programs written in that style.
#[must_use]
pub struct SendRequest(());

impl SendRequest {
    /// Is the data out of the caller's buffer? Always.
    pub fn test(&self) -> bool {
        true
    }

    /// Returns at once.
    pub fn wait(self) {}
}

pub(crate) fn encode<V: Serialize>(call: &'static str, value: &V) -> Result<Vec<u8>> {
    bdrun_ipc::wire::encode_value(value).map_err(|e| Error::Encoding { call, what: e.to_string() })
}

pub(crate) fn decode<V: DeserializeOwned>(call: &'static str, bytes: &[u8]) -> Result<V> {
    bdrun_ipc::wire::decode_value(bytes).map_err(|e| Error::Encoding { call, what: e.to_string() })
}
