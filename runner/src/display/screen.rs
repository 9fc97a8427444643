//! What the master shows, on a thread of its own: whoever has something to show never waits for whoever reads
//! it.
//!
//! Of the states of the job only the last is kept, of notes a bounded number; how many more there were is
//! said. What is shown last may be given up after a time if nobody reads it: not if only the processors were
//! busy with something else.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Output, Patience, Snapshot};
use crate::exit::Ending;
use crate::stats::Stats;

/// Notes that may wait to be read.
const MOST_NOTES: usize = 1000;

/// So long it may take although somebody reads: a machine on which far more runs than it has processors.
const STARVED: Duration = Duration::from_secs(30);

/// What is still to be shown.
#[derive(Default)]
struct Waiting {
    snapshot: Option<Snapshot>,
    notes: VecDeque<String>,
    /// Notes that found no room.
    dropped: u64,
    last: Option<Box<(Stats, Ending)>>,
    /// The last was shown.
    done: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.notes.is_empty() && self.dropped == 0 && self.last.is_none()
    }
}

struct Shared {
    waiting: Mutex<Waiting>,
    bell: Condvar,
    done: Condvar,
    /// Held while something is written there; by nobody who may not wait.
    output: Mutex<Box<dyn Output>>,
    is_read: fn() -> bool,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An [`Output`] with a thread.
#[derive(Clone)]
pub struct Screen(Arc<Shared>);

impl Screen {
    /// Starts the thread. `is_read`: whether whoever reads there would take more.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(output: Box<dyn Output>, is_read: fn() -> bool) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            is_read,
            waiting: Mutex::default(),
            bell: Condvar::new(),
            done: Condvar::new(),
            output: Mutex::new(output),
        });
        let its = Arc::clone(&shared);
        std::thread::Builder::new().name("bdrun-display".into()).spawn(move || {
            // They are for the thread that listens for them.
            let _ = nix::sys::signal::SigSet::all().thread_block();
            while its.turn() {}
        })?;
        Ok(Self(shared))
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut lock(&self.0.waiting));
        self.0.bell.notify_one();
    }

    /// The state of the job now. Shown unless a newer one comes before.
    pub fn progress(&self, snapshot: Snapshot) {
        self.change(|waiting| waiting.snapshot = Some(snapshot));
    }

    /// Something the user should know while the job goes on. One sentence.
    pub fn note(&self, text: &str) {
        self.change(|waiting| {
            if waiting.notes.len() < MOST_NOTES {
                waiting.notes.push_back(text.to_owned());
            } else {
                waiting.dropped += 1;
            }
        });
    }

    /// Runs `write`, which writes ranks' lines to the same place, with the live line out of the way. Waits
    /// for the place.
    pub fn lines(&self, write: &mut dyn FnMut()) {
        // Writing itself reports its errors.
        let _ = lock(&self.0.output).lines(&mut || {
            write();
            Ok(())
        });
    }

    /// The end: what happened, and why if it went wrong. Once, last. False if it is not shown by then, and
    /// nobody reads; without a time this waits for ever.
    pub fn finish(&self, stats: Stats, ending: Ending, until: Option<Instant>) -> bool {
        self.change(|waiting| waiting.last = Some(Box::new((stats, ending))));
        let patience = until.map(|until| Patience { until, more: STARVED });
        let mut waiting = lock(&self.0.waiting);
        while !waiting.done {
            waiting = match patience {
                None => self.0.done.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let now = Instant::now();
                    let Some(next) = patience.next(now, self.0.is_read) else { return false };
                    let woken = self.0.done.wait_timeout(waiting, next - now);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }
}

impl Shared {
    /// Shows what there is. False after the last.
    fn turn(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        while waiting.is_empty() {
            waiting = self.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let Waiting { snapshot, notes, dropped, last, .. } = std::mem::take(&mut *waiting);
        drop(waiting);
        let mut output = lock(&self.output);
        notes.iter().for_each(|note| output.note(note));
        if dropped > 0 {
            output.note(&format!("{dropped} more notes are left out, because nobody has read these"));
        }
        if let Some(last) = last {
            let (stats, ending) = *last;
            output.finish(&stats, &ending);
            lock(&self.waiting).done = true;
            self.done.notify_all();
            return false;
        }
        if let Some(snapshot) = snapshot {
            output.progress(&snapshot);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// Waits for the reader before each word.
    struct Slow {
        read: Receiver<()>,
        shown: Sender<String>,
    }

    impl Slow {
        fn show(&self, text: String) {
            let _ = self.shown.send(text);
            let _ = self.read.recv();
        }
    }

    impl Output for Slow {
        fn progress(&mut self, snapshot: &Snapshot) {
            self.show(format!("progress {}", snapshot.done));
        }

        fn note(&mut self, text: &str) {
            self.show(text.to_owned());
        }

        fn finish(&mut self, _stats: &Stats, ending: &Ending) {
            self.show(format!("end {}", ending.code()));
        }
    }

    fn slow() -> (Screen, Sender<()>, Receiver<String>) {
        let ((reader, read), (shown, shows)) = (channel(), channel());
        (Screen::start(Box::new(Slow { read, shown }), || false).unwrap(), reader, shows)
    }

    #[test]
    fn nobody_waits_for_a_reader_and_what_is_left_out_is_counted() {
        let (screen, reader, shows) = slow();
        screen.note("first");
        assert_eq!(shows.recv().unwrap(), "first");
        for number in 0..MOST_NOTES + 7 {
            screen.note(&format!("note {number}"));
            screen.progress(Snapshot { done: number as u32, ..Snapshot::default() });
        }
        reader.send(()).unwrap();
        for number in 0..MOST_NOTES {
            assert_eq!(shows.recv().unwrap(), format!("note {number}"));
            reader.send(()).unwrap();
        }
        assert!(shows.recv().unwrap().starts_with("7 more notes are left out"));
        reader.send(()).unwrap();
        assert_eq!(shows.recv().unwrap(), format!("progress {}", MOST_NOTES + 6), "the last state only");
        reader.send(()).unwrap();
        reader.send(()).unwrap();
        assert!(screen.finish(Stats::default(), Ending::Internal("x".into()), None));
        assert_eq!(shows.recv().unwrap(), "end 125");
    }

    #[test]
    fn the_end_is_given_up_after_a_time() {
        let (screen, reader, shows) = slow();
        screen.note("unread");
        assert_eq!(shows.recv().unwrap(), "unread");
        let until = Instant::now() + Duration::from_millis(20);
        assert!(!screen.finish(Stats::default(), Ending::Success, Some(until)));
        drop(reader);
    }

    /// Shows nothing for a while, as on a machine that does something else.
    struct Late;

    impl Output for Late {
        fn progress(&mut self, _snapshot: &Snapshot) {}

        fn note(&mut self, _text: &str) {}

        fn finish(&mut self, _stats: &Stats, _ending: &Ending) {
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    #[test]
    fn the_end_is_not_given_up_while_somebody_reads() {
        let screen = Screen::start(Box::new(Late), || true).unwrap();
        assert!(screen.finish(Stats::default(), Ending::Success, Some(Instant::now())));
    }
}
