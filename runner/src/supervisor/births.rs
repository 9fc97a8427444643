//! While nobody may be born.

use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

/// Processes are made by several threads at once, or by none.
#[derive(Default)]
pub(super) struct Births {
    /// Whoever wants that none is made holds it, so that it is not passed by for ever.
    gate: Mutex<()>,
    going_on: RwLock<()>,
}

/// No process is made while this is held.
pub(super) struct Pause<'a>(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>);

impl Births {
    /// To be held from before a process is made until others know of it.
    pub(super) fn begin(&self) -> RwLockReadGuard<'_, ()> {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.going_on.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for those that are being made, and holds up the others. None if one takes longer than that:
    /// it hangs in its `exec`.
    pub(super) fn pause(&self, patience: Duration) -> Option<Pause<'_>> {
        let deadline = Instant::now() + patience;
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match self.going_on.try_write() {
                Ok(none) => return Some(Pause(none)),
                Err(TryLockError::Poisoned(none)) => return Some(Pause(none.into_inner())),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn a_pause_waits_for_those_under_way_and_is_not_passed_by() {
        let (births, over) = (Births::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // One or the other is always making somebody.
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(SeqCst) {
                        let _birth = births.begin();
                        std::thread::sleep(Duration::from_millis(3));
                    }
                });
            }
            for _ in 0..20 {
                assert!(births.pause(Duration::from_secs(60)).is_some());
            }
            over.store(true, SeqCst);
        });
        let birth = births.begin();
        assert!(births.pause(Duration::from_millis(5)).is_none());
        drop(birth);
        assert!(births.pause(Duration::ZERO).is_some());
    }
}
