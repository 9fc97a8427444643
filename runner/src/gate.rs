//! What must not be under way while the master stands, or must not begin.

use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

/// Deeds are done by several threads at once, or by none.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Whoever wants that none is done holds it, so that it is not passed by for ever.
    gate: Mutex<()>,
    going_on: RwLock<()>,
}

/// None is done while this is held.
pub(crate) struct Pause<'a>(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>);

impl Gate {
    /// Open.
    pub(crate) const fn new() -> Self {
        Self { gate: Mutex::new(()), going_on: RwLock::new(()) }
    }

    /// To be held while one is done.
    pub(crate) fn begin(&self) -> RwLockReadGuard<'_, ()> {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.going_on.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for those that are under way, and holds up the others. None if one takes longer than that.
    pub(crate) fn pause(&self, patience: Duration) -> Option<Pause<'_>> {
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
        let (gate, over) = (Gate::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // One or the other is always under way.
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(SeqCst) {
                        let _deed = gate.begin();
                        std::thread::sleep(Duration::from_millis(3));
                    }
                });
            }
            for _ in 0..20 {
                assert!(gate.pause(Duration::from_secs(60)).is_some());
            }
            over.store(true, SeqCst);
        });
        let deed = gate.begin();
        assert!(gate.pause(Duration::from_millis(5)).is_none());
        drop(deed);
        assert!(gate.pause(Duration::ZERO).is_some());
    }
}
