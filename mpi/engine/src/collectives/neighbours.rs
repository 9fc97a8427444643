//! What the calls of neighbours check (MPI-5.0, sections 8.6 and 8.7).
//!
//! In a grid a block goes to the opposite one of the neighbour, also where both neighbours of a dimension are
//! the same process, or this one. In a graph the nth edge to a process is the nth one from it.

use bdrun_mpi_core::error::Class;

use super::Collective;
use super::exchange::{Exchange, Piece};
use super::exchanges::Blocks;
use crate::Mpi;
use crate::args::Buffer;
use crate::datatypes::memory::Span;
use crate::failure::Answer;
use crate::handle::{Comm, Datatype};
use crate::link::{Needed, Whom};
use crate::topologies::{Ranks, Topology};

/// Which of the pieces of those whom we receive from are for us.
fn pieces(topology: &Topology, rank: usize, sources: &Ranks) -> Vec<Piece> {
    let piece = |i: usize| match topology {
        Topology::Cartesian(_) => Piece::Nth(i ^ 1),
        _ => Piece::For(rank, sources[..i].iter().filter(|&&other| other == sources[i]).count()),
    };
    (0..sources.len()).map(piece).collect()
}

/// Who waits for whom.
fn whom(sources: &Ranks, destinations: &Ranks) -> Whom {
    let these = |ranks: &Ranks| Needed::These(ranks.iter().copied().flatten().collect());
    Whom { awaits: these(sources), awaited_by: these(destinations) }
}

impl Mpi {
    /// Each gives the same to all whom it sends to.
    ///
    /// # Safety
    /// The blocks are as many as neighbours.
    pub(super) unsafe fn gathering_of_neighbours(
        &self,
        name: &'static str,
        send: (Buffer, i64, Datatype),
        (into, blocks): (Buffer, &Blocks),
        comm: Comm,
    ) -> Answer<Collective> {
        let comm = self.comm(comm)?;
        let (sources, destinations) = comm.topology.as_ref().ok_or(Class::Topology)?.neighbours(comm.rank)?;
        // SAFETY: the caller's.
        let blocks = unsafe { self.blocks(into, sources.len(), blocks) }?;
        let mut exchange = Exchange::new(whom(&sources, &destinations));
        exchange.give(self.span(send.0, send.1, send.2)?);
        exchange.take_from(&sources, blocks, |_| Piece::Whole);
        Ok(exchange.called(name, comm))
    }

    /// Each gives something to each whom it sends to.
    ///
    /// # Safety
    /// The blocks are as many as neighbours.
    pub(super) unsafe fn exchange_of_neighbours(
        &self,
        name: &'static str,
        (from, gives): (Buffer, &Blocks),
        (into, takes): (Buffer, &Blocks),
        comm: Comm,
    ) -> Answer<Collective> {
        let comm = self.comm(comm)?;
        let topology = comm.topology.as_ref().ok_or(Class::Topology)?;
        let (sources, destinations) = topology.neighbours(comm.rank)?;
        // SAFETY: the caller's.
        let (gives, takes) = unsafe {
            (self.blocks(from, destinations.len(), gives)?, self.blocks(into, sources.len(), takes)?)
        };
        let mut exchange = Exchange::new(whom(&sources, &destinations));
        match topology {
            Topology::Cartesian(_) => exchange.give_each(gives, false),
            _ => exchange.give_these(gives, destinations.into_iter().flatten().collect()),
        }
        let pieces = pieces(topology, comm.rank, &sources);
        exchange.take_from(&sources, takes, |i| pieces[i]);
        Ok(exchange.called(name, comm))
    }
}

impl Exchange {
    /// Takes a piece of each of these that is there.
    fn take_from(&mut self, sources: &Ranks, blocks: Vec<Span>, piece: impl Fn(usize) -> Piece) {
        for (i, (source, into)) in sources.iter().zip(blocks).enumerate() {
            if let Some(source) = *source {
                self.take(source, piece(i), into);
            }
        }
    }
}
