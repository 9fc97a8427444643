//! A pool of frames in shared memory: two memfds, one of 2 MiB frames, one of a table that says whose each
//! is.
//!
//! A frame's word is [`EMPTY`] (no memory), [`FREE`] (memory nobody uses), or the number of the *owner* that
//! has it: whoever hands the pool to processes gives each a number, 2 or more. Each change is one
//! compare-and-swap from what the changer saw, or a store by the process that has the frame. So a process
//! that is killed anywhere leaves every frame in one of the three states, and whoever knows that it is gone
//! may free its frames ([`FramePool::free_all_of`]).
//!
//! Frames are huge pages whatever the system says of huge pages in shared memory: a frame that is new is
//! touched and collapsed (`MADV_COLLAPSE`, Linux 6.1), which needs no setting. It is done once; from then on
//! frames are used again.

use crate::sys::{self, Errno, Fd, GRANULE, PAGE};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"bdframe1");
const EMPTY: u32 = 0;
const FREE: u32 = 1;
/// Has a frame while it is tried, or gives up its memory.
const NOBODY: u32 = u32::MAX;
const MADV_COLLAPSE: libc::c_int = 25;
/// Most frames of a pool: 4 TiB.
const MOST: usize = 2 << 20;

/// In front of the table.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    count: AtomicU32,
    /// Frames that may be free and keep their memory.
    keep: AtomicU32,
    /// Where to look for a free frame first.
    hint: AtomicU32,
    /// About as many are free.
    free: AtomicU32,
    /// Times a frame was taken.
    taken: AtomicU64,
}

/// A pool of frames, made or opened.
pub struct FramePool {
    table_fd: Fd,
    frames_fd: Fd,
    table: usize,
    count: usize,
    /// Where the frames lie in this process, all of them.
    window: usize,
}

/// A file in memory whose size nobody changes: each process of the job has it mapped, and would die if one
/// made it shorter.
fn memfd(name: &std::ffi::CStr, len: usize) -> Result<Fd, Errno> {
    // SAFETY: the name is terminated; makes a new descriptor.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(Errno::last());
    }
    let fd = Fd(fd);
    // SAFETY: sizes our own file.
    if unsafe { libc::ftruncate(fd.0, len as i64) } != 0 {
        return Err(Errno::last());
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: takes no pointer.
    if unsafe { libc::fcntl(fd.0, libc::F_ADD_SEALS, seals) } != 0 {
        return Err(Errno::last());
    }
    Ok(fd)
}

fn table_len(count: usize) -> usize {
    PAGE + sys::round_up(count * 4, PAGE)
}

impl FramePool {
    /// Makes a pool of as many frames as `bytes` take, none of which has memory yet; of those that are free,
    /// as many as `keep` bytes take may hold on to it.
    ///
    /// # Errors
    /// The system's.
    pub fn create(bytes: u64, keep: u64) -> Result<Self, Errno> {
        let count = usize::try_from(bytes / GRANULE as u64).unwrap_or(MOST).clamp(1, MOST);
        let table_fd = memfd(c"bdrun-frame-table", table_len(count))?;
        let frames_fd = memfd(c"bdrun-frames", count * GRANULE)?;
        let pool = Self::map(table_fd, frames_fd, count)?;
        let header = pool.header();
        header.count.store(count as u32, Ordering::Relaxed);
        header.keep.store((keep / GRANULE as u64).min(count as u64) as u32, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(pool)
    }

    /// Opens a pool that another process made; the descriptors become its own.
    pub(super) fn open(table_fd: OwnedFd, frames_fd: OwnedFd) -> Result<Self, Errno> {
        let size = |fd: &OwnedFd| {
            let fd = fd.as_raw_fd();
            // SAFETY: takes no pointer.
            let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
            if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
                return None;
            }
            // SAFETY: fstat fills the structure, which may be all zeros.
            unsafe {
                let mut stat: libc::stat = std::mem::zeroed();
                (libc::fstat(fd, &mut stat) == 0).then_some(stat.st_size as usize)
            }
        };
        let bad = Errno(libc::EBADF);
        let frames = size(&frames_fd).filter(|n| n.is_multiple_of(GRANULE)).ok_or(bad)?;
        let count = frames / GRANULE;
        if count == 0 || count > MOST || size(&table_fd) != Some(table_len(count)) {
            return Err(bad);
        }
        let pool = Self::map(Fd(table_fd.into_raw_fd()), Fd(frames_fd.into_raw_fd()), count)?;
        let header = pool.header();
        let right = header.magic.load(Ordering::Acquire) == MAGIC
            && header.count.load(Ordering::Relaxed) as usize == count;
        if right { Ok(pool) } else { Err(bad) }
    }

    fn map(table_fd: Fd, frames_fd: Fd, count: usize) -> Result<Self, Errno> {
        let table = sys::map_anon_aligned(table_len(count), PAGE)?;
        sys::map_shared_over(table, table_len(count), table_fd.0, 0)?;
        let window = sys::map_anon_aligned(count * GRANULE, GRANULE)?;
        sys::map_shared_over(window, count * GRANULE, frames_fd.0, 0)?;
        // A child of fork has no business with frames, and copying their page tables would take time.
        let _ = sys::advise(window, count * GRANULE, libc::MADV_DONTFORK);
        Ok(Self { table_fd, frames_fd, table, count, window })
    }

    fn header(&self) -> &Header {
        // SAFETY: the table begins with one, which is all atomics: valid for any bytes.
        unsafe { &*(self.table as *const Header) }
    }

    fn word(&self, frame: u32) -> &AtomicU32 {
        assert!((frame as usize) < self.count);
        // SAFETY: inside the table, which is mapped while `self` lives.
        unsafe { &*((self.table + PAGE) as *const AtomicU32).add(frame as usize) }
    }

    /// The table's descriptor and the frames', to hand to processes.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        // SAFETY: both stay open while `self` lives.
        [&self.table_fd, &self.frames_fd].map(|fd| unsafe { BorrowedFd::borrow_raw(fd.0) })
    }

    /// Where frame 0 lies in this process.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// Bytes of memory that are free in the pool.
    pub fn free_bytes(&self) -> u64 {
        (0..self.count as u32).filter(|&f| self.word(f).load(Ordering::Relaxed) == FREE).count() as u64
            * GRANULE as u64
    }

    /// How many times a frame was taken so far.
    pub fn taken(&self) -> u64 {
        self.header().taken.load(Ordering::Relaxed)
    }

    /// Bytes of memory of the pool that processes have.
    pub fn used_bytes(&self) -> u64 {
        (0..self.count as u32).filter(|&f| self.word(f).load(Ordering::Relaxed) > FREE).count() as u64
            * GRANULE as u64
    }

    fn claim(&self, frame: u32, from: u32, to: u32) -> bool {
        self.word(frame).compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes as many frames as `taken` has places, or none: false then.
    pub(super) fn take(&self, owner: u32, taken: &mut [u32]) -> bool {
        let start = self.header().hint.load(Ordering::Relaxed) as usize % self.count;
        let mut n = 0;
        let order = || (start..self.count).chain(0..start).map(|f| f as u32);
        if self.header().free.load(Ordering::Relaxed) > 0 {
            for frame in order() {
                if n == taken.len() {
                    break;
                }
                if self.word(frame).load(Ordering::Relaxed) == FREE && self.claim(frame, FREE, owner) {
                    taken[n] = frame;
                    n += 1;
                }
            }
            self.count_free(-(n as i32));
        }
        let old = n;
        for frame in order() {
            if n == taken.len() {
                break;
            }
            if self.word(frame).load(Ordering::Relaxed) == EMPTY && self.claim(frame, EMPTY, owner) {
                taken[n] = frame;
                n += 1;
            }
        }
        if n < taken.len() || !self.make_huge(&mut taken[old..]) {
            taken[..old].iter().for_each(|&f| self.give(f));
            taken[old..n].iter().for_each(|&f| self.empty(f));
            return false;
        }
        self.header().taken.fetch_add(taken.len() as u64, Ordering::Relaxed);
        if let Some(&last) = taken.last() {
            self.header().hint.store(last + 1, Ordering::Relaxed);
        }
        true
    }

    /// Gives new frames memory, a huge page each.
    fn make_huge(&self, frames: &mut [u32]) -> bool {
        frames.sort_unstable();
        let at = |f: u32| self.window + f as usize * GRANULE;
        for &f in frames.iter() {
            // SAFETY: a frame of this process alone, not used yet.
            unsafe { (at(f) as *mut u8).write_volatile(0) };
        }
        // Each call has a fixed cost: adjacent frames together.
        frames.chunk_by(|a, b| a + 1 == *b).all(|run| {
            // SAFETY: changes no content; frames of this process alone.
            sys::advise(at(run[0]), run.len() * GRANULE, MADV_COLLAPSE).is_ok()
        })
    }

    /// Whether frames can be had: tries with one.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel gives no huge page (Linux before 6.1, shared huge pages denied, no memory).
    pub fn probe(&self) -> Result<(), Errno> {
        let mut one = [0];
        if !self.take(NOBODY, &mut one) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        self.empty(one[0]);
        Ok(())
    }

    fn count_free(&self, by: i32) {
        // Never below zero, wherever others are.
        let free = &self.header().free;
        let _ =
            free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(n.saturating_add_signed(by)));
    }

    /// Takes the memory from a frame that the caller has.
    fn empty(&self, frame: u32) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (offset, len) = (frame as i64 * GRANULE as i64, GRANULE as i64);
        // SAFETY: the frame is the caller's, and nothing refers to its memory.
        let punched = unsafe { libc::fallocate(self.frames_fd.0, mode, offset, len) } == 0;
        self.word(frame).store(if punched { EMPTY } else { FREE }, Ordering::Release);
    }

    /// Whether `owner` has the frame.
    pub(super) fn is_of(&self, frame: u32, owner: u32) -> bool {
        self.word(frame).load(Ordering::Acquire) == owner
    }

    /// Gives a frame back that the caller has, and nothing maps any more but the window.
    pub(super) fn give(&self, frame: u32) {
        let header = self.header();
        if header.free.load(Ordering::Relaxed) >= header.keep.load(Ordering::Relaxed) {
            return self.empty(frame);
        }
        self.count_free(1);
        self.word(frame).store(FREE, Ordering::Release);
    }

    /// Gives memory of free frames back to the system until at most `most` bytes are free, for memory that is
    /// needed elsewhere.
    pub fn trim(&self, most: u64) {
        let most = (most / GRANULE as u64).min(u64::from(u32::MAX)) as u32;
        let header = self.header();
        for frame in (0..self.count as u32).rev() {
            if header.free.load(Ordering::Relaxed) <= most {
                return;
            }
            if self.claim(frame, FREE, NOBODY) {
                self.count_free(-1);
                self.empty(frame);
            }
        }
    }

    /// Frees the frames of an owner whose process is gone, or has become another program. Returns how many.
    ///
    /// # Safety
    /// That is so: what is freed is another process's memory next.
    ///
    /// ```compile_fail,E0133
    /// fn of(pool: &sbmalloc::FramePool) {
    ///     pool.free_all_of(2);
    /// }
    /// ```
    pub unsafe fn free_all_of(&self, owner: u32) -> usize {
        let (mut freed, mut free) = (0, 0);
        for frame in 0..self.count as u32 {
            if self.is_of(frame, owner) {
                self.give(frame);
                freed += 1;
            }
            free += (self.word(frame).load(Ordering::Relaxed) == FREE) as u32;
        }
        // The count may have suffered from whoever was killed while changing it.
        self.header().free.store(free, Ordering::Relaxed);
        freed
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        sys::unmap(self.window, self.count * GRANULE);
        sys::unmap(self.table, table_len(self.count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_given_kept_and_emptied() {
        let pool = FramePool::create(8 * GRANULE as u64, 2 * GRANULE as u64).expect("pool");
        if let Err(e) = pool.probe() {
            bdrun_skipped::skipped("huge-frames", format!("no huge frames here: {e}"));
            return;
        }
        assert_eq!((pool.used_bytes(), pool.free_bytes()), (0, 0));
        let me = 7;
        let mut six = [0; 6];
        assert!(pool.take(me, &mut six));
        assert_eq!(pool.used_bytes(), 6 * GRANULE as u64);
        assert!(!pool.take(me, &mut [0; 3]), "only two are left");
        assert_eq!(pool.used_bytes(), 6 * GRANULE as u64, "nothing is taken then");
        six.iter().for_each(|&f| pool.give(f));
        assert_eq!((pool.used_bytes(), pool.free_bytes()), (0, 2 * GRANULE as u64));
        pool.trim(GRANULE as u64);
        assert_eq!(pool.free_bytes(), GRANULE as u64);
        // SAFETY: nobody is that owner, nor uses frames of the other.
        assert_eq!(unsafe { pool.free_all_of(me + 1) }, 0);
        assert!(pool.take(me, &mut [0; 8]));
        // SAFETY: as above.
        assert_eq!((unsafe { pool.free_all_of(me) }, pool.used_bytes()), (8, 0));
    }

    #[test]
    fn nobody_changes_its_size() {
        let pool = FramePool::create(4 * GRANULE as u64, 0).expect("pool");
        for fd in pool.fds() {
            for size in [0, 1 << 30] {
                // SAFETY: a file of ours, whose size stays as it is.
                let done = unsafe { libc::ftruncate(fd.as_raw_fd(), size) };
                assert_eq!((done, Errno::last().0), (-1, libc::EPERM), "{size}");
            }
        }
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn what_is_no_pool_is_refused() {
        let table = memfd(c"x", table_len(3)).expect("memfd");
        let frames = memfd(c"x", 3 * GRANULE).expect("memfd");
        let dup = |fd: &Fd| {
            // SAFETY: open as long as `fd` lives.
            unsafe { BorrowedFd::borrow_raw(fd.0) }.try_clone_to_owned().expect("a descriptor")
        };
        assert!(FramePool::open(dup(&table), dup(&frames)).is_err(), "no magic number");
        assert!(FramePool::open(dup(&frames), dup(&table)).is_err());
    }
}
