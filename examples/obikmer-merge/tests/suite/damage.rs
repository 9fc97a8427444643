//! Damaged indexes: errors or wrong answers, but no panic and nothing worse.

use std::path::{Path, PathBuf};

use crate::common::{merge, options};
use obikmer_merge::dump::graph::Graph;
use obikmer_merge::info::Info;
use obikmer_merge::query::Query;
use obikmer_merge::sequence::minimizer::order;
use obikmer_merge::{Error, dump};

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
        let mut results = crate::common::merge_all(1, &options);
        let _ = std::fs::remove_dir_all(&out);
        results.remove(0).map(|_| ())
    };
    counted.and(looked_up).and(dumped).and(merged)
}

#[test]
fn nothing_panics() {
    for (k, m) in [(11, 5), (39, 5)] {
        let dir = tempfile::tempdir().expect("a directory");
        let text: String =
            (0..3000u64).map(|i| ['A', 'C', 'G', 'T'][order(i / 2 * i) as usize & 3]).collect();
        let inputs: Vec<PathBuf> = [0..2000, 900..3000]
            .into_iter()
            .enumerate()
            .map(|(i, range)| {
                let path = dir.path().join(format!("g{i}.fa"));
                std::fs::write(&path, format!(">r\n{}\n", &text[range])).expect("written");
                path
            })
            .collect();
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
