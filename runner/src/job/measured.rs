//! What looks at memory tell the core, and what of the budget is taken for that.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bdrun_ipc::pool::bytes_in;
use bdrun_ipc::state::State;

use crate::holder::Scratch;
use crate::measure::{Group, Measured, Sample, own_max_rss};
use crate::residency::Event;
use crate::supervisor::Usage;

use super::Job;
use super::accounts::Change;
use super::record::{What, While};
use super::watch::{OWN, REACTION, Watch};

/// Who lives shorter may have held much between two looks that nobody saw.
const SEEN: Duration = Duration::from_millis(500);

/// After so many turns it is said that ranks wait for one another.
const SAID_TURNS: u32 = 3;

impl Job<'_> {
    pub(super) fn note(&self, text: &str) {
        if let Some(history) = &self.history {
            history.note(self.now_s(), text);
        }
        super::lock(&self.output).note(text);
    }

    /// The first look, at nothing: admits the first ranks.
    pub(super) fn begin_looks(&mut self) {
        self.events.push(Event::Looked { elapsed: Duration::ZERO, busy: 0.0, idle: 0.0, reaction: REACTION });
    }

    /// What the pool says.
    pub(super) fn pool(&self) -> Event {
        let pool = &self.setup.segment.header().pool;
        let measured = self.watch.accounts.measured();
        let (messages, kept) = (pool.mail(), self.kept_free);
        let used = (pool.budget() as i64).saturating_sub(pool.free());
        let others = messages.saturating_add(measured).saturating_add(kept);
        let asked = u64::try_from(used.saturating_sub_unsigned(others)).unwrap_or(0);
        Event::Pool { asked, messages, measured, kept }
    }

    /// Takes what is to be kept free out of the pool, where others could take it.
    pub(super) fn keep_free(&mut self) {
        self.kept_free = self.core.kept_free();
        self.setup.segment.header().pool.set_margin(self.kept_free);
    }

    /// A rank's process runs.
    pub(super) fn spawned(&mut self, rank: u32, group: Group, at: Instant) {
        self.watch.accounts.spawned(rank);
        self.record_begin(rank);
        self.ranks[rank as usize].begin(group.clone(), at);
        self.watch.sampler.watch(rank, group);
    }

    /// All processes of a rank have ended: the most it held, as far as that was measured, and whether that
    /// was to make room.
    pub(super) fn ended(&mut self, rank: u32, usage: &Usage, ok: bool) -> (u64, bool) {
        self.record_legs(rank);
        let watch = &mut self.watch;
        watch.note_gap();
        let last = watch.sampler.forget(rank);
        let record = &mut self.ranks[rank as usize];
        record.last = last.unwrap_or(record.last);
        let stopped = record.stopping && !ok;
        if let Some(partial) = &mut record.partial {
            partial.end();
        }
        let adopted = watch.accounts.is_adopted(rank);
        let floor = own_max_rss();
        // What it asked for, one that asks writes itself.
        let block = self.setup.segment.rank(rank);
        let peak = if adopted { record.peak(block) } else { record.last.final_peak(usage, floor) };
        let lived = record.born.map_or(Duration::ZERO, |born| born.elapsed());
        watch.idle.ended(lived, (usage.user + usage.system).saturating_sub(record.last.cpu));
        record.hardly_seen = !adopted && lived < SEEN && record.last.is_seen_only(usage, floor);
        record.last.peak = peak;
        // What it used after the last look, all of it if there was none.
        record.last.cpu = record.last.cpu.max(usage.user + usage.system);
        record.switches = [record.switches[0] + usage.switches.0, record.switches[1] + usage.switches.1];
        (record.holder, record.group, record.order) = (None, None, None);
        (record.scratch, record.evicted_while) = (Scratch::default(), None);
        record.stand(false);
        record.lived += record.born.take().map_or(Duration::ZERO, |born| born.elapsed());
        let ran = record.lived.saturating_sub(record.still_for);
        if !adopted {
            self.setup.segment.rank(rank).running_ns.store(ran.as_nanos() as u64, SeqCst);
        }
        let change = watch.accounts.exited(rank);
        self.note_parts(rank);
        self.carry_over(change);
        (peak, stopped)
    }

    /// A rank joins the co-operative runtime: it asks from now on, and says when it waits.
    pub(super) fn adopt(&mut self, rank: u32) {
        let is_first = !self.watch.accounts.is_shared();
        let Some(change) = self.watch.accounts.adopt(rank) else { return };
        self.carry_over(change);
        self.events.push(Event::Can { rank, can: self.watch.native(false) });
        // What it holds besides what it asks for tells the next look.
        self.events.push(Event::Sample { rank, bytes: 0, fixed: 0 });
        let record = &mut self.ranks[rank as usize];
        let goes = record.order.is_some_and(|order| order.what == What::Evict) && record.still.is_none();
        if goes {
            // It can attach and ask before it stands: then what it asked for leaves as well.
            record.evicted_while = Some(While::Computes);
            self.events.push(Event::Interrupted { rank });
        }
        // The others' starts are paid before it can take what is free.
        let others: Vec<u32> = self.ranks.iter().map(|(rank, _)| rank).collect();
        for other in others.into_iter().filter(|_| is_first) {
            let accounts = &self.watch.accounts;
            self.charge(other, accounts.held_by(other), accounts.out_of(other).0);
        }
    }

    /// It has attached: it tells when it waits.
    pub(super) fn attached(&mut self, rank: u32) {
        self.events.push(Event::Can { rank, can: self.watch.native(true) });
    }

    /// Whether the rank is one of those that are paged from outside.
    pub(super) fn is_stranger(&self, rank: u32) -> bool {
        !self.watch.accounts.is_adopted(rank)
    }

    /// Whether the rank is about to end because we have killed it to make room.
    pub(super) fn is_stopping(&self, rank: u32) -> bool {
        self.ranks[rank as usize].stopping
    }

    /// The budget is charged what is measured of the rank in RAM; with what it has on scratch that is what it
    /// needs. What it asks for itself is charged besides (`held`, `granted` in the segment), by its runtime
    /// alone.
    pub(super) fn charge(&mut self, rank: u32, bytes: u64, out: u64) {
        let block = self.setup.segment.rank(rank);
        let accounts = &mut self.watch.accounts;
        let Some(change) = accounts.charge(rank, bytes, out, bytes_in(&block.granted)) else { return };
        if !accounts.is_adopted(rank) {
            block.peak.fetch_max(bytes + out, SeqCst);
            self.largest_rank = self.largest_rank.max(bytes + out);
        }
        self.carry_over(change);
    }

    /// Of what the rank asked for, so many bytes are out, and others may use them.
    pub(super) fn lend(&mut self, rank: u32, bytes: u64) {
        let change = self.watch.accounts.lend(rank, bytes);
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
            let accounts = &self.watch.accounts;
            let Some(record) = self.ranks.get_mut(rank) else { continue };
            // Of a try that has ended nothing is to be learnt.
            let is_of_this = record.born.is_some_and(|born| born <= measured.taken);
            if record.group.is_none() || !is_of_this {
                continue;
            }
            if record.is_leaving() && !accounts.is_adopted(rank) {
                // The look was before that, and is heard after it: from here on its mover tells.
                continue;
            }
            record.last = sample;
            if accounts.is_adopted(rank) {
                self.measured_besides(rank, &sample);
                continue;
            }
            let out = accounts.out_of(rank).0;
            let (stays, private) = match &record.partial {
                Some(partial) => (partial.stays(), partial.in_ram(sample.private)),
                None => (0, sample.private),
            };
            let bytes = sample.resident() - sample.private + private;
            let fixed = bytes - private + stays.min(private);
            self.charge(rank, bytes, out);
            self.record_size(rank, bytes + out);
            self.events.push(Event::Sample { rank, bytes, fixed });
        }
        self.watch.note_peaks(&self.ranks, measured.gap);
        let (elapsed, busy, reaction) = (measured.elapsed, measured.busy, self.watch.reaction);
        let idle = self.watch.idle.look(elapsed, self.core.limits().processors, busy);
        self.events.push(Event::Looked { elapsed, busy, idle, reaction });
        self.say_turns();
    }

    /// What a rank that asks was seen to hold besides.
    fn measured_besides(&mut self, rank: u32, sample: &Sample) {
        let held = self.watch.accounts.held_by(rank);
        self.note_besides(rank, sample.not_asked_for(0));
        let record = &mut self.ranks[rank as usize];
        if record.holder.is_some() {
            // What it holds changes by our orders, and they tell.
            return;
        }
        let bytes = Watch::besides(sample);
        let block = self.setup.segment.rank(rank);
        let state = block.word.load().state();
        let inside = matches!(state, State::Running | State::Blocked);
        if inside {
            record.besides_inside = bytes;
        }
        // What it used before it waited may be seen late; what is more at a later look in the same wait other
        // threads have touched.
        let out = state == State::Evicted && sample.threads > 1;
        let wait = sample.waits.filter(|&waits| out && waits == block.waits.load(SeqCst));
        let least = record.besides_waiting.filter(|&(of, _)| Some(of) == wait).map(|(_, least)| least);
        record.besides_waiting = wait.map(|wait| (wait, least.map_or(bytes, |least| least.min(bytes))));
        let touches = least.is_some_and(|least| bytes >= least + OWN);
        if inside {
            self.record_size(rank, bytes);
        }
        let record = &mut self.ranks[rank as usize];
        if bytes > 0 {
            record.most = record.most.max(bytes + bytes_in(&self.setup.segment.rank(rank).held));
        }
        if bytes != held {
            self.charge(rank, bytes, 0);
            if inside {
                // What was set aside and not used it has given back, without a word where nobody needs it:
                // beside that what it holds besides would count twice.
                if self.ranks[rank as usize].seen.pending.is_none() {
                    self.tell_granted(rank);
                }
                self.events.push(Event::Sample { rank, bytes, fixed: 0 });
            }
        }
        if touches {
            self.hold_threads(rank);
        }
    }

    /// Says once that ranks are paged because they wait for one another. Not where they are paged for no
    /// reason.
    fn say_turns(&mut self) {
        let is_chaos = self.chaos.next.is_some();
        let told = &mut self.watch.told_turns;
        if !is_chaos && self.core.turns() >= SAID_TURNS && !std::mem::replace(told, true) {
            self.note(
                "ranks seem to wait for one another (sockets, pipes, files) while some of them are paged out: they come in by turns, \
                 each after seconds in which nobody did anything; with more --memory, so that they fit together, this goes fast",
            );
        }
    }
}
