//! Where persistent collectives meet (MPI-5.0, section 6.13).
//!
//! They belong to each other by the order in which they were made, and each may be started in another order:
//! so they cannot be numbered as they are begun. But of the phases of a place each is used by itself
//! (`ipc/src/collective.rs`). So [`EACH`] of them have a place together, and each its own phases there: two,
//! in turns, since in the second some may have begun while others have not left the first.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use bdrun_ipc::collective::PHASES;
use bdrun_mpi_core::error::Class;

use crate::Mpi;
use crate::comm::Communicator;
use crate::failure::Answer;

/// Phases of each.
const OWN: u64 = 2;
/// So many have a place together.
pub const EACH: u64 = PHASES / OWN;

/// How often one was begun.
#[derive(Debug)]
pub struct Turns {
    first: u64,
    begun: AtomicU64,
}

impl Turns {
    /// Those of the one with this number at its place.
    const fn new(nth: u64) -> Self {
        Self { first: OWN * nth, begun: AtomicU64::new(0) }
    }

    /// The number of the next collective there.
    pub fn next(&self) -> u64 {
        let turn = self.begun.fetch_add(1, SeqCst);
        turn / OWN * PHASES + self.first + turn % OWN
    }
}

/// Of a communicator: the place where those meet that are made next, and how many have it already.
#[derive(Debug, Default)]
pub struct Together(Mutex<Option<(Arc<Communicator>, u64)>>);

impl Together {
    fn take(&self) -> Option<(Arc<Communicator>, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, place: &Arc<Communicator>, used: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((place.clone(), used));
    }
}

impl Mpi {
    /// Called by all members of a communicator, in the same order: where one more meets.
    pub(super) fn persistent_place(
        &self,
        comm: &Communicator,
        name: &'static str,
    ) -> Answer<(Arc<Communicator>, Arc<Turns>)> {
        // It stays until all have their turns, also if those of before are freed: members free them when they
        // like, and all must agree.
        let (place, used) = match comm.persistent.take() {
            Some((place, used)) if used < EACH => (place, used),
            _ => (Arc::new(self.part_of(comm, comm.groups(), name)?.ok_or(Class::Internal)?), 0),
        };
        comm.persistent.set(&place, used + 1);
        Ok((place, Arc::new(Turns::new(used))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Each phase is used by one, in its order, and by none twice.
    #[test]
    fn each_has_phases_of_its_own() {
        let mut phases = HashMap::new();
        for nth in 0..EACH {
            let turns = Turns::new(nth);
            let mut next: HashMap<u64, u64> = HashMap::new();
            for _ in 0..20 {
                let number = turns.next();
                let phase = number % PHASES;
                assert_eq!(*phases.entry(phase).or_insert(nth), nth);
                let expected = next.get(&phase).map_or(phase, |last| last + PHASES);
                assert_eq!(number, expected);
                next.insert(phase, number);
            }
            assert_eq!(next.len() as u64, OWN);
        }
    }
}
