//! What the thread that traces and the thread that serves share, and the life of the latter.
//!
//! The tracing thread copies what leaves while it has the state, as that tells what leaves. A page that was
//! there a moment ago may be missing then: the kernel takes back what was freed lazily (`MADV_FREE`) without
//! a word. The copying thread would wait in the kernel for that page, which is this thread's to place, and
//! this one for the state. So this thread never just waits for the state: until it has it, it places zeros
//! wherever the copying thread waits. That is what such a page holds; and nobody else waits, as the rank
//! stands.

use super::state::State;
use super::uffd::{Interference, News, Uffd};
use crate::pager::other::stop::own_tid;
use crate::sys::PAGE;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Looked so often whether the state is free before this thread sleeps in between: mostly it is soon.
const SOON: u32 = 100;
/// It sleeps for so long at first, twice as long each time, and at most for the second.
const SHORTEST: Duration = Duration::from_micros(10);
const LONGEST: Duration = Duration::from_micros(200);

pub(super) struct Shared {
    state: Mutex<State>,
    /// Told when the tracing thread may have something to do.
    pub news: Condvar,
    copied: Mutex<Copied>,
}

/// Address spaces, by number, from which a thread may be copying.
#[derive(Default)]
struct Copied {
    list: Vec<(usize, Arc<Uffd>)>,
    by: u32,
}

/// The tracing thread may copy as long as this is there.
pub(super) struct Copying<'a>(&'a Shared);

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.0.copied().list.clear();
    }
}

impl Shared {
    pub fn new(state: State) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), news: Condvar::new(), copied: Mutex::default() })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copied(&self) -> MutexGuard<'_, Copied> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread, which has the state, is about to copy from address spaces while all of the rank stands.
    pub fn copying(&self, state: &State) -> Copying<'_> {
        let served = state.served.iter().enumerate();
        let list = served.filter_map(|(n, served)| Some((n, Arc::clone(&served.as_ref()?.uffd)))).collect();
        *self.copied() = Copied { list, by: own_tid() as u32 };
        Copying(self)
    }

    /// The state, for the thread that serves: whoever has it may need a page of it first.
    fn lock_to_serve(&self) -> MutexGuard<'_, State> {
        let (mut tries, mut pause, mut told) = (0, SHORTEST, vec![]);
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(state)) => break state.into_inner(),
                Err(TryLockError::WouldBlock) => self.help(&mut told),
            }
            tries += 1;
            if tries < SOON {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST);
            }
        };
        for (number, news) in told {
            let mut faults = vec![];
            state.take_up(number, news, None, &mut faults);
            state.wait_for(number, &faults);
        }
        state
    }

    /// Places zeros where the copying thread waits. All else that is told is kept.
    fn help(&self, told: &mut Vec<(usize, News)>) {
        let copied = self.copied();
        for (number, uffd) in copied.list.iter().filter(|(_, uffd)| uffd.is_readable()) {
            match uffd.read() {
                Some(News::Fault(fault)) if fault.by == copied.by => {
                    let page = fault.at..fault.at + PAGE as u64;
                    if uffd.zero(&page, &mut Interference::default()).1.is_err() {
                        // It looks again, and is told of again if it still waits.
                        let _ = uffd.wake(&page);
                    }
                }
                news => told.extend(news.map(|news| (*number, news))),
            }
        }
    }

    /// The life of the thread.
    pub fn serve(&self) {
        // It sleeps as long as it says: of 10 µs the kernel makes 60 else.
        // SAFETY: changes nothing but how exactly this thread is woken.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000_usize) };
        loop {
            let (mut polls, patience): (Vec<libc::pollfd>, Duration) = {
                let state = self.lock_to_serve();
                if state.stop {
                    return;
                }
                // By number. What is below 0 is passed over.
                let fds = state.served.iter().map(|s| s.as_ref().map_or(-1, |s| s.uffd.0.0));
                let polls = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
                let is_settled = state.served.iter().flatten().all(|s| s.told.is_empty());
                let patience = if state.waiting.is_empty() && is_settled { 20_000 } else { 100 };
                (polls.collect(), Duration::from_micros(patience))
            };
            // SAFETY: as many pollfds as are told. A descriptor closed meanwhile is told as such, or is
            // another's, of which no more than its number is used.
            unsafe {
                let patience = libc::timespec { tv_sec: 0, tv_nsec: patience.as_nanos() as i64 };
                libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, &patience, std::ptr::null())
            };
            let begun = Instant::now();
            let mut state = self.lock_to_serve();
            let before = state.moved.faults;
            for number in 0..state.served.len() {
                let Some(served) = &state.served[number] else { continue };
                let is_told = polls.get(number).is_some_and(|p| p.fd == served.uffd.0.0 && p.revents != 0);
                let is_open = !served.told.is_empty();
                if is_told || is_open || state.waiting.iter().any(|&(n, _)| n == number) {
                    state.attend(number);
                }
            }
            state.close_dead_now_and_then();
            if state.moved.faults > before {
                state.moved.serving += begun.elapsed();
            }
            if state.is_full() || state.starved || state.failed.is_some() {
                self.news.notify_one();
            }
        }
    }
}
