//! Collectives as objects in the segment: every rank deposits its part and may leave RAM. A member waits for
//! all, or only for those whose parts it wants; who completes what another waits for wakes it. Who leaves
//! last frees the parts.
//!
//! A communicator has [`PHASES`] of them, used in turn. Collective *n* takes the phase of *n* − [`PHASES`]
//! once all members have left that; who is so far ahead of somebody comes later, and is woken when it can.
//!
//! A communicator may have members on other nodes ([`crate::far`]). They have their seats here, to which the
//! gateway comes for them, and each node has its copy of the whole: a collective is complete here once all
//! have come here, and its phase is free once all have left everywhere. Of a long part that lies elsewhere
//! the copy has the beginning only ([`HEAD`]); who wants more asks the gateway. Who arrives last combines,
//! and where that is the gateway, which cannot, it is left to whoever [claims](Comm::claim) it.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::far::{self, Notice};
use crate::mail::{Mail, Place};
use crate::segment::{AtomicsOnly, MAX_COMMS, Segment, Waiting, set_text, text};
use crate::{Error, Result};

/// So many collectives of a communicator may be under way.
pub const PHASES: u64 = 8;

/// Longest part that needs no mail, in bytes.
pub const INLINE_PART: usize = 40;

/// Of a part that lies on another node, so much at most is here.
pub const HEAD: usize = 4096;

/// Beside the kind of a place: it has the beginning of a part only.
const FAR: u64 = 1 << 32;

/// Of a member that waits until all have come.
const ALL: u32 = u32::MAX;

/// Contexts of messages for each communicator: a front keeps several kinds of messages apart.
pub const CONTEXTS: u32 = 4;

#[repr(C, align(64))]
struct CommHeader {
    context: AtomicU32,
    size: AtomicU32,
    /// Members on this node, and of these those that have not given it up.
    here: AtomicU32,
    handles: AtomicU32,
    next_free: AtomicU32,
    /// What people call it.
    name: [AtomicU64; 6],
    /// See [`Comm::word`].
    word: AtomicI64,
    phases: [Phase; PHASES as usize],
}

#[repr(C, align(64))]
struct Phase {
    /// The collective that it is for: all have left those before.
    number: AtomicU64,
    /// Number of the last collective of this phase that is complete, plus 1.
    complete: AtomicU64,
    arrived: AtomicU32,
    left: AtomicU32,
    /// Of these, members on this node, where there are others.
    arrived_here: AtomicU32,
    left_here: AtomicU32,
    /// Somebody here would combine the parts if it came last.
    combines: AtomicU32,
    /// See [`Comm::claim`]: 1: to be claimed, 2: claimed.
    claim: AtomicU32,
    /// Name of the collective, as a hash; the first to arrive sets it.
    name: AtomicU64,
    /// Somebody arrived with another name.
    other_name: AtomicU64,
    /// 1: the fold failed in the rank that ran it.
    fold_failed: AtomicU32,
    folded: Deposit,
}

/// A member of a collective.
#[repr(C, align(64))]
struct Seat {
    /// 2·(number + 1) of the last collective of this phase to which it has come; 1 less if it found the phase
    /// taken. It only grows: who is early for several of this phase is so until it has come to the last.
    here: AtomicU64,
    /// So many others it waits for, or [`ALL`].
    awaits: AtomicU32,
    /// Of these, how many have come.
    come: AtomicU32,
    part: Deposit,
}

/// A part: length, and the bytes themselves or where they are.
#[repr(C, align(8))]
struct Deposit {
    len: AtomicU64,
    words: [AtomicU64; INLINE_PART / 8],
}

// SAFETY: all fields are atomics or structs of atomics.
unsafe impl AtomicsOnly for CommHeader {}
// SAFETY: all fields are atomics or structs of atomics.
unsafe impl AtomicsOnly for Seat {}

/// Bytes of a communicator of up to `np` ranks: header, members, their seats in each phase.
pub(crate) const fn comm_bytes(np: u32) -> usize {
    let np = np as usize;
    size_of::<CommHeader>() + np.div_ceil(16) * 64 + PHASES as usize * np * size_of::<Seat>()
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
            for (word, chunk) in self.words.iter().zip(bytes.chunks_exact(8)) {
                word.store(u64::from_le_bytes(chunk.try_into().unwrap_or_default()), SeqCst);
            }
        } else {
            let [kind, offset] = mail.put(segment, pieces)?.to_words();
            self.words[0].store(kind, SeqCst);
            self.words[1].store(offset, SeqCst);
        }
        self.len.store(len as u64, SeqCst);
        Ok(())
    }

    /// By the gateway: a part of `len` bytes that lies elsewhere, and its beginning.
    fn put_far(&self, segment: &Segment, mail: &Mail, len: u64, head: &[u8]) -> Result<()> {
        if head.len() as u64 >= len {
            return self.put(segment, mail, &[head]);
        }
        let [kind, offset] = mail.put(segment, &[head])?.to_words();
        self.words[0].store(kind | FAR, SeqCst);
        self.words[1].store(offset, SeqCst);
        self.words[2].store(head.len() as u64, SeqCst);
        self.len.store(len.max(INLINE_PART as u64 + 1), SeqCst);
        Ok(())
    }

    /// So many of the first bytes are on this node.
    fn near(&self) -> u64 {
        let len = self.len.load(SeqCst);
        let is_far = len > INLINE_PART as u64 && self.words[0].load(SeqCst) & FAR != 0;
        if is_far { self.words[2].load(SeqCst).min(len) } else { len }
    }

    fn len(&self) -> usize {
        self.len.load(SeqCst) as usize
    }

    fn place(&self) -> Place {
        let words = [self.words[0].load(SeqCst), self.words[1].load(SeqCst)];
        Place::from_words(words, self.near())
    }

    fn get(&self, segment: &Segment, mail: &Mail, offset: usize, into: &mut [u8]) -> Result<()> {
        // Read once: another process may write there at any time.
        let len = self.len();
        if len > INLINE_PART {
            return mail.get(segment, &self.place(), offset as u64, into);
        }
        let mut bytes = [0u8; INLINE_PART];
        for (word, chunk) in self.words.iter().zip(bytes.chunks_exact_mut(8)) {
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

impl Phase {
    fn clear(&self) {
        self.name.store(0, SeqCst);
        self.other_name.store(0, SeqCst);
        self.fold_failed.store(0, SeqCst);
        for count in [&self.arrived, &self.left, &self.arrived_here, &self.left_here] {
            count.store(0, SeqCst);
        }
        self.combines.store(0, SeqCst);
        self.claim.store(0, SeqCst);
    }
}

/// What stands for the name of a collective (FNV-1a).
pub fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)).max(1)
}

/// What [`Seat::here`] is of who has come to collective `number`.
const fn has_come(number: u64) -> u64 {
    2 * (number + 1)
}

/// By the master: make communicator 0, of all ranks, before any rank starts.
pub(crate) fn open_world(segment: &Segment) {
    let np = segment.np();
    let header = segment.header();
    header.fresh_comms.store(1, SeqCst);
    // Those of all ranks, and of each by itself; then each node has its own.
    header.next_context.store((2 + segment.spread().node) * CONTEXTS, SeqCst);
    let world = Comm { index: 0 };
    let h = world.header(segment);
    world.open_phases(segment);
    h.size.store(np, SeqCst);
    h.here.store(segment.here().len() as u32, SeqCst);
    h.handles.store(segment.here().len() as u32, SeqCst);
    for (i, member) in world.members(segment).iter().enumerate() {
        member.store(i as u32, SeqCst);
    }
}

/// A communicator of the segment, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comm {
    index: u32,
}

/// What a rank comes to a collective with.
#[derive(Debug)]
pub struct Coming<'a> {
    /// 0, 1, 2, … on each communicator.
    pub number: u64,
    /// Who it is: its rank in the communicator.
    pub rank: u32,
    /// Name of the collective, as a hash that is not 0.
    pub name: u64,
    /// How many others it will wait for; `None`: until all have come.
    pub awaits: Option<u32>,
    /// Others that wait for this one, though not for all.
    pub awaited_by: &'a [u32],
    /// It would combine all parts if it came last.
    pub combines: bool,
    /// Its part, in pieces.
    pub part: &'a [&'a [u8]],
}

/// What the gateway comes with for a member that is elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct FarComing<'a> {
    /// See [`Coming`].
    pub number: u64,
    /// The member.
    pub rank: u32,
    /// Names with which members of its node came, as hashes: one, or two that differ; 0: none.
    pub names: [u64; 2],
    /// See [`Coming`]; of all nodes.
    pub awaited_by: &'a [u32],
    /// Bytes of its part.
    pub len: u64,
    /// The first of them: all, or [`HEAD`].
    pub head: &'a [u8],
}

/// What there is to say of a member that has come, to other nodes.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Names of the collective, as hashes: see [`FarComing::names`].
    pub names: [u64; 2],
    /// Bytes of its part.
    pub len: u64,
    /// The first of them: all, or [`HEAD`].
    pub head: Vec<u8>,
}

/// What came of coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Others have not left the collective that is [`PHASES`] before this one. The rank is woken when they
    /// have, to come once more.
    TooEarly,
    /// It has come.
    Here,
    /// And as the last one: it folds, calls [`Comm::complete`], and [`Comm::wake_all`].
    Last,
}

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

    fn open(self, segment: &Segment, context: u32, members: &[u32]) {
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

    /// As if nothing had ever happened here.
    fn open_phases(self, segment: &Segment) {
        for (number, phase) in (0..).zip(&self.header(segment).phases) {
            phase.number.store(number, SeqCst);
            phase.complete.store(0, SeqCst);
            phase.clear();
            for rank in 0..self.size(segment) {
                self.seat(segment, number, rank).here.store(0, SeqCst);
            }
        }
    }

    fn seat(self, segment: &Segment, number: u64, rank: u32) -> &Seat {
        let np = segment.np() as usize;
        assert!((rank as usize) < np);
        let seats = self.base(segment) + size_of::<CommHeader>() + np.div_ceil(16) * 64;
        let seat = (number % PHASES) as usize * np + rank as usize;
        segment.atomics(seats + seat * size_of::<Seat>())
    }

    fn phase(self, segment: &Segment, number: u64) -> &Phase {
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
    fn here(self, segment: &Segment) -> u32 {
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

    /// Come to a collective. `wake` is called with each rank of the node that may have waited for this one,
    /// though not for all.
    pub fn arrive(
        self,
        segment: &Segment,
        mail: &Mail,
        coming: &Coming<'_>,
        wake: &mut dyn FnMut(u32),
    ) -> Result<Arrival> {
        let Coming { number, rank, name, .. } = *coming;
        let (phase, seat) = (self.phase(segment, number), self.seat(segment, number, rank));
        if phase.number.load(SeqCst) != number {
            seat.here.fetch_max(has_come(number) - 1, SeqCst);
            // Either who leaves last sees that, or this one sees that it has left.
            if phase.number.load(SeqCst) != number {
                return Ok(Arrival::TooEarly);
            }
        }
        seat.part.put(segment, mail, coming.part)?;
        if let Err(theirs) = phase.name.compare_exchange(0, name, SeqCst, SeqCst)
            && theirs != name
        {
            phase.other_name.store(name, SeqCst);
        }
        seat.awaits.store(coming.awaits.unwrap_or(ALL), SeqCst);
        if coming.combines {
            phase.combines.store(1, SeqCst);
        }
        seat.here.fetch_max(has_come(number), SeqCst);
        let elsewhere = self.count_for(segment, number, coming.awaited_by, wake);
        if self.is_spread(segment) {
            let comm = self.index;
            let own = self.member(segment, rank)?;
            if !elsewhere.is_empty() {
                let notice = Notice::Came { comm, number, member: rank, awaited_by: elsewhere };
                far::tell(segment, mail, own, &notice)?;
            }
            if phase.arrived_here.fetch_add(1, SeqCst) + 1 == self.here(segment) {
                far::tell(segment, mail, own, &Notice::AllCame { comm, number })?;
            }
        }
        let arrived = phase.arrived.fetch_add(1, SeqCst) + 1;
        Ok(if arrived == self.size(segment) { Arrival::Last } else { Arrival::Here })
    }

    /// One has come for whom these wait, though not for all; those that are on other nodes.
    fn count_for(
        self,
        segment: &Segment,
        number: u64,
        awaited_by: &[u32],
        wake: &mut dyn FnMut(u32),
    ) -> Vec<u32> {
        let mut elsewhere = vec![];
        for &other in awaited_by {
            if !self.is_here(segment, other) {
                elsewhere.push(other);
                continue;
            }
            let seat = self.seat(segment, number, other);
            let come = seat.come.fetch_add(1, SeqCst) + 1;
            if come == seat.awaits.load(SeqCst) {
                self.wake_if_waiting(segment, number, other, wake);
            }
        }
        elsewhere
    }

    /// The rank of a member.
    fn member(self, segment: &Segment, rank: u32) -> Result<u32> {
        let member = self.members(segment).get(rank as usize).map(|member| member.load(SeqCst));
        let member = member.filter(|&member| member < segment.np());
        member.ok_or_else(|| Error::Damaged(format!("member {rank} of communicator {}", self.index)))
    }

    fn is_here(self, segment: &Segment, rank: u32) -> bool {
        !segment.is_spread() || self.member(segment, rank).is_ok_and(|member| segment.is_here(member))
    }

    /// By the gateway: a member that is on another node comes, or has come already.
    pub fn arrive_far(
        self,
        segment: &Segment,
        mail: &Mail,
        coming: &FarComing<'_>,
        wake: &mut dyn FnMut(u32),
    ) -> Result<Arrival> {
        let FarComing { number, rank, names, .. } = *coming;
        let (phase, seat) = (self.phase(segment, number), self.seat(segment, number, rank));
        if phase.number.load(SeqCst) != number {
            return Ok(Arrival::TooEarly);
        }
        if seat.here.load(SeqCst) == has_come(number) {
            return Ok(Arrival::Here);
        }
        seat.part.put_far(segment, mail, coming.len, coming.head)?;
        for name in names.into_iter().filter(|&name| name != 0) {
            if let Err(theirs) = phase.name.compare_exchange(0, name, SeqCst, SeqCst)
                && theirs != name
            {
                phase.other_name.store(name, SeqCst);
            }
        }
        seat.awaits.store(0, SeqCst);
        seat.here.store(has_come(number), SeqCst);
        self.count_for(segment, number, coming.awaited_by, wake);
        if phase.arrived.fetch_add(1, SeqCst) + 1 != self.size(segment) {
            return Ok(Arrival::Here);
        }
        if phase.combines.load(SeqCst) != 0 {
            phase.claim.store(1, SeqCst);
        } else {
            self.complete(segment, mail, number, None)?;
        }
        self.wake_all(segment, number, wake);
        Ok(Arrival::Last)
    }

    /// All have come, the gateway last, and somebody is to combine the parts: is it left to the caller? Who
    /// claims it does what [`Arrival::Last`] says.
    pub fn claim(self, segment: &Segment, number: u64) -> bool {
        self.is_to_be_claimed(segment, number)
            && self.phase(segment, number).claim.compare_exchange(1, 2, SeqCst, SeqCst).is_ok()
    }

    /// Whether [`Comm::claim`] may succeed. Reads shared memory only.
    pub fn is_to_be_claimed(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).claim.load(SeqCst) == 1
    }

    /// By the gateway: what a member here has come with; nothing if the collective is over, and so nobody
    /// wants it any more.
    pub fn see(self, segment: &Segment, mail: &Mail, number: u64, rank: u32) -> Seen {
        let is_now = || {
            let is_its = self.phase(segment, number).number.load(SeqCst) == number;
            // It may have found the phase taken when it came to the next collective there.
            is_its && self.seat(segment, number, rank).here.load(SeqCst) >= has_come(number)
        };
        if !is_now() {
            return Seen::default();
        }
        let phase = self.phase(segment, number);
        let names = [phase.name.load(SeqCst), phase.other_name.load(SeqCst)];
        let len = self.part_len(segment, number, rank);
        let mut head = vec![0; if len <= 2 * HEAD { len } else { HEAD }];
        let read = self.part(segment, mail, number, rank, 0, &mut head);
        // What was freed meanwhile may have been read amiss.
        if read.is_ok() && is_now() { Seen { names, len: len as u64, head } } else { Seen::default() }
    }

    /// Are these bytes of a part on this node?
    pub fn is_near(self, segment: &Segment, number: u64, rank: u32, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        !segment.is_spread() || end <= self.seat(segment, number, rank).part.near()
    }

    fn wake_if_waiting(self, segment: &Segment, number: u64, rank: u32, wake: &mut dyn FnMut(u32)) {
        let Some(member) = self.members(segment).get(rank as usize) else { return };
        let member = member.load(SeqCst);
        if member >= segment.np() || !segment.is_here(member) {
            return;
        }
        match segment.rank(member).waiting() {
            Waiting::Collective { comm, number: other } if comm == self.index && other == number => {}
            Waiting::Anything => {}
            _ => return,
        }
        wake(member);
    }

    /// By who has completed a collective: `wake` is called with each member that may have waited for that.
    pub fn wake_all(self, segment: &Segment, number: u64, wake: &mut dyn FnMut(u32)) {
        if !segment.may_any_sleep() {
            return;
        }
        for rank in 0..self.size(segment) {
            if self.seat(segment, number, rank).awaits.load(SeqCst) == ALL {
                self.wake_if_waiting(segment, number, rank, wake);
            }
        }
    }

    /// Have those come that this member said it waits for? Reads shared memory only.
    pub fn is_enough(self, segment: &Segment, number: u64, rank: u32) -> bool {
        let seat = self.seat(segment, number, rank);
        match seat.awaits.load(SeqCst) {
            ALL => self.is_complete(segment, number),
            awaits => seat.come.load(SeqCst) >= awaits,
        }
    }

    /// Can this member come to a collective, which was too early for it? Reads shared memory only.
    pub fn is_free(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).number.load(SeqCst) >= number
    }

    /// By the gateway: can a member that is elsewhere come to it, or leave it?
    pub fn is_now(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).number.load(SeqCst) == number
    }

    /// How many have not come yet to collective `number`; 0 once complete.
    pub fn missing(self, segment: &Segment, number: u64) -> u32 {
        if self.is_complete(segment, number) {
            return 0;
        }
        self.size(segment).saturating_sub(self.phase(segment, number).arrived.load(SeqCst))
    }

    /// Who has not come yet, by their ranks in the communicator.
    pub fn absent(self, segment: &Segment, number: u64) -> Vec<u32> {
        let here = |rank: &u32| self.seat(segment, number, *rank).here.load(SeqCst) >= has_come(number);
        (0..self.size(segment)).filter(|rank| !here(rank)).collect()
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
        self.seat(segment, number, rank).part.len()
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
        self.seat(segment, number, rank).part.get(segment, mail, offset, into)
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
        self.phase(segment, number).folded.get(segment, mail, offset, into)
    }

    /// This rank has read what it needs. The last frees the parts; was it the last? `wake` is called with
    /// each member that wanted to come to the collective that is next here.
    pub fn leave(
        self,
        segment: &Segment,
        mail: &Mail,
        (number, rank): (u64, u32),
        wake: &mut dyn FnMut(u32),
    ) -> Result<bool> {
        let phase = self.phase(segment, number);
        if self.is_spread(segment) && phase.left_here.fetch_add(1, SeqCst) + 1 == self.here(segment) {
            let own = self.member(segment, rank)?;
            far::tell(segment, mail, own, &Notice::AllLeft { comm: self.index, number })?;
        }
        Ok(self.left(segment, mail, number, 1, wake))
    }

    /// By the gateway: so many members of another node have left.
    pub fn leave_far(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        count: u32,
        wake: &mut dyn FnMut(u32),
    ) -> bool {
        self.left(segment, mail, number, count, wake)
    }

    fn left(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        count: u32,
        wake: &mut dyn FnMut(u32),
    ) -> bool {
        let phase = self.phase(segment, number);
        if phase.left.fetch_add(count, SeqCst) + count != self.size(segment) {
            return false;
        }
        for rank in 0..self.size(segment) {
            let seat = self.seat(segment, number, rank);
            seat.part.free(segment, mail);
            seat.awaits.store(0, SeqCst);
            seat.come.store(0, SeqCst);
        }
        phase.folded.free(segment, mail);
        phase.clear();
        let next = number + PHASES;
        phase.number.store(next, SeqCst);
        for (rank, member) in (0..).zip(self.ranks(segment)) {
            let here = self.seat(segment, next, rank).here.load(SeqCst);
            let is_early = || here % 2 == 1 && here >= has_come(next) - 1;
            if segment.is_here(member) && is_early() {
                wake(member);
            }
        }
        if self.is_spread(segment) {
            // What came too early from elsewhere can come now.
            segment.ring_gateway();
        }
        true
    }
}
