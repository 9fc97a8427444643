//! The end of a job, and whoever reads what it prints.
//!
//! A job is done when what its ranks have printed is written. Whoever reads it may take his time, but a job that is told to end
//! ends all the same: within the grace of the signal or of the time limit. What is not read by then is lost, and that is said.

use std::io::{stderr, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, at, bounded, never, select};

use super::{Job, KILLED_PATIENCE, Message};
use crate::display::is_read;
use crate::exit::Ending;
use crate::stats::{Stats, StatsError};
use crate::supervisor::Happening;

/// What output gets at least, also when the grace is over: long enough for a reader that reads.
const LEAST: Duration = Duration::from_secs(1);

/// What it gets on top while it could be written: time that the processors had for something else is not the reader's.
const STARVED: Duration = Duration::from_secs(5);

/// How often it is asked whether it could.
const LOOK: Duration = Duration::from_millis(50);

impl Job<'_> {
    /// Until when output may wait for its reader, once all processes have ended; none: until somebody ends it.
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

    /// Waits until what ranks have printed is written, or no longer than it may take. Returns the same for what bdrun itself
    /// says after that.
    pub(super) fn await_output(&mut self) -> Option<Instant> {
        let until = self.output_deadline();
        let mut overdue = until.map_or_else(never, at);
        let rest = self.supervisor.forward_rest();
        loop {
            select! {
                recv(rest) -> _ => return until.map(|until| until.max(Instant::now() + LEAST)),
                recv(self.messages) -> message => match message {
                    Ok(Message::Supervisor(happening)) => if self.gives_up(happening) { break },
                    Ok(_) => {}
                    Err(_) => break,
                },
                recv(overdue) -> _ => {
                    if self.escalation.ending() && is_starved(until, is_read(stdout()) && is_read(stderr())) {
                        overdue = at(Instant::now() + LOOK);
                        continue;
                    }
                    if let Some(limit) = self.options.timeout.filter(|_| !self.escalation.ending()) {
                        self.end_otherwise(Ending::Timeout(limit));
                    }
                    break;
                }
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
                self.supervisor.pause();
                false
            }
            Happening::Signal(signal) => {
                self.end_otherwise(Ending::Interrupted { signal: u8::try_from(signal).unwrap_or(15) });
                true
            }
            Happening::OutputFailed { error, .. } => {
                self.end_otherwise(super::happenings::output_failed(&error));
                false
            }
            _ => false,
        }
    }

    /// It had ended well, but for its output.
    fn end_otherwise(&mut self, ending: Ending) {
        if self.ending.as_ref().is_none_or(Ending::is_success) {
            self.ending = Some(ending);
        }
    }
}

/// Time is over, but not for want of a reader.
fn is_starved(until: Option<Instant>, is_read: bool) -> bool {
    is_read && until.is_some_and(|until| until.elapsed() < STARVED)
}

/// What comes until then, or a little later if that is not the reader's fault.
fn patiently<T>(
    from: &Receiver<T>,
    until: Instant,
    is_read: impl Fn() -> bool,
) -> Result<T, RecvTimeoutError> {
    let mut next = until;
    loop {
        match from.recv_deadline(next) {
            Err(RecvTimeoutError::Timeout) if is_starved(Some(until), is_read()) => {
                next = Instant::now() + LOOK;
            }
            result => return result,
        }
    }
}

/// Why the account was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unwritten {
    #[error("--stats: nobody reads standard output")]
    Unread,
    #[error(transparent)]
    Failed(#[from] StatsError),
}

/// `--stats`: to its file, or, by `until` at the latest, to standard output.
pub(super) fn write_stats(stats: &Stats, path: &Path, until: Option<Instant>) -> Result<(), Unwritten> {
    let Some(until) = until.filter(|_| path == Path::new("-")) else { return Ok(stats.write(path)?) };
    let (sender, written) = bounded(1);
    let (stats, path) = (stats.clone(), path.to_owned());
    // On a thread that is left alone if nobody reads.
    std::thread::spawn(move || sender.send(stats.write(&path)));
    match patiently(&written, until, || is_read(stdout())) {
        Ok(result) => Ok(result?),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(Unwritten::Unread),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_though_somebody_reads_is_waited_for() {
        let (sender, receiver) = bounded(1);
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            sender.send(7)
        });
        assert_eq!(patiently(&receiver, Instant::now(), || false), Err(RecvTimeoutError::Timeout));
        assert_eq!(patiently(&receiver, Instant::now(), || true), Ok(7));
        late.join().unwrap().unwrap();
    }
}
