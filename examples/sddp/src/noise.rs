//! Random numbers that every rank and thread computes alike, without a word to one another: SipHash-1-3 of
//! what the number is for.
//!
//! Hash: keys (seed, purpose), message four little-endian 64-bit words. A uniform number in (0, 1) is
//! (h ≫ 11 + ½) · 2⁻⁵³; a normal one is made of two by Box and Muller (1958): √(−2 ln u₁) · cos(2π u₂).

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::case::Case;
use crate::error::Result;

/// What a number is for: numbers of different purposes are independent.
#[derive(Clone, Copy)]
enum Purpose {
    /// Inflows of the opening tree.
    Tree = 1,
    /// Which opening a trajectory sees.
    Sample = 2,
    /// Inflows outside the tree.
    Fresh = 3,
    /// Systems that are generated.
    Design = 4,
}

fn hash(seed: u64, purpose: Purpose, words: [u64; 4]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed, purpose as u64);
    hasher.write(words.map(u64::to_le_bytes).as_flattened());
    hasher.finish()
}

fn uniform(hash: u64) -> f64 {
    ((hash >> 11) as f64 + 0.5) * 2f64.powi(-53)
}

/// One of `openings` (from 0) for a trajectory: `scenario` of `iteration` in `stage` (from 0).
pub fn sample(seed: u64, iteration: u64, stage: usize, scenario: usize, openings: usize) -> usize {
    let hash = hash(seed, Purpose::Sample, [iteration, stage as u64, scenario as u64, 0]);
    // The high half of the product: without division, and as even as 2⁶⁴ permits.
    ((u128::from(hash) * openings as u128) >> 64) as usize
}

/// A uniform number for one of many like things (`index`) of a generated system.
pub fn design(seed: u64, what: u64, index: usize) -> f64 {
    uniform(hash(seed, Purpose::Design, [what, index as u64, 0, 0]))
}

/// Inflows of a case, from normal numbers.
pub struct Inflows<'a> {
    case: &'a Case,
    /// Lower triangle, n × n.
    factor: Vec<f64>,
}

impl<'a> Inflows<'a> {
    /// Of a case that was validated.
    ///
    /// # Errors
    /// If its correlation is none ([`Case::cholesky`]).
    pub fn new(case: &'a Case) -> Result<Self> {
        Ok(Self { case, factor: case.cholesky()? })
    }

    /// Writes the opening tree: `[stage][opening][reservoir]`, m³/s. Of the first stage, whose inflow is
    /// known, every opening is the mean.
    pub fn tree(&self, tree: &mut [f64]) {
        let (n, openings) = (self.case.reservoirs.len(), self.case.openings);
        for (at, inflow) in tree.chunks_exact_mut(n).enumerate() {
            let (stage, opening) = (at / openings, at % openings);
            self.inflow(stage, inflow, self.case.opening_seed, Purpose::Tree, [stage as u64, opening as u64]);
        }
    }

    /// Inflow of a trajectory that need not be in the tree, m³/s.
    pub fn fresh(&self, seed: u64, stage: usize, scenario: usize, inflow: &mut [f64]) {
        self.inflow(stage, inflow, seed, Purpose::Fresh, [stage as u64, scenario as u64]);
    }

    /// Log-normal with the stage's means: μ exp(σε − σ²/2), ε correlated.
    fn inflow(&self, stage: usize, inflow: &mut [f64], seed: u64, purpose: Purpose, [a, b]: [u64; 2]) {
        let means = &self.case.stages[stage];
        if stage == 0 {
            return inflow.copy_from_slice(&means.inflow);
        }
        let n = inflow.len();
        let draw = |k: usize, part: u64| uniform(hash(seed, purpose, [a, b, k as u64, part]));
        let normals: Vec<f64> = (0..n)
            .map(|k| (-2.0 * draw(k, 0).ln()).sqrt() * (std::f64::consts::TAU * draw(k, 1)).cos())
            .collect();
        for (i, inflow) in inflow.iter_mut().enumerate() {
            let row = &self.factor[i * n..][..=i];
            let epsilon: f64 = row.iter().zip(&normals).map(|(l, z)| l * z).sum();
            let sigma = means.deviation[i];
            *inflow = means.inflow[i] * (sigma * epsilon - sigma * sigma / 2.0).exp();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// What the Python program beside the tests computes, which has a SipHash of its own:
    /// `equivalent.py --hash 7 2 1 2 3 0`.
    #[test]
    fn the_hash_is_what_it_is_elsewhere() {
        assert_eq!(hash(7, Purpose::Sample, [1, 2, 3, 0]), 4_626_529_108_511_923_402);
    }

    #[test]
    fn samples_are_even_and_differ_in_every_word() {
        let mut counts = [0; 20];
        for scenario in 0..20_000 {
            counts[sample(1, 1, 1, scenario, 20)] += 1;
        }
        // Standard deviation 31.
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        let of =
            |seed, iteration, stage, scenario| hash(seed, Purpose::Sample, [iteration, stage, scenario, 0]);
        let all = [of(1, 1, 1, 1), of(2, 1, 1, 1), of(1, 2, 1, 1), of(1, 1, 2, 1), of(1, 1, 1, 2)];
        for (at, a) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(a));
        }
    }

    #[test]
    fn inflows_have_mean_deviation_and_correlation_of_the_case() {
        let case =
            Case::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/tiny.toml"))).expect("bundled");
        let inflows = Inflows::new(&case).expect("definite");
        let (count, stage) = (40_000, 2);
        let mut logs = [vec![], vec![]];
        let mut sums = [0.0; 2];
        for scenario in 0..count {
            let mut inflow = [0.0; 2];
            inflows.fresh(3, stage, scenario, &mut inflow);
            for i in 0..2 {
                sums[i] += inflow[i];
                logs[i].push((inflow[i] / case.stages[stage].inflow[i]).ln());
            }
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let covariance = |a: &[f64], b: &[f64]| {
            let (x, y) = (mean(a), mean(b));
            a.iter().zip(b).map(|(a, b)| (a - x) * (b - y)).sum::<f64>() / (a.len() - 1) as f64
        };
        for i in 0..2 {
            let relative = sums[i] / count as f64 / case.stages[stage].inflow[i];
            assert!((relative - 1.0).abs() < 0.02, "{relative}");
            let deviation = covariance(&logs[i], &logs[i]).sqrt();
            assert!((deviation / case.stages[stage].deviation[i] - 1.0).abs() < 0.02, "{deviation}");
        }
        let correlation = covariance(&logs[0], &logs[1])
            / (covariance(&logs[0], &logs[0]) * covariance(&logs[1], &logs[1])).sqrt();
        assert!((correlation - case.correlation[0][1]).abs() < 0.02, "{correlation}");
    }
}
