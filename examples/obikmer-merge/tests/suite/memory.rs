//! What is held in memory is no more than what is said.

use std::fs::File;
use std::io::sink;

use crate::common::counted::most;
use crate::common::genomes::Random;
use crate::common::{merge, options};
use obikmer_merge::dump::graph::Graph;
use obikmer_merge::input::records::headers;
use obikmer_merge::query::Query;
use obikmer_merge::query::answer::Form;

/// Buffers of texts, and what a file needs that is opened.
const BESIDES: usize = 300 << 10;

#[test]
fn links_take_the_memory_they_are_given() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut random = Random(1 << 40);
    // Short k-mers at which most of the graph branches.
    let text: String = (0..300).map(|_| random.text(400) + "N").collect();
    let input = dir.path().join("g.fa");
    std::fs::write(&input, format!(">r\n{text}\n")).expect("written");
    let index = dir.path().join("index");
    let summary = merge(1, &options(9, 5, &index, &[input]));
    assert!(summary.unitigs > 50_000, "{}", summary.unitigs);
    for memory in [1 << 20, 1_200_000, 2 << 20] {
        let graph = Graph::open(&index, memory).expect("opened");
        let gfa = most(|| graph.gfa(&mut sink()).expect("written"));
        let fasta = most(|| graph.fasta(&mut sink()).expect("written"));
        assert!(gfa.max(fasta) <= memory + BESIDES, "{gfa} and {fasta} of {memory}");
    }
}

#[test]
fn of_long_lines_only_names_are_held() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("g.fa");
    let long = "ACGTTGCA".repeat(1 << 20);
    let text = format!(">a {long}\n{long}\n>b\n>c\td{long}\r\nA");
    std::fs::write(&path, &text).expect("written");
    let mut names = Vec::new();
    let taken = most(|| {
        let file = File::open(&path).expect("opened");
        let size = headers(&path, file, &mut |at, name| {
            names.push((at as usize, name.to_owned()));
            Ok(())
        });
        assert_eq!(size.expect("read") as usize, text.len());
    });
    let second = text.find(">b").expect("there");
    let expected = [(0, "a".to_owned()), (second, "b".to_owned()), (second + 3, "c".to_owned())];
    assert_eq!(names, expected);
    assert!(taken < 2 << 20, "{taken}");
    // Nothing is a name that is longer than any.
    std::fs::write(&path, format!(">{long}\nACGT\n")).expect("written");
    let file = File::open(&path).expect("opened");
    let error = headers(&path, file, &mut |_, _| Ok(())).expect_err("no name").to_string();
    assert!(error.contains("g.fa") && error.len() < 1000, "{}", error.len());
}

#[test]
fn short_records_are_gathered_by_what_they_take() {
    let dir = tempfile::tempdir().expect("a directory");
    let genome = Random(1 << 41).text(3000);
    let (input, reads, index) = (dir.path().join("g.fa"), dir.path().join("r.fa"), dir.path().join("index"));
    std::fs::write(&input, format!(">r\n{genome}\n")).expect("written");
    merge(1, &options(21, 7, &index, &[input]));
    let records: String = (0..100_000).map(|i| format!(">r{i}\n{}\n", &genome[i % 2900..][..30])).collect();
    std::fs::write(&reads, records).expect("written");
    let query = Query::open(&index).expect("opened");
    let taken =
        most(|| query.answer(std::slice::from_ref(&reads), Form::default(), &mut sink()).expect("answered"));
    assert!(taken < 17 << 20, "{taken}");
}
