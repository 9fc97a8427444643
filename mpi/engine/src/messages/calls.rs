//! The calls of point-to-point communication: what is checked before anything is done.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Process;

use super::{FROM_NOBODY, MOST_TAG};
use crate::Mpi;
use crate::args::{Buffer, Status};
use crate::calls::Messages;
use crate::comm::Communicator;
use crate::datatypes::memory::Span;
use crate::failure::{Answer, Told};
use crate::handle::{Comm, Datatype, Message, Request, Session};
use crate::operation::{Done, Operation, Waits};

/// How a message is sent. A ready one is sent like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Standard,
    Synchronous,
    Buffered,
}

/// A message to be sent, all of it checked but the buffer that is attached.
#[derive(Debug, Clone)]
struct Sending {
    comm: Arc<Communicator>,
    to: (Option<(Process, u32)>, i32),
    span: Span,
    how: How,
}

// SAFETY: a persistent request is started by whichever thread the program likes; it says that the buffer is
// there then.
unsafe impl Send for Sending {}
// SAFETY: as above.
unsafe impl Sync for Sending {}

/// A receive to be posted, all of it checked.
#[derive(Debug, Clone)]
struct Receiving {
    comm: Arc<Communicator>,
    source: i64,
    tag: i64,
    span: Span,
}

// SAFETY: as of `Sending`.
unsafe impl Send for Receiving {}
// SAFETY: as of `Sending`.
unsafe impl Sync for Receiving {}

impl Mpi {
    fn sending(
        &self,
        (buf, count, datatype): (Buffer, i64, Datatype),
        (dest, tag, comm): (i64, i64, Comm),
        how: How,
    ) -> Answer<Sending> {
        let comm = self.comm(comm)?;
        let span = self.span(buf, count, datatype)?;
        if !(0..=MOST_TAG).contains(&tag) {
            return Err(Class::Tag.into());
        }
        let to = (Self::peer(&comm, dest)?, tag as i32);
        Ok(Sending { comm, to, span, how })
    }

    /// Whether a message fits the buffer that is attached for it now: a persistent one needs none before it
    /// is started (MPI-5.0, section 3.9).
    fn fits_buffer(&self, what: &Sending) -> Answer<()> {
        let automatic = self.face().automatic;
        // Of the communicator, else of the session that it comes from, else of the process (section 3.6).
        let of_session = || self.session_of(&what.comm.group)?.buffers.size(automatic);
        let own = what.comm.buffers.size(automatic).or_else(of_session);
        let size = own.or_else(|| self.buffers.size(automatic));
        let room = size.ok_or(Class::Buffer)?.saturating_sub(self.face().limits.bsend_overhead);
        if room < what.span.bytes() as i64 { Err(Class::Buffer.into()) } else { Ok(()) }
    }

    /// # Safety
    /// The memory is what the program said it is, and nobody writes it meanwhile.
    unsafe fn begin_send(&self, what: &Sending) -> Answer<Arc<Operation>> {
        if what.how == How::Buffered && what.to.0.is_some() {
            self.fits_buffer(what)?;
        }
        // SAFETY: the caller's.
        unsafe { self.send_span(&what.comm, what.to, &what.span, what.how == How::Synchronous) }
    }

    /// # Safety
    /// As of [`begin_send`](Self::begin_send).
    unsafe fn send_all(&self, what: &Sending) -> Answer<()> {
        // SAFETY: the caller's.
        let operation = unsafe { self.begin_send(what) }?;
        self.wait_operation(&operation).map(drop)
    }

    fn receiving(
        &self,
        (buf, count, datatype): (Buffer, i64, Datatype),
        (source, tag, comm): (i64, i64, Comm),
    ) -> Answer<Receiving> {
        let comm = self.comm(comm)?;
        let span = self.span(buf, count, datatype)?;
        Self::want(&comm, source, tag)?;
        Ok(Receiving { comm, source, tag, span })
    }

    fn begin_receive(&self, what: &Receiving) -> Answer<Arc<Operation>> {
        let want = Self::want(&what.comm, what.source, what.tag)?;
        self.post(&what.comm, want, what.span.clone())
    }

    /// What became of an operation, once it is complete.
    fn result(&self, operation: &Operation) -> Answer<Told<Status>> {
        let Done { status, failure } = self.wait_operation(operation)?;
        Ok(Told { given: status, failure })
    }

    /// A receive of a message that was claimed.
    fn receive_claimed(&self, span: Span, message: Message) -> Answer<Arc<Operation>> {
        if message == Message::NO_PROC {
            return Ok(Operation::complete(Done { status: FROM_NOBODY, failure: None }));
        }
        let claimed = self.claimed.take(message).ok_or(Class::Request)?;
        let claimed = claimed.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(Class::Request)?;
        Ok(self.deliver_claimed(span, claimed))
    }

    /// Sends what a span holds, then receives into it.
    ///
    /// # Safety
    /// The memory is what the program said it is, and nobody else uses it meanwhile.
    unsafe fn exchange(&self, send: &Sending, receive: &Receiving) -> Answer<Arc<Operation>> {
        // SAFETY: the caller's. A message is copied when it is sent, so that its place may be received into.
        let sent = unsafe { self.begin_send(send) }?;
        let received = self.begin_receive(receive)?;
        Ok(Operation::begun(Waits::All(vec![sent, received])))
    }
}

impl Messages for Mpi {
    unsafe fn send(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<()> {
        // SAFETY: the caller's.
        if let Some(sent) = unsafe { self.send_shortly((buf, count, datatype), (dest, tag, comm)) } {
            return sent;
        }
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Standard)?;
        // SAFETY: the caller's.
        unsafe { self.send_all(&what) }
    }

    unsafe fn isend(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Standard)?;
        // SAFETY: the caller's.
        let operation = unsafe { self.begin_send(&what) }?;
        Ok(self.new_request(what.comm, operation))
    }

    unsafe fn send_init(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Standard)?;
        let comm = what.comm.clone();
        // SAFETY: the program's: when it starts the request the buffer is there.
        let start = move |mpi: &Mpi| unsafe { mpi.begin_send(&what) };
        Ok(self.new_persistent(comm, Box::new(start)))
    }

    unsafe fn bsend(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<()> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Buffered)?;
        // SAFETY: the caller's.
        unsafe { self.send_all(&what) }
    }

    unsafe fn ibsend(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Buffered)?;
        // SAFETY: the caller's.
        let operation = unsafe { self.begin_send(&what) }?;
        Ok(self.new_request(what.comm, operation))
    }

    unsafe fn bsend_init(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Buffered)?;
        let comm = what.comm.clone();
        // SAFETY: the program's: when it starts the request the buffer is there.
        let start = move |mpi: &Mpi| unsafe { mpi.begin_send(&what) };
        Ok(self.new_persistent(comm, Box::new(start)))
    }

    unsafe fn ssend(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<()> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Synchronous)?;
        // SAFETY: the caller's.
        unsafe { self.send_all(&what) }
    }

    unsafe fn issend(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Synchronous)?;
        // SAFETY: the caller's.
        let operation = unsafe { self.begin_send(&what) }?;
        Ok(self.new_request(what.comm, operation))
    }

    unsafe fn ssend_init(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Synchronous)?;
        let comm = what.comm.clone();
        // SAFETY: the program's: when it starts the request the buffer is there.
        let start = move |mpi: &Mpi| unsafe { mpi.begin_send(&what) };
        Ok(self.new_persistent(comm, Box::new(start)))
    }

    unsafe fn rsend(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<()> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Standard)?;
        // SAFETY: the caller's.
        unsafe { self.send_all(&what) }
    }

    unsafe fn irsend(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Standard)?;
        // SAFETY: the caller's.
        let operation = unsafe { self.begin_send(&what) }?;
        Ok(self.new_request(what.comm, operation))
    }

    unsafe fn rsend_init(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.sending((buf, count, datatype), (dest, tag, comm), How::Standard)?;
        let comm = what.comm.clone();
        // SAFETY: the program's: when it starts the request the buffer is there.
        let start = move |mpi: &Mpi| unsafe { mpi.begin_send(&what) };
        Ok(self.new_persistent(comm, Box::new(start)))
    }

    unsafe fn recv(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        source: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Told<Status>> {
        // SAFETY: the caller's.
        if let Some(received) = unsafe { self.receive_shortly((buf, count, datatype), (source, tag, comm)) } {
            return received;
        }
        let operation = self.begin_receive(&self.receiving((buf, count, datatype), (source, tag, comm))?)?;
        self.result(&operation)
    }

    unsafe fn irecv(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        source: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.receiving((buf, count, datatype), (source, tag, comm))?;
        let operation = self.begin_receive(&what)?;
        Ok(self.new_request(what.comm, operation))
    }

    unsafe fn recv_init(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        source: i64,
        tag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let what = self.receiving((buf, count, datatype), (source, tag, comm))?;
        let comm = what.comm.clone();
        Ok(self.new_persistent(comm, Box::new(move |mpi: &Mpi| mpi.begin_receive(&what))))
    }

    unsafe fn probe(&self, source: i64, tag: i64, comm: Comm) -> Answer<Status> {
        let comm = self.comm(comm)?;
        let Some(want) = Self::want(&comm, source, tag)? else { return Ok(FROM_NOBODY) };
        self.wait_for(
            || self.probe_now(&comm, want),
            |link, limits| Self::wait_message(&comm, want, link, limits),
        )
    }

    unsafe fn iprobe(&self, source: i64, tag: i64, comm: Comm) -> Answer<(bool, Status)> {
        let comm = self.comm(comm)?;
        let Some(want) = Self::want(&comm, source, tag)? else { return Ok((true, FROM_NOBODY)) };
        let found = self.look_for(|| self.probe_now(&comm, want).transpose())?.transpose()?;
        Ok((found.is_some(), found.unwrap_or(Status::EMPTY)))
    }

    unsafe fn mprobe(&self, source: i64, tag: i64, comm: Comm) -> Answer<(Message, Status)> {
        let comm = self.comm(comm)?;
        let Some(want) = Self::want(&comm, source, tag)? else { return Ok((Message::NO_PROC, FROM_NOBODY)) };
        let claimed = self.wait_for(
            || self.claim_now(&comm, want),
            |link, limits| Self::wait_message(&comm, want, link, limits),
        )?;
        let status = claimed.status();
        Ok((self.claimed.add(Arc::new(Mutex::new(Some(claimed)))), status))
    }

    unsafe fn improbe(&self, source: i64, tag: i64, comm: Comm) -> Answer<(bool, Message, Status)> {
        let comm = self.comm(comm)?;
        let Some(want) = Self::want(&comm, source, tag)? else {
            return Ok((true, Message::NO_PROC, FROM_NOBODY));
        };
        Ok(match self.look_for(|| self.claim_now(&comm, want).transpose())?.transpose()? {
            None => (false, Message::NULL, Status::EMPTY),
            Some(claimed) => {
                let status = claimed.status();
                (true, self.claimed.add(Arc::new(Mutex::new(Some(claimed)))), status)
            }
        })
    }

    unsafe fn mrecv(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        message: Message,
    ) -> Answer<Told<(Message, Status)>> {
        let comm = self.comm_of_claimed(message)?;
        let of_comm = |failure| self.of_comm(&comm, failure);
        let span = self.span(buf, count, datatype).map_err(of_comm)?;
        let operation = self.receive_claimed(span, message)?;
        // The message is received, also if it was longer than there is room.
        let Done { status, failure } = self.wait_operation(&operation)?;
        Ok(Told { given: (Message::NULL, status), failure: failure.map(of_comm) })
    }

    unsafe fn imrecv(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        message: Message,
    ) -> Answer<(Message, Request)> {
        let comm = self.comm_of_claimed(message)?;
        let of_comm = |failure| self.of_comm(&comm, failure);
        let span = self.span(buf, count, datatype).map_err(of_comm)?;
        let operation = self.receive_claimed(span, message)?;
        Ok((Message::NULL, self.new_request(comm, operation)))
    }

    unsafe fn sendrecv(
        &self,
        sendbuf: Buffer,
        sendcount: i64,
        sendtype: Datatype,
        dest: i64,
        sendtag: i64,
        recvbuf: Buffer,
        recvcount: i64,
        recvtype: Datatype,
        source: i64,
        recvtag: i64,
        comm: Comm,
    ) -> Answer<Told<Status>> {
        let send = self.sending((sendbuf, sendcount, sendtype), (dest, sendtag, comm), How::Standard)?;
        let receive = self.receiving((recvbuf, recvcount, recvtype), (source, recvtag, comm))?;
        // SAFETY: the caller's.
        let operation = unsafe { self.exchange(&send, &receive) }?;
        self.result(&operation)
    }

    unsafe fn isendrecv(
        &self,
        sendbuf: Buffer,
        sendcount: i64,
        sendtype: Datatype,
        dest: i64,
        sendtag: i64,
        recvbuf: Buffer,
        recvcount: i64,
        recvtype: Datatype,
        source: i64,
        recvtag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let send = self.sending((sendbuf, sendcount, sendtype), (dest, sendtag, comm), How::Standard)?;
        let receive = self.receiving((recvbuf, recvcount, recvtype), (source, recvtag, comm))?;
        // SAFETY: the caller's.
        let operation = unsafe { self.exchange(&send, &receive) }?;
        Ok(self.new_request(send.comm, operation))
    }

    unsafe fn sendrecv_replace(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        sendtag: i64,
        source: i64,
        recvtag: i64,
        comm: Comm,
    ) -> Answer<Told<Status>> {
        let send = self.sending((buf, count, datatype), (dest, sendtag, comm), How::Standard)?;
        let receive = self.receiving((buf, count, datatype), (source, recvtag, comm))?;
        // SAFETY: the caller's.
        let operation = unsafe { self.exchange(&send, &receive) }?;
        self.result(&operation)
    }

    unsafe fn isendrecv_replace(
        &self,
        buf: Buffer,
        count: i64,
        datatype: Datatype,
        dest: i64,
        sendtag: i64,
        source: i64,
        recvtag: i64,
        comm: Comm,
    ) -> Answer<Request> {
        let send = self.sending((buf, count, datatype), (dest, sendtag, comm), How::Standard)?;
        let receive = self.receiving((buf, count, datatype), (source, recvtag, comm))?;
        // SAFETY: the caller's.
        let operation = unsafe { self.exchange(&send, &receive) }?;
        Ok(self.new_request(send.comm, operation))
    }

    unsafe fn buffer_attach(&self, buffer: *mut c_void, size: i64) -> Answer<()> {
        self.buffers.attach(buffer, size)
    }

    unsafe fn buffer_detach(&self, to: *mut c_void) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { self.buffers.detach(to) }
    }

    unsafe fn buffer_flush(&self) -> Answer<()> {
        // Nothing lies there.
        self.progress()
    }

    unsafe fn buffer_iflush(&self) -> Answer<Request> {
        self.new_complete()
    }

    unsafe fn comm_attach_buffer(&self, comm: Comm, buffer: *mut c_void, size: i64) -> Answer<()> {
        self.comm(comm)?.buffers.attach(buffer, size)
    }

    unsafe fn comm_detach_buffer(&self, comm: Comm, to: *mut c_void) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { self.comm(comm)?.buffers.detach(to) }
    }

    unsafe fn comm_flush_buffer(&self, comm: Comm) -> Answer<()> {
        self.comm(comm)?;
        // Nothing lies there.
        self.progress()
    }

    unsafe fn comm_iflush_buffer(&self, comm: Comm) -> Answer<Request> {
        Ok(self.new_request(self.comm(comm)?, Operation::complete(Done::well())))
    }

    unsafe fn session_attach_buffer(&self, session: Session, buffer: *mut c_void, size: i64) -> Answer<()> {
        self.session(session)?.buffers.attach(buffer, size)
    }

    unsafe fn session_detach_buffer(&self, session: Session, to: *mut c_void) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { self.session(session)?.buffers.detach(to) }
    }

    unsafe fn session_flush_buffer(&self, session: Session) -> Answer<()> {
        self.session(session)?;
        // Nothing lies there.
        self.progress()
    }

    unsafe fn session_iflush_buffer(&self, session: Session) -> Answer<Request> {
        self.session(session)?;
        self.new_complete()
    }
}
