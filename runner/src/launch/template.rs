//! Placeholders in texts, and what they are replaced by. Pure.
//!
//! Only names that are known are replaced, so that what other programs mean by braces reaches them:
//! `awk '{print $1}'`, `jq '{a: 1}'`, a regular expression's `{2,3}`. Two rules more: braces behind a dollar
//! sign belong to a shell (`${rank}`), and doubled braces around a known name stand for single ones (`{{}}`
//! for `{}`). Where columns have names (`--header`) a word in braces that is none of them is an error rather
//! than an argument: most are misspelt, or the separator is; doubled braces pass it on.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::parts::Part;

/// What is taken of a text, as GNU parallel does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edit {
    /// All of it.
    All,
    /// `.`: without the last dot of its last component and what follows.
    NoExtension,
    /// `/`: what stands behind the last slash.
    Base,
    /// `//`: the directory, `.` if none is named.
    Directory,
    /// `/.`: what stands behind the last slash, without extension.
    BaseNoExtension,
}

/// Longer ones first, so that `//` is not read as `/` twice.
const EDITS: [(&[u8], Edit); 4] =
    [(b"//", Edit::Directory), (b"/.", Edit::BaseNoExtension), (b"/", Edit::Base), (b".", Edit::NoExtension)];

impl Edit {
    fn of(self, text: &[u8]) -> &[u8] {
        match self {
            Self::All => text,
            Self::NoExtension => without_extension(text),
            Self::Base => basename(text),
            Self::Directory => directory(text),
            Self::BaseNoExtension => without_extension(basename(text)),
        }
    }
}

fn last(text: &[u8], byte: u8) -> Option<usize> {
    text.iter().rposition(|&b| b == byte)
}

fn basename(text: &[u8]) -> &[u8] {
    last(text, b'/').map_or(text, |slash| &text[slash + 1..])
}

fn without_extension(text: &[u8]) -> &[u8] {
    match last(text, b'.') {
        Some(dot) if !text[dot..].contains(&b'/') => &text[..dot],
        _ => text,
    }
}

/// As `dirname(1)`.
fn directory(text: &[u8]) -> &[u8] {
    match last(without_slashes(text), b'/') {
        None => b".",
        Some(slash) => without_slashes(&text[..slash.max(1)]),
    }
}

/// Without those at its end, unless there is nothing else.
fn without_slashes(text: &[u8]) -> &[u8] {
    let length = text.iter().rposition(|&byte| byte != b'/').map_or(text.len().min(1), |at| at + 1);
    &text[..length]
}

/// A placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Rank,
    Size,
    /// The rank counted from 1.
    Number,
    /// Of the whole part.
    Whole(Edit),
    /// Of a column, the first is 0.
    Column(usize, Edit),
}

/// Which names are known.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// Whether there are parts.
    pub parts: bool,
    /// The names of their columns.
    pub header: &'a [Vec<u8>],
}

impl Names<'_> {
    /// What `{name}` means; nothing if the name is not known.
    ///
    /// # Errors
    /// If it may mean two things.
    fn field(&self, name: &[u8]) -> Result<Option<Field>, String> {
        let column = |name: &[u8]| self.header.iter().position(|column| !name.is_empty() && column == name);
        let own = match name {
            b"rank" => Some((Field::Rank, "the rank", "$BDRUN_RANK")),
            b"size" => Some((Field::Size, "the number of ranks", "$BDRUN_SIZE")),
            _ => None,
        };
        match (own, column(name)) {
            (Some((_, meaning, variable)), Some(column)) => {
                return Err(format!(
                    "{{{name}}} is both {meaning} and a column of --parts: write {{{}}} for the column; ranks find {meaning} \
                     in {variable}",
                    column + 1,
                    name = String::from_utf8_lossy(name),
                ));
            }
            (Some((field, ..)), None) => return Ok(Some(field)),
            (None, Some(column)) => return Ok(Some(Field::Column(column, Edit::All))),
            (None, None) if !self.parts => return Ok(None),
            (None, None) => {}
        }
        let edited = EDITS.iter().find_map(|&(mark, edit)| Some((name.strip_suffix(mark)?, edit)));
        let (base, edit) = edited.unwrap_or((name, Edit::All));
        Ok(match base {
            b"" => Some(Field::Whole(edit)),
            b"#" if edit == Edit::All => Some(Field::Number),
            _ => number(base).or_else(|| column(base)).map(|column| Field::Column(column, edit)),
        })
    }
}

impl Names<'_> {
    /// Whether who writes this in braces means a column: a word, where columns have names.
    fn would_be_a_column(&self, name: &[u8]) -> bool {
        let base = EDITS.iter().find_map(|&(mark, _)| name.strip_suffix(mark)).unwrap_or(name);
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        !self.header.is_empty()
            && base.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
            && base.iter().all(is_word)
    }

    /// That there is no such column, and which there are, the nearest first.
    fn no_column(&self, name: &[u8]) -> String {
        let name = String::from_utf8_lossy(name);
        let mut known: Vec<_> = self.header.iter().map(|column| String::from_utf8_lossy(column)).collect();
        known.extend(["rank".into(), "size".into()]);
        known.sort_by_key(|known| strsim::damerau_levenshtein(known, &name));
        let nearest = &known[0];
        let columns: Vec<_> =
            self.header.iter().map(|column| format!("'{}'", String::from_utf8_lossy(column))).collect();
        format!(
            "{{{name}}} names no column; did you mean {{{nearest}}}? The columns are {} (is --colsep right?); to pass {{{name}}} \
             on as it is, write {{{{{name}}}}}",
            columns.join(", ")
        )
    }
}

/// `1`, `2`, …, as an index from 0.
fn number(text: &[u8]) -> Option<usize> {
    let digits = text.iter().all(u8::is_ascii_digit) && !text.starts_with(b"0");
    let number: Option<usize> = std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok();
    number?.checked_sub(1)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Field(Field),
}

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    /// A text that stays as it is.
    #[must_use]
    pub fn literal(text: &OsStr) -> Self {
        Self { pieces: vec![Piece::Text(text.as_bytes().to_vec())] }
    }

    /// The whole part.
    #[must_use]
    pub fn whole() -> Self {
        Self { pieces: vec![Piece::Field(Field::Whole(Edit::All))] }
    }

    /// Finds the placeholders of a text.
    ///
    /// # Errors
    /// If one of them may mean two things.
    pub fn parse(text: &OsStr, names: &Names<'_>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((&first, behind)) = rest.split_first() {
            if first == b'$' {
                // Braces that follow are a shell's.
                let braces = behind.iter().take_while(|&&byte| byte == b'{').count();
                plain.extend_from_slice(&rest[..=braces]);
                rest = &behind[braces..];
                continue;
            }
            if first == b'{' {
                let doubled = behind.strip_prefix(b"{").and_then(enclosed);
                if let Some((name, after)) = doubled
                    && let Some(after) = after.strip_prefix(b"}")
                    && (names.field(name)?.is_some() || names.would_be_a_column(name))
                {
                    plain.push(b'{');
                    plain.extend_from_slice(name);
                    plain.push(b'}');
                    rest = after;
                    continue;
                }
                if let Some((name, _)) = enclosed(behind)
                    && names.field(name)?.is_none()
                    && names.would_be_a_column(name)
                {
                    return Err(names.no_column(name));
                }
                if let Some((name, after)) = enclosed(behind)
                    && let Some(field) = names.field(name)?
                {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Field(field));
                    rest = after;
                    continue;
                }
            }
            plain.push(first);
            rest = behind;
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// The text for one rank of `size`. A column that the part does not have is empty; [`Self::columns`] lets
    /// that be found before.
    #[must_use]
    pub fn render(&self, rank: u32, size: u32, part: Option<Part<'_>>) -> OsString {
        let mut text = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.extend_from_slice(plain),
                Piece::Field(Field::Rank) => text.extend_from_slice(rank.to_string().as_bytes()),
                Piece::Field(Field::Size) => text.extend_from_slice(size.to_string().as_bytes()),
                Piece::Field(Field::Number) => {
                    text.extend_from_slice((u64::from(rank) + 1).to_string().as_bytes());
                }
                Piece::Field(Field::Whole(edit)) => {
                    text.extend_from_slice(part.map_or(&[][..], |part| edit.of(part.whole())));
                }
                Piece::Field(Field::Column(column, edit)) => {
                    let value = part.and_then(|part| part.column(*column));
                    text.extend_from_slice(value.map_or(&[][..], |value| edit.of(value)));
                }
            }
        }
        OsString::from_vec(text)
    }

    fn fields(&self) -> impl Iterator<Item = Field> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Field(field) => Some(*field),
        })
    }

    /// Whether anything is replaced in it.
    #[must_use]
    pub fn has_placeholders(&self) -> bool {
        self.fields().next().is_some()
    }

    /// Whether it says what the part of a rank is.
    #[must_use]
    pub fn names_part(&self) -> bool {
        self.fields().any(|field| matches!(field, Field::Whole(_) | Field::Column(..)))
    }

    /// Whether it says how many ranks there are.
    #[must_use]
    pub fn names_size(&self) -> bool {
        self.fields().any(|field| field == Field::Size)
    }

    /// Whether it is another text for each rank, as far as can be known from it.
    #[must_use]
    pub fn depends_on_rank(&self) -> bool {
        self.fields().any(|field| field != Field::Size)
    }

    /// How many columns a part must have for it.
    #[must_use]
    pub fn columns(&self) -> usize {
        let column = |field| if let Field::Column(column, _) = field { column + 1 } else { 0 };
        self.fields().map(column).max().unwrap_or(0)
    }
}

/// What stands before the next closing brace, and behind it; nothing if another brace opens before.
fn enclosed(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&byte| byte == b'{' || byte == b'}')?;
    (text[end] == b'}').then(|| (&text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests;
