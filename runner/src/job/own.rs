//! Orders carried out by a rank's own runtime: by its state word, and what it is given of the pool.

use std::sync::atomic::Ordering::SeqCst;

use bdrun_ipc::futex::SharedFutex;
use bdrun_ipc::pool::bytes_in;
use bdrun_ipc::state::Woken;

use super::Job;
use super::observe::Pending;
use super::orders::{Executor, Restore};
use crate::residency::{Event, Outcome};

/// Carries out orders by the state word of a rank, which moves its memory itself.
pub(super) struct Own;

impl Executor for Own {
    fn evict(&self, job: &mut Job<'_>, rank: u32, keep: u64) {
        let segment = job.setup.segment.clone();
        let block = segment.rank(rank);
        block.evict_failure.store(0, SeqCst);
        block.keep.store(keep, SeqCst);
        job.forget(rank);
        if block.word.try_evict(&SharedFutex) {
            let seen = &mut job.ranks[rank as usize].seen;
            // Read after it was taken: it may have run and blocked again just before.
            seen.waits = block.waits.load(SeqCst);
            seen.pending = Some(Pending::Evict);
        } else {
            job.events.push(Event::Done { rank, outcome: Outcome::Lost });
            job.observe(rank);
        }
    }

    /// Brings a rank in, or gives one on its way more to go on with.
    fn restore(&self, job: &mut Job<'_>, rank: u32, Restore { bytes, all, overdraft }: Restore) {
        let pool = &job.setup.segment.header().pool;
        let mut got = pool.take_up_to(bytes);
        if overdraft && got < bytes && job.force(rank, bytes - got) {
            got = bytes;
        }
        if got < bytes {
            job.events.push(Event::Denied { rank, bytes: bytes - got });
        }
        let segment = job.setup.segment.clone();
        let block = segment.rank(rank);
        block.all.store(all, SeqCst);
        block.granted.fetch_add(got, SeqCst);
        let seen = &mut job.ranks[rank as usize].seen;
        seen.orders = seen.orders.wrapping_add(1);
        if seen.pending == Some(Pending::Restore) {
            // It looks at `granted` again and again; if it has just looked for the last time it says so, and
            // is asked anew.
            return;
        }
        job.restore_itself(rank);
    }

    /// It tells when it waits, and is never held.
    fn hold(&self, job: &mut Job<'_>, rank: u32) {
        job.done(rank, Outcome::NotHeld);
    }

    fn resume(&self, job: &mut Job<'_>, rank: u32) {
        job.done(rank, Outcome::Resumed);
    }

    /// It leaves in parts when it waits, not while it runs.
    fn shrink(&self, job: &mut Job<'_>, rank: u32, _: u64) {
        job.done(rank, Outcome::Refused { lasting: true });
    }
}

impl Job<'_> {
    /// A rank that is out is told to come back with what it was given.
    pub(super) fn restore_itself(&mut self, rank: u32) {
        let segment = self.setup.segment.clone();
        let block = segment.rank(rank);
        self.forget(rank);
        let seen = &mut self.ranks[rank as usize].seen;
        seen.waits = block.waits.load(SeqCst);
        seen.pending = Some(Pending::Restore);
        let asked = block.request.swap(0, SeqCst);
        if asked > 0 {
            block.asked.store(asked, SeqCst);
            // What it waits for is there: marks it runnable, so that it runs once it is in RAM.
            block.word.wake(&SharedFutex);
        }
        block.word.try_restore(&SharedFutex);
    }

    /// Take bytes for a rank out of the pool; if they are gone the core is told.
    pub(super) fn pay(&mut self, rank: u32, bytes: u64, overdraft: bool) -> bool {
        let pool = &self.setup.segment.header().pool;
        let paid = pool.take(bytes) || (overdraft && self.force(rank, bytes));
        if !paid {
            self.events.push(Event::Denied { rank, bytes });
        }
        paid
    }

    /// Take more than there is, if the others really hold no more than the core knows of: one who was woken a
    /// moment ago may.
    pub(super) fn force(&mut self, rank: u32, bytes: u64) -> bool {
        let segment = self.setup.segment.clone();
        let others = self.ranks.iter().map(|(other, _)| other).filter(|&other| other != rank);
        // But for what is out of a rank that was taken out as it was.
        let lent = |other| self.watch.accounts.lent_by(other);
        let held = others.map(|other| bytes_in(&segment.rank(other).granted).saturating_sub(lent(other)));
        let held = held.fold(0, u64::saturating_add);
        if held > self.core.asked_beside(rank) {
            self.observe_all();
            return false;
        }
        segment.header().pool.force(bytes);
        self.say_overdraft(rank);
        true
    }

    pub(super) fn grant(&mut self, rank: u32, bytes: u64, overdraft: bool) {
        if !self.pay(rank, bytes, overdraft) {
            return;
        }
        let segment = self.setup.segment.clone();
        let block = segment.rank(rank);
        block.granted.fetch_add(bytes, SeqCst);
        block.prepaid.fetch_add(bytes, SeqCst);
        block.request.store(0, SeqCst);
        self.forget(rank);
        // Before what it does then, which one that waits in calls of the system does not tell.
        self.events.push(Event::Running { rank });
        if block.word.wake(&SharedFutex) == Woken::NeedsMaster {
            self.observe(rank);
        }
    }
}
