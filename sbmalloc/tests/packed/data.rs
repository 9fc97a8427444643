//! Data that shrinks, and does not.

use crate::common::Random;
use sbmalloc::CHUNK;

/// What memory is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Data {
    /// Shrinks by half or so, like counters of k-mers.
    Counters,
    /// Mostly zeros, and whole blocks of them.
    Sparse,
    /// Does not shrink.
    Noise,
    /// All of these, block by block.
    Mixed,
}

impl Data {
    /// Fills memory with it; the same for the same seed.
    pub fn fill(self, bytes: &mut [u8], seed: u64) {
        let mut random = Random(seed);
        for (i, block) in bytes.chunks_mut(CHUNK).enumerate() {
            let kind = match self {
                Self::Mixed => [Self::Counters, Self::Noise, Self::Sparse, Self::Counters][i % 4],
                one => one,
            };
            block.fill(0);
            match kind {
                Self::Counters => {
                    block.iter_mut().step_by(8).for_each(|byte| *byte = random.next() as u8);
                }
                Self::Sparse if i % 5 == 0 => {}
                Self::Sparse => (0..200).for_each(|_| block[random.below(block.len())] = 7),
                _ => block.chunks_exact_mut(8).for_each(|w| w.copy_from_slice(&random.next().to_le_bytes())),
            }
        }
    }
}
