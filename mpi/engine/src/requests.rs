//! Requests (MPI-5.0, section 3.7): a program's handles of operations, and how it waits for them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bdrun_mpi_core::error::Class;

use crate::Mpi;
use crate::args::{Handles, IntsOut, Status, Statuses};
use crate::calls::Requests;
use crate::comm::Communicator;
use crate::failure::{Answer, Failure, number};
use crate::groups::UNDEFINED;
use crate::handle::{Datatype, Request as Handle};
use crate::operation::{Done, Operation};

/// Begins the operation of a persistent request once more.
pub type Start = Box<dyn Fn(&Mpi) -> Answer<Arc<Operation>> + Send + Sync>;

/// A request.
pub struct Request {
    /// What was begun; of a persistent one that is not active nothing.
    operation: Mutex<Option<Arc<Operation>>>,
    start: Option<Start>,
    /// It lives as long as its requests.
    _comm: Arc<Communicator>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, persistent: {}", self.operation, self.start.is_some())
    }
}

impl Request {
    fn active(&self) -> Option<Arc<Operation>> {
        self.operation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Mpi {
    /// A handle of an operation.
    pub(crate) fn new_request(&self, comm: Arc<Communicator>, operation: Arc<Operation>) -> Handle {
        let operation = Mutex::new(Some(operation));
        self.requests.add(Arc::new(Request { operation, start: None, _comm: comm }))
    }

    /// A handle of what can be begun again and again.
    pub(crate) fn new_persistent(&self, comm: Arc<Communicator>, start: Start) -> Handle {
        self.requests.add(Arc::new(Request { operation: Mutex::new(None), start: Some(start), _comm: comm }))
    }

    /// The request of a handle; none of `MPI_REQUEST_NULL`.
    fn request(&self, handle: Handle) -> Answer<Option<Arc<Request>>> {
        if handle == Handle::NULL {
            return Ok(None);
        }
        self.requests.get(handle).map(Some).ok_or_else(|| Class::Request.into())
    }

    /// What a program is told of a request that is complete; what its handle is from then on.
    fn finish_request(&self, handle: Handle, request: &Request) -> Handle {
        *request.operation.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if request.start.is_some() {
            return handle;
        }
        self.requests.take(handle);
        Handle::NULL
    }

    /// The requests of a call, one by one.
    ///
    /// # Safety
    /// There are so many handles.
    unsafe fn requests_of(&self, count: i64, handles: &Handles<Handle>) -> Answer<Vec<Waited>> {
        let count = usize::try_from(count).map_err(|_| Class::Count)?;
        if count > 0 && handles.is_null() {
            return Err(Class::Request.into());
        }
        let all = (0..count).map(|at| {
            // SAFETY: the caller's.
            let handle = unsafe { handles.get(at) }?;
            let request = self.request(handle)?;
            let operation = request.as_ref().and_then(|request| request.active());
            Ok(Waited { at, handle, request, operation })
        });
        all.collect()
    }

    /// What is told of one that is complete, which is then finished.
    ///
    /// # Safety
    /// The handle may be written.
    unsafe fn tell_one(
        &self,
        one: &Waited,
        done: Done,
        handles: &Handles<Handle>,
    ) -> (Status, Option<Failure>) {
        if let Some(request) = &one.request {
            let handle = self.finish_request(one.handle, request);
            // SAFETY: the caller's.
            unsafe { handles.set(one.at, handle) };
        }
        (done.status, done.failure)
    }

    /// What is told of several: their statuses with the codes of their errors, if there are any.
    ///
    /// # Safety
    /// There is room for so many statuses.
    unsafe fn tell_all(told: &[(Status, Option<Failure>)], statuses: &Statuses) -> Answer<()> {
        let failed = told.iter().any(|(_, failure)| failure.is_some());
        for (at, (status, failure)) in told.iter().enumerate() {
            let error = failed.then(|| failure.as_ref().map_or(0, |failure| number(failure.code)));
            // SAFETY: the caller's.
            unsafe { statuses.set(at, &Status { error: error.or(status.error), ..*status }) };
        }
        if failed { Err(Class::InStatus.into()) } else { Ok(()) }
    }

    /// Those that are complete now, if all are that are active.
    fn all_done(all: &[Waited]) -> Option<Vec<Done>> {
        all.iter()
            .map(|one| one.operation.as_ref().map_or_else(|| Some(Done::well()), |op| op.look()))
            .collect()
    }

    /// The first that is complete now.
    fn any_done(all: &[Waited]) -> Option<(usize, Done)> {
        all.iter().find_map(|one| Some((one.at, one.operation.as_ref()?.look()?)))
    }

    /// All that are complete now.
    fn some_done(all: &[Waited]) -> Vec<(usize, Done)> {
        all.iter().filter_map(|one| Some((one.at, one.operation.as_ref()?.look()?))).collect()
    }

    /// # Safety
    /// The arrays are as large as was said.
    unsafe fn tell_some(
        &self,
        all: &[Waited],
        done: Vec<(usize, Done)>,
        (handles, indices, statuses): (&Handles<Handle>, IntsOut, &Statuses),
    ) -> Answer<i64> {
        let mut told = vec![];
        for (nth, (at, done)) in done.into_iter().enumerate() {
            // SAFETY: the caller's.
            unsafe {
                indices.set(nth, at as i64);
                told.push(self.tell_one(&all[at], done, handles));
            }
        }
        // SAFETY: the caller's.
        unsafe { Self::tell_all(&told, statuses) }?;
        Ok(told.len() as i64)
    }
}

/// A request that a call was given.
struct Waited {
    at: usize,
    handle: Handle,
    request: Option<Arc<Request>>,
    operation: Option<Arc<Operation>>,
}

fn is_idle(all: &[Waited]) -> bool {
    all.iter().all(|one| one.operation.is_none())
}

impl Requests for Mpi {
    unsafe fn cancel(&self, request: Handle) -> Answer<Handle> {
        let found = self.request(request)?.ok_or(Class::Request)?;
        // A message that was sent has left; only a receive can be taken back.
        if let Some(operation) = found.active() {
            self.progress()?;
            self.take_back(&operation);
        }
        Ok(request)
    }

    unsafe fn request_free(&self, request: Handle) -> Answer<Handle> {
        self.requests.take(request).ok_or(Class::Request)?;
        Ok(Handle::NULL)
    }

    unsafe fn request_get_status(&self, request: Handle) -> Answer<(bool, Status)> {
        let Some(operation) = self.request(request)?.and_then(|request| request.active()) else {
            return Ok((true, Status::EMPTY));
        };
        self.progress()?;
        let done = operation.look();
        Ok((done.is_some(), done.map_or(Status::EMPTY, |done| done.status)))
    }

    unsafe fn request_get_status_all(
        &self,
        count: i64,
        requests: Handles<Handle>,
        statuses: Statuses,
    ) -> Answer<bool> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        self.progress()?;
        let Some(done) = Self::all_done(&all) else { return Ok(false) };
        let told: Vec<_> = done.into_iter().map(|done| (done.status, done.failure)).collect();
        // SAFETY: the caller's.
        unsafe { Self::tell_all(&told, &statuses) }?;
        Ok(true)
    }

    unsafe fn request_get_status_any(
        &self,
        count: i64,
        requests: Handles<Handle>,
    ) -> Answer<(i64, bool, Status)> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok((UNDEFINED, true, Status::EMPTY));
        }
        self.progress()?;
        Ok(match Self::any_done(&all) {
            Some((at, done)) => (at as i64, true, done.status),
            None => (UNDEFINED, false, Status::EMPTY),
        })
    }

    unsafe fn request_get_status_some(
        &self,
        count: i64,
        requests: Handles<Handle>,
        indices: IntsOut,
        statuses: Statuses,
    ) -> Answer<i64> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok(UNDEFINED);
        }
        self.progress()?;
        let mut told = vec![];
        for (nth, (at, done)) in Self::some_done(&all).into_iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { indices.set(nth, at as i64) };
            told.push((done.status, done.failure));
        }
        // SAFETY: the caller's.
        unsafe { Self::tell_all(&told, &statuses) }?;
        Ok(told.len() as i64)
    }

    unsafe fn start(&self, request: Handle) -> Answer<Handle> {
        let found = self.request(request)?.ok_or(Class::Request)?;
        let start = found.start.as_ref().ok_or(Class::Request)?;
        if found.active().is_some() {
            return Err(Class::Request.into());
        }
        let operation = start(self)?;
        *found.operation.lock().unwrap_or_else(PoisonError::into_inner) = Some(operation);
        Ok(request)
    }

    unsafe fn startall(&self, count: i64, requests: Handles<Handle>) -> Answer<()> {
        let count = usize::try_from(count).map_err(|_| Class::Count)?;
        if count > 0 && requests.is_null() {
            return Err(Class::Request.into());
        }
        for at in 0..count {
            // SAFETY: the caller's.
            unsafe { self.start(requests.get(at)?) }?;
        }
        Ok(())
    }

    unsafe fn status_get_error(&self, status: Status) -> Answer<i64> {
        Ok(status.error.unwrap_or(0))
    }

    unsafe fn status_get_source(&self, status: Status) -> Answer<i64> {
        Ok(status.source)
    }

    unsafe fn status_get_tag(&self, status: Status) -> Answer<i64> {
        Ok(status.tag)
    }

    unsafe fn status_set_cancelled(&self, status: Status, flag: bool) -> Answer<Status> {
        Ok(Status { cancelled: flag, ..status })
    }

    unsafe fn status_set_elements(&self, status: Status, datatype: Datatype, count: i64) -> Answer<Status> {
        if count < 0 {
            return Err(Class::Count.into());
        }
        let count = self.tree(datatype)?.bytes_of(count).ok_or(Class::ValueTooLarge)?;
        Ok(Status { count, ..status })
    }

    unsafe fn status_set_elements_x(&self, status: Status, datatype: Datatype, count: i64) -> Answer<Status> {
        // SAFETY: the same.
        unsafe { self.status_set_elements(status, datatype, count) }
    }

    unsafe fn status_set_error(&self, status: Status, error: i64) -> Answer<Status> {
        Ok(Status { error: Some(error), ..status })
    }

    unsafe fn status_set_source(&self, status: Status, source: i64) -> Answer<Status> {
        Ok(Status { source, ..status })
    }

    unsafe fn status_set_tag(&self, status: Status, tag: i64) -> Answer<Status> {
        Ok(Status { tag, ..status })
    }

    unsafe fn test(&self, request: Handle) -> Answer<(Handle, bool, Status)> {
        let Some(found) = self.request(request)? else { return Ok((request, true, Status::EMPTY)) };
        let Some(operation) = found.active() else { return Ok((request, true, Status::EMPTY)) };
        self.progress()?;
        let Some(Done { status, failure }) = operation.look() else {
            return Ok((request, false, Status::EMPTY));
        };
        let handle = self.finish_request(request, &found);
        failure.map_or(Ok((handle, true, status)), Err)
    }

    unsafe fn test_cancelled(&self, status: Status) -> Answer<bool> {
        Ok(status.cancelled)
    }

    unsafe fn testall(&self, count: i64, requests: Handles<Handle>, statuses: Statuses) -> Answer<bool> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        self.progress()?;
        let Some(done) = Self::all_done(&all) else { return Ok(false) };
        // SAFETY: the caller's.
        let told: Vec<_> =
            all.iter().zip(done).map(|(one, done)| unsafe { self.tell_one(one, done, &requests) }).collect();
        // SAFETY: the caller's.
        unsafe { Self::tell_all(&told, &statuses) }?;
        Ok(true)
    }

    unsafe fn testany(&self, count: i64, requests: Handles<Handle>) -> Answer<(i64, bool, Status)> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok((UNDEFINED, true, Status::EMPTY));
        }
        self.progress()?;
        let Some((at, done)) = Self::any_done(&all) else { return Ok((UNDEFINED, false, Status::EMPTY)) };
        // SAFETY: the caller's.
        let (status, failure) = unsafe { self.tell_one(&all[at], done, &requests) };
        failure.map_or(Ok((at as i64, true, status)), Err)
    }

    unsafe fn testsome(
        &self,
        count: i64,
        requests: Handles<Handle>,
        indices: IntsOut,
        statuses: Statuses,
    ) -> Answer<i64> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok(UNDEFINED);
        }
        self.progress()?;
        let done = Self::some_done(&all);
        // SAFETY: the caller's.
        unsafe { self.tell_some(&all, done, (&requests, indices, &statuses)) }
    }

    unsafe fn wait(&self, request: Handle) -> Answer<(Handle, Status)> {
        let Some(found) = self.request(request)? else { return Ok((request, Status::EMPTY)) };
        let Some(operation) = found.active() else { return Ok((request, Status::EMPTY)) };
        let Done { status, failure } = self.wait_operation(&operation)?;
        let handle = self.finish_request(request, &found);
        failure.map_or(Ok((handle, status)), Err)
    }

    unsafe fn waitall(&self, count: i64, requests: Handles<Handle>, statuses: Statuses) -> Answer<()> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        let done = if is_idle(&all) {
            all.iter().map(|_| Done::well()).collect()
        } else {
            self.wait_for(|| Ok(Self::all_done(&all)))?
        };
        // SAFETY: the caller's.
        let told: Vec<_> =
            all.iter().zip(done).map(|(one, done)| unsafe { self.tell_one(one, done, &requests) }).collect();
        // SAFETY: the caller's.
        unsafe { Self::tell_all(&told, &statuses) }
    }

    unsafe fn waitany(&self, count: i64, requests: Handles<Handle>) -> Answer<(i64, Status)> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok((UNDEFINED, Status::EMPTY));
        }
        let (at, done) = self.wait_for(|| Ok(Self::any_done(&all)))?;
        // SAFETY: the caller's.
        let (status, failure) = unsafe { self.tell_one(&all[at], done, &requests) };
        failure.map_or(Ok((at as i64, status)), Err)
    }

    unsafe fn waitsome(
        &self,
        count: i64,
        requests: Handles<Handle>,
        indices: IntsOut,
        statuses: Statuses,
    ) -> Answer<i64> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok(UNDEFINED);
        }
        let done = self.wait_for(|| Ok(Some(Self::some_done(&all)).filter(|done| !done.is_empty())))?;
        // SAFETY: the caller's.
        unsafe { self.tell_some(&all, done, (&requests, indices, &statuses)) }
    }
}
