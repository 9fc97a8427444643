//! Where the records of a plain FASTA file begin.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

use crate::error::{Context, Error, Result};

/// Call `each` with the place of every header (its `>`) and the first word behind it. The size of the file.
pub fn headers(path: &Path, mut file: File, each: &mut dyn FnMut(u64, &str) -> Result<()>) -> Result<u64> {
    let reading = || format!("cannot read {}", path.display());
    file.rewind().context(reading)?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (mut line, mut at) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).context(reading)?;
        if read == 0 {
            return Ok(at);
        }
        if let [b'>', name @ ..] = &line[..] {
            let name = name.split(u8::is_ascii_whitespace).next().unwrap_or(name);
            let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| Error::Sequence {
                file: path.to_path_buf(),
                record: String::from_utf8_lossy(&line).trim().into(),
                what: "a header without an identifier to name the source after".into(),
            })?;
            each(at, name)?;
        }
        at += read as u64;
    }
}
