//! Finds jobs that run here, asks, and shows what is answered.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use comfy_table::{Cell, CellAlignment, Table, presets};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::server::address;
use super::{About, Answer, Question, VERSION, words};
use crate::exit::Ending;
use crate::residency::Activity;
use crate::units::{Bytes, Span};

/// From one look of `top` to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Columns and rows of a terminal that does not say how large it is.
const SIZE: (usize, usize) = (80, 24);

/// So long an answer may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// Bytes of an answer, at most: some hundreds for each of a million ranks.
const LONGEST: u64 = 1 << 30;

/// First words of a line that is no job to run.
const SUBCOMMANDS: &[&str] = &["top", "explain"];

#[derive(Debug, Parser)]
#[command(
    name = "bdrun",
    about = "Look at a bdrun job that runs. (For a program of that name: bdrun -- top)"
)]
struct Line {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show what the job and its ranks do, again each second while it runs (once, if nobody looks)
    Top {
        #[command(flatten)]
        which: Which,
        /// Show it once
        #[arg(long)]
        once: bool,
    },
    /// Say what a rank does, and if it waits why, and what would change that
    Explain {
        /// The rank; without it those that do not run, by what they wait for, and of those that have not
        /// begun the first
        rank: Option<u32>,
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Args)]
struct Which {
    /// The process of that bdrun, if several run
    #[arg(long, value_name = "PID")]
    job: Option<u32>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// `bdrun top` and `bdrun explain`: the exit code, if the line is one of these.
#[must_use]
pub fn run(argv: &[OsString]) -> Option<u8> {
    let first = argv.get(1)?.to_str()?;
    if !SUBCOMMANDS.contains(&first) {
        return None;
    }
    let line = match Line::try_parse_from(argv) {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            let usage = Ending::Usage(String::new()).code();
            return Some(if error.use_stderr() { usage } else { 0 });
        }
    };
    let done = match line.what {
        What::Top { which, once } => top(&which, once),
        What::Explain { which, rank } => explain(&which, rank),
    };
    Some(match done {
        Ok(()) => 0,
        Err(Failed::Closed) => 0,
        Err(Failed::Ending(ending)) => {
            eprint!("{}", crate::display::error_text(&ending));
            ending.code()
        }
    })
}

enum Failed {
    /// Nobody reads any more.
    Closed,
    Ending(Ending),
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Ending(Ending::Setup(format!("cannot write: {error}"))),
        }
    }
}

fn failed(text: String) -> Failed {
    Failed::Ending(Ending::Setup(text))
}

/// The jobs that run here, as far as they may be asked: owner and process.
fn jobs() -> BTreeMap<u32, u32> {
    let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let own = nix::unistd::geteuid().as_raw();
    text.lines()
        .filter_map(|line| {
            let (_, name) = line.split_once("@bdrun/")?;
            let (uid, pid) = name.split_once('/')?;
            Some((pid.parse().ok()?, uid.parse().ok()?))
        })
        .filter(|&(pid, uid)| (own == 0 || own == uid) && is_owner(pid, uid))
        .collect()
}

/// Whether that process, if we see one of that number, is this user's: anybody may take a name with the
/// number of another's.
fn is_owner(pid: u32, uid: u32) -> bool {
    std::fs::metadata(format!("/proc/{pid}")).map_or(true, |there| there.uid() == uid)
}

/// The job that is meant.
fn find(which: &Which) -> Result<(u32, u32), Failed> {
    let jobs = jobs();
    if let Some(pid) = which.job {
        let uid = jobs.get(&pid).ok_or_else(|| failed(format!("no job of bdrun runs as process {pid}")))?;
        return Ok((pid, *uid));
    }
    match jobs.iter().map(|(&pid, &uid)| (pid, uid)).collect::<Vec<_>>()[..] {
        [] => Err(failed("no job of bdrun runs here".into())),
        [one] => Ok(one),
        ref several => {
            let pids: Vec<String> = several.iter().map(|(pid, _)| pid.to_string()).collect();
            Err(failed(format!("several jobs run here: --job {}", pids.join(", or --job "))))
        }
    }
}

fn may_answer(peer: u32, uid: u32) -> bool {
    peer == uid || peer == 0
}

/// Anybody may listen under any such name: who answers is the one that the name says, or root.
fn is_of(stream: &UnixStream, uid: u32) -> std::io::Result<()> {
    let peer = getsockopt(stream, PeerCredentials)?.uid();
    if may_answer(peer, uid) {
        return Ok(());
    }
    Err(std::io::Error::other(format!("under its name user {peer} listens, and it is user {uid}'s")))
}

/// None: it has ended.
fn ask((pid, uid): (u32, u32), about: About) -> Result<Option<Answer>, Failed> {
    let asked = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect_addr(&address(uid, pid)?)?;
        is_of(&stream, uid)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(&Question { version: VERSION, about })?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        BufReader::new(stream.take(LONGEST)).read_line(&mut answer)?;
        Ok(answer)
    };
    let answer = match asked() {
        Ok(answer) => answer,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(failed(format!("the job (process {pid}) does not answer: {error}"))),
    };
    if answer.is_empty() {
        return Err(failed(format!(
            "the job (process {pid}) does not answer: it is about to end, is of another version, or not yours"
        )));
    }
    let answer = serde_json::from_str(&answer);
    answer.map(Some).map_err(|error| failed(format!("the answer of process {pid} is none: {error}")))
}

fn top(which: &Which, once: bool) -> Result<(), Failed> {
    let job = find(which)?;
    let mut out = std::io::stdout();
    let again = out.is_terminal() && !once && !which.json;
    loop {
        let all = About { rank: None, waiting: false };
        let Some(answer) = ask(job, all)? else { return Ok(()) };
        if which.json {
            serde_json::to_writer(&mut out, &answer).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else if again {
            let size = terminal_size::terminal_size_of(&out);
            let (columns, rows) = size.map_or(SIZE, |(columns, rows)| (columns.0.into(), rows.0.into()));
            // From the top left corner of an empty screen.
            write!(out, "\x1b[H\x1b[2J{}", picture(&answer, columns, rows))?;
        } else {
            write!(out, "{}", table(&answer, usize::MAX))?;
        }
        out.flush()?;
        if !again {
            return Ok(());
        }
        std::thread::sleep(EVERY);
    }
}

/// What of it a terminal can show: the job, and of each node those that hold most. Else they would scroll
/// away, and the least remain.
fn picture(answer: &Answer, columns: usize, rows: usize) -> String {
    // The last line is the cursor's, the first the job's; each node has two besides, and one for those that
    // are left out.
    let lines = rows.saturating_sub(1);
    let each = lines.saturating_sub(1) / answer.nodes().count();
    let text = table(answer, each.saturating_sub(3).max(1));
    let cut = |line: &str| line.chars().take(columns).chain(['\n']).collect::<String>();
    text.lines().take(lines.max(1)).map(cut).collect()
}

/// The job in two lines, and a line for each rank that lives, `most` of a node; node by node, if there are
/// several.
fn table(answer: &Answer, most: usize) -> String {
    let mut text = format!("{}\n", answer.line);
    for node in answer.nodes() {
        text.push_str(&format!("{}{}\n", of_node(node), node.now));
        text.push_str(&table_of(node, most));
    }
    text
}

/// Before what a node says, if there are several.
fn of_node(answer: &Answer) -> String {
    answer.node.as_ref().map_or_else(String::new, |(node, host)| format!("node {node} ({host}): "))
}

fn table_of(answer: &Answer, most: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let parts = answer.ranks.iter().any(|rank| rank.part.is_some());
    table.set_header(["rank", "does", "in RAM", "out", "peak", "since", if parts { "part" } else { "" }]);
    for rank in answer.ranks.iter().take(most) {
        let doing = rank.doing.clone().unwrap_or_default();
        let last = rank.part.clone().unwrap_or(doing).replace(['\t', '\n'], " ");
        table.add_row([
            Cell::new(rank.rank),
            Cell::new(rank.activity.map_or("-", word)),
            Cell::new(Bytes(rank.held)),
            Cell::new(Bytes(rank.out)),
            Cell::new(Bytes(rank.peak)),
            Cell::new(Span(rank.lived_s)),
            Cell::new(last),
        ]);
    }
    for column in [0, 2, 3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let more = answer.more as usize + answer.ranks.len().saturating_sub(most);
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

const fn word(activity: Activity) -> &'static str {
    match activity {
        Activity::Starting => "starting",
        Activity::Running => "running",
        Activity::Waiting => "waiting",
        Activity::Held => "held",
        Activity::Evicting => "evicting",
        Activity::Out => "out",
        Activity::Restoring => "restoring",
    }
}

fn explain(which: &Which, rank: Option<u32>) -> Result<(), Failed> {
    let job = find(which)?;
    let about = About { rank, waiting: rank.is_none() };
    let answer = ask(job, about)?.ok_or_else(|| failed("the job has ended".into()))?;
    let mut out = std::io::stdout().lock();
    if which.json {
        serde_json::to_writer(&mut out, &answer).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    if let Some(wanted) = rank {
        let Some((node, rank)) = answer.nodes().find_map(|node| Some((node, node.ranks.first()?))) else {
            return Err(failed(format!("there is no rank {wanted}: the job has {}", answer.limits.np)));
        };
        let lines = words::explain(node, rank).join("\n");
        writeln!(out, "{}{lines}", of_node(node))?;
        return Ok(());
    }
    writeln!(out, "{}", answer.line)?;
    for node in answer.nodes() {
        writeln!(out, "{}{}", of_node(node), node.now)?;
        let mut ranks: Vec<_> = node.ranks.iter().collect();
        ranks.sort_by_key(|rank| words::place(rank));
        for rank in ranks {
            writeln!(out, "{}", words::explain(node, rank).join("; "))?;
        }
        if node.more > 0 {
            writeln!(out, "and {} more that do not run (bdrun explain RANK)", node.more)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::{Limits, OVER, RankNow};

    #[test]
    fn who_listens_under_anothers_name_is_not_asked() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(is_of(&one, nix::unistd::geteuid().as_raw()).is_ok());
        assert!(may_answer(7, 7) && may_answer(0, 7) && !may_answer(8, 7) && !may_answer(8, 0));
        // Nor is one that has the number of another's process.
        let own = std::process::id();
        let there = |uid| is_owner(own, uid);
        let owner = nix::unistd::geteuid().as_raw();
        assert!(there(owner) && !there(owner + 1) && is_owner(u32::MAX, 7));
    }

    /// Of so many ranks, the largest first.
    fn answer(ranks: u32) -> Answer {
        let limits = Limits { budget: 1, used: 1, resident: 1, processors: 1, jobs: None, np: 900 };
        let rank = |rank| RankNow {
            rank,
            part: Some("a part with a long name ".repeat(20)),
            status: None,
            activity: Some(Activity::Running),
            held: 1 << 20,
            out: 0,
            peak: 1 << 20,
            lived_s: 1.0,
            doing: None,
            situation: None,
        };
        Answer {
            line: "bdrun ".repeat(100),
            elapsed_s: 1.0,
            now: "900 ranks".into(),
            limits,
            ranks: (0..ranks).map(rank).collect(),
            more: 700,
            node: None,
            others: vec![],
        }
    }

    #[test]
    fn a_picture_is_no_larger_than_its_terminal() {
        for rows in 1..60 {
            let shown = picture(&answer(200), 70, rows);
            assert!(shown.lines().count() < rows.max(2), "{rows}: {shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= 70), "{shown}");
        }
        let shown = picture(&answer(200), 70, 24);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!((lines.len(), lines[1], lines[22]), (23, "900 ranks", "and 881 more"));
        assert!(lines[3].trim_start().starts_with("0  running"), "{shown}");
        // Elsewhere all that was told is shown.
        assert!(table(&answer(200), usize::MAX).ends_with("and 700 more\n"));
        let two = Answer { others: vec![answer(200)], ..answer(200) };
        let shown = picture(&two, 70, 24);
        assert_eq!((shown.matches("900 ranks").count(), shown.lines().count()), (2, 23), "{shown}");
    }

    #[test]
    fn who_knows_more_of_a_rank_is_heard() {
        let over = |of: &mut Answer| of.ranks[0].status = Some(OVER.into());
        let mut first = Answer { others: vec![answer(1)], ..answer(1) };
        over(&mut first);
        first.of_who_knows_most();
        assert_eq!((first.ranks.len(), first.others[0].ranks.len()), (0, 1));
        let mut alone = answer(1);
        over(&mut alone);
        alone.of_who_knows_most();
        assert_eq!(alone.ranks.len(), 1, "nobody knows more");
    }
}
