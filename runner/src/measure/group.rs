//! The processes of one rank.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::tree::{self, Table, Tree};
use crate::cgroups::RankCgroup;

/// How the processes of a rank are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// By a cgroup of their own: all of them, whatever they did to get away.
    Cgroup,
    /// By parents, process group and session. A process that has left all three (a daemon: two forks and
    /// `setsid`) before it was seen once is missed.
    Tree,
}

/// The processes of one rank: cheap to clone, usable from any thread, also after the rank has ended.
#[derive(Clone, Debug)]
pub struct Group(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    leader: i32,
    cgroup: Option<RankCgroup>,
    tree: Mutex<Tree>,
    /// Whom `freeze` has stopped by a signal, with the start times by which they are known again.
    stopped: Mutex<Vec<(i32, u64)>>,
}

impl Group {
    /// The process `leader`, its descendants, and whoever is in its process group or session.
    #[must_use]
    pub fn tree(leader: i32) -> Self {
        Self::new(leader, None)
    }

    pub(crate) fn new(leader: i32, cgroup: Option<RankCgroup>) -> Self {
        let tree = Mutex::new(Tree::new(leader));
        Self(Arc::new(Inner { leader, cgroup, tree, stopped: Mutex::default() }))
    }

    /// The process that bdrun started.
    #[must_use]
    pub fn leader(&self) -> i32 {
        self.0.leader
    }

    /// How its processes are known.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        if self.0.cgroup.is_some() { Tracking::Cgroup } else { Tracking::Tree }
    }

    /// The processes there are now, as the master sees their numbers; empty once all have ended. Costs a few
    /// µs in a cgroup, else a look at every process of the machine (about 5 µs each).
    ///
    /// # Errors
    /// That of reading the cgroup's list or `/proc`.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        match &self.0.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => Ok(self.of_table(&Table::read()?)),
        }
    }

    /// Whether all threads of those processes that a signal to the rank reaches stand still: stopped, traced
    /// or ended.
    #[must_use]
    pub fn stands(&self) -> bool {
        let is_reached = |pid: &i32| tree::entry(*pid).is_some_and(|entry| entry.group == self.leader());
        self.processes().is_ok_and(|pids| pids.into_iter().filter(is_reached).all(tree::stands))
    }

    /// The same from a table of all processes that somebody has read already.
    pub(super) fn of_table(&self, table: &Table) -> Vec<i32> {
        self.0.tree.lock().unwrap_or_else(PoisonError::into_inner).members(table)
    }

    /// Its cgroup, if it has one.
    pub(crate) fn cgroup(&self) -> Option<&RankCgroup> {
        self.0.cgroup.as_ref()
    }

    /// Stops all processes without ptrace: by the cgroup's freezer, or else by SIGSTOP, which a parent that
    /// waits for stopped children can see. Returns when all stand still. Of a group that is frozen already
    /// those stop again that were continued since.
    ///
    /// # Errors
    /// `TimedOut` if that took longer than `patience`; then nobody is left stopped. Else that of the kernel.
    pub fn freeze(&self, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        let frozen = match self.freezer() {
            Some(cgroup) => cgroup.freeze(deadline),
            None => self.stop_by_signal(deadline),
        };
        frozen.inspect_err(|_| {
            // The first error is the one to report.
            let _ = self.thaw();
        })
    }

    /// Continues what [`freeze`](Self::freeze) has stopped. Harmless if nothing is.
    ///
    /// # Errors
    /// That of the kernel.
    pub fn thaw(&self) -> io::Result<()> {
        if let Some(cgroup) = self.freezer() {
            return cgroup.thaw();
        }
        let stopped = std::mem::take(&mut *self.stopped());
        for (pid, start) in stopped {
            if tree::entry(pid).is_some_and(|entry| entry.start == start) {
                signal(pid, libc::SIGCONT);
            }
        }
        Ok(())
    }

    /// Kills every process in its cgroup, frozen ones too. Without a cgroup nothing: its process group is
    /// killed by the table of processes.
    pub(crate) fn kill(&self) {
        if let Some(cgroup) = &self.0.cgroup {
            cgroup.kill();
        }
    }

    fn freezer(&self) -> Option<&RankCgroup> {
        self.0.cgroup.as_ref().filter(|cgroup| cgroup.can_freeze())
    }

    fn stopped(&self) -> std::sync::MutexGuard<'_, Vec<(i32, u64)>> {
        self.0.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until a look finds nobody who still runs: children may be born while others are stopped.
    fn stop_by_signal(&self, deadline: Instant) -> io::Result<()> {
        loop {
            let mut running = 0;
            for pid in self.processes()? {
                let Some(entry) = tree::entry(pid) else { continue };
                if entry.ended() || matches!(entry.state, b'T' | b't') {
                    continue;
                }
                running += 1;
                let mut stopped = self.stopped();
                // Who had stopped by itself is not in the list and is not continued.
                if !stopped.contains(&(pid, entry.start)) {
                    stopped.push((pid, entry.start));
                }
                // Also of one in the list: somebody may have continued it.
                signal(pid, libc::SIGSTOP);
            }
            if running == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn signal(pid: i32, signal: i32) {
    debug_assert!(pid > 1, "would signal ourselves or everybody");
    // SAFETY: plain system call.
    unsafe { libc::kill(pid, signal) };
}
