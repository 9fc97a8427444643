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
//!
//! | question | file |
//! |---|---|
//! | what lies in the segment? what does a rank come with? | here |
//! | how is a communicator made, found and given up? | `communicator.rs` |
//! | who has come, who waits for whom? | `arrive.rs` |
//! | where is a part, and when is it freed? | `deposit.rs`, `parts.rs` |

mod arrive;
mod communicator;
mod deposit;
mod parts;

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::segment::{AtomicsOnly, Segment};
use deposit::Deposit;

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

// SAFETY: all fields are atomics or structs of atomics.
unsafe impl AtomicsOnly for CommHeader {}
// SAFETY: all fields are atomics or structs of atomics.
unsafe impl AtomicsOnly for Seat {}

/// Bytes of a communicator of up to `np` ranks: header, members, their seats in each phase.
pub(crate) const fn comm_bytes(np: u32) -> usize {
    let np = np as usize;
    size_of::<CommHeader>() + np.div_ceil(16) * 64 + PHASES as usize * np * size_of::<Seat>()
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
