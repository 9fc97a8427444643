//! Communicators made of groups and between two groups, and collectives across them; what hangs on them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bdrun_mpi_core::error::{Class, Code};

use super::run;
use crate::Mpi;
use crate::args::{Buffer, Ints, IntsOut, Meant};
use crate::calls::{Attributes, Collectives, Communicators, Groups, Messages};
use crate::failure::Failure;
use crate::groups::{PROC_NULL, UNDEFINED};
use crate::handle::{Comm, Datatype, Errhandler, Group, Info, Op};

const INT: Datatype = Datatype(0x209);
const SUM: Op = Op(0x21);
const WORLD: Comm = Comm::WORLD;
const ROOT: i64 = -4;

fn class(result: Result<impl std::fmt::Debug, Failure>) -> Class {
    match result.expect_err("it fails").code {
        Code::Class(class) => class,
        other => panic!("{other:?}"),
    }
}

fn at<T>(of: &[T]) -> Buffer {
    Buffer::At(of.as_ptr().cast_mut().cast())
}

fn into<T>(of: &mut [T]) -> Buffer {
    Buffer::At(of.as_mut_ptr().cast())
}

/// The group of these members of the world.
fn group(mpi: &Mpi, of: &[i32]) -> Group {
    // SAFETY: an array of the size that is said.
    unsafe {
        let world = mpi.comm_group(WORLD).unwrap();
        mpi.group_incl(world, of.len() as i64, Ints::small(of.as_ptr())).unwrap()
    }
}

/// The ranks in the world of a group's members.
fn members(mpi: &Mpi, of: Group) -> Vec<i32> {
    // SAFETY: arrays of the size that is said.
    unsafe {
        let (world, size) = (mpi.comm_group(WORLD).unwrap(), mpi.group_size(of).unwrap());
        let (ranks, mut found): (Vec<i32>, _) = ((0..size as i32).collect(), vec![0; size as usize]);
        let from = Meant::new(ranks.as_ptr(), |rank| Ok(rank.into()));
        mpi.group_translate_ranks(of, size, from, world, IntsOut::small(found.as_mut_ptr())).unwrap();
        found
    }
}

/// What all members together have, as one hears it: their own sum.
fn sum(mpi: &Mpi, of: Comm, own: i32) -> i32 {
    let mut sum = [0];
    // SAFETY: buffers of the size that is said.
    unsafe { mpi.allreduce(at(&[own]), into(&mut sum), 1, INT, SUM, of) }.unwrap();
    sum[0]
}

/// {0, 2, 4} and {1, 3}, led by 2 and by 1.
fn two_groups(mpi: &Mpi, process: u32) -> (Comm, Comm) {
    // SAFETY: nothing is given but numbers.
    unsafe {
        let half = mpi.comm_split(WORLD, i64::from(process % 2), 0).unwrap();
        let (leader, other) = if process.is_multiple_of(2) { (1, 1) } else { (0, 2) };
        (half, mpi.intercomm_create(half, leader, WORLD, other, 17).unwrap())
    }
}

#[test]
fn a_group_makes_a_communicator_without_the_others() {
    run(4, |mpi, process| {
        // SAFETY: strings end, groups are there.
        unsafe {
            let few = group(mpi, &[3, 1]);
            let made = mpi.comm_create_group(WORLD, few, 5).unwrap();
            if process % 2 == 0 {
                assert_eq!(made, Comm::NULL);
                let string: *const c_char = c"evens".as_ptr();
                let own = group(mpi, &[0, 2]);
                let made = mpi.comm_create_from_group(own, string, Info::NULL, Errhandler::RETURN).unwrap();
                assert_eq!((mpi.comm_rank(made), sum(mpi, made, 1)), (Ok(i64::from(process) / 2), 2));
                assert_eq!(
                    class(mpi.comm_create_from_group(few, string, Info::NULL, Errhandler::RETURN)),
                    Class::Group
                );
            } else {
                assert_eq!(members(mpi, mpi.comm_group(made).unwrap()), [3, 1]);
                assert_eq!(sum(mpi, made, process as i32), 4);
            }
            assert_eq!(class(mpi.comm_create_group(WORLD, few, -1)), Class::Tag);
        }
    });
}

#[test]
fn two_groups_talk() {
    run(5, |mpi, process| {
        let me = process as i32;
        let is_even = process % 2 == 0;
        let (half, inter) = two_groups(mpi, process);
        let (mine, theirs): (&[i32], &[i32]) =
            if is_even { (&[0, 2, 4], &[1, 3]) } else { (&[1, 3], &[0, 2, 4]) };
        // SAFETY: buffers of the size that is said.
        unsafe {
            assert_eq!(mpi.comm_test_inter(inter), Ok(true));
            assert_eq!(members(mpi, mpi.comm_group(inter).unwrap()), mine);
            assert_eq!(members(mpi, mpi.comm_remote_group(inter).unwrap()), theirs);
            assert_eq!(mpi.comm_remote_size(inter), Ok(theirs.len() as i64));
            assert_eq!(mpi.comm_rank(inter), mpi.comm_rank(half));
            // Ranks are those of the other group.
            let rank = mpi.comm_rank(inter).unwrap();
            let mut got = [-1];
            if is_even && rank < 2 {
                mpi.send(at(&[me]), 1, INT, rank, 3, inter).unwrap();
                mpi.recv(into(&mut got), 1, INT, rank, 3, inter).unwrap();
                assert_eq!(got, [theirs[rank as usize] * 10]);
            } else if !is_even {
                mpi.recv(into(&mut got), 1, INT, rank, 3, inter).unwrap();
                assert_eq!(got, [theirs[rank as usize]]);
                mpi.send(at(&[me * 10]), 1, INT, rank, 3, inter).unwrap();
            }
            assert_eq!(class(mpi.send(at(&[1]), 1, INT, theirs.len() as i64, 3, inter)), Class::Rank);
            // What is made of it.
            let again = mpi.comm_dup(inter).unwrap();
            assert_eq!(mpi.comm_compare(inter, again), Ok(202), "congruent");
            assert_eq!(sum(mpi, again, 1), theirs.len() as i32);
            for (high, expected) in [(is_even, [1, 3, 0, 2, 4]), (!is_even, [0, 2, 4, 1, 3])] {
                let all = mpi.intercomm_merge(inter, high).unwrap();
                assert_eq!(members(mpi, mpi.comm_group(all).unwrap()), expected);
                assert_eq!(sum(mpi, all, me), 10);
            }
            // The leader of the odd ones, 1, comes before that of the even ones, 2.
            let all = mpi.intercomm_merge(inter, true).unwrap();
            assert_eq!(members(mpi, mpi.comm_group(all).unwrap()), [1, 3, 0, 2, 4]);
            // Of each group some; 4 is the only one of its color.
            let color = if process == 4 { 9 } else { 0 };
            let part = mpi.comm_split(inter, color, -rank).unwrap();
            if process == 4 {
                assert_eq!(part, Comm::NULL);
            } else {
                let expected: &[i32] = if is_even { &[2, 0] } else { &[3, 1] };
                assert_eq!(members(mpi, mpi.comm_group(part).unwrap()), expected);
                assert_eq!(sum(mpi, part, me), if is_even { 4 } else { 2 });
            }
            assert_eq!(mpi.comm_split(inter, if is_even { 0 } else { UNDEFINED }, 0), Ok(Comm::NULL));
            let few = group(mpi, if is_even { &[4, 0] } else { &[3] });
            let made = mpi.comm_create(inter, few).unwrap();
            assert_eq!(made == Comm::NULL, [1, 2].contains(&process));
            if made != Comm::NULL {
                assert_eq!(sum(mpi, made, me), if is_even { 3 } else { 4 });
            }
            let nobody = if is_even { group(mpi, &[0]) } else { Group::EMPTY };
            assert_eq!(mpi.comm_create(inter, nobody), Ok(Comm::NULL));
            assert_eq!(class(mpi.scan(at(&[1]), into(&mut got), 1, INT, SUM, inter)), Class::Comm);
            assert_eq!(class(mpi.intercomm_create(inter, 0, WORLD, 0, 1)), Class::Comm);
        }
    });
}

#[test]
fn collectives_go_across() {
    run(5, |mpi, process| {
        let (me, is_even) = (process as i32, process % 2 == 0);
        let (_, inter) = two_groups(mpi, process);
        let (mine, theirs): (&[i32], &[i32]) =
            if is_even { (&[0, 2, 4], &[1, 3]) } else { (&[1, 3], &[0, 2, 4]) };
        // SAFETY: buffers of the size that is said.
        unsafe {
            // From 2 to the odd ones, and from them to it.
            let root = match process {
                2 => ROOT,
                _ if is_even => PROC_NULL,
                _ => 1,
            };
            let mut got = [me];
            mpi.bcast(into(&mut got), 1, INT, root, inter).unwrap();
            assert_eq!(got, [if is_even { me } else { 2 }]);
            let mut all = [-1, -1];
            mpi.gather(at(&[me]), 1, INT, into(&mut all), 1, INT, root, inter).unwrap();
            assert_eq!(all, if process == 2 { [1, 3] } else { [-1, -1] });
            let mut got = [-1];
            mpi.scatter(at(&[7, 8]), 1, INT, into(&mut got), 1, INT, root, inter).unwrap();
            assert_eq!(got, [[-1, 7, -1, 8, -1][process as usize]]);
            let mut got = [-1];
            mpi.reduce(at(&[me]), into(&mut got), 1, INT, SUM, root, inter).unwrap();
            assert_eq!(got, [if process == 2 { 4 } else { -1 }]);
            assert_eq!(class(mpi.bcast(into(&mut got), 1, INT, 3, inter)), Class::Root);

            mpi.barrier(inter).unwrap();
            let mut all = vec![-1; theirs.len()];
            mpi.allgather(at(&[me]), 1, INT, into(&mut all), 1, INT, inter).unwrap();
            assert_eq!(all, theirs);
            let each: Vec<i32> = theirs.iter().map(|to| me * 10 + to).collect();
            let request = mpi.ialltoall(at(&each), 1, INT, into(&mut all), 1, INT, inter).unwrap();
            super::wait(mpi, request).unwrap();
            assert_eq!(all, theirs.iter().map(|from| from * 10 + me).collect::<Vec<_>>());
            // Six elements of everybody: each gets its part of what the others have.
            let own: Vec<i32> = (0..6).map(|i| me * 100 + i).collect();
            let part = 6 / mine.len();
            let mut got = vec![-1; part];
            mpi.reduce_scatter_block(at(&own), into(&mut got), part as i64, INT, SUM, inter).unwrap();
            let rank = mpi.comm_rank(inter).unwrap() as usize;
            let (sum, n) = (theirs.iter().sum::<i32>() * 100, theirs.len() as i32);
            assert!((0..part).all(|i| got[i] == sum + n * (rank * part + i) as i32), "{got:?}");
        }
    });
}

#[test]
fn groups_find_each_other_by_a_string() {
    run(3, |mpi, process| {
        // SAFETY: strings end.
        unsafe {
            let (one, two) = (group(mpi, &[2, 0]), group(mpi, &[1]));
            let (own, other) = if process == 1 { (two, one) } else { (one, two) };
            let (info, handler) = (Info::NULL, Errhandler::RETURN);
            let inter =
                mpi.intercomm_create_from_groups(own, 0, other, 0, c"here".as_ptr(), info, handler).unwrap();
            assert_eq!(sum(mpi, inter, process as i32), if process == 1 { 2 } else { 1 });
            let bad = mpi.intercomm_create_from_groups(own, 0, other, 0, std::ptr::null(), info, handler);
            assert_eq!(class(bad), Class::Arg);
        }
    });
}

#[test]
fn a_copy_may_be_made_while_others_go_on() {
    run(3, |mpi, process| {
        // SAFETY: nothing is given but numbers.
        unsafe {
            let (one, first) = mpi.comm_idup(WORLD).unwrap();
            let (two, second) = mpi.comm_idup(WORLD).unwrap();
            assert_eq!(mpi.comm_size(one), Ok(3));
            super::wait(mpi, second).unwrap();
            super::wait(mpi, first).unwrap();
            assert_eq!((sum(mpi, one, 1), sum(mpi, two, process as i32)), (3, 3));
            assert!(one != two);
            assert_eq!((mpi.comm_free(one), mpi.comm_free(two)), (Ok(Comm::NULL), Ok(Comm::NULL)));
        }
    });
}

/// Copies one more, and counts; the extra state is a counter.
extern "C" fn copies(
    _: u64,
    _: c_int,
    state: *mut c_void,
    value: usize,
    copy: *mut usize,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI's call of such a function.
    unsafe {
        (*state.cast::<AtomicUsize>()).fetch_add(1, SeqCst);
        (*copy, *flag) = (value + 1, 1);
    }
    0
}

extern "C" fn deletes(_: u64, _: c_int, _: usize, state: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { (*state.cast::<AtomicUsize>()).fetch_add(100, SeqCst) };
    0
}

#[test]
fn what_hangs_on_a_communicator_is_copied_and_deleted_with_it() {
    static CALLS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    run(2, |mpi, process| {
        let calls = &CALLS[process as usize];
        // SAFETY: functions of that type; room for an address or a name.
        unsafe {
            let state = std::ptr::from_ref(calls).cast_mut().cast();
            let key = mpi.comm_create_keyval(copies as *mut c_void, deletes as *mut c_void, state).unwrap();
            let get = |comm, key| {
                let mut value = 0_usize;
                mpi.comm_get_attr(comm, key, (&raw mut value).cast()).map(|found| found.then_some(value))
            };
            assert_eq!(get(WORLD, key), Ok(None));
            mpi.comm_set_attr(WORLD, key, 5 as *mut c_void).unwrap();
            let copy = mpi.comm_dup(WORLD).unwrap();
            let (later, request) = mpi.comm_idup(copy).unwrap();
            super::wait(mpi, request).unwrap();
            assert_eq!(
                (get(WORLD, key), get(copy, key), get(later, key)),
                (Ok(Some(5)), Ok(Some(6)), Ok(Some(7)))
            );
            mpi.comm_free(copy).unwrap();
            assert_eq!(calls.load(SeqCst), 102);
            mpi.comm_delete_attr(later, key).unwrap();
            assert_eq!((get(later, key), calls.load(SeqCst)), (Ok(None), 202));
            // What is left hanging on these is deleted when MPI ends.
            mpi.comm_set_attr(Comm::SELF, key, std::ptr::null_mut()).unwrap();
            // Numbers that are there from the beginning: their addresses are told.
            let number = |key| get(WORLD, key).unwrap().map(|at| (at as *const c_int).read());
            assert_eq!((number(501), number(504), number(507)), (Some(c_int::MAX), Some(1), Some(2)));
            assert_eq!(class(mpi.comm_set_attr(WORLD, 501, std::ptr::null_mut())), Class::Keyval);
            assert_eq!(class(get(WORLD, 4711)), Class::Keyval);

            let mut name = [1 as c_char; 200];
            let said = |comm: Comm, name: &mut [c_char]| {
                let len = mpi.comm_get_name(comm, name.as_mut_ptr()).unwrap() as usize;
                String::from_utf8(name[..len].iter().map(|&c| c as u8).collect()).unwrap()
            };
            assert_eq!(said(WORLD, &mut name), "MPI_COMM_WORLD");
            assert_eq!(said(later, &mut name), "");
            mpi.comm_set_name(later, c"mine".as_ptr()).unwrap();
            assert_eq!(said(later, &mut name), "mine");
        }
    });
    assert_eq!(CALLS.each_ref().map(|calls| calls.load(SeqCst)), [402; 2]);
}

/// Two groups have two leaders: who names itself waits for nobody, and its group hears of it.
#[test]
fn nobody_leads_both_groups() {
    run(3, |mpi, process| {
        // SAFETY: strings end.
        unsafe {
            let own = mpi.intercomm_create(Comm::SELF, 0, WORLD, process.into(), 3);
            assert_eq!(class(own), Class::Rank);
            let part = mpi.comm_split(WORLD, (process / 2).into(), 0).unwrap();
            if process < 2 {
                let failure = class(mpi.intercomm_create(part, 1, WORLD, 1, 3));
                assert_eq!(failure, if process == 1 { Class::Rank } else { Class::Other });
                let both = group(mpi, &[0, 1]);
                let (tag, none) = (c"tag".as_ptr(), Errhandler::RETURN);
                let made = mpi.intercomm_create_from_groups(both, 0, both, 0, tag, Info::NULL, none);
                assert_eq!(class(made), if process == 0 { Class::Rank } else { Class::Other });
            }
        }
    });
}
