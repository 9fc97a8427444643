//! Signals to the master become happenings.

use super::{Happening, Report, SuperviseError, sys};
use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle as Closer, Signals};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many listen, and whether the signals have their default effect because nobody does.
static LISTENERS: Mutex<(usize, Option<Arc<AtomicBool>>)> = Mutex::new((0, None));

/// After the end of a job its summary and `--stats` are still to be written, and scratch to be removed: who
/// asks for an end meanwhile waits so long, and not for ever, as nobody may read what is written.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Which signals to the master are reported: SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGTSTP, SIGUSR1, SIGUSR2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Catch {
    /// None; their handling is left alone.
    #[default]
    None,
    /// Those that arrive while there is a [`Supervisor`](super::Supervisor). Then they have their default
    /// effect.
    Running,
    /// The same, but afterwards those that end a process do so only after two seconds, and others nothing.
    UntilExit,
}

/// Ended children wait until they are reaped. Whoever has started us may ignore SIGCHLD, which is inherited:
/// then the kernel would reap them, nobody would hear how they ended, and their numbers would be others'
/// while we still send them signals. To be called before any child is made.
pub fn keep_ended_children() {
    sys::set_default(libc::SIGCHLD);
}

/// What is too large for `ulimit -f` is an error that is told: without this it would end us without a word.
/// (Ranks begin with none of what is ignored here.)
pub fn outlive_file_limit() {
    sys::ignore(libc::SIGXFSZ);
}

/// The listening thread.
pub(super) struct Handle {
    closer: Closer,
    thread: JoinHandle<()>,
    /// With [`Catch::UntilExit`]: nobody is told any more.
    ended: Option<Arc<AtomicBool>>,
}

impl Handle {
    /// Stops reporting. The signals have their default effect again, at once or [late](Catch::UntilExit).
    pub(super) fn stop(self) {
        if let Some(ended) = self.ended {
            return ended.store(true, Ordering::SeqCst);
        }
        self.closer.close();
        let _ = self.thread.join();
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.0 -= 1;
        if let (0, Some(default)) = &*listeners {
            default.store(true, Ordering::SeqCst);
        }
    }
}

/// Starts listening. SIGHUP (`nohup`) and SIGTSTP stay ignored if they were; SIGINT does not, although shells
/// without job control ignore it for what they start in the background: who sends it means it.
pub(super) fn start(report: Report, catch: Catch) -> Result<Handle, SuperviseError> {
    let failed = |source| SuperviseError::Setup { what: "signal handlers", source };
    let mut wanted = vec![SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2];
    wanted.extend([SIGHUP, SIGTSTP].into_iter().filter(|&signal| !sys::is_ignored(signal)));
    let mut signals = Signals::new(&wanted).map_err(failed)?;
    let closer = signals.handle();
    listen(&wanted).map_err(failed)?;
    let ended = Arc::new(AtomicBool::new(false));
    let until_exit = (catch == Catch::UntilExit).then(|| Arc::clone(&ended));
    let thread = super::thread("bdrun-signals", move || {
        for signal in signals.forever() {
            if !ended.load(Ordering::SeqCst) {
                report(Happening::Signal(signal));
            } else if [SIGINT, SIGTERM, SIGQUIT, SIGHUP].contains(&signal) {
                std::thread::sleep(LAST_WORDS);
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        }
    })?;
    Ok(Handle { closer, thread, ended: until_exit })
}

/// Counts one more listener. The handlers stay for ever; what they do when nobody listens is registered once.
fn listen(wanted: &[i32]) -> io::Result<()> {
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    let default = match &listeners.1 {
        Some(default) => Arc::clone(default),
        None => {
            let default = Arc::new(AtomicBool::new(false));
            for &signal in wanted {
                signal_hook::flag::register_conditional_default(signal, Arc::clone(&default))?;
            }
            listeners.1 = Some(Arc::clone(&default));
            default
        }
    };
    default.store(false, Ordering::SeqCst);
    listeners.0 += 1;
    Ok(())
}
