//! The rank carries out the master's orders itself, in the middle of its wait.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bdrun_ipc::futex::TimedFutex;
use bdrun_ipc::segment::{EvictFailure, monotonic_ns};
use bdrun_ipc::state::Pager;
use sbmalloc::pager::{self, PagerError};

use super::Runtime;
use super::place::Place;
use crate::site;

/// How long to try to stop the other threads for a restore, before the rank runs on with its memory out.
const BUSY_PATIENCE_NS: u64 = 1_000_000_000;
/// Restores in a row that fail for so long, for another reason, before the rank's memory counts as lost.
const FAILED_AT_MOST: u32 = 60;

/// The rank's own executor of the master's orders. Allocates nothing.
pub(super) struct RankPager<'a> {
    pub runtime: &'a Runtime,
    /// How long it waits.
    pub until: &'a TimedFutex,
    pub for_memory: bool,
    /// Where it waits.
    pub place: &'a Place<'a>,
    /// It was brought back, for what comes after this wait.
    pub moved: bool,
    pub paging_ns: u64,
}

impl RankPager<'_> {
    /// Keeps no more of the budget than `bytes`; the rest is others' at once.
    fn hold_at_most(&self, bytes: u64) {
        let block = self.runtime.block();
        let mut over = 0;
        let _ = block.granted.fetch_update(SeqCst, SeqCst, |granted| {
            over = granted.saturating_sub(bytes);
            Some(granted - over)
        });
        if over > 0 {
            self.runtime.segment.header().pool.give(over);
            if self.runtime.is_recorded() {
                self.runtime.segment.steps(self.runtime.rank).gives(over);
            }
            self.runtime.gave_memory();
        }
    }
}

impl Pager for RankPager<'_> {
    fn is_whole(&self) -> bool {
        !self.runtime.out.load(SeqCst)
    }

    fn evict(&mut self) {
        let runtime = self.runtime;
        let block = runtime.block();
        let keep = block.keep.load(SeqCst);
        // What was set aside and not used is not in RAM. It is given back even if the pager refuses. Who
        // waits for more than that asked for the rest alone, and lacks all of it now.
        let given = runtime.give_reserve_back();
        if self.for_memory && given > 0 {
            let more = |asked| (asked > 0).then_some(asked + given);
            let _ = block.request.fetch_update(SeqCst, SeqCst, more);
        }
        let begin = monotonic_ns();
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        let mut progress = |in_ram| self.hold_at_most(in_ram as u64);
        // SAFETY: what a rank's program is asked for (`init`, docs/rust-rank.md): no transfer that no thread
        // waits for, and no process that shares its address space, writes to its memory while it is in a call
        // that may wait. What is told of progress goes to the segment.
        let done = unsafe { pager::evict_to(keep, self.place.site(), &mut progress) };
        self.paging_ns += monotonic_ns().saturating_sub(begin);
        runtime.out.store(pager::is_evicted() || runtime.out.load(SeqCst), SeqCst);
        block.ring.store(pager::ring(), SeqCst);
        block.need.store(runtime.needs(self.place.site()), SeqCst);
        match done {
            Ok(moved) => {
                // Even if there is nothing to move it has left: it comes back when it is asked to.
                runtime.out.store(true, SeqCst);
                self.hold_at_most(pager::in_ram() as u64);
                block.evicted.fetch_add(moved.freed_or_filled, SeqCst);
                block.written.fetch_add(moved.bytes, SeqCst);
                block.evictions.fetch_add(1, SeqCst);
            }
            Err(error) => {
                let (kind, need) = match error {
                    PagerError::NoSpace { needed, .. } => (EvictFailure::NoSpace, needed),
                    PagerError::InUse { .. } => (EvictFailure::InUse, 0),
                    _ if error.is_passing() => (EvictFailure::Refused, 0),
                    PagerError::Corrupt { .. } => runtime.lost(error),
                    _ => {
                        // Before the master sees the failure, which ends the job with the reason it knows.
                        runtime.report_scratch("its memory cannot be written to scratch", error);
                        (EvictFailure::Io, 0)
                    }
                };
                block.evict_need.store(need, SeqCst);
                block.evict_failure.store(kind as u32, SeqCst);
            }
        }
    }

    fn restore(&mut self) -> bool {
        let runtime = self.runtime;
        let block = runtime.block();
        let begin = monotonic_ns();
        let site = self.place.site();
        let enough = || block.granted.load(SeqCst) >= block.all.load(SeqCst);
        // Who was seen to use much has probed, even if it did not leave since, which would find out what it
        // needs now.
        let probes = site != pager::EVERYTHING && runtime.probes.load(SeqCst);
        let runs = loop {
            if probes && enough() {
                break true;
            }
            let granted = || block.granted.load(SeqCst);
            let mut limit = |_| usize::try_from(granted()).unwrap_or(usize::MAX);
            // SAFETY: as in `evict`: it is still in that call, or in one that began since. The limit is read
            // from the segment.
            let (moved, all) = match unsafe { pager::restore_for(site, &mut limit) } {
                Ok(done) => done,
                // There is nothing that threads would have to stand for.
                Err(error) if error.is_passing() && !pager::is_evicted() => break enough(),
                // Passes, as a rule; and what is out is legal to touch.
                Err(error) if error.is_passing() && begin + BUSY_PATIENCE_NS > monotonic_ns() => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                // With less than it was granted it does not run: it would use what is others'. Threads
                // come, at some time; where it stays blind, orders without end would bring nothing in.
                Err(error) if error.is_passing() => {
                    let is_lasting = !matches!(error, PagerError::ThreadsBusy { .. });
                    if !enough() && is_lasting && runtime.failed.fetch_add(1, SeqCst) >= FAILED_AT_MOST {
                        runtime.lost(error);
                    }
                    break enough();
                }
                Err(error) => runtime.lost(error),
            };
            runtime.failed.store(0, SeqCst);
            block.restored.fetch_add(moved.freed_or_filled, SeqCst);
            block.read.fetch_add(moved.bytes, SeqCst);
            if !enough() {
                break false;
            }
            // More may have been granted since it was last looked at.
            if all || moved.bytes == 0 {
                break true;
            }
        };
        // Nothing that is out compressed may be left when it runs, even if it was not granted all of that.
        match if runs { pager::unpack() } else { Ok(Default::default()) } {
            Ok(moved) => {
                block.restored.fetch_add(moved.freed_or_filled, SeqCst);
                block.read.fetch_add(moved.bytes, SeqCst);
            }
            Err(error) => runtime.lost(error),
        }
        self.paging_ns += monotonic_ns().saturating_sub(begin);
        if runs {
            block.prepaid.fetch_add(block.asked.swap(0, SeqCst), SeqCst);
            runtime.out.store(false, SeqCst);
            pager::begin_phase(site);
            if !matches!(site, pager::SAME_PHASE | pager::EVERYTHING) {
                runtime.phase_changes.store(site::changes(), SeqCst);
            }
            self.moved = true;
        }
        runs
    }

    fn blocked(&mut self) {
        if self.for_memory || self.runtime.segment.header().pool.wanted() {
            self.runtime.segment.ring(self.runtime.rank);
        }
    }

    fn changed(&mut self) {
        self.runtime.segment.ring(self.runtime.rank);
    }

    fn is_over(&mut self) -> bool {
        self.until.is_over()
    }
}
