//! What the calls that move data check, and who gives what to whom (MPI-5.0, sections 6.4 to 6.8).
//!
//! What is moved is copied when it is deposited, so that what comes in place of it may overwrite it.

use std::sync::Arc;

use bdrun_mpi_core::error::Class;

use super::exchange::{Exchange, Piece};
use super::{Collective, Role, What, of_all};
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
    pub(super) unsafe fn blocks(&self, at: Buffer, members: usize, how: &Blocks) -> Answer<Vec<Span>> {
        let Buffer::At(base) = at else { return Err(Class::Buffer.into()) };
        let place = |bytes: i64| Buffer::At(base.wrapping_offset(bytes as isize));
        // SAFETY: the caller's.
        let block = |i: usize| unsafe {
            match how {
                Blocks::Equal(count, datatype) => {
                    let extent = self.extent(*datatype)?;
                    let by = (i as i64).wrapping_mul(*count).wrapping_mul(extent);
                    self.span(place(by), *count, *datatype)
                }
                Blocks::Counted(counts, places, datatype) => {
                    let (count, by) = (counts.get(i), places.get(i));
                    let extent = self.extent(*datatype)?;
                    self.span(place(by.wrapping_mul(extent)), count, *datatype)
                }
                Blocks::Typed(counts, places, datatypes) => {
                    let (count, datatype) = (counts.get(i), datatypes.get(i)?);
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

    /// One gives to all.
    pub(super) fn broadcast(
        &self,
        name: &'static str,
        (buffer, count, datatype): (Buffer, i64, Datatype),
        (root, comm): (i64, Comm),
    ) -> Answer<Collective> {
        let comm = self.comm(comm)?;
        let role = Role::new(&comm, root)?;
        let mut exchange = Exchange::new(role.takes_of_root(&comm));
        match role.root {
            _ if role.is_root => exchange.give(self.span(buffer, count, datatype)?),
            Some(root) => exchange.take(root, Piece::Whole, self.span(buffer, count, datatype)?),
            None => {}
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
        let comm = self.comm(comm)?;
        let role = Role::new(&comm, root)?;
        let in_place = role.is_root && role.is_peer && send.0 == Buffer::InPlace;
        let mut exchange = Exchange::new(role.gives_to_root(&comm));
        if role.is_peer && !in_place {
            exchange.give(self.span(send.0, send.1, send.2)?);
        }
        if role.is_root {
            // SAFETY: the caller's.
            let blocks = unsafe { self.blocks(into, comm.peers().size(), blocks) }?;
            exchange.take_from_peers(&comm, blocks, in_place, Piece::Whole);
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
        let comm = self.comm(comm)?;
        let role = Role::new(&comm, root)?;
        let in_place = role.is_root && receive.0 == Buffer::InPlace;
        let mut exchange = Exchange::new(role.takes_of_root(&comm));
        let are_equal = matches!(blocks, Blocks::Equal(..));
        if role.is_root {
            // SAFETY: the caller's.
            let pieces = unsafe { self.blocks(from, comm.peers().size(), blocks) }?;
            exchange.give_each(pieces, are_equal);
        }
        if let Some(root) = role.root.filter(|_| !in_place) {
            let piece = Piece::of(&comm, are_equal);
            exchange.take(root, piece, self.span(receive.0, receive.1, receive.2)?);
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
        let comm = self.comm(comm)?;
        // SAFETY: the caller's.
        let blocks = unsafe { self.blocks(into, comm.peers().size(), blocks) }?;
        let in_place = send.0 == Buffer::InPlace && comm.remote.is_none();
        let mut exchange = Exchange::new(of_all(&comm));
        exchange.give(if in_place { blocks[comm.rank].clone() } else { self.span(send.0, send.1, send.2)? });
        exchange.take_from_peers(&comm, blocks, in_place, Piece::Whole);
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
        let comm = self.comm(comm)?;
        let (size, in_place) = (comm.peers().size(), from == Buffer::InPlace && comm.remote.is_none());
        let are_equal = matches!(takes, Blocks::Equal(..));
        // SAFETY: the caller's.
        let takes = unsafe { self.blocks(into, size, takes) }?;
        // SAFETY: the caller's.
        let gives = if in_place { takes.clone() } else { unsafe { self.blocks(from, size, gives) }? };
        let mut exchange = Exchange::new(of_all(&comm));
        exchange.give_each(gives, are_equal);
        exchange.take_from_peers(&comm, takes, in_place, Piece::of(&comm, are_equal));
        Ok(exchange.called(name, comm))
    }
}

impl Piece {
    /// The one for this process, of one for each member of its group.
    fn of(comm: &Communicator, are_equal: bool) -> Self {
        if are_equal { Self::Of(comm.rank, comm.group.size()) } else { Self::Nth(comm.rank) }
    }
}

impl Exchange {
    /// Takes a piece of each peer; not of itself if that is in place.
    fn take_from_peers(&mut self, comm: &Communicator, blocks: Vec<Span>, in_place: bool, piece: Piece) {
        for (rank, into) in blocks.into_iter().enumerate() {
            if !(in_place && rank == comm.rank) {
                self.take(comm.seat_of_peers() + rank, piece, into);
            }
        }
    }

    pub(super) fn called(self, name: &'static str, comm: Arc<Communicator>) -> Collective {
        Collective { comm, name, what: What::Exchange(Arc::new(self)) }
    }
}
