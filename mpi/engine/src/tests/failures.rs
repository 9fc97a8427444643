//! What a program is told of what has failed, and whose error handler is told.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use bdrun_mpi_core::error::{Class, Code};

use super::messages::{INT, WORLD, at, into};
use super::run;
use crate::Mpi;
use crate::args::Handles;
use crate::calls::{Communicators, Environment, Errors, Messages, Requests};
use crate::face::Object;
use crate::failure::{Answer, Failure, Told};
use crate::handle::{Comm, Errhandler, Group, Info, Request, Session};
use crate::link::{Alone, Awaited, Come, Coming, Head, Limits, Link, Meeting, Place};

/// What was received of a message that is too long: from whom, and how much.
fn is_truncated(told: Told<crate::args::Status>, tag: i64) {
    let failure = told.failure.expect("it is too long");
    assert_eq!(failure.code, Code::Class(Class::Truncate));
    assert_eq!((told.given.source, told.given.tag, told.given.count), (0, tag, 4));
}

#[test]
fn what_came_is_told_also_if_it_was_too_long() {
    run(1, |mpi, _| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let (two, mut short) = ([1_i32, 2], [0_i32]);
            mpi.send(at(&two), 2, INT, 0, 1, WORLD).unwrap();
            is_truncated(mpi.recv(into(&mut short), 1, INT, 0, 1, WORLD).unwrap(), 1);
            let to = into(&mut short);
            is_truncated(mpi.sendrecv(at(&two), 2, INT, 0, 2, to, 1, INT, 0, 2, WORLD).unwrap(), 2);
            mpi.send(at(&two), 2, INT, 0, 3, WORLD).unwrap();
            is_truncated(mpi.sendrecv_replace(to, 1, INT, 0, 3, 0, 3, WORLD).unwrap(), 3);
            mpi.recv(to, 1, INT, 0, 3, WORLD).unwrap();
            // Looks at a request say so too, and the request stays.
            let mut request = mpi.irecv(to, 1, INT, 0, 4, WORLD).unwrap();
            mpi.send(at(&two), 2, INT, 0, 4, WORLD).unwrap();
            let told = mpi.request_get_status(request).unwrap();
            assert!(told.given.0);
            is_truncated(Told { given: told.given.1, failure: told.failure }, 4);
            let told = mpi.request_get_status_any(1, super::one(&mut request)).unwrap();
            assert_eq!((told.given.0, told.given.1), (0, true));
            is_truncated(Told { given: told.given.2, failure: told.failure }, 4);
            is_truncated(mpi.wait(super::one(&mut request)).unwrap(), 4);
        }
    });
}

extern "C" fn query(_: *mut c_void, _: *mut u8) -> c_int {
    0
}

/// MPI_ERR_PENDING
extern "C" fn fail(_: *mut c_void) -> c_int {
    18
}

#[test]
fn a_request_is_gone_also_if_the_programs_function_fails() {
    run(1, |mpi, _| {
        let (query, fail, none) = (query as *mut c_void, fail as *mut c_void, std::ptr::null_mut());
        // SAFETY: functions of that type.
        unsafe {
            let request = mpi.grequest_start(query, fail, fail, none).unwrap();
            mpi.grequest_complete(request).unwrap();
            let told = mpi.request_free(request).unwrap();
            assert_eq!(told.given, Request::NULL);
            assert_eq!(told.failure.expect("its function fails").code, Code::Class(Class::Pending));
            assert!(mpi.request_free(request).is_err(), "it is gone");
        }
    });
}

/// How often it was called, and with a communicator that can be used.
static TOLD: std::sync::Mutex<Vec<u64>> = std::sync::Mutex::new(vec![]);

unsafe extern "C" fn tells(comm: *mut u64, _: *mut c_int) {
    // SAFETY: a handle.
    TOLD.lock().unwrap().push(unsafe { comm.read() });
}

#[test]
fn the_handler_of_a_freed_communicator_is_told() {
    run(1, |mpi, _| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let mut short = [0_i32];
            let made = |handler: Errhandler| {
                let other = mpi.comm_dup(WORLD).unwrap();
                mpi.comm_set_errhandler(other, handler).unwrap();
                other
            };
            let fail = |other: Comm, short: &mut [i32; 1]| -> Failure {
                let mut request = mpi.irecv(into(short), 1, INT, 0, 0, other).unwrap();
                mpi.send(at(&[1_i32, 2]), 2, INT, 0, 0, other).unwrap();
                mpi.comm_free(other).unwrap();
                let handles: Handles<Request> = super::one(&mut request);
                mpi.wait(handles).unwrap().failure.expect("it is too long")
            };
            // MPI_COMM_SELF's would end the process.
            let failure = fail(made(Errhandler::RETURN), &mut short);
            mpi.tell(Object::Nothing, &failure);
            let function = mpi.comm_create_errhandler(tells as *mut c_void).unwrap();
            let other = made(function);
            let failure = fail(other, &mut short);
            mpi.tell(Object::Nothing, &failure);
            let told = TOLD.lock().unwrap().clone();
            assert!(
                matches!(told[..], [comm] if Comm(comm) != Comm::SELF && Comm(comm) != WORLD),
                "{told:?}"
            );
            assert!(mpi.comm_rank(Comm(told[0])).is_err(), "only meanwhile");
        }
    });
}

#[test]
fn failures_are_told_to_communicators_of_sessions() {
    let mpi = Mpi::new();
    // SAFETY: buffers of the size that is said; strings end.
    unsafe {
        let session = mpi.session_init(Info::NULL, Errhandler::RETURN).unwrap();
        let group = mpi.group_from_session_pset(session, c"mpi://SELF".as_ptr()).unwrap();
        let tag = c"a".as_ptr();
        let comm = mpi.comm_create_from_group(group, tag, Info::NULL, Errhandler::RETURN).unwrap();
        let mut short = [0_i32];
        let mut request = mpi.irecv(into(&mut short), 1, INT, 0, 0, comm).unwrap();
        mpi.send(at(&[1_i32, 2]), 2, INT, 0, 0, comm).unwrap();
        let failure = mpi.wait(super::one(&mut request)).unwrap().failure.expect("it is too long");
        assert_eq!((failure.on, failure.freed), (Some(Object::Comm(comm)), None));
    }
}

/// Of what objects it was called, with which codes.
static GIVEN: std::sync::Mutex<Vec<(u64, c_int)>> = std::sync::Mutex::new(vec![]);

unsafe extern "C" fn gives(object: *mut u64, code: *mut c_int) {
    // SAFETY: a handle and a code.
    GIVEN.lock().unwrap().push(unsafe { (object.read(), code.read()) });
}

/// There may be no other handler, as MPI is not initialised: without it such a failure ends the process.
#[test]
fn who_is_given_a_handler_is_told_by_that_what_fails_in_the_call() {
    let mpi = Mpi::new();
    let (wrong, nothing) = (Info(0x5000), std::ptr::null());
    // SAFETY: functions of that type; a string is there or not.
    unsafe {
        let of_sessions = mpi.session_create_errhandler(gives as *mut c_void).unwrap();
        let of_comms = mpi.comm_create_errhandler(gives as *mut c_void).unwrap();
        let session = mpi.session_init(Info::NULL, Errhandler::RETURN).unwrap();
        let group = mpi.group_from_session_pset(session, c"mpi://SELF".as_ptr()).unwrap();
        for returns in [true, false] {
            let handler = |other| if returns { Errhandler::RETURN } else { other };
            let tell = |failure: Failure| mpi.tell(Object::Nothing, &failure);
            // MPI_ERR_INFO, MPI_ERR_ARG, MPI_ERR_GROUP, MPI_ERR_RANK
            assert_eq!(tell(mpi.session_init(wrong, handler(of_sessions)).unwrap_err()), 34);
            let comm = |group, tag| mpi.comm_create_from_group(group, tag, Info::NULL, handler(of_comms));
            assert_eq!(tell(comm(group, nothing).unwrap_err()), 13);
            assert_eq!(tell(comm(Group::NULL, c"a".as_ptr()).unwrap_err()), 9);
            let (tag, handler) = (c"a".as_ptr(), handler(of_comms));
            let inter = mpi.intercomm_create_from_groups(group, 1, group, 0, tag, Info::NULL, handler);
            assert_eq!(tell(inter.unwrap_err()), 6);
        }
        let (comm, session) = (Comm::NULL.0, Session::NULL.0);
        assert_eq!(*GIVEN.lock().unwrap(), [(session, 34), (comm, 13), (comm, 9), (comm, 6)]);
    }
}

/// How often a request's memory was given back.
static FREED: AtomicU32 = AtomicU32::new(0);

extern "C" fn frees(_: *mut c_void) -> c_int {
    FREED.fetch_add(1, SeqCst);
    0
}

/// Waits for something that another thread does soon; where that has no processor, it gets this one.
fn until<T>(mut is_there: impl FnMut() -> Option<T>) -> T {
    let mut looks = 0;
    loop {
        if let Some(there) = is_there() {
            return there;
        }
        looks += 1;
        if looks % 1000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// By whoever of the two comes last, and once.
#[test]
fn a_request_that_is_freed_while_it_completes_goes() {
    const TIMES: u32 = 30_000;
    run(1, |mpi, _| {
        let (query, frees, none) = (query as *mut c_void, frees as *mut c_void, std::ptr::null_mut());
        // Both spin, so that they come as close to each other as they can.
        let (given, freed) = (AtomicU64::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for nth in 0..TIMES {
                    let request = until(|| Some(given.swap(0, SeqCst)).filter(|&request| request != 0));
                    (0..nth % 61).for_each(|_| std::hint::spin_loop());
                    // SAFETY: a request.
                    let told = unsafe { mpi.request_free(Request(request)) };
                    assert_eq!(told.unwrap().failure, None);
                    freed.store(nth + 1, SeqCst);
                }
            });
            for nth in 0..TIMES {
                // SAFETY: functions of that type.
                unsafe {
                    let request = mpi.grequest_start(query, frees, frees, none).unwrap();
                    given.store(request.0, SeqCst);
                    (0..nth % 97).for_each(|_| std::hint::spin_loop());
                    mpi.grequest_complete(request).unwrap();
                }
                until(|| (freed.load(SeqCst) == nth + 1).then_some(()));
            }
        });
        assert_eq!(FREED.load(SeqCst), TIMES);
    });
}

/// Something that comes is damaged, behind what is not.
#[derive(Debug, Default)]
struct Damaged {
    link: Alone,
    is_damaged: AtomicBool,
}

impl Link for Damaged {
    fn process(&self) -> u32 {
        0
    }

    fn processes(&self) -> u32 {
        1
    }

    fn send(&self, to: u32, head: Head, data: &[&[u8]]) -> Answer<()> {
        self.link.send(to, head, data)
    }

    fn receive(&self, take: &mut dyn FnMut(Head, Come<'_>)) -> Answer<()> {
        self.link.receive(take)?;
        if self.is_damaged.load(SeqCst) { Err(Class::Other.into()) } else { Ok(()) }
    }

    fn wait(&self, awaited: Awaited, limits: Limits<'_>) {
        self.link.wait(awaited, limits);
    }

    fn nudge(&self) {}

    fn wake(&self, _: u32) {}

    fn open(&self, members: &[u32]) -> Answer<Place> {
        self.link.open(members)
    }

    fn close(&self, _: Place) {}

    fn meet(&self, place: Place, coming: &Coming<'_>) -> Answer<Box<dyn Meeting>> {
        self.link.meet(place, coming)
    }
}

#[test]
fn what_came_before_what_is_damaged_is_received() {
    let (mpi, link) = (Mpi::new(), Arc::new(Damaged::default()));
    mpi.link.set(link.clone()).expect("it is new");
    // SAFETY: buffers of the size that is said.
    unsafe {
        mpi.init(std::ptr::null_mut(), std::ptr::null_mut()).unwrap();
        let mut data = [0_i32];
        let request = mpi.irecv(into(&mut data), 1, INT, 0, 0, WORLD).unwrap();
        // Its sender waits until it is told that it was received.
        let send = mpi.issend(at(&[7_i32]), 1, INT, 0, 0, WORLD).unwrap();
        link.is_damaged.store(true, SeqCst);
        assert_eq!(super::test(&mpi, request).unwrap_err().code, Code::Class(Class::Other));
        link.is_damaged.store(false, SeqCst);
        assert!(super::test(&mpi, request).unwrap().1, "it was there");
        assert!(super::test(&mpi, send).unwrap().1);
        assert_eq!(data, [7]);
        mpi.finalize().unwrap();
    }
}
