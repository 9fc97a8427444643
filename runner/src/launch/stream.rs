//! A list that is read while the job runs: parts begin before it ends, and no more of it is read than is
//! needed to have always some that could begin.

use std::io::{BufReader, Stdin};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::list::{Line, Reader};
use super::parts::PartsError;

/// So many parts are known that were not begun, at most.
const AHEAD: usize = 4096;
/// So many are told at once, at most.
const BATCH: usize = 1024;

/// What of a list is not read yet.
#[derive(Debug)]
pub struct Rest(pub(super) Reader<BufReader<Stdin>>);

/// What was read of it.
#[derive(Debug)]
pub enum Came {
    /// These.
    Lines(Vec<Line>),
    /// That was all, or what is wrong with what follows.
    End(Option<PartsError>),
}

/// How many may still be read.
#[derive(Debug)]
pub struct Window {
    open: Mutex<usize>,
    changed: Condvar,
}

impl Window {
    /// None are read yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { open: Mutex::new(AHEAD), changed: Condvar::new() })
    }

    /// One that was read has begun.
    pub fn give(&self, count: usize) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) += count;
        self.changed.notify_one();
    }

    /// So many may be read, at least one, at most [`BATCH`].
    fn take(&self) -> usize {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open =
            self.changed.wait_while(open, |open| *open == 0).unwrap_or_else(PoisonError::into_inner);
        let taken = (*open).min(BATCH);
        *open -= taken;
        taken
    }
}

impl Rest {
    /// Reads in a thread of its own, which ends with the list, or with the process: nothing can wake it while
    /// it waits for a line.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn read(mut self, window: Arc<Window>, tell: impl Fn(Came) + Send + 'static) -> std::io::Result<()> {
        let thread = std::thread::Builder::new().name("bdrun-parts".into()).stack_size(128 << 10);
        thread.spawn(move || {
            let _ = nix::sys::signal::SigSet::all().thread_block();
            let end = loop {
                let most = window.take();
                let mut lines = Vec::new();
                let end = loop {
                    match self.0.next() {
                        Ok(Some(line)) => lines.push(line),
                        Ok(None) => break Some(None),
                        Err(error) => break Some(Some(error)),
                    }
                    if lines.len() == most || !self.0.has_more() {
                        break None;
                    }
                };
                self.0.forget();
                window.give(most - lines.len());
                if !lines.is_empty() {
                    tell(Came::Lines(lines));
                }
                if let Some(end) = end {
                    break end;
                }
            };
            tell(Came::End(end));
        })?;
        Ok(())
    }
}
