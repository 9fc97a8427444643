//! mpiexec's habits: its options as it spells them, and lines with several programs, `:` between (MPMD).
//!
//! What has a meaning here becomes one of our options; what cannot change a result here is left out; all else
//! is an error that says why.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::help;

/// What an option of mpiexec is here.
#[derive(Clone, Copy)]
enum Habit {
    /// This one of ours.
    Ours(&'static str),
    /// This one of ours, for NAME VALUE or NAME=VALUE.
    Pair(&'static str),
    /// This one of ours, for each of NAME,NAME,…
    Each(&'static str),
    /// Nothing, with so many values.
    Nothing(usize),
    /// Nothing, if the value is one of which that is true; else the text says why not.
    If(fn(&str) -> bool, &'static str),
    /// How many ranks a node has.
    PerNode,
    /// It cannot be had.
    Refused(&'static str),
}

use Habit::{Each, If, Nothing, Ours, Pair, PerNode, Refused};

const ONE_NODE: &str =
    "this bdrun runs ranks on this machine only; on several: mpiexec -n NODES bdrun, or srun";
const UNBOUND: &str =
    "ranks are not bound to processors; start bdrun by taskset for some of them, and see --processors";
const PLACED: &str =
    "all ranks are on this machine, and not bound to processors; see --processors and --resident";

/// Those with one dash, or two unless we have one of that name. `x`, `n` and `np` are ours.
const HABITS: &[(&[&str], Habit)] = &[
    (&["np"], Ours("np")),
    (&["wdir", "wd"], Ours("chdir")),
    (&["env"], Pair("env")),
    (&["genv"], Pair("genv")),
    (&["envlist"], Each("env")),
    (&["genvlist"], Each("genv")),
    // Ranks have all that bdrun has.
    (&["envall", "genvall"], Nothing(0)),
    (
        &["envnone", "genvnone"],
        Refused("ranks have bdrun's environment; start it by env -i for an empty one"),
    ),
    (&["l", "prepend-rank", "tag-output"], Ours("tag-output")),
    (&["timeout"], Ours("timeout")),
    (&["outfile-pattern", "output-filename"], Refused("see --output-files")),
    (&["errfile-pattern"], Refused("see --error-files")),
    (&["oversubscribe", "allow-run-as-root", "use-hwthread-cpus"], Nothing(0)),
    (&["bind-to"], If(|to| to == "none", UNBOUND)),
    (&["map-by", "rank-by"], If(is_place, PLACED)),
    (&["cpu-set", "cpu-list", "cpus-per-proc", "cpus-per-rank", "rankfile", "rf"], Refused(UNBOUND)),
    (&["host", "hosts", "H"], If(is_here, ONE_NODE)),
    (&["f", "hostfile", "machinefile", "machine", "default-hostfile"], Refused(ONE_NODE)),
    (&["ppn", "perhost", "npernode", "N"], PerNode),
    // Parts of Open MPI that are not here.
    (&["mca", "gmca"], Nothing(2)),
    (&["configfile", "app", "tune", "am"], Refused("write its options on the command line")),
];

/// Places that ranks are dealt out to; on one machine, unbound, all the same.
fn is_place(text: &str) -> bool {
    let mut words = text.split(':');
    let places =
        ["slot", "hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "package", "node"];
    words.next().is_some_and(|place| places.contains(&place))
        && words.all(|word| word.eq_ignore_ascii_case("oversubscribe"))
}

/// A list of hosts, with their numbers of slots, that has this machine only.
fn is_here(list: &str) -> bool {
    list.split(',').all(|host| ["localhost", "127.0.0.1"].contains(&host.split(':').next().unwrap_or(host)))
}

/// A command line, or what stands between two `:`, in which the program is found.
#[derive(Debug)]
pub(super) struct Marked {
    /// With `--` in front of the program.
    pub argv: Vec<OsString>,
    /// How many ranks a node is to have.
    pub per_node: Option<(String, u32)>,
    /// The user has written `--`.
    pub by_user: bool,
}

fn habit(name: &str) -> Option<Habit> {
    HABITS.iter().find(|(names, _)| names.contains(&name)).map(|(_, habit)| *habit)
}

/// An option as it is written.
struct Written {
    /// What stands behind its dashes.
    name: String,
    /// It has two of them.
    is_long: bool,
    /// What stands behind its `=`, which need not be text.
    inline: Option<OsString>,
}

/// What a word is as an option; none if it is no option.
fn written(word: &OsStr) -> Option<Written> {
    let bytes = word.as_bytes();
    let (head, inline) = match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned())),
        None => (bytes, None),
    };
    let (name, is_long) = match head.strip_prefix(b"--") {
        Some(name) => (name, true),
        None => (head.strip_prefix(b"-")?, false),
    };
    // What is no text is the name of none.
    let name = String::from_utf8_lossy(name).into_owned();
    (!name.is_empty() || inline.is_some()).then_some(Written { name, is_long, inline })
}

struct Known(clap::Command);

impl Known {
    fn arg(&self, matches: impl Fn(&clap::Arg) -> bool) -> Option<&clap::Arg> {
        self.0.get_arguments().find(|arg| matches(arg))
    }

    fn long(&self, name: &str) -> Option<&clap::Arg> {
        self.arg(|arg| is_called(arg, name))
    }

    fn short(&self, name: char) -> Option<&clap::Arg> {
        self.arg(|arg| arg.get_short() == Some(name))
    }

    /// Whether it is an option of ours whose value is the next word.
    fn takes_next(&self, word: &OsStr) -> bool {
        let Some(Written { name, is_long, inline: None }) = written(word) else { return false };
        let mut letters = name.chars();
        let arg = match (is_long, letters.next(), letters.next()) {
            (true, ..) => self.long(&name),
            (false, Some(letter), None) => self.short(letter),
            _ => None,
        };
        arg.is_some_and(|arg| arg.get_action().takes_values())
    }

    /// How many of the words behind it are its values, whether it is ours or of mpiexec; `next`: the first of
    /// them.
    fn values(&self, word: &OsStr, next: Option<&OsString>) -> usize {
        let Some(Written { name, is_long, inline }) = written(word) else { return 0 };
        if is_long && self.long(&name).is_some() {
            return usize::from(self.takes_next(word));
        }
        let Some(habit) = habit(&name) else { return usize::from(self.takes_next(word)) };
        let is_pair = |setting: &OsString| setting.as_encoded_bytes().contains(&b'=');
        let all = match habit {
            Ours(name) => {
                let mut all = self.0.get_arguments();
                usize::from(all.any(|arg| is_called(arg, name) && arg.get_action().takes_values()))
            }
            Pair(_) => 2 - usize::from(inline.as_ref().or(next).is_some_and(is_pair)),
            Nothing(count) => count,
            Each(_) | If(..) | PerNode => 1,
            Refused(_) => 0,
        };
        all.saturating_sub(usize::from(inline.is_some()))
    }

    /// Whether it is an option, of ours or of mpiexec.
    fn has(&self, word: &OsStr) -> bool {
        let Some(Written { name, is_long, .. }) = written(word) else { return false };
        let ours = if is_long { self.long(&name).is_some() } else { self.short(first(&name)).is_some() };
        ours || habit(&name).is_some()
    }
}

fn first(text: &str) -> char {
    text.chars().next().unwrap_or_default()
}

/// Cuts a line where a `:` is followed by an option: there is another program. Not behind `--`.
pub(super) fn cut(argv: Vec<OsString>) -> Vec<Vec<OsString>> {
    let known = Known(help::definition());
    let mut all: Vec<Vec<OsString>> = vec![Vec::new()];
    let mut words = argv.into_iter().peekable();
    let mut is_marked = false;
    // In front of the program, where a `:` may be an option's value.
    let mut at_options = true;
    all[0].extend(words.next());
    while let Some(word) = words.next() {
        is_marked |= word == "--";
        if word == ":" && !is_marked && words.peek().is_some_and(|next| known.has(next)) {
            all.push(vec![all[0][0].clone()]);
            at_options = true;
            continue;
        }
        at_options &= written(&word).is_some();
        let values = if at_options { known.values(&word, words.peek()) } else { 0 };
        if let Some(last) = all.last_mut() {
            last.push(word);
            last.extend(words.by_ref().take(values));
        }
    }
    all
}

/// Makes an unambiguous command line: mpiexec's options become ours, and a `--` is put before the program, so
/// that an unknown option is an error and not the program's name.
///
/// # Errors
/// A sentence: what cannot be had.
pub(super) fn mark(argv: Vec<OsString>) -> Result<Marked, String> {
    let known = Known(help::definition());
    let mut words = argv.into_iter();
    let mut marked = Marked { argv: words.by_ref().take(1).collect(), per_node: None, by_user: false };
    while let Some(word) = words.next() {
        let Some(Written { name, is_long, inline }) = written(&word) else {
            marked.by_user = word == "--";
            if !marked.by_user {
                marked.argv.push("--".into());
            }
            marked.argv.push(word);
            marked.argv.extend(words);
            break;
        };
        if is_long && known.long(&name).is_some() {
            let takes_next = known.takes_next(&word);
            marked.argv.push(word);
            marked.argv.extend(words.by_ref().take(usize::from(takes_next)));
        } else if let Some(habit) = habit(&name) {
            let option = format!("{}{name}", if is_long { "--" } else { "-" });
            marked.take(habit, &option, inline, &mut words)?;
        } else if let Some(number) = name.strip_prefix("np").filter(|_| !is_long) {
            let mut option = OsString::from(format!("--np={number}"));
            if let Some(inline) = inline {
                option.push("=");
                option.push(inline);
            }
            marked.argv.push(option);
        } else {
            if !is_long && known.short(first(&name)).is_none() && known.long(&name).is_some() {
                return Err(format!("'-{name}' has two dashes here: --{name}"));
            }
            let takes_next = known.takes_next(&word);
            marked.argv.push(word);
            marked.argv.extend(words.by_ref().take(usize::from(takes_next)));
        }
    }
    Ok(marked)
}

impl Marked {
    fn take(
        &mut self,
        habit: Habit,
        option: &str,
        inline: Option<OsString>,
        words: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), String> {
        let mut values = inline.into_iter().chain(words);
        let mut value = || values.next().ok_or_else(|| format!("'{option}' needs a value"));
        match habit {
            Ours(name) => {
                self.argv.push(format!("--{name}").into());
                let command = help::definition();
                let mut arguments = command.get_arguments();
                if arguments.any(|arg| is_called(arg, name) && arg.get_action().takes_values()) {
                    self.argv.extend(values.next());
                }
            }
            Pair(name) => {
                let mut setting = value()?;
                if !setting.as_encoded_bytes().contains(&b'=') {
                    setting.push("=");
                    setting.push(value()?);
                }
                self.argv.extend([format!("--{name}").into(), setting]);
            }
            Each(name) => {
                let list = value()?;
                let list = list.to_str().ok_or_else(|| format!("'{option}': names are UTF-8"))?;
                for variable in list.split(',') {
                    self.argv.extend([format!("--{name}").into(), OsStr::new(variable).to_owned()]);
                }
            }
            Nothing(count) => (0..count).try_for_each(|_| value().map(drop))?,
            If(is_harmless, why) => {
                let value = value()?.to_string_lossy().into_owned();
                if !is_harmless(&value) {
                    return Err(format!("'{option} {value}': {why}"));
                }
            }
            PerNode => {
                let value = value()?.to_string_lossy().into_owned();
                let number = value.parse().map_err(|_| format!("'{option} {value}': no number"))?;
                self.per_node = Some((option.to_owned(), number));
            }
            Refused(why) => return Err(format!("'{option}': {why}")),
        }
        Ok(())
    }
}
/// By this name, or by another of its names.
fn is_called(arg: &clap::Arg, name: &str) -> bool {
    arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
}
