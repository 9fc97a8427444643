//! Collectives in their three forms.

use std::ffi::{c_int, c_void};

use bdrun_mpi_core::error::{Class, Code};
use proptest::prelude::*;

use super::run;
use crate::Mpi;
use crate::args::{Buffer, Handles, Ints};
use crate::calls::{Collectives, Communicators, Datatypes, Messages, Operations, Requests};
use crate::failure::{Answer, Failure};
use crate::handle::{Comm, Datatype, Info, Op, Request};

const INT: Datatype = Datatype(0x209);
const BYTE: Datatype = Datatype(0x247);
const DOUBLE_INT: Datatype = Datatype(0x229);
const WORLD: Comm = Comm::WORLD;
const SUM: Op = Op(0x21);
const MAXLOC: Op = Op(0x39);
const REPLACE: Op = Op(0x3c);

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

fn ints(of: &[c_int]) -> Ints {
    Ints::small(of.as_ptr())
}

fn types(of: &[Datatype]) -> Handles<Datatype> {
    unsafe fn read(at: *mut c_void, index: usize) -> Answer<u64> {
        // SAFETY: the caller's.
        Ok(unsafe { at.cast::<Datatype>().add(index).read() }.0)
    }
    unsafe fn write(_: *mut c_void, _: usize, _: u64) {}
    Handles::new(of.as_ptr().cast_mut().cast(), read, write)
}

fn finish(mpi: &Mpi, request: Request) -> Request {
    // SAFETY: nothing is given but a handle.
    unsafe { super::wait(mpi, request) }.expect("complete").0
}

/// The three forms of a call; the last is started twice.
macro_rules! each {
    ($form:expr, $mpi:ident.$call:ident/$begun:ident/$init:ident($($arg:expr),*)) => {
        match $form {
            0 => $mpi.$call($($arg),*).unwrap(),
            1 => assert_eq!(finish($mpi, $mpi.$begun($($arg),*).unwrap()), Request::NULL),
            _ => {
                let request = $mpi.$init($($arg,)* Info::NULL).unwrap();
                for _ in 0..2 {
                    $mpi.start(request).unwrap();
                    assert_eq!(finish($mpi, request), request);
                }
                $mpi.request_free(request).unwrap();
            }
        }
    };
}

/// What a rank has, by which everything is recognised.
fn of(rank: usize, to: usize) -> c_int {
    (rank * 100 + to) as c_int
}

#[test]
fn everybody_gets_what_is_his() {
    for (form, n) in [(0, 4), (1, 4), (2, 4), (0, 1), (2, 1)] {
        run(n, |mpi, process| {
            let (n, me) = (n as usize, process as usize);
            let root = n / 2;
            // SAFETY: buffers of the size that is said.
            unsafe {
                let mut got = [if me == root { 7 } else { 0 }; 2];
                each!(form, mpi.bcast / ibcast / bcast_init(into(&mut got), 2, INT, root as i64, WORLD));
                assert_eq!(got, [7; 2]);

                let (own, all) = ([of(me, 0), of(me, 1)], |i: usize| of(i / 2, i % 2));
                let mut got = vec![-1; 2 * n];
                each!(
                    form,
                    mpi.gather
                        / igather
                        / gather_init(at(&own), 2, INT, into(&mut got), 2, INT, root as i64, WORLD)
                );
                assert!(got.iter().enumerate().all(|(i, &v)| v == if me == root { all(i) } else { -1 }));

                let mut got = vec![-1; 2 * n];
                each!(
                    form,
                    mpi.allgather
                        / iallgather
                        / allgather_init(at(&own), 2, INT, into(&mut got), 2, INT, WORLD)
                );
                assert!(got.iter().enumerate().all(|(i, &v)| v == all(i)), "{got:?}");

                let each: Vec<c_int> = (0..n).map(|to| of(me, to)).collect();
                let mut got = [-1];
                each!(
                    form,
                    mpi.scatter
                        / iscatter
                        / scatter_init(at(&each), 1, INT, into(&mut got), 1, INT, root as i64, WORLD)
                );
                assert_eq!(got, [of(root, me)]);

                let mut got = vec![-1; n];
                each!(
                    form,
                    mpi.alltoall
                        / ialltoall
                        / alltoall_init(at(&each), 1, INT, into(&mut got), 1, INT, WORLD)
                );
                assert!(got.iter().enumerate().all(|(from, &v)| v == of(from, me)), "{got:?}");
            }
        });
    }
}

#[test]
fn what_is_in_place_is_left_or_overwritten() {
    run(3, |mpi, process| {
        let me = process as usize;
        // SAFETY: buffers of the size that is said.
        unsafe {
            let mut all = [-1, -1, -1];
            all[me] = of(me, 9);
            mpi.allgather(Buffer::InPlace, 0, INT, into(&mut all), 1, INT, WORLD).unwrap();
            assert_eq!(all, [of(0, 9), of(1, 9), of(2, 9)]);

            let mut all = [0; 3].map(|_: i32| -1);
            all[me] = of(me, 8);
            if me == 1 {
                mpi.gather(Buffer::InPlace, 0, INT, into(&mut all), 1, INT, 1, WORLD).unwrap();
                assert_eq!(all, [of(0, 8), of(1, 8), of(2, 8)]);
                mpi.scatter(into(&mut all), 1, INT, Buffer::InPlace, 0, INT, 1, WORLD).unwrap();
            } else {
                let own = [all[me]];
                mpi.gather(at(&own), 1, INT, Buffer::InPlace, 0, INT, 1, WORLD).unwrap();
                let mut back = [0];
                mpi.scatter(Buffer::InPlace, 0, INT, into(&mut back), 1, INT, 1, WORLD).unwrap();
                assert_eq!(back, own);
            }

            let mut each = [of(me, 0), of(me, 1), of(me, 2)];
            mpi.alltoall(Buffer::InPlace, 0, INT, into(&mut each), 1, INT, WORLD).unwrap();
            assert_eq!(each, [of(0, me), of(1, me), of(2, me)]);

            let mut sum = [me as i32 + 1, 10];
            mpi.allreduce(Buffer::InPlace, into(&mut sum), 2, INT, SUM, WORLD).unwrap();
            assert_eq!(sum, [6, 30]);
            let mut sum = [me as i32 + 1];
            let (from, to) = (Buffer::InPlace, into(&mut sum));
            if me == 2 {
                mpi.reduce(from, to, 1, INT, SUM, 2, WORLD).unwrap();
                assert_eq!(sum, [6]);
            } else {
                mpi.reduce(to, from, 1, INT, SUM, 2, WORLD).unwrap();
            }
            let mut sum = [me as i32 + 1];
            mpi.exscan(Buffer::InPlace, into(&mut sum), 1, INT, SUM, WORLD).unwrap();
            // What the first one has stays as it was.
            assert_eq!(sum, [[1, 1, 3][me]]);
            let mut blocks = [1, 2, 3].map(|k| k * (me as i32 + 1));
            mpi.reduce_scatter_block(Buffer::InPlace, into(&mut blocks), 1, INT, SUM, WORLD).unwrap();
            assert_eq!(blocks[0], 6 * (me as i32 + 1));
        }
    });
}

/// Pairs (a, b) as x → a x + b: their composition depends on the order.
extern "C" fn compose(first: *mut c_void, second: *mut c_void, len: *mut c_int, _: *mut u64) {
    // SAFETY: MPI's call of such a function.
    unsafe {
        for i in 0..*len as usize {
            let (f, s) = (first.cast::<[i32; 3]>().add(i), second.cast::<[i32; 3]>().add(i));
            let ([a, gap, b], [c, _, d]) = (*f, *s);
            assert_eq!(gap, *first.cast::<[i32; 3]>().cast::<i32>().add(3 * i + 1));
            (*s)[0] = a.wrapping_mul(c);
            (*s)[2] = a.wrapping_mul(d).wrapping_add(b);
        }
    }
}

#[test]
fn all_are_combined_in_the_order_of_ranks() {
    const LEN: usize = 5000;
    for form in 0..3 {
        run(4, |mpi, process| {
            let me = process as usize;
            let pair = |rank: usize, i: usize| (rank as i32 + 2, (i % 17) as i32 - rank as i32);
            let composed = |ranks: std::ops::Range<usize>, i: usize| {
                ranks.rev().fold((1, 0), |(c, d): (i32, i32), rank| {
                    let (a, b) = pair(rank, i);
                    (a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b))
                })
            };
            // SAFETY: buffers of the size that is said.
            unsafe {
                // Two numbers with a gap between that is the program's own.
                let of = mpi.type_commit(mpi.type_vector(2, 1, 2, INT, false).unwrap()).unwrap();
                let op = mpi.op_create(compose as *mut c_void, false, false).unwrap();
                let own: Vec<[i32; 3]> =
                    (0..LEN).map(|i| (pair(me, i).0, 77, pair(me, i).1).into()).collect();
                let mut got = vec![[-9; 3]; LEN];
                let is = |got: &[[i32; 3]], ranks: std::ops::Range<usize>, from: usize| {
                    got.iter().enumerate().all(|(i, v)| {
                        let (a, b) = composed(ranks.clone(), from + i);
                        *v == [a, -9, b]
                    })
                };
                let len = LEN as i64;
                each!(
                    form,
                    mpi.allreduce / iallreduce / allreduce_init(at(&own), into(&mut got), len, of, op, WORLD)
                );
                assert!(is(&got, 0..4, 0), "{:?}", &got[..3]);
                each!(form, mpi.scan / iscan / scan_init(at(&own), into(&mut got), len, of, op, WORLD));
                assert!(is(&got, 0..me + 1, 0));
                got.fill([-9; 3]);
                each!(form, mpi.exscan / iexscan / exscan_init(at(&own), into(&mut got), len, of, op, WORLD));
                if me == 0 {
                    assert!(got.iter().all(|v| *v == [-9; 3]), "left alone");
                } else {
                    assert!(is(&got, 0..me, 0));
                }
                each!(
                    form,
                    mpi.reduce / ireduce / reduce_init(at(&own), into(&mut got), len, of, op, 1, WORLD)
                );
                assert!(me != 1 || is(&got, 0..4, 0));
                let counts = [10, 0, 4000, 990];
                let first: i32 = counts[..me].iter().sum();
                got.fill([-9; 3]);
                each!(
                    form,
                    mpi.reduce_scatter
                        / ireduce_scatter
                        / reduce_scatter_init(at(&own), into(&mut got), ints(&counts), of, op, WORLD)
                );
                let (mine, rest) = got.split_at(counts[me] as usize);
                assert!(is(mine, 0..4, first as usize) && rest.iter().all(|v| *v == [-9; 3]));
                got.fill([-9; 3]);
                each!(
                    form,
                    mpi.reduce_scatter_block
                        / ireduce_scatter_block
                        / reduce_scatter_block_init(at(&own), into(&mut got), len / 4, of, op, WORLD)
                );
                assert!(is(&got[..LEN / 4], 0..4, me * LEN / 4));
                // What is found where.
                #[repr(C)]
                #[derive(Debug, Clone, Copy, PartialEq)]
                struct Found(f64, c_int);
                let (own, mut most) = ([Found([1.5, 9.0, 9.0, -2.0][me], me as c_int)], [Found(0.0, -1)]);
                each!(
                    form,
                    mpi.allreduce
                        / iallreduce
                        / allreduce_init(at(&own), into(&mut most), 1, DOUBLE_INT, MAXLOC, WORLD)
                );
                assert_eq!(most, [Found(9.0, 1)]);
            }
        });
    }
}

/// Who is not waited for may come late: he is told only afterwards that the others have gone on.
#[test]
fn nobody_waits_for_whom_he_does_not_need() {
    run(3, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let word = |to| mpi.send(at(&[0u8; 1]), 1, BYTE, to, 0, WORLD).unwrap();
            let heard = |from| _ = mpi.recv(into(&mut [0u8; 1]), 1, BYTE, from, 0, WORLD).unwrap();
            let mut data = [process as i32 + 5];
            let mut all = [0; 3];
            // A root that gives, ranks that give, and those at the front of a scan.
            if process == 0 {
                mpi.bcast(into(&mut data), 1, INT, 0, WORLD).unwrap();
                mpi.scatter(at(&[1, 2, 3]), 1, INT, into(&mut data), 1, INT, 0, WORLD).unwrap();
                mpi.gather(at(&data), 1, INT, into(&mut all), 1, INT, 2, WORLD).unwrap();
                mpi.reduce(at(&data), into(&mut all), 1, INT, SUM, 2, WORLD).unwrap();
                mpi.scan(at(&[1]), into(&mut data), 1, INT, SUM, WORLD).unwrap();
                word(1);
            } else {
                if process == 1 {
                    heard(0);
                }
                mpi.bcast(into(&mut data), 1, INT, 0, WORLD).unwrap();
                assert_eq!(data, [5]);
                mpi.scatter(Buffer::InPlace, 0, INT, into(&mut data), 1, INT, 0, WORLD).unwrap();
                assert_eq!(data, [process as i32 + 1]);
                if process == 2 {
                    heard(1);
                }
                mpi.gather(at(&data), 1, INT, into(&mut all), 1, INT, 2, WORLD).unwrap();
                let mut sum = [0];
                mpi.reduce(at(&data), into(&mut sum), 1, INT, SUM, 2, WORLD).unwrap();
                assert_eq!((all, sum), if process == 2 { ([1, 2, 3], [6]) } else { ([0; 3], [0]) });
                mpi.scan(at(&[1]), into(&mut data), 1, INT, SUM, WORLD).unwrap();
                assert_eq!(data, [process as i32 + 1]);
                if process == 1 {
                    word(2);
                }
            }
        }
    });
}

/// Who waits in a collective receives meanwhile: another waits for him to.
#[test]
fn messages_are_taken_in_while_waiting() {
    run(2, |mpi, process| {
        // SAFETY: buffers of the size that is said, which live until they are received.
        unsafe {
            let mut got = [0];
            if process == 0 {
                let request = mpi.irecv(into(&mut got), 1, INT, 1, 0, WORLD).unwrap();
                mpi.barrier(WORLD).unwrap();
                finish(mpi, request);
                assert_eq!(got, [3]);
            } else {
                mpi.ssend(at(&[3]), 1, INT, 0, 0, WORLD).unwrap();
                mpi.barrier(WORLD).unwrap();
            }
        }
    });
}

#[test]
fn several_are_under_way_and_end_in_any_order() {
    run(3, |mpi, process| {
        // SAFETY: buffers of the size that is said, which live until the requests are complete.
        unsafe {
            let own: Vec<i32> = (0..20).map(|i| i * (process as i32 + 1)).collect();
            let mut sums = [0; 20];
            let (mut requests, base) = (vec![], sums.as_mut_ptr());
            for i in 0..20 {
                let to = Buffer::At(base.add(i).cast());
                requests.push(mpi.iallreduce(at(&own[i..]), to, 1, INT, SUM, WORLD).unwrap());
            }
            let barrier = mpi.ibarrier(WORLD).unwrap();
            finish(mpi, barrier);
            let order = if process == 1 { (0..20).rev().collect::<Vec<_>>() } else { (0..20).collect() };
            order.into_iter().for_each(|i| assert_eq!(finish(mpi, requests[i]), Request::NULL));
            assert!((0..20).all(|i| sums[i as usize] == 6 * i), "{sums:?}");
        }
    });
}

#[test]
fn persistent_ones_are_started_in_any_order() {
    run(3, |mpi, process| {
        // SAFETY: buffers of the size that is said, which live until the requests are freed.
        unsafe {
            let (own, mut sum, mut all) = ([process as i32], [0], [-1; 3]);
            let sums = mpi.allreduce_init(at(&own), into(&mut sum), 1, INT, SUM, WORLD, Info::NULL).unwrap();
            let gathers =
                mpi.allgather_init(at(&own), 1, INT, into(&mut all), 1, INT, WORLD, Info::NULL).unwrap();
            for _ in 0..3 {
                let order = if process == 1 { [gathers, sums] } else { [sums, gathers] };
                for request in order {
                    mpi.start(request).unwrap();
                }
                // Others go on meanwhile.
                mpi.barrier(WORLD).unwrap();
                order.into_iter().for_each(|request| assert_eq!(finish(mpi, request), request));
                assert_eq!((sum, all), ([3], [0, 1, 2]));
            }
            mpi.request_free(sums).unwrap();
            mpi.request_free(gathers).unwrap();
        }
    });
}

/// More than there may be communicators; and if all those have their places, that is told to all alike.
#[test]
fn persistent_ones_share_places() {
    run(3, |mpi, process| {
        // SAFETY: buffers of the size that is said, which live until the requests are freed.
        unsafe {
            let own = [process as i32];
            let mut sums = vec![[0]; 1500];
            let make =
                |sum: &mut [i32; 1]| mpi.allreduce_init(at(&own), into(sum), 1, INT, SUM, WORLD, Info::NULL);
            let mut requests: Vec<_> = sums.iter_mut().map(|sum| make(sum).unwrap()).collect();
            // Those at one place in any order, each as often as it likes, whatever the others there do.
            for (turn, nth) in [5, 4, 7, 4, 4, 6, 4].into_iter().enumerate() {
                let others = [1496, 1497, 1498, 1499];
                if process == 1 {
                    others.iter().rev().for_each(|&other| _ = mpi.start(requests[other]).unwrap());
                }
                mpi.start(requests[nth]).unwrap();
                if process != 1 {
                    others.iter().for_each(|&other| _ = mpi.start(requests[other]).unwrap());
                }
                assert_eq!(finish(mpi, requests[nth]), requests[nth], "{turn}");
                others.iter().for_each(|&other| _ = finish(mpi, requests[other]));
                for &nth in others.iter().chain([&nth]) {
                    assert_eq!(std::mem::take(&mut sums[nth]), [3]);
                }
            }
            let failure = loop {
                match make(&mut [0]) {
                    Ok(made) => requests.push(made),
                    Err(failure) => break failure,
                }
            };
            assert_eq!(failure.code, Code::Class(Class::Other));
            assert!(failure.text.is_some_and(|text| text.contains("MPI_Request_free")));
            requests.into_iter().for_each(|request| _ = mpi.request_free(request).unwrap());
        }
    });
}

#[test]
fn wrong_arguments_are_told() {
    run(1, |mpi, _| {
        let mut room = [0; 2];
        let to = into(&mut room);
        let nothing = Buffer::At(std::ptr::null_mut());
        // SAFETY: what cannot be used is refused; the rest is of the size that is said.
        unsafe {
            assert_eq!(class(mpi.bcast(to, 1, INT, 1, WORLD)), Class::Root);
            assert_eq!(class(mpi.bcast(to, 1, INT, -1, WORLD)), Class::Root);
            assert_eq!(class(mpi.bcast(to, -1, INT, 0, WORLD)), Class::Count);
            assert_eq!(class(mpi.bcast(nothing, 1, INT, 0, WORLD)), Class::Buffer);
            assert_eq!(class(mpi.bcast(Buffer::InPlace, 1, INT, 0, WORLD)), Class::Buffer);
            assert_eq!(class(mpi.bcast(to, 1, Datatype::NULL, 0, WORLD)), Class::Type);
            assert_eq!(class(mpi.barrier(Comm::NULL)), Class::Comm);
            let uncommitted = mpi.type_vector(1, 1, 1, INT, false).unwrap();
            assert_eq!(class(mpi.bcast(to, 1, uncommitted, 0, WORLD)), Class::Type);
            assert_eq!(class(mpi.allreduce(to, to, 1, INT, Op::NULL, WORLD)), Class::Op);
            assert_eq!(class(mpi.allreduce(to, to, 1, INT, REPLACE, WORLD)), Class::Op);
            assert_eq!(class(mpi.allreduce(to, to, 1, BYTE, SUM, WORLD)), Class::Op);
            assert_eq!(class(mpi.allgather(at(&[1, 2]), 2, INT, to, 1, INT, WORLD)), Class::Truncate);
            let (none, one) = (Ints::small(std::ptr::null()), ints(&[1]));
            assert_eq!(class(mpi.allgatherv(at(&[1]), 1, INT, to, none, one, INT, WORLD)), Class::Arg);
            assert_eq!(class(mpi.reduce_scatter(at(&[1]), to, none, INT, SUM, WORLD)), Class::Arg);
            assert_eq!(class(mpi.reduce_scatter(at(&[1]), to, ints(&[-1]), INT, SUM, WORLD)), Class::Count);
            assert_eq!(class(mpi.ibcast(to, 1, INT, 1, WORLD)), Class::Root);
            assert_eq!(class(mpi.bcast_init(to, 1, INT, 1, WORLD, Info::NULL)), Class::Root);
        }
    });
}

#[test]
fn communicators_do_not_hear_each_other() {
    run(4, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let half = mpi.comm_split(WORLD, i64::from(process % 2), 0).unwrap();
            let request = mpi.ibarrier(WORLD).unwrap();
            let mut sum = [0];
            mpi.allreduce(at(&[process as i32]), into(&mut sum), 1, INT, SUM, half).unwrap();
            assert_eq!(sum, [if process % 2 == 0 { 2 } else { 4 }]);
            finish(mpi, request);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Blocks of any size, at any place, of any stride: those of others are left alone.
    #[test]
    fn any_blocks(
        n in 1usize..5,
        counts in proptest::collection::vec(0i32..6, 16),
        gap in 0i32..3,
        strided in any::<bool>(),
        typed in any::<bool>(),
        form in 0..3,
    ) {
        run(n as u32, |mpi, process| {
            let me = process as usize;
            let count = |from: usize, to: usize| counts[from * 4 + to];
            let places = |counts: &[i32]| {
                let place = |next: &mut i32, count: &i32| {
                    let at = *next;
                    *next += count + gap;
                    Some(at)
                };
                counts.iter().scan(gap, place).collect::<Vec<_>>()
            };
            let (gives, takes): (Vec<i32>, Vec<i32>) =
                (0..n).map(|other| (count(me, other), count(other, me))).unzip();
            let (from, to) = (places(&gives), places(&takes));
            let words = if strided { 2 } else { 1 };
            // The nth of what one gives to another.
            let value = |from: usize, to: usize, n: i32| (from as i32 * 10 + to as i32) * 100 + n;
            let mut given = vec![-5; 200];
            let mut expected = vec![-1; 200];
            for other in 0..n {
                for i in 0..gives[other] {
                    given[((from[other] + i) * words) as usize] = value(me, other, i);
                }
                for i in 0..takes[other] {
                    expected[((to[other] + i) * words) as usize] = value(other, me, i);
                }
            }
            let mut got = vec![-1; 200];
            // SAFETY: buffers of the size that is said.
            unsafe {
                let of = if strided { mpi.type_create_resized(INT, 0, 8, false).unwrap() } else { INT };
                let of = mpi.type_commit(of).unwrap();
                if typed {
                    let bytes = |places: &[i32]| places.iter().map(|at| at * 4 * words).collect::<Vec<_>>();
                    let (from, to, all) = (bytes(&from), bytes(&to), vec![of; n]);
                    each!(form, mpi.alltoallw/ialltoallw/alltoallw_init
                        (at(&given), ints(&gives), ints(&from), types(&all), into(&mut got), ints(&takes),
                         ints(&to), types(&all), WORLD));
                } else {
                    each!(form, mpi.alltoallv/ialltoallv/alltoallv_init
                        (at(&given), ints(&gives), ints(&from), of, into(&mut got), ints(&takes), ints(&to), of,
                         WORLD));
                }
                assert_eq!(got, expected);

                // To one, to all, and from one: what each would give to the first.
                let counts: Vec<i32> = (0..n).map(|from| count(from, 0)).collect();
                let places = places(&counts);
                let mut expected = vec![-1; 200];
                for other in 0..n {
                    for i in 0..counts[other] {
                        expected[((places[other] + i) * words) as usize] = value(other, 0, i);
                    }
                }
                let own: Vec<i32> = (0..6).map(|i| value(me, 0, i)).collect();
                let (root, mine) = (n as i64 - 1, i64::from(counts[me]));
                let (mut one, mut all) = (vec![-1; 200], vec![-1; 200]);
                each!(form, mpi.gatherv/igatherv/gatherv_init
                    (at(&own), mine, INT, into(&mut one), ints(&counts), ints(&places), of, root, WORLD));
                each!(form, mpi.allgatherv/iallgatherv/allgatherv_init
                    (at(&own), mine, INT, into(&mut all), ints(&counts), ints(&places), of, WORLD));
                assert_eq!(all, expected);
                assert!(one == if me == n - 1 { expected } else { vec![-1; 200] });
                let mut back = vec![-1; 6];
                each!(form, mpi.scatterv/iscatterv/scatterv_init
                    (at(&all), ints(&counts), ints(&places), of, into(&mut back), mine, INT, root, WORLD));
                assert_eq!(back[..mine as usize], own[..mine as usize]);
                assert!(back[mine as usize..].iter().all(|&v| v == -1));
            }
        });
    }
}
