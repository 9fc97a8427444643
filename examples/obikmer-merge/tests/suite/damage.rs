//! Damaged indexes: errors or wrong answers, but no panic and nothing worse.

use std::path::{Path, PathBuf};

use crate::common::{merge, merge_all, options};
use obikmer_merge::dump::graph::Graph;
use obikmer_merge::info::Info;
use obikmer_merge::query::Query;
use obikmer_merge::sequence::minimizer::order;
use obikmer_merge::{Error, MergeOptions, dump};

/// Everything that reads an index; the first error.
fn read(index: &Path, text: &str) -> Result<(), Error> {
    let query = Query::open(index)?;
    let counted = query.count(text.as_bytes()).map(|_| ());
    let code = |c| b"ACGT".iter().position(|l| *l == c).expect("a letter") as u128;
    let kmers = text.as_bytes().windows(query.k()).map(|w| w.iter().fold(0, |kmer, &c| kmer << 2 | code(c)));
    let looked_up = query.look_up(kmers, |_| {});
    let graph = || Graph::open(index, 1000);
    let dumped = [
        dump::kmers(index, &mut Vec::new()),
        dump::unitigs(index, &mut Vec::new()),
        dump::matrix(index, &mut Vec::new()),
        dump::sources(index, &mut Vec::new()),
        graph().and_then(|graph| graph.fasta(&mut Vec::new())),
        graph().and_then(|graph| graph.gfa(&mut Vec::new())),
        Info::new(index).map(|_| ()),
    ];
    let dumped = dumped.into_iter().collect::<Result<(), Error>>();
    let merged = {
        let out = index.with_extension("merged");
        let options = options(query.k(), 5, &out, &[index.to_path_buf()]);
        let mut results = merge_all(1, &options);
        let _ = std::fs::remove_dir_all(&out);
        results.remove(0).map(|_| ())
    };
    counted.and(looked_up).and(dumped).and(merged).and(added(index, query.k()))
}

/// Add a genome to a copy of an index, which is links to its files.
fn added(index: &Path, k: usize) -> Result<(), Error> {
    let (copy, more) = (index.with_extension("copy"), index.with_extension("more.fa"));
    let _ = std::fs::remove_dir_all(&copy);
    for from in files(index) {
        let to = copy.join(from.strip_prefix(index).expect("inside"));
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("made");
        std::fs::hard_link(from, to).expect("linked");
    }
    std::fs::write(&more, format!(">r\n{}\n", &genome()[500..1500])).expect("written");
    let add = MergeOptions { add: true, ..options(k, 5, &copy, &[more]) };
    merge_all(1, &add).remove(0).map(|_| ())
}

fn files(index: &Path) -> Vec<PathBuf> {
    let dirs = [index.to_path_buf(), index.join("layer-000")];
    let entries = dirs.iter().flat_map(|dir| std::fs::read_dir(dir).expect("listed"));
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()).collect()
}

fn genome() -> String {
    (0..3000u64).map(|i| ['A', 'C', 'G', 'T'][order(i / 2 * i) as usize & 3]).collect()
}

/// Two genomes that have a part in common.
fn genomes(dir: &Path) -> Vec<PathBuf> {
    let path = |(i, range)| {
        let path = dir.join(format!("g{i}.fa"));
        std::fs::write(&path, format!(">r\n{}\n", &genome()[range])).expect("written");
        path
    };
    [0..2000, 900..3000].into_iter().enumerate().map(path).collect()
}

#[test]
fn nothing_panics() {
    for (k, m) in [(11, 5), (39, 5)] {
        let dir = tempfile::tempdir().expect("a directory");
        let (text, inputs) = (genome(), genomes(dir.path()));
        let index = dir.path().join("index");
        merge(1, &options(k, m, &index, &inputs));
        read(&index, &text).expect("a whole index");
        let mut refused = 0;
        for name in ["part-00000.kmers", "part-00000.sources", "part-00000.unitigs"] {
            let path = index.join("layer-000").join(name);
            let whole = std::fs::read(&path).expect("read");
            for i in 0..120u64 {
                let mut bytes = whole.clone();
                let random = |j| order(i << 8 | j) as usize;
                if i % 4 == 0 {
                    bytes.truncate(random(0) % bytes.len());
                }
                for j in 1..=i % 3 {
                    let at = random(j) % bytes.len().max(1);
                    let damaged = [random(j + 9) as u8, 0xff, 0][random(j + 19) % 3];
                    bytes[at..].iter_mut().take(1 + 3 * (i as usize % 2)).for_each(|byte| *byte = damaged);
                }
                // A new file: the old one may still be mapped.
                std::fs::remove_file(&path).expect("removed");
                std::fs::write(&path, &bytes).expect("written");
                refused += usize::from(read(&index, &text).is_err());
            }
            std::fs::write(&path, &whole).expect("written");
        }
        assert!(refused > 50, "{refused}");
        let path = index.join("index.json");
        let json = std::fs::read_to_string(&path).expect("read");
        std::fs::write(&path, json.replace("\"version\": 3", "\"version\": 2")).expect("written");
        let error = read(&index, &text).expect_err("another version").to_string();
        assert!(
            error.contains("obikmer-index 2") && error.contains('3') && error.contains("anew"),
            "{error}"
        );
    }
}

/// Members of sets that are no sources, or not in order: whoever reads them says so, and names the file; in a
/// job of several ranks too, where one has it.
#[test]
fn sources_that_do_not_exist_are_told_by_whoever_meets_them() {
    const RANKS: usize = 3;
    let dir = tempfile::tempdir().expect("a directory");
    let more = dir.path().join("more.fa");
    std::fs::write(&more, format!(">r\n{}\n", &genome()[500..1500])).expect("written");
    let index = dir.path().join("index");
    merge(RANKS, &options(11, 5, &index, &genomes(dir.path())));
    let path = index.join("layer-000/part-00001.sources");
    let whole = std::fs::read(&path).expect("read");
    let number = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().expect("eight bytes")) as usize;
    // The second section.
    let (begin, bytes) = (number(56 + 16), number(56 + 24));
    assert!(bytes >= 16, "{bytes}");
    let both = (begin..begin + bytes).step_by(4).position(|at| whole[at..at + 8] == [0, 0, 0, 0, 1, 0, 0, 0]);
    let both = begin + 4 * both.expect("a set of both");
    let damaged = |at: usize, members: &[u32]| {
        let mut bytes = whole.clone();
        let members: Vec<u8> = members.iter().flat_map(|member| member.to_le_bytes()).collect();
        bytes[at..at + members.len()].copy_from_slice(&members);
        bytes
    };
    for bytes in [
        damaged(both, &[77]),
        damaged(both, &[0, 77]),
        damaged(both, &[0, 2]),
        damaged(both, &[1, 0]),
        damaged(both, &[1, 1]),
        damaged(both, &[0, u32::MAX]),
    ] {
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, bytes).expect("written");
        let out = dir.path().join("out");
        let new = |ranks| {
            let inputs = [more.clone(), index.clone()];
            merge_all(ranks, &options(11, 5, &out, &inputs))
        };
        let add = |ranks| {
            let add = MergeOptions { add: true, ..options(11, 5, &index, std::slice::from_ref(&more)) };
            merge_all(ranks, &add)
        };
        for results in [new(1), new(RANKS), new(5), add(RANKS), add(1), add(5)] {
            let errors: Vec<String> =
                results.into_iter().map(|result| result.expect_err("an error").to_string()).collect();
            assert!(errors.iter().all(|error| error.contains("part-00001.sources")), "{errors:?}");
            assert!(!out.exists());
        }
        let error = dump::matrix(&index, &mut Vec::new()).expect_err("an error").to_string();
        assert!(error.contains("part-00001.sources"), "{error}");
        let text = genome();
        let code = |c| b"ACGT".iter().position(|l| *l == c).expect("a letter") as u128;
        let kmers = text.as_bytes().windows(11).map(|w| w.iter().fold(0, |kmer, &c| kmer << 2 | code(c)));
        let look_up = Query::open(&index).and_then(|query| query.look_up(kmers, |_| {}));
        assert!(look_up.expect_err("an error").to_string().contains("part-00001.sources"));
    }
}
