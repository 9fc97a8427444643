//! One partition of a job that counts k-mers, as a program that knows nothing of bdrun: it reads nothing,
//! makes its keys from a seed, holds as much memory as it is told, and prints one line that depends on every
//! word of it.
//!
//! `partition steady|late BYTES SEED [TIMES]`
//!
//! - `steady`: a hash table that doubles as it grows. Work and memory go together; most memory is held at the
//!   last doubling.
//! - `late`: sorted runs of keys, one after the other, until all are there. Memory grows slowly, and most of
//!   it is held at the very end.
//!
//! `BYTES` is the largest amount held at once: a number of bytes, or with K, M or G behind it. `TIMES` does
//! it again that often, with the seeds that follow, a line each.

use std::process::ExitCode;

/// Numbers from a seed (splitmix64).
struct Keys(u64);

impl Keys {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Open addressing, linear probing: pairs of a key and its count; a count of 0 is a free place.
struct Table {
    places: Vec<(u64, u64)>,
    used: usize,
}

impl Table {
    fn new(places: usize) -> Self {
        Self { places: vec![(0, 0); places], used: 0 }
    }

    fn add(&mut self, key: u64, count: u64) {
        let places = self.places.len();
        // The high half of the product spreads the keys over any number of places.
        let mut at = ((u128::from(mix(key)) * places as u128) >> 64) as usize;
        while self.places[at].1 != 0 && self.places[at].0 != key {
            at = if at + 1 == places { 0 } else { at + 1 };
        }
        self.used += usize::from(self.places[at].1 == 0);
        self.places[at].0 = key;
        self.places[at].1 += count;
    }

    /// Twice as many places; the old and the new ones are held at once.
    fn double(&mut self) {
        let mut larger = Self::new(2 * self.places.len());
        for &(key, count) in self.places.iter().filter(|place| place.1 != 0) {
            larger.add(key, count);
        }
        *self = larger;
    }

    fn is_full(&self) -> bool {
        self.used * 8 >= self.places.len() * 7
    }
}

fn steady(bytes: usize, mut keys: Keys) -> (usize, u64) {
    // The last doubling holds three times the places of the table before it.
    let last = (bytes / 16 * 2 / 3).max(64);
    let doublings = (last / 32).ilog2();
    let mut table = Table::new(last >> doublings);
    for _ in 0..doublings {
        while !table.is_full() {
            let key = keys.next();
            table.add(key, 1);
            // Every fourth key comes again and is counted, as k-mers are.
            table.add(if key.is_multiple_of(4) { key } else { keys.next() }, 1);
        }
        table.double();
    }
    while !table.is_full() {
        table.add(keys.next(), 1);
    }
    let digest = table.places.iter().fold(0, |sum: u64, &(key, count)| mix(sum ^ key).wrapping_add(count));
    (table.used, digest)
}

fn late(bytes: usize, mut keys: Keys) -> (usize, u64) {
    const RUN: usize = 1 << 17;
    let mut runs = Vec::new();
    for _ in 0..(bytes / (8 * RUN)).max(1) {
        let mut run: Vec<u64> = (0..RUN).map(|_| keys.next()).collect();
        run.sort_unstable();
        runs.push(run);
    }
    let digest = runs.iter().flatten().fold(0, |sum, &key| mix(sum ^ key));
    (runs.len() * RUN, digest)
}

fn size(text: &str) -> Option<usize> {
    let shift = match text.chars().last()? {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => return text.parse().ok(),
    };
    text[..text.len() - 1].parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (mode, bytes, seed, times) = match words[..] {
        [mode @ ("steady" | "late"), bytes, seed] => (mode, bytes, seed, "1"),
        [mode @ ("steady" | "late"), bytes, seed, times] => (mode, bytes, seed, times),
        _ => {
            eprintln!("usage: partition steady|late BYTES SEED [TIMES]");
            return ExitCode::from(2);
        }
    };
    let (Some(bytes), Ok(seed), Ok(times)) = (size(bytes), seed.parse::<u64>(), times.parse::<u64>()) else {
        eprintln!("partition: {bytes} is no size, or {seed} or {times} no number");
        return ExitCode::from(2);
    };
    for seed in seed..seed.saturating_add(times) {
        let (count, digest) =
            if mode == "late" { late(bytes, Keys(seed)) } else { steady(bytes, Keys(seed)) };
        println!("{mode} {seed}: {count} keys, {digest:016x}");
    }
    ExitCode::SUCCESS
}
