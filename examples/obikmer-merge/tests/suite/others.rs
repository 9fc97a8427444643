//! The same data through the tools that the field has: KMC's k-mers and counts, BCALM's unitigs and links,
//! and what `xz` and `zstd` compress. Each test is skipped where its program is not there.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::genomes::Random;
use crate::common::{canonical, canonical_circle, kmers, lines, merge, options, revcomp};
use bdrun_skipped::skipped;
use obikmer_merge::dump::graph::{Graph, MEMORY};
use obikmer_merge::{MergeOptions, dump};

const K: usize = 31;

/// Is there such a program? If not, the test is skipped.
fn there(need: &str, program: &str) -> bool {
    let there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().expect("sh");
    if !there.status.success() {
        skipped(need, format!("{program} is not installed"));
    }
    there.status.success()
}

fn run(dir: &Path, script: &str) {
    let output = Command::new("bash").current_dir(dir).args(["-euc", script]).output().expect("bash");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {said} {}", String::from_utf8_lossy(&output.stdout));
}

fn genome(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/hpylori6").join(name)
}

/// Letters of all records of a genome.
fn letters(name: &str) -> String {
    let output = Command::new("gzip").arg("-dc").arg(genome(name)).output().expect("gzip");
    let text = String::from_utf8(output.stdout).expect("ASCII");
    text.lines().filter(|line| !line.starts_with('>')).collect()
}

/// Reads of both strands of a part of a genome, as FASTQ: some twelve at each place, a letter in a hundred
/// wrong.
fn reads(random: &mut Random, genome: &str) -> String {
    const LEN: usize = 120;
    let mut text = String::new();
    for number in 0..genome.len() * 12 / LEN {
        let begin = random.below(genome.len() - LEN);
        let mut read = genome[begin..begin + LEN].to_owned();
        for at in 0..LEN {
            if random.below(100) == 0 {
                read.replace_range(at..at + 1, ["A", "C", "G", "T", "N"][random.below(5)]);
            }
        }
        let read = if random.below(2) == 0 { read } else { revcomp(&read) };
        text.push_str(&format!("@{number}\n{read}\n+\n{}\n", "I".repeat(LEN)));
    }
    text
}

/// Reads of two genomes in files of a directory.
fn put_reads(dir: &Path) -> [PathBuf; 2] {
    let mut random = Random(20);
    ["G27.fa.gz", "ELS37.fa.gz"].map(|name| {
        let path = dir.join(name.replace(".fa.gz", ".fq"));
        let text = letters(name);
        std::fs::write(&path, reads(&mut random, &text[..200_000])).expect("written");
        path
    })
}

#[test]
fn kmers_and_counts_are_those_of_kmc() {
    if !there("kmc", "kmc") || !there("kmc", "kmc_dump") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let inputs = put_reads(dir.path());
    for least in [1, 3] {
        let index = dir.path().join(format!("index{least}"));
        let options = MergeOptions { min_count: least, ..options(K, 11, &index, &inputs) };
        let summary = merge(3, &options);
        let mut expected: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (input, source) in inputs.iter().zip(&summary.sources) {
            // KMC's counter goes up to 255: what is counted beyond does not matter to who asks for less.
            let script = format!(
                "mkdir -p tmp; kmc -k{K} -ci{least} -cs255 -m2 -t1 -fq {} kmc tmp; kmc_dump kmc kmc.txt",
                input.display()
            );
            run(dir.path(), &script);
            let dumped = std::fs::read_to_string(dir.path().join("kmc.txt")).expect("read");
            let mut count = 0;
            for line in dumped.lines() {
                let (kmer, counted) = line.split_once('\t').expect("a k-mer and its count");
                assert!(counted.parse::<u32>().expect("a count") >= least);
                expected.entry(kmer.to_owned()).or_default().push(&source.name);
                count += 1;
            }
            assert_eq!(source.kmers, count, "{} at least {least}", source.name);
            assert!(count > 100_000, "{count}");
        }
        let expected = expected.iter().map(|(kmer, sources)| format!("{kmer}\t{}", sources.join(",")));
        let ours = lines(|out| dump::sources(&index, out));
        assert!(ours == expected.collect::<Vec<_>>(), "at least {least}");
    }
}

/// Unitigs, each by what does not depend on its direction or, of a circle, on where it begins; and the links
/// as pairs of the k-mers that meet there (of a circle with itself: its directions).
type Compacted = (BTreeSet<String>, HashSet<(String, String)>);

fn compacted(fasta: &str) -> Compacted {
    let (mut unitigs, mut links) = (BTreeSet::new(), HashSet::new());
    let lines: Vec<&str> = fasta.lines().collect();
    let records: Vec<(&str, &str)> = lines.chunks(2).map(|lines| (lines[0], lines[1])).collect();
    let read = |number: usize, direction: &str| match direction {
        "+" => records[number].1.to_owned(),
        "-" => revcomp(records[number].1),
        _ => panic!("{direction}"),
    };
    for (number, (header, text)) in records.iter().enumerate() {
        let mut fields = header.split_whitespace();
        assert_eq!(fields.next(), Some(&*format!(">{number}")));
        let is_circle = text[..K - 1] == text[text.len() + 1 - K..];
        let unitig = if is_circle { canonical_circle(text, K) } else { canonical(text) };
        assert!(unitigs.insert(unitig.clone()), "{text} is there twice");
        for field in fields.filter(|field| field.starts_with("L:")) {
            let [_, leaving, to, entering] = field.split(':').collect::<Vec<_>>()[..] else {
                panic!("{field}")
            };
            let to_number = to.parse().expect("a number");
            let (from, to) = (read(number, leaving), read(to_number, entering));
            assert_eq!(from[from.len() + 1 - K..], to[..K - 1], "{header}: {field}");
            let meeting = (from[from.len() - K..].to_owned(), to[..K].to_owned());
            let around = (unitig.clone(), format!("{leaving}{entering}"));
            links.insert(if is_circle && to_number == number { around } else { meeting });
        }
    }
    (unitigs, links)
}

#[test]
fn unitigs_and_links_are_those_of_bcalm() {
    if !there("bcalm", "bcalm") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    // A circle of its own is what bacteria have beside their chromosome.
    let circle = Random(30).text(3000);
    let plasmid = dir.path().join("plasmid.fa");
    std::fs::write(&plasmid, format!(">p\n{circle}{}\n", &circle[..K - 1])).expect("written");
    let mut genomes = ["G27.fa.gz", "SJM180_contigs.fa.gz"].map(genome).to_vec();
    genomes.push(plasmid);
    let [reads, _] = put_reads(dir.path());
    for (inputs, least) in [(genomes, 1), (vec![reads], 2)] {
        let index = dir.path().join("index");
        let options = MergeOptions { min_count: least, force: true, ..options(K, 11, &index, &inputs) };
        let summary = merge(3, &options);
        let list: Vec<String> = inputs.iter().map(|input| format!("{}\n", input.display())).collect();
        std::fs::write(dir.path().join("list"), list.concat()).expect("written");
        let script = format!(
            "bcalm -in list -kmer-size {K} -abundance-min {least} -out bcalm -nb-cores 1 -max-memory 1000 -verbose 0"
        );
        run(dir.path(), &script);
        let theirs = std::fs::read_to_string(dir.path().join("bcalm.unitigs.fa")).expect("read");
        let mut ours = Vec::new();
        Graph::open(&index, MEMORY).and_then(|graph| graph.fasta(&mut ours)).expect("written");
        let (ours, theirs) = (compacted(std::str::from_utf8(&ours).expect("ASCII")), compacted(&theirs));
        assert_eq!(ours.0.len() as u64, summary.unitigs);
        assert!(ours.0.len() > 300 && ours.1.len() > 50, "{} {}", ours.0.len(), ours.1.len());
        assert!(ours.0 == theirs.0, "unitigs, at least {least}");
        assert!(ours.1 == theirs.1, "links, at least {least}: {} {}", ours.1.len(), theirs.1.len());
    }
}

#[test]
fn what_xz_and_zstd_compress_is_read() {
    if !there("xz", "xz") || !there("zstd", "zstd") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let text = letters("G27.fa.gz");
    let records: Vec<String> = text.as_bytes()[..400_000]
        .chunks(1000)
        .map(|part| format!(">r\n{}\n", std::str::from_utf8(part).expect("ASCII")))
        .collect();
    std::fs::write(dir.path().join("a.fa"), records.concat()).expect("written");
    let merged = |name: &str| {
        let index = dir.path().join("index");
        let options = MergeOptions { force: true, ..options(K, 11, &index, &[dir.path().join(name)]) };
        merge(2, &options);
        kmers(&index)
    };
    let expected = merged("a.fa");
    for (name, script) in [
        ("blocks.xz", "xz -c -T2 --block-size=50KiB a.fa"),
        ("best.xz", "xz -c -9e --check=sha256 a.fa"),
        ("bare.xz", "xz -c -0 --check=none a.fa"),
        ("streams.xz", "{ head -n 300 a.fa | xz; tail -n +301 a.fa | xz --check=crc32; }"),
        ("long.zst", "zstd -q -c --long=27 -19 a.fa"),
        ("fast.zst", "zstd -q -c --fast=5 --no-check a.fa"),
        ("frames.zst", "{ head -n 300 a.fa | zstd; tail -n +301 a.fa | zstd --check; }"),
        ("threads.zst", "zstd -q -c -T2 --ultra -22 a.fa"),
    ] {
        run(dir.path(), &format!("{script} > {name}"));
        assert!(merged(name) == expected, "{name}");
    }
}
