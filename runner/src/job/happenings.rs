//! What happens to processes, and what they say: started, failed, ended.

use std::os::fd::AsFd;

use bdrun_ipc::control::{self, FailureKind, Frame};

use super::{Job, setup};
use crate::cli::{Halt, MAX_RANKS};
use crate::exit::Ending;
use crate::residency::{Can, Event, Next, Outcome};
use crate::supervisor::{self, EscalationEvent, Happening, OomKill};

impl Job<'_> {
    /// A rank could not be started.
    fn not_started(&mut self, rank: u32, error: &supervisor::SpawnError) {
        let ending = setup::cannot_start(rank, error);
        self.events.push(Event::Done { rank, outcome: Outcome::NotStarted });
        if self.halt() == Halt::FIRST {
            self.end(ending);
        } else {
            self.fail_rank(rank, ending);
        }
    }

    pub(super) fn take_happening(&mut self, happening: Happening) {
        match happening {
            Happening::Spawned { rank, pid, group, at, output } => {
                let record = &mut self.ranks[rank as usize];
                (record.pid, record.output) = (Some(pid), output);
                self.spawned(rank, group, at);
                self.events.push(Event::Done { rank, outcome: Outcome::Started });
                if self.reads_once(rank) && self.is_stranger(rank) {
                    let can = Can { rerun: false, ..self.watch.stranger(self.options) };
                    self.events.push(Event::Can { rank, can });
                }
            }
            Happening::SpawnFailed { rank, error } => {
                self.gone(rank);
                self.ranks[rank as usize].status = Some("unborn".into());
                if !matches!(error, supervisor::SpawnError::Cancelled) {
                    self.not_started(rank, &error);
                    self.retire(rank);
                }
            }
            Happening::Exited { rank, ending, oom, usage, .. } => {
                self.read_control(rank);
                let doing = self.doing(rank);
                let began = self.ranks[rank as usize].born;
                let (peak, stopped) = self.ended(rank, &usage, ending.success());
                self.gone(rank);
                let overdue = self.ranks[rank as usize].overdue.is_some();
                // One whose failure was counted is killed for that, whatever it ends with.
                let failed = if ending.success() && !overdue && !self.ranks[rank as usize].failed {
                    None
                } else {
                    Some(self.rank_failed(rank, ending, oom, doing))
                };
                let retry = failed
                    .as_ref()
                    .filter(|_| !stopped)
                    .and_then(|failed| self.retry(rank, failed, oom, peak));
                let how = match ending {
                    _ if overdue => "timeout".into(),
                    // It ended before it was killed.
                    supervisor::Ending::Code(0) if failed.is_some() => "stopped".into(),
                    supervisor::Ending::Code(0) => "ok".into(),
                    supervisor::Ending::Code(code) => format!("exit {code}"),
                    supervisor::Ending::Signal { signal, .. } => format!("signal {signal}"),
                };
                let next = if stopped { Next::Stopped } else { retry.unwrap_or(Next::Over) };
                self.events.push(Event::Exited { rank, peak, next });
                if !stopped {
                    self.write_down(rank, ending, began, peak);
                }
                if next != Next::Over && self.ending.is_none() {
                    self.ranks[rank as usize].pid = None;
                    if stopped {
                        self.supervisor.forget(rank);
                    } else if let Some(failed) = failed {
                        self.ranks[rank as usize].retried = Some((how, failed));
                    }
                    return;
                }
                self.supervisor.is_over(rank);
                // What one says of itself that was told to end does not count.
                let told = self.setup.alone && self.escalation.ending();
                let stopped = self.ending.is_some() && (told || !ending.success());
                self.ranks[rank as usize].status = Some(if stopped { "stopped".into() } else { how });
                if self.ending.is_none() {
                    match failed {
                        Some(failed) => self.fail_rank(rank, failed),
                        None => self.rank_is_done(rank),
                    }
                }
                self.retire(rank);
            }
            Happening::Signal(signal)
                if self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.is_the_launchers(signal)) => {}
            Happening::Signal(signal) => {
                if !matches!(signal, libc::SIGUSR1 | libc::SIGUSR2 | libc::SIGTSTP) {
                    let signal = u8::try_from(signal).unwrap_or(15);
                    self.ending.get_or_insert(Ending::Interrupted { signal });
                    if i32::from(signal) == libc::SIGINT && !self.escalation.ending() {
                        self.note("ranks have 5 s to end; once more (Ctrl-C) kills them at once");
                    }
                }
                self.escalate(EscalationEvent::Signal(signal));
            }
            Happening::OutputFailed { error, .. } => self.end_though_well(output_failed(&error)),
            // Before anybody asked for it.
            Happening::Forwarded => {
                self.end(Ending::Internal("the threads that forward output have ended".into()))
            }
            Happening::HoldFailed(error) => {
                let failed = self.hold_failed(&error);
                self.end_though_well(failed);
            }
            Happening::KeeperLost => {
                self.end(Ending::Internal("the keeper of the job's processes was killed".into()));
            }
        }
    }

    /// Output is lost, or what was to be written down: also a job that has ended well, and only waits for its
    /// ranks to end, has not.
    pub(super) fn end_though_well(&mut self, failed: Ending) {
        self.end_otherwise(failed);
        self.escalate(EscalationEvent::Fail);
    }

    pub(super) fn hold_failed(&self, error: &std::io::Error) -> Ending {
        let what = if self.options.launch.keep_order { "--keep-order: output" } else { "a long line" };
        Ending::ScratchBroken(format!("{what} cannot be held back: {error}"))
    }

    fn rank_failed(
        &self,
        rank: u32,
        ending: supervisor::Ending,
        oom: OomKill,
        doing: Option<String>,
    ) -> Ending {
        let name = self.setup.launch.name(rank);
        if let Some(limit) = self.options.launch.rank_timeout
            && self.ranks[rank as usize].overdue.is_some()
        {
            return Ending::RankTimeout { rank, name, limit };
        }
        match (ending, oom) {
            (_, OomKill::JobLimit) => Ending::Memory(format!(
                "{} was killed by the kernel: the job exceeded its limit (--enforce)",
                self.who(rank)
            )),
            (_, OomKill::Outside) => Ending::RankKilled {
                rank,
                name,
                signal: 9,
                doing: Some(match doing {
                    Some(doing) => format!("{doing} (by the kernel: memory is exhausted)"),
                    None => "computing (by the kernel: memory is exhausted)".into(),
                }),
            },
            (supervisor::Ending::Code(code), _) => {
                Ending::RankExited { rank, name, code: u8::try_from(code).unwrap_or(255), doing }
            }
            (supervisor::Ending::Signal { signal, .. }, _) => {
                Ending::RankKilled { rank, name, signal: u8::try_from(signal).unwrap_or(0), doing }
            }
        }
    }

    /// A rank's process is no more.
    fn gone(&mut self, rank: u32) {
        self.alive = self.alive.saturating_sub(1);
        self.release_memory_of(rank);
        self.ranks[rank as usize].control = None;
    }

    pub(super) fn read_control(&mut self, rank: u32) {
        loop {
            let Some(socket) = self.ranks.get(rank).and_then(|r| r.control.as_ref()) else { return };
            match control::recv_frame(socket.as_fd()) {
                Ok(None) => return,
                // It was killed, and asks no more.
                Ok(Some(Frame::Hello { .. })) if self.is_stopping(rank) => {}
                Ok(Some(Frame::Hello { .. })) if self.setup.segment.is_wide() => {
                    let text = format!(
                        "{} is of bdrun's own runtime, or of an MPI, and may talk to others: of these there may be {MAX_RANKS}, which are \
                         known before the first begins (a list in a file, or -np)",
                        self.who(rank)
                    );
                    self.end(Ending::Setup(text));
                    return;
                }
                Ok(Some(Frame::Hello { protocol })) if protocol == control::PROTOCOL => {
                    // Before the rank can take memory: once it can, a look would charge it a second time.
                    self.adopt(rank);
                    self.hand_over(rank);
                }
                Ok(Some(Frame::Attached)) => self.attached(rank),
                Ok(Some(Frame::Talks)) => self.is_not_alone(rank),
                Ok(Some(Frame::Hello { protocol })) => {
                    self.end(Ending::Internal(format!(
                        "rank {rank} speaks version {protocol} of the protocol, bdrun {}: build both from one release",
                        control::PROTOCOL
                    )));
                    return;
                }
                Ok(Some(Frame::Failed { kind, bytes, text })) => {
                    let text = format!("rank {rank}: {text}");
                    self.end(match kind {
                        FailureKind::ScratchFull => Ending::ScratchFull {
                            rank,
                            need: bytes,
                            // Only messages are reported so.
                            directory: self.setup.scratch_dirs.first().map(|dir| dir.display().to_string()),
                        },
                        FailureKind::Scratch => Ending::ScratchBroken(text),
                        FailureKind::MemoryLimit => Ending::Memory(text),
                        FailureKind::Runtime => Ending::Internal(text),
                    });
                }
                Err(error) => {
                    self.end(Ending::Internal(format!("rank {rank}: {error}")));
                    return;
                }
            }
        }
    }
}

/// Whoever read it has gone, or it cannot be written.
pub(super) fn output_failed(error: &std::io::Error) -> Ending {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        Ending::Interrupted { signal: 13 }
    } else {
        Ending::Internal(format!("cannot write the ranks' output: {error}"))
    }
}
