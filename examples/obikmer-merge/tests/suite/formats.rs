//! What `dump` writes against the definition: links between unitigs as FASTA and GFA, and which source holds
//! which k-mer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::genomes::{Random, genomes};
use crate::common::{Naive, kmers, lines, merge, options, revcomp, run, said};
use obikmer_merge::dump::graph::{Graph, MEMORY};
use obikmer_merge::{MergeOptions, dump};

/// A unitig that goes on with another: number and direction of both.
type Link = (usize, bool, usize, bool);

/// Segments and links of a graph, each link as it stands there.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    segments: Vec<String>,
    links: Vec<Link>,
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> obikmer_merge::Result<()>) -> String {
    let mut text = Vec::new();
    write(&mut text).expect("written");
    String::from_utf8(text).expect("ASCII")
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn direction(text: &str) -> bool {
    assert!(["+", "-"].contains(&text), "{text}");
    text == "+"
}

fn read_gfa(text: &str, k: usize) -> Read {
    let mut read = Read { segments: Vec::new(), links: Vec::new() };
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("H\tVN:Z:1.0"));
    for line in lines {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["S", name, sequence, length] => {
                assert_eq!(number(name), read.segments.len());
                assert!(read.links.is_empty(), "segments come before the links between them");
                assert_eq!(length, format!("LN:i:{}", sequence.len()));
                read.segments.push(sequence.to_owned());
            }
            ["L", from, a, to, b, overlap] => {
                assert_eq!(overlap, format!("{}M", k - 1));
                read.links.push((number(from), direction(a), number(to), direction(b)));
            }
            _ => panic!("{line}"),
        }
    }
    read
}

fn read_fasta(text: &str) -> Read {
    let mut read = Read { segments: Vec::new(), links: Vec::new() };
    let lines: Vec<&str> = text.lines().collect();
    for lines in lines.chunks(2) {
        let [header, sequence] = lines else { panic!("{lines:?}") };
        let from = read.segments.len();
        let mut fields = header.split(' ');
        assert_eq!(fields.next(), Some(&*format!(">{from}")));
        assert_eq!(fields.next(), Some(&*format!("LN:i:{}", sequence.len())));
        for field in fields {
            let ["L", a, to, b] = field.split(':').collect::<Vec<_>>()[..] else { panic!("{header}") };
            read.links.push((from, direction(a), number(to), direction(b)));
        }
        read.segments.push((*sequence).to_owned());
    }
    read
}

/// Of all pairs of unitigs in all directions those that overlap by k − 1.
fn overlaps(unitigs: &[String], k: usize) -> BTreeSet<Link> {
    let read = |unitig: &String, forward| if forward { unitig.clone() } else { revcomp(unitig) };
    let both = [false, true];
    let all = || (0..unitigs.len()).flat_map(|number| both.map(|forward| (number, forward)));
    let mut links = BTreeSet::new();
    for (from, a) in all() {
        let before = read(&unitigs[from], a);
        for (to, b) in all() {
            if read(&unitigs[to], b).starts_with(&before[before.len() + 1 - k..]) {
                links.insert((from, a, to, b));
            }
        }
    }
    links
}

/// The same link, read on the other strand.
fn turned((from, a, to, b): Link) -> Link {
    (to, !b, from, !a)
}

fn write(dir: &Path, genomes: &[Vec<String>]) -> Vec<PathBuf> {
    let path = |i: usize| dir.join(format!("g{i}.fa"));
    for (i, sequences) in genomes.iter().enumerate() {
        let records = sequences.iter().map(|s| format!(">x\n{}\n", if s.is_empty() { "N" } else { s }));
        std::fs::write(path(i), records.collect::<String>()).expect("written");
    }
    (0..genomes.len()).map(path).collect()
}

#[test]
fn links_are_all_overlaps_of_unitigs_and_each_is_one() {
    let (mut palindromes, mut circles, mut several) = (0, 0, 0);
    for (k, m) in [(3, 2), (5, 3), (7, 3), (11, 5), (31, 11), (33, 11), (63, 31)] {
        for seed in 0..8 {
            let what = format!("k {k} seed {seed}");
            let genomes = genomes(&mut Random(seed << 16), k, 3);
            let naive = Naive::new(k, &genomes);
            let dir = tempfile::tempdir().expect("a directory");
            let inputs = write(dir.path(), &genomes);
            for ranks in [1, 4] {
                let index = dir.path().join(format!("index{ranks}"));
                merge(ranks, &options(k, m, &index, &inputs));
                let graph = |memory| Graph::open(&index, memory).expect("an index");
                let gfa = text(|out| graph(MEMORY).gfa(out));
                let fasta = text(|out| graph(MEMORY).fasta(out));
                // Not a byte depends on the memory there is.
                assert_eq!(text(|out| graph(0).gfa(out)), gfa, "{what}");
                assert_eq!(text(|out| graph(0).fasta(out)), fasta, "{what}");
                let (gfa, fasta) = (read_gfa(&gfa, k), read_fasta(&fasta));
                assert_eq!(gfa.segments, fasta.segments, "{what}");
                let unitigs = text(|out| dump::unitigs(&index, out));
                assert!(unitigs.lines().eq(gfa.segments.iter().map(String::as_str)), "{what}: numbers");
                let mut sorted = gfa.segments.clone();
                sorted.sort();
                assert_eq!(sorted, naive.unitigs, "{what}");
                let expected = overlaps(&gfa.segments, k);
                assert_eq!(fasta.links.len(), expected.len(), "{what}: no link is there twice");
                assert_eq!(BTreeSet::from_iter(fasta.links), expected, "{what}");
                let once: BTreeSet<Link> = gfa.links.iter().map(|&link| link.min(turned(link))).collect();
                assert_eq!(once.len(), gfa.links.len(), "{what}: on one strand only");
                assert_eq!(once, expected.iter().map(|&link| link.min(turned(link))).collect(), "{what}");
                palindromes += expected.iter().filter(|&&link| link == turned(link)).count();
                circles += expected.iter().filter(|link| link.0 == link.2 && link.1 == link.3).count();
                several += usize::from(expected.len() > 4);
            }
        }
    }
    assert!(palindromes > 10 && circles > 10 && several > 10, "{palindromes} {circles} {several}");
}

#[test]
fn tables_say_who_holds_what() {
    for (k, m, seed) in [(5, 3, 1), (11, 4, 2), (31, 11, 3), (45, 13, 4)] {
        let genomes = genomes(&mut Random(seed << 24), k, 4);
        let naive = Naive::new(k, &genomes);
        let dir = tempfile::tempdir().expect("a directory");
        let inputs = write(dir.path(), &genomes);
        let index = dir.path().join("index");
        merge(3, &options(k, m, &index, &inputs[..3]));
        // Two layers: the k-mers of both, with the sources of all.
        merge(3, &MergeOptions { add: true, ..options(k, m, &index, &inputs[3..]) });
        let (mut matrix, mut sources) = (Vec::new(), Vec::new());
        for (kmer, held) in &naive.kmers {
            let row: Vec<&str> = (0..4).map(|i| if held.contains(&i) { "1" } else { "0" }).collect();
            matrix.push(format!("{kmer}\t{}", row.join("\t")));
            let names: Vec<String> = held.iter().map(|i| format!("g{i}.fa")).collect();
            sources.push(format!("{kmer}\t{}", names.join(",")));
        }
        let mut found: Vec<String> =
            text(|out| dump::matrix(&index, out)).lines().map(str::to_owned).collect();
        assert_eq!(found.remove(0), "kmer\tg0.fa\tg1.fa\tg2.fa\tg3.fa");
        let in_order: Vec<&str> = found.iter().map(|line| &line[..k]).collect();
        assert!(text(|out| dump::kmers(&index, out)).lines().eq(in_order), "one order for all");
        found.sort();
        assert_eq!(found, matrix);
        assert_eq!(lines(|out| dump::sources(&index, out)), sources);
        assert_eq!(kmers(&index).len(), naive.kmers.len());
    }
}

#[test]
fn the_program_writes_each_format_and_ends_quietly_with_its_reader() {
    let dir = tempfile::tempdir().expect("a directory");
    let random = Random(7).text(3000);
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), format!(">r\n{text}\n")).expect("written");
    };
    file("a.fa", &random);
    file("b,c\td.fa", &random[1000..]);
    let made = run(dir.path(), "$O -k 21 --out ix a.fa $'b,c\\td.fa'");
    assert!(made.status.success(), "{:?}", said(&made));
    for (what, first) in [
        ("kmers", ""),
        ("unitigs", ""),
        ("fasta", ">0 LN:i:"),
        ("gfa", "H\tVN:Z:1.0"),
        ("matrix", "kmer\ta.fa\tb,c\\td.fa"),
        ("sources", ""),
    ] {
        let whole = run(dir.path(), &format!("$O dump --{what} ix"));
        let (out, error) = said(&whole);
        assert!(whole.status.success() && error.is_empty(), "{what}: {error}");
        assert!(out.starts_with(first) && out.ends_with('\n'), "{what}");
        assert_eq!(said(&run(dir.path(), &format!("$O dump --{what} ix"))).0, out, "{what}: always the same");
        // Who reads stops before the program has begun to write.
        let begun = run(dir.path(), &format!("$O dump --{what} ix | true"));
        assert!(begun.status.success() && said(&begun).1.is_empty(), "{what}: {:?}", said(&begun));
    }
    assert!(said(&run(dir.path(), "$O dump --sources ix | tail -1")).0.ends_with("\ta.fa,b\\,c\\td.fa\n"));
    let two = run(dir.path(), "$O dump --gfa --fasta ix");
    assert!(!two.status.success() && said(&two).1.contains("cannot be used with"), "{:?}", said(&two));
    // Unitigs of layers are no graph.
    file("e.fa", &Random(8).text(500));
    assert!(run(dir.path(), "$O --add --out ix e.fa").status.success());
    let refused = run(dir.path(), "$O dump --gfa ix");
    let (out, error) = said(&refused);
    assert!(!refused.status.success() && out.is_empty() && error.contains("2 layers"), "{error}");
    let flat = run(dir.path(), "$O --out flat ix && $O dump --gfa flat");
    assert!(flat.status.success(), "what the error proposes: {:?}", said(&flat));
    // A file that cannot be made is named with the remedy; this graph does not need one.
    let small = run(dir.path(), "TMPDIR=/nonexistent $O dump --gfa flat > x");
    assert!(small.status.success(), "{:?}", said(&small));
    let full = run(dir.path(), "$O dump --gfa flat > /dev/full");
    assert!(!full.status.success() && said(&full).1.contains("standard output"), "{:?}", said(&full));
}
