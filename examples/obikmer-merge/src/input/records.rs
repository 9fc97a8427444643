//! Where the records of a plain FASTA file begin.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Seek};
use std::path::Path;

use crate::error::{Context, Error, Result};

/// Most bytes of a header that are kept, for its first word: lines may be longer than memory.
const LONGEST: usize = 4096;
/// Most bytes of one that an error shows.
const SHOWN: usize = 255;

/// Call `each` with the place of every header (its `>`) and the first word behind it. The size of the file.
pub fn headers(path: &Path, mut file: File, each: &mut dyn FnMut(u64, &str) -> Result<()>) -> Result<u64> {
    let reading = || format!("cannot read {}", path.display());
    file.rewind().context(reading)?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (mut at, mut line_begins) = (0, true);
    // Where the header begins that is being read, and what is kept of it.
    let (mut header, mut kept) = (None, Vec::new());
    loop {
        let bytes = match reader.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            bytes => bytes.context(reading)?,
        };
        let mut rest = bytes;
        while let [first, ..] = rest {
            if line_begins && *first == b'>' {
                header = Some(at);
            }
            let newline = memchr::memchr(b'\n', rest);
            let (line, more) = rest.split_at(newline.map_or(rest.len(), |newline| newline + 1));
            if header.is_some() {
                kept.extend_from_slice(&line[..line.len().min(LONGEST - kept.len())]);
            }
            if newline.is_some()
                && let Some(begin) = header.take()
            {
                each(begin, name(path, &kept)?)?;
                kept.clear();
            }
            line_begins = newline.is_some();
            at += line.len() as u64;
            rest = more;
        }
        let read = bytes.len();
        if read == 0 {
            if let Some(begin) = header {
                each(begin, name(path, &kept)?)?;
            }
            return Ok(at);
        }
        reader.consume(read);
    }
}

/// The first word of a header.
fn name<'a>(path: &Path, header: &'a [u8]) -> Result<&'a str> {
    let word = header[1..].split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let what = if word.len() + 1 == LONGEST {
        format!("a header whose first word, to name the source after, has {LONGEST} bytes or more")
    } else {
        match std::str::from_utf8(word) {
            Ok(name) if !name.is_empty() => return Ok(name),
            _ => "a header without an identifier to name the source after".into(),
        }
    };
    let shown = &header[..header.len().min(SHOWN)];
    let record = String::from_utf8_lossy(shown).trim().into();
    Err(Error::Sequence { file: path.to_path_buf(), record, what })
}
