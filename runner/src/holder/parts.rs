//! The life of a mover whose rank runs in parts: it is traced until it ends, so the thread serves it until
//! then.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use sbmalloc::other::{Held, Image, OtherError, Parts, PartsMoved, Refusal, Shrunk};

use super::thread::{Order, Report, ended};
use crate::gate::{Gate, Pause};

/// A signal to the rank is passed on after this time at the latest.
const PATIENCE: Duration = Duration::from_millis(1);
/// What was done is told so often.
const TELL: Duration = Duration::from_millis(50);

/// What is done to ranks in parts, from one look at the orders to the next: parts leave, calls are made.
static STEPS: Gate = Gate::new();

/// Waits, for so long, until nothing is under way with any rank in parts; nothing begins while what is
/// returned is held. A rank told to stop meanwhile does not: signals to it pass through the same threads.
pub(crate) fn pause(patience: Duration) -> Option<Pause<'static>> {
    STEPS.pause(patience)
}

/// What became of the order to let parts of a rank leave while it runs.
#[derive(Debug)]
pub enum InParts {
    /// They have left, and it runs on.
    Shrunk {
        /// Bytes that are out.
        out: u64,
        /// Bytes of private memory it still holds.
        left: u64,
    },
    /// It cannot be done, now or ever; it runs as before.
    Refused {
        /// Why.
        why: String,
        /// It is of no use to ask again.
        lasting: bool,
    },
    /// Nothing could leave just now; it runs on, and is served from now on: its mover must stay.
    Busy,
    /// A scratch directory is full; it runs on with what it holds.
    Full {
        /// The directory.
        dir: String,
    },
    /// What it has begun since cannot be paged: it runs on, and is not made smaller.
    Unserved {
        /// Why.
        why: String,
    },
    /// What was done so far, all together.
    Moved {
        /// Bytes that are out.
        out: u64,
        /// Bytes of private memory that cannot leave.
        stays: u64,
        /// Bytes of what is out that are still in RAM beside what it holds, as long as that fits into its
        /// target.
        recent: u64,
        /// Bytes of private memory it may hold.
        target: u64,
        /// All there is to be counted.
        moved: PartsMoved,
    },
}

impl InParts {
    /// Whether it answers an order. All else is told while any other order, or none, is under way, and says
    /// nothing about that: not that a rank runs that was told to stand still.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        !matches!(self, Self::Unserved { .. } | Self::Moved { .. })
    }
}

/// Lets parts of a rank leave, and serves it until it ends or nobody wants it any more; then it is killed.
pub(super) fn run(held: Held, target: u64, orders: &Receiver<Order>, report: &dyn Fn(Report)) {
    let mut step = STEPS.begin();
    let mut parts = match begin(held) {
        Ok(parts) => parts,
        Err(report_this) => return report(report_this),
    };
    let mut wants_hold = false;
    let mut told = Instant::now();
    let mut order = Some(Order::Shrink { target });
    loop {
        match order.take() {
            Some(Order::Shrink { target }) => match shrink(&mut parts, target, report) {
                Ok(done) => report(Report::InParts(done)),
                Err(error) => return report(ended(error)),
            },
            Some(Order::Hold) => wants_hold = true,
            Some(Order::Resume) => {
                wants_hold = false;
                parts.resume();
                report(Report::Resumed);
            }
            // It is the oldest, and the last to leave.
            Some(Order::Evict) => report(Report::Refused(Refusal::Busy { tid: 0 })),
            None => {}
        }
        if wants_hold {
            match parts.stop() {
                Ok(()) => {
                    wants_hold = false;
                    report(Report::Held);
                }
                Err(OtherError::Busy) => {}
                Err(error) => return report(ended(error)),
            }
        }
        match parts.mind(PATIENCE) {
            Ok(true) => {}
            Ok(false) => return report(ended(OtherError::Gone)),
            // It runs on with what it holds. That is no answer: the next order to leave finds it out itself.
            Err(OtherError::NoSpace { .. }) => {}
            Err(error) => return report(ended(error)),
        }
        if let Some(why) = parts.unserved() {
            report(Report::InParts(InParts::Unserved { why }));
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            report(Report::InParts(InParts::Moved {
                out: parts.out(),
                stays: parts.stays(),
                recent: parts.recent(),
                target: parts.target(),
                moved: parts.moved(),
            }));
        }
        match orders.try_recv() {
            Ok(next) => order = Some(next),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        drop(step);
        step = STEPS.begin();
    }
}

fn begin(held: Held) -> Result<Parts, Report> {
    let image = match Image::new() {
        Ok(image) => image,
        Err(errno) => {
            let why = format!("no scratch file: {errno}");
            return Err(match held.release() {
                Ok(()) => Report::InParts(InParts::Refused { why, lasting: false }),
                Err(error) => ended(error),
            });
        }
    };
    held.into_parts(image).map_err(|refusal| match refusal {
        Refusal::Gone => Report::Gone,
        refusal => {
            Report::InParts(InParts::Refused { why: refusal.to_string(), lasting: refusal.is_lasting() })
        }
    })
}

fn shrink(parts: &mut Parts, target: u64, report: &dyn Fn(Report)) -> Result<InParts, OtherError> {
    let done = answer(parts.shrink(target, &mut |freed| report(Report::Freed(freed))))?;
    parts.resume();
    Ok(done)
}

/// What became of the order; an error if it cannot run on.
fn answer(done: Result<Shrunk, OtherError>) -> Result<InParts, OtherError> {
    match done {
        Ok(Shrunk { out, left }) => Ok(InParts::Shrunk { out, left }),
        Err(OtherError::NoSpace { dir }) => Ok(InParts::Full { dir }),
        Err(OtherError::Busy) => Ok(InParts::Busy),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_busy_is_served_from_then_on() {
        assert!(matches!(answer(Err(OtherError::Busy)), Ok(InParts::Busy)));
        assert!(matches!(answer(Err(OtherError::Gone)), Err(OtherError::Gone)));
    }
}
