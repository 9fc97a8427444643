//! K-mers that occur too rarely in a source are left out: most of those of raw reads are errors.
//!
//! Every occurrence of a k-mer comes to each virtual partition that has one of its junctions, once. So a
//! virtual partition counts the k-mers of a source alone, whether it owns them or not, exactly; and where a
//! k-mer lies in two, both come to the same answer without asking. What is counted is one virtual partition
//! of one source.

use std::collections::HashMap;
use std::ops::Range;

use crate::graph::{Mixer, Record};
use crate::sequence::packed;
use crate::sequence::word::Word;
use crate::superkmer::store::each_kmer;
use crate::superkmer::stretches::Stretches;

/// How often k-mers must occur in each source.
#[derive(Clone, Debug, Default)]
pub struct Least {
    count: u32,
    /// Sources whose k-mers are all taken: of indexes, which do not know how often.
    all: Vec<Range<u32>>,
}

impl Least {
    /// At least so often in all sources but these.
    pub fn new(count: u32, all: Vec<Range<u32>>) -> Self {
        Self { count, all }
    }

    /// How often in this source; 0 or 1: all are taken.
    pub fn of(&self, source: u32) -> u32 {
        if self.all.iter().any(|range| range.contains(&source)) { 1 } else { self.count }
    }
}

/// Counts the k-mers of super-k-mers; keeps its buffers.
pub struct Frequent<W> {
    counts: HashMap<W, u32, Mixer>,
    stretches: Stretches,
    bases: Vec<u8>,
}

impl<W> Default for Frequent<W> {
    fn default() -> Self {
        Self { counts: HashMap::default(), stretches: Stretches::default(), bases: Vec::new() }
    }
}

impl<W: Word> Frequent<W> {
    /// Forget all, keep the room.
    pub fn clear(&mut self) {
        self.counts.clear();
    }

    /// Count the k-mers of a super-k-mer.
    pub fn count(&mut self, record: Record<'_>, k: usize) {
        each_kmer(record, k, |kmer, _| {
            let count = self.counts.entry(kmer.canonical()).or_default();
            *count = count.saturating_add(1);
        });
    }

    /// What of a super-k-mer occurs so often.
    pub fn filter(&mut self, record: Record<'_>, k: usize, least: u32, mut each: impl FnMut(Record<'_>)) {
        self.stretches.clear();
        each_kmer(record, k, |kmer, _| {
            let count = self.counts.get(&kmer.canonical());
            self.stretches.next(count.is_some_and(|&count| count >= least));
        });
        for (kmers, flags) in self.stretches.of(record.flags) {
            if kmers.len() == record.kmers {
                each(record);
                continue;
            }
            self.bases.clear();
            packed::copy(record.bases, kmers.start, kmers.len() + k - 1, &mut self.bases);
            each(Record { flags, kmers: kmers.len(), bases: &self.bases });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superkmer::cut::{LEFT_FOREIGN, RIGHT_FOREIGN, RIGHT_OWNED};

    #[test]
    fn what_is_frequent_stays_in_stretches_with_the_ends_it_has() {
        let k = 5;
        let flags = LEFT_FOREIGN | RIGHT_FOREIGN | RIGHT_OWNED;
        let pack = |codes: &[u8]| {
            let mut bases = Vec::new();
            packed::pack(codes, &mut bases);
            bases
        };
        // Eight k-mers, of which those at 1, 2 and 7 come again, one of them on the other strand.
        let codes = [0, 1, 1, 3, 2, 0, 0, 1, 2, 2, 3, 1];
        let mut turned = codes[2..7].to_vec();
        packed::reverse_complement(&mut turned);
        let all = pack(&codes);
        let record = Record { flags, kmers: 8, bases: &all };
        let mut frequent = Frequent::<u64>::default();
        frequent.count(record, k);
        for part in [&codes[1..6], &turned, &codes[7..12]] {
            frequent.count(Record { flags: 0, kmers: 1, bases: &pack(part) }, k);
        }
        let mut kept = Vec::new();
        let mut keep = |least| {
            kept.clear();
            frequent.filter(record, k, least, |r| kept.push((r.flags, r.kmers, r.bases.to_vec())));
            kept.clone()
        };
        assert_eq!(keep(1), [(flags, 8, all.clone())]);
        let expected = [(0, 2, pack(&codes[1..7])), (RIGHT_FOREIGN | RIGHT_OWNED, 1, pack(&codes[7..12]))];
        assert_eq!(keep(2), expected);
        assert!(keep(3).is_empty());
        frequent.clear();
        frequent.filter(record, k, 1, |_| panic!("nothing was counted"));
    }

    #[test]
    fn sources_of_indexes_are_taken_whole() {
        let least = Least::new(3, vec![2..4, 7..8]);
        assert_eq!((0..9).map(|source| least.of(source)).collect::<Vec<_>>(), [3, 3, 1, 1, 3, 3, 3, 1, 3]);
        assert_eq!(Least::default().of(5), 0);
    }
}
