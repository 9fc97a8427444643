//! Sequences as words and packed texts, and their minimizers.

pub mod cycle;
pub mod kmer;
pub mod minimizer;
pub mod packed;
pub mod simd;
pub mod word;
