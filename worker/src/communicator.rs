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

    /// The back end, for a library that makes collectives of its own upon its primitive.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // The shortest part that a rank has deposited.
    /// let (part, mut least) = ([0u8; 3], usize::MAX);
    /// comm.backend().collective("allgather", &[&part], None, &mut |parts| {
    ///     least = (0..comm.size()).map(|rank| parts.len(rank)).min().unwrap_or(0);
    ///     Ok(())
    /// })?;
    /// assert_eq!(least, 3);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn backend(&self) -> &dyn Backend {
        self.waiting()
    }

    /// The back end, for a call that may wait.
    #[track_caller]
    pub(crate) fn waiting(&self) -> &dyn Backend {
        site::enter();
        &*self.backend
    }

    /// This rank, `0..size`.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // Of 1,000 items those from `first` to before `end` are this rank's.
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let (first, end) = (1_000 * rank / size, 1_000 * (rank + 1) / size);
    /// assert_eq!(comm.allreduce(&[end - first], |a, b| a + b)?, [1_000]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn rank(&self) -> usize {
        self.backend.rank()
    }

    /// Number of ranks.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// assert!((0..comm.size()).contains(&comm.rank()));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn size(&self) -> usize {
        self.backend.size()
    }

    /// Send a copy of `data` to rank `to`. Never waits (MPI's buffered mode, without a buffer to attach).
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // Around a ring: to the next rank, from the one before.
    /// let (rank, size) = (comm.rank(), comm.size());
    /// comm.send((rank + 1) % size, 1, &[rank as u64, 42])?;
    /// let (data, status) = comm.recv::<u64>((rank + size - 1) % size, 1)?;
    /// assert_eq!(data, [status.source as u64, 42]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn send<T: Pod>(&self, to: usize, tag: Tag, data: &[T]) -> Result<()> {
        check_rank("send", to, self.size())?;
        self.backend.send(to, tag, bytemuck::cast_slice(data))
    }

    /// As [`send`](Self::send), with a request to wait for; it is complete at once.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let request = comm.isend(comm.rank(), 2, &[1.5f64])?;
    /// request.wait();
    /// assert_eq!(comm.recv::<f64>(comm.rank(), 2)?.0, [1.5]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn isend<T: Pod>(&self, to: usize, tag: Tag, data: &[T]) -> Result<SendRequest> {
        self.send(to, tag, data)?;
        Ok(SendRequest(()))
    }

    /// Receive a message of any length.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// use bdrun_worker::Source;
    ///
    /// // Everybody reports to rank 0, which takes the reports as they come.
    /// comm.send(0, 3, &[10 * comm.rank() as u32])?;
    /// if comm.rank() == 0 {
    ///     for _ in 0..comm.size() {
    ///         let (data, status) = comm.recv::<u32>(Source::Any, 3)?;
    ///         assert_eq!(data, [10 * status.source as u32]);
    ///     }
    /// }
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn recv<T: Pod>(&self, from: impl Into<Source>, tag: impl Into<TagSel>) -> Result<(Vec<T>, Status)> {
        self.irecv(from, tag)?.wait()
    }

    /// Receive into a buffer; how many elements came is in the status. A longer message is
    /// [`Error::Truncated`] and stays unreceived.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// comm.send(comm.rank(), 4, &[1u16, 2, 3])?;
    /// let mut buffer = [0u16; 8];
    /// let status = comm.recv_into(comm.rank(), 4, &mut buffer)?;
    /// let count = status.bytes / size_of::<u16>();
    /// assert_eq!(buffer[..count], [1, 2, 3]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
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
        whole_elements::<T>("recv_into", status)?;
        self.backend.fetch(request.ticket, &mut bytemuck::cast_slice_mut(into)[..status.bytes])?;
        Ok(status)
    }

    /// Post a receive and go on; [`RecvRequest::wait`] gives the message.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let request = comm.irecv::<u64>((rank + 1) % size, 5)?;
    /// comm.send((rank + size - 1) % size, 5, &[rank as u64])?;
    /// // … what can be computed without the message …
    /// let (data, _) = request.wait()?;
    /// assert_eq!(data, [((rank + 1) % size) as u64]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn irecv<T: Pod>(&self, from: impl Into<Source>, tag: impl Into<TagSel>) -> Result<RecvRequest<T>> {
        let from = from.into();
        if let Source::Rank(rank) = from {
            check_rank("recv", rank, self.size())?;
        }
        let ticket = self.backend.post(from, tag.into());
        Ok(RecvRequest { backend: self.backend.clone(), ticket, element: PhantomData })
    }

    /// Send to one rank and receive from another, in no danger of waiting for each other.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // The edge of each part for its neighbour.
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let (left, _) = comm.sendrecv((rank + 1) % size, &[rank as u32], (rank + size - 1) % size, 6)?;
    /// assert_eq!(left, [((rank + size - 1) % size) as u32]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// use bdrun_worker::Source;
    ///
    /// comm.send(comm.rank(), 7, &[9u8; 100])?;
    /// let status = comm.probe(Source::Any, 7)?;
    /// let mut buffer = vec![0u8; status.bytes];
    /// comm.recv_into(status.source, status.tag, &mut buffer)?;
    /// assert_eq!(buffer, [9; 100]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn probe(&self, from: impl Into<Source>, tag: impl Into<TagSel>) -> Result<Status> {
        match self.waiting().probe(from.into(), tag.into(), true)? {
            Some(status) => Ok(status),
            None => Err(Error::Runtime("a waiting probe returned nothing".into())),
        }
    }

    /// Is there a message that fits?
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// comm.send(comm.rank(), 8, &[1u8])?;
    /// while comm.iprobe(comm.rank(), 8)?.is_none() {
    ///     // … something else …
    /// }
    /// assert_eq!(comm.recv::<u8>(comm.rank(), 8)?.0, [1]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn iprobe(&self, from: impl Into<Source>, tag: impl Into<TagSel>) -> Result<Option<Status>> {
        self.backend.probe(from.into(), tag.into(), false)
    }

    /// Send a serde value.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let (rank, size) = (comm.rank(), comm.size());
    /// comm.send_value((rank + 1) % size, 9, &(format!("rank {rank}"), vec![1, 2]))?;
    /// let (value, status) = comm.recv_value::<(String, Vec<i32>)>((rank + size - 1) % size, 9)?;
    /// assert_eq!(value, (format!("rank {}", status.source), vec![1, 2]));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn send_value<V: Serialize>(&self, to: usize, tag: Tag, value: &V) -> Result<()> {
        self.send(to, tag, &encode("send_value", value)?)
    }

    /// Receive a serde value.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// comm.send_value(comm.rank(), 10, &Some("text"))?;
    /// let (value, status) = comm.recv_value::<Option<String>>(comm.rank(), 10)?;
    /// assert_eq!((value.as_deref(), status.tag), (Some("text"), 10));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // Even and odd ranks by themselves.
    /// let color = comm.rank() % 2;
    /// if let Some(half) = comm.split(Some(color as u32), 0)? {
    ///     assert_eq!(half.rank(), comm.rank() / 2);
    ///     assert!(half.allgather(&[comm.rank()])?.iter().all(|rank| rank % 2 == color));
    /// }
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // What a library sends to itself, the program's receives never see.
    /// let own = comm.duplicate()?;
    /// own.send(own.rank(), 11, &[1u8])?;
    /// assert!(comm.iprobe(own.rank(), 11)?.is_none());
    /// assert_eq!(own.recv::<u8>(own.rank(), 11)?.0, [1]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let request = comm.irecv::<u8>(comm.rank(), 12)?;
    /// assert!(request.test()?.is_none());
    /// comm.send(comm.rank(), 12, &[5u8])?;
    /// while request.test()?.is_none() {
    ///     // … something else …
    /// }
    /// assert_eq!(request.wait()?.0, [5]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn test(&self) -> Result<Option<Status>> {
        self.backend.test(self.ticket)
    }

    /// Wait for the message and take it.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let request = comm.irecv::<u64>(comm.rank(), 13)?;
    /// comm.send(comm.rank(), 13, &[1u64, 2])?;
    /// let (data, status) = request.wait()?;
    /// assert_eq!((&data[..], status.bytes), (&[1, 2][..], 16));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn wait(self) -> Result<(Vec<T>, Status)> {
        site::enter();
        let (_, status) = self.backend.wait_any(&[self.ticket])?;
        let mut data = vec![T::zeroed(); whole_elements::<T>("recv", status)?];
        self.backend.fetch(self.ticket, bytemuck::cast_slice_mut(&mut data))?;
        Ok((data, status))
    }
}

impl<T: Pod> Drop for RecvRequest<T> {
    fn drop(&mut self) {
        self.backend.cancel(self.ticket);
    }
}

/// How many elements a message has.
fn whole_elements<T>(call: &'static str, Status { source: from, bytes, .. }: Status) -> Result<usize> {
    let size = std::mem::size_of::<T>();
    if size == 0 || bytes % size != 0 {
        return Err(Error::ElementSize { call, from, bytes, size });
    }
    Ok(bytes / size)
}

/// Wait until one of the receives (not none) has its message; its index.
///
/// ```
/// # let world = bdrun_worker::init()?;
/// # let comm = world.communicator();
/// let requests = [comm.irecv::<u8>(comm.rank(), 14)?, comm.irecv::<u8>(comm.rank(), 15)?];
/// comm.send(comm.rank(), 15, &[7u8])?;
/// assert_eq!(bdrun_worker::wait_any(&requests)?, 1);
/// let [never, came] = requests;
/// drop(never);
/// assert_eq!(came.wait()?.0, [7]);
/// # Ok::<(), bdrun_worker::Error>(())
/// ```
#[track_caller]
pub fn wait_any<T: Pod>(requests: &[RecvRequest<T>]) -> Result<usize> {
    let first = requests
        .first()
        .ok_or(Error::Argument { call: "wait_any", what: "there is no request to wait for".into() })?;
    site::enter();
    let receives: Vec<(&dyn Backend, Ticket)> = requests.iter().map(|r| (&*r.backend, r.ticket)).collect();
    first.backend.wait_any_of(&receives)
}

/// A send that was begun; sends are complete at once, this is for programs written in that style.
#[must_use]
pub struct SendRequest(());

impl SendRequest {
    /// Is the data out of the caller's buffer? Always.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let request = comm.isend(comm.rank(), 16, &[1u8])?;
    /// assert!(request.test());
    /// comm.recv::<u8>(comm.rank(), 16)?;
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn test(&self) -> bool {
        true
    }

    /// Returns at once.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// comm.isend(comm.rank(), 17, &[1u8])?.wait();
    /// comm.recv::<u8>(comm.rank(), 17)?;
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn wait(self) {}
}

pub(crate) fn encode<V: Serialize>(call: &'static str, value: &V) -> Result<Vec<u8>> {
    let why = |error| format!("the value cannot be encoded: {error}");
    bdrun_ipc::wire::encode_value(value).map_err(|error| Error::Encoding { call, what: why(error) })
}

pub(crate) fn decode<V: DeserializeOwned>(call: &'static str, bytes: &[u8]) -> Result<V> {
    let why = |error| format!("what arrived is no value of the Rust type asked for: {error}");
    bdrun_ipc::wire::decode_value(bytes).map_err(|error| Error::Encoding { call, what: why(error) })
}
