//! The budget as one number in shared memory: bytes that nobody holds. Whoever brings memory into RAM takes
//! from it first, so the sum in RAM never exceeds the budget, but for what the master grants knowingly
//! (`force`).

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// Counters of a job's memory; all in bytes. Lies in the segment's header.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Pool {
    budget: AtomicI64,
    free: AtomicI64,
    /// Of what is not free, bytes that nobody uses: room for what grows without asking.
    margin: AtomicI64,
    lowest_free: AtomicI64,
    mail: AtomicI64,
    mail_limit: AtomicI64,
    demand: AtomicI64,
    demand_highest: AtomicI64,
    message_total: AtomicU64,
    spilled_total: AtomicU64,
    /// Non-zero while the master looks for memory: then whoever blocks or gives memory back rings.
    pub wants: AtomicU32,
}

/// Most bytes that one number about memory can mean (64 TiB): what is more was not written by the runtime,
/// and sums of as many as there may be ranks stay far from where they would wrap.
pub const MOST_BYTES: u64 = 1 << 46;

/// A number of bytes that another process wrote: any value is possible, and none may stop whoever reads it,
/// the master above all.
pub fn bytes_in(word: &AtomicU64) -> u64 {
    word.load(SeqCst).min(MOST_BYTES)
}

/// What is more than there can be is as much as there can be, not less than nothing.
fn signed(bytes: u64) -> i64 {
    bytes.min(MOST_BYTES) as i64
}

impl Pool {
    /// Set the budget; once, by the master, before any rank starts.
    pub fn open(&self, budget: u64, mail_limit: u64) {
        let budget = signed(budget);
        self.budget.store(budget, SeqCst);
        self.free.store(budget, SeqCst);
        self.lowest_free.store(budget, SeqCst);
        self.set_mail_limit(mail_limit);
    }

    /// By the master, while ranks run: another budget. What is held beyond it nobody need give back at once;
    /// nothing is given out before it was.
    pub fn resize(&self, budget: u64) {
        let more = signed(budget) - self.budget.load(SeqCst);
        // The highest sum is what was least free: it stays what it was.
        self.lowest_free.fetch_add(more, SeqCst);
        self.free.fetch_add(more, SeqCst);
        self.budget.store(signed(budget), SeqCst);
    }

    /// Most bytes of messages that may lie in RAM.
    pub fn set_mail_limit(&self, bytes: u64) {
        self.mail_limit.store(signed(bytes), SeqCst);
    }

    /// Bytes of the budget nobody holds; negative while a rank is in overdraft.
    pub fn free(&self) -> i64 {
        self.free.load(SeqCst)
    }

    /// The job's budget.
    pub fn budget(&self) -> u64 {
        self.budget.load(SeqCst).max(0) as u64
    }

    /// Take `bytes` if they are free.
    #[must_use]
    pub fn take(&self, bytes: u64) -> bool {
        let bytes = signed(bytes);
        let taken = self.free.fetch_update(SeqCst, SeqCst, |free| (free >= bytes).then(|| free - bytes));
        match taken {
            Ok(before) => {
                self.note(before - bytes);
                true
            }
            Err(_) => false,
        }
    }

    /// Take as many of `bytes` as are free; how many that were.
    #[must_use]
    pub fn take_up_to(&self, bytes: u64) -> u64 {
        let mut got = 0;
        let _ = self.free.fetch_update(SeqCst, SeqCst, |free| {
            got = free.clamp(0, signed(bytes));
            Some(free - got)
        });
        self.note(self.free.load(SeqCst));
        got as u64
    }

    /// Take `bytes` even if they are not free: by the master for a rank that runs alone.
    pub fn force(&self, bytes: u64) {
        let before = self.free.fetch_sub(signed(bytes), SeqCst);
        self.note(before - signed(bytes));
    }

    fn note(&self, free: i64) {
        self.lowest_free.fetch_min(free.saturating_add(self.margin.load(SeqCst)), SeqCst);
    }

    /// By the master: keep so many bytes from those that ask, whether or not they are free.
    pub fn set_margin(&self, bytes: u64) {
        let (now, before) = (signed(bytes), self.margin.load(SeqCst));
        // What is read between the two seems to be used by nobody: a highest sum that is too low for a
        // moment, none that never was.
        if now > before {
            self.margin.store(now, SeqCst);
            self.free.fetch_sub(now - before, SeqCst);
        } else {
            self.free.fetch_add(before - now, SeqCst);
            self.margin.store(now, SeqCst);
        }
    }

    /// Give back. The caller rings the master if [`wanted`](Self::wanted).
    pub fn give(&self, bytes: u64) {
        self.free.fetch_add(signed(bytes), SeqCst);
    }

    /// Need `kept` bytes that nobody uses not be given back? They are few, and most of the budget is free.
    pub(crate) fn may_keep(&self, kept: u64) -> bool {
        let budget = self.budget();
        kept <= budget / 16 && self.is_ample() && !self.wanted()
    }

    /// Is most of the budget free?
    pub fn is_ample(&self) -> bool {
        self.free() > (self.budget() / 2) as i64
    }

    /// Is the master looking for memory?
    pub fn wanted(&self) -> bool {
        self.wants.load(SeqCst) != 0
    }

    /// Take room for a message in RAM: within the messages' own limit and the free budget.
    #[must_use]
    pub fn take_mail(&self, bytes: u64) -> bool {
        let size = signed(bytes);
        let limit = self.mail_limit.load(SeqCst);
        let within =
            self.mail.fetch_update(SeqCst, SeqCst, |mail| (mail + size <= limit).then(|| mail + size));
        if within.is_err() {
            return false;
        }
        if self.take(bytes) {
            return true;
        }
        self.mail.fetch_sub(size, SeqCst);
        false
    }

    /// A message left RAM.
    pub fn give_mail(&self, bytes: u64) {
        self.mail.fetch_sub(signed(bytes), SeqCst);
        self.give(bytes);
    }

    /// Message headers came to take this many bytes of RAM more, for good. `false`: they are not free;
    /// whoever caused it finds them as for memory of its own and then calls
    /// [`headers_paid`](Self::headers_paid).
    #[must_use]
    pub fn grow_headers(&self, bytes: u64) -> bool {
        self.demand_add(bytes);
        let free = self.take(bytes);
        if free {
            self.headers_paid(bytes);
        }
        free
    }

    /// Bytes that a rank has taken are the message headers' from now on.
    pub fn headers_paid(&self, bytes: u64) {
        self.mail.fetch_add(signed(bytes), SeqCst);
    }

    /// Bytes of messages in RAM.
    pub fn mail(&self) -> u64 {
        self.mail.load(SeqCst).max(0) as u64
    }

    /// More is held by ranks or messages, in RAM or out.
    pub fn demand_add(&self, bytes: u64) {
        let now = self.demand.fetch_add(signed(bytes), SeqCst) + signed(bytes);
        self.demand_highest.fetch_max(now, SeqCst);
    }

    /// Less is held.
    pub fn demand_sub(&self, bytes: u64) {
        self.demand.fetch_sub(signed(bytes), SeqCst);
    }

    /// A message of this many bytes was sent; on scratch if `spilled`.
    pub fn count_message(&self, bytes: u64, spilled: bool) {
        self.message_total.fetch_add(bytes, SeqCst);
        if spilled {
            self.spilled_total.fetch_add(bytes, SeqCst);
        }
    }

    /// Highest sum of what ranks and messages held at one moment.
    pub fn demand_highest(&self) -> u64 {
        self.demand_highest.load(SeqCst).max(0) as u64
    }

    /// Highest sum in RAM at one moment.
    pub fn resident_highest(&self) -> u64 {
        (self.budget.load(SeqCst) - self.lowest_free.load(SeqCst)).max(0) as u64
    }

    /// Bytes sent, and of them on scratch.
    pub fn messages(&self) -> (u64, u64) {
        (self.message_total.load(SeqCst), self.spilled_total.load(SeqCst))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_budget_changes_while_memory_is_held() {
        // SAFETY: atomics, for which zeros are valid.
        let pool: Pool = unsafe { std::mem::zeroed() };
        pool.open(1000, 100);
        assert!(pool.take(600));
        pool.resize(500);
        assert_eq!((pool.budget(), pool.free(), pool.resident_highest()), (500, -100, 600));
        assert!(!pool.take(1) && pool.take_up_to(10) == 0);
        pool.give(300);
        assert!(pool.take(200) && !pool.take(1));
        pool.resize(2000);
        assert_eq!((pool.free(), pool.resident_highest()), (1500, 600));
        assert!(pool.take(1500));
        assert_eq!(pool.resident_highest(), 2000);
    }

    /// A rank's block is the rank's to write: whatever it says, the master reads on.
    #[test]
    fn amounts_that_cannot_be_do_no_harm() {
        // SAFETY: atomics, for which zeros are valid.
        let pool: Pool = unsafe { std::mem::zeroed() };
        pool.open(1 << 30, 1 << 20);
        for bytes in [1 << 63, u64::MAX, (1 << 63) - 1, MOST_BYTES + 1] {
            assert!(!pool.take(bytes) && !pool.take_mail(bytes));
            assert_eq!(pool.free(), 1 << 30, "nothing was made of {bytes}");
            assert_eq!(pool.take_up_to(bytes), 1 << 30);
            pool.give(1 << 30);
            pool.force(bytes);
            assert!(pool.free() < 0);
            pool.give(bytes);
            assert_eq!(pool.free(), 1 << 30);
            assert_eq!(bytes_in(&AtomicU64::new(bytes)), MOST_BYTES);
        }
        // Of as many as a job may have, the sum is still one.
        assert!(
            u64::from(crate::segment::MAX_RANKS).checked_mul(MOST_BYTES).is_some_and(|sum| sum < 1 << 63)
        );
    }
}
