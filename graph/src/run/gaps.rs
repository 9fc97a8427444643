//! Bytes that are taken and given back.

use std::collections::{BTreeMap, BTreeSet};

/// Which bytes are free of a file, say, that is as long as it has to be.
#[derive(Debug, Default)]
pub struct Gaps {
    /// Gaps by offset, none beside another.
    gaps: BTreeMap<u64, u64>,
    /// The same by length, and by offset of those that are as long: there may be very many too short ones.
    lengths: BTreeSet<(u64, u64)>,
    free: u64,
    end: u64,
}

impl Gaps {
    /// Bytes that are taken.
    pub fn used(&self) -> u64 {
        self.end - self.free
    }

    /// Where the last byte that is taken ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    fn add(&mut self, offset: u64, len: u64) {
        self.gaps.insert(offset, len);
        self.lengths.insert((len, offset));
        self.free += len;
    }

    fn remove(&mut self, offset: u64) -> Option<u64> {
        let len = self.gaps.remove(&offset)?;
        self.lengths.remove(&(len, offset));
        self.free -= len;
        Some(len)
    }

    /// Takes so many: of the shortest gap that is long enough, or at the end. Where they begin.
    pub fn take(&mut self, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let Some(&(size, offset)) = self.lengths.range((len, 0)..).next() else {
            self.end += len;
            return self.end - len;
        };
        self.remove(offset);
        if size > len {
            self.add(offset + len, size - len);
        }
        offset
    }

    /// Gives back what was taken.
    pub fn give(&mut self, mut offset: u64, mut len: u64) {
        if len == 0 {
            return;
        }
        len += self.remove(offset + len).unwrap_or(0);
        if let Some((&before, &size)) = self.gaps.range(..offset).next_back()
            && before + size == offset
        {
            self.remove(before);
            (offset, len) = (before, size + len);
        }
        if offset + len == self.end {
            self.end = offset;
        } else {
            self.add(offset, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Very many gaps that are too short, and something that is longer each time.
    #[test]
    fn many_gaps_are_not_gone_through() {
        let mut gaps = Gaps::default();
        let short: Vec<u64> = (0..400_000).map(|_| gaps.take(1)).collect();
        short.iter().step_by(2).for_each(|&at| gaps.give(at, 1));
        assert_eq!((gaps.used(), gaps.end()), (200_000, 400_000));
        let begun = crate::testing::processor_time();
        for number in 0..100_000 {
            assert_eq!(gaps.take(2), 400_000 + 2 * number);
        }
        // By looks at each of them that were 2 * 10^10.
        let took = crate::testing::processor_time() - begun;
        assert!(took.as_secs() < 10, "{took:?}");
    }

    proptest! {
        #[test]
        fn nobody_is_given_what_another_has(moves in prop::collection::vec((any::<bool>(), 0_u64..50), 1..300)) {
            let mut gaps = Gaps::default();
            let mut there: Vec<(u64, u64)> = Vec::new();
            for (takes, len) in moves {
                if takes || there.is_empty() {
                    let at = gaps.take(len);
                    let is_apart = |&(other, size): &(u64, u64)| {
                        at + len <= other || other + size <= at || len == 0 || size == 0
                    };
                    prop_assert!(there.iter().all(is_apart));
                    there.push((at, len));
                } else {
                    let (at, len) = there.swap_remove(len as usize % there.len());
                    gaps.give(at, len);
                }
                prop_assert_eq!(gaps.used(), there.iter().map(|(_, len)| len).sum::<u64>());
                prop_assert_eq!(gaps.end(), there.iter().filter(|(_, len)| *len > 0).map(|(at, len)| at + len).max().unwrap_or(0));
                prop_assert_eq!(gaps.gaps.len(), gaps.lengths.len());
            }
        }
    }
}
