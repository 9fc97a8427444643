//! A process whose whole heap is `SbHeap`, evicted and restored while it works.

mod moves;

use moves::Moves;
use sbmalloc::{
    Account, Denied, GRANULE, PAGE, PROCESS, SbAlloc, SbHeap, SbVec, held_bytes, pager, resident_bytes,
};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

#[global_allocator]
static HEAP: SbHeap = SbHeap;

/// The pager moves the whole process, so the tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

fn anonymous_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("RssAnon");
    line.split_whitespace().nth(1).expect("number").parse::<usize>().expect("number") << 10
}

/// Ends the threads of a scope also when the test fails, or it would wait for them for ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[test]
fn a_program_goes_on_between_evictions() {
    let _turn = turn();
    let mut map: HashMap<u64, String> = HashMap::new();
    let mut table = hashbrown::HashMap::<u64, u64, _, SbAlloc>::with_hasher_in(
        std::collections::hash_map::RandomState::new(),
        SbAlloc::heap(),
    );
    let mut list: SbVec<u64> = SbVec::new();
    for round in 0..12u64 {
        for i in round * 20_000..(round + 1) * 20_000 {
            map.insert(mix(i), format!("value {i}"));
            table.insert(mix(i), i);
            list.push(i);
        }
        let out = PROCESS.page_out().expect("evict");
        assert!(out.freed_or_filled > 0 && pager::is_evicted());
        assert!(resident_bytes() < held_bytes() / 2, "{} of {}", resident_bytes(), held_bytes());
        if round % 2 == 0 {
            // Works on while it is out.
            for i in (0..round * 20_000).step_by(97) {
                assert_eq!(map.remove(&mix(i)), Some(format!("value {i}")));
                map.insert(mix(i), format!("value {i}"));
            }
        }
        PROCESS.page_in().expect("restore");
        assert!(!pager::is_evicted());
        assert_eq!(resident_bytes(), held_bytes());
        for i in 0..(round + 1) * 20_000 {
            assert_eq!(map[&mix(i)], format!("value {i}"));
            assert_eq!(table[&mix(i)], i);
        }
        assert!(list.iter().copied().eq(0..(round + 1) * 20_000));
    }
}

#[test]
fn threads_work_on_while_the_heap_is_moved() {
    let _turn = turn();
    let stop = AtomicBool::new(false);
    let work = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let (stop, work) = (&stop, &work);
            s.spawn(move || {
                let mut live: Vec<(Vec<u64>, u64)> = vec![];
                let mut n = t << 32;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let r = mix(n);
                    // Small, middling, and runs of their own.
                    let len = match r % 16 {
                        0 => 40_000 + r as usize % 60_000,
                        1..4 => 1_000 + r as usize % 9_000,
                        _ => 1 + r as usize % 100,
                    };
                    let mut fresh = vec![0u64; len];
                    assert!(fresh.iter().all(|&w| w == 0), "fresh memory of {len} words is not zero");
                    fresh.iter_mut().zip(n..).for_each(|(w, v)| *w = mix(v));
                    live.push((fresh, n));
                    if live.len() > 40 {
                        let (mut old, seed) = live.swap_remove(r as usize % 40);
                        if r.is_multiple_of(3) {
                            let more = old.len() / 2;
                            old.extend((seed + old.len() as u64..).take(more).map(mix));
                        }
                        assert!(old.iter().copied().eq((seed..).take(old.len()).map(mix)), "damaged");
                    }
                    work.fetch_add(1, Ordering::Relaxed);
                }
                for (old, seed) in live {
                    assert!(old.iter().copied().eq((seed..).take(old.len()).map(mix)), "damaged");
                }
            });
        }
        let before = work.load(Ordering::Relaxed);
        let _stop = StopOnDrop(&stop);
        let mut cycles = 0;
        let begun = std::time::Instant::now();
        let past = |seconds| begun.elapsed() >= std::time::Duration::from_secs(seconds);
        let has_worked = || work.load(Ordering::Relaxed) > before + 100;
        while !past(4) || cycles < 10 || !(has_worked() || past(600)) {
            PROCESS.page_out().expect("evict");
            std::thread::sleep(std::time::Duration::from_millis(cycles % 3));
            PROCESS.page_in().expect("restore");
            std::thread::sleep(std::time::Duration::from_millis(cycles % 2));
            cycles += 1;
        }
        assert!(has_worked(), "{cycles} cycles and hardly any work");
    });
}

#[test]
fn a_thread_that_blocks_signals_is_reported_and_nothing_changes() {
    let _turn = turn();
    let (blocked, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            // SAFETY: blocks the signals of this thread only.
            unsafe {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
            }
            blocked.store(true, Ordering::Release);
            while !done.load(Ordering::Acquire) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        while !blocked.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let begin = std::time::Instant::now();
        assert!(matches!(PROCESS.page_out_at_once(), Err(pager::PagerError::ThreadsBusy { .. })));
        assert!(begin.elapsed() < std::time::Duration::from_secs(120));
        assert!(!pager::is_evicted());
        done.store(true, Ordering::Release);
    });
    PROCESS.page_out().expect("the thread is gone");
    PROCESS.page_in().expect("restore");
}

/// One sleeps with its signals blocked, for a lock whose holder computes, or is not given a processor: it
/// will come.
#[test]
fn who_waits_for_one_that_computes_is_waited_for() {
    static LOCK: Mutex<()> = Mutex::new(());
    /// Until dropped, this thread takes no signal.
    struct Blocked(libc::sigset_t);
    impl Blocked {
        fn new() -> Self {
            // SAFETY: blocks the signals of this thread only; both sets are filled in.
            unsafe {
                let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
                libc::sigfillset(&mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
                Self(old)
            }
        }
    }
    impl Drop for Blocked {
        fn drop(&mut self) {
            // SAFETY: the set was filled in by the kernel.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
        }
    }
    let _turn = turn();
    let (held, waits) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            let _blocked = Blocked::new();
            let _guard = LOCK.lock();
            held.store(true, Ordering::Release);
            while !waits.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            let begin = std::time::Instant::now();
            while begin.elapsed() < std::time::Duration::from_millis(600) {
                std::hint::spin_loop();
            }
        });
        while !held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        s.spawn(|| {
            let _blocked = Blocked::new();
            waits.store(true, Ordering::Release);
            drop(LOCK.lock());
        });
        while !waits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        loop {
            let begin = std::time::Instant::now();
            match PROCESS.page_out_at_once() {
                Ok(_) => break,
                // Not before it has waited for who has no processor.
                Err(pager::PagerError::ThreadsBusy { .. }) => assert!(begin.elapsed().as_secs() >= 3),
                Err(error) => panic!("{error}"),
            }
        }
        PROCESS.page_in().expect("restore");
    });
}

#[test]
fn threads_in_system_calls_are_stopped() {
    let _turn = turn();
    let mut pipe = [0; 2];
    // SAFETY: a pipe of our own.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    std::thread::scope(|s| {
        let reader = s.spawn(move || {
            let mut buffer = vec![1u8; 3 << 20];
            let mut got = 0;
            while got < buffer.len() {
                // SAFETY: reads into the rest of the buffer.
                let n = unsafe { libc::read(pipe[0], buffer[got..].as_mut_ptr().cast(), buffer.len() - got) };
                assert!(n > 0, "read into moved memory: {}", std::io::Error::last_os_error());
                got += n as usize;
            }
            buffer
        });
        let text: Vec<u8> = (0..3 << 20).map(|i| (i % 251) as u8).collect();
        let mut sent = 0;
        for piece in text.chunks(50_000) {
            PROCESS.page_out().expect("evict");
            // SAFETY: writes from the piece.
            sent += unsafe { libc::write(pipe[1], piece.as_ptr().cast(), piece.len()) };
            if sent % 100_000 != 0 {
                PROCESS.page_in().expect("restore");
            }
        }
        assert_eq!(sent, 3 << 20);
        PROCESS.page_in().expect("restore");
        assert!(reader.join().expect("reader") == text);
    });
}

#[test]
fn layouts_are_honoured() {
    let _turn = turn();
    for align in (0..23).map(|s| 1usize << s) {
        for size in [1, 24, 4096, 100_000, 262_143, 262_144, 1 << 20] {
            let layout = Layout::from_size_align(size, align).expect("layout");
            // SAFETY: the layout is not empty; blocks are used within their sizes and freed once.
            unsafe {
                let at = HEAP.alloc_zeroed(layout);
                assert!(!at.is_null() && (at as usize).is_multiple_of(align));
                assert!(std::slice::from_raw_parts(at, size).iter().all(|&b| b == 0));
                at.write_bytes(0xa5, size);
                let to = HEAP.realloc(at, layout, size * 3);
                assert!(!to.is_null() && (to as usize).is_multiple_of(align), "{size} {align}");
                assert!(std::slice::from_raw_parts(to, size).iter().all(|&b| b == 0xa5));
                let layout = Layout::from_size_align(size * 3, align).expect("layout");
                let back = HEAP.realloc(to, layout, size);
                assert!(!back.is_null() && (back as usize).is_multiple_of(align));
                assert!(std::slice::from_raw_parts(back, size).iter().all(|&b| b == 0xa5));
                HEAP.dealloc(back, Layout::from_size_align(size, align).expect("layout"));
            }
        }
    }
    // SAFETY: not empty.
    assert!(unsafe { HEAP.alloc(Layout::from_size_align(1 << 45, 8).expect("layout")) }.is_null());
}

/// Evicts and restores now and then inside a charge, as the runtime does while it waits for memory.
struct Blocking {
    charged: AtomicUsize,
    calls: AtomicUsize,
    refuse: AtomicBool,
}

// SAFETY: it counts, and the pager allocates nothing.
unsafe impl Account for Blocking {
    fn charge(&self, bytes: usize) -> Result<(), Denied> {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        if self.refuse.load(Ordering::Relaxed) {
            return Err(Denied { bytes });
        }
        if self.calls.fetch_add(1, Ordering::Relaxed) % 8 == 3 {
            PROCESS.page_out().expect("evict in a charge");
            PROCESS.page_in().expect("restore in a charge");
        }
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
    fn uncharge(&self, bytes: usize) {
        assert!(self.charged.fetch_sub(bytes, Ordering::Relaxed) >= bytes);
    }
}

#[test]
fn the_account_sees_what_the_kernel_sees_and_may_evict() {
    // In a process of its own: memory that other tests freed is charged, may not be resident, and is used
    // again.
    const NAME: &str = "the_account_sees_what_the_kernel_sees_and_may_evict";
    if std::env::var_os("SBMALLOC_ALONE").is_none() {
        let me = std::env::current_exe().expect("own path");
        let mut alone = std::process::Command::new(me);
        let out = alone.args([NAME, "--exact"]).env("SBMALLOC_ALONE", "1").output().expect("run");
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let _turn = turn();
    static ACCOUNT: Blocking =
        Blocking { charged: AtomicUsize::new(0), calls: AtomicUsize::new(1), refuse: AtomicBool::new(false) };
    sbmalloc::set_account(&ACCOUNT).expect("first");
    assert!(sbmalloc::set_account(&ACCOUNT).is_err(), "only one");
    assert_eq!(ACCOUNT.charged.load(Ordering::Relaxed), held_bytes());
    sbmalloc::trim();
    let (charged, seen) = (ACCOUNT.charged.load(Ordering::Relaxed), anonymous_bytes());
    let mut small: Vec<Box<[u8; 100]>> = vec![];
    let mut large: Vec<Vec<u8>> = vec![];
    for i in 0..30_000usize {
        small.push(Box::new([i as u8; 100]));
        if i % 3_000 == 0 {
            large.push(vec![i as u8 | 1; 300_000 + i * 17]);
        }
    }
    let more_charged = ACCOUNT.charged.load(Ordering::Relaxed) - charged;
    let more_seen = anonymous_bytes().saturating_sub(seen);
    // Where huge pages are in use the kernel brings in a granule at its first touch, of which not all need be
    // committed.
    let most = more_charged + more_charged / 4 + 2 * GRANULE;
    assert!(more_seen <= most, "charged {more_charged}, the kernel sees {more_seen}");
    assert!(more_charged <= more_seen + more_seen / 4, "charged {more_charged}, the kernel sees {more_seen}");
    assert!(small.iter().enumerate().all(|(i, b)| b.iter().all(|&x| x == i as u8)));
    assert!(large.iter().zip((0..).step_by(3_000)).all(|(b, i)| b.iter().all(|&x| x == i as u8 | 1)));

    ACCOUNT.refuse.store(true, Ordering::Relaxed);
    let mut refused: SbVec<u8> = SbVec::new();
    assert!(refused.try_reserve_exact(10 << 20).is_err());
    ACCOUNT.refuse.store(false, Ordering::Relaxed);
    refused.try_reserve_exact(10 << 20).expect("memory again");

    let runs = large.iter().map(|b| b.capacity()).sum::<usize>() + (10 << 20);
    let most = ACCOUNT.charged.load(Ordering::Relaxed);
    drop((small, large, refused));
    sbmalloc::trim();
    let left = ACCOUNT.charged.load(Ordering::Relaxed);
    // Runs go back at once. How much of the small blocks' segment does depends on what other threads (the
    // test harness) put at its end meanwhile.
    assert!(left + runs <= most, "{left} left of {most}, of which {runs} were runs");
    assert_eq!(left, held_bytes());
}

/// In a PID namespace below the one /proc belongs to, the thread ids listed there are not those signals take.
#[test]
fn threads_are_found_in_a_pid_namespace() {
    let _turn = turn();
    let me = std::env::current_exe().expect("own path");
    let run = std::process::Command::new("unshare")
        .args(["--pid", "--fork"])
        .arg(me)
        .args(["threads_", "--skip", "threads_are_found", "--nocapture"])
        .output();
    match run {
        Ok(out) if !String::from_utf8_lossy(&out.stderr).contains("unshare:") => {
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(said.contains("2 passed"), "{said}");
        }
        other => {
            bdrun_skipped::skipped("namespace", format!("no right to make a namespace here ({other:?})"))
        }
    }
}

#[test]
fn a_fork_brings_in_what_is_out() {
    let _turn = turn();
    let mut words: SbVec<u64> = (0..4_000_000).map(mix).collect();
    PROCESS.page_out_to(8 << 20, 1, &mut |_| {}).expect("evict");
    assert!(pager::is_evicted());
    words[77_777] = 1; // in what is out, perhaps
    // SAFETY: the child only compares, pages and ends; nobody holds the heap's lock in this test's turn.
    let child = unsafe { libc::fork() };
    let right = |words: &[u64], mine: u64| {
        (0..).zip(words).all(|(i, &w)| w == if i == 77_777 { mine } else { mix(i) })
    };
    if child == 0 {
        let here = !pager::is_evicted();
        words[77_777] = 2;
        std::thread::sleep(std::time::Duration::from_millis(50)); // the parent writes meanwhile
        let paged = PROCESS.page_out().and_then(|_| PROCESS.page_in()).is_ok();
        // SAFETY: ends the child at once, without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!(here && paged && right(&words, 2)))) };
    }
    for turn in 0..20 {
        words[77_777] = turn;
        words[3_999_999] = turn;
        PROCESS.page_out().expect("evict");
    }
    words[3_999_999] = mix(3_999_999);
    assert!(right(&words, 19));
    let mut status = -1;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child saw wrong data");
    PROCESS.page_in().expect("restore");
}

#[test]
fn a_forked_child_gets_a_scratch_file_of_its_own() {
    let _turn = turn();
    let mut words: SbVec<u64> = (0..4_000_000).map(mix).collect();
    PROCESS.page_out().expect("evict");
    PROCESS.page_in().expect("restore");
    words[5] = 1;
    // SAFETY: the child only pages, compares and ends; nobody holds the heap's lock in this test's turn.
    let child = unsafe { libc::fork() };
    if child == 0 {
        words[77_777] = 2;
        let paged = PROCESS.page_out().and_then(|_| PROCESS.page_in()).is_ok();
        let right = (0..).zip(&words).all(|(i, &w)| {
            w == match i {
                5 => 1,
                77_777 => 2,
                _ => mix(i),
            }
        });
        // SAFETY: ends the child at once, without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!(paged && right))) };
    }
    for _ in 0..20 {
        PROCESS.page_out().expect("evict");
        assert_eq!(words[77_777], mix(77_777));
        PROCESS.page_in().expect("restore");
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child saw wrong data");
    assert!((0..).zip(&words).all(|(i, &w)| w == if i == 5 { 1 } else { mix(i) }));
}
