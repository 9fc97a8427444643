//! Communicators: made, opened, found, named and given up.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::SeqCst};

use super::{CONTEXTS, Comm, CommHeader, PHASES, Phase, Seat};
use crate::far::{self, Notice};
use crate::mail::Mail;
use crate::segment::{MAX_COMMS, Segment, set_text, text};
use crate::{Error, Result};

impl Comm {
    /// The communicator of all ranks.
    pub const WORLD: Self = Self { index: 0 };

    /// By one rank for all: a new communicator of these ranks. If some are on other nodes it is to be opened
    /// there ([`Notice::Opened`]) before anybody is told of it.
    pub fn create(segment: &Segment, members: &[u32]) -> Result<Self> {
        if members.is_empty() || members.len() > segment.np() as usize {
            return Err(Error::Damaged(format!("a communicator of {} ranks", members.len())));
        }
        let comm = Self { index: Self::take_index(segment)? };
        comm.open(segment, Self::new_context(segment), members);
        Ok(comm)
    }

    /// By the gateway: one that was made on another node.
    pub fn open_far(segment: &Segment, index: u32, context: u32, members: &[u32]) -> Result<Self> {
        let is_one = |member: &u32| *member < segment.np();
        if index >= MAX_COMMS || members.len() > segment.np() as usize || !members.iter().all(is_one) {
            return Err(Error::Damaged(format!("communicator {index} of {} ranks elsewhere", members.len())));
        }
        let comm = Self { index };
        comm.open(segment, context, members);
        Ok(comm)
    }

    pub(super) fn open(self, segment: &Segment, context: u32, members: &[u32]) {
        let h = self.header(segment);
        let here = members.iter().filter(|&&member| segment.is_here(member)).count() as u32;
        h.context.store(context, SeqCst);
        h.size.store(members.len() as u32, SeqCst);
        h.here.store(here, SeqCst);
        h.handles.store(here, SeqCst);
        self.set_name(segment, "");
        h.word.store(0, SeqCst);
        self.open_phases(segment);
        for (slot, member) in self.members(segment).iter().zip(members) {
            slot.store(*member, SeqCst);
        }
    }

    pub(super) fn take_index(segment: &Segment) -> Result<u32> {
        let header = segment.header();
        let mut top = header.free_comms.load(SeqCst);
        while top as u32 != 0 {
            let index = top as u32 - 1;
            let below = u64::from(Self::at(segment, index)?.header(segment).next_free.load(SeqCst));
            let after = ((top >> 32).wrapping_add(1) << 32) | below;
            match header.free_comms.compare_exchange(top, after, SeqCst, SeqCst) {
                Ok(_) => return Ok(index),
                Err(now) => top = now,
            }
        }
        // Each node has numbers of its own: 1 and its number, and every so-manieth after that.
        let spread = segment.spread();
        let nth = header.fresh_comms.fetch_add(1, SeqCst);
        let index = u64::from(nth - 1) * u64::from(spread.nodes) + 1 + u64::from(spread.node);
        if index >= u64::from(MAX_COMMS) {
            header.fresh_comms.fetch_sub(1, SeqCst);
            // Of several nodes each has its share, however few the others have made.
            let (what, most) = match spread.nodes {
                1 => ("communicators", MAX_COMMS),
                nodes => ("communicators made on this node", (MAX_COMMS - 1 - spread.node).div_ceil(nodes)),
            };
            return Err(Error::TooMany { what, most: u64::from(most) });
        }
        Ok(index as u32)
    }

    /// The node on which it was made.
    pub fn owner(self, segment: &Segment) -> u32 {
        self.index.saturating_sub(1) % segment.spread().nodes
    }

    /// A number that all members share, at first 0. It is that on the node of the first member
    /// ([`Comm::holder`]) which counts.
    pub fn word(self, segment: &Segment) -> &AtomicI64 {
        &self.header(segment).word
    }

    /// The node that has the [word](Comm::word).
    pub fn holder(self, segment: &Segment) -> u32 {
        let first = self.members(segment).first().map_or(0, |member| member.load(SeqCst));
        segment.spread().node_of(first.min(segment.np().saturating_sub(1)))
    }

    /// The communicator of this index, checked.
    pub fn at(segment: &Segment, index: u32) -> Result<Self> {
        let made = segment.header().fresh_comms.load(SeqCst);
        let comm = Self { index };
        if index < MAX_COMMS && (index < made || segment.is_spread() && comm.size(segment) > 0) {
            Ok(comm)
        } else {
            Err(Error::Damaged(format!("communicator {index}")))
        }
    }

    /// Its index.
    pub fn index(self) -> u32 {
        self.index
    }

    pub(super) fn base(self, segment: &Segment) -> usize {
        let at = segment.offsets();
        at.comms + self.index as usize * at.comm_bytes
    }

    pub(super) fn header(self, segment: &Segment) -> &CommHeader {
        segment.atomics(self.base(segment))
    }

    pub(super) fn members(self, segment: &Segment) -> &[AtomicU32] {
        let size = self.header(segment).size.load(SeqCst).min(segment.np());
        segment.atomic_slice(self.base(segment) + size_of::<CommHeader>(), size as usize)
    }

    /// As if nothing had ever happened here.
    pub(super) fn open_phases(self, segment: &Segment) {
        for (number, phase) in (0..).zip(&self.header(segment).phases) {
            phase.number.store(number, SeqCst);
            phase.complete.store(0, SeqCst);
            phase.clear();
            for rank in 0..self.size(segment) {
                self.seat(segment, number, rank).here.store(0, SeqCst);
            }
        }
    }

    pub(super) fn seat(self, segment: &Segment, number: u64, rank: u32) -> &Seat {
        let np = segment.np() as usize;
        assert!((rank as usize) < np);
        let seats = self.base(segment) + size_of::<CommHeader>() + np.div_ceil(16) * 64;
        let seat = (number % PHASES) as usize * np + rank as usize;
        segment.atomics(seats + seat * size_of::<Seat>())
    }

    pub(super) fn phase(self, segment: &Segment, number: u64) -> &Phase {
        &self.header(segment).phases[(number % PHASES) as usize]
    }

    /// A number for messages of some process alone: those of different ones do not mix.
    pub fn new_context(segment: &Segment) -> u32 {
        segment.header().next_context.fetch_add(CONTEXTS * segment.spread().nodes, SeqCst)
    }

    /// Has it members on other nodes?
    pub fn is_spread(self, segment: &Segment) -> bool {
        segment.is_spread() && self.here(segment) != self.size(segment)
    }

    /// How many of its members are on this node.
    pub(super) fn here(self, segment: &Segment) -> u32 {
        self.header(segment).here.load(SeqCst)
    }

    /// The first of [`CONTEXTS`] numbers: messages of different ones do not mix.
    pub fn context(self, segment: &Segment) -> u32 {
        self.header(segment).context.load(SeqCst)
    }

    /// That to which messages of this context belong, if it is there.
    pub fn of_context(segment: &Segment, context: u32) -> Option<Self> {
        let made = segment.header().fresh_comms.load(SeqCst).min(MAX_COMMS);
        let all = if segment.is_spread() { MAX_COMMS } else { made };
        let is_it = |comm: &Self| {
            let header = comm.header(segment);
            header.handles.load(SeqCst) > 0 && header.context.load(SeqCst) == context - context % CONTEXTS
        };
        (0..all).map(|index| Self { index }).find(is_it)
    }

    /// What people call it, as far as somebody has said.
    pub fn name(self, segment: &Segment) -> Option<String> {
        Some(text(&self.header(segment).name)).filter(|name| !name.is_empty())
    }

    /// People call it so.
    pub fn set_name(self, segment: &Segment, name: &str) {
        set_text(&self.header(segment).name, name);
    }

    /// Number of ranks.
    pub fn size(self, segment: &Segment) -> u32 {
        self.header(segment).size.load(SeqCst).min(segment.np())
    }

    /// Its ranks as ranks of the node.
    pub fn ranks(self, segment: &Segment) -> impl Iterator<Item = u32> + '_ {
        let np = segment.np();
        self.members(segment).iter().map(|m| m.load(SeqCst)).filter(move |&m| m < np)
    }

    /// A rank gives its handle up; the last one frees the communicator, or tells the gateway.
    pub fn release(self, segment: &Segment, mail: &Mail, rank: u32) -> Result<()> {
        if self.index == 0 || self.header(segment).handles.fetch_sub(1, SeqCst) != 1 {
            return Ok(());
        }
        if self.is_spread(segment) {
            return far::tell(segment, mail, rank, &Notice::Closed { comm: self.index });
        }
        self.free(segment);
        Ok(())
    }

    /// By the last one, or, once it is closed on all nodes, by the gateway of its owner: its number is free.
    pub fn free(self, segment: &Segment) {
        let h = self.header(segment);
        let free = &segment.header().free_comms;
        let mut top = free.load(SeqCst);
        loop {
            h.next_free.store(top as u32, SeqCst);
            let after = ((top >> 32).wrapping_add(1) << 32) | u64::from(self.index + 1);
            match free.compare_exchange(top, after, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}
