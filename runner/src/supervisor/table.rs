//! Which processes live. Signals are sent only under this table's lock and only to processes not yet reaped,
//! so a number that the kernel has given to somebody else is never hit.

use super::Usage;
use super::ending::Ending;
use super::sys;
use crate::measure::Group;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A living (or not yet reaped) rank.
pub(super) struct Process {
    pub(super) rank: u32,
    pub(super) pid: libc::pid_t,
    pub(super) pidfd: OwnedFd,
    /// It and all its descendants.
    pub(super) group: Group,
    /// We sent it SIGKILL ourselves.
    pub(super) killed: bool,
}

impl Process {
    /// To the whole group; to the process itself where it has left its group.
    fn signal(&mut self, signal: i32) {
        self.killed |= signal == libc::SIGKILL;
        if !sys::kill(-self.pid, signal) || signal == libc::SIGKILL {
            sys::kill(self.pid, signal);
        }
    }
}

#[derive(Default)]
struct Inner {
    /// By serial number; a rank that is retried gets a new one.
    processes: HashMap<u64, Process>,
    by_rank: HashMap<u32, u64>,
    /// Reaped, but their end is not yet reported.
    unreported: usize,
    /// Reaped, but what they have written is not yet forwarded.
    unread: usize,
    /// `kill_all` was called.
    ending: bool,
    /// How often what waited to be started was cancelled.
    cancellations: u64,
}

/// While nobody reads bdrun's output, what so many ranks have left in their pipes waits, at most. Each has a
/// pipe or two, for which [`crate::descriptors::FIXED`] has room.
pub(super) const UNREAD: usize = 64;

/// All processes of the job.
#[derive(Default)]
pub(super) struct Table {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the job is being ended.
    pub(super) fn ending(&self) -> bool {
        self.lock().ending
    }

    /// Which processes are asked for now: those of an earlier generation are no longer wanted.
    pub(super) fn generation(&self) -> u64 {
        self.lock().cancellations
    }

    /// Whether a process asked for in this generation is still wanted. One that is to have `pipes` waits
    /// until there is room for what those that have ended left in theirs.
    pub(super) fn wants(&self, generation: u64, pipes: bool) -> bool {
        let mut inner = self.lock();
        let wanted = |inner: &Inner| !inner.ending && inner.cancellations == generation;
        while pipes && wanted(&inner) && inner.unread >= UNREAD {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        wanted(&inner)
    }

    /// What was asked for but is not yet there is no longer wanted.
    pub(super) fn cancel_pending(&self) {
        self.lock().cancellations += 1;
        self.changed.notify_all();
    }

    /// Enters a new process. `watch` makes its end known to the reaper, `announce` tells of its beginning;
    /// both happen before anybody else sees it. Killed at once if it is no longer wanted since it was made.
    pub(super) fn insert(
        &self,
        serial: u64,
        generation: u64,
        mut process: Process,
        watch: impl FnOnce(&OwnedFd) -> nix::Result<()>,
        announce: impl FnOnce(),
    ) -> nix::Result<()> {
        let mut inner = self.lock();
        if let Err(error) = watch(&process.pidfd) {
            process.signal(libc::SIGKILL);
            sys::reap_blocking(process.pid);
            return Err(error);
        }
        announce();
        if inner.ending || inner.cancellations != generation {
            process.signal(libc::SIGKILL);
        }
        inner.by_rank.insert(process.rank, serial);
        inner.processes.insert(serial, process);
        Ok(())
    }

    /// Kills the rest of its group, reaps it, and takes it out. None if it has not ended.
    pub(super) fn reap(&self, serial: u64) -> Option<(Process, Ending, Usage)> {
        let mut inner = self.lock();
        let pid = inner.processes.get(&serial)?.pid;
        // While the leader is not reaped its number, and with it the group's, belongs to nobody else. The
        // signal is harmless to the leader: the pidfd has said that it has ended.
        if sys::is_child(pid) {
            sys::kill(-pid, libc::SIGKILL);
        }
        inner.processes.get(&serial)?.group.kill();
        let (ending, usage) = sys::reap(pid)?;
        let process = inner.processes.remove(&serial)?;
        if inner.by_rank.get(&process.rank) == Some(&serial) {
            inner.by_rank.remove(&process.rank);
        }
        inner.unreported += 1;
        inner.unread += 1;
        self.changed.notify_all();
        Some((process, ending, usage))
    }

    /// The end of a reaped process was reported.
    pub(super) fn reported(&self) {
        self.lock().unreported -= 1;
        self.changed.notify_all();
    }

    /// What a reaped process had written is forwarded.
    pub(super) fn forwarded(&self) {
        self.lock().unread -= 1;
        self.changed.notify_all();
    }

    /// To the groups of all ranks.
    pub(super) fn signal_all(&self, signal: i32) {
        self.lock().processes.values_mut().for_each(|process| process.signal(signal));
    }

    /// To the group of one rank. Whether its process has not ended.
    pub(super) fn signal(&self, rank: u32, signal: i32) -> bool {
        let mut inner = self.lock();
        let Some(serial) = inner.by_rank.get(&rank).copied() else { return false };
        let Some(process) = inner.processes.get_mut(&serial) else { return false };
        let lives = !sys::wait_readable(&process.pidfd, 0);
        process.signal(signal);
        lives
    }

    /// Kills all and lets no new one live.
    pub(super) fn kill_all(&self) {
        let mut inner = self.lock();
        inner.ending = true;
        self.changed.notify_all();
        inner.processes.values_mut().for_each(|process| process.signal(libc::SIGKILL));
    }

    /// Waits until all are reaped; returns those that are not by then.
    pub(super) fn wait_empty(&self, patience: Duration) -> Vec<(u32, i32)> {
        let inner = self.wait(patience, |inner| inner.processes.is_empty());
        inner.processes.values().map(|process| (process.rank, process.pid)).collect()
    }

    /// Waits until all ends are reported.
    pub(super) fn wait_reported(&self, patience: Duration) {
        drop(self.wait(patience, |inner| inner.unreported == 0));
    }

    fn wait(&self, patience: Duration, done: impl Fn(&Inner) -> bool) -> MutexGuard<'_, Inner> {
        let deadline = Instant::now() + patience;
        let mut inner = self.lock();
        while !done(&inner) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// However long whoever reads bdrun's output takes, descriptors do for all that is begun.
    #[test]
    fn nobody_begins_while_what_many_have_left_is_not_forwarded() {
        let table = Table::default();
        let (sender, told) = channel();
        std::thread::scope(|scope| {
            let ask = || {
                table.lock().unread = UNREAD;
                let (table, sender, generation) = (&table, sender.clone(), table.generation());
                scope.spawn(move || sender.send(table.wants(generation, true)));
                assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it does not wait");
            };
            let answer = || told.recv_timeout(Duration::from_secs(600));
            ask();
            assert!(table.wants(0, false), "one that has none waits for nothing");
            table.forwarded();
            assert_eq!(answer(), Ok(true));
            ask();
            table.cancel_pending();
            assert_eq!(answer(), Ok(false));
            ask();
            table.kill_all();
            assert_eq!(answer(), Ok(false));
        });
    }
}
