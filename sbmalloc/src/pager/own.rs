//! The executor for the own process: the calling thread moves the memory, all others are parked.

use super::evict::Goal;
use super::fault;
use super::history::{Outlook, Plan};
use super::images::Images;
use super::lz4::State;
use super::pack::{Packing, is_undisturbed};
use super::pagemap::{Pagemap, WINDOW, Window};
use super::restore::Room;
use super::{EVERYTHING, Exclusive, Moved, PagerError, SAME_PHASE, async_io, exclude, plan};
use crate::advice::Advice;
use crate::arena::{HOLE, Inner};
use crate::config::{self, Compression};
use crate::protection::{self, Lifted};
use crate::set::{ArenaSet, PROCESS};
use crate::store::{Queue, Store};
use crate::sys::{CHUNK, Errno, GRANULE};
use crate::threads::{self, Parked};
use std::sync::atomic::Ordering;

/// What a session works with, in static memory.
pub(crate) struct Buffers {
    pub window: Window,
    pub queue: Queue,
    pub block: Block,
    pub images: Images,
}

/// A block, where direct transfers can reach it.
#[repr(align(4096))]
pub(crate) struct Block(pub [u8; CHUNK]);

impl Buffers {
    pub const fn new() -> Self {
        Self { window: [0; WINDOW], queue: Queue::new(), block: Block([0; CHUNK]), images: Images::new() }
    }
}

/// The right to move memory: other threads are parked and signals held back while it lives.
/// The fields are dropped in this order.
pub(super) struct Session {
    _lifted: Lifted,
    pub pagemap: Pagemap,
    parked: Parked,
    pub buffers: Exclusive,
}

pub(super) fn block_bytes(arena: &Inner, i: usize) -> &[u8] {
    // SAFETY: the block is inside the arena's reservation and readable; other threads are parked, so nobody
    // writes it while the slice lives.
    unsafe { std::slice::from_raw_parts((arena.base + i * CHUNK) as *const u8, CHUNK) }
}

impl Session {
    pub fn begin(set: &ArenaSet) -> Result<Self, PagerError> {
        // The lock first: whoever waits for it must still take the parking signal.
        let buffers = exclude();
        // What is written to a stack while it is moved is lost, return addresses first.
        let here = std::ptr::from_ref(&buffers).addr();
        if set.arenas().any(|arena| arena.holds(here)) {
            return Err(PagerError::OwnStack);
        }
        let to_move = set.arenas().map(|arena| arena.base..arena.base + arena.len());
        let parked = threads::park_others(to_move)?;
        // Now nobody can begin any.
        // SAFETY: the lock is held.
        unsafe { async_io::check()? };
        let pagemap = Pagemap::open()?;
        Ok(Self { _lifted: Lifted::new(), pagemap, parked, buffers })
    }

    /// See [`evict_to`](super::evict_to).
    pub fn evict(
        mut self,
        set: &ArenaSet,
        target: usize,
        site: Option<u64>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Moved, PagerError> {
        self.look(set, ends_phase(site))?;
        let outlook = site.map(|site| set.sites(&mut self.buffers).outlook(site));
        let past = set.sites(&mut self.buffers).past();
        let left = set.ram();
        let pack = self.packing(set, site);
        let mut goal =
            Goal { target, left, progress, past, brought: 0, changed: 0, pack, moved: Moved::default() };
        if target > 0 && goal.is_reached() {
            (goal.progress)(goal.left);
            return Ok(goal.moved);
        }
        set.arenas().filter(|a| a.in_ram() > 0).for_each(|a| a.totals.begin_evict());
        let mut done = self.evict_towards(set, &mut goal, outlook);
        if matches!(done, Err(PagerError::NoSpace { .. })) && give_back(set) {
            done = self.evict_towards(set, &mut goal, outlook);
        }
        self.buffers.images.rest();
        let (changed, brought, moved) = (goal.changed, goal.brought, goal.moved);
        set.sites(&mut self.buffers).changed(changed, brought, set.committed() / CHUNK);
        done?;
        for arena in set.arenas().filter(|a| a.is_evicted()) {
            arena.store().inspect(|store| store.drop_cache());
        }
        Ok(moved)
    }

    fn evict_towards(
        &mut self,
        set: &ArenaSet,
        goal: &mut Goal,
        outlook: Option<Outlook>,
    ) -> Result<(), PagerError> {
        // What was read of what the kernel brought in is verified first: afterwards nobody could tell whether
        // what was computed from it is right.
        self.verify_touched(set)?;
        if goal.target == 0 {
            for arena in set.arenas() {
                self.sweep(arena, goal, |g| arena.is_touched(g) && arena.is_out(g))?;
            }
        }
        (goal.progress)(goal.left);
        if goal.target == 0 {
            for arena in set.arenas() {
                self.sweep(arena, goal, |g| !arena.is_out(g))?;
            }
        } else {
            self.evict_some(set, goal, outlook)?;
        }
        Ok(())
    }

    /// Evicts until the goal is reached: what is clean and not likely to be used, what is not likely to be
    /// used, and then the rest from its end backwards, so that what stays is what is used first. What was
    /// touched of granules that are out is of the rest: it was used last.
    fn evict_some(
        &mut self,
        set: &ArenaSet,
        goal: &mut Goal,
        outlook: Option<Outlook>,
    ) -> Result<(), PagerError> {
        let is_here = |arena: &Inner, g: usize| !arena.is_out(g) && arena.held(g) > 0;
        let is_unlikely = |arena: &Inner, g: usize| {
            is_here(arena, g)
                && outlook.is_some_and(|o| match arena.advised(g) {
                    Some(advice) => advice == Advice::DontNeed,
                    None => o.plan(g, |s| arena.history(s, g)) == Plan::Leave,
                })
        };
        for arena in set.arenas() {
            let tracker = arena.tracker.tracker();
            let mut granules = 0..arena.granules();
            while let Some(here) = arena.stretch(granules.clone(), false, usize::MAX) {
                granules.start = here.end;
                tracker.collect(arena, here.start * GRANULE..here.end * GRANULE);
            }
            self.sweep(arena, goal, |g| is_unlikely(arena, g) && !tracker.may_be_dirty(arena, g))?;
        }
        for arena in set.arenas() {
            self.sweep(arena, goal, |g| is_unlikely(arena, g))?;
        }
        let is_in_ram = |arena: &Inner, g: usize| is_here(arena, g) || arena.is_touched(g) && arena.is_out(g);
        // Where the rest that is too much begins.
        let mut cut = (set.arenas().count(), 0);
        let mut left = goal.left;
        for (a, arena) in (0..set.arenas().count()).rev().zip(set.arenas().rev()) {
            for g in (0..arena.granules()).rev().filter(|&g| is_in_ram(arena, g)) {
                if left <= goal.target {
                    break;
                }
                left = left.saturating_sub(arena.ram(g));
                cut = (a, g);
            }
        }
        for (a, arena) in set.arenas().enumerate() {
            self.sweep(arena, goal, |g| is_in_ram(arena, g) && (a, g) >= cut)?;
        }
        Ok(())
    }

    /// See [`restore_for`](super::restore_for); without a site everything is brought in.
    pub fn restore(
        mut self,
        set: &ArenaSet,
        site: Option<u64>,
        limit: &mut dyn FnMut(usize) -> usize,
    ) -> Result<(Moved, bool), PagerError> {
        self.look(set, ends_phase(site))?;
        if site == Some(EVERYTHING) {
            set.sites(&mut self.buffers).turn_eager();
        }
        let outlook = outlook(set, &mut self.buffers, site);
        let phase = set.sites(&mut self.buffers).number();
        let mut room = Room { ram: set.ram(), limit, phase, ended: false, moved: Moved::default() };
        let done = self.restore_into(set, site, outlook, &mut room);
        self.buffers.images.rest();
        done?;
        Ok((room.moved, !room.ended))
    }

    fn restore_into(
        &mut self,
        set: &ArenaSet,
        site: Option<u64>,
        outlook: Option<Outlook>,
        room: &mut Room,
    ) -> Result<(), PagerError> {
        // First what nobody may touch before.
        for arena in set.arenas().filter(|a| a.has_packed()) {
            self.bring_in(arena, room, |g| arena.is_packed(g))?;
        }
        for arena in set.arenas().filter(|a| a.is_evicted()) {
            arena.totals.begin_restore();
            if site.is_some() {
                self.bring_in(arena, room, |g| {
                    arena.is_out(g) && arena.advised(g) == Some(Advice::WillNeed)
                })?;
            }
        }
        for arena in set.arenas() {
            self.bring_in(arena, room, |g| arena.is_out(g) && is_likely(outlook, arena, g))?;
            if room.ended {
                break;
            }
        }
        Ok(())
    }

    /// Brings in what must not be touched before.
    pub fn unpack(mut self, set: &ArenaSet) -> Result<Moved, PagerError> {
        let phase = set.sites(&mut self.buffers).number();
        let limit = &mut |_| usize::MAX;
        let mut room = Room { ram: set.ram(), limit, phase, ended: false, moved: Moved::default() };
        let mut packed = set.arenas().filter(|a| a.has_packed());
        let done = packed.try_for_each(|arena| self.bring_in(arena, &mut room, |g| arena.is_packed(g)));
        self.buffers.images.rest();
        done.map(|()| room.moved)
    }

    /// How granules are to be packed by an evict after a wait at `site`, and what is expected of them: what
    /// is not likely to be used better stays legal to touch. `None` if none may be.
    fn packing(&mut self, set: &ArenaSet, site: Option<u64>) -> Option<Packing> {
        let how = config::compression();
        let may = how != Compression::None
            && set.are_restores_expected()
            && (!std::ptr::eq(set, &PROCESS) || self.parked.alone && is_undisturbed())
            && protection::is_unused()
            && State::is_enough();
        let site = site.filter(|_| may)?;
        fault::install_handler().ok()?;
        Some(Packing { how, outlook: outlook(set, &mut self.buffers, Some(site)) })
    }

    /// Whether transfers of the store are made beside the work on `bytes` bytes: if it pays and is possible.
    pub fn beside(&mut self, store: &dyn Store, bytes: usize) -> bool {
        bytes >= plan::BESIDE_FROM && store.async_fd(0).is_some() && self.buffers.queue.is_ready()
    }
}

/// Whether the phase that goes on ends with a move at `site`.
fn ends_phase(site: Option<u64>) -> bool {
    !matches!(site, Some(SAME_PHASE | EVERYTHING))
}

/// Committed bytes of small processes, which are always brought in whole.
const SMALL: usize = 4 << 20;

/// What is known for the phase after a wait at `site`; `None` if everything is to be brought in.
pub(super) fn outlook(set: &ArenaSet, buffers: &mut Buffers, site: Option<u64>) -> Option<Outlook> {
    let site = site.filter(|&site| site != EVERYTHING && set.committed() > SMALL)?;
    Some(set.sites(buffers).outlook(site))
}

/// Whether granule `g` is likely to be used. One that holds nothing costs nothing, and may be allocated from.
pub(super) fn is_likely(outlook: Option<Outlook>, arena: &Inner, g: usize) -> bool {
    let Some(outlook) = outlook else { return true };
    arena.held(g) == 0
        || arena.is_packed(g)
        || match arena.advised(g) {
            Some(advice) => advice == Advice::WillNeed,
            None => outlook.plan(g, |slot| arena.history(slot, g)) == Plan::Bring,
        }
}

pub(super) fn open(arena: &Inner) -> Result<&dyn Store, PagerError> {
    arena.open_store().map_err(|e| PagerError::io("open a scratch file", 0, e))
}

/// With a gap behind, so that nothing that grows ever runs past the end of the file.
pub(super) fn lengthen(arena: &Inner, store: &dyn Store) -> Result<(), PagerError> {
    let extent = arena.extent();
    let made = store.ensure_len((extent + GRANULE) as u64);
    made.map_err(|e| no_space_or(store, e, "lengthen the scratch file", None, 0))
}

/// Gives back what the scratch files need not keep; whether there may have been any.
fn give_back(set: &ArenaSet) -> bool {
    set.arenas().fold(false, |any, arena| {
        // Where a packed granule has no block there may be another's bytes.
        let is_hole = |i: &usize| {
            arena.block(*i).load(Ordering::Acquire) == HOLE && !arena.has_packed_form(i * CHUNK / GRANULE)
        };
        let (mut at, end) = (0, arena.extent() / CHUNK);
        let mut zeros = std::iter::from_fn(|| {
            let first = (at..end).find(is_hole)?;
            at = (first..end).find(|i| !is_hole(i)).unwrap_or(end);
            Some(((first * CHUNK) as u64, ((at - first) * CHUNK) as u64))
        });
        any | arena.store().is_some_and(|store| store.give_back(&mut zeros))
    })
}

/// Where the file that holds byte `offset` is followed by another.
pub(super) fn piece_end(store: &dyn Store, offset: usize) -> usize {
    usize::try_from(store.piece_end(offset as u64)).unwrap_or(usize::MAX)
}

/// The error of a call on the store, at an offset if that is known.
pub(super) fn no_space_or(
    store: &dyn Store,
    errno: Errno,
    op: &'static str,
    offset: Option<usize>,
    needed: usize,
) -> PagerError {
    match errno.0 {
        libc::ENOSPC | libc::EDQUOT => PagerError::NoSpace {
            needed: needed as u64,
            dir: store
                .directory(offset.map(|offset| offset as u64))
                .to_str()
                .unwrap_or("(name is not UTF-8)"),
        },
        _ => PagerError::io(op, offset.unwrap_or(0), errno),
    }
}
