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

impl Job<'_> {
    /// Until when output may wait for its reader, once all processes have ended; none: until somebody ends
    /// it.
    fn output_deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        if !self.escalation.ending() {
            return self.options.timeout.and_then(|limit| self.begin.checked_add(limit));
        }
        let told = matches!(self.ending, Some(Ending::Interrupted { .. } | Ending::Timeout(_)));
        let grace = self.escalation.deadline().and_then(|deadline| self.begin.checked_add(deadline));
        let until = if told { grace.unwrap_or(now) } else { now + KILLED_PATIENCE };
        Some(until.max(now + LEAST))
    }

    /// Waits until what ranks have printed is written, or no longer than it may take. Returns the same for
    /// what bdrun itself says after that.
    pub(super) fn await_output(&mut self) -> Option<Instant> {
        let mut until = self.output_deadline();
        let mut overdue = until;
        self.supervisor.forward_rest();
        loop {
            let left = overdue.map_or(LONGEST, |due| due.saturating_duration_since(Instant::now()));
            match self.letters.next(left) {
                Ok(Message::Supervisor(Happening::Forwarded)) => {
                    return until.map(|until| until.max(Instant::now() + LEAST));
                }
                Ok(Message::Supervisor(happening)) => {
                    let was_ending = self.escalation.ending();
                    if self.gives_up(happening) {
                        break;
                    }
                    if self.escalation.ending() && !was_ending {
                        until = self.output_deadline();
                        overdue = until;
                    }
                }
                Ok(Message::Nodes(told)) => self.told_at_the_end(told),
                Err(RecvTimeoutError::Timeout) if overdue.is_some() => {
                    if self.escalation.ending()
                        && let Some(until) = until
                    {
                        let patience = Patience { until, more: STARVED };
                        let reads = || is_read(stdout()) && is_read(stderr());
                        if let Some(next) = patience.next(Instant::now(), reads) {
                            overdue = Some(next);
                            continue;
                        }
                    }
                    if let Some(limit) = self.options.timeout.filter(|_| !self.escalation.ending()) {
                        self.end_otherwise(Ending::Timeout(limit));
                    }
                    break;
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.output.note("what the ranks have printed was not read in time: the rest of it is lost");
        Some(Instant::now() + LEAST)
    }

    /// Whether this is the end of waiting.
    fn gives_up(&mut self, happening: Happening) -> bool {
        match happening {
            Happening::Signal(libc::SIGUSR1 | libc::SIGUSR2) => false,
            Happening::Signal(libc::SIGTSTP) => {
                self.supervisor.pause(|| Some(()));
                false
            }
            Happening::Signal(signal) => {
                self.end_otherwise(Ending::Interrupted { signal: u8::try_from(signal).unwrap_or(15) });
                // The first signal gives whoever reads the grace that ranks would have.
                let was_told = self.escalation.cause().is_some();
                match self.escalation.handle(self.begin.elapsed(), EscalationEvent::Signal(signal)) {
                    Some(EscalationEffect::KillAll) => was_told,
                    Some(_) => {
                        self.output.note(&format!(
                            "what the ranks have printed is waited for: whoever reads it has {} s; once more gives it up",
                            GRACE.as_secs()
                        ));
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

/// Why the account was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unwritten {
    #[error("--stats: nobody reads standard output")]
    Unread,
    #[error(transparent)]
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
