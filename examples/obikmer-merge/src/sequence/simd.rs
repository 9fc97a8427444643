//! Loops over arrays that the compiler turns into vector instructions: each is compiled for several
//! instruction sets, and the widest that the processor has is chosen at run time. One text for all, so the
//! results are the same.

use std::sync::OnceLock;

use crate::sequence::kmer::BREAK;
use crate::sequence::word::Word;

/// An instruction set this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// All that this processor has, the widest last.
    pub fn available() -> Vec<Level> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "only x86-64 has more than one"))]
        let mut all = vec![Level(Kind::Portable)];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            all.push(Level(Kind::Avx2));
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                all.push(Level(Kind::Avx512));
            }
        }
        all
    }

    /// The widest.
    pub fn widest() -> Level {
        static WIDEST: OnceLock<Level> = OnceLock::new();
        *WIDEST.get_or_init(|| Self::available().last().copied().unwrap_or(Level(Kind::Portable)))
    }
}

/// A letter of any alphabet, a gap or a stop?
#[inline(always)]
pub fn is_letter(byte: u8) -> bool {
    (byte | 0x20).wrapping_sub(b'a') < 26 || matches!(byte, b'-' | b'*' | b'.')
}

/// Functions compiled once for each level.
macro_rules! for_each_level {
    ($($(#[$doc:meta])* pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        pub fn $name(level: Level, $($arg: $type),*) {
            #[inline(always)]
            fn body($($arg: $type),*) $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($arg: $type),*) {
                body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $type),*) {
                body($($arg),*)
            }
            match level.0 {
                Kind::Portable => body($($arg),*),
                // SAFETY: a `Level` of this kind exists only where the processor has been found to have it.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    )*};
}

for_each_level! {
    /// Are all bytes [letters](is_letter)?
    pub fn are_letters(bytes: &[u8], good: &mut bool) {
        let bad = bytes.iter().fold(0, |bad, &b| {
            let letter = (b | 0x20).wrapping_sub(b'a') < 26;
            bad | u8::from(!(letter | (b == b'-') | (b == b'*') | (b == b'.')))
        });
        *good = bad == 0;
    }

    /// Letters to codes, either case; [`BREAK`] for all but ACGT. Both of one length.
    pub fn codes(letters: &[u8], out: &mut [u8]) {
        for (code, &letter) in out.iter_mut().zip(letters) {
            let upper = letter & !0x20;
            let known = (upper == b'A') | (upper == b'C') | (upper == b'G') | (upper == b'T');
            *code = if known { ((letter >> 1) ^ (letter >> 2)) & 3 } else { BREAK };
        }
    }

    /// For every four codes from each place on: their word, and that of their reverse complement. Three fewer
    /// than codes.
    pub fn fours(codes: &[u8], forward: &mut [u8], reverse: &mut [u8]) {
        let n = forward.len();
        let (a, b, c, d) = (&codes[..n], &codes[1..][..n], &codes[2..][..n], &codes[3..][..n]);
        let places = a.iter().zip(b).zip(c.iter().zip(d));
        for ((f, r), ((&a, &b), (&c, &d))) in forward.iter_mut().zip(reverse).zip(places) {
            *f = a << 6 | b << 4 | c << 2 | d;
            *r = !(d << 6 | c << 4 | b << 2 | a);
        }
    }

    /// As [`fours`], for eight, from those of four.
    pub fn eights(f4: &[u8], r4: &[u8], forward: &mut [u16], reverse: &mut [u16]) {
        let n = forward.len();
        for ((f, &a), &b) in forward.iter_mut().zip(&f4[..n]).zip(&f4[4..][..n]) {
            *f = u16::from(a) << 8 | u16::from(b);
        }
        for ((r, &a), &b) in reverse.iter_mut().zip(&r4[..n]).zip(&r4[4..][..n]) {
            *r = u16::from(b) << 8 | u16::from(a);
        }
    }

    /// Hashes of canonical m-mers, m from 4 to 8, made of two overlapping words of four.
    pub fn hashes_of_fours(f4: &[u8], r4: &[u8], m: usize, out: &mut [u32]) {
        let (n, more) = (out.len(), m - 4);
        let places = f4[..n].iter().zip(&f4[more..][..n]).zip(r4[..n].iter().zip(&r4[more..][..n]));
        for (hash, ((&f, &g), (&q, &r))) in out.iter_mut().zip(places) {
            let forward = u32::from(f) << (2 * more) | u32::from(g);
            let reverse = u32::from(r) << (2 * more) | u32::from(q);
            *hash = crate::sequence::minimizer::order32(forward.min(reverse));
        }
    }

    /// Hashes of canonical m-mers, m from 8 to 16, made of two overlapping words of eight.
    pub fn hashes_of_eights(f8: &[u16], r8: &[u16], m: usize, out: &mut [u32]) {
        let (n, more) = (out.len(), m - 8);
        let places = f8[..n].iter().zip(&f8[more..][..n]).zip(r8[..n].iter().zip(&r8[more..][..n]));
        for (hash, ((&f, &g), (&q, &r))) in out.iter_mut().zip(places) {
            let forward = u32::from(f) << (2 * more) | u32::from(g);
            let reverse = u32::from(r) << (2 * more) | u32::from(q);
            *hash = crate::sequence::minimizer::order32(forward.min(reverse));
        }
    }

    /// Words to their hashes.
    pub fn hashes(words: &mut [u32]) {
        for word in words {
            *word = crate::sequence::minimizer::order32(*word);
        }
    }

    /// Of each left-aligned word of bases the hash of the anchor that its first m bases are, m at most 32.
    pub fn anchors(words: &[u64], m: usize, out: &mut [u32]) {
        let bits = u64::mask(m);
        for (hash, &word) in out.iter_mut().zip(words) {
            *hash = crate::lookup::anchor::hash(word >> (64 - 2 * m), word.revcomp(32) & bits);
        }
    }

    /// The lower of each value and that `step` behind it; as many as `out` has.
    pub fn lower_of_two(values: &[u32], step: usize, out: &mut [u32]) {
        let n = out.len();
        for ((low, &a), &b) in out.iter_mut().zip(&values[..n]).zip(&values[step..][..n]) {
            *low = a.min(b);
        }
    }

    /// The lowest of four, `step` apart.
    pub fn lowest_of_four(values: &[u32], step: usize, out: &mut [u32]) {
        let n = out.len();
        let of = |i: usize| values[i * step..][..n].iter();
        for (low, ((&a, &b), (&c, &d))) in out.iter_mut().zip(of(0).zip(of(1)).zip(of(2).zip(of(3)))) {
            *low = a.min(b).min(c.min(d));
        }
    }

    /// For each word of `len` bases the lowest hash of its canonical m-mers, m at most 16.
    pub fn lowest_of_words(words: &[u64], len: usize, m: usize, out: &mut [u32]) {
        const LANES: usize = 16;
        let bits = u64::mask(m) as u32;
        for (words, out) in words.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let (mut forward, mut reverse, mut lowest) = ([0u64; LANES], [0u64; LANES], [u32::MAX; LANES]);
            for ((f, r), &word) in forward.iter_mut().zip(&mut reverse).zip(words) {
                (*f, *r) = (word, word.revcomp(len));
            }
            for at in 0..=len - m {
                let (left, right) = (2 * (len - m - at), 2 * at);
                for ((low, f), r) in lowest.iter_mut().zip(&forward).zip(&reverse) {
                    let canonical = ((f >> left) as u32 & bits).min((r >> right) as u32 & bits);
                    *low = crate::sequence::minimizer::order32(canonical).min(*low);
                }
            }
            out.copy_from_slice(&lowest[..out.len()]);
        }
    }

    /// Bit i of word j of `out`: does value 64 j + i differ from the one before it? The first does not. Bits
    /// behind the end are zero.
    pub fn changes(values: &[u32], out: &mut Vec<u64>) {
        out.clear();
        let mut before = values.first().copied().unwrap_or(0);
        for block in values.chunks(64) {
            let mut flags = [0u8; 64];
            flags[0] = u8::from(block[0] != before);
            for ((flag, a), b) in flags[1..].iter_mut().zip(block).zip(&block[1..]) {
                *flag = u8::from(a != b);
            }
            before = block[block.len() - 1];
            let mut bits = 0;
            for (i, eight) in flags.chunks_exact(8).enumerate() {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(eight);
                // The lowest bits of eight bytes into one.
                bits |= (u64::from_le_bytes(bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i);
            }
            out.push(bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::kmer::CODE;

    #[test]
    fn letters_and_changes_by_definition() {
        let letters: Vec<u8> = (0..=255).chain(0..=255).collect();
        let expected: Vec<u8> = letters.iter().map(|&b| CODE[b as usize]).collect();
        for level in Level::available() {
            for n in 0..300 {
                let mut out = vec![9; n];
                codes(level, &letters[512 - n..], &mut out);
                assert_eq!(out, expected[512 - n..], "{level:?}");
                let some = |b: u8| b.is_ascii_alphabetic() || b"-*.".contains(&b);
                let mut good = false;
                let text = if n < 256 { vec![letters[n]; n] } else { vec![b'.'; n] };
                are_letters(level, &text, &mut good);
                assert_eq!(good, text.iter().all(|&b| some(b)), "{n}");
                let values: Vec<u32> =
                    (0..n as u64).map(|i| crate::sequence::minimizer::order(i) as u32 >> 30).collect();
                let mut bits = vec![7];
                changes(level, &values, &mut bits);
                assert_eq!(bits.len(), n.div_ceil(64));
                for i in 0..64 * bits.len() {
                    let differs = i > 0 && i < n && values[i] != values[i - 1];
                    assert_eq!(bits[i / 64] >> (i % 64) & 1 == 1, differs, "{level:?} {n} {i}");
                }
            }
        }
    }
}
