//! Every set and sum over the ranks, kept in step with each change, so that no decision scans the ranks.

use std::collections::BTreeSet;

use super::rank::{Doing, Life, RankState};
use super::victim::Key;
use super::{Counts, Rank, Wait};

/// A rank by its age, or since when it waits: the last is the youngest.
pub(super) type Aged = (u64, Rank);

/// After so many refusals in a row nobody waits for a rank to change its mind.
pub(super) const PATIENCE: u8 = 3;

/// The sets. Each rank is in those that its state says, and in no other. *Strangers* are those that do not
/// tell when they wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// Not started, by number, those that were stopped last; but for those admitted by what is expected of
    /// them.
    pub unborn: BTreeSet<Aged>,
    /// Residents that wait for memory, the longest waiting first.
    pub needs: BTreeSet<Aged>,
    /// The same by bytes.
    pub needs_by_size: BTreeSet<(u64, Rank)>,
    /// Those of `needs` that may be asked to leave.
    pub yielding: BTreeSet<Aged>,
    /// Out, tell, and would run, the longest waiting first; also those that were given a part of what they
    /// need.
    pub ready: BTreeSet<Aged>,
    /// The same, and strangers, by the bytes they lack.
    pub ready_by_size: BTreeSet<(u64, Rank)>,
    /// Those of `ready` that hold a part or are on their way; the one that lacks least first.
    pub begun: BTreeSet<(u64, u64, Rank)>,
    /// Those of `begun` that may be asked to give their part back.
    pub parts: BTreeSet<(u64, u64, Rank)>,
    /// Ranks that wait for others, hold memory that would leave with them and may be asked to; the last goes
    /// first.
    pub heavy: BTreeSet<Key>,
    /// The same of those that hold none: they free a place only.
    pub light: BTreeSet<Key>,
    /// Ranks that refused to leave, by when they are asked again: those that tell by event, strangers by
    /// look.
    pub refused: BTreeSet<Aged>,
    pub refused_strangers: BTreeSet<Aged>,

    /// Strangers in RAM to stay.
    pub inside: BTreeSet<Aged>,
    /// May be asked to leave, the last first: those that hold more than was expected, or were not expected to
    /// fit.
    pub victims: BTreeSet<(bool, u64, Rank)>,
    /// The same by age alone.
    pub pageable: BTreeSet<Aged>,
    /// Tell, compute, and may be interrupted.
    pub preemptible: BTreeSet<Aged>,
    /// Grow, and can be held.
    pub growing: BTreeSet<Aged>,
    pub held: BTreeSet<Aged>,
    pub stoppable: BTreeSet<Aged>,
    /// Out, but for what of them cannot be paged.
    pub remnants: BTreeSet<Aged>,
    /// Strangers that are out for lack of memory, the oldest first.
    pub out: BTreeSet<Aged>,
    /// The same, the one that has been out longest first.
    pub out_since: BTreeSet<Aged>,
    /// Out, and to come back at once.
    pub eager: BTreeSet<Aged>,

    /// Bytes that ranks asked for and hold.
    pub asked: u64,
    /// Bytes that are measured.
    pub other: u64,
    /// Bytes of both that will be free without another order.
    pub freeing: u64,
    /// Measured bytes that the ranks in RAM hold or are expected to need.
    pub expected: u64,
    /// Measured bytes that the ranks in RAM hold or need before long.
    pub soon: u64,
    /// Sum of what `needs` wait for, bytes.
    pub needs_bytes: u64,
    /// Sum of what those in `heavy` hold, bytes.
    pub heavy_bytes: u64,
    /// Ranks that hold anything.
    pub holders: u32,
    pub places: u32,
    /// Of those being evicted, the ones that will take none.
    pub freeing_places: u32,
    /// Of the places, those of ranks that are about to end: others may have them.
    pub ending_places: u32,
    pub about_to_end: u32,
    pub active: u32,
    /// Of these, the ones that tell: they will wait, or end, and say so.
    pub active_telling: u32,
    /// Of these, the ones that cannot be interrupted.
    pub active_for_long: u32,
    /// Of these, the ones that are in RAM: who comes in by parts, as room is made, does nothing yet.
    pub compute_for_long: u32,
    /// Something will be heard of them without any order.
    pub awaited: u32,
    pub starting: u32,
    pub running: u32,
    pub holding: u32,
    pub evicting: u32,
    /// Of these, strangers that do not come back at once.
    pub evicting_for_long: u32,
    pub restoring: u32,
    /// Going or coming, and never to be out for long.
    pub eager_moves: u32,
    pub shrinking: u32,
    pub stopping: u32,
    pub is_out: u32,
    pub gone: u32,
    pub begun_strangers: u32,
    /// Begun although they were not expected to fit, in RAM or not.
    pub overbooked: u32,
    /// Of the strangers that refused to leave, those for which it is worth waiting.
    pub hopeful: u32,
    /// Ranks, in RAM or not, that wait for others.
    pub waiting: u32,
    /// Of them, those that wait for something unknown.
    pub waiting_other: u32,
}

impl Index {
    /// Enters a rank, takes one out, or keeps the sets in step with its change: what does not change is not
    /// touched.
    ///
    /// The one place that says which state belongs where.
    pub fn change(&mut self, rank: Rank, before: Option<&RankState>, after: Option<&RankState>) {
        /// A set, and the item by which a rank is in it.
        macro_rules! set {
            ($set:ident, |$state:ident| $item:expr, $belongs:expr) => {{
                let item = |$state: &RankState| if $belongs { Some($item) } else { None };
                let (old, new) = (before.and_then(item), after.and_then(item));
                if old != new {
                    old.map(|old| self.$set.remove(&old));
                    new.map(|new| self.$set.insert(new));
                }
            }};
        }
        /// A sum, and the part of a rank in it. It wraps, so that leaving undoes entering exactly even for
        /// absurd numbers.
        macro_rules! sum {
            ($sum:ident, |$state:ident| $part:expr) => {{
                let part = |$state: &RankState| $part;
                let (old, new) = (before.map_or(0, part), after.map_or(0, part));
                self.$sum = self.$sum.wrapping_add(new).wrapping_sub(old);
            }};
        }
        /// How many ranks are so.
        macro_rules! count {
            ($count:ident, |$state:ident| $is:expr) => {
                sum!($count, |$state| u32::from($is))
            };
        }
        set!(unborn, |s| (s.stopped_at, rank), s.life == Life::Unborn && !s.queued);
        set!(needs, |s| (s.since, rank), s.need().is_some());
        set!(needs_by_size, |s| (s.need().unwrap_or(0), rank), s.need().is_some());
        set!(yielding, |s| (s.since, rank), s.need().is_some() && s.evictable_waiting());
        sum!(needs_bytes, |s| s.need().unwrap_or(0));
        set!(ready, |s| (s.since, rank), s.claims() && s.can.tells);
        set!(ready_by_size, |s| (s.lacks().unwrap_or(0), rank), s.claims());
        set!(begun, |s| s.lacks_least(rank), s.claims() && s.can.tells && s.has_place());
        set!(parts, |s| s.lacks_least(rank), s.claims() && s.evictable_waiting());
        set!(heavy, |s| Key::new(rank, s), s.is_victim() && s.weight() > 0);
        sum!(heavy_bytes, |s| if s.is_victim() { s.weight() } else { 0 });
        set!(light, |s| Key::new(rank, s), s.is_victim() && s.weight() == 0);
        set!(refused, |s| (s.refused_until, rank), s.has_refused() && s.can.tells);
        set!(refused_strangers, |s| (s.refused_until, rank), s.has_refused() && !s.can.tells);

        set!(inside, |s| (s.seq, rank), s.is_inside() && !s.can.tells);
        set!(victims, |s| (s.is_over(), s.seq, rank), s.evictable_running());
        set!(pageable, |s| (s.seq, rank), s.evictable_running());
        set!(preemptible, |s| (s.seq, rank), s.preemptible());
        set!(growing, |s| (s.seq, rank), s.is_growing());
        set!(held, |s| (s.seq, rank), s.life == Life::Held);
        set!(stoppable, |s| (s.seq, rank), s.is_stoppable());
        set!(remnants, |s| (s.seq, rank), s.life == Life::Out && s.holds.other > 0);
        set!(out, |s| (s.seq, rank), s.life == Life::Out && !s.can.tells && !s.eager);
        set!(out_since, |s| (s.since, rank), s.life == Life::Out && !s.can.tells && !s.eager);
        set!(eager, |s| (s.seq, rank), s.life == Life::Out && s.eager);

        sum!(asked, |s| s.holds.asked);
        sum!(other, |s| s.other());
        sum!(freeing, |s| s.freeing());
        sum!(expected, |s| s.expected());
        sum!(soon, |s| s.soon());
        count!(holders, |s| s.holds.total() > 0 && s.life != Life::Gone);
        count!(places, |s| s.has_place());
        count!(freeing_places, |s| s.life == Life::Evicting && s.keep.asked == 0 && !s.ends);
        count!(about_to_end, |s| s.ends && s.life == Life::Resident && s.doing == Doing::Runs);
        count!(ending_places, |s| s.ends && s.has_place());
        count!(active, |s| s.is_active());
        count!(active_telling, |s| s.is_active() && s.can.tells);
        count!(active_for_long, |s| s.is_active() && s.can.tells && !s.can.preempt);
        count!(compute_for_long, |s| s.life == Life::Resident
            && s.is_active()
            && s.can.tells
            && !s.can.preempt);
        count!(awaited, |s| s.will_be_heard_of());
        count!(starting, |s| s.life == Life::Starting);
        count!(running, |s| s.life == Life::Resident && s.doing == Doing::Runs);
        count!(holding, |s| s.life == Life::Holding);
        count!(evicting, |s| s.life == Life::Evicting);
        count!(evicting_for_long, |s| s.life == Life::Evicting && !s.eager && !s.can.tells);
        count!(restoring, |s| s.life == Life::Restoring);
        count!(eager_moves, |s| matches!(s.life, Life::Evicting | Life::Restoring) && s.eager);
        count!(shrinking, |s| s.life == Life::Shrinking);
        count!(stopping, |s| s.life == Life::Stopping);
        count!(is_out, |s| s.life == Life::Out);
        count!(gone, |s| s.life == Life::Gone);
        count!(begun_strangers, |s| !s.can.tells && !matches!(s.life, Life::Unborn | Life::Gone));
        count!(overbooked, |s| s.overbooked);
        count!(hopeful, |s| s.has_refused() && s.refusals <= PATIENCE && s.is_stoppable());
        count!(waiting, |s| s.waits());
        count!(waiting_other, |s| s.waits() && s.doing == Doing::Waits(Wait::Other));
    }

    /// How many ranks there are of those that `--resident` counts.
    pub const fn residents(&self) -> u32 {
        self.places - self.ending_places
    }

    /// How many ranks are where.
    pub fn counts(&self, queued: usize) -> Counts {
        let len = |set: usize| u32::try_from(set).unwrap_or(u32::MAX);
        Counts {
            unborn: len(self.unborn.len() + queued),
            starting: self.starting,
            running: self.running + self.holding,
            held: len(self.held.len()),
            memory_blocked: len(self.needs.len()),
            evicting: self.evicting + self.shrinking,
            out: self.is_out,
            ready: len(self.ready_by_size.len()),
            restoring: self.restoring,
            stopping: self.stopping,
            resident: self.residents(),
            exited: self.gone,
        }
    }
}
