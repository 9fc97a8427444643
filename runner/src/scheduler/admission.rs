//! Who may come in: what is set aside for a rank, and whether it fits.

use super::Limits;
use super::signed;

/// Bytes set aside for a rank never seen: never more than there can be, so that the first rank always starts. Nothing
/// is lost by setting aside too little: a rank that needs more asks for it.
pub(super) fn first_reserve(limits: &Limits) -> u64 {
    limits.first_reserve.min(limits.budget)
}

/// Whether `bytes` can be given out of what is free.
pub(super) fn fits(bytes: u64, free: i64) -> bool {
    signed(bytes) <= free
}

/// Whether another rank may become resident.
pub(super) fn has_place(limits: &Limits, resident: u32) -> bool {
    resident < limits.resident
}

/// How much of the `lacks` bytes to give a rank for which not all are free: enough to be worth moving, or nothing.
pub(super) fn part(limits: &Limits, lacks: u64, free: i64) -> u64 {
    let free = u64::try_from(free).unwrap_or(0);
    let part = free - free % limits.part.max(1);
    part.min(lacks)
}

/// What a rank that holds `granted` bytes keeps when `lack` of them are needed: a small rest is not worth keeping.
pub(super) fn keep(limits: &Limits, granted: u64, lack: i64) -> u64 {
    let rest = granted.saturating_sub(u64::try_from(lack).unwrap_or(0));
    if rest < limits.part || rest < granted / 8 { 0 } else { rest }
}
