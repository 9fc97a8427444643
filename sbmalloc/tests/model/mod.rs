//! A random program with several threads that knows what every byte of its memory must be: for tests that
//! move its memory about while it runs.
//!
//! Each thread has regions of its own, and does to them what programs do: touches, reads, writes, has the
//! kernel read and write them, maps, unmaps, moves, advises, protects, forks, starts programs and threads.
//! What a page must hold is a function of its region, its number and its *version*; of versions none is 0, so
//! that memory that has become zeros is never taken for right, not that of the model either. By its seed a
//! thread always does the same. `OUTSIDE_MODEL=SEED,OPERATIONS,THREADS,RARE,MOVES` (default `1,20000,3,1,0`):
//! children, programs and threads, which take most of the time, are begun so many times less often than of
//! every hundredth operation; with MOVES 1 every other operation moves or unmaps, or forks.

mod region;

use region::{MAX_PAGES, PAGE, Region};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that the regions of a thread have at most.
const MOST: usize = 3_000;
/// Regions of a thread at most.
const REGIONS: usize = 48;

static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// xorshift64*
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n.max(1)
    }
}

/// Of the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// The seeds that a test tries.
pub fn seeds() -> std::ops::Range<u64> {
    let first = number("MODEL_FIRST", 1);
    first..first + number("MODEL_SEEDS", 3)
}

/// How much rarer than by default what takes long is to be: children, programs and threads begun, and moves.
/// For many operations.
pub fn rare() -> u32 {
    number("MODEL_RARE", 1) as u32
}

/// What is handed to the program, which is to do so many times less than others. `moves`: see above.
pub fn arguments(seed: u64, slower: u64, moves: bool) -> String {
    format!("{seed},{},3,{},{}", number("MODEL_OPS", 8_000) / slower, rare(), u64::from(moves))
}

/// Runs one, once it is `ready`.
pub fn run(ready: impl FnOnce()) {
    let text = std::env::var("OUTSIDE_MODEL").unwrap_or_else(|_| "1,20000,3,1,0".into());
    let numbers: Vec<u64> = text.split(',').map(|n| n.parse().expect("numbers")).collect();
    let [seed, operations, threads, rare, moves] = numbers[..] else {
        panic!("SEED,OPERATIONS,THREADS,RARE,MOVES: {text}")
    };
    let moves = moves != 0;
    tell_of_crashes();
    ready();
    std::thread::scope(|s| {
        for thread in 0..threads {
            s.spawn(move || {
                Life::new(seed * 64 + thread, rare as usize, moves).live(operations / threads, 2)
            });
        }
    });
    println!("right");
}

/// Says where the program crashed, if it does: a page that was lost may have held its stack.
fn tell_of_crashes() {
    extern "C" fn on_crash(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        use std::io::Write;
        let mut text = [0u8; 200];
        let mut rest = &mut text[..];
        // SAFETY: the kernel passes both.
        unsafe {
            let registers = (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            let (at, next, stack) = ((*info).si_addr() as usize, registers[16], registers[15]);
            let _ = writeln!(
                rest,
                "CRASH in {} at {at:#x}, instruction {next:#x}, stack {stack:#x}",
                libc::getpid()
            );
            let left = rest.len();
            libc::write(2, text.as_ptr().cast(), text.len() - left);
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        }
    }
    // SAFETY: a handler that only formats and writes.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_crash as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
    }
}

struct Life {
    random: Random,
    seed: u64,
    rare: usize,
    moves: bool,
    regions: Vec<Region>,
    /// Through which the kernel reads and writes.
    file: i32,
}

impl Life {
    fn new(seed: u64, rare: usize, moves: bool) -> Self {
        // SAFETY: makes a descriptor.
        let file = unsafe { libc::memfd_create(c"model".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0, "memfd_create");
        Self { random: Random::new(seed), seed, rare, moves, regions: vec![], file }
    }

    /// `depth`: so many generations of threads may be started.
    fn live(mut self, operations: u64, depth: u32) {
        for i in 0..operations {
            self.operate(i, depth);
        }
        let file = self.file;
        self.regions.drain(..).for_each(|region| {
            region.check_all(0, "at the end");
            region.unmap();
        });
        // SAFETY: of this thread alone.
        unsafe { libc::close(file) };
    }

    fn pages(&self) -> usize {
        self.regions.iter().map(Region::len).sum()
    }

    fn operate(&mut self, i: u64, depth: u32) {
        if self.regions.is_empty()
            || (self.random.below(100) < if self.moves { 16 } else { 4 }
                && self.regions.len() < REGIONS
                && self.pages() < MOST)
        {
            let pages = 1 + self.random.below(MAX_PAGES);
            let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed) << 8 | self.seed & 0xff;
            let of_file = self.random.below(12) == 0;
            self.regions.push(if of_file {
                Region::of_file(key, pages.min(40))
            } else {
                Region::new(key, pages)
            });
            return;
        }
        let which = self.random.below(self.regions.len());
        let (mut kind, file) = (self.random.below(1000), self.file);
        if self.moves && kind.is_multiple_of(2) {
            kind = 925 + self.random.below(64);
        }
        let region = &mut self.regions[which];
        let first = self.random.below(region.len());
        let count = 1 + self.random.below(8.min(region.len() - first));
        match kind {
            0..480 => region.write(first, count),
            480..680 => region.check(i, first, count),
            680..740 => region.read_into(file, first, count),
            740..790 => region.write_from(i, file, first, count),
            790..810 => region.peek(i, first, count),
            810..850 => region.give_up(first, count, libc::MADV_DONTNEED),
            850..858 => region.give_up(first, count, libc::MADV_FREE),
            858..888 => {
                let advice = [
                    libc::MADV_HUGEPAGE,
                    libc::MADV_NOHUGEPAGE,
                    libc::MADV_WILLNEED,
                    libc::MADV_POPULATE_WRITE,
                    libc::MADV_POPULATE_READ,
                    libc::MADV_COLD,
                    25, // MADV_COLLAPSE
                ];
                region.advise(first, count, advice[self.random.below(advice.len())]);
            }
            888..910 => region.protect(i, first, count, self.random.next()),
            910..925 => region.map_over(first, count),
            925..965 => {
                let to = 1 + self.random.below(MAX_PAGES);
                match self.random.below(4) {
                    0 => region.resize(to),
                    1 => region.move_whole(self.random.below(5)),
                    2 if region.len() > 1 => {
                        let tail = region.split(1 + first.min(region.len() - 2));
                        self.regions.push(tail);
                    }
                    _ => {
                        if let Some(rest) = region.leave_behind(NEXT_KEY.fetch_add(1, Ordering::Relaxed) << 8)
                        {
                            self.regions.push(rest);
                        }
                    }
                }
            }
            965..985 => {
                region.check_all(i, "before it goes");
                self.regions.swap_remove(which).unmap();
            }
            985..989 if self.moves => self.fork(i),
            985..989 => deep_stack(i, 0),
            989..996 if self.random.below(self.rare) > 0 => region.check(i, first, count),
            989..994 => self.fork(i),
            994..996 => spawn_program(),
            _ if depth > 0 && self.random.below(3 * self.rare) == 0 => {
                let (seed, n) = (self.random.next() >> 8, 50 + self.random.below(200) as u64);
                let life = Life::new(seed, self.rare, self.moves);
                std::thread::spawn(move || life.live(n, depth - 1)).join().expect("no panic");
            }
            _ => region.check_all(i, "all"),
        }
    }

    /// The child has all that this thread has, and changes it; the parent meanwhile, too.
    fn fork(&mut self, i: u64) {
        let me = std::process::id();
        // SAFETY: the child allocates nothing, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork");
        if child == 0 {
            assert_ne!(std::process::id(), me, "the parent was told that it is the child");
            // Everything now and then, else some pages of each.
            let whole = i.is_multiple_of(8);
            for region in &mut self.regions {
                let len = region.len();
                let first = if whole { 0 } else { (i as usize * 7) % len };
                region.check(i, first, if whole { len } else { 2.min(len - first) });
                region.write(len - 1, 1);
                region.give_up(0, 1, libc::MADV_DONTNEED);
                region.check(i, 0, 1);
                region.check(i, len - 1, 1);
            }
            // SAFETY: ends the child.
            unsafe { libc::_exit(7) };
        }
        for _ in 0..4 {
            let which = self.random.below(self.regions.len());
            let first = self.random.below(self.regions[which].len());
            self.regions[which].write(first, 1);
        }
        let mut status = -1;
        // SAFETY: waits for our child.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!((ended, status), (child, 7 << 8), "operation {i}: a child found something wrong");
    }
}

/// Starts a program the way that shares memory with it until it has begun.
fn spawn_program() {
    let mut child = 0;
    let argv = [c"true".as_ptr().cast_mut(), std::ptr::null_mut()];
    let environment = [std::ptr::null_mut()];
    // SAFETY: terminated lists; waits for our own child.
    unsafe {
        let (actions, attributes) = (std::ptr::null(), std::ptr::null());
        let started = libc::posix_spawn(
            &mut child,
            c"/bin/true".as_ptr(),
            actions,
            attributes,
            argv.as_ptr(),
            environment.as_ptr(),
        );
        assert_eq!(started, 0, "posix_spawn");
        let mut status = -1;
        assert!(libc::waitpid(child, &mut status, 0) == child && status == 0);
    }
}

/// What lies on the stack stays, too.
#[inline(never)]
fn deep_stack(i: u64, depth: u64) {
    let mut local = [0u64; 3 * PAGE / 8];
    for (n, word) in local.iter_mut().enumerate() {
        *word = i ^ depth << 32 ^ n as u64;
    }
    std::hint::black_box(&mut local);
    if depth < 6 {
        deep_stack(i, depth + 1);
    } else {
        std::thread::yield_now();
    }
    for (n, word) in std::hint::black_box(&local).iter().enumerate() {
        assert_eq!(*word, i ^ depth << 32 ^ n as u64, "the stack, operation {i}");
    }
}
