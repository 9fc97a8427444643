//! What lies on scratch: payloads, each with a checksum of every [`BLOCK`] behind its last byte. A disk does
//! not always give back what it was given, and says so even less often; a payload in RAM has no checksums.
//!
//! A checksum is that of the block's bytes and of where it lies, so that another block in its place is
//! noticed too. What is read is compared before anybody has it: of a block that is wanted in part all is
//! read.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use rustix::io::{Errno, pread};
use twox_hash::XxHash3_64;

use super::{PAGE, write_all};
use crate::error::of_the_system;
use crate::{Error, Result};

/// Bytes for which there is a checksum; fewer at a payload's end. Whoever writes a payload in pieces cuts it
/// between two blocks.
pub const BLOCK: u64 = 4096;

/// Checksums that are read or written at a time: they lie on the stack, as nothing may be allocated here.
const SUMS: usize = 256;

/// Bytes that are copied and written at a time, of so many blocks that [`SUMS`] is a multiple: they lie on
/// the stack as well, of whichever thread sends.
const COPIED: usize = 8 * BLOCK as usize;

type Sum = [u8; size_of::<u64>()];

/// Bytes of the checksums of a payload of `len` bytes.
pub(super) fn sums_of(len: u64) -> u64 {
    len.div_ceil(BLOCK) * size_of::<Sum>() as u64
}

/// The checksum of a block at this place of the file.
fn sum_of(block: &[u8], at: u64) -> Sum {
    (XxHash3_64::oneshot(block) ^ at).to_le_bytes()
}

/// Where the next payload of the spill file lies, and how many lie there: one word, so that no payload gets
/// a place between the end of the last one and the new beginning. Lies in the segment's header.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Spill(pub(super) AtomicU64);

impl Spill {
    /// Bits for the next page; those above count payloads, of which there are fewer than 2^24 messages and
    /// what collectives hold.
    pub(super) const PAGE_BITS: u32 = 36;
    /// Where there is nothing left, until the file is empty once more: no call takes such an offset.
    pub(super) const NOWHERE: u64 = 1 << 63;

    /// Room for `bytes`, whole pages, more; where.
    pub(super) fn begin(&self, bytes: u64) -> u64 {
        let mut offset = Self::NOWHERE;
        let _ = self.0.fetch_update(SeqCst, SeqCst, |word| {
            let first = word & ((1 << Self::PAGE_BITS) - 1);
            let fits = (first + bytes / PAGE) >> Self::PAGE_BITS == 0;
            offset = if fits { first * PAGE } else { Self::NOWHERE };
            Some(word + (1 << Self::PAGE_BITS) + if fits { bytes / PAGE } else { 0 })
        });
        offset
    }

    /// A payload is gone. Where it was the last one the file begins anew.
    pub(super) fn end(&self) {
        let _ = self.0.fetch_update(SeqCst, SeqCst, |word| match word >> Self::PAGE_BITS {
            0 => None, // told twice, by a process that is broken
            1 => Some(0),
            _ => Some(word - (1 << Self::PAGE_BITS)),
        });
    }
}

/// A payload on scratch. Where it is said to lie another process may have written: no call takes an offset
/// that is too large.
pub(super) struct Spilled<'a> {
    pub file: &'a OwnedFd,
    pub at: u64,
    pub len: u64,
}

impl Spilled<'_> {
    /// Writes whole blocks, from `offset` on, and their checksums. All is within the payload. Both are of one
    /// copy: a program that changes what it sends meanwhile breaks MPI's rules, but has damaged no file.
    pub fn write(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let end = offset + len;
        if !offset.is_multiple_of(BLOCK) || end != self.len && !end.is_multiple_of(BLOCK) {
            return Err(Error::Damaged(format!(
                "a message that is cut within a block, at {offset} or {end}"
            )));
        }
        let failed = |errno| match errno {
            Errno::NOSPC | Errno::DQUOT => Error::ScratchFull { bytes: len },
            errno => self.failed("write a message to", offset, of_the_system(errno)),
        };
        let mut rest = Rest { pieces: pieces.iter(), now: &[] };
        let (mut sums, mut buffer) = ([Sum::default(); SUMS], [0; COPIED]);
        let mut at = offset;
        while at < end {
            let (first, mut count) = (at, 0);
            while at < end && count < SUMS {
                let copied = rest.copy(&mut buffer);
                write_all(self.file, &[copied], self.at.saturating_add(at)).map_err(failed)?;
                for block in copied.chunks(BLOCK as usize) {
                    sums[count] = sum_of(block, self.at.wrapping_add(at));
                    (at, count) = (at + block.len() as u64, count + 1);
                }
            }
            write_all(self.file, &[sums[..count].as_flattened()], self.sum_at(first)).map_err(failed)?;
        }
        Ok(())
    }

    /// Reads bytes from `offset` on. All are within the payload. After an error nothing of `into` is to be
    /// used.
    pub fn read(&self, mut offset: u64, mut into: &mut [u8]) -> Result<()> {
        while !into.is_empty() {
            let skip = (offset % BLOCK) as usize;
            // Whole blocks go where they are wanted; of another one a part is copied there.
            let ends = offset + into.len() as u64 == self.len;
            let wanted = if ends { into.len() } else { into.len() / BLOCK as usize * BLOCK as usize };
            let whole = if skip == 0 { wanted.min(SUMS * BLOCK as usize) } else { 0 };
            let count = if whole > 0 {
                self.read_blocks(offset, &mut into[..whole])?;
                whole
            } else {
                self.read_part(offset, skip, into)?
            };
            (offset, into) = (offset + count as u64, &mut into[count..]);
        }
        Ok(())
    }

    /// The same of one block; how many bytes of it were wanted.
    fn read_part(&self, offset: u64, skip: usize, into: &mut [u8]) -> Result<usize> {
        let mut buffer = [0; BLOCK as usize];
        let begin = offset - skip as u64;
        let block = &mut buffer[..BLOCK.min(self.len - begin) as usize];
        self.read_blocks(begin, block)?;
        let count = into.len().min(block.len() - skip);
        into[..count].copy_from_slice(&block[skip..][..count]);
        Ok(count)
    }

    /// The same of whole blocks, [`SUMS`] at most.
    fn read_blocks(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut sums = [Sum::default(); SUMS];
        let sums = &mut sums[..into.len().div_ceil(BLOCK as usize)];
        self.read_all(offset, self.sum_at(offset), sums.as_flattened_mut())?;
        self.read_all(offset, self.at.saturating_add(offset), into)?;
        let mut at = offset;
        for (block, sum) in into.chunks(BLOCK as usize).zip(sums) {
            if *sum != sum_of(block, self.at.wrapping_add(at)) {
                let damaged = "a block was damaged: its checksum does not match";
                let damaged = io::Error::new(io::ErrorKind::InvalidData, damaged);
                return Err(self.failed("read a message from", at, damaged));
            }
            at += BLOCK;
        }
        Ok(())
    }

    fn read_all(&self, offset: u64, at: u64, into: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < into.len() {
            let source = match pread(self.file, &mut into[done..], at.saturating_add(done as u64)) {
                Ok(0) => io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before it"),
                Ok(n) => {
                    done += n;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(errno) => of_the_system(errno),
            };
            return Err(self.failed("read a message from", offset, source));
        }
        Ok(())
    }

    /// Where the checksum of the block at `offset` lies.
    fn sum_at(&self, offset: u64) -> u64 {
        self.at.saturating_add(self.len).saturating_add(sums_of(offset))
    }

    fn failed(&self, what: &'static str, offset: u64, source: io::Error) -> Error {
        let offset = self.at.saturating_add(offset);
        Error::Scratch { what, directory: directory_of(self.file), offset, source }
    }
}

/// What the user calls the place where a file lies that has no name any more.
fn directory_of(file: &OwnedFd) -> PathBuf {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let directory = link.ok().and_then(|path| path.parent().map(Path::to_path_buf));
    directory.unwrap_or_else(|| "the scratch directory".into())
}

/// What of a payload's pieces is not written yet.
struct Rest<'a> {
    pieces: std::slice::Iter<'a, &'a [u8]>,
    now: &'a [u8],
}

impl Rest<'_> {
    /// Copies the next bytes: as many as there is room for, or all.
    fn copy<'b>(&mut self, to: &'b mut [u8; COPIED]) -> &'b [u8] {
        let mut filled = 0;
        loop {
            let (front, rest) = self.now.split_at(self.now.len().min(COPIED - filled));
            to[filled..][..front.len()].copy_from_slice(front);
            (filled, self.now) = (filled + front.len(), rest);
            if filled == COPIED {
                return to;
            }
            let Some(next) = self.pieces.next() else { return &to[..filled] };
            self.now = next;
        }
    }
}
