//! What happens when, written into the job's history (`--report`, `--trace`), and the files made of it.

use std::time::{Duration, Instant, SystemTime};

use bdrun_ipc::segment::Waiting;
use bdrun_ipc::state::State;
use bdrun_ipc::steps::Step;

use super::Job;
use crate::cli::Options;
use crate::history::{History, Leg, On, Sample};
use crate::report::{self, Told};
use crate::residency::{Activity, Event, Rank};
use crate::stats::Stats;
use crate::whole::{self, Unwritten};

/// The history of a job of which a picture was asked for.
pub(super) fn begin(options: &Options) -> Option<History> {
    let asked = options.report.is_some() || options.trace.is_some();
    asked.then(|| History::new(options.np))
}

/// Whether what is to be written at the end can be; the option, if not.
pub(super) fn check(options: &Options) -> Result<(), (&'static str, Unwritten)> {
    for (option, path) in [("--report", &options.report), ("--trace", &options.trace)] {
        if let Some(path) = path {
            whole::check(path).map_err(|error| (option, error))?;
        }
    }
    Ok(())
}

/// Writes what was asked for, each as if it were the only one. What could not be written, with the option.
pub(super) fn write(
    options: &Options,
    began: SystemTime,
    stats: &Stats,
    history: Option<&History>,
) -> Vec<(&'static str, Unwritten)> {
    let line = options.line_for_the_shell();
    let told = Told { line: &line, began, stats, history };
    let page = options.report.as_ref().map(|path| whole::write(path, |out| report::page(&told, out)));
    let trace = options.trace.as_ref().map(|path| whole::write(path, |out| report::trace(&told, out)));
    let written = [("--report", page), ("--trace", trace)].into_iter();
    written.filter_map(|(option, written)| Some((option, written?.err()?))).collect()
}

impl Job<'_> {
    /// Seconds since the job began.
    pub(super) fn now_s(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// What a rank does. While everything fits, ranks that block tell nobody: then its word says it.
    pub(super) fn activity(&self, rank: Rank) -> Option<Activity> {
        let activity = self.core.activity(rank);
        let is_inside = matches!(activity, Some(Activity::Running | Activity::Waiting));
        if !is_inside || !self.watch.accounts.is_adopted(rank) {
            return activity;
        }
        match self.setup.segment.rank(rank).word.load().state() {
            State::Running => Some(Activity::Running),
            State::Blocked => Some(Activity::Waiting),
            _ => activity,
        }
    }

    /// Takes over what a rank told of what it did.
    pub(super) fn record_legs(&mut self, rank: Rank) {
        // Ranks of a wide job are none of those that tell.
        if self.setup.segment.is_wide() {
            return;
        }
        let Some(history) = &mut self.history else { return };
        let began = self.began_ns;
        self.setup.segment.steps(rank).take(|step| history.legs.add(rank, leg(&step, began)));
    }

    fn record_all_legs(&mut self) {
        if self.history.is_some() && self.watch.accounts.is_shared() {
            for rank in 0..self.setup.segment.np() {
                self.record_legs(rank);
            }
        }
    }

    /// The rank begins, perhaps anew.
    pub(super) fn record_begin(&mut self, rank: Rank) {
        self.record_legs(rank);
        if let Some(history) = &mut self.history {
            history.legs.forget(rank);
            history.sizes.forget(rank);
        }
    }

    /// So much was seen of what a rank did not ask for, with what is out of that.
    pub(super) fn record_size(&mut self, rank: Rank, bytes: u64) {
        let now = self.now_s();
        if let Some(history) = &mut self.history {
            history.sizes.add(now, rank, bytes);
        }
    }

    /// Whose lives these may have changed.
    pub(super) fn touched(&self, events: &[Event], touched: &mut Vec<Rank>) {
        if self.history.is_some() {
            let about = events.iter().filter(|event| !matches!(event, Event::Sample { .. }));
            touched.extend(about.filter_map(|event| event.rank()));
        }
    }

    /// Writes down what these ranks do now.
    pub(super) fn record_ranks(&mut self, touched: &[Rank]) {
        let now = self.now_s();
        let Some(history) = &mut self.history else { return };
        for &rank in touched {
            history.rank(now, rank, self.core.activity(rank));
        }
    }

    /// How many ranks have ended of those that are here or were, where so many are over for the core: those
    /// that others run are.
    pub(super) fn over_here(&self, over: u32) -> u32 {
        if self.setup.deals {
            return self.ended.tally.sum();
        }
        let here =
            if self.setup.segment.is_spread() { self.setup.segment.here().len() as u32 } else { self.np() };
        over.saturating_sub(self.np() - here)
    }

    /// Writes down how the job is, if it is time to; when it will be next.
    pub(super) fn record(&mut self, now: Instant) -> Option<Duration> {
        let t = now.duration_since(self.begin).as_secs_f64();
        let history = self.history.as_ref()?;
        let wait = history.series.due() - t;
        if wait > 0.0 {
            return Some(Duration::from_secs_f64(wait));
        }
        self.record_all_legs();
        let segment = self.setup.segment.clone();
        let header = segment.header();
        let counts = self.core.counts();
        let done = self.over_here(counts.exited);
        let outside = self.watch.running(&self.ranks);
        let resident = self.resident();
        let [written, read] = self.moved_bytes();
        if self.watch.accounts.is_shared() {
            let seen: Vec<_> = self.ranks.iter().map(|(rank, _)| (rank, self.activity(rank))).collect();
            let history = self.history.as_mut()?;
            seen.into_iter().for_each(|(rank, activity)| history.rank(t, rank, activity));
        }
        let budget = header.pool.budget();
        let history = self.history.as_mut()?;
        history.series.add(Sample {
            t,
            held: (budget as i64 - header.pool.free() - self.kept_free as i64).max(0) as u64,
            budget,
            running: header.tokens.running() + outside,
            resident,
            out: counts.out,
            done,
            written,
            read,
        });
        Some(Duration::from_secs_f64(history.series.interval()))
    }
}

/// A wait as a rank told it.
fn leg(step: &Step, job_began: u64) -> Leg {
    let seconds = |ns: u64| ns.saturating_sub(job_began) as f64 / 1e9;
    let on = match step.waiting {
        Waiting::Nothing => On::Nothing,
        Waiting::Message { context: 0, source, .. } => On::Message { from: source },
        Waiting::Message { .. } | Waiting::Anything => On::Message { from: None },
        Waiting::Collective { comm, number } => On::Collective { comm, number },
        Waiting::Memory { .. } => On::Memory,
    };
    let Step { waker, tokenless, began, woken, ran, held, most, need, moved, .. } = *step;
    let [began, woken, ran] = [began, woken, ran].map(seconds);
    Leg { began, woken, ran, on, waker, tokenless, held, most, need, moved }
}
