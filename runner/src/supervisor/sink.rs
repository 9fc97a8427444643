//! One output stream of the master, into which the lines of many ranks go.
//!
//! Lines are collected in a buffer and written in one call per wake-up of the output thread. A line is put
//! there only when it is whole. What is longer than [`LONGEST_LINE`] waits for its end in the [`Spool`], so
//! that nobody waits for it and nothing gets into it; what is longer than [`LEAST`], once all that wait hold
//! more than [`MEMORY`] (a thousand programs that draw a bar and never end the line). The last line of a rank
//! that has no end is written when the rank ends, and is given one if something of another follows; on a
//! stream to which others write who do not know of that (bdrun itself), at once.
//!
//! A *raw* stream knows no lines: bytes are written as they come, and nothing is added. For a single rank,
//! and for ranks that are heard one after another (`--keep-order` without tags).

use super::order::{LEAST, MEMORY};
use super::spool::{Extents, Spool};
use super::{AroundWrite, Stream, sys};
use std::io::{self, BufRead};
use std::os::fd::OwnedFd;

/// What is longer waits in the spool, in pieces of this length.
pub(super) const LONGEST_LINE: usize = 1 << 20;
/// What is collected before a write.
const BUFFER: usize = 512 << 10;
/// What must be free for a read from a pipe.
pub(super) const READ: usize = 128 << 10;
/// A started line up to this length is copied in front of what is read next; a longer one is appended to.
const SHORT_START: usize = 4 << 10;

/// The part of a stream of a rank that is not yet a whole line.
pub(super) struct Line {
    /// Unique among all streams of all ranks.
    pub(super) key: u64,
    /// `[rank] `, or empty.
    pub(super) prefix: Vec<u8>,
    /// Of a long one: what comes before `start`.
    stored: Extents,
    start: Vec<u8>,
}

impl Line {
    pub(super) fn new(key: u64, prefix: Vec<u8>) -> Self {
        Self { key, prefix, stored: Extents::default(), start: Vec::new() }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if bytes.is_empty() && self.start.capacity() > SHORT_START {
            self.start = Vec::new();
        }
        self.start.extend_from_slice(bytes);
    }
}

/// What a read from a pipe gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// So many bytes.
    Bytes(usize),
    /// Nothing at the moment.
    Nothing,
    /// The end of the stream, or an error that is one.
    End,
}

/// How a stream is written.
#[derive(Clone, Default)]
pub(super) struct Manner {
    /// Bytes as they come.
    pub(super) raw: bool,
    /// The last line of a rank is ended with the rank, whatever follows.
    pub(super) ends_lines: bool,
    /// For long lines. Without, they are written as they come, and broken where another writes: for lines of
    /// ranks that are heard one after another.
    pub(super) spool: Option<Spool>,
    pub(super) around_write: Option<AroundWrite>,
}

/// The stream and what is to be written to it.
pub(super) struct Sink {
    fd: OwnedFd,
    pub(super) stream: Stream,
    manner: Manner,
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes that are held for lines that have begun.
    started: usize,
    /// What stands at the end of the stream is an unfinished line of this key.
    open: Option<u64>,
    failed: Option<io::Error>,
    discard: bool,
    /// Why a long line could not wait.
    unheld: Option<io::Error>,
}

impl Sink {
    pub(super) fn new(fd: OwnedFd, stream: Stream, manner: Manner) -> Self {
        let buffer = vec![0; BUFFER];
        let (open, failed, unheld) = (None, None, None);
        Self { fd, stream, manner, buffer, filled: 0, started: 0, open, failed, discard: false, unheld }
    }

    /// Reads once from a pipe and takes over what are whole lines.
    pub(super) fn read_from(&mut self, pipe: &OwnedFd, line: &mut Line) -> Got {
        self.started -= line.start.capacity();
        let got = self.read_lines(pipe, line);
        self.hold(line);
        got
    }

    fn read_lines(&mut self, pipe: &OwnedFd, line: &mut Line) -> Got {
        if BUFFER - self.filled < READ + SHORT_START + 1 {
            self.flush();
        }
        if self.manner.raw {
            let got = read(pipe, &mut self.buffer[self.filled..self.filled + READ]);
            self.filled += if let Got::Bytes(n) = got { n } else { 0 };
            return got;
        }
        if line.prefix.is_empty() && line.stored.is_empty() && line.start.len() <= SHORT_START {
            return self.read_in_place(pipe, line);
        }
        let mut scratch = std::mem::take(&mut line.start);
        let old = scratch.len();
        scratch.resize(old + READ, 0);
        let got = read(pipe, &mut scratch[old..]);
        scratch.truncate(old + if let Got::Bytes(n) = got { n } else { 0 });
        if matches!(got, Got::Bytes(_)) {
            self.take(scratch, old, line);
        } else {
            line.start = scratch;
        }
        got
    }

    /// The fast way: reads into the buffer itself, behind the started line.
    fn read_in_place(&mut self, pipe: &OwnedFd, line: &mut Line) -> Got {
        let begin = self.filled;
        let interrupts = self.open.is_some_and(|key| key != line.key);
        let at = begin + usize::from(interrupts);
        let fresh = at + line.start.len();
        let got = read(pipe, &mut self.buffer[fresh..fresh + READ]);
        let Got::Bytes(n) = got else { return got };
        let end = fresh + n;
        let last = self.buffer[fresh..end].iter().rposition(|&byte| byte == b'\n');
        let whole = match last {
            Some(at) => fresh + at + 1,
            None if self.open == Some(line.key) => end,
            None => {
                line.start.extend_from_slice(&self.buffer[fresh..end]);
                return got;
            }
        };
        if interrupts {
            self.buffer[begin] = b'\n';
        }
        self.buffer[at..fresh].copy_from_slice(&line.start);
        line.start.clear();
        line.keep(&self.buffer[whole..end]);
        self.filled = whole;
        self.open = (self.buffer[whole - 1] != b'\n').then_some(line.key);
        got
    }

    /// Takes over bytes that were read before.
    pub(super) fn feed(&mut self, bytes: &[u8], line: &mut Line) {
        if self.manner.raw {
            return self.put(bytes);
        }
        let mut joined = std::mem::take(&mut line.start);
        self.started -= joined.capacity();
        let old = joined.len();
        joined.extend_from_slice(bytes);
        self.take(joined, old, line);
        self.hold(line);
    }

    /// What a line has begun with now, in memory if there is room for it.
    fn hold(&mut self, line: &mut Line) {
        let crowded = self.started > MEMORY && self.manner.spool.is_some();
        if line.start.len() >= if crowded { LEAST } else { LONGEST_LINE } {
            let part = std::mem::take(&mut line.start);
            self.store(&part, line);
        } else if crowded {
            line.start.shrink_to(LEAST);
        }
        self.started += line.start.capacity();
    }

    /// Takes over the whole lines of `bytes`, of which the first `old` are known to hold no newline.
    fn take(&mut self, bytes: Vec<u8>, old: usize, line: &mut Line) {
        let mut rest = &bytes[..];
        if let Some(last) = bytes[old..].iter().rposition(|&byte| byte == b'\n') {
            let (whole, tail) = bytes.split_at(old + last + 1);
            rest = tail;
            self.put_stored(line);
            if line.prefix.is_empty() {
                self.begin(line);
                self.put(whole);
            } else {
                self.put_lines(whole, line);
            }
            self.open = None;
        }
        if self.open == Some(line.key) && !rest.is_empty() {
            self.put(rest);
            line.start = Vec::new();
        } else if rest.len() == bytes.len() {
            line.start = bytes;
        } else {
            line.keep(rest);
        }
    }

    /// A part of a long line waits for the end of it.
    fn store(&mut self, part: &[u8], line: &mut Line) {
        if let Some(spool) = &self.manner.spool {
            match spool.put(&mut line.stored, part) {
                Ok(()) => return,
                Err(error) => self.unheld = Some(error),
            }
        }
        self.put_stored(line);
        self.begin(line);
        self.put(part);
        self.open = Some(line.key);
    }

    /// Writes what waited of a line.
    fn put_stored(&mut self, line: &mut Line) {
        if line.stored.is_empty() {
            return;
        }
        self.begin(line);
        self.open = Some(line.key);
        let stored = std::mem::take(&mut line.stored);
        if let Some(spool) = self.manner.spool.clone()
            && let Err(error) = spool.play(stored, |bytes| self.put(bytes))
        {
            self.unheld = Some(error);
        }
    }

    /// Each line with its prefix.
    fn put_lines(&mut self, mut whole: &[u8], line: &Line) {
        while !whole.is_empty() {
            let mut cursor = whole;
            // Finds the newline as fast as the standard library can.
            let length = cursor.skip_until(b'\n').unwrap_or(whole.len());
            let (first, others) = whole.split_at(length);
            self.begin(line);
            self.put(first);
            self.open = None;
            whole = others;
        }
    }

    /// Before a part of a line: ends the unfinished line of another, writes the prefix of a new one.
    fn begin(&mut self, line: &Line) {
        if self.open == Some(line.key) {
            return;
        }
        if self.open.take().is_some() {
            self.put(b"\n");
        }
        self.put(&line.prefix);
    }

    /// The stream of a rank ends, and with it its last line.
    pub(super) fn end(&mut self, line: &mut Line) {
        self.put_stored(line);
        let start = std::mem::take(&mut line.start);
        self.started -= start.capacity();
        if !start.is_empty() {
            self.begin(line);
            self.put(&start);
            self.open = Some(line.key);
        }
        if self.open == Some(line.key) && self.manner.ends_lines {
            self.put(b"\n");
            self.open = None;
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > BUFFER - self.filled {
            self.flush();
            if bytes.len() > BUFFER {
                self.write(bytes);
                return;
            }
        }
        self.buffer[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Writes what is collected.
    pub(super) fn flush(&mut self) {
        if self.filled == 0 {
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let filled = std::mem::take(&mut self.filled);
        self.write(&buffer[..filled]);
        self.buffer = buffer;
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.discard {
            return;
        }
        let mut result = Ok(());
        match self.manner.around_write.clone() {
            None => result = write_all(&self.fd, bytes),
            Some(around) => around(&mut || result = write_all(&self.fd, bytes)),
        }
        if let Err(error) = result {
            self.discard = true;
            self.failed = Some(error);
        }
    }

    /// The error after which everything is discarded, once.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    /// Why a long line could not wait for its end, or is lost.
    pub(super) fn take_unheld(&mut self) -> Option<io::Error> {
        self.unheld.take()
    }
}

pub(super) fn read(pipe: &OwnedFd, into: &mut [u8]) -> Got {
    loop {
        return match nix::unistd::read(pipe, into) {
            Ok(0) => Got::End,
            Ok(n) => Got::Bytes(n),
            Err(nix::Error::EINTR) => continue,
            Err(nix::Error::EAGAIN) => Got::Nothing,
            Err(_) => Got::End,
        };
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match nix::unistd::write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(nix::Error::EINTR) => {}
            // Somebody who shares our stdout has made it non-blocking.
            Err(nix::Error::EAGAIN) => sys::wait_writable(fd),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
