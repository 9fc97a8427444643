//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Merge the k-mers of many genomes into one partitioned index; run under bdrun with a rank for each
/// partition.
///
/// Inputs are FASTA or FASTQ files, plain or gzip, or indexes written before. A source is named after its
/// file, without `.gz`; two of one name are refused. Without inputs the six Helicobacter pylori genomes that
/// come with the program are merged into ./obikmer-index.
#[derive(Parser, Debug)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Another command than to merge.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to merge.
    #[command(flatten)]
    pub merge: Merge,
}

/// Commands other than merging.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Tell for each record how many of its k-mers each source holds.
    Query {
        /// The index.
        index: PathBuf,
        /// FASTA or FASTQ, plain or gzip.
        fasta: PathBuf,
    },
    /// Write canonical k-mers or unitigs, one per line.
    Dump {
        /// What to write.
        #[command(flatten)]
        what: What,
        /// The index.
        index: PathBuf,
    },
}

/// What to dump.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct What {
    /// All k-mers.
    #[arg(long)]
    pub kmers: bool,
    /// All unitigs; a cyclic one as its smallest rotation, with n + k - 1 letters.
    #[arg(long)]
    pub unitigs: bool,
}

/// How to merge.
#[derive(Args, Debug)]
pub struct Merge {
    /// Length of the k-mers: odd, 3 to 63 [default: 31, or that of the indexes given]
    #[arg(short, value_name = "LENGTH")]
    pub k: Option<usize>,
    /// Length of the minimizers: below k [default: 11]
    #[arg(short, value_name = "LENGTH")]
    pub m: Option<usize>,
    /// Directory of the index; written aside and renamed when complete
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace an index that is there
    #[arg(long, conflicts_with = "add")]
    pub force: bool,
    /// Add the inputs to the index that is there, as a new layer
    #[arg(long)]
    pub add: bool,
    /// Tell on standard error how long the phases of rank 0 take
    #[arg(long, short)]
    pub verbose: bool,
    /// Each record of a FASTA file is a source, named by the first word of its header
    #[arg(long)]
    pub each_record: bool,
    /// FASTA or FASTQ files, plain or gzip, or indexes; @FILE: those that FILE lists, one per line
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
}
