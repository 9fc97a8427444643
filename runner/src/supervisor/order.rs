//! `--keep-order`: what ranks write before it is their turn, held back.
//!
//! It is the turn of the lowest rank that has not ended. What those behind it write is collected in small buffers and, beyond
//! [`MEMORY`] in all, in one file that the job has for it; so memory stays bounded however much they write and however
//! many they are, and a single descriptor does for all of them.

use super::Stream;
use nix::fcntl::{FallocateFlags, fallocate};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What a stream collects before it goes to the file, in bytes.
const CHUNK: usize = 64 << 10;
/// The same once memory is used up: so small that even thousands of streams cost little, so large that the list of places
/// in the file does not.
const LEAST: usize = 4 << 10;
/// What all streams may hold in memory, in bytes; more only by [`LEAST`] for each.
const MEMORY: usize = 8 << 20;
/// What is read back at once.
const READ: u64 = 256 << 10;

/// What a stream of a rank has written too early.
#[derive(Default)]
pub(super) struct Held {
    /// That of the stream, see [`super::sink::Line`].
    pub(super) key: u64,
    /// Place and length in the file, in order.
    extents: VecDeque<(u64, u64)>,
    /// What follows.
    tail: Vec<u8>,
}

/// Whose turn it is, and what is held back.
pub(super) struct Order {
    turn: u32,
    /// Ranks behind it that have ended.
    over: BTreeSet<u32>,
    /// Ranks whose next end is not their last.
    retried: BTreeSet<u32>,
    held: BTreeMap<u32, [Held; 2]>,
    memory: usize,
    file: File,
    /// Where the file ends, and how much of it is still to be read.
    end: u64,
    stored: u64,
    failed: bool,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.tail.is_empty()
    }
}

impl Order {
    /// With an empty file of its own.
    pub(super) fn new(file: File) -> Self {
        Self {
            turn: 0,
            over: BTreeSet::new(),
            retried: BTreeSet::new(),
            held: BTreeMap::new(),
            memory: 0,
            file,
            end: 0,
            stored: 0,
            failed: false,
        }
    }

    /// Whether what this rank writes now is to be forwarded at once.
    pub(super) fn is_due(&self, rank: u32) -> bool {
        rank <= self.turn
    }

    /// Holds back what a rank has written. After an error everything is discarded, and no further error comes.
    pub(super) fn keep(&mut self, rank: u32, stream: Stream, key: u64, bytes: &[u8]) -> io::Result<()> {
        if self.failed || bytes.is_empty() {
            return Ok(());
        }
        let held = &mut self.held.entry(rank).or_default()[stream as usize];
        held.key = key;
        held.tail.extend_from_slice(bytes);
        self.memory += bytes.len();
        let most = if self.memory > MEMORY { LEAST } else { CHUNK };
        if held.tail.len() < most { Ok(()) } else { self.put_away(rank, stream) }
    }

    /// From memory to the file.
    fn put_away(&mut self, rank: u32, stream: Stream) -> io::Result<()> {
        let Some(streams) = self.held.get_mut(&rank) else { return Ok(()) };
        let held = &mut streams[stream as usize];
        let tail = std::mem::take(&mut held.tail);
        self.memory -= tail.len();
        if let Err(error) = self.file.write_all_at(&tail, self.end) {
            self.failed = true;
            return Err(error);
        }
        match held.extents.back_mut() {
            Some((place, length)) if *place + *length == self.end => *length += tail.len() as u64,
            _ => held.extents.push_back((self.end, tail.len() as u64)),
        }
        self.end += tail.len() as u64;
        self.stored += tail.len() as u64;
        Ok(())
    }

    /// A rank has ended and all it had written is here, or it will never write. Returns the ranks whose turn it is now, in
    /// order, with whether they have ended.
    pub(super) fn ended(&mut self, rank: u32) -> io::Result<Vec<(u32, bool)>> {
        if self.retried.remove(&rank) {
            return self.forget(rank).map(|()| Vec::new());
        }
        if rank < self.turn {
            return Ok(Vec::new());
        }
        if rank > self.turn {
            self.over.insert(rank);
            if self.memory > MEMORY {
                self.put_away(rank, Stream::Stdout)?;
                self.put_away(rank, Stream::Stderr)?;
            }
            return Ok(Vec::new());
        }
        let mut due = Vec::new();
        loop {
            self.turn += 1;
            let over = self.over.remove(&self.turn);
            due.push((self.turn, over));
            if !over {
                return Ok(due);
            }
        }
    }

    /// From now on it is everybody's turn; returns those of whom something is held.
    pub(super) fn all_due(&mut self) -> Vec<u32> {
        self.turn = u32::MAX;
        self.held.keys().copied().collect()
    }

    /// Takes out what is held of a rank, by stream.
    pub(super) fn take(&mut self, rank: u32) -> impl Iterator<Item = (Stream, Held)> + use<> {
        let streams = self.held.remove(&rank).unwrap_or_default();
        self.memory -= streams.iter().map(|held| held.tail.len()).sum::<usize>();
        [Stream::Stdout, Stream::Stderr].into_iter().zip(streams).filter(|(_, held)| !held.is_empty())
    }

    /// Gives what was held to `each`, piece by piece, and its room in the file back.
    pub(super) fn play(&mut self, held: Held, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let mut buffer = Vec::new();
        for (place, length) in held.extents {
            let mut at = place;
            while at < place + length {
                let count = (place + length - at).min(READ);
                buffer.resize(count as usize, 0);
                self.file.read_exact_at(&mut buffer, at)?;
                each(&buffer);
                at += count;
            }
            self.free(place, length)?;
        }
        each(&held.tail);
        Ok(())
    }

    /// Nobody needs this part of the file any more.
    fn free(&mut self, place: u64, length: u64) -> io::Result<()> {
        // Where the file system cannot, the room is given back when nothing at all is needed any more.
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let _ = fallocate(&self.file, punch, place as libc::off_t, length as libc::off_t);
        self.stored -= length;
        if self.stored == 0 {
            self.end = 0;
            self.file.set_len(0)?;
        }
        Ok(())
    }

    /// The process of this rank that ends next is not its last.
    pub(super) fn will_retry(&mut self, rank: u32) {
        self.retried.insert(rank);
    }

    /// What a rank had written that is to run again is forgotten.
    fn forget(&mut self, rank: u32) -> io::Result<()> {
        for (_, held) in self.take(rank) {
            for (place, length) in held.extents {
                self.free(place, length)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
