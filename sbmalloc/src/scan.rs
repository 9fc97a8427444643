//! `PAGEMAP_SCAN` (Linux 6.7): the kernel's list of the pages of some kinds, which passes over all others.

use crate::sys::{Errno, Fd};

/// The page was written since it was last write-protected.
pub(crate) const WRITTEN: u64 = 1 << 1;
/// The page belongs to a file, or is shared.
pub(crate) const OF_FILE: u64 = 1 << 2;
pub(crate) const IN_RAM: u64 = 1 << 3;
pub(crate) const SWAPPED: u64 = 1 << 4;
/// The page stands for memory never written.
pub(crate) const ZERO_PAGE: u64 = 1 << 5;
pub(crate) const HUGE: u64 = 1 << 6;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// Which pages are listed, and what is told of them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Query {
    /// Kinds whose absence is meant in `all_of` and `any_of`.
    pub inverted: u64,
    pub all_of: u64,
    /// 0: no matter.
    pub any_of: u64,
    pub report: u64,
}

/// A stretch of adjacent pages that are alike: from, to, and the kinds reported (`struct page_region`).
pub(crate) type Region = [u64; 3];

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    report: u64,
}

/// Why a scan ended early.
pub(crate) enum ScanError<E> {
    /// Not a call this kernel knows; nothing was reported.
    Unknown,
    /// It failed at an address.
    At(usize, Errno),
    /// The error of the caller's function.
    Caller(E),
}

/// Calls `f` with each stretch in `[start, end)`, ascending. `buffer` takes those that are found in one call.
pub(crate) fn each<E>(
    pagemap: &Fd,
    buffer: &mut [Region],
    [start, end]: [usize; 2],
    query: Query,
    mut f: impl FnMut(Region) -> Result<(), E>,
) -> Result<(), ScanError<E>> {
    let Query { inverted, all_of, any_of, report } = query;
    let mut at = start as u64;
    while at < end as u64 {
        let mut argument = Argument {
            size: size_of::<Argument>() as u64,
            start: at,
            end: end as u64,
            regions: buffer.as_mut_ptr() as u64,
            regions_len: buffer.len() as u64,
            inverted,
            all_of,
            any_of,
            report,
            ..Argument::default()
        };
        // SAFETY: the kernel writes the argument, and at most `regions_len` regions into the buffer.
        let n = unsafe { libc::ioctl(pagemap.0, PAGEMAP_SCAN as libc::Ioctl, &raw mut argument) };
        if n < 0 {
            match Errno::last() {
                Errno(libc::EINTR) => continue,
                Errno(libc::ENOTTY | libc::EINVAL) if at == start as u64 => return Err(ScanError::Unknown),
                e => return Err(ScanError::At(at as usize, e)),
            }
        }
        for region in buffer.iter().take(n as usize) {
            f(*region).map_err(ScanError::Caller)?;
        }
        if argument.walk_end <= at {
            return Err(ScanError::At(at as usize, Errno(libc::EIO)));
        }
        at = argument.walk_end;
    }
    Ok(())
}
