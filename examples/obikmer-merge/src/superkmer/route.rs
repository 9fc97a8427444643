//! The index phase's messages: super-k-mers to their partitions, in bounded rounds.
//!
//! Every rank gathers at most a [window](crate::superkmer::window) of bytes, then all exchange. A rank whose
//! input is at an end takes part until nobody has more. Whether a rank has more, or has failed, travels with
//! the data, so that no round is spent on it.

use bdrun_worker::Communicator;

use crate::error::{Error, Result, agree};
use crate::sequence::minimizer::Partitions;
use crate::superkmer::cut::Sink;
use crate::superkmer::store::Store;
use crate::superkmer::window::Window;

const MORE: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// Most bytes gathered: places in a window are counted in 32 bits, in bases.
const MOST: usize = 256 << 20;

/// Bytes a rank gathers before it exchanges. An exchange costs a message between any two ranks, so the more
/// ranks the larger: up to 64 KiB for each, but at least what makes the sections' headers cheap, and at most
/// what stays near the cache. A window's buffers take three to four times its bytes, and those of several
/// ranks must fit into the budget.
pub fn window(ranks: usize, budget: Option<u64>) -> usize {
    let most = (ranks as u64 * (64 << 10)).clamp(2 << 20, 8 << 20);
    budget.map_or(most, |b| (b / 128).clamp(256 << 10, most)) as usize
}

/// Gathers super-k-mers for all partitions and keeps what comes for this one.
pub struct Router<'a> {
    comm: &'a Communicator,
    most: usize,
    window: Window,
    /// What has come.
    pub store: Store,
    /// Exchanges so far.
    pub rounds: usize,
    /// What was wrong with what came in the last one: only this rank knows, until the next.
    failed: Option<Error>,
    over: bool,
}

impl<'a> Router<'a> {
    /// A router with windows of so many bytes.
    pub fn new(
        comm: &'a Communicator,
        partitions: Partitions,
        k: usize,
        store: Store,
        window: usize,
    ) -> Self {
        let (most, window) = (window.min(MOST), Window::new(k, partitions, comm.rank()));
        Self { comm, most, window, store, rounds: 0, failed: None, over: false }
    }

    /// What follows is of this source.
    pub fn set_source(&mut self, source: u32) {
        self.window.set_source(source);
    }

    /// The end of this rank's input, or its failure: exchange until all ranks are done. What has come, and
    /// the number of exchanges; an inner error is known only to this rank, an outer one to all.
    pub fn finish(mut self, input: Result<()>) -> Result<(Result<Store>, usize)> {
        if self.over {
            // The failure came out of an exchange: all ranks know of it.
            return Err(input.err().unwrap_or_else(|| Error::Internal("the exchange is over".into())));
        }
        if input.is_err() {
            self.exchange(FAILED, input)?;
        }
        while !self.exchange(DONE, Ok(()))? {}
        Ok((self.failed.map_or(Ok(self.store), Err), self.rounds))
    }

    /// One round. `true` when no rank has more.
    fn exchange(&mut self, status: u8, mine: Result<()>) -> Result<bool> {
        let result = match self.failed.take() {
            Some(error) => self.exchange_data(FAILED, Err(error)),
            None => self.exchange_data(status, mine),
        };
        self.over |= result.is_err();
        self.rounds += 1;
        result
    }

    fn exchange_data(&mut self, status: u8, mine: Result<()>) -> Result<bool> {
        let messages = self.window.take(status);
        let (data, counts) = self.comm.alltoallv(messages.data, messages.counts)?;
        let mut at = 0;
        let starts = counts.iter().map(|&count| {
            at += count;
            (count > 0).then(|| at - count)
        });
        let starts: Vec<Option<usize>> = starts.collect();
        let statuses = || starts.iter().map(|start| start.map_or(FAILED, |at| data[at]));
        if statuses().any(|s| s == FAILED) {
            agree(self.comm, mine)?;
            return Err(Error::Internal("a rank failed without an error".into()));
        }
        let done = statuses().all(|s| s == DONE);
        let own = self.store.add(messages.own.to_vec(), &[messages.own.len()], 0);
        self.failed = own.and_then(|()| self.store.add(data, &counts, 1)).err();
        Ok(done)
    }
}

impl Sink for Router<'_> {
    type Error = Error;

    fn run(&mut self, codes: &[u8]) {
        self.window.run(codes);
    }

    #[inline]
    fn super_kmer(&mut self, virtual_partition: usize, first: usize, header: u16) {
        self.window.super_kmer(virtual_partition, first, header);
    }

    fn slice_done(&mut self) -> Result<()> {
        if self.window.bytes() >= self.most {
            self.exchange(MORE, Ok(()))?;
        }
        Ok(())
    }
}
