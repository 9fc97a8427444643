//! The k-mers of many genomes, merged into one index by the ranks of a job, with the maximal unitigs of the
//! whole graph and the sources of every k-mer.
//!
//! What it is: bulk-synchronous code over [`bdrun_worker::Communicator`], a partition for each rank, in three
//! phases ([`merge()`]): the *index phase* reads, cuts and routes super-k-mers; the *merge phase* puts each
//! partition's k-mers into one set, finds the pieces of unitigs in it and joins them across partitions; then
//! each rank writes its *layer*. What it is not: a counter of k-mers (how often one occurs may decide whether
//! it is taken, but is not kept), or an assembler.
//!
//! | module | answers |
//! |---|---|
//! | [`input`] | what there is to read, who reads it, and how: [`read`](input::read), [`fasta`](input::fasta), [`records`](input::records), [`compressed`](input::compressed) |
//! | [`sequence`] | how sequences are words: [`word`](sequence::word), [`kmer`](sequence::kmer), [`packed`](sequence::packed), [`cycle`](sequence::cycle); which partition a word belongs to: [`minimizer`](sequence::minimizer), with loops for the instruction set that the processor has: [`simd`](sequence::simd) |
//! | [`superkmer`] | super-k-mers: [cut](superkmer::cut), [gathered](superkmer::window), [sent](superkmer::route), [stored](superkmer::store); k-mers taken out of them: the rare ones ([frequent](superkmer::frequent)), and what is [left](superkmer::stretches) |
//! | [`graph`], [`sets`], [`pieces`] | the k-mers of a partition, their neighbours and sources; its part of the unitigs |
//! | [`join`] | unitigs across partitions, where they cross: [`border`](join::border), and the last of them: [`remainder`](join::remainder) |
//! | [`layer`], [`index`] | the files (see `docs/format.md`), each by its [`format`](layer::format): texts and their [`bounds`](layer::bounds), [`runs`](layer::runs) of sources, [`unitigs`](layer::unitigs) |
//! | [`lookup`] | where a k-mer lies in them: its [`anchor`](lookup::anchor) in a [`table`](lookup::table); many at once: [`search`](lookup::search), [`prefetch`](lookup::prefetch) |
//! | [`old`] | `--add`: layers that are there already |
//! | [`plan`], [`claim`] | what rank 0 decides; one job at a time writes an index, and gives it its name when it is on the disk |
//! | [`merge()`], [`exchange`], [`threads`], [`error`] | the order of all that, how ranks fail together, and several threads of one |
//! | [`summary`], [`info`], [`query`], [`dump`], [`fields`] | what people see: how a query is [answered](query::answer); the compacted [graph](dump::graph); names in tables |

pub mod claim;
pub mod dump;
pub mod error;
pub mod exchange;
pub mod fields;
pub mod graph;
pub mod index;
pub mod info;
pub mod input;
pub mod join;
pub mod layer;
pub mod lookup;
pub mod merge;
pub mod old;
pub mod pieces;
pub mod plan;
pub mod query;
pub mod sequence;
pub mod sets;
pub mod summary;
pub mod superkmer;
pub mod threads;

pub use error::{Error, Result};
pub use merge::{MergeOptions, merge};
pub use summary::Summary;
