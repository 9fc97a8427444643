//! Open files of the master: how many ranks take, what the limit lets live at once, what may stay open.
//!
//! | what | how many |
//! |---|---|
//! | a rank that lives | [`LIVING`]: the pipes of its two streams, its process, its control socket |
//! | a rank that is held or out | 3 (its process, its memory, the list of its pages) and a file in each scratch directory |
//! | a rank that is measured | up to [`MEASURED`] files of `/proc` and of its cgroup that are read again and again; opened for each look where they cannot stay open ([`Spare`]) |
//! | the job | [`FIXED`]: threads, journals, who looks at it, what is open for a moment |
//!
//! A rank that has not begun, or has ended, takes none; while nobody reads the output, the pipes of as many
//! as [`FIXED`] has room for wait.

use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Set aside for what does not grow with the ranks. Their socket has a number below it.
pub const FIXED: u64 = 256;
/// What each rank takes while it lives.
pub const LIVING: u64 = 4;
/// Files that stay open to measure a rank of one process, if they can.
pub const MEASURED: u64 = 3;
/// What a rank takes that is held, beside its scratch files.
const HELD: u64 = 3;

/// What a job will open files for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Number of ranks.
    pub ranks: u32,
    /// So many of them must live at once.
    pub least: u32,
    /// They ask for memory, and move out by themselves, as a rule.
    pub native: bool,
    /// Number of scratch directories.
    pub scratch: u32,
}

/// What a limit permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// So many ranks live at once.
    pub alive: u32,
    /// So many files may stay open although they could be opened for each use.
    pub spare: usize,
}

/// The limit does not do for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    demand: Demand,
    hard: u64,
    /// The most that any process may have.
    most: u64,
}

impl Demand {
    /// The least that it takes.
    #[must_use]
    pub fn needed(&self) -> u64 {
        FIXED + self.each() * u64::from(self.least)
    }

    /// What it can make use of.
    #[must_use]
    pub fn wished(&self) -> u64 {
        FIXED + (LIVING + self.held() + MEASURED) * u64::from(self.ranks)
    }

    fn held(&self) -> u64 {
        HELD + u64::from(self.scratch)
    }

    /// What is set aside for each that lives. Where one that moves by itself is to be held all the same, and
    /// nothing is left for that, it is tried again later. Of others many may be out, and nothing else would
    /// make room.
    fn each(&self) -> u64 {
        if self.native { LIVING } else { LIVING + self.held() + MEASURED }
    }

    /// What a limit permits; nothing if it is too low.
    fn within(&self, limit: u64) -> Option<Fit> {
        let left = limit.checked_sub(FIXED)?;
        let fit = left / self.each();
        let alive = self.ranks.min(u32::try_from(fit).unwrap_or(u32::MAX));
        if alive < self.least {
            return None;
        }
        let measured = if self.native { 0 } else { MEASURED * u64::from(alive) };
        let rest = left - self.each() * u64::from(alive);
        // The other half is for ranks that are held.
        Some(Fit { alive, spare: usize::try_from(measured + rest / 2).unwrap_or(usize::MAX) })
    }

    /// To what a hard limit is raised, where that is allowed: as far as is of use and the kernel lets any
    /// process go.
    fn raised(&self, hard: u64, most: u64) -> Option<u64> {
        Some(self.wished().min(most)).filter(|&wanted| wanted > hard)
    }
}

impl std::fmt::Display for Lack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { demand, hard, most } = *self;
        let needed = demand.needed();
        let fits = hard.saturating_sub(FIXED) / demand.each();
        match demand.least {
            0 | 1 => write!(f, "bdrun and a rank take {needed} open files")?,
            ranks => write!(f, "{ranks} ranks that live at once take {needed} open files")?,
        }
        write!(f, ", and the hard limit here is {hard} (ulimit -Hn)")?;
        if fits > 0 {
            write!(f, ", which does for {fits} of them")?;
        }
        write!(
            f,
            ": nothing was started. Raise it to {needed} (as root: ulimit -n {needed}; of a service LimitNOFILE={needed}; of a container \
             --ulimit nofile={needed})"
        )?;
        if needed > most {
            write!(f, ", for which the kernel's own limit must be higher too (sysctl fs.nr_open={needed})")?;
        }
        if fits > 0 {
            write!(f, ", or run with {} {fits} or fewer", if demand.native { "-np" } else { "-j" })?;
        }
        Ok(())
    }
}

/// What ranks are given back: the limit as it was before anybody raised it.
pub(crate) fn original() -> libc::rlimit {
    static ORIGINAL: OnceLock<libc::rlimit> = OnceLock::new();
    *ORIGINAL.get_or_init(now)
}

fn now() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a pointer to a local, valid for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

fn set(soft: u64, hard: u64) -> bool {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: reads a local.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 }
}

/// Raises the soft limit to the hard one, which is set.
pub(crate) fn raise_soft() {
    original();
    let hard = now().rlim_max;
    set(hard, hard);
}

/// Raises the limits as far as the job has use for it and it is allowed, and tells what they permit. Ranks
/// are not given the higher ones (a program that uses `select` fails with numbers from 1024 on).
///
/// # Errors
/// If they do not do for the job.
pub fn provide(demand: Demand) -> Result<Fit, Lack> {
    /// Where it cannot be read: the kernel's default.
    const MOST: u64 = 1 << 20;
    raise_soft();
    let text = std::fs::read_to_string("/proc/sys/fs/nr_open").unwrap_or_default();
    let most = text.trim().parse().unwrap_or(MOST);
    if let Some(hard) = demand.raised(now().rlim_max, most) {
        // Where it is not allowed, what there is has to do.
        set(hard, hard);
    }
    let hard = now().rlim_cur;
    demand.within(hard).ok_or(Lack { demand, hard, most })
}

/// How many more files may stay open that are read again and again.
#[derive(Clone, Debug)]
pub struct Spare(Arc<AtomicUsize>);

impl Spare {
    /// So many.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(count)))
    }

    /// The file stays open if there is room for it.
    pub fn keep(&self, file: File) -> Option<Kept> {
        let taken = self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        taken.then(|| Kept { file, spare: self.clone() })
    }
}

/// A file that stays open until this is dropped.
#[derive(Debug)]
pub struct Kept {
    file: File,
    spare: Spare,
}

impl Deref for Kept {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The file is closed a moment after this: FIXED has room for it.
        self.spare.0.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NATIVE: Demand = Demand { ranks: 4096, least: 4096, native: true, scratch: 1 };
    const STRANGERS: Demand = Demand { ranks: 100_000, least: 1, native: false, scratch: 2 };

    #[test]
    fn four_thousand_ranks_that_live_together_fit_into_twenty_thousand() {
        assert_eq!(NATIVE.needed(), FIXED + 4 * 4096);
        let fit = NATIVE.within(20_000).unwrap();
        assert_eq!(fit.alive, 4096);
        let most = NATIVE.needed() + fit.spare as u64;
        assert!(most <= 4096 * 9 / 2, "{most}: 4.5 for each");
        // To the last one.
        assert_eq!(NATIVE.within(NATIVE.needed()), Some(Fit { alive: 4096, spare: 0 }));
        assert_eq!(NATIVE.within(NATIVE.needed() - 1), None);
        assert_eq!(NATIVE.within(0), None);
        assert!(NATIVE.within(u64::MAX).unwrap().spare > 1 << 30);
    }

    #[test]
    fn of_ranks_that_need_not_each_other_as_many_live_as_fit() {
        // Each may be out, with two scratch files, and be measured.
        let each = LIVING + 5 + MEASURED;
        assert_eq!(STRANGERS.within(FIXED + 10 * each), Some(Fit { alive: 10, spare: 30 }));
        assert_eq!(STRANGERS.within(FIXED + 11 * each - 1), Some(Fit { alive: 10, spare: 30 + 5 }));
        assert_eq!(STRANGERS.within(FIXED + each - 1), None);
        let few = Demand { ranks: 2, ..STRANGERS };
        assert_eq!(few.within(FIXED + 10 * each).unwrap().alive, 2);
        // -j 11
        assert_eq!(Demand { least: 11, ..STRANGERS }.within(FIXED + 10 * each), None);
    }

    #[test]
    fn the_hard_limit_is_raised_only_where_that_is_of_use() {
        let wished = NATIVE.wished();
        assert!(wished > NATIVE.needed());
        assert_eq!(NATIVE.raised(20_000, 1 << 20), Some(wished));
        assert_eq!(NATIVE.raised(wished, 1 << 20), None);
        assert_eq!(NATIVE.raised(20_000, 30_000), Some(30_000), "the kernel lets nobody have more");
        assert_eq!(NATIVE.raised(1 << 20, 1 << 20), None);
        assert_eq!(NATIVE.raised(u64::MAX, 1 << 20), None, "never lowered");
    }

    #[test]
    fn what_lacks_is_said_with_the_remedy() {
        let said = |demand: Demand, hard, most| Lack { demand, hard, most }.to_string();
        let text = said(NATIVE, 4_000, 1 << 20);
        for words in
            ["4096 ranks", "take 16640 open files", "is 4000", "does for 936 of them", "ulimit -n 16640"]
        {
            assert!(text.contains(words), "{text}");
        }
        assert!(text.contains("-np 936") && !text.contains("sysctl"), "{text}");
        assert!(said(NATIVE, 4_000, 10_000).contains("sysctl fs.nr_open=16640"));
        let text = said(STRANGERS, 64, 1 << 20);
        assert!(text.starts_with("bdrun and a rank take 268 open files") && !text.contains("-j"), "{text}");
        assert!(said(Demand { least: 11, ..STRANGERS }, 300, 1 << 20).contains("-j 3 or fewer"));
    }

    #[test]
    fn so_many_stay_open_and_no_more() {
        let spare = Spare::new(1);
        let open = || File::open("/dev/null").unwrap();
        let kept = spare.keep(open()).unwrap();
        assert!(spare.keep(open()).is_none());
        assert!(kept.metadata().is_ok());
        drop(kept);
        assert!(spare.keep(open()).is_some());
    }

    #[test]
    fn ranks_are_given_back_what_there_was() {
        let before = original();
        raise_soft();
        let after = now();
        assert_eq!(after.rlim_cur, after.rlim_max);
        assert_eq!((original().rlim_cur, original().rlim_max), (before.rlim_cur, before.rlim_max));
    }
}
