//! The end of a job, and whoever reads what it prints.
//!
//! A job is done when what its ranks have printed is written. Whoever reads it may take his time, but a job
//! that is told to end ends all the same: within the grace of the signal or of the time limit. What is not
//! read by then is lost, and that is said.

use std::io::{stderr, stdout};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::{GRACE, Job, KILLED_PATIENCE, Message};
use crate::display::{Patience, is_read};
use crate::exit::Ending;
use crate::stats::Stats;
use crate::supervisor::{EscalationEffect, EscalationEvent, Happening};
use crate::whole;

/// What output gets at least, also when the grace is over: long enough for a reader that reads.
const LEAST: Duration = Duration::from_secs(1);

/// Without a limit it is waited so long at a time.
const LONGEST: Duration = Duration::from_secs(3600);

/// What it gets on top while somebody reads.
const STARVED: Duration = Duration::from_secs(5);

/// It was not waited for any longer.
struct GivenUp;

/// What a job waits for at its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// What the ranks have printed.
    Output,
    /// What has ended well is in no journal before that, and its output has no name: only who asks for the
    /// end takes that from it.
    Journal,
}

impl Last {
    fn waits(self) -> &'static str {
        match self {
            Self::Output => "what the ranks have printed is waited for: whoever reads it",
            Self::Journal => "the journal or the job log is waited for: it",
        }
    }

    /// Somebody takes it.
    fn goes_on(self) -> bool {
        self == Self::Output && is_read(stdout()) && is_read(stderr())
    }
}

impl Job<'_> {
    /// Until when it may wait, once all processes have ended; none: until somebody ends it.
    fn deadline_of(&self, last: Last) -> Option<Instant> {
        let now = Instant::now();
        let is_told = self.escalation.cause().is_some()
            || matches!(self.ending, Some(Ending::Interrupted { .. } | Ending::Timeout(_)));
        let grace = self.escalation.deadline().and_then(|deadline| self.begin.checked_add(deadline));
        let until = match last {
            _ if is_told => grace.unwrap_or(now),
            Last::Output if self.escalation.ending() => now + KILLED_PATIENCE,
            _ => return self.options.timeout.and_then(|limit| self.begin.checked_add(limit)),
        };
        Some(until.max(now + LEAST))
    }

    /// Waits until what ranks have printed is written, or no longer than it may take. Returns the same for
    /// what bdrun itself says after that.
    pub(super) fn await_output(&mut self) -> Option<Instant> {
        self.supervisor.forward_rest();
        let is_it = |message: &Message| matches!(message, Message::Supervisor(Happening::Forwarded));
        match self.await_last(Last::Output, is_it) {
            Ok(until) => until.map(|until| until.max(Instant::now() + LEAST)),
            Err(GivenUp) => {
                self.output.note("what the ranks have printed was not read in time: the rest of it is lost");
                Some(Instant::now() + LEAST)
            }
        }
    }

    /// Waits until the journal and the job log are written, or until somebody ends that: their disk may not
    /// answer, and a job log may be a pipe that nobody reads.
    ///
    /// # Errors
    /// In words: what could not be written.
    pub(super) fn await_journal(&mut self) -> Result<(), String> {
        if !self.journal.close() {
            return Ok(());
        }
        let mut written = Ok(());
        let is_it = |message: &Message| match message {
            Message::Journal(told) => {
                written.clone_from(told);
                true
            }
            _ => false,
        };
        if self.await_last(Last::Journal, is_it).is_err() {
            let named =
                [self.options.journal.path().map(|(path, _)| path), self.options.journal.joblog.as_deref()];
            let named: Vec<_> = named.into_iter().flatten().map(|path| path.display().to_string()).collect();
            let text = format!(
                "what has ended last could not be written in time to {}: what is not in a journal runs again",
                named.join(", ")
            );
            if self.ending.as_ref().is_none_or(Ending::is_success) {
                return Err(text);
            }
            self.output.note(&text);
        }
        written
    }

    /// Waits for the last thing of a job, and returns until when what comes after that may take; or no longer
    /// than it may take itself, and a little longer while it goes on.
    fn await_last(
        &mut self,
        last: Last,
        mut is_it: impl FnMut(&Message) -> bool,
    ) -> Result<Option<Instant>, GivenUp> {
        let mut until = self.deadline_of(last);
        let mut overdue = until;
        loop {
            let left = overdue.map_or(LONGEST, |due| due.saturating_duration_since(Instant::now()));
            match self.letters.next(left) {
                Ok(message) if is_it(&message) => return Ok(until),
                Ok(Message::Supervisor(happening)) => {
                    let was_told = self.escalation.cause();
                    if self.gives_up(happening, last) {
                        return Err(GivenUp);
                    }
                    if self.escalation.cause() != was_told {
                        until = self.deadline_of(last);
                        overdue = until;
                    }
                }
                Ok(Message::Nodes(told)) => self.told_at_the_end(told),
                Err(RecvTimeoutError::Timeout) if overdue.is_some() => {
                    if self.escalation.ending()
                        && let Some(until) = until
                    {
                        let patience = Patience { until, more: STARVED };
                        if let Some(next) = patience.next(Instant::now(), || last.goes_on()) {
                            overdue = Some(next);
                            continue;
                        }
                    }
                    let is_over = |limit: &Duration| self.begin.elapsed() >= *limit;
                    if let Some(limit) = self.options.timeout.filter(is_over) {
                        self.end_otherwise(Ending::Timeout(limit));
                    }
                    return Err(GivenUp);
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(GivenUp),
            }
        }
    }

    /// Whether this is the end of waiting.
    fn gives_up(&mut self, happening: Happening, last: Last) -> bool {
        match happening {
            Happening::Signal(libc::SIGUSR1 | libc::SIGUSR2) => false,
            Happening::Signal(libc::SIGTSTP) => {
                self.supervisor.pause(|| Some(()));
                false
            }
            Happening::Signal(signal) => {
                self.end_otherwise(Ending::Interrupted { signal: u8::try_from(signal).unwrap_or(15) });
                // The first signal gives it the grace that ranks would have.
                let was_told = self.escalation.cause().is_some();
                match self.escalation.handle(self.begin.elapsed(), EscalationEvent::Signal(signal)) {
                    Some(EscalationEffect::KillAll) if was_told => true,
                    Some(effect) => {
                        let is_left = effect != EscalationEffect::KillAll;
                        let time = if is_left { GRACE } else { LEAST }.as_secs();
                        self.output.note(&format!("{} has {time} s; once more gives it up", last.waits()));
                        false
                    }
                    // An echo of the one before; or all were killed already.
                    None => self.escalation.deadline().is_none(),
                }
            }
            Happening::OutputFailed { error, .. } => {
                self.end_otherwise(super::happenings::output_failed(&error));
                false
            }
            Happening::HoldFailed(error) => {
                let failed = self.hold_failed(&error);
                self.end_otherwise(failed);
                false
            }
            _ => false,
        }
    }

    /// It had ended well, but for its output.
    pub(super) fn end_otherwise(&mut self, ending: Ending) {
        if self.ending.as_ref().is_none_or(Ending::is_success) {
            self.ending = Some(ending);
        }
    }
}

/// What could not be written is how a job ends that had ended well; of another it is said. Whether it is how
/// this one ends.
pub(super) fn but_for(ending: &mut Ending, unwritten: Ending, note: impl FnOnce(&str)) -> bool {
    let is_it = ending.is_success();
    if is_it {
        *ending = unwritten;
    } else {
        note(&unwritten.to_string());
    }
    is_it
}

/// Why the account was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unwritten {
    #[error("--stats: nobody reads standard output")]
    Unread,
    #[error("--stats: {0}")]
    Failed(#[from] whole::Unwritten),
}

/// `--stats`: to its file, or, by `until` at the latest, to standard output.
pub(super) fn write_stats(stats: &Stats, path: &Path, until: Option<Instant>) -> Result<(), Unwritten> {
    let Some(until) = until.filter(|_| path == Path::new("-")) else { return Ok(stats.write(path)?) };
    let (sender, written) = sync_channel(1);
    let (stats, path) = (stats.clone(), path.to_owned());
    // On a thread that is left alone if nobody reads.
    std::thread::spawn(move || sender.send(stats.write(&path)));
    let patience = Patience { until, more: STARVED };
    patience.receive(&written, || is_read(stdout())).map_err(|_| Unwritten::Unread)?.map_err(Unwritten::from)
}
