//! Where a datatype begins and ends (MPI-5.0, section 5.1.6 to 5.1.8).

use super::basic::Basic;
use super::{Copies, TypeError};

/// Bounds, in bytes from the address of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The first byte, and the one behind the last; both 0 where there is none.
    pub first: i64,
    pub end: i64,
    /// Where what it is made of begins and ends, with what is behind each for alignment: the extents of those
    /// that it was made of count, not only their bytes, as in MPICH and Open MPI.
    pub from: i64,
    pub to: i64,
    /// The bounds that were set (`MPI_Type_create_resized`); they go on to what is made of it.
    pub set: Option<(i64, i64)>,
    /// What the address of the most demanding element is a multiple of.
    pub align: i64,
}

impl Bounds {
    const EMPTY: Self = Self { first: 0, end: 0, from: 0, to: 0, set: None, align: 1 };

    pub fn of_basic(basic: Basic) -> Self {
        let (first, second) = basic.elements();
        let end = second.map_or(first.size(), |second| basic.second_at() + second.size());
        Self { end: end as i64, to: end as i64, align: basic.align() as i64, ..Self::EMPTY }
    }

    pub fn lower(&self) -> i64 {
        self.set.map_or(self.from, |(lower, _)| lower)
    }

    /// Without one that was set, as much behind the end as makes the extent a multiple of the alignment.
    pub fn upper(&self) -> i64 {
        let padding = -(self.to - self.from).rem_euclid(self.align) + self.align;
        self.set.map_or(self.to + padding % self.align, |(_, upper)| upper)
    }

    /// Of copies of others.
    pub fn of_copies(list: &[Copies]) -> Result<Self, TypeError> {
        let mut all = Self::EMPTY;
        let mut is_first = true;
        for copies in list.iter().filter(|copies| copies.count > 0) {
            let last = (copies.count - 1).checked_mul(copies.stride).ok_or(TypeError::TooLarge)?;
            let one = &copies.of.bounds;
            // The least and the greatest displacement of a copy.
            let (least, most) = (copies.at.checked_add(last.min(0)), copies.at.checked_add(last.max(0)));
            let (least, most) = (least.ok_or(TypeError::TooLarge)?, most.ok_or(TypeError::TooLarge)?);
            let add = |at: i64, bound: i64| at.checked_add(bound).ok_or(TypeError::TooLarge);
            if copies.of.elements > 0 {
                let (first, end) = (add(least, one.first)?, add(most, one.end)?);
                let (from, to) = (add(least, one.lower())?, add(most, one.upper())?);
                if is_first {
                    (all.first, all.end, all.from, all.to) = (first, end, from, to);
                } else {
                    (all.first, all.end) = (all.first.min(first), all.end.max(end));
                    (all.from, all.to) = (all.from.min(from), all.to.max(to));
                }
                is_first = false;
                all.align = all.align.max(one.align);
            }
            if let Some((lower, upper)) = one.set {
                let (lower, upper) = (add(least, lower)?, add(most, upper)?);
                all.set = Some(match all.set {
                    Some((least, most)) => (lower.min(least), upper.max(most)),
                    None => (lower, upper),
                });
            }
        }
        // What is behind the last byte for alignment must be an address, too.
        all.to.checked_add(all.align).and_then(|to| to.checked_sub(all.from)).ok_or(TypeError::TooLarge)?;
        Ok(all)
    }
}
