//! What has ended, on disk: so that a job goes on where it stopped (`--journal`, `--resume`), and that others
//! can read what ran (`--joblog`, in GNU parallel's columns).
//!
//! | file | what |
//! |---|---|
//! | `record.rs` | pure: the lines of a journal, also of one whose last line is torn |
//! | `identity.rs` | pure: whether it is the same job, and what differs; who of it is done |
//! | `writer.rs` | the thread that writes; what ranks wrote aside takes its name |
//! | `joblog.rs` | pure: GNU parallel's columns |
//!
//! # What a journal promises
//! A part is *done* when its line is in the journal: it ended with 0, and what it wrote to its
//! `--output-files` is durable. In the order of the steps: the file that it wrote lies aside
//! (`NAME.unfinished`); it is synced; the line is written; the file takes its name. Whoever resumes takes the
//! last step for those of whom it is missing. So, whatever moment bdrun is killed at, a file under its own
//! name is whole, and no part whose line is there runs again. A part that ended in the moment before its line
//! is written does run again.
//!
//! A part that is done, but whose output was removed since, is to run again. A line takes back that it is
//! done before it begins. So is one whose output another part has written since: a line says which output,
//! and the last that ended well has it.
//!
//! What lies aside may be of another that was to write the same name, and failed, or was killed with bdrun.
//! So a line says of what was written how large it was and when it was changed last, and only such a file
//! takes the name. What lies under the name itself is taken as it is, and it is said if it was changed.
//!
//! Lines are appended, never changed. A last line without its end was being written when bdrun was killed: it
//! counts for nothing. One bdrun at a time has a journal (a lock on the file).

mod identity;
mod joblog;
mod record;
mod writer;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::cli::Options;
use crate::exit::Ending;
use crate::in_use;
use crate::launch::Launch;
use crate::residency::Rank;
use crate::whole;
use identity::Identity;
use record::{Contents, End, Header, Stamp, VERSION};
use writer::Writer;

/// Where a rank's output lies until it has ended well.
#[must_use]
pub fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    name.into()
}

/// How a rank ended, to be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its exit code; 0 if a signal ended it.
    pub exit: i32,
    /// The signal that ended it, or 0.
    pub signal: i32,
    /// It ended because the job did, whatever it says of itself.
    pub stopped: bool,
    /// When its process began.
    pub began: SystemTime,
    /// How long it lived.
    pub lived: Duration,
    /// The most it held, bytes, as far as it is known.
    pub peak: u64,
    /// The number of the file that it wrote its standard output to, if that was one.
    pub file: Option<u64>,
}

/// A part that need not run.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Which rank it is in this job.
    pub rank: Rank,
    /// The most it held, bytes; 0 if that is not known.
    pub peak: u64,
    /// Its output is there, and is not as it left it.
    pub changed: bool,
}

/// The journal and the job log of a job that runs, as far as they were asked for.
pub struct Journal {
    writer: Option<Writer>,
    keeps: bool,
}

/// What is there already.
struct Found {
    file: File,
    contents: Contents,
}

impl Found {
    /// The next line is written behind the last whole one; the first, if there is none. Who is to run again
    /// is done no more.
    fn go_on(&mut self, identity: &Identity, again: &[End]) -> io::Result<()> {
        self.file.set_len(self.contents.len)?;
        let mut lines = Vec::new();
        if self.contents.header.is_none() {
            lines = Header { bdrun_journal: VERSION, job: identity.job.clone() }.line();
        }
        lines.extend(again.iter().flat_map(End::line));
        if !lines.is_empty() {
            self.file.write_all(&lines)?;
            self.file.sync_all()?;
        }
        Ok(())
    }
}

impl Journal {
    /// Opens what was asked for; also who is done already. What those that are done have written takes its
    /// name, if it was not given that before. `here`: the ranks of this master. `told` is, once, that all is
    /// written ([`Journal::close`]), or at once what cannot be.
    ///
    /// # Errors
    /// [`Ending::Setup`]: a file cannot be had, is none of ours, or somebody else writes it now;
    /// [`Ending::Usage`]: the journal is of another job, with the difference.
    pub fn open(
        options: &Options,
        launch: &Launch,
        here: Range<Rank>,
        told: impl Fn(Result<(), String>) + Send + 'static,
    ) -> Result<(Self, Vec<Done>), Ending> {
        let given = &options.journal;
        let mut done = Vec::new();
        let mut journal = None;
        let named_journal = given.path();
        let found = named_journal.map(|(path, option)| find(path, given.journal.is_some(), option));
        let found = found.transpose()?;
        // Now that nobody else has the journal, and before anything takes a name.
        if let Some((path, in_use)) = in_use::first(written(launch, here)) {
            let path = path.display();
            return Err(Ending::Setup(format!("{path}, which a rank is to write, is in use: {in_use}")));
        }
        if let (Some((path, option)), Some(mut found)) = (named_journal, found) {
            let identity = Identity::of(launch)?;
            let mut again = Vec::new();
            for (mut part, wrote) in identity.done(&found.contents, launch, option, path)? {
                if let Some(path) = launch.output(part.rank) {
                    let lies = named(&path, wrote);
                    let lies = lies.map_err(|what| Ending::Setup(format!("{option}: {what}")))?;
                    if lies == Lies::Nowhere {
                        let given = identity::hash_of(&launch.given(part.rank));
                        again.push(End::revocation(part.rank, launch.part(part.rank), given));
                        continue;
                    }
                    part.changed = lies == Lies::Changed;
                }
                done.push(part);
            }
            found.go_on(&identity, &again).map_err(|error| cannot(option, path, &error))?;
            journal = Some((found.file, path.to_owned()));
        }
        let joblog = match &given.joblog {
            Some(path) => {
                let log = open_log(path, given.resume.is_some(), journal.as_ref().map(|(file, _)| file))?;
                Some((log, path.clone()))
            }
            None => None,
        };
        let keeps = journal.is_some();
        let writer = (keeps || joblog.is_some())
            .then(|| Writer::start(journal, joblog, told))
            .transpose()
            .map_err(|error| Ending::Setup(format!("cannot start a thread: {error}")))?;
        Ok((Self { writer, keeps }, done))
    }

    /// That of a master of whose ranks another writes down how they ended.
    #[must_use]
    pub fn elsewhere(options: &Options) -> Self {
        Self { writer: None, keeps: options.journal.path().is_some() }
    }

    /// Who is done, for a job that is only shown: nothing is written.
    ///
    /// # Errors
    /// As for [`Journal::open`].
    pub fn peek(options: &Options, launch: &Launch) -> Result<Vec<Done>, Ending> {
        let Some(path) = &options.journal.resume else { return Ok(Vec::new()) };
        let contents = match std::fs::read(path) {
            Ok(bytes) => Contents::parse(&bytes).map_err(|what| is_none("--resume", path, &what))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Contents::default(),
            Err(error) => return Err(cannot("--resume", path, &error)),
        };
        let done = Identity::of(launch)?.done(&contents, launch, "--resume", path)?;
        let is_there = |(done, wrote): &(Done, _)| {
            launch.output(done.rank).is_none_or(|path| Lies::of(&path, *wrote) != Lies::Nowhere)
        };
        Ok(done.into_iter().filter(is_there).map(|(done, _)| done).collect())
    }

    /// Whether ranks write aside until they have ended well.
    #[must_use]
    pub const fn writes_aside(&self) -> bool {
        self.keeps
    }

    /// A rank has ended, on that host if it was not on this one. Returns at once.
    pub fn ended(&self, launch: &Launch, rank: Rank, ended: Ended, host: Option<&str>) {
        let Some(writer) = &self.writer else { return };
        let begin = ended.began.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let output = if self.keeps { launch.output(rank) } else { None };
        let end = End {
            rank,
            part: launch.part(rank),
            given: identity::hash_of(&launch.given(rank)),
            exit: ended.exit,
            signal: ended.signal,
            stopped: ended.stopped,
            revoked: false,
            begin,
            seconds: ended.lived.as_secs_f64(),
            peak: ended.peak,
            output: output.as_deref().map(identity::hash_of_name),
            wrote: None,
        };
        let log = joblog::line(launch, rank, &ended, begin, host);
        writer.write(writer::Job { end, output, file: ended.file, is_elsewhere: host.is_some(), log });
    }

    /// Nothing more is to be written; once all is, that is told. Whether there is anything to wait for.
    pub fn close(&mut self) -> bool {
        self.writer.take().is_some()
    }
}

fn cannot(option: &str, path: &Path, error: &io::Error) -> Ending {
    Ending::Setup(format!("{option}: {} cannot be used: {error}", path.display()))
}

/// The file is ours as long as it is open.
fn take(option: &str, path: &Path, file: &File) -> Result<(), Ending> {
    in_use::take(file)
        .map_err(|in_use| Ending::Setup(format!("{option}: {} is in use: {in_use}", path.display())))
}

fn is_none(option: &str, path: &Path, what: &str) -> Ending {
    Ending::Setup(format!("{option}: {} is no journal of bdrun's: {what}", path.display()))
}

/// The journal, which is ours as long as it is open, and what is in it.
fn find(path: &Path, is_new: bool, option: &str) -> Result<Found, Ending> {
    let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
    let mut file = opened.map_err(|error| cannot(option, path, &error))?;
    take(option, path, &file)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| cannot(option, path, &error))?;
    let contents = Contents::parse(&bytes).map_err(|what| is_none(option, path, &what))?;
    if is_new && !contents.ends.is_empty() {
        return Err(Ending::Setup(format!(
            "--journal: {} is there already, of a job of which {} parts have ended: --resume {0} goes on with it; remove it to begin anew",
            path.display(),
            contents.ends.len()
        )));
    }
    Ok(Found { file, contents })
}

/// Where what a rank wrote lies that ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    /// Aside: bdrun was killed before it took its name.
    Aside,
    /// Under its name.
    Named,
    /// Something lies under its name that is not as the rank left it.
    Changed,
    /// It was removed.
    Nowhere,
}

impl Lies {
    /// What lies aside may be what another has left since that was to write the same name, and failed or was
    /// killed: only what is known again counts. What is older than what the rank wrote was there before it.
    /// (Of a journal of an earlier bdrun it is not known what a rank wrote.)
    fn of(path: &Path, wrote: Option<Stamp>) -> Self {
        let is_its = |at: &Path| {
            let there = Stamp::of(&at.symlink_metadata().ok()?);
            let Some(wrote) = wrote else { return Some(true) };
            (!there.is_older(wrote)).then_some(there == wrote)
        };
        match (is_its(&aside(path)), is_its(path)) {
            (Some(true), _) => Self::Aside,
            (_, Some(true)) => Self::Named,
            (_, Some(false)) => Self::Changed,
            (_, None) => Self::Nowhere,
        }
    }
}

/// The output of a rank that ended well takes its name, unless it has it. Where it lay.
///
/// # Errors
/// In words: it is there and cannot be named.
fn named(path: &Path, wrote: Option<Stamp>) -> Result<Lies, String> {
    let lies = Lies::of(path, wrote);
    let aside = aside(path);
    if lies == Lies::Aside {
        std::fs::rename(&aside, path).map_err(|error| {
            format!("{} is done, and cannot take the name {}: {error}", aside.display(), path.display())
        })?;
    }
    Ok(lies)
}

fn open_log(path: &Path, goes_on: bool, journal: Option<&File>) -> Result<File, Ending> {
    let failed = |error: io::Error| cannot("--joblog", path, &error);
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    take("--joblog", path, &file)?;
    let there = file.metadata().map_err(failed)?;
    let number = |of: &Metadata| (of.dev(), of.ino());
    let journal = journal.and_then(|journal| journal.metadata().ok());
    if journal.is_some_and(|journal| number(&journal) == number(&there)) {
        return Err(Ending::Usage(format!(
            "--joblog: {} is the job's journal: name another",
            path.display()
        )));
    }
    if there.is_file() && !goes_on {
        file.set_len(0).map_err(failed)?;
    }
    if there.len() == 0 || !goes_on {
        file.write_all(joblog::HEADER.as_bytes()).map_err(failed)?;
    }
    Ok(file)
}

/// The files that these ranks write, by their own names and aside.
fn written(launch: &Launch, ranks: Range<Rank>) -> impl Iterator<Item = PathBuf> {
    let files = ranks.flat_map(|rank| launch.files(rank));
    files.flat_map(|file| [aside(&whole::regular(&file).unwrap_or_else(|| file.clone())), file])
}
