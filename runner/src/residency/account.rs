//! How much is used, and how much is free. There is one budget: what was asked for, messages, what is
//! measured, and the margin that is kept for its growth.

use super::{Core, signed};

/// What the shared pool said last, and what was ordered since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pool {
    asked: u64,
    pub messages: u64,
    measured: u64,
    kept: u64,
    /// Bytes that were ordered since.
    ordered: i64,
    /// Counts its words, to know whether a denied order is already in the last one.
    pub round: u64,
    /// It is known to be wrong (never told, or an order was denied): nothing is given out before the next.
    pub stale: bool,
}

impl Pool {
    pub const UNKNOWN: Self =
        Self { asked: 0, messages: 0, measured: 0, kept: 0, ordered: 0, round: 0, stale: true };

    pub const fn is_unknown(&self) -> bool {
        self.round == 0
    }

    pub fn told(&mut self, asked: u64, messages: u64, measured: u64, kept: u64) {
        *self = Self { asked, messages, measured, kept, ordered: 0, round: self.round + 1, stale: false };
    }

    /// Bytes are taken by an order.
    pub fn take(&mut self, bytes: u64) {
        self.ordered = self.ordered.saturating_add(signed(bytes));
    }

    /// An order that was based on this word of it was not carried out, for want of so many bytes.
    pub fn denied(&mut self, round: u64, bytes: u64) {
        if round == self.round {
            self.ordered = self.ordered.saturating_sub(signed(bytes));
            // Somebody took it, and how much is left is not known.
            self.stale = true;
        }
    }

    /// Bytes that were asked for and given.
    fn asked(&self) -> u64 {
        self.asked.saturating_add_signed(self.ordered)
    }
}

impl Core {
    /// Bytes of RAM used, by ranks and messages.
    pub(super) fn used(&self) -> u64 {
        self.pool.asked().saturating_add(self.pool.messages).saturating_add(self.index.other)
    }

    /// The same, those not counted that are on their way out.
    pub(super) fn committed(&self) -> u64 {
        self.used().saturating_sub(self.index.freeing)
    }

    /// Bytes that the pool was charged for what is measured, beyond what is known of it here: who comes in
    /// needs them, too.
    pub(super) fn unknown(&self) -> u64 {
        if self.together { self.pool.measured.saturating_sub(self.index.other) } else { 0 }
    }

    /// Bytes that can be given out to those that ask; negative where more is used than there is.
    pub(super) fn free(&self) -> i64 {
        let charged = self.pool.measured.saturating_add(self.pool.kept);
        let measured = charged.max(self.index.other.saturating_add(self.margin()));
        let used = self.pool.asked().saturating_add(self.pool.messages).saturating_add(measured);
        signed(self.limits.budget).saturating_sub(signed(used.saturating_add(self.lacking)))
    }

    /// The same once those on their way out have left.
    pub(super) fn coming(&self) -> i64 {
        let used = self.committed().saturating_add(self.margin()).saturating_add(self.lacking);
        signed(self.limits.budget).saturating_sub(signed(used)).max(self.free())
    }

    /// Bytes to be kept free so that nobody need be made to stand still.
    pub(super) fn margin(&self) -> u64 {
        self.pace.margin(&self.limits, self.may_grow())
    }

    /// Bytes below which those that grow are made to stand still at once.
    pub(super) fn small_margin(&self) -> u64 {
        self.pace.small_margin(&self.limits, self.may_grow())
    }

    /// Whether any rank may begin to hold more without asking: one that does not ask, or where those that do
    /// are seen to hold much besides.
    fn may_grow(&self) -> bool {
        self.index.begun_strangers > 0 || self.index.other > self.limits.budget / 64
    }

    /// Bytes of RAM for what is measured, but for what is kept free.
    pub(super) fn room(&self) -> u64 {
        let taken = (self.used() - self.index.other).saturating_add(self.index.needs_bytes);
        self.limits.budget.saturating_sub(taken.saturating_add(self.margin()))
    }
}
