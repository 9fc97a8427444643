//! An index is one index: its files belong together, and whoever reads it while others replace it gets
//! answers of one of them, or an error.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{merge, merge_all, options};
use obikmer_merge::dump::graph::Graph;
use obikmer_merge::info::Info;
use obikmer_merge::query::{Counts, Query};
use obikmer_merge::sequence::minimizer::order;
use obikmer_merge::{Error, MergeOptions, dump};

const K: usize = 21;
const RANKS: usize = 5;

fn text(seed: u64) -> String {
    (0..4000).map(|i| ['A', 'C', 'G', 'T'][order(seed << 32 | i) as usize & 3]).collect()
}

/// The inputs of two indexes with the same names, a genome and a part of it each; and one more, which has the
/// first genome in it.
fn genomes(dir: &Path) -> [Vec<PathBuf>; 3] {
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(&path, format!(">r\n{text}\n")).expect("written");
        path
    };
    let (a, b) = (text(1), text(2));
    [
        vec![put("a/g.fa", &a), put("a/h.fa", &a[..2000])],
        vec![put("b/g.fa", &b), put("b/h.fa", &b[1200..3500])],
        vec![put("more.fa", &(a + &text(3)))],
    ]
}

fn make(out: &Path, inputs: &[PathBuf]) {
    merge(RANKS, &MergeOptions { force: true, ..options(K, 7, out, inputs) });
}

/// All k-mers of all genomes.
fn ask(query: &Query) -> Result<Counts, Error> {
    query.count((text(1) + "N" + &text(2)).as_bytes())
}

/// Everything that opens files, each alone; what it says.
fn read(index: &Path) -> Vec<Result<(), String>> {
    let out = index.with_extension("read");
    let into = |index: &Path| {
        let result = merge_all(RANKS, &options(K, 7, &out, &[index.to_path_buf()])).remove(0);
        let _ = std::fs::remove_dir_all(&out);
        result.map(|_| ())
    };
    let results = [
        Query::open(index).and_then(|query| ask(&query)).map(|_| ()),
        dump::kmers(index, &mut Vec::new()),
        dump::unitigs(index, &mut Vec::new()),
        into(index),
        dump::sources(index, &mut Vec::new()),
        Graph::open(index, 1000).and_then(|graph| graph.gfa(&mut Vec::new())),
        Info::new(index).map(|_| ()),
    ];
    results.into_iter().map(|result| result.map_err(|error| error.to_string())).collect()
}

#[test]
fn files_of_another_index_are_refused_each_by_whoever_opens_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let [a, b, more] = genomes(dir.path());
    let (index, other) = (dir.path().join("index"), dir.path().join("other"));
    make(&index, &a);
    make(&other, &b);
    assert!(read(&index).iter().all(Result::is_ok));
    for (name, refused) in [
        ("layer-000/part-00002.kmers", [true, true, false, true, true, false, true]),
        ("layer-000/part-00002.sources", [true, true, false, true, true, false, true]),
        ("layer-000/part-00002.unitigs", [false, false, true, false, false, true, true]),
        ("identities", [true; 7]),
        ("index.json", [true; 7]),
    ] {
        let path = index.join(name);
        let ours = std::fs::read(&path).expect("read");
        std::fs::copy(other.join(name), &path).expect("copied");
        let said = read(&index);
        for (said, refused) in said.iter().zip(refused) {
            assert_eq!(said.is_err(), refused, "{name}: {said:?}");
            if let Err(said) = said {
                let file = if name == "index.json" { "identities" } else { name };
                assert!(said.contains(file) && said.contains("another index"), "{said}");
            }
        }
        let add = MergeOptions { add: true, ..options(K, 7, &index, &more) };
        assert!(merge_all(RANKS, &add).iter().all(Result::is_err), "{name}");
        std::fs::write(&path, &ours).expect("written");
    }
    assert!(read(&index).iter().all(Result::is_ok));
}

/// A query whose index is replaced before all partitions are open says so; what it has opened stays right.
#[test]
fn an_index_that_is_replaced_meanwhile_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let [a, b, more] = genomes(dir.path());
    let index = dir.path().join("index");
    for added in [false, true] {
        make(&index, &a);
        let query = Query::open(&index).expect("opened");
        let first = query.count(&text(1).as_bytes()[..K]).expect("counted");
        assert_eq!((first.found, &first.by_source[..]), (1, &[1, 1][..]));
        if added {
            merge(RANKS, &MergeOptions { add: true, ..options(K, 7, &index, &more) });
        } else {
            make(&index, &b);
        }
        let error = ask(&query).expect_err("half of it is gone").to_string();
        assert!(error.contains("replaced") && error.contains("start"), "{error}");
        assert_eq!(query.count(&text(1).as_bytes()[..K]).expect("still open"), first);
        ask(&Query::open(&index).expect("the new one")).expect("counted");
    }
    // Nothing is wrong with an index made again from the same.
    make(&index, &a);
    let query = Query::open(&index).expect("opened");
    make(&index, &a);
    assert_eq!(ask(&query).expect("the same").found, 3980);
}

/// Readers while an index is replaced again and again: what they get is of one of the two.
#[test]
fn no_answer_is_half_of_one_and_half_of_another() {
    let dir = tempfile::tempdir().expect("a directory");
    let [a, b, _] = genomes(dir.path());
    let index = dir.path().join("index");
    let whole: Vec<Counts> = [&a, &b]
        .into_iter()
        .map(|genome| {
            make(&index, genome);
            ask(&Query::open(&index).expect("opened")).expect("counted")
        })
        .collect();
    assert_eq!(whole[0].found, whole[1].found);
    let done = AtomicBool::new(false);
    let (one, other) = (text(1), text(2));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // Both genomes alone: all k-mers of one are in it, and none of the other's.
                    let counted = Query::open(&index).and_then(|query| {
                        Ok([query.count(one.as_bytes())?.found, query.count(other.as_bytes())?.found])
                    });
                    match counted {
                        Ok(found) => assert!(matches!(found, [3980, 0] | [0, 3980]), "{found:?}"),
                        Err(error) => assert!(
                            ["replaced", "another index"].iter().any(|w| error.to_string().contains(w)),
                            "{error}"
                        ),
                    }
                }
            });
        }
        for round in 0..60 {
            make(&index, if round % 2 == 0 { &a } else { &b });
        }
        done.store(true, Ordering::Relaxed);
    });
}
