//! How much of its speed a computing process keeps while another is restored or evicted, on the other
//! processor and on the same.
//!
//! `cargo bench -p sbmalloc --bench overlap [-- MiB]` (512 by default). The computing process is this program
//! again; it goes over 1 MiB (its cache) or 256 MiB (memory) in turn and counts. Undisturbed speed is
//! measured before and after each case; the rate is of the bytes moved while it computed. Needs two
//! processors.

#[path = "../tests/moves/mod.rs"]
mod moves;

use moves::Moves;
use sbmalloc::{Arena, ArenaOptions, HugePolicy, PROCESS, TrackerKind};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long speed is measured.
const SPAN: Duration = Duration::from_millis(1500);

fn pin(cpu: usize) {
    // SAFETY: a zeroed set is valid; the call changes where this thread runs.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// CPU seconds of the process so far.
fn cpu() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Computes on processor 0 until told to stop; prints the turns of each span it is asked for.
fn compute(bytes: usize) {
    pin(0);
    let mut words = vec![1u64; bytes / 8];
    let mut turns = 0u64;
    let (asked, asks) = std::sync::mpsc::channel();
    std::thread::spawn(move || std::io::stdin().lines().for_each(|_| _ = asked.send(())));
    loop {
        for chunk in words.chunks_mut(1 << 14) {
            for word in chunk.iter_mut() {
                *word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
            }
            turns += 1;
        }
        match asks.try_recv() {
            Ok(()) => println!("{turns}"),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
    }
}

struct Computing {
    child: Child,
    ask: ChildStdin,
    answer: BufReader<ChildStdout>,
}

impl Computing {
    fn start(bytes: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a name"));
        command.arg(format!("compute={bytes}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the computing process");
        let (ask, answer) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, ask, answer: BufReader::new(answer) }
    }

    fn turns(&mut self) -> f64 {
        self.ask.write_all(b"?\n").expect("it lives");
        let mut line = String::new();
        self.answer.read_line(&mut line).expect("it answers");
        line.trim().parse().expect("a number")
    }

    /// Turns a second while `f` runs.
    fn speed(&mut self, f: impl FnOnce()) -> f64 {
        let (before, begin) = (self.turns(), Instant::now());
        f();
        (self.turns() - before) / begin.elapsed().as_secs_f64()
    }
}

fn main() {
    if let Some(bytes) = std::env::args().find_map(|a| a.strip_prefix("compute=")?.parse().ok()) {
        return compute(bytes);
    }
    let mib = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(512usize);
    let bytes = mib << 20;
    println!(
        "{:5} {:10} {:9} {:>10} {:>8} {:>12}",
        "what", "processor", "computing", "speed kept", "GiB/s", "CPU s/GiB"
    );
    let options = ArenaOptions {
        tracker: Some(TrackerKind::Hash),
        huge: HugePolicy::Always,
        ..ArenaOptions::default()
    };
    let arena = Arena::new(&options).expect("arena");
    let at = arena.alloc(bytes, 64).expect("memory");
    // SAFETY: the run just allocated; nobody else uses it.
    let words = unsafe { std::slice::from_raw_parts_mut(at.as_ptr().cast::<u64>(), bytes / 8) };
    words.iter_mut().enumerate().for_each(|(i, w)| *w = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    PROCESS.page_out().expect("evict");
    PROCESS.page_in().expect("restore");
    for (size, computing) in [(1 << 20, "in cache"), (256 << 20, "in memory")] {
        let mut other = Computing::start(size);
        std::thread::sleep(Duration::from_millis(300));
        for (processor, place) in [(1, "other"), (0, "same")] {
            pin(1);
            // The pager works in spurts: only they count, and the speed beside them.
            let (mut kept, mut rates, mut cpus) = ([vec![], vec![]], [vec![], vec![]], [vec![], vec![]]);
            for _ in 0..5 {
                words.chunks_mut(1 << 13).for_each(|block| block[5] ^= 1);
                let alone = other.speed(|| std::thread::sleep(SPAN / 3));
                for (i, step) in [Moves::page_out, Moves::page_in].into_iter().enumerate() {
                    pin(processor);
                    let (begin, used) = (Instant::now(), cpu());
                    let mut wall = 0.0;
                    let beside = other.speed(|| {
                        step(&PROCESS).expect("the pager");
                        wall = begin.elapsed().as_secs_f64();
                    });
                    pin(1);
                    kept[i].push(beside / alone);
                    rates[i].push(mib as f64 / 1024.0 / wall);
                    cpus[i].push((cpu() - used) / (mib as f64 / 1024.0));
                }
            }
            for (i, what) in ["out", "in"].into_iter().enumerate() {
                let [kept, rate, cpu] = [&mut kept[i], &mut rates[i], &mut cpus[i]].map(|values| {
                    values.sort_by(f64::total_cmp);
                    values[values.len() / 2]
                });
                println!("{what:5} {place:10} {computing:9} {:9.1}% {rate:8.2} {cpu:12.3}", kept * 100.0);
            }
        }
        drop(other.ask);
        _ = other.child.wait();
    }
    // SAFETY: allocated above; `words` is not used again.
    unsafe { arena.free(at) };
}
