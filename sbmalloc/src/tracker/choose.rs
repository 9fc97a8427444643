//! What `auto` does: by what the user said, what the kernel offers, and what things cost on this machine.
//!
//! The master measures once and hands the result to the ranks in `BDRUN_TRACKER`; a process without a master
//! measures at its first restore.

use super::uffd::Kernel;
use super::word::BLOCKS;
use crate::sys::{self, CHUNK, Errno, GRANULE, PAGE};
use std::ffi::CStr;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable in which a rank is told its tracker.
const VARIABLE: &CStr = c"BDRUN_TRACKER";

/// What tracking and hashing cost, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// To hash a block of 64 KiB.
    pub hash_block: u32,
    /// The first write to a protected page of 4 KiB.
    pub fault: u32,
    /// To protect and look up a granule of 2 MiB, and to split its huge page.
    pub granule: u32,
}

impl Costs {
    /// Whether tracking a granule costs less than hashing it, when so many of its blocks stay untouched and
    /// so many pages are written.
    pub(super) fn pays(&self, untouched: u64, pages: u64) -> bool {
        untouched * u64::from(self.hash_block) > pages * u64::from(self.fault) + u64::from(self.granule)
    }
}

/// A value of `BDRUN_TRACKER`: `auto`, `hash`, `uffd`, or `auto:H,F,G` with [`Costs`] in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackerChoice {
    /// To be measured.
    Auto,
    /// Track granules where it pays at these costs.
    Measured(Costs),
    /// Never track.
    Hash,
    /// Always track with [`TrackerKind::Uffd`](super::TrackerKind::Uffd).
    Uffd,
}

impl fmt::Display for TrackerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Hash => f.write_str("hash"),
            Self::Uffd => f.write_str("uffd"),
            Self::Measured(c) => write!(f, "auto:{},{},{}", c.hash_block, c.fault, c.granule),
        }
    }
}

impl FromStr for TrackerChoice {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(match text {
            "auto" => Self::Auto,
            "hash" => Self::Hash,
            "uffd" => Self::Uffd,
            _ => {
                let mut numbers = text.strip_prefix("auto:").ok_or(())?.split(',').map(|n| n.parse().ok());
                let mut next = || numbers.next().flatten().ok_or(());
                Self::Measured(Costs { hash_block: next()?, fault: next()?, granule: next()? })
            }
        })
    }
}

/// What the environment says; what cannot be understood counts as `auto`. Allocates nothing.
fn from_environment() -> TrackerChoice {
    // SAFETY: getenv reads the environment block; programs that change it while threads run are in breach
    // of `std::env::set_var`'s contract already.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if value.is_null() {
        return TrackerChoice::Auto;
    }
    // SAFETY: getenv returns a terminated string.
    let text = unsafe { CStr::from_ptr(value) }.to_str();
    text.ok().and_then(|t| t.parse().ok()).unwrap_or(TrackerChoice::Auto)
}

/// When a restored granule is to be tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Never,
    Always,
    IfItPays(Costs),
}

/// What [`TrackerKind::Auto`](super::TrackerKind::Auto) does in this process; decided at the first restore.
pub(super) fn when() -> When {
    static STATE: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
    const NEVER: u32 = 1;
    const ALWAYS: u32 = 2;
    const COSTS: u32 = 3;
    let value = |i: usize| STATE[i].load(Ordering::Relaxed);
    match STATE[0].load(Ordering::Acquire) {
        NEVER => When::Never,
        ALWAYS => When::Always,
        COSTS => When::IfItPays(Costs { hash_block: value(1), fault: value(2), granule: value(3) }),
        // Twice by two threads would only be twice the work; it is the pager, so there is one.
        _ => {
            let costs = match from_environment() {
                TrackerChoice::Hash => None,
                TrackerChoice::Uffd => {
                    STATE[0].store(ALWAYS, Ordering::Release);
                    return When::Always;
                }
                TrackerChoice::Measured(costs) => Some(costs),
                TrackerChoice::Auto => measure_trackers().ok(),
            };
            let Some(costs) = costs.filter(|c| c.pays(BLOCKS as u64, 0)) else {
                STATE[0].store(NEVER, Ordering::Release);
                return When::Never;
            };
            for (at, n) in STATE[1..].iter().zip([costs.hash_block, costs.fault, costs.granule]) {
                at.store(n, Ordering::Relaxed);
            }
            STATE[0].store(COSTS, Ordering::Release);
            When::IfItPays(costs)
        }
    }
}

/// Monotonic nanoseconds.
fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Memory that is unmapped on drop.
struct Probe(usize);
const PROBE: usize = 8 * GRANULE;

impl Drop for Probe {
    fn drop(&mut self) {
        sys::unmap(self.0, PROBE);
    }
}

/// Measures, in a few milliseconds and 16 MiB, what tracking and hashing cost here. Allocates nothing.
///
/// # Errors
/// The kernel's, if it cannot track (Linux before 6.7, or forbidden).
pub fn measure_trackers() -> Result<Costs, Errno> {
    let probe = Probe(sys::map_anon_aligned(PROBE, GRANULE)?);
    let at = probe.0;
    let _ = sys::advise(at, PROBE, libc::MADV_HUGEPAGE);
    // SAFETY: our own fresh mapping of this length, seen by nobody else.
    unsafe { std::ptr::write_bytes(at as *mut u8, 1, PROBE) };
    let mut best = Costs { hash_block: u32::MAX, fault: u32::MAX, granule: u32::MAX };
    let least = |best: &mut u32, ns: u64, per: usize| *best = (*best).min((ns / per as u64) as u32);
    // The least of a few: whatever disturbs a measurement makes it longer.
    for turn in 0..4 {
        let begin = now();
        for i in 0..PROBE / CHUNK {
            // SAFETY: inside the mapping; nobody writes it meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts((at + i * CHUNK) as *const u8, CHUNK) };
            std::hint::black_box(crate::checksum::of(bytes));
        }
        least(&mut best.hash_block, now() - begin, PROBE / CHUNK);
        let begin = now();
        Kernel::with(|kernel| kernel.protect(at, PROBE))?;
        let mut spent = now() - begin;
        // Each turn has a huge page of its own to split.
        let page = |i: usize| (at + turn * GRANULE + i * PAGE) as *mut u8;
        let begin = now();
        // SAFETY: inside the mapping.
        unsafe { page(0).write_volatile(2) };
        let middle = now();
        for i in 1..65 {
            // SAFETY: as above.
            unsafe { page(i).write_volatile(2) };
        }
        least(&mut best.fault, now() - middle, 64);
        let first = middle - begin;
        let begin = now();
        Kernel::with(|kernel| kernel.written(at, at + PROBE, |_, _| {}))?;
        spent += now() - begin;
        least(&mut best.granule, spent / 8 + first, 1);
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        let costs = Costs { hash_block: 2500, fault: 800, granule: 5000 };
        use TrackerChoice::*;
        for choice in [Auto, Hash, Uffd, Measured(costs)] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for wrong in ["", "Auto", "auto:1,2", "auto:1,2,x", "uffd2", "cow"] {
            assert_eq!(wrong.parse::<TrackerChoice>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn tracking_pays_where_little_is_written() {
        let costs = Costs { hash_block: 2500, fault: 800, granule: 5000 };
        assert!(costs.pays(32, 0) && costs.pays(22, 10));
        assert!(!costs.pays(0, 512) && !costs.pays(0, 32) && !costs.pays(2, 0));
    }

    #[test]
    fn measuring_works_or_says_why_not() {
        match measure_trackers() {
            Ok(costs) => assert!(costs.hash_block > 0 && costs.hash_block < 1_000_000, "{costs:?}"),
            Err(e) => bdrun_skipped::skipped("kernel", format!("no asynchronous write protection: {e}")),
        }
    }
}
