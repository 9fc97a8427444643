//! Sources that hardly have k-mers are told of, and others are not.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use obikmer_merge::sequence::minimizer::order;

/// Letters at random, from these.
fn random(seed: u64, len: u64, letters: &[u8]) -> String {
    let letter = |i| char::from(letters[order(seed << 32 | i) as usize % letters.len()]);
    (0..len).map(letter).collect()
}

/// In lines of 60.
fn record(name: &str, letters: &str) -> String {
    let lines = letters.as_bytes().chunks(60).map(|line| std::str::from_utf8(line).expect("ASCII"));
    format!(">{name}\n{}\n", lines.collect::<Vec<_>>().join("\n"))
}

/// What is said on standard error, and how many k-mers the last source has.
fn merge(dir: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obikmer-merge"));
    let out = command.current_dir(dir).args(["--force", "--out", "ix"]).args(arguments).output();
    let out = out.expect("started");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    said
}

#[test]
fn most_letters_in_no_kmer_is_told_with_the_cause() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let put = |name: &str, text: &str| {
        let bytes = if name.ends_with(".gz") {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text.as_bytes()).expect("compressed");
            encoder.finish().expect("compressed")
        } else {
            text.as_bytes().to_vec()
        };
        std::fs::write(dir.join(name), bytes).expect("written");
    };
    let dna = random(1, 300_000, b"ACGTacgt");
    let good = record("dna", &dna);
    let rna = record("rna", &random(2, 300_000, b"ACGU"));
    let protein: String =
        (0..400).map(|i| record("p", &random(3 + i, 350, b"ACDEFGHIKLMNPQRSTVWY"))).collect();
    let some_dna = record("dna", &dna[..1000]);
    for (name, text, words) in [
        ("rna.fa", rna.clone(), &["rna.fa: ", "% of its letters", "U: RNA"][..]),
        ("rna.fa.gz", rna.clone(), &["rna.fa.gz: ", "of its letters", "U: RNA"]),
        ("some.fa", some_dna.clone() + &rna, &["some.fa: 99.", "% of its letters", "U: RNA"]),
        ("protein.fa", protein.clone(), &["protein.fa: ", "all of its letters", "protein?"]),
        (
            "masked.fa",
            record("m", &(dna[..40_000].to_string() + &"N".repeat(60_000))),
            &["60.0 %", "N: masked"],
        ),
        (
            "gaps.fa",
            record("g", &dna[..40_000].replace('A', "A-").replace('C', "-C")),
            &["gaps: an alignment"],
        ),
        ("n.fa", record("n", &"N".repeat(1000)), &["n.fa: not a single k-mer: all of its letters", "N:"]),
        (
            "short.fa",
            record("a", &dna[..30]) + &record("b", &dna[50..70]),
            &["short.fa: not a single k-mer: no record has 31"],
        ),
        ("header.fa", ">a\n\n>b\nACGT\n".into(), &["header.fa: not a single k-mer"]),
    ] {
        put(name, &text);
        put("good.fa", &good);
        let said = merge(dir, &["good.fa", name]);
        assert_eq!(said.lines().count(), 1, "{said}");
        for word in words.iter().chain(&["obikmer-merge: warning: "]) {
            assert!(said.contains(word), "{name}: {said} lacks {word}");
        }
        // Of what was there before nothing is said again.
        put("more.fa", &record("more", &dna[..100]));
        let mut add = Command::new(env!("CARGO_BIN_EXE_obikmer-merge"));
        let added = add.current_dir(dir).args(["--add", "--out", "ix", "more.fa"]).output().expect("started");
        assert!(added.status.success() && added.stderr.is_empty());
    }
    for (name, text) in [
        ("long.fa", good.clone()),
        ("quarter.fa", record("q", &(dna[..60_000].to_string() + &"N".repeat(20_000)))),
        // Reads hardly longer than k, and one letter that is not known.
        ("reads.fa", (0..500).map(|i| record("r", &dna[i * 33..][..33])).collect::<String>() + ">n\nACGN\n"),
        ("mixed.fa", (0..500).map(|i| record("r", &dna[i * 20..][..20])).collect::<String>() + &some_dna),
    ] {
        put(name, &text);
        assert_eq!(merge(dir, &[name]), "", "{name}");
    }
    // By record, and no more lines than one reads.
    let said = merge(dir, &["--each-record", "some.fa"]);
    assert!(
        said.starts_with("obikmer-merge: warning: some.fa: rna: ") && said.lines().count() == 1,
        "{said}"
    );
    let many: String = (0..25).map(|i| record(&format!("n{i}"), &"N".repeat(50))).collect();
    put("many.fa", &(good + &many));
    let said = merge(dir, &["--each-record", "many.fa"]);
    assert_eq!(said.lines().count(), 11, "{said}");
    assert!(said.contains("and 15 more sources"), "{said}");
}
