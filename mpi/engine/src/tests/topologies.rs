//! Topologies, and collectives of neighbours.

use std::ffi::{c_int, c_void};

use bdrun_mpi_core::error::{Class, Code};

use super::run;
use crate::Mpi;
use crate::args::{Buffer, Handles, Ints, IntsOut, Weights};
use crate::calls::{Collectives, Communicators, Messages, Requests, Topologies};
use crate::failure::{Answer, Failure};
use crate::groups::{PROC_NULL, UNDEFINED};
use crate::handle::{Comm, Datatype, Info, Request};

const INT: Datatype = Datatype(0x209);
const WORLD: Comm = Comm::WORLD;

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

fn out(of: &mut [c_int]) -> IntsOut {
    IntsOut::small(of.as_mut_ptr())
}

fn types(of: &[Datatype]) -> Handles<Datatype> {
    unsafe fn read(at: *mut c_void, index: usize) -> Answer<u64> {
        // SAFETY: the caller's.
        Ok(unsafe { at.cast::<Datatype>().add(index).read() }.0)
    }
    unsafe fn write(_: *mut c_void, _: usize, _: u64) {}
    Handles::new(of.as_ptr().cast_mut().cast(), read, write)
}

fn grid(mpi: &Mpi, dims: &[c_int], periods: &[c_int]) -> Comm {
    // SAFETY: as many as are said.
    unsafe { mpi.cart_create(WORLD, dims.len() as i64, ints(dims), ints(periods), true) }.unwrap()
}

/// What the standard says each call of neighbours in a grid does, by messages: each block with its neighbour
/// by a tag of its direction.
fn by_messages(mpi: &Mpi, comm: Comm, dimensions: usize, own: &[c_int]) -> Vec<c_int> {
    let mut got = vec![-1; own.len()];
    for d in 0..dimensions {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let (before, behind) = mpi.cart_shift(comm, d as i64, 1).unwrap();
            for (block, to, from) in [(2 * d, before, behind), (2 * d + 1, behind, before)] {
                let (send, tag) = (at(&own[block..]), block as i64);
                let into = into(&mut got[block ^ 1..]);
                mpi.sendrecv(send, 1, INT, to, tag, into, 1, INT, from, tag, comm).unwrap();
            }
        }
    }
    got
}

#[test]
fn neighbours_in_a_grid_exchange_across_the_edge_they_share() {
    for (n, dims, periods) in [
        (6, vec![2, 1, 3], vec![1, 1, 0]),
        (4, vec![2, 2], vec![1, 0]),
        (4, vec![4], vec![1]),
        (2, vec![1, 2], vec![0, 1]),
        (1, vec![1], vec![1]),
        (1, vec![], vec![]),
    ] {
        run(n, |mpi, process| {
            let comm = grid(mpi, &dims, &periods);
            let blocks = 2 * dims.len();
            let own: Vec<c_int> = (0..blocks as c_int).map(|i| process as c_int * 100 + i).collect();
            let expected = by_messages(mpi, comm, dims.len(), &own);
            let (ones, places): (Vec<c_int>, Vec<c_int>) = (0..blocks as c_int).map(|i| (1, i)).unzip();
            let bytes: Vec<i64> = (0..blocks as i64).map(|i| 4 * i).collect();
            let all = vec![INT; blocks];
            // SAFETY: buffers of the size that is said.
            unsafe {
                let mut got = vec![-1; blocks];
                mpi.neighbor_alltoall(at(&own), 1, INT, into(&mut got), 1, INT, comm).unwrap();
                assert_eq!(got, expected);
                got.fill(-1);
                let (counts, places) = (ints(&ones), ints(&places));
                let request = mpi
                    .ineighbor_alltoallv(
                        at(&own),
                        counts,
                        places,
                        INT,
                        into(&mut got),
                        counts,
                        places,
                        INT,
                        comm,
                    )
                    .unwrap();
                assert_eq!(super::wait(mpi, request).unwrap().0, Request::NULL);
                assert_eq!(got, expected);
                got.fill(-1);
                let (bytes, all) = (Ints::large(bytes.as_ptr()), types(&all));
                let to = into(&mut got);
                let request = mpi
                    .neighbor_alltoallw_init(
                        at(&own),
                        counts,
                        bytes,
                        all,
                        to,
                        counts,
                        bytes,
                        all,
                        comm,
                        Info::NULL,
                    )
                    .unwrap();
                mpi.start(request).unwrap();
                super::wait(mpi, request).unwrap();
                mpi.request_free(request).unwrap();
                assert_eq!(got, expected);
                got.fill(-1);
                mpi.neighbor_allgather(at(&[process]), 1, INT, into(&mut got), 1, INT, comm).unwrap();
                assert!(got.iter().zip(&expected).all(|(got, e)| *got == if *e < 0 { -1 } else { e / 100 }));
                let mut again = vec![-1; blocks];
                mpi.neighbor_allgatherv(at(&[process]), 1, INT, into(&mut again), counts, places, INT, comm)
                    .unwrap();
                assert_eq!(again, got);
            }
        });
    }
}

#[test]
fn a_grid_is_told_and_divided() {
    run(7, |mpi, process| {
        // SAFETY: arrays of the size that is said.
        unsafe {
            let comm = grid(mpi, &[2, 3], &[0, 1]);
            if process == 6 {
                assert_eq!(comm, Comm::NULL);
                return;
            }
            let (mut dims, mut periods, mut coords) = ([0; 2], [9; 2], [0; 2]);
            mpi.cart_get(comm, 2, out(&mut dims), out(&mut periods), out(&mut coords)).unwrap();
            assert_eq!((dims, periods, coords), ([2, 3], [0, 1], [process as i32 / 3, process as i32 % 3]));
            assert_eq!((mpi.cartdim_get(comm), mpi.topo_test(comm)), (Ok(2), Ok(211)));
            assert_eq!(mpi.cart_rank(comm, ints(&[1, -1])), Ok(5));
            assert_eq!(class(mpi.cart_rank(comm, ints(&[2, 0]))), Class::Arg);
            mpi.cart_coords(comm, 4, 2, out(&mut coords)).unwrap();
            assert_eq!(coords, [1, 1]);
            assert_eq!(class(mpi.cart_coords(comm, 6, 2, out(&mut coords))), Class::Rank);
            let (from, to) = mpi.cart_shift(comm, 0, 1).unwrap();
            let (row, me) = (process / 3, i64::from(process));
            let next = |rank, is_there| if is_there { rank } else { PROC_NULL };
            assert_eq!((from, to), (next(me - 3, row == 1), next(me + 3, row == 0)));
            assert_eq!(class(mpi.cart_shift(comm, 2, 1)), Class::Dims);
            // Its rows; a copy is a grid as well.
            let row_comm = mpi.comm_dup(mpi.cart_sub(comm, ints(&[0, 1])).unwrap()).unwrap();
            assert_eq!((mpi.comm_size(row_comm), mpi.comm_rank(row_comm)), (Ok(3), Ok(me % 3)));
            assert_eq!(mpi.cartdim_get(row_comm), Ok(1));
            assert_eq!(
                mpi.cart_map(comm, 1, ints(&[4]), ints(&[0])),
                Ok(if me < 4 { me } else { UNDEFINED })
            );
            assert_eq!(class(mpi.cart_create(comm, 2, ints(&[0, 2]), ints(&[0, 0]), false)), Class::Dims);
            assert_eq!(class(mpi.cart_create(comm, 2, ints(&[3, 3]), ints(&[0, 0]), false)), Class::Topology);
            assert_eq!(class(mpi.graphdims_get(comm)), Class::Topology);
            assert_eq!(mpi.topo_test(WORLD), Ok(UNDEFINED));
            let mut dims = [0, 3, 0];
            mpi.dims_create(12, 3, out(&mut dims)).unwrap();
            assert_eq!(dims, [2, 3, 2]);
        }
    });
}

#[test]
fn a_graph_is_told_and_used() {
    run(5, |mpi, process| {
        let (ends, edges) = ([2, 3, 4, 6], [1, 3, 0, 3, 0, 2]);
        // SAFETY: arrays of the size that is said.
        unsafe {
            let comm = mpi.graph_create(WORLD, 4, ints(&ends), ints(&edges), false).unwrap();
            if process == 4 {
                assert_eq!(comm, Comm::NULL);
                return;
            }
            assert_eq!((mpi.graphdims_get(comm), mpi.topo_test(comm)), (Ok((4, 6)), Ok(212)));
            let (mut index, mut all) = ([0; 4], [0; 6]);
            mpi.graph_get(comm, 4, 6, out(&mut index), out(&mut all)).unwrap();
            assert_eq!((index, all), (ends, edges));
            let mut neighbours = [-1; 2];
            assert_eq!(mpi.graph_neighbors_count(comm, 3), Ok(2));
            mpi.graph_neighbors(comm, 3, 2, out(&mut neighbours)).unwrap();
            assert_eq!(neighbours, [0, 2]);
            assert_eq!(class(mpi.graph_neighbors(comm, 3, 1, out(&mut neighbours))), Class::Arg);
            let me = process as usize;
            let mine = &edges[if me == 0 { 0 } else { ends[me - 1] as usize }..ends[me] as usize];
            let own: Vec<c_int> = mine.iter().map(|to| me as c_int * 10 + to).collect();
            let mut got = vec![-1; mine.len()];
            mpi.neighbor_alltoall(at(&own), 1, INT, into(&mut got), 1, INT, comm).unwrap();
            assert_eq!(got, mine.iter().map(|from| from * 10 + me as c_int).collect::<Vec<_>>());
            assert_eq!(class(mpi.graph_create(comm, 2, ints(&[1, 2]), ints(&[1, 2]), false)), Class::Arg);
        }
    });
}

#[test]
fn edges_named_anywhere_are_known_at_both_ends() {
    run(3, |mpi, process| {
        // SAFETY: arrays of the size that is said.
        unsafe {
            // 1 names all: 0 to 2 twice, 2 to 2, 1 to 0.
            let (sources, degrees, to) = ([0, 2, 1], [2, 1, 1], [2, 2, 2, 0]);
            let weights = [5, 6, 7, 8];
            let n = if process == 1 { 3 } else { 0 };
            let weights = if process == 1 { Weights::At(weights.as_ptr()) } else { Weights::Empty };
            let made = mpi.dist_graph_create(
                WORLD,
                n,
                ints(&sources),
                ints(&degrees),
                ints(&to),
                weights,
                Info::NULL,
                false,
            );
            let comm = mpi.comm_dup(made.unwrap()).unwrap();
            assert_eq!(mpi.topo_test(comm), Ok(213));
            let (of, to): (&[c_int], &[c_int]) = match process {
                0 => (&[1], &[2, 2]),
                1 => (&[], &[0]),
                _ => (&[0, 0, 2], &[2]),
            };
            let (ins, outs) = (of.len() as i64, to.len() as i64);
            assert_eq!(mpi.dist_graph_neighbors_count(comm), Ok((ins, outs, 1)));
            let (mut sources, mut by, mut destinations) = (vec![-1; of.len()], [-1; 3], vec![-1; to.len()]);
            let weights = Weights::At(by.as_mut_ptr());
            let (from, into_) = (out(&mut sources), out(&mut destinations));
            mpi.dist_graph_neighbors(comm, ins, from, weights, outs, into_, Weights::None).unwrap();
            assert_eq!((&sources[..], &destinations[..]), (of, to));
            assert_eq!(by, [[8, -1, -1], [-1, -1, -1], [5, 6, 7]][process as usize]);
            // The nth edge to a process is the nth one from it.
            let own: Vec<c_int> = (0..outs as c_int).map(|i| process as c_int * 10 + i).collect();
            let mut got = vec![-1; of.len()];
            mpi.neighbor_alltoall(at(&own), 1, INT, into(&mut got), 1, INT, comm).unwrap();
            assert_eq!(got, [&[10][..], &[], &[0, 1, 20]][process as usize]);
            mpi.neighbor_allgather(at(&[process]), 1, INT, into(&mut got), 1, INT, comm).unwrap();
            assert_eq!(got, of);
            let rank = [3];
            let (none, wrong) = (Weights::None, ints(&rank));
            let made =
                mpi.dist_graph_create_adjacent(comm, 1, wrong, none, 0, wrong, none, Info::NULL, false);
            assert_eq!(class(made), Class::Rank);
            // Each says its own edges: a ring.
            let (before, behind) = ([(process as c_int + 2) % 3], [(process as c_int + 1) % 3]);
            let (from, to, info) = (ints(&before), ints(&behind), Info::NULL);
            let ring =
                mpi.dist_graph_create_adjacent(WORLD, 1, from, none, 1, to, none, info, false).unwrap();
            assert_eq!(mpi.dist_graph_neighbors_count(ring), Ok((1, 1, 0)));
            let mut got = [-1];
            mpi.neighbor_alltoall(at(&[process]), 1, INT, into(&mut got), 1, INT, ring).unwrap();
            assert_eq!(got, before);
            assert_eq!(
                class(mpi.neighbor_alltoall(at(&[1]), 1, INT, into(&mut got), 1, INT, WORLD)),
                Class::Topology
            );
        }
    });
}
