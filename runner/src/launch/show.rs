//! What is run, in words: `--dry-run`, as lines for the shell; ranks by their parts; the job, to know it
//! again.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Given, Launch};
use crate::cli::Options;
use crate::units::Bytes;

impl Launch {
    /// One line for each rank: its command with its directory, files and environment, quoted for a shell, and
    /// behind `#` its number and the memory expected of it, if that is known.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn show(
        &self,
        out: &mut impl Write,
        ranks: impl IntoIterator<Item = (u32, Option<u64>)>,
    ) -> io::Result<()> {
        for (rank, expected) in ranks {
            let mut given = self.given(rank);
            // Files are found from where bdrun is, the program too; the line is read by a shell that has
            // changed its directory.
            let moves = given.directory.is_some();
            let file = |path: &Path| match moves {
                true => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).into_os_string(),
                false => path.as_os_str().to_owned(),
            };
            if given.program.as_bytes().contains(&b'/') {
                given.program = file(Path::new(&given.program));
            }
            if let Some(directory) = &given.directory {
                write_words(out, b"cd ", [directory.as_os_str()])?;
                out.write_all(b" && ")?;
            }
            for (name, value) in &given.env {
                out.write_all(name.as_bytes())?;
                write_words(out, b"=", [value.as_os_str()])?;
                out.write_all(b" ")?;
            }
            write_command(out, &given)?;
            if let Some(path) = &given.stdin {
                write_words(out, b" < ", [file(path).as_os_str()])?;
            }
            if let Some(path) = &given.stdout {
                write_words(out, b" > ", [file(path).as_os_str()])?;
            }
            match &given.stderr {
                Some(path) if given.stdout.as_ref() == Some(path) => out.write_all(b" 2>&1")?,
                Some(path) => write_words(out, b" 2> ", [file(path).as_os_str()])?,
                None => {}
            }
            write!(out, "  # rank {rank}")?;
            if let Some(bytes) = expected {
                write!(out, ", {} expected", Bytes(bytes))?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// A rank's program and arguments, as a line for the shell.
    #[must_use]
    pub fn command_line(&self, rank: u32) -> String {
        let mut line = Vec::new();
        // A vector takes all that is written to it.
        let _ = write_command(&mut line, &self.given(rank));
        text_of(&line)
    }

    /// A rank's part, as text that no other part has.
    #[must_use]
    pub fn part(&self, rank: u32) -> Option<String> {
        self.parts.as_ref().map(|parts| text_of(parts.part(rank).whole()))
    }

    /// What people call a rank that has a part: `reads/7.fa (line 8, rank 7)`.
    #[must_use]
    pub fn name(&self, rank: u32) -> Option<String> {
        let part = self.part(rank).filter(|part| !part.is_empty())?.replace(['\t', '\n'], " ");
        let shown: String = part.chars().take(NAMED).collect();
        let more = if shown.len() < part.len() { "…" } else { "" };
        let line = self.parts.as_ref().and_then(|parts| parts.line(rank));
        let line = line.map(|line| format!("line {line}, ")).unwrap_or_default();
        Some(format!("{shown}{more} ({line}rank {rank})"))
    }

    /// What was asked for, option by option: what makes a job the one it is. Parts may be added to it.
    #[must_use]
    pub fn described(&self) -> Vec<(String, String)> {
        self.described.clone()
    }
}

/// See [`Launch::described`].
pub(super) fn described(options: &Options, has_parts: bool) -> Vec<(String, String)> {
    let given = &options.launch;
    let mut all = Vec::new();
    let mut add = |name: &str, value: &OsStr| all.push((name.to_owned(), text_of(value.as_bytes())));
    for (number, section) in (1..).zip(options.sections()) {
        let of =
            |what: &str| if number == 1 { what.to_owned() } else { format!("{what} of program {number}") };
        let mut command = Vec::new();
        let _ = write_words(&mut command, b"", section.command.iter().map(OsString::as_os_str));
        add(&of("the command"), OsStr::from_bytes(&command));
        for setting in &section.env {
            let name = format!("--env {}", setting.name.display());
            add(&of(&name), setting.value.as_deref().unwrap_or(OsStr::new("bdrun's own")));
        }
        if let Some(directory) = &section.chdir {
            add(&of("--chdir"), directory);
        }
        if !has_parts {
            add(&of("-np"), OsStr::new(&section.np.unwrap_or(1).to_string()));
        }
    }
    let files = [&given.stdin, &given.output_files, &given.error_files];
    for (name, value) in ["--stdin", "--output-files", "--error-files"].into_iter().zip(files) {
        if let Some(value) = value {
            add(name, value);
        }
    }
    if given.literal {
        add("--literal", OsStr::new("yes"));
    }
    all
}

/// So many characters of a part are its name, at most.
const NAMED: usize = 100;

/// Bytes as text: as they are where they are text, else in hexadecimal, behind a character that stands for
/// what is none.
fn text_of(bytes: &[u8]) -> String {
    let hexadecimal = || bytes.iter().fold("\u{fffd}".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    std::str::from_utf8(bytes).map_or_else(|_| hexadecimal(), str::to_owned)
}

fn write_command(out: &mut impl Write, given: &Given) -> io::Result<()> {
    let words = std::iter::once(&given.program).chain(&given.args).map(OsString::as_os_str);
    write_words(out, b"", words)
}

/// Words with spaces between, each quoted where a shell would otherwise read more into it.
fn write_words<'a>(
    out: &mut impl Write,
    before: &[u8],
    words: impl IntoIterator<Item = &'a OsStr>,
) -> io::Result<()> {
    out.write_all(before)?;
    for (at, word) in words.into_iter().enumerate() {
        if at > 0 {
            out.write_all(b" ")?;
        }
        // Only a zero byte cannot be quoted; nor can it be an argument.
        out.write_all(&shlex::bytes::try_quote(word.as_bytes()).unwrap_or_else(|_| word.as_bytes().into()))?;
    }
    Ok(())
}
