//! Which pages are there, from `/proc/thread-self/pagemap`: entry by entry, or by `PAGEMAP_SCAN` (Linux 6.7),
//! which passes over what is absent, so that looking at much that is out costs next to nothing.

use super::PagerError;
use crate::scan::{self, Query, ScanError};
use crate::sys::{Errno, Fd, PAGE};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// One entry of the pagemap.
#[derive(Clone, Copy)]
pub(super) struct Page(u64);

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The page belongs to a file (or is shared): not a private copy.
const OF_FILE: u64 = 1 << 61;

impl Page {
    /// In RAM or in swap.
    pub fn is_there(self) -> bool {
        self.0 & (PRESENT | SWAPPED) != 0
    }

    pub fn is_in_ram(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// Written by somebody: memory of our own, not a page of the mapped file.
    pub fn is_private(self) -> bool {
        self.is_there() && self.0 & OF_FILE == 0
    }
}

/// Pages looked up at a time: 16 MiB of memory, 32 KiB of buffer.
pub(super) const WINDOW: usize = 4096;
pub(super) type Window = [u64; WINDOW];

/// The kernel does not know `PAGEMAP_SCAN`.
static NO_SCAN: AtomicBool = AtomicBool::new(false);

/// The open pagemap. Opened anew each time: it belongs to the address space at open, a parent's after a fork.
pub(super) struct Pagemap(Fd);

impl Pagemap {
    pub fn open() -> Result<Self, PagerError> {
        Fd::open(c"/proc/thread-self/pagemap", libc::O_RDONLY)
            .map(Self)
            .map_err(|errno| PagerError::Blind { op: "open /proc/thread-self/pagemap", errno })
    }

    /// The pages of `[address, address+len)`, at most a window of them.
    pub fn read<'a>(
        &self,
        window: &'a mut [u64],
        address: usize,
        len: usize,
    ) -> Result<impl Fn(usize) -> Page + use<'a>, PagerError> {
        let count = (len / PAGE).min(window.len());
        // SAFETY: u64s may be seen as bytes, and any bytes are u64s.
        let bytes = unsafe { std::slice::from_raw_parts_mut(window.as_mut_ptr().cast::<u8>(), count * 8) };
        let mut done = 0;
        while done < bytes.len() {
            let at = (address / PAGE * 8 + done) as u64;
            match self.0.pread(&mut bytes[done..], at) {
                Ok(0) => {
                    return Err(PagerError::io("read /proc/thread-self/pagemap", address, Errno(libc::EIO)));
                }
                Ok(n) => done += n,
                Err(e) => return Err(PagerError::io("read /proc/thread-self/pagemap", address, e)),
            }
        }
        let window: &'a [u64] = window;
        Ok(move |i: usize| Page(window[..count][i]))
    }

    /// Calls `f` with the address ranges of pages in `[address, address+len)` that are there, in ascending
    /// order, and whether they are private copies. Pages of a range are adjacent and alike.
    pub fn each(
        &self,
        window: &mut Window,
        address: usize,
        len: usize,
        f: &mut dyn FnMut(Range<usize>, bool) -> Result<(), PagerError>,
    ) -> Result<(), PagerError> {
        if !NO_SCAN.load(Ordering::Relaxed) {
            match self.scan(window, address, len, f) {
                Err(ScanError::Unknown) => NO_SCAN.store(true, Ordering::Relaxed),
                Err(ScanError::At(at, e)) => {
                    return Err(PagerError::io("scan /proc/thread-self/pagemap", at, e));
                }
                Err(ScanError::Caller(e)) => return Err(e),
                Ok(()) => return Ok(()),
            }
        }
        self.by_entries(window, address, len, f)
    }

    fn by_entries(
        &self,
        window: &mut Window,
        address: usize,
        len: usize,
        f: &mut dyn FnMut(Range<usize>, bool) -> Result<(), PagerError>,
    ) -> Result<(), PagerError> {
        for at in (address..address + len).step_by(WINDOW * PAGE) {
            let count = ((address + len - at) / PAGE).min(WINDOW);
            let page = self.read(window, at, count * PAGE)?;
            let kind = |p: usize| page(p).is_there().then(|| page(p).is_private());
            let mut first = 0;
            while first < count {
                let next = (first..count).find(|&p| kind(p) != kind(first)).unwrap_or(count);
                if let Some(private) = kind(first) {
                    f(at + first * PAGE..at + next * PAGE, private)?;
                }
                first = next;
            }
        }
        Ok(())
    }

    fn scan(
        &self,
        window: &mut Window,
        address: usize,
        len: usize,
        f: &mut dyn FnMut(Range<usize>, bool) -> Result<(), PagerError>,
    ) -> Result<(), ScanError<PagerError>> {
        let query = Query {
            any_of: scan::IN_RAM | scan::SWAPPED,
            report: scan::IN_RAM | scan::SWAPPED | scan::OF_FILE,
            ..Query::default()
        };
        let regions = window.as_chunks_mut::<3>().0;
        scan::each(&self.0, regions, [address, address + len], query, |[from, to, kinds]| {
            f(from as usize..to as usize, kinds & scan::OF_FILE == 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use std::os::fd::AsRawFd;

    #[test]
    fn both_ways_see_the_same() {
        let len = 300 * PAGE;
        let file = tempfile();
        file.set_len(len as u64).expect("a sparse file");
        let at = sys::map_anon_aligned(len, 2 << 20).expect("memory");
        sys::map_file_over(at, len, file.as_raw_fd(), 0).expect("mapping");
        for p in (0..300).filter(|p| p % 7 < 3) {
            // SAFETY: inside the mapping made above.
            unsafe {
                let page = (at + p * PAGE) as *mut u8;
                if p % 2 == 0 {
                    page.write_volatile(1)
                } else {
                    page.read_volatile();
                }
            }
        }
        let map = Pagemap::open().expect("pagemap");
        let mut window = [0; WINDOW];
        let pages = |found: &[(Range<usize>, bool)]| {
            let pages = found.iter().flat_map(|(r, private)| r.clone().step_by(PAGE).map(|a| (a, *private)));
            pages.collect::<Vec<_>>()
        };
        let mut one = vec![];
        map.by_entries(&mut window, at, len, &mut |r, p| {
            one.push((r, p));
            Ok(())
        })
        .expect("entries");
        // What was written is private, for certain; what else is there depends on how much the kernel brings
        // in.
        let private = pages(&one).iter().filter(|p| p.1).count();
        assert_eq!(private, (0..300).filter(|p| p % 7 < 3 && p % 2 == 0).count());
        let mut two = vec![];
        match map.scan(&mut window, at, len, &mut |r, p| {
            two.push((r, p));
            Ok(())
        }) {
            Ok(()) => assert_eq!(pages(&one), pages(&two)),
            Err(ScanError::Unknown) => bdrun_skipped::skipped("kernel", "no PAGEMAP_SCAN"),
            Err(ScanError::Caller(e)) => panic!("{e}"),
            Err(ScanError::At(at, e)) => panic!("at {at:x}: {e}"),
        }
        sys::unmap(at, len);
    }

    fn tempfile() -> std::fs::File {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE);
        options.open(std::env::temp_dir()).expect("a temporary file")
    }
}
