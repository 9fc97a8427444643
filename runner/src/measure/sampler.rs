//! The thread that looks at all ranks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::group::Group;
use super::meter::{Look, Meter};
use super::proc;
use super::sample::{Measured, Sample, Sent};
use super::shares::{Divider, Ticket};
use super::tree::Table;

/// The interval's bounds.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(100);
/// Reading the table of all processes may take this part of a processor.
const TABLE_SHARE: u32 = 20;

struct Watched {
    /// Distinguishes the tries of a rank.
    number: u64,
    meter: Meter,
    out: bool,
}

struct State {
    ranks: BTreeMap<u32, Watched>,
    watches: u64,
    interval: Duration,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the ranks it is told to watch, and sends what it finds. All calls return within the time of a look
/// (1 µs per process, and a few ms now and then where there are no cgroups).
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts the thread. Nothing is sent while no rank is watched, or while the last message has not been dropped.
    ///
    /// # Errors
    /// A thread or `/proc/loadavg` was refused.
    pub fn start<E>(interval: Duration, events: Sender<E>) -> io::Result<Self>
    where
        E: From<Measured> + Send + 'static,
    {
        let state = State {
            ranks: BTreeMap::new(),
            watches: 0,
            interval: interval.clamp(SHORTEST, LONGEST),
            stop: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut looker = Looker {
            divider: Divider::start()?,
            loadavg: File::open("/proc/loadavg")?,
            sent: Arc::default(),
            last: None,
            table_due: Instant::now(),
        };
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("bdrun-sampler".into()).stack_size(256 << 10).spawn(
            move || {
                let _ = nix::sys::signal::SigSet::all().thread_block();
                looker.run(&theirs, |measured| {
                    // A receiver that is gone no longer wants to know.
                    let _ = events.send(E::from(measured));
                });
            },
        )?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Watches a rank from now on. If the number is known, it is another try of that rank: its peaks begin anew.
    pub fn watch(&self, rank: u32, group: Group) {
        let mut state = self.shared.lock();
        state.watches += 1;
        let watched = Watched { number: state.watches, meter: Meter::new(group), out: false };
        state.ranks.insert(rank, watched);
        self.shared.changed.notify_one();
    }

    /// Watches it no longer. What was found last, with the peaks.
    pub fn forget(&self, rank: u32) -> Option<Sample> {
        self.shared.lock().ranks.remove(&rank).map(|watched| watched.meter.sample())
    }

    /// While a rank is out it stands still and is not looked at.
    pub fn set_out(&self, rank: u32, out: bool) {
        if let Some(watched) = self.shared.lock().ranks.get_mut(&rank) {
            watched.out = out;
            watched.meter.refresh();
        }
    }

    /// What is in RAM of a rank that has just been paged out.
    pub fn remains(&self, rank: u32) -> Option<Sample> {
        self.shared.lock().ranks.get(&rank).map(|watched| watched.meter.remains())
    }

    /// How long from one look to the next: 2 to 100 ms.
    pub fn set_interval(&self, interval: Duration) {
        self.shared.lock().interval = interval.clamp(SHORTEST, LONGEST);
        self.shared.changed.notify_one();
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
    /// When all processes may be read again.
    table_due: Instant,
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
                let waited = shared.changed.wait_timeout(state, wait);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if let Some(measured) = self.look(&mut state, now) {
                drop(state);
                tell(measured);
                state = shared.lock();
            }
        }
    }

    fn look(&mut self, state: &mut State, now: Instant) -> Option<Measured> {
        let elapsed = self.last.map_or(Duration::ZERO, |last| now.duration_since(last));
        self.last = Some(now);
        for (ticket, found) in self.divider.answers() {
            let watched = state.ranks.get_mut(&ticket.rank);
            if let Some(watched) = watched.filter(|watched| watched.number == ticket.watch) {
                watched.meter.divide(now, ticket.generation, &found);
            }
        }
        // Before the lists: whatever is born after this is found at the next look.
        let births = proc::births(&self.loadavg);
        let inside = || state.ranks.values().filter(|watched| !watched.out);
        let wanted = now >= self.table_due && inside().any(|watched| watched.meter.wants_table(now, births));
        let table = wanted.then(|| self.read_table()).flatten();
        let look = Look { now, births, table: table.as_ref() };
        for watched in state.ranks.values_mut().filter(|watched| !watched.out) {
            watched.meter.look(&look);
        }
        self.ask(state, now);
        let sent = Sent::take(&self.sent)?;
        let inside = || state.ranks.iter().filter(|(_, watched)| !watched.out);
        Some(Measured {
            taken: now,
            elapsed,
            samples: inside().map(|(&rank, watched)| (rank, watched.meter.sample())).collect(),
            busy: inside().map(|(_, watched)| watched.meter.busy()).sum(),
            sent,
        })
    }

    fn read_table(&mut self) -> Option<Table> {
        // By what it costs: on a busy machine it takes many times as long.
        let used = || proc::cpu(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default();
        let before = used();
        let table = Table::read().ok();
        self.table_due = Instant::now() + used().saturating_sub(before) * TABLE_SHARE;
        table
    }

    /// Has it found out of one rank which pages its processes share.
    fn ask(&self, state: &mut State, now: Instant) {
        // In turns, so that one that makes processes all the time leaves the others theirs.
        let longest_ago = state
            .ranks
            .iter_mut()
            .filter(|(_, watched)| !watched.out)
            .filter_map(|(rank, watched)| Some((watched.meter.wants_division(now)?, *rank, watched)))
            .min_by_key(|(asked, ..)| *asked);
        if let Some((_, rank, watched)) = longest_ago {
            let (generation, pids) = watched.meter.to_divide();
            if self.divider.ask(Ticket { rank, watch: watched.number, generation }, pids) {
                watched.meter.note_asked(now);
            }
        }
    }
}
