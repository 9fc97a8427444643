//! Jobs that nobody has run: so many ranks, of such sizes, that work together in such a way.

use clap::ValueEnum;

use crate::residency::sim::{Curve, Draw, Exchange, Program};

/// How ranks work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Any independent programs; their memory grows to the end
    Independent,
    /// All go through all their memory, then meet, in each phase
    Bulk,
    /// Each sends to the next and waits for the one before it, in each phase
    Ring,
    /// One computes after the other, in each phase
    Pipeline,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Synthetic {
    /// Ranks.
    pub ranks: u32,
    /// Bytes of each: the median.
    pub size: u64,
    /// By what factor one standard deviation is more or less.
    pub spread: f64,
    /// So many take four times that.
    pub outliers: u32,
    /// Seconds of a processor for a rank of that size, all phases together; in proportion for others.
    pub seconds: f64,
    /// How they work together, and how often.
    pub shape: Shape,
    /// See `shape`.
    pub phases: u32,
    /// What is drawn is drawn from this.
    pub seed: u64,
}

/// Such a job.
#[must_use]
pub fn programs(asked: &Synthetic) -> Vec<Program> {
    let mut draw = Draw::new(asked.seed.max(1));
    let every = asked.ranks / asked.outliers.max(1);
    (0..asked.ranks)
        .map(|rank| {
            // Twelve even numbers together are as good as normal.
            let normal = (0..12).map(|_| draw.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0;
            let is_outlier = asked.outliers > 0
                && rank.is_multiple_of(every.max(1))
                && rank / every.max(1) < asked.outliers;
            let factor = asked.spread.max(1.0).powf(normal) * if is_outlier { 4.0 } else { 1.0 };
            let bytes = ((asked.size as f64 * factor) as u64).max(1 << 12);
            let work = (asked.seconds * factor).max(1e-4);
            let exchange = match asked.shape {
                Shape::Independent => return Program::new(bytes as f64, work, Curve::Even),
                Shape::Bulk => Exchange::Barrier,
                Shape::Ring => Exchange::Ring,
                Shape::Pipeline => Exchange::Token,
            };
            let chunk = (bytes / 16).max(1 << 12);
            Program { work, chunk, ..Program::native(bytes, asked.phases.max(1), exchange) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_they_were_asked_for() {
        let asked = Synthetic {
            ranks: 1001,
            size: 1 << 30,
            spread: 1.5,
            outliers: 4,
            seconds: 2.0,
            shape: Shape::Bulk,
            phases: 3,
            seed: 7,
        };
        let programs = programs(&asked);
        let mut sizes: Vec<f64> =
            programs.iter().map(|program| program.asks as f64 / f64::from(1 << 30)).collect();
        sizes.sort_by(f64::total_cmp);
        assert!((0.9..1.1).contains(&sizes[500]), "median {}", sizes[500]);
        assert!((1.3..1.7).contains(&sizes[841]), "one deviation above {}", sizes[841]);
        let plain = super::programs(&Synthetic { outliers: 0, ..asked });
        let larger = programs.iter().zip(&plain).filter(|(a, b)| a.asks > 3 * b.asks).count();
        assert_eq!(larger, 4);
        assert_eq!(programs, super::programs(&asked), "the same seed makes the same job");
    }
}
