//! Collectives as objects in the segment: every rank deposits its part and may leave RAM; who arrives last
//! completes the collective and wakes the others; everyone then reads what it needs; who leaves last frees
//! the parts.
//!
//! A communicator has two phases, used in turn. Two suffice: a rank deposits for collective *n + 2* only
//! after *n + 1* was complete, so after every rank had deposited for *n + 1*, which each did only after
//! leaving *n*.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::mail::{Mail, Place};
use crate::segment::{AtomicsOnly, MAX_COMMS, Segment};
use crate::{Error, Result};

/// Longest part that needs no mail, in bytes.
pub const INLINE_PART: usize = 40;

#[repr(C, align(64))]
struct CommHeader {
    context: AtomicU32,
    size: AtomicU32,
    handles: AtomicU32,
    next_free: AtomicU32,
    phases: [Phase; 2],
}

#[repr(C, align(64))]
struct Phase {
    /// Number of the last collective of this phase that is complete, plus 1.
    complete: AtomicU64,
    arrived: AtomicU32,
    left: AtomicU32,
    /// Name of the collective, as a hash; the first to arrive sets it.
    name: AtomicU64,
    /// Somebody arrived with another name.
    other_name: AtomicU64,
    /// 1: the fold failed in the rank that ran it.
    fold_failed: AtomicU32,
    folded: Deposit,
}

/// A part: length, where, or the bytes themselves.
#[repr(C, align(8))]
struct Deposit {
    len: AtomicU64,
    place: [AtomicU64; 2],
    inline: [AtomicU64; INLINE_PART / 8],
}

// SAFETY: all fields are atomics or structs of atomics.
unsafe impl AtomicsOnly for CommHeader {}
// SAFETY: all fields are atomics.
unsafe impl AtomicsOnly for Deposit {}

/// Bytes of a communicator of up to `np` ranks: header, members, two phases of deposits.
pub(crate) const fn comm_bytes(np: u32) -> usize {
    let np = np as usize;
    size_of::<CommHeader>() + np.div_ceil(16) * 64 + 2 * np * size_of::<Deposit>()
}

impl Deposit {
    fn put(&self, segment: &Segment, mail: &Mail, pieces: &[&[u8]]) -> Result<()> {
        let len: usize = pieces.iter().map(|p| p.len()).sum();
        if len <= INLINE_PART {
            let mut bytes = [0u8; INLINE_PART];
            let mut at = 0;
            for piece in pieces {
                bytes[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            for (word, chunk) in self.inline.iter().zip(bytes.chunks_exact(8)) {
                word.store(u64::from_le_bytes(chunk.try_into().unwrap_or_default()), SeqCst);
            }
            self.set(Place::default(), len);
        } else {
            self.set(mail.put(segment, pieces)?, len);
        }
        Ok(())
    }

    fn set(&self, place: Place, len: usize) {
        let words = place.to_words();
        self.place[0].store(words[0], SeqCst);
        self.place[1].store(words[1], SeqCst);
        self.len.store(len as u64, SeqCst);
    }

    fn len(&self) -> usize {
        self.len.load(SeqCst) as usize
    }

    fn place(&self) -> Place {
        Place::from_words([self.place[0].load(SeqCst), self.place[1].load(SeqCst)], self.len() as u64)
    }

    fn get(&self, mail: &Mail, offset: usize, into: &mut [u8]) -> Result<()> {
        // Read once: another process may write there at any time.
        let len = self.len();
        if len > INLINE_PART {
            return mail.get(&self.place(), offset as u64, into);
        }
        let mut bytes = [0u8; INLINE_PART];
        for (word, chunk) in self.inline.iter().zip(bytes.chunks_exact_mut(8)) {
            chunk.copy_from_slice(&word.load(SeqCst).to_le_bytes());
        }
        match bytes[..len].get(offset..).and_then(|rest| rest.get(..into.len())) {
            Some(part) => {
                into.copy_from_slice(part);
                Ok(())
            }
            None => Err(Error::Damaged("read past the end of a part".into())),
        }
    }

    fn free(&self, segment: &Segment, mail: &Mail) {
        if self.len() > INLINE_PART {
            mail.release(segment, &self.place());
        }
        self.len.store(0, SeqCst);
    }
}

/// By the master: make communicator 0, of all ranks, before any rank starts.
pub(crate) fn open_world(segment: &Segment) {
    let np = segment.np();
    let header = segment.header();
    header.fresh_comms.store(1, SeqCst);
    header.next_context.store(1, SeqCst);
    let world = Comm { index: 0 };
    let h = world.header(segment);
    h.size.store(np, SeqCst);
    h.handles.store(np, SeqCst);
    for (i, member) in world.members(segment).iter().enumerate() {
        member.store(i as u32, SeqCst);
    }
}

/// A communicator of the segment, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comm {
    index: u32,
}

/// Who came to a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// This rank came last: it folds, calls [`Comm::complete`] and wakes the others.
    pub last: bool,
}

impl Comm {
    /// The communicator of all ranks.
    pub const WORLD: Self = Self { index: 0 };

    /// By one rank for all: a new communicator of these ranks of the node.
    pub fn create(segment: &Segment, members: &[u32]) -> Result<Self> {
        let header = segment.header();
        if members.is_empty() || members.len() > segment.np() as usize {
            return Err(Error::Damaged(format!("a communicator of {} ranks", members.len())));
        }
        let index = Self::take_index(segment)?;
        let comm = Self { index };
        let h = comm.header(segment);
        h.context.store(header.next_context.fetch_add(1, SeqCst), SeqCst);
        h.size.store(members.len() as u32, SeqCst);
        h.handles.store(members.len() as u32, SeqCst);
        for phase in &h.phases {
            phase.complete.store(0, SeqCst);
            phase.arrived.store(0, SeqCst);
            phase.left.store(0, SeqCst);
            phase.name.store(0, SeqCst);
            phase.other_name.store(0, SeqCst);
            phase.fold_failed.store(0, SeqCst);
        }
        for (slot, member) in comm.members(segment).iter().zip(members) {
            slot.store(*member, SeqCst);
        }
        Ok(comm)
    }

    fn take_index(segment: &Segment) -> Result<u32> {
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
        let index = header.fresh_comms.fetch_add(1, SeqCst);
        if index >= MAX_COMMS {
            header.fresh_comms.fetch_sub(1, SeqCst);
            return Err(Error::TooMany { what: "communicators", most: u64::from(MAX_COMMS) });
        }
        Ok(index)
    }

    /// The communicator of this index, checked.
    pub fn at(segment: &Segment, index: u32) -> Result<Self> {
        if index < MAX_COMMS && index < segment.header().fresh_comms.load(SeqCst) {
            Ok(Self { index })
        } else {
            Err(Error::Damaged(format!("communicator {index}")))
        }
    }

    /// Its index.
    pub fn index(self) -> u32 {
        self.index
    }

    fn base(self, segment: &Segment) -> usize {
        let at = segment.offsets();
        at.comms + self.index as usize * at.comm_bytes
    }

    fn header(self, segment: &Segment) -> &CommHeader {
        segment.atomics(self.base(segment))
    }

    fn members(self, segment: &Segment) -> &[AtomicU32] {
        let size = self.header(segment).size.load(SeqCst).min(segment.np());
        segment.atomic_slice(self.base(segment) + size_of::<CommHeader>(), size as usize)
    }

    fn deposit(self, segment: &Segment, number: u64, rank: u32) -> &Deposit {
        let np = segment.np() as usize;
        assert!((rank as usize) < np);
        let deposits = self.base(segment) + size_of::<CommHeader>() + np.div_ceil(16) * 64;
        let slot = (number % 2) as usize * np + rank as usize;
        segment.atomics(deposits + slot * size_of::<Deposit>())
    }

    fn phase(self, segment: &Segment, number: u64) -> &Phase {
        &self.header(segment).phases[(number % 2) as usize]
    }

    /// Context number: messages of different ones do not mix.
    pub fn context(self, segment: &Segment) -> u32 {
        self.header(segment).context.load(SeqCst)
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

    /// A rank gives its handle up; the last one frees the communicator.
    pub fn release(self, segment: &Segment) {
        let h = self.header(segment);
        if self.index == 0 || h.handles.fetch_sub(1, SeqCst) != 1 {
            return;
        }
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

    /// Deposit this rank's part for collective `number` (0, 1, 2, … on this communicator) called `name` (a
    /// hash).
    pub fn arrive(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        rank: u32,
        name: u64,
        part: &[&[u8]],
    ) -> Result<Arrival> {
        self.deposit(segment, number, rank).put(segment, mail, part)?;
        let phase = self.phase(segment, number);
        if let Err(theirs) = phase.name.compare_exchange(0, name, SeqCst, SeqCst)
            && theirs != name
        {
            phase.other_name.store(name, SeqCst);
        }
        let arrived = phase.arrived.fetch_add(1, SeqCst) + 1;
        Ok(Arrival { last: arrived == self.size(segment) })
    }

    /// How many have not come yet to collective `number`; 0 once complete.
    pub fn missing(self, segment: &Segment, number: u64) -> u32 {
        if self.is_complete(segment, number) {
            return 0;
        }
        self.size(segment).saturating_sub(self.phase(segment, number).arrived.load(SeqCst))
    }

    /// If ranks came with different names: two of them.
    pub fn names_differ(self, segment: &Segment, number: u64) -> Option<(u64, u64)> {
        let phase = self.phase(segment, number);
        let other = phase.other_name.load(SeqCst);
        (other != 0).then(|| (phase.name.load(SeqCst), other))
    }

    /// By who came last: store the folded result (`Err`: it could not be made) and complete the collective.
    /// The caller then wakes the other members.
    pub fn complete(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        folded: Option<std::result::Result<&[u8], ()>>,
    ) -> Result<()> {
        let phase = self.phase(segment, number);
        let stored = match folded {
            None => Ok(()),
            Some(Ok(bytes)) => phase.folded.put(segment, mail, &[bytes]),
            Some(Err(())) => Ok(()),
        };
        if stored.is_err() || folded == Some(Err(())) {
            phase.fold_failed.store(1, SeqCst);
        }
        phase.arrived.store(0, SeqCst);
        phase.complete.store(number + 1, SeqCst);
        stored
    }

    /// Have all come?
    pub fn is_complete(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).complete.load(SeqCst) > number
    }

    /// Did the fold fail?
    pub fn fold_failed(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).fold_failed.load(SeqCst) != 0
    }

    /// Bytes of a part.
    pub fn part_len(self, segment: &Segment, number: u64, rank: u32) -> usize {
        self.deposit(segment, number, rank).len()
    }

    /// Copy bytes of a part.
    pub fn part(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        rank: u32,
        offset: usize,
        into: &mut [u8],
    ) -> Result<()> {
        self.deposit(segment, number, rank).get(mail, offset, into)
    }

    /// Bytes of the folded result.
    pub fn folded_len(self, segment: &Segment, number: u64) -> usize {
        self.phase(segment, number).folded.len()
    }

    /// Copy bytes of the folded result.
    pub fn folded(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        offset: usize,
        into: &mut [u8],
    ) -> Result<()> {
        self.phase(segment, number).folded.get(mail, offset, into)
    }

    /// This rank has read what it needs. The last frees the parts; was it the last?
    pub fn leave(self, segment: &Segment, mail: &Mail, number: u64) -> bool {
        let phase = self.phase(segment, number);
        if phase.left.fetch_add(1, SeqCst) + 1 != self.size(segment) {
            return false;
        }
        for rank in 0..self.size(segment) {
            self.deposit(segment, number, rank).free(segment, mail);
        }
        phase.folded.free(segment, mail);
        phase.name.store(0, SeqCst);
        phase.other_name.store(0, SeqCst);
        phase.fold_failed.store(0, SeqCst);
        phase.left.store(0, SeqCst);
        true
    }
}
