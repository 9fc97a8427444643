//! What the tests share: running ranks as threads, digests, the truth, and a program that does everything the
//! slow way.

pub mod compressed;
pub mod counted;
pub mod gather;
pub mod genomes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use obikmer_merge::{Error, MergeOptions, Summary, dump};
use sha2::{Digest, Sha256};

/// A script in this folder, with the program as `$O`.
pub fn run(dir: &Path, script: &str) -> Output {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_obikmer-merge"));
    let mut command = Command::new("bash");
    command.current_dir(dir).args(["-o", "pipefail", "-c", script]).env("O", program);
    command.output().expect("bash")
}

/// What it said, on both streams.
pub fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Merge on `ranks` threads; the result of each.
pub fn merge_all(ranks: usize, options: &MergeOptions) -> Vec<Result<Summary, Error>> {
    bdrun_worker::local::run(ranks, |comm| obikmer_merge::merge(&comm, &|_, _, _| {}, options))
}

/// Merge on `ranks` threads, successfully.
pub fn merge(ranks: usize, options: &MergeOptions) -> Summary {
    let mut results = merge_all(ranks, options);
    for result in &results {
        assert_eq!(result.as_ref().expect("merged"), results[0].as_ref().expect("merged"));
    }
    results.remove(0).expect("merged")
}

/// Options for these inputs.
pub fn options(k: usize, m: usize, out: &Path, inputs: &[PathBuf]) -> MergeOptions {
    MergeOptions {
        k: Some(k),
        m: Some(m),
        out: out.to_path_buf(),
        inputs: inputs.to_vec(),
        window: Some(2000),
        ..MergeOptions::default()
    }
}

/// Sorted lines of a dump.
pub fn lines(dump: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> Vec<String> {
    let mut text = Vec::new();
    dump(&mut text).expect("dumped");
    let mut lines: Vec<String> =
        String::from_utf8(text).expect("ASCII").lines().map(str::to_string).collect();
    lines.sort_unstable();
    lines
}

pub fn kmers(index: &Path) -> Vec<String> {
    lines(|out| dump::kmers(index, out))
}

pub fn unitigs(index: &Path) -> Vec<String> {
    lines(|out| dump::unitigs(index, out))
}

/// The bytes of all files of an index.
pub fn files(index: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<PathBuf> = [index.to_path_buf(), index.join("layer-000")]
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).expect("a directory"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let name = |path: &Path| path.strip_prefix(index).expect("inside").to_path_buf();
    files.iter().map(|path| (name(path), std::fs::read(path).expect("read"))).collect()
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// SHA-256 of the sorted lines of a dump of k-mers. They are sorted as numbers: the order is the same.
pub fn digest_of_kmers(index: &Path, k: usize) -> String {
    struct Words(Vec<u64>);
    impl std::io::Write for Words {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            for &byte in text {
                match byte {
                    b'\n' => self.0.push(0),
                    _ => {
                        let last = self.0.last_mut().expect("a word");
                        *last = (*last << 2) | u64::from(obikmer_merge::sequence::kmer::CODE[byte as usize]);
                    }
                }
            }
            Ok(text.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut words = Words(vec![0]);
    dump::kmers(index, &mut words).expect("dumped");
    assert_eq!(words.0.pop(), Some(0), "a newline at the end");
    words.0.sort_unstable();
    let mut hash = Sha256::new();
    let mut text = Vec::new();
    for word in words.0 {
        obikmer_merge::sequence::kmer::push_text(word, k, &mut text);
        text.push(b'\n');
        if text.len() > 1 << 16 {
            hash.update(&text);
            text.clear();
        }
    }
    hash.update(&text);
    hex(hash)
}

/// SHA-256 of the sorted lines of a dump of unitigs.
pub fn digest_of_unitigs(index: &Path) -> String {
    let mut text = Vec::new();
    dump::unitigs(index, &mut text).expect("dumped");
    let mut lines: Vec<&[u8]> = text.split_inclusive(|&b| b == b'\n').collect();
    // Without the newline: it must not take part in the order.
    lines.sort_unstable_by_key(|line| &line[..line.len() - 1]);
    let mut hash = Sha256::new();
    for line in lines {
        hash.update(line);
    }
    hex(hash)
}

/// `data/truth.json`.
pub fn truth() -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/truth.json");
    serde_json::from_slice(&std::fs::read(path).expect("truth.json")).expect("JSON")
}

/// The figures and digests of an index against the truth.
pub fn check(truth: &serde_json::Value, summary: &Summary, index: &Path) {
    let number = |name: &str| truth[name].as_u64().expect("a number");
    assert_eq!(summary.distinct_kmers, number("distinct_kmers"));
    assert_eq!(summary.unitigs, number("unitigs"));
    assert_eq!(summary.total_unitig_bases, number("total_unitig_bases"));
    assert_eq!(summary.in_all_sources, number("in_all_sources"));
    assert_eq!(summary.in_one_source, number("in_one_source"));
    let sources: BTreeMap<String, u64> = summary.sources.iter().map(|s| (s.name.clone(), s.kmers)).collect();
    let expected: BTreeMap<String, u64> =
        serde_json::from_value(truth["sources"].clone()).expect("counts by source");
    assert_eq!(sources, expected);
    assert_eq!(digest_of_kmers(index, summary.k), truth["sha256_kmers"], "digest of the k-mers");
    assert_eq!(digest_of_unitigs(index), truth["sha256_unitigs"], "digest of the unitigs");
}

/// Everything by definition, from texts: k-mers with their sources, and unitigs.
pub struct Naive {
    pub kmers: BTreeMap<String, BTreeSet<usize>>,
    pub unitigs: Vec<String>,
}

pub fn revcomp(text: &str) -> String {
    text.chars()
        .rev()
        .map(|c| match c {
            'A' => 'T',
            'C' => 'G',
            'G' => 'C',
            'T' => 'A',
            other => other,
        })
        .collect()
}

pub fn canonical(text: &str) -> String {
    text.to_string().min(revcomp(text))
}

/// Of a circle with n + k − 1 letters: its smallest rotation, with as many.
pub fn canonical_circle(text: &str, k: usize) -> String {
    let n = text.len() + 1 - k;
    let circle = &text[..n];
    let all = [circle.to_string(), revcomp(circle)];
    let rotations = all.iter().flat_map(|t| (0..n).map(|r| format!("{}{}", &t[r..], &t[..r])));
    let best = rotations.min().expect("at least one");
    best.chars().cycle().take(n + k - 1).collect()
}

impl Naive {
    /// From the sequences of each source.
    pub fn new(k: usize, sources: &[Vec<String>]) -> Self {
        let mut kmers: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for (source, sequences) in sources.iter().enumerate() {
            for sequence in sequences {
                let upper = sequence.to_uppercase();
                for window in upper.as_bytes().windows(k) {
                    let text = std::str::from_utf8(window).expect("ASCII");
                    if text.chars().all(|c| "ACGT".contains(c)) {
                        kmers.entry(canonical(text)).or_default().insert(source);
                    }
                }
            }
        }
        let present: BTreeSet<String> = kmers.keys().cloned().collect();
        Self { unitigs: unitigs_of(k, &present), kmers }
    }

    /// The same with k-mers in layers: each has unitigs of its own.
    pub fn only(k: usize, kmers: &BTreeSet<String>) -> Vec<String> {
        unitigs_of(k, kmers)
    }
}

/// A side of a k-mer: the k-mer read so that the side is on its right.
fn successors(text: &str, present: &BTreeSet<String>) -> Vec<String> {
    let next = "ACGT".chars().map(|c| format!("{}{c}", &text[1..]));
    next.filter(|n| present.contains(&canonical(n))).collect()
}

/// The k-mer that joins on the right of `text`, in its direction.
pub fn joins(text: &str, present: &BTreeSet<String>) -> Option<String> {
    let after = successors(text, present);
    let [next] = &after[..] else { return None };
    let before = successors(&revcomp(next), present);
    // The same side: the right of `text` is what `next` has on its left.
    (before.len() == 1 && revcomp(next) != text).then(|| next.clone())
}

fn unitigs_of(k: usize, present: &BTreeSet<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut unitigs = Vec::new();
    for kmer in present {
        if seen.contains(kmer) {
            continue;
        }
        // Back to the beginning, or around.
        let mut first = kmer.clone();
        let mut cyclic = false;
        while let Some(before) = joins(&revcomp(&first), present) {
            first = revcomp(&before);
            if first == *kmer {
                cyclic = true;
                break;
            }
        }
        seen.insert(canonical(&first));
        let mut text = first.clone();
        let mut last = first.clone();
        while let Some(next) = joins(&last, present) {
            if next == first {
                break;
            }
            seen.insert(canonical(&next));
            text.push_str(&next[k - 1..]);
            last = next;
        }
        if cyclic {
            unitigs.push(canonical_circle(&text, k));
        } else {
            unitigs.push(canonical(&text));
        }
    }
    unitigs.sort();
    unitigs
}
