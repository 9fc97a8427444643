//! For people: a live line on a terminal, messages, and the table at the end.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::hint::hint;
use super::progress::{Pace, fitted};
use super::{Output, Snapshot, Stderr, error_text, memory, table};
use crate::exit::Ending;
use crate::stats::Stats;

/// Of a terminal that does not say how wide it is.
const COLUMNS: usize = 80;

/// The output for people.
pub struct Human<W> {
    out: W,
    /// The live line; none where nobody sees it live.
    bar: Option<ProgressBar>,
    pace: Pace,
    /// More than is told of a job of which all went well and nothing was paged.
    verbose: bool,
}

impl Human<Stderr> {
    /// On standard error, with a live line if that is a terminal.
    #[must_use]
    pub(super) fn stderr(verbose: bool) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // Cut to the terminal's width, so that it stays one line.
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { out: Stderr(io::stderr()), bar, pace: Pace::default(), verbose }
    }
}

impl<W: Write + Send> Human<W> {
    /// On `out`, without a live line.
    pub fn new(out: W) -> Self {
        Self { out, bar: None, pace: Pace::default(), verbose: false }
    }

    fn write(&mut self, text: &str) {
        let out = &mut self.out;
        let mut write = || {
            let _ = out.write_all(text.as_bytes());
            let _ = out.flush();
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl<W: Write + Send> Output for Human<W> {
    fn progress(&mut self, snapshot: &Snapshot) {
        let Some(bar) = &self.bar else { return };
        let left = self.pace.left(snapshot);
        let columns =
            terminal_size::terminal_size_of(io::stderr()).map_or(COLUMNS, |(width, _)| width.0.into());
        bar.set_message(fitted(snapshot, left, columns));
        bar.tick();
    }

    fn note(&mut self, text: &str) {
        self.write(&format!("bdrun: {text}\n"));
    }

    fn lines(&mut self, write: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn finish(&mut self, stats: &Stats, ending: &Ending) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        // Whoever read it has gone, and is not to be told more.
        if matches!(ending, Ending::Interrupted { signal: 13 }) {
            return self.write(&error_text(ending));
        }
        // A job that never began has nothing in its table.
        let began = stats.ranks.iter().any(|rank| rank.status != "unborn");
        let (paged, well) = (stats.evicted_bytes > 0, ending.is_success());
        let mut text = match () {
            () if !began => String::new(),
            () if self.verbose || paged || !well => table::summary(stats),
            () => table::headline(stats),
        };
        if began && self.verbose {
            text.push_str(&memory::report(stats));
        }
        if began && let Some(hint) = hint(stats) {
            text.push_str(&format!("bdrun: hint: {hint}\n"));
        }
        // Last, where it is seen.
        text.push_str(&error_text(ending));
        self.write(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::RankStats;

    #[test]
    fn no_live_line_on_a_pipe_and_the_error_last() {
        let mut shown = Vec::new();
        let mut human = Human::new(&mut shown);
        human.progress(&Snapshot::default());
        human.note("rank 3 runs alone");
        let mut called = false;
        human
            .lines(&mut || {
                called = true;
                Ok(())
            })
            .unwrap();
        assert!(called);
        let ranks = vec![RankStats { status: "exit 7".into(), ..RankStats::default() }];
        let stats = Stats { np: 1, status: "rank-failed".into(), ranks, ..Stats::default() };
        human.finish(&stats, &Ending::RankExited { rank: 0, name: None, code: 7, doing: None });
        let text = String::from_utf8(shown).unwrap();
        assert!(text.starts_with("bdrun: rank 3 runs alone\nbdrun: 1 rank, rank-failed after"), "{text}");
        assert!(text.ends_with("exit 7\nbdrun: error: rank 0 failed with exit code 7\n"), "{text}");
    }

    #[test]
    fn a_job_that_never_began_shows_the_error_only() {
        let mut shown = Vec::new();
        Human::new(&mut shown).finish(&Stats::default(), &Ending::Internal("broken".into()));
        assert_eq!(String::from_utf8(shown).unwrap(), "bdrun: error: broken\n");
    }
}
