//! Communicators, error handlers, sessions and the life of MPI.

use std::ffi::{CStr, c_char};

use bdrun_mpi_core::error::Class;

use super::messages::{INT, into};
use super::{Well, run};
use crate::Mpi;
use crate::args::{Ints, IntsOut, Meant, Status};
use crate::calls::{Attributes, Communicators, Environment, Errors, Groups, Infos, Messages, Requests};
use crate::face::Object;
use crate::failure::{Failure, number};
use crate::groups::{PROC_NULL, UNDEFINED};
use crate::handle::{Comm, Errhandler, Group, Info, Message, Request, Session};

fn class(result: Result<impl std::fmt::Debug, Failure>) -> Class {
    match result.expect_err("it fails").code {
        bdrun_mpi_core::error::Code::Class(class) => class,
        other => panic!("{other:?}"),
    }
}

/// The ranks in the world of a communicator's members.
fn members(mpi: &Mpi, comm: Comm) -> Vec<i32> {
    // SAFETY: arrays of the size that is said.
    unsafe {
        let (group, world) = (mpi.comm_group(comm).unwrap(), mpi.comm_group(Comm::WORLD).unwrap());
        let size = mpi.group_size(group).unwrap();
        let (ranks, mut found): (Vec<i32>, _) = ((0..size as i32).collect(), vec![0; size as usize]);
        let from = Meant::new(ranks.as_ptr(), |rank| Ok(rank.into()));
        let to = IntsOut::small(found.as_mut_ptr());
        mpi.group_translate_ranks(group, size, from, world, to).unwrap();
        found
    }
}

#[test]
fn a_communicator_is_divided_by_color_and_ordered_by_key() {
    run(6, |mpi, process| {
        // SAFETY: nothing is given but numbers.
        unsafe {
            assert_eq!(mpi.comm_rank(Comm::WORLD), Ok(process.into()));
            assert_eq!(mpi.comm_size(Comm::WORLD), Ok(6));
            assert_eq!(members(mpi, Comm::SELF), [process as i32]);
            // Those with odd numbers, backwards; 4 joins none.
            let color = if process == 4 { UNDEFINED } else { i64::from(process % 2) };
            let part = mpi.comm_split(Comm::WORLD, color, -i64::from(process)).unwrap();
            match process {
                4 => assert_eq!(part, Comm::NULL),
                0 | 2 => assert_eq!(members(mpi, part), [2, 0]),
                _ => {
                    assert_eq!(members(mpi, part), [5, 3, 1]);
                    assert_eq!(mpi.comm_rank(part), Ok(i64::from(5 - process) / 2));
                    // Of a part parts are made, while the others go on.
                    let again = mpi.comm_split(part, 0, i64::from(process)).unwrap();
                    assert_eq!(members(mpi, again), [1, 3, 5]);
                    assert_eq!(mpi.comm_compare(part, again), Ok(203), "similar");
                    assert_eq!(mpi.comm_free(part), Ok(Comm::NULL));
                    assert_eq!(class(mpi.comm_size(part)), Class::Comm);
                }
            }
            assert_eq!(class(mpi.comm_split(Comm::WORLD, -1, 0)), Class::Arg);
            assert_eq!(class(mpi.comm_split(Comm::NULL, 0, 0)), Class::Comm);
        }
    });
}

#[test]
fn copies_and_groups_of_a_communicator() {
    run(4, |mpi, process| {
        // SAFETY: arrays of the size that is said.
        unsafe {
            let copy = mpi.comm_dup(Comm::WORLD).unwrap();
            assert_eq!(mpi.comm_compare(copy, Comm::WORLD), Ok(202), "congruent");
            assert_eq!(mpi.comm_compare(copy, copy), Ok(201), "identical");
            assert_eq!(mpi.comm_compare(copy, Comm::SELF), Ok(204), "unequal");
            let world = mpi.comm_group(copy).unwrap();
            let two = [3, 1];
            let group = mpi.group_incl(world, 2, Ints::small(two.as_ptr())).unwrap();
            let made = mpi.comm_create(copy, group).unwrap();
            let is_in = [1, 3].contains(&process);
            assert_eq!(made != Comm::NULL, is_in);
            if is_in {
                assert_eq!(members(mpi, made), [3, 1]);
                assert_eq!(class(mpi.comm_create(made, world)), Class::Group, "0 is not there");
            }
            let shared = mpi.comm_split_type(copy, 221, 0, Info::NULL).unwrap();
            assert_eq!(mpi.comm_size(shared), Ok(4));
            assert_eq!(mpi.comm_split_type(copy, UNDEFINED, 0, Info::NULL), Ok(Comm::NULL));
            assert_eq!(mpi.comm_test_inter(copy), Ok(false));
            assert_eq!(class(mpi.comm_remote_size(copy)), Class::Comm);
            assert_eq!(class(mpi.comm_free(Comm::WORLD)), Class::Comm);
        }
    });
}

/// Those of a node, however that is said.
#[test]
fn who_shares_memory_is_on_a_node() {
    super::run_on(2, 4, |mpi, process| {
        let names = [c"mpi_hw_resource_type", c"mpi_shared_memory"].map(CStr::as_ptr);
        // SAFETY: strings end.
        unsafe {
            let info = mpi.info_create().unwrap();
            mpi.info_set(info, names[0], names[1]).unwrap();
            // MPI_COMM_TYPE_SHARED, MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED
            for (kind, info) in [(221, Info::NULL), (223, info), (224, info)] {
                let shared = mpi.comm_split_type(Comm::WORLD, kind, 0, info).unwrap();
                let first = process as i32 % 2;
                assert_eq!(members(mpi, shared), [first, first + 2]);
            }
            assert_eq!(mpi.comm_split_type(Comm::WORLD, 223, 0, Info::NULL), Ok(Comm::NULL));
        }
    });
}

#[test]
fn who_comes_for_something_else_is_told() {
    run(2, |mpi, process| {
        // SAFETY: nothing is given but numbers.
        unsafe {
            let failed = match process {
                0 => crate::calls::Collectives::barrier(mpi, Comm::WORLD).is_err(),
                _ => mpi.comm_split(Comm::WORLD, 0, 0).is_err(),
            };
            assert!(failed);
        }
    });
}

#[test]
fn mpi_lives_once() {
    let mpi = Mpi::new();
    // SAFETY: nothing is given.
    unsafe {
        let init = |level| mpi.init_thread(std::ptr::null_mut(), std::ptr::null_mut(), level);
        assert_eq!((mpi.initialized(), mpi.finalized()), (Ok(false), Ok(false)));
        assert_eq!(class(mpi.comm_size(Comm::WORLD)), Class::Other);
        assert_eq!(class(mpi.finalize()), Class::Other);
        assert_eq!(class(init(7)), Class::Arg);
        assert_eq!(init(4096), Ok(4096));
        assert_eq!(class(init(0)), Class::Other);
        assert_eq!((mpi.query_thread(), mpi.is_thread_main()), (Ok(4096), Ok(true)));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(mpi.is_thread_main(), Ok(false)));
        });
        assert_eq!(mpi.comm_size(Comm::WORLD), Ok(1));
        assert_eq!(mpi.finalize(), Ok(()));
        assert_eq!((mpi.initialized(), mpi.finalized()), (Ok(true), Ok(true)));
        assert_eq!(class(init(0)), Class::Other);
        assert!(mpi.wtime().unwrap() > 0.0 && mpi.wtick().unwrap() < 1e-3);
    }
}

#[test]
fn memory_is_as_large_as_was_asked_for() {
    let mpi = Mpi::new();
    // SAFETY: the pointer is to a local; the block is written as far as it goes.
    unsafe {
        let mut block: *mut u8 = std::ptr::null_mut();
        let at = (&raw mut block).cast();
        assert_eq!(mpi.alloc_mem(1 << 20, Info::NULL, at), Ok(()));
        block.write_bytes(7, 1 << 20);
        assert_eq!(mpi.free_mem(block.cast()), Ok(()));
        assert_eq!(class(mpi.alloc_mem(-1, Info::NULL, at)), Class::Arg);
        // What is no power of two is no alignment.
        let key = c"mpi_minimum_memory_alignment".as_ptr();
        for (asked, given) in [(c"65536", 65536), (c"8", 64), (c"100", 64), (c"0", 64), (c"-4096", 64)] {
            let info = mpi.info_create().expect("made");
            mpi.info_set(info, key, asked.as_ptr()).expect("set");
            for _ in 0..4 {
                assert_eq!(mpi.alloc_mem(100, info, at), Ok(()));
                assert!((block as usize).is_multiple_of(given), "{asked:?}: {block:?}");
            }
        }
        assert_eq!(class(mpi.alloc_mem(1, Info(0x5000), at)), Class::Info);
        assert_eq!(class(mpi.alloc_mem(i64::MAX, Info::NULL, at)), Class::NoMemory);
    }
}

static TOLD: std::sync::Mutex<Vec<(u64, i32)>> = std::sync::Mutex::new(vec![]);

/// A program's handler. What comes behind the two is not looked at.
unsafe extern "C" fn tells(object: *mut u64, code: *mut i32) {
    // SAFETY: what a handler is given.
    TOLD.lock().unwrap().push(unsafe { (*object, *code) });
}

#[test]
fn the_handler_of_the_object_is_told() {
    let mpi = Mpi::new();
    // SAFETY: nothing is given but numbers and a function of the right type.
    unsafe {
        mpi.init(std::ptr::null_mut(), std::ptr::null_mut()).unwrap();
        let handler = mpi.comm_create_errhandler(tells as *mut std::ffi::c_void).unwrap();
        assert_eq!(mpi.comm_get_errhandler(Comm::WORLD), Ok(Errhandler::FATAL));
        let copy = mpi.comm_dup(Comm::WORLD).unwrap();
        mpi.comm_set_errhandler(copy, handler).unwrap();
        mpi.comm_set_errhandler(Comm::SELF, Errhandler::RETURN).unwrap();
        // It lives as long as something has it.
        assert_eq!(mpi.errhandler_free(handler), Ok(Errhandler::NULL));
        assert_eq!(class(mpi.comm_set_errhandler(copy, handler)), Class::ErrorHandler);
        let failure = Failure::from(Class::Tag);
        let tag = number(failure.code);
        assert_eq!(mpi.tell(Object::Comm(copy), &failure), tag);
        assert_eq!(*TOLD.lock().unwrap(), [(copy.0, tag as i32)]);
        // A copy of a communicator has its handler.
        let again = mpi.comm_dup(copy).unwrap();
        mpi.comm_call_errhandler(again, tag).unwrap();
        assert_eq!(TOLD.lock().unwrap()[1..], [(again.0, tag as i32)]);
        // What is no communicator is told to MPI_COMM_SELF.
        assert_eq!(mpi.tell(Object::Comm(Comm::NULL), &failure), tag);
        assert_eq!(TOLD.lock().unwrap().len(), 2);
        assert_eq!(class(mpi.comm_call_errhandler(again, 900)), Class::Arg);
        let of_sessions = mpi.session_create_errhandler(tells as *mut std::ffi::c_void).unwrap();
        assert_eq!(class(mpi.comm_set_errhandler(copy, of_sessions)), Class::ErrorHandler);
        let back = mpi.comm_get_errhandler(copy).unwrap();
        assert_eq!(mpi.comm_set_errhandler(Comm::WORLD, back), Ok(()));
        assert_eq!(class(mpi.comm_create_errhandler(std::ptr::null_mut())), Class::Arg);
    }
}

#[test]
fn sessions_need_no_world() {
    let mpi = Mpi::new();
    // SAFETY: strings end, and there is room for what is said.
    unsafe {
        let session = mpi.session_init(Info::NULL, Errhandler::RETURN).unwrap();
        assert_eq!(mpi.initialized(), Ok(false));
        assert_eq!(mpi.session_get_num_psets(session, Info::NULL), Ok(2));
        let mut name = [0 as c_char; 64];
        assert_eq!(mpi.session_get_nth_pset(session, Info::NULL, 0, 0, std::ptr::null_mut()), Ok(12));
        assert_eq!(mpi.session_get_nth_pset(session, Info::NULL, 0, 64, name.as_mut_ptr()), Ok(12));
        assert_eq!(CStr::from_ptr(name.as_ptr()), c"mpi://WORLD");
        assert_eq!(class(mpi.session_get_nth_pset(session, Info::NULL, 2, 0, name.as_mut_ptr())), Class::Arg);
        let group = mpi.group_from_session_pset(session, name.as_ptr()).unwrap();
        assert_eq!(mpi.group_size(group), Ok(1));
        let tag = c"a tag".as_ptr();
        let comm = mpi.comm_create_from_group(group, tag, Info::NULL, Errhandler::RETURN).unwrap();
        assert_eq!((mpi.comm_size(comm), mpi.comm_rank(comm)), (Ok(1), Ok(0)));
        assert_eq!(
            mpi.comm_create_from_group(Group::EMPTY, tag, Info::NULL, Errhandler::RETURN),
            Ok(Comm::NULL)
        );
        assert_eq!(class(mpi.group_from_session_pset(session, c"mpi://OTHER".as_ptr())), Class::Arg);
        assert_eq!(mpi.session_finalize(session), Ok(Session::NULL));
        assert_eq!(class(mpi.session_get_num_psets(session, Info::NULL)), Class::Session);
    }
}

#[test]
fn requests_and_messages_need_no_world_where_a_session_is() {
    let (mpi, none) = (Mpi::new(), std::ptr::null_mut());
    // SAFETY: there are no functions; strings end, and buffers are of the size that is said.
    unsafe {
        assert_eq!(class(mpi.grequest_start(none, none, none, none)), Class::Other, "there is no MPI yet");
        let session = mpi.session_init(Info::NULL, Errhandler::RETURN).unwrap();
        let request = mpi.grequest_start(none, none, none, none).unwrap();
        mpi.grequest_complete(request).unwrap();
        let told = Status { error: None, ..Status::EMPTY };
        assert_eq!(super::wait(&mpi, request), Ok((Request::NULL, told)));
        let group = mpi.group_from_session_pset(session, c"mpi://SELF".as_ptr()).unwrap();
        let comm = mpi.comm_create_from_group(group, c"a".as_ptr(), Info::NULL, Errhandler::RETURN).unwrap();
        let (message, nobody) = mpi.mprobe(PROC_NULL, 0, comm).unwrap();
        let received = mpi.mrecv(into(&mut [0_i32]), 1, INT, message).well();
        assert_eq!(received, Ok((Message::NULL, nobody)));
        let (_, request) = mpi.imrecv(into(&mut [0_i32]), 1, INT, message).unwrap();
        assert_eq!(super::wait(&mpi, request), Ok((Request::NULL, nobody)));
        mpi.comm_free(comm).unwrap();
        mpi.session_finalize(session).unwrap();
        assert_eq!(
            class(mpi.grequest_start(none, none, none, none)),
            Class::Other,
            "there is no MPI any more"
        );
        assert_eq!(class(mpi.mrecv(into(&mut [0_i32]), 1, INT, message)), Class::Other);
    }
}

/// Of several threads one that waits cannot leave RAM for long: other calls may come.
#[test]
fn who_begins_a_session_is_the_thread_that_waits() {
    let mpi = Mpi::new();
    // SAFETY: nothing is given.
    unsafe { mpi.session_init(Info::NULL, Errhandler::RETURN) }.unwrap();
    let waits = || {
        let mut looks = 0..3;
        mpi.wait_for(|| Ok(looks.next().is_none().then_some(())), |_, _| {})
    };
    assert_eq!((waits(), mpi.threads.is_one()), (Ok(()), true));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!((waits(), mpi.threads.is_one()), (Ok(()), false)));
    });
}

/// Who ends in the midst of it is told of, and in which call, whether MPI was initialised or only sessions
/// were.
#[test]
fn a_process_is_in_the_midst_of_mpi_from_its_first_session_to_the_last() {
    let (mpi, job) = (Mpi::new(), super::Job::new(1, 1));
    let is_in = || job.with(|shared| shared.begun.get(&0).copied());
    mpi.link.set(std::sync::Arc::new(super::Thread { process: 0, job: job.clone() })).unwrap();
    // SAFETY: nothing is given.
    unsafe {
        let session = || mpi.session_init(Info::NULL, Errhandler::RETURN).unwrap();
        let ended = |session| mpi.session_finalize(session).unwrap();
        assert_eq!(is_in(), None);
        let two = [session(), session()];
        assert_eq!(is_in(), Some(true));
        ended(two[0]);
        assert_eq!(is_in(), Some(true));
        ended(two[1]);
        assert_eq!(is_in(), Some(false));
        let third = session();
        mpi.init(std::ptr::null_mut(), std::ptr::null_mut()).unwrap();
        ended(third);
        assert_eq!(is_in(), Some(true));
        mpi.finalize().unwrap();
        assert_eq!(is_in(), Some(false));
    }
}

/// The clocks of several nodes are not the same.
#[test]
fn time_is_that_of_a_node() {
    for nodes in [1, 2] {
        super::run_on(nodes, 2, |mpi, _| {
            let mut told: *const i32 = std::ptr::null();
            // MPI_WTIME_IS_GLOBAL. SAFETY: there is room for an address, and a number there.
            let is_global = unsafe {
                mpi.comm_get_attr(Comm::WORLD, 504, (&raw mut told).cast()).unwrap();
                told.read()
            };
            assert_eq!(is_global, i32::from(nodes == 1));
        });
    }
}
