//! How fast memory is moved out and in, beside what the disk does in the same run.
//!
//! `cargo bench -p sbmalloc [-- MiB]` (512 by default). Scratch goes where `BDRUN_SCRATCH` or `TMPDIR` says. The
//! rates are of the bytes *held*, except the raw ones, so a clean evict may well beat the disk.

use sbmalloc::pager::{self, Moved};
use sbmalloc::{Arena, ArenaOptions, CHUNK, HugePolicy, SbVec, TrackerKind};
use std::alloc::{GlobalAlloc, Layout, System};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Instant;

const GIB: f64 = (1u64 << 30) as f64;
const ROUNDS: usize = 3;

fn timed<T>(f: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let result = f();
    (begin.elapsed().as_secs_f64(), result)
}

/// Best GiB/s of direct sequential 8 MiB writes and reads.
fn raw_disk(bytes: usize) -> (f64, f64) {
    let dir =
        ["BDRUN_SCRATCH", "TMPDIR"].iter().find_map(|n| std::env::var(n).ok()).unwrap_or("/var/tmp".into());
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_DIRECT);
    let file = match options.open(&dir) {
        Ok(file) => file,
        Err(e) => {
            println!("no direct file in {dir}: {e}");
            return (0.0, 0.0);
        }
    };
    let piece = 8 << 20;
    let layout = Layout::from_size_align(piece, 2 << 20).expect("layout");
    // SAFETY: not empty; used within its size.
    let buffer = unsafe { System.alloc(layout) };
    // SAFETY: as above. Huge pages, as the arenas have: with small ones the disk looks half as fast.
    unsafe {
        libc::madvise(buffer.cast(), piece, libc::MADV_HUGEPAGE);
        buffer.write_bytes(0x5a, piece);
    }
    let (mut write, mut read) = (0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        let pass = |out: bool| {
            timed(|| {
                for at in (0..bytes).step_by(piece) {
                    // SAFETY: the buffer has `piece` bytes.
                    let n = unsafe {
                        match out {
                            true => libc::pwrite(file.as_raw_fd(), buffer.cast(), piece, at as i64),
                            false => libc::pread(file.as_raw_fd(), buffer.cast(), piece, at as i64),
                        }
                    };
                    assert_eq!(n, piece as isize, "{}", std::io::Error::last_os_error());
                }
            })
            .0
        };
        write = write.max(bytes as f64 / GIB / pass(true));
        read = read.max(bytes as f64 / GIB / pass(false));
    }
    // SAFETY: allocated above.
    unsafe { System.dealloc(buffer, layout) };
    (write, read)
}

fn line(what: &str, bytes: usize, out: (f64, Moved), back: (f64, Moved)) {
    let rate = |s: f64| bytes as f64 / GIB / s;
    println!(
        "{what:<46} out {:6.2} GiB/s ({:5.1} ms, {:4} MiB written)   in {:6.2} GiB/s ({:5.1} ms, {:4} MiB read)",
        rate(out.0),
        out.0 * 1e3,
        out.1.bytes >> 20,
        rate(back.0),
        back.0 * 1e3,
        back.1.bytes >> 20
    );
}

fn main() {
    let mib = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(512usize);
    let bytes = mib << 20;
    let (write, read) = raw_disk(bytes);
    println!("raw disk, direct, 8 MiB pieces: out {write:.2} GiB/s, in {read:.2} GiB/s");
    for tracker in [TrackerKind::Hash, TrackerKind::Mprotect] {
        for huge in [HugePolicy::Auto, HugePolicy::Never] {
            let options = ArenaOptions { tracker: Some(tracker), huge, ..ArenaOptions::default() };
            let arena = Arena::new(&options).expect("arena");
            let mut words: SbVec<u64> = SbVec::new_in(&arena);
            words.try_reserve_exact(bytes / 8).expect("memory");
            words.extend((0..bytes as u64 / 8).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            for (name, step) in [("all dirty", 1), ("10 % dirty (64 KiB scattered)", 10), ("clean", 0)] {
                let mut best = (f64::MAX, f64::MAX);
                let mut moved = (Moved::default(), Moved::default());
                for _ in 0..ROUNDS {
                    if step > 0 {
                        words.chunks_mut(CHUNK / 8).step_by(step).for_each(|block| block[17] ^= 1);
                    }
                    let (out, m) = timed(|| pager::evict().expect("evict"));
                    moved.0 = m;
                    let (back, m) = timed(|| pager::restore().expect("restore"));
                    moved.1 = m;
                    best = (best.0.min(out), best.1.min(back));
                }
                let name = format!("{tracker:?}, {huge:?}: {name}");
                line(&name, bytes, (best.0, moved.0), (best.1, moved.1));
            }
        }
    }
}
