//! A part as it lies in a seat, or the result of a phase.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::{FAR, INLINE_PART};
use crate::mail::{Mail, Place};
use crate::segment::Segment;
use crate::{Error, Result};

/// A part: length, and the bytes themselves or where they are.
#[repr(C, align(8))]
pub(super) struct Deposit {
    pub(super) len: AtomicU64,
    pub(super) words: [AtomicU64; INLINE_PART / 8],
}

impl Deposit {
    pub(super) fn put(&self, segment: &Segment, mail: &Mail, pieces: &[&[u8]]) -> Result<()> {
        let len: usize = pieces.iter().map(|p| p.len()).sum();
        if len <= INLINE_PART {
            let mut bytes = [0u8; INLINE_PART];
            let mut at = 0;
            for piece in pieces {
                bytes[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            for (word, chunk) in self.words.iter().zip(bytes.chunks_exact(8)) {
                word.store(u64::from_le_bytes(chunk.try_into().unwrap_or_default()), SeqCst);
            }
        } else {
            let [kind, offset] = mail.put(segment, pieces)?.to_words();
            self.words[0].store(kind, SeqCst);
            self.words[1].store(offset, SeqCst);
        }
        self.len.store(len as u64, SeqCst);
        Ok(())
    }

    /// By the gateway: a part of `len` bytes that lies elsewhere, and its beginning.
    pub(super) fn put_far(&self, segment: &Segment, mail: &Mail, len: u64, head: &[u8]) -> Result<()> {
        if head.len() as u64 >= len {
            return self.put(segment, mail, &[head]);
        }
        let [kind, offset] = mail.put(segment, &[head])?.to_words();
        self.words[0].store(kind | FAR, SeqCst);
        self.words[1].store(offset, SeqCst);
        self.words[2].store(head.len() as u64, SeqCst);
        self.len.store(len.max(INLINE_PART as u64 + 1), SeqCst);
        Ok(())
    }

    /// So many of the first bytes are on this node.
    pub(super) fn near(&self) -> u64 {
        let len = self.len.load(SeqCst);
        let is_far = len > INLINE_PART as u64 && self.words[0].load(SeqCst) & FAR != 0;
        if is_far { self.words[2].load(SeqCst).min(len) } else { len }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(SeqCst) as usize
    }

    pub(super) fn place(&self) -> Place {
        let words = [self.words[0].load(SeqCst), self.words[1].load(SeqCst)];
        Place::from_words(words, self.near())
    }

    pub(super) fn get(&self, segment: &Segment, mail: &Mail, offset: usize, into: &mut [u8]) -> Result<()> {
        // Read once: another process may write there at any time.
        let len = self.len();
        if len > INLINE_PART {
            return mail.get(segment, &self.place(), offset as u64, into);
        }
        let mut bytes = [0u8; INLINE_PART];
        for (word, chunk) in self.words.iter().zip(bytes.chunks_exact_mut(8)) {
            chunk.copy_from_slice(&word.load(SeqCst).to_le_bytes());
        }
        match bytes[..len].get(offset..).and_then(|rest| rest.get(..into.len())) {
            Some(part) => {
                into.copy_from_slice(part);
                Ok(())
            }
            None => Err(Error::Damaged("read past the end of a part".into())),
        }
    }

    pub(super) fn free(&self, segment: &Segment, mail: &Mail) {
        if self.len() > INLINE_PART {
            mail.release(segment, &self.place());
        }
        self.len.store(0, SeqCst);
    }
}
