//! Sends that are cancelled, and those that need a buffer.

use std::sync::atomic::Ordering::SeqCst;

use bdrun_mpi_core::error::{Class, Code};

use super::messages::{BYTE, INT, WORLD, at, class, into};
use super::{Well, run};
use crate::Mpi;
use crate::args::Status;
use crate::calls::{Collectives, Communicators, Environment, Groups, Messages, Requests};
use crate::face::Object;
use crate::handle::{Comm, Errhandler, Group, Info, Request};
use crate::messages::{ANY_SOURCE, ANY_TAG};

/// The receiver waits for the sender and does not receive it: without an answer both would wait for ever.
#[test]
fn a_synchronous_send_that_was_cancelled_is_complete() {
    run(2, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let mut data = [7_i32];
            if process == 0 {
                let other = mpi.comm_dup(WORLD).unwrap();
                for comm in [WORLD, other] {
                    let begun = mpi.issend(at(&data), 1, INT, 1, 0, comm).unwrap();
                    mpi.cancel(begun).unwrap();
                    mpi.cancel(begun).unwrap();
                    let (_, status) = super::wait(mpi, begun).unwrap();
                    assert!(status.cancelled);
                }
                // Of two only the one that is meant, also if it is the second.
                let begun = [5, 6].map(|value| mpi.issend(at(&[value]), 1, INT, 1, 0, WORLD).unwrap());
                mpi.cancel(begun[1]).unwrap();
                assert!(super::wait(mpi, begun[1]).unwrap().1.cancelled);
                mpi.send(at(&data), 1, INT, 1, 1, WORLD).unwrap();
                assert!(!super::wait(mpi, begun[0]).unwrap().1.cancelled);
            } else {
                // It does not matter that the receiver cannot receive it any more.
                mpi.comm_dup(WORLD).and_then(|other| mpi.comm_free(other)).unwrap();
                mpi.recv(into(&mut data), 1, INT, 0, 1, WORLD).unwrap();
                mpi.recv(into(&mut data), 1, INT, 0, 0, WORLD).unwrap();
                assert_eq!(data, [5]);
                assert_eq!(mpi.iprobe(ANY_SOURCE, ANY_TAG, WORLD), Ok((false, Status::EMPTY)));
            }
        }
    });
}

/// It makes no call any more in which it could answer (an example of the standard, section 11.2).
#[test]
fn a_synchronous_send_to_who_has_ended_mpi_can_be_cancelled() {
    run(2, |mpi, process| {
        if process == 1 {
            return;
        }
        let data = [7_i32];
        // SAFETY: buffers of the size that is said.
        unsafe {
            for number in 0..2 {
                let begun = [0, 1].map(|tag| mpi.issend(at(&data), 1, INT, 1, tag, WORLD).unwrap());
                begun.into_iter().for_each(|begun| _ = mpi.cancel(begun).unwrap());
                let of_own = mpi.issend(at(&data), 1, INT, 0, number, WORLD).unwrap();
                for begun in begun {
                    assert!(super::wait(mpi, begun).unwrap().1.cancelled);
                }
                mpi.recv(into(&mut [0_i32]), 1, INT, 0, number, WORLD).unwrap();
                assert!(!super::wait(mpi, of_own).unwrap().1.cancelled, "it was not asked back");
                assert_eq!(mpi.questions.load(SeqCst), 0);
            }
        }
    });
}

/// Either it is cancelled or it is received, and the receiver has claimed it first.
#[test]
fn a_synchronous_send_that_was_claimed_is_not_cancelled() {
    run(2, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let mut data = [7_i32];
            if process == 0 {
                let begun = mpi.issend(at(&data), 1, INT, 1, 0, WORLD).unwrap();
                mpi.recv(into(&mut [0_i32]), 1, INT, 1, 1, WORLD).unwrap();
                mpi.cancel(begun).unwrap();
                mpi.send(at(&data), 1, INT, 1, 1, WORLD).unwrap();
                assert!(!super::wait(mpi, begun).unwrap().1.cancelled);
            } else {
                let (message, _) = mpi.mprobe(0, 0, WORLD).unwrap();
                mpi.send(at(&data), 1, INT, 0, 1, WORLD).unwrap();
                // The sender has asked before it sent this.
                mpi.recv(into(&mut data), 1, INT, 0, 1, WORLD).unwrap();
                let told = mpi.mrecv(into(&mut data), 1, INT, message).unwrap();
                assert_eq!((told.failure, data), (None, [7]));
            }
        }
    });
}

/// One look tells whether it was taken back: who receives it if not looks no second time, but would wait for
/// ever for what is no longer there.
#[test]
fn what_was_sent_to_itself_is_taken_back_at_once() {
    run(1, |mpi, _| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            for _ in 0..3 {
                let begun = mpi.issend(at(&[7_i32]), 1, INT, 0, 0, WORLD).unwrap();
                mpi.probe(ANY_SOURCE, ANY_TAG, WORLD).unwrap();
                mpi.cancel(begun).unwrap();
                let (complete, status) = mpi.request_get_status(begun).well().unwrap();
                assert!(complete && status.cancelled);
                assert_eq!(mpi.iprobe(ANY_SOURCE, ANY_TAG, WORLD), Ok((false, Status::EMPTY)));
                assert!(super::wait(mpi, begun).unwrap().1.cancelled);
            }
        }
    });
}

/// The receive is taken back, also where nobody ever sends what it waits for; the send has left.
#[test]
fn of_what_sends_and_receives_the_receive_is_taken_back() {
    run(2, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let (other, mut data, mut same) = (1 - i64::from(process), [-1_i32], [7_i32]);
            let begin = |mpi: &Mpi, data: &mut [i32], same: &mut [i32]| {
                let (from, into_it) = (at(&[5_i32]), into(data));
                let one = mpi.isendrecv(from, 1, INT, other, 0, into_it, 1, INT, other, 9, WORLD).unwrap();
                [one, mpi.isendrecv_replace(into(same), 1, INT, other, 1, other, 9, WORLD).unwrap()]
            };
            for request in begin(mpi, &mut data, &mut same) {
                assert_eq!(mpi.cancel(request), Ok(request));
                let (complete, status) = mpi.request_get_status(request).well().unwrap();
                assert!(complete && status.cancelled);
                assert_eq!(
                    super::wait(mpi, request).map(|(gone, status)| (gone, status.cancelled)),
                    Ok((Request::NULL, true))
                );
            }
            // No part of the buffer is altered, and a later receive gets what the taken back one would have.
            assert_eq!((data, same), ([-1], [7]));
            mpi.barrier(WORLD).unwrap();
            mpi.send(at(&[8_i32]), 1, INT, other, 9, WORLD).unwrap();
            for (tag, sent) in [(9, 8), (0, 5), (1, 7)] {
                mpi.recv(into(&mut data), 1, INT, other, tag, WORLD).unwrap();
                assert_eq!(data, [sent]);
            }
        }
    });
}

/// Either it is cancelled or it succeeds.
#[test]
fn of_what_sends_and_receives_nothing_is_taken_back_once_it_has_its_message() {
    run(1, |mpi, _| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let mut data = [0_i32];
            let request = mpi
                .isendrecv(at(&[5_i32]), 1, INT, 0, 3, into(&mut data), 1, INT, ANY_SOURCE, ANY_TAG, WORLD)
                .unwrap();
            mpi.cancel(request).unwrap();
            let (_, status) = super::wait(mpi, request).unwrap();
            assert_eq!((status.cancelled, status.tag, data), (false, 3, [5]));
        }
    });
}

/// What a buffered send needs is there when it is started, and perhaps no longer, or not before.
#[test]
fn a_persistent_send_needs_its_buffer_when_it_is_started() {
    run(1, |mpi, _| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let (data, room, mut got) = ([3_i32], [0_u8; 600], [0_i32]);
            let mut back: *mut u8 = std::ptr::null_mut();
            let request = mpi.bsend_init(at(&data), 1, INT, 0, 0, WORLD).unwrap();
            let failure = mpi.start(request).expect_err("there is none");
            assert_eq!((failure.code, failure.on), (Code::Class(Class::Buffer), Some(Object::Comm(WORLD))));
            for _ in 0..2 {
                mpi.buffer_attach(room.as_ptr().cast_mut().cast(), 600).unwrap();
                mpi.start(request).unwrap();
                super::wait(mpi, request).unwrap();
                assert_eq!(mpi.buffer_detach((&raw mut back).cast()), Ok(600));
                assert_eq!(class(mpi.start(request)), Class::Buffer, "there is none any more");
                mpi.recv(into(&mut got), 1, INT, 0, 0, WORLD).unwrap();
            }
            mpi.request_free(request).unwrap();
            assert_eq!(mpi.iprobe(ANY_SOURCE, ANY_TAG, WORLD), Ok((false, Status::EMPTY)));
        }
    });
}

/// What has an own buffer uses that one, however large another one is.
#[test]
fn the_nearest_buffer_is_used() {
    let mpi = Mpi::new();
    let room = [0_u8; 2000];
    let attached = room.as_ptr().cast_mut().cast();
    // SAFETY: strings end, and there is room for what is said.
    unsafe {
        let session = mpi.session_init(Info::NULL, Errhandler::RETURN).unwrap();
        let group = mpi.group_from_session_pset(session, c"mpi://SELF".as_ptr()).unwrap();
        let made = |group| mpi.comm_create_from_group(group, c"a".as_ptr(), Info::NULL, Errhandler::RETURN);
        let first = made(group).unwrap();
        let of_group = mpi.group_union(Group::EMPTY, mpi.comm_group(first).unwrap()).unwrap();
        let same = [
            first,
            made(of_group).unwrap(),
            mpi.comm_dup(first).unwrap(),
            mpi.comm_split(first, 0, 0).unwrap(),
            mpi.comm_create_group(first, of_group, 0).unwrap(),
        ];
        let other = {
            let session = mpi.session_init(Info::NULL, Errhandler::RETURN).unwrap();
            made(mpi.group_from_session_pset(session, c"mpi://SELF".as_ptr()).unwrap()).unwrap()
        };
        let send = |comm: Comm| mpi.bsend(at(&[0_u8; 300]), 300, BYTE, 0, 0, comm);
        let all = || same.into_iter().chain([other]);
        all().for_each(|comm| assert_eq!(class(send(comm)), Class::Buffer, "there is none"));
        mpi.session_attach_buffer(session, attached, 1000).unwrap();
        same.into_iter().for_each(|comm| assert_eq!(send(comm), Ok(())));
        assert_eq!(class(send(other)), Class::Buffer, "it is another session's");
        mpi.buffer_attach(attached, 200).unwrap();
        same.into_iter().for_each(|comm| assert_eq!(send(comm), Ok(())));
        assert_eq!(class(send(other)), Class::Buffer, "the process's is too small");
        mpi.comm_attach_buffer(first, attached, 200).unwrap();
        assert_eq!(class(send(first)), Class::Buffer, "its own is too small");
        assert_eq!(send(same[1]), Ok(()));
        let mut back: *mut u8 = std::ptr::null_mut();
        assert_eq!(mpi.session_detach_buffer(session, (&raw mut back).cast()), Ok(1000));
        assert_eq!(class(send(same[1])), Class::Buffer, "the process's is too small");
        // Nothing lies in any of them, and no world is needed to hear that.
        for flushed in [mpi.session_iflush_buffer(session), mpi.buffer_iflush()] {
            assert_eq!(super::wait(&mpi, flushed.unwrap()).unwrap().0, Request::NULL);
        }
    }
}
