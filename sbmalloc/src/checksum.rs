//! The checksum of a block: xxh3 with 128 bits. Chosen at run time for what the processor can do; allocates nothing.

use twox_hash::XxHash3_128;
use twox_hash::xxhash3_128::{DEFAULT_SECRET_LENGTH, RawHasher, SecretBuffer};

use crate::sys::CHUNK;

/// The checksum of `bytes`.
pub(crate) fn of(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// The checksum of a block of which `bytes` are the beginning, and the rest is zeros: pages that nobody uses are not
/// even looked at, which would bring them into the page table.
pub(crate) fn of_block(bytes: &[u8]) -> u128 {
    static ZEROS: [u8; CHUNK] = [0; CHUNK];
    if bytes.len() == CHUNK {
        return of(bytes);
    }
    let mut sum = RawHasher::new(SecretBuffer::<&'static [u8; DEFAULT_SECRET_LENGTH]>::default());
    sum.write(bytes);
    sum.write(&ZEROS[bytes.len()..]);
    sum.finish_128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_block_is_zeros() {
        let mut block: Vec<u8> = (0..CHUNK).map(|i| (i * 7 + i / 251) as u8).collect();
        for used in [0, 1, 64, 4096, 5000, CHUNK - 1, CHUNK] {
            let sum = of_block(&block[..used]);
            let mut whole = block.clone();
            whole[used..].fill(0);
            assert_eq!(sum, of(&whole), "{used} bytes");
        }
        let sum = of(&block);
        block[CHUNK / 2] ^= 1;
        assert_ne!(sum, of(&block));
    }
}
