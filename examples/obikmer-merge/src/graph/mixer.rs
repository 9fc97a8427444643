//! A fixed, fast hash of 64-bit words. Not for keys that an adversary chooses.

use std::hash::{BuildHasher, Hasher};

/// One multiplication to 128 bits, folded.
#[inline]
pub fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ 0x5851_f42d_4c95_7f2d) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

/// `mix` for maps with 64-bit keys.
#[derive(Clone, Copy, Default)]
pub struct Mixer;

/// The hasher of [`Mixer`].
#[derive(Default)]
pub struct MixerState(u64);

impl BuildHasher for Mixer {
    type Hasher = MixerState;
    #[inline]
    fn build_hasher(&self) -> MixerState {
        MixerState(0)
    }
}

impl Hasher for MixerState {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = mix(word ^ self.0);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
