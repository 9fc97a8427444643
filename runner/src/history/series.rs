//! Numbers of the whole job, sampled: often at first, half as often each time there are too many.

use serde::{Deserialize, Serialize};

/// So many samples are kept, at most.
const MOST: usize = 4096;

/// The first distance between two, seconds, and what each rank adds to it: to look at them all takes time.
const FIRST: f64 = 0.02;
const PER_RANK: f64 = 20e-6;

/// The job at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since it began.
    pub t: f64,
    /// Bytes in RAM; the most since the sample before.
    pub held: u64,
    /// Bytes that may be.
    pub budget: u64,
    /// Ranks that compute.
    pub running: u32,
    /// Ranks in RAM.
    pub resident: u32,
    /// Ranks out of RAM.
    pub out: u32,
    /// Ranks that have ended.
    pub done: u32,
    /// Bytes written to scratch since the job began.
    pub written: u64,
    /// Bytes read from scratch since then.
    pub read: u64,
}

/// The samples of a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Series {
    samples: Vec<Sample>,
    interval: f64,
}

impl Series {
    /// Of a job of so many ranks.
    #[must_use]
    pub fn new(np: u32) -> Self {
        Self { samples: Vec::new(), interval: FIRST + f64::from(np) * PER_RANK }
    }

    /// Seconds from one sample to the next.
    #[must_use]
    pub const fn interval(&self) -> f64 {
        self.interval
    }

    /// When the next is wanted, seconds since the job began.
    #[must_use]
    pub fn due(&self) -> f64 {
        self.samples.last().map_or(0.0, |last| last.t + self.interval)
    }

    /// All of them, in order.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Adds what another node had at the same time, as its last sample before tells; it began so much later.
    pub fn join(&mut self, later: f64, other: &Self) {
        let mut before = other.samples.iter().peekable();
        let mut last = Sample::default();
        for sample in &mut self.samples {
            let mut held = 0;
            while let Some(next) = before.next_if(|next| next.t + later <= sample.t) {
                (last, held) = (*next, held.max(next.held));
            }
            sample.held += held.max(last.held);
            sample.budget += last.budget;
            sample.running += last.running;
            sample.resident += last.resident;
            sample.out += last.out;
            sample.done += last.done;
            sample.written += last.written;
            sample.read += last.read;
        }
    }

    /// Adds one. If the one before came sooner than was wanted, it takes its place, with the most of both.
    pub fn add(&mut self, sample: Sample) {
        match &mut self.samples[..] {
            [.., before, last] if sample.t <= before.t + self.interval => *last = merged(*last, sample),
            _ => self.samples.push(sample),
        }
        if self.samples.len() >= MOST {
            // The first stays where it is: it is the beginning.
            let rest = self.samples.split_off(1);
            self.samples.extend(rest.chunks(2).map(|pair| merged(pair[0], pair[pair.len() - 1])));
            self.interval *= 2.0;
        }
    }
}

fn merged(a: Sample, b: Sample) -> Sample {
    Sample { held: a.held.max(b.held), ..b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_job_keeps_its_peaks_and_its_ends() {
        let mut series = Series::new(10);
        let mut t = 0.0;
        for n in 0..1_000_000u64 {
            let held = if n == 777_777 { 99 } else { n % 7 };
            series.add(Sample { t, held, written: n, ..Sample::default() });
            t += 0.025;
        }
        let samples = series.samples();
        assert!((MOST / 2..=MOST).contains(&samples.len()), "{}", samples.len());
        assert_eq!(samples.iter().map(|sample| sample.held).max(), Some(99));
        assert_eq!((samples[0].t, samples[samples.len() - 1].written), (0.0, 999_999));
        assert!(samples.is_sorted_by(|a, b| a.t < b.t && a.written < b.written));
        let peak = samples.iter().find(|sample| sample.held == 99).unwrap();
        assert!((peak.t - 777_777.0 * 0.025).abs() < 2.0 * series.interval());
    }

    #[test]
    fn two_nodes_are_summed() {
        let (mut one, mut other) = (Series::new(1), Series::new(1));
        for n in 0..10_u64 {
            let t = n as f64;
            one.add(Sample { t, held: n, budget: 100, done: 1, ..Sample::default() });
            other.add(Sample { t: t / 2.0, held: 1000 * n, budget: 50, read: n, ..Sample::default() });
        }
        one.join(2.0, &other);
        let seen = one.samples().iter().map(|sample| (sample.held, sample.budget, sample.read));
        let before = [(0, 100, 0), (1, 100, 0), (2, 150, 0), (2003, 150, 2), (4004, 150, 4), (6005, 150, 6)];
        assert!(seen.clone().take(6).eq(before), "{:?}", seen.collect::<Vec<_>>());
        assert!(seen.skip(7).all(|(held, budget, read)| held > 9000 && (budget, read) == (150, 9)));
    }

    #[test]
    fn who_asks_too_often_is_told_the_most() {
        let mut series = Series::new(1);
        for n in 0..100 {
            let held = if n == 5 { 8 } else { 1 };
            series.add(Sample { t: f64::from(n) * 0.001, held, ..Sample::default() });
        }
        assert!((5..=7).contains(&series.samples().len()), "{:?}", series.samples());
        assert_eq!(series.samples()[1].held, 8);
    }
}
