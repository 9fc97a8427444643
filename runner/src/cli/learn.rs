//! The options that say what ranks are expected to need, and where that is remembered.

use std::path::PathBuf;

use clap::Args;

use super::parse::{parse_fraction, parse_size};
use crate::residency::Expect;

/// What ranks are expected to need, under the names of seed 002 where it names them.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct LearnOptions {
    /// Remember in FILE what ranks needed, and begin with what it knows
    ///
    /// Each part of the same command is expected to need what it did, and 5% more; the largest begin first.
    /// Of a part that is new, what such ranks need in general. Default: beside the journal (JOURNAL.learned).
    #[arg(long, value_name = "FILE")]
    pub learn: Option<PathBuf>,

    /// What is set aside for a rank while nothing is known, relative to what it may hold (--rank-memory, else
    /// its share of the budget) [default: 0.5]
    #[arg(long, visible_alias = "user_job_memory_digest_default_value", value_name = "F", value_parser = parse_fraction)]
    pub user_job_memory_digest_default_value: Option<f64>,

    /// What is set aside for a rank at least, relative to --rank-memory [default: 0.05]
    #[arg(long, visible_alias = "user_job_memory_digest_lower_bound", value_name = "F", value_parser = parse_fraction)]
    pub user_job_memory_digest_lower_bound: Option<f64>,

    /// Both of these
    #[arg(
        long, visible_alias = "memory_reserve_factor", value_name = "F", value_parser = parse_fraction,
        conflicts_with_all = ["user_job_memory_digest_default_value", "user_job_memory_digest_lower_bound"]
    )]
    pub memory_reserve_factor: Option<f64>,

    /// The part of the ranks that are to fit what is set aside for them [default: 0.95]
    #[arg(long, value_name = "F", value_parser = parse_fraction)]
    pub memory_digest_quantile: Option<f64>,

    /// Memory that each rank may fill in a tmpfs: never less is set aside for it
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub tmpfs_size: Option<u64>,
}

impl LearnOptions {
    /// What is expected while nothing is known, and how careful to be when something is.
    #[must_use]
    pub fn expect(&self) -> Expect {
        let default = Expect::default();
        let both = self.memory_reserve_factor;
        Expect {
            quantile: self.memory_digest_quantile.unwrap_or(default.quantile),
            default_value: both
                .or(self.user_job_memory_digest_default_value)
                .unwrap_or(default.default_value),
            lower_bound: both.or(self.user_job_memory_digest_lower_bound).unwrap_or(default.lower_bound),
            tmpfs_size: self.tmpfs_size.unwrap_or(default.tmpfs_size),
        }
    }
}
