//! What looks at memory tell the core, and what of the budget is taken for that.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bdrun_ipc::pool::bytes_in;

use crate::measure::{Group, Measured, own_max_rss};
use crate::outside::Scratch;
use crate::residency::{Can, Event};
use crate::supervisor::Usage;

use super::Job;
use super::accounts::Change;
use super::shrink::Partial;
use super::watch::REACTION;

/// After so many turns it is said that ranks wait for one another.
const SAID_TURNS: u32 = 3;

impl Job<'_> {
    pub(super) fn note(&self, text: &str) {
        super::lock(&self.output).note(text);
    }

    /// The first look, at nothing: admits the first ranks.
    pub(super) fn begin_looks(&mut self) {
        if self.watch.is_some() {
            self.events.push(Event::Looked { elapsed: Duration::ZERO, busy: 0.0, reaction: REACTION });
        }
    }

    /// What the pool says.
    pub(super) fn pool(&self) -> Event {
        let pool = &self.setup.segment.header().pool;
        let measured = self.watch.as_ref().map_or(0, |watch| watch.accounts.taken());
        let (messages, kept) = (pool.mail(), self.kept_free);
        let used = (pool.budget() as i64).saturating_sub(pool.free());
        let others = messages.saturating_add(measured).saturating_add(kept);
        let asked = u64::try_from(used.saturating_sub_unsigned(others)).unwrap_or(0);
        Event::Pool { asked, messages, measured, kept }
    }

    /// Takes what is to be kept free out of the pool, where others could take it.
    pub(super) fn keep_free(&mut self) {
        let (before, now) = (self.kept_free, self.core.kept_free());
        let pool = &self.setup.segment.header().pool;
        if now > before {
            pool.force(now - before);
        } else {
            pool.give(before - now);
        }
        self.kept_free = now;
    }

    /// A rank's process runs.
    pub(super) fn outside_spawned(&mut self, rank: u32, group: Group) {
        let Some(watch) = &mut self.watch else { return };
        if !watch.accounts.spawned(rank) {
            return;
        }
        self.ranks[rank as usize].begin(group.clone());
        watch.sampler.watch(rank, group);
    }

    /// All processes of a rank have ended: the most it held, as far as that was measured, and whether that was to make room.
    pub(super) fn outside_exited(&mut self, rank: u32, usage: &Usage, ok: bool) -> (u64, bool) {
        let Some(watch) = &mut self.watch else { return (0, false) };
        let last = watch.sampler.forget(rank);
        let record = &mut self.ranks[rank as usize];
        record.last = last.unwrap_or(record.last);
        let stopped = record.stopping && !ok;
        if let Some(partial) = &mut record.partial {
            partial.end();
        }
        let peak = record.last.final_peak(usage, own_max_rss());
        record.last.peak = peak;
        (record.mover, record.group, record.order) = (None, None, None);
        record.scratch = Scratch::default();
        record.stand(false);
        record.lived += record.born.take().map_or(Duration::ZERO, |born| born.elapsed());
        let ran = record.lived.saturating_sub(record.still_for);
        // One that has joined the others writes that itself.
        if !watch.accounts.is_adopted(rank) {
            self.setup.segment.rank(rank).running_ns.store(ran.as_nanos() as u64, SeqCst);
        }
        let change = watch.accounts.exited(rank);
        self.note_parts(rank);
        self.carry_over(change);
        (peak, stopped)
    }

    /// A rank joins the co-operative runtime: it asks from now on, and says when it waits.
    pub(super) fn adopt(&mut self, rank: u32) {
        let np = self.setup.segment.np();
        let Some(watch) = &mut self.watch else { return };
        let is_first = !watch.accounts.is_shared();
        let Some(change) = watch.accounts.adopt(rank) else { return };
        watch.sampler.forget(rank);
        self.carry_over(change);
        // Before it has attached it cannot be paged.
        self.events.push(Event::Can { rank, can: Can { leave: false, ..Can::NATIVE } });
        self.settle_account(rank);
        // The others' starts are paid before it can take what is free.
        for other in (0..np).filter(|_| is_first) {
            let Some(watch) = &self.watch else { return };
            self.charge(other, watch.accounts.held_by(other), watch.accounts.out_of(other).0);
        }
    }

    /// Of one that has an account of its own nothing is measured, wherever it was when that began.
    pub(super) fn settle_account(&mut self, rank: u32) {
        if self.watch.as_ref().is_some_and(|watch| watch.accounts.is_adopted(rank)) {
            self.events.push(Event::Sample { rank, bytes: 0, fixed: 0 });
        }
    }

    /// Whether the rank is one of those that are paged from outside.
    pub(super) fn is_outside(&self, rank: u32) -> bool {
        self.watch.as_ref().is_some_and(|watch| !watch.accounts.is_adopted(rank))
    }

    /// Whether the rank is about to end because we have killed it to make room.
    pub(super) fn is_stopping(&self, rank: u32) -> bool {
        self.ranks[rank as usize].stopping
    }

    /// The budget is charged what the rank holds in RAM; with what it has on scratch that is what it needs. Nothing, if it has an account of
    /// its own: that (`held`, `granted` in the segment) is written by its runtime alone.
    pub(super) fn charge(&mut self, rank: u32, bytes: u64, out: u64) {
        let Some(watch) = &mut self.watch else { return };
        let block = self.setup.segment.rank(rank);
        let Some(change) = watch.accounts.charge(rank, bytes, out, bytes_in(&block.granted)) else {
            return;
        };
        block.peak.fetch_max(bytes + out, SeqCst);
        self.largest_rank = self.largest_rank.max(bytes + out);
        self.carry_over(change);
    }

    /// To the segment, where all can see it.
    fn carry_over(&mut self, Change { taken, needs }: Change) {
        let pool = &self.setup.segment.header().pool;
        if taken >= 0 {
            pool.force(taken.unsigned_abs());
        } else {
            pool.give(taken.unsigned_abs());
        }
        if needs >= 0 {
            pool.demand_add(needs.unsigned_abs());
        } else {
            pool.demand_sub(needs.unsigned_abs());
        }
    }

    /// What the ranks were seen to hold.
    pub(super) fn measured(&mut self, measured: &Measured) {
        for &(rank, sample) in &measured.samples {
            let Some(watch) = &self.watch else { return };
            let record = &mut self.ranks[rank as usize];
            // Of a try that has ended, or has joined the others, nothing is to be learnt.
            let is_of_this = record.born.is_some_and(|born| born <= measured.taken);
            if watch.accounts.is_adopted(rank) || record.group.is_none() || !is_of_this {
                continue;
            }
            record.last = sample;
            let (bytes, out) = (sample.resident(), watch.accounts.out_of(rank).0);
            let stays = record.partial.as_ref().map_or(0, Partial::stays).min(sample.private);
            self.charge(rank, bytes, out);
            self.events.push(Event::Sample { rank, bytes, fixed: bytes - sample.private + stays });
        }
        let Some(watch) = &mut self.watch else { return };
        watch.note_peaks(&self.ranks, measured.elapsed);
        let reaction = watch.reaction;
        self.events.push(Event::Looked { elapsed: measured.elapsed, busy: measured.busy, reaction });
        self.say_turns();
    }

    /// Says once that ranks are paged because they wait for one another. Not where they are paged for no reason.
    fn say_turns(&mut self) {
        let is_chaos = self.chaos.next.is_some();
        let Some(watch) = &mut self.watch else { return };
        if !is_chaos && self.core.turns() >= SAID_TURNS && !std::mem::replace(&mut watch.told_turns, true) {
            self.note(
                "ranks seem to wait for one another (sockets, pipes, files) while some of them are paged out: they come in by turns, \
                 each after seconds in which nobody did anything; with more --memory, so that they fit together, this goes fast",
            );
        }
    }
}
