//! What one look at a rank finds, and what is told to the master.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Usage;

/// What a rank holds at one moment, the sum over its processes. All sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Anonymous memory in RAM. Pages that processes of the rank share after a `fork` are counted once, as
    /// far as was known at the last look that found out (at most a second ago, or longer where that look is
    /// dear).
    pub private: u64,
    /// Mapped shared memory in RAM; what several processes of the rank map is counted once, likewise.
    pub shared: u64,
    /// Mapped pages of files in RAM, of each process that maps them.
    pub file: u64,
    /// Anonymous memory in the kernel's own swap.
    pub swap: u64,
    /// Page tables.
    pub page_tables: u64,
    /// How many processes there are.
    pub processes: u32,
    /// How many threads they have together.
    pub threads: u32,
    /// Processor time in user mode and in the kernel, of all processes. Of children that have ended: all of
    /// it in a cgroup of version 2, else what their parents have waited for.
    pub cpu: Duration,
    /// The highest [`resident`](Self::resident) seen so far.
    pub peak: u64,
    /// The highest [`private`](Self::private) seen so far.
    pub peak_private: u64,
    /// The highest [`shared`](Self::shared) seen so far.
    pub peak_shared: u64,
    /// The highest [`unmanaged`](Self::unmanaged) seen so far.
    pub peak_unmanaged: u64,
    /// The highest [`file`](Self::file) seen so far.
    pub peak_file: u64,
    /// The most processes seen at one moment.
    pub peak_processes: u32,
    /// Bytes of the budget that it asked for and has: at least what of `private` it has by that.
    pub asked: u64,
    /// How often it has waited, if it tells, and waited all the time of the look.
    pub waits: Option<u64>,
}

impl Sample {
    /// What counts against the budget: private and shared memory and page tables, which nobody else can give
    /// back.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.private + self.shared + self.page_tables
    }

    /// What of that cannot be paged out.
    #[must_use]
    pub fn unmanaged(&self) -> u64 {
        self.shared + self.page_tables
    }

    /// The peak to report once the rank has ended: the highest sum seen, or the kernel's own high-water mark
    /// where that says more. It can only of a rank that has never been seen to be several processes, since it
    /// is that of the largest one; mapped files are taken off it. `floor` is what the master itself held at
    /// most ([`own_max_rss`]): the kernel begins to count there, so what is not above it says nothing of the
    /// rank.
    #[must_use]
    pub fn final_peak(&self, usage: &Usage, floor: u64) -> u64 {
        if self.is_seen_only(usage, floor) {
            return self.peak;
        }
        self.peak.max(usage.max_rss.saturating_sub(self.peak_file))
    }

    /// Whether that is only what looks saw: the kernel's own account says nothing, because it is not above
    /// `floor`, or because there were several processes.
    #[must_use]
    pub fn is_seen_only(&self, usage: &Usage, floor: u64) -> bool {
        self.peak_processes > 1 || usage.max_rss <= floor
    }

    /// Bytes that it did not ask for, of what can be paged or belongs to it alone; `fixed` bytes of each
    /// process are reckoned elsewhere. What it shares with others (the job's segment, messages) is not in it.
    #[must_use]
    pub fn not_asked_for(&self, fixed: u64) -> u64 {
        let fixed = fixed.saturating_mul(u64::from(self.processes.max(1)));
        (self.private + self.page_tables).saturating_sub(self.asked.saturating_add(fixed))
    }

    /// Raises the peaks to what is now.
    pub(super) fn note_peaks(&mut self) {
        self.peak = self.peak.max(self.resident());
        self.peak_private = self.peak_private.max(self.private);
        self.peak_shared = self.peak_shared.max(self.shared);
        self.peak_unmanaged = self.peak_unmanaged.max(self.unmanaged());
        self.peak_file = self.peak_file.max(self.file);
        self.peak_processes = self.peak_processes.max(self.processes);
    }
}

/// The highest resident set of this process so far, bytes.
#[must_use]
pub fn own_max_rss() -> u64 {
    use nix::sys::resource::{UsageWho, getrusage};
    let kibibytes = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss());
    u64::try_from(kibibytes).unwrap_or(0) << 10
}

/// One look at all watched ranks that are not out.
#[derive(Debug)]
pub struct Measured {
    /// When it was taken.
    pub taken: Instant,
    /// Since the look that was told before: the time in which what is told now has grown. Zero for the first.
    pub elapsed: Duration,
    /// The longest time from one look to the next since then.
    pub gap: Duration,
    /// Rank and what it holds.
    pub samples: Vec<(u32, Sample)>,
    /// Processors that the ranks used lately, or would have used if others had not: the mean of the last
    /// 50 ms or of the time between two looks, whichever is longer.
    pub busy: f64,
    /// To be dropped with it: the sampler sends nothing more as long as this lives, so that a master that is
    /// busy finds one message and not a hundred.
    pub sent: Sent,
}

/// Marks a message as on its way.
#[derive(Debug, Default)]
pub struct Sent(Arc<AtomicBool>);

impl Sent {
    /// None while the last one lives.
    pub(super) fn take(flag: &Arc<AtomicBool>) -> Option<Self> {
        (!flag.swap(true, Ordering::AcqRel)).then(|| Self(Arc::clone(flag)))
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
