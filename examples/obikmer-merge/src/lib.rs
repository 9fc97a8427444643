//! The k-mers of many genomes, merged into one index by the ranks of a job, with the maximal unitigs of the whole graph
//! and the sources of every k-mer.
//!
//! What it is: bulk-synchronous code over [`bdrun_worker::Communicator`], a partition for each rank, in three phases
//! ([`merge()`]): the *index phase* reads, cuts and routes super-k-mers; the *merge phase* puts each partition's k-mers
//! into one set, finds the pieces of unitigs in it and joins them across partitions; then each rank writes its *layer*.
//! What it is not: a counter of k-mers (how often one occurs is not kept), or an assembler.
//!
//! | module | answers |
//! |---|---|
//! | [`input`], [`read`], [`fasta`], [`records`] | what there is to read, who reads it, and how |
//! | [`word`], [`kmer`], [`packed`], [`minimizer`] | how sequences are words; which partition a word belongs to |
//! | [`simd`] | loops for the instruction set that the processor has |
//! | [`cut`], [`window`], [`route`], [`store`] | super-k-mers: made, gathered, sent, kept |
//! | [`graph`], [`sets`] | the k-mers of a partition, their neighbours and sources |
//! | [`pieces`], [`border`], [`join`], [`cycle`] | unitigs: within a partition, across, and as text |
//! | [`layer`], [`unitigs`], [`bounds`], [`runs`], [`format`](mod@format), [`index`] | the files (see `docs/format.md`) |
//! | [`lookup`], [`anchor`], [`table`], [`prefetch`] | where a k-mer lies in them |
//! | [`old`] | `--add`: layers that are there already |
//! | [`merge()`], [`exchange`], [`error`] | the order of all that, and how ranks fail together |
//! | [`threads`] | several threads of one rank |
//! | [`summary`], [`query`], [`search`], [`dump`] | what people see |

pub mod anchor;
pub mod border;
pub mod bounds;
pub mod cut;
pub mod cycle;
pub mod dump;
pub mod error;
pub mod exchange;
pub mod fasta;
pub mod format;
pub mod graph;
pub mod index;
pub mod input;
pub mod join;
pub mod kmer;
pub mod layer;
pub mod lookup;
pub mod merge;
pub mod minimizer;
pub mod old;
pub mod packed;
pub mod pieces;
pub mod prefetch;
pub mod query;
pub mod read;
pub mod records;
pub mod route;
pub mod runs;
pub mod search;
pub mod sets;
pub mod simd;
pub mod store;
pub mod summary;
pub mod table;
pub mod threads;
pub mod unitigs;
pub mod window;
pub mod word;

pub use error::{Error, Result};
pub use merge::{MergeOptions, merge};
pub use summary::Summary;
