//! A fault at every call on the store in turn: each kind of fault, at the first call it can happen at, then
//! at the second, and so on until a fixed program runs clean. A fault strikes once, or at every call from
//! then on until the store is repaired. Whatever happens: the error is the one injected, memory is right
//! afterwards, and what failed works when it is tried again.

use crate::common::{Block, apart, arena};
use crate::moves::Moves;
use sbmalloc::pager::{Moved, PagerError};
use sbmalloc::{ArenaSet, CHUNK, Errno, HugePolicy, PAGE, Store, StoreKind, TrackerKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The call does half of it.
    ShortWrite,
    ShortRead,
    /// The call does nothing and says so: 0.
    NothingWritten,
    EndOfFile,
    Write(i32),
    Read(i32),
    /// What is read differs from what was written.
    CorruptRead,
    /// What is written differs from what was to be.
    CorruptWrite,
    Punch(i32),
    Lengthen(i32),
    Settle(i32),
    /// No descriptor to map.
    Map,
    /// Everything takes long.
    Slow,
}

impl Fault {
    fn is_for(self, call: Call) -> bool {
        match self {
            Self::ShortWrite | Self::NothingWritten | Self::Write(_) => call == Call::Write,
            Self::ShortRead | Self::EndOfFile | Self::Read(_) => call == Call::Read,
            Self::CorruptRead => call == Call::Read,
            Self::CorruptWrite => call == Call::Write,
            Self::Punch(_) => call == Call::Punch,
            Self::Lengthen(_) => call == Call::Lengthen,
            Self::Settle(_) => call == Call::Settle,
            Self::Map => call == Call::Map,
            Self::Slow => true,
        }
    }

    /// Whether this is the error that may come of it.
    fn explains(self, e: PagerError) -> bool {
        match e {
            PagerError::NoSpace { .. } => matches!(
                self,
                Self::Write(libc::ENOSPC)
                    | Self::Lengthen(libc::ENOSPC)
                    | Self::Settle(libc::ENOSPC)
                    | Self::NothingWritten
            ),
            PagerError::Io { errno, .. } => match self {
                Self::Write(n) | Self::Read(n) | Self::Lengthen(n) | Self::Settle(n) => errno.0 == n,
                Self::EndOfFile => errno.0 == libc::EIO,
                Self::Map => errno.0 == libc::EBADF,
                _ => false,
            },
            PagerError::Corrupt { .. } => matches!(self, Self::CorruptRead | Self::CorruptWrite),
            PagerError::ThreadsBusy { .. }
            | PagerError::InUse { .. }
            | PagerError::Blind { .. }
            | PagerError::OwnStack => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Write,
    Read,
    Punch,
    Lengthen,
    Settle,
    Map,
}

/// A memfd that has one fault. Like every store it allocates nothing: a parked thread may hold the
/// allocator's lock.
struct Injector {
    fd: OwnedFd,
    beside: bool,
    fault: Fault,
    /// Calls it can happen at that are still to go well.
    left: AtomicI64,
    /// It happens at every call from then on.
    stays: bool,
    struck: AtomicBool,
    repaired: AtomicBool,
    /// Where a byte was written last; negative for nowhere, and least to keep it so.
    last: AtomicI64,
}

impl Injector {
    fn new(fault: Fault, k: i64, stays: bool, beside: bool) -> &'static Self {
        // SAFETY: makes a new descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"injector".as_ptr(), 0)) };
        let (struck, repaired) = (AtomicBool::new(false), AtomicBool::new(false));
        let (left, last) = (AtomicI64::new(k), AtomicI64::new(-1));
        Box::leak(Box::new(Self { fd, beside, fault, left, stays, struck, repaired, last }))
    }

    fn strikes(&self, call: Call) -> bool {
        if !self.fault.is_for(call) || self.repaired.load(Ordering::Relaxed) {
            return false;
        }
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        let now = left == 0 || (left < 0 && self.stays);
        if now {
            self.struck.store(true, Ordering::Relaxed);
            if self.fault == Fault::Slow {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        now
    }

    fn fails(&self, call: Call) -> Result<(), Errno> {
        match self.fault {
            Fault::Punch(n) | Fault::Lengthen(n) | Fault::Settle(n) if self.strikes(call) => Err(Errno(n)),
            _ => Ok(()),
        }
    }

    /// Changes the byte at an offset of the file.
    fn damage(&self, at: i64) {
        let mut byte = [0u8];
        let fd = self.fd.as_raw_fd();
        // SAFETY: one byte, of our own.
        assert_eq!(unsafe { libc::pread(fd, byte.as_mut_ptr().cast(), 1, at) }, 1);
        byte[0] ^= 0x10;
        // SAFETY: as above.
        assert_eq!(unsafe { libc::pwrite(fd, byte.as_ptr().cast(), 1, at) }, 1);
    }

    fn size(&self) -> libc::off_t {
        // SAFETY: a zeroed stat is valid, and the kernel fills it.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            assert_eq!(libc::fstat(self.fd.as_raw_fd(), &mut stat), 0);
            stat.st_size
        }
    }
}

/// Half of a transfer, in whole pages.
fn half(len: usize) -> usize {
    (len / 2).next_multiple_of(PAGE)
}

// SAFETY: what it does wrong it reports, or the checksums find it, which is what the tests are about.
unsafe impl Store for Injector {
    unsafe fn write_at(&self, offset: u64, from: *const u8, len: usize) -> Result<usize, Errno> {
        let strikes = self.strikes(Call::Write);
        let mut len = len;
        if strikes {
            match self.fault {
                Fault::Write(n) => return Err(Errno(n)),
                Fault::NothingWritten => return Ok(0),
                Fault::ShortWrite => len = half(len),
                _ => {}
            }
        }
        // SAFETY: the caller's contract.
        let n = unsafe { libc::pwrite(self.fd.as_raw_fd(), from.cast(), len, offset as i64) };
        let n = usize::try_from(n).expect("memfd");
        if self.last.load(Ordering::Relaxed) != i64::MIN {
            self.last.store(offset as i64 + (n / 3) as i64, Ordering::Relaxed);
        }
        if strikes && self.fault == Fault::CorruptWrite {
            self.damage(offset as i64 + (n / 3) as i64);
        }
        Ok(n)
    }
    unsafe fn read_at(&self, offset: u64, to: *mut u8, len: usize) -> Result<usize, Errno> {
        let strikes = self.strikes(Call::Read);
        let mut len = len;
        if strikes {
            match self.fault {
                Fault::Read(n) => return Err(Errno(n)),
                Fault::EndOfFile => return Ok(0),
                Fault::ShortRead => len = half(len),
                _ => {}
            }
        }
        // SAFETY: the caller's contract.
        let n = unsafe { libc::pread(self.fd.as_raw_fd(), to.cast(), len, offset as i64) };
        let n = usize::try_from(n).expect("memfd");
        if strikes && self.fault == Fault::CorruptRead {
            // SAFETY: inside what was just filled.
            unsafe { *to.add(n / 3) ^= 0x10 };
        }
        Ok(n)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.fails(Call::Punch)?;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: touches the file only.
        let r = unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset as i64, len as i64) };
        if r == 0 { Ok(()) } else { Err(Errno::last()) }
    }
    fn ensure_len(&self, len: u64) -> Result<(), Errno> {
        self.fails(Call::Lengthen)?;
        // SAFETY: touches the file only, and never shortens it.
        let r = unsafe { libc::ftruncate(self.fd.as_raw_fd(), (len as i64).max(self.size())) };
        if r == 0 { Ok(()) } else { Err(Errno::last()) }
    }
    fn settle(&self) -> Result<(), Errno> {
        self.fails(Call::Settle).inspect_err(|_| {
            // It speaks of a write before it. (Of a block that is out and written in part, the other part is
            // in the file alone: if that is lost, only the checksum tells.)
            let last = self.last.load(Ordering::Relaxed);
            if last >= 0 {
                self.last.store(-1, Ordering::Relaxed);
                self.damage(last);
            }
        })
    }
    fn drop_cache(&self) {}
    fn mapping_fd(&self, _: u64) -> i32 {
        if self.fault == Fault::Map && self.strikes(Call::Map) { -1 } else { self.fd.as_raw_fd() }
    }
    fn async_fd(&self, _: u64) -> Option<i32> {
        self.beside.then(|| self.fd.as_raw_fd())
    }
    fn async_result(
        &self,
        is_write: bool,
        offset: u64,
        result: Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        if !self.strikes(if is_write { Call::Write } else { Call::Read }) {
            return result;
        }
        let ended = match self.fault {
            Fault::Write(n) | Fault::Read(n) => Err(Errno(n)),
            Fault::NothingWritten | Fault::EndOfFile => Ok(0),
            Fault::ShortWrite | Fault::ShortRead => result.map(half),
            _ => result,
        };
        if is_write {
            // The kernel has made all of it: what it is not to have made must be damaged.
            match (ended, result) {
                (Ok(now), Ok(all)) if now == all => {}
                (Ok(now), _) => self.damage(offset as i64 + now as i64),
                (Err(_), _) => self.damage(offset as i64),
            }
        }
        ended
    }
}

/// A run of the program with one fault.
struct Case {
    store: &'static Injector,
    set: &'static ArenaSet,
    what: String,
}

impl Case {
    /// Moves the memory; if that fails, as it may, twice, the second time with the store in order.
    fn moves(&self, how: fn(&'static ArenaSet) -> Result<Moved, PagerError>, intact: impl Fn()) -> bool {
        // Threads of other tests may sit in a call on a busy disk.
        let how = |set| loop {
            match how(set) {
                Err(PagerError::ThreadsBusy { .. }) => std::thread::sleep(Duration::from_millis(20)),
                other => return other,
            }
        };
        let Err(e) = how(self.set) else { return true };
        assert!(self.store.fault.explains(e), "{}: {e}", self.what);
        assert!(self.store.struck.load(Ordering::Relaxed), "{}: {e} without a fault", self.what);
        if self.store.fault == Fault::CorruptWrite {
            return false; // what was lost stays lost
        }
        intact();
        self.store.repaired.store(true, Ordering::Relaxed);
        how(self.set).unwrap_or_else(|e| panic!("{}: {e}, when tried again", self.what));
        true
    }
}

/// The fixed program; false if the fault did not happen, because the program makes fewer calls.
fn run(fault: Fault, k: i64, stays: bool, beside: bool, tracker: TrackerKind) -> bool {
    let store = Injector::new(fault, k, stays, beside);
    let (set, arena) = arena((tracker, StoreKind::Custom(store), HugePolicy::Never));
    let what = format!("{fault:?} at call {k}, stays {stays}, beside {beside}, {tracker:?}");
    let case = Case { store, set, what };
    // Beside, transfers are made from 4 MiB on only.
    let (chunks, last, step) = if beside { (8 * 16 + 5, 1, 50) } else { (24, 4, 5) };
    let mut block = Block::new(&arena, chunks * CHUNK);
    let mut gone = Some(Block::new(&arena, 3 * CHUNK));
    block.fill(1);
    gone.as_mut().expect("not yet").fill(2);
    let mut model = block.bytes().to_vec();
    for round in 0..=last {
        // While out, nothing tells that the file's bytes are not those that were written.
        let look = |block: &Block, model: &[u8], when| {
            assert!(
                fault == Fault::CorruptWrite || block.bytes() == model,
                "{}: round {round}, {when}",
                case.what
            );
        };
        if !case.moves(Moves::page_out, || look(&block, &model, "not evicted")) {
            break;
        }
        look(&block, &model, "out");
        if round == 1 {
            gone = None; // freed while out
        }
        if fault != Fault::CorruptWrite {
            let at = (7 + round) * CHUNK + 100;
            block.bytes_mut()[at..at + 10_000].fill(round as u8);
            model[at..at + 10_000].fill(round as u8);
        }
        // What was written or read while out goes to the file, or away.
        if round % 2 == 1 {
            store.last.store(i64::MIN, Ordering::Relaxed);
            if !case.moves(Moves::page_out, || look(&block, &model, "not evicted again")) {
                break;
            }
            store.last.store(-1, Ordering::Relaxed);
            look(&block, &model, "out again");
        }
        let fresh = Block::new(&arena, 3 * CHUNK);
        assert!(round == 0 || fresh.bytes().iter().all(|&b| b == 0), "{}: a fresh run is zero", case.what);
        if !case.moves(Moves::page_in, || look(&block, &model, "not restored")) {
            break;
        }
        assert!(block.bytes() == model, "{}: round {round}, in", case.what);
        assert!(fresh.bytes().iter().all(|&b| b == 0), "{}: a fresh run stays zero", case.what);
        // Scattered, in a stretch, and zeros where there were none, so that every kind of call is made again.
        for i in (round..chunks).step_by(step) {
            block.bytes_mut()[i * CHUNK + 99] ^= 1;
            model[i * CHUNK + 99] ^= 1;
        }
        for (at, byte) in [(11, 0), (15, 0x77)] {
            let bytes = (at + round % 2) * CHUNK..(at + 2) * CHUNK;
            block.bytes_mut()[bytes.clone()].fill(byte);
            model[bytes].fill(byte);
        }
    }
    if let Some(mut gone) = gone
        && fault != Fault::CorruptWrite
    {
        gone.check(2);
    }
    store.struck.load(Ordering::Relaxed)
}

/// Runs the program for every call; ends the process if it hangs.
fn every_call(faults: &[Fault], stays: bool, beside: bool, tracker: TrackerKind) {
    let (alive, watched) = channel::<()>();
    std::thread::spawn(move || {
        loop {
            match watched.recv_timeout(Duration::from_secs(120)) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("a program with an injected fault hangs");
                    std::process::abort();
                }
            }
        }
    });
    for &fault in faults {
        let mut k = 0;
        while run(fault, k, stays, beside, tracker) {
            k += 1;
            alive.send(()).expect("the watchdog waits");
        }
        assert!(k > 0, "{fault:?} never happened");
    }
}

const WRITES: [Fault; 7] = [
    Fault::ShortWrite,
    Fault::NothingWritten,
    Fault::Write(libc::EIO),
    Fault::Write(libc::ENOSPC),
    Fault::Write(libc::EAGAIN),
    Fault::Write(libc::EINTR),
    Fault::CorruptWrite,
];
const READS: [Fault; 6] = [
    Fault::ShortRead,
    Fault::EndOfFile,
    Fault::Read(libc::EIO),
    Fault::Read(libc::EAGAIN),
    Fault::Read(libc::EINTR),
    Fault::CorruptRead,
];
const OTHERS: [Fault; 7] = [
    Fault::Punch(libc::EOPNOTSUPP),
    Fault::Punch(libc::EIO),
    Fault::Lengthen(libc::EIO),
    Fault::Lengthen(libc::ENOSPC),
    Fault::Settle(libc::EIO),
    Fault::Settle(libc::ENOSPC),
    Fault::Map,
];

#[test]
fn a_fault_at_each_call_in_turn() {
    if apart() {
        return;
    }
    for tracker in [TrackerKind::Hash, TrackerKind::Uffd] {
        for faults in [&WRITES[..], &READS, &OTHERS] {
            every_call(faults, false, false, tracker);
        }
    }
}

#[test]
fn a_fault_from_each_call_on() {
    if apart() {
        return;
    }
    let lasting =
        [Fault::ShortWrite, Fault::Write(libc::EIO), Fault::Write(libc::ENOSPC), Fault::Read(libc::EIO)];
    for faults in [&lasting[..], &[Fault::CorruptRead], &OTHERS] {
        every_call(faults, true, false, TrackerKind::Hash);
    }
    assert!(run(Fault::Slow, 0, true, false, TrackerKind::Hash));
    // Not for ever.
    assert!(run(Fault::Write(libc::EAGAIN), 5, true, false, TrackerKind::Hash));
    assert!(run(Fault::Read(libc::EINTR), 5, true, false, TrackerKind::Hash));
}

#[test]
fn a_fault_at_each_transfer_made_beside() {
    if apart() {
        return;
    }
    // A transfer that fails beside is made again by an ordinary call, which must then fail as well to be an
    // error.
    every_call(
        &[Fault::ShortWrite, Fault::Write(libc::EIO), Fault::Read(libc::EAGAIN)],
        false,
        true,
        TrackerKind::Hash,
    );
    every_call(
        &[Fault::Write(libc::ENOSPC), Fault::Read(libc::EIO), Fault::Map],
        true,
        true,
        TrackerKind::Hash,
    );
}
