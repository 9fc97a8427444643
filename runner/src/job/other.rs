//! Orders carried out by a thread that holds the rank: for programs that know nothing of bdrun.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::exit::Ending;
use crate::holder::{Holder, Order, Report};
use crate::residency::{Event, Memory, Outcome};
use sbmalloc::other::{OwnPager, Refusal};

use super::Job;
use super::listen::Message;
use super::orders::{Executor, Restore};
use super::record::{Ordered, What, While};

/// Carries out orders by a thread that holds the rank (`crate::holder`).
pub(super) struct Other;

impl Executor for Other {
    /// It leaves as a whole.
    fn evict(&self, job: &mut Job<'_>, rank: u32, keep: u64) {
        let record = &mut job.ranks[rank as usize];
        let stands = record.order.is_some_and(|order| order.what == What::Hold);
        if stands && matches!(record.evicted_while, Some(While::Waits { .. })) {
            return job.let_leave(rank, keep);
        }
        if record.evicted_while.is_some() || record.holder.as_ref().is_some_and(|holder| !holder.moves()) {
            // It is out but for what stays, or is held because it could not be traced. As long as it stands
            // nothing changes that.
            return job.done(rank, Outcome::Refused { lasting: false });
        }
        // It grows until it stands: so long it is looked at.
        record.order = Some(Ordered::new(What::Evict));
        match &record.holder {
            Some(holder) => holder.order(Order::Evict),
            None => job.start_holder(rank, Some(Order::Evict)),
        }
    }

    fn restore(&self, job: &mut Job<'_>, rank: u32, order: Restore) {
        if job.ranks[rank as usize].evicted_while.is_some() {
            return job.restore_all(rank, order);
        }
        let Restore { bytes, overdraft, .. } = order;
        let accounts = &job.watch.accounts;
        let free = job.setup.segment.header().pool.free().saturating_add_unsigned(job.kept_free);
        // Of those that ask somebody may have taken it; nobody else does.
        if accounts.is_shared() && !overdraft && free < bytes.try_into().unwrap_or(i64::MAX) {
            return job.events.push(Event::Denied { rank, bytes });
        }
        let all = accounts.held_by(rank) + accounts.out_of(rank).0;
        job.charge(rank, all, 0);
        let seen = &mut job.ranks[rank as usize].seen;
        seen.orders = seen.orders.wrapping_add(1);
        self.resume(job, rank);
    }

    fn hold(&self, job: &mut Job<'_>, rank: u32) {
        let traces = job.watch.permits.ptrace.is_ok();
        let record = &mut job.ranks[rank as usize];
        if record.holder.is_none() && (record.fixed || !traces) {
            return job.freeze(rank);
        }
        record.order = Some(Ordered::new(What::Hold));
        match &record.holder {
            Some(holder) => holder.order(Order::Hold),
            None => job.start_holder(rank, None),
        }
    }

    fn resume(&self, job: &mut Job<'_>, rank: u32) {
        let record = &mut job.ranks[rank as usize];
        record.order = Some(Ordered::new(What::Resume));
        if let Some(holder) = &record.holder {
            holder.order(Order::Resume);
        }
    }

    fn shrink(&self, job: &mut Job<'_>, rank: u32, target: u64) {
        let record = &mut job.ranks[rank as usize];
        record.order = Some(Ordered::new(What::Shrink));
        let fixed = record.last.resident().saturating_sub(record.last.private);
        let order = Order::Shrink { target: target.saturating_sub(fixed) };
        match &record.holder {
            // One that only holds it lets it go, whatever the order (`Report::Resumed`).
            Some(holder) => holder.order(order),
            None => job.start_holder(rank, Some(order)),
        }
    }
}

impl Job<'_> {
    /// Ends a rank to make room: it is started again.
    pub(super) fn stop(&mut self, rank: u32) {
        self.ranks[rank as usize].stopping = true;
        self.kill(rank);
    }

    pub(super) fn start_holder(&mut self, rank: u32, first: Option<Order>) {
        // Its own pager moves nothing while it is stopped: it waits, or computes.
        let ring = self.setup.segment.rank(rank).ring.load(SeqCst);
        let own = self.watch.accounts.is_adopted(rank).then_some(OwnPager { ring });
        let record = &mut self.ranks[rank as usize];
        let Some(group) = record.group.clone() else { return };
        let (post, nth) = (self.watch.post.clone(), record.nth);
        let report = move |report| {
            // The job that does not listen any more has ended.
            let _ = post.leave(Message::Holder(rank, nth, report));
        };
        let leader = group.leader();
        let list = Box::new(move || group.processes());
        match Holder::start(rank, (leader, own), list, record.scratch.clone(), first, report) {
            Ok(holder) => record.holder = Some(holder),
            Err(error) => self.end(Ending::Setup(format!("rank {rank} cannot be paged: no thread: {error}"))),
        }
    }

    /// Stops a rank that cannot be traced.
    fn freeze(&mut self, rank: u32) {
        let record = &mut self.ranks[rank as usize];
        record.order = Some(Ordered::new(What::Freeze));
        let Some(group) = record.group.clone() else { return };
        let (post, nth) = (self.watch.post.clone(), record.nth);
        let report = move |report| _ = post.leave(Message::Holder(rank, nth, report));
        match Holder::freeze(rank, group, report) {
            Ok(holder) => record.holder = Some(holder),
            Err(error) => self.end(Ending::Setup(format!("rank {rank} cannot be held: no thread: {error}"))),
        }
    }

    /// What has become of an order.
    pub(super) fn moved(&mut self, rank: u32, nth: u32, report: Report) {
        let Some(record) = self.ranks.get_mut(rank) else { return };
        // The thread of a try that has ended may still speak when the next has begun.
        let Some(order) = record.order.filter(|_| record.nth == nth) else { return };
        if let Some(leaving) = record.evicted_while {
            return self.answered_besides(rank, leaving, report);
        }
        match report {
            Report::Held => {
                record.stand(true);
                if matches!(order.what, What::Hold | What::Freeze) {
                    self.done(rank, Outcome::Held);
                }
            }
            Report::Freed(freed) => self.freed(rank, freed),
            Report::Evicted { out, freed, written, took, full } => {
                self.note_evicted(rank, freed, written, took);
                self.watch.sampler.set_out(rank, true);
                let record = &mut self.ranks[rank as usize];
                // It may have grown after the last look at it, before it stood still.
                record.last = self.watch.sampler.remains(rank).unwrap_or(record.last);
                let (left, need) = (record.last.resident(), record.last.private);
                self.charge(rank, left, out);
                let all = Memory { asked: 0, other: left + out };
                let left = Memory { asked: 0, other: left };
                self.done(
                    rank,
                    match full {
                        None => Outcome::Evicted { left, all },
                        Some(_) => Outcome::Full { need, part: Some((left, all)) },
                    },
                );
            }
            Report::Restored { filled, took } => {
                record.holder = None;
                record.stand(false);
                self.watch.sampler.set_out(rank, false);
                self.note_restored(rank, filled, took);
                self.done(rank, Outcome::Restored);
            }
            Report::Full { held, .. } => {
                let need = record.last.private;
                if !held {
                    record.holder = None;
                    record.stand(false);
                }
                self.watch.sampler.set_out(rank, false);
                self.done(rank, Outcome::Full { need, part: None });
            }
            Report::InParts(report) => self.moved_in_parts(rank, report),
            Report::Resumed => {
                // What runs in parts is served by its mover as long as it lives.
                record.holder.take_if(|_| record.partial.is_none());
                record.stand(false);
                let shrinks = matches!(order.what, What::Shrink);
                self.done(rank, if shrinks { Outcome::Refused { lasting: false } } else { Outcome::Resumed });
            }
            Report::Refused(refusal) => self.refused(rank, order.what, &refusal),
            Report::NotFrozen(why) => {
                record.holder = None;
                record.fixed = true;
                let why = why.to_string();
                self.say_fixed(rank, &why);
                self.done(rank, Outcome::NotHeld);
            }
            // Its exit is told by the supervisor.
            Report::Gone => record.holder = None,
            Report::Broken(text) => {
                self.kill(rank);
                self.end(Ending::ScratchBroken(format!("rank {rank}: {text}")));
            }
        }
        let record = &mut self.ranks[rank as usize];
        if record.holder.is_none() {
            record.let_go();
            if !self.is_stranger(rank) {
                // It has asked from its hello on, and was on its way: what is measured of it is what was
                // charged since.
                let bytes = self.watch.accounts.held_by(rank);
                self.events.push(Event::Sample { rank, bytes, fixed: 0 });
            }
            // It may have become a native rank meanwhile, and run before this was told: what it has done
            // since was not heard.
            self.forget(rank);
            self.observe(rank);
        }
    }

    /// So many bytes have left so far.
    pub(super) fn freed(&mut self, rank: u32, bytes: u64) {
        let order = &mut self.ranks[rank as usize].order;
        if let Some(order) = order.as_mut().filter(|order| !order.freed) {
            order.freed = true;
            if matches!(order.what, What::Evict) {
                // From here on its mover tells what it holds.
                self.watch.sampler.set_out(rank, true);
            }
            self.watch.reaction = (self.watch.reaction * 3 + order.at.elapsed()) / 4;
        }
        self.events.push(Event::Freed { rank, bytes });
    }

    /// For the statistics: it has left.
    pub(super) fn note_evicted(&self, rank: u32, freed: u64, written: u64, took: Duration) {
        let block = self.setup.segment.rank(rank);
        block.evictions.fetch_add(1, SeqCst);
        block.evicted.fetch_add(freed, SeqCst);
        block.written.fetch_add(written, SeqCst);
        block.paging_ns.fetch_add(took.as_nanos() as u64, SeqCst);
    }

    /// For the statistics: it is back.
    pub(super) fn note_restored(&self, rank: u32, filled: u64, took: Duration) {
        let block = self.setup.segment.rank(rank);
        block.restored.fetch_add(filled, SeqCst);
        block.read.fetch_add(filled, SeqCst);
        block.paging_ns.fetch_add(took.as_nanos() as u64, SeqCst);
    }

    fn refused(&mut self, rank: u32, what: What, why: &Refusal) {
        let record = &mut self.ranks[rank as usize];
        record.holder.take_if(|_| record.partial.is_none());
        self.watch.sampler.set_out(rank, false);
        let lasting = why.is_lasting();
        record.fixed |= lasting;
        if !why.is_momentary() {
            self.say_fixed(rank, &why.to_string());
        }
        match what {
            What::Hold => self.freeze(rank),
            _ => self.done(rank, Outcome::Refused { lasting }),
        }
    }

    /// Said once of each rank.
    fn say_fixed(&mut self, rank: u32, why: &str) {
        let record = &mut self.ranks[rank as usize];
        if !std::mem::replace(&mut record.told_fixed, true) {
            // Processes end, and do other things.
            let now = if record.fixed { "" } else { " now" };
            self.note(&format!(
                "rank {rank} cannot be paged out{now}, and is only held when memory is short: {why}"
            ));
        }
    }

    /// The job is being ended: those that stand still cannot answer a signal, and are killed.
    pub(super) fn kill_those_held(&mut self) {
        let held = self.ranks.iter().filter(|(_, record)| {
            record.holder.is_some() && (record.partial.is_none() || record.still.is_some())
        });
        let held: Vec<u32> = held.map(|(rank, _)| rank).collect();
        held.into_iter().for_each(|rank| self.kill(rank));
    }

    /// Kills a rank, whether or not it stands still.
    pub(super) fn kill(&mut self, rank: u32) {
        self.supervisor.signal(rank, libc::SIGKILL);
        // What is frozen dies only when it is let go.
        self.ranks[rank as usize].let_go();
    }
}
