//! What each tracker costs, and when it wins: nothing written since the restore, 1 % of the pages scattered,
//! 10 % of the blocks, everything; with huge pages and without.
//!
//! `cargo bench -p sbmalloc --bench tracker [-- MiB]` (1024 by default). The store is a file on scratch;
//! bytes that were written by the program are written to it, so `out` has those of the disk in it: the column
//! `CPU` has not. All in milliseconds per GiB held, medians. `arm` is what a restore takes beyond one with
//! `hash`.

#[path = "../tests/moves/mod.rs"]
mod moves;

use moves::Moves;
use sbmalloc::{
    Arena, ArenaOptions, ArenaSet, CHUNK, HugePolicy, PAGE, StoreKind, TrackerKind, measure_trackers,
};
use std::time::Instant;

const GIB: f64 = (1u64 << 30) as f64;
const ROUNDS: usize = 5;

/// CPU milliseconds of the process so far, in user and system mode.
fn cpu() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 * 1e-6
}

/// Wall and CPU milliseconds.
fn timed(f: impl FnOnce()) -> (f64, f64) {
    let (begin, before) = (Instant::now(), cpu());
    f();
    (begin.elapsed().as_secs_f64() * 1e3, cpu() - before)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Offsets written to, of `bytes`.
fn pattern(name: &str, bytes: usize) -> Vec<usize> {
    match name {
        "clean" => vec![],
        "1 % of pages" => (0..bytes / PAGE).step_by(100).map(|p| p * PAGE).collect(),
        "10 % of blocks" => (0..bytes / CHUNK)
            .step_by(10)
            .flat_map(|b| (0..CHUNK).step_by(PAGE).map(move |at| b * CHUNK + at))
            .collect(),
        _ => (0..bytes).step_by(PAGE).collect(),
    }
}

fn main() {
    let mib = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(1024usize);
    let bytes = mib << 20;
    let gib = bytes as f64 / GIB;
    match measure_trackers() {
        Ok(costs) => println!("measured, in ns: {costs:?}"),
        Err(e) => println!("no asynchronous write protection here: {e}"),
    }
    println!(
        "{:9} {:6} {:15} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "tracker", "huge", "written", "writes", "out", "out CPU", "in", "in CPU", "MiB looked"
    );
    for huge in [HugePolicy::Always, HugePolicy::Never] {
        for tracker in [TrackerKind::Hash, TrackerKind::Uffd, TrackerKind::Auto] {
            let set: &'static ArenaSet = Box::leak(Box::default());
            let options = ArenaOptions {
                tracker: Some(tracker),
                store: Some(StoreKind::Auto),
                huge,
                ..ArenaOptions::default()
            };
            let Ok(arena) = Arena::new_in(&options, set) else { continue };
            let at = arena.alloc(bytes, 64).expect("memory").as_ptr();
            for (i, at) in (0..bytes).step_by(8).map(|i| (i, at.wrapping_add(i).cast::<u64>())) {
                // SAFETY: inside the run just allocated.
                unsafe { at.write((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1) };
            }
            set.page_out().expect("evict");
            set.page_in().expect("restore");
            for name in ["clean", "1 % of pages", "10 % of blocks", "all"] {
                let offsets = pattern(name, bytes);
                let mut columns = [const { vec![] }; 5];
                let mut looked = 0;
                for round in 0..ROUNDS {
                    let write = || {
                        for &offset in &offsets {
                            // SAFETY: inside the run.
                            unsafe { at.add(offset + 1).write_volatile(round as u8) };
                        }
                    };
                    let writes = timed(write);
                    let out = timed(|| looked = set.page_out().expect("evict").scanned);
                    let back = timed(|| _ = set.page_in().expect("restore"));
                    for (column, ms) in columns.iter_mut().zip([writes.0, out.0, out.1, back.0, back.1]) {
                        column.push(ms / gib);
                    }
                }
                let [writes, out, out_cpu, back, back_cpu] = columns.map(|mut c| median(&mut c));
                println!(
                    "{:9} {:6} {name:15} {writes:8.1} {out:8.1} {out_cpu:8.1} {back:8.1} {back_cpu:8.1} {:9}",
                    format!("{tracker:?}"),
                    huge == HugePolicy::Always,
                    looked >> 20
                );
            }
        }
    }
}
