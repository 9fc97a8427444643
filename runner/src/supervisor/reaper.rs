//! The thread that learns of ends: a pidfd per rank in one epoll.
//!
//! An end is reported after the output thread has forwarded what the rank's pipes held, so that an error
//! message stands before the notice of the end; but not later than [`OUTPUT_GRACE`], in case the master's own
//! stdout blocks. How many may have ended so is the table's to say: it lets no more begin.

use super::ending::{Ending, OomKill};
use super::keeper::KEEPERS;
use super::sys::{BELL, Poller};
use super::{Happening, Shared, SuperviseError, output, setup, thread};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the report of an end waits for the rank's output.
const OUTPUT_GRACE: Duration = Duration::from_millis(250);
/// The key of the first keeper's pidfd; those of the others come before it.
const KEEPER: u64 = u64::MAX - 1;
const LAST_KEEPER: u64 = KEEPER - (KEEPERS as u64 - 1);

/// To wake the reaper and to give it work.
pub(super) struct Handle {
    poller: Arc<Poller>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Handle {
    /// Where processes are watched.
    pub(super) fn watch(&self) -> Watch {
        Watch { poller: Arc::clone(&self.poller) }
    }

    /// Ends the thread.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.poller.ring();
        let _ = self.thread.join();
    }
}

/// Adds processes to the reaper's epoll.
pub(super) struct Watch {
    poller: Arc<Poller>,
}

impl Watch {
    /// Watches a rank. To be called under the table's lock, so that its end waits for its entry.
    ///
    /// One that has ended and is traced by another process (a debugger) is that one's to reap first, however
    /// long it takes. The kernel tells of its end then, and once more when it is ours.
    pub(super) fn rank(&self, pidfd: impl AsFd, serial: u64) -> nix::Result<()> {
        self.poller.add_news(pidfd, serial)
    }

    /// Watches a keeper.
    pub(super) fn keeper(&self, which: usize, pidfd: impl AsFd) -> nix::Result<()> {
        self.poller.add_once(pidfd, KEEPER - which as u64)
    }
}

/// Ends that wait for their output.
struct Pending {
    serial: u64,
    deadline: Instant,
    happening: Happening,
}

struct Reaper {
    shared: Arc<Shared>,
    poller: Arc<Poller>,
    output: output::Feed,
    drained: Receiver<u64>,
    pending: Vec<Pending>,
    oom: OomCounter,
    /// When the counts were looked at.
    looked: Instant,
}

/// Starts the thread.
pub(super) fn start(shared: Arc<Shared>, output: &output::Handle) -> Result<Handle, SuperviseError> {
    let poller = Arc::new(Poller::new().map_err(setup("epoll"))?);
    let stop = Arc::new(AtomicBool::new(false));
    let (drained_sender, drained) = unbounded();
    output.report_drained(Drained { sender: drained_sender, poller: Arc::clone(&poller) });
    let mut reaper = Reaper {
        oom: OomCounter::new(&shared),
        shared,
        poller: Arc::clone(&poller),
        output: output.feed(),
        drained,
        pending: Vec::new(),
        looked: Instant::now(),
    };
    let stopped = Arc::clone(&stop);
    let thread = thread("bdrun-reaper", move || {
        while !stopped.load(Ordering::Acquire) {
            reaper.turn();
        }
    })?;
    Ok(Handle { poller, stop, thread })
}

/// With which the output thread tells that all a rank had written is forwarded.
pub(super) struct Drained {
    sender: Sender<u64>,
    poller: Arc<Poller>,
}

impl Drained {
    /// Tells it.
    pub(super) fn tell(&self, serials: impl IntoIterator<Item = u64>) {
        let mut any = false;
        for serial in serials {
            any |= self.sender.send(serial).is_ok();
        }
        if any {
            self.poller.ring();
        }
    }
}

impl Reaper {
    fn turn(&mut self) {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let deadline = self.pending.iter().map(|pending| pending.deadline).min();
        let limit = deadline.map_or(LOOK, left).min(LOOK);
        let mut ready = Vec::new();
        self.poller.wait(limit.as_millis() as i32 + 1, |key| ready.push(key));
        // Only so is it known that a kill was seen long before an end.
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.oom.turn += 1;
            self.oom.look(&self.shared);
        }
        for key in ready {
            match key {
                BELL => {}
                LAST_KEEPER..=KEEPER => self.keeper_ended((KEEPER - key) as usize),
                serial => self.ended(serial),
            }
        }
        while let Ok(serial) = self.drained.try_recv() {
            self.shared.table.forwarded();
            if let Some(at) = self.pending.iter().position(|pending| pending.serial == serial) {
                let pending = self.pending.remove(at);
                self.tell(pending.happening);
            }
        }
        let now = Instant::now();
        // In the order in which they ended: the first may decide how the job does.
        while let Some(at) = self.pending.iter().position(|pending| pending.deadline <= now) {
            let pending = self.pending.remove(at);
            self.tell(pending.happening);
        }
    }

    fn ended(&mut self, serial: u64) {
        // None: it is traced, and its end will be told again.
        let Some((process, ending, usage)) = self.shared.table.reap(serial) else { return };
        self.poller.remove(&process.pidfd);
        self.shared.roster.leave(process.rank, process.pid);
        if let (Ok(groups), Some(cgroup)) = (&self.shared.groups, process.group.cgroup()) {
            groups.retire(cgroup);
        }
        let oom = self.oom.blame(&self.shared, ending, process.killed);
        let happening = Happening::Exited { rank: process.rank, pid: process.pid, ending, usage, oom };
        self.pending.push(Pending { serial, deadline: Instant::now() + OUTPUT_GRACE, happening });
        self.output.ended(serial);
    }

    fn tell(&self, happening: Happening) {
        (self.shared.report)(happening);
        self.shared.table.reported();
    }

    /// It is replaced, also while ranks are being ended: the master may be killed then too.
    fn keeper_ended(&self, which: usize) {
        let watch = Watch { poller: Arc::clone(&self.poller) };
        let Shared { keepers, roster, pen, .. } = &*self.shared;
        let replaced = keepers.replace(which, roster, pen.mark(), |which, pidfd| watch.keeper(which, pidfd));
        if !replaced && !self.shared.table.ending() {
            (self.shared.report)(Happening::KeeperLost);
        }
    }
}

/// How old a kill may be that is taken for the cause of an end: who is killed and holds much takes seconds to
/// end.
const RECENT: Duration = Duration::from_secs(10);
/// So many turns of looking at least it is taken for that: where memory is exhausted so is the time of
/// whoever looks, and an end is heard of late.
const RECENT_TURNS: u32 = 10;
/// How often the kernel's counts are looked at while ranks live.
const LOOK: Duration = Duration::from_secs(1);
/// As many kills are remembered.
const KILLS: usize = 1024;

/// Kills of the out-of-memory killer that are not yet attributed to a rank: as many as a count of the
/// kernel's has grown by, each with when that was seen, and in which turn.
struct Kills {
    count: u64,
    seen: VecDeque<(Instant, u32)>,
}

impl Kills {
    const fn new(count: u64) -> Self {
        Self { count, seen: VecDeque::new() }
    }

    /// The count is this now. What was seen long ago was somebody else's end.
    fn look(&mut self, count: u64, now: Instant, turn: u32) {
        let more = usize::try_from(count.saturating_sub(self.count)).unwrap_or(usize::MAX);
        self.count = count;
        self.seen.extend(std::iter::repeat_n((now, turn), more.min(KILLS)));
        let is_old = |&(at, then): &(Instant, u32)| now - at > RECENT && turn - then > RECENT_TURNS;
        while self.seen.len() > KILLS || self.seen.front().is_some_and(is_old) {
            self.seen.pop_front();
        }
    }

    /// Attributes one, if there is any.
    fn take(&mut self) -> bool {
        self.seen.pop_front().is_some()
    }
}

/// Counts the kills of the out-of-memory killer.
struct OomCounter {
    job: Kills,
    machine: Kills,
    turn: u32,
}

impl OomCounter {
    fn new(shared: &Shared) -> Self {
        Self { job: Kills::new(job_kills(shared)), machine: Kills::new(machine_kills()), turn: 0 }
    }

    fn look(&mut self, shared: &Shared) {
        let now = Instant::now();
        self.job.look(job_kills(shared), now, self.turn);
        self.machine.look(machine_kills(), now, self.turn);
    }

    fn blame(&mut self, shared: &Shared, ending: Ending, by_us: bool) -> OomKill {
        if by_us || !matches!(ending, Ending::Signal { signal: libc::SIGKILL, .. }) {
            return OomKill::No;
        }
        self.look(shared);
        // Several ranks killed at once take one count each. The machine's count has those of the job too.
        let of_job = self.job.take();
        match (of_job, self.machine.take()) {
            (true, _) => OomKill::JobLimit,
            (false, true) => OomKill::Outside,
            (false, false) => OomKill::No,
        }
    }
}

fn job_kills(shared: &Shared) -> u64 {
    shared.cgroup.as_ref().map_or(0, |group| group.usage().oom_kills)
}

/// How often the kernel has killed for memory on this machine, anybody.
pub(super) fn machine_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::sys;
    use super::super::tests::traced::Tracer;
    use super::*;

    #[test]
    fn an_end_that_is_somebody_elses_first_is_told_twice_and_no_more() {
        let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = sleeper.id().cast_signed();
        let Some(tracer) = Tracer::start(pid) else {
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
            return;
        };
        let poller = Arc::new(Poller::new().unwrap());
        let pidfd = sys::pidfd_open(pid).unwrap();
        Watch { poller: Arc::clone(&poller) }.rank(&pidfd, 7).unwrap();
        let told = |limit_ms| {
            let mut keys = Vec::new();
            poller.wait(limit_ms, |key| keys.push(key));
            keys
        };
        sleeper.kill().unwrap();
        assert_eq!(told(60_000), [7]);
        assert!(sys::reap(pid).is_none(), "its tracer has it");
        assert!(told(0).is_empty(), "nothing has happened since");
        drop(tracer);
        assert_eq!(told(60_000), [7]);
        let ending = sys::reap(pid).map(|(ending, _)| ending);
        assert_eq!(ending, Some(Ending::Signal { signal: libc::SIGKILL, core: false }));
    }

    #[test]
    fn a_kill_of_long_ago_is_nobodys() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut kills = Kills::new(7);
        kills.look(7, at(1), 1);
        assert!(!kills.take(), "from before the job");
        kills.look(9, at(2), 2);
        kills.look(9, at(5), 5);
        assert!(kills.take() && kills.take() && !kills.take(), "one for each");
        kills.look(10, at(20), 20);
        kills.look(10, at(31), 31);
        assert!(!kills.take(), "somebody else's");
        kills.look(11, at(32), 32);
        assert!(kills.take());
    }

    /// Where memory is exhausted nobody gets to look for many seconds.
    #[test]
    fn a_kill_is_not_old_for_whoever_could_not_look() {
        let begin = Instant::now();
        let mut kills = Kills::new(0);
        kills.look(1, begin, 1);
        kills.look(1, begin + Duration::from_secs(60), 2);
        assert!(kills.take());
    }
}
