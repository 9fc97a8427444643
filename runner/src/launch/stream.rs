//! A list that is read while the job runs: parts begin before it ends, and no more of it is read than is
//! needed to have always some that could begin.

use std::fs::File;
use std::io::{self, BufReader, Seek, Stdin};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::awaited::Awaited;
use super::list::{Line, Reader};
use super::parts::PartsError;
use super::pipe::Splitter;

/// So many parts are known that were not begun, at most.
const AHEAD: usize = 4096;
/// So many blocks wait on scratch for their ranks, at most.
const BLOCKS: usize = 32;
/// So many are told at once, at most.
const BATCH: usize = 1024;

/// What of a list is not read yet.
#[derive(Debug)]
pub struct Rest(pub(super) Reader<BufReader<Awaited<Stdin>>>);

/// What was read of it.
#[derive(Debug)]
pub enum Came {
    /// These.
    Lines(Vec<Line>),
    /// The next block of `--pipe`.
    Block(File),
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
    /// None are read yet, and so many may be.
    fn new(open: usize) -> Arc<Self> {
        Arc::new(Self { open: Mutex::new(open), changed: Condvar::new() })
    }

    /// One that was read has begun.
    pub fn give(&self, count: usize) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) += count;
        self.changed.notify_one();
    }

    /// So many may be read, at least one, at most `most`.
    fn take(&self, most: usize) -> usize {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open =
            self.changed.wait_while(open, |open| *open == 0).unwrap_or_else(PoisonError::into_inner);
        let taken = (*open).min(most);
        *open -= taken;
        taken
    }
}

/// Cuts the rest of standard input into blocks.
#[derive(Debug)]
pub struct Pipe(pub(super) Splitter<BufReader<Stdin>>);

/// A thread that tells what it reads. It ends with what it reads, or with the process: nothing can wake it
/// while it waits for its input.
fn thread(
    open: usize,
    tell: impl Fn(Came) + Send + 'static,
    mut read: impl FnMut(&Window) -> Came + Send + 'static,
) -> io::Result<Arc<Window>> {
    let window = Window::new(open);
    let theirs = Arc::clone(&window);
    let thread = std::thread::Builder::new().name("bdrun-parts".into()).stack_size(128 << 10);
    thread.spawn(move || {
        let _ = nix::sys::signal::SigSet::all().thread_block();
        loop {
            let came = read(&theirs);
            let ends = matches!(came, Came::End(_));
            tell(came);
            if ends {
                break;
            }
        }
    })?;
    Ok(window)
}

impl Rest {
    /// Reads in a thread of its own.
    ///
    /// # Errors
    /// If there can be none.
    pub fn read(mut self, tell: impl Fn(Came) + Send + 'static) -> io::Result<Arc<Window>> {
        // What comes after the lines.
        let mut end = None;
        thread(AHEAD, tell, move |window| {
            if let Some(end) = end.take() {
                return Came::End(end);
            }
            let most = window.take(BATCH);
            let mut lines = Vec::new();
            while lines.len() < most && (lines.is_empty() || self.0.has_more()) {
                match self.0.next() {
                    Ok(Some(line)) => lines.push(line),
                    other => {
                        end = Some(other.err());
                        break;
                    }
                }
            }
            self.0.forget();
            window.give(most - lines.len());
            match end.take_if(|_| lines.is_empty()) {
                Some(end) => Came::End(end),
                None => Came::Lines(lines),
            }
        })
    }
}

impl Pipe {
    /// Reads in a thread of its own, into files that `make` makes.
    ///
    /// # Errors
    /// If there can be none.
    pub fn read(
        mut self,
        make: impl Fn() -> io::Result<File> + Send + 'static,
        tell: impl Fn(Came) + Send + 'static,
    ) -> io::Result<Arc<Window>> {
        let mut first = true;
        thread(BLOCKS, tell, move |window| {
            window.take(1);
            let read = |source| PartsError::Read { name: "standard input (--pipe)".into(), source };
            let scratch = |source| PartsError::Scratch { source };
            // If there is nothing at all there is one block of that, as there is one file that is empty.
            match self.0.has_more() {
                Ok(false) if !std::mem::take(&mut first) => return Came::End(None),
                Ok(_) => {}
                Err(source) => return Came::End(Some(read(source))),
            }
            first = false;
            let made = make().and_then(|mut file| {
                let read = self.0.next(&mut file)?;
                file.rewind()?;
                Ok(read.map(|()| file))
            });
            match made {
                Ok(Ok(file)) => Came::Block(file),
                Ok(Err(source)) => Came::End(Some(read(source))),
                Err(source) => Came::End(Some(scratch(source))),
            }
        })
    }
}
