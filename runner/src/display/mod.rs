//! What `bdrun` itself shows: a live line while the job runs, a table or an object at its end.
//!
//! Everything goes to standard error, so that standard output is the ranks' alone. What is shown is behind
//! one trait, [`Output`]; [`new`] picks the kind. With `--output json` the object (that of `--stats`) is the
//! last line of standard error; scripts that want it apart from what ranks write there use `--stats FILE`.
//!
//! | file | what |
//! |---|---|
//! | `screen.rs` | the thread that shows it, so that nobody waits for whoever reads it |
//! | `patience.rs` | how long it may wait for its reader |
//! | `human.rs` | live line, messages, table |
//! | `progress.rs` | the text of the live line, and the time left |
//! | `curve.rs` | memory over time as text |
//! | `hint.rs` | what would have been better |
//! | `memory.rs` | what ranks were expected to need, and did |
//! | `table.rs` | the table, and which ranks are notable |
//! | `json.rs`, `quiet.rs` | the other kinds |

mod curve;
mod hint;
mod human;
mod json;
mod memory;
mod patience;
mod progress;
mod quiet;
mod screen;
mod table;

use std::io;
use std::os::fd::AsFd;

pub use curve::curve;
pub use human::Human;
pub use json::Json;
pub(crate) use patience::Patience;
pub use progress::{JobProgress, Snapshot};
pub use quiet::Quiet;
pub use screen::Screen;
pub(crate) use table::keep_notable;
pub use table::summary;

use crate::cli::OutputKind;
use crate::exit::Ending;
use crate::stats::Stats;

/// Where the master shows what it does. Errors of writing are ignored: a job does not end because nobody
/// looks.
pub trait Output: Send {
    /// The state of the job now; to be called a few times a second.
    fn progress(&mut self, snapshot: &Snapshot);

    /// Something the user should know while the job goes on, such as an overdraft. One sentence.
    fn note(&mut self, text: &str);

    /// Runs `write`, which writes ranks' lines to the terminal, with the live line out of the way.
    ///
    /// # Errors
    /// That of `write`.
    fn lines(&mut self, write: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        write()
    }

    /// The end: what happened, and why if it went wrong. Called once, last.
    fn finish(&mut self, stats: &Stats, ending: &Ending);
}

/// Standard error, also where somebody who shares it has made it non-blocking.
struct Stderr(io::Stderr);

impl io::Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
                    let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
                    let _ = poll(&mut fds, PollTimeout::NONE);
                }
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether something could be written there without waiting: somebody reads, or there is still room.
pub(crate) fn is_read(stream: impl AsFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// The output of this kind, on standard error. `verbose`: for people, more than a line.
#[must_use]
pub fn new(kind: OutputKind, verbose: bool) -> Box<dyn Output> {
    match kind {
        OutputKind::Human => Box::new(Human::stderr(verbose)),
        OutputKind::Json => Box::new(Json::new(Stderr(io::stderr()))),
        OutputKind::Quiet => Box::new(Quiet::new(Stderr(io::stderr()))),
    }
}

/// What went wrong and what to do about it, a line each; nothing if all went well.
#[must_use]
pub fn error_text(ending: &Ending) -> String {
    if ending.is_success() {
        return String::new();
    }
    let mut text = format!("bdrun: error: {ending}\n");
    if let Some(remedy) = ending.remedy() {
        text.push_str(&format!("bdrun: remedy: {remedy}\n"));
    }
    text
}
