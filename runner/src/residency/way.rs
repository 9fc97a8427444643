//! How an index keeps its sets and sums in step with the states of the ranks: one function says which state belongs
//! where, and is walked in two ways.

use std::collections::BTreeSet;

/// Entering or leaving.
pub(crate) trait Way {
    /// An item of a set, if it belongs there.
    fn set<T: Ord>(&mut self, set: &mut BTreeSet<T>, item: T, belongs: bool);
    /// One of a count, if it belongs there.
    fn count(&mut self, count: &mut u32, belongs: bool);
    /// A part of a sum.
    fn sum(&mut self, sum: &mut u64, bytes: u64);
}

/// A rank is entered.
pub(crate) struct Enter;

/// A rank is taken out.
pub(crate) struct Leave;

impl Way for Enter {
    fn set<T: Ord>(&mut self, set: &mut BTreeSet<T>, item: T, belongs: bool) {
        if belongs {
            set.insert(item);
        }
    }
    fn count(&mut self, count: &mut u32, belongs: bool) {
        *count += u32::from(belongs);
    }
    fn sum(&mut self, sum: &mut u64, bytes: u64) {
        // Wraps, so that leaving undoes entering exactly even for absurd numbers.
        *sum = sum.wrapping_add(bytes);
    }
}

impl Way for Leave {
    fn set<T: Ord>(&mut self, set: &mut BTreeSet<T>, item: T, belongs: bool) {
        if belongs {
            set.remove(&item);
        }
    }
    fn count(&mut self, count: &mut u32, belongs: bool) {
        *count -= u32::from(belongs);
    }
    fn sum(&mut self, sum: &mut u64, bytes: u64) {
        *sum = sum.wrapping_sub(bytes);
    }
}
