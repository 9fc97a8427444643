//! Ranges of addresses.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that do not overlap.
#[derive(Debug, Default, Clone)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub fn add(&mut self, range: Range<u64>) {
        self.remove(&range);
        self.0.insert(range.start, range.end);
    }

    pub fn remove(&mut self, range: &Range<u64>) {
        for cut in self.within(range) {
            let end = self.0.range(..=cut.start).next_back().map(|(&start, &end)| (start, end));
            let Some((start, end)) = end else { continue };
            self.0.remove(&start);
            if start < cut.start {
                self.0.insert(start, cut.start);
            }
            if cut.end < end {
                self.0.insert(cut.end, end);
            }
        }
    }

    /// What lies in a range lies elsewhere now, in place of what was there.
    pub fn shift(&mut self, from: u64, to: u64, len: u64) {
        let moved = self.within(&(from..from + len));
        self.remove(&(from..from + len));
        self.remove(&(to..to + len));
        moved.iter().for_each(|part| self.add(part.start - from + to..part.end - from + to));
    }

    /// The parts of them in a range.
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        self.0
            .range(first..range.end)
            .map(|(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|part| part.start < part.end)
            .collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut() {
        let mut ranges = Ranges::default();
        ranges.add(10..20);
        ranges.add(30..40);
        ranges.remove(&(15..32));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [10..15, 32..40]);
        ranges.add(12..34);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [10..12, 12..34, 34..40]);
        assert_eq!(ranges.within(&(11..35)), [11..12, 12..34, 34..35]);
        ranges.remove(&(13..14));
        assert_eq!(ranges.within(&(0..100)), [10..12, 12..13, 14..34, 34..40]);
        ranges.shift(11, 35, 3);
        assert_eq!(ranges.within(&(0..100)), [10..11, 14..34, 34..35, 35..36, 36..37, 38..40]);
    }
}
