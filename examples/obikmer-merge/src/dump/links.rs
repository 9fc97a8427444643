//! Which ends of unitigs overlap by k − 1 bases.
//!
//! An end has a junction: the k − 1 bases with which its unitig ends there, read outwards. Two ends are
//! linked if the junction of one is the reverse complement of the other's: then one unitig, read towards its
//! end, goes on with the other. So all links of a junction are found where its ends are together: they go
//! into buckets by a hash of it, and what is found there into buckets by unitig. Neither kind has to fit into
//! memory.

use std::ops::Range;

use super::spill::Spill;
use crate::error::Result;
use crate::sequence::minimizer::order;
use crate::sequence::packed::Text;
use crate::sequence::word::Word;

/// Bytes of the most links that a unitig has: four bases at each end.
const BYTES_OF_LINKS: usize = 8 * size_of::<Link>();

/// An end: twice the number of its unitig, plus one if it is the right one.
pub type End = u64;

/// From an end to one that goes on with it.
pub type Link = [End; 2];

/// An end with its junction: that in its canonical direction, high and low half; and twice the end, plus one
/// if the direction is not that which leads outwards.
type Junction = [u64; 3];

/// Ends of unitigs, from which links are found.
pub struct Ends {
    k: usize,
    memory: usize,
    unitigs: u64,
    junctions: Spill<Junction>,
}

/// Links by unitig.
pub struct Links {
    spill: Spill<Link>,
    /// Unitigs of a bucket.
    unitigs: u64,
}

impl Ends {
    /// Of so many unitigs, in about so many bytes of memory.
    pub fn new(k: usize, unitigs: u64, memory: usize) -> Self {
        // While links are found there are at once: junctions of all buckets, those of one, and links.
        let (all, third) = (2 * unitigs as usize * size_of::<Junction>(), memory / 3);
        let buckets = all.div_ceil(third.max(1)).max(1);
        Self { k, memory, unitigs, junctions: Spill::new(buckets, third) }
    }

    /// Both ends of a unitig.
    ///
    /// # Errors
    /// A temporary file cannot be written.
    pub fn add(&mut self, unitig: u64, text: Text<'_>) -> Result<()> {
        let len = self.k - 1;
        for (right, outwards) in
            [word(text, 0, len).revcomp(len), word(text, text.len() - len, len)].into_iter().enumerate()
        {
            let turned = outwards.revcomp(len);
            let junction = outwards.min(turned);
            let (high, low) = ((junction >> 64) as u64, junction as u64);
            let end = 2 * unitig + right as u64;
            let bucket = u128::from(order(junction.fold())) * self.junctions.len() as u128;
            self.junctions
                .push((bucket >> 64) as usize, [high, low, 2 * end + u64::from(turned < outwards)])?;
        }
        Ok(())
    }

    /// All ends are there: their links.
    ///
    /// # Errors
    /// A temporary file cannot be written or read.
    pub fn links(mut self) -> Result<Links> {
        // Of links that are taken there are those of two buckets, while one goes and the next comes.
        let unitigs = ((self.memory / 4 / BYTES_OF_LINKS).max(1) as u64).min(self.unitigs.max(1));
        let buckets = self.unitigs.div_ceil(unitigs) as usize;
        let mut spill = Spill::new(buckets, self.memory / 3);
        for bucket in 0..self.junctions.len() {
            let mut junctions = self.junctions.take(bucket)?;
            junctions.sort_unstable();
            for ends in junctions.chunk_by(|a, b| a[..2] == b[..2]) {
                let junction = u128::from(ends[0][0]) << 64 | u128::from(ends[0][1]);
                // What is its own reverse complement goes on in both directions, with itself too.
                let palindrome = junction.revcomp(self.k - 1) == junction;
                for [.., from] in ends {
                    for [.., to] in ends {
                        if palindrome || (from ^ to) & 1 == 1 {
                            spill.push((from / 4 / unitigs) as usize, [from / 2, to / 2])?;
                        }
                    }
                }
            }
        }
        Ok(Links { spill, unitigs })
    }
}

impl Links {
    /// Number of buckets: each of the unitigs that follow those of the one before.
    pub fn buckets(&self) -> usize {
        self.spill.len()
    }

    /// The unitigs of a bucket; the last may have fewer.
    pub fn range(&self, bucket: usize) -> Range<u64> {
        let first = bucket as u64 * self.unitigs;
        first..first + self.unitigs
    }

    /// Take the links of a bucket's unitigs, in order.
    ///
    /// # Errors
    /// A temporary file cannot be read.
    pub fn take(&mut self, bucket: usize) -> Result<Vec<Link>> {
        let mut links = self.spill.take(bucket)?;
        links.sort_unstable();
        Ok(links)
    }
}

/// Up to 62 bases of a text.
fn word(text: Text<'_>, from: usize, len: usize) -> u128 {
    let head = len.saturating_sub(32);
    let high = if head > 0 { text.word(from, head) } else { 0 };
    u128::from(high) << 64 | u128::from(text.word(from + head, len - head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::packed::Packed;

    /// Codes drawn so that many ends have the same junctions.
    fn texts(seed: u64, k: usize, count: u64) -> Vec<Vec<u8>> {
        let motifs = 1 + order(seed) % 6;
        (0..count)
            .map(|i| {
                let random = |j: u64| order((seed << 32) + (i << 8) + j);
                let motif = |which: u64| {
                    let mut codes: Vec<u8> = (0..k as u64 - 1)
                        .map(|j| order((seed << 40) + (which % motifs * 100) + j) as u8 & 3)
                        .collect();
                    if which.is_multiple_of(4) {
                        // Its own reverse complement.
                        for at in 0..(k - 1) / 2 {
                            codes[k - 2 - at] = 3 - codes[at];
                        }
                    }
                    if which & 64 != 0 {
                        crate::sequence::packed::reverse_complement(&mut codes);
                    }
                    codes
                };
                let middle = (0..1 + random(0) % 3).map(|j| random(j + 9) as u8 & 3);
                [motif(random(1)), middle.collect(), motif(random(2))].concat()
            })
            .collect()
    }

    #[test]
    fn links_are_those_of_all_pairs_of_ends_whatever_the_memory() {
        for (seed, k) in (0..40).flat_map(|seed| [3, 5, 31, 33, 35, 63].map(|k| (seed, k))) {
            let texts = texts(seed, k, 1 + order(seed + 1) % 60);
            let outwards = |end: usize| {
                let text = &texts[end / 2];
                let mut codes =
                    if end % 2 == 1 { &text[text.len() + 1 - k..] } else { &text[..k - 1] }.to_vec();
                if end.is_multiple_of(2) {
                    crate::sequence::packed::reverse_complement(&mut codes);
                }
                codes
            };
            let mut expected: Vec<Link> = Vec::new();
            for from in 0..2 * texts.len() {
                for to in 0..2 * texts.len() {
                    let mut turned = outwards(to);
                    crate::sequence::packed::reverse_complement(&mut turned);
                    if outwards(from) == turned {
                        expected.push([from as u64, to as u64]);
                    }
                }
            }
            for memory in [0, 3000, 1 << 20] {
                let mut ends = Ends::new(k, texts.len() as u64, memory);
                for (unitig, codes) in texts.iter().enumerate() {
                    let mut packed = Packed::default();
                    packed.push(codes);
                    ends.add(unitig as u64, packed.text()).expect("added");
                }
                let mut links = ends.links().expect("found");
                assert!(links.range(links.buckets() - 1).contains(&(texts.len() as u64 - 1)));
                let mut found = Vec::new();
                for bucket in 0..links.buckets() {
                    let here = links.take(bucket).expect("read");
                    assert!(here.iter().all(|link| links.range(bucket).contains(&(link[0] / 2))));
                    found.extend(here);
                }
                assert_eq!(found, expected, "seed {seed} k {k} memory {memory}");
            }
        }
    }
}
