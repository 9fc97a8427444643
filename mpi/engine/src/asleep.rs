//! Whether other threads of this process may yet do something while one of them waits.
//!
//! A job all of whose ranks wait is given up as a deadlock, unless one of them waits until some time at most:
//! that one goes on by itself. So a thread may wait without end only where no other one of its process can
//! call MPI before it returns. Which of them ever will nobody knows. But who sleeps until another thread of
//! the process wakes it, as workers of a pool do, does nothing before another one does. If all others sleep
//! so *at the same moment*, none is left to wake one but the thread that looks, and that one waits. Whatever
//! else a thread does (compute, sleep for some time, wait for a descriptor), it may call MPI next.
//!
//! All others are looked at, and then all of them once more. Who was asleep both times, and has not gone to
//! sleep in between (the kernel counts how often it does), slept from the one look to the other: all did in
//! the moment between the two rounds. Where the kernel does not tell, nobody is taken for asleep.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use bdrun_ipc::segment::monotonic_ns;
use bdrun_worker::front::preloaded_heap;

/// Where the kernel tells of the threads.
const TASKS: &str = "/proc/self/task";
/// Looking takes some 20 µs for each thread; of the time it takes no more than one part in so many.
const PART: u64 = 20;

/// The other threads of this process.
#[derive(Debug)]
pub struct Others {
    /// Not to be looked at before, by [`monotonic_ns`].
    next: AtomicU64,
}

impl Others {
    /// Not looked at yet.
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0) }
    }

    /// Whether all of them sleep until one of this process wakes them. Where that would take much of the time
    /// they are not looked at, and pass for awake, unless it `must` be known.
    pub fn sleep(&self, must: bool) -> bool {
        let begun = monotonic_ns();
        if !must && begun < self.next.load(Relaxed) {
            return false;
        }
        let sleep = !a_signal_may_wake() && all_sleep();
        let now = monotonic_ns();
        self.next.store(now + PART * (now - begun), Relaxed);
        sleep
    }
}

/// Whether C's library knows that there are no others. Costs nothing; false where it does not say.
pub fn is_alone() -> bool {
    static SAYS: OnceLock<Option<&AtomicU8>> = OnceLock::new();
    let says = SAYS.get_or_init(|| {
        // SAFETY: a name that ends, looked up in everything that is loaded for all.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        // SAFETY: a `char` of C's library, which stays, or null.
        unsafe { found.cast::<AtomicU8>().as_ref() }
    });
    says.is_some_and(|says| says.load(Relaxed) != 0)
}

fn all_sleep() -> bool {
    sleepers().is_some_and(|first| sleepers() == Some(first))
}

/// The other threads, each with how often it has gone to sleep; none if one may be awake.
fn sleepers() -> Option<Vec<(u32, u64)>> {
    // As this `/proc` knows it, which may be that of an outer namespace.
    let own: u32 = fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()?;
    let entries = fs::read_dir(TASKS).ok()?;
    let all: Option<Vec<u32>> = entries.map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let all = all?;
    // The list may lack some if one has ended meanwhile. Two links the directory has without threads.
    if fs::metadata(TASKS).ok()?.nlink() != all.len() as u64 + 2 {
        return None;
    }
    all.iter().filter(|&&thread| thread != own).map(|&thread| Some((thread, asleep(thread, &all)?))).collect()
}

/// How often a thread has gone to sleep, if it sleeps now until another one wakes it.
fn asleep(thread: u32, all: &[u32]) -> Option<u64> {
    // The kernel tells the call only of a thread that is in it and does not run.
    let call = fs::read_to_string(format!("{TASKS}/{thread}/syscall")).ok()?;
    if !is_for_a_thread(&call, all) {
        return None;
    }
    times_asleep(&fs::read_to_string(format!("{TASKS}/{thread}/status")).ok()?)
}

/// Whether a system call (its number, its arguments) waits without end for a word of this process's own
/// memory to be changed by one of these threads. A word that other processes may change too is not such,
/// but for the one that has a thread's number until that has ended (`pthread_join`).
fn is_for_a_thread(call: &str, all: &[u32]) -> bool {
    let mut words = call.split_whitespace();
    let number = words.next().and_then(|word| word.parse::<i64>().ok());
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let arguments: Option<Vec<u64>> = words.take(4).map(hexadecimal).collect();
    let Some([_, how, value, until]) = arguments.as_deref() else { return false };
    let (how, value) = (*how as i32, *value as u32);
    let waits = matches!(how & libc::FUTEX_CMD_MASK, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET);
    let is_own = how & libc::FUTEX_PRIVATE_FLAG != 0 || all.contains(&value);
    number == Some(libc::SYS_futex) && waits && *until == 0 && is_own
}

/// How often a thread has gone to sleep, by its status; none of one that is held while memory is moved: it
/// sleeps then whatever it did before.
fn times_asleep(status: &str) -> Option<u64> {
    /// Signals of C's library, which nobody holds back but who is held so.
    const INNER: u64 = 0b11 << 31;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let held_back = u64::from_str_radix(field("SigBlk:")?, 16).ok()?;
    if held_back & INNER != 0 {
        return None;
    }
    field("voluntary_ctxt_switches:")?.parse().ok()
}

/// Whether the program has a function for a signal that comes from a clock, from a descriptor or from another
/// process: it may wake a thread. (Those by which people end or stop a program are not waited for.)
fn a_signal_may_wake() -> bool {
    let known = [libc::SIGALRM, libc::SIGCHLD, libc::SIGIO, libc::SIGUSR1, libc::SIGUSR2];
    let mut all = known.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    all.any(|signal| function_of(signal).is_some_and(|at| !own_code().iter().any(|code| code.contains(&at))))
}

fn function_of(signal: libc::c_int) -> Option<usize> {
    // SAFETY: only asks, and writes to a local for which zeros are valid.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action)
    };
    let at = action.map(|action| action.sa_sigaction);
    at.filter(|&at| at != libc::SIG_DFL && at != libc::SIG_IGN)
}

/// Where this library is, and the one that was preloaded: their functions for signals wake no thread of the
/// program.
fn own_code() -> &'static [Range<usize>] {
    static CODE: OnceLock<Vec<Range<usize>>> = OnceLock::new();
    CODE.get_or_init(|| {
        let own: fn() -> bool = a_signal_may_wake;
        let inside = [Some(own as usize), preloaded_heap().map(|heap| heap as usize)];
        code_with(&fs::read_to_string("/proc/self/maps").unwrap_or_default(), &inside)
    })
}

/// The mappings of the files in which these addresses are.
fn code_with(maps: &str, inside: &[Option<usize>]) -> Vec<Range<usize>> {
    let all: Vec<(Range<usize>, [&str; 2])> = maps.lines().filter_map(mapped).collect();
    let has_one = |range: &Range<usize>| inside.iter().flatten().any(|at| range.contains(at));
    let files: Vec<_> = all.iter().filter(|(range, _)| has_one(range)).map(|(_, file)| *file).collect();
    all.into_iter().filter(|(_, file)| files.contains(file)).map(|(range, _)| range).collect()
}

/// A line of a list of mappings: from where to where, and of which file, by device and number.
fn mapped(line: &str) -> Option<(Range<usize>, [&str; 2])> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let [from, to] = [from, to].map(|at| usize::from_str_radix(at, 16));
    let file = [words.nth(2)?, words.next()?];
    (file[1] != "0").then_some((from.ok()?..to.ok()?, file))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;

    const TIDS: [u32; 3] = [77, 78, 4242];

    #[test]
    fn only_a_wait_without_end_for_a_thread_is_one() {
        let futex = libc::SYS_futex;
        let is = |call: &str| is_for_a_thread(call, &TIDS);
        // `pthread_cond_wait`, a lock, `pthread_join`.
        assert!(is(&format!("{futex} 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f01\n")));
        assert!(is(&format!("{futex} 0x7f00 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f01\n")));
        assert!(is(&format!("{futex} 0x7f00 0x109 0x1092 0x0 0x0 0xffffffff 0x7ffd 0x7f01\n")));
        // Until some time; a word of other processes, too; the thread wakes others; another call; it runs.
        assert!(!is(&format!("{futex} 0x7f00 0x189 0x0 0x7ffe 0x0 0xffffffff 0x7ffd 0x7f01\n")));
        assert!(!is(&format!("{futex} 0x7f00 0x0 0x2 0x0 0x0 0x0 0x7ffd 0x7f01\n")));
        assert!(!is(&format!("{futex} 0x7f00 0x81 0x1 0x0 0x0 0x0 0x7ffd 0x7f01\n")));
        assert!(!is("35 0x7f00 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f01\n"));
        assert!(!is("running\n") && !is("-1 0x7ffd 0x7f01\n") && !is(""));
    }

    #[test]
    fn who_is_held_does_not_sleep() {
        let status = |blocked: &str| format!("Name:\tx\nSigBlk:\t{blocked}\nvoluntary_ctxt_switches:\t12\n");
        assert_eq!(times_asleep(&status("0000000000000000")), Some(12));
        // All that a program can hold back.
        assert_eq!(times_asleep(&status("fffffffe7ffbfeff")), Some(12));
        assert_eq!(times_asleep(&status("fffffffffffbfeff")), None);
        assert_eq!(times_asleep("Name:\tx\n"), None);
    }

    #[test]
    fn code_is_that_of_the_whole_file() {
        let maps = "1000-2000 r--p 0 08:01 7 /lib/a.so\n2000-3000 r-xp 1000 08:01 7 /lib/a.so\n\
                    3000-4000 r-xp 0 08:02 7 /lib/b.so\n4000-5000 rw-p 0 00:00 0 \n";
        assert_eq!(code_with(maps, &[Some(0x2abc), None]), [0x1000..0x2000, 0x2000..0x3000]);
        assert_eq!(code_with(maps, &[Some(0x4abc)]), []);
        assert!(own_code().iter().any(|code| code.contains(&(a_signal_may_wake as fn() -> bool as usize))));
    }

    /// Tells a thread to stop when it is dropped: also by a panic, for which it is waited for.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    /// What the kernel says of threads of this process.
    #[test]
    fn who_waits_for_another_thread_sleeps_and_who_does_something_else_does_not() {
        let (stop, turns) = (AtomicBool::new(false), AtomicU32::new(0));
        // SAFETY: gettid has no preconditions.
        let own = || unsafe { libc::gettid() } as u32;
        std::thread::scope(|scope| {
            let _stop = Stop(&stop);
            let (first, waiter) = channel();
            let (second, other) = channel();
            let (_go, wait) = channel::<()>();
            scope.spawn(move || {
                first.send(own()).expect("it is heard");
                wait.recv().expect_err("nothing is sent");
            });
            let (stop, turns) = (&stop, &turns);
            scope.spawn(move || {
                second.send(own()).expect("it is heard");
                while !stop.load(Relaxed) {
                    turns.fetch_add(1, Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let [waiter, other] = [waiter, other].map(|number| number.recv().expect("its number"));
            let begun = Instant::now();
            let in_time = || assert!(begun.elapsed() < Duration::from_secs(600), "{waiter} does not sleep");
            // Before that either may wait for a lock.
            while turns.load(Relaxed) == 0 {
                in_time();
            }
            // On its way to where it waits the first one may sleep and wake up.
            let sleeps_on = || {
                let (times, before) = (asleep(waiter, &[]), turns.load(Relaxed));
                while times.is_some() && turns.load(Relaxed) < before + 20 {
                    assert_eq!(asleep(other, &[]), None);
                    in_time();
                }
                times.is_some() && asleep(waiter, &[]) == times
            };
            while !sleeps_on() {
                in_time();
            }
            // Another thread of this process is awake, whichever else there are.
            assert!(!Others::new().sleep(true));
        });
    }

    #[test]
    fn threads_are_not_looked_at_all_the_time() {
        let others = Others::new();
        others.next.store(u64::MAX, Relaxed);
        assert!(!others.sleep(false));
        assert_eq!(others.next.load(Relaxed), u64::MAX, "they were not looked at");
        others.sleep(true);
        assert!(others.next.load(Relaxed) < u64::MAX);
    }
}
