//! `--min-count`: k-mers that occur too rarely in a source are left out of it, against counting them all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::compressed::{gzip, zstd};
use crate::common::genomes::{Random, sequence};
use crate::common::{Naive, canonical, files, kmers, lines, merge, merge_all, options, revcomp, unitigs};
use obikmer_merge::{MergeOptions, dump};

/// How often each canonical k-mer occurs.
fn counted(k: usize, sequences: &[String]) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for sequence in sequences {
        let upper = sequence.to_uppercase();
        for window in upper.as_bytes().windows(k) {
            let text = std::str::from_utf8(window).expect("ASCII");
            if text.bytes().all(|b| b"ACGT".contains(&b)) {
                *counts.entry(canonical(text)).or_default() += 1;
            }
        }
    }
    counts
}

/// What is left of some sources.
fn left(k: usize, least: u32, sources: &[Vec<String>]) -> Naive {
    let mut kmers: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (source, sequences) in sources.iter().enumerate() {
        for (kmer, _) in counted(k, sequences).into_iter().filter(|counted| counted.1 >= least) {
            kmers.entry(kmer).or_default().insert(source);
        }
    }
    let present: BTreeSet<String> = kmers.keys().cloned().collect();
    Naive { unitigs: Naive::only(k, &present), kmers }
}

/// Reads of a difficult genome, in both directions, with errors.
fn reads(random: &mut Random, k: usize, before: &[String]) -> Vec<String> {
    let genome: Vec<String> = (0..3).map(|_| sequence(random, k, before)).collect();
    let mut reads = Vec::new();
    for text in genome.iter().filter(|text| !text.is_empty()) {
        for _ in 0..1 + random.below(8) {
            let begin = random.below(text.len());
            let len = (1 + random.below(4 * k)).min(text.len() - begin);
            let mut read = text[begin..begin + len].to_owned();
            if random.below(2) == 0 {
                let at = random.below(len);
                read.replace_range(at..at + 1, ["A", "C", "G", "T", "N"][random.below(5)]);
            }
            reads.push(if random.below(2) == 0 { read } else { revcomp(&read) });
        }
    }
    reads
}

fn fastq(reads: &[String]) -> Vec<u8> {
    let record = |read: &String| format!("@r\n{read}\n+\n{}\n", "I".repeat(read.len()));
    reads.iter().map(record).collect::<String>().into_bytes()
}

fn fasta(reads: &[String]) -> Vec<u8> {
    reads.iter().map(|read| format!(">r\n{read}\n")).collect::<String>().into_bytes()
}

fn put(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("written");
    path
}

/// A k-mer a line with its sources, as the index has it and as it should be.
fn check(index: &Path, expected: &Naive, names: &[&str], what: &str) {
    let rows = expected.kmers.iter().map(|(kmer, held)| {
        let held: Vec<&str> = held.iter().map(|&source| names[source]).collect();
        format!("{kmer}\t{}", held.join(","))
    });
    assert_eq!(lines(|out| dump::sources(index, out)), rows.collect::<Vec<_>>(), "{what}");
}

#[test]
fn what_is_rare_in_a_source_is_left_out_of_it_on_any_number_of_ranks() {
    let (mut dropped, mut kept) = (0, 0);
    for (k, m) in [(3, 2), (5, 3), (7, 3), (11, 5), (31, 11), (33, 11), (63, 31)] {
        for seed in 0..3u64 {
            let mut random = Random(seed << 24 | k as u64);
            let mut all: Vec<String> = Vec::new();
            let sources: Vec<Vec<String>> = (0..3)
                .map(|_| {
                    let reads = reads(&mut random, k, &all);
                    all.extend(reads.iter().cloned());
                    reads
                })
                .collect();
            let dir = tempfile::tempdir().expect("a directory");
            let names = ["a.fq", "b.fa", "c.fq"];
            let inputs = [
                put(dir.path(), "a.fq.gz", &gzip(&fastq(&sources[0]))),
                put(dir.path(), "b.fa", &fasta(&sources[1])),
                put(dir.path(), "c.fq.zst", &zstd(&fastq(&sources[2]))),
            ];
            if sources.iter().any(Vec::is_empty) {
                continue;
            }
            for least in [2, 3] {
                let expected = left(k, least, &sources);
                dropped += Naive::new(k, &sources).kmers.len() - expected.kmers.len();
                kept += expected.kmers.len();
                for ranks in [1, 3, 7] {
                    let what = format!("k {k} seed {seed} least {least} ranks {ranks}");
                    let out = dir.path().join(format!("index-{least}-{ranks}"));
                    let one =
                        MergeOptions { min_count: least, threads: Some(1), ..options(k, m, &out, &inputs) };
                    let summary = merge(ranks, &one);
                    check(&out, &expected, &names, &what);
                    assert_eq!(unitigs(&out), expected.unitigs, "{what}");
                    assert_eq!(summary.distinct_kmers as usize, expected.kmers.len(), "{what}");
                    if ranks == 1 {
                        let by_three = dir.path().join(format!("three-{least}"));
                        merge(ranks, &MergeOptions { threads: Some(3), out: by_three.clone(), ..one });
                        assert_eq!(files(&out), files(&by_three), "{what}");
                    }
                    // Added one after another: a k-mer is rare in its source, whatever others have.
                    let added = dir.path().join(format!("added-{least}-{ranks}"));
                    let one = |inputs| MergeOptions { min_count: least, ..options(k, m, &added, inputs) };
                    merge(ranks, &one(&inputs[..1]));
                    merge(ranks, &MergeOptions { add: true, ..one(&inputs[1..]) });
                    check(&added, &expected, &names, &what);
                }
            }
            let (with, without) = (dir.path().join("with"), dir.path().join("without"));
            merge(2, &MergeOptions { min_count: 1, ..options(k, m, &with, &inputs) });
            merge(2, &options(k, m, &without, &inputs));
            assert_eq!(files(&with), files(&without), "one is every k-mer");
        }
    }
    assert!(dropped > 1000 && kept > 1000, "{dropped} {kept}");
}

/// Counts of indexes are not known: their k-mers are taken as they are, and an index that is routed anew
/// keeps what it has.
#[test]
fn kmers_of_indexes_are_taken_as_they_are() {
    let (k, m) = (11, 4);
    let mut random = Random(99);
    let (first, second) = (reads(&mut random, k, &[]), reads(&mut random, k, &[]));
    let dir = tempfile::tempdir().expect("a directory");
    let inputs = [put(dir.path(), "a.fa", &fasta(&first)), put(dir.path(), "b.fa", &fasta(&second))];
    let index = dir.path().join("index");
    merge(2, &options(k, m, &index, &inputs[..1]));
    let both = [index.clone(), inputs[1].clone()];
    let out = dir.path().join("out");
    merge(3, &MergeOptions { min_count: 2, ..options(k, m, &out, &both) });
    let mut expected = Naive::new(k, std::slice::from_ref(&first));
    for kmer in left(k, 2, std::slice::from_ref(&second)).kmers.into_keys() {
        expected.kmers.entry(kmer).or_default().insert(1);
    }
    check(&out, &expected, &["a.fa", "b.fa"], "an index and reads");
    // On other ranks than those that made it.
    merge(5, &MergeOptions { min_count: 2, add: true, ..options(k, m, &index, &inputs[1..]) });
    check(&index, &expected, &["a.fa", "b.fa"], "reads added to an index");
    assert_eq!(kmers(&index), kmers(&out));
    let results =
        merge_all(2, &MergeOptions { min_count: 2, ..options(k, m, &dir.path().join("x"), &both[..1]) });
    let error = results.into_iter().find_map(Result::err).expect("nothing to count").to_string();
    assert!(error.contains("--min-count"), "{error}");
}

#[test]
fn the_program_says_where_nothing_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    put(dir.path(), "once.fa", &fasta(&[Random(3).text(300)]));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obikmer-merge"));
        let output =
            command.current_dir(dir.path()).args(["--out", "ix", "--force"]).args(arguments).output();
        let output = output.expect("started");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (succeeded, said) = run(&["--min-count", "2", "once.fa"]);
    assert!(succeeded && said.contains("once.fa: not a single k-mer: none occurs 2 times"), "{said}");
    for wrong in ["0", "-1", "many", "4294967296"] {
        let (succeeded, said) = run(&[&format!("--min-count={wrong}"), "once.fa"]);
        assert!(!succeeded && said.contains("a count is a whole number from 1"), "{said}");
    }
}
