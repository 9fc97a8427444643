//! Bases of stages' programs, small enough to be kept for each trajectory and stage.

use crate::highs::{BASIC, LOWER};

/// A basis of a stage's program. As many columns and rows are not basic as there are columns, so of the cuts'
/// rows, of which there may be thousands, only those few are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// Statuses of columns and of the rows before the cuts'; `kHighsBasisStatus…` fit into a byte.
    fixed: Vec<i8>,
    /// Cuts whose rows are not basic: the solution lies on them.
    tight: Vec<u32>,
}

impl Basis {
    /// What HiGHS says after a solve; `fixed` rows come before the cuts'.
    pub fn of(columns: &[i32], rows: &[i32], fixed: usize) -> Self {
        let (before, cuts) = rows.split_at(fixed);
        let tight = (0..).zip(cuts).filter(|(_, status)| **status != BASIC).map(|(cut, _)| cut);
        Self {
            fixed: columns.iter().chain(before).map(|status| *status as i8).collect(),
            tight: tight.collect(),
        }
    }

    /// For HiGHS, for a program of `columns` columns and `rows` rows. Cuts that came since are basic: what
    /// was optimal without them is where the dual simplex method begins.
    pub fn statuses(&self, columns: (usize, &mut Vec<i32>), rows: (usize, &mut Vec<i32>)) {
        let ((count, columns), (total, rows)) = (columns, rows);
        let (of_columns, before) = self.fixed.split_at(count);
        columns.clear();
        columns.extend(of_columns.iter().map(|status| i32::from(*status)));
        rows.clear();
        rows.extend(before.iter().map(|status| i32::from(*status)));
        rows.resize(total, BASIC);
        for cut in &self.tight {
            rows[before.len() + *cut as usize] = LOWER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_kept_is_what_was(
            columns in prop::collection::vec(0..5i32, 1..20),
            before in prop::collection::vec(0..5i32, 1..9),
            cuts in prop::collection::vec(prop::bool::ANY, 0..40),
            more in 0..5usize,
        ) {
            let status = |basic: &bool| if *basic { BASIC } else { LOWER };
            let rows: Vec<i32> = before.iter().copied().chain(cuts.iter().map(status)).collect();
            let basis = Basis::of(&columns, &rows, before.len());
            let (mut a, mut b) = (vec![9], vec![9; 3]);
            basis.statuses((columns.len(), &mut a), (rows.len() + more, &mut b));
            prop_assert_eq!(&a, &columns);
            prop_assert_eq!(&b[..rows.len()], &rows[..]);
            prop_assert!(b[rows.len()..].iter().all(|status| *status == BASIC));
        }
    }
}
