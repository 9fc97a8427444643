//! The places where members of something meet: a job has so many, and each is free again once nobody needs
//! it.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use super::messages::{INT, WORLD, at, into};
use super::{Well, places, run, wait};
use crate::Mpi;
use crate::args::{Ints, Weights};
use crate::calls::{
    Attributes, Collectives, Communicators, Environment, Files, Groups, Messages, Partitioned, Processes,
    Requests, Topologies, Windows,
};
use crate::handle::{Comm, Errhandler, Group, Info, Message, Request};
use crate::messages::{ANY_SOURCE, ANY_TAG};

/// Does something several times in each of three processes; what is open then, and was not before.
fn left(of: impl Fn(&Mpi, u32) + Sync) -> usize {
    const TIMES: usize = 3;
    let left = std::sync::Mutex::new(0);
    run(3, |mpi, process| {
        let before = places();
        // SAFETY: nothing is given.
        unsafe { mpi.barrier(WORLD) }.unwrap();
        for _ in 0..TIMES {
            of(mpi, process);
        }
        // SAFETY: as above.
        unsafe { mpi.barrier(WORLD) }.unwrap();
        *left.lock().unwrap() = places() - before;
        // SAFETY: as above. Nobody gives up what he has before all have looked.
        unsafe { mpi.barrier(WORLD) }.unwrap();
    });
    left.into_inner().unwrap()
}

unsafe fn free(mpi: &Mpi, comm: Comm) {
    if comm != Comm::NULL {
        // SAFETY: the caller's.
        assert_eq!(unsafe { mpi.comm_free(comm) }, Ok(Comm::NULL));
    }
}

/// The first two of the world.
unsafe fn two(mpi: &Mpi) -> Group {
    // SAFETY: the caller's.
    unsafe { mpi.group_incl(mpi.comm_group(WORLD).unwrap(), 2, Ints::small([0, 1].as_ptr())) }.unwrap()
}

#[test]
fn places_of_communicators_are_free_again() {
    let made = left(|mpi, process| {
        // SAFETY: arrays are as long as is said, strings end.
        unsafe {
            let copy = mpi.comm_dup(WORLD).unwrap();
            let (begun, request) = mpi.comm_idup(copy).unwrap();
            assert_eq!(wait(mpi, request).unwrap().0, Request::NULL);
            let part = mpi.comm_split(copy, (process / 2).into(), 0).unwrap();
            let none = mpi.comm_split(copy, if process == 0 { -32766 } else { 1 }, 0).unwrap();
            let shared = mpi.comm_split_type(copy, 221, 0, Info::NULL).unwrap();
            let created = mpi.comm_create(copy, two(mpi)).unwrap();
            let grouped = mpi.comm_create_group(copy, two(mpi), 3).unwrap();
            let leader = if process == 2 { 0 } else { 2 };
            let between = mpi.intercomm_create(part, 0, WORLD, leader, 4).unwrap();
            let between_two = mpi.comm_dup(between).unwrap();
            let merged = mpi.intercomm_merge(between, process == 2).unwrap();
            let nobody = mpi.comm_create(between, Group::EMPTY).unwrap();
            let ones = [1 as c_int; 2];
            let grid = mpi.cart_create(copy, 1, Ints::small([3].as_ptr()), Ints::small(ones.as_ptr()), false);
            let grid = grid.unwrap();
            let row = mpi.cart_sub(grid, Ints::small(ones.as_ptr())).unwrap();
            let ends = [1 as c_int, 2];
            let graph =
                mpi.graph_create(copy, 2, Ints::small(ends.as_ptr()), Ints::small([1, 0].as_ptr()), false);
            let none_of = Ints::small(std::ptr::null());
            let edges = mpi.dist_graph_create_adjacent(
                copy,
                0,
                none_of,
                Weights::None,
                0,
                none_of,
                Weights::None,
                Info::NULL,
                false,
            );
            let all = [
                copy,
                begun,
                part,
                none,
                shared,
                created,
                grouped,
                between,
                between_two,
                merged,
                nobody,
                grid,
                row,
                graph.unwrap(),
            ];
            all.into_iter().for_each(|comm| free(mpi, comm));
            assert_eq!(mpi.comm_disconnect(edges.unwrap()), Ok(Comm::NULL));
        }
    });
    assert_eq!(made, 0);
    let of_sessions = left(|mpi, _| {
        // SAFETY: as above.
        unsafe {
            let session = mpi.session_init(Info::NULL, Errhandler::RETURN).unwrap();
            let group = mpi.group_from_session_pset(session, c"mpi://WORLD".as_ptr()).unwrap();
            let comm = mpi.comm_create_from_group(group, c"tag".as_ptr(), Info::NULL, Errhandler::RETURN);
            free(mpi, comm.unwrap());
            mpi.session_finalize(session).unwrap();
        }
    });
    assert_eq!(of_sessions, 0);
}

/// What uses a communicator keeps it, and no longer.
#[test]
fn places_of_what_uses_a_communicator_are_free_again() {
    let messages = left(|mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let (comm, mut got) = (mpi.comm_dup(WORLD).unwrap(), [[0_i32]; 6]);
            let mut recv =
                |nth: usize, tag| mpi.irecv(into(&mut got[nth]), 1, INT, ANY_SOURCE, tag, comm).unwrap();
            let (received, freed, cancelled) = (recv(0, 0), recv(1, 1), recv(2, 2));
            let own = i64::from(process);
            let both =
                mpi.isendrecv(at(&[1]), 1, INT, own, 3, into(&mut got[3]), 1, INT, own, 9, comm).unwrap();
            let again = mpi.recv_init(into(&mut got[4]), 1, INT, own, 5, comm).unwrap();
            mpi.start(again).unwrap();
            let message = {
                let (message, _) = mpi.mprobe(own, 3, comm).unwrap();
                message
            };
            let unmatched = mpi.precv_init(into(&mut got[5]), 1, 1, INT, own, 6, comm, Info::NULL).unwrap();
            let matched = mpi.psend_init(at(&[1]), 1, 1, INT, own, 6, comm, Info::NULL).unwrap();
            let _ = [0, 1, 5].map(|tag| mpi.send(at(&[1]), 1, INT, own, tag, comm).unwrap());
            mpi.request_free(freed).well().unwrap();
            mpi.cancel(cancelled).unwrap();
            mpi.cancel(both).unwrap();
            free(mpi, comm);
            let _ = [received, cancelled, both].map(|request| wait(mpi, request).unwrap());
            assert_ne!(message, Message::NULL);
            mpi.mrecv(into(&mut [0]), 1, INT, message).well().unwrap();
            wait(mpi, again).unwrap();
            let _ = [again, unmatched, matched].map(|request| mpi.request_free(request).well().unwrap());
            assert!(!mpi.iprobe(ANY_SOURCE, ANY_TAG, WORLD).unwrap().0);
        }
    });
    assert_eq!(messages, 0);
    let persistent = left(|mpi, _| {
        // SAFETY: nothing is given but numbers.
        unsafe {
            let comm = mpi.comm_dup(WORLD).unwrap();
            let all: [Request; 9] = std::array::from_fn(|_| mpi.barrier_init(comm, Info::NULL).unwrap());
            for request in all.into_iter().chain(all) {
                mpi.start(request).unwrap();
                wait(mpi, request).unwrap();
            }
            mpi.request_free(all[8]).well().unwrap();
            free(mpi, comm);
            all[..8].iter().for_each(|&request| assert!(mpi.request_free(request).well().is_ok()));
        }
    });
    assert_eq!(persistent, 0);
    // The world keeps the last one, for those that come.
    let of_world = left(|mpi, _| {
        // SAFETY: as above.
        unsafe {
            let all: [Request; 9] = std::array::from_fn(|_| mpi.barrier_init(WORLD, Info::NULL).unwrap());
            all.iter().for_each(|&request| assert!(mpi.request_free(request).well().is_ok()));
        }
    });
    assert_eq!(of_world, 1);
}

#[test]
fn places_of_windows_and_files_are_free_again() {
    let windows = left(|mpi, process| {
        let (mut base, mut memory) = (null_mut::<i64>(), [0_i64; 4]);
        let to = (&raw mut base).cast::<c_void>();
        // SAFETY: the memory lives as long as the windows.
        unsafe {
            let all = [
                mpi.win_create(memory.as_mut_ptr().cast(), 32, 8, Info::NULL, WORLD),
                mpi.win_allocate(32, 8, Info::NULL, WORLD, to),
                mpi.win_allocate_shared(32, 8, Info::NULL, WORLD, to),
                mpi.win_create_dynamic(Info::NULL, WORLD),
            ];
            for win in all {
                let win = win.unwrap();
                mpi.win_fence(0, win).unwrap();
                mpi.win_free(win).unwrap();
            }
            // Each says what is wrong with its own arguments; nobody has a window then.
            let wrong = process == 1;
            let (size, unit) = (if wrong { -1 } else { 32 }, if wrong { 0 } else { 8 });
            mpi.win_create(memory.as_mut_ptr().cast(), size, 8, Info::NULL, WORLD).expect_err("its size");
            mpi.win_allocate(32, unit, Info::NULL, WORLD, to).expect_err("its unit");
        }
    });
    assert_eq!(windows, 0);
    let path = std::env::temp_dir().join(format!("bdrun-places-{}", std::process::id()));
    let name = CString::new(path.to_str().expect("a name")).expect("no zeros");
    let files = left(|mpi, process| {
        // SAFETY: the name ends; buffers of the size that is said.
        unsafe {
            // MPI_MODE_RDWR, with MPI_MODE_CREATE and MPI_MODE_DELETE_ON_CLOSE.
            mpi.file_open(WORLD, name.as_ptr(), 32, Info::NULL).expect_err("there is none");
            mpi.file_open(WORLD, name.as_ptr(), if process == 0 { 38 } else { 36 }, Info::NULL)
                .expect_err("other");
            let file = mpi.file_open(WORLD, name.as_ptr(), 38, Info::NULL).unwrap();
            let written = mpi.file_iwrite_shared(file, at(&[1_i32]), 1, INT).unwrap();
            mpi.file_close(file).unwrap();
            wait(mpi, written).unwrap();
        }
    });
    assert_eq!(files, 0);
}

/// Where there would be room for what is made the program has no address to hear of it.
#[test]
fn who_cannot_be_told_of_memory_gets_no_window() {
    let windows = left(|mpi, process| {
        let mut base = null_mut::<i64>();
        let to = if process == 1 { null_mut() } else { (&raw mut base).cast::<c_void>() };
        // SAFETY: there is room for an address, or the place is null.
        unsafe {
            mpi.win_allocate(32, 8, Info::NULL, WORLD, to).expect_err("one has no place for it");
            mpi.win_allocate_shared(32, 8, Info::NULL, WORLD, to).expect_err("the same");
        }
    });
    assert_eq!(windows, 0);
}

extern "C" fn copies_not(
    _: u64,
    _: c_int,
    state: *mut c_void,
    _: usize,
    _: *mut usize,
    _: *mut c_int,
) -> c_int {
    // MPI_ERR_OTHER
    if state.is_null() { 0 } else { 16 }
}

/// A function of one member fails; the others go on, and nobody waits for it.
#[test]
fn a_copy_that_fails_in_one_process_keeps_nobody_waiting() {
    let copies = left(|mpi, process| {
        // SAFETY: the function is such.
        unsafe {
            let comm = mpi.comm_dup(WORLD).unwrap();
            let state = if process == 0 { std::ptr::dangling_mut() } else { null_mut() };
            let key = mpi.comm_create_keyval(copies_not as *mut c_void, null_mut(), state).unwrap();
            mpi.comm_set_attr(comm, key, null_mut()).unwrap();
            let copy = mpi.comm_dup(comm);
            assert_eq!(copy.is_err(), process == 0);
            copy.into_iter().for_each(|copy| free(mpi, copy));
            let (copy, request) = mpi.comm_idup(comm).unwrap();
            assert_eq!(wait(mpi, request).is_err(), process == 0);
            free(mpi, copy);
            free(mpi, comm);
        }
    });
    assert_eq!(copies, 0);
}
