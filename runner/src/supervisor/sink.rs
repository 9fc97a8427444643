//! One output stream of the master, into which the lines of many ranks go.
//!
//! Lines are collected in a buffer and written in one call per wake-up of the output thread. A line is put there
//! only when it is whole. A line longer than [`LONGEST_LINE`] is passed on in parts; should another rank write to
//! the stream meanwhile, the long line is broken by a newline at that place (and continued as a new line), rather
//! than that everybody waits for its end, which may depend on them.

use super::{AroundWrite, Stream, sys};
use std::io::{self, BufRead};
use std::os::fd::OwnedFd;

/// Longer lines may be broken.
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
    start: Vec<u8>,
}

impl Line {
    pub(super) fn new(key: u64, prefix: Vec<u8>) -> Self {
        Self { key, prefix, start: Vec::new() }
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

/// The stream and what is to be written to it.
pub(super) struct Sink {
    fd: OwnedFd,
    pub(super) stream: Stream,
    pass_through: bool,
    buffer: Vec<u8>,
    filled: usize,
    /// What stands at the end of the stream is an unfinished line of this key.
    open: Option<u64>,
    failed: Option<io::Error>,
    discard: bool,
    around_write: Option<AroundWrite>,
}

impl Sink {
    pub(super) fn new(
        fd: OwnedFd,
        stream: Stream,
        pass_through: bool,
        around_write: Option<AroundWrite>,
    ) -> Self {
        let buffer = vec![0; BUFFER];
        Self {
            fd,
            stream,
            pass_through,
            buffer,
            filled: 0,
            open: None,
            failed: None,
            discard: false,
            around_write,
        }
    }

    /// Reads once from a pipe and takes over what are whole lines.
    pub(super) fn read_from(&mut self, pipe: &OwnedFd, line: &mut Line) -> Got {
        if BUFFER - self.filled < READ + SHORT_START + 1 {
            self.flush();
        }
        if line.prefix.is_empty() && line.start.len() <= SHORT_START {
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
            None if self.pass_through || self.open == Some(line.key) => end,
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
        let whole = if self.pass_through { end } else { whole };
        line.keep(&self.buffer[whole..end]);
        self.filled = whole;
        self.open = (self.buffer[whole - 1] != b'\n').then_some(line.key);
        got
    }

    /// Takes over bytes that were read before. Not together with `pass_through`.
    pub(super) fn feed(&mut self, bytes: &[u8], line: &mut Line) {
        let mut joined = std::mem::take(&mut line.start);
        let old = joined.len();
        joined.extend_from_slice(bytes);
        self.take(joined, old, line);
    }

    /// Takes over the whole lines of `bytes`, of which the first `old` are known to hold no newline.
    fn take(&mut self, bytes: Vec<u8>, old: usize, line: &mut Line) {
        let mut rest = &bytes[..];
        if let Some(last) = bytes[old..].iter().rposition(|&byte| byte == b'\n') {
            let (whole, tail) = bytes.split_at(old + last + 1);
            rest = tail;
            if line.prefix.is_empty() {
                self.begin(line);
                self.put(whole);
            } else {
                self.put_lines(whole, line);
            }
            self.open = None;
        }
        if rest.len() >= LONGEST_LINE || (self.open == Some(line.key) && !rest.is_empty()) {
            self.begin(line);
            self.put(rest);
            self.open = Some(line.key);
            line.start = Vec::new();
        } else if rest.len() == bytes.len() {
            line.start = bytes;
        } else {
            line.keep(rest);
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

    /// The stream of a rank ends: what is left of its last line gets a newline.
    pub(super) fn end(&mut self, line: &mut Line) {
        if !line.start.is_empty() {
            self.begin(line);
            let start = std::mem::take(&mut line.start);
            self.put(&start);
            self.open = Some(line.key);
        }
        if self.open == Some(line.key) && !self.pass_through {
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
        match self.around_write.clone() {
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
mod tests {
    use super::*;
    use std::io::{Read, Write};

    struct Rig {
        sink: Sink,
        reader: std::fs::File,
    }

    fn rig(pass_through: bool) -> Rig {
        let (reader, writer) = sys::pipe().unwrap();
        // Room for what a test writes, so that nobody has to read meanwhile.
        nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETPIPE_SZ(1 << 20)).unwrap();
        Rig { sink: Sink::new(writer, Stream::Stdout, pass_through, None), reader: reader.into() }
    }

    impl Rig {
        fn feed(&mut self, line: &mut Line, bytes: &[u8]) {
            let (reader, writer) = sys::pipe().unwrap();
            for part in bytes.chunks(60_000) {
                std::fs::File::from(writer.try_clone().unwrap()).write_all(part).unwrap();
                assert_eq!(self.sink.read_from(&reader, line), Got::Bytes(part.len()));
            }
        }

        fn result(mut self) -> String {
            self.sink.flush();
            drop(self.sink);
            let mut text = String::new();
            self.reader.read_to_string(&mut text).unwrap();
            text
        }
    }

    #[test]
    fn half_lines_wait_for_their_end() {
        let mut rig = rig(false);
        let (mut a, mut b) = (Line::new(1, Vec::new()), Line::new(2, Vec::new()));
        rig.feed(&mut a, b"one\ntw");
        rig.feed(&mut b, b"uno\ndue\ntr");
        rig.feed(&mut a, b"o");
        rig.feed(&mut a, b"\n");
        rig.sink.end(&mut b);
        rig.sink.end(&mut a);
        assert_eq!(rig.result(), "one\nuno\ndue\ntwo\ntr\n");
    }

    #[test]
    fn prefixes_stand_before_each_line_once() {
        let mut rig = rig(false);
        let mut a = Line::new(1, b"[7] ".to_vec());
        rig.feed(&mut a, b"\nx\nhalf");
        rig.feed(&mut a, b" line");
        rig.sink.end(&mut a);
        assert_eq!(rig.result(), "[7] \n[7] x\n[7] half line\n");
    }

    #[test]
    fn pass_through_changes_nothing() {
        let mut rig = rig(true);
        let mut a = Line::new(1, Vec::new());
        rig.feed(&mut a, b"prompt> ");
        assert_eq!(rig.sink.filled, 8);
        rig.feed(&mut a, b"x\ny");
        rig.sink.end(&mut a);
        assert_eq!(rig.result(), "prompt> x\ny");
    }

    #[test]
    fn a_long_line_stays_whole_if_nobody_interrupts() {
        for prefix in ["", "[1] "] {
            let text = "x".repeat(400_000);
            let mut rig = rig(false);
            let mut a = Line::new(1, prefix.into());
            rig.feed(&mut a, text.as_bytes());
            assert_eq!(rig.sink.filled, 0);
            rig.feed(&mut a, b"end\nnext\n");
            assert_eq!(rig.result(), format!("{prefix}{text}end\n{prefix}next\n"));
        }
    }

    #[test]
    fn a_line_beyond_the_limit_is_broken_only_where_another_writes() {
        for prefix in ["", "[1] "] {
            let (reader, writer) = sys::pipe().unwrap();
            let collector = std::thread::spawn(move || {
                let mut text = String::new();
                std::fs::File::from(reader).read_to_string(&mut text).unwrap();
                text
            });
            let mut rig = Rig {
                sink: Sink::new(writer, Stream::Stdout, false, None),
                reader: std::fs::File::open("/dev/null").unwrap(),
            };
            let long = "y".repeat(LONGEST_LINE);
            let mut a = Line::new(1, prefix.into());
            let mut b = Line::new(2, Vec::new());
            rig.feed(&mut a, long.as_bytes());
            rig.feed(&mut a, b"more");
            rig.feed(&mut b, b"other\n");
            rig.feed(&mut a, b"rest\nlast\n");
            rig.sink.end(&mut a);
            rig.result();
            let text = collector.join().unwrap();
            assert!(
                text == format!("{prefix}{long}more\nother\n{prefix}rest\n{prefix}last\n"),
                "{}",
                text.len()
            );
        }
    }
}
