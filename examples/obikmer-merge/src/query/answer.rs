//! What is answered about the records of files: a line for each, of a table or of JSON.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{Counts, Query};
use crate::error::{Context, Result};
use crate::fields::shown;
use crate::input::read::{for_each_record, open_records, records_of};

/// Bytes of records, and of what is counted for them, that are gathered before they are looked up together.
const BATCH: usize = 16 << 20;
/// What a record takes besides its letters, its name and counts: places in lists, some of which have grown to
/// twice what they hold, and what the allocator adds.
const RECORD: usize = 320;
/// Two numbers.
const SOURCE: usize = 16;
/// Bytes of text that are written together.
const TEXT: usize = 1 << 16;
/// Of a share that no number of 64 bits is exactly.
const ROUNDING: f64 = 1e-9;

/// The name of standard input as a file, and what it is called in errors.
const STDIN: (&str, &str) = ("-", "standard input");

/// How to answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// A record is present in a source that holds at least this share of its k-mers.
    pub threshold: Option<f64>,
    /// Objects of JSON, not a table.
    pub json: bool,
}

/// The records of a batch: the number of their file, their names and letters.
type Batch = Vec<(usize, Vec<u8>, Vec<u8>)>;

/// An answer as JSON.
#[derive(serde::Serialize)]
struct Object<'a> {
    file: &'a str,
    record: &'a str,
    kmers: u64,
    found: u64,
    sources: Held<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    present: Option<Vec<&'a str>>,
}

/// The sources that hold k-mers of a record, with how many.
struct Held<'a> {
    names: &'a [String],
    counts: &'a [u64],
}

impl Serialize for Held<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, count) in self.names.iter().zip(self.counts).filter(|held| *held.1 > 0) {
            map.serialize_entry(name, count)?;
        }
        map.end()
    }
}

/// Does a source that holds so many of a record's k-mers have at least this share of them?
fn is_present(count: u64, kmers: u64, threshold: f64) -> bool {
    count > 0 && count as f64 >= (threshold - ROUNDING) * kmers as f64
}

impl Query {
    /// Answer for every record of these files, in order; `-`, or no file at all, is standard input.
    ///
    /// # Errors
    /// A file cannot be read, the answer not written, or a partition not opened, or it is damaged.
    pub fn answer(&self, files: &[PathBuf], form: Form, out: &mut impl Write) -> Result<()> {
        let stdin = [PathBuf::from(STDIN.0)];
        let files = if files.is_empty() { &stdin } else { files };
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        if !form.json {
            let file = if files.len() > 1 { "file\t" } else { "" };
            let sources = self.sources().iter().map(|name| format!("\t{}", shown(name, None)));
            let head = format!("{file}record\tkmers\tfound{}\n", sources.collect::<String>());
            out.write_all(head.as_bytes()).context(writing)?;
        }
        let (mut batch, mut gathered): (Batch, usize) = (Vec::new(), 0);
        for (number, file) in files.iter().enumerate() {
            let is_stdin = file.as_os_str() == STDIN.0;
            let name = Path::new(if is_stdin { STDIN.1 } else { &names[number] });
            let mut reader = if is_stdin {
                let stdin: Box<dyn Read + Send> = Box::new(std::io::stdin());
                records_of(name, stdin)?
            } else {
                open_records(name, file)?
            };
            for_each_record(name, &mut *reader, &mut |name, letters| {
                gathered += letters.len() + name.len() + SOURCE * self.sources().len() + RECORD;
                batch.push((number, name.to_vec(), letters.to_vec()));
                if gathered < BATCH {
                    return Ok(());
                }
                gathered = 0;
                self.flush(&names, form, &mut batch, out)
            })?;
        }
        self.flush(&names, form, &mut batch, out)
    }

    fn flush(&self, files: &[String], form: Form, batch: &mut Batch, out: &mut impl Write) -> Result<()> {
        let sequences: Vec<&[u8]> = batch.iter().map(|(_, _, letters)| &letters[..]).collect();
        let counts = self.count_all(&sequences)?;
        let mut text = Vec::new();
        for ((file, name, _), counts) in batch.drain(..).zip(counts) {
            let name = String::from_utf8_lossy(&name);
            if form.json {
                let object = self.object(&files[file], &name, form, &counts);
                serde_json::to_writer(&mut text, &object).map_err(std::io::Error::from).context(writing)?;
            } else {
                if files.len() > 1 {
                    text.extend(shown(&files[file], None).bytes().chain(*b"\t"));
                }
                row(&name, form, &counts, &mut text);
            }
            text.push(b'\n');
            if text.len() >= TEXT {
                out.write_all(&text).context(writing)?;
                text.clear();
            }
        }
        out.write_all(&text).context(writing)
    }

    fn object<'a>(&'a self, file: &'a str, record: &'a str, form: Form, counts: &'a Counts) -> Object<'a> {
        let Counts { kmers, found, by_source } = counts;
        let present = |threshold| {
            let all = self.sources().iter().zip(by_source);
            let present = all.filter(|&(_, &count)| is_present(count, *kmers, threshold));
            present.map(|(name, _)| &name[..]).collect()
        };
        Object {
            file,
            record,
            kmers: *kmers,
            found: *found,
            sources: Held { names: self.sources(), counts: by_source },
            present: form.threshold.map(present),
        }
    }
}

/// A line of the table, without its end.
fn row(name: &str, form: Form, counts: &Counts, text: &mut Vec<u8>) {
    let Counts { kmers, found, by_source } = counts;
    text.extend(format!("{}\t{kmers}\t{found}", shown(name, None)).bytes());
    for &count in by_source {
        let number = form.threshold.map_or(count, |share| u64::from(is_present(count, *kmers, share)));
        text.extend(format!("\t{number}").bytes());
    }
}

fn writing() -> String {
    "cannot write the answer".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_reached_exactly() {
        for kmers in 1..200u64 {
            for percent in 1..=100u64 {
                let least = (percent * kmers).div_ceil(100);
                for count in 0..=kmers {
                    let present = is_present(count, kmers, percent as f64 / 100.0);
                    assert_eq!(present, count >= least, "{count} of {kmers}, {percent} %");
                }
            }
        }
        assert!(!is_present(0, 0, 0.5));
    }
}
