//! What must be there before anything starts, and what must not be there twice: a job should not end after
//! hours because the input of its last rank was never there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::Launch;
use super::parts::Parts;
use super::template::Template;
use crate::exit::Ending;
use crate::whole;

/// The sizes of the files that the parts are, in bytes; of what is no file, nothing.
pub(super) fn file_sizes(parts: &Parts) -> Vec<Option<u64>> {
    let size = |rank| {
        let path = Path::new(OsStr::from_bytes(parts.part(rank).whole()));
        path.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
    };
    (0..parts.count()).map(size).collect()
}

impl Launch {
    /// All ranks' directories and files. A few system calls for each rank that has a directory or a file of
    /// its own.
    pub(super) fn check(&mut self) -> Result<(), Ending> {
        self.check_from(0)
    }

    /// The same of those from this on.
    pub(super) fn check_from(&mut self, from: u32) -> Result<(), Ending> {
        let mut outputs = std::mem::take(&mut self.outputs);
        let checked = self.check_inputs(from).and_then(|()| self.check_outputs(from, &mut outputs));
        self.outputs = outputs;
        checked
    }

    fn check_inputs(&self, from: u32) -> Result<(), Ending> {
        self.each(
            from,
            |rank| self.program_of(rank).directory.as_ref(),
            |rank, path| {
                let why = match path.metadata() {
                    Ok(metadata) if metadata.is_dir() => return Ok(()),
                    Ok(_) => "it is no directory".to_owned(),
                    Err(error) => error.to_string(),
                };
                Err(Ending::Setup(format!("--chdir: rank {rank} cannot run in {}: {why}", path.display())))
            },
        )?;
        self.each(
            from,
            |_| self.stdin.as_ref(),
            |rank, path| {
                let why = match path.metadata() {
                    Ok(metadata) if !metadata.is_dir() => return Ok(()),
                    Ok(_) => "it is a directory".to_owned(),
                    Err(error) => error.to_string(),
                };
                Err(Ending::Setup(format!("--stdin: rank {rank} cannot read {}: {why}", path.display())))
            },
        )
    }

    /// Once for each rank, or once for all of a program where they do not differ.
    fn each<'a>(
        &self,
        from: u32,
        template: impl Fn(u32) -> Option<&'a Template>,
        look: impl Fn(u32, &Path) -> Result<(), Ending>,
    ) -> Result<(), Ending> {
        let mut first = 0;
        for program in &self.programs {
            if let Some(template) = template(first) {
                let end = if template.depends_on_rank() { program.end } else { first + 1 };
                (first.max(from)..end)
                    .try_for_each(|rank| look(rank, Path::new(&self.render(template, rank))))?;
            }
            first = program.end;
        }
        Ok(())
    }

    /// No two ranks write one file, nobody writes what another reads, and the directories are there, or can
    /// be made.
    fn check_outputs(&self, from: u32, outputs: &mut Outputs) -> Result<(), Ending> {
        let files = [("--output-files", &self.stdout), ("--error-files", &self.stderr)];
        if files.iter().all(|(_, template)| template.is_none()) {
            return Ok(());
        }
        for rank in from..self.np {
            for (option, template) in files {
                let Some(path) = self.path(template.as_ref(), rank) else { continue };
                let path = plain(&path).map_err(|error| {
                    Ending::Usage(format!("{option}: rank {rank} cannot write '{}': {error}", path.display()))
                })?;
                let directory = path.parent().unwrap_or(&path);
                if !outputs.seen.is(directory)
                    && let Some(obstacle) = not_to_be_made(directory)
                {
                    return Err(Ending::Setup(format!(
                        "{option}: rank {rank} cannot write {}: {} is no directory",
                        path.display(),
                        obstacle.display()
                    )));
                }
                let file = outputs.seen.behind_links(&path);
                if path.is_dir() {
                    return Err(Ending::Setup(format!(
                        "{option}: rank {rank} cannot write {}: it is a directory",
                        path.display()
                    )));
                }
                let written = outputs.hasher.hash_one(file);
                let other = *outputs.writers.entry(written).or_insert(rank);
                if other != rank && !is_device(&path) {
                    return Err(Ending::Usage(format!(
                        "{option}: ranks {other} and {rank} would both write {}: make the names differ, by {{rank}} for instance",
                        path.display()
                    )));
                }
            }
        }
        let seen = RefCell::new(Seen::default());
        self.each(
            from,
            |_| self.stdin.as_ref(),
            |rank, path| {
                let file = plain(path).ok().map(|path| seen.borrow_mut().behind_links(&path));
                let read = file.map(|file| outputs.hasher.hash_one(file));
                let writer = read.and_then(|read| outputs.writers.get(&read));
                match writer.filter(|_| !is_device(path)) {
                    Some(writer) => Err(Ending::Usage(format!(
                        "rank {writer} would write {}, which rank {rank} reads (--stdin)",
                        path.display()
                    ))),
                    None => Ok(()),
                }
            },
        )
    }
}

/// Who writes what, by hashes of paths: of a million ranks they are not kept. Two that differ and have one
/// hash are less likely than one in 10^7 then.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    writers: HashMap<u64, u32>,
    hasher: RandomState,
    /// Where the last one is.
    seen: Seen,
}

/// The directory that was looked at last, and what it is behind all links.
#[derive(Debug, Default)]
struct Seen(Option<(PathBuf, PathBuf)>);

impl Seen {
    fn is(&self, directory: &Path) -> bool {
        self.0.as_ref().is_some_and(|(seen, _)| seen == directory)
    }

    /// What it is as far as it is there; what is not is made in that.
    fn look<'a>(&'a mut self, directory: &'a Path) -> &'a Path {
        if !self.is(directory) {
            let real = |there: &Path| Some((there.canonicalize().ok()?, directory.strip_prefix(there).ok()?));
            let (mut real, rest) =
                directory.ancestors().find_map(real).unwrap_or((directory.to_owned(), Path::new("")));
            real.extend(rest);
            self.0 = Some((directory.to_owned(), real));
        }
        self.0.as_ref().map_or(directory, |(_, real)| real)
    }

    /// One name for all that links make of a file, those in the name of its directory too.
    fn behind_links(&mut self, path: &Path) -> PathBuf {
        if path.is_symlink() {
            return whole::regular(path).unwrap_or_else(|| path.to_owned());
        }
        match (path.parent(), path.file_name()) {
            (Some(directory), Some(name)) => self.look(directory).join(name),
            _ => path.to_owned(),
        }
    }
}

/// What is in the way of a directory that is there, or is made when its rank begins.
fn not_to_be_made(directory: &Path) -> Option<PathBuf> {
    let there = directory.ancestors().find(|path| path.symlink_metadata().is_ok())?;
    (!there.is_dir()).then(|| there.to_owned())
}

/// One name for a file, as far as its spelling goes: `./a` and `b//../a` are not looked up, only `./` and
/// `//` taken away.
fn plain(path: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// `/dev/null` and others like it can be written by all.
pub(super) fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device())
}
