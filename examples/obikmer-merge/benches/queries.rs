//! K-mers looked up in an index: present ones in random order, random ones that are absent, and a file from
//! its beginning to its end; by one thread and by two. And what each part of the index takes.
//!
//! usage: cargo bench -p obikmer-merge --bench queries -- INDEX [FASTA]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use obikmer_merge::Result;
use obikmer_merge::index::Index;
use obikmer_merge::lookup;
use obikmer_merge::pieces::Pieces;
use obikmer_merge::query::Query;
use obikmer_merge::query::answer::Form;
use obikmer_merge::sequence::minimizer::order;
use obikmer_merge::sequence::word;
use obikmer_merge::sequence::word::Word;
use obikmer_merge::threads::Threads;
use rayon::prelude::*;

/// K-mers of each kind.
const COUNT: usize = 10_000_000;

/// What is drawn from an index.
#[derive(Default)]
struct Drawn {
    kmers: u64,
    parts: Vec<(&'static str, u64)>,
    /// About [`COUNT`] of its k-mers in random order and directions.
    present: Vec<u128>,
    /// Those asked about that are in it.
    confirmed: HashSet<u128>,
}

/// A word of 128 bits of any width.
fn wide<W: Word>(kmer: W) -> u128 {
    let high = if W::BITS > 64 { (kmer >> (W::BITS / 2)).low() } else { 0 };
    u128::from(high) << 64 | u128::from(kmer.low())
}

/// Go through a whole index, drawing one k-mer of so many, and confirming those asked about.
fn draw<W: Word>(index: &Index, one_of: u64, asked: &HashSet<u128>) -> Result<Drawn> {
    let mut drawn = Drawn::default();
    for partition in 0..index.meta.partitions {
        for layer in 0..index.meta.layers {
            let layer = index.layer::<W>(layer, partition)?;
            drawn.kmers += layer.count()?;
            if drawn.parts.is_empty() {
                drawn.parts = layer.parts().map(|(name, _)| (name, 0)).into();
            }
            for (sum, (_, bytes)) in drawn.parts.iter_mut().zip(layer.parts()) {
                sum.1 += bytes as u64;
            }
            layer.for_each_kmer(|_, kmer, _| {
                let random = order(kmer.forward.fold());
                if random.is_multiple_of(one_of) {
                    drawn.present.push(wide(if random >> 63 == 0 { kmer.forward } else { kmer.reverse }));
                }
                if !asked.is_empty() && asked.contains(&wide(kmer.canonical())) {
                    drawn.confirmed.insert(wide(kmer.canonical()));
                }
            })?;
        }
    }
    drawn.present.sort_by_cached_key(|&kmer| order(order(kmer as u64 ^ (kmer >> 64) as u64)));
    Ok(drawn)
}

fn draw_from(index: &Index, one_of: u64, asked: &HashSet<u128>) -> Result<Drawn> {
    if index.meta.lengths()?.is_wide() {
        draw::<u128>(index, one_of, asked)
    } else {
        draw::<u64>(index, one_of, asked)
    }
}

/// Build the tables of every partition again; the processor seconds that took.
fn build<W: Word>(index: &Index) -> Result<f64> {
    let (k, mut seconds) = (index.meta.k, 0.0);
    for partition in 0..index.meta.partitions {
        for layer in 0..index.meta.layers {
            let mut pieces = Pieces::default();
            let (mut codes, mut next): (Vec<u8>, u32) = (Vec::new(), 0);
            let mut add = |codes: &mut Vec<u8>| {
                pieces.starts.push(pieces.bases.len() as u32);
                pieces.bases.push(codes);
                codes.clear();
            };
            let layer = index.layer::<W>(layer, partition)?;
            layer.for_each_kmer(|at, kmer, _| {
                if at != next && !codes.is_empty() {
                    add(&mut codes);
                }
                let new = if codes.is_empty() { k } else { 1 };
                codes.extend((0..new).rev().map(|i| (kmer.forward >> (2 * i)).last()));
                next = at + 1;
            })?;
            if !codes.is_empty() {
                add(&mut codes);
            }
            pieces.starts.push(pieces.bases.len() as u32);
            let begin = processor();
            std::hint::black_box(lookup::build::<W>(&pieces, k, Threads::ONE)?);
            seconds += processor() - begin;
        }
    }
    Ok(seconds)
}

/// Look all up with the threads of the pool; those found.
fn look_up(query: &Query, kmers: &[u128]) -> Result<Vec<u128>> {
    let part = kmers.len().div_ceil(rayon::current_num_threads()).max(1);
    let found = kmers.par_chunks(part).map(|part| {
        let (mut found, mut asked) = (Vec::new(), part.iter());
        query.look_up(part.iter().copied(), |sources| {
            found.extend(asked.next().filter(|_| sources.is_some()));
        })?;
        Ok(found)
    });
    Ok(found.collect::<Result<Vec<_>>>()?.concat())
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads")
}

/// Processor seconds of this process.
fn processor() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn timed<T>(what: &str, threads: usize, count: usize, work: impl Fn() -> Result<T> + Sync) -> Result<T>
where
    T: Send,
{
    // The first time brings the index into memory and into the page table.
    let mut best = (f64::MAX, f64::MAX);
    let mut result = None;
    for _ in 0..3 {
        let (begin, cpu) = (Instant::now(), processor());
        result = Some(pool(threads).install(&work)?);
        best = (best.0.min(begin.elapsed().as_secs_f64()), best.1.min(processor() - cpu));
    }
    let million = count as f64 / 1e6;
    let (wall, cpu) = (million / best.0, million / best.1);
    println!("{what:28} {threads} threads  {wall:7.2} M/s, {cpu:7.2} M per processor second");
    Ok(result.expect("three times"))
}

fn run(dir: &Path, fasta: Option<PathBuf>) -> Result<()> {
    let index = Index::open(dir)?;
    let query = Query::open(dir)?;
    let k = query.k();
    let random = |i: u64| u128::from(order(i)) << 64 | u128::from(order(i + (1 << 40)));
    let absent: Vec<u128> = (0..COUNT as u64).map(|i| random(i) & <u128 as Word>::mask(k)).collect();

    let count = draw_from(&index, u64::MAX, &HashSet::new())?.kmers;
    let drawn = draw_from(&index, (count / COUNT as u64).max(1), &HashSet::new())?;
    println!("{} k-mers, {} partitions, {} layers", drawn.kmers, index.meta.partitions, index.meta.layers);
    for (part, bytes) in &drawn.parts {
        println!("{part:28} {bytes:12} bytes  {:.4} per k-mer", *bytes as f64 / drawn.kmers as f64);
    }
    let sum: u64 = drawn.parts.iter().map(|part| part.1).sum();
    println!("{:28} {sum:12} bytes  {:.4} per k-mer", "together", sum as f64 / drawn.kmers as f64);
    let seconds =
        if index.meta.lengths()?.is_wide() { build::<u128>(&index)? } else { build::<u64>(&index)? };
    let each = seconds * 1e9 / drawn.kmers as f64;
    println!("building the tables: {seconds:.2} processor seconds, {each:.1} ns per k-mer");
    for threads in [1, 2] {
        let found =
            timed("present, random order", threads, drawn.present.len(), || look_up(&query, &drawn.present))?;
        assert_eq!(found, drawn.present, "present k-mers were not found");
    }
    let mut found = Vec::new();
    for threads in [1, 2] {
        found = timed("random", threads, absent.len(), || look_up(&query, &absent))?;
    }
    let canonical = |kmer: &u128| (*kmer).min(word::Word::revcomp(*kmer, k));
    let found: HashSet<u128> = found.iter().map(canonical).collect();
    let confirmed = draw_from(&index, u64::MAX, &absent.iter().map(canonical).collect())?.confirmed;
    println!(
        "of {COUNT} random k-mers {} found, {} of them in the index, {} others in it",
        found.len(),
        found.intersection(&confirmed).count(),
        confirmed.difference(&found).count()
    );
    assert_eq!(found, confirmed);
    if let Some(fasta) = fasta {
        let mut answer = Vec::new();
        query.answer(std::slice::from_ref(&fasta), Form::default(), &mut answer)?;
        let column = |n: usize| -> usize {
            let lines = std::str::from_utf8(&answer).expect("UTF-8").lines().skip(1);
            lines.filter_map(|line| line.split('\t').nth(n)?.parse::<usize>().ok()).sum()
        };
        println!("{}: {} k-mers, {} found", fasta.display(), column(1), column(2));
        for threads in [1, 2] {
            timed("the file, read included", threads, column(1), || {
                query.answer(std::slice::from_ref(&fasta), Form::default(), &mut Vec::new())
            })?;
        }
    }
    Ok(())
}

fn main() {
    // Cargo adds `--bench`.
    let mut arguments = std::env::args_os().skip(1).filter(|a| a != "--bench");
    let Some(index) = arguments.next() else {
        println!("usage: cargo bench -p obikmer-merge --bench queries -- INDEX [FASTA]");
        return;
    };
    if let Err(error) = run(Path::new(&index), arguments.next().map(PathBuf::from)) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
