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
