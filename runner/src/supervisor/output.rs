//! The threads that read what the ranks write and forward it.
//!
//! There is one for each of the two streams, so that one that nobody reads does not stop the other; where
//! both go to one place (a terminal, `2>&1`) it is one thread, which keeps their order, and they stand
//! together. A thread that waits for whoever reads it reads no pipe of a rank: these fill, and the ranks that
//! print wait, nobody else.
//!
//! Per wake-up it reads once from every pipe that has something, then writes each stream with one call. Lines
//! of one stream of one rank keep their order; of a rank's two streams, lines that arrive within one wake-up
//! may change places with each other. When a rank has ended, what its pipes hold is forwarded at once; they
//! stay open for children that it has left behind. With an [`Order`], what ranks write before their turn
//! waits there.

use super::order::Order;
use super::reaper::Drained;
use super::sink::{Got, Line, Manner, READ, Sink};
use super::spool::Spool;
use super::sys::{self, BELL, Poller};
use super::{AroundWrite, Happening, Report, Stream, SuperviseError, setup, sink, thread};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// So often is looked at what cannot be watched.
const AGAIN_MS: i32 = 50;

/// How lines are written.
pub(super) struct Style {
    pub(super) tag: bool,
    pub(super) pass_through: bool,
    pub(super) keep_order: bool,
    /// For output that has to wait.
    pub(super) spool: Option<Spool>,
    pub(super) around_write: Option<AroundWrite>,
}

impl Style {
    /// How this stream is written. `shared`: bdrun's own words go to the same place.
    fn manner(&self, shared: bool, terminal: bool) -> Manner {
        Manner {
            raw: self.pass_through || (self.keep_order && !self.tag),
            ends_lines: shared || terminal,
            spool: self.spool.clone().filter(|_| !self.keep_order),
            around_write: self.around_write.clone().filter(|_| shared),
        }
    }
}

enum Command {
    Add { serial: u64, rank: u32, pipes: [Option<OwnedFd>; 2] },
    Ended { serial: u64 },
    Over(u32),
    Forget(u32),
    Finish,
}

/// Gives work to a thread.
#[derive(Clone)]
struct Lane {
    sender: Sender<Command>,
    poller: Arc<Poller>,
}

impl Lane {
    fn send(&self, command: Command) {
        let _ = self.sender.send(command);
        self.poller.ring();
    }
}

/// Gives work to the threads.
#[derive(Clone)]
pub(super) struct Feed {
    /// One for both streams, or one for each.
    lanes: Vec<Lane>,
}

impl Feed {
    fn send(&self, command: impl Fn() -> Command) {
        self.lanes.iter().for_each(|lane| lane.send(command()));
    }

    /// The pipes of a new process: standard output and standard error, as far as they are to be forwarded.
    pub(super) fn add(&self, serial: u64, rank: u32, pipes: [Option<OwnedFd>; 2]) {
        match &self.lanes[..] {
            [out, err] => {
                let [stdout, stderr] = pipes;
                out.send(Command::Add { serial, rank, pipes: [stdout, None] });
                err.send(Command::Add { serial, rank, pipes: [None, stderr] });
            }
            [both] => both.send(Command::Add { serial, rank, pipes }),
            _ => {}
        }
    }

    /// The process has ended: forward what it left.
    pub(super) fn ended(&self, serial: u64) {
        self.send(|| Command::Ended { serial });
    }

    /// The rank has ended for good, or could not be started: nobody need wait for its output.
    pub(super) fn is_over(&self, rank: u32) {
        self.send(|| Command::Over(rank));
    }
}

/// Tells the reaper of a rank whose output is forwarded, once every thread has forwarded its part.
struct Joint {
    threads: usize,
    inner: Mutex<(HashSet<u64>, Option<Drained>)>,
}

impl Joint {
    fn lock(&self) -> std::sync::MutexGuard<'_, (HashSet<u64>, Option<Drained>)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, mut ended: Vec<u64>) {
        if ended.is_empty() {
            return;
        }
        let (half, drained) = &mut *self.lock();
        // Two threads at most: the second finds what the first has left.
        ended.retain(|&serial| self.threads == 1 || !half.insert(serial));
        ended.iter().for_each(|serial| _ = half.remove(serial));
        if let Some(drained) = drained {
            drained.tell(ended);
        }
    }
}

/// The threads.
pub(super) struct Handle {
    feed: Feed,
    joint: Arc<Joint>,
    /// Says when all have ended.
    done: Receiver<()>,
    threads: Vec<JoinHandle<()>>,
}

impl Handle {
    pub(super) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    pub(super) fn forget(&self, rank: u32) {
        self.feed.send(|| Command::Forget(rank));
    }

    pub(super) fn is_over(&self, rank: u32) {
        self.feed.is_over(rank);
    }

    pub(super) fn report_drained(&self, drained: Drained) {
        self.joint.lock().1 = Some(drained);
    }

    /// Forwards what is left and ends the threads: when they have, that is told.
    pub(super) fn forward_rest(&self) {
        self.feed.send(|| Command::Finish);
    }

    /// The same. Should the master's own output block for longer than `patience`, what still writes is left
    /// alone and the result is false.
    pub(super) fn finish(self, patience: Duration) -> bool {
        self.forward_rest();
        let ended = self.done.recv_timeout(patience).is_ok();
        ended && self.threads.into_iter().all(|thread| thread.join().is_ok())
    }
}

/// Each of the threads has it; the last to end says that they have.
struct Last {
    ended: Sender<()>,
    report: Report,
}

impl Drop for Last {
    fn drop(&mut self) {
        // Who does not listen any more need not know.
        let _ = self.ended.send(());
        (self.report)(Happening::Forwarded);
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
    joint: Arc<Joint>,
    tag: bool,
    /// By key: twice the serial, plus one for stderr.
    sources: HashMap<u64, Source>,
    /// Those of them of which the kernel could not be made to tell: they are looked at now and then.
    unwatched: Vec<u64>,
    /// Of both streams, or of that whose sources it gets.
    sinks: Vec<Sink>,
    order: Option<Order>,
    /// What is read of those whose turn it is not.
    early: Vec<u8>,
    report: Report,
}

/// Starts the threads.
pub(super) fn start(
    style: &Style,
    outputs: Option<(OwnedFd, OwnedFd)>,
    report: &Report,
) -> Result<Handle, SuperviseError> {
    let (stdout, stderr) = match outputs {
        Some(pair) => pair,
        None => (own(io::stdout().as_fd())?, own(io::stderr().as_fd())?),
    };
    let terminals = [&stdout, &stderr].map(io::IsTerminal::is_terminal);
    let together = are_one(&stdout, &stderr, terminals);
    let stdout = Sink::new(stdout, Stream::Stdout, style.manner(together, terminals[0]));
    let stderr = Sink::new(stderr, Stream::Stderr, style.manner(true, terminals[1]));
    let sinks = if together { vec![vec![stdout, stderr]] } else { vec![vec![stdout], vec![stderr]] };
    let joint = Arc::new(Joint { threads: sinks.len(), inner: Mutex::default() });
    let (ended, done) = channel();
    let last = Arc::new(Last { ended, report: Arc::clone(report) });
    let (mut lanes, mut threads) = (Vec::new(), Vec::new());
    for (name, sinks) in ["bdrun-output", "bdrun-errors"].into_iter().zip(sinks) {
        let poller = Arc::new(Poller::new().map_err(setup("epoll"))?);
        let (sender, commands) = channel();
        let mut output = Output {
            poller: Arc::clone(&poller),
            commands,
            joint: Arc::clone(&joint),
            tag: style.tag,
            sources: HashMap::new(),
            unwatched: Vec::new(),
            sinks,
            // A single rank, whose output is passed through, is in order.
            order: style.spool.clone().filter(|_| style.keep_order && !style.pass_through).map(Order::new),
            early: Vec::new(),
            report: Arc::clone(report),
        };
        let last = Arc::clone(&last);
        threads.push(thread(name, move || {
            let _last = last;
            while output.turn() {}
        })?);
        lanes.push(Lane { sender, poller });
    }
    Ok(Handle { feed: Feed { lanes }, joint, done, threads })
}

/// Whether both go to one place, so that what is written to one keeps the other waiting anyway, and their
/// order is seen. Two terminals are taken for one: it has several names.
fn are_one(stdout: &OwnedFd, stderr: &OwnedFd, terminals: [bool; 2]) -> bool {
    let place = |fd: &OwnedFd| nix::sys::stat::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    terminals == [true; 2] || matches!((place(stdout), place(stderr)), (Ok(out), Ok(err)) if out == err)
}

fn own(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, SuperviseError> {
    sys::duplicate_above(fd, 3).map_err(setup("duplicate of stdout and stderr"))
}

impl Output {
    /// One wake-up. False when the work is done.
    fn turn(&mut self) -> bool {
        let mut ready = Vec::new();
        self.poller.wait(if self.unwatched.is_empty() { -1 } else { AGAIN_MS }, |key| ready.push(key));
        self.look_at_the_unwatched();
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
        self.joint.tell(ended);
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
                Command::Ended { serial } => {
                    self.drain(serial * 2);
                    self.drain(serial * 2 + 1);
                    ended.push(serial);
                }
                Command::Over(rank) => self.over(rank),
                Command::Forget(rank) => {
                    if let Some(Err(error)) = self.order.as_mut().map(|order| order.forget(rank)) {
                        (self.report)(Happening::HoldFailed(error));
                    }
                }
                Command::Finish => return true,
            }
        }
        false
    }

    fn add(&mut self, key: u64, rank: u32, pipe: OwnedFd) {
        let line = self.line(key, rank);
        // There may be no memory for it now, or as many as a user may have (`max_user_watches`).
        if self.poller.add(&pipe, key).is_err() {
            self.unwatched.push(key);
        }
        self.sources.insert(key, Source { rank, pipe, line });
    }

    /// Reads what they have, and tries to watch them.
    fn look_at_the_unwatched(&mut self) {
        for key in std::mem::take(&mut self.unwatched) {
            self.read(key);
            if let Some(source) = self.sources.get(&key)
                && self.poller.add(&source.pipe, key).is_err()
            {
                self.unwatched.push(key);
            }
        }
    }

    fn line(&self, key: u64, rank: u32) -> Line {
        Line::new(key, if self.tag { format!("[{rank}] ").into_bytes() } else { Vec::new() })
    }

    /// A rank has ended for good, or could not be started: it may be the turn of the next ones.
    fn over(&mut self, rank: u32) {
        let Some(order) = &mut self.order else { return };
        match order.ended(rank) {
            Ok(due) => due.into_iter().for_each(|(rank, over)| self.forward_held(rank, over)),
            Err(error) => (self.report)(Happening::HoldFailed(error)),
        }
    }

    /// It is the turn of this rank: forwards what was held back of it. If it has ended, its last line ends
    /// too.
    fn forward_held(&mut self, rank: u32, over: bool) {
        let held = self.order.as_mut().map(|order| order.take(rank));
        for (stream, held) in held.into_iter().flatten() {
            let key = held.key;
            let mut line = match self.sources.get_mut(&key) {
                Some(source) => std::mem::replace(&mut source.line, Line::new(key, Vec::new())),
                None => self.line(key, rank),
            };
            let sink = Self::sink(&mut self.sinks, stream as u64);
            let played = self
                .order
                .as_ref()
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

    /// That of this source.
    fn sink(sinks: &mut [Sink], key: u64) -> &mut Sink {
        let only = sinks.len() - 1;
        &mut sinks[only.min(usize::from(key % 2 == 1))]
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

    /// Reads what was in the pipe when its rank ended, and no more: a child left behind may write for ever.
    /// The last line ends here.
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
            if let Some(error) = sink.take_unheld() {
                (self.report)(Happening::HoldFailed(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// Of a file the kernel tells nothing: it refuses as it does where no more can be watched.
    #[test]
    fn what_cannot_be_watched_is_read_all_the_same() {
        let (mut reader, out) = io::pipe().unwrap();
        let (_errors, err) = io::pipe().unwrap();
        let style =
            Style { tag: false, pass_through: false, keep_order: false, spool: None, around_write: None };
        let report: Report = Arc::new(|_| {});
        let handle = start(&style, Some((out.into(), err.into())), &report).unwrap();
        let path = std::env::temp_dir().join(format!("bdrun-unwatched-{}", std::process::id()));
        let mut file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(b"said\n").unwrap();
        io::Seek::rewind(&mut file).unwrap();
        handle.feed().add(0, 0, [Some(file.into()), None]);
        let (sender, said) = channel();
        let read = std::thread::spawn(move || {
            let mut line = [0; 5];
            let _ = sender.send(reader.read_exact(&mut line).map(|()| line));
            reader
        });
        // Its rank has not ended.
        let line = said.recv_timeout(Duration::from_secs(600)).expect("it is read");
        assert_eq!(&line.unwrap(), b"said\n");
        assert!(handle.finish(Duration::from_secs(600)));
        drop(read.join().unwrap());
    }
}
