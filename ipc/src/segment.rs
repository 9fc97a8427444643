//! The shared segment: what lies where, how the master makes it and how a rank opens it.
//!
//! A sparse memfd; pages cost memory only once touched. Layout, each part at a 4 KiB boundary:
//!
//! | part | bytes |
//! |---|---|
//! | [`Header`] | 4096 |
//! | attention bitmaps: to the master, and of ranks elsewhere to the gateway | 2 × np / 8 |
//! | spare pages of the mail file (`spares`) | 8192 |
//! | [`RankBlock`] × np | 512 each |
//! | answers of the gateway ([`crate::far`]) | np × 64, used where there are several nodes |
//! | communicators ([`crate::collective`]) | [`MAX_COMMS`] × (members, their seats in each phase) |
//! | message nodes ([`crate::inbox`]) | [`MAX_NODES`] × 256 |
//! | lanes ([`crate::lane`]) | np × (ends, rings) |
//! | what ranks did ([`crate::steps`]) | np × 16 KiB, used where it is recorded |

mod rank;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};

use crate::bell::{Attention, Bell};
use crate::control::PROTOCOL;
use crate::critical::Critical;
use crate::error::system;
use crate::far::Answer;
use crate::futex::SharedFutex;
use crate::mail::Spill;
use crate::pool::Pool;
use crate::spares::Spares;
use crate::spread::Spread;
use crate::state::Woken;
use crate::steps::StepLog;
use crate::tokens::Tokens;
use crate::{Error, Result};

pub use rank::{EvictFailure, Progress, RankBlock, Waiting};
pub(crate) use rank::{set_text, text};

/// Most communicators that exist at one time.
pub const MAX_COMMS: u32 = 1024;
/// Most messages that may be outstanding at one time.
pub const MAX_NODES: u32 = 1 << 24;
/// Most ranks of a job on one node.
pub const MAX_RANKS: u32 = 1 << 16;
/// Bytes of a message node, header included.
pub const NODE_BYTES: usize = 256;

const PAGE: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"bdrunseg");

/// First page of the segment.
#[repr(C, align(4096))]
pub struct Header {
    /// 0 until everything else is initialised, then [`PROTOCOL`].
    version: AtomicU32,
    np: AtomicU32,
    magic: AtomicU64,
    /// The budget.
    pub pool: Pool,
    /// Who may compute.
    pub tokens: Tokens,
    /// Who is in the critical section.
    pub critical: Critical,
    /// The master's bell.
    pub bell: Bell,
    /// Free message nodes: index + 1 in the low half, a counter against ABA in the high half.
    pub(crate) free_nodes: AtomicU64,
    /// Message nodes ever used.
    pub(crate) fresh_nodes: AtomicU32,
    /// Lanes ever made.
    pub(crate) lanes: AtomicU32,
    /// Where in the mail file the next payload goes.
    pub(crate) mail_end: AtomicU64,
    /// Where in the spill file the next payload goes.
    pub(crate) spill: Spill,
    /// Communicators ever made, and a stack of free ones as for nodes.
    pub(crate) fresh_comms: AtomicU32,
    pub(crate) free_comms: AtomicU64,
    /// Next context number.
    pub(crate) next_context: AtomicU32,
    /// Most bytes a single rank may hold; 0: no limit.
    pub rank_limit: AtomicU64,
    /// Non-zero: ranks may leave out what they are not known to use, and are looked at while they compute.
    pub metered: AtomicU32,
    /// Non-zero: somebody may yet make room for threads that wait for memory.
    pub relief: AtomicU32,
    /// Non-zero: ranks tell what they do ([`crate::steps`]).
    pub recorded: AtomicU32,
    /// Nodes of the job, and which of them this is.
    nodes: AtomicU32,
    node: AtomicU32,
    /// What ranks tell the gateway: a stack, as an inbox.
    pub(crate) notices: AtomicU64,
    /// The gateway's bell.
    pub gateway: Bell,
    /// Bytes of messages for other nodes that were sent here and have not left.
    pub outgoing: AtomicU64,
    /// Ranks that sleep in a wait, or are about to. Who is killed meanwhile is counted for good.
    asleep: AtomicU32,
}

/// Nanoseconds of the clock that all processes of the machine share.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The mapped segment.
pub struct Segment {
    map: MmapRaw,
    fd: OwnedFd,
    np: u32,
    spread: Spread,
    at: Offsets,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the segment of {} ranks", self.np)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Offsets {
    attention: usize,
    outward: usize,
    spares: usize,
    ranks: usize,
    answers: usize,
    pub(crate) comms: usize,
    pub(crate) comm_bytes: usize,
    nodes: usize,
    pub(crate) lanes: usize,
    steps: usize,
    end: usize,
}

fn round_up(bytes: usize, to: usize) -> usize {
    bytes.div_ceil(to) * to
}

impl Offsets {
    fn of(np: u32) -> Self {
        let attention = PAGE;
        let bitmap = round_up((np as usize).div_ceil(64) * 8, PAGE);
        let outward = attention + bitmap;
        let spares = outward + bitmap;
        let ranks = spares + size_of::<Spares>();
        let answers = ranks + round_up(np as usize * size_of::<RankBlock>(), PAGE);
        let comms = answers + round_up(np as usize * size_of::<Answer>(), PAGE);
        let comm_bytes = round_up(crate::collective::comm_bytes(np), PAGE);
        let nodes = comms + comm_bytes * MAX_COMMS as usize;
        let lanes = nodes + MAX_NODES as usize * NODE_BYTES;
        let steps = round_up(lanes + np as usize * crate::lane::RANK_BYTES, PAGE);
        let end = steps + np as usize * crate::steps::LOG_BYTES;
        Self { attention, outward, spares, ranks, answers, comms, comm_bytes, nodes, lanes, steps, end }
    }
}

impl Segment {
    /// By the master: make a segment for `np` ranks, all of them here.
    pub fn create(np: u32, budget: u64, mail_limit: u64, tokens: u32) -> Result<Self> {
        Self::create_spread(Spread::alone(np), budget, mail_limit, tokens)
    }

    /// By the master of a node: the same for ranks of which some may be elsewhere.
    pub fn create_spread(spread: Spread, budget: u64, mail_limit: u64, tokens: u32) -> Result<Self> {
        let np = spread.ranks;
        if np == 0 || np > MAX_RANKS || !spread.is_valid() {
            return Err(Error::TooMany { what: "ranks", most: u64::from(MAX_RANKS) });
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("bdrun-segment", flags).map_err(system("memfd_create"))?;
        ftruncate(&fd, Offsets::of(np).end as u64).map_err(system("size the shared segment"))?;
        // Whoever has it mapped would die if one rank, which has it open for writing, made it shorter.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(system("seal the shared segment"))?;
        let segment = Self::map(fd, spread)?;
        let header = segment.header();
        header.nodes.store(spread.nodes, SeqCst);
        header.node.store(spread.node, SeqCst);
        for rank in (0..np).filter(|&rank| !segment.is_here(rank)) {
            // Whatever is sent there, the gateway is told.
            segment.rank(rank).publish(Waiting::Anything);
        }
        header.magic.store(MAGIC, SeqCst);
        header.np.store(np, SeqCst);
        header.pool.open(budget, mail_limit);
        header.tokens.open(tokens);
        crate::collective::open_world(&segment);
        header.version.store(PROTOCOL, SeqCst);
        Ok(segment)
    }

    /// By a rank: map the segment that it was handed.
    pub fn open(fd: OwnedFd) -> Result<Self> {
        let size = rustix::fs::fstat(&fd).map_err(system("look at the shared segment"))?.st_size as usize;
        if size < PAGE {
            return Err(Error::Version("too small".into()));
        }
        if !fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(Error::Version("it is not sealed".into()));
        }
        let first = MmapOptions::new()
            .len(PAGE)
            .map_raw(&fd)
            .map_err(|source| Error::System { what: "map the shared segment", source })?;
        // SAFETY: the page is mapped, page-aligned, and holds a `Header`, which is all atomics: valid for any
        // bytes.
        let header = unsafe { &*first.as_ptr().cast::<Header>() };
        let (version, np) = (header.version.load(SeqCst), header.np.load(SeqCst));
        if version != PROTOCOL || header.magic.load(SeqCst) != MAGIC {
            return Err(Error::Version(format!("version {version} instead of {PROTOCOL}")));
        }
        if np == 0 || np > MAX_RANKS || size != Offsets::of(np).end {
            return Err(Error::Version(format!("{np} ranks in {size} bytes")));
        }
        let (nodes, node) = (header.nodes.load(SeqCst), header.node.load(SeqCst));
        let spread = Spread { ranks: np, nodes, node };
        if !spread.is_valid() {
            return Err(Error::Version(format!("node {node} of {nodes}")));
        }
        Self::map(fd, spread)
    }

    fn map(fd: OwnedFd, spread: Spread) -> Result<Self> {
        let np = spread.ranks;
        let at = Offsets::of(np);
        let map = MmapOptions::new()
            .len(at.end)
            .no_reserve_swap()
            .map_raw(&fd)
            .map_err(|source| Error::System { what: "map the shared segment", source })?;
        Ok(Self { map, fd, np, spread, at })
    }

    /// Number of ranks, of all nodes together.
    pub fn np(&self) -> u32 {
        self.np
    }

    /// Which of them are on which node.
    pub fn spread(&self) -> Spread {
        self.spread
    }

    /// The ranks of this node.
    pub fn here(&self) -> std::ops::Range<u32> {
        self.spread.here()
    }

    /// Is this rank on this node?
    #[inline]
    pub fn is_here(&self, rank: u32) -> bool {
        self.spread.nodes == 1 || self.here().contains(&rank)
    }

    /// Is the job on more than one node?
    #[inline]
    pub fn is_spread(&self) -> bool {
        self.spread.nodes > 1
    }

    /// The memfd, to hand to ranks.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A reference to something made of atomics only, at a checked offset.
    pub(crate) fn atomics<T: AtomicsOnly>(&self, offset: usize) -> &T {
        assert!(offset.is_multiple_of(align_of::<T>()) && offset + size_of::<T>() <= self.at.end);
        // SAFETY: in bounds and aligned (asserted; the map is page-aligned and as long as `end`), lives as
        // long as `self`; `T` is made of atomics only, for which any bytes are valid and shared writes are
        // defined.
        unsafe { &*self.map.as_ptr().add(offset).cast::<T>() }
    }

    /// As `atomics`, several in a row.
    pub(crate) fn atomic_slice<T: AtomicsOnly>(&self, offset: usize, count: usize) -> &[T] {
        assert!(offset.is_multiple_of(align_of::<T>()) && offset + count * size_of::<T>() <= self.at.end);
        // SAFETY: as in `atomics`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(offset).cast::<T>(), count) }
    }

    /// Where plain bytes lie, which have one owner at a time.
    pub(crate) fn bytes_at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= self.at.end);
        self.map.as_mut_ptr().wrapping_add(offset)
    }

    pub(crate) fn offsets(&self) -> Offsets {
        self.at
    }

    /// Offset of a message node.
    pub(crate) fn node_offset(&self, index: u32) -> usize {
        assert!(index < MAX_NODES);
        self.at.nodes + index as usize * NODE_BYTES
    }

    /// The first page.
    pub fn header(&self) -> &Header {
        self.atomics(0)
    }

    /// A rank's block.
    ///
    /// # Panics
    /// If there is no such rank: callers have checked numbers that come from outside.
    pub fn rank(&self, rank: u32) -> &RankBlock {
        assert!(rank < self.np);
        self.atomics(self.at.ranks + rank as usize * size_of::<RankBlock>())
    }

    /// What a rank tells of what it does.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn steps(&self, rank: u32) -> &StepLog {
        assert!(rank < self.np);
        self.atomics(self.at.steps + rank as usize * crate::steps::LOG_BYTES)
    }

    /// By rank `by`, after it made true what `rank` may wait for: sees that it runs.
    pub fn wake(&self, by: u32, rank: u32) {
        if !self.is_here(rank) {
            self.outward().set(rank);
            self.ring_gateway();
            return;
        }
        if self.header().recorded.load(SeqCst) != 0 {
            self.steps(rank).wakes(by, monotonic_ns());
        }
        if self.rank(rank).word.wake(&SharedFutex) == Woken::NeedsMaster {
            self.ring(rank);
        }
    }

    /// By a rank that is about to wait for this: who makes it true looks whether it sleeps.
    pub fn falls_asleep(&self, rank: u32, waiting: Waiting) {
        self.header().asleep.fetch_add(1, SeqCst);
        self.rank(rank).publish(waiting);
    }

    /// By a rank whose wait is over.
    pub fn is_awake(&self, rank: u32) {
        self.rank(rank).publish(Waiting::Nothing);
        self.header().asleep.fetch_sub(1, SeqCst);
    }

    /// Whether some rank may sleep. If not, whoever falls asleep later sees what was made true before this
    /// was asked.
    pub fn may_any_sleep(&self) -> bool {
        self.header().asleep.load(SeqCst) > 0
    }

    /// By a rank: has the gateway look.
    pub fn ring_gateway(&self) {
        self.header().gateway.ring();
    }

    /// For which ranks of other nodes there is something.
    pub fn outward(&self) -> Attention<'_> {
        Attention(self.atomic_slice(self.at.outward, (self.np as usize).div_ceil(64)), self.np)
    }

    /// What the gateway answers a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn answer(&self, rank: u32) -> &Answer {
        assert!(rank < self.np);
        self.atomics(self.at.answers + rank as usize * size_of::<Answer>())
    }

    pub(crate) fn spares(&self) -> &Spares {
        self.atomics(self.at.spares)
    }

    /// Which ranks have something to tell the master.
    pub fn attention(&self) -> Attention<'_> {
        Attention(self.atomic_slice(self.at.attention, (self.np as usize).div_ceil(64)), self.np)
    }

    /// By a rank: tell the master to look at it.
    pub fn ring(&self, rank: u32) {
        self.attention().set(rank);
        self.header().bell.ring();
    }
}

/// Types that consist of atomics only, so that references to them into shared memory are sound.
///
/// # Safety
/// Every field, padding aside, is an atomic (or such a type).
pub(crate) unsafe trait AtomicsOnly {}
// SAFETY: all fields are atomics or structs of atomics.
unsafe impl AtomicsOnly for Header {}
// SAFETY: all fields are atomics.
unsafe impl AtomicsOnly for Spares {}
// SAFETY: all fields are atomics or structs of atomics.
unsafe impl AtomicsOnly for RankBlock {}
// SAFETY: all fields are structs of atomics.
unsafe impl AtomicsOnly for crate::ring::Ends {}
// SAFETY: an atomic.
unsafe impl AtomicsOnly for AtomicU64 {}
// SAFETY: an atomic.
unsafe impl AtomicsOnly for AtomicU32 {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_opens_as_it_was_made() {
        let made = Segment::create(100, 1 << 20, 1 << 18, 2).unwrap();
        let opened = Segment::open(made.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(opened.np(), 100);
        assert!(opened.header().pool.take(1 << 19));
        assert_eq!(made.header().pool.free(), 1 << 19);
        made.rank(99).publish(Waiting::Message { context: 3, source: None, tag: Some(7) });
        assert_eq!(opened.rank(99).waiting(), Waiting::Message { context: 3, source: None, tag: Some(7) });
        opened.ring(65);
        opened.ring(3);
        assert!(made.header().bell.wait(std::time::Duration::ZERO));
        assert_eq!(made.attention().take().collect::<Vec<_>>(), [3, 65]);
        made.attention().0.iter().for_each(|word| word.store(u64::MAX, SeqCst));
        assert!(made.attention().take().eq(0..made.np()), "only ranks that there are");
        opened.rank(5).set_progress("größenordnungsmäßig", 3, 9);
        assert!("größenordnungsmäßig".starts_with(&made.rank(5).progress().unwrap().label));
        assert_eq!(made.rank(5).call(), None);
        for name in ["MPI_Reduce_scatter_block_init_c", "MPI_Recv"] {
            opened.rank(5).set_call(name);
            assert_eq!(made.rank(5).call().as_deref(), Some(name));
        }
    }

    #[test]
    fn nobody_changes_its_size() {
        let made = Segment::create(3, 1 << 20, 1 << 18, 2).unwrap();
        let long = rustix::fs::fstat(made.fd()).unwrap().st_size as u64;
        for size in [0, long - 1, long + 1] {
            assert_eq!(ftruncate(made.fd(), size), Err(rustix::io::Errno::PERM), "{size}");
        }
        assert_eq!(fcntl_add_seals(made.fd(), SealFlags::WRITE), Err(rustix::io::Errno::PERM));
        assert_eq!(made.rank(2).granted.load(SeqCst), 0);
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let fd = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(Segment::open(fd.try_clone().unwrap()).is_err());
        ftruncate(&fd, 1 << 20).unwrap();
        assert!(matches!(Segment::open(fd), Err(Error::Version(_))));
    }

    #[test]
    fn the_header_fits_its_page() {
        assert_eq!(size_of::<Header>(), PAGE);
        assert_eq!(size_of::<RankBlock>(), 512);
    }
}
