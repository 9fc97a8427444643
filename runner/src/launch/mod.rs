//! What each rank is given: its part, its command line, its environment, its files and its directory.
//!
//! Everything is worked out from templates whenever a rank starts; kept are the templates and the list of
//! parts, once. No shell is involved anywhere: an argument is one argument, whatever stands in it.
//!
//! | file | what |
//! |---|---|
//! | `template.rs` | pure: placeholders and what they are replaced by |
//! | `parts.rs` | pure: lines with columns, or paths; sizes |
//! | `glob.rs` | the paths that match a pattern |
//! | `awaited.rs` | input that is waited for no longer than `--timeout` |
//! | `list.rs` | a list of parts, read line by line |
//! | `stream.rs` | one that is read while the job runs |
//! | `pipe.rs` | pure: standard input in blocks of whole records |
//! | `check.rs` | what must be there, and must not be there twice, before anything starts |
//! | `show.rs` | `--dry-run`; ranks and jobs in words |

mod awaited;
mod check;
mod glob;
mod list;
mod parts;
mod pipe;
mod show;
mod stream;
mod template;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::cli::{Enough, EnvSetting, LIST, Options};
use crate::exit::Ending;
use crate::whole;
use awaited::{Awaited, Late, Until};
use check::Outputs;
use glob::GlobError;
use list::Reader;
pub use parts::{Parts, PartsError};
use pipe::Splitter;
pub use stream::{Came, Pipe, Rest, Window};
use template::{Names, Template};

/// What one rank is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Which of the programs of the line it is (`:`), from 0.
    pub number: usize,
    /// The program as it was named, to be looked for.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What `--env` sets for it; a variable passed on that bdrun itself does not have is not there.
    pub env: Vec<(OsString, OsString)>,
    /// Its part: the line of `--parts`, the path of `--glob`.
    pub part: Option<OsString>,
    /// Where it runs, if not where bdrun does.
    pub directory: Option<PathBuf>,
    /// Its standard input, if a file.
    pub stdin: Option<PathBuf>,
    /// Its standard output, if a file.
    pub stdout: Option<PathBuf>,
    /// Its standard error, if a file; may be the same.
    pub stderr: Option<PathBuf>,
}

/// What all ranks of a job are given. Cheap to ask, at any time, for any rank.
#[derive(Debug)]
pub struct Launch {
    np: u32,
    parts: Option<Parts>,
    /// Of the list of parts, if it is to be read while the job runs.
    rest: Option<Rest>,
    /// Its parts are blocks of standard input.
    pipe: Option<Pipe>,
    /// Of a job whose parts come while it runs, what its ranks write.
    outputs: Outputs,
    /// The list of parts came through standard input, so no rank has it.
    stdin_used: bool,
    /// In the order of their ranks; at least one.
    programs: Vec<Program>,
    stdin: Option<Template>,
    stdout: Option<Template>,
    stderr: Option<Template>,
    /// By rank, in bytes; empty if nothing is known.
    declared: Vec<Option<u64>>,
    /// What was asked for, option by option.
    described: Vec<(String, String)>,
}

/// A program, and what its ranks are given because of it.
#[derive(Debug, Clone)]
struct Program {
    /// The first rank that does not run it.
    end: u32,
    program: Template,
    args: Vec<Template>,
    /// Without a template: passed on.
    env: Vec<(OsString, Option<Template>)>,
    directory: Option<Template>,
}

impl Launch {
    /// Reads the parts, tells `options` how many ranks that makes, and checks all that can be checked before.
    ///
    /// # Errors
    /// [`Ending::Usage`] where options contradict each other, [`Ending::Setup`] where files are missing or
    /// wrong.
    pub fn new(options: &mut Options) -> Result<Self, Ending> {
        let (parts, rest) = read_parts(options, Until::new(options.timeout))?;
        if let Some(parts) = &parts {
            if let Some(given) = options.given_np.filter(|&given| given != parts.count()) {
                return Err(Ending::Usage(format!(
                    "-np {given}, but {} has {} parts: leave -np out",
                    parts.name(),
                    parts.count()
                )));
            }
            options.np = parts.count();
        }
        if expanded(options) {
            return Err(Ending::Usage(format!(
                "--glob {} names one file, and PROGRAM, {}, is another that nobody can run: has the shell replaced the pattern? Quote it: \
                 --glob '*.fa'",
                options.launch.glob.join(OsStr::new(" ")).display(),
                options.program().display()
            )));
        }
        let mut launch = Self::with_parts(options, parts)?;
        launch.rest = rest;
        if options.launch.pipe {
            if needs_all(options) || launch.templates().any(Template::names_size) {
                return Err(Ending::Usage(
                    "--pipe begins before it knows how many blocks there are, and keeps none: not together with --journal, --resume, \
                     --learn, --dry-run, -np, a share of all in --halt, or {size}"
                        .into(),
                ));
            }
            let input = BufReader::with_capacity(256 << 10, std::io::stdin());
            let given = &options.launch;
            launch.pipe = Some(Pipe(Splitter::new(input, given.block, given.recend.as_bytes())));
        }
        // Each may be another.
        if launch.programs_differ() || launch.templates().any(Template::names_size) {
            launch.read_rest(options)?;
        }
        launch.check()?;
        options.open = launch.streams();
        Ok(launch)
    }

    /// The parts, if ranks have any.
    pub fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    /// Whether of the list of parts only the first is known, and others follow.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.rest.is_some() || self.pipe.is_some()
    }

    /// Reads all of the list: of a job that has to know how many ranks it has.
    ///
    /// # Errors
    /// As [`Launch::new`].
    pub fn read_rest(&mut self, options: &mut Options) -> Result<(), Ending> {
        let (Some(Rest(mut reader)), Some(parts)) = (self.rest.take(), &mut self.parts) else {
            return Ok(());
        };
        parts.read_rest(&mut reader).map_err(setup)?;
        self.outputs = Outputs::default();
        self.grow(0)?;
        (options.np, options.open) = (self.np, false);
        Ok(())
    }

    /// What is left of the list, to be read while the job runs, which sees to `--timeout` itself.
    pub fn take_rest(&mut self) -> Option<Rest> {
        let mut rest = self.rest.take()?;
        rest.0.input().get_mut().without_limit();
        Some(rest)
    }

    /// What is to be cut into blocks while the job runs.
    pub fn take_pipe(&mut self) -> Option<Pipe> {
        self.pipe.take()
    }

    /// There is one block more.
    ///
    /// # Errors
    /// If something is wrong with its files.
    pub fn add_block(&mut self) -> Result<(), Ending> {
        let before = self.np;
        if let Some(parts) = &mut self.parts {
            parts.push_block();
        }
        self.grow(before)
    }

    /// These were read.
    ///
    /// # Errors
    /// If they are too many, or something is wrong with one of them.
    pub fn add(&mut self, lines: Vec<list::Line>) -> Result<(), Ending> {
        let before = self.np;
        let Some(parts) = &mut self.parts else { return Ok(()) };
        lines.iter().try_for_each(|(line, number)| parts.push(line, *number)).map_err(setup)?;
        self.grow(before)
    }

    /// There are more parts than before.
    fn grow(&mut self, before: u32) -> Result<(), Ending> {
        let Some(parts) = &self.parts else { return Ok(()) };
        self.np = parts.count();
        if let Some(last) = self.programs.last_mut() {
            last.end = self.np;
        }
        let needed = self.templates().map(Template::columns).max().unwrap_or(0);
        parts.have_columns_from(before, needed).map_err(setup)?;
        self.check_from(before)
    }

    /// A rank has ended, and is not asked for any more.
    pub fn forget(&mut self, rank: u32) {
        if let Some(parts) = &mut self.parts {
            parts.forget(rank);
        }
    }

    fn with_parts(options: &Options, parts: Option<Parts>) -> Result<Self, Ending> {
        let given = &options.launch;
        let header = parts.as_ref().map_or(&[][..], Parts::header);
        let names = Names { parts: parts.is_some(), header };
        let template = |text: &OsStr| Template::parse(text, &names).map_err(Ending::Usage);
        let optional = |text: &Option<OsString>| text.as_deref().map(template).transpose();
        let command = |text: &OsStr| if given.literal { Ok(Template::literal(text)) } else { template(text) };
        let mut programs = Vec::new();
        let mut end = 0;
        for section in options.sections() {
            end += section.np.unwrap_or(1);
            let variable = |setting: &EnvSetting| {
                let value = setting.value.as_deref().map(template).transpose()?;
                Ok((setting.name.clone(), value))
            };
            programs.push(Program {
                end,
                program: command(&section.command[0])?,
                args: section.command[1..].iter().map(|arg| command(arg)).collect::<Result<_, _>>()?,
                env: section.env.iter().map(variable).collect::<Result<_, Ending>>()?,
                directory: optional(&section.chdir)?,
            });
        }
        // With parts there is one, and as many ranks as parts.
        if let Some(last) = programs.last_mut() {
            last.end = options.np;
        }
        let mut launch = Self {
            np: options.np,
            stdin_used: given.pipe || given.parts.as_deref() == Some(Path::new(STANDARD_INPUT)),
            programs,
            stdin: optional(&given.stdin)?,
            stdout: optional(&given.output_files)?,
            stderr: optional(&given.error_files)?,
            declared: Vec::new(),
            described: show::described(options, parts.is_some()),
            parts: None,
            rest: None,
            pipe: None,
            outputs: Outputs::default(),
        };
        let Some(parts) = parts else { return Ok(launch) };
        if !given.literal && !given.pipe && !launch.says_where_the_part_goes() {
            launch.programs.iter_mut().for_each(|program| program.args.push(Template::whole()));
        }
        let needed = launch.templates().map(Template::columns).max().unwrap_or(0);
        parts.have_columns(needed).map_err(setup)?;
        launch.declared = match &given.size_column {
            Some(column) => parts.sizes(parts.find_column(column).map_err(Ending::Usage)?).map_err(setup)?,
            None if !given.glob.is_empty() => check::file_sizes(&parts),
            None => Vec::new(),
        };
        launch.parts = Some(parts);
        Ok(launch)
    }

    fn templates(&self) -> impl Iterator<Item = &Template> {
        let directories = self.programs.iter().filter_map(|program| program.directory.as_ref());
        let files = [&self.stdin, &self.stdout, &self.stderr].into_iter().flatten();
        self.command().chain(self.env()).chain(directories).chain(files)
    }

    fn command(&self) -> impl Iterator<Item = &Template> {
        self.programs.iter().flat_map(|program| std::iter::once(&program.program).chain(&program.args))
    }

    fn env(&self) -> impl Iterator<Item = &Template> {
        self.programs.iter().flat_map(|program| &program.env).filter_map(|(_, value)| value.as_ref())
    }

    /// Of those of the line, the one that a rank runs, counted from 0.
    fn number_of_program(&self, rank: u32) -> usize {
        self.programs.partition_point(|program| program.end <= rank)
    }

    fn program_of(&self, rank: u32) -> &Program {
        &self.programs[self.number_of_program(rank)]
    }

    /// As in GNU parallel: any placeholder in the command does. So does the part in the environment, the
    /// directory or as standard input; in the names of output files it does not, as these say nothing to the
    /// program.
    fn says_where_the_part_goes(&self) -> bool {
        let directories = self.programs.iter().filter_map(|program| program.directory.as_ref());
        self.command().any(Template::has_placeholders)
            || self.env().chain(directories).chain(&self.stdin).any(Template::names_part)
    }

    fn render(&self, template: &Template, rank: u32) -> OsString {
        template.render(rank, self.np, self.parts.as_ref().map(|parts| parts.part(rank)))
    }

    fn path(&self, template: Option<&Template>, rank: u32) -> Option<PathBuf> {
        template.map(|template| self.render(template, rank).into())
    }

    /// How many ranks there are.
    #[must_use]
    pub fn np(&self) -> u32 {
        self.np
    }

    /// What a rank is given.
    #[must_use]
    pub fn given(&self, rank: u32) -> Given {
        let program = self.program_of(rank);
        let env = program.env.iter().filter_map(|(name, value)| {
            let value = match value {
                Some(template) => self.render(template, rank),
                None => std::env::var_os(name)?,
            };
            Some((name.clone(), value))
        });
        Given {
            number: self.number_of_program(rank),
            program: self.program(rank),
            args: program.args.iter().map(|arg| self.render(arg, rank)).collect(),
            env: env.collect(),
            part: self.parts.is_some().then(|| self.render(&Template::whole(), rank)),
            directory: self.path(program.directory.as_ref(), rank),
            stdin: self.path(self.stdin.as_ref(), rank),
            stdout: self.path(self.stdout.as_ref(), rank),
            stderr: self.path(self.stderr.as_ref(), rank),
        }
    }

    /// What a rank finds in its environment.
    #[must_use]
    pub fn variable(&self, rank: u32, name: &str) -> Option<OsString> {
        let given = self.given(rank).env.into_iter().rev().find(|(other, _)| other == name);
        given.map(|(_, value)| value).or_else(|| std::env::var_os(name))
    }

    /// The program of a rank, as it was named.
    #[must_use]
    pub fn program(&self, rank: u32) -> OsString {
        self.render(&self.program_of(rank).program, rank)
    }

    /// Whether each rank may have a program of its own.
    #[must_use]
    pub fn programs_differ(&self) -> bool {
        self.programs.len() > 1 || self.programs[0].program.depends_on_rank()
    }

    /// Whether a rank runs elsewhere than bdrun, so that relative paths mean something else to it.
    #[must_use]
    pub fn changes_directory(&self, rank: u32) -> bool {
        self.program_of(rank).directory.is_some()
    }

    /// Whether a rank without a file for it may have bdrun's own standard input.
    #[must_use]
    pub fn stdin_is_free(&self) -> bool {
        !self.stdin_used
    }

    /// Where a rank's standard output goes and takes its name once it has ended well: a file of its own, by
    /// its name behind links.
    #[must_use]
    pub fn output(&self, rank: u32) -> Option<PathBuf> {
        self.path(self.stdout.as_ref(), rank).and_then(|path| whole::regular(&path))
    }

    /// The files that a rank writes its output to.
    pub(crate) fn files(&self, rank: u32) -> impl Iterator<Item = PathBuf> {
        let files = [self.stdout.as_ref(), self.stderr.as_ref()].into_iter();
        files.filter_map(move |template| self.path(template, rank))
    }

    /// The memory that a rank is expected to need, in bytes: its column of `--size-column`, or the size of
    /// its file of `--glob`.
    #[must_use]
    pub fn declared(&self, rank: u32) -> Option<u64> {
        self.declared.get(rank as usize).copied().flatten()
    }
}

/// What stands for standard input.
const STANDARD_INPUT: &str = "-";

/// The parts, and what of their list may be read later. Waited for so long.
fn read_parts(options: &Options, until: Option<Until>) -> Result<(Option<Parts>, Option<Rest>), Ending> {
    let given = &options.launch;
    if let Some(words) = &options.list {
        return Parts::list(words, LIST, &given.colsep).map(all).map_err(setup);
    }
    if given.pipe {
        return Ok(all(Parts::blocks()));
    }
    if !given.glob.is_empty() {
        let mut paths = Vec::new();
        for pattern in &given.glob {
            paths.append(&mut matching(pattern, until)?);
        }
        return Parts::paths(paths, "--glob").map(all).map_err(setup);
    }
    let Some(path) = &given.parts else { return Ok((None, None)) };
    let form = |name: String| list::Form {
        name,
        separator: given.colsep.clone(),
        header: given.header,
        null: given.null,
    };
    let read = if path == Path::new(STANDARD_INPUT) {
        let input = BufReader::with_capacity(64 << 10, Awaited::new(std::io::stdin(), until));
        let mut reader = Reader::new(input, form("standard input (--parts -)".into()));
        let mut parts = Parts::begin(&mut reader).map_err(setup)?;
        if !needs_all(options) {
            return Ok((Some(parts), Some(Rest(reader))));
        }
        parts.read_rest(&mut reader).map(|()| parts)
    } else {
        let name = path.display().to_string();
        // To open a named pipe waits for somebody at its other end.
        let flags = if until.is_some() { libc::O_NONBLOCK } else { 0 };
        let file = File::options().read(true).custom_flags(flags).open(path);
        let file =
            file.map_err(|error| Ending::Setup(format!("{name} cannot be read: {error} (--parts)")))?;
        Parts::read(BufReader::new(Awaited::new(file, until)), form(name))
    };
    read.map(all).map_err(setup)
}

fn all(parts: Parts) -> (Option<Parts>, Option<Rest>) {
    (Some(parts), None)
}

/// Whether what was asked for takes all parts to be known before the first begins.
fn needs_all(options: &Options) -> bool {
    let given = &options.launch;
    let share = given.halt.is_some_and(|halt| matches!(halt.enough, Enough::Percent(_)));
    let asked = share || given.dry_run || given.size_column.is_some() || options.given_np.is_some();
    asked || options.journal.path().is_some() || options.learn.learn.is_some()
}

/// Whether the shell has put the files of a pattern in its place: the first is the pattern then, the second
/// the program.
fn expanded(options: &Options) -> bool {
    let plain = |pattern: &OsString| !pattern.as_bytes().iter().any(|byte| b"*?[".contains(byte));
    let is_file =
        |metadata: std::fs::Metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 == 0;
    let program = Path::new(options.program());
    options.launch.glob.last().is_some_and(plain) && program.metadata().is_ok_and(is_file)
}

fn matching(pattern: &OsStr, until: Option<Until>) -> Result<Vec<PathBuf>, Ending> {
    let said = |what: &dyn std::fmt::Display| format!("--glob {}: {what}", pattern.display());
    let paths = glob::matching(pattern, until).map_err(|error| match &error {
        GlobError::Pattern { .. } => Ending::Usage(said(&error)),
        GlobError::Read { source, .. } => late(source).unwrap_or_else(|| Ending::Setup(said(&error))),
    })?;
    if paths.is_empty() {
        return Err(Ending::Setup(said(&"nothing matches")));
    }
    Ok(paths)
}

fn setup(error: parts::PartsError) -> Ending {
    let late = if let PartsError::Read { source, .. } = &error { late(source) } else { None };
    late.unwrap_or_else(|| Ending::Setup(error.to_string()))
}

/// The time of the job is over, if that is what is wrong.
fn late(error: &std::io::Error) -> Option<Ending> {
    Late::limit(error).map(Ending::Timeout)
}

#[cfg(test)]
pub(crate) mod tests;
