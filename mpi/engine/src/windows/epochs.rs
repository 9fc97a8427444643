//! When a window may be used, and who waits for whom (MPI-5.0, section 12.5).

use std::collections::BTreeMap;
use std::sync::atomic::{Ordering::SeqCst, fence};

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Group as Members;

use super::Window;
use super::control::{Hold, Ticket};
use crate::Mpi;
use crate::failure::Answer;
use crate::link::{Awaited, Limits, Link};

/// What is said by members to each other, on their communicator.
const POSTED: i32 = 0;
/// See [`POSTED`].
const COMPLETED: i32 = 1;

/// `MPI_MODE_NOCHECK`, `MPI_MODE_NOSUCCEED`.
pub const NO_CHECK: i64 = 1024;
/// See [`NO_CHECK`].
pub const NO_SUCCEED: i64 = 16384;

/// What this process may do to others' memory, and they to its own.
#[derive(Debug)]
pub struct Epochs {
    fence: Fence,
    /// Members that it has locked, with what.
    locks: BTreeMap<usize, Ticket>,
    all_locked: bool,
    /// Those of `MPI_Win_start`.
    started: Option<Vec<usize>>,
    /// Those of `MPI_Win_post` that have not said that they are done.
    posted: Option<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    Closed,
    /// If nothing is done until another kind of epoch begins, it was the last one.
    Open,
    Used,
}

impl Epochs {
    pub const fn new() -> Self {
        Self { fence: Fence::Closed, locks: BTreeMap::new(), all_locked: false, started: None, posted: None }
    }

    /// An epoch of another kind than fences begins.
    fn begin(&mut self) -> Answer<()> {
        if self.fence == Fence::Used {
            return Err(Class::RmaSync.into());
        }
        self.fence = Fence::Closed;
        Ok(())
    }

    /// Something is to be done to a member's memory.
    pub fn access(&mut self, target: usize) -> Answer<()> {
        let may = self.locks.contains_key(&target)
            || self.started.as_ref().is_some_and(|started| started.contains(&target));
        if may {
            return Ok(());
        }
        if self.fence == Fence::Closed {
            return Err(Class::RmaSync.into());
        }
        self.fence = Fence::Used;
        Ok(())
    }

    /// It is one of those where a member is locked.
    fn is_passive(&self, target: Option<usize>) -> Answer<()> {
        let may = match target {
            Some(target) => self.locks.contains_key(&target),
            None => !self.locks.is_empty(),
        };
        if may { Ok(()) } else { Err(Class::RmaSync.into()) }
    }

    /// The window may be freed.
    pub fn may_end(&self) -> Answer<()> {
        if self.locks.is_empty() && self.started.is_none() && self.posted.is_none() {
            Ok(())
        } else {
            Err(Class::RmaSync.into())
        }
    }
}

impl Window {
    /// Has all been done that was asked of a member, and told?
    fn is_done(&self, target: usize) -> bool {
        let done = self.control.done(target, self.comm.rank).load(SeqCst);
        done >= self.asked[target].load(SeqCst)
            && !self.replies().values().any(|reply| reply.target == target)
    }

    /// A member's rank.
    pub fn target(&self, rank: i64) -> Answer<usize> {
        let target = usize::try_from(rank).ok().filter(|&target| target < self.parts.len());
        target.ok_or_else(|| Class::Rank.into())
    }

    fn seats(&self, group: &Members) -> Answer<Vec<usize>> {
        let seat = |process| self.comm.group.rank_of(process).ok_or_else(|| Class::Group.into());
        group.members().iter().map(|&process| seat(process)).collect()
    }
}

impl Mpi {
    /// Waits until something is so that others say by shared words, waking who waits for that.
    pub(crate) fn wait_until(&self, so: impl Fn() -> bool) -> Answer<()> {
        self.wait_for(
            || Ok(so().then_some(())),
            |link: &dyn Link, limits: Limits<'_>| {
                let unless = || (limits.unless)() || so();
                link.wait(Awaited::Anything, Limits { unless: &unless, ..limits });
            },
        )
    }

    /// Waits until all is done that was asked of these members.
    pub(super) fn flush(&self, window: &Window, targets: impl IntoIterator<Item = usize>) -> Answer<()> {
        for target in targets {
            if !window.is_done(target) {
                self.wait_until(|| window.is_done(target))?;
            }
        }
        // What was done to memory that is mapped is seen by who is told from now on.
        fence(SeqCst);
        Ok(())
    }

    /// `MPI_Win_flush` and its like: of one member, or of all.
    pub(super) fn flush_locked(&self, window: &Window, target: Option<usize>) -> Answer<()> {
        window.epochs().is_passive(target)?;
        match target {
            Some(target) => self.flush(window, [target]),
            None => self.flush(window, 0..window.parts.len()),
        }
    }

    pub(super) fn fence(&self, window: &Window, assert: i64) -> Answer<()> {
        {
            let epochs = window.epochs();
            if !epochs.locks.is_empty() || epochs.started.is_some() || epochs.posted.is_some() {
                return Err(Class::RmaSync.into());
            }
        }
        self.flush(window, 0..window.parts.len())?;
        self.said_by_all(&window.comm, "MPI_Win_fence", &[])?;
        fence(SeqCst);
        window.epochs().fence = if assert & NO_SUCCEED == 0 { Fence::Open } else { Fence::Closed };
        Ok(())
    }

    pub(super) fn lock(&self, window: &Window, target: usize, hold: Hold) -> Answer<()> {
        {
            let mut epochs = window.epochs();
            if epochs.locks.contains_key(&target) || epochs.started.is_some() {
                return Err(Class::RmaSync.into());
            }
            epochs.begin()?;
        }
        let ticket = match &window.apart {
            Some(apart) if target != window.comm.rank => self.lock_apart(window, apart, target, hold)?,
            _ => {
                let link = self.link()?;
                let ticket = window.control.queue(target, hold, link.process());
                self.wait_until(|| window.control.is_due(ticket))?;
                window.control.enter(ticket, &mut |process| link.wake(process));
                self.give_locks(window)?;
                ticket
            }
        };
        fence(SeqCst);
        window.epochs().locks.insert(target, ticket);
        Ok(())
    }

    pub(super) fn unlock(&self, window: &Window, target: usize) -> Answer<()> {
        {
            let epochs = window.epochs();
            epochs.is_passive(Some(target))?;
            // Of one that locks all no member is unlocked by itself.
            if epochs.all_locked {
                return Err(Class::RmaSync.into());
            }
        }
        self.flush(window, [target])?;
        let ticket = window.epochs().locks.remove(&target).ok_or(Class::RmaSync)?;
        if window.apart.is_some() && target != window.comm.rank {
            return self.unlock_apart(window, ticket);
        }
        let link = self.link()?;
        window.control.leave(ticket, &mut |process| link.wake(process));
        self.give_locks(window)
    }

    pub(super) fn lock_all(&self, window: &Window) -> Answer<()> {
        if !window.epochs().locks.is_empty() {
            return Err(Class::RmaSync.into());
        }
        // All do it in the same order, and each has a lock of its own: nobody waits in a circle.
        for target in 0..window.parts.len() {
            self.lock(window, target, Hold::Shared)?;
        }
        window.epochs().all_locked = true;
        Ok(())
    }

    pub(super) fn unlock_all(&self, window: &Window) -> Answer<()> {
        if !std::mem::take(&mut window.epochs().all_locked) {
            return Err(Class::RmaSync.into());
        }
        (0..window.parts.len()).try_for_each(|target| self.unlock(window, target))
    }

    pub(super) fn post_window(&self, window: &Window, group: &Members, assert: i64) -> Answer<()> {
        let seats = window.seats(group)?;
        {
            let mut epochs = window.epochs();
            if epochs.posted.is_some() || !epochs.locks.is_empty() {
                return Err(Class::RmaSync.into());
            }
            epochs.begin()?;
            epochs.posted = Some(seats);
        }
        fence(SeqCst);
        if assert & NO_CHECK == 0 {
            group.members().iter().try_for_each(|&process| self.say(&window.comm, process, POSTED, &[]))?;
        }
        Ok(())
    }

    pub(super) fn start(&self, window: &Window, group: &Members, assert: i64) -> Answer<()> {
        let seats = window.seats(group)?;
        {
            let mut epochs = window.epochs();
            if epochs.started.is_some() || !epochs.locks.is_empty() {
                return Err(Class::RmaSync.into());
            }
            epochs.begin()?;
            epochs.started = Some(seats.clone());
        }
        if assert & NO_CHECK == 0 {
            for seat in seats {
                self.hear(&window.comm, seat, POSTED)?;
            }
        }
        fence(SeqCst);
        Ok(())
    }

    pub(super) fn complete(&self, window: &Window) -> Answer<()> {
        let started = window.epochs().started.take().ok_or(Class::RmaSync)?;
        self.flush(window, started.iter().copied())?;
        let members = window.comm.group.members();
        started.iter().try_for_each(|&seat| self.say(&window.comm, members[seat], COMPLETED, &[]))
    }

    /// `MPI_Win_test`, and with `waits` `MPI_Win_wait`.
    pub(super) fn completed(&self, window: &Window, waits: bool) -> Answer<bool> {
        loop {
            let seat = match &window.epochs().posted {
                None => return Err(Class::RmaSync.into()),
                Some(posted) => posted.last().copied(),
            };
            let Some(seat) = seat else {
                window.epochs().posted = None;
                fence(SeqCst);
                return Ok(true);
            };
            if waits {
                self.hear(&window.comm, seat, COMPLETED)?;
            } else if self.hear_now(&window.comm, seat, COMPLETED)?.is_none() {
                return Ok(false);
            }
            if let Some(posted) = &mut window.epochs().posted {
                posted.pop();
            }
        }
    }
}
