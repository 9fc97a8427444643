//! Memory of a process that is compressed on its way out, in children that have one thread each, as ranks
//! have.

#[path = "conformance/common.rs"]
#[allow(dead_code, reason = "the conformance suite uses the rest")]
mod common;
#[path = "packed/data.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod data;
mod moves;

use common::{Faulty, Random};
use data::Data;
use moves::Moves;
use sbmalloc::pager;
use sbmalloc::{
    Arena, ArenaOptions, ArenaSet, Compression, Config, Errno, PROCESS, SbVec, Store, StoreKind, configure,
};
use std::io::Read;
use std::os::fd::FromRawFd;

/// Bytes.
const MIB: usize = 1 << 20;

/// Runs `f` in a child with one thread: how it ended (as `waitpid` says), and what it wrote to standard
/// error.
fn child(f: impl FnOnce()) -> (i32, String) {
    let mut pipe = [0; 2];
    // SAFETY: makes a pipe, and a child that runs `f` and ends.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::dup2(pipe[1], 2);
            libc::close(pipe[0]);
            libc::alarm(600);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            libc::_exit(if done.is_ok() { 0 } else { 99 });
        }
        libc::close(pipe[1]);
        let mut text = String::new();
        let _ = std::fs::File::from_raw_fd(pipe[0]).read_to_string(&mut text);
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        (status, text)
    }
}

fn succeeds(f: impl FnOnce()) {
    let (status, text) = child(f);
    assert_eq!(status, 0, "{text}");
}

/// Memory of the process that shrinks, a promise, and an evict.
fn evicted(arena: &Arena) -> SbVec<u8> {
    let how = Config { compression: Compression::Lz4, ..Config::default() };
    configure(how).expect("a configuration");
    let mut bytes = SbVec::new_in(arena);
    bytes.resize(12 * MIB, 0);
    Data::Counters.fill(&mut bytes, 1);
    pager::expect_restores(0);
    PROCESS.page_out_to(0, 1, &mut |_| {}).expect("evict");
    bytes
}

fn check(bytes: &[u8]) {
    let mut model = vec![0; bytes.len()];
    Data::Counters.fill(&mut model, 1);
    assert!(bytes == model);
}

fn new_arena() -> Arena {
    Arena::new(&ArenaOptions { reserve: 1 << 30, ..ArenaOptions::default() }).expect("arena")
}

#[test]
fn a_process_with_one_thread_packs() {
    succeeds(|| {
        let arena = new_arena();
        let bytes = evicted(&arena);
        assert!(sbmalloc::PROCESS.is_packed());
        assert!(arena.stats().written < 9 * MIB as u64);
        pager::unpack().expect("restore");
        assert!(!pager::is_evicted());
        check(&bytes);
    });
}

#[test]
fn a_process_with_threads_never_does() {
    succeeds(|| {
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || told.recv());
        let arena = new_arena();
        let bytes = evicted(&arena);
        assert!(pager::is_evicted() && !sbmalloc::PROCESS.is_packed());
        check(&bytes);
        // What was packed before is written raw once there are threads.
        drop(tell);
        let _ = thread.join();
        PROCESS.page_in().expect("restore");
        let mut more = evicted(&arena);
        assert!(sbmalloc::PROCESS.is_packed());
        pager::unpack().expect("restore");
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || told.recv());
        PROCESS.page_out_to(0, 1, &mut |_| {}).expect("evict");
        assert!(pager::is_evicted() && !sbmalloc::PROCESS.is_packed());
        check(&more);
        more[5] = 1;
        drop(tell);
        let _ = thread.join();
    });
}

#[test]
fn nor_does_one_with_handlers_of_signals() {
    extern "C" fn nothing(_: i32) {}
    succeeds(|| {
        // SAFETY: a handler that does nothing.
        unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as usize) };
        let arena = new_arena();
        let bytes = evicted(&arena);
        assert!(pager::is_evicted() && !sbmalloc::PROCESS.is_packed());
        check(&bytes);
        PROCESS.page_in().expect("restore");
        // Unless they are known to touch nothing.
        pager::expect_restores(1 << (libc::SIGUSR1 - 1));
        PROCESS.page_out_to(0, 1, &mut |_| {}).expect("evict");
        PROCESS.page_in().expect("restore");
        check(&bytes);
    });
}

#[test]
fn a_fork_while_packed_brings_all_in() {
    succeeds(|| {
        let arena = new_arena();
        let mut bytes = evicted(&arena);
        assert!(sbmalloc::PROCESS.is_packed());
        // SAFETY: the child checks and ends.
        let pid = unsafe { libc::fork() };
        assert!(!sbmalloc::PROCESS.is_packed() && !pager::is_evicted());
        check(&bytes);
        // Each goes on with a file of its own.
        let mut random = Random(3 + u64::from(pid == 0));
        for turn in 0..3 {
            let (at, byte) = (random.below(bytes.len()), random.next() as u8);
            let was = std::mem::replace(&mut bytes[at], byte);
            PROCESS.page_out_to(0, turn << 40, &mut |_| {}).expect("evict");
            assert!(sbmalloc::PROCESS.is_packed());
            pager::unpack().expect("restore");
            assert_eq!(std::mem::replace(&mut bytes[at], was), byte);
            check(&bytes);
        }
        if pid == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: the child of above.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0, "the child");
    });
}

#[test]
fn a_touch_ends_the_process_and_says_why() {
    let (status, text) = child(|| {
        let arena = new_arena();
        let bytes = evicted(&arena);
        assert!(sbmalloc::PROCESS.is_packed());
        std::hint::black_box(bytes[3 * MIB]);
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status:x} {text}");
    assert!(text.contains("compressed") && text.contains("0x0000"), "{text}");
}

/// A store that takes its time.
struct Slow(&'static Faulty);

impl Slow {
    fn pause(len: usize) {
        // 10 MB/s: slower than the codec however busy the machine is.
        std::thread::sleep(std::time::Duration::from_nanos(len as u64 * 100));
    }
}

// SAFETY: what it does wrong it reports, or the checksums find it, which is what the tests are about.
unsafe impl Store for Slow {
    unsafe fn write_at(&self, offset: u64, from: *const u8, len: usize) -> Result<usize, Errno> {
        Self::pause(len);
        // SAFETY: the caller's contract.
        unsafe { self.0.write_at(offset, from, len) }
    }
    unsafe fn read_at(&self, offset: u64, to: *mut u8, len: usize) -> Result<usize, Errno> {
        Self::pause(len);
        // SAFETY: the caller's contract.
        unsafe { self.0.read_at(offset, to, len) }
    }
    fn punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.0.punch(offset, len)
    }
    fn ensure_len(&self, len: u64) -> Result<(), Errno> {
        self.0.ensure_len(len)
    }
    fn settle(&self) -> Result<(), Errno> {
        Ok(())
    }
    fn drop_cache(&self) {}
    fn mapping_fd(&self, offset: u64) -> i32 {
        self.0.mapping_fd(offset)
    }
}

#[test]
fn measurement_finds_out_that_it_pays_on_a_slow_disk_and_that_noise_never_does() {
    assert!(!packs(Data::Noise, 24 * MIB), "noise");
    // The codec is measured by the clock, and may have had no processor.
    assert!((0..3).any(|_| packs(Data::Counters, 48 * MIB)), "it never pays");
}

/// Whether memory with such data, of a process that leaves it to be measured, is packed on a slow disk.
fn packs(data: Data, size: usize) -> bool {
    const RAW: i32 = 3;
    let (status, text) = child(|| {
        configure(Config::default()).expect("a configuration");
        let set: &'static ArenaSet = Box::leak(Box::default());
        let store: &'static Slow = Box::leak(Box::new(Slow(Faulty::new(false, false))));
        let store = Some(StoreKind::Custom(store));
        let options = ArenaOptions { reserve: 1 << 30, store, ..ArenaOptions::default() };
        let arena = Arena::new_in(&options, set).expect("arena");
        set.expect_restores();
        let mut bytes = SbVec::new_in(&arena);
        bytes.resize(size, 0);
        data.fill(&mut bytes, 1);
        let model = bytes.to_vec();
        let moved = set.page_out_to(0, 0, &mut |_| {}).expect("evict");
        let is_packed = set.is_packed();
        // The first 16 MiB, by which the disk is measured, go as they are.
        let percent = moved.bytes as usize * 100 / model.len();
        assert!(if is_packed { (34..80).contains(&percent) } else { percent == 100 }, "{percent}");
        set.page_in_for(0, &mut |_| usize::MAX).expect("restore");
        assert!(*bytes == *model);
        if !is_packed {
            // SAFETY: ends the child.
            unsafe { libc::_exit(RAW) };
        }
    });
    assert!(status == 0 || libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == RAW, "{status}: {text}");
    status == 0
}
