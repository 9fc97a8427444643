//! Plain FASTA by ranges of bytes: each k-mer window belongs to the range in which its first letter lies,
//! whatever the layout of lines and records.
//!
//! A range is read in blocks, so that a long chromosome is never in memory as a whole; behind its end letters
//! are read until the last windows are complete.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{Context, Error, Result};
use crate::input::SequenceFile;
use crate::sequence::simd;

/// Bytes read at a time: they stay in the cache until they are cut.
const BLOCK: u64 = 128 << 10;
/// Bytes read at a time when looking around.
const LOOK: usize = 4096;
/// Stands between records, and at the end: a letter that breaks every k-mer.
pub const SEPARATOR: u8 = b'-';

/// What is wrong with a file whose last record is a header.
pub const NO_SEQUENCE: &str = "the file ends within a header, or behind one without a sequence";

/// Receives letters. A sequence goes on with the next call.
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
    /// What it is called.
    path: &'a Path,
    file: File,
    size: u64,
}

/// A range on the way through its blocks.
struct Scan<'a> {
    fasta: &'a Fasta<'a>,
    line: Line,
    /// Has no letter come since the last header? Not known while nothing but ends of lines has come.
    behind_header: Option<bool>,
    /// A place in the present record, and where the header that is being read begins.
    record: u64,
    header: u64,
    letters: Vec<u8>,
    /// Letters of `letters` that have been checked.
    checked: usize,
    /// [`SEPARATOR`]s between records so far.
    separators: u64,
}

/// Call `each` with the letters of every record, or part of one, that has windows beginning in `begin..end`.
/// A letter that is none of ACGT follows each record; how many of those there were.
pub fn read_range(
    from: &SequenceFile,
    begin: u64,
    end: u64,
    k: usize,
    each: &mut Each<'_>,
    done: &mut dyn FnMut(u64),
) -> Result<u64> {
    let path = &from.name;
    let fasta = Fasta { path, file: from.open()?, size: from.bytes() };
    let size = fasta.size;
    if begin >= end {
        return Ok(0);
    }
    let mut scan = Scan::new(&fasta, begin)?;
    let mut block = vec![0; BLOCK.min(end - begin) as usize];
    let mut at = begin;
    while at < end {
        let bytes = &mut block[..BLOCK.min(end - at) as usize];
        fasta.read_into(at, bytes)?;
        scan.block(bytes, at)?;
        each(&scan.letters)?;
        scan.clear();
        at += bytes.len() as u64;
        done(bytes.len() as u64);
    }
    if end == size {
        let known = if scan.line.header { Some(true) } else { scan.behind_header };
        if known.map_or_else(|| fasta.is_behind_header(begin), Ok)? {
            return Err(fasta.malformed(scan.record, NO_SEQUENCE));
        }
    }
    if !scan.line.header {
        fasta.extend(end, scan.line.begins, k - 1, &mut scan.letters)?;
    }
    scan.letters.push(SEPARATOR);
    each(&scan.letters)?;
    from.check(&fasta.file)?;
    Ok(scan.separators + 1)
}

/// Letters of any alphabet, gaps and stops break k-mers; anything else is no sequence.
pub fn check_letters(letters: &[u8]) -> std::result::Result<(), String> {
    let mut good = true;
    simd::are_letters(simd::Level::widest(), letters, &mut good);
    let bad = if good { None } else { letters.iter().find(|&&b| !simd::is_letter(b)) };
    match bad {
        None => Ok(()),
        Some(bad) => Err(format!("unexpected byte '{}' in the sequence", bad.escape_ascii())),
    }
}

impl<'a> Scan<'a> {
    fn new(fasta: &'a Fasta<'a>, begin: u64) -> Result<Self> {
        let line = fasta.line_at(begin)?;
        let line = Line { begins: line.begins, header: line.header && !line.begins };
        Ok(Self {
            fasta,
            line,
            behind_header: None,
            record: begin,
            header: begin,
            letters: Vec::new(),
            checked: 0,
            separators: 0,
        })
    }

    fn clear(&mut self) {
        self.letters.clear();
        self.checked = 0;
    }

    /// Append the letters of a block of the file.
    fn block(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if self.line.begins && rest[0] == b'>' {
                self.check()?;
                self.letters.push(SEPARATOR);
                self.separators += 1;
                self.checked += 1;
                self.line.header = true;
                self.header = offset + at as u64;
            }
            let newline = memchr::memchr(b'\n', rest);
            let text = newline.unwrap_or(rest.len());
            if self.line.header {
                self.behind_header = Some(true);
                if newline.is_some() {
                    self.record = self.header;
                }
            } else {
                if self.behind_header != Some(false) && rest[..text].iter().any(|&b| b != b'\r') {
                    self.behind_header = Some(false);
                }
                self.letters.extend_from_slice(&rest[..text]);
            }
            self.line = match newline {
                Some(_) => Line { begins: true, header: false },
                None => Line { begins: false, header: self.line.header },
            };
            at += text + 1;
        }
        self.check()
    }

    /// Check the letters that have come, all of one record, and take the carriage returns out of them.
    fn check(&mut self) -> Result<()> {
        let part = &self.letters[self.checked..];
        if check_letters(part).is_err() {
            let kept: Vec<u8> = part.iter().copied().filter(|&b| b != b'\r').collect();
            check_letters(&kept).map_err(|what| self.fasta.malformed(self.record, &what))?;
            self.letters.truncate(self.checked);
            self.letters.extend_from_slice(&kept);
        }
        self.checked = self.letters.len();
        Ok(())
    }
}

impl Fasta<'_> {
    /// Append `missing` letters from `at` on, or what the record has of them. Who reads them as their own
    /// checks them.
    fn extend(&self, mut at: u64, mut begins: bool, mut missing: usize, letters: &mut Vec<u8>) -> Result<()> {
        while at < self.size {
            let bytes = self.read_at(at, LOOK.min((self.size - at) as usize))?;
            at += bytes.len() as u64;
            for byte in bytes {
                if missing == 0 || (begins && byte == b'>') {
                    return Ok(());
                }
                begins = byte == b'\n';
                if !matches!(byte, b'\n' | b'\r') {
                    missing -= 1;
                    letters.push(byte);
                }
            }
        }
        Ok(())
    }

    fn read_into(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, at).context(|| format!("cannot read {}", self.path.display()))
    }

    fn read_at(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_into(at, &mut bytes)?;
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

    /// Is there nothing but ends of lines between a header and `at`?
    fn is_behind_header(&self, at: u64) -> Result<bool> {
        let mut end = at;
        while end > 0 {
            let begin = end.saturating_sub(LOOK as u64);
            let bytes = self.read_at(begin, (end - begin) as usize)?;
            if let Some(last) = bytes.iter().rposition(|b| !matches!(b, b'\n' | b'\r')) {
                return Ok(self.line_at(begin + last as u64)?.header);
            }
            end = begin;
        }
        Ok(false)
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

    fn given(path: &Path) -> SequenceFile {
        let meta = std::fs::metadata(path).expect("there");
        SequenceFile::new(path.to_path_buf(), path.to_path_buf(), &meta)
    }

    /// All windows of a range, as texts.
    fn windows(path: &Path, begin: u64, end: u64, k: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut each = |letters: &[u8]| {
            all.extend_from_slice(letters);
            Ok(())
        };
        read_range(&given(path), begin, end, k, &mut each, &mut |_| {}).expect("a well-formed file");
        all.split(|&b| b == SEPARATOR).flat_map(|text| text.windows(k)).map(<[u8]>::to_vec).collect()
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

    /// However a file that ends with a header is cut, one part says so.
    #[test]
    fn a_header_at_the_end_is_told_wherever_the_file_is_cut() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.fa");
        for text in [">a\nACGTACG\n>b", ">a\nACGTACG\n>b c\n", ">a\r\nACG\r\n>b\r\n\r\n\r\n", ">b\n\n\n\n"] {
            std::fs::write(&path, text).expect("written");
            let size = text.len() as u64;
            for cut in 0..=size {
                let read = |from, to| read_range(&given(&path), from, to, 3, &mut |_| Ok(()), &mut |_| {});
                let errors: Vec<String> = [read(0, cut), read(cut, size)]
                    .into_iter()
                    .filter_map(Result::err)
                    .map(|e| e.to_string())
                    .collect();
                assert!(!errors.is_empty(), "{text:?} cut at {cut}");
                assert!(errors.iter().all(|error| error.contains("header")), "{errors:?}");
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
            let error = read_range(&given(&path), 0, text.len() as u64, 3, &mut |_| Ok(()), &mut |_| {})
                .expect_err("malformed")
                .to_string();
            assert!(error.contains("x.fa") && error.contains(record), "{error}");
        }
    }
}
