//! The minimal perfect hash over a layer's k-mers (ptr_hash), and its bytes.

use epserde::prelude::{Deserialize, Serialize};
use ptr_hash::bucket_fn::Linear;
use ptr_hash::hash::StrongerIntHash;
use ptr_hash::{PtrHash, PtrHashParams};

use crate::error::{Error, Result};

type Hash = PtrHash<u64, Linear, Vec<u32>, StrongerIntHash, Vec<u8>, true, true>;

/// A minimal perfect hash of k-mers.
pub struct Mphf(Hash);

impl Mphf {
    /// Over these k-mers, at least one, all different.
    pub fn build(kmers: &[u64]) -> Result<Self> {
        // ptr_hash takes its tie-breaking seed from fastrand's generator of this thread: with a fixed one the same
        // k-mers give the same bytes.
        fastrand::seed(0x0b1c_0de5);
        // Looser than ptr_hash's defaults (0.99 and 3.0): built three times faster for two bits more per k-mer, beside the
        // 32 of its evidence.
        let mut params = PtrHashParams::default();
        (params.alpha, params.lambda) = (0.97, 2.0);
        let hash = Hash::try_new(kmers, params);
        hash.map(Self).ok_or_else(|| Error::Internal("ptr_hash found no perfect hash in ten tries".into()))
    }

    /// As stored.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // SAFETY: epserde asks for types without padding that could be uninitialised; ptr_hash derives it.
        unsafe { self.0.serialize(&mut bytes) }
            .map_err(|e| Error::Internal(format!("cannot serialise the perfect hash: {e}")))?;
        Ok(bytes)
    }

    /// From what [`to_bytes`](Self::to_bytes) gave.
    pub fn from_bytes(mut bytes: &[u8]) -> std::result::Result<Self, String> {
        // SAFETY: the bytes were written by `to_bytes`; epserde checks its type and version hashes first.
        unsafe { Hash::deserialize_full(&mut bytes) }.map(Self).map_err(|e| e.to_string())
    }

    /// The slot of a k-mer; of one that is not among the keys, any slot.
    #[inline]
    pub fn slot(&self, kmer: u64) -> usize {
        self.0.index(&kmer)
    }
}
