//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Merge the k-mers of many genomes into one partitioned index; run under bdrun with a rank for each
/// partition.
///
/// Inputs are FASTA or FASTQ files, plain or compressed by gzip, xz or zstd, or indexes written before. A
/// source is named after its file, without `.gz`, `.xz` or `.zst`; two of one name are refused. Without
/// inputs the six Helicobacter pylori genomes that come with the program are merged into ./obikmer-index.
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
        /// A record is present in a source (1, or 0) that holds at least this share of its k-mers; above 0,
        /// up to 1
        #[arg(long, value_name = "SHARE", value_parser = share)]
        threshold: Option<f64>,
        /// An object of JSON for each record, on a line of its own; only with the sources that hold k-mers
        #[arg(long)]
        json: bool,
        /// The index.
        index: PathBuf,
        /// FASTA or FASTQ, plain or compressed; - or none: standard input. A table of several files says
        /// which.
        #[arg(value_name = "FASTA")]
        files: Vec<PathBuf>,
    },
    /// Tell what an index is and holds.
    Info {
        /// As an object of JSON
        #[arg(long)]
        json: bool,
        /// The index.
        index: PathBuf,
    },
    /// Write what an index holds as text: k-mers, unitigs, the graph, a table.
    ///
    /// The order is that of the index, and always the same. Links of the graph are found in 64 MiB of memory;
    /// what does not fit goes to a file without a name in TMPDIR (or /tmp).
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
    /// All canonical k-mers, one per line.
    #[arg(long)]
    pub kmers: bool,
    /// All unitigs, one per line; a cyclic one as its smallest rotation, with n + k - 1 letters.
    #[arg(long)]
    pub unitigs: bool,
    /// Unitigs as FASTA with the links between them in the headers, as BCALM writes them.
    #[arg(long)]
    pub fasta: bool,
    /// Unitigs and links as GFA 1.
    #[arg(long)]
    pub gfa: bool,
    /// A table with a line for each k-mer and a column for each source: 1 where that holds it, 0 elsewhere.
    #[arg(long)]
    pub matrix: bool,
    /// Each k-mer, a tab, and the names of the sources that hold it, with commas between them.
    #[arg(long)]
    pub sources: bool,
}

/// How to merge.
#[derive(Args, Debug)]
pub struct Merge {
    /// Length of the k-mers: odd, 3 to 63 [default: 31, or that of the indexes given]
    #[arg(short, value_name = "LENGTH")]
    pub k: Option<usize>,
    /// Length of the minimizers: below k, up to 31 [default: 11]
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
    /// Leave out k-mers that occur less than N times in a source, in either direction: of reads, those
    /// of errors. K-mers of indexes are taken as they are [default: 1]
    #[arg(long, value_name = "N", value_parser = count, default_value = "1", hide_default_value = true)]
    pub min_count: u32,
    /// FASTA or FASTQ files, plain or compressed, or indexes; @FILE: those that FILE lists, one per line
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share is a number above 0, up to 1: 0.8 for four of five".into()),
    }
}

fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("a count is a whole number from 1 to {}", u32::MAX)),
    }
}
