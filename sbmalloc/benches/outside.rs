//! How fast the memory of another process is moved out and back, beside what the disk does in the same run.
//!
//! `cargo bench -p sbmalloc --bench outside [-- MiB [ROUNDS]]` (1024 and 9 by default). The process has a
//! heap of so much, of small pages (as without `madvise`) or of huge ones, and four threads, of which one
//! computes. Scratch goes where `BDRUN_SCRATCH` or `TMPDIR` says. Each round has a direct write and read of
//! as many bytes beside it, in pieces of 8 MiB one after the other, because a shared disk changes from second
//! to second; the medians of the rounds' ratios to those are shown.

use sbmalloc::other::{self, Image};
use std::io::BufRead;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PIECE: usize = 8 << 20;

/// New memory, of small or huge pages, with something in it.
fn memory(bytes: usize, huge: bool) -> *mut u8 {
    // SAFETY: new memory, filled within its size.
    unsafe {
        let (rw, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), bytes + (2 << 20), rw, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let at = (at as usize).next_multiple_of(2 << 20) as *mut u8;
        libc::madvise(at.cast(), bytes, if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE });
        for i in 0..bytes / 8 {
            at.cast::<u64>().add(i).write((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        at
    }
}

/// The process that is moved.
fn subject(bytes: usize, huge: bool) -> ! {
    let at = memory(bytes, huge) as usize;
    for _ in 0..3 {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
    println!("ready");
    loop {
        for i in (0..bytes).step_by(4096) {
            // SAFETY: within the memory.
            unsafe { (at as *mut u64).byte_add(i).write_volatile(i as u64) };
        }
    }
}

struct Raw {
    file: std::fs::File,
    at: *mut u8,
    bytes: usize,
}

impl Raw {
    fn new(bytes: usize) -> std::io::Result<Self> {
        let named = ["BDRUN_SCRATCH", "TMPDIR"].iter().find_map(|n| std::env::var(n).ok());
        let dir = named.unwrap_or("/var/tmp".into());
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_DIRECT);
        let file = options.open(dir.split(':').next().unwrap_or_default())?;
        let raw = Self { file, at: memory(bytes, true), bytes };
        // The first pass finds the file's place on the disk.
        raw.pass(true);
        Ok(raw)
    }

    /// Bytes in a second.
    fn pass(&self, out: bool) -> f64 {
        let begun = Instant::now();
        for i in (0..self.bytes).step_by(PIECE) {
            // SAFETY: within the memory.
            let n = unsafe {
                let (fd, at) = (self.file.as_raw_fd(), self.at.add(i).cast());
                match out {
                    true => libc::pwrite(fd, at, PIECE, i as i64),
                    false => libc::pread(fd, at, PIECE, i as i64),
                }
            };
            assert_eq!(n, PIECE as isize, "{}", std::io::Error::last_os_error());
        }
        self.bytes as f64 / begun.elapsed().as_secs_f64()
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let bytes = (numbers.first().copied().unwrap_or(1024) << 20).next_multiple_of(PIECE);
    let rounds = numbers.get(1).copied().unwrap_or(9);
    if let Ok(kind) = std::env::var("OUTSIDE") {
        subject(bytes, kind == "huge");
    }
    let raw = match Raw::new(bytes) {
        Ok(raw) => raw,
        Err(e) => return println!("skipped: no direct file to compare with: {e}"),
    };
    for kind in ["small", "huge"] {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args([(bytes >> 20).to_string()]).env("OUTSIDE", kind).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().expect("output")).read_line(&mut line).expect("ready");
        let pid = child.id() as i32;
        let raw = (&raw.file, raw.at as usize, raw.bytes);
        // The thread that traces has no children.
        std::thread::scope(|s| {
            s.spawn(move || {
                let raw = Raw { file: raw.0.try_clone().expect("file"), at: raw.1 as *mut u8, bytes: raw.2 };
                report(kind, pid, rounds, &raw);
            });
        });
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}

fn report(kind: &str, pid: i32, rounds: usize, raw: &Raw) {
    let mut image = Image::new().expect("scratch");
    let [mut stops, mut outs, mut backs, mut out_ratios, mut back_ratios] = [const { vec![] }; 5];
    // The first round finds the file's place.
    for round in 0..=rounds {
        std::thread::sleep(Duration::from_millis(50));
        let mut held = other::hold(pid, &mut || Ok(vec![pid]), Duration::from_secs(1)).expect("held");
        let stop = held.stopping().as_secs_f64() * 1e3;
        let begun = Instant::now();
        let out = held.evict(&mut image, &mut |_| {}).expect("out");
        let out = out.freed as f64 / begun.elapsed().as_secs_f64();
        let raw_out = raw.pass(true);
        let begun = Instant::now();
        let back = held.restore(&mut image, &mut |_| {}).expect("back");
        let back = back.freed as f64 / begun.elapsed().as_secs_f64();
        let raw_back = raw.pass(false);
        held.release().expect("released");
        if round > 0 {
            stops.push(stop);
            outs.push(out / 1e9);
            backs.push(back / 1e9);
            out_ratios.push(out / raw_out);
            back_ratios.push(back / raw_back);
        }
    }
    let (stop, out, back) = (median(&mut stops), median(&mut outs), median(&mut backs));
    println!(
        "{kind} pages: stop {stop:.2} ms (at most {:.2}); out {out:.2} GB/s, {:.2} of the disk; in {back:.2} GB/s, {:.2} of it",
        stops.last().copied().unwrap_or(0.0),
        median(&mut out_ratios),
        median(&mut back_ratios),
    );
}
