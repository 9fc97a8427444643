//! Small genomes full of repeats, hairpins, runs of one letter, circles and breaks against a program that
//! follows the definitions letter by letter, for several k and numbers of ranks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::common::genomes::{Random, genomes};
use crate::common::{Naive, canonical, files, kmers, merge, options, revcomp, unitigs};
use obikmer_merge::MergeOptions;
use obikmer_merge::query::Query;

/// Write a genome as FASTA with lines of some length.
fn write(dir: &Path, name: &str, sequences: &[String], width: usize) -> PathBuf {
    let mut text = String::new();
    for (i, sequence) in sequences.iter().enumerate() {
        let _ = writeln!(text, ">record{i} of {name}");
        for line in sequence.as_bytes().chunks(width) {
            text.push_str(std::str::from_utf8(line).expect("ASCII"));
            text.push('\n');
        }
        if sequence.is_empty() {
            text.push_str("N\n");
        }
    }
    let path = dir.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

fn compare(k: usize, m: usize, seed: u64, ranks: &[usize]) {
    let mut random = Random(seed * 1000);
    let genomes = genomes(&mut random, k, 3);
    let naive = Naive::new(k, &genomes);
    let dir = tempfile::tempdir().expect("a directory");
    let inputs: Vec<PathBuf> = genomes
        .iter()
        .enumerate()
        .map(|(i, g)| write(dir.path(), &format!("g{i}.fa"), g, 1 + random.below(90)))
        .collect();
    let texts: Vec<String> = naive.kmers.keys().cloned().collect();
    for &ranks in ranks {
        let what = format!("k {k} m {m} seed {seed} ranks {ranks}");
        let out = dir.path().join(format!("index{ranks}"));
        let one = MergeOptions { threads: Some(1), ..options(k, m, &out, &inputs) };
        let summary = merge(ranks, &one);
        assert_eq!(kmers(&out), texts, "k-mers, {what}");
        assert_eq!(unitigs(&out), naive.unitigs, "unitigs, {what}");
        assert_eq!(summary.distinct_kmers as usize, texts.len(), "{what}");
        assert_eq!(summary.unitigs as usize, naive.unitigs.len(), "{what}");
        let bases: usize = naive.unitigs.iter().map(String::len).sum();
        assert_eq!(summary.total_unitig_bases as usize, bases, "{what}");
        for (source, counted) in summary.sources.iter().enumerate() {
            let held = naive.kmers.values().filter(|s| s.contains(&source)).count();
            assert_eq!(counted.kmers as usize, held, "{what}");
        }
        let in_all = naive.kmers.values().filter(|s| s.len() == 3).count();
        assert_eq!(summary.in_all_sources as usize, in_all, "{what}");
        query_all(&out, k, &naive, &mut random);
        let by_three = dir.path().join(format!("by_three{ranks}"));
        assert_eq!(merge(ranks, &MergeOptions { threads: Some(3), out: by_three.clone(), ..one }), summary);
        assert_eq!(files(&out), files(&by_three), "one thread and three, {what}");
    }
}

/// Every k-mer is found with its sources; others are refused.
fn query_all(index: &Path, k: usize, naive: &Naive, random: &mut Random) {
    let query = Query::open(index).expect("an index");
    let absent: Vec<String> = (0..50).map(|_| random.text(k)).collect();
    let neighbours = naive.kmers.keys().take(50).map(|t| format!("{}A", &t[1..]));
    for text in naive.kmers.keys().cloned().chain(absent).chain(neighbours) {
        let counts = query.count(text.as_bytes()).expect("counted");
        let expected = naive.kmers.get(&canonical(&text));
        assert_eq!(counts.found, u64::from(expected.is_some()), "{text}");
        for (source, &count) in counts.by_source.iter().enumerate() {
            assert_eq!(count == 1, expected.is_some_and(|e| e.contains(&source)), "{text}");
        }
    }
}

fn random_genomes(lengths: &[(usize, usize)]) {
    for &(k, m) in lengths {
        for seed in 0..12 {
            compare(k, m, seed, &[1, 2, 3, 7]);
        }
    }
}

#[test]
fn random_genomes_of_the_shortest_kmers() {
    random_genomes(&[(3, 1), (3, 2), (5, 2), (5, 4)]);
}

#[test]
fn random_genomes_of_short_kmers() {
    random_genomes(&[(7, 3), (11, 5), (31, 11)]);
}

#[test]
fn random_genomes_of_long_kmers() {
    random_genomes(&[(33, 11), (45, 9), (63, 31)]);
}

#[test]
fn more_ranks_than_anything_else() {
    for seed in 100..103 {
        compare(7, 3, seed, &[40]);
    }
}

/// Long random circles and chains: pieces in many partitions.
#[test]
fn long_chains_and_circles() {
    for (seed, len) in [(1, 3000), (2, 900), (3, 40)] {
        let k = 11;
        let mut random = Random(seed << 32);
        let circle = random.text(len);
        let chain = random.text(len);
        let genomes = vec![vec![format!("{circle}{}", &circle[..k - 1])], vec![revcomp(&chain)]];
        let naive = Naive::new(k, &genomes);
        let dir = tempfile::tempdir().expect("a directory");
        let inputs: Vec<PathBuf> =
            genomes.iter().enumerate().map(|(i, g)| write(dir.path(), &format!("g{i}.fa"), g, 60)).collect();
        for ranks in [1, 2, 5, 16] {
            let out = dir.path().join(format!("index{ranks}"));
            merge(ranks, &options(k, 5, &out, &inputs));
            assert_eq!(unitigs(&out), naive.unitigs, "seed {seed} ranks {ranks}");
        }
    }
}

#[test]
fn windows_do_not_change_a_byte() {
    let mut random = Random(7);
    let genomes = genomes(&mut random, 7, 4);
    let dir = tempfile::tempdir().expect("a directory");
    let inputs: Vec<PathBuf> =
        genomes.iter().enumerate().map(|(i, g)| write(dir.path(), &format!("g{i}.fa"), g, 50)).collect();
    let mut before = None;
    for window in [1, 100, 1 << 20] {
        let out = dir.path().join(format!("index{window}"));
        let options = MergeOptions { window: Some(window), ..options(7, 3, &out, &inputs) };
        merge(3, &options);
        let files = files(&out);
        assert_eq!(files.len(), 9 + 3);
        assert!(before.as_ref().is_none_or(|b| *b == files), "window {window}");
        before = Some(files);
    }
}

#[test]
fn adding_gives_the_kmers_of_all_at_once() {
    for (seed, first, second) in [(1u64, 3, 3), (2, 3, 2), (3, 1, 7), (4, 7, 1), (5, 5, 5)] {
        let (k, m) = (7, 3);
        let mut random = Random(seed << 20);
        let genomes = genomes(&mut random, k, 5);
        let dir = tempfile::tempdir().expect("a directory");
        let inputs: Vec<PathBuf> =
            genomes.iter().enumerate().map(|(i, g)| write(dir.path(), &format!("g{i}.fa"), g, 50)).collect();
        let out = dir.path().join("index");
        let mut naive = Naive::new(k, &genomes);
        let add = |inputs: &[PathBuf], ranks| {
            let options = MergeOptions { add: true, ..options(k, m, &out, inputs) };
            merge(ranks, &options)
        };
        merge(first, &options(k, m, &out, &inputs[..2]));
        add(&inputs[2..4], second);
        let summary = add(&inputs[4..], second);
        assert_eq!(kmers(&out), naive.kmers.keys().cloned().collect::<Vec<_>>(), "seed {seed}");
        for (source, counted) in summary.sources.iter().enumerate() {
            let held = naive.kmers.values().filter(|s| s.contains(&source)).count();
            assert_eq!(counted.kmers as usize, held, "seed {seed}");
        }
        query_all(&out, k, &naive, &mut random);
        // Unitigs by layer: each layer's k-mers are those that no earlier source has.
        let mut by_layer = Vec::new();
        for sources in [0..2, 2..4, 4..5] {
            let new: BTreeSet<String> = naive
                .kmers
                .iter()
                .filter(|(_, held)| held.first().is_some_and(|first| sources.contains(first)))
                .map(|(text, _)| text.clone())
                .collect();
            by_layer.extend(Naive::only(k, &new));
        }
        by_layer.sort();
        assert_eq!(unitigs(&out), by_layer, "seed {seed}");
        assert_eq!(summary.unitigs as usize, by_layer.len());
        // Indexes as inputs: one layer again, with the unitigs of the whole.
        let flat = dir.path().join("flat");
        let summary = merge(4, &options(k, m, &flat, std::slice::from_ref(&out)));
        assert_eq!(unitigs(&flat), naive.unitigs, "seed {seed}");
        assert_eq!(summary.sources.len(), 5);
        query_all(&flat, k, &naive, &mut random);
        naive.kmers.clear();
    }
}
