//! The man page and the completions for shells, made of the one definition of the command line:
//! `cargo run --release -p bdrun --example manual -- DIR` writes them there by their names in [`FILES`].

use std::fmt::Write as _;
use std::io::{Error, Result, Write};
use std::path::Path;

use bdrun::cli::help;
use bdrun::exit;
use clap::{Command, ValueHint};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

/// What is written, and for whom: a shell, else people.
const FILES: [(&str, Option<Shell>); 4] = [
    ("bdrun.1", None),
    ("bdrun.bash", Some(Shell::Bash)),
    ("_bdrun", Some(Shell::Zsh)),
    ("bdrun.fish", Some(Shell::Fish)),
];

/// Words of roff, by what people read.
const SYNOPSIS: &str = r"
.SH SYNOPSIS
\fBbdrun\fR [\fB\-np\fR \fIN\fR] [\fIOPTIONS\fR] [\fB\-\-\fR] \fIPROGRAM\fR [\fIARGS\fR]...
.br
\fBbdrun\fR [\fIOPTIONS\fR] \fIPROGRAM\fR [\fIARGS\fR]... \fB:\fR [\fB\-np\fR \fIN\fR] \fIPROGRAM\fR [\fIARGS\fR]... ...
";

const DESCRIPTION: &str = r"
.SH DESCRIPTION
\fBbdrun\fR starts one process for each rank (or part) and lets only those be in RAM whose memory fits a budget. What
others hold is on scratch until they run. It comes to the end, at the disk's speed, with jobs that together need
many times the memory that there is.
.PP
\fIPROGRAM\fR is any program: one of MPI (MPICH's, Open MPI's or the standard's ABI), or one that knows nothing of
\fBbdrun\fR. What stands behind it belongs to it. The options of \fBmpiexec\fR are understood, or refused with the reason.
";

const ENVIRONMENT: &str = r"
.SH ENVIRONMENT
.TP
\fBBDRUN_SCRATCH\fR
Directories for what does not fit in memory, colons between; else \fBTMPDIR\fR, else /var/tmp.
.TP
\fBBDRUN_RANK\fR, \fBBDRUN_SIZE\fR, \fBBDRUN_PART\fR
Set in the ranks: the number of each from 0, how many there are, and the line or path that is its part.
";

const SEE_ALSO: &str = r"
.SH SEE ALSO
\fBbdcc\fR(1), the user guide in /usr/share/doc/bdrun (or share/doc/bdrun of where it was installed)
";

/// The definition, with what shells can know besides.
fn command() -> Command {
    // What only `--help` has is in the page too.
    let definition = help::definition().mut_args(|arg| arg.hide_short_help(false));
    definition.mut_arg("command", |program| program.value_hint(ValueHint::CommandWithArguments))
}

fn man_page() -> Result<Vec<u8>> {
    // The table of exit codes is a section of its own.
    let man =
        Man::new(command().after_help(None::<&str>).after_long_help(None::<&str>).before_help(None::<&str>))
            .manual("User commands");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.write_all(SYNOPSIS.trim_start().as_bytes())?;
    page.write_all(DESCRIPTION.trim_start().as_bytes())?;
    page.write_all(options(&man)?.as_bytes())?;
    let mut codes = String::from(".SH EXIT STATUS\n");
    for (code, meaning) in exit::TABLE {
        let meaning = meaning.replace('-', "\\-");
        writeln!(codes, ".TP\n\\fB{code}\\fR\n{meaning}").map_err(Error::other)?;
    }
    page.write_all(codes.as_bytes())?;
    let mut examples = String::from(".SH EXAMPLES\n");
    for (line, what) in help::EXAMPLES {
        let line = line.replace('-', "\\-");
        writeln!(examples, ".TP\n\\fB{line}\\fR\n{what}").map_err(Error::other)?;
    }
    page.write_all(examples.as_bytes())?;
    page.write_all(ENVIRONMENT.trim_start().as_bytes())?;
    page.write_all(SEE_ALSO.trim_start().as_bytes())?;
    Ok(page)
}

/// The groups of options, each a part of one section.
fn options(man: &Man) -> Result<String> {
    let mut text = Vec::new();
    man.render_options_section(&mut text)?;
    let text = String::from_utf8(text).map_err(Error::other)?;
    let part =
        |line: &str| line.strip_prefix(".SH ").map_or_else(|| line.into(), |name| format!(".SS {name}"));
    let lines: Vec<String> = text.lines().map(part).collect();
    Ok(format!(".SH OPTIONS\n{}\n", lines.join("\n")))
}

fn file(shell: Option<Shell>) -> Result<Vec<u8>> {
    let Some(shell) = shell else { return man_page() };
    let mut text = Vec::new();
    generate(shell, &mut command(), "bdrun", &mut text);
    let text = String::from_utf8(text).map_err(Error::other)?;
    Ok(finished(shell, text)?.into_bytes())
}

/// With what the generator does not know: `-np`, which no definition of POSIX options has, and that behind
/// our options there is a program with arguments of its own.
fn finished(shell: Shell, mut text: String) -> Result<String> {
    let mut add = |after: &str, more: &str| match text.find(after) {
        Some(at) => {
            text.insert_str(at + after.len(), more);
            Ok(())
        }
        None => Err(Error::other(format!("no '{after}' for {shell}"))),
    };
    let valued = valued();
    match shell {
        Shell::Bash => {
            add("opts=\"-n", " -np")?;
            add("\n                -n", " | -np")?;
            text.push_str(&BASH.replace("VALUED", &valued.join(" | ")));
        }
        Shell::Zsh => {
            add("_arguments \"${_arguments_options[@]}\" : \\\n", "'-np[Number of ranks]:N:' \\\n")?
        }
        Shell::Fish => {
            add("complete -c bdrun -s n -l np", " -o np")?;
            text.push_str(&format!(
                "complete -c bdrun -x -a '(__fish_complete_subcommand {})'\n",
                valued.join(" ")
            ));
        }
        _ => {}
    }
    Ok(text)
}

/// Options behind which there is a value.
fn valued() -> Vec<String> {
    let definition = command();
    let options = definition.get_arguments().filter(|arg| !arg.is_positional());
    let mut names = vec![String::from("-np")];
    for arg in options.filter(|arg| arg.get_action().takes_values()) {
        names.extend(arg.get_short().map(|short| format!("-{short}")));
        names.extend(arg.get_long().map(|long| format!("--{long}")));
    }
    names
}

/// Completes the program and its arguments as if they stood alone, where bash-completion is there.
const BASH: &str = r#"
_bdrun_or_program() {
    local at word value=
    for ((at = 1; at < COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        if [[ $word = "=" ]]; then
            value=yes
        elif [[ -n $value ]]; then
            value=
        else
            case $word in
                --) ((at++)) && break ;;
                VALUED) value=yes ;;
                -*) ;;
                *) break ;;
            esac
        fi
    done
    if [[ -z $value && ($at -lt $COMP_CWORD || ${COMP_WORDS[COMP_CWORD]} != -*) ]] && declare -F _command_offset >/dev/null; then
        _command_offset $at
    else
        _bdrun "$@"
    fi
}
complete -F _bdrun_or_program -o bashdefault -o default bdrun
"#;

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let (Some(folder), None) = (args.next(), args.next()) else {
        return Err(Error::other("usage: manual DIR"));
    };
    for (name, shell) in FILES {
        std::fs::write(Path::new(&folder).join(name), file(shell)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_every_file() {
        let definition = command();
        let all: Vec<&str> = definition.get_arguments().filter_map(|arg| arg.get_long()).collect();
        assert!(all.len() > 30 && all.contains(&"np") && all.contains(&"resume"), "{all:?}");
        for (name, shell) in FILES {
            let text = String::from_utf8(file(shell).expect(name)).expect("UTF-8").replace("\\-", "-");
            for option in all.iter().chain(&["help", "version"]) {
                let written = if shell == Some(Shell::Fish) { "-l " } else { "--" };
                assert!(text.contains(&format!("{written}{option}")), "{name} has no --{option}");
            }
        }
    }

    #[test]
    fn the_habit_of_mpiexec_is_completed() {
        for (name, text) in [("bdrun.bash", "-n -np "), ("_bdrun", "'-np["), ("bdrun.fish", "-l np -o np ")] {
            let (_, shell) = FILES.iter().find(|(file, _)| *file == name).expect(name);
            let found = String::from_utf8(file(*shell).expect(name)).expect("UTF-8").contains(text);
            assert!(found, "{name} has no {text}");
        }
        let valued = valued();
        let has = |name: &str| valued.iter().any(|other| other == name);
        assert!(has("-n") && has("--memory") && has("--parts") && !has("--keep-order"), "{valued:?}");
    }

    #[test]
    fn the_man_page_has_what_help_has() {
        let page = String::from_utf8(man_page().expect("a page")).expect("UTF-8");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
            let heading = |line: &str| line.trim_start_matches(".SH ").trim_matches('"') == section;
            assert_eq!(page.lines().filter(|line| heading(line)).count(), 1, "{section}:\n{page}");
        }
        assert!(page.contains(r"\fBbdrun\fR [\fB\-np\fR \fIN\fR]"));
        for group in ["WHAT RUNS", "HOW MANY AT ONCE", "TO TEST PROGRAMS, AND BDRUN"] {
            assert!(page.contains(&format!(".SS \"{group}\"")), "{group}:\n{page}");
        }
        for (line, what) in help::EXAMPLES {
            let line = line.replace('-', "\\-");
            assert!(page.contains(&format!("\\fB{line}\\fR\n{what}\n")), "{line}:\n{page}");
        }
        assert!(page.contains("Standard input of each rank"), "also of options that only --help has: {page}");
        for (code, _) in exit::TABLE {
            assert!(page.contains(&format!("\\fB{code}\\fR")), "{code}");
        }
    }
}
