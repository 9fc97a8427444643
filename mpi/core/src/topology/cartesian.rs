//! Grids of processes (section 8.5.1 to 8.5.5).

use super::TopologyError;

/// A grid. The last coordinate is the fastest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cartesian {
    /// How many processes there are in each dimension, and whether the last one is followed by the first.
    dimensions: Vec<(i64, bool)>,
}

impl Cartesian {
    /// A grid among `size` processes.
    ///
    /// # Errors
    /// A dimension has no process; or all have more than there are.
    pub fn new(dimensions: &[(i64, bool)], size: i64) -> Result<Self, TopologyError> {
        if dimensions.iter().any(|&(length, _)| length < 1) {
            return Err(TopologyError::Dimensions);
        }
        let grid = Self { dimensions: dimensions.to_vec() };
        match grid.checked_size() {
            Some(all) if all <= size => Ok(grid),
            _ => Err(TopologyError::TooFew),
        }
    }

    fn checked_size(&self) -> Option<i64> {
        self.dimensions.iter().try_fold(1_i64, |all, &(length, _)| all.checked_mul(length))
    }

    /// How many processes are in it.
    #[must_use]
    pub fn size(&self) -> i64 {
        self.dimensions.iter().map(|&(length, _)| length).product()
    }

    /// See [`Cartesian::new`].
    #[must_use]
    pub fn dimensions(&self) -> &[(i64, bool)] {
        &self.dimensions
    }

    /// The rank at these coordinates; those of a periodic dimension may be any.
    ///
    /// # Errors
    /// A coordinate is out of range.
    pub fn rank(&self, coordinates: &[i64]) -> Result<i64, TopologyError> {
        let mut rank = 0;
        for (&(length, periodic), &at) in self.dimensions.iter().zip(coordinates) {
            let at = if periodic { at.rem_euclid(length) } else { at };
            if !(0..length).contains(&at) {
                return Err(TopologyError::Argument);
            }
            rank = rank * length + at;
        }
        Ok(rank)
    }

    /// The coordinates of a rank.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn coordinates(&self, rank: i64) -> Result<Vec<i64>, TopologyError> {
        if !(0..self.size()).contains(&rank) {
            return Err(TopologyError::Rank);
        }
        let mut left = rank;
        let mut coordinates: Vec<i64> = self
            .dimensions
            .iter()
            .rev()
            .map(|&(length, _)| {
                let at = left % length;
                left /= length;
                at
            })
            .collect();
        coordinates.reverse();
        Ok(coordinates)
    }

    /// `MPI_Cart_shift`: from whom something comes that all move so far along a dimension, and to whom it
    /// goes; `None` beyond the edge.
    ///
    /// # Errors
    /// There is no such rank or dimension.
    pub fn shift(
        &self,
        rank: i64,
        dimension: usize,
        by: i64,
    ) -> Result<(Option<i64>, Option<i64>), TopologyError> {
        if dimension >= self.dimensions.len() {
            return Err(TopologyError::Dimensions);
        }
        let from = self.coordinates(rank)?;
        let at = |by: i64| {
            let mut to = from.clone();
            to[dimension] = to[dimension].checked_add(by)?;
            self.rank(&to).ok()
        };
        Ok((by.checked_neg().and_then(at), at(by)))
    }

    /// `MPI_Cart_sub`: the dimensions that remain, and of a rank which of the parts it is in and its place
    /// there.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn part(&self, rank: i64, remains: &[bool]) -> Result<(Self, i64, i64), TopologyError> {
        let coordinates = self.coordinates(rank)?;
        let (mut part, mut place) = (0, 0);
        for ((&(length, _), &at), &remains) in self.dimensions.iter().zip(&coordinates).zip(remains) {
            let of = if remains { &mut place } else { &mut part };
            *of = *of * length + at;
        }
        let kept = self.dimensions.iter().zip(remains).filter(|(_, remains)| **remains);
        Ok((Self { dimensions: kept.map(|(&dimension, _)| dimension).collect() }, part, place))
    }

    /// The neighbours of a rank, in the order of neighbourhood collectives (section 8.6): of each dimension
    /// the one before, then the one behind.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn neighbours(&self, rank: i64) -> Result<Vec<Option<i64>>, TopologyError> {
        let mut all = vec![];
        for dimension in 0..self.dimensions.len() {
            let (before, behind) = self.shift(rank, dimension, 1)?;
            all.extend([before, behind]);
        }
        Ok(all)
    }
}

/// `MPI_Dims_create`: lengths for those of the dimensions that are 0, as close to each other as can be, the
/// larger ones first, so that all together are `size`.
///
/// # Errors
/// There are no such lengths.
pub fn balanced(size: i64, dimensions: &mut [i64]) -> Result<(), TopologyError> {
    if size < 1 || dimensions.iter().any(|&length| length < 0) {
        return Err(TopologyError::Dimensions);
    }
    let given = dimensions.iter().filter(|&&length| length > 0).try_fold(1_i64, |all, &l| all.checked_mul(l));
    let free = dimensions.iter().filter(|&&length| length == 0).count();
    let given = given.filter(|given| size % given == 0).ok_or(TopologyError::Dimensions)?;
    let left = size / given;
    if free == 0 {
        return if left == 1 { Ok(()) } else { Err(TopologyError::Dimensions) };
    }
    let divisors = divisors(left);
    let mut lengths = vec![];
    let found = split(left, free, i64::MAX, &divisors, &mut lengths);
    debug_assert!(found, "one dimension may have all");
    let free = dimensions.iter_mut().filter(|length| **length == 0);
    free.zip(lengths).for_each(|(length, value)| *length = value);
    Ok(())
}

/// All of them, ascending.
fn divisors(of: i64) -> Vec<i64> {
    let small = (1..).take_while(|d| d * d <= of).filter(|d| of % d == 0);
    let mut all: Vec<i64> = small.flat_map(|d| [d, of / d]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The smallest possible first of `count` lengths none of which is larger than `most`, and then the next.
fn split(size: i64, count: usize, most: i64, divisors: &[i64], lengths: &mut Vec<i64>) -> bool {
    if count == 1 {
        lengths.push(size);
        return size <= most;
    }
    for &length in divisors.iter().filter(|&&length| length <= most && size % length == 0) {
        // All of them at most as large must be enough.
        let reach = (0..count).try_fold(1_i64, |all, _| all.checked_mul(length)).unwrap_or(i64::MAX);
        let before = lengths.len();
        lengths.push(length);
        if reach >= size && split(size / length, count - 1, length, divisors, lengths) {
            return true;
        }
        lengths.truncate(before);
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranks_and_coordinates_are_inverse(dimensions in proptest::collection::vec((1_i64..5, any::<bool>()), 0..4), by in -9_i64..9) {
            let size = dimensions.iter().map(|&(length, _)| length).product();
            let grid = Cartesian::new(&dimensions, size).expect("legal");
            let mut last = vec![];
            for rank in 0..size {
                let at = grid.coordinates(rank).expect("there");
                prop_assert_eq!(grid.rank(&at), Ok(rank));
                prop_assert!(rank == 0 || at > last, "row by row");
                for dimension in 0..dimensions.len() {
                    let (from, to) = grid.shift(rank, dimension, by).expect("there");
                    // Who sends here is whom this one is sent to from there.
                    if let Some(from) = from {
                        prop_assert_eq!(grid.shift(from, dimension, by).expect("there").1, Some(rank));
                    }
                    let inside = (0..dimensions[dimension].0).contains(&(at[dimension] + by));
                    prop_assert_eq!(to.is_some(), inside || dimensions[dimension].1);
                }
                last = at;
            }
            prop_assert!(Cartesian::new(&dimensions, size - 1).is_err());
        }

        #[test]
        fn parts_are_grids_of_those_with_the_same_other_coordinates(
            dimensions in proptest::collection::vec((1_i64..4, any::<bool>(), any::<bool>()), 0..4)
        ) {
            let remains: Vec<bool> = dimensions.iter().map(|&(.., remains)| remains).collect();
            let lengths: Vec<(i64, bool)> = dimensions.iter().map(|&(length, periodic, _)| (length, periodic)).collect();
            let size = lengths.iter().map(|&(length, _)| length).product();
            let grid = Cartesian::new(&lengths, size).expect("legal");
            let mut seen = std::collections::HashSet::new();
            for rank in 0..size {
                let (kept, part, place) = grid.part(rank, &remains).expect("there");
                let all = grid.coordinates(rank).expect("there");
                let own: Vec<i64> = all.iter().zip(&remains).filter(|(_, r)| **r).map(|(&at, _)| at).collect();
                prop_assert_eq!(kept.rank(&own), Ok(place));
                prop_assert!(seen.insert((part, place)));
                prop_assert!(place < kept.size() && part < size / kept.size());
            }
        }

        #[test]
        fn lengths_are_as_close_as_can_be(size in 1_i64..400, count in 1_usize..4) {
            let mut lengths = vec![0; count];
            balanced(size, &mut lengths).expect("possible");
            prop_assert_eq!(lengths.iter().product::<i64>(), size);
            prop_assert!(lengths.is_sorted_by(|a, b| a >= b));
            // Nothing else has a smaller first, or the same first and a smaller second.
            let others: Vec<Vec<i64>> = match count {
                1 => vec![vec![size]],
                2 => (1..=size).filter(|a| size % a == 0).map(|a| vec![a, size / a]).collect(),
                _ => (1..=size)
                    .filter(|a| size % a == 0)
                    .flat_map(|a| (1..=size / a).filter(move |b| size / a % b == 0).map(move |b| vec![a, b, size / a / b]))
                    .collect(),
            };
            let best = others.into_iter().filter(|other| other.is_sorted_by(|a, b| a >= b)).min();
            prop_assert_eq!(Some(lengths), best);
        }
    }

    #[test]
    fn what_is_given_stays() {
        let mut lengths = [0, 3, 0];
        assert_eq!(balanced(6, &mut lengths), Ok(()));
        assert_eq!(lengths, [2, 3, 1]);
        assert_eq!(balanced(7, &mut [0, 3, 0]), Err(TopologyError::Dimensions));
        assert_eq!(balanced(6, &mut [2, 3]), Ok(()));
        assert_eq!(balanced(6, &mut [2, 2]), Err(TopologyError::Dimensions));
        let mut lengths = [0; 3];
        assert_eq!(balanced(1 << 30, &mut lengths), Ok(()));
        assert_eq!(lengths, [1 << 10; 3]);
    }
}
