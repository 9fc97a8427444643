//! Which ranks nobody has, by their places in the order. A tree of the least that any of them needs: the
//! first that needs no more than so much is found in about as many steps as it is deep, however many do not
//! fit.

/// In the place of what a rank needs: somebody has it.
const TAKEN: u64 = u64::MAX;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Left {
    /// Of each node of the tree the least below it, bytes. The root is 1; below node n are 2 n and 2 n + 1;
    /// the second half are the places.
    least: Vec<u64>,
    count: u32,
}

impl Left {
    /// Nobody has any of those that need so many bytes, by their places.
    pub fn new(needs: impl ExactSizeIterator<Item = u64>) -> Self {
        let (count, half) = (needs.len(), needs.len().next_power_of_two());
        let mut least = vec![TAKEN; half];
        least.extend(needs.map(|need| need.min(TAKEN - 1)));
        least.resize(2 * half, TAKEN);
        for at in (1..half).rev() {
            least[at] = least[2 * at].min(least[2 * at + 1]);
        }
        Self { least, count: count as u32 }
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether nobody has that of this place.
    pub fn contains(&self, place: u32) -> bool {
        let half = self.least.len() / 2;
        self.least.get(half + place as usize).is_some_and(|&need| need != TAKEN)
    }

    /// Nobody has that of this place, which needs so many bytes.
    pub fn insert(&mut self, place: u32, need: u64) {
        self.set(place, need.min(TAKEN - 1));
    }

    /// Somebody has it.
    pub fn remove(&mut self, place: u32) {
        self.set(place, TAKEN);
    }

    fn set(&mut self, place: u32, need: u64) {
        let mut at = self.least.len() / 2 + place as usize;
        let before = std::mem::replace(&mut self.least[at], need);
        self.count = self.count + u32::from(before == TAKEN) - u32::from(need == TAKEN);
        while at > 1 {
            at /= 2;
            self.least[at] = self.least[2 * at].min(self.least[2 * at + 1]);
        }
    }

    /// The first, from this place on, that needs no more than so many bytes.
    pub fn first(&self, from: u32, most: u64) -> Option<u32> {
        let (half, most) = (self.least.len() / 2, most.min(TAKEN - 1));
        let mut at = half + from as usize;
        if at >= 2 * half {
            return None;
        }
        while self.least[at] > most {
            // What lies right of this, as large a part of the tree as there is.
            at >>= at.trailing_ones();
            if at == 0 {
                return None;
            }
            at += 1;
        }
        while at < half {
            at *= 2;
            at += usize::from(self.least[at] > most);
        }
        Some((at - half) as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As if all were looked at, one after the other.
        #[test]
        fn the_first_that_fits_is_found(
            needs in proptest::collection::vec(0_u64..20, 0..70),
            steps in proptest::collection::vec((any::<bool>(), 0_u32..70, 0_u32..80, 0_u64..25), 0..100),
        ) {
            let mut left = Left::new(needs.iter().copied());
            let mut all: BTreeMap<u32, u64> = (0..).zip(needs.iter().copied()).collect();
            for (comes_back, place, from, most) in steps {
                if let Some(&need) = needs.get(place as usize) {
                    if comes_back {
                        left.insert(place, need);
                        all.insert(place, need);
                    } else {
                        left.remove(place);
                        all.remove(&place);
                    }
                }
                let found = all.range(from..).find(|(_, need)| **need <= most).map(|(place, _)| *place);
                prop_assert_eq!(left.first(from, most), found);
                prop_assert_eq!((left.len() as usize, left.is_empty()), (all.len(), all.is_empty()));
            }
        }
    }

    #[test]
    fn what_needs_more_than_can_be_said_is_found_too() {
        let mut left = Left::new([u64::MAX, 3].into_iter());
        assert_eq!((left.first(0, u64::MAX), left.first(0, 3)), (Some(0), Some(1)));
        left.remove(0);
        assert_eq!(left.first(0, u64::MAX), Some(1));
        left.remove(1);
        assert_eq!(left.first(0, u64::MAX), None);
    }
}
