//! The programs that are moved.

use crate::{calls, content, refused, waits};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Runs a program and ends the process.
pub fn run(name: &str) -> ! {
    match name {
        "sum" => sum(8 << 20, 60),
        "small sum" => sum(1 << 20, 200),
        "huge sum" => huge_sum(),
        "some change" => some_change(),
        "zeros" => zeros(),
        "scarce" => crate::faults::scarce(),
        "calls" => calls::calls(),
        "waits" => waits::waits(),
        "fed" => waits::fed(),
        "met" => waits::met(),
        "signals" => signals(),
        "threads" => threads(),
        "forks" => forks(),
        "model" => crate::model::run(|| println!("ready")),
        "execs" => execs(),
        "content" => content::content(),
        "spliced" => spliced(),
        "tracer" => crate::death::tracer(),
        other => refused::run(other),
    }
    std::process::exit(0);
}

/// A heap that is changed and summed again and again.
fn sum(words: u64, rounds: u64) {
    let mut words: Vec<u64> = (0..words).collect();
    println!("ready");
    let begun = Instant::now();
    for round in (1..).take_while(|&round| round <= rounds || !is_enough(begun)) {
        words.iter_mut().for_each(|w| *w += 1);
        let sum: u64 = words.iter().sum();
        let n = words.len() as u64;
        assert_eq!(sum, n * (n - 1) / 2 + n * round, "round {round}");
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("right");
}

/// Zeros that were written, at lower addresses than all else: they leave first, and nothing of them is
/// written to scratch.
fn zeros() {
    let (at, len) = (0x1000_0000 as *mut libc::c_void, 160 << 20);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: new memory where nothing is, used within its size.
    let words = unsafe {
        assert_eq!(libc::mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0), at);
        at.cast::<u8>().write_bytes(0, len);
        std::slice::from_raw_parts(at.cast::<u64>(), len / 8)
    };
    println!("ready");
    std::io::stdin().lines().for_each(drop);
    assert!(std::hint::black_box(words).iter().all(|&word| word == 0));
    println!("right");
}

/// 64 MiB, of which a tenth changes for each line that comes, spread over all of it; at the end of the lines
/// it looks at each word.
fn some_change() {
    const PAGE: usize = 512;
    let word = |i: usize, round: u64| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + round);
    let mut words: Vec<u64> = (0..8 << 20).map(|i| word(i, 0)).collect();
    println!("ready");
    let mut rounds = vec![0; words.len() / PAGE];
    for (round, line) in (1..).zip(std::io::stdin().lines()) {
        line.expect("a line");
        for page in (round as usize * 7 % 10..rounds.len()).step_by(10) {
            rounds[page] = round;
            let i = page * PAGE + round as usize % PAGE;
            words[i] = word(i, round);
            // What it held before.
            let i = page * PAGE + (round as usize + 1) % PAGE;
            words[i] ^= round;
        }
        println!("changed {round}");
    }
    let mut expected: Vec<u64> = (0..8 << 20).map(|i| word(i, 0)).collect();
    for round in 1..=rounds.iter().copied().max().unwrap_or(0) {
        for page in (round as usize * 7 % 10..rounds.len()).step_by(10) {
            let i = page * PAGE + round as usize % PAGE;
            expected[i] = word(i, round);
            expected[page * PAGE + (round as usize + 1) % PAGE] ^= round;
        }
    }
    assert!(words == expected, "wrong memory");
    println!("right");
}

/// A heap in huge pages that is changed and summed again and again.
fn huge_sum() {
    let bytes = 96 << 20;
    // SAFETY: new memory, used within its size.
    let words = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        libc::madvise(at, bytes, libc::MADV_HUGEPAGE);
        std::slice::from_raw_parts_mut(at.cast::<u64>(), bytes / 8)
    };
    words.iter_mut().zip(1..).for_each(|(w, i)| *w = i);
    println!("ready");
    let begun = Instant::now();
    for round in (1..).take_while(|&round| round <= 60 || !is_enough(begun)) {
        words.iter_mut().for_each(|w| *w += 1);
        assert!(words.iter().zip(1..).all(|(&w, i): (&u64, u64)| w == i + round), "round {round}");
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("right");
}

static SENT: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Of those that came as another one should have; the last.
static WRONG: AtomicUsize = AtomicUsize::new(usize::MAX);

extern "C" fn queued(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over the information of a queued signal.
    let value = unsafe { (*info).si_value().sival_ptr as usize };
    let i = COUNT.fetch_add(1, Ordering::SeqCst);
    if value != i {
        WRONG.store(i, Ordering::SeqCst);
    }
}

/// Real-time signals with values, one after the other, some while others are still queued; 2000 at least, and
/// until it was moved often enough.
fn signals() {
    let begun = Instant::now();
    // SAFETY: an action and sets on the stack.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = queued as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let signal = libc::SIGRTMIN() + 4;
        assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
        let mut set = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        // To this thread only; the first has it blocked from here on as all others.
        let me = libc::pthread_self();
        println!("ready");
        let sender = std::thread::spawn(move || {
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
            for i in (0..).take_while(|&i| i < 2000 || !is_enough(begun)) {
                let value = libc::sigval { sival_ptr: i as *mut _ };
                while libc::pthread_sigqueue(me, signal, value) != 0 {
                    std::thread::yield_now();
                }
                if i % 4 == 0 {
                    std::thread::sleep(Duration::from_millis(5));
                }
                SENT.store(i + 1, Ordering::SeqCst);
            }
        });
        while !sender.is_finished() {
            // Sometimes they queue up.
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
            std::thread::sleep(Duration::from_millis(7));
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
            std::thread::sleep(Duration::from_millis(7));
        }
        sender.join().expect("sender");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(COUNT.load(Ordering::SeqCst), SENT.load(Ordering::SeqCst));
    assert_eq!(WRONG.load(Ordering::SeqCst), usize::MAX, "a signal out of order");
    println!("right");
}

/// Whether it was moved often enough: whoever waits for its end has closed its input. However busy the
/// machine is, not before; but after more time than it is moved for.
pub fn is_enough(begun: Instant) -> bool {
    let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    // SAFETY: one description, which outlives the call.
    let closed = unsafe { libc::poll(&mut input, 1, 0) } > 0 && input.revents != 0;
    closed || begun.elapsed() > Duration::from_secs(2000)
}

/// Memory with a pattern, and whether it is still there.
fn check_block(seed: u8) {
    let block = vec![seed; 300_000];
    std::thread::yield_now();
    assert!(block.iter().all(|&b| b == seed));
}

/// Threads that start and end all the time.
fn threads() {
    println!("ready");
    let begun = Instant::now();
    let mut done = 0;
    while !is_enough(begun) {
        let threads: Vec<_> = (0..8)
            .map(|i| {
                std::thread::spawn(move || {
                    check_block(i);
                    std::thread::spawn(move || check_block(i + 100)).join().expect("inner");
                })
            })
            .collect();
        for t in threads {
            t.join().expect("thread");
            done += 1;
        }
    }
    println!("right {done}");
}

/// Children all the time: by fork, that check what they have from us, and by spawning programs.
fn forks() {
    println!("ready");
    let begun = Instant::now();
    let mut block = vec![1u8; 2 << 20];
    let mut done = 0u32;
    while !is_enough(begun) {
        // SAFETY: the child touches memory, and ends.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let right = block.iter().all(|&b| b == block[0]);
                block[0..1 << 20].fill(7);
                libc::usleep(500);
                let right = right && block[..1 << 20].iter().all(|&b| b == 7);
                libc::_exit(if right { 42 } else { 1 });
            }
            block[1] = block[0];
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42, "status {status:x}");
        }
        block.fill(done as u8);
        let echo = std::process::Command::new("echo").arg("x").output().expect("echo");
        assert_eq!(echo.stdout, b"x\n");
        done += 1;
    }
    println!("right {done}");
}

/// Pages given to a pipe, which has them as they are (`vmsplice`). Each half is written again when it has
/// been read, as it must be.
fn spliced() {
    const HALF: usize = 8 * 4096;
    let mut fds = [0; 2];
    // SAFETY: the kernel fills in two numbers.
    assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
    let [from, to] = fds;
    let (free, is_free) = std::sync::mpsc::channel();
    (0..2).for_each(|half| free.send(half).expect("a reader"));
    println!("ready");
    let begun = Instant::now();
    let rounds = move || (0..u64::MAX).take_while(move |_| !is_enough(begun));
    let writer = std::thread::spawn(move || {
        let mut halves = [vec![0u64; HALF / 8], vec![0u64; HALF / 8]];
        for round in rounds() {
            let Ok(half) = is_free.recv() else { return };
            let words: &mut Vec<u64> = &mut halves[half];
            words.iter_mut().zip(0..).for_each(|(word, i)| *word = round << 32 | i);
            let mut given = 0;
            while given < HALF {
                let base = words.as_mut_ptr().wrapping_byte_add(given).cast();
                let part = libc::iovec { iov_base: base, iov_len: HALF - given };
                // SAFETY: our own memory, which is written again when the reader has read it, or never.
                let n = unsafe { libc::vmsplice(to, &part, 1, 0) };
                assert!(n > 0, "{}", std::io::Error::last_os_error());
                given += n as usize;
            }
        }
        // Never freed, which would write to what is still in the pipe.
        std::mem::forget(halves);
        // SAFETY: our own end, which nobody else closes.
        unsafe { libc::close(to) };
    });
    let mut words = vec![0u64; HALF / 8];
    for round in 0u64.. {
        // Time to be moved while it lies in the pipe.
        std::thread::sleep(Duration::from_millis(round % 8));
        let mut taken = 0;
        while taken < HALF {
            let at = words.as_mut_ptr().wrapping_byte_add(taken).cast();
            // SAFETY: within the vector.
            let n = unsafe { libc::read(from, at, HALF - taken) };
            assert!(n >= 0, "{}", std::io::Error::last_os_error());
            if n == 0 {
                writer.join().expect("writer");
                println!("right {round}");
                return;
            }
            taken += n as usize;
        }
        assert!(words.iter().zip(0..).all(|(&word, i)| word == round << 32 | i), "round {round}");
        let _ = free.send(round as usize % 2);
    }
}

/// Becomes itself again and again, from a thread that is not the first; 150 times at least, and until it was
/// moved often enough.
fn execs() {
    use std::os::unix::process::CommandExt;
    let round: u32 = std::env::var("ROUND").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    if round == 0 {
        println!("ready");
    }
    check_block(round as u8);
    std::thread::spawn(|| {
        loop {
            check_block(9);
        }
    });
    std::thread::sleep(Duration::from_millis(10));
    // Whoever moves it ends its input also if that fails.
    if round < 150 || !is_enough(Instant::now()) {
        let e = crate::driver::command("execs").env("ROUND", (round + 1).to_string()).exec();
        panic!("{e}");
    }
    println!("right");
}
