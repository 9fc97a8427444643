//! `--dry-run`: what would be run, in which order, and in how much memory.
//!
//! Nothing is estimated here: what a rank is expected to need is what the core expects, and who is begun when
//! is what its admission makes of that ([`Core::outlook`]). What is not known is said to be.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};

use super::elsewhere::Place;
use super::setup::Decided;
use super::watch;
use crate::cli::{Options, OutputKind};
use crate::display::curve;
use crate::exit::Ending;
use crate::journal::{Done, Journal};
use crate::launch::Launch;
use crate::residency::{Can, Core, Event, Limits, Next, Outlook, Rank};
use crate::units::{Bytes, Count, Span};

/// How it is known what a rank will need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// From ranks that ended earlier.
    Learned,
    /// It is the size that was declared.
    Declared,
    /// It is not.
    Unknown,
}

/// A rank that would be run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    rank: Rank,
    source: Source,
    /// Bytes it is expected to need; what is set aside for it, if that is unknown.
    bytes: u64,
    /// Its declared size.
    size: Option<u64>,
    /// Seconds it took earlier.
    seconds: Option<f64>,
}

/// The plan of a job.
#[derive(Debug, Clone, PartialEq)]
struct Plan {
    /// Ranks are begun as they fit; else all live from the beginning.
    independent: bool,
    /// Who would be run, in order.
    parts: Vec<Part>,
    /// Ranks that were done before.
    done: usize,
    limits: Limits,
    /// Why the budget is what it is.
    source: String,
    /// How it would go, if it is known what each of them needs.
    outlook: Option<Outlook>,
}

/// Prints what would be run: lines for a shell on standard output, the plan on standard error. Whoever closes
/// the pipe has seen enough.
pub(super) fn dry_run(launch: Launch, options: &Options) -> Result<Launch, Ending> {
    let decided = Decided::new(options, &launch, Place::alone(options.np))?;
    let plan = Plan::new(options, &launch, &decided, &Journal::peek(options, &launch)?);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let ranks = plan.parts.iter().map(|part| (part.rank, part.expected()));
    match launch.show(&mut out, ranks).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(launch),
        Err(error) => return Err(Ending::Setup(format!("cannot write to standard output: {error}"))),
    }
    drop(out);
    if options.output_kind() == OutputKind::Human {
        for note in &decided.notes {
            eprintln!("bdrun: {note}");
        }
        eprint!("{plan}");
    }
    Ok(launch)
}

impl Part {
    fn expected(&self) -> Option<u64> {
        (self.source != Source::Unknown).then_some(self.bytes)
    }
}

impl Plan {
    fn new(options: &Options, launch: &Launch, decided: &Decided, done: &[Done]) -> Self {
        let Decided { independent, limits, ref budget, ref known, .. } = *decided;
        // Those of other jobs are begun by number, as they fit.
        let ranks = watch::independent(options, launch, Can::PROGRAM);
        let mut core = Core::new(limits, &ranks).informed(&known.informed);
        for &Done { rank, peak, .. } in done {
            core.handle(Event::Exited { rank, peak, next: Next::Over }, &mut Vec::new());
        }
        let mut line = core.line();
        if !independent {
            line.sort_unstable();
        }
        let earlier: HashMap<Rank, u64> = known.informed.known.iter().copied().collect();
        let part = |rank: Rank| {
            let (aside, learned) = core.expects(rank);
            let size = launch.declared(rank).filter(|&size| size > 0);
            let seconds = known.seconds.get(rank as usize).copied().filter(|&seconds| seconds > 0.0);
            let (source, bytes) = match (earlier.get(&rank).copied().or(learned), size) {
                (Some(bytes), _) => (Source::Learned, bytes),
                (None, Some(size)) => (Source::Declared, size),
                (None, None) => (Source::Unknown, aside),
            };
            Part { rank, source, bytes, size, seconds }
        };
        let parts: Vec<Part> = line.into_iter().map(part).collect();
        let source = budget.source.clone();
        Self::of(parts, independent.then_some(core), done.len(), limits, source)
    }

    /// Of `parts` in a line of this core.
    fn of(mut parts: Vec<Part>, core: Option<Core>, done: usize, limits: Limits, source: String) -> Self {
        let independent = core.is_some();
        let is_known = !parts.is_empty() && parts.iter().all(|part| part.source != Source::Unknown);
        let outlook = core.filter(|_| is_known).map(|core| {
            let seconds: Vec<f64> = parts.iter().filter_map(|part| part.seconds).collect();
            let mean =
                if seconds.is_empty() { 1.0 } else { seconds.iter().sum::<f64>() / seconds.len() as f64 };
            let needs: HashMap<Rank, (u64, f64)> =
                parts.iter().map(|part| (part.rank, (part.bytes, part.seconds.unwrap_or(mean)))).collect();
            core.outlook(|rank| needs[&rank])
        });
        if let Some(outlook) = &outlook {
            let place: HashMap<Rank, usize> = outlook.order.iter().copied().zip(0..).collect();
            parts.sort_by_key(|part| place[&part.rank]);
        }
        Self { independent, parts, done, limits, source, outlook }
    }
}

/// `1 rank`, `7 ranks`.
fn ranks(count: usize) -> String {
    if count == 1 { "1 rank".into() } else { format!("{} ranks", Count(count as u64)) }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Limits { budget, processors, resident, .. } = self.limits;
        write!(f, "bdrun: plan: {}", ranks(self.parts.len()))?;
        if self.done > 0 {
            write!(f, ", and {} done before", Count(self.done as u64))?;
        }
        writeln!(f, "; budget {} ({})", Bytes(budget), self.source)?;
        let many = |most: u32| (most as usize) < self.parts.len();
        let mut at_once = if self.independent {
            format!("begun in this order as memory and {processors} processors allow")
        } else {
            format!("all live at once, and {processors} of them compute at a time")
        };
        if many(resident) {
            let _ = write!(at_once, "; {resident} in RAM at most");
        }
        if self.independent && many(self.limits.alive) {
            let _ = write!(at_once, "; {} at a time", self.limits.alive);
        }
        writeln!(f, "  {at_once}")?;
        for (source, what) in [(Source::Learned, "as ranks like these did"), (Source::Declared, "their size")]
        {
            let of: Vec<u64> =
                self.parts.iter().filter(|part| part.source == source).map(|part| part.bytes).collect();
            let sum = of.iter().copied().fold(0, u64::saturating_add);
            if let Some(most) = of.iter().max() {
                let (sum, most) = (Bytes(sum), Bytes(*most));
                writeln!(f, "  {} expected to need {sum} in all, {most} at most: {what}", ranks(of.len()))?;
            }
        }
        self.unknown(f)?;
        let Some(outlook) = &self.outlook else { return Ok(()) };
        let is_timed = self.parts.iter().any(|part| part.seconds.is_some());
        let peak = outlook.needed.iter().map(|at| at.1).max().unwrap_or(0);
        let percent = 100.0 * peak as f64 / (budget as f64).max(1.0);
        let at_once = ranks(outlook.at_once as usize);
        write!(f, "  at most {at_once} at once, which need {} ({percent:.0}% of the budget)", Bytes(peak))?;
        if is_timed {
            write!(f, "; about {}", Span(outlook.time))?;
        }
        writeln!(f)?;
        if peak > budget {
            writeln!(
                f,
                "  {} more than the budget are on scratch at times; paging takes its time",
                Bytes(peak - budget)
            )?;
        }
        writeln!(f, "  What is needed over time, if each needs it from its beginning to its end:")?;
        f.write_str(&curve(&outlook.needed, outlook.time, is_timed, budget))
    }
}

impl Plan {
    /// What is not known.
    fn unknown(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |is: fn(&Part) -> bool| self.parts.iter().filter(|part| is(part)).count();
        let memory = count(|part| part.source == Source::Unknown);
        if memory > 0 {
            write!(f, "  unknown: what {} need", ranks(memory))?;
            let first = self.parts.iter().find(|part| part.source == Source::Unknown);
            if let Some(part) = first.filter(|_| self.independent) {
                write!(f, " ({} is set aside for each until the first have ended)", Bytes(part.bytes))?;
            }
            writeln!(f)?;
        }
        if self.independent && count(|part| part.source == Source::Declared) > 0 {
            writeln!(
                f,
                "  unknown: how much more or less than their size they need; the first to end show it"
            )?;
        }
        let time = count(|part| part.seconds.is_none());
        match time {
            0 => Ok(()),
            all if all == self.parts.len() => {
                writeln!(f, "  unknown: how long they take (--learn remembers it)")
            }
            some => writeln!(f, "  unknown: how long {} take; the mean of the others is taken", ranks(some)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::residency::Informed;
    use crate::residency::sim::Machine;

    const MIB: u64 = 1 << 20;

    fn part(rank: Rank, source: Source, mib: u64, seconds: Option<f64>) -> Part {
        let size = (source == Source::Declared).then_some(mib * MIB);
        Part { rank, source, bytes: mib * MIB, size, seconds }
    }

    fn plan(parts: Vec<Part>, budget: u64) -> Plan {
        let limits = Machine::new(budget * MIB, 2).limits;
        let mut sizes = vec![(Can::PROGRAM, None); parts.len()];
        let mut informed = Informed { largest_first: true, ..Informed::default() };
        for part in &parts {
            sizes[part.rank as usize].1 = part.size;
            let learned = (part.source == Source::Learned).then_some((part.rank, part.bytes));
            informed.known.extend(learned);
        }
        let core = Core::new(limits, &sizes).informed(&informed);
        Plan::of(parts, Some(core), 0, limits, "--memory".into())
    }

    #[test]
    fn a_job_of_which_all_is_known() {
        let parts =
            (0..8).map(|rank| part(rank, Source::Learned, 33 + u64::from(rank), Some(10.0))).collect();
        let plan = plan(parts, 100);
        assert_eq!(plan.parts[0].rank, 7, "the largest first");
        let text = plan.to_string();
        for words in [
            "bdrun: plan: 8 ranks; budget 100.0 MiB (--memory)\n",
            "  8 ranks expected to need 292.0 MiB in all, 40.0 MiB at most: as ranks like these did\n",
            "  at most 2 ranks at once, which need 79.0 MiB (79% of the budget); about 40.0 s\n",
            "   100.0 MiB |----",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("unknown") && !text.contains("scratch"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn one_larger_than_the_budget_is_paged() {
        let parts = vec![part(0, Source::Learned, 150, Some(10.0)), part(1, Source::Learned, 10, Some(10.0))];
        let text = plan(parts, 100).to_string();
        assert!(text.contains("at most 1 rank at once, which need 150.0 MiB (150% of the budget)"), "{text}");
        assert!(text.contains("  50.0 MiB more than the budget are on scratch at times"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_said_to_be() {
        let parts = vec![part(1, Source::Declared, 30, None), part(0, Source::Declared, 20, None)];
        let text = plan(parts, 100).to_string();
        for words in [
            "2 ranks expected to need 50.0 MiB in all, 30.0 MiB at most: their size\n",
            "unknown: how much more or less than their size they need",
            "unknown: how long they take (--learn remembers it)",
            " the end\n",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("about"), "no time is made up: {text}");

        let parts = vec![part(0, Source::Unknown, 25, None), part(1, Source::Learned, 5, Some(2.0))];
        let text = plan(parts, 100).to_string();
        for words in [
            "unknown: what 1 rank need (25.0 MiB is set aside for each until the first have ended)",
            "unknown: how long 1 rank take; the mean of the others is taken",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("over time"), "{text}");
    }
}
