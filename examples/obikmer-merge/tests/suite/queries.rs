//! `query` and `info` as people call them: several files, standard input, a threshold, JSON.

use std::path::Path;

use crate::common::genomes::Random;
use crate::common::{canonical, revcomp, run, said};
use serde_json::{Value, json};

const K: usize = 21;

/// What it writes, which succeeds.
fn out(dir: &Path, script: &str) -> String {
    let output = run(dir, script);
    let (out, error) = said(&output);
    assert!(output.status.success() && error.is_empty(), "{script}: {error}");
    out
}

/// Two genomes, merged into `ix`; the second has the first half of the first.
fn made(dir: &Path) -> [String; 2] {
    let mut random = Random(1 << 30);
    let first = random.text(2000);
    let second = format!("{}{}", &first[..1000], random.text(500));
    for (name, text) in [("a.fa", &first), ("b.fa", &second)] {
        std::fs::write(dir.join(name), format!(">r\n{text}\n")).expect("written");
    }
    out(dir, "$O -k 21 --out ix a.fa b.fa");
    [first, second]
}

/// K-mers of a text, those in any genome, and those in each.
fn counts(text: &str, genomes: &[String; 2]) -> [u64; 4] {
    let kmers = |text: &str| -> Vec<String> {
        text.as_bytes()
            .windows(K)
            .map(|window| canonical(std::str::from_utf8(window).expect("ASCII")))
            .filter(|kmer| !kmer.contains('N'))
            .collect()
    };
    let held: Vec<std::collections::HashSet<String>> =
        genomes.iter().map(|genome| kmers(genome).into_iter().collect()).collect();
    let of = kmers(text);
    let count = |test: &dyn Fn(&String) -> bool| of.iter().filter(|kmer| test(kmer)).count() as u64;
    [
        of.len() as u64,
        count(&|kmer| held.iter().any(|held| held.contains(kmer))),
        count(&|kmer| held[0].contains(kmer)),
        count(&|kmer| held[1].contains(kmer)),
    ]
}

#[test]
fn records_of_several_files_and_of_standard_input() {
    let dir = tempfile::tempdir().expect("a directory");
    let genomes = made(dir.path());
    let random = Random(5).text(200);
    let records = [
        ("q1.fa", "both", genomes[0][300..400].to_owned()),
        ("q1.fa", "first\\tx", revcomp(&genomes[0][1500..1600])),
        ("q1.fa", "half", format!("{}N{}", &genomes[1][..60], &random[..60])),
        ("q2.fq", "none", random.clone()),
        ("q2.fq", "short", "ACGT".to_owned()),
    ];
    let fasta: Vec<String> = records[..3]
        .iter()
        .map(|(_, name, text)| format!(">{}\n{text}\n", name.replace("\\t", "\t")))
        .collect();
    let fastq: Vec<String> = records[3..]
        .iter()
        .map(|(_, name, text)| format!("@{name}\n{text}\n+\n{}\n", "I".repeat(text.len())))
        .collect();
    std::fs::write(dir.path().join("q1.fa"), fasta.concat()).expect("written");
    std::fs::write(dir.path().join("q2.fq"), fastq.concat()).expect("written");
    let table = |form: &dyn Fn(&str, [u64; 4]) -> String, with_file: bool| -> String {
        let mut lines =
            vec![format!("{}record\tkmers\tfound\ta.fa\tb.fa\n", if with_file { "file\t" } else { "" })];
        for (file, name, text) in &records {
            let file = if with_file { format!("{file}\t") } else { String::new() };
            lines.push(format!("{file}{}\n", form(name, counts(text, &genomes))));
        }
        lines.concat()
    };
    let plain = |name: &str, [kmers, found, a, b]: [u64; 4]| format!("{name}\t{kmers}\t{found}\t{a}\t{b}");
    assert_eq!(out(dir.path(), "$O query ix q1.fa q2.fq"), table(&plain, true));
    // One file needs no name, as before; standard input is one file however it is given.
    let one = out(dir.path(), "$O query ix q1.fa");
    assert_eq!(one.lines().collect::<Vec<_>>(), table(&plain, false).lines().take(4).collect::<Vec<_>>());
    for script in ["$O query ix < q1.fa", "cat q1.fa | $O query ix -", "gzip -c q1.fa | $O query ix"] {
        assert_eq!(out(dir.path(), script), one, "{script}");
    }
    let mixed = out(dir.path(), "$O query ix q1.fa - < q2.fq");
    assert_eq!(mixed, table(&plain, true).replace("q2.fq\t", "-\t"));
    for threshold in ["0.01", "0.4", "0.5", "1"] {
        let share: f64 = threshold.parse().expect("a number");
        let present = |count: u64, kmers: u64| u64::from(count > 0 && count as f64 >= share * kmers as f64);
        let form = |name: &str, [kmers, found, a, b]: [u64; 4]| {
            format!("{name}\t{kmers}\t{found}\t{}\t{}", present(a, kmers), present(b, kmers))
        };
        let script = format!("$O query --threshold {threshold} ix q1.fa q2.fq");
        assert_eq!(out(dir.path(), &script), table(&form, true), "{threshold}");
        let answers = out(dir.path(), &format!("$O query --json --threshold {threshold} ix q1.fa q2.fq"));
        assert_eq!(answers.lines().count(), records.len());
        for (line, (file, name, text)) in answers.lines().zip(&records) {
            let [kmers, found, a, b] = counts(text, &genomes);
            let all = [("a.fa", a), ("b.fa", b)];
            let held: serde_json::Map<String, Value> =
                all.iter().filter(|s| s.1 > 0).map(|s| (s.0.to_owned(), json!(s.1))).collect();
            let there: Vec<&str> = all.iter().filter(|s| present(s.1, kmers) == 1).map(|s| s.0).collect();
            let expected = json!({"file": file, "record": name.replace("\\t", "\t"), "kmers": kmers,
                "found": found, "sources": held, "present": there});
            assert_eq!(serde_json::from_str::<Value>(line).expect("JSON"), expected);
        }
    }
    let without = out(dir.path(), "$O query --json ix q2.fq");
    assert!(!without.contains("present") && without.starts_with(r#"{"file":"q2.fq","record":"none""#));
}

#[test]
fn what_is_wrong_with_a_question_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    made(dir.path());
    std::fs::write(dir.path().join("bad.fa"), ">one\nACGT\n>two\nAC GT\n").expect("written");
    for (script, words) in [
        ("$O query --threshold 0 ix a.fa", &["above 0", "0.8"][..]),
        ("$O query --threshold 1.5 ix a.fa", &["up to 1"]),
        ("$O query --threshold much ix a.fa", &["a share is a number"]),
        ("$O query ix a.fa missing.fa", &["missing.fa"]),
        ("$O query ix a.fa bad.fa", &["bad.fa", "two", "unexpected byte"]),
        ("$O query ix < bad.fa", &["standard input", "two"]),
        ("$O query ix < /dev/null", &["standard input", "record 1"]),
        ("$O query bad.fa a.fa", &["bad.fa"]),
        ("$O info bad.fa", &["bad.fa"]),
        ("$O query ix a.fa > /dev/full", &["cannot write"]),
    ] {
        let output = run(dir.path(), script);
        let error = said(&output).1;
        assert!(!output.status.success(), "{script}");
        for word in words {
            assert!(error.contains(word), "{script}: {error}");
        }
    }
    let begun = run(dir.path(), "$O query ix a.fa | true; $O info ix | true");
    assert!(begun.status.success() && said(&begun).1.is_empty(), "{:?}", said(&begun));
}

#[test]
fn info_tells_what_an_index_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    made(dir.path());
    std::fs::write(dir.path().join("c.fa"), format!(">r\n{}\n", Random(9).text(300))).expect("written");
    for (added, layers) in [(false, 1), (true, 2)] {
        if added {
            out(dir.path(), "$O --add --out ix c.fa");
        }
        let info: Value = serde_json::from_str(&out(dir.path(), "$O info --json ix")).expect("JSON");
        let summary: Value =
            serde_json::from_slice(&std::fs::read(dir.path().join("ix/summary.json")).expect("read"))
                .expect("JSON");
        let index: Value =
            serde_json::from_slice(&std::fs::read(dir.path().join("ix/index.json")).expect("read"))
                .expect("JSON");
        for (key, value) in summary.as_object().expect("an object") {
            assert_eq!(info[key], *value, "{key}");
        }
        for key in ["version", "identity", "k", "m", "layers"] {
            assert_eq!(info[key], index[key], "{key}");
        }
        assert_eq!((&info["layers"], &info["index"]), (&json!(layers), &json!("ix")));
        let size = out(dir.path(), "find ix -type f -printf '%s\n' | awk '{ n += $1 } END { print n }'");
        assert_eq!(info["bytes"]["total"].to_string(), size.trim());
        let told = out(dir.path(), "$O info ix");
        let values = [&info["identity"], &info["bytes"]["total"], &info["distinct_kmers"], &info["unitigs"]];
        for value in values {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            assert!(told.split_whitespace().any(|word| word == shown), "{shown}: {told}");
        }
    }
    // Figures of another index, and files of another.
    out(dir.path(), "$O -k 21 --out other a.fa; cp other/summary.json ix/");
    let refused = run(dir.path(), "$O info ix");
    assert!(!refused.status.success() && said(&refused).1.contains("summary.json"), "{:?}", said(&refused));
    out(dir.path(), "cp ix/layer-000/part-00000.unitigs other/layer-000/");
    let refused = run(dir.path(), "$O info other");
    assert!(!refused.status.success() && said(&refused).1.contains("another index"), "{:?}", said(&refused));
}
