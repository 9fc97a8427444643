//! Groups of processes (MPI-5.0, section 7.3).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// A process of the job: its number in the first world, or behind that if it came later.
pub type Process = u32;

/// How two groups are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alike {
    /// The same processes in the same order (`MPI_IDENT`).
    Identical,
    /// The same processes in another order (`MPI_SIMILAR`).
    Similar,
    /// Neither (`MPI_UNEQUAL`).
    Unequal,
}

/// Why a group cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// `MPI_ERR_RANK`: no rank of the group, or one that is named twice.
    #[error("rank {0} is not in the group, or named twice")]
    Rank(i64),
    /// `MPI_ERR_ARG`: a range that goes nowhere.
    #[error("a range has stride 0, or does not lead from its first rank to its last")]
    Range,
}

/// Processes in an order; their ranks are their places in it.
#[derive(Debug, Clone)]
pub struct Group {
    members: Arc<[Process]>,
    /// Where each is: made when it is asked for first, and where it is not simply the order of their numbers.
    places: Arc<OnceLock<HashMap<Process, usize>>>,
    /// The session that it comes from, if it comes from one: so does what is made of it.
    session: Option<u64>,
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.members == other.members
    }
}

impl Eq for Group {}

impl FromIterator<Process> for Group {
    /// Of processes that differ.
    fn from_iter<I: IntoIterator<Item = Process>>(members: I) -> Self {
        Self { members: members.into_iter().collect(), places: Arc::default(), session: None }
    }
}

impl Group {
    /// Its processes, by rank.
    #[must_use]
    pub fn members(&self) -> &[Process] {
        &self.members
    }

    /// The same, which comes from a session.
    #[must_use]
    pub fn of_session(self, session: Option<u64>) -> Self {
        Self { session, ..self }
    }

    /// The session that it comes from.
    #[must_use]
    pub const fn session(&self) -> Option<u64> {
        self.session
    }

    /// Those of its processes, or others, of the same session.
    fn with(&self, members: impl IntoIterator<Item = Process>) -> Self {
        members.into_iter().collect::<Self>().of_session(self.session)
    }

    /// How many there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The rank of a process, if it is in the group.
    #[must_use]
    pub fn rank_of(&self, process: Process) -> Option<usize> {
        // Most groups are the first so many processes.
        if self.members.get(process as usize) == Some(&process) {
            return Some(process as usize);
        }
        let places = self.places.get_or_init(|| self.members.iter().copied().zip(0..).collect());
        places.get(&process).copied()
    }

    /// `MPI_Group_compare`.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Alike {
        if self == other {
            Alike::Identical
        } else if self.size() == other.size() && self.members.iter().all(|&p| other.rank_of(p).is_some()) {
            Alike::Similar
        } else {
            Alike::Unequal
        }
    }

    /// `MPI_Group_union`: all of this one, then those of the other that are not in it.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let more = other.members.iter().filter(|&&process| self.rank_of(process).is_none());
        let session = self.session.or(other.session);
        self.members.iter().chain(more).copied().collect::<Self>().of_session(session)
    }

    /// `MPI_Group_intersection`: those of this one that are in the other.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.with(self.members.iter().copied().filter(|&process| other.rank_of(process).is_some()))
    }

    /// `MPI_Group_difference`: those of this one that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.with(self.members.iter().copied().filter(|&process| other.rank_of(process).is_none()))
    }

    /// `MPI_Group_incl`: those with these ranks, in this order.
    ///
    /// # Errors
    /// A rank is not there, or named twice.
    pub fn including(&self, ranks: &[i64]) -> Result<Self, GroupError> {
        self.checked(ranks)?;
        Ok(self.with(ranks.iter().map(|&rank| self.members[rank as usize])))
    }

    /// `MPI_Group_excl`: all but those with these ranks.
    ///
    /// # Errors
    /// A rank is not there, or named twice.
    pub fn excluding(&self, ranks: &[i64]) -> Result<Self, GroupError> {
        let without = self.checked(ranks)?;
        let rest = (0..).zip(self.members.iter()).filter(|(rank, _)| !without.contains(rank));
        Ok(self.with(rest.map(|(_, &process)| process)))
    }

    /// `MPI_Group_range_incl`: ranges of a first rank, a last one and a stride.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn including_ranges(&self, ranges: &[(i64, i64, i64)]) -> Result<Self, GroupError> {
        self.including(&self.of_ranges(ranges)?)
    }

    /// `MPI_Group_range_excl`.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn excluding_ranges(&self, ranges: &[(i64, i64, i64)]) -> Result<Self, GroupError> {
        self.excluding(&self.of_ranges(ranges)?)
    }

    fn checked(&self, ranks: &[i64]) -> Result<HashSet<i64>, GroupError> {
        let mut seen = HashSet::new();
        for &rank in ranks {
            let is_there = usize::try_from(rank).is_ok_and(|rank| rank < self.size());
            if !is_there || !seen.insert(rank) {
                return Err(GroupError::Rank(rank));
            }
        }
        Ok(seen)
    }

    fn of_ranges(&self, ranges: &[(i64, i64, i64)]) -> Result<Vec<i64>, GroupError> {
        let mut ranks = vec![];
        for &(first, last, stride) in ranges {
            if stride == 0 || (last - first).signum() * stride.signum() < 0 {
                return Err(GroupError::Range);
            }
            for nth in 0..=(last - first) / stride {
                let rank = first + nth * stride;
                if !(0..self.size() as i64).contains(&rank) {
                    return Err(GroupError::Rank(rank));
                }
                ranks.push(rank);
            }
        }
        Ok(ranks)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn groups() -> impl Strategy<Value = Vec<Process>> {
        proptest::collection::hash_set(0_u32..12, 0..12)
            .prop_flat_map(|set| Just(set.into_iter().collect::<Vec<_>>()).prop_shuffle())
    }

    fn group(members: &[Process]) -> Group {
        members.iter().copied().collect()
    }

    proptest! {
        #[test]
        fn sets_are_made_in_the_standards_order(a in groups(), b in groups()) {
            let (first, second) = (group(&a), group(&b));
            let within = |list: &[Process], process: Process| list.contains(&process);
            let mut union = a.clone();
            union.extend(b.iter().filter(|&&process| !within(&a, process)));
            prop_assert_eq!(first.union(&second), group(&union));
            let both: Vec<Process> = a.iter().copied().filter(|&process| within(&b, process)).collect();
            prop_assert_eq!(first.intersection(&second), group(&both));
            let rest: Vec<Process> = a.iter().copied().filter(|&process| !within(&b, process)).collect();
            prop_assert_eq!(first.difference(&second), group(&rest));
            for process in 0..12 {
                prop_assert_eq!(first.rank_of(process), a.iter().position(|&other| other == process));
            }
            let same = a.len() == b.len() && a.iter().all(|&process| within(&b, process));
            let alike = if a == b { Alike::Identical } else if same { Alike::Similar } else { Alike::Unequal };
            prop_assert_eq!(first.compare(&second), alike);
        }

        #[test]
        fn ranges_are_the_ranks_they_name(a in groups(), first in -1_i64..12, last in -1_i64..12, stride in -3_i64..4) {
            let all = group(&a);
            let mut ranks = vec![];
            let mut rank = first;
            while stride != 0 && ((stride > 0 && rank <= last) || (stride < 0 && rank >= last)) {
                ranks.push(rank);
                rank += stride;
            }
            let legal = !ranks.is_empty() && ranks.iter().all(|&rank| rank >= 0 && (rank as usize) < a.len());
            prop_assert_eq!(all.including_ranges(&[(first, last, stride)]).is_ok(), legal);
            if legal {
                prop_assert_eq!(all.including_ranges(&[(first, last, stride)]), all.including(&ranks));
                prop_assert_eq!(all.excluding_ranges(&[(first, last, stride)]), all.excluding(&ranks));
                let kept = all.excluding(&ranks).expect("legal");
                prop_assert_eq!(kept, all.difference(&all.including(&ranks).expect("legal")));
            }
        }
    }

    #[test]
    fn what_is_made_of_a_group_comes_from_its_session() {
        let (one, other) = (group(&[3, 1, 2]).of_session(Some(7)), group(&[]));
        let made = [
            one.union(&other),
            other.union(&one),
            one.intersection(&one),
            one.difference(&other),
            one.including(&[1]).expect("legal"),
            one.excluding(&[1]).expect("legal"),
            one.including_ranges(&[(0, 2, 2)]).expect("legal"),
            one.excluding_ranges(&[(0, 2, 2)]).expect("legal"),
        ];
        assert!(made.iter().all(|group| group.session() == Some(7)), "{made:?}");
        assert_eq!((other.session(), one.compare(&group(&[3, 1, 2]))), (None, Alike::Identical));
    }

    #[test]
    fn what_is_not_there_or_there_twice_is_refused() {
        let all = group(&[3, 1, 2]);
        assert_eq!(all.including(&[0, 0]), Err(GroupError::Rank(0)));
        assert_eq!(all.excluding(&[3]), Err(GroupError::Rank(3)));
        assert_eq!(all.including(&[-1]), Err(GroupError::Rank(-1)));
        assert_eq!(all.including_ranges(&[(0, 2, 0)]), Err(GroupError::Range));
        assert_eq!(all.including_ranges(&[(0, 2, -1)]), Err(GroupError::Range));
        assert_eq!(all.including_ranges(&[(2, 0, -1)]), Ok(group(&[2, 1, 3])));
    }
}
