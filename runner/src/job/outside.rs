//! Independent ranks: the shell around the pure core [`Overdraft`](crate::overdraft::Overdraft), for programs that know
//! nothing of bdrun.
//!
//! The sampler tells what they hold, the core decides who is admitted, paged out, held and brought back, movers carry it
//! out. A rank that joins the co-operative runtime after all is handed to the scheduler.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bdrun_ipc::pool::bytes_in;

use crate::display::units::Bytes;
use crate::exit::Ending;
use crate::measure::{Group, Measured, own_max_rss};
use crate::outside::{Mover, Order, Report, Scratch};
use crate::overdraft::{Effect, Event};
use crate::scheduler;
use crate::supervisor::Usage;
use sbmalloc::other::Refusal;

use super::Job;
use super::accounts::Change;
use super::independent::{Ordered, REACTION, Rank, What};
use super::listen::Message;
use super::shrink::Partial;

/// After so many turns it is said that ranks wait for one another.
const SAID_TURNS: u32 = 3;

impl Job<'_> {
    /// Tells the core, and carries out what it orders.
    pub(super) fn tell_outside(&mut self, event: Event) {
        let Some(outside) = &mut self.outside else { return };
        let mut effects = Vec::new();
        outside.core.handle(event, &mut effects);
        if !matches!(event, Event::Sample { .. }) {
            // What was just ordered may make memory short sooner than was thought at the last look.
            outside.sampler.set_interval(outside.core.next_look());
        }
        let evicts = effects.iter().filter(|effect| matches!(effect, Effect::Evict { .. })).count();
        if matches!(event, Event::Chaos { .. }) {
            self.chaos.evictions += evicts as u64;
        }
        for effect in effects {
            if self.ending.is_none() {
                self.carry_out_outside(effect);
            }
        }
    }

    /// The first look, at nothing: admits the first ranks.
    pub(super) fn begin_outside(&mut self) {
        let others = self.others();
        self.tell_outside(Event::Looked { elapsed: Duration::ZERO, others, busy: 0.0, reaction: REACTION });
    }

    /// Bytes of the budget that are not independent ranks'.
    fn others(&self) -> u64 {
        let pool = &self.setup.segment.header().pool;
        let taken = self.outside.as_ref().map_or(0, |outside| outside.accounts.taken());
        let held = pool.budget() as i64 - pool.free();
        (held - taken as i64).max(0) as u64 + self.scheduler.wanted()
    }

    fn carry_out_outside(&mut self, effect: Effect) {
        match effect {
            Effect::Admit { rank, .. } => self.admit(rank),
            Effect::Evict { rank } => self.move_out(rank),
            Effect::Hold { rank } => self.hold(rank),
            Effect::Restore { rank } | Effect::Continue { rank } => self.let_go_on(rank),
            Effect::Shrink { rank, target } => self.shrink(rank, target),
            Effect::Stop { rank, used } => {
                self.note(&format!(
                    "rank {rank} is stopped to make room ({}), and will be started again: it cannot be paged out",
                    Bytes(used)
                ));
                let Some(outside) = &mut self.outside else { return };
                outside.ranks[rank as usize].stopping = true;
                self.supervisor.will_retry(rank);
                self.kill(rank);
            }
            Effect::OverLimit { rank, bytes, limit } => {
                let text = format!(
                    "rank {rank}: memory limit exceeded: it holds {}, and may hold {}",
                    Bytes(bytes),
                    Bytes(limit)
                );
                self.kill(rank);
                self.fail_rank(rank, Ending::Memory(text));
            }
            Effect::Overdraft { rank, bytes, beside } => self.note_overdraft(rank, bytes, beside),
        }
    }

    pub(super) fn note(&self, text: &str) {
        super::lock(&self.output).note(text);
    }

    /// Starts a rank.
    fn admit(&mut self, rank: u32) {
        let segment = self.setup.segment.clone();
        match self.spawn_spec(rank) {
            Ok(spec) => {
                let word = &segment.rank(rank).word;
                if !word.birth() {
                    // It was stopped, and begins anew.
                    word.resume();
                }
                self.alive += 1;
                self.most_alive = self.most_alive.max(self.alive);
                self.events.push(scheduler::Event::Admitted { rank });
                self.supervisor.spawn(spec);
            }
            Err(error) => self.end(Ending::Setup(format!("rank {rank} cannot be started: {error}"))),
        }
    }

    /// A rank's process runs.
    pub(super) fn outside_spawned(&mut self, rank: u32, group: Group) {
        let Some(outside) = &mut self.outside else { return };
        if !outside.accounts.spawned(rank) {
            return;
        }
        let record = &mut outside.ranks[rank as usize];
        *record = Rank {
            group: Some(group.clone()),
            nth: record.nth + 1,
            born: Some(Instant::now()),
            lived: record.lived,
            still_for: record.still_for,
            spent: record.spent + record.last.cpu,
            ..Rank::default()
        };
        outside.sampler.watch(rank, group);
        self.tell_outside(Event::Spawned { rank });
    }

    /// All processes of a rank have ended. Whether that was to make room.
    pub(super) fn outside_exited(&mut self, rank: u32, usage: &Usage, ok: bool) -> bool {
        let Some(outside) = &mut self.outside else { return false };
        let last = outside.sampler.forget(rank);
        let record = &mut outside.ranks[rank as usize];
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
        if !outside.accounts.is_adopted(rank) {
            self.setup.segment.rank(rank).running_ns.store(ran.as_nanos() as u64, SeqCst);
        }
        let change = outside.accounts.exited(rank);
        self.note_parts(rank);
        self.carry_over(change);
        self.tell_outside(Event::Exited { rank, peak, stopped });
        stopped
    }

    /// A rank joins the co-operative runtime.
    pub(super) fn adopt(&mut self, rank: u32) {
        let np = self.setup.segment.np();
        let Some(outside) = &mut self.outside else { return };
        let is_first = !outside.accounts.is_shared();
        let Some(change) = outside.accounts.adopt(rank) else { return };
        outside.sampler.forget(rank);
        if let Some(mover) = &outside.ranks[rank as usize].mover {
            mover.order(Order::Continue);
        }
        self.carry_over(change);
        self.tell_outside(Event::Adopted { rank });
        // The others' starts are paid before it can take what is free.
        for other in (0..np).filter(|_| is_first) {
            let Some(outside) = &self.outside else { return };
            self.charge(other, outside.accounts.held_by(other), outside.accounts.out_of(other).0);
        }
    }

    /// Whether the rank is one of those that are paged from outside.
    pub(super) fn is_outside(&self, rank: u32) -> bool {
        self.outside.as_ref().is_some_and(|outside| !outside.accounts.is_adopted(rank))
    }

    /// Whether the rank is about to end because we have killed it to make room.
    pub(super) fn is_stopping(&self, rank: u32) -> bool {
        self.outside.as_ref().is_some_and(|outside| outside.ranks[rank as usize].stopping)
    }

    /// The budget is charged what the rank holds in RAM; with what it has on scratch that is what it needs. Nothing, if it has an account of
    /// its own: that (`held`, `granted` in the segment) is written by its runtime alone.
    pub(super) fn charge(&mut self, rank: u32, bytes: u64, out: u64) {
        let Some(outside) = &mut self.outside else { return };
        let block = self.setup.segment.rank(rank);
        let Some(change) = outside.accounts.charge(rank, bytes, out, bytes_in(&block.granted)) else {
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
            let Some(outside) = &mut self.outside else { return };
            let record = &mut outside.ranks[rank as usize];
            // Of a try that has ended, or has joined the others, nothing is to be learnt.
            let is_of_this = record.born.is_some_and(|born| born <= measured.taken);
            if outside.accounts.is_adopted(rank) || record.group.is_none() || !is_of_this {
                continue;
            }
            record.last = sample;
            let (bytes, out) = (sample.resident(), outside.accounts.out_of(rank).0);
            let stays = record.partial.as_ref().map_or(0, Partial::stays).min(sample.private);
            self.charge(rank, bytes, out);
            self.tell_outside(Event::Sample { rank, bytes, fixed: bytes - sample.private + stays });
        }
        let Some(outside) = &mut self.outside else { return };
        outside.note_peaks(measured.elapsed);
        let Some(outside) = &self.outside else { return };
        let (reaction, others) = (outside.reaction, self.others());
        self.tell_outside(Event::Looked { elapsed: measured.elapsed, others, busy: measured.busy, reaction });
        self.say_turns();
    }

    /// Says once that ranks are paged because they wait for one another. Not where they are paged for no reason.
    fn say_turns(&mut self) {
        let is_chaos = self.chaos.next.is_some();
        let Some(outside) = &mut self.outside else { return };
        if !is_chaos
            && outside.core.turns() >= SAID_TURNS
            && !std::mem::replace(&mut outside.told_turns, true)
        {
            self.note(
                "ranks seem to wait for one another (sockets, pipes, files) while some of them are paged out: they come in by turns, \
                 each after seconds in which nobody did anything; with more --memory, so that they fit together, this goes fast",
            );
        }
    }

    fn move_out(&mut self, rank: u32) {
        let Some(outside) = &mut self.outside else { return };
        if outside.ranks[rank as usize].mover.as_ref().is_some_and(|mover| !mover.moves()) {
            // It is held because it could not be traced. As long as it stands nothing changes that.
            return self.tell_outside(Event::EvictRefused { rank, lasting: false });
        }
        outside.ranks[rank as usize].order = Some(Ordered::new(What::Evict));
        // What it holds meanwhile is told by the mover.
        outside.sampler.set_out(rank, true);
        match &outside.ranks[rank as usize].mover {
            Some(mover) => mover.order(Order::Evict),
            None => self.start_mover(rank, Some(Order::Evict)),
        }
    }

    fn hold(&mut self, rank: u32) {
        let Some(outside) = &mut self.outside else { return };
        let record = &mut outside.ranks[rank as usize];
        if record.mover.is_none() && (record.fixed || outside.permits.ptrace.is_err()) {
            return self.freeze(rank);
        }
        record.order = Some(Ordered::new(What::Hold));
        match &record.mover {
            Some(mover) => mover.order(Order::Hold),
            None => self.start_mover(rank, None),
        }
    }

    fn let_go_on(&mut self, rank: u32) {
        let Some(outside) = &mut self.outside else { return };
        let record = &mut outside.ranks[rank as usize];
        record.order = Some(Ordered::new(What::Return));
        if let Some(mover) = &record.mover {
            mover.order(Order::Continue);
        }
    }

    pub(super) fn start_mover(&mut self, rank: u32, first: Option<Order>) {
        let Some(outside) = &mut self.outside else { return };
        let record = &mut outside.ranks[rank as usize];
        let Some(group) = record.group.clone() else { return };
        let (sender, nth) = (outside.sender.clone(), record.nth);
        let report = move |report| {
            // The job that does not listen any more has ended.
            let _ = sender.send(Message::Mover(rank, nth, report));
        };
        let leader = group.leader();
        let list = Box::new(move || group.processes());
        match Mover::start(rank, leader, list, record.scratch.clone(), first, report) {
            Ok(mover) => record.mover = Some(mover),
            Err(error) => self.end(Ending::Setup(format!("rank {rank} cannot be paged: no thread: {error}"))),
        }
    }

    /// Stops a rank that cannot be traced.
    fn freeze(&mut self, rank: u32) {
        let Some(outside) = &mut self.outside else { return };
        let record = &mut outside.ranks[rank as usize];
        record.order = Some(Ordered::new(What::Freeze));
        let Some(group) = record.group.clone() else { return };
        let (sender, nth) = (outside.sender.clone(), record.nth);
        let report = move |report| _ = sender.send(Message::Mover(rank, nth, report));
        match Mover::freeze(rank, group, report) {
            Ok(mover) => record.mover = Some(mover),
            Err(error) => self.end(Ending::Setup(format!("rank {rank} cannot be held: no thread: {error}"))),
        }
    }

    /// What has become of an order.
    pub(super) fn moved(&mut self, rank: u32, nth: u32, report: Report) {
        let Some(outside) = &mut self.outside else { return };
        let record = &mut outside.ranks[rank as usize];
        // The thread of a try that has ended may still speak when the next has begun.
        let Some(order) = record.order.filter(|_| record.nth == nth) else { return };
        let block = self.setup.segment.rank(rank);
        match report {
            Report::Held => {
                record.stand(true);
                if matches!(order.what, What::Hold | What::Freeze) {
                    self.tell_outside(Event::Held { rank });
                }
            }
            Report::Freed(freed) => {
                if let Some(order) = record.order.as_mut().filter(|order| !order.freed) {
                    order.freed = true;
                    outside.reaction = (outside.reaction * 3 + order.at.elapsed()) / 4;
                }
                self.tell_outside(Event::EvictProgress { rank, freed });
            }
            Report::Out { out, freed, written, took, full } => {
                block.evictions.fetch_add(1, SeqCst);
                block.evicted.fetch_add(freed, SeqCst);
                block.written.fetch_add(written, SeqCst);
                block.paging_ns.fetch_add(took.as_nanos() as u64, SeqCst);
                // It may have grown after the last look at it, before it stood still.
                record.last = outside.sampler.remains(rank).unwrap_or(record.last);
                let left = record.last.resident();
                self.charge(rank, left, out);
                self.tell_outside(match full {
                    None => Event::Evicted { rank, out, left },
                    Some(_) => Event::DiskFull { rank, out },
                });
            }
            Report::Back { filled, took } => {
                block.restored.fetch_add(filled, SeqCst);
                block.read.fetch_add(filled, SeqCst);
                block.paging_ns.fetch_add(took.as_nanos() as u64, SeqCst);
                record.mover = None;
                record.stand(false);
                let bytes = outside.accounts.held_by(rank) + filled;
                outside.sampler.set_out(rank, false);
                self.charge(rank, bytes, 0);
                self.tell_outside(Event::Restored { rank });
            }
            Report::Full { held, .. } => {
                if !held {
                    record.mover = None;
                    record.stand(false);
                }
                outside.sampler.set_out(rank, false);
                self.tell_outside(Event::DiskFull { rank, out: 0 });
            }
            Report::InParts(report) => self.moved_in_parts(rank, report),
            Report::Continued => {
                // What runs in parts is served by its mover as long as it lives.
                record.mover.take_if(|_| record.partial.is_none());
                record.stand(false);
                self.tell_outside(Event::Continued { rank });
            }
            Report::Refused(refusal) => self.refused(rank, order.what, &refusal),
            Report::NotFrozen(why) => {
                record.mover = None;
                record.fixed = true;
                let why = why.to_string();
                self.say_fixed(rank, &why);
                self.tell_outside(Event::HoldRefused { rank });
            }
            // Its exit is told by the supervisor.
            Report::Gone => record.mover = None,
            Report::Broken(text) => {
                self.kill(rank);
                self.end(Ending::ScratchBroken(format!("rank {rank}: {text}")));
            }
        }
    }

    fn refused(&mut self, rank: u32, what: What, why: &Refusal) {
        let Some(outside) = &mut self.outside else { return };
        let record = &mut outside.ranks[rank as usize];
        record.mover.take_if(|_| record.partial.is_none());
        outside.sampler.set_out(rank, false);
        let lasting = why.is_lasting();
        record.fixed |= lasting;
        if !why.is_momentary() {
            self.say_fixed(rank, &why.to_string());
        }
        match what {
            What::Hold => self.freeze(rank),
            What::Shrink => self.tell_outside(Event::ShrinkRefused { rank, lasting }),
            _ => self.tell_outside(Event::EvictRefused { rank, lasting }),
        }
    }

    /// Said once of each rank.
    fn say_fixed(&mut self, rank: u32, why: &str) {
        let Some(outside) = &mut self.outside else { return };
        let record = &mut outside.ranks[rank as usize];
        if !std::mem::replace(&mut record.told_fixed, true) {
            // Processes end, and do other things.
            let now = if record.fixed { "" } else { " now" };
            self.note(&format!(
                "rank {rank} cannot be paged out{now}, and is only held when memory is short: {why}"
            ));
        }
    }

    /// For `--chaos`: pages out the next rank that runs. Whether there are such ranks at all.
    pub(super) fn chaos_outside(&mut self, from: u32) -> bool {
        let Some(outside) = &self.outside else { return false };
        let np = outside.ranks.len() as u32;
        let can_go = |&rank: &u32| {
            let record = &outside.ranks[rank as usize];
            record.group.is_some()
                && record.mover.is_none()
                && !outside.accounts.is_adopted(rank)
                && !record.fixed
        };
        let Some(rank) = (0..np).map(|i| (from + i) % np).find(can_go) else { return false };
        self.tell_outside(Event::Chaos { rank });
        true
    }

    /// The job is being ended: those that stand still cannot answer a signal, and are killed.
    pub(super) fn kill_those_held(&mut self) {
        let Some(outside) = &self.outside else { return };
        let held = (0..).zip(&outside.ranks).filter(|(_, record): &(u32, &Rank)| {
            record.mover.is_some() && (record.partial.is_none() || record.still.is_some())
        });
        let held: Vec<u32> = held.map(|(rank, _)| rank).collect();
        held.into_iter().for_each(|rank| self.kill(rank));
    }

    /// Kills a rank, whether or not it stands still.
    fn kill(&mut self, rank: u32) {
        self.supervisor.signal(rank, libc::SIGKILL);
        let Some(outside) = &mut self.outside else { return };
        // What is frozen dies only when it is let go.
        outside.ranks[rank as usize].mover = None;
    }
}
