//! The canonical text of a cyclic unitig.

/// Where the smallest rotation of a circular text begins (Booth's algorithm in its two-pointer form; linear).
fn smallest_rotation(text: &[u8]) -> usize {
    let n = text.len();
    let at = |i: usize| text[if i >= n { i - n } else { i }];
    let (mut i, mut j, mut same) = (0, 1, 0);
    while i < n && j < n && same < n {
        match at(i + same).cmp(&at(j + same)) {
            std::cmp::Ordering::Equal => same += 1,
            order => {
                if order.is_gt() {
                    i += same + 1;
                } else {
                    j += same + 1;
                }
                if i == j {
                    j += 1;
                }
                same = 0;
            }
        }
    }
    i.min(j)
}

/// From the `n` codes of a cycle (one per k-mer) its canonical text: the smallest rotation over both strands,
/// with n + k − 1 letters.
pub fn canonical(circle: &[u8], k: usize) -> Vec<u8> {
    let n = circle.len();
    let rotated = |text: &[u8]| -> Vec<u8> {
        let begin = smallest_rotation(text);
        text[begin..].iter().chain(text).copied().take(n).collect()
    };
    let mut reverse = circle.to_vec();
    crate::sequence::packed::reverse_complement(&mut reverse);
    let smaller = rotated(circle).min(rotated(&reverse));
    smaller.iter().cycle().copied().take(n + k - 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_trying_all_rotations() {
        for seed in 0..3000u64 {
            let n = 1 + (seed % 9) as usize;
            let text: Vec<u8> =
                (0..n as u64).map(|i| (crate::sequence::minimizer::order(seed * 64 + i) % 3) as u8).collect();
            let mut reverse = text.clone();
            crate::sequence::packed::reverse_complement(&mut reverse);
            let naive = [&text, &reverse]
                .iter()
                .flat_map(|t| (0..n).map(|r| [&t[r..], &t[..r]].concat()))
                .min()
                .map(|best| best.iter().cycle().copied().take(n + 4).collect::<Vec<u8>>());
            assert_eq!(Some(canonical(&text, 5)), naive);
        }
    }
}
