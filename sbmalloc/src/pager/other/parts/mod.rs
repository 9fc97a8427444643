//! A rank that runs while parts of it are out: for one that is larger than the memory there is.
//!
//! Its missing pages are served by userfaultfd, whose descriptor each of its processes is made to open, and
//! to close again when this process has taken it over (`pidfd_getfd`). A part leaves while all threads of the
//! rank stand: its pages are written, then dropped by an injected `madvise(MADV_DONTNEED)`, then the threads
//! go on. Whoever touches a missing page waits until another thread of this process (`serve`) has read it,
//! and what follows it, from scratch. What the rank itself does with its addresses (`munmap`, `mremap`,
//! `MADV_DONTNEED`, `fork`) the kernel tells before it is done, or lets nothing be placed before it was read,
//! so the table of what is out is always right. A child has its own descriptor and its own copy of the table.
//!
//! | file | concept |
//! |---|---|
//! | `choice` | who leaves next |
//! | `evict` | how parts are evicted |
//! | `token` | which thread's pages are spared meanwhile |
//! | `recent` | what was evicted last, still in RAM |
//! | `shared` | what two threads share, and the life of the one that serves |
//! | `serve` | how they come back |
//! | `faults` | what the kernel tells of address spaces |
//! | `actors` | which thread it was |
//! | `changes` | in which order that happened |
//! | `copies` | which of it a copy has seen |
//! | `state` | what is known |
//! | `uffd` | userfaultfd(2), thinly |
//! | `descriptor` | how its descriptor is had |
//! | `stays` | what cannot leave: locked, of the main stack, or written to mappings of files |
//! | `zeros` | mappings of `/dev/zero`, which it does not serve |
//! | `guard` | what holds the descriptors if this process is killed |
//!
//! # Why it never runs with wrong memory
//! All of its threads stay traced as long as it lives, by a thread for which `PTRACE_O_EXITKILL` holds:
//! should that thread or this process end, the kernel kills the rank. That the descriptors are closed before,
//! and missing pages become zeros for a moment, the `guard` prevents. A page that cannot be read, or not be
//! verified, is never placed: who waits for it waits until the rank is killed.

mod actors;
mod changes;
mod choice;
mod copies;
mod descriptor;
mod evict;
mod faults;
mod guard;
mod ranges;
mod recent;
mod serve;
mod shared;
mod state;
mod stays;
#[cfg(test)]
mod tests;
mod token;
mod uffd;
mod zeros;

pub use state::PartsMoved;

use super::Held;
use super::check;
use super::error::{OtherError, Refusal};
use super::image::Image;
use super::proc;
use super::space::Space;
use super::stop::{Deed, Threads};
use crate::pager::transfer::pump::Pump;
use crate::sys::{Errno, PAGE};
use guard::Guard;
use shared::Shared;
use state::{Served, State};
use stays::Stays;
use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uffd::Uffd;

/// Threads that do not stop in this time are asked again later.
const PATIENCE: Duration = Duration::from_millis(500);
/// Where a thread stood for a signal or an event within the first, what stands next is let go after the
/// second: with a timer of a millisecond it would else stand most of the time.
const LATELY: Duration = Duration::from_millis(5);
const HURRY: Duration = Duration::from_micros(50);
/// After a try that did not help the next is made not sooner.
const PAUSE: Duration = Duration::from_millis(50);

/// A rank that runs, or stands, with parts of it out. Dropped, it is killed.
///
/// Like [`Held`] it belongs to one thread, which must call [`mind`](Self::mind) all the time.
pub struct Parts {
    threads: Threads,
    /// Those of which parts may leave, with their number.
    spaces: Vec<(usize, Space)>,
    shared: Arc<Shared>,
    server: Option<JoinHandle<()>>,
    /// Bytes of private memory it may hold.
    target: u64,
    is_held: bool,
    /// Its mappings were looked through, and are not again before.
    list_not_before: Option<Instant>,
    /// Not to be made smaller before.
    rest_until: Option<Instant>,
    /// Of memory that several processes have.
    shares: Cell<Shares>,
    /// Processes whose memory cannot be served, of which that was said.
    refused: Vec<i32>,
    /// Why, until somebody was told.
    unserved: VecDeque<String>,
    /// It was told that something else writes its memory.
    told_of_others: bool,
    /// What cannot leave, and when that was looked at.
    staying: Stays,
    /// That it stays in RAM was told.
    told_what_stays: bool,
    _not_send: PhantomData<*const ()>,
}

/// How much of what the processes have one by one they have together.
#[derive(Debug, Clone, Copy)]
struct Shares {
    count: usize,
    fraction: f64,
    /// To be looked at again then, or when there are others.
    until: Instant,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { threads, target, is_held, .. } = self;
        let rank = threads.leader();
        f.debug_struct("Parts")
            .field("rank", &rank)
            .field("target", target)
            .field("is_held", is_held)
            .finish()
    }
}

impl Held {
    /// Makes it a rank of which parts may leave while it runs. Nothing of it is out, and the image is empty.
    /// It stands still until [`Parts::resume`].
    ///
    /// # Errors
    /// Why that is not possible; the rank runs on, unharmed. Above all [`Refusal::NotInParts`]: it takes
    /// privileges that moving it as a whole does not.
    pub fn into_parts(mut self, mut image: Image) -> Result<Parts, Refusal> {
        assert!(!self.out && image.is_empty(), "something is out");
        image.clear();
        let spaces = std::mem::take(&mut self.spaces);
        let none = Threads::none(self.threads.leader());
        let mut threads = std::mem::replace(&mut self.threads, none);
        match begin(&threads, spaces, image) {
            Ok((shared, spaces, server)) => Ok(Parts {
                threads,
                spaces,
                shared,
                server: Some(server),
                target: u64::MAX,
                is_held: true,
                list_not_before: None,
                rest_until: None,
                shares: Cell::new(Shares { count: 0, fraction: 1.0, until: Instant::now() }),
                refused: vec![],
                unserved: VecDeque::new(),
                told_of_others: false,
                staying: Stays::default(),
                told_what_stays: false,
                _not_send: PhantomData,
            }),
            Err(refusal) => {
                threads.detach();
                Err(refusal)
            }
        }
    }
}

type Begun = (Arc<Shared>, Vec<(usize, Space)>, JoinHandle<()>);

fn begin(threads: &Threads, spaces: Vec<Space>, image: Image) -> Result<Begun, Refusal> {
    let refused = |pid: i32| move |errno| Refusal::NotInParts { pid, errno };
    let leader = threads.leader();
    let end = threads.end().map_err(|errno| match errno.is_passing() {
        true => Refusal::Busy { tid: leader },
        false => Refusal::Kernel("pidfd_open"),
    })?;
    let guard = Guard::start(end).map_err(refused(leader))?;
    let pump = Pump::new().map_err(refused(leader))?;
    let mut state = State::new(image, pump, guard);
    for space in &spaces {
        let pid = space.processes[0];
        let fd = descriptor::of(threads, space).map_err(|error| match error {
            OtherError::Rank { errno, .. } => Refusal::NotInParts { pid, errno },
            _ => Refusal::Gone,
        })?;
        let uffd = Uffd::agree(fd).map_err(refused(pid))?;
        state.guard.hold(&uffd.0).map_err(refused(pid))?;
        state.served.push(Some(Served::new(uffd, pid)));
    }
    let shared = Shared::new(state);
    let theirs = Arc::clone(&shared);
    let server = std::thread::Builder::new()
        .name(format!("pages-{leader}"))
        .stack_size(256 << 10)
        .spawn(move || theirs.serve())
        .map_err(|e| Refusal::NotInParts { pid: leader, errno: Errno::from(&e) })?;
    Ok((shared, spaces.into_iter().enumerate().collect(), server))
}

/// Serves an address space that was not there when the rank began to run in parts. Its number.
fn serve_too(threads: &Threads, space: &Space, shared: &Shared) -> Result<usize, OtherError> {
    let pid = space.processes[0];
    let failed = |errno| serve_failed(pid, errno);
    // The other thread serves meanwhile: the call may need pages.
    let uffd = Uffd::agree(descriptor::of(threads, space)?).map_err(failed)?;
    let mut state = shared.lock();
    state.guard.hold(&uffd.0).map_err(failed)?;
    Ok(state.add(Served::new(uffd, pid)))
}

fn serve_failed(pid: i32, errno: Errno) -> OtherError {
    OtherError::Rank { op: "serve the page faults of", pid, errno }
}

/// How a rank is after parts of it have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shrunk {
    /// Bytes that are out.
    pub out: u64,
    /// Bytes of private memory that it still holds.
    pub left: u64,
}

impl Parts {
    /// Has parts leave until it holds at most `target` bytes of private memory, and stays so from then on. It
    /// stands still afterwards. `progress` is told again and again how many bytes have been given back.
    ///
    /// # Errors
    /// [`OtherError::NoSpace`]: it may go on with what it holds. [`OtherError::Busy`]: it runs, and may be
    /// asked again. After all others it must be dropped.
    pub fn shrink(&mut self, target: u64, progress: &mut dyn FnMut(u64)) -> Result<Shrunk, OtherError> {
        self.stop()?;
        self.target = target;
        let mut done = self.evict(target, progress);
        for _ in 0..3 {
            if !matches!(done, Err(OtherError::Busy)) {
                break;
            }
            done = self.evict(target, progress);
        }
        if let Err(OtherError::Busy) = done {
            self.resume();
        }
        if let Err(OtherError::NoSpace { .. }) = done {
            // Not tried again and again.
            self.target = u64::MAX;
        }
        done?;
        Ok(Shrunk { out: self.out(), left: self.resident() })
    }

    /// Makes it stand still.
    ///
    /// # Errors
    /// [`OtherError::Busy`]: it runs, and may be asked again. [`OtherError::Gone`] if it has ended.
    pub fn stop(&mut self) -> Result<(), OtherError> {
        if self.is_held {
            return Ok(());
        }
        let mut deeds = vec![];
        self.shared.lock().urgent = true;
        let stopped = self.threads.stop_again(PATIENCE, &mut deeds);
        self.note(&deeds);
        match stopped {
            Ok(()) => {
                self.is_held = true;
                self.choose_callers();
                Ok(())
            }
            Err(Refusal::Gone) => Err(OtherError::Gone),
            Err(_) => {
                self.measure();
                Err(OtherError::Busy)
            }
        }
    }

    /// Chooses the threads that make calls, as it stands now. Those address spaces without one are left
    /// alone.
    fn choose_callers(&mut self) {
        let Self { spaces, threads, refused, unserved, .. } = self;
        for (_, space) in spaces {
            let by = |&pid: &i32| Some((pid, caller(threads, pid, refused, unserved)?));
            let found = space.processes.iter().find_map(by);
            let Some((pid, tid)) = found else {
                space.caller = 0;
                continue;
            };
            if !threads.has(space.via()) {
                let Ok(mut again) = Space::open(pid, tid) else {
                    // No descriptor is free just now, and a thread that is no more tells nothing.
                    space.caller = 0;
                    continue;
                };
                std::mem::swap(&mut again.processes, &mut space.processes);
                *space = again;
            }
            space.choose(tid);
        }
    }

    /// It runs, with what it holds now.
    fn measure(&self) {
        let resident = self.measured_now();
        let mut state = self.shared.lock();
        if let Some(resident) = resident {
            state.measured(resident, self.target);
        }
        state.urgent = false;
    }

    /// Lets it run.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.measure();
            self.threads.resume();
        }
    }

    /// Waits a little, at most `patience`; lets go on what stands for a signal or an event; and if it has
    /// grown beyond its target has parts leave. To be called again and again while it runs or stands, as
    /// signals to it wait meanwhile. Whether it still lives.
    ///
    /// # Errors
    /// [`OtherError::NoSpace`]: it runs on with what it holds, and is not made smaller any more. After all
    /// others it must be dropped.
    pub fn mind(&mut self, patience: Duration) -> Result<bool, OtherError> {
        let shared = Arc::clone(&self.shared);
        let begun = Instant::now();
        let starved = loop {
            let left = patience.saturating_sub(begun.elapsed());
            let hurries = !self.is_held && self.threads.stood_within(LATELY);
            let state = shared.lock();
            let (state, is_news) = match state.starved || state.failed.is_some() || state.is_full() {
                true => (state, true),
                false => {
                    let patience = if hurries { left.min(HURRY) } else { left };
                    let waited = shared.news.wait_timeout(state, patience);
                    let (state, waited) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
                    (state, !waited.timed_out())
                }
            };
            if let Some(error) = state.failed.clone() {
                return Err(error);
            }
            let starved = state.starved;
            drop(state);
            if self.is_held {
                break starved;
            }
            let mut deeds = vec![];
            let minded = self.threads.mind(&mut deeds);
            self.note(&deeds);
            if minded.is_err() {
                return Ok(false);
            }
            if is_news || !hurries || begun.elapsed() >= patience {
                break starved;
            }
        };
        self.look_at_what_stays();
        if self.is_held {
            return Ok(self.threads.watch());
        }
        let Some(resident) = self.measured_now() else {
            // What was measured last holds, and what came since: who finds no room waits.
            std::thread::sleep(patience.min(PAUSE / 50));
            return Ok(true);
        };
        let rests = self.rest_until.is_some_and(|until| Instant::now() < until);
        if rests || (resident <= self.target && !starved) {
            self.shared.lock().measured(resident, self.target);
            return Ok(true);
        }
        match self.make_smaller(resident) {
            Ok(()) => Ok(true),
            Err(OtherError::Gone) => Ok(false),
            Err(OtherError::Busy) => {
                self.rest_until = Some(Instant::now() + PAUSE / 10);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Somewhat below the target, so that it need not stand too often.
    fn make_smaller(&mut self, resident: u64) -> Result<(), OtherError> {
        let begun = Instant::now();
        let goal = resident.min(self.target);
        let goal = goal - (goal / 16).clamp(1 << 20, 32 << 20).min(goal);
        self.stop()?;
        let left = self.evict(goal, &mut |_| {});
        self.resume();
        let mut state = self.shared.lock();
        state.starved = false;
        state.moved.standing += begun.elapsed();
        drop(state);
        if let Err(OtherError::NoSpace { .. }) = left {
            self.target = u64::MAX;
        }
        if left? < (resident - goal) / 2 {
            self.rest_until = Some(Instant::now() + PAUSE);
        }
        Ok(())
    }

    /// Why memory of the rank cannot be paged, or not any more, each told once: it is of a kind that stays,
    /// of another program that it has begun since it runs in parts, or something else than its threads writes
    /// its memory by now. To be asked until there is none.
    pub fn unserved(&mut self) -> Option<String> {
        self.unserved.pop_front()
    }

    /// For tests: what the kernel seems to answer at some of the calls that place pages, by errno; 0 means
    /// fewer pages than asked for.
    #[doc(hidden)]
    pub fn interfere(&mut self, answers: &[i32], seed: u64) {
        self.shared.lock().interference = uffd::Interference::new(answers, seed);
    }

    /// Bytes that are out.
    pub fn out(&self) -> u64 {
        self.shared.lock().out()
    }

    /// Bytes of what was evicted last that are still in RAM, beside what it holds: no more than fit into its
    /// target.
    pub fn recent(&self) -> u64 {
        self.shared.lock().recent.bytes()
    }

    /// Bytes of private memory it may hold.
    pub const fn target(&self) -> u64 {
        self.target
    }

    /// What was done so far.
    pub fn moved(&self) -> PartsMoved {
        self.shared.lock().moved
    }

    /// Private memory of all of its processes; if that cannot be looked at just now, what it was when it last
    /// could, and what was brought back since.
    pub fn resident(&self) -> u64 {
        self.measured_now().unwrap_or_else(|| self.shared.lock().resident)
    }

    /// The same; `None` if it cannot be looked at just now. What several of them have since a fork counts
    /// once, as it was when that was last looked at, which takes a look at every page and is done no more
    /// often than it is cheap.
    fn measured_now(&self) -> Option<u64> {
        let processes = self.threads.processes();
        let sum = processes.iter().copied().map(anonymous).sum::<Option<u64>>()?;
        if processes.len() < 2 || sum <= self.target {
            return Some(sum);
        }
        let mut shares = self.shares.get();
        let now = Instant::now();
        if shares.count != processes.len() || now >= shares.until {
            let once = processes
                .iter()
                .map(|&pid| proc::share_of_anonymous(pid).or_else(|| anonymous(pid)))
                .sum::<Option<u64>>()?;
            let fraction = (once as f64 / sum as f64).min(1.0);
            let pause = (now.elapsed() * 20).max(Duration::from_millis(20));
            shares = Shares { count: processes.len(), fraction, until: now + pause };
            self.shares.set(shares);
        }
        Some((sum as f64 * shares.fraction) as u64)
    }

    /// Kills all processes of the rank.
    pub fn kill(self) {
        drop(self);
    }

    /// Takes up what its processes have done.
    fn note(&mut self, deeds: &[Deed]) {
        for &deed in deeds {
            match deed {
                Deed::Exec(pid) => {
                    self.refused.retain(|refused| *refused != pid);
                    self.list_not_before = None;
                    let mut state = self.shared.lock();
                    state.close_dead();
                    // What it lived in before may go on in another process.
                    state
                        .served
                        .iter_mut()
                        .flatten()
                        .filter(|s| s.pid == Some(pid))
                        .for_each(|s| s.pid = None);
                    drop(state);
                    self.spaces.retain(|(_, space)| space.processes[0] != pid);
                }
            }
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // First of all, as nothing is served from here on.
        self.threads.kill();
        self.shared.lock().stop = true;
        if let Some(server) = self.server.take() {
            // It has no result; if it panicked, the rank is dead.
            let _ = server.join();
        }
    }
}

/// A parked thread by which calls can be made in a process. Not one whose calls are filtered, as they may be
/// since the rank was held first: the first that is not permitted would be its last. That is said once.
fn caller(
    threads: &Threads,
    pid: i32,
    refused: &mut Vec<i32>,
    unserved: &mut VecDeque<String>,
) -> Option<i32> {
    let tid = threads.parked(pid)?;
    if !check::filters_calls(tid) {
        return Some(tid);
    }
    if !refused.contains(&pid) {
        refused.push(pid);
        unserved.push_back(Refusal::Seccomp { pid }.to_string());
    }
    None
}

/// Anonymous memory of a process in RAM, bytes; 0 if it has ended, `None` if this process has no descriptors
/// or memory just now.
fn anonymous(pid: i32) -> Option<u64> {
    let statm = || match proc::living_thread(pid)? {
        Some(tid) => std::fs::read_to_string(format!("/proc/{tid}/statm")),
        None => Ok(String::new()),
    };
    let text = match statm() {
        Err(e) if Errno::from(&e).is_passing() => return None,
        text => text.unwrap_or_default(),
    };
    let mut words = text.split_whitespace().skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
    let (resident, of_files) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    Some(resident.saturating_sub(of_files) * PAGE as u64)
}
