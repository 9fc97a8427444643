//! The paths that a pattern of `--glob` matches, for names of any bytes.
//!
//! As in a shell: `*`, `?` and `[…]` stand for what is in one component, a name that begins with a dot is
//! left to patterns that do, what is spelled in front of the first pattern stays as it is spelled, and `**`
//! does not go through links to directories. Other than in a shell a directory that cannot be read is an
//! error: a job that leaves out inputs looks as if it had done them. The rules stand in docs/user-guide.md.

use std::ffi::{OsStr, OsString};
use std::fs::DirEntry;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::Utf8Chunk;

use super::awaited::Until;

/// Why it is not known what matches.
#[derive(Debug, thiserror::Error)]
pub enum GlobError {
    /// The pattern is none.
    #[error("in '{component}' {what}")]
    Pattern {
        /// Where.
        component: String,
        /// What is wrong there.
        what: &'static str,
    },
    /// Something may be there, and cannot be seen.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A character, or a byte that is part of none: those have numbers behind all characters.
type Unit = u32;

fn units(bytes: &[u8]) -> Vec<Unit> {
    const BYTES: Unit = char::MAX as Unit + 1;
    let units = |chunk: Utf8Chunk<'_>| -> Vec<Unit> {
        let bytes = chunk.invalid().iter().map(|&byte| BYTES + Unit::from(byte));
        chunk.valid().chars().map(Unit::from).chain(bytes).collect()
    };
    bytes.utf8_chunks().flat_map(units).collect()
}

/// A piece of a pattern for a name.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// This one.
    Unit(Unit),
    /// `?`: any one.
    Any,
    /// `*`: however many.
    Many,
    /// `[…]`: one of these ranges, or (`[!…]`) of none of them.
    Among { ranges: Vec<(Unit, Unit)>, is_in: bool },
}

impl Token {
    fn takes(&self, unit: Unit) -> bool {
        match self {
            Self::Unit(own) => *own == unit,
            Self::Any => true,
            Self::Many => false,
            Self::Among { ranges, is_in } => {
                ranges.iter().any(|&(first, last)| (first..=last).contains(&unit)) == *is_in
            }
        }
    }
}

/// A pattern for one name.
#[derive(Debug, PartialEq, Eq)]
struct Names(Vec<Token>);

impl Names {
    fn parse(component: &[u8]) -> Result<Self, &'static str> {
        let units = units(component);
        let mut tokens: Vec<Token> = Vec::new();
        let mut at = 0;
        while let Some(&unit) = units.get(at) {
            at += 1;
            tokens.push(match char::from_u32(unit) {
                Some('*') if tokens.last() == Some(&Token::Many) => {
                    return Err(
                        "'**' stands beside others: it stands for directories, alone between two '/'",
                    );
                }
                Some('*') => Token::Many,
                Some('?') => Token::Any,
                Some('[') => {
                    let (among, length) = among(&units[at..]).ok_or("a '[' has no ']'")?;
                    at += length;
                    among
                }
                _ => Token::Unit(unit),
            });
        }
        Ok(Self(tokens))
    }

    fn match_name(&self, name: &[u8]) -> bool {
        let Self(tokens) = self;
        let name = units(name);
        let dot = Unit::from('.');
        if name.first() == Some(&dot) && tokens.first() != Some(&Token::Unit(dot)) {
            return false;
        }
        let (mut at, mut token) = (0, 0);
        // Where the last `*` ends, and how far it reaches. What those before it have taken can stay: it takes
        // whatever they would give back.
        let mut last = None;
        loop {
            match (tokens.get(token), name.get(at)) {
                (Some(Token::Many), _) => {
                    token += 1;
                    last = Some((token, at));
                }
                (Some(one), Some(&unit)) if one.takes(unit) => (token, at) = (token + 1, at + 1),
                (None, None) => return true,
                _ => match &mut last {
                    Some((behind, reach)) if *reach < name.len() => {
                        *reach += 1;
                        (token, at) = (*behind, *reach);
                    }
                    _ => return false,
                },
            }
        }
    }
}

/// What stands behind a `[`, and how much of it belongs to that; none if that does not end.
fn among(units: &[Unit]) -> Option<(Token, usize)> {
    let is_in = !units.first().is_some_and(|&unit| ['!', '^'].map(Unit::from).contains(&unit));
    let begin = usize::from(!is_in);
    // A ']' that comes first is one of them.
    let length = units.get(begin + 1..)?.iter().position(|&unit| unit == Unit::from(']'))? + 1;
    let (mut ranges, mut rest) = (Vec::new(), &units[begin..begin + length]);
    while let Some((&first, others)) = rest.split_first() {
        let last;
        (last, rest) = match others {
            [dash, last, others @ ..] if *dash == Unit::from('-') => (*last, others),
            others => (first, others),
        };
        ranges.push((first, last));
    }
    Some((Token::Among { ranges, is_in }, begin + length + 1))
}

/// What is matched of a path.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// One name.
    Names(Names),
    /// `**`: directories, one in another, however many.
    Directories,
}

/// A pattern: what is spelled, and what is matched behind that, and so on.
#[derive(Debug, PartialEq, Eq)]
struct Pattern {
    steps: Vec<(Vec<u8>, Kind)>,
    /// What is spelled behind the last.
    tail: Vec<u8>,
    /// It ends with a slash: only directories are meant.
    directories: bool,
}

impl Pattern {
    fn parse(pattern: &[u8]) -> Result<Self, GlobError> {
        let (mut steps, mut spelled): (Vec<(Vec<u8>, Kind)>, Vec<u8>) = (Vec::new(), Vec::new());
        for component in pattern.split_inclusive(|&byte| byte == b'/') {
            let name = component.strip_suffix(b"/").unwrap_or(component);
            if !name.iter().any(|byte| b"*?[".contains(byte)) {
                spelled.extend_from_slice(component);
                continue;
            }
            let wrong =
                |what| GlobError::Pattern { component: String::from_utf8_lossy(name).into_owned(), what };
            let kind = match name {
                b"**" => Kind::Directories,
                _ => Kind::Names(Names::parse(name).map_err(wrong)?),
            };
            let is_again = kind == Kind::Directories
                && steps.last().is_some_and(|(_, kind)| *kind == Kind::Directories)
                && spelled.iter().all(|&byte| byte == b'/');
            if !is_again {
                steps.push((std::mem::take(&mut spelled), kind));
            }
            spelled = component[name.len()..].to_vec();
        }
        let last = spelled.iter().rposition(|&byte| byte != b'/');
        // The root is a slash.
        let end = last.map_or(if steps.is_empty() { spelled.len() } else { 0 }, |last| last + 1);
        let directories = end < spelled.len();
        spelled.truncate(end);
        Ok(Self { steps, tail: spelled, directories })
    }
}

/// All that matches, in no order; what matches in several ways several times.
///
/// # Errors
/// If the pattern is none, a directory cannot be read, or time is over before it is.
pub fn matching(pattern: &OsStr, until: Option<Until>) -> Result<Vec<PathBuf>, GlobError> {
    let pattern = Pattern::parse(pattern.as_bytes())?;
    let mut search = Search { pattern: &pattern, until, todo: vec![(Vec::new(), 0)], found: Vec::new() };
    while let Some((path, step)) = search.todo.pop() {
        search.go_on(path, step)?;
    }
    Ok(search.found)
}

struct Search<'a> {
    pattern: &'a Pattern,
    until: Option<Until>,
    /// Paths as far as they match, and how many steps that are.
    todo: Vec<(Vec<u8>, usize)>,
    found: Vec<PathBuf>,
}

impl Search<'_> {
    fn go_on(&mut self, path: Vec<u8>, step: usize) -> Result<(), GlobError> {
        let Some((spelled, kind)) = self.pattern.steps.get(step) else { return self.end(path) };
        let directory = with(path, spelled, step);
        match kind {
            Kind::Names(names) => {
                for entry in self.entries(&directory)? {
                    let name = entry.file_name();
                    if names.match_name(name.as_bytes()) {
                        self.step(&entry, below(&directory, &name), step + 1)?;
                    }
                }
            }
            Kind::Directories => {
                let is_last = step + 1 == self.pattern.steps.len() && self.pattern.tail.is_empty();
                // None of them at all; but what ends with them means those that are below.
                if !is_last {
                    self.todo.push((directory.clone(), step + 1));
                }
                let mut inside = vec![directory];
                while let Some(directory) = inside.pop() {
                    for entry in self.entries(&directory)? {
                        let name = entry.file_name();
                        // One that is gone by now is none.
                        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                        if is_directory && !name.as_bytes().starts_with(b".") {
                            let path = below(&directory, &name);
                            self.todo.push((path.clone(), step + 1));
                            inside.push(path);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// What is in a directory; nothing of what is none.
    fn entries(&self, directory: &[u8]) -> Result<Vec<DirEntry>, GlobError> {
        let path = Path::new(OsStr::from_bytes(if directory.is_empty() { b"." } else { directory }));
        let late = self.until.map_or(Ok(()), |until| until.left().map(drop));
        let entries = late.and_then(|()| std::fs::read_dir(path)).and_then(Iterator::collect);
        match entries {
            Err(error) if is_none(&error) => Ok(Vec::new()),
            entries => entries.map_err(|source| GlobError::Read { path: path.to_owned(), source }),
        }
    }

    /// A name matches. What more is to match is in it, if it is a directory, behind links too.
    fn step(&mut self, entry: &DirEntry, path: Vec<u8>, step: usize) -> Result<(), GlobError> {
        let goes_on = step < self.pattern.steps.len() || !self.pattern.tail.is_empty();
        if goes_on && entry.file_type().is_ok_and(|kind| !kind.is_dir() && !kind.is_symlink()) {
            return Ok(());
        }
        if goes_on {
            self.todo.push((path, step));
            return Ok(());
        }
        self.end(path)
    }

    /// All that is matched does; there is what is spelled behind it, or not.
    fn end(&mut self, path: Vec<u8>) -> Result<(), GlobError> {
        let Pattern { steps, tail, directories } = self.pattern;
        let path = PathBuf::from(OsString::from_vec(with(path, tail, steps.len())));
        let there = if *directories {
            path.metadata().map(|metadata| metadata.is_dir())
        } else if !tail.is_empty() {
            path.symlink_metadata().map(|_| true)
        } else {
            Ok(!path.as_os_str().is_empty())
        };
        match there {
            Ok(true) => self.found.push(path),
            Ok(false) => {}
            Err(error) if is_none(&error) => {}
            Err(source) => return Err(GlobError::Read { path, source }),
        }
        Ok(())
    }
}

/// Nothing is there, or no directory is where one would have to be, or links that lead to each other.
fn is_none(error: &io::Error) -> bool {
    let leads_nowhere = error.raw_os_error() == Some(libc::ELOOP);
    leads_nowhere || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// A path, and what is spelled behind it. Between the two there is a slash already where `**` has stood for
/// no directory at all.
fn with(mut path: Vec<u8>, spelled: &[u8], step: usize) -> Vec<u8> {
    let stands = step > 0 && (path.is_empty() || path.ends_with(b"/"));
    let slashes = spelled.iter().take_while(|&&byte| stands && byte == b'/').count();
    path.extend_from_slice(&spelled[slashes..]);
    path
}

fn below(directory: &[u8], name: &OsStr) -> Vec<u8> {
    let slash: &[u8] = if directory.is_empty() || directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name.as_bytes()].concat()
}

#[cfg(test)]
mod tests;
