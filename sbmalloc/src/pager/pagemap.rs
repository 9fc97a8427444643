//! Which pages are there, from `/proc/self/pagemap`: entry by entry, or by `PAGEMAP_SCAN` (Linux 6.7), which
//! passes over what is absent, so that looking at much that is out costs next to nothing.

use super::PagerError;
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

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;

/// The kernel does not know `PAGEMAP_SCAN`.
static NO_SCAN: AtomicBool = AtomicBool::new(false);

/// The open pagemap. Opened anew each time: it belongs to the address space at open, a parent's after a fork.
pub(super) struct Pagemap(Fd);

impl Pagemap {
    pub fn open() -> Result<Self, PagerError> {
        Fd::open(c"/proc/self/pagemap", libc::O_RDONLY)
            .map(Self)
            .map_err(|e| PagerError::io("open /proc/self/pagemap", 0, e))
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
                Ok(0) => return Err(PagerError::io("read /proc/self/pagemap", address, Errno(libc::EIO))),
                Ok(n) => done += n,
                Err(e) => return Err(PagerError::io("read /proc/self/pagemap", address, e)),
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
                Err(ScanError::Failed(e)) => return Err(e),
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
    ) -> Result<(), ScanError> {
        let (mut at, end) = (address as u64, (address + len) as u64);
        while at < end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: 0,
                start: at,
                end,
                walk_end: 0,
                vec: window.as_mut_ptr() as u64,
                vec_len: (WINDOW / 3) as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: 0,
                category_anyof_mask: IS_PRESENT | IS_SWAPPED,
                return_mask: IS_PRESENT | IS_SWAPPED | IS_FILE,
            };
            // SAFETY: the kernel writes `scan` and at most `vec_len` regions of three words into the window.
            let n = unsafe { libc::ioctl(self.0.0, PAGEMAP_SCAN, &raw mut scan) };
            if n < 0 {
                match Errno::last() {
                    Errno(libc::EINTR) => continue,
                    Errno(libc::ENOTTY | libc::EINVAL) if at == address as u64 => {
                        return Err(ScanError::Unknown);
                    }
                    e => {
                        let e = PagerError::io("scan /proc/self/pagemap", at as usize, e);
                        return Err(ScanError::Failed(e));
                    }
                }
            }
            for region in window.as_chunks::<3>().0.iter().take(n as usize) {
                let [from, to, categories] = *region;
                f(from as usize..to as usize, categories & IS_FILE == 0).map_err(ScanError::Failed)?;
            }
            if scan.walk_end <= at {
                let e = PagerError::io("scan /proc/self/pagemap", at as usize, Errno(libc::EIO));
                return Err(ScanError::Failed(e));
            }
            at = scan.walk_end;
        }
        Ok(())
    }
}

enum ScanError {
    /// Not a call this kernel knows; nothing was reported.
    Unknown,
    Failed(PagerError),
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
        // What was written is private, for certain; what else is there depends on how much the kernel brings in.
        let private = pages(&one).iter().filter(|p| p.1).count();
        assert_eq!(private, (0..300).filter(|p| p % 7 < 3 && p % 2 == 0).count());
        let mut two = vec![];
        match map.scan(&mut window, at, len, &mut |r, p| {
            two.push((r, p));
            Ok(())
        }) {
            Ok(()) => assert_eq!(pages(&one), pages(&two)),
            Err(ScanError::Unknown) => println!("skipped: no PAGEMAP_SCAN"),
            Err(ScanError::Failed(e)) => panic!("{e}"),
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
