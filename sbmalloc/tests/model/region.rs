//! A range of pages of which is known what they hold.

use std::io::Write;
use std::ptr;

pub const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;
/// Pages of a region at most.
pub const MAX_PAGES: usize = 160;

/// It was never written: zeros, or what the file has.
const FRESH: u32 = 1;
/// The version of what is in files.
const OF_FILE: u32 = 2;
/// The first of those that are written.
const FIRST: u32 = 3;
/// Given up by `MADV_FREE`: as it was, or fresh, page by page.
const MAYBE: u32 = 1 << 31;

/// What a word of a page must be.
fn word(key: u64, version: u32, i: usize) -> u64 {
    (key ^ u64::from(version) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        ^ (i as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03)
}

/// A page and what it holds.
#[derive(Clone, Copy)]
struct Page {
    /// Of its own, wherever it is moved.
    key: u64,
    version: u32,
}

/// Memory of one thread. It is not unmapped when dropped: children have it too.
pub struct Region {
    at: usize,
    pages: Vec<Page>,
    of_file: bool,
    /// Counts versions.
    last: u32,
}

fn map(at: usize, pages: usize, flags: i32) -> usize {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory; with MAP_FIXED over pages of the region's own.
    let made = unsafe { libc::mmap(at as *mut _, pages * PAGE, rights, flags, -1, 0) };
    assert_ne!(made, libc::MAP_FAILED, "mmap");
    made as usize
}

fn remap(at: usize, old: usize, new: usize, flags: i32, to: usize) -> usize {
    // SAFETY: pages of the region's own; `to` lies in a reserve made for it.
    let moved = unsafe { libc::mremap(at as *mut _, old * PAGE, new * PAGE, flags, to) };
    if moved == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        panic!("mremap of {old} to {new} pages, flags {flags}: {error}");
    }
    moved as usize
}

fn is_mapped(at: usize) -> bool {
    let mut there = 0u8;
    // SAFETY: asks about one page.
    unsafe { libc::mincore(at as *mut _, PAGE, &mut there) == 0 }
}

impl Region {
    pub fn new(key: u64, pages: usize) -> Self {
        let at = map(0, pages, 0);
        let pages = (0..pages as u64).map(|i| Page { key: key << 16 | i, version: FRESH }).collect();
        Self { at, pages, of_file: false, last: FIRST }
    }

    /// A private mapping of a file with content.
    pub fn of_file(key: u64, pages: usize) -> Self {
        let mut region = Self::new(key, pages);
        region.unmap_range(0, pages);
        // SAFETY: a descriptor of our own, which the mapping outlives; private, so what is written stays
        // here.
        unsafe {
            let file = libc::memfd_create(c"model-file".as_ptr(), libc::MFD_CLOEXEC);
            let mut buffer = [0u64; WORDS];
            for page in &region.pages {
                buffer.iter_mut().enumerate().for_each(|(i, w)| *w = word(page.key, OF_FILE, i));
                assert_eq!(libc::write(file, buffer.as_ptr().cast(), PAGE), PAGE as isize);
            }
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(ptr::null_mut(), pages * PAGE, rights, libc::MAP_PRIVATE, file, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::close(file);
            region.at = at as usize;
        }
        region.of_file = true;
        region
    }

    pub fn len(&self) -> usize {
        self.pages.len()
    }

    fn words(&self, page: usize) -> *mut u64 {
        (self.at + page * PAGE) as *mut u64
    }

    fn next_version(&mut self) -> u32 {
        self.last = if self.last + 1 >= MAYBE { FIRST } else { self.last + 1 };
        self.last
    }

    pub fn write(&mut self, first: usize, count: usize) {
        let version = self.next_version();
        for page in first..first + count {
            let at = self.words(page);
            let key = self.pages[page].key;
            for i in 0..WORDS {
                // SAFETY: a page of the region.
                unsafe { at.add(i).write_volatile(word(key, version, i)) };
            }
            self.pages[page].version = version;
        }
    }

    fn expected(&self, page: usize, version: u32, i: usize) -> u64 {
        match version {
            FRESH if self.of_file => word(self.pages[page].key, OF_FILE, i),
            FRESH => 0,
            version => word(self.pages[page].key, version, i),
        }
    }

    fn check_page(&self, operation: u64, page: usize, what: &str, words: *const u64) {
        let version = self.pages[page].version;
        let mut first = None;
        let is = |version: u32, first: &mut Option<(usize, u64)>| {
            (0..WORDS).all(|i| {
                // SAFETY: a page that the caller gives.
                let found = unsafe { words.add(i).read_volatile() };
                let right = found == self.expected(page, version, i);
                if !right {
                    first.get_or_insert((i, found));
                }
                right
            })
        };
        let right = match version & MAYBE != 0 {
            true => is(FRESH, &mut first) || is(version & !MAYBE, &mut first),
            false => version != 0 && is(version, &mut first),
        };
        if !right {
            self.complain(operation, page, what, first);
        }
    }

    /// Without allocating: it may be in a child.
    fn complain(&self, operation: u64, page: usize, what: &str, first: Option<(usize, u64)>) -> ! {
        let (i, found) = first.unwrap_or_default();
        let version = self.pages[page].version;
        let mut text = [0u8; 400];
        let mut rest = &mut text[..];
        let _ = writeln!(
            rest,
            "WRONG ({what}) process {}, operation {operation}: page {page} of {} at {:#x}, version {version:#x}, word {i}: {found:#x} instead of {:#x}",
            std::process::id(),
            self.len(),
            self.at + page * PAGE,
            self.expected(page, version & !MAYBE, i)
        );
        let left = rest.len();
        // SAFETY: writes a local text; ends the process.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len() - left);
            libc::abort()
        }
    }

    pub fn check(&self, operation: u64, first: usize, count: usize) {
        (first..first + count).for_each(|page| self.check_page(operation, page, "look", self.words(page)));
    }

    pub fn check_all(&self, operation: u64, what: &str) {
        (0..self.len()).for_each(|page| self.check_page(operation, page, what, self.words(page)));
    }

    /// The kernel writes to them: `read(2)`.
    pub fn read_into(&mut self, file: i32, first: usize, count: usize) {
        let version = self.next_version();
        let mut buffer = [0u64; WORDS];
        for page in first..first + count {
            let key = self.pages[page].key;
            buffer.iter_mut().enumerate().for_each(|(i, w)| *w = word(key, version, i));
            let offset = ((page - first) * PAGE) as i64;
            // SAFETY: a local of that size.
            assert_eq!(unsafe { libc::pwrite(file, buffer.as_ptr().cast(), PAGE, offset) }, PAGE as isize);
            self.pages[page].version = version;
        }
        let mut done = 0;
        while done < count * PAGE {
            // SAFETY: pages of the region.
            let n = unsafe {
                let to = (self.at + first * PAGE + done) as *mut libc::c_void;
                libc::pread(file, to, count * PAGE - done, done as i64)
            };
            assert!(n > 0, "pread: {}", std::io::Error::last_os_error());
            done += n as usize;
        }
    }

    /// The kernel reads them: `write(2)`.
    pub fn write_from(&self, operation: u64, file: i32, first: usize, count: usize) {
        let mut done = 0;
        while done < count * PAGE {
            // SAFETY: pages of the region.
            let n = unsafe {
                let from = (self.at + first * PAGE + done) as *const libc::c_void;
                libc::pwrite(file, from, count * PAGE - done, done as i64)
            };
            assert!(n > 0, "pwrite: {}", std::io::Error::last_os_error());
            done += n as usize;
        }
        let mut buffer = [0u64; WORDS];
        for page in 0..count {
            // SAFETY: a local of that size.
            let n = unsafe { libc::pread(file, buffer.as_mut_ptr().cast(), PAGE, (page * PAGE) as i64) };
            assert_eq!(n, PAGE as isize);
            self.check_page(operation, first + page, "written by the kernel", buffer.as_ptr());
        }
    }

    /// The kernel reads them on behalf of somebody else.
    pub fn peek(&self, operation: u64, first: usize, count: usize) {
        let mut buffer = [0u64; WORDS];
        for page in first..first + count {
            let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: PAGE };
            let remote = libc::iovec { iov_base: self.words(page).cast(), iov_len: PAGE };
            // SAFETY: a local and a page of the region.
            let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
            assert_eq!(n, PAGE as isize, "process_vm_readv");
            self.check_page(operation, page, "read from elsewhere", buffer.as_ptr());
        }
    }

    /// `MADV_DONTNEED` or `MADV_FREE`.
    pub fn give_up(&mut self, first: usize, count: usize, advice: i32) {
        if !self.advise(first, count, advice) {
            return;
        }
        for page in &mut self.pages[first..first + count] {
            page.version = match advice {
                libc::MADV_DONTNEED => FRESH,
                _ if page.version == FRESH => FRESH,
                _ => page.version | MAYBE,
            };
        }
    }

    /// Whether the kernel took it.
    pub fn advise(&mut self, first: usize, count: usize, advice: i32) -> bool {
        // SAFETY: pages of the region.
        unsafe { libc::madvise((self.at + first * PAGE) as *mut _, count * PAGE, advice) == 0 }
    }

    pub fn protect(&mut self, operation: u64, first: usize, count: usize, draw: u64) {
        let set = |rights: i32| {
            // SAFETY: pages of the region.
            let done = unsafe { libc::mprotect((self.at + first * PAGE) as *mut _, count * PAGE, rights) };
            assert_eq!(done, 0, "mprotect");
        };
        if draw & 1 == 0 {
            set(libc::PROT_READ);
            self.check(operation, first, count);
        } else {
            set(libc::PROT_NONE);
            if draw & 2 != 0 {
                std::thread::yield_now();
            }
        }
        set(libc::PROT_READ | libc::PROT_WRITE);
        self.check(operation, first, count);
    }

    /// New memory in place of what was there.
    pub fn map_over(&mut self, first: usize, count: usize) {
        if self.of_file {
            return;
        }
        map(self.at + first * PAGE, count, libc::MAP_FIXED);
        self.pages[first..first + count].iter_mut().for_each(|page| page.version = FRESH);
    }

    /// mremap moves mappings one by one.
    fn is_one_mapping(&self) -> bool {
        !self.of_file
    }

    pub fn resize(&mut self, to: usize) {
        if !self.is_one_mapping() {
            return;
        }
        if to < self.len() {
            self.unmap_range(to, self.len() - to);
            self.pages.truncate(to);
            return;
        }
        // Growing takes one mapping: what has been mapped over, or has other flags, is another.
        let (old, key) = (self.len(), self.pages[0].key.rotate_left(7) ^ 0x55);
        // SAFETY: pages of the region.
        let moved =
            unsafe { libc::mremap(self.at as *mut _, old * PAGE, to * PAGE, libc::MREMAP_MAYMOVE, 0usize) };
        if moved != libc::MAP_FAILED {
            self.at = moved as usize;
            self.pages.extend((old..to).map(|i| Page { key: key ^ (i as u64) << 48, version: FRESH }));
        }
    }

    /// To another place, page-aligned only, in one step or in several.
    pub fn move_whole(&mut self, how: usize) {
        let (len, from) = (self.len(), self.at);
        // A reserve, so that the place is nobody else's, and off by some pages, so that blocks do not lie as
        // before.
        let reserve = map(0, len + 8, libc::MAP_NORESERVE);
        let to = reserve + how * PAGE;
        let fixed = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let step = len.checked_div(how).map_or(7, |n| n + 1);
        let mut done = 0;
        while done < len {
            let count = step.min(len - done);
            // Several mappings may lie in a step; then page by page.
            // SAFETY: as in `remap`.
            let moved = unsafe {
                libc::mremap(
                    (from + done * PAGE) as *mut _,
                    count * PAGE,
                    count * PAGE,
                    fixed,
                    to + done * PAGE,
                )
            };
            if moved == libc::MAP_FAILED {
                // From Linux 6.17 on some of them may have been moved before another was refused.
                (done..done + count).filter(|page| is_mapped(from + page * PAGE)).for_each(|page| {
                    remap(from + page * PAGE, 1, 1, fixed, to + page * PAGE);
                });
            }
            done += count;
        }
        // SAFETY: what is left of the reserve.
        unsafe {
            libc::munmap(reserve as *mut _, how * PAGE);
            libc::munmap((to + len * PAGE) as *mut _, (8 - how) * PAGE);
        }
        self.at = to;
    }

    /// Its end becomes a region of its own.
    pub fn split(&mut self, at: usize) -> Self {
        let pages = self.pages.split_off(at);
        Self { at: self.at + at * PAGE, pages, of_file: self.of_file, last: self.last }
    }

    /// Moves the content elsewhere, and keeps the old range, which is empty then.
    pub fn leave_behind(&mut self, key: u64) -> Option<Self> {
        const DONTUNMAP: i32 = 4;
        if self.of_file {
            return None;
        }
        let len = self.len();
        let flags = libc::MREMAP_MAYMOVE | DONTUNMAP;
        // SAFETY: as in `remap`; refused where it is more than one mapping.
        let moved = unsafe { libc::mremap(self.at as *mut _, len * PAGE, len * PAGE, flags, 0usize) };
        if moved == libc::MAP_FAILED {
            return None;
        }
        let pages = (0..len as u64).map(|i| Page { key: key << 16 | i, version: FRESH }).collect();
        let rest = Self { at: self.at, pages, of_file: false, last: FIRST };
        self.at = moved as usize;
        Some(rest)
    }

    fn unmap_range(&self, first: usize, count: usize) {
        // SAFETY: pages of the region.
        assert_eq!(unsafe { libc::munmap((self.at + first * PAGE) as *mut _, count * PAGE) }, 0, "munmap");
    }

    pub fn unmap(self) {
        self.unmap_range(0, self.len());
    }
}
