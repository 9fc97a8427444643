//! A list of parts, read line by line.

use std::io::{BufRead, BufReader, Read, Take};

use super::parts::{Part, PartsError};

/// What some editors and spreadsheets put in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The most bytes that all lines may have: it is all kept in memory, and `/dev/zero` has no end.
const LONGEST: u64 = 1 << 30;

/// A line with something in it, and its number in the list.
pub type Line = (Vec<u8>, u64);

/// How a list is written.
#[derive(Debug, Clone)]
pub struct Form {
    /// What errors call it.
    pub name: String,
    /// What stands between columns.
    pub separator: String,
    /// The first line names the columns, and is no part.
    pub header: bool,
    /// Lines end with a zero byte (`find -print0`), and hold whatever else; else with `\n` or `\r\n`.
    pub null: bool,
}

impl Form {
    /// What ends a line, and all that is taken off its end.
    fn ends(&self) -> (u8, &'static [u8]) {
        if self.null { (0, &[0]) } else { (b'\n', b"\n\r") }
    }
}

/// Reads a list, line by line.
#[derive(Debug)]
pub struct Reader<R> {
    input: Take<R>,
    form: Form,
    number: u64,
    /// The names of the columns, once they are read.
    header: Option<Vec<Vec<u8>>>,
}

impl<R: BufRead> Reader<R> {
    /// From the beginning.
    pub fn new(input: R, form: Form) -> Self {
        let header = (!form.header).then(Vec::new);
        Self { input: input.take(LONGEST), form, number: 0, header }
    }

    fn wrong(&self, what: String) -> PartsError {
        PartsError::Line { name: self.form.name.clone(), line: self.number, what }
    }

    /// Where it is read.
    pub fn input(&mut self) -> &mut R {
        self.input.get_mut()
    }

    /// How it is written.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// What its columns are called, as far as they have names, and were read.
    pub fn header(&self) -> &[Vec<u8>] {
        self.header.as_deref().unwrap_or_default()
    }

    /// The next line that is not empty, without its end; none at the end of the list.
    ///
    /// # Errors
    /// If it cannot be read, more is read than may be kept, a line has a zero byte, or the header names two
    /// columns alike.
    pub fn next(&mut self) -> Result<Option<Line>, PartsError> {
        let (end, ends) = self.form.ends();
        loop {
            let mut line = Vec::new();
            let read = self.input.read_until(end, &mut line);
            let name = || self.form.name.clone();
            if read.map_err(|source| PartsError::Read { name: name(), source })? == 0 {
                return Ok(None);
            }
            if self.input.limit() == 0 {
                return Err(PartsError::TooLong { name: name(), longest: LONGEST });
            }
            self.number += 1;
            for end in ends {
                if line.last() == Some(end) {
                    line.pop();
                }
            }
            if self.number == 1 && !self.form.null && line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
            }
            if line.is_empty() {
                continue;
            }
            if line.contains(&0) {
                return Err(self.wrong("a zero byte, which no argument may hold".into()));
            }
            if self.header.is_some() {
                return Ok(Some((line, self.number)));
            }
            let separator = self.form.separator.as_bytes();
            let header: Vec<_> = Part::new(&line, Some(separator)).columns().map(<[u8]>::to_vec).collect();
            if let Some(name) = twice(&header) {
                let what = format!("two columns are called '{}'", String::from_utf8_lossy(name));
                return Err(self.wrong(what));
            }
            self.header = Some(header);
        }
    }

    /// What was read is not kept: as much again may be.
    pub fn forget(&mut self) {
        self.input.set_limit(LONGEST);
    }
}

impl<R: Read> Reader<BufReader<R>> {
    /// Whether the next line is here already, so that it can be read without waiting for it.
    pub fn has_more(&self) -> bool {
        let (end, ends) = self.form.ends();
        let buffer = self.input.get_ref().buffer();
        let whole = memchr::memrchr(end, buffer).map_or(&[][..], |at| &buffer[..at]);
        // Lines with nothing in them are no lines.
        whole.iter().any(|byte| !ends.contains(byte))
    }
}

/// A name that is there twice.
fn twice(names: &[Vec<u8>]) -> Option<&[u8]> {
    let mut sorted: Vec<&[u8]> = names.iter().map(Vec::as_slice).filter(|name| !name.is_empty()).collect();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_may_be_kept() {
        let form = Form { name: "endless".into(), separator: "\t".into(), header: false, null: false };
        let mut reader = Reader::new(BufReader::new(std::io::repeat(b'x')), form);
        reader.input.set_limit(5000);
        let error = reader.next().unwrap_err();
        assert!(matches!(error, PartsError::TooLong { .. }), "{error}");
    }
}
