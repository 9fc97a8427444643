//! The options that say what each rank is given: its part, its files, its directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::halt::Halt;
use super::parse::{parse_duration, parse_size, parse_times};

/// What each rank is given. PROGRAM, ARGS and the values marked "template" may hold placeholders, see
/// [`crate::launch`].
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct LaunchOptions {
    /// Run one rank for each line of FILE that is not empty (-: standard input)
    ///
    /// A short list may also stand behind PROGRAM and ARGS and a :::, as in: bdrun gzip {} ::: a b c
    ///
    /// In PROGRAM, ARGS and the templates below {} is the line, {1} {2} … are its columns, {NAME} that of
    /// --header; {.} is the line without extension, {/} its basename, {//} its directory, {/.} its basename
    /// without extension ({1/.} and so on for columns), {#} the rank counted from 1. If no placeholder is
    /// used, the line becomes the last argument. {rank} and {size} work without --parts too. Other braces
    /// stay as they are; {{}} stands for {}.
    #[arg(long, value_name = "FILE", conflicts_with = "glob")]
    pub parts: Option<PathBuf>,

    /// Run one rank for each path that matches PATTERN, quoted: 'parts/*.bin'
    ///
    /// With *, ?, [a-z], [!a-z], and ** for directories at any depth; as in a shell, names that begin with a
    /// dot match patterns that do. May be repeated. Sorted, each path once; {} is the path. The size of the
    /// file is the memory that is expected of its rank.
    #[arg(long, value_name = "PATTERN", action = clap::ArgAction::Append)]
    pub glob: Vec<OsString>,

    /// Cut standard input into blocks of whole records, and run one rank for each, which reads it from its
    /// standard input
    ///
    /// As in GNU parallel. Blocks wait on scratch, a few ahead of the ranks; ranks begin while it is still
    /// read. {#} is the number of the block.
    #[arg(long, conflicts_with_all = ["parts", "glob", "stdin"])]
    pub pipe: bool,

    /// With --pipe: a block has so many bytes, and what is left of its last record
    #[arg(long, value_name = "SIZE", default_value = "1M", requires = "pipe", value_parser = parse_size)]
    pub block: u64,

    /// With --pipe: what ends a record: a text, not an expression; \n is the end of a line, \0 a zero byte
    #[arg(long, value_name = "TEXT", default_value = "\\n", requires = "pipe", value_parser = parse_recend)]
    pub recend: String,

    /// What stands between the columns of --parts: a text, not an expression; \t is a tab
    #[arg(long, value_name = "SEP", default_value = "\\t", requires = "parts", value_parser = parse_separator)]
    pub colsep: String,

    /// Lines of --parts end with a zero byte (find -print0), and may hold line ends
    #[arg(short = '0', long, requires = "parts")]
    pub null: bool,

    /// The first line of --parts names the columns
    #[arg(long, requires = "parts")]
    pub header: bool,

    /// The column of --parts with the memory that is expected of the rank: 4096, 700M, 1.5GiB
    #[arg(long, value_name = "N|NAME", requires = "parts", value_parser = parse_column)]
    pub size_column: Option<Column>,

    /// Pass PROGRAM and ARGS on as they are: no placeholder is replaced in them, and no line is appended
    #[arg(long)]
    pub literal: bool,

    /// Run each rank in DIR (a template); PROGRAM and the files below are found from where bdrun was started
    #[arg(long, value_name = "DIR")]
    pub chdir: Option<OsString>,

    /// Standard input of each rank (a template) [default: rank 0 has bdrun's own, the others nothing]
    #[arg(long, value_name = "FILE")]
    pub stdin: Option<OsString>,

    /// Write each rank's standard output to FILE, a template: out/{rank}.txt
    ///
    /// Made, or emptied, when the rank starts, its directory as well.
    #[arg(long, value_name = "FILE")]
    pub output_files: Option<OsString>,

    /// The same for standard error; one file for both if both templates give the same name
    #[arg(long, value_name = "FILE")]
    pub error_files: Option<OsString>,

    /// Print what ranks write in their order, each rank's as a whole
    ///
    /// What comes too early is held back, beyond a few megabytes in a file without a name on scratch.
    #[arg(long)]
    pub keep_order: bool,

    /// Go on with the other ranks when one fails: --halt never
    ///
    /// The exit code is that of the first that failed; the summary says how many failed.
    #[arg(long, conflicts_with = "halt")]
    pub keep_going: bool,

    /// When ranks that fail, or end well, end the job [default: now,fail=1]
    ///
    /// As in GNU parallel: never, or WHEN,WHY=COUNT. soon: no other rank is begun, and those that run go on;
    /// now: they are ended. fail, success or done ranks count; a number of them, or N% of all. Older forms:
    /// 0, 1, 2, -1, -2 and N%. Ended for success the exit code is 0, else that of the first that failed. For
    /// independent ranks.
    #[arg(long, value_name = "WHEN,WHY=COUNT", allow_negative_numbers = true)]
    pub halt: Option<Halt>,

    /// Run a rank that fails again, up to N times
    ///
    /// It is run again before others are begun, and has failed only if it fails after the last of them. Its
    /// --output-files begin anew; what else a try did stays done. For independent ranks.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "output_files", value_parser = parse_times, allow_negative_numbers = true)]
    pub retry: u32,

    /// Run a rank that the kernel killed for want of memory again, up to N times, each time with twice as
    /// much set aside for it
    ///
    /// Beside the tries of --retry. Once that is the whole budget it runs alone.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "output_files", value_parser = parse_times, allow_negative_numbers = true)]
    pub retry_memory: u32,

    /// A rank fails that takes longer: seconds (90, 2.5) or with units (1h30m, 500ms)
    ///
    /// While it is held or paged out the time stands still. It is asked to end (SIGTERM), and killed 5 s
    /// later. For independent ranks.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub rank_timeout: Option<Duration>,

    /// Begin a rank no sooner than so long after the one before: seconds (2, 0.5) or with units (1m, 500ms)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub delay: Option<Duration>,

    /// Where a rank cannot be paged out and memory is short, end the youngest and run it again later, from
    /// its beginning
    ///
    /// Only for programs that may be run twice: what a try did elsewhere than in its --output-files, which
    /// begin anew, stays done. Without it the budget is exceeded, which is said, or with --enforce the rank
    /// fails. For ranks that are paged from outside.
    #[arg(long, requires = "output_files")]
    pub rerun: bool,

    /// Print the plan and the line of each rank, and run nothing
    ///
    /// Each as a line for the shell, with its files and the memory expected of it.
    #[arg(long)]
    pub dry_run: bool,
}

/// Where it is written down what has ended.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct JournalOptions {
    /// Write down in FILE, which must be new, which parts are done, so that --resume can go on
    ///
    /// A line for each rank that has ended, on disk before the next thing is done about it. With
    /// --output-files a rank writes to NAME.unfinished, which is renamed when it has ended with 0: whatever
    /// happens, a file under its own name is whole.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub journal: Option<PathBuf>,

    /// Go on with the job whose journal FILE is, or begin it
    ///
    /// What is done is not run again; without such a FILE it is a new job. The command, its files and its
    /// environment must be what they were; parts may have been added to the list. A part whose output file is
    /// gone is run again. The same line may be given again and again until all is done.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,

    /// Write a line to FILE for each rank that has ended, in the columns of GNU parallel's --joblog
    ///
    /// What the file had before is removed, unless the job is resumed.
    #[arg(long, value_name = "FILE")]
    pub joblog: Option<PathBuf>,
}

impl JournalOptions {
    /// The journal, and the option that named it.
    #[must_use]
    pub fn path(&self) -> Option<(&Path, &'static str)> {
        let new = self.journal.as_deref().map(|path| (path, "--journal"));
        new.or_else(|| self.resume.as_deref().map(|path| (path, "--resume")))
    }
}

/// A column of `--parts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// By its place, the first is 1.
    Number(usize),
    /// By its name in the header.
    Name(String),
}

fn parse_separator(text: &str) -> Result<String, String> {
    match text {
        "" => Err("columns need something between them".into()),
        "\\t" => Ok("\t".into()),
        other if other.contains('\n') => {
            Err("a line ends at its end: columns cannot be separated by it".into())
        }
        other => Ok(other.into()),
    }
}

fn parse_recend(text: &str) -> Result<String, String> {
    match text.replace("\\n", "\n").replace("\\0", "\0").replace("\\t", "\t") {
        empty if empty.is_empty() => Err("records need an end".into()),
        end => Ok(end),
    }
}

fn parse_column(text: &str) -> Result<Column, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("columns are counted from 1".into()),
        Ok(number) => Ok(Column::Number(number)),
        Err(_) if text.is_empty() => Err("which column?".into()),
        Err(_) => Ok(Column::Name(text.into())),
    }
}
