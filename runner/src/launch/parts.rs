//! The parts of a job, one for each rank: lines of a file with columns, or paths. Kept once, as one text.

use std::ffi::OsString;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memchr::memmem;

use super::list::{Form, Reader};
use crate::cli::{Column, parse_size};

/// The most parts of a job.
pub const MAX_PARTS: u32 = 100_000_000;

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
        "{name} has more than {most} parts, which is the most a job may have: split it, or give each rank several"
    )]
    TooMany {
        /// The list.
        name: String,
        /// The limit.
        most: u32,
    },
    /// It is too long.
    #[error("{name} has {longest} bytes or more")]
    TooLong {
        /// The list.
        name: String,
        /// The limit, bytes.
        longest: u64,
    },
    /// A block of `--pipe` cannot be kept until its rank begins.
    #[error("a block of standard input (--pipe) cannot be written to scratch: {source}")]
    Scratch {
        /// Why.
        source: std::io::Error,
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

/// The parts of a job, as far as they are known and not forgotten.
#[derive(Debug, Clone)]
pub struct Parts {
    name: String,
    /// The first [`CHUNK`] of them, the next, …; none once all of them are forgotten.
    chunks: Vec<Option<Box<Chunk>>>,
    count: u32,
    most: u32,
    /// So many bytes neighbours may have together.
    longest: u32,
    separator: Option<Vec<u8>>,
    header: Vec<Vec<u8>>,
}

/// So many neighbours are kept together, and forgotten together.
const CHUNK: usize = 4096;

/// Neighbours: their texts one behind the other, and where each ends.
#[derive(Debug, Clone, Default)]
struct Chunk {
    text: Vec<u8>,
    ends: Vec<u32>,
    /// The number of each in its file, from 1; 0 for what is no line.
    lines: Vec<u32>,
    forgotten: usize,
}

impl Chunk {
    fn text(&self, at: usize) -> &[u8] {
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[begin as usize..self.ends[at] as usize]
    }
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
    pub(super) fn columns(self) -> impl Iterator<Item = &'a [u8]> {
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
    /// None yet, of a list that is called so.
    fn none(name: &str, separator: Option<&str>) -> Self {
        let separator = separator.map(|separator| separator.as_bytes().to_vec());
        Self {
            name: name.to_owned(),
            chunks: Vec::new(),
            count: 0,
            most: MAX_PARTS,
            longest: u32::MAX,
            separator,
            header: Vec::new(),
        }
    }

    /// The lines of a list that are not empty, without their ends.
    ///
    /// # Errors
    /// If it cannot be read, is empty, has too many lines, a line with a zero byte, or a header that names
    /// two columns alike.
    pub fn read(input: impl BufRead, form: Form) -> Result<Self, PartsError> {
        let mut reader = Reader::new(input, form);
        let mut parts = Self::begin(&mut reader)?;
        parts.read_rest(&mut reader)?;
        Ok(parts)
    }

    /// The first line that is not empty: the others need not be there yet.
    ///
    /// # Errors
    /// As [`Parts::read`].
    pub fn begin(reader: &mut Reader<impl BufRead>) -> Result<Self, PartsError> {
        let mut parts = Self::none(&reader.form().name, Some(&reader.form().separator));
        let line = reader.next()?.ok_or_else(|| PartsError::Empty { name: parts.name.clone() })?;
        parts.header = reader.header().to_vec();
        parts.push(&line.0, line.1)?;
        Ok(parts)
    }

    /// All lines from where the reader is.
    ///
    /// # Errors
    /// As [`Parts::read`].
    pub fn read_rest(&mut self, reader: &mut Reader<impl BufRead>) -> Result<(), PartsError> {
        while let Some((line, number)) = reader.next()? {
            self.push(&line, number)?;
        }
        Ok(())
    }

    /// Puts one behind the others.
    ///
    /// # Errors
    /// If there are too many, or it and its neighbours are too long.
    pub fn push(&mut self, part: &[u8], line: u64) -> Result<(), PartsError> {
        if self.count == self.most {
            return Err(PartsError::TooMany { name: self.name.clone(), most: self.most });
        }
        if self.count as usize == self.chunks.len() * CHUNK {
            self.chunks.push(Some(Box::default()));
        }
        // The last is forgotten only when it is full.
        let chunk = self.chunks.last_mut().and_then(Option::as_mut).expect("the last chunk is not full");
        // A list that is kept as a whole is at most `LONGEST`; one that is read as it is written has no end.
        let end = u32::try_from(chunk.text.len() + part.len()).ok().filter(|&end| end <= self.longest);
        let Some(end) = end else {
            let what = format!("it and up to {CHUNK} lines before it have {} bytes or more", self.longest);
            return Err(PartsError::Line { name: self.name.clone(), line, what });
        };
        chunk.text.extend_from_slice(part);
        chunk.ends.push(end);
        chunk.lines.push(u32::try_from(line).unwrap_or(u32::MAX));
        self.count += 1;
        Ok(())
    }

    /// One is not asked for any more.
    pub fn forget(&mut self, rank: u32) {
        let place = &mut self.chunks[rank as usize / CHUNK];
        if let Some(chunk) = place {
            chunk.forgotten += 1;
            if chunk.forgotten == CHUNK {
                *place = None;
            }
        }
    }

    /// These, in their order, those with nothing in them too: somebody has written them so.
    ///
    /// # Errors
    /// If there are none, or too many.
    pub fn list(words: &[OsString], name: &str, separator: &str) -> Result<Self, PartsError> {
        let mut parts = Self::none(name, Some(separator));
        // They are no lines of anything.
        words.iter().try_for_each(|word| parts.push(word.as_bytes(), 0))?;
        if parts.count == 0 { Err(PartsError::Empty { name: parts.name }) } else { Ok(parts) }
    }

    /// The first block of `--pipe`; the others come.
    pub fn blocks() -> Self {
        let mut parts = Self::none("standard input (--pipe)", None);
        parts.push_block();
        parts
    }

    /// The next block of `--pipe`.
    pub fn push_block(&mut self) {
        let name = format!("block {}", u64::from(self.count) + 1);
        // There are not so many.
        let _ = self.push(name.as_bytes(), 0);
    }

    /// Paths, sorted and each once, whether it was spelled with a `./` in front or without.
    ///
    /// # Errors
    /// If they are too many.
    pub fn paths(mut paths: Vec<PathBuf>, name: &str) -> Result<Self, PartsError> {
        fn plain(path: &Path) -> &Path {
            path.strip_prefix(".").unwrap_or(path)
        }
        paths.sort_by(|path, other| plain(path).cmp(plain(other)));
        paths.dedup_by(|path, before| plain(path) == plain(before));
        let mut parts = Self::none(name, None);
        paths.iter().try_for_each(|path| parts.push(path.as_os_str().as_bytes(), 0))?;
        Ok(parts)
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    fn chunk(&self, rank: u32) -> Option<(&Chunk, usize)> {
        let chunk = self.chunks[rank as usize / CHUNK].as_deref()?;
        Some((chunk, rank as usize % CHUNK))
    }

    /// That of a rank; nothing of one that was forgotten.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn part(&self, rank: u32) -> Part<'_> {
        let whole = self.chunk(rank).map_or(&[][..], |(chunk, at)| chunk.text(at));
        Part::new(whole, self.separator.as_deref())
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
        let (chunk, at) = self.chunk(rank)?;
        Some(chunk.lines[at].into()).filter(|&line| line > 0)
    }

    /// An error about the part of a rank.
    fn wrong(&self, rank: u32, what: String) -> PartsError {
        PartsError::Line { name: self.name.clone(), line: self.line(rank).unwrap_or(0), what }
    }

    /// Sees that every line has so many columns.
    ///
    /// # Errors
    /// Names the first that has fewer.
    pub fn have_columns(&self, needed: usize) -> Result<(), PartsError> {
        self.have_columns_from(0, needed)
    }

    /// Sees that every line from that of a rank on has so many columns.
    ///
    /// # Errors
    /// Names the first that has fewer.
    pub fn have_columns_from(&self, first: u32, needed: usize) -> Result<(), PartsError> {
        if needed <= 1 {
            return Ok(());
        }
        for rank in first..self.count() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str, header: bool) -> Result<Parts, String> {
        Parts::read(text.as_bytes(), form(header)).map_err(|error| error.to_string())
    }

    fn form(header: bool) -> Form {
        Form { name: "parts.tsv".into(), separator: "\t".into(), header, null: false }
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
        let mut parts = Parts::none("parts.tsv", None);
        parts.most = 3;
        let error = (0..9).find_map(|_| parts.push(b"x", 1).err()).unwrap().to_string();
        assert_eq!(parts.count(), 3);
        assert!(error.contains("parts.tsv has more than 3 parts"), "{error}");
    }

    /// What does not fit is no part, and those before it stay as they are.
    #[test]
    fn lines_that_are_too_long_together_are_told() {
        let mut parts = Parts::none("parts.tsv", None);
        parts.longest = 10;
        parts.push(b"12345", 1).unwrap();
        parts.push(b"67890", 2).unwrap();
        for _ in 0..2 {
            let error = parts.push(b"x", 3).unwrap_err().to_string();
            assert!(error.contains("parts.tsv, line 3: it and up to 4096 lines before it"), "{error}");
        }
        assert_eq!((parts.count(), parts.part(1).whole()), (2, &b"67890"[..]));
        // Those further on have bytes of their own.
        (2..CHUNK as u64).for_each(|line| parts.push(b"", line).unwrap());
        parts.push(b"0123456789", 9).unwrap();
        assert_eq!(parts.part(CHUNK as u32).whole(), b"0123456789");
    }

    #[test]
    fn parts_that_come_one_by_one_are_forgotten_together() {
        let all = 3 * CHUNK as u32 + 7;
        let text: String = (0..all).map(|rank| format!("p{rank}\n\n")).collect();
        let mut reader = Reader::new(text.as_bytes(), form(false));
        let mut parts = Parts::begin(&mut reader).unwrap();
        assert_eq!(parts.count(), 1);
        parts.read_rest(&mut reader).unwrap();
        assert_eq!(parts.count(), all);
        let of = |parts: &Parts, rank: u32| {
            (String::from_utf8(parts.part(rank).whole().to_vec()).unwrap(), parts.line(rank))
        };
        for rank in (0..all).step_by(501) {
            assert_eq!(of(&parts, rank), (format!("p{rank}"), Some(2 * u64::from(rank) + 1)));
        }
        let first = CHUNK as u32;
        (first + 1..all).for_each(|rank| parts.forget(rank));
        assert_eq!(of(&parts, first).0, format!("p{first}"));
        assert_eq!(of(&parts, 2 * first), (String::new(), None));
        parts.forget(first);
        assert_eq!(parts.chunks.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false, true]);
        assert_eq!(of(&parts, first - 1).0, format!("p{}", first - 1));
        parts.push(b"new", 1).unwrap();
        assert_eq!(of(&parts, all).0, "new", "the last one is not full");
    }

    #[test]
    fn paths_are_sorted_and_each_is_there_once() {
        let paths = ["./b", "a\nb", "b", "./a", "././/a", "a"].map(PathBuf::from).to_vec();
        let parts = Parts::paths(paths, "--glob").unwrap();
        let whole: Vec<&[u8]> = (0..parts.count()).map(|rank| parts.part(rank).whole()).collect();
        assert_eq!(whole, [&b"./a"[..], b"a\nb", b"./b"], "as the first of them is spelled");
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
