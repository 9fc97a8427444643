//! Help: what is said first, in which groups options are told, and what is said of one that is unknown.
//!
//! `-h` is a screen: examples, and the options that most jobs need. `--help` has all of them, those to test
//! with last. The man page and the completions are made of the same ([`definition`]).

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory};

use super::{Options, wrong};
use crate::exit;

/// What it is, in a line.
const ABOUT: &str = "Run a partitioned or MPI-style job that is bigger than memory, on the machine you have";

const USAGE: &str = "bdrun [OPTIONS] [--] PROGRAM [ARGS]...
       bdrun top | explain [RANK] | simulate TRACE | help [top | explain | simulate]";

/// Behind the options of `-h`.
const MORE: &str = "Everything, with exit codes: bdrun --help. Behind PROGRAM all is PROGRAM's own.";

/// Lines to begin with, and what they do.
pub const EXAMPLES: &[(&str, &str)] = &[
    ("bdrun -np 64 --memory 8G ./program", "an MPI program: 64 ranks, 8 GiB together"),
    ("bdrun --glob 'parts/*.bin' tool {}", "any program, for each file, as many as fit"),
    ("bdrun --resume job.journal --parts list tool {}", "for each line; again: goes on where it stopped"),
    ("bdrun --dry-run --parts list tool {}", "what would be run, when, in how much memory"),
    ("bdrun explain 7", "why rank 7 of the job that runs waits"),
];

/// Options that are told together.
struct Group {
    heading: &'static str,
    /// Those that `-h` has.
    first: &'static [&'static str],
    /// Those that only `--help` has, behind them.
    more: &'static [&'static str],
}

/// One that is named nowhere is behind those of the first group.
const GROUPS: &[Group] = &[
    Group {
        heading: "What runs",
        first: &["command", "np", "parts", "glob", "env"],
        more: &["genv", "chdir", "stdin", "literal", "header", "colsep", "size-column", "null"],
    },
    Group {
        heading: "Memory",
        first: &["memory", "rank-memory", "scratch", "learn"],
        more: &["budget-fraction", "enforce", "compress"],
    },
    Group {
        heading: "What ranks are expected to need",
        first: &[],
        more: &[
            "user-job-memory-digest-default-value",
            "user-job-memory-digest-lower-bound",
            "memory-reserve-factor",
            "memory-digest-quantile",
            "tmpfs-size",
        ],
    },
    Group { heading: "How many at once", first: &["jobs", "processors", "resident"], more: &["delay"] },
    Group {
        heading: "Failures, and going on",
        first: &["keep-going", "halt", "retry", "timeout", "resume"],
        more: &["retry-memory", "rerun", "rank-timeout", "journal", "joblog"],
    },
    Group {
        heading: "Output of ranks",
        first: &["output-files", "keep-order"],
        more: &["error-files", "tag-output"],
    },
    Group {
        heading: "What it tells",
        first: &["dry-run", "verbose", "quiet", "report", "help", "version"],
        more: &["output", "stats", "trace"],
    },
    Group {
        heading: "MPI, and programs not written for bdrun",
        first: &[],
        more: &["mpi", "check", "preload"],
    },
    Group { heading: "To test programs, and bdrun", first: &[], more: &["chaos", "tracker"] },
];

/// The command line: every option, in groups.
#[must_use]
pub fn definition() -> Command {
    let all = Options::command().arg(help_flag()).arg(version_flag());
    let mut left: Vec<Arg> = all.get_arguments().cloned().collect();
    let mut groups: Vec<Vec<Arg>> = Vec::new();
    for group in GROUPS {
        let mut dressed = Vec::new();
        for (names, is_short) in [(group.first, true), (group.more, false)] {
            for name in names {
                let Some(at) = left.iter().position(|arg| name_of(arg) == *name) else { continue };
                let arg = left.remove(at).help_heading(group.heading).display_order(dressed.len());
                dressed.push(arg.hide_short_help(!is_short));
            }
        }
        groups.push(dressed);
    }
    for arg in left {
        let order = groups[0].len();
        groups[0].push(arg.help_heading(GROUPS[0].heading).display_order(order).hide_short_help(true));
    }
    Command::new("bdrun")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .override_usage(USAGE)
        .before_help(beginning())
        .help_template("{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}")
        .after_help(MORE)
        .after_long_help(exit::help())
        .disable_help_flag(true)
        .disable_version_flag(true)
        .max_term_width(100)
        .args(groups.into_iter().flatten())
}

fn help_flag() -> Arg {
    let flag = Arg::new("help").short('h').long("help").action(ArgAction::Help);
    flag.help("This, on a screen; --help: everything")
}

fn version_flag() -> Arg {
    Arg::new("version").short('V').long("version").action(ArgAction::Version).help("The version")
}

/// What an option is called in [`GROUPS`].
fn name_of(arg: &Arg) -> &str {
    arg.get_long().unwrap_or(arg.get_id().as_str())
}

fn beginning() -> String {
    let widest = EXAMPLES.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    let mut text = format!("{ABOUT}\n\nExamples:");
    for (line, what) in EXAMPLES {
        text.push_str(&format!("\n  {line:<widest$}  {what}"));
    }
    text
}

/// `bdrun help [SUBCOMMAND]`, of these `subcommands`, as a line that asks for that by options.
///
/// # Errors
/// There is no such subcommand.
pub fn asked(mut argv: Vec<OsString>, subcommands: &[&str]) -> Result<Vec<OsString>, super::CliError> {
    if argv.get(1).is_none_or(|first| first != "help") {
        return Ok(argv);
    }
    match &argv[2..] {
        [] => argv[1] = "--help".into(),
        [what] if subcommands.iter().any(|name| what == name) => {
            argv = vec![argv[0].clone(), what.clone(), "--help".into()];
        }
        [what, ..] => {
            return Err(wrong(&format!(
                "there is help for {}, not for '{}' (a program called help: bdrun -- help)",
                subcommands.join(", "),
                what.display()
            )));
        }
    }
    Ok(argv)
}

/// What other launchers call it, and what it is here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("-a", "--parts FILE"),
    ("--arg-file", "--parts FILE"),
    ("-k", "--keep-order"),
    ("-P", "-j N"),
    ("--max-procs", "-j N"),
    ("--memfree", "--memory SIZE: what all may hold, not what is left"),
    ("--results", "--output-files"),
    ("--tag", "--tag-output"),
    ("--bar", "a live line is shown on a terminal; --quiet for none"),
    ("--eta", "a live line with the time left is shown on a terminal"),
    ("--progress", "a live line is shown on a terminal; --quiet for none"),
];

/// Of an option that is unknown clap says how to pass it on as a value, which is not how that is done here.
pub(super) fn mended(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
        let name = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(name)) => name.split('=').next().unwrap_or(name).to_owned(),
            _ => String::new(),
        };
        if let Some((_, here)) = ELSEWHERE.iter().find(|(there, _)| *there == name) {
            error.remove(ContextKind::SuggestedArg);
            let tip = StyledStr::from(format!("here it is {here}"));
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short() -> String {
        definition().render_help().to_string()
    }

    fn long() -> String {
        definition().render_long_help().to_string()
    }

    #[test]
    fn the_short_help_is_a_screen() {
        let text = short();
        assert!(text.lines().count() <= 50, "{} lines:\n{text}", text.lines().count());
        let wide = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None);
        // No option takes two lines.
        let options: usize = GROUPS.iter().map(|group| group.first.len()).sum();
        let lines = text.lines().skip_while(|line| *line != "What runs:");
        let told = lines.filter(|line| line.starts_with("  ") && !line.trim().is_empty()).count();
        assert_eq!(told, options, "{text}");
    }

    #[test]
    fn examples_come_first_and_test_options_last() {
        for text in [short(), long()] {
            let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in:\n{text}"));
            assert!(text.starts_with(ABOUT), "{text}");
            assert!(
                at("Examples:") < at("bdrun explain 7") && at("bdrun explain 7") < at("Usage:"),
                "{text}"
            );
            assert!(at("Usage:") < at("What runs:") && at("What runs:") < at("How many at once:"), "{text}");
        }
        let text = long();
        let headings: Vec<&str> =
            text.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':')).collect();
        let expected: Vec<String> = GROUPS.iter().map(|group| format!("{}:", group.heading)).collect();
        assert_eq!(headings[1..headings.len() - 1], expected, "between Examples: and Exit codes:");
        assert!(!short().contains("--chaos") && !short().contains("--tracker"), "{}", short());
    }

    #[test]
    fn every_option_is_told_once_and_every_name_is_one() {
        let definition = definition();
        let all: Vec<&str> = definition.get_arguments().map(name_of).collect();
        for name in GROUPS.iter().flat_map(|group| group.first.iter().chain(group.more)) {
            assert_eq!(all.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
        assert_eq!(all.len(), Options::command().get_arguments().count() + 2);
        let text = long();
        for option in definition.get_arguments().filter_map(Arg::get_long) {
            let is_told = |line: &str| {
                // Text is further in than names are.
                let line = if line.starts_with("        ") { "" } else { line.trim_start() };
                let line = line.split_once(", ").map_or(line, |(_, long)| long);
                line.strip_prefix("--").and_then(|line| line.split([' ', '=']).next()) == Some(option)
            };
            assert_eq!(text.lines().filter(|line| is_told(line)).count(), 1, "--{option} in:\n{text}");
        }
        definition.debug_assert();
    }

    #[test]
    fn the_three_numbers_are_told_apart() {
        let text = short();
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        assert!(line("--jobs <N>").contains("live"), "{text}");
        assert!(line("--processors <N>").contains("compute"), "{text}");
        assert!(line("--resident <N>").contains("in RAM"), "{text}");
    }

    #[test]
    fn help_is_asked_for_in_words() {
        let ask = |line: &str| {
            let argv = line.split(' ').map(OsString::from).collect();
            asked(argv, &["top", "explain"]).map(|argv| argv.join(" ".as_ref()).into_string().unwrap())
        };
        assert_eq!(ask("bdrun help").unwrap(), "bdrun --help");
        assert_eq!(ask("bdrun help top").unwrap(), "bdrun top --help");
        assert_eq!(ask("bdrun -- help x").unwrap(), "bdrun -- help x");
        let error = ask("bdrun help ls").unwrap_err();
        assert!(error.to_string().contains("not for 'ls'") && error.code() == 118, "{error}");
    }
}
