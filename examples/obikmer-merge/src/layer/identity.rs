//! What a file holds, as a number: so an index knows its files, and is not half of one and half of another.
//!
//! Nothing of time or chance is in it: the same inputs give the same bytes, these included. It is no defence
//! against whoever wants two files to be alike.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Id([u64; 2]);

impl Id {
    /// As it lies in files.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.0[0]) | u128::from(self.0[1]) << 64).to_le_bytes()
    }

    /// From where it lies in a file.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self([both as u64, (both >> 64) as u64])
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[1], self.0[0])
    }
}

impl FromStr for Id {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(|both| Self::from_bytes(both.to_le_bytes()))
    }
}

/// Finds it for bytes that come one after another.
#[derive(Default)]
pub struct Hasher {
    state: [u64; 2],
    /// Bytes that are no whole word yet.
    rest: [u8; 8],
    bytes: u64,
}

impl Hasher {
    /// The next bytes; where they are cut does not matter.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let held = (self.bytes % 8) as usize;
        self.bytes += bytes.len() as u64;
        if held > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(8 - held));
            self.rest[held..held + now.len()].copy_from_slice(now);
            bytes = later;
            if held + now.len() < 8 {
                return;
            }
            self.word(u64::from_le_bytes(self.rest));
        }
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut array = [0; 8];
            array.copy_from_slice(word);
            self.word(u64::from_le_bytes(array));
        }
        let rest = words.remainder();
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    #[inline(always)]
    fn word(&mut self, word: u64) {
        // Two that have nothing to do with each other, so that one is computed while the other waits.
        let [a, b] = &mut self.state;
        *a = (*a ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        *b = (b.rotate_left(23) ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }

    /// All have come.
    pub fn finish(mut self) -> Id {
        let held = (self.bytes % 8) as usize;
        self.rest[held..].fill(0);
        self.word(u64::from_le_bytes(self.rest));
        self.word(self.bytes);
        let mix = |x: u64| {
            let x = (x ^ x >> 32).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ x >> 29
        };
        let [a, b] = self.state;
        Id([mix(a ^ b.rotate_left(32)), mix(b)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::minimizer::order;

    fn of(parts: &[&[u8]]) -> Id {
        let mut hasher = Hasher::default();
        parts.iter().for_each(|part| hasher.update(part));
        hasher.finish()
    }

    #[test]
    fn every_byte_and_the_length_count_and_the_cuts_do_not() {
        let bytes: Vec<u8> = (0..200).map(|i| order(i) as u8).collect();
        let whole = of(&[&bytes]);
        for a in 0..bytes.len() {
            for b in [a, (a + 3).min(bytes.len()), bytes.len()] {
                assert_eq!(of(&[&bytes[..a], &bytes[a..b], &bytes[b..]]), whole);
            }
            let mut other = bytes.clone();
            other[a] ^= 1 << (a % 8);
            assert_ne!(of(&[&other]), whole);
            assert_ne!(of(&[&bytes[..a]]), whole);
        }
        let zeros: Vec<Id> = (0..40).map(|n| of(&[&vec![0; n]])).collect();
        assert!((1..40).all(|n| !zeros[..n].contains(&zeros[n])));
        assert_eq!(whole.to_string().parse(), Ok(whole));
        assert_eq!(Id::from_bytes(whole.to_bytes()), whole);
    }
}
