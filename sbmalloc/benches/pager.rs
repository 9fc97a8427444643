//! How fast memory is moved out and in, beside what the disk does in the same run.
//!
//! `cargo bench -p sbmalloc [-- MiB [NAME]]` (2048 by default; a name keeps to cases that contain it). The
//! cases named `compress` hold data that LZ4 shrinks, more or less, and go out raw, compressed, and as
//! measurement decides. Scratch goes where `BDRUN_SCRATCH` or `TMPDIR` says. The rates are of the bytes
//! *held*, except the raw ones, so a clean evict may well beat the disk. Each round of evict and restore has
//! its own raw write and read beside it, because a shared disk changes from second to second; medians are
//! shown, with the median of the rounds' ratios to the raw rates. CPU seconds are the process's own; the
//! kernel's threads that finish a transfer are not in them.

#[path = "../tests/moves/mod.rs"]
mod moves;

use moves::Moves;
use sbmalloc::pager::{self, Moved};
use sbmalloc::{
    Arena, ArenaOptions, ArenaSet, CHUNK, Compression, Config, GRANULE, HugePolicy, PROCESS, SbVec,
    TrackerKind,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const GIB: f64 = (1u64 << 30) as f64;
const ROUNDS: usize = 7;

/// CPU seconds of the process so far, in user and system mode.
fn cpu() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// What one pass took: wall and CPU seconds.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    cpu: f64,
}

fn timed<T>(f: impl FnOnce() -> T) -> (Took, T) {
    let (begin, before) = (Instant::now(), cpu());
    let result = f();
    (Took { wall: begin.elapsed().as_secs_f64(), cpu: cpu() - before }, result)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Direct sequential transfers in pieces of 8 MiB: the yardstick. Through one buffer of that size again and
/// again, which stays in the processor's cache, and from and to memory as large as what is moved, there
/// already.
struct Raw {
    file: std::fs::File,
    buffer: *mut u8,
    layout: Layout,
}

impl Raw {
    const PIECE: usize = 8 << 20;

    fn new(bytes: usize) -> std::io::Result<Self> {
        let dir = ["BDRUN_SCRATCH", "TMPDIR"]
            .iter()
            .find_map(|n| std::env::var(n).ok())
            .unwrap_or("/var/tmp".into());
        let dir = dir.split(':').next().unwrap_or_default(); // of several the first
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_DIRECT);
        let file = options.open(dir)?;
        let layout = Layout::from_size_align(bytes, 2 << 20).expect("layout");
        // SAFETY: not empty; used within its size.
        let buffer = unsafe { System.alloc(layout) };
        // SAFETY: as above. Huge pages, as the arenas have: with small ones the disk looks half as fast.
        unsafe {
            libc::madvise(buffer.cast(), bytes, libc::MADV_HUGEPAGE);
            buffer.write_bytes(0x5a, bytes);
        }
        Ok(Self { file, buffer, layout })
    }

    /// A pass over the file, through one piece of memory or as much as there is of the file.
    fn pass(&self, out: bool, hot: bool) -> Took {
        let fd = self.file.as_raw_fd();
        let pass = || {
            for at in (0..self.layout.size()).step_by(Self::PIECE) {
                // SAFETY: the buffer has as many bytes as the file, a multiple of `PIECE`.
                let buffer = unsafe { self.buffer.add(if hot { 0 } else { at }) }.cast();
                // SAFETY: as above.
                let n = unsafe {
                    match out {
                        true => libc::pwrite(fd, buffer, Self::PIECE, at as i64),
                        false => libc::pread(fd, buffer, Self::PIECE, at as i64),
                    }
                };
                assert_eq!(n, Self::PIECE as isize, "{}", std::io::Error::last_os_error());
            }
        };
        timed(pass).0
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { System.dealloc(self.buffer, self.layout) };
    }
}

/// One direction of one case: its rounds, the raw ones beside them, and what was moved in the last.
#[derive(Default)]
struct Rounds {
    raw: Vec<Took>,
    raw_wide: Vec<Took>,
    took: Vec<Took>,
    moved: Moved,
}

impl Rounds {
    fn line(&self, direction: &str, bytes: usize) {
        let gib = bytes as f64 / GIB;
        let rate = |rounds: &[Took]| gib / median(rounds.iter().map(|t| t.wall));
        let cpu = |rounds: &[Took]| median(rounds.iter().map(|t| t.cpu)) / gib;
        print!("    {direction:3} {:6.2} GiB/s, {:.3} CPU s/GiB", rate(&self.took), cpu(&self.took));
        print!(", {:4} MiB moved", self.moved.bytes >> 20);
        for (name, raw) in
            [("raw", &self.raw), ("raw, wide", &self.raw_wide)].iter().filter(|r| !r.1.is_empty())
        {
            let ratio = median(self.took.iter().zip(*raw).map(|(t, raw)| raw.wall / t.wall));
            print!("; {name} {:5.2} GiB/s: {ratio:.2} of it", rate(raw));
        }
        println!();
    }
}

fn main() {
    let mib = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(2048usize);
    let name = std::env::args().skip(1).find(|a| !a.starts_with('-') && a.parse::<usize>().is_err());
    let is_wanted = |case: &str| name.as_ref().is_none_or(|name| case.contains(name.as_str()));
    let bytes = (mib << 20).next_multiple_of(Raw::PIECE);
    let raw = Raw::new(bytes).inspect_err(|e| println!("no direct file to compare with: {e}")).ok();
    if let Some(raw) = &raw {
        raw.pass(true, true); // the first pass finds the file's place on the disk
    }
    if is_wanted("compress") {
        for (what, fill) in DATA {
            compressed(bytes, raw.as_ref(), what, fill);
        }
    }
    let others = [
        "all dirty",
        "10 % dirty (64 KiB scattered)",
        "clean",
        "10 % used, written",
        "10 % used, read",
        "all read",
    ];
    if !others.into_iter().any(is_wanted) {
        return;
    }
    for tracker in [TrackerKind::Hash, TrackerKind::Uffd] {
        for huge in [HugePolicy::Auto, HugePolicy::Never] {
            let options = ArenaOptions { tracker: Some(tracker), huge, ..ArenaOptions::default() };
            let arena = Arena::new(&options).expect("arena");
            let mut words: SbVec<u64> = SbVec::new_in(&arena);
            words.try_reserve_exact(bytes / 8).expect("memory");
            words.extend((0..bytes as u64 / 8).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            println!("{tracker:?}, {huge:?}: first time");
            let (out, back) = round(None);
            let mut first = [Rounds::default(), Rounds::default()];
            (first[0].took, first[0].moved) = (vec![out.0], out.1);
            (first[1].took, first[1].moved) = (vec![back.0], back.1);
            first[0].line("out", bytes);
            first[1].line("in", bytes);
            let cases = [("all dirty", 1), ("10 % dirty (64 KiB scattered)", 10), ("clean", 0)];
            for (name, step) in cases.into_iter().filter(|c| is_wanted(c.0)) {
                let mut rounds = [Rounds::default(), Rounds::default()];
                for _ in 0..ROUNDS {
                    if step > 0 {
                        words.chunks_mut(CHUNK / 8).step_by(step).for_each(|block| block[17] ^= 1);
                    }
                    let beside = raw.as_ref().filter(|_| step == 1).map(|raw| (raw, &mut rounds));
                    let (out, back) = round(beside);
                    for (rounds, (took, moved)) in rounds.iter_mut().zip([out, back]) {
                        rounds.took.push(took);
                        rounds.moved = moved;
                    }
                }
                println!("{tracker:?}, {huge:?}: {name}");
                rounds[0].line("out", bytes);
                rounds[1].line("in", bytes);
                if step > 0 {
                    let changed = (bytes / CHUNK).div_ceil(step) * CHUNK;
                    println!("    written / changed {:.3}", rounds[0].moved.bytes as f64 / changed as f64);
                }
            }
            for (name, tenth, write) in [
                ("10 % used, written", true, true),
                ("10 % used, read", true, false),
                ("all read", false, false),
            ] {
                if is_wanted(name) {
                    println!("{tracker:?}, {huge:?}: {name}");
                    phases(&mut words, tenth, write);
                }
            }
        }
    }
}

/// Word `i` of data in round `n`.
type Fill = fn(i: u64, n: u64) -> u64;

fn mix(i: u64, n: u64) -> u64 {
    let z = (i + (n << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// What does not shrink; sorted 31-mers (as 62-bit numbers) with their counts; a table of 64-bit words of
/// which one in 24 is in use.
const DATA: [(&str, Fill); 3] = [
    ("noise", |i, n| mix(i, n) ^ mix(i, n) >> 31),
    ("k-mers and counts", |i, n| match i % 2 {
        // 2^28 k-mers, ascending: 34 bits of each are new.
        0 => i << 33 | mix(i, n) >> 31,
        _ => mix(i, n) >> 61,
    }),
    ("sparse", |i, n| if mix(i, n) >> 56 < 11 { mix(i, n) } else { 0 }),
];

/// All dirty and all needed again, in a set of which nothing is touched in between.
fn compressed(bytes: usize, raw: Option<&Raw>, what: &str, fill: Fill) {
    let set: &'static ArenaSet = Box::leak(Box::default());
    set.expect_restores();
    let options = ArenaOptions { tracker: Some(TrackerKind::Hash), ..ArenaOptions::default() };
    let arena = Arena::new_in(&options, set).expect("arena");
    let mut words: SbVec<u64> = SbVec::new_in(&arena);
    words.try_reserve_exact(bytes / 8).expect("memory");
    words.extend((0..bytes as u64 / 8).map(|i| fill(i, 0)));
    let hows = [Compression::None, Compression::Lz4, Compression::Auto];
    let mut rounds = hows.map(|_| [Rounds::default(), Rounds::default()]);
    for n in 0..ROUNDS as u64 * 3 {
        // In turn, so that what else the machine does hits all alike.
        let turn = n as usize % 3;
        configure(hows[turn]);
        words.iter_mut().zip(0..).for_each(|(w, i)| *w = fill(i, n + 1));
        if let Some(raw) = raw {
            rounds[turn][0].raw.push(raw.pass(true, true));
        }
        // At a site of its own: what is known of others is not to decide.
        let out = timed(|| set.page_out_to(0, n << 40, &mut |_| {}).expect("evict"));
        let back = timed(|| set.page_in_for(n << 40, &mut |_| usize::MAX).expect("restore").0);
        if let Some(raw) = raw {
            rounds[turn][1].raw.push(raw.pass(false, true));
        }
        for (rounds, (took, moved)) in rounds[turn].iter_mut().zip([out, back]) {
            rounds.took.push(took);
            rounds.moved = moved;
        }
    }
    for (how, rounds) in hows.iter().zip(rounds) {
        println!("compress {how}: {what}, all dirty");
        rounds[0].line("out", bytes);
        rounds[1].line("in", bytes);
    }
    configure(Compression::None);
}

fn configure(compression: Compression) {
    sbmalloc::configure(Config { compression, ..Config::default() }).expect("a configuration");
}

/// Phases that use a tenth of the memory, in scattered granules, or all of it, with a wait at one site
/// between them in which everything is evicted. What is moved once the site is known, and at first.
fn phases(words: &mut [u64], tenth: bool, write: bool) {
    /// No other phases are at it.
    static SITE: AtomicU64 = AtomicU64::new(0);
    const LEARNING: usize = 12;
    let site = SITE.fetch_add(1, Ordering::Relaxed);
    let held = size_of_val(words);
    let (mut out, mut back, mut used) = (vec![], vec![], vec![]);
    for turn in 0..2 * LEARNING as u64 {
        out.push(timed(|| PROCESS.page_out_to(0, site, &mut |_| {}).expect("evict")));
        back.push(timed(|| PROCESS.page_in_for(site, &mut |_| usize::MAX).expect("restore").0));
        pager::begin_phase(site);
        used.push(timed(|| {
            for granule in words.chunks_mut(GRANULE / 8).skip(4).step_by(if tenth { 10 } else { 1 }) {
                if write {
                    granule.iter_mut().for_each(|w| *w ^= turn | 1);
                } else {
                    std::hint::black_box(granule.iter().fold(0, |a, &b| a ^ b));
                }
            }
            pager::verify_touched().expect("sound");
        }));
    }
    let share = |moved: &[(Took, Moved)]| {
        100.0 * moved.iter().map(|m| m.1.bytes).sum::<u64>() as f64 / (moved.len() * held) as f64
    };
    let walls = |took: &mut dyn Iterator<Item = f64>| median(took) * 1e3;
    for (name, range) in [("first", 0..LEARNING), ("then", LEARNING..2 * LEARNING)] {
        println!(
            "    {name}: {:.1} % of what is held written, {:.1} % read; {:.0} ms out, {:.0} ms in, {:.0} ms used",
            share(&out[range.clone()]),
            share(&back[range.clone()]),
            walls(&mut out[range.clone()].iter().map(|m| m.0.wall)),
            walls(&mut back[range.clone()].iter().map(|m| m.0.wall)),
            walls(&mut used[range].iter().map(|m| m.0.wall)),
        );
    }
}

/// One evict and one restore, with a raw pass of each kind before and after. Not between them: a guest hands
/// memory that has been free for two seconds back to its host, and getting it again takes seconds per GiB. In
/// a job the memory a rank is restored into was freed by another just before.
fn round(raw: Option<(&Raw, &mut [Rounds; 2])>) -> ((Took, Moved), (Took, Moved)) {
    let mut raw = raw;
    let mut beside = |i: usize| {
        if let Some((raw, rounds)) = &mut raw {
            rounds[i].raw.push(raw.pass(i == 0, true));
            rounds[i].raw_wide.push(raw.pass(i == 0, false));
        }
    };
    beside(0);
    let out = timed(|| PROCESS.page_out().expect("evict"));
    let back = timed(|| PROCESS.page_in().expect("restore"));
    beside(1);
    (out, back)
}
