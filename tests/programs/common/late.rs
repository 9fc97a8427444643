//! How late anybody gets a processor on this machine, while something else is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So often is looked.
const NAP: Duration = Duration::from_millis(1);

/// A thread that sleeps and sees how late it is woken. Whoever acts in time may come so late as well, and
/// what a rank takes until then is nobody's fault.
pub struct Lateness {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Lateness {
    pub fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let thread = std::thread::spawn(move || {
            let mut latest = Duration::ZERO;
            while !seen.load(Relaxed) {
                let begin = Instant::now();
                std::thread::sleep(NAP);
                latest = latest.max(begin.elapsed().saturating_sub(NAP));
            }
            latest
        });
        Self { over, thread }
    }

    /// The latest of all.
    pub fn most(self) -> Duration {
        self.over.store(true, Relaxed);
        self.thread.join().expect("it only sleeps")
    }

    /// The same as bytes that one thread can take meanwhile: 2 GiB/s (residency/README.md).
    pub fn bytes(self) -> u64 {
        (self.most().as_secs_f64() * (2_u64 << 30) as f64) as u64
    }
}
