//! The thread that holds one rank: it stops it, moves its memory out, waits, moves it in again and lets it
//! run.
//!
//! One thread for each rank that is held, because the kernel ties a traced process to the thread that traces
//! it, and because most of its life such a thread only waits. Should the thread or the whole master end while
//! it holds a rank, the kernel kills the rank (`PTRACE_O_EXITKILL`): none ever runs on without its memory.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sbmalloc::Errno;
use sbmalloc::other::{self, Held, Image, Moved, OtherError, OwnPager, Refusal};

use super::parts::{self, InParts};
use crate::measure::Group;

/// How long stopping all threads of a rank may take before it is left alone for now.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often it is looked whether a held rank was killed.
const WATCH: Duration = Duration::from_millis(50);
/// So long it is tried to move out, or in, what this process has no descriptors for: others are kept waiting
/// by the one, and a rank is lost with the other.
const LACK_OUT: Duration = Duration::from_secs(1);
const LACK_IN: Duration = Duration::from_secs(60);
/// After this time again.
const AGAIN: Duration = Duration::from_millis(5);
/// Stack of the thread, bytes: it calls nothing deep.
const STACK: usize = 256 << 10;

/// What a held rank is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Leave RAM.
    Evict,
    /// Come back, if it is out, and run.
    Resume,
    /// Leave in parts, and run: of what is not held yet, or runs in parts already.
    Shrink {
        /// Bytes of private memory it may hold.
        target: u64,
    },
    /// Stand still: of what runs in parts.
    Hold,
}

/// What became of it.
#[derive(Debug)]
pub enum Report {
    /// All its threads stand still.
    Held,
    /// It cannot be stopped or moved, and runs on.
    Refused(Refusal),
    /// So many bytes of RAM are free of those it leaves with, since it was told to go.
    Freed(u64),
    /// It is out.
    Evicted {
        /// Bytes out of RAM now.
        out: u64,
        /// Bytes of RAM that became free.
        freed: u64,
        /// Bytes written to scratch for it.
        written: u64,
        /// How long it took.
        took: Duration,
        /// The directory that was full, if it is not out altogether for that.
        full: Option<String>,
    },
    /// Nothing of it could leave, because a scratch directory is full. It goes on as before.
    Full {
        /// The directory.
        dir: String,
        /// It stood still before, and still does; else it runs.
        held: bool,
    },
    /// It is back, and runs.
    Restored {
        /// Bytes of RAM that were filled, from scratch.
        filled: u64,
        /// How long it took.
        took: Duration,
    },
    /// It was held, and runs.
    Resumed,
    /// News of a rank that runs, or is to run, in parts.
    InParts(InParts),
    /// It cannot be made to stand still without tracing it either, and runs on.
    NotFrozen(io::Error),
    /// Its processes have ended.
    Gone,
    /// Its memory cannot be written or brought back: it must not run again.
    Broken(String),
}

/// A rank's scratch file, kept between its evictions.
pub type Scratch = Arc<Mutex<Option<Image>>>;

/// Lists the processes of a rank.
pub type List = Box<dyn FnMut() -> io::Result<Vec<i32>> + Send>;

/// A rank that is held, or about to be. Dropped, it is let go: whoever still lives of it is killed with the
/// thread, or, if it was only frozen, runs on.
#[derive(Debug)]
pub struct Holder {
    orders: Sender<Order>,
    moves: bool,
}

impl Holder {
    /// Stops the rank whose first process is `leader`, with what it has of a pager of its own; `first` is
    /// what follows at once, if anything.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(
        rank: u32,
        leader: (i32, Option<OwnPager>),
        list: List,
        scratch: Scratch,
        first: Option<Order>,
        report: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Self> {
        let (orders, receiver) = channel();
        if let Some(first) = first {
            // The receiver is in scope.
            let _ = orders.send(first);
        }
        let thread = thread::Builder::new().name(format!("rank-{rank}")).stack_size(STACK);
        crate::urgent::start_sooner(|settle| {
            thread.spawn(move || {
                settle();
                run(leader, list, &scratch, first.is_none(), &receiver, &report);
            })
        })?;
        Ok(Self { orders, moves: true })
    }

    /// Makes the rank stand still without tracing it. Whatever order comes then, it runs again.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn freeze(rank: u32, group: Group, report: impl Fn(Report) + Send + 'static) -> io::Result<Self> {
        let (orders, receiver) = channel();
        let thread = thread::Builder::new().name(format!("rank-{rank}")).stack_size(STACK);
        thread.spawn(move || frozen(&group, &receiver, &report))?;
        Ok(Self { orders, moves: false })
    }

    /// Whether it can do more than hold the rank.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// Tells it what to do next.
    pub fn order(&self, order: Order) {
        // A thread that has ended has said why.
        let _ = self.orders.send(order);
    }
}

fn run(
    (leader, own): (i32, Option<OwnPager>),
    mut list: List,
    scratch: &Scratch,
    is_held: bool,
    orders: &Receiver<Order>,
    report: &dyn Fn(Report),
) {
    let mut held = match other::hold_with(leader, &mut list, PATIENCE, own) {
        Ok(held) => held,
        Err(Refusal::Gone) => return report(Report::Gone),
        Err(refusal) => return report(Report::Refused(refusal)),
    };
    report(Report::Held);
    let mut scratch = scratch.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_out = false;
    loop {
        let order = match orders.recv_timeout(WATCH) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) if held.watch() => continue,
            Err(RecvTimeoutError::Timeout) => return report(Report::Gone),
            // Nobody wants to know any more.
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let begin = Instant::now();
        let done = match order {
            Order::Evict => match evict(&mut held, &mut scratch, report) {
                Ok(Report::Full { dir, .. }) if !is_held => {
                    // It was stopped for nothing.
                    return report(held.release().map_or_else(ended, |()| Report::Full { dir, held: false }));
                }
                // This process has no descriptors, or no memory, just now.
                Err(OtherError::Scratch { op: MAKE, errno, dir, .. }) if errno.is_passing() && !is_out => {
                    if is_held {
                        report(Report::Full { dir, held: true });
                        continue;
                    }
                    let refused = Report::Refused(Refusal::Busy { tid: leader });
                    return report(held.release().map_or_else(ended, |()| refused));
                }
                done => {
                    is_out |= matches!(done, Ok(Report::Evicted { .. }));
                    done
                }
            },
            Order::Hold => Ok(Report::Held),
            Order::Shrink { target } if !is_out => {
                // In parts it has another, and is not moved as a whole any more.
                *scratch = None;
                drop(scratch);
                return parts::run(held, target, orders, report);
            }
            // Only of what runs.
            Order::Shrink { .. } => Err(OtherError::StillOut),
            Order::Resume => {
                let back = restore(&mut held, scratch.as_mut().filter(|_| is_out), begin);
                // Told before it is killed, which dropping it does: else its end is taken for somebody else's
                // doing.
                return report(match back {
                    Ok(done) => held.release().map_or_else(ended, |()| done),
                    Err(error) => ended(error),
                });
            }
        };
        match done {
            Ok(done) => report(done),
            Err(error) => return report(ended(error)),
        }
    }
}

/// Moves out what can be moved.
fn evict(
    held: &mut Held,
    scratch: &mut Option<Image>,
    report: &dyn Fn(Report),
) -> Result<Report, OtherError> {
    let begin = Instant::now();
    let image = match scratch {
        Some(image) => image,
        none => none.insert(Image::new().map_err(no_scratch)?),
    };
    let (mut freed, before) = (0, image.bytes());
    let result = persist(held, LACK_OUT, &mut |held| {
        let before_it = freed;
        let moved = held.evict(image, &mut |bytes| {
            freed = before_it + bytes;
            report(Report::Freed(freed));
        });
        // What has left is out, and the rest stays.
        if moved == Err(OtherError::Busy) && !image.is_empty() {
            let bytes = image.bytes().saturating_sub(before);
            return Ok(Moved { bytes, ..Moved::default() });
        }
        moved
    });
    let mut written = 0;
    let full = match result {
        Ok(moved) => {
            written = moved.bytes;
            None
        }
        Err(OtherError::NoSpace { dir }) if image.is_empty() => {
            return Ok(Report::Full { dir, held: true });
        }
        Err(OtherError::NoSpace { dir }) => Some(dir),
        // Nothing was changed.
        Err(OtherError::Busy) => return Err(no_scratch(Errno(libc::EMFILE))),
        Err(error) => return Err(error),
    };
    let out = image.bytes();
    Ok(Report::Evicted { out, freed, written, took: begin.elapsed(), full })
}

/// What could not be done where there is no scratch file.
const MAKE: &str = "make";

fn no_scratch(errno: Errno) -> OtherError {
    OtherError::Scratch { op: MAKE, dir: "the scratch directories".into(), offset: 0, errno }
}

/// Moves in what is out, if anything is.
fn restore(held: &mut Held, image: Option<&mut Image>, begin: Instant) -> Result<Report, OtherError> {
    let Some(image) = image else { return Ok(Report::Resumed) };
    let mut filled = 0;
    persist(held, LACK_IN, &mut |held| held.restore(image, &mut |bytes| filled = bytes))?;
    Ok(Report::Restored { filled, took: begin.elapsed() })
}

/// Does something with a rank that stands; for a while again and again, if only this process lacks something.
fn persist<T>(
    held: &mut Held,
    patience: Duration,
    f: &mut dyn FnMut(&mut Held) -> Result<T, OtherError>,
) -> Result<T, OtherError> {
    let begin = Instant::now();
    loop {
        match f(held) {
            Err(OtherError::Busy) if begin.elapsed() < patience => {
                if !held.watch() {
                    return Err(OtherError::Gone);
                }
                thread::sleep(AGAIN);
            }
            done => return done,
        }
    }
}

/// Why the rank is held no longer.
pub(super) fn ended(error: OtherError) -> Report {
    match error {
        OtherError::Gone => Report::Gone,
        error => Report::Broken(error.to_string()),
    }
}

fn frozen(group: &Group, orders: &Receiver<Order>, report: &dyn Fn(Report)) {
    match group.freeze(PATIENCE) {
        Ok(()) => report(Report::Held),
        Err(error) => return report(Report::NotFrozen(error)),
    }
    // Whatever comes, or nobody being left to send anything: it runs again.
    let _ = orders.recv();
    report(match group.thaw() {
        Ok(()) => Report::Resumed,
        Err(error) => Report::Broken(format!("it cannot be made to run again: {error}")),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Reports up to the first that is such, or why that is refused.
    fn until(reports: &Receiver<Report>, is: impl Fn(&Report) -> bool) -> Result<(), Refusal> {
        loop {
            match reports.recv_timeout(Duration::from_secs(60)).expect("a report") {
                Report::Refused(refusal) => return Err(refusal),
                report if is(&report) => return Ok(()),
                _ => {}
            }
        }
    }

    /// The same, asked again as long as that is refused only for a moment; none if it may not be traced.
    fn persistently<T>(mut ask: impl FnMut() -> Result<T, Refusal>) -> Option<T> {
        loop {
            match ask() {
                Ok(done) => return Some(done),
                Err(refusal) if refusal.is_lasting() => {
                    bdrun_skipped::skipped("root", refusal);
                    return None;
                }
                Err(_) => {}
            }
        }
    }

    #[test]
    fn what_lay_on_scratch_of_the_whole_goes_when_it_runs_in_parts() {
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().expect("a program");
        let pid = child.id() as i32;
        let scratch = Scratch::default();
        let start = |first| {
            let (tell, told) = channel();
            let list: List = Box::new(move || Ok(vec![pid]));
            let report = move |report| drop(tell.send(report));
            let holder = Holder::start(0, (pid, None), list, Arc::clone(&scratch), Some(first), report);
            (holder.expect("a thread"), told)
        };
        let there = || scratch.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let out_and_in = || {
            let (holder, told) = start(Order::Evict);
            until(&told, |report| matches!(report, Report::Evicted { .. }))?;
            holder.order(Order::Resume);
            until(&told, |report| matches!(report, Report::Restored { .. }))
        };
        let in_parts = || {
            let (holder, told) = start(Order::Shrink { target: 0 });
            // Also if it may not run in parts.
            until(&told, |report| matches!(report, Report::InParts(parts) if parts.is_answer()))?;
            Ok(holder)
        };
        if persistently(out_and_in).is_some() {
            assert!(there(), "it may leave again");
            let holder = persistently(in_parts);
            assert!(holder.is_none() || !there());
        }
        // SAFETY: a signal to a child of ours, which was not waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        child.wait().expect("its end");
    }
}
