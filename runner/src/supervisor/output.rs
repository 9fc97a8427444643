//! The thread that reads what the ranks write and forwards it.
//!
//! Per wake-up it reads once from every pipe that has something, then writes each of the two streams with one call.
//! Lines of one stream of one rank keep their order; of a rank's two streams, lines that arrive within one wake-up
//! may change places with each other. When a rank has ended, what its pipes hold is forwarded at once; they stay
//! open for children that it has left behind. With an [`Order`], what ranks write before their turn waits there.

use super::order::Order;
use super::reaper::Drained;
use super::sink::{Got, Line, READ, Sink};
use super::sys::{self, BELL, Poller};
use super::{AroundWrite, Happening, Report, Stream, SuperviseError, setup, sink, thread};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How lines are written.
pub(super) struct Style {
    pub(super) tag: bool,
    pub(super) pass_through: bool,
    pub(super) around_write: Option<AroundWrite>,
}

enum Command {
    Add { serial: u64, rank: u32, pipes: [Option<OwnedFd>; 2] },
    Ended { serial: u64, rank: u32 },
    NeverWas(u32),
    WillRetry(u32),
    Report(Drained),
    Finish,
}

/// Gives work to the thread.
#[derive(Clone)]
pub(super) struct Feed {
    sender: Sender<Command>,
    poller: Arc<Poller>,
}

impl Feed {
    fn send(&self, command: Command) {
        let _ = self.sender.send(command);
        self.poller.ring();
    }

    /// The pipes of a new process: standard output and standard error, as far as they are to be forwarded.
    pub(super) fn add(&self, serial: u64, rank: u32, pipes: [Option<OwnedFd>; 2]) {
        self.send(Command::Add { serial, rank, pipes });
    }

    /// The process has ended: forward what it left.
    pub(super) fn ended(&self, serial: u64, rank: u32) {
        self.send(Command::Ended { serial, rank });
    }

    /// The rank could not be started: nobody need wait for its output.
    pub(super) fn never_was(&self, rank: u32) {
        self.send(Command::NeverWas(rank));
    }
}

/// The thread.
pub(super) struct Handle {
    feed: Feed,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Handle {
    pub(super) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    pub(super) fn will_retry(&self, rank: u32) {
        self.feed.send(Command::WillRetry(rank));
    }

    pub(super) fn report_drained(&self, drained: Drained) {
        self.feed.send(Command::Report(drained));
    }

    /// Forwards what is left and ends the thread. Should the master's own output block for longer than
    /// `patience`, the thread is left alone and the result is false.
    pub(super) fn finish(self, patience: Duration) -> bool {
        self.feed.send(Command::Finish);
        let deadline = Instant::now() + patience;
        // The sender is dropped, without a message, when the thread ends.
        let ended = matches!(
            self.done.recv_deadline(deadline),
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) | Ok(())
        );
        ended && self.thread.join().is_ok()
    }
}

/// One pipe of one rank.
struct Source {
    rank: u32,
    pipe: OwnedFd,
    line: Line,
}

struct Output {
    poller: Arc<Poller>,
    commands: Receiver<Command>,
    drained: Option<Drained>,
    style: Style,
    /// By key: twice the serial, plus one for stderr.
    sources: HashMap<u64, Source>,
    sinks: [Sink; 2],
    order: Option<Order>,
    /// What is read of those whose turn it is not.
    early: Vec<u8>,
    report: Report,
}

/// Starts the thread.
pub(super) fn start(
    style: Style,
    keep_order: Option<File>,
    outputs: Option<(OwnedFd, OwnedFd)>,
    report: Report,
) -> Result<Handle, SuperviseError> {
    let poller = Arc::new(Poller::new().map_err(setup("epoll"))?);
    let (stdout, stderr) = match outputs {
        Some(pair) => pair,
        None => (own(io::stdout().as_fd())?, own(io::stderr().as_fd())?),
    };
    let writer = |fd, stream| Sink::new(fd, stream, style.pass_through, style.around_write.clone());
    let (sender, commands) = unbounded();
    let mut output = Output {
        poller: Arc::clone(&poller),
        commands,
        drained: None,
        sources: HashMap::new(),
        sinks: [writer(stdout, Stream::Stdout), writer(stderr, Stream::Stderr)],
        // A single rank, whose output is passed through, is in order.
        order: keep_order.filter(|_| !style.pass_through).map(Order::new),
        early: Vec::new(),
        style,
        report,
    };
    let (alive, done) = crossbeam_channel::bounded(1);
    let thread = thread("bdrun-output", move || {
        let _alive = alive;
        while output.turn() {}
    })?;
    Ok(Handle { feed: Feed { sender, poller }, done, thread })
}

fn own(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, SuperviseError> {
    sys::duplicate_above(fd, 3).map_err(setup("duplicate of stdout and stderr"))
}

impl Output {
    /// One wake-up. False when the work is done.
    fn turn(&mut self) -> bool {
        let mut ready = Vec::new();
        self.poller.wait(-1, |key| ready.push(key));
        let mut ended = Vec::new();
        let mut finish = false;
        for key in ready {
            if key == BELL {
                finish |= self.commands(&mut ended);
            } else {
                self.read(key);
            }
        }
        if finish {
            let mut keys: Vec<u64> = self.sources.keys().copied().collect();
            keys.sort_unstable();
            keys.into_iter().for_each(|key| self.drain(key));
            let held = self.order.as_mut().map(Order::all_due).unwrap_or_default();
            held.into_iter().for_each(|rank| self.forward_held(rank, true));
        }
        self.flush();
        if let Some(drained) = &self.drained {
            drained.tell(ended);
        }
        !finish
    }

    fn commands(&mut self, ended: &mut Vec<u64>) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add { serial, rank, pipes } => {
                    for (key, pipe) in (serial * 2..).zip(pipes) {
                        if let Some(pipe) = pipe {
                            self.add(key, rank, pipe);
                        }
                    }
                }
                Command::Ended { serial, rank } => {
                    self.drain(serial * 2);
                    self.drain(serial * 2 + 1);
                    self.over(rank);
                    ended.push(serial);
                }
                Command::NeverWas(rank) => self.over(rank),
                Command::WillRetry(rank) => {
                    if let Some(order) = &mut self.order {
                        order.will_retry(rank);
                    }
                }
                Command::Report(drained) => self.drained = Some(drained),
                Command::Finish => return true,
            }
        }
        false
    }

    fn add(&mut self, key: u64, rank: u32, pipe: OwnedFd) {
        let line = self.line(key, rank);
        // On failure (no memory) the source is still drained at the rank's end.
        let _ = self.poller.add(&pipe, key);
        self.sources.insert(key, Source { rank, pipe, line });
    }

    fn line(&self, key: u64, rank: u32) -> Line {
        Line::new(key, if self.style.tag { format!("[{rank}] ").into_bytes() } else { Vec::new() })
    }

    /// A rank has ended, or could not be started: it may be the turn of the next ones.
    fn over(&mut self, rank: u32) {
        let Some(order) = &mut self.order else { return };
        match order.ended(rank) {
            Ok(due) => due.into_iter().for_each(|(rank, over)| self.forward_held(rank, over)),
            Err(error) => (self.report)(Happening::HoldFailed(error)),
        }
    }

    /// It is the turn of this rank: forwards what was held back of it. If it has ended, its last line ends too.
    fn forward_held(&mut self, rank: u32, over: bool) {
        let held = self.order.as_mut().map(|order| order.take(rank));
        for (stream, held) in held.into_iter().flatten() {
            let key = held.key;
            let mut line = match self.sources.get_mut(&key) {
                Some(source) => std::mem::replace(&mut source.line, Line::new(key, Vec::new())),
                None => self.line(key, rank),
            };
            let sink = &mut self.sinks[stream as usize];
            let played = self
                .order
                .as_mut()
                .map_or(Ok(()), |order| order.play(held, |bytes| sink.feed(bytes, &mut line)));
            match self.sources.get_mut(&key) {
                Some(source) if !over => source.line = line,
                Some(source) => {
                    sink.end(&mut line);
                    source.line = line;
                }
                None => sink.end(&mut line),
            }
            if let Err(error) = played {
                (self.report)(Happening::HoldFailed(error));
            }
        }
    }

    fn sink(sinks: &mut [Sink; 2], key: u64) -> &mut Sink {
        &mut sinks[usize::from(key % 2 == 1)]
    }

    /// Reads once; takes the source out at its end. Returns how many bytes there were, None at the end.
    fn read(&mut self, key: u64) -> Option<usize> {
        let source = self.sources.get_mut(&key)?;
        let sink = Self::sink(&mut self.sinks, key);
        let got = match &mut self.order {
            Some(order) if !order.is_due(source.rank) => {
                self.early.resize(READ, 0);
                let got = sink::read(&source.pipe, &mut self.early);
                if let Got::Bytes(n) = got
                    && let Err(error) = order.keep(source.rank, sink.stream, key, &self.early[..n])
                {
                    (self.report)(Happening::HoldFailed(error));
                }
                got
            }
            _ => sink.read_from(&source.pipe, &mut source.line),
        };
        match got {
            Got::Bytes(n) => Some(n),
            Got::Nothing => Some(0),
            Got::End => {
                sink.end(&mut source.line);
                self.poller.remove(&source.pipe);
                self.sources.remove(&key);
                None
            }
        }
    }

    /// Reads what was in the pipe when its rank ended, and no more: a child left behind may write for ever. The
    /// last line ends here.
    fn drain(&mut self, key: u64) {
        let Some(source) = self.sources.get(&key) else { return };
        let mut left = sys::pipe_capacity(&source.pipe);
        while left > 0 {
            match self.read(key) {
                None => return,
                Some(0) => break,
                Some(n) => left = left.saturating_sub(n),
            }
        }
        if let Some(source) = self.sources.get_mut(&key) {
            Self::sink(&mut self.sinks, key).end(&mut source.line);
        }
    }

    fn flush(&mut self) {
        for sink in &mut self.sinks {
            sink.flush();
            if let Some(error) = sink.take_failure() {
                (self.report)(Happening::OutputFailed { stream: sink.stream, error });
            }
        }
    }
}
