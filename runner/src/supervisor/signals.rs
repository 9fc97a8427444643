//! Signals to the master become happenings.

use super::{Happening, Report, SuperviseError, sys};
use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle as Closer, Signals};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// How many listen, and whether the signals have their default effect because nobody does.
static LISTENERS: Mutex<(usize, Option<Arc<AtomicBool>>)> = Mutex::new((0, None));

/// The listening thread.
pub(super) struct Handle {
    closer: Closer,
    thread: JoinHandle<()>,
}

impl Handle {
    /// Stops listening. The signals have their default effect again.
    pub(super) fn stop(self) {
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
pub(super) fn start(report: Report) -> Result<Handle, SuperviseError> {
    let failed = |source| SuperviseError::Setup { what: "signal handlers", source };
    let mut wanted = vec![SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2];
    wanted.extend([SIGHUP, SIGTSTP].into_iter().filter(|&signal| !sys::is_ignored(signal)));
    let mut signals = Signals::new(&wanted).map_err(failed)?;
    let closer = signals.handle();
    listen(&wanted).map_err(failed)?;
    let thread = super::thread("bdrun-signals", move || {
        for signal in signals.forever() {
            report(Happening::Signal(signal));
        }
    })?;
    Ok(Handle { closer, thread })
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
