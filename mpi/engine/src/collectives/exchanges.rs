//! What the calls that move data check, and who gives what to whom (MPI-5.0, sections 6.4 to 6.8).
//!
//! What is moved is copied when it is deposited, so that what comes in place of it may overwrite it.

use std::sync::Arc;

use bdrun_mpi_core::error::Class;

use super::exchange::{Exchange, Piece};
use super::{Collective, What};
use crate::Mpi;
use crate::args::{Buffer, Handles, Ints};
use crate::comm::Communicator;
use crate::datatypes::memory::Span;
use crate::failure::Answer;
use crate::handle::{Comm, Datatype};

/// One block of a buffer for each member: how the calls say it.
pub enum Blocks {
    /// All with so many elements, one behind the other.
    Equal(i64, Datatype),
    /// Each with its number of elements, and its place in elements from the buffer's start.
    Counted(Ints, Ints, Datatype),
    /// Each with its number of elements, its place in bytes, and its datatype.
    Typed(Ints, Ints, Handles<Datatype>),
}

impl Mpi {
    /// The blocks of a buffer.
    ///
    /// # Safety
    /// There are as many counts, places and datatypes as members.
    unsafe fn blocks(&self, at: Buffer, members: usize, how: &Blocks) -> Answer<Vec<Span>> {
        let Buffer::At(base) = at else { return Err(Class::Buffer.into()) };
        let place = |bytes: i64| Buffer::At(base.wrapping_offset(bytes as isize));
        // SAFETY: the caller's.
        let block = |i: usize| unsafe {
            match how {
                Blocks::Equal(count, datatype) => {
                    let of = self.span(at, *count, *datatype)?;
                    let by = (i as i64).wrapping_mul(*count).wrapping_mul(of.of().extent());
                    self.span(place(by), *count, *datatype)
                }
                Blocks::Counted(counts, places, datatype) => {
                    let (count, by) = (counts.get(i), places.get(i));
                    let extent = self.span(at, count, *datatype)?.of().extent();
                    self.span(place(by.wrapping_mul(extent)), count, *datatype)
                }
                Blocks::Typed(counts, places, datatypes) => {
                    let (count, datatype) = (counts.get(i), datatypes.get(i)?);
                    self.span(at, count, datatype)?;
                    self.span(place(places.get(i)), count, datatype)
                }
            }
        };
        let is_missing = match how {
            Blocks::Equal(..) => false,
            Blocks::Counted(counts, places, _) => counts.is_null() || places.is_null(),
            Blocks::Typed(counts, places, types) => counts.is_null() || places.is_null() || types.is_null(),
        };
        if is_missing && members > 0 {
            return Err(Class::Arg.into());
        }
        (0..members).map(block).collect()
    }

    /// The rank of a root.
    pub(super) fn root(comm: &Communicator, root: i64) -> Answer<usize> {
        usize::try_from(root).ok().filter(|&root| root < comm.group.size()).ok_or_else(|| Class::Root.into())
    }

    /// One gives to all.
    pub(super) fn broadcast(
        &self,
        name: &'static str,
        (buffer, count, datatype): (Buffer, i64, Datatype),
        (root, comm): (i64, Comm),
    ) -> Answer<Collective> {
        let comm = self.gathered(comm, name)?;
        let (root, span) = (Self::root(&comm, root)?, self.span(buffer, count, datatype)?);
        let mut exchange = Exchange::new();
        if comm.rank == root {
            exchange.give(span);
        } else {
            exchange.take(root, Piece::Whole, span);
        }
        Ok(exchange.called(name, comm))
    }

    /// All give to one.
    pub(super) unsafe fn gathering(
        &self,
        name: &'static str,
        send: (Buffer, i64, Datatype),
        (into, blocks): (Buffer, &Blocks),
        (root, comm): (i64, Comm),
    ) -> Answer<Collective> {
        let comm = self.gathered(comm, name)?;
        let root = Self::root(&comm, root)?;
        let in_place = comm.rank == root && send.0 == Buffer::InPlace;
        let mut exchange = Exchange::new();
        if !in_place {
            exchange.give(self.span(send.0, send.1, send.2)?);
        }
        if comm.rank == root {
            // SAFETY: the caller's.
            let blocks = unsafe { self.blocks(into, comm.group.size(), blocks) }?;
            exchange.take_from_each(blocks, in_place.then_some(root), Piece::Whole);
        }
        Ok(exchange.called(name, comm))
    }

    /// One gives to each.
    pub(super) unsafe fn scattering(
        &self,
        name: &'static str,
        (from, blocks): (Buffer, &Blocks),
        receive: (Buffer, i64, Datatype),
        (root, comm): (i64, Comm),
    ) -> Answer<Collective> {
        let comm = self.gathered(comm, name)?;
        let root = Self::root(&comm, root)?;
        let in_place = comm.rank == root && receive.0 == Buffer::InPlace;
        let mut exchange = Exchange::new();
        if comm.rank == root {
            // SAFETY: the caller's.
            exchange.give_each(unsafe { self.blocks(from, comm.group.size(), blocks) }?);
        }
        if !in_place {
            exchange.take(root, Piece::Nth(comm.rank), self.span(receive.0, receive.1, receive.2)?);
        }
        Ok(exchange.called(name, comm))
    }

    /// All give the same to everybody.
    pub(super) unsafe fn gathering_for_all(
        &self,
        name: &'static str,
        send: (Buffer, i64, Datatype),
        (into, blocks): (Buffer, &Blocks),
        comm: Comm,
    ) -> Answer<Collective> {
        let comm = self.gathered(comm, name)?;
        // SAFETY: the caller's.
        let blocks = unsafe { self.blocks(into, comm.group.size(), blocks) }?;
        let in_place = send.0 == Buffer::InPlace;
        let mut exchange = Exchange::new();
        exchange.give(if in_place { blocks[comm.rank].clone() } else { self.span(send.0, send.1, send.2)? });
        exchange.take_from_each(blocks, in_place.then_some(comm.rank), Piece::Whole);
        Ok(exchange.called(name, comm))
    }

    /// Each gives something to each.
    pub(super) unsafe fn exchange_of_blocks(
        &self,
        name: &'static str,
        (from, gives): (Buffer, &Blocks),
        (into, takes): (Buffer, &Blocks),
        comm: Comm,
    ) -> Answer<Collective> {
        let comm = self.gathered(comm, name)?;
        let (size, in_place) = (comm.group.size(), from == Buffer::InPlace);
        // SAFETY: the caller's.
        let takes = unsafe { self.blocks(into, size, takes) }?;
        // SAFETY: the caller's.
        let gives = if in_place { takes.clone() } else { unsafe { self.blocks(from, size, gives) }? };
        let mut exchange = Exchange::new();
        exchange.give_each(gives);
        exchange.take_from_each(takes, in_place.then_some(comm.rank), Piece::Nth(comm.rank));
        Ok(exchange.called(name, comm))
    }
}

impl Exchange {
    /// Takes a piece of each member, but of one whose block is in place.
    fn take_from_each(&mut self, blocks: Vec<Span>, but: Option<usize>, piece: Piece) {
        for (member, into) in blocks.into_iter().enumerate().filter(|(member, _)| Some(*member) != but) {
            self.take(member, piece, into);
        }
    }

    fn called(self, name: &'static str, comm: Arc<Communicator>) -> Collective {
        Collective { comm, name, what: Arc::new(What::Exchange(self)) }
    }
}
