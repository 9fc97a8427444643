//! The budget as one number in shared memory: bytes that nobody holds. Whoever brings memory into RAM takes from it
//! first, so the sum in RAM never exceeds the budget, but for what the master grants knowingly (`force`).

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// Counters of a job's memory; all in bytes. Lies in the segment's header.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Pool {
    budget: AtomicI64,
    free: AtomicI64,
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

impl Pool {
    /// Set the budget; once, by the master, before any rank starts.
    pub fn open(&self, budget: u64, mail_limit: u64) {
        let budget = i64::try_from(budget).unwrap_or(i64::MAX / 2);
        self.budget.store(budget, SeqCst);
        self.free.store(budget, SeqCst);
        self.lowest_free.store(budget, SeqCst);
        self.set_mail_limit(mail_limit);
    }

    /// Most bytes of messages that may lie in RAM.
    pub fn set_mail_limit(&self, bytes: u64) {
        self.mail_limit.store(i64::try_from(bytes).unwrap_or(i64::MAX / 2), SeqCst);
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
        let bytes = bytes as i64;
        let taken = self.free.fetch_update(SeqCst, SeqCst, |free| (free >= bytes).then(|| free - bytes));
        match taken {
            Ok(before) => {
                self.lowest_free.fetch_min(before - bytes, SeqCst);
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
            got = free.clamp(0, bytes as i64);
            Some(free - got)
        });
        self.lowest_free.fetch_min(self.free.load(SeqCst), SeqCst);
        got as u64
    }

    /// Take `bytes` even if they are not free: by the master for a rank that runs alone.
    pub fn force(&self, bytes: u64) {
        let before = self.free.fetch_sub(bytes as i64, SeqCst);
        self.lowest_free.fetch_min(before - bytes as i64, SeqCst);
    }

    /// Give back. The caller rings the master if [`wanted`](Self::wanted).
    pub fn give(&self, bytes: u64) {
        self.free.fetch_add(bytes as i64, SeqCst);
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
        let size = bytes as i64;
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
        self.mail.fetch_sub(bytes as i64, SeqCst);
        self.give(bytes);
    }

    /// Message headers came to take this many bytes of RAM more, for good. `false`: they are not free; whoever caused it
    /// finds them as for memory of its own and then calls [`headers_paid`](Self::headers_paid).
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
        self.mail.fetch_add(bytes as i64, SeqCst);
    }

    /// Bytes of messages in RAM.
    pub fn mail(&self) -> u64 {
        self.mail.load(SeqCst).max(0) as u64
    }

    /// More is held by ranks or messages, in RAM or out.
    pub fn demand_add(&self, bytes: u64) {
        let now = self.demand.fetch_add(bytes as i64, SeqCst) + bytes as i64;
        self.demand_highest.fetch_max(now, SeqCst);
    }

    /// Less is held.
    pub fn demand_sub(&self, bytes: u64) {
        self.demand.fetch_sub(bytes as i64, SeqCst);
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
