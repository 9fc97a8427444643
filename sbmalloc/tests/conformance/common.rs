//! Shared by the test programs: every combination of parts, a store that fails on demand, a look at pages.

use sbmalloc::{Arena, ArenaOptions, ArenaSet, Errno, HugePolicy, PAGE, Store, StoreKind, TrackerKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A tracker, a store and a huge page policy.
pub type Combination = (TrackerKind, StoreKind, HugePolicy);

/// The parts the crate offers. A new kind joins every test by a line here.
pub const TRACKERS: &[TrackerKind] = &[TrackerKind::Auto, TrackerKind::Hash, TrackerKind::Uffd];
pub const STORES: &[StoreKind] =
    &[StoreKind::Auto, StoreKind::Direct, StoreKind::Buffered, StoreKind::Memory];
pub const HUGE: &[HugePolicy] = &[HugePolicy::Never, HugePolicy::Always];

/// Every combination with these stores.
pub fn with_stores(stores: &[StoreKind]) -> Vec<Combination> {
    let mut all = vec![];
    for &tracker in TRACKERS {
        for &store in stores {
            all.extend(HUGE.iter().map(|&huge| (tracker, store, huge)));
        }
    }
    all
}

/// Every combination the crate offers.
pub fn combinations() -> Vec<Combination> {
    with_stores(STORES)
}

/// Whether the calling test was run in a process of its own, and passed. Who moves memory stops all threads
/// of its process: tests in threads of one take turns, and leave a processor idle. So a long one begins with
/// `if apart() { return }`, and is run again by that, alone.
pub fn apart() -> bool {
    let thread = std::thread::current();
    // Where tests are run one at a time it has no thread of its own.
    let Some(test) = thread.name().filter(|&name| name != "main" && std::env::var_os(APART).is_none()) else {
        return false;
    };
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    let output = command.args([test, "--exact", "--nocapture"]).env(APART, "1").output().expect("its end");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(" 1 passed"), "{}: {said}", output.status);
    true
}

/// Set: this process was made for one test.
const APART: &str = "SBMALLOC_TEST_APART";

/// A set of its own with one arena of the given parts, so that tests in other threads do not interfere.
pub fn arena((tracker, store, huge): Combination) -> (&'static ArenaSet, Arena) {
    let set: &'static ArenaSet = Box::leak(Box::default());
    let options = ArenaOptions { reserve: 4 << 30, tracker: Some(tracker), store: Some(store), huge };
    (set, Arena::new_in(&options, set).expect("arena"))
}

/// A block of memory in an arena, as a slice for as long as the arena lives.
pub struct Block {
    pub arena: Arena,
    pub at: NonNull<u8>,
    pub len: usize,
}

// SAFETY: the memory is used through this alone.
unsafe impl Send for Block {}

impl Block {
    pub fn new(arena: &Arena, len: usize) -> Self {
        Self::aligned(arena, len, 64)
    }
    pub fn aligned(arena: &Arena, len: usize, align: usize) -> Self {
        let at = arena.alloc(len, align).expect("memory");
        assert_eq!(at.as_ptr() as usize % align, 0);
        Self { arena: arena.clone(), at, len }
    }
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this length.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: allocated with this length, used through `self` alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above; chunks are aligned.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast(), self.len / 8) }
    }
    pub fn fill(&mut self, seed: u64) {
        let mut random = Random(seed);
        self.words_mut().iter_mut().for_each(|w| *w = random.next());
    }
    pub fn check(&mut self, seed: u64) {
        let mut random = Random(seed);
        for (i, w) in self.words_mut().iter().enumerate() {
            assert_eq!(*w, random.next(), "word {i}");
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated here, not freed before.
        unsafe { self.arena.free(self.at) };
    }
}

/// xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) | 1
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 1) as usize % n
    }
}

/// Pages of a range that are memory of the process's own (present, and not a file's).
pub fn own_pages(at: *const u8, len: usize) -> usize {
    use std::os::unix::fs::FileExt;
    let map = std::fs::File::open("/proc/self/pagemap").expect("pagemap");
    let mut buf = vec![0u8; len / PAGE * 8];
    map.read_exact_at(&mut buf, (at as usize / PAGE * 8) as u64).expect("pagemap");
    let entries = buf.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().expect("8 bytes")));
    entries.filter(|e| e >> 63 == 1 && e >> 61 & 1 == 0).count()
}

/// A store that fails on demand, on an unlinked file.
pub struct Faulty {
    pub fd: OwnedFd,
    /// Writes that succeed before `ENOSPC`, or never if negative.
    pub room: AtomicI64,
    /// Reads that succeed before `EIO`, or never if negative.
    pub readable: AtomicI64,
    /// Reads to come that bring zeros where something is.
    pub wrong_reads: AtomicI64,
    /// Calls so far; every third is cut short, every fifth interrupted.
    pub calls: AtomicU64,
    pub rough: bool,
    /// Answer `EOPNOTSUPP` to punching.
    pub no_holes: bool,
    /// Space that was kept: what is given back makes room.
    pub kept: AtomicU64,
    /// Let transfers be made beside, on a direct file.
    pub beside: bool,
    /// Transfers that were made beside, whatever was said of them.
    pub made_beside: AtomicU64,
}

impl Faulty {
    pub fn new(rough: bool, no_holes: bool) -> &'static Self {
        // SAFETY: makes a new descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"faulty".as_ptr(), 0)) };
        Self::on(fd, rough, no_holes, false)
    }

    /// One whose transfers are made beside.
    pub fn beside(rough: bool, no_holes: bool) -> &'static Self {
        let dir = std::env::var("TMPDIR").unwrap_or("/var/tmp".into());
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_DIRECT);
        Self::on(options.open(dir).expect("a direct file").into(), rough, no_holes, true)
    }

    fn on(fd: OwnedFd, rough: bool, no_holes: bool, beside: bool) -> &'static Self {
        Box::leak(Box::new(Self {
            fd,
            room: AtomicI64::new(-1),
            readable: AtomicI64::new(-1),
            wrong_reads: AtomicI64::new(0),
            calls: AtomicU64::new(0),
            rough,
            no_holes,
            kept: AtomicU64::new(0),
            beside,
            made_beside: AtomicU64::new(0),
        }))
    }

    /// As new: empty, and without faults to come.
    pub fn reset(&self) {
        // SAFETY: touches the file only, which no arena uses any more.
        assert_eq!(unsafe { libc::ftruncate(self.fd.as_raw_fd(), 0) }, 0);
        self.room.store(-1, Ordering::Relaxed);
        self.readable.store(-1, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        self.kept.store(0, Ordering::Relaxed);
    }

    fn turn(&self, len: usize) -> Result<usize, Errno> {
        if !self.rough {
            return Ok(len);
        }
        match self.calls.fetch_add(1, Ordering::Relaxed) {
            n if n % 5 == 4 => Err(Errno(if n % 2 == 0 { libc::EINTR } else { libc::EAGAIN })),
            // Direct transfers stop at whole pages.
            n if n % 3 == 2 && self.beside => Ok((len / 2).next_multiple_of(PAGE)),
            n if n % 3 == 2 => Ok((len / 2).max(1)),
            _ => Ok(len),
        }
    }
}

fn countdown(n: &AtomicI64) -> bool {
    n.load(Ordering::Relaxed) >= 0 && n.fetch_sub(1, Ordering::Relaxed) <= 0 && {
        n.store(0, Ordering::Relaxed);
        true
    }
}

// SAFETY: what it does wrong it reports, or the checksums find it, which is what the tests are about.
unsafe impl Store for Faulty {
    unsafe fn write_at(&self, offset: u64, from: *const u8, len: usize) -> Result<usize, Errno> {
        if countdown(&self.room) {
            return Err(Errno(libc::ENOSPC));
        }
        let len = self.turn(len)?;
        // SAFETY: the caller's contract.
        let n = unsafe { libc::pwrite(self.fd.as_raw_fd(), from.cast(), len, offset as i64) };
        Ok(usize::try_from(n).expect("memfd"))
    }
    unsafe fn read_at(&self, offset: u64, to: *mut u8, len: usize) -> Result<usize, Errno> {
        if countdown(&self.readable) {
            return Err(Errno(libc::EIO));
        }
        let len = self.turn(len)?;
        // SAFETY: the caller's contract.
        let n = unsafe { libc::pread(self.fd.as_raw_fd(), to.cast(), len, offset as i64) };
        let n = usize::try_from(n).expect("memfd");
        if self.wrong_reads.fetch_sub(1, Ordering::Relaxed) > 0 {
            // SAFETY: what was just filled.
            unsafe { to.write_bytes(0, n / 2) };
        }
        Ok(n)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        if self.no_holes {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: touches the file only.
        let r = unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset as i64, len as i64) };
        if r == 0 { Ok(()) } else { Err(Errno::last()) }
    }
    fn give_back(&self, zeros: &mut dyn Iterator<Item = (u64, u64)>) -> bool {
        let kept = self.kept.load(Ordering::Relaxed);
        let back = zeros.map(|(offset, len)| self.punch(offset, len).map_or(0, |()| len)).sum::<u64>();
        if kept > 0 && back >= kept {
            self.kept.store(0, Ordering::Relaxed);
            self.room.store(-1, Ordering::Relaxed);
        }
        kept > 0
    }
    fn ensure_len(&self, len: u64) -> Result<(), Errno> {
        // SAFETY: touches the file only. The largest length asked for is the last.
        let r = unsafe { libc::ftruncate(self.fd.as_raw_fd(), len as i64) };
        if r == 0 { Ok(()) } else { Err(Errno::last()) }
    }
    fn settle(&self) -> Result<(), Errno> {
        Ok(())
    }
    fn drop_cache(&self) {}
    fn mapping_fd(&self, _: u64) -> i32 {
        self.fd.as_raw_fd()
    }
    fn async_fd(&self, _: u64) -> Option<i32> {
        self.beside.then(|| self.fd.as_raw_fd())
    }
    fn async_result(&self, is_write: bool, _: u64, result: Result<usize, Errno>) -> Result<usize, Errno> {
        self.made_beside.fetch_add(1, Ordering::Relaxed);
        if is_write && countdown(&self.room) {
            return Err(Errno(libc::ENOSPC));
        }
        if !is_write && countdown(&self.readable) {
            return Err(Errno(libc::EIO));
        }
        self.turn(result?)
    }
}
