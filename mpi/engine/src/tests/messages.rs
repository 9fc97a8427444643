//! Messages and requests.

use std::ffi::c_void;
use std::sync::Mutex;

use bdrun_mpi_core::error::{Class, Code};
use proptest::prelude::*;

use super::{Well, run};
use crate::Mpi;
use crate::args::{Buffer, Handles, IntsOut, Status, Statuses};
use crate::calls::{Collectives, Communicators, Datatypes, Environment, Errors, Messages, Requests};
use crate::face::Object;
use crate::failure::{Answer, Failure, Told, number};
use crate::groups::{PROC_NULL, UNDEFINED};
use crate::handle::{Comm, Datatype, Errhandler, Info, Message, Request};
use crate::messages::{ANY_SOURCE, ANY_TAG};

pub(super) const INT: Datatype = Datatype(0x209);
pub(super) const BYTE: Datatype = Datatype(0x247);
pub(super) const WORLD: Comm = Comm::WORLD;

pub(super) fn class(result: Result<impl std::fmt::Debug, Failure>) -> Class {
    match result.expect_err("it fails").code {
        Code::Class(class) => class,
        other => panic!("{other:?}"),
    }
}

pub(super) fn at<T>(of: &[T]) -> Buffer {
    Buffer::At(of.as_ptr().cast_mut().cast())
}

pub(super) fn into<T>(of: &mut [T]) -> Buffer {
    Buffer::At(of.as_mut_ptr().cast())
}

fn handles(of: &mut [Request]) -> Handles<Request> {
    unsafe fn read(at: *mut c_void, index: usize) -> Answer<u64> {
        // SAFETY: the caller's.
        Ok(unsafe { at.cast::<u64>().add(index).read() })
    }
    unsafe fn write(at: *mut c_void, index: usize, value: u64) {
        // SAFETY: the caller's.
        unsafe { at.cast::<u64>().add(index).write(value) }
    }
    Handles::new(of.as_mut_ptr().cast(), read, write)
}

fn statuses(of: &mut [Status]) -> Statuses {
    unsafe fn write(at: *mut c_void, index: usize, status: &Status) {
        // SAFETY: the caller's.
        unsafe { at.cast::<Status>().add(index).write(*status) }
    }
    Statuses::new(of.as_mut_ptr().cast(), write)
}

fn told(source: i64, tag: i64, count: i64) -> Status {
    Status { source, tag, count, error: None, ..Status::EMPTY }
}

#[test]
fn messages_come_in_order_and_by_tag() {
    run(3, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            if process > 0 {
                for tag in [5, 6, 5] {
                    let data = [process as i32, tag as i32];
                    mpi.send(at(&data), 2, INT, 0, tag, WORLD).unwrap();
                }
                return;
            }
            let mut got = [0_i32; 4];
            let status = mpi.probe(2, 6, WORLD).unwrap();
            assert_eq!(status, told(2, 6, 8));
            assert_eq!(mpi.recv(into(&mut got), 4, INT, 2, 6, WORLD).well(), Ok(told(2, 6, 8)));
            assert_eq!(got, [2, 6, 0, 0]);
            for source in [1, 2] {
                assert_eq!(
                    mpi.recv(into(&mut got), 2, INT, source, ANY_TAG, WORLD).well(),
                    Ok(told(source, 5, 8))
                );
            }
            let mut from = vec![];
            for _ in 0..3 {
                let status = mpi.recv(into(&mut got), 2, INT, ANY_SOURCE, ANY_TAG, WORLD).well().unwrap();
                from.push((status.source, status.tag));
            }
            from.sort_unstable();
            assert_eq!(from, [(1, 5), (1, 6), (2, 5)]);
            assert_eq!(mpi.iprobe(ANY_SOURCE, ANY_TAG, WORLD), Ok((false, Status::EMPTY)));
        }
    });
}

#[test]
fn a_synchronous_send_waits_for_its_receiver() {
    static ORDER: Mutex<Vec<&str>> = Mutex::new(vec![]);
    run(2, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let mut data = [7_i32];
            if process == 0 {
                let begun = mpi.issend(at(&data), 1, INT, 1, 0, WORLD).unwrap();
                assert_eq!(super::test(mpi, begun), Ok((begun, false, Status::EMPTY)));
                mpi.send(at(&data), 1, INT, 1, 1, WORLD).unwrap();
                assert_eq!(super::wait(mpi, begun).unwrap().0, Request::NULL);
                ORDER.lock().unwrap().push("sent");
            } else {
                // The other message shows that it has been begun.
                mpi.recv(into(&mut data), 1, INT, 0, 1, WORLD).well().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                ORDER.lock().unwrap().push("receives");
                mpi.recv(into(&mut data), 1, INT, 0, 0, WORLD).well().unwrap();
            }
        }
    });
    assert_eq!(*ORDER.lock().unwrap(), ["receives", "sent"]);
}

#[test]
fn requests_are_waited_for_in_all_ways() {
    run(2, |mpi, process| {
        // SAFETY: buffers and arrays of the size that is said.
        unsafe {
            let other = i64::from(1 - process);
            let mut got = [[0_i32; 3]; 4];
            let mut requests: Vec<Request> = got
                .iter_mut()
                .zip(0..)
                .map(|(into_this, tag)| mpi.irecv(into(into_this), 3, INT, other, tag, WORLD).unwrap())
                .collect();
            requests.push(Request::NULL);
            let mut told_of = vec![Status::EMPTY; 5];
            assert_eq!(mpi.testall(5, handles(&mut requests), statuses(&mut told_of)), Ok(Told::well(false)));
            // Each sends its second message once it has the other's first.
            mpi.send(at(&[1_i32, 2, 3]), 3, INT, other, 0, WORLD).unwrap();
            assert_eq!(mpi.waitany(5, handles(&mut requests)), Ok(Told::well((0, told(other, 0, 12)))));
            assert_eq!((requests[0], got[0]), (Request::NULL, [1, 2, 3]));
            mpi.send(at(&[4_i32]), 1, INT, other, 1, WORLD).unwrap();
            let mut indices = [0_i32; 5];
            let places = IntsOut::small(indices.as_mut_ptr());
            assert_eq!(
                mpi.waitsome(5, handles(&mut requests), places, statuses(&mut told_of)),
                Ok(Told::well(1))
            );
            assert_eq!((indices[0], told_of[0]), (1, told(other, 1, 4)));
            // Not before the other has looked, too.
            mpi.barrier(WORLD).unwrap();
            for tag in [3, 2] {
                mpi.send(at(&[tag as i32; 3]), 3, INT, other, tag, WORLD).unwrap();
            }
            mpi.waitall(5, handles(&mut requests), statuses(&mut told_of)).unwrap();
            assert_eq!(told_of[2..4], [told(other, 2, 12), told(other, 3, 12)]);
            assert_eq!(told_of[0], Status::EMPTY, "of one that is not there any more");
            assert!(requests.iter().all(|&request| request == Request::NULL));
            assert_eq!((got[2], got[3]), ([2; 3], [3; 3]));
            assert_eq!(mpi.waitany(5, handles(&mut requests)), Ok(Told::well((UNDEFINED, Status::EMPTY))));
            assert_eq!(mpi.testany(0, handles(&mut [])), Ok(Told::well((UNDEFINED, true, Status::EMPTY))));
            assert_eq!(class(super::wait(mpi, Request(0x1000 + 77))), Class::Request);
        }
    });
}

#[test]
fn what_is_too_long_is_an_error_and_the_rest_arrives() {
    run(2, |mpi, process| {
        // SAFETY: buffers and arrays of the size that is said.
        unsafe {
            if process == 1 {
                for tag in 0..3 {
                    mpi.send(at(&[1_i32, 2, 3]), 3, INT, 0, tag, WORLD).unwrap();
                }
                return;
            }
            let (mut short, mut long) = ([0_i32; 2], [0_i32; 3]);
            assert_eq!(class(mpi.recv(into(&mut short), 2, INT, 1, 0, WORLD).well()), Class::Truncate);
            assert_eq!(short, [1, 2]);
            let mut requests = [
                mpi.irecv(into(&mut short), 1, INT, 1, 1, WORLD).unwrap(),
                mpi.irecv(into(&mut long), 3, INT, 1, 2, WORLD).unwrap(),
            ];
            let mut told_of = [Status::EMPTY; 2];
            let result = mpi.waitall(2, handles(&mut requests), statuses(&mut told_of));
            assert_eq!(class(result), Class::InStatus);
            let truncated = number(Code::Class(Class::Truncate));
            assert_eq!(told_of.map(|status| status.error), [Some(truncated), Some(0)]);
            assert_eq!((requests, long), ([Request::NULL; 2], [1, 2, 3]));
        }
    });
}

/// Who looks for a request again would be told that all is well, as it is gone.
#[test]
fn what_has_failed_is_complete_and_of_its_communicator() {
    run(2, |mpi, process| {
        // SAFETY: buffers and arrays of the size that is said.
        unsafe {
            let other = mpi.comm_dup(WORLD).unwrap();
            if process == 1 {
                (0..5).for_each(|tag| mpi.send(at(&[1_i32, 2]), 2, INT, 0, tag, other).unwrap());
                return mpi.barrier(WORLD).unwrap();
            }
            let truncated = Failure { on: Some(Object::Comm(other)), ..Class::Truncate.into() };
            let is_it = |failure: Option<Failure>| {
                let failure = failure.expect("it is too long");
                assert_eq!((failure.code, failure.on), (truncated.code, truncated.on));
            };
            mpi.barrier(WORLD).unwrap();
            let mut short = [0_i32];
            let mut begin = |tag| [mpi.irecv(into(&mut short), 1, INT, 1, tag, other).unwrap()];
            let mut request = begin(0);
            let told = mpi.test(handles(&mut request)).unwrap();
            assert_eq!((told.given.0, told.given.1.tag, request), (true, 0, [Request::NULL]));
            is_it(told.failure);
            let told = mpi.wait(handles(&mut begin(1))).unwrap();
            assert_eq!(told.given.tag, 1);
            is_it(told.failure);
            let told = mpi.waitany(1, handles(&mut begin(2))).unwrap();
            assert_eq!((told.given.0, told.given.1.tag), (0, 2));
            is_it(told.failure);
            let mut told_of = [Status::EMPTY];
            let told = mpi.testall(1, handles(&mut begin(3)), statuses(&mut told_of)).unwrap();
            let failure = told.failure.expect("it is too long");
            assert_eq!((told.given, failure.code), (true, Code::Class(Class::InStatus)));
            assert_eq!(failure.on, Some(Object::Comm(other)));
            let (message, _) = mpi.mprobe(1, 4, other).unwrap();
            let told = mpi.mrecv(into(&mut [0_i32]), 1, INT, message).unwrap();
            assert_eq!(told.given.0, Message::NULL);
            is_it(told.failure);
        }
    });
}

#[test]
fn a_message_that_was_claimed_is_nobody_elses() {
    run(2, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            if process == 1 {
                mpi.ssend(at(&[1_i32]), 1, INT, 0, 0, WORLD).unwrap();
                mpi.send(at(&[2_i32]), 1, INT, 0, 0, WORLD).unwrap();
                return;
            }
            let (first, status) = mpi.mprobe(ANY_SOURCE, 0, WORLD).unwrap();
            assert_eq!(status, told(1, 0, 4));
            let mut got = [0_i32];
            // The synchronous one is complete only when it is received.
            assert_eq!(mpi.improbe(1, 0, WORLD), Ok((false, Message::NULL, Status::EMPTY)));
            assert_eq!(
                mpi.mrecv(into(&mut got), 1, INT, first),
                Ok(Told::well((Message::NULL, told(1, 0, 4))))
            );
            assert_eq!(got, [1]);
            assert_eq!(class(mpi.mrecv(into(&mut got), 1, INT, first)), Class::Request);
            let (second, _) = mpi.mprobe(1, ANY_TAG, WORLD).unwrap();
            let (gone, request) = mpi.imrecv(into(&mut got), 1, INT, second).unwrap();
            assert_eq!(
                (gone, super::wait(mpi, request).unwrap().1, got),
                (Message::NULL, told(1, 0, 4), [2])
            );
            let (nobody, status) = mpi.mprobe(PROC_NULL, 3, WORLD).unwrap();
            assert_eq!((nobody, status), (Message::NO_PROC, told(PROC_NULL, ANY_TAG, 0)));
            assert_eq!(mpi.mrecv(into(&mut got), 1, INT, nobody).unwrap().given.1, status);
        }
    });
}

#[test]
fn a_persistent_request_is_begun_again_and_again() {
    run(2, |mpi, process| {
        // SAFETY: buffers and arrays of the size that is said.
        unsafe {
            let other = i64::from(1 - process);
            let (mut out, mut got) = ([0_i32], [0_i32]);
            let place = Buffer::At(out.as_mut_ptr().cast());
            let mut both = [
                mpi.send_init(place, 1, INT, other, 0, WORLD).unwrap(),
                mpi.recv_init(into(&mut got), 1, INT, other, 0, WORLD).unwrap(),
            ];
            let before = both;
            // One that is not active is complete.
            assert_eq!(super::wait(mpi, both[1]), Ok((both[1], Status::EMPTY)));
            for round in 1..5 {
                out.as_mut_ptr().write_volatile(round);
                mpi.startall(2, handles(&mut both)).unwrap();
                let mut told_of = [Status::EMPTY; 2];
                mpi.waitall(2, handles(&mut both), statuses(&mut told_of)).unwrap();
                assert_eq!((both, told_of[1]), (before, told(other, 0, 4)));
                assert_eq!(got.as_ptr().read_volatile(), round);
            }
            mpi.start(both[1]).unwrap();
            assert_eq!(class(mpi.start(both[1])), Class::Request, "it is active");
            mpi.cancel(both[1]).unwrap();
            let (_, status) = super::wait(mpi, both[1]).unwrap();
            assert_eq!(mpi.test_cancelled(status), Ok(true));
            for request in both {
                assert_eq!(mpi.request_free(request).well(), Ok(Request::NULL));
            }
        }
    });
}

#[test]
fn places_are_exchanged_while_they_are_received_into() {
    run(4, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let (next, before) = (i64::from((process + 1) % 4), i64::from((process + 3) % 4));
            let mut value = [process as i32];
            let status =
                mpi.sendrecv_replace(into(&mut value), 1, INT, next, 1, before, 1, WORLD).well().unwrap();
            assert_eq!((value[0], status), (before as i32, told(before, 1, 4)));
            let mut got = [-1_i32];
            let request =
                mpi.isendrecv(at(&value), 1, INT, before, 2, into(&mut got), 1, INT, next, 2, WORLD).unwrap();
            assert_eq!(super::wait(mpi, request).unwrap().1, told(next, 2, 4));
            assert_eq!(got[0], process as i32, "the value has been there and back");
            // At the ends of a line nobody is.
            let up = if process == 3 { PROC_NULL } else { next };
            let down = if process == 0 { PROC_NULL } else { before };
            let status = mpi
                .sendrecv(at(&value), 1, INT, up, 3, into(&mut got), 1, INT, down, 3, WORLD)
                .well()
                .unwrap();
            assert_eq!(status.source, down);
        }
    });
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    static COME: Mutex<Vec<u32>> = Mutex::new(vec![]);
    run(4, |mpi, process| {
        // SAFETY: nothing is given.
        unsafe {
            COME.lock().unwrap().push(process);
            mpi.barrier(WORLD).unwrap();
            assert_eq!(COME.lock().unwrap().len(), 4);
            let second = mpi.ibarrier(WORLD).unwrap();
            let third = mpi.ibarrier(WORLD).unwrap();
            if process == 0 {
                // Who is late keeps the others in the second, whatever they wait for first.
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(super::wait(mpi, third), Ok((Request::NULL, Status::EMPTY)));
            assert_eq!(super::test(mpi, second), Ok((Request::NULL, true, Status::EMPTY)));
        }
    });
}

#[test]
fn what_is_wrong_is_said_before_anything_is_done() {
    let mpi = Mpi::new();
    // SAFETY: buffers of the size that is said.
    unsafe {
        mpi.init(std::ptr::null_mut(), std::ptr::null_mut()).unwrap();
        mpi.comm_set_errhandler(WORLD, Errhandler::RETURN).unwrap();
        let data = [1_i32];
        assert_eq!(class(mpi.send(at(&data), 1, INT, 1, 0, WORLD)), Class::Rank);
        assert_eq!(class(mpi.send(at(&data), 1, INT, ANY_SOURCE, 0, WORLD)), Class::Rank);
        assert_eq!(class(mpi.send(at(&data), 1, INT, 0, -5, WORLD)), Class::Tag);
        assert_eq!(class(mpi.send(at(&data), 1, INT, 0, ANY_TAG, WORLD)), Class::Tag);
        assert_eq!(class(mpi.send(at(&data), -1, INT, 0, 0, WORLD)), Class::Count);
        assert_eq!(class(mpi.send(at(&data), 1, Datatype::NULL, 0, 0, WORLD)), Class::Type);
        assert_eq!(class(mpi.send(at(&data), 1, INT, 0, 0, Comm::NULL)), Class::Comm);
        assert_eq!(class(mpi.send(Buffer::At(std::ptr::null_mut()), 1, INT, 0, 0, WORLD)), Class::Buffer);
        let made = mpi.type_contiguous(2, INT, false).unwrap();
        assert_eq!(class(mpi.send(at(&data), 0, made, 0, 0, WORLD)), Class::Type, "it is not committed");
        assert_eq!(class(mpi.bsend(at(&data), 1, INT, 0, 0, WORLD)), Class::Buffer, "there is none");
        let room = [0_u8; 600];
        mpi.buffer_attach(room.as_ptr().cast_mut().cast(), 600).unwrap();
        assert_eq!(class(mpi.buffer_attach(room.as_ptr().cast_mut().cast(), 600)), Class::Buffer);
        assert_eq!(mpi.bsend(at(&data), 1, INT, 0, 0, WORLD), Ok(()));
        assert_eq!(class(mpi.bsend(at(&room), 600, BYTE, 0, 0, WORLD)), Class::Buffer, "it does not fit");
        let mut back: *mut u8 = std::ptr::null_mut();
        assert_eq!(mpi.buffer_detach((&raw mut back).cast()), Ok(600));
        assert_eq!(back.cast_const(), room.as_ptr());
        // To oneself, and nothing was sent of what was wrong.
        let mut got = [0_i32];
        assert_eq!(mpi.recv(into(&mut got), 1, INT, ANY_SOURCE, ANY_TAG, WORLD).well(), Ok(told(0, 0, 4)));
        assert_eq!(mpi.iprobe(ANY_SOURCE, ANY_TAG, WORLD), Ok((false, Status::EMPTY)));
        let set = mpi.status_set_elements(Status::EMPTY, INT, 3).unwrap();
        assert_eq!(mpi.get_count(set, INT), Ok(3));
        let _ = Info::NULL;
    }
}

/// What one process does in a random exchange, in this order: it sends, or posts a receive.
#[derive(Debug, Clone, Copy)]
struct Sent {
    to: u32,
    tag: i64,
    words: usize,
    strided: bool,
    synchronous: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    (0_u32..4, 0_i64..3, 0_usize..2000, any::<bool>(), any::<bool>())
        .prop_map(|(to, tag, words, strided, synchronous)| Sent { to, tag, words, strided, synchronous })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Every message comes once, whole, and in order among those of its sender and tag, whether it is
    /// contiguous or every second word of something.
    #[test]
    fn nothing_is_lost(all in proptest::collection::vec(proptest::collection::vec(sent(), 0..12), 4)) {
        run(4, |mpi, process| {
            // SAFETY: buffers of the size that is said; they outlive the requests.
            unsafe {
                let word = |from: u32, nth: usize, at: usize| from << 24 | (nth as u32) << 16 | at as u32;
                let mine: Vec<(Sent, Vec<u32>)> = all[process as usize]
                    .iter()
                    .enumerate()
                    .map(|(nth, &sent)| (sent, (0..sent.words * 2).map(|at| word(process, nth, at)).collect()))
                    .collect();
                let mut requests = vec![];
                for (sent, data) in &mine {
                    let of = if sent.strided { mpi.type_vector(sent.words as i64, 1, 2, INT, false) } else { mpi.type_contiguous(sent.words as i64, INT, false) };
                    let of = mpi.type_commit(of.unwrap()).unwrap();
                    let to = i64::from(sent.to);
                    requests.push(if sent.synchronous {
                        mpi.issend(at(data), 1, of, to, sent.tag, WORLD).unwrap()
                    } else {
                        mpi.isend(at(data), 1, of, to, sent.tag, WORLD).unwrap()
                    });
                    mpi.type_free(of).unwrap();
                }
                let expected: usize = all.iter().flatten().filter(|sent| sent.to == process).count();
                let mut last = std::collections::HashMap::new();
                for _ in 0..expected {
                    let status = mpi.probe(ANY_SOURCE, ANY_TAG, WORLD).unwrap();
                    let words = status.count as usize / 4;
                    let mut got = vec![0_u32; words + 1];
                    let now = mpi.recv(into(&mut got), words as i64, INT, status.source, status.tag, WORLD).well().unwrap();
                    assert_eq!(now, status);
                    let of_sender = all[status.source as usize].iter().enumerate();
                    let mut fitting = of_sender.filter(|(_, sent)| sent.to == process && sent.tag == status.tag);
                    let seen = last.entry((status.source, status.tag)).or_insert(0);
                    let (nth, sent) = fitting.nth(*seen).expect("not more than were sent");
                    *seen += 1;
                    assert_eq!(words, sent.words);
                    let step = if sent.strided { 2 } else { 1 };
                    for (at, &got) in got[..words].iter().enumerate() {
                        assert_eq!(got, word(status.source as u32, nth, at * step));
                    }
                }
                let count = requests.len();
                let mut told_of = vec![Status::EMPTY; count];
                mpi.waitall(count as i64, handles(&mut requests), statuses(&mut told_of)).unwrap();
                assert_eq!(mpi.comm_size(WORLD), Ok(4));
            }
        });
    }
}

/// What a generalized request's functions were called with: how often each.
#[derive(Default)]
struct Called([std::sync::atomic::AtomicUsize; 3]);

impl Called {
    fn count(state: *mut c_void, which: usize) {
        // SAFETY: the extra state is one, which lives as long as the test.
        unsafe { &*state.cast::<Self>() }.0[which].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }

    fn all(&self) -> [usize; 3] {
        self.0.each_ref().map(|count| count.load(std::sync::atomic::Ordering::SeqCst))
    }
}

extern "C" fn query(state: *mut c_void, status: *mut u8) -> std::ffi::c_int {
    Called::count(state, 0);
    let told = Status { tag: 9, ..told(5, 9, 40) };
    // SAFETY: there is room for a status of this ABI.
    unsafe { (crate::standard::FACE.status.write)(status, &told) };
    0
}

extern "C" fn free(state: *mut c_void) -> std::ffi::c_int {
    Called::count(state, 1);
    0
}

extern "C" fn cancel(state: *mut c_void, is_complete: std::ffi::c_int) -> std::ffi::c_int {
    Called::count(state, 2);
    // MPI_ERR_PENDING
    if is_complete == 0 { 18 } else { 0 }
}

#[test]
fn the_program_completes_its_own_requests() {
    run(1, |mpi, _| {
        let called = Called::default();
        let state = std::ptr::from_ref(&called).cast_mut().cast();
        let start = || {
            let (query, free) = (query as *mut c_void, free as *mut c_void);
            // SAFETY: functions of that type.
            unsafe { mpi.grequest_start(query, free, cancel as *mut c_void, state) }.unwrap()
        };
        // SAFETY: handles.
        unsafe {
            let request = start();
            assert_eq!(super::test(mpi, request), Ok((request, false, Status::EMPTY)));
            assert_eq!(class(mpi.cancel(request)), Class::Pending);
            mpi.grequest_complete(request).unwrap();
            assert_eq!(mpi.cancel(request), Ok(request));
            assert_eq!(mpi.request_get_status(request).well(), Ok((true, told(5, 9, 40))));
            assert_eq!(super::wait(mpi, request), Ok((Request::NULL, told(5, 9, 40))));
            assert_eq!(called.all(), [2, 1, 2]);
            // Freed before it is complete.
            let request = start();
            assert_eq!(mpi.request_free(request).well(), Ok(Request::NULL));
            assert_eq!(called.all(), [2, 1, 2]);
            mpi.grequest_complete(request).unwrap();
            assert_eq!(called.all(), [2, 2, 2]);
            assert_eq!(class(mpi.grequest_complete(request)), Class::Request);
            let sent = mpi.isend(at(&[1_i32]), 1, INT, 0, 1, WORLD).unwrap();
            assert_eq!(class(mpi.grequest_complete(sent)), Class::Request);
            super::wait(mpi, sent).unwrap();
            mpi.recv(into(&mut [0_i32]), 1, INT, 0, 1, WORLD).well().unwrap();
        }
    });
}
