//! `--keep-order`: what ranks write before it is their turn, held back.
//!
//! It is the turn of the lowest rank that has not ended for good: whether it has, and is not run again, is
//! the job's to say. What those behind it write is collected in small
//! buffers and, beyond [`MEMORY`] in all, in the one file that the job has for it (`spool.rs`); so memory
//! stays bounded however much they write and however many they are, and a single descriptor does for all of
//! them.

use super::Stream;
use super::spool::{Extents, Spool};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// What a stream collects before it goes to the file, in bytes.
const CHUNK: usize = 64 << 10;
/// The same once memory is used up: so small that even thousands of streams cost little, so large that the
/// list of places in the file does not.
pub(super) const LEAST: usize = 4 << 10;
/// What all streams may hold in memory, in bytes; more only by [`LEAST`] for each.
pub(super) const MEMORY: usize = 8 << 20;

/// What a stream of a rank has written too early.
#[derive(Default)]
pub(super) struct Held {
    /// That of the stream, see [`super::sink::Line`].
    pub(super) key: u64,
    /// In the file.
    extents: Extents,
    /// What follows.
    tail: Vec<u8>,
}

/// Whose turn it is, and what is held back.
pub(super) struct Order {
    turn: u32,
    /// Ranks behind it that have ended.
    over: BTreeSet<u32>,
    held: BTreeMap<u32, [Held; 2]>,
    memory: usize,
    spool: Spool,
    failed: bool,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.tail.is_empty()
    }
}

impl Order {
    /// With this file for what does not fit memory.
    pub(super) fn new(spool: Spool) -> Self {
        Self { turn: 0, over: BTreeSet::new(), held: BTreeMap::new(), memory: 0, spool, failed: false }
    }

    /// Whether what this rank writes now is to be forwarded at once.
    pub(super) fn is_due(&self, rank: u32) -> bool {
        rank <= self.turn
    }

    /// Holds back what a rank has written. After an error everything is discarded, and no further error
    /// comes.
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
        let put = self.spool.put(&mut held.extents, &tail);
        self.failed |= put.is_err();
        put
    }

    /// A rank has ended for good and all it had written is here, or it will never write. Returns the ranks
    /// whose turn it is now, in order, with whether they have ended.
    pub(super) fn ended(&mut self, rank: u32) -> io::Result<Vec<(u32, bool)>> {
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
    pub(super) fn play(&self, held: Held, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.spool.play(held.extents, &mut each)?;
        each(&held.tail);
        Ok(())
    }

    /// What a rank had written that is to run again is forgotten.
    pub(super) fn forget(&mut self, rank: u32) -> io::Result<()> {
        for (_, held) in self.take(rank) {
            self.spool.forget(held.extents)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
