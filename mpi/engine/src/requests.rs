//! Requests (MPI-5.0, section 3.7): a program's handles of operations, and how it waits for them.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use bdrun_mpi_core::error::Class;

use crate::Mpi;
use crate::args::{Handles, IntsOut, Status, Statuses};
use crate::asleep;
use crate::calls::Requests;
use crate::comm::Communicator;
use crate::failure::{Answer, Failure, Told, number};
use crate::general::General;
use crate::groups::UNDEFINED;
use crate::handle::{Datatype, Request as Handle};
use crate::link::{Awaited, Limits, Link};
use crate::operation::{A_WHILE, Done, Operation, Waits};
use crate::partitioned::Parts;

/// Begins the operation of a persistent request once more.
pub type Start = Box<dyn Fn(&Mpi) -> Answer<Arc<Operation>> + Send + Sync>;

/// A request.
pub struct Request {
    /// What was begun; of a persistent one that is not active nothing.
    operation: Mutex<Option<Arc<Operation>>>,
    start: Option<Start>,
    /// What the program does for it.
    general: Option<General>,
    /// Its parts, if each is sent or received by itself.
    parts: Option<Arc<Parts>>,
    /// Of which it is: it lives as long as its requests, and is told what fails.
    comm: Option<Arc<Communicator>>,
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
        let (start, general, parts) = (None, None, None);
        self.requests.add(Arc::new(Request { operation, start, general, parts, comm: Some(comm) }))
    }

    /// A handle of what is complete, and of no communicator.
    pub(crate) fn new_complete(&self) -> Answer<Handle> {
        self.link()?;
        let operation = Mutex::new(Some(Operation::complete(Done::well())));
        let (start, general, parts, comm) = (None, None, None, None);
        Ok(self.requests.add(Arc::new(Request { operation, start, general, parts, comm })))
    }

    /// A handle of what can be begun again and again.
    pub(crate) fn new_persistent(&self, comm: Arc<Communicator>, start: Start) -> Handle {
        let (operation, start, general, parts) = (Mutex::new(None), Some(start), None, None);
        self.requests.add(Arc::new(Request { operation, start, general, parts, comm: Some(comm) }))
    }

    /// The same, of what is begun in parts.
    pub(crate) fn new_parts(
        &self,
        comm: Arc<Communicator>,
        parts: Arc<Parts>,
        start: fn(&Self, &Arc<Parts>) -> Answer<Arc<Operation>>,
    ) -> Handle {
        let begun = parts.clone();
        let start: Option<Start> = Some(Box::new(move |mpi| start(mpi, &begun)));
        let (operation, general, parts) = (Mutex::new(None), None, Some(parts));
        self.requests.add(Arc::new(Request { operation, start, general, parts, comm: Some(comm) }))
    }

    /// The parts of a request, if it has any.
    pub(crate) fn parts_of_request(&self, handle: Handle) -> Answer<Option<Arc<Parts>>> {
        Ok(self.request(handle)?.ok_or(Class::Request)?.parts.clone())
    }

    /// Whether it was started, and a program was not told yet that it is complete.
    pub(crate) fn is_active(&self, handle: Handle) -> Answer<bool> {
        Ok(self.request(handle)?.is_some_and(|request| request.active().is_some()))
    }

    /// The request of a handle; none of `MPI_REQUEST_NULL`.
    fn request(&self, handle: Handle) -> Answer<Option<Arc<Request>>> {
        if handle == Handle::NULL {
            return Ok(None);
        }
        self.requests.get(handle).map(Some).ok_or_else(|| Class::Request.into())
    }

    /// A failure of a request: whose error handler is told.
    fn of_request(&self, request: &Request, failure: Failure) -> Failure {
        match &request.comm {
            Some(comm) => self.of_comm(comm, failure),
            None => failure,
        }
    }

    /// What is told of a request that is complete.
    ///
    /// # Safety
    /// The functions of a generalized one are such.
    unsafe fn told_of(&self, request: &Request, done: Done) -> Done {
        match &request.general {
            // SAFETY: the caller's.
            Some(general) => unsafe { general.query(self.face()) },
            None => done,
        }
    }

    /// A program has been told of a request that is complete: what its handle is from then on, and why that
    /// failed.
    ///
    /// # Safety
    /// The functions of a generalized one are such.
    unsafe fn finish_request(&self, handle: Handle, request: &Request) -> (Handle, Option<Failure>) {
        *request.operation.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if request.start.is_some() {
            return (handle, None);
        }
        self.requests.take(handle);
        // SAFETY: the caller's.
        let failure = request.general.as_ref().and_then(|general| unsafe { general.free(self.face()) }.err());
        (Handle::NULL, failure)
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

    /// The only one of a call.
    ///
    /// # Safety
    /// There is one.
    unsafe fn one_of(&self, handle: &Handles<Handle>) -> Answer<Waited> {
        // SAFETY: the caller's.
        unsafe { self.requests_of(1, handle) }?.pop().ok_or_else(|| Class::Internal.into())
    }

    /// What is told of one that is complete, which is then finished.
    ///
    /// # Safety
    /// The handle may be written; functions of the program are such.
    unsafe fn tell_one(
        &self,
        one: &Waited,
        done: Done,
        handles: &Handles<Handle>,
    ) -> (Status, Option<Failure>) {
        let Some(request) = &one.request else { return (done.status, done.failure) };
        // SAFETY: the caller's.
        unsafe {
            let Done { status, failure } = self.told_of(request, done);
            let (handle, freed) = self.finish_request(one.handle, request);
            handles.set(one.at, handle);
            (status, failure.or(freed).map(|failure| self.of_request(request, failure)))
        }
    }

    /// What is told of one that is complete, which stays.
    ///
    /// # Safety
    /// Functions of the program are such.
    unsafe fn look_at(&self, request: &Request, done: Done) -> (Status, Option<Failure>) {
        // SAFETY: the caller's.
        let Done { status, failure } = unsafe { self.told_of(request, done) };
        (status, failure.map(|failure| self.of_request(request, failure)))
    }

    /// The same of one of a call.
    ///
    /// # Safety
    /// Functions of the program are such.
    unsafe fn look_at_one(&self, one: &Waited, done: Done) -> (Status, Option<Failure>) {
        let Some(request) = &one.request else { return (done.status, done.failure) };
        // SAFETY: the caller's.
        unsafe { self.look_at(request, done) }
    }

    /// What is told of several: their statuses with the codes of their errors, if there are any. The handler
    /// of the first that has failed is told.
    ///
    /// # Safety
    /// There is room for so many statuses.
    unsafe fn tell_all(told: &[(Status, Option<Failure>)], statuses: &Statuses) -> Option<Failure> {
        let first = told.iter().find_map(|(_, failure)| failure.as_ref());
        let failed = first.is_some();
        for (at, (status, failure)) in told.iter().enumerate() {
            let error = failed.then(|| failure.as_ref().map_or(0, |failure| number(failure.code)));
            // SAFETY: the caller's.
            unsafe { statuses.set(at, &Status { error: error.or(status.error), ..*status }) };
        }
        first.map(|first| Failure { on: first.on, freed: first.freed.clone(), ..Class::InStatus.into() })
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

    /// All that are complete now, if any are.
    fn some_done(all: &[Waited]) -> Option<Vec<(usize, Done)>> {
        let done = all.iter().filter_map(|one| Some((one.at, one.operation.as_ref()?.look()?))).collect();
        Some(done).filter(|done: &Vec<_>| !done.is_empty())
    }

    /// # Safety
    /// The arrays are as large as was said.
    unsafe fn tell_some(
        &self,
        all: &[Waited],
        done: Vec<(usize, Done)>,
        (handles, indices, statuses): (&Handles<Handle>, IntsOut, &Statuses),
    ) -> Told<i64> {
        let mut told = vec![];
        for (nth, (at, done)) in done.into_iter().enumerate() {
            // SAFETY: the caller's.
            unsafe {
                indices.set(nth, at as i64);
                told.push(self.tell_one(&all[at], done, handles));
            }
        }
        // SAFETY: the caller's.
        let failure = unsafe { Self::tell_all(&told, statuses) };
        Told { given: told.len() as i64, failure }
    }
}

/// A request that a call was given.
struct Waited {
    at: usize,
    handle: Handle,
    request: Option<Arc<Request>>,
    operation: Option<Arc<Operation>>,
}

impl Waited {
    /// Whether there is nothing to wait for.
    fn is_done(&self) -> bool {
        self.operation.as_ref().is_none_or(|operation| operation.look().is_some())
    }
}

fn is_idle(all: &[Waited]) -> bool {
    all.iter().all(|one| one.operation.is_none())
}

/// Waits for one after the other: all are wanted.
fn wait_first(all: &[Waited], link: &dyn Link, limits: Limits<'_>) {
    let mut active = all.iter().filter_map(|one| one.operation.as_ref());
    if let Some(first) = active.find(|operation| operation.look().is_none()) {
        first.wait(link, limits);
    }
}

fn wait_any(all: &[Waited], link: &dyn Link, limits: Limits<'_>) {
    let is_general = |one: &Waited| one.request.as_ref().is_some_and(|request| request.general.is_some());
    // Another thread may be about to do what such a one stands for, whatever is promised of threads.
    let is_done_by_another =
        !asleep::is_alone() && all.iter().any(|one| one.operation.is_some() && is_general(one));
    let limits = match limits.at_most {
        None if is_done_by_another => Limits { at_most: Some(A_WHILE), beside: true, ..limits },
        _ => limits,
    };
    let mut active = all.iter().filter_map(|one| one.operation.as_ref());
    match (active.next(), active.next()) {
        (Some(only), None) => only.wait(link, limits),
        _ => link.wait(Awaited::Anything, limits),
    }
}

impl Requests for Mpi {
    unsafe fn grequest_complete(&self, request: Handle) -> Answer<()> {
        let found = self.request(request)?.ok_or(Class::Request)?;
        let general = found.general.as_ref().ok_or(Class::Request)?;
        if let Some(operation) = found.active() {
            operation.finish(Done::well());
            self.tell_threads();
        }
        if general.is_freed.load(SeqCst) && !general.has_ended.swap(true, SeqCst) {
            // SAFETY: the caller's: functions of the program are such.
            return unsafe { self.finish_request(request, &found) }.1.map_or(Ok(()), Err);
        }
        Ok(())
    }

    unsafe fn grequest_start(
        &self,
        query_fn: *mut c_void,
        free_fn: *mut c_void,
        cancel_fn: *mut c_void,
        extra_state: *mut c_void,
    ) -> Answer<Handle> {
        self.goes_on()?;
        let general = General {
            query: query_fn as usize,
            free: free_fn as usize,
            cancel: cancel_fn as usize,
            state: extra_state as usize,
            is_freed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        };
        let operation = Mutex::new(Some(Operation::begun(Waits::Word)));
        Ok(self.requests.add(Arc::new(Request {
            operation,
            start: None,
            general: Some(general),
            parts: None,
            comm: None,
        })))
    }

    unsafe fn cancel(&self, request: Handle) -> Answer<Handle> {
        let found = self.request(request)?.ok_or(Class::Request)?;
        if let Some(operation) = found.active() {
            self.progress()?;
            if let Some(general) = &found.general {
                // SAFETY: the caller's: functions of the program are such.
                unsafe { general.cancel(self.face(), operation.look().is_some()) }?;
            }
            // Of messages in parts nothing can be taken back (MPI-5.0, chapter 4).
            if found.parts.is_none() {
                self.take_back(&operation)?;
            }
        }
        Ok(request)
    }

    unsafe fn request_free(&self, request: Handle) -> Answer<Told<Handle>> {
        let found = self.request(request)?.ok_or(Class::Request)?;
        if let Some(general) = &found.general {
            // It goes when the program says that it is complete, which another thread may do now. That one
            // completes it and then looks whether it is freed: one of both sees both, or both do.
            general.is_freed.store(true, SeqCst);
            let is_complete = found.active().is_none_or(|operation| operation.look().is_some());
            if !is_complete || general.has_ended.swap(true, SeqCst) {
                return Ok(Told::well(Handle::NULL));
            }
        }
        // SAFETY: the caller's: functions of the program are such.
        let (_, failure) = unsafe { self.finish_request(request, &found) };
        // One that is not persistent is gone already, and its place may be another thread's.
        if found.start.is_some() {
            self.requests.take(request);
        }
        // It is gone also if the program's function has failed.
        Ok(Told { given: Handle::NULL, failure })
    }

    unsafe fn request_get_status(&self, request: Handle) -> Answer<Told<(bool, Status)>> {
        let nothing = |flag| Ok(Told::well((flag, Status::EMPTY)));
        let Some(found) = self.request(request)? else { return nothing(true) };
        let Some(operation) = found.active() else { return nothing(true) };
        let Some(done) = self.look_for(|| operation.look())? else { return nothing(false) };
        // SAFETY: the caller's: functions of the program are such.
        let (status, failure) = unsafe { self.look_at(&found, done) };
        Ok(Told { given: (true, status), failure })
    }

    unsafe fn request_get_status_all(
        &self,
        count: i64,
        requests: Handles<Handle>,
        statuses: Statuses,
    ) -> Answer<Told<bool>> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        let Some(done) = self.look_for(|| Self::all_done(&all))? else { return Ok(Told::well(false)) };
        let told = all
            .iter()
            .zip(done)
            // SAFETY: the caller's: functions of the program are such.
            .map(|(one, done)| unsafe { self.look_at_one(one, done) })
            .collect::<Vec<_>>();
        // SAFETY: the caller's.
        let failure = unsafe { Self::tell_all(&told, &statuses) };
        Ok(Told { given: true, failure })
    }

    unsafe fn request_get_status_any(
        &self,
        count: i64,
        requests: Handles<Handle>,
    ) -> Answer<Told<(i64, bool, Status)>> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok(Told::well((UNDEFINED, true, Status::EMPTY)));
        }
        let Some((at, done)) = self.look_for(|| Self::any_done(&all))? else {
            return Ok(Told::well((UNDEFINED, false, Status::EMPTY)));
        };
        // SAFETY: the caller's: functions of the program are such.
        let (status, failure) = unsafe { self.look_at_one(&all[at], done) };
        Ok(Told { given: (at as i64, true, status), failure })
    }

    unsafe fn request_get_status_some(
        &self,
        count: i64,
        requests: Handles<Handle>,
        indices: IntsOut,
        statuses: Statuses,
    ) -> Answer<Told<i64>> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok(Told::well(UNDEFINED));
        }
        let (mut told, done) = (vec![], self.look_for(|| Self::some_done(&all))?.unwrap_or_default());
        for (nth, (at, done)) in done.into_iter().enumerate() {
            // SAFETY: the caller's.
            unsafe {
                indices.set(nth, at as i64);
                told.push(self.look_at_one(&all[at], done));
            }
        }
        // SAFETY: the caller's.
        let failure = unsafe { Self::tell_all(&told, &statuses) };
        Ok(Told { given: told.len() as i64, failure })
    }

    unsafe fn start(&self, request: Handle) -> Answer<Handle> {
        let found = self.request(request)?.ok_or(Class::Request)?;
        let start = found.start.as_ref().ok_or(Class::Request)?;
        if found.active().is_some() {
            return Err(Class::Request.into());
        }
        let operation = start(self).map_err(|failure| self.of_request(&found, failure))?;
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

    unsafe fn test(&self, request: Handles<Handle>) -> Answer<Told<(bool, Status)>> {
        // SAFETY: the caller's: one.
        let one = unsafe { self.one_of(&request) }?;
        let Some(operation) = &one.operation else { return Ok(Told::well((true, Status::EMPTY))) };
        let Some(done) = self.look_for(|| operation.look())? else {
            return Ok(Told::well((false, Status::EMPTY)));
        };
        // SAFETY: as above.
        let (status, failure) = unsafe { self.tell_one(&one, done, &request) };
        Ok(Told { given: (true, status), failure })
    }

    unsafe fn test_cancelled(&self, status: Status) -> Answer<bool> {
        Ok(status.cancelled)
    }

    unsafe fn testall(
        &self,
        count: i64,
        requests: Handles<Handle>,
        statuses: Statuses,
    ) -> Answer<Told<bool>> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        let Some(done) = self.look_for(|| Self::all_done(&all))? else { return Ok(Told::well(false)) };
        // SAFETY: the caller's.
        let told: Vec<_> =
            all.iter().zip(done).map(|(one, done)| unsafe { self.tell_one(one, done, &requests) }).collect();
        // SAFETY: the caller's.
        let failure = unsafe { Self::tell_all(&told, &statuses) };
        Ok(Told { given: true, failure })
    }

    unsafe fn testany(&self, count: i64, requests: Handles<Handle>) -> Answer<Told<(i64, bool, Status)>> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok(Told::well((UNDEFINED, true, Status::EMPTY)));
        }
        let Some((at, done)) = self.look_for(|| Self::any_done(&all))? else {
            return Ok(Told::well((UNDEFINED, false, Status::EMPTY)));
        };
        // SAFETY: the caller's.
        let (status, failure) = unsafe { self.tell_one(&all[at], done, &requests) };
        Ok(Told { given: (at as i64, true, status), failure })
    }

    unsafe fn testsome(
        &self,
        count: i64,
        requests: Handles<Handle>,
        indices: IntsOut,
        statuses: Statuses,
    ) -> Answer<Told<i64>> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok(Told::well(UNDEFINED));
        }
        let done = self.look_for(|| Self::some_done(&all))?.unwrap_or_default();
        // SAFETY: the caller's.
        Ok(unsafe { self.tell_some(&all, done, (&requests, indices, &statuses)) })
    }

    unsafe fn wait(&self, request: Handles<Handle>) -> Answer<Told<Status>> {
        // SAFETY: the caller's: one.
        let one = unsafe { self.one_of(&request) }?;
        let Some(operation) = &one.operation else { return Ok(Told::well(Status::EMPTY)) };
        let done = self.wait_operation(operation)?;
        // SAFETY: as above.
        let (status, failure) = unsafe { self.tell_one(&one, done, &request) };
        Ok(Told { given: status, failure })
    }

    unsafe fn waitall(&self, count: i64, requests: Handles<Handle>, statuses: Statuses) -> Answer<()> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        let done = if is_idle(&all) {
            all.iter().map(|_| Done::well()).collect()
        } else {
            // Those before it are complete, and stay so: each is looked at once.
            let first = Cell::new(0);
            let found = || {
                let rest = &all[first.get()..];
                first.set(first.get() + rest.iter().take_while(|one| one.is_done()).count());
                Ok(if first.get() == all.len() { Self::all_done(&all) } else { None })
            };
            self.wait_for(found, |link, limits| wait_first(&all[first.get()..], link, limits))?
        };
        // SAFETY: the caller's.
        let told: Vec<_> =
            all.iter().zip(done).map(|(one, done)| unsafe { self.tell_one(one, done, &requests) }).collect();
        // SAFETY: the caller's.
        unsafe { Self::tell_all(&told, &statuses) }.map_or(Ok(()), Err)
    }

    unsafe fn waitany(&self, count: i64, requests: Handles<Handle>) -> Answer<Told<(i64, Status)>> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok(Told::well((UNDEFINED, Status::EMPTY)));
        }
        let (at, done) =
            self.wait_for(|| Ok(Self::any_done(&all)), |link, limits| wait_any(&all, link, limits))?;
        // SAFETY: the caller's.
        let (status, failure) = unsafe { self.tell_one(&all[at], done, &requests) };
        Ok(Told { given: (at as i64, status), failure })
    }

    unsafe fn waitsome(
        &self,
        count: i64,
        requests: Handles<Handle>,
        indices: IntsOut,
        statuses: Statuses,
    ) -> Answer<Told<i64>> {
        // SAFETY: the caller's.
        let all = unsafe { self.requests_of(count, &requests) }?;
        if is_idle(&all) {
            return Ok(Told::well(UNDEFINED));
        }
        let done =
            self.wait_for(|| Ok(Self::some_done(&all)), |link, limits| wait_any(&all, link, limits))?;
        // SAFETY: the caller's.
        Ok(unsafe { self.tell_some(&all, done, (&requests, indices, &statuses)) })
    }
}
