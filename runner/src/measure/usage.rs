//! What the kernel tells of a process at its end.

use std::time::Duration;

/// What a process used, from the kernel's accounting at its end (`wait4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The highest resident set of the process or of a child it waited for, bytes. The kernel carries over
    /// what the address space held before `exec`, so it is never less than what the master itself held then.
    pub max_rss: u64,
    /// Processor time in user mode.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
    /// Bytes read from storage, as the kernel counts them (512-byte blocks).
    pub read_bytes: u64,
    /// Bytes written to storage.
    pub written_bytes: u64,
    /// Times it gave the processor up by itself, and times it was taken away.
    pub switches: (u64, u64),
}

impl From<&libc::rusage> for Usage {
    fn from(raw: &libc::rusage) -> Self {
        let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
        let time = |t: libc::timeval| {
            Duration::from_secs(u64::try_from(t.tv_sec).unwrap_or(0))
                + Duration::from_micros(u64::try_from(t.tv_usec).unwrap_or(0))
        };
        Self {
            max_rss: count(raw.ru_maxrss).saturating_mul(1024),
            user: time(raw.ru_utime),
            system: time(raw.ru_stime),
            major_faults: count(raw.ru_majflt),
            minor_faults: count(raw.ru_minflt),
            read_bytes: count(raw.ru_inblock).saturating_mul(512),
            written_bytes: count(raw.ru_oublock).saturating_mul(512),
            switches: (count(raw.ru_nvcsw), count(raw.ru_nivcsw)),
        }
    }
}
