//! The checksum of a block: xxh3 with 128 bits. Chosen at run time for what the processor can do; allocates
//! nothing.

use twox_hash::XxHash3_128;

use crate::sys::PAGE;

/// The checksum of `bytes`.
pub(crate) fn of(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// 64 bits of it, for a page.
pub(crate) fn of_page(bytes: &[u8]) -> u64 {
    of(bytes) as u64
}

/// The checksum of a block of which `bytes`, whole pages, are the beginning, and the rest is zeros: that of
/// its content, so that however much of the rest is given it is the same.
pub(crate) fn of_block(bytes: &[u8]) -> u128 {
    of(content(bytes))
}

/// Whole pages up to the last that is not zeros. Little of the rest of a block is ever used if it is the end
/// of a vector that may still grow, or of blocks of one size that mimalloc has few of.
pub(crate) fn content(bytes: &[u8]) -> &[u8] {
    let pages = bytes.chunks(PAGE).rev();
    let zeros: usize = pages.take_while(|page| is_zero(page)).map(<[u8]>::len).sum();
    &bytes[..bytes.len() - zeros]
}

fn is_zero(page: &[u8]) -> bool {
    let (words, rest) = page.as_chunks::<64>();
    words.iter().all(|w| w.iter().fold(0, |a, b| a | b) == 0) && rest.iter().all(|&b| b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::CHUNK;

    #[test]
    fn the_tail_of_a_block_is_zeros() {
        let mut block: Vec<u8> = (0..CHUNK).map(|i| (i * 7 + i / 251) as u8 | 1).collect();
        for used in (0..=CHUNK).step_by(PAGE) {
            let sum = of_block(&block[..used]);
            let mut whole = block.clone();
            whole[used..].fill(0);
            assert_eq!(content(&whole).len(), used);
            for given in (used..=CHUNK).step_by(PAGE) {
                assert_eq!(sum, of_block(&whole[..given]), "{given} of {used} bytes");
            }
            if used > 0 {
                // A page with one byte in it is none of zeros, wherever the byte is.
                for at in [used - PAGE, used - PAGE / 2 + 1, used - 1] {
                    whole[used - PAGE..used].fill(0);
                    whole[at] = 1;
                    assert_eq!(content(&whole).len(), used);
                }
            }
        }
        let sum = of(&block);
        block[CHUNK / 2] ^= 1;
        assert_ne!(sum, of(&block));
    }
}
