//! The index phase's messages: super-k-mers to their partitions, in bounded rounds.
//!
//! Every rank gathers at most a window of bytes, then all exchange. A rank whose input is at an end takes part until
//! nobody has more. Whether a rank has more, or has failed, travels with the data, so that no round is spent on it.

use bdrun_worker::Communicator;

use crate::cut::Sink;
use crate::error::{Error, Result, agree};
use crate::store::Store;

const MORE: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// Source, bytes.
const SECTION: usize = 8;

/// Bytes a rank gathers before it exchanges: a quarter of its share of the budget, within reason.
pub fn window(ranks: usize, budget: Option<u64>) -> usize {
    const LEAST: u64 = 64 << 10;
    const MOST: u64 = 4 << 20;
    budget.map_or(1 << 20, |b| (b / (4 * ranks as u64)).clamp(LEAST, MOST)) as usize
}

/// Gathers super-k-mers for all partitions and keeps what comes for this one.
pub struct Router<'a> {
    comm: &'a Communicator,
    window: usize,
    source: u32,
    buffers: Vec<Buffer>,
    /// What has come.
    pub store: Store,
    /// Exchanges so far.
    pub rounds: usize,
    over: bool,
}

/// What goes to one partition: sections of (source, length, super-k-mers), the last of which is open.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    section: Option<(u32, usize)>,
}

impl Buffer {
    fn close(&mut self) {
        if let Some((_, at)) = self.section.take() {
            let len = (self.bytes.len() - at - SECTION) as u32;
            self.bytes[at + 4..at + SECTION].copy_from_slice(&len.to_le_bytes());
        }
    }
}

impl<'a> Router<'a> {
    /// A router with windows of so many bytes.
    pub fn new(comm: &'a Communicator, store: Store, window: usize) -> Self {
        let buffers = std::iter::repeat_with(Buffer::default).take(comm.size()).collect();
        Self { comm, window, source: 0, buffers, store, rounds: 0, over: false }
    }

    /// What follows is of this source.
    pub fn set_source(&mut self, source: u32) {
        self.source = source;
    }

    /// The end of this rank's input, or its failure: exchange until all ranks are done.
    pub fn finish(mut self, input: Result<()>) -> Result<(Store, usize)> {
        if self.over {
            // The failure came out of an exchange: all ranks know of it.
            return Err(input.err().unwrap_or_else(|| Error::Internal("the exchange is over".into())));
        }
        if input.is_err() {
            self.exchange(FAILED, input)?;
        }
        while !self.exchange(DONE, Ok(()))? {}
        Ok((self.store, self.rounds))
    }

    /// One round. `true` when no rank has more.
    fn exchange(&mut self, status: u8, mine: Result<()>) -> Result<bool> {
        let result = self.exchange_data(status, mine);
        self.over |= result.is_err();
        self.rounds += 1;
        result
    }

    fn exchange_data(&mut self, status: u8, mine: Result<()>) -> Result<bool> {
        let mut data = Vec::with_capacity(self.buffers.iter().map(|b| b.bytes.len() + 1).sum());
        let mut counts = Vec::with_capacity(self.buffers.len());
        for buffer in &mut self.buffers {
            buffer.close();
            data.push(status);
            data.extend_from_slice(&buffer.bytes);
            counts.push(1 + buffer.bytes.len());
            buffer.bytes.clear();
        }
        let (data, counts) = self.comm.alltoallv(&data, &counts)?;
        let mut rest = &data[..];
        let mut parts = Vec::with_capacity(counts.len());
        for count in counts {
            let (part, more) = rest.split_at(count);
            parts.push(part);
            rest = more;
        }
        let statuses = || parts.iter().map(|p| p.first().copied().unwrap_or(FAILED));
        if statuses().any(|s| s == FAILED) {
            agree(self.comm, mine)?;
            return Err(Error::Internal("a rank failed without an error".into()));
        }
        for part in &parts {
            let mut rest = &part[1..];
            while !rest.is_empty() {
                let malformed = || Error::Internal("a malformed section arrived".into());
                let (header, body) = rest.split_at_checked(SECTION).ok_or_else(malformed)?;
                let word =
                    |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
                let (body, next) = body.split_at_checked(word(4) as usize).ok_or_else(malformed)?;
                self.store.append(0, word(0), body)?;
                rest = next;
            }
        }
        Ok(statuses().all(|s| s == DONE))
    }
}

impl Sink for Router<'_> {
    type Error = Error;

    #[inline]
    fn buffer(&mut self, to: usize) -> &mut Vec<u8> {
        let buffer = &mut self.buffers[to];
        if buffer.section.is_none_or(|(source, _)| source != self.source) {
            buffer.close();
            buffer.section = Some((self.source, buffer.bytes.len()));
            buffer.bytes.extend_from_slice(&self.source.to_le_bytes());
            buffer.bytes.extend_from_slice(&[0; 4]);
        }
        &mut buffer.bytes
    }

    fn slice_done(&mut self) -> Result<()> {
        if self.buffers.iter().map(|b| b.bytes.len()).sum::<usize>() >= self.window {
            self.exchange(MORE, Ok(()))?;
        }
        Ok(())
    }
}
