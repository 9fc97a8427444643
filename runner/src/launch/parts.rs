//! The parts of a job, one for each rank: lines of a file with columns, or paths. Kept once, as one text.

use std::ffi::OsString;
use std::io::BufRead;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use memchr::memmem;

use crate::cli::{Column, MAX_RANKS, parse_size};

/// What some editors and spreadsheets put in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The most bytes that all lines may have: it is all kept in memory, and `/dev/zero` has no end.
const LONGEST: u64 = 1 << 30;

/// What is wrong with a list of parts. Names the place.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// It cannot be read.
    #[error("{name} cannot be read: {source}")]
    Read {
        /// The list.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// There is nothing in it.
    #[error("{name} has no line with anything in it, so there is nothing to run")]
    Empty {
        /// The list.
        name: String,
    },
    /// There is too much in it.
    #[error(
        "{name} has more than {MAX_RANKS} parts, which is the most a job may have: split it, or give each rank several"
    )]
    TooMany {
        /// The list.
        name: String,
    },
    /// It is too long.
    #[error("{name} has {longest} bytes or more")]
    TooLong {
        /// The list.
        name: String,
        /// The limit, bytes.
        longest: u64,
    },
    /// Something is wrong with one line.
    #[error("{name}, line {line}: {what}")]
    Line {
        /// The list.
        name: String,
        /// Counted from 1, lines without anything included.
        line: u64,
        /// What is wrong.
        what: String,
    },
}

/// Where in the text a part is.
#[derive(Debug, Clone)]
struct Place {
    bytes: Range<usize>,
    /// Its number in the file, from 1; 0 for a path.
    line: u64,
}

/// The parts of a job.
#[derive(Debug, Clone)]
pub struct Parts {
    name: String,
    text: Vec<u8>,
    places: Vec<Place>,
    separator: Option<Vec<u8>>,
    header: Vec<Vec<u8>>,
}

/// The part of one rank.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    whole: &'a [u8],
    separator: Option<&'a [u8]>,
}

impl<'a> Part<'a> {
    /// A text whose columns stand between separators; without, it is one column.
    #[must_use]
    pub fn new(whole: &'a [u8], separator: Option<&'a [u8]>) -> Self {
        Self { whole, separator }
    }

    /// All of it.
    #[must_use]
    pub fn whole(self) -> &'a [u8] {
        self.whole
    }

    /// Its columns, at least one.
    fn columns(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = Some(self.whole);
        std::iter::from_fn(move || {
            let text = rest.take()?;
            let found =
                self.separator.and_then(|separator| Some((memmem::find(text, separator)?, separator)));
            let Some((at, separator)) = found else { return Some(text) };
            rest = Some(&text[at + separator.len()..]);
            Some(&text[..at])
        })
    }

    /// One column, the first is 0.
    #[must_use]
    pub fn column(self, number: usize) -> Option<&'a [u8]> {
        self.columns().nth(number)
    }
}

impl Parts {
    /// The lines of a file that are not empty, without their ends (`\n` or `\r\n`). With `header` the first
    /// of them names the columns and is no part. `name` is what errors call the file.
    ///
    /// # Errors
    /// If it cannot be read, is empty, has too many lines, a line with a zero byte, or a header that names
    /// two columns alike.
    pub fn read(input: impl BufRead, name: &str, separator: &str, header: bool) -> Result<Self, PartsError> {
        Self::read_up_to(LONGEST, input, name, separator, header, b'\n')
    }

    /// The same of a list whose lines end with a zero byte (`find -print0`), and hold whatever else.
    ///
    /// # Errors
    /// As there.
    pub fn read0(input: impl BufRead, name: &str, separator: &str, header: bool) -> Result<Self, PartsError> {
        Self::read_up_to(LONGEST, input, name, separator, header, 0)
    }

    /// These, in their order.
    ///
    /// # Errors
    /// If there are none, or too many.
    pub fn list(words: &[OsString], name: &str, separator: &str) -> Result<Self, PartsError> {
        let text: Vec<u8> = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
        let mut parts = Self::read0(&text[..], name, separator, false)?;
        // They are no lines of anything.
        parts.places.iter_mut().for_each(|place| place.line = 0);
        Ok(parts)
    }

    fn read_up_to(
        longest: u64,
        input: impl BufRead,
        name: &str,
        separator: &str,
        header: bool,
        end: u8,
    ) -> Result<Self, PartsError> {
        let mut parts = Self {
            name: name.to_owned(),
            text: Vec::new(),
            places: Vec::new(),
            separator: Some(separator.as_bytes().to_vec()),
            header: Vec::new(),
        };
        let mut awaits_header = header;
        let mut input = input.take(longest);
        for number in 1.. {
            let begin = parts.text.len();
            let read = input.read_until(end, &mut parts.text);
            if read.map_err(|source| PartsError::Read { name: name.to_owned(), source })? == 0 {
                break;
            }
            let ends: &[u8] = if end == 0 { &[0] } else { b"\n\r" };
            for end in ends {
                if parts.text[begin..].last() == Some(end) {
                    parts.text.pop();
                }
            }
            if number == 1 && end != 0 && parts.text.starts_with(BYTE_ORDER_MARK) {
                parts.text.drain(..BYTE_ORDER_MARK.len());
            }
            let line = &parts.text[begin..];
            if line.is_empty() {
                continue;
            }
            let wrong = |what| PartsError::Line { name: name.to_owned(), line: number, what };
            if line.contains(&0) {
                return Err(wrong("a zero byte, which no argument may hold".into()));
            }
            if std::mem::take(&mut awaits_header) {
                parts.header =
                    Part::new(line, Some(separator.as_bytes())).columns().map(<[u8]>::to_vec).collect();
                if let Some(name) = twice(&parts.header) {
                    return Err(wrong(format!("two columns are called '{}'", String::from_utf8_lossy(name))));
                }
                parts.text.truncate(begin);
                continue;
            }
            if parts.places.len() == MAX_RANKS as usize {
                return Err(PartsError::TooMany { name: name.to_owned() });
            }
            parts.places.push(Place { bytes: begin..parts.text.len(), line: number });
        }
        if input.limit() == 0 {
            return Err(PartsError::TooLong { name: name.to_owned(), longest });
        }
        if parts.places.is_empty() {
            return Err(PartsError::Empty { name: name.to_owned() });
        }
        Ok(parts)
    }

    /// Paths, sorted and each once.
    ///
    /// # Errors
    /// If they are too many.
    pub fn paths(mut paths: Vec<PathBuf>, name: &str) -> Result<Self, PartsError> {
        paths.sort_unstable();
        paths.dedup();
        if paths.len() > MAX_RANKS as usize {
            return Err(PartsError::TooMany { name: name.to_owned() });
        }
        let mut text = Vec::new();
        let places = paths
            .into_iter()
            .map(|path| {
                let begin = text.len();
                text.extend_from_slice(&path.into_os_string().into_vec());
                Place { bytes: begin..text.len(), line: 0 }
            })
            .collect();
        Ok(Self { name: name.to_owned(), text, places, separator: None, header: Vec::new() })
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        // At most MAX_RANKS.
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// That of a rank.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn part(&self, rank: u32) -> Part<'_> {
        let place = &self.places[rank as usize];
        Part::new(&self.text[place.bytes.clone()], self.separator.as_deref())
    }

    /// What the columns are called, as far as they have names.
    #[must_use]
    pub fn header(&self) -> &[Vec<u8>] {
        &self.header
    }

    /// What the list is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where a part stands in the list, from 1; nothing of a path.
    #[must_use]
    pub fn line(&self, rank: u32) -> Option<u64> {
        Some(self.places[rank as usize].line).filter(|&line| line > 0)
    }

    /// An error about the part of a rank.
    fn wrong(&self, rank: u32, what: String) -> PartsError {
        PartsError::Line { name: self.name.clone(), line: self.places[rank as usize].line, what }
    }

    /// Sees that every line has so many columns.
    ///
    /// # Errors
    /// Names the first that has fewer.
    pub fn have_columns(&self, needed: usize) -> Result<(), PartsError> {
        if needed <= 1 {
            return Ok(());
        }
        for rank in 0..self.count() {
            let found = self.part(rank).columns().take(needed).count();
            if found < needed {
                let what = format!(
                    "it has {found} columns, and {{{needed}}} is asked for (--colsep says what stands between columns; \
                     {{{{{needed}}}}} stands for {{{needed}}} itself)"
                );
                return Err(self.wrong(rank, what));
            }
        }
        Ok(())
    }

    /// The place of a column.
    ///
    /// # Errors
    /// If none has this name; a complete sentence.
    pub fn find_column(&self, column: &Column) -> Result<usize, String> {
        match column {
            Column::Number(number) => Ok(number - 1),
            Column::Name(name) if self.header.is_empty() => Err(format!(
                "--size-column {name}: columns have names only with --header; else use their numbers"
            )),
            Column::Name(name) => {
                self.header.iter().position(|known| known == name.as_bytes()).ok_or_else(|| {
                    let known: Vec<_> =
                        self.header.iter().map(|name| String::from_utf8_lossy(name)).collect();
                    format!(
                        "--size-column {name}: {} has no such column, but: {}",
                        self.name,
                        known.join(", ")
                    )
                })
            }
        }
    }

    /// The sizes in a column, in bytes; nothing where the column is empty.
    ///
    /// # Errors
    /// Names the first line where it is missing or is no size.
    pub fn sizes(&self, column: usize) -> Result<Vec<Option<u64>>, PartsError> {
        let size = |rank| {
            let missing =
                || format!("it has no column {}, where its size should be (--size-column)", column + 1);
            let text = self.part(rank).column(column).ok_or_else(missing)?;
            match String::from_utf8_lossy(text).trim() {
                "" => Ok(None),
                "0" => Ok(Some(0)),
                text => parse_size(text).map(Some),
            }
        };
        (0..self.count()).map(|rank| size(rank).map_err(|what| self.wrong(rank, what))).collect()
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
    use proptest::prelude::*;

    fn read(text: &str, header: bool) -> Result<Parts, String> {
        Parts::read(text.as_bytes(), "parts.tsv", "\t", header).map_err(|error| error.to_string())
    }

    fn column(parts: &Parts, rank: u32, number: usize) -> Option<String> {
        parts.part(rank).column(number).map(|text| String::from_utf8(text.to_vec()).unwrap())
    }

    #[test]
    fn lines_that_are_not_empty() {
        let parts = read("one\t1\n\n\r\ntwo words\t\r\nlast", false).unwrap();
        assert_eq!(parts.count(), 3);
        let whole: Vec<&[u8]> = (0..3).map(|rank| parts.part(rank).whole()).collect();
        assert_eq!(whole, [&b"one\t1"[..], b"two words\t", b"last"]);
        assert_eq!(column(&parts, 0, 1).as_deref(), Some("1"));
        assert_eq!(column(&parts, 1, 1).as_deref(), Some(""));
        assert_eq!(column(&parts, 2, 0).as_deref(), Some("last"));
        assert_eq!(column(&parts, 2, 1), None);
        for text in ["", "\n\n"] {
            assert!(read(text, false).unwrap_err().contains("parts.tsv has no line"));
        }
        assert!(read("a\tb\n", true).unwrap_err().contains("has no line"), "a header is no part");
        assert!(read("a\n\nb\0c\n", false).unwrap_err().contains("parts.tsv, line 3: a zero byte"));
    }

    #[test]
    fn headers_name_columns() {
        let parts = read("path\tbytes\nx\t5\n", true).unwrap();
        assert_eq!((parts.count(), parts.header().len()), (1, 2));
        let find = |column| parts.find_column(&column);
        assert_eq!(find(Column::Name("bytes".into())), Ok(1));
        assert_eq!(find(Column::Number(1)), Ok(0));
        assert!(find(Column::Name("size".into())).unwrap_err().contains("no such column, but: path, bytes"));
        let unnamed = read("x\t5\n", false).unwrap();
        assert!(unnamed.find_column(&Column::Name("bytes".into())).unwrap_err().contains("--header"));
        assert!(read("a\tb\ta\nx\n", true).unwrap_err().contains("line 1: two columns are called 'a'"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let parts = read("a\t1k\n\nb\t0\nc\t\nd\t 5M \n", false).unwrap();
        assert_eq!(parts.sizes(1).unwrap(), [Some(1024), Some(0), None, Some(5 << 20)]);
        let error = parts.sizes(0).unwrap_err().to_string();
        assert!(error.contains("parts.tsv, line 1: 'a' is not a size"), "{error}");
        let short = read("a\t1\nb\n", false).unwrap();
        assert!(short.sizes(1).unwrap_err().to_string().contains("line 2: it has no column 2"));
        assert!(short.have_columns(1).is_ok());
        let error = short.have_columns(2).unwrap_err().to_string();
        assert!(error.contains("line 2: it has 1 columns, and {2} is asked for"), "{error}");
        assert!(error.contains("{{2}} stands for {2}"), "{error}");
    }

    #[test]
    fn no_more_than_a_job_may_have() {
        let most = "x\n".repeat(MAX_RANKS as usize);
        assert_eq!(read(&most, false).unwrap().count(), MAX_RANKS);
        assert!(read(&(most + "x\n"), false).unwrap_err().contains("more than 65536 parts"));
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let error = Parts::read_up_to(5000, endless, "endless", "\t", false, b'\n').unwrap_err();
        assert!(matches!(error, PartsError::TooLong { .. }), "{error}");
    }

    #[test]
    fn paths_are_sorted_and_each_is_there_once() {
        let paths = ["b", "a\nb", "b", "a"].map(PathBuf::from).to_vec();
        let parts = Parts::paths(paths, "--glob").unwrap();
        let whole: Vec<&[u8]> = (0..parts.count()).map(|rank| parts.part(rank).whole()).collect();
        assert_eq!(whole, [&b"a"[..], b"a\nb", b"b"]);
        assert_eq!(column(&parts, 1, 0).as_deref(), Some("a\nb"));
        assert_eq!(column(&parts, 1, 1), None);
    }

    proptest! {
        /// Columns joined by the separator are the line.
        #[test]
        fn columns_make_the_line(
            columns in proptest::collection::vec("[a-z ]{0,3}", 1..6),
            separator in prop_oneof![Just(","), Just("\t"), Just("::")],
        ) {
            let line = columns.join(separator);
            let part = Part::new(line.as_bytes(), Some(separator.as_bytes()));
            let found: Vec<&str> = part.columns().map(|c| std::str::from_utf8(c).unwrap()).collect();
            prop_assert_eq!(found, columns);
        }
    }
}
