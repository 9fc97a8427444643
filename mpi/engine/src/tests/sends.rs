//! Sends that are cancelled, and those that need a buffer.

use bdrun_mpi_core::error::{Class, Code};

use super::messages::{INT, WORLD, at, class, into};
use super::run;
use crate::args::Status;
use crate::calls::{Communicators, Messages, Requests};
use crate::face::Object;
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
