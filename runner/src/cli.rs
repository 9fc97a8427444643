//! The command line: one definition of every flag.
//!
//! `bdrun [OPTIONS] [--] PROGRAM [ARGS…]`. Everything behind PROGRAM belongs to it, whatever it looks like,
//! but for a `:` that an option follows, behind which there is another program. What mpiexec's users are used
//! to is made of ours in `habits.rs`: `-np N`, say, which a parser of POSIX options would read as `-n p`.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches, Parser, ValueEnum};

use crate::exit;

mod habits;
mod halt;
pub mod help;
mod launch;
mod learn;
mod parse;

pub use halt::{Enough, Halt, When, Why};
pub use launch::{Column, JournalOptions, LaunchOptions};
pub use learn::LearnOptions;
pub use parse::parse_size;
use parse::{
    parse_count, parse_duration, parse_env, parse_fraction, parse_memory, parse_milliseconds, parse_ranks,
};

/// Between a command and its parts.
pub const LIST: &str = ":::";

/// The most ranks a job may have.
pub const MAX_RANKS: u32 = 65_536;

/// What the user asked for, checked. In which groups that is told: [`help`].
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Number of ranks, -np N too [default: 1, or one for each part]
    #[arg(
        short = 'n', long = "np", value_name = "N",
        value_parser = parse_ranks,
        long_help = "Number of ranks (processes) to run. Written -n N, -np N or --np N. Default: 1, or as many as --parts or \
                     --glob has"
    )]
    pub given_np: Option<u32>,

    /// Number of ranks: what was given, else 1, until [`crate::launch::Launch::new`] has counted the parts.
    #[arg(skip)]
    pub np: u32,

    /// N ranks are in RAM at once, at most [default: as many as fit]
    ///
    /// Whatever they do. Others live too: they wait, paged out, until one of these leaves. See -j.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub resident: Option<u32>,

    /// What all ranks may hold together: 700M, 1.5GiB, 50%, or auto
    ///
    /// A percentage is one of what is available. auto begins as without the option, and follows what is
    /// there while the job runs: MemAvailable, limits of cgroups that change, pressure (PSI). Units are
    /// powers of 1024. What is available is the smaller of the kernel's MemAvailable and the headroom of the
    /// cgroup that bdrun runs in. Default: --budget-fraction of it.
    #[arg(long, value_name = "SIZE|PCT|auto", value_parser = parse_memory)]
    pub memory: Option<Memory>,

    /// The share of the available memory to use without --memory, or with auto [default: 0.5, or 0.8]
    ///
    /// Ranks that bring bdrun's runtime hold memory besides what it manages: 0.5. Of independent ranks
    /// everything is measured: 0.8.
    #[arg(long, value_name = "F", value_parser = parse_fraction)]
    pub budget_fraction: Option<f64>,

    /// The most memory a rank may hold
    ///
    /// All of it is set aside when a rank that is native, of an MPI or preloaded is admitted; of other ranks
    /// half at first, then what those that have ended needed.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub rank_memory: Option<u64>,

    /// A directory on a disk, for what does not fit in memory
    ///
    /// Default: $BDRUN_SCRATCH, else $TMPDIR, else /var/tmp. May be repeated, for directories on disks of
    /// their own: ranks' memory is spread over all of them in stripes, and messages that do not fit go to
    /// the first. $BDRUN_SCRATCH is a list with colons between.
    #[arg(long, value_name = "DIR", action = clap::ArgAction::Append)]
    pub scratch: Vec<PathBuf>,

    /// Whether memory is compressed on its way to scratch
    ///
    /// lz4: whatever shrinks by an eighth; auto: by LZ4 while that takes less time than the disk is spared,
    /// as measured in each rank; none: as it is. Only in ranks that use bdrun's own runtime, have a single
    /// thread and no handlers of signals, and of those only what will be used next: the rest stays legal to
    /// touch, which compressed memory is not.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Compress::Auto)]
    pub compress: Compress,

    /// Put the ranks into a cgroup whose limit the kernel enforces
    ///
    /// Needs the right to make cgroups (root, or a delegated subtree). A rank that alone needs more than the
    /// budget then fails, where it would otherwise run alone.
    #[arg(long)]
    pub enforce: bool,

    /// What bdrun itself prints: a table for people, one JSON object, or only errors
    #[arg(long, value_enum, value_name = "KIND", default_value_t = OutputKind::Human)]
    pub output: OutputKind,

    /// Say more at the end: a table, what ranks were expected to need and did
    ///
    /// The table comes without it too where something was paged or has failed.
    #[arg(short, long)]
    pub verbose: bool,

    /// Print errors only: --output quiet
    #[arg(short, long, conflicts_with_all = ["output", "verbose"])]
    pub quiet: bool,

    /// Write what the job did to FILE as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Write a page for a browser that shows what the job did
    ///
    /// Memory against budget, what each rank did when, who failed. One HTML file that needs nothing else.
    /// Written at the end, also of a job that fails.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,

    /// Write what happened when to FILE, as JSON that ui.perfetto.dev and chrome://tracing show, and `bdrun
    /// simulate` reads
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Put the rank's number before every line it prints
    #[arg(long)]
    pub tag_output: bool,

    /// End the job after TIME: 90, 2.5 (seconds), 1h30m, 500ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,

    /// Set NAME for the ranks, or pass on bdrun's own; may be repeated
    ///
    /// Of several programs (with : between) in that of the one behind it. As -env NAME VALUE too.
    #[arg(
        short = 'x', long = "env", value_name = "NAME[=VALUE]", action = clap::ArgAction::Append,
        value_parser = OsStringValueParser::new().try_map(|text| parse_env(&text))
    )]
    pub env: Vec<EnvSetting>,

    /// The same for all programs of a line with several; as -genv NAME VALUE too
    #[arg(
        long = "genv", value_name = "NAME[=VALUE]", action = clap::ArgAction::Append,
        value_parser = OsStringValueParser::new().try_map(|text| parse_env(&text))
    )]
    pub genv: Vec<EnvSetting>,

    /// Page a waiting rank out every MS milliseconds, whatever the memory
    ///
    /// A test option, for us and for you: does the program survive paging? The rank comes back when what it
    /// waits for is there. Counted in --stats (chaos_evictions).
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds)]
    pub chaos: Option<u64>,

    /// Put libsbmalloc.so in front of programs not written for bdrun, so that they can be paged
    ///
    /// It serves their memory and lets them be moved at each allocation. auto: programs that call MPI,
    /// and others that are linked dynamically where they cannot be paged from outside (ptrace is forbidden),
    /// if the library is found (beside bdrun, or in ../lib).
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Preload::Auto)]
    pub preload: Preload,

    /// Put bdrun's MPI in front of the one that programs would find
    ///
    /// Programs linked to MPICH's or Open MPI's library, or to the MPI-5 standard's, then run as ranks of one
    /// job. It names the ABI for those that can choose (MPI4PY_MPIABI); auto: mpich, if the libraries are
    /// found (in mpi beside bdrun, or in ../lib/bdrun/mpi).
    #[arg(long, value_enum, value_name = "ABI", default_value_t = Mpi::Auto)]
    pub mpi: Mpi,

    /// Say at the end of each MPI rank what it has left: requests, communicators, datatypes, windows, files
    /// that were not freed, and messages that nobody received
    #[arg(long)]
    pub check: bool,

    /// How ranks notice what they have written since it was last on scratch
    ///
    /// hash: checksums only; auto: the kernel's write tracking where that seems to pay, else checksums, by a
    /// measurement of a few milliseconds at the start; uffd: the kernel's write tracking everywhere (Linux
    /// 6.7).
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Tracker::Hash)]
    pub tracker: Tracker,

    /// N ranks live at once: no more and, as memory allows, no fewer
    ///
    /// Three numbers, of which most jobs need none: -j N ranks have been begun and have not ended, computing
    /// or asleep, as in GNU parallel; for independent ranks. --processors N of them compute: of
    /// an MPI program all live, and take turns; of independent ranks another is begun while one sleeps.
    /// --resident N of them are in RAM, and the others are paged out: to have fewer than memory would hold.
    #[arg(short = 'j', long, value_name = "N", value_parser = parse_count, conflicts_with = "processors")]
    pub jobs: Option<u32>,

    /// N ranks compute at once, while others sleep [default: all processors]
    ///
    /// All that bdrun itself may use. See -j.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub processors: Option<u32>,

    /// What each rank is given.
    #[command(flatten)]
    pub launch: LaunchOptions,

    /// Where it is written down what has ended.
    #[command(flatten)]
    pub journal: JournalOptions,

    /// What ranks are expected to need.
    #[command(flatten)]
    pub learn: LearnOptions,

    /// The program, then its arguments
    #[arg(help_heading = None, required = true, num_args = 1.., trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,

    /// The programs behind the first, each after a `:`.
    #[arg(skip)]
    more: Vec<Section>,

    /// The parts that stood behind PROGRAM, ARGS and a `:::`.
    #[arg(skip)]
    pub list: Option<Vec<OsString>>,

    /// Of the parts only the first is known, others may come.
    #[arg(skip)]
    pub open: bool,

    /// The line as it was given.
    #[arg(skip)]
    line: Vec<OsString>,
}

/// A program, and the ranks that run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// How many ranks, as far as it was said.
    pub np: Option<u32>,
    /// The program, then its arguments.
    pub command: Vec<OsString>,
    /// What is set in its environment, what is set for all first.
    pub env: Vec<EnvSetting>,
    /// Where it runs: a template.
    pub chdir: Option<OsString>,
}

/// The options that may stand behind a `:`.
const OF_A_SECTION: [&str; 5] = ["given_np", "env", "genv", "chdir", "command"];

/// How much memory the user named.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Memory {
    /// So many bytes.
    Bytes(u64),
    /// A share of what is really available, in (0, 1].
    Share(f64),
    /// What is there, followed while the job runs.
    Auto,
}

/// How memory is compressed on its way to scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Compress {
    /// Where that makes it faster.
    #[default]
    Auto,
    /// By LZ4.
    Lz4,
    /// Not at all.
    None,
}

/// What `bdrun` itself prints. What ranks print is always passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputKind {
    /// A live progress line on a terminal, and a table at the end; all on standard error.
    #[default]
    Human,
    /// One JSON object (that of `--stats`) at the end; on standard error.
    Json,
    /// Nothing but errors.
    Quiet,
}

/// When `libsbmalloc.so` is preloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Preload {
    /// Where it is of use.
    #[default]
    Auto,
    /// Into every program; an error where that cannot be.
    Always,
    /// Not at all.
    Never,
}

/// Which MPI programs find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Mpi {
    /// bdrun's, if it is there.
    #[default]
    Auto,
    /// bdrun's, by the standard's ABI.
    Abi,
    /// bdrun's, by MPICH's.
    Mpich,
    /// bdrun's, by Open MPI's.
    Openmpi,
    /// Whichever they find.
    None,
}

/// How ranks notice what they have written; see `sbmalloc::TrackerChoice`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Tracker {
    /// Checksums.
    #[default]
    Hash,
    /// Measure, and choose.
    Auto,
    /// The kernel's asynchronous write protection.
    Uffd,
}

/// One `--env`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvSetting {
    /// The variable.
    pub name: OsString,
    /// Its value; `None` passes on what `bdrun` itself has.
    pub value: Option<OsString>,
}

/// A command line that is not a job to run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CliError(clap::Error);

impl CliError {
    /// Prints help or version to standard output, or the error to standard error, with colours on a terminal.
    /// Errors of writing are ignored: whoever closed the pipe has seen enough.
    pub fn print(&self) {
        let _ = self.0.print();
    }

    /// 0 for help and version, otherwise the code of [`exit::Ending::Usage`].
    #[must_use]
    pub fn code(&self) -> u8 {
        if self.0.use_stderr() { exit::Ending::Usage(String::new()).code() } else { 0 }
    }
}

/// What is said where there are parts besides those behind [`LIST`], or several programs.
const ONE_LIST: &str =
    "':::' is one way to name parts, --parts, --glob and --pipe are others: one of them, for one program";

/// Words as one line for a shell. What is no text is written as bash, zsh and ksh read it: `$'out/\377'`.
#[must_use]
pub fn for_the_shell(words: &[OsString]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    quoted.join(" ")
}

fn quoted(word: &OsStr) -> Cow<'_, str> {
    if let Some(text) = word.to_str() {
        // Only a zero byte cannot be quoted; nor can it be an argument.
        return shlex::try_quote(text).unwrap_or(Cow::Borrowed(text));
    }
    let mut line = String::from("$'");
    for chunk in word.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '\\' => line.extend(['\\', character]),
                '\0'..' ' | '\u{7f}' => line.push_str(&format!("\\{:03o}", u32::from(character))),
                _ => line.push(character),
            }
        }
        // Three digits always, so that none that follows is taken for one.
        chunk.invalid().iter().for_each(|byte| line.push_str(&format!("\\{byte:03o}")));
    }
    (line + "'").into()
}

/// A line that is wrong, in a sentence.
fn wrong(what: &str) -> CliError {
    CliError(help::definition().error(ErrorKind::ArgumentConflict, what))
}

impl Options {
    /// Reads a command line, `argv[0]` included.
    ///
    /// # Errors
    /// Whatever is wrong with it; also `--help` and `--version`, see [`CliError::code`].
    pub fn from_args<I>(argv: I) -> Result<Self, CliError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let line: Vec<OsString> = argv.into_iter().map(Into::into).collect();
        let mut sections = habits::cut(line.clone()).into_iter();
        let mut options = Self::of_section(sections.next().unwrap_or_default())?.0;
        for argv in sections {
            let (section, matches) = Self::of_section(argv)?;
            let is_given =
                |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
            if let Some(other) =
                matches.ids().filter(is_given).find(|id| !OF_A_SECTION.contains(&id.as_str()))
                && help::definition().get_arguments().any(|arg| arg.get_id() == other)
            {
                let option = other.as_str().replace('_', "-");
                return Err(wrong(&format!(
                    "--{option} is for the whole job: put it in front of the first program"
                )));
            }
            let given = &options.launch;
            if given.pipe || !given.glob.is_empty() || given.parts.is_some() {
                return Err(wrong(
                    "--parts, --glob and --pipe are for one program, and there are several (':')",
                ));
            }
            options.genv.extend(section.genv);
            let (np, env, chdir) = (section.given_np, section.env, section.launch.chdir);
            options.more.push(Section { np, command: section.command, env, chdir });
        }
        options.take_list()?;
        if let (Some(jobs), Some(resident)) = (options.jobs, options.resident)
            && resident < jobs
        {
            return Err(wrong(&format!(
                "-j {jobs} has {jobs} ranks at a time, and --resident {resident} only {resident} of them in RAM: give one of the two \
                 (--processors says how many compute)"
            )));
        }
        if options.budget_fraction.is_some()
            && matches!(options.memory, Some(Memory::Bytes(_) | Memory::Share(_)))
        {
            return Err(wrong(
                "--memory says how much, and --budget-fraction another share of what is there: one of them (with --memory auto it is \
                 the share that is followed)",
            ));
        }
        let sections = options.sections();
        let np = sections.iter().map(|section| u64::from(section.np.unwrap_or(1))).sum::<u64>();
        options.np = u32::try_from(np)
            .ok()
            .filter(|np| *np <= MAX_RANKS)
            .ok_or_else(|| wrong(&format!("{np} ranks in all: there may be {MAX_RANKS} (-np)")))?;
        options.line = line;
        Ok(options)
    }

    /// Takes the parts behind `:::` off the command.
    fn take_list(&mut self) -> Result<(), CliError> {
        let has_list = |section: &Section| section.command.iter().any(|word| word == LIST);
        if !self.launch.literal && self.more.iter().any(has_list) {
            return Err(wrong(ONE_LIST));
        }
        let Some(at) = self.command.iter().position(|word| word == LIST).filter(|_| !self.launch.literal)
        else {
            return Ok(());
        };
        let list = self.command.split_off(at + 1);
        self.command.pop();
        if self.command.is_empty() {
            return Err(wrong("there is no PROGRAM in front of ':::'"));
        }
        let pipe = self.launch.pipe;
        if pipe || !self.launch.glob.is_empty() || self.launch.parts.is_some() || !self.more.is_empty() {
            return Err(wrong(ONE_LIST));
        }
        if list.iter().any(|word| word == LIST) {
            return Err(wrong("there may be one ':::'; for several columns in a part: --parts"));
        }
        self.list = Some(list);
        Ok(())
    }

    /// Reads a line with one program, and says what was given.
    fn of_section(argv: Vec<OsString>) -> Result<(Self, ArgMatches), CliError> {
        let marked = habits::mark(argv).map_err(|error| wrong(&error))?;
        let before_program = || marked.argv.iter().skip(1).take_while(|text| *text != "--");
        // Of what clap takes for several options in one, those that end in help.
        let is_mixed = |text: &&OsString| {
            let bytes = text.as_encoded_bytes();
            bytes.len() > 2 && (bytes.starts_with(b"-h") || bytes.starts_with(b"-V"))
        };
        if let Some(text) = before_program().find(is_mixed) {
            return Err(wrong(&format!(
                "'{}' is no option of bdrun; for help: -h or --help",
                text.to_string_lossy()
            )));
        }
        let matches = help::definition()
            .try_get_matches_from(&marked.argv)
            .map_err(|error| CliError(help::mended(error)))?;
        let options = Self::from_arg_matches(&matches).map_err(CliError)?;
        if let Some((option, most)) = marked.per_node
            && options.given_np.is_none_or(|np| np > most)
        {
            return Err(wrong(&format!(
                "'{option} {most}': this bdrun runs ranks on this machine only, and -np says how many ranks it has"
            )));
        }
        Ok((options, matches))
    }

    /// The programs, and which ranks run each.
    #[must_use]
    pub fn sections(&self) -> Vec<Section> {
        let first = Section {
            np: self.given_np,
            command: self.command.clone(),
            env: self.env.clone(),
            chdir: self.launch.chdir.clone(),
        };
        let mut all: Vec<Section> = std::iter::once(first).chain(self.more.iter().cloned()).collect();
        for section in &mut all {
            section.env.splice(0..0, self.genv.iter().cloned());
        }
        all
    }

    /// The line as it was given, `bdrun` first.
    #[must_use]
    pub fn line(&self) -> &[OsString] {
        &self.line
    }

    /// The same as text, quoted for a shell.
    #[must_use]
    pub fn line_for_the_shell(&self) -> String {
        for_the_shell(&self.line)
    }

    /// The program as it was named.
    #[must_use]
    pub fn program(&self) -> &OsStr {
        &self.command[0]
    }

    /// The program's arguments.
    #[must_use]
    pub fn args(&self) -> &[OsString] {
        &self.command[1..]
    }

    /// How many ranks may be resident at once: `--resident`, and never more than there are.
    #[must_use]
    pub fn resident_limit(&self) -> u32 {
        let most = if self.open { u32::MAX } else { self.np };
        self.resident.unwrap_or(most).min(most)
    }

    /// Whether something is to be written, or said, in which each rank is.
    #[must_use]
    pub fn wants_all_ranks(&self) -> bool {
        let files = self.stats.is_some() || self.report.is_some() || self.trace.is_some();
        let learns = self.learn.learn.is_some() || self.journal.path().is_some();
        files || learns || self.verbose || self.output == OutputKind::Json
    }

    /// What `bdrun` itself prints.
    #[must_use]
    pub const fn output_kind(&self) -> OutputKind {
        if self.quiet { OutputKind::Quiet } else { self.output }
    }

    /// How many ranks may compute at once: `-j` or `--processors`, else those this process may use (its
    /// scheduling affinity and its cgroup's quota).
    #[must_use]
    pub fn processor_count(&self) -> u32 {
        self.jobs.or(self.processors).unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
        })
    }
}

#[cfg(test)]
mod tests;
