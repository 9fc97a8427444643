//! Kinds of inputs, and what is wrong with them.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::compressed::{gzip, xz, zstd};
use crate::common::{Naive, kmers, merge, merge_all, options};
use flate2::{Compression, GzBuilder};
use obikmer_merge::{Error, MergeOptions};

const SEQUENCES: [&str; 3] =
    ["ACGTTGCATGCATTTACGGGCATCAGGCATTTACGAC", "ACG", "GGGCATTCATNACGTGACTTTCAGGACGTGACCAACCGATTACA"];

fn fasta(end: &str) -> Vec<u8> {
    let mut text = String::new();
    for (i, sequence) in SEQUENCES.iter().enumerate() {
        text.push_str(&format!(">r{i}{end}"));
        for line in sequence.as_bytes().chunks(10) {
            text.push_str(std::str::from_utf8(line).expect("ASCII"));
            text.push_str(end);
        }
    }
    text.into_bytes()
}

fn fastq() -> Vec<u8> {
    let record = |(i, s): (usize, &&str)| format!("@r{i}\n{s}\n+\n{}\n", "I".repeat(s.len()));
    SEQUENCES.iter().enumerate().map(record).collect::<String>().into_bytes()
}

/// A member as bgzip writes them.
fn bgzf(bytes: &[u8]) -> Vec<u8> {
    let builder = GzBuilder::new().extra(b"BC\x02\0\x1b\0".to_vec());
    let mut encoder = builder.write(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

fn put(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn every_kind_gives_the_same_kmers() {
    let dir = tempfile::tempdir().expect("a directory");
    let sequences: Vec<String> = SEQUENCES.iter().map(|s| s.to_string()).collect();
    let expected: Vec<String> = Naive::new(7, &[sequences]).kmers.into_keys().collect();
    let mut unterminated = fasta("\n");
    unterminated.pop();
    let two = |pack: &dyn Fn(&[u8]) -> Vec<u8>| [pack(&fasta("\n")[..40]), pack(&fasta("\n")[40..])].concat();
    for (name, bytes) in [
        ("a.fa", fasta("\n")),
        ("b.fa", fasta("\r\n")),
        ("c.fa", unterminated),
        ("d.fa.gz", gzip(&fasta("\n"))),
        ("e.fq", fastq()),
        ("f.fq.gz", gzip(&fastq())),
        ("g.fa.gz", two(&gzip)),
        // Members of bgzip, the last of them empty.
        ("h.fa.gz", [two(&bgzf), bgzf(b"")].concat()),
        ("i.fa.xz", xz(&fasta("\r\n"))),
        ("j.fq.xz", xz(&fastq())),
        ("k.fa.xz", two(&xz)),
        ("l.fa.zst", zstd(&fasta("\n"))),
        ("m.fq.zst", zstd(&fastq())),
        ("n.fa.zst", two(&zstd)),
        // Filled up with zeros, as tapes are.
        ("q.fa.gz", [gzip(&fasta("\n")), vec![0; 100_000]].concat()),
        ("r.fa.gz", [two(&bgzf), bgzf(b""), vec![0]].concat()),
        // What bgzip and gzip wrote, one behind another.
        ("s.fa.gz", [bgzf(&fasta("\n")[..40]), bgzf(b""), gzip(&fasta("\n")[40..])].concat()),
        // By what they hold, whatever they are called.
        ("o.fa", zstd(&fasta("\n"))),
        ("p", xz(&fasta("\n"))),
    ] {
        let input = put(dir.path(), name, &bytes);
        for ranks in [1, 3, 7] {
            let out = dir.path().join(format!("{name}-{ranks}"));
            let summary = merge(ranks, &options(7, 4, &out, std::slice::from_ref(&input)));
            assert_eq!(kmers(&out), expected, "{name} on {ranks}");
            let ending = [".gz", ".xz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending));
            assert_eq!(summary.sources[0].name, ending.unwrap_or(name));
        }
    }
}

/// Errors end the job on every rank, one rank has the reason, and nothing is left.
fn refused(ranks: usize, options: &MergeOptions, words: &[&str]) {
    let parent = options.out.parent().expect("a parent");
    let before = std::fs::read_dir(parent).expect("listed").count();
    let results = merge_all(ranks, options);
    let errors: Vec<&Error> = results.iter().map(|r| r.as_ref().expect_err("an error")).collect();
    let own: Vec<_> = errors.iter().filter(|e| !matches!(e, Error::Elsewhere { .. })).collect();
    assert_eq!(own.len(), 1, "{errors:?}");
    for word in words {
        assert!(own[0].to_string().contains(word), "{} lacks {word}", own[0]);
    }
    assert_eq!(std::fs::read_dir(parent).expect("listed").count(), before, "something was left");
}

#[test]
fn malformed_inputs_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let good = put(dir.path(), "good.fa", &fasta("\n"));
    let big: Vec<u8> = (0..20_000u64)
        .flat_map(|i| format!(">r{i}\nACGTTGCA{:016b}\n", i).replace('0', "A").replace('1', "G").into_bytes())
        .collect();
    let packed = gzip(&big);
    let cut = |packed: Vec<u8>| packed[..packed.len() / 2].to_vec();
    let changed = |mut packed: Vec<u8>| {
        let at = packed.len() * 2 / 3;
        packed[at] ^= 4;
        packed
    };
    let mut bad_fastq = fastq();
    let at = bad_fastq.iter().position(|&b| b == b'+').expect("a separator");
    bad_fastq[at] = b'x';
    let mut short_quality = fastq();
    let end = short_quality.len() - 5;
    short_quality.truncate(end);
    for (name, bytes, words) in [
        (
            "truncated.fa.gz",
            packed[..packed.len() / 2].to_vec(),
            &["truncated.fa.gz", "record", "after r", "Gzip: the data are cut off"][..],
        ),
        ("truncated.fa.xz", cut(xz(&big)), &["truncated.fa.xz", "record", "Xz: the data are cut off"]),
        ("truncated.fa.zst", cut(zstd(&big)), &["truncated.fa.zst", "record", "Zstd: the data are cut off"]),
        ("changed.fa.xz", changed(xz(&big)), &["changed.fa.xz", "record"]),
        ("changed.fa.zst", changed(zstd(&big)), &["changed.fa.zst", "record"]),
        ("more.fa.xz", [xz(&fasta("\n")), b"ACGT".to_vec()].concat(), &["more.fa.xz", "record"]),
        ("more.fa.zst", [zstd(&fasta("\n")), b"ACGT".to_vec()].concat(), &["more.fa.zst", "record"]),
        ("text.fa.zst", zstd(b"hello\n"), &["text.fa.zst", "record 1"]),
        ("header.fa", [fasta("\n"), b">last".to_vec()].concat(), &["header.fa", "record"]),
        ("line.fa", [fasta("\n"), b">last\n".to_vec()].concat(), &["line.fa", "last"]),
        ("alone.fa", b">a\n\n".to_vec(), &["alone.fa", "record a", "header"]),
        ("blank.fa", [fasta("\n"), b">last\n\n".to_vec()].concat(), &["blank.fa", "last", "header"]),
        ("blanks.fa", [fasta("\r\n"), b">last\r\n\r\n\n\r\n".to_vec()].concat(), &["blanks.fa", "last"]),
        (
            "blank.fa.gz",
            gzip(&[fasta("\n"), b">last\n\n".to_vec()].concat()),
            &["blank.fa.gz", "last", "header"],
        ),
        (
            "blanks.fa.xz",
            xz(&[fasta("\r\n"), b">last\r\n\r\n\r\n".to_vec()].concat()),
            &["blanks.fa.xz", "last"],
        ),
        // Members of bgzip without the empty one at the end; behind others too.
        ("cut.fa.gz", [bgzf(&fasta("\n")[..40]), bgzf(&fasta("\n")[40..])].concat(), &["cut.fa.gz", "bgzip"]),
        ("cut2.fa.gz", [gzip(&fasta("\n")), bgzf(&fasta("\n"))].concat(), &["cut2.fa.gz", "bgzip"]),
        ("more.fa.gz", [gzip(&fasta("\n")), b"ACGT".to_vec()].concat(), &["more.fa.gz", "record"]),
        (
            "zeros.fa.gz",
            [gzip(&fasta("\n")), vec![0; 600], b"A".to_vec()].concat(),
            &["zeros.fa.gz", "record"],
        ),
        ("binary.fa", [fasta("\n"), b">odd\nACG\x00\x01TTT\n".to_vec()].concat(), &["binary.fa", "odd"]),
        ("separator.fq", bad_fastq, &["separator.fq", "record"]),
        ("quality.fq", short_quality, &["quality.fq", "after r1"]),
        ("text.txt", b"hello\n".to_vec(), &["text.txt", "FASTA"]),
        ("empty.fa", Vec::new(), &["empty.fa", "empty"]),
    ] {
        let input = put(dir.path(), name, &bytes);
        for ranks in [1, 4] {
            let options = options(7, 4, &dir.path().join("out"), &[good.clone(), input.clone()]);
            refused(ranks, &options, words);
        }
    }
    let missing = dir.path().join("missing.fa");
    refused(2, &options(7, 4, &dir.path().join("out"), &[missing]), &["missing.fa"]);
}

#[test]
fn arguments_are_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let input = put(dir.path(), "good.fa", &fasta("\n"));
    let inputs = std::slice::from_ref(&input);
    let out = dir.path().join("out");
    refused(2, &options(8, 4, &out, inputs), &["odd"]);
    refused(2, &options(65, 4, &out, inputs), &["63"]);
    for k in [0, 1, 2] {
        refused(2, &MergeOptions { m: None, ..options(k, 4, &out, inputs) }, &[&format!("-k {k}"), "63"]);
    }
    refused(2, &options(7, 7, &out, inputs), &["-m 7"]);
    refused(2, &options(7, 4, &out, &[input.clone(), input.clone()]), &["good.fa", "rename"]);
    let add =
        |k, m| MergeOptions { add: true, ..options(k, m, &out, &[put(dir.path(), "more.fa", &fasta("\n"))]) };
    refused(2, &add(7, 4), &["not an index"]);
    merge(2, &options(7, 4, &out, inputs));
    refused(2, &options(7, 4, &out, inputs), &["--force"]);
    refused(2, &add(9, 4), &["-k is 7"]);
    refused(2, &add(7, 3), &["-m is 4"]);
    let same = MergeOptions { add: true, ..options(7, 4, &out, inputs) };
    refused(2, &same, &["good.fa", "rename"]);
    refused(2, &options(9, 4, &dir.path().join("other"), std::slice::from_ref(&out)), &["7-mers"]);
    merge(3, &MergeOptions { force: true, ..options(7, 4, &out, inputs) });
    // --force replaces an index, not whatever is there.
    let other = dir.path().join("precious");
    std::fs::create_dir(&other).expect("made");
    put(&other, "file", b"x");
    refused(1, &MergeOptions { force: true, ..options(7, 4, &other, inputs) }, &["not an index"]);
}

#[test]
fn a_failing_disk_ends_all_ranks() {
    let dir = tempfile::tempdir().expect("a directory");
    let input = put(dir.path(), "good.fa", &fasta("\n"));
    let out = dir.path().join("file").join("out");
    put(dir.path(), "file", b"not a directory");
    let results = merge_all(3, &options(7, 4, &out, &[input]));
    assert!(results.iter().all(Result::is_err));
}

/// Each record of a file as a source is as good as a file for each; so is a list of them.
#[test]
fn records_and_lists_are_sources() {
    let dir = tempfile::tempdir().expect("a directory");
    let together = put(dir.path(), "all.fa", &fasta("\n"));
    let mut list = String::new();
    for (i, sequence) in SEQUENCES.iter().enumerate() {
        let path = put(dir.path(), &format!("r{i}"), format!(">x\n{sequence}\n").as_bytes());
        list.push_str(&format!("{}\n\n", path.display()));
    }
    let list = put(dir.path(), "list", list.as_bytes());
    for ranks in [1, 2, 5] {
        let (a, b) = (dir.path().join(format!("a{ranks}")), dir.path().join(format!("b{ranks}")));
        let records =
            MergeOptions { each_record: true, ..options(7, 3, &a, std::slice::from_ref(&together)) };
        let summary = merge(ranks, &records);
        assert_eq!(summary.sources.len(), SEQUENCES.len());
        let names: Vec<&str> = summary.sources.iter().map(|s| &s.name[..]).collect();
        assert_eq!(names, ["r0", "r1", "r2"]);
        for (i, sequence) in SEQUENCES.iter().enumerate() {
            let alone = Naive::new(7, &[vec![sequence.to_string()]]);
            assert_eq!(summary.sources[i].kmers as usize, alone.kmers.len(), "{i}");
        }
        assert_eq!(summary, merge(ranks, &options(7, 3, &b, &[format!("@{}", list.display()).into()])));
        assert_eq!(kmers(&a), kmers(&b));
    }
    let packed = put(dir.path(), "x.fa.gz", &gzip(&fasta("\n")));
    let out = dir.path().join("out");
    refused(
        2,
        &MergeOptions { each_record: true, ..options(7, 3, &out, &[packed]) },
        &["x.fa.gz", "decompress"],
    );
    let twice = put(dir.path(), "twice.fa", b">a b\nACGT\n>a c\nACGT\n");
    refused(
        2,
        &MergeOptions { each_record: true, ..options(7, 3, &out, &[twice]) },
        &["twice.fa", "named a"],
    );
    refused(2, &options(7, 3, &out, &["@nothing".into()]), &["nothing"]);
}
