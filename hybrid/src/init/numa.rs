//! On which of a machine's memories pages lie.

use std::fmt;
use std::io;

use bytemuck::Pod;
use rayon::prelude::*;

/// Where the pages of a rank's threads are to come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NumaPolicy {
    /// From the node of the thread that touches a page first (`MPOL_LOCAL`, set_mempolicy(2)), whatever the
    /// process was started with.
    #[default]
    Local,
    /// As the process was started (by `numactl`, say).
    Inherit,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Numa {
    /// The machine has one memory: there is nothing to choose.
    OneNode,
    /// So many memories; pages come from that of the thread that touches them first.
    Local {
        /// How many.
        nodes: usize,
    },
    /// So many memories; the policy is what it was.
    Inherited {
        /// How many.
        nodes: usize,
    },
    /// So many memories, and the system does not let the policy be set.
    Refused {
        /// How many.
        nodes: usize,
        /// What it says.
        why: String,
    },
}

impl fmt::Display for Numa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneNode => f.write_str("one node of memory, nothing to choose"),
            Self::Local { nodes } => write!(f, "{nodes} nodes of memory, each thread's own first"),
            Self::Inherited { nodes } => write!(f, "{nodes} nodes of memory, as the process was started"),
            Self::Refused { nodes, why } => write!(f, "{nodes} nodes of memory, policy not set: {why}"),
        }
    }
}

/// Nodes that have memory.
pub fn nodes() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/node/has_memory");
    list.ok().and_then(|list| count(&list)).unwrap_or(1).max(1)
}

/// How many numbers a list of ranges names (`0-3,8`, as files of /sys have it).
fn count(list: &str) -> Option<usize> {
    let range = |range: &str| -> Option<usize> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim().split(',').filter(|part| !part.is_empty()).map(range).sum()
}

/// Carries it out in this thread and in those of the pool.
pub fn apply(policy: NumaPolicy, nodes: usize) -> Numa {
    match policy {
        _ if nodes == 1 => Numa::OneNode,
        NumaPolicy::Inherit => Numa::Inherited { nodes },
        NumaPolicy::Local => {
            let mut results = rayon::broadcast(|_| set_local());
            results.push(set_local());
            match results.into_iter().find_map(Result::err) {
                Some(error) => Numa::Refused { nodes, why: error.to_string() },
                None => Numa::Local { nodes },
            }
        }
    }
}

/// Of the calling thread.
fn set_local() -> io::Result<()> {
    let nobody = std::ptr::null::<libc::c_ulong>();
    // SAFETY: no set of nodes, as this policy asks (set_mempolicy(2)); it changes where new pages come from.
    let result =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_LOCAL, nobody, 0 as libc::c_ulong) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `len` zeros, each part of which a thread of the pool has touched first: so that on a machine of several
/// memories a part lies near a thread, as long as work is split over the pool likewise.
///
/// ```
/// let values = bdrun_hybrid::first_touched::<f64>(100_000);
/// assert_eq!((values.len(), values.iter().sum::<f64>()), (100_000, 0.0));
/// ```
#[must_use]
pub fn first_touched<T: Pod + Send + Sync>(len: usize) -> Vec<T> {
    // Pages of the system that nobody has touched, if it is large.
    let mut values: Vec<T> = bytemuck::allocation::zeroed_vec(len);
    let each = len.div_ceil(rayon::current_num_threads()).max(1);
    values.par_chunks_mut(each).for_each(|part| {
        let zeros = std::hint::black_box(T::zeroed());
        part.fill(zeros);
    });
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_nodes_is_counted() {
        for (list, nodes) in [("0\n", 1), ("0-1\n", 2), ("0-3,8", 5), ("0,2,4-5", 4)] {
            assert_eq!(count(list), Some(nodes), "{list}");
        }
        for wrong in ["x", "3-1", "0-", "-"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
        assert!(nodes() >= 1);
    }

    #[test]
    fn where_there_is_one_memory_it_is_said_and_nothing_done() {
        for policy in [NumaPolicy::Local, NumaPolicy::Inherit] {
            assert_eq!(apply(policy, 1).to_string(), "one node of memory, nothing to choose");
        }
        assert_eq!(apply(NumaPolicy::Inherit, 4), Numa::Inherited { nodes: 4 });
        // As if there were four: the system takes it, or says why not.
        match apply(NumaPolicy::Local, 4) {
            Numa::Local { nodes: 4 } => {}
            Numa::Refused { nodes: 4, why } => assert!(!why.is_empty()),
            other => panic!("{other:?}"),
        }
    }
}
