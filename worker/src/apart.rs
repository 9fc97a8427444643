//! Two ranks on one processor while there is one for each: who answers the other can only do so once that
//! sleeps, and so both sleep before every answer, and are never both runnable, which is what the kernel would
//! part them for. 14 µs for a message instead of 0.12, for as long as nothing else disturbs them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bdrun_ipc::segment::{Segment, monotonic_ns};

/// A rank goes elsewhere at most once in this time, nanoseconds: other programs may want it back.
const REST: u64 = 2_000_000;

/// The calling thread's processor.
fn here() -> Option<usize> {
    // SAFETY: no memory of ours is involved.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// By a rank that has looked in vain and is about to sleep: says where it is, and goes to another processor
/// if a rank with a lower number was last seen here. (Of two one only, or they would meet again.)
#[cold]
pub(crate) fn part(segment: &Segment, rank: u32) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let Some(here) = here() else { return };
    let said = |rank: u32| &segment.rank(rank).processor;
    said(rank).store(here as u32 + 1, Relaxed);
    if !(0..rank).any(|other| said(other).load(Relaxed) == here as u32 + 1) {
        return;
    }
    let now = monotonic_ns();
    if now.saturating_sub(LAST.load(Relaxed)) < REST {
        return;
    }
    LAST.store(now, Relaxed);
    if let Some(there) = leave(here) {
        said(rank).store(there as u32 + 1, Relaxed);
    }
}

/// Goes to another processor of those that the calling thread may use; where it is now. It may use the same
/// ones afterwards.
fn leave(here: usize) -> Option<usize> {
    // SAFETY: a set of bits, for which zeros are a value.
    let mut may: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of_val(&may);
    // Where there may be more processors than a set has bits, the kernel says nothing of them.
    // SAFETY: the kernel writes that many bytes.
    if here >= 8 * size || unsafe { libc::sched_getaffinity(0, size, &raw mut may) } != 0 {
        return None;
    }
    let mut others = may;
    // SAFETY: the number is below the set's size.
    unsafe { libc::CPU_CLR(here, &mut others) };
    // SAFETY: as above.
    if unsafe { libc::CPU_COUNT(&others) } == 0 {
        return None;
    }
    // SAFETY: the kernel reads that many bytes. It has moved the thread when this returns.
    let moved = unsafe { libc::sched_setaffinity(0, size, &raw const others) } == 0;
    let there = self::here();
    // SAFETY: as above. What the program had said of its thread holds again.
    moved.then(|| unsafe { libc::sched_setaffinity(0, size, &raw const may) });
    there.filter(|_| moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::available_parallelism;

    fn affinity() -> Vec<usize> {
        // SAFETY: as in `leave`.
        let mut may: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: as in `leave`.
        assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&may), &raw mut may) }, 0);
        // SAFETY: within the set.
        (0..1024).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &may) }).collect()
    }

    /// The kernel may move the thread at any moment: so several times.
    #[test]
    fn of_two_on_one_processor_one_goes() {
        if available_parallelism().is_ok_and(|processors| processors.get() < 2) {
            bdrun_skipped::skipped("processors", "there is one processor");
            return;
        }
        let segment = Segment::create(2, 1 << 24, 1 << 20, 2).unwrap();
        let before = affinity();
        let parted = (0..50).any(|_| {
            let here = here().unwrap() as u32 + 1;
            segment.rank(0).processor.store(here, Relaxed);
            std::thread::sleep(std::time::Duration::from_nanos(2 * REST));
            part(&segment, 1);
            segment.rank(1).processor.load(Relaxed) != here
        });
        assert!(parted);
        part(&segment, 0);
        assert_eq!(affinity(), before);
    }

    #[test]
    fn who_may_use_one_processor_only_stays_there() {
        let worker = || {
            let here = here().unwrap();
            // SAFETY: as in `leave`.
            let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: within the set.
            unsafe { libc::CPU_SET(here, &mut one) };
            // SAFETY: as in `leave`.
            assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(&one), &raw const one) }, 0);
            assert_eq!(leave(here), None);
            assert_eq!(affinity(), [here]);
        };
        std::thread::spawn(worker).join().unwrap();
    }

    #[test]
    fn of_a_processor_beyond_the_set_nobody_goes() {
        for here in [8 * size_of::<libc::cpu_set_t>(), usize::MAX] {
            assert_eq!(leave(here), None);
        }
    }
}
