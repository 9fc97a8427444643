//! How many others a communicator has, where as many datatypes are given.

use std::ffi::c_int;

use bdrun_mpi_fortran::args::{Handle, read};

use crate::c;
use crate::constants::{CART, DIST_GRAPH, GRAPH};
use crate::face::Comm;

fn count(number: c_int) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// At the other end of a communicator.
pub unsafe fn peers(comm: *mut c_int) -> usize {
    let (mut is_inter, mut size) = (0, 0);
    // SAFETY: the caller's. What fails has written nothing, and the call that follows fails as well.
    unsafe {
        let comm = Comm::of(read(comm));
        c::comm_test_inter(comm, &raw mut is_inter);
        if is_inter != 0 {
            c::comm_remote_size(comm, &raw mut size);
        } else {
            c::comm_size(comm, &raw mut size);
        }
    }
    count(size)
}

/// In its topology: from how many this process gets something, and to how many it gives.
pub unsafe fn neighbours(comm: *mut c_int) -> (usize, usize) {
    let (mut topology, mut rank, mut first, mut second, mut weighted) = (0, 0, 0, 0, 0);
    // SAFETY: the caller's. What fails has written nothing, and the call that follows fails as well.
    unsafe {
        let comm = Comm::of(read(comm));
        c::topo_test(comm, &raw mut topology);
        match topology {
            CART => {
                c::cartdim_get(comm, &raw mut first);
                (2 * count(first), 2 * count(first))
            }
            GRAPH => {
                c::comm_rank(comm, &raw mut rank);
                c::graph_neighbors_count(comm, rank, &raw mut first);
                (count(first), count(first))
            }
            DIST_GRAPH => {
                let (first, second) = (&raw mut first, &raw mut second);
                c::dist_graph_neighbors_count(comm, first, second, &raw mut weighted);
                (count(first.read()), count(second.read()))
            }
            _ => (0, 0),
        }
    }
}
