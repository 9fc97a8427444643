//! What the ranks have mapped in common, how they find it, and who of them lives.
//!
//! The file is in `/dev/shm` from when rank 0 has made it until all ranks have come; then it has no name any
//! more, and the last rank that ends frees it. Each rank holds a lock on its own byte of the file as long as
//! it lives (an open file description lock, which the kernel takes away with the process): so the others know
//! when it has ended, and a file whose rank 0 has ended before all had come is known to be nobody's. A child
//! that it has forked keeps its lock: so it also says which process it is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bdrun_ipc::futex;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::process::Process;
use super::spec::Spec;
use crate::Cause;
use crate::transport::Result;

/// Bytes of a rank's part in one step of a collective: of few ranks, and of many.
const SLOTS: [usize; 2] = [512 << 10, 64 << 10];
/// Bytes on their way between two ranks: of few ranks, and of many.
const RINGS: [usize; 2] = [64 << 10, 8 << 10];
/// Up to so many ranks have the larger ones.
const FEW: usize = 16;
/// Most ranks.
pub const MOST_RANKS: usize = 128;

/// Sleepers to wake: the kernel takes it as a number with a sign.
pub const EVERYBODY: u32 = i32::MAX as u32;

/// How often is looked whether the others live.
pub const LOOK: Duration = Duration::from_millis(50);

const PAGE: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"bdrunshm");
/// Of the layout, and of what is done with it.
const VERSION: u32 = 3;

/// Its first page.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    size: AtomicU32,
    /// Changes when a rank has come: a futex.
    arrivals: AtomicU32,
    /// Ranks at the barrier under way.
    pub arrived: AtomicU32,
    /// Barriers that are over: a futex.
    pub generation: AtomicU32,
    /// Who has ended the job, from 1, and with which code below; 0: nobody.
    pub aborted: AtomicU64,
}

/// Of each rank.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Block {
    /// Barriers that it has come to.
    pub at: AtomicU64,
    /// What it does in the barrier of even, and of odd number.
    pub calls: [AtomicU64; 2],
    /// Rung when something has come for it, or gone: a futex.
    pub bell: AtomicU32,
    /// Whether it may sleep.
    pub sleeps: AtomicU32,
    /// Whether it has come. One that ends, and is started again while others still come, has come once.
    came: AtomicU32,
    /// Which process it is: [`Process`].
    process: [AtomicU64; 3],
}

/// Of each two ranks: bytes written to the ring between them, and read.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Ends {
    /// By the sender.
    pub written: AtomicU64,
    /// By the receiver.
    pub read: AtomicU64,
}

/// Where things lie in a segment of so many ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    size: usize,
}

impl Layout {
    const fn block(self, rank: usize) -> usize {
        PAGE + rank * size_of::<Block>()
    }

    const fn ends(self, from: usize, to: usize) -> usize {
        self.block(self.size) + (from * self.size + to) * size_of::<Ends>()
    }

    const fn slot(self, rank: usize, parity: usize) -> usize {
        self.ends(self.size, 0).next_multiple_of(PAGE) + (2 * rank + parity) * self.slot_bytes()
    }

    const fn ring(self, from: usize, to: usize) -> usize {
        self.slot(self.size, 0) + (from * self.size + to) * self.ring_bytes()
    }

    const fn slot_bytes(self) -> usize {
        SLOTS[(self.size > FEW) as usize]
    }

    const fn ring_bytes(self) -> usize {
        RINGS[(self.size > FEW) as usize]
    }

    const fn bytes(self) -> usize {
        self.ring(self.size, 0)
    }
}

/// It, mapped.
#[derive(Debug)]
pub struct Segment {
    map: MmapRaw,
    file: File,
    layout: Layout,
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Cause {
    move |error| Cause::System { what, error }
}

/// Takes the lock on a byte, or tells whether another has it: true if so.
fn locked_by_another(file: &File, byte: usize, take: bool) -> io::Result<bool> {
    locked(file, (byte, 1), take)
}

/// Whether nobody has a lock on any byte.
fn is_nobodys(file: &File) -> bool {
    // No length: to the end of all files.
    locked(file, (0, 0), false).is_ok_and(|locked| !locked)
}

/// The same of bytes from one on.
fn locked(file: &File, (byte, bytes): (usize, usize), take: bool) -> io::Result<bool> {
    // SAFETY: plain integers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    (lock.l_start, lock.l_len) = (byte as libc::off_t, bytes as libc::off_t);
    let command = if take { libc::F_OFD_SETLK } else { libc::F_OFD_GETLK };
    // SAFETY: an open descriptor, and a structure that lives as long as the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    match (take, result) {
        (false, 0) => Ok(i32::from(lock.l_type) != libc::F_UNLCK),
        (true, 0) => Ok(false),
        _ => match io::Error::last_os_error() {
            error if take && error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            error => Err(error),
        },
    }
}

/// Removes a file, if it is still the one that has that name.
fn remove(path: &Path, file: &File) {
    let same = |a: &std::fs::Metadata, b: &std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    if let (Ok(named), Ok(ours)) = (std::fs::metadata(path), file.metadata())
        && same(&named, &ours)
    {
        // If it is gone already, so much the better.
        let _ = std::fs::remove_file(path);
    }
}

/// Where they are.
const PLACE: &str = "/dev/shm";

/// Whose this process is.
fn user() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

/// How their names begin.
fn beginning() -> String {
    format!("bdrun-{}-", user())
}

/// Removes what this user's jobs have left, all ranks of which were killed before all had come. Such a file
/// stays nobody's: it is named with rank 0's lock on it, without which no other rank takes part.
fn remove_what_nobody_has() {
    let beginning = beginning();
    for entry in std::fs::read_dir(PLACE).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&beginning)
            && let Ok(file) = File::open(entry.path())
            && is_nobodys(&file)
        {
            remove(&entry.path(), &file);
        }
    }
}

impl Segment {
    /// Where it is until all ranks have come.
    pub fn path(spec: &Spec) -> PathBuf {
        Path::new(PLACE).join(beginning() + &spec.name)
    }

    /// Makes it (rank 0), or finds it, and waits until all ranks have.
    pub fn join(spec: &Spec) -> Result<Self> {
        spec.check().map_err(Cause::Backend)?;
        let (path, until) = (Self::path(spec), Instant::now() + spec.patience);
        let this = match spec.rank {
            0 => Self::make(spec, &path)?,
            _ => Self::find(spec, &path, until)?,
        };
        this.come(spec.rank);
        let gathered = this.gather(spec, until);
        // Nobody comes any more, or not all will. Not rank 0 alone does it: it may be killed before.
        remove(&path, &this.file);
        gathered.map(|()| this)
    }

    fn make(spec: &Spec, path: &Path) -> Result<Self> {
        let another = || Cause::Backend(format!("{} is another job's, which runs", path.display()));
        if let Ok(old) = File::open(path) {
            if locked_by_another(&old, 0, false).map_err(system("look at a lock"))? {
                return Err(another());
            }
            remove(path, &old);
        }
        remove_what_nobody_has();
        // Without a name, so that nothing is left if this process ends before it is as it should be.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(PLACE, flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(|error| system("make a file in /dev/shm")(error.into()))?;
        let this = Self::fill(file.into(), Layout { size: spec.size })?;
        let own = format!("/proc/self/fd/{}", this.file.as_raw_fd());
        match rustix::fs::linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(this),
            Err(Errno::EXIST) => Err(another()),
            Err(error) => Err(system("name the file in /dev/shm")(error.into())),
        }
    }

    fn fill(file: File, layout: Layout) -> Result<Self> {
        // Where there is no room that is said now, and not by a signal when it is used.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, layout.bytes() as u64)
            .map_err(|error| system("room in /dev/shm")(error.into()))?;
        locked_by_another(&file, 0, true).map_err(system("take a lock"))?;
        let this = Self::map(file, layout)?;
        let header = this.header();
        header.version.store(VERSION, SeqCst);
        header.size.store(layout.size as u32, SeqCst);
        header.magic.store(MAGIC, SeqCst);
        Ok(this)
    }

    fn map(file: File, layout: Layout) -> Result<Self> {
        let map = MmapOptions::new().len(layout.bytes()).map_raw(&file).map_err(system("map the segment"))?;
        Ok(Self { map, file, layout })
    }

    fn find(spec: &Spec, path: &Path, until: Instant) -> Result<Self> {
        loop {
            match File::options().read(true).write(true).open(path) {
                // Of a rank 0 that has ended: another one will come.
                Ok(file) if locked_by_another(&file, 0, false).map_err(system("look at a lock"))? => {
                    return Self::take_part(spec, file);
                }
                Ok(file) if Instant::now() > until => {
                    remove(path, &file);
                    return Err(Cause::Backend("rank 0 has ended before all had come".into()));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(system("open the segment in /dev/shm")(error));
                }
                _ if Instant::now() > until => {
                    return Err(Cause::Backend(format!(
                        "rank 0 has not come: there is no {}",
                        path.display()
                    )));
                }
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn take_part(spec: &Spec, file: File) -> Result<Self> {
        let layout = Layout { size: spec.size };
        let about = file.metadata().map_err(system("look at the segment"))?;
        if about.uid() != user() {
            return Err(Cause::Backend(format!(
                "the segment is user {}'s, who could change it",
                about.uid()
            )));
        }
        let len = about.len();
        if len != layout.bytes() as u64 {
            let why = format!("rank 0 was not told that there are {} ranks, as this one was", spec.size);
            return Err(Cause::Backend(why));
        }
        if locked_by_another(&file, spec.rank, true).map_err(system("take a lock"))? {
            return Err(Cause::Backend(format!("there is a rank {} already", spec.rank)));
        }
        let this = Self::map(file, layout)?;
        let header = this.header();
        if (header.magic.load(SeqCst), header.version.load(SeqCst)) != (MAGIC, VERSION) {
            return Err(Cause::Backend("the segment is another version's".into()));
        }
        Ok(this)
    }

    fn come(&self, rank: usize) {
        let Process { id, born, namespace } = Process::own();
        for (word, said) in self.block(rank).process.iter().zip([id, born, namespace]) {
            word.store(said, SeqCst);
        }
        self.block(rank).came.store(1, SeqCst);
        let arrivals = &self.header().arrivals;
        arrivals.fetch_add(1, SeqCst);
        futex::wake(arrivals, EVERYBODY);
    }

    /// How many ranks have come.
    fn came(&self) -> usize {
        (0..self.layout.size).filter(|&rank| self.block(rank).came.load(SeqCst) == 1).count()
    }

    /// Waits until all have come.
    fn gather(&self, spec: &Spec, until: Instant) -> Result<()> {
        loop {
            let arrivals = self.header().arrivals.load(SeqCst);
            let came = self.came();
            if came >= spec.size {
                return Ok(());
            }
            if spec.rank != 0 && !self.lives(0) {
                return Err(Cause::Lost { peer: 0 });
            }
            if Instant::now() > until {
                return Err(Cause::Backend(format!("{came} of {} ranks have come", spec.size)));
            }
            futex::wait(&self.header().arrivals, arrivals, Some(LOOK));
        }
    }

    /// Whether another rank lives.
    pub fn lives(&self, rank: usize) -> bool {
        // If the system does not say, it is not said to be dead.
        let is_held = locked_by_another(&self.file, rank, false).unwrap_or(true);
        let block = self.block(rank);
        is_held
            && (block.came.load(SeqCst) == 0 || {
                let [id, born, namespace] = [0, 1, 2].map(|at| block.process[at].load(SeqCst));
                Process { id, born, namespace }.may_live()
            })
    }

    fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.layout.bytes() && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping, which is aligned to a page and lives as long as `self`; all `T` here
        // are made of atomics, which others may write, and for which all values are valid.
        unsafe { &*self.map.as_ptr().add(offset).cast::<T>() }
    }

    /// Its first page.
    pub fn header(&self) -> &Header {
        self.at(0)
    }

    /// A rank's block.
    pub fn block(&self, rank: usize) -> &Block {
        assert!(rank < self.layout.size);
        self.at(self.layout.block(rank))
    }

    /// Of the ring between two ranks.
    pub fn ends(&self, from: usize, to: usize) -> &Ends {
        assert!(from < self.layout.size && to < self.layout.size);
        self.at(self.layout.ends(from, to))
    }

    /// Bytes of a slot.
    pub const fn slot_bytes(&self) -> usize {
        self.layout.slot_bytes()
    }

    /// A rank's part of the steps of even, or of odd number: [`slot_bytes`](Self::slot_bytes) bytes.
    pub fn slot(&self, rank: usize, parity: usize) -> *mut u8 {
        assert!(rank < self.layout.size && parity < 2);
        self.map.as_mut_ptr().wrapping_add(self.layout.slot(rank, parity))
    }

    /// Bytes of a ring.
    pub const fn ring_bytes(&self) -> usize {
        self.layout.ring_bytes()
    }

    /// The ring between two ranks: [`ring_bytes`](Self::ring_bytes) bytes.
    pub fn ring(&self, from: usize, to: usize) -> *mut u8 {
        assert!(from < self.layout.size && to < self.layout.size);
        self.map.as_mut_ptr().wrapping_add(self.layout.ring(from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Nothing lies on anything else, and all is where its kind may lie.
        #[test]
        fn parts_do_not_overlap(size in 1usize..=24) {
            let layout = Layout { size };
            let mut parts = vec![(0, size_of::<Header>(), align_of::<Header>())];
            for a in 0..size {
                parts.push((layout.block(a), size_of::<Block>(), align_of::<Block>()));
                parts.extend([0, 1].map(|parity| (layout.slot(a, parity), layout.slot_bytes(), PAGE)));
                for b in 0..size {
                    parts.push((layout.ends(a, b), size_of::<Ends>(), align_of::<Ends>()));
                    parts.push((layout.ring(a, b), layout.ring_bytes(), PAGE));
                }
            }
            parts.sort_unstable();
            for pair in parts.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
            }
            for (at, bytes, align) in parts {
                prop_assert!(at + bytes <= layout.bytes() && at % align == 0);
            }
        }
    }

    fn spec(name: &str, rank: usize, size: usize) -> Spec {
        Spec::new(format!("test-{name}-{}", std::process::id()), rank, size)
    }

    #[test]
    fn a_file_of_a_leader_that_has_ended_is_replaced_and_none_is_left() {
        let path = Segment::path(&spec("stale", 0, 2));
        drop(Segment::make(&spec("stale", 0, 2), &path).unwrap());
        let late = Spec { patience: Duration::ZERO, ..spec("stale", 1, 2) };
        assert!(Segment::join(&late).is_err() && !path.exists(), "who waits in vain removes it");
        drop(Segment::make(&spec("stale", 0, 2), &path).unwrap());
        let other = std::thread::spawn(|| Segment::join(&spec("stale", 1, 2)));
        let leader = Segment::join(&spec("stale", 0, 2)).unwrap();
        let other = other.join().unwrap().unwrap();
        assert!(!path.exists() && leader.lives(1) && other.lives(0));
        drop(other);
        assert!(!leader.lives(1));
    }

    #[test]
    fn what_a_job_has_left_that_was_killed_the_next_one_removes() {
        let path = Segment::path(&spec("killed", 0, 2));
        drop(Segment::make(&spec("killed", 0, 2), &path).unwrap());
        let next = Segment::path(&spec("next", 0, 2));
        let leader = Segment::make(&spec("next", 0, 2), &next).unwrap();
        assert!(!path.exists() && next.exists());
        // Of one whose rank 0 has ended the others may still say so.
        let other = Segment::find(&spec("next", 1, 2), &next, Instant::now()).unwrap();
        drop(leader);
        remove_what_nobody_has();
        assert!(next.exists());
        drop(other);
        remove_what_nobody_has();
        assert!(!next.exists());
    }

    #[test]
    fn who_is_last_leaves_no_file_even_if_the_leader_is_killed_before_it_removes_it() {
        let path = Segment::path(&spec("last", 0, 2));
        let leader = Segment::make(&spec("last", 0, 2), &path).unwrap();
        leader.come(0);
        let other = Segment::join(&spec("last", 1, 2)).unwrap();
        assert!(!path.exists() && other.lives(0));
    }

    #[test]
    fn a_leader_that_ends_while_the_others_come_is_noticed_and_cleaned_up_after() {
        let path = Segment::path(&spec("lost", 0, 3));
        let leader = Segment::make(&spec("lost", 0, 3), &path).unwrap();
        let other = std::thread::spawn(|| Segment::join(&spec("lost", 2, 3)));
        while leader.came() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(leader);
        assert!(matches!(other.join().unwrap(), Err(Cause::Lost { peer: 0 })));
        assert!(!path.exists());
    }

    #[test]
    fn who_is_started_again_while_others_come_is_one_of_them_once() {
        let path = Segment::path(&spec("again", 0, 3));
        let leader = Segment::make(&spec("again", 0, 3), &path).unwrap();
        leader.come(0);
        let soon = Duration::from_secs(60);
        for _ in 0..2 {
            let other = Segment::find(&spec("again", 1, 3), &path, Instant::now() + soon).unwrap();
            other.come(1);
            assert_eq!(leader.came(), 2);
        }
        // All have come when the third has, and not before.
        let late = Spec { patience: Duration::ZERO, ..spec("again", 0, 3) };
        let error = leader.gather(&late, Instant::now()).unwrap_err().to_string();
        assert!(error.contains("2 of 3 ranks have come"), "{error}");
        let _last = Segment::join(&spec("again", 2, 3)).unwrap();
        assert!(leader.gather(&late, Instant::now()).is_ok() && !path.exists());
    }

    #[test]
    fn who_does_not_fit_is_told_why() {
        let path = Segment::path(&spec("fit", 0, 2));
        let soon = Duration::from_millis(10);
        let said =
            |spec: &Spec| Segment::join(&Spec { patience: soon, ..spec.clone() }).unwrap_err().to_string();
        assert!(said(&spec("fit", 1, 2)).contains("rank 0 has not come"));
        assert!(said(&spec("fit", 0, 2)).contains("1 of 2 ranks have come") && !path.exists());
        let _leader = Segment::make(&spec("fit", 0, 2), &path).unwrap();
        assert!(said(&spec("fit", 0, 2)).contains("another job's"));
        assert!(said(&spec("fit", 1, 3)).contains("there are 3 ranks"));
        assert!(said(&spec("fit", 3, 3)).contains("rank 3: there are 3 ranks"));
        assert!(said(&spec("a/b", 0, 1)).contains("letters") && said(&spec("fit", 0, 0)).contains("from 1"));
        let _first = Segment::find(&spec("fit", 1, 2), &path, Instant::now() + soon).unwrap();
        assert!(said(&spec("fit", 1, 2)).contains("there is a rank 1 already"));
        std::fs::remove_file(path).unwrap();
    }
}
