//! Plain FASTA by ranges of bytes: each k-mer window belongs to the range in which its first letter lies, whatever
//! the layout of lines and records.
//!
//! A range is read in blocks of a few megabytes, so that a long chromosome is never in memory as a whole. A block that
//! begins within a sequence gets a header of its own, and letters behind its end are added until the last windows are
//! complete; then needletail parses it as a small file.

use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::Path;

use needletail::parser::{FastaReader, FastxReader};

use crate::error::{Context, Error, Result};

/// Bytes parsed at a time.
const BLOCK: u64 = 2 << 20;
/// Bytes read at a time when looking around.
const LOOK: usize = 4096;

/// Receives the letters of a record, or of a part of one.
pub type Each<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// What surrounds a place in the file.
#[derive(Clone, Copy)]
struct Line {
    /// A line begins here.
    begins: bool,
    /// Its line is a header (known only where none begins).
    header: bool,
}

struct Fasta<'a> {
    path: &'a Path,
    file: File,
    size: u64,
    k: usize,
}

/// Call `each` with the letters of every record, or part of one, that has windows beginning in `begin..end`.
pub fn read_range(
    path: &Path,
    mut begin: u64,
    end: u64,
    k: usize,
    each: &mut Each<'_>,
    done: &mut dyn FnMut(u64),
) -> Result<()> {
    let file = File::open(path).context(|| format!("cannot open {}", path.display()))?;
    let size = file.metadata().context(|| format!("cannot read {}", path.display()))?.len();
    let fasta = Fasta { path, file, size, k };
    if end > size {
        return Err(fasta.malformed(size, "the file shrank while it was read"));
    }
    let mut line = fasta.line_at(begin)?;
    while begin < end {
        let next = (begin + BLOCK).min(end);
        let bytes = fasta.read_at(begin, (next - begin) as usize)?;
        let behind = line_behind(&bytes, line);
        fasta.block(bytes, begin, line, each)?;
        line = behind;
        done(next - begin);
        begin = next;
    }
    Ok(())
}

/// Letters of any alphabet, gaps and stops break k-mers; anything else is no sequence.
pub fn check_letters(letters: &[u8]) -> std::result::Result<(), String> {
    let good = |b: &u8| b.is_ascii_alphabetic() || matches!(b, b'-' | b'*' | b'.');
    match letters.iter().find(|b| !good(b)) {
        None => Ok(()),
        Some(bad) => Err(format!("unexpected byte '{}' in the sequence", bad.escape_ascii())),
    }
}

/// Where the last line of `bytes` begins, if it is there.
fn last_line(bytes: &[u8], begins: bool) -> Option<usize> {
    match bytes.iter().rposition(|&b| b == b'\n') {
        Some(newline) => Some(newline + 1),
        None => begins.then_some(0),
    }
}

/// Where the last line begins that is not blank, if it is a header.
fn last_header(bytes: &[u8], begins: bool) -> Option<usize> {
    let filled = bytes.iter().rposition(|b| !b.is_ascii_whitespace()).map_or(0, |at| at + 1);
    last_line(&bytes[..filled], begins).filter(|&at| bytes.get(at) == Some(&b'>'))
}

/// What surrounds the place behind `bytes`.
fn line_behind(bytes: &[u8], before: Line) -> Line {
    match last_line(bytes, before.begins) {
        Some(at) => Line { begins: at == bytes.len(), header: bytes.get(at) == Some(&b'>') },
        None => Line { begins: false, header: before.header },
    }
}

impl Fasta<'_> {
    fn block(&self, mut bytes: Vec<u8>, begin: u64, line: Line, each: &mut Each<'_>) -> Result<()> {
        let end = begin + bytes.len() as u64;
        let truncated = || self.malformed(begin, "the file ends within or directly behind a header");
        let mut begins = line.begins;
        if !begins && line.header {
            // The header belongs to the block before; the sequence begins behind it.
            let Some(newline) = bytes.iter().position(|&b| b == b'\n') else {
                return if end == self.size { Err(truncated()) } else { Ok(()) };
            };
            bytes.drain(..=newline);
            begins = true;
            if bytes.is_empty() && end == self.size {
                return Err(truncated());
            }
        }
        // Complete the last windows, unless the block ends within a header.
        let last = last_line(&bytes, begins);
        let mut stop = end;
        if last.is_none_or(|at| bytes.get(at) != Some(&b'>')) {
            stop = self.extend(end, last == Some(bytes.len()), &mut bytes)?;
        }
        // Headers without letters behind them have no windows here; the next block skips them. At the end of the file
        // they stay, and needletail reports the last.
        if stop < self.size {
            while let Some(at) = last_header(&bytes, begins) {
                bytes.truncate(at);
            }
        }
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let continued = !(begins && bytes[0] == b'>');
        let header: &[u8] = if continued { b">\n" } else { b"" };
        let mut reader = FastaReader::new(std::io::Read::chain(Cursor::new(header), Cursor::new(&bytes[..])));
        let mut before = String::new();
        while let Some(record) = reader.next() {
            let record = record.map_err(|e| Error::Sequence {
                file: self.path.to_path_buf(),
                record: if before.is_empty() { self.record_at(begin) } else { format!("after {before}") },
                what: e.to_string(),
            })?;
            let letters = record.seq();
            let name = || String::from_utf8_lossy(record.id()).into_owned();
            check_letters(&letters).map_err(|what| {
                let record = if record.id().is_empty() { self.record_at(begin) } else { name() };
                Error::Sequence { file: self.path.to_path_buf(), record, what }
            })?;
            each(&letters)?;
            before = name();
        }
        Ok(())
    }

    /// Append the k − 1 letters behind `end`, or what the record has of them. Where that stops.
    fn extend(&self, end: u64, mut begins: bool, bytes: &mut Vec<u8>) -> Result<u64> {
        let mut missing = self.k - 1;
        let mut at = end;
        while at < self.size {
            for byte in self.read_at(at, LOOK.min((self.size - at) as usize))? {
                if missing == 0 || (begins && byte == b'>') {
                    return Ok(at);
                }
                begins = byte == b'\n';
                missing -= usize::from(!matches!(byte, b'\n' | b'\r'));
                bytes.push(byte);
                at += 1;
            }
        }
        Ok(at)
    }

    fn read_at(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at).context(|| format!("cannot read {}", self.path.display()))?;
        Ok(bytes)
    }

    /// Where the line begins that holds the byte at `at`.
    fn line_start(&self, at: u64) -> Result<u64> {
        let (mut end, mut look) = (at, LOOK as u64);
        while end > 0 {
            let begin = end.saturating_sub(look);
            let bytes = self.read_at(begin, (end - begin) as usize)?;
            if let Some(newline) = bytes.iter().rposition(|&b| b == b'\n') {
                return Ok(begin + newline as u64 + 1);
            }
            end = begin;
            look = (look * 4).min(1 << 20);
        }
        Ok(0)
    }

    fn line_at(&self, at: u64) -> Result<Line> {
        let start = self.line_start(at)?;
        let header = start < self.size && self.read_at(start, 1)? == *b">";
        Ok(Line { begins: start == at, header })
    }

    /// The name of the record that holds the byte at `at`, for errors.
    fn record_at(&self, mut at: u64) -> String {
        while let Ok(start) = self.line_start(at) {
            let mut header = [0; 256];
            let read = self.file.read_at(&mut header, start).unwrap_or(0);
            if header[0] == b'>' {
                let name = header[1..read.max(1)].split(|b| matches!(b, b'\n' | b'\r')).next().unwrap_or(b"");
                return String::from_utf8_lossy(name).into_owned();
            }
            if start == 0 {
                break;
            }
            at = start - 1;
        }
        "1".into()
    }

    fn malformed(&self, at: u64, what: &str) -> Error {
        Error::Sequence { file: self.path.to_path_buf(), record: self.record_at(at), what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All windows of a range, as texts.
    fn windows(path: &Path, begin: u64, end: u64, k: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut each = |letters: &[u8]| {
            all.extend(letters.windows(k).map(<[u8]>::to_vec));
            Ok(())
        };
        read_range(path, begin, end, k, &mut each, &mut |_| {}).expect("a well-formed file");
        all
    }

    #[test]
    fn every_cut_gives_every_window_once() {
        let texts: [&[u8]; 6] = [
            b">a\nACGTACGGTCA\nCCATG\n>b x\n>c\nGGGTTTACC\n",
            b">a\r\nACGTAC\r\nGGTCACC\r\n\r\n>b\r\nNNACGATTTGC",
            b">long header with > in it\nAC\nG\nT\nA\nC\nGG\n\n\n>x\nACGTTGCA",
            b">one\nACGTTGCATGCATGCATGCATTTGCA",
            b">e\n\n>f\nACG\n>g\nACGTA\n",
            b">e\nACGTACCC\n\n\n",
        ];
        let dir = tempfile::tempdir().expect("a directory");
        for (i, text) in texts.iter().enumerate() {
            let path = dir.path().join(format!("{i}.fa"));
            std::fs::write(&path, text).expect("written");
            let size = text.len() as u64;
            for k in [3, 5, 7] {
                let mut whole = windows(&path, 0, size, k);
                whole.sort();
                for a in 0..=size {
                    for b in a..=size {
                        let mut parts = windows(&path, 0, a, k);
                        parts.extend(windows(&path, a, b, k));
                        parts.extend(windows(&path, b, size, k));
                        parts.sort();
                        assert_eq!(parts, whole, "file {i} cut at {a} and {b}, k = {k}");
                    }
                }
            }
        }
    }

    #[test]
    fn malformed_files_name_the_record() {
        let dir = tempfile::tempdir().expect("a directory");
        for (text, record) in [
            (&b">good\nACGT\n>broken\nAC\x01GT\n"[..], "broken"),
            (b">good\nACGTAAAAAAA\n>trunc", "good"),
            (b">good\nAC GT\n", "good"),
        ] {
            let path = dir.path().join("x.fa");
            std::fs::write(&path, text).expect("written");
            let error = read_range(&path, 0, text.len() as u64, 3, &mut |_| Ok(()), &mut |_| {})
                .expect_err("malformed")
                .to_string();
            assert!(error.contains("x.fa") && error.contains(record), "{error}");
        }
    }
}
