//! The thread that looks at all ranks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::group::Group;
use super::meter::{Crowded, Look};
use super::proc;
use super::sample::{Measured, Sample, Sent};
use super::shares::{Divider, Ticket};
use super::tree::Table;
use super::watched::{Tells, Watched};
use crate::descriptors::Spare;
use crate::post::Post;

/// The interval's bounds.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(100);
/// How long who waits, and has one thread, is not looked at.
const SELDOM: Duration = Duration::from_secs(1);
/// Reading the table of all processes may take this part of a processor.
const TABLE_SHARE: u32 = 80;
/// The machine counts as crowded for so long after it was seen to be.
const CROWDED: Duration = Duration::from_millis(500);
/// How often it is read then who waits for a processor, at most, and which part of one that may take.
const STARVED: Duration = Duration::from_millis(100);
const STARVED_SHARE: u32 = 80;

/// A rank that is watched. A look at it may take long on a busy machine, and the next is due at once then; so
/// nobody begins one while somebody else waits for the lock, which is not handed out in turns.
struct Entry {
    wanted: AtomicU32,
    watched: Mutex<Watched>,
}

impl Entry {
    fn new(watched: Watched) -> Arc<Self> {
        Arc::new(Self { wanted: AtomicU32::new(0), watched: Mutex::new(watched) })
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.wanted.fetch_add(1, SeqCst);
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanted.fetch_sub(1, SeqCst);
        watched
    }

    /// To look at it, unless somebody else wants it.
    fn lock_if_unwanted(&self) -> Option<MutexGuard<'_, Watched>> {
        (self.wanted.load(SeqCst) == 0).then(|| self.lock())
    }
}

/// Shared with the look that is under way, which waits for nobody and is waited for by nobody.
type Ranks = Arc<BTreeMap<u32, Arc<Entry>>>;

struct State {
    ranks: Ranks,
    watches: u64,
    interval: Duration,
    /// What the thread sleeps by.
    sleeps: Duration,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    spare: Spare,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the ranks it is told to watch, and sends what it finds. All calls return at once, or within the
/// time of a look at that rank.
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts the thread; `spare` files stay open for it. Nothing is sent while no rank is watched, or while
    /// the last message has not been dropped.
    ///
    /// # Errors
    /// A thread or `/proc/loadavg` was refused.
    pub fn start<E>(
        interval: Duration,
        tells: Tells,
        spare: Spare,
        events: impl Into<Post<E>>,
    ) -> io::Result<Self>
    where
        E: From<Measured> + Send + 'static,
    {
        let state = State {
            ranks: Ranks::default(),
            watches: 0,
            interval: interval.clamp(SHORTEST, LONGEST),
            sleeps: LONGEST,
            stop: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), spare });
        let mut looker = Looker {
            divider: Divider::start()?,
            loadavg: File::open("/proc/loadavg")?,
            sent: Arc::default(),
            last: None,
            told: None,
            gap: Duration::ZERO,
            table_due: Instant::now(),
            crowd: Crowd::new(),
            tells,
        };
        let (theirs, events) = (Arc::clone(&shared), events.into());
        let thread = std::thread::Builder::new().name("bdrun-sampler".into()).stack_size(256 << 10).spawn(
            move || {
                let _ = nix::sys::signal::SigSet::all().thread_block();
                crate::urgent::schedule_first();
                looker.run(&theirs, |measured| {
                    // A receiver that is gone no longer wants to know.
                    let _ = events.leave(E::from(measured));
                });
            },
        )?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Watches a rank from now on. If the number is known, it is another try of that rank: its peaks begin
    /// anew.
    pub fn watch(&self, rank: u32, group: Group) {
        let mut state = self.shared.lock();
        state.watches += 1;
        let watched = Watched::new(state.watches, group, self.shared.spare.clone());
        Arc::make_mut(&mut state.ranks).insert(rank, Entry::new(watched));
        self.shared.changed.notify_one();
    }

    fn entry(&self, rank: u32) -> Option<Arc<Entry>> {
        self.shared.lock().ranks.get(&rank).cloned()
    }

    /// Watches it no longer. What was found last, with the peaks.
    pub fn forget(&self, rank: u32) -> Option<Sample> {
        let entry = Arc::make_mut(&mut self.shared.lock().ranks).remove(&rank)?;
        let watched = entry.lock();
        Some(watched.sample())
    }

    /// While a rank is out it stands still and is not looked at. What was seen of it before is not sent after
    /// this, though the look may go on.
    pub fn set_out(&self, rank: u32, out: bool) {
        if let Some(entry) = self.entry(rank) {
            let mut watched = entry.lock();
            (watched.out, watched.fresh) = (out, false);
            watched.meter.refresh();
        }
        // What is being sent is on its way now.
        drop(self.shared.lock());
    }

    /// What is in RAM of a rank that has just been paged out.
    pub fn remains(&self, rank: u32) -> Option<Sample> {
        let entry = self.entry(rank)?;
        let watched = entry.lock();
        Some(watched.meter.remains())
    }

    /// How long from one look to the next: 2 to 100 ms.
    pub fn set_interval(&self, interval: Duration) {
        let mut state = self.shared.lock();
        state.interval = interval.clamp(SHORTEST, LONGEST);
        // It is said often, and as a rule hardly differs. If it is longer the thread finds out when it wakes.
        if state.interval < state.sleeps - state.sleeps / 8 {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Looker {
    divider: Divider,
    loadavg: File,
    sent: Arc<AtomicBool>,
    last: Option<Instant>,
    /// The last look that was told.
    told: Option<Instant>,
    /// See [`Measured::gap`].
    gap: Duration,
    /// When all processes may be read again.
    table_due: Instant,
    crowd: Crowd,
    tells: Tells,
}

/// Whether others want the processors too.
struct Crowd {
    processors: u64,
    /// When more threads were ready than there are processors.
    seen: Option<Instant>,
    /// When it may be read again which ranks wait for one.
    due: Instant,
}

impl Crowd {
    fn new() -> Self {
        // SAFETY: plain library call.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        Self { processors: u64::try_from(processors).unwrap_or(1).max(1), seen: None, due: Instant::now() }
    }

    fn seen(&mut self, now: Instant, load: Option<proc::Load>) -> Crowded {
        // All but this thread.
        if load.is_some_and(|load| load.runnable.saturating_sub(1) > self.processors) {
            self.seen = Some(now);
        }
        match self.seen {
            Some(seen) if now.saturating_duration_since(seen) < CROWDED => match now < self.due {
                true => Crowded::Yes,
                false => Crowded::Read,
            },
            _ => Crowded::No,
        }
    }
}

/// Processor time of this thread.
fn used() -> Duration {
    proc::cpu(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

impl Looker {
    fn run(&mut self, shared: &Shared, tell: impl Fn(Measured)) {
        let mut state = shared.lock();
        while !state.stop {
            let now = Instant::now();
            let wait = match self.last {
                _ if state.ranks.is_empty() => Some(LONGEST * 36_000),
                Some(last) => Some((last + state.interval).saturating_duration_since(now)),
                None => None,
            };
            if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                state.sleeps = state.interval;
                let waited = shared.changed.wait_timeout(state, wait);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let ranks = Ranks::clone(&state.ranks);
            drop(state);
            let measured = self.look(&ranks, now);
            drop(ranks);
            state = shared.lock();
            if let Some(mut measured) = measured {
                let is_fresh = |rank| state.ranks.get(&rank).is_some_and(|entry| entry.lock().fresh);
                measured.samples.retain(|&(rank, _)| is_fresh(rank));
                tell(measured);
            }
        }
    }

    fn look(&mut self, ranks: &Ranks, now: Instant) -> Option<Measured> {
        self.gap = self.gap.max(self.last.map_or(Duration::ZERO, |last| now.duration_since(last)));
        self.last = Some(now);
        for (ticket, found) in self.divider.answers() {
            let watched = ranks.get(&ticket.rank).map(|entry| entry.lock());
            if let Some(mut watched) = watched.filter(|watched| watched.number == ticket.watch) {
                watched.meter.divide(now, ticket.generation, &found);
            }
        }
        // Before the lists: whatever is born after this is found at the next look.
        let load = proc::load(&self.loadavg);
        let births = load.map(|load| load.births);
        let inside = || ranks.values().map(|entry| entry.lock()).filter(|watched| !watched.out);
        let wanted = now >= self.table_due && inside().any(|watched| watched.meter.wants_table(now, births));
        let table = wanted.then(|| self.read_table()).flatten();
        let crowded = self.crowd.seen(now, load);
        let look = Look { now, births, table: table.as_ref(), crowded };
        let begin = (crowded == Crowded::Read).then(used);
        let (mut looked, mut unseen) = (Vec::new(), Vec::new());
        let mut all = Inside::default();
        for (&rank, entry) in ranks.iter() {
            let Some(mut watched) = entry.lock_if_unwanted() else {
                unseen.push((rank, entry));
                continue;
            };
            if watched.out {
                continue;
            }
            let waits = watched.waits_still((self.tells)(rank));
            if !waits || now >= watched.due {
                watched.fresh = true;
                let before = watched.sample();
                let sample = watched.look_twice(&look, &self.tells, rank, before);
                // It uses nothing, nor does it grow.
                let pause = if waits && watched.doubts == 0 { SELDOM } else { LONGEST };
                watched.due = now + pause;
                looked.push((rank, sample));
            }
            all.note(now, rank, entry, &watched);
        }
        for (rank, entry) in unseen {
            let watched = entry.lock();
            if !watched.out {
                all.note(now, rank, entry, &watched);
            }
        }
        if let Some(begin) = begin {
            self.crowd.due = Instant::now() + (used().saturating_sub(begin) * STARVED_SHARE).max(STARVED);
        }
        if let Some((_, rank, entry)) = all.asked_longest_ago {
            self.ask(now, rank, entry);
        }
        let sent = Sent::take(&self.sent)?;
        let before = self.told.replace(now);
        Some(Measured {
            taken: now,
            elapsed: before.map_or(Duration::ZERO, |told| now.duration_since(told)),
            gap: std::mem::take(&mut self.gap),
            samples: looked,
            busy: all.busy,
            sent,
        })
    }

    fn read_table(&mut self) -> Option<Table> {
        // By what it costs: on a busy machine it takes many times as long.
        let before = used();
        let table = Table::read().ok();
        self.table_due = Instant::now() + used().saturating_sub(before) * TABLE_SHARE;
        table
    }

    /// Has it found out which pages the processes of this rank share.
    fn ask(&self, now: Instant, rank: u32, entry: &Entry) {
        let mut watched = entry.lock();
        if watched.out {
            return;
        }
        let (generation, pids) = watched.meter.to_divide();
        if self.divider.ask(Ticket { rank, watch: watched.number, generation }, pids) {
            watched.meter.note_asked(now);
        }
    }
}

/// What is known of all ranks that are not out after a look, whether or not they were looked at.
#[derive(Default)]
struct Inside<'a> {
    busy: f64,
    /// Of those of which it should be found out which pages they share, the one that was asked longest ago:
    /// in turns, so that one that makes processes all the time leaves the others theirs.
    asked_longest_ago: Option<(Option<Instant>, u32, &'a Entry)>,
}

impl<'a> Inside<'a> {
    fn note(&mut self, now: Instant, rank: u32, entry: &'a Entry, watched: &Watched) {
        self.busy += watched.meter.busy();
        if let Some(asked) = watched.meter.wants_division(now)
            && self.asked_longest_ago.is_none_or(|(before, ..)| asked < before)
        {
            self.asked_longest_ago = Some((asked, rank, entry));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::watched::Told;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    /// Looks take longer than the time from one to the next, as with many ranks on a busy machine, and what
    /// they find is not read: whoever changes what is watched was not let in, for as long as that was so.
    #[test]
    fn looks_that_take_long_keep_nobody_waiting() {
        let tells: Tells = Box::new(|_| {
            std::thread::sleep(SHORTEST * 2);
            Told { asked: 1, waits: None, moved: 0 }
        });
        let (sender, found) = std::sync::mpsc::channel::<Measured>();
        let sampler = Sampler::start(SHORTEST, tells, Spare::new(1), sender).unwrap();
        let (done, all) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for round in 0..20 {
                for rank in 0..4 {
                    sampler.watch(rank, Group::tree(std::process::id() as i32));
                }
                sampler.set_interval(SHORTEST);
                sampler.set_out(round % 4, true);
                assert!(sampler.remains(round % 4).is_some());
                for rank in 0..4 {
                    assert!(sampler.forget(rank).is_some());
                }
            }
            let _ = done.send(());
        });
        all.recv_timeout(Duration::from_secs(600)).expect("all calls return");
        drop(found);
    }

    /// It is ordered out while the look goes on at others: what it held before is not told after it has left.
    #[test]
    fn what_was_seen_before_a_rank_left_is_not_told_after() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let tells: Tells = Box::new(|rank| {
            if rank == 1 {
                CALLS.fetch_add(1, SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
            Told { asked: 1, waits: None, moved: 0 }
        });
        let (sender, found) = std::sync::mpsc::channel::<Measured>();
        let sampler = Sampler::start(SHORTEST, tells, Spare::new(1), sender).unwrap();
        for rank in 0..2 {
            sampler.watch(rank, Group::tree(std::process::id() as i32));
        }
        let has = |measured: &Measured, of: u32| measured.samples.iter().any(|&(rank, _)| rank == of);
        for _ in 0..5 {
            while !has(&found.recv().unwrap(), 0) {}
            let calls = CALLS.load(SeqCst);
            while CALLS.load(SeqCst) == calls {
                std::thread::yield_now();
            }
            // It has been looked at, and the look goes on at the other.
            sampler.set_out(0, true);
            while found.try_recv().is_ok() {}
            let next = found.recv().unwrap();
            assert!(!has(&next, 0) && has(&next, 1));
            sampler.set_out(0, false);
        }
    }
}
