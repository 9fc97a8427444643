//! The command line of `bdrun simulate`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Parser};

use super::show::{Answer, Row, text};
use super::{Job, Record, Setting, Shape, Synthetic};
use crate::cli::parse_size;
use crate::exit::Ending;
use crate::residency::sim::Policy;

#[derive(Debug, Parser)]
#[command(
    name = "bdrun simulate",
    bin_name = "bdrun simulate",
    about = "What would a job need? Run one again that was recorded, or made up, with other memory, in seconds",
    after_help = "Examples:
  bdrun --trace job.trace …; bdrun simulate job.trace     # the same with half, twice, all and the least memory
  bdrun simulate job.trace --memory 8G,16G,32G --processors 16 --policy ours,fifo,lru
  bdrun simulate --synthetic 256 --size 2G --spread 1.5 --shape bulk --seconds 30 --memory 64G

What it assumes, and cannot know: the user guide, \"What would it need?\". For a program of that name: bdrun -- simulate"
)]
struct Line {
    /// What a job with `--trace FILE` has left behind
    #[arg(value_name = "TRACE", required_unless_present = "ranks", conflicts_with = "ranks")]
    record: Option<PathBuf>,

    /// Budgets to try; default: what was, half, twice, all in RAM, and the smallest in which it ends
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size)]
    memory: Vec<u64>,

    /// Processors; default: as many as there were
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    processors: Option<u32>,

    /// Ranks in RAM at once; default: as it was
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    resident: Option<u32>,

    /// Bytes a second that scratch is read with, and written with; default: as seen
    #[arg(long, value_name = "READ,WRITE", value_parser = parse_size, value_delimiter = ',', num_args = 1)]
    disk: Vec<u64>,

    /// Who decides: bdrun, or a rule to compare with
    #[arg(long, value_name = "ours,fifo,lru", value_delimiter = ',', value_parser = parse_policy, default_value = "ours")]
    policy: Vec<Policy>,

    /// Print the table as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    made_up: MadeUp,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "A job that is made up")]
struct MadeUp {
    /// Of so many ranks
    #[arg(long = "synthetic", id = "ranks", value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    ranks: Option<u32>,

    /// Bytes of each, the median
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G", requires = "ranks")]
    size: u64,

    /// By what factor one standard deviation is more or less
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2, value_parser = parse_spread, requires = "ranks")]
    spread: f64,

    /// So many ranks are four times as large
    #[arg(long, value_name = "N", default_value_t = 0, requires = "ranks")]
    outliers: u32,

    /// Seconds that a rank of the median size computes
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = parse_seconds, requires = "ranks")]
    seconds: f64,

    /// How they work together
    #[arg(long, value_enum, default_value = "independent", requires = "ranks")]
    shape: Shape,

    /// How often they do
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000), requires = "ranks")]
    phases: u32,

    /// Another number, other sizes
    #[arg(long, value_name = "N", default_value_t = 1, requires = "ranks")]
    seed: u64,
}

fn parse_policy(text: &str) -> Result<Policy, String> {
    match text {
        "ours" => Ok(Policy::Ours),
        "fifo" => Ok(Policy::Fifo),
        "lru" => Ok(Policy::Lru),
        _ => Err(format!("'{text}' is not ours, fifo or lru")),
    }
}

fn parse_spread(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (1.0..=10.0).contains(factor));
    factor.ok_or_else(|| format!("'{text}' is not a factor from 1 (all are the same) to 10"))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 1e6);
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds above 0"))
}

/// `bdrun simulate`: the exit code, if the line is one of it.
#[must_use]
pub fn run(argv: &[OsString]) -> Option<u8> {
    if argv.get(1)? != "simulate" {
        return None;
    }
    let line = match Line::try_parse_from(&argv[1..]) {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return Some(if error.use_stderr() { Ending::Usage(String::new()).code() } else { 0 });
        }
    };
    let failed = |ending: Ending| {
        eprint!("{}", crate::display::error_text(&ending));
        Some(ending.code())
    };
    let answer = match answer(&line) {
        Ok(answer) => answer,
        Err(ending) => return failed(ending),
    };
    let mut out = std::io::stdout().lock();
    let written = if line.json {
        serde_json::to_writer_pretty(&mut out, &answer)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        out.write_all(text(&answer).as_bytes())
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            failed(Ending::Setup(format!("cannot write: {error}")))
        }
        _ => Some(0),
    }
}

fn answer(line: &Line) -> Result<Answer, Ending> {
    let (mut job, record) = if let Some(path) = &line.record {
        let record = Record::read(path).map_err(Ending::Setup)?;
        (Job::recorded(&record), Some(record))
    } else {
        let made_up = &line.made_up;
        let asked = Synthetic {
            ranks: made_up.ranks.unwrap_or(1),
            size: made_up.size,
            spread: made_up.spread,
            outliers: made_up.outliers.min(made_up.ranks.unwrap_or(1)),
            seconds: made_up.seconds,
            shape: made_up.shape,
            phases: made_up.phases,
            seed: made_up.seed,
        };
        let here = std::thread::available_parallelism().map_or(1, |here| here.get() as u32);
        (Job::synthetic(&asked, line.processors.unwrap_or(here)), None)
    };
    match line.disk[..] {
        [] => {}
        [read, write] => job.set_disk(read as f64, write as f64),
        _ => {
            return Err(Ending::Usage(
                "--disk takes two rates, of reading and of writing: --disk 1.5G,2G".into(),
            ));
        }
    }
    let as_it_was = job.as_it_was();
    let base = Setting {
        processors: line.processors.unwrap_or(as_it_was.processors),
        resident: line.resident.unwrap_or(as_it_was.resident),
        ..as_it_was
    };
    let budget = base.budget_bytes;
    let mut rows = Vec::new();
    for &policy in &line.policy {
        let base = Setting { policy, ..base };
        let with = |budget_bytes: u64| Setting { budget_bytes, ..base };
        let mut add = |what: &str, setting: Setting| rows.push(Row::new(what, setting, job.run(setting)));
        if !line.memory.is_empty() {
            line.memory.iter().for_each(|&memory| add("", with(memory)));
            continue;
        }
        add(if record.is_some() { "as it was" } else { "half of all" }, with(budget));
        add("× 0.5", with(budget / 2));
        add("× 2", with(budget.saturating_mul(2)));
        add("all in RAM", job.in_ram(base));
        if let Some((setting, outcome)) = job.smallest(base) {
            rows.push(Row::new("the smallest", setting, outcome));
        }
    }
    Ok(Answer::new(&job, record.as_ref(), rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_line_is_consistent_and_errors_are_sentences() {
        Line::command().debug_assert();
        let parse = |line: &str| Line::try_parse_from(line.split(' ')).map_err(|error| error.to_string());
        assert!(parse("simulate").unwrap_err().contains("TRACE"));
        assert!(parse("simulate a --synthetic 3").is_err(), "one of them");
        assert!(parse("simulate a --policy best").unwrap_err().contains("'best' is not ours, fifo or lru"));
        assert!(parse("simulate --synthetic 3 --spread 0.5").unwrap_err().contains("not a factor"));
        let line = parse("simulate a --memory 1G,2G --disk 1G,2G --policy ours,lru").unwrap();
        assert_eq!((line.memory, line.disk.len(), line.policy.len()), (vec![1 << 30, 2 << 30], 2, 2));
    }
}
