//! The heap beside plain mimalloc and glibc's malloc, on programs that do little but allocate.
//!
//! `cargo bench -p sbmalloc --bench heap [-- ROUNDS [WORKLOAD...]]` (6 rounds of all by default). Each
//! measurement is a process of its own; the three allocators take turns in every order. Shown are medians of
//! CPU seconds (user and system, all threads: the wall clock says little on a shared machine), the median of
//! the rounds' ratios to either of the others, the ratio of the best rounds, which a noisy machine disturbs
//! less, and the largest resident size. Below 1 this heap is the faster. First comes what an idle process
//! takes.

use allocator_api2::alloc::{AllocError, Allocator};
use allocator_api2::vec::Vec as AVec;
use mimalloc::MiMalloc;
use sbmalloc::SbHeap;
use std::alloc::{GlobalAlloc, Layout, System};
use std::hash::{BuildHasherDefault, Hasher};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::mpsc::sync_channel;

/// Not a type parameter: the compiler would make other code of the workload itself for each allocator, and
/// the difference is larger than that of the allocators.
type Heap = dyn GlobalAlloc + Sync;

const THREADS: u64 = 2;
const WORKLOADS: [&str; 6] = ["larson", "xmalloc", "kmers", "strings", "buffers", "tree"];
const ALLOCATORS: [&str; 3] = ["sbmalloc", "mimalloc", "glibc"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [flag, workload, allocator] = &args[..]
        && flag == "--one"
    {
        return one(workload, allocator);
    }
    let rounds: usize = args.first().and_then(|a| a.parse().ok()).unwrap_or(6);
    for threads in ["1", "8"] {
        let mut line = format!("100 small blocks in each of {threads} threads, KiB:");
        for allocator in ALLOCATORS {
            let [resident, held] = child(threads, allocator);
            line += &format!(" {allocator} {resident:.0}");
            if allocator == "sbmalloc" {
                line += &format!(" (charged {held:.0})");
            }
        }
        println!("{line}");
    }
    let chosen = |w: &&&str| args.len() < 2 || args[1..].iter().any(|a| a == **w);
    println!("{:<9} {:>27}   {:>15}   {:>15}   {:>20}", "", "CPU seconds", "ratio to", "best to", "peak MiB");
    println!(
        "{:<9} {:>9}{:>9}{:>9}   {:>8}{:>7}   {:>8}{:>7}   {:>7}{:>7}{:>6}",
        "", "sbmalloc", "mimalloc", "glibc", "mimalloc", "glibc", "mimalloc", "glibc", "sb", "mi", "glibc"
    );
    for workload in WORKLOADS.iter().filter(chosen) {
        let mut seconds = [vec![], vec![], vec![]];
        let mut peak = [0f64; 3];
        for round in 0..rounds {
            // In every order: freed huge pages, or none, are what the next process finds.
            for i in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0]][round % 6] {
                let [s, mib] = child(workload, ALLOCATORS[i]);
                seconds[i].push(s);
                peak[i] = peak[i].max(mib);
            }
        }
        let ratio = |other: usize| median(seconds[0].iter().zip(&seconds[other]).map(|(a, b)| a / b));
        let [sb, mi, libc] = [0, 1, 2].map(|i| median(seconds[i].iter().copied()));
        let best = |i: usize| seconds[i].iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "{workload:<9} {sb:>9.3}{mi:>9.3}{libc:>9.3}   {:>8.3}{:>7.3}   {:>8.3}{:>7.3}   {:>7.0}{:>7.0}{:>6.0}",
            ratio(1),
            ratio(2),
            best(0) / best(1),
            best(0) / best(2),
            peak[0],
            peak[1],
            peak[2]
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs one measurement in a process of its own: CPU seconds and peak MiB, or KiB resident and charged.
fn child(workload: &str, allocator: &str) -> [f64; 2] {
    let me = std::env::current_exe().expect("own path");
    let out = Command::new(me).args(["--one", workload, allocator]).output().expect("run");
    assert!(out.status.success(), "{workload} {allocator}: {}", String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut words = said.split_whitespace().map(|w| w.parse().expect("number"));
    std::array::from_fn(|_| words.next().expect("two numbers"))
}

fn one(workload: &str, allocator: &str) {
    if let Ok(threads) = workload.parse() {
        let resident = match allocator {
            "sbmalloc" => idle(&SbHeap, threads),
            "mimalloc" => idle(&MiMalloc, threads),
            _ => idle(&System, threads),
        };
        return println!("{resident} {}", sbmalloc::held_bytes() as f64 / 1024.0);
    }
    match allocator {
        "sbmalloc" => run(workload, &SbHeap),
        "mimalloc" => run(workload, &MiMalloc),
        _ => run(workload, &System),
    }
    // SAFETY: zeroes are a valid rusage, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    println!("{} {}", seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss as f64 / 1024.0);
}

fn resident_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("RssAnon");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("number")
}

/// Resident KiB that 100 small blocks of different sizes in each of so many threads add, the threads
/// included.
fn idle(heap: &'static Heap, threads: usize) -> f64 {
    let before = resident_kib();
    let wait = Barrier::new(threads + 1);
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                let live: Vec<Block> = (0..100).map(|i| Block::new(heap, 8 + i * 13 % 500)).collect();
                wait.wait();
                wait.wait();
                live.into_iter().for_each(|b| b.free(heap));
            });
        }
        wait.wait();
        let after = resident_kib();
        wait.wait();
        after - before
    })
}

fn run(workload: &str, heap: &'static Heap) {
    match workload {
        "larson" => larson(heap),
        "xmalloc" => xmalloc(heap),
        "kmers" => kmers(heap),
        "strings" => strings(heap),
        "buffers" => buffers(heap),
        "tree" => tree(heap),
        other => panic!("no workload {other}: {WORKLOADS:?}"),
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `n`.
    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }
}

/// A block that may go to another thread; its first word is written.
struct Block(*mut u8, Layout);

// SAFETY: a block belongs to whoever holds it.
unsafe impl Send for Block {}

impl Block {
    fn new(heap: &Heap, size: usize) -> Self {
        let layout = Layout::from_size_align(size, 8).expect("layout");
        // SAFETY: not empty, and at least a word.
        unsafe {
            let at = heap.alloc(layout);
            at.cast::<usize>().write(size);
            Self(at, layout)
        }
    }

    fn free(self, heap: &Heap) {
        // SAFETY: allocated from this heap with this layout, and given away here.
        unsafe {
            assert_eq!(self.0.cast::<usize>().read(), self.1.size());
            heap.dealloc(self.0, self.1);
        }
    }
}

/// A server: threads that replace random blocks of theirs, end, and leave what they hold to their successors.
fn larson(heap: &'static Heap) {
    let mut hands: Vec<Vec<Block>> = (0..THREADS).map(|_| vec![]).collect();
    for generation in 0..25 {
        let workers: Vec<_> = hands
            .drain(..)
            .zip(1..)
            .map(|(mut blocks, t)| {
                std::thread::spawn(move || {
                    let mut random = Random(t * 0x9e37_79b9 + generation);
                    while blocks.len() < 5_000 {
                        blocks.push(Block::new(heap, 8 + random.below(1_000)));
                    }
                    for _ in 0..600_000 {
                        let i = random.below(blocks.len());
                        let fresh = Block::new(heap, 8 + random.below(1_000));
                        std::mem::replace(&mut blocks[i], fresh).free(heap);
                    }
                    blocks
                })
            })
            .collect();
        hands = workers.into_iter().map(|w| w.join().expect("worker")).collect();
        hands.rotate_left(1);
    }
    hands.into_iter().flatten().for_each(|b| b.free(heap));
}

/// Producers allocate, consumers free: every free is of another thread's block.
fn xmalloc(heap: &'static Heap) {
    std::thread::scope(|s| {
        for t in 1..=THREADS {
            let (to, from) = sync_channel::<Vec<Block>>(64);
            s.spawn(move || {
                let mut random = Random(t);
                for _ in 0..60_000 {
                    let batch = (0..120).map(|_| Block::new(heap, 8 + random.below(500))).collect();
                    to.send(batch).expect("consumer");
                }
            });
            s.spawn(move || from.iter().flatten().for_each(|b| b.free(heap)));
        }
    });
}

/// A heap as collections take it.
struct In(&'static Heap);

impl Clone for In {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

fn slice(at: *mut u8, len: usize) -> Result<NonNull<[u8]>, AllocError> {
    NonNull::new(at).map(|at| NonNull::slice_from_raw_parts(at, len)).ok_or(AllocError)
}

// SAFETY: as the heap it refers to; no collection here asks for nothing.
unsafe impl Allocator for In {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: not empty.
        slice(unsafe { self.0.alloc(layout) }, layout.size())
    }

    unsafe fn deallocate(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { self.0.dealloc(at.as_ptr(), layout) };
    }

    unsafe fn grow(&self, at: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's contract; the vectors here never change their alignment.
        slice(unsafe { self.0.realloc(at.as_ptr(), old, new.size()) }, new.size())
    }
}

#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only words are hashed");
    }
    fn write_u64(&mut self, word: u64) {
        let m = u128::from(word ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = m as u64 ^ (m >> 64) as u64;
    }
}

/// Counts k-mers of a random sequence in a table that grows to some 10^7 entries.
fn kmers(heap: &'static Heap) {
    let mut table: hashbrown::HashMap<u64, u32, BuildHasherDefault<Mix>, In> =
        hashbrown::HashMap::with_hasher_in(BuildHasherDefault::default(), In(heap));
    let (mut random, mut kmer) = (Random(42), 0u64);
    for _ in 0..10_000_000 {
        kmer = (kmer << 2 | random.next() >> 62) & ((1 << 62) - 1);
        *table.entry(kmer).or_insert(0) += 1;
    }
    assert!(table.len() > 9_000_000);
}

/// Text processing: many short strings, built byte run by byte run, replaced at random.
fn strings(heap: &'static Heap) {
    let mut random = Random(7);
    let mut live: Vec<AVec<u8, In>> = (0..100_000).map(|_| AVec::new_in(In(heap))).collect();
    for _ in 0..3_000_000 {
        let len = 1 << random.below(9);
        let mut text = AVec::new_in(In(heap));
        while text.len() < len {
            text.extend_from_slice(&random.next().to_le_bytes());
        }
        let i = random.below(live.len());
        live[i] = text;
    }
}

/// Numerical work: buffers from 4 KiB to 4 MiB, filled, summed up and dropped, a few at a time.
fn buffers(heap: &'static Heap) {
    let mut random = Random(3);
    let mut live: Vec<AVec<u64, In>> = (0..8).map(|_| AVec::new_in(In(heap))).collect();
    let mut sum = 0;
    for _ in 0..12_000 {
        let len = (512 << random.below(11)) + random.below(512);
        let mut buffer = AVec::with_capacity_in(len, In(heap));
        buffer.resize(len, random.next());
        sum ^= buffer.iter().fold(0u64, |a, &b| a.wrapping_add(b));
        let i = random.below(live.len());
        live[i] = buffer;
    }
    std::hint::black_box(sum);
}

/// A node of a tree as an interpreter would make it: header and two links.
struct Node {
    _header: [usize; 2],
    links: [*mut Node; 2],
}

fn grow(heap: &Heap, depth: u32) -> *mut Node {
    let links =
        if depth == 0 { [std::ptr::null_mut(); 2] } else { [grow(heap, depth - 1), grow(heap, depth - 1)] };
    // SAFETY: not empty; written before it is read.
    unsafe {
        let node = heap.alloc(Layout::new::<Node>()).cast::<Node>();
        node.write(Node { _header: [depth as usize; 2], links });
        node
    }
}

fn fell(heap: &Heap, node: *mut Node) {
    if !node.is_null() {
        // SAFETY: made by grow, and reached once.
        unsafe {
            (*node).links.iter().for_each(|&n| fell(heap, n));
            heap.dealloc(node.cast(), Layout::new::<Node>());
        }
    }
}

/// Objects: binary trees made and dropped while a large one lives.
fn tree(heap: &'static Heap) {
    let long_lived = grow(heap, 20);
    for depth in [4u32, 10, 16] {
        for _ in 0..1 << (22 - depth) {
            fell(heap, grow(heap, depth));
        }
    }
    fell(heap, long_lived);
}
