//! How long something that is shown may wait for whoever reads it.
//!
//! Time over counts only where nothing more can be written: time that the processors had for something else
//! is not the reader's.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often it is asked whether somebody reads.
const LOOK: Duration = Duration::from_millis(50);

/// Until when a reader is waited for, and how much longer while he reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub until: Instant,
    pub more: Duration,
}

impl Patience {
    /// When to look next, `until` being over or not; none: it is to be given up.
    pub fn next(&self, now: Instant, is_read: impl FnOnce() -> bool) -> Option<Instant> {
        if now < self.until {
            return Some(self.until);
        }
        (now - self.until < self.more && is_read()).then(|| now + LOOK)
    }

    /// What comes in that time.
    ///
    /// # Errors
    /// Nothing came, or nobody sends any more.
    pub fn receive<T>(&self, from: &Receiver<T>, is_read: impl Fn() -> bool) -> Result<T, RecvTimeoutError> {
        while let Some(next) = self.next(Instant::now(), &is_read) {
            match from.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                result => return result,
            }
        }
        from.try_recv().map_err(|_| RecvTimeoutError::Timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_late_though_somebody_reads_is_waited_for() {
        let (sender, receiver) = channel();
        let patience = Patience { until: Instant::now(), more: Duration::from_secs(60) };
        assert_eq!(patience.receive(&receiver, || false), Err(RecvTimeoutError::Timeout));
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            sender.send(7)
        });
        assert_eq!(patience.receive(&receiver, || true), Ok(7));
        late.join().unwrap().unwrap();
    }

    #[test]
    fn who_reads_is_waited_for_so_much_longer_and_no_more() {
        let until = Instant::now() + Duration::from_secs(10);
        let patience = Patience { until, more: Duration::from_secs(5) };
        let after = |secs| until + Duration::from_secs(secs);
        assert_eq!(patience.next(until - LOOK, || false), Some(until), "not asked before");
        assert_eq!(patience.next(after(0), || false), None);
        assert_eq!(patience.next(after(4), || true), Some(after(4) + LOOK));
        assert_eq!(patience.next(after(4), || false), None);
        assert_eq!(patience.next(after(5), || true), None);
    }
}
