//! What a partition received: super-k-mers, by source, in chunks of one size, so that the memory committed is about
//! the memory used (a growing vector would commit up to three times that).

use crate::cut::{LEFT_FOREIGN, LEFT_OWNED, MAX_KMERS, RIGHT_FOREIGN, RIGHT_OWNED, encoded_len};
use crate::error::{Error, Result};
use crate::graph::Record;
use crate::kmer::Oriented;
use crate::packed;
use crate::word::Word;

/// Largest chunk; with many sources they are smaller, so that the last ones, half empty, do not add up.
const CHUNK: usize = 64 * 1024;

/// The left junction, in the direction of the canonical text, lies in this partition.
pub const LOCAL_LEFT: u8 = 1;
/// The right junction lies in this partition.
pub const LOCAL_RIGHT: u8 = 2;
/// The k-mer is owned by this partition: counted and stored here.
pub const OWNED: u8 = 4;

/// Super-k-mers by source.
pub struct Store {
    k: usize,
    chunk: usize,
    sources: Vec<Vec<Vec<u8>>>,
    kmers: u64,
}

impl Store {
    /// For so many sources.
    pub fn new(k: usize, sources: usize) -> Self {
        // A super-k-mer fits into the smallest chunk.
        let chunk = (CHUNK * 16 / sources.max(16)).max(4 * 1024);
        Self { k, chunk, sources: vec![Vec::new(); sources], kmers: 0 }
    }

    /// K-mers, repeats included.
    pub fn kmers(&self) -> u64 {
        self.kmers
    }

    /// An empty one of the same kind.
    pub fn like(&self) -> Self {
        Self::new(self.k, self.sources.len())
    }

    /// Append whole super-k-mers of one virtual partition and source.
    pub fn append(&mut self, _sub: usize, source: u32, mut bytes: &[u8]) -> Result<()> {
        let chunks = self
            .sources
            .get_mut(source as usize)
            .ok_or_else(|| Error::Internal(format!("super-k-mers of an unknown source {source}")))?;
        while !bytes.is_empty() {
            let room = chunks.last().map_or(0, |c| self.chunk - c.len());
            // As many whole super-k-mers as fit.
            let mut fit = 0;
            while let Some(header) = bytes.get(fit..fit + 2) {
                let kmers = u16::from_le_bytes([header[0], header[1]]) as usize & MAX_KMERS;
                let len = encoded_len(kmers, self.k);
                if kmers == 0 || bytes.len() - fit < len {
                    return Err(Error::Internal("a malformed super-k-mer arrived".into()));
                }
                if fit + len > room {
                    break;
                }
                fit += len;
                self.kmers += kmers as u64;
            }
            match chunks.last_mut() {
                Some(chunk) if fit > 0 => chunk.extend_from_slice(&bytes[..fit]),
                _ => chunks.push(Vec::with_capacity(self.chunk)),
            }
            bytes = &bytes[fit..];
        }
        Ok(())
    }

    /// Every super-k-mer of a virtual partition, in ascending order of sources. The memory is freed on the way.
    pub fn drain(&mut self, _sub: usize, mut each: impl FnMut(u32, Record<'_>)) {
        for (source, chunks) in self.sources.iter_mut().enumerate() {
            for chunk in std::mem::take(chunks) {
                let mut rest = &chunk[..];
                while let [a, b, body @ ..] = rest {
                    let header = u16::from_le_bytes([*a, *b]);
                    let kmers = header as usize & MAX_KMERS;
                    let (bases, more) = body.split_at(packed::bytes_for(kmers + self.k - 1));
                    each(source as u32, Record { flags: header & !(MAX_KMERS as u16), kmers, bases });
                    rest = more;
                }
            }
        }
    }
}

/// The k-mers of a super-k-mer with their marks, which are for the canonical text.
#[inline]
pub fn marked_kmers<W: Word>(record: Record<'_>, k: usize, mut each: impl FnMut(Oriented<W>, u8)) {
    const ALL: u8 = LOCAL_LEFT | LOCAL_RIGHT | OWNED;
    let Record { flags, kmers, bases } = record;
    let mut kmer = Oriented::new(packed::word(bases, 0, k - 1), k);
    for index in 0..kmers {
        kmer = kmer.right(packed::get(bases, index + k - 1), k);
        let mut marks = ALL;
        if index == 0 && flags & LEFT_FOREIGN != 0 {
            marks &= if flags & LEFT_OWNED != 0 { !LOCAL_LEFT } else { !(LOCAL_LEFT | OWNED) };
        }
        if index == kmers - 1 && flags & RIGHT_FOREIGN != 0 {
            marks &= if flags & RIGHT_OWNED != 0 { !LOCAL_RIGHT } else { !(LOCAL_RIGHT | OWNED) };
        }
        if !kmer.is_canonical() {
            marks = (marks & OWNED) | ((marks & LOCAL_LEFT) << 1) | ((marks & LOCAL_RIGHT) >> 1);
        }
        each(kmer, marks);
    }
}
