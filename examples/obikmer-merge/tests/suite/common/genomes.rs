//! Small genomes full of repeats, hairpins, runs of one letter, circles and breaks.

use super::revcomp;

/// A small generator of numbers; the tests need nothing better.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (obikmer_merge::sequence::minimizer::order(self.0) % n as u64) as usize
    }

    pub fn text(&mut self, len: usize) -> String {
        (0..len).map(|_| ['A', 'C', 'G', 'T'][self.below(4)]).collect()
    }
}

/// A sequence with everything that makes unitigs difficult.
pub fn sequence(random: &mut Random, k: usize, before: &[String]) -> String {
    let mut text = String::new();
    for _ in 0..1 + random.below(6) {
        match random.below(10) {
            0 => text.push_str(&"ACGT"[random.below(4)..][..1].repeat(k + random.below(2 * k))),
            1 => {
                // A hairpin.
                let len = 1 + random.below(3 * k);
                let stem = random.text(len);
                text.push_str(&stem);
                text.push_str(&revcomp(&stem));
            }
            2 => {
                // A circle: its beginning again at its end.
                let len = k + random.below(3 * k);
                let circle = random.text(len);
                text.push('N');
                text.push_str(&circle);
                text.push_str(&circle[..k - 1]);
                text.push('n');
            }
            3 => {
                let len = 1 + random.below(4);
                let unit = random.text(len);
                text.push_str(&unit.repeat(2 + 2 * k / unit.len()));
            }
            4 if !before.is_empty() => {
                let old = &before[random.below(before.len())];
                let begin = random.below(old.len().max(1));
                let part = &old[begin..][..random.below(old.len() - begin + 1)];
                text.push_str(&if random.below(2) == 0 { part.to_string() } else { revcomp(part) });
            }
            5 => text.push_str(["N", "nn", "-", "R"][random.below(4)]),
            6 => {
                let len = random.below(2 * k);
                text.push_str(&random.text(len).to_lowercase());
            }
            _ => {
                let len = random.below(6 * k);
                text.push_str(&random.text(len));
            }
        }
    }
    text
}

/// Genomes of such sequences; later ones have parts of those before.
pub fn genomes(random: &mut Random, k: usize, count: usize) -> Vec<Vec<String>> {
    let mut all: Vec<String> = Vec::new();
    let mut sources = Vec::new();
    for _ in 0..count {
        let sequences: Vec<String> = (0..1 + random.below(4)).map(|_| sequence(random, k, &all)).collect();
        all.extend(sequences.iter().filter(|s| !s.is_empty()).cloned());
        sources.push(sequences);
    }
    sources
}
