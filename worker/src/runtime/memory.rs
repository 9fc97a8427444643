//! Memory of the budget: what the rank holds is paid for out of the job's pool, and asked for at the master's
//! where that is empty.

use std::fmt::Write;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bdrun_ipc::control::FailureKind;
use bdrun_ipc::segment::{RankBlock, Waiting};

use super::text::FixedText;
use super::{Runtime, thread};

/// How long a thread other than the communicating one waits for memory before it takes what is not there.
const OTHER_THREAD_PATIENCE: Duration = Duration::from_secs(2);
/// The same where more is used than there is already, as a rank does that has all there is.
const OVERDRAWN_PATIENCE: Duration = Duration::from_millis(20);
/// The same while others may yet make room for it: for longer something is wrong with them.
const RELIEF_PATIENCE: Duration = Duration::from_secs(60);

/// Takes `bytes` out of what was set aside for a rank, and the rest out of the pool. The pool comes first:
/// what is set aside may be given back by another thread meanwhile, and is not to be put back after that.
/// Nothing of it if it is not `ours`.
pub(super) fn pay(
    block: &RankBlock,
    bytes: u64,
    ours: bool,
    take: impl Fn(u64) -> bool,
    give: impl Fn(u64),
) -> bool {
    let mut reserve = block.prepaid.load(SeqCst);
    loop {
        let from_reserve = if ours { reserve.min(bytes) } else { 0 };
        let rest = bytes - from_reserve;
        if rest > 0 && !take(rest) {
            return false;
        }
        match block.prepaid.compare_exchange(reserve, reserve - from_reserve, SeqCst, SeqCst) {
            Ok(_) => {
                block.granted.fetch_add(rest, SeqCst);
                return true;
            }
            Err(now) => reserve = now,
        }
        if rest > 0 {
            give(rest);
        }
    }
}

impl Runtime {
    /// Take `bytes` out of what was set aside, then out of the pool. What was set aside for a thread that
    /// asked for it is not another's, who comes first because it runs: that thread would lack a little again
    /// and again, and where that is not there, its rank leave, and ask for all of it once more, without an
    /// end.
    fn pay(&self, bytes: u64) -> bool {
        let asks = self.asks.load(SeqCst);
        let ours = asks == 0 || asks == thread();
        let pool = &self.segment.header().pool;
        let take = |rest| pool.take(rest) || (self.mail.give_spares_back(&self.segment) && pool.take(rest));
        let give = |taken| {
            pool.give(taken);
            self.gave_memory();
        };
        pay(self.block(), bytes, ours, take, give)
    }

    /// Takes so much off what the rank was granted, or as much as there is: another thread may have given
    /// some back meanwhile, or an evict all of it. How much that was.
    fn ungrant(&self, bytes: u64) -> u64 {
        let mut taken = 0;
        let _ = self.block().granted.fetch_update(SeqCst, SeqCst, |granted| {
            taken = bytes.min(granted);
            Some(granted - taken)
        });
        taken
    }

    /// Memory that was paid for is no longer this rank's, but another's. What was given back meanwhile is
    /// taken from the pool once more.
    pub(super) fn hand_over(&self, bytes: u64) {
        let short = bytes - self.ungrant(bytes);
        if short > 0 {
            self.segment.header().pool.force(short);
        }
    }

    /// Find memory of the budget for message headers, as if it were this rank's own, and hand it over.
    pub fn pay_for_headers(&self, bytes: u64) {
        if !self.pay(bytes) {
            self.beg(bytes);
        }
        self.hand_over(bytes);
        self.segment.header().pool.headers_paid(bytes);
    }

    /// Find memory that ranks share, as if it were this rank's own. From then on it is no rank's, and is
    /// counted until it is given back.
    pub fn set_aside(&self, bytes: u64) {
        if !self.pay(bytes) {
            self.beg(bytes);
        }
        self.hand_over(bytes);
        self.segment.header().pool.demand_add(bytes);
    }

    /// Nobody has it any more.
    pub fn give_back(&self, bytes: u64) {
        let pool = &self.segment.header().pool;
        pool.demand_sub(bytes);
        pool.give(bytes);
        self.gave_memory();
    }

    /// Ask the master for memory and wait for it.
    fn beg(&self, bytes: u64) {
        let block = self.block();
        if let Some(_turn) = self.turn() {
            self.asks.store(thread(), SeqCst);
            while !self.pay(bytes) {
                block.request.store(bytes - block.prepaid.load(SeqCst).min(bytes), SeqCst);
                self.wait(Waiting::Memory { bytes }, || block.request.load(SeqCst) == 0);
                block.request.store(0, SeqCst);
            }
            self.asks.store(0, SeqCst);
            return;
        }
        // Another thread: it has no state word, so the rank cannot wait for it as such. The master makes
        // room.
        let header = self.segment.header();
        block.lacks.fetch_add(bytes, SeqCst);
        self.segment.ring(self.rank);
        let (begin, mut hopeless) = (Instant::now(), Instant::now());
        while !self.pay(bytes) {
            if header.relief.load(SeqCst) != 0 {
                hopeless = Instant::now();
            }
            let overdrawn = header.pool.free() < 0;
            let patience = if overdrawn { OVERDRAWN_PATIENCE } else { OTHER_THREAD_PATIENCE };
            if hopeless.elapsed() > patience || begin.elapsed() > RELIEF_PATIENCE {
                block.granted.fetch_add(bytes, SeqCst);
                header.pool.force(bytes);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        block.lacks.fetch_sub(bytes, SeqCst);
        self.segment.ring(self.rank);
    }

    /// So many bytes are in RAM, or will be: what was not granted of them is asked for like memory that is
    /// allocated.
    pub(super) fn own_up(&self, in_ram: u64) {
        let over = in_ram.saturating_sub(self.block().granted.load(SeqCst));
        if over > 0 && !self.pay(over) {
            self.beg(over);
        }
    }

    /// What was set aside for this rank and not used is others' while it waits. How much that was.
    pub(crate) fn give_reserve_back(&self) -> u64 {
        let block = self.block();
        let unused = block.prepaid.swap(0, SeqCst);
        if unused > 0 {
            self.segment.header().pool.give(self.ungrant(unused));
        }
        unused
    }
}

// SAFETY: texts are of fixed size, and waiting (`wait`, `beg`) needs the segment, static memory and the
// stack.
unsafe impl sbmalloc::Account for Runtime {
    fn charge(&self, bytes: usize) -> std::result::Result<(), sbmalloc::Denied> {
        if !self.alive.is_rank() {
            return Ok(()); // a child of fork: its memory is a copy, of which the rank's account knows nothing
        }
        let (block, bytes64) = (self.block(), bytes as u64);
        let limit = self.segment.header().rank_limit.load(SeqCst);
        if limit != 0 && block.held.load(SeqCst) + bytes64 > limit {
            let mut text = FixedText::default();
            let held = block.held.load(SeqCst);
            let _ = write!(
                text,
                "memory limit exceeded: it holds {held} bytes and asked for {bytes} more; --rank-memory permits {limit}"
            );
            self.report(FailureKind::MemoryLimit, held + bytes64, text.as_str());
            return Err(sbmalloc::Denied { bytes });
        }
        if !self.pay(bytes64) {
            if self.attached.load(SeqCst) {
                self.beg(bytes64);
            } else {
                // What the process held before it attached is in RAM already.
                block.granted.fetch_add(bytes64, SeqCst);
                self.segment.header().pool.force(bytes64);
            }
        }
        let held = block.held.fetch_add(bytes64, SeqCst) + bytes64;
        block.peak.fetch_max(held, SeqCst);
        if self.is_recorded() {
            self.segment.steps(self.rank).holds(held);
        }
        self.segment.header().pool.demand_add(bytes64);
        Ok(())
    }

    fn uncharge(&self, bytes: usize) {
        if !self.alive.is_rank() {
            return; // what a child frees its parent still holds
        }
        let bytes = bytes as u64;
        let block = self.block();
        block.held.fetch_sub(bytes, SeqCst);
        // By another thread while the rank is out it may be nothing that is in RAM.
        let given = self.ungrant(bytes);
        let pool = &self.segment.header().pool;
        pool.demand_sub(bytes);
        pool.give(given);
        self.gave_memory();
    }

    fn forks(&self, in_ram: usize) {
        if !self.alive.is_rank() {
            return;
        }
        let block = self.block();
        let over = (in_ram as u64).saturating_sub(block.granted.load(SeqCst));
        if over > 0 && !self.pay(over) {
            block.granted.fetch_add(over, SeqCst);
            self.segment.header().pool.force(over);
            block.forked.fetch_add(over, SeqCst);
            self.segment.ring(self.rank);
        }
    }
}
