//! The figures of an index: `summary.json`, and the same on standard output.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fields::shown;
use crate::input::tally::Tallies;
use crate::layer::format::{Kind, Wrote};
use crate::layer::unitigs::Written;
use crate::layer::{Ids, KINDS, Runs};
use crate::sets::Sets;

/// The file in an index directory.
pub const FILE: &str = "summary.json";

/// A source and how many distinct k-mers it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// File name without `.gz`, `.xz` or `.zst`.
    pub name: String,
    /// Distinct canonical k-mers.
    pub kmers: u64,
}

/// Sizes of the partitions in bytes: all files of all layers of each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partitions {
    /// How many.
    pub count: usize,
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub median: u64,
    /// The 95th percentile (nearest rank).
    pub p95: u64,
    /// The largest against the median.
    pub max_over_median: f64,
}

/// `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Length of the k-mers.
    pub k: usize,
    /// The sources, in order.
    pub sources: Vec<Source>,
    /// Distinct canonical k-mers.
    pub distinct_kmers: u64,
    /// Maximal unitigs, of all layers.
    pub unitigs: u64,
    /// The sum of their lengths.
    pub total_unitig_bases: u64,
    /// K-mers that all sources hold.
    pub in_all_sources: u64,
    /// K-mers that exactly one source holds.
    pub in_one_source: u64,
    /// Sizes of the partitions.
    pub partitions: Partitions,
}

/// What one rank contributes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Share {
    kmers: u64,
    unitigs: u64,
    unitig_bases: u64,
    in_all: u64,
    in_one: u64,
    by_source: Vec<u64>,
    bytes: u64,
    /// What the files of each layer hold.
    pub ids: Vec<Ids>,
    /// Sources that may hardly have k-mers.
    pub tallies: Tallies,
}

impl Share {
    /// Count a layer's k-mers by their sets; `sources` is the number of all sources.
    pub fn add_kmers(&mut self, runs: &Runs, sets: &Sets, sources: usize) {
        self.by_source.resize(sources, 0);
        for (set, &count) in runs.counts.iter().enumerate().filter(|c| *c.1 > 0) {
            let members = sets.members(set as u32);
            self.kmers += count;
            self.in_all += if members.len() == sources { count } else { 0 };
            self.in_one += if members.len() == 1 { count } else { 0 };
            for source in members {
                self.by_source[source as usize] += count;
            }
        }
    }

    /// Count a layer's unitigs.
    pub fn add_unitigs(&mut self, layer: usize, written: Written) {
        self.unitigs += written.unitigs;
        self.unitig_bases += written.bases;
        self.add_file(layer, Kind::Unitigs, written.file);
    }

    /// Count a file of a layer.
    pub fn add_file(&mut self, layer: usize, kind: Kind, file: Wrote) {
        self.bytes += file.bytes;
        if self.ids.len() <= layer {
            self.ids.resize(layer + 1, Ids::default());
        }
        if let Some(number) = KINDS.iter().position(|&k| k == kind) {
            self.ids[layer][number] = file.id;
        }
    }
}

impl Summary {
    /// Of all ranks' shares; there is at least one.
    pub fn new(k: usize, names: &[String], shares: &[Share]) -> Self {
        let sum = |f: &dyn Fn(&Share) -> u64| shares.iter().map(f).sum::<u64>();
        let sources = names.iter().enumerate().map(|(i, name)| Source {
            name: name.clone(),
            kmers: sum(&|s| s.by_source.get(i).copied().unwrap_or(0)),
        });
        Self {
            k,
            sources: sources.collect(),
            distinct_kmers: sum(&|s| s.kmers),
            unitigs: sum(&|s| s.unitigs),
            total_unitig_bases: sum(&|s| s.unitig_bases),
            in_all_sources: sum(&|s| s.in_all),
            in_one_source: sum(&|s| s.in_one),
            partitions: Partitions::new(shares.iter().map(|s| s.bytes).collect()),
        }
    }
}

impl Partitions {
    fn new(mut bytes: Vec<u64>) -> Self {
        bytes.sort_unstable();
        let count = bytes.len();
        let middle = [bytes[(count - 1) / 2], bytes[count / 2]];
        let median = middle[0] + (middle[1] - middle[0]) / 2;
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        Self {
            count,
            min: bytes[0],
            max: bytes[count - 1],
            mean: round(bytes.iter().sum::<u64>() as f64 / count as f64),
            median,
            p95: bytes[(count * 95).div_ceil(100) - 1],
            max_over_median: round(bytes[count - 1] as f64 / median.max(1) as f64),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, value: &dyn fmt::Display| {
            writeln!(f, "{name:<22}{value:>14}")
        };
        line(f, "k", &self.k)?;
        for source in &self.sources {
            line(f, &format!("kmers in {}", shown(&source.name, None)), &source.kmers)?;
        }
        line(f, "distinct_kmers", &self.distinct_kmers)?;
        line(f, "unitigs", &self.unitigs)?;
        line(f, "total_unitig_bases", &self.total_unitig_bases)?;
        line(f, "in_all_sources", &self.in_all_sources)?;
        line(f, "in_one_source", &self.in_one_source)?;
        let p = &self.partitions;
        let Partitions { count, min, max, mean, median, p95, max_over_median } = p;
        write!(
            f,
            "partitions: count {count}, min {min}, max {max}, mean {mean:.0}, median {median}, p95 {p95} bytes, \
             max/median {max_over_median:.2}"
        )
    }
}
