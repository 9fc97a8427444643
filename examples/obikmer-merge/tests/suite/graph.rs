//! The pieces of unitigs that the tables of junctions give, against their definition, k-mer by k-mer: all of
//! a rank's pieces with their order and numbers, their sources, and every border. What is written depends on
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::gather::Gather;
use crate::common::genomes::{Random, genomes};
use crate::common::{Naive, canonical, canonical_circle, joins, revcomp};
use obikmer_merge::graph::{Task, Texts};
use obikmer_merge::pieces::{Border, End, Found, NO_END};
use obikmer_merge::sequence::kmer::{CODE, Lengths, push_text};
use obikmer_merge::sequence::minimizer::{Partitions, of_word};
use obikmer_merge::sequence::word::Word;
use obikmer_merge::sets::Sets;
use obikmer_merge::superkmer::cut::Cutter;
use obikmer_merge::superkmer::store::{Sorted, Store};
use obikmer_merge::superkmer::window::Window;
use obikmer_merge::threads::Threads;

/// All that a rank finds, as texts.
#[derive(Debug, Default, PartialEq)]
struct Plain {
    pieces: Vec<String>,
    cyclic: Vec<u32>,
    empty: usize,
    /// Where the sources change, and to which.
    sources: Vec<(u32, Vec<u32>)>,
    /// How many k-mers have them.
    counts: BTreeMap<Vec<u32>, u64>,
    own: BTreeSet<(u32, String, End)>,
    ghosts: BTreeSet<(u32, String, End)>,
}

/// The definition.
struct Reference<'a> {
    naive: &'a Naive,
    /// What joins on the right of each k-mer in each direction.
    joins: &'a BTreeMap<String, Option<String>>,
    k: usize,
    m: usize,
    partitions: Partitions,
}

/// What is on the right of a k-mer for one virtual partition.
enum Right {
    End,
    Foreign,
    Ghost(String),
    Owned(String),
}

impl Reference<'_> {
    /// The virtual partition of a junction or a k-mer.
    fn home(&self, text: &str) -> usize {
        let codes: Vec<u8> = text.bytes().map(|b| CODE[b as usize]).collect();
        self.partitions.virtual_of(of_word(u128::from_codes(&codes), text.len(), self.m))
    }

    fn rank(&self, text: &str) -> u32 {
        self.partitions.rank_of(self.home(text)) as u32
    }

    fn right(&self, text: &str, here: usize) -> Right {
        if self.home(&text[1..]) != here {
            return Right::Foreign;
        }
        match &self.joins[text] {
            None => Right::End,
            Some(next) if self.home(next) == here => Right::Owned(next.clone()),
            Some(next) => Right::Ghost(next.clone()),
        }
    }

    /// The piece with this k-mer: its canonical text; is it a circle?
    fn piece(&self, kmer: &str, here: usize) -> (String, bool) {
        // Back to the beginning, or around.
        let (mut first, mut cyclic) = (kmer.to_string(), false);
        while let Right::Owned(before) = self.right(&revcomp(&first), here) {
            first = revcomp(&before);
            if first == kmer {
                cyclic = true;
                break;
            }
        }
        let (mut text, mut last) = (first.clone(), first.clone());
        while let Right::Owned(next) = self.right(&last, here)
            && next != first
        {
            text.push_str(&next[self.k - 1..]);
            last = next;
        }
        (if cyclic { canonical_circle(&text, self.k) } else { canonical(&text) }, cyclic)
    }

    /// All that rank `rank` should find.
    fn found(&self, rank: usize) -> Plain {
        let (k, subs) = (self.k, self.partitions.subs());
        let (mut plain, mut pairs) = (Plain::default(), BTreeSet::new());
        let mut position = 0;
        let mut owned: BTreeMap<usize, Vec<&String>> = BTreeMap::new();
        for kmer in self.naive.kmers.keys() {
            let owner = self.home(kmer);
            owned.entry(owner).or_default().push(kmer);
            for text in [kmer.clone(), revcomp(kmer)] {
                let here = self.home(&text[1..]);
                if here == owner || self.partitions.rank_of(here) != rank {
                    continue;
                }
                plain.ghosts.insert((self.rank(kmer), kmer.clone(), NO_END));
                if let Right::Ghost(next) = self.right(&text, here) {
                    let next = canonical(&next);
                    pairs.insert([kmer.min(&next).clone(), kmer.max(&next).clone()]);
                }
            }
        }
        for here in rank * subs..(rank + 1) * subs {
            let mut pieces = BTreeSet::new();
            let mut seen: BTreeSet<String> = BTreeSet::new();
            for kmer in owned.get(&here).into_iter().flatten() {
                if !seen.contains(*kmer) {
                    let (text, cyclic) = self.piece(kmer, here);
                    seen.extend(kmers_of(&text, k).map(canonical));
                    pieces.insert((text, cyclic));
                }
            }
            for (text, cyclic) in pieces {
                self.add(&mut plain, &mut position, text, cyclic, here);
            }
        }
        plain.empty = pairs.len();
        for (number, pair) in pairs.into_iter().enumerate() {
            for (side, kmer) in pair.into_iter().enumerate() {
                let end = 2 * (plain.pieces.len() + number) + side;
                plain.ghosts.insert((self.rank(&kmer), kmer, end as End));
            }
        }
        plain
    }

    fn add(&self, plain: &mut Plain, position: &mut u32, text: String, cyclic: bool, here: usize) {
        let number = plain.pieces.len() as u32;
        for (at, kmer) in kmers_of(&text, self.k).enumerate() {
            let sources: Vec<u32> =
                self.naive.kmers[&canonical(kmer)].iter().map(|&source| source as u32).collect();
            *plain.counts.entry(sources.clone()).or_default() += 1;
            if plain.sources.last().is_none_or(|last| last.1 != sources) {
                plain.sources.push((*position + at as u32, sources));
            }
        }
        let ends = [revcomp(&text[..self.k]), text[text.len() - self.k..].to_string()];
        for (side, kmer) in ends.iter().enumerate() {
            let end = 2 * number + side as u32;
            match self.right(kmer, here) {
                Right::Foreign => _ = plain.own.insert((self.rank(&kmer[1..]), canonical(kmer), end)),
                Right::Ghost(next) => _ = plain.ghosts.insert((self.rank(&next), canonical(&next), end)),
                Right::End => assert!(!cyclic),
                Right::Owned(_) => assert!(cyclic),
            }
        }
        if cyclic {
            plain.cyclic.push(number);
        }
        *position += text.len() as u32;
        plain.pieces.push(text);
    }
}

fn kmers_of(text: &str, k: usize) -> impl Iterator<Item = &str> {
    (0..=text.len() - k).map(move |at| &text[at..at + k])
}

/// What was found, as texts.
fn plain<W: Word>(found: &Found<W>, sets: &Sets, k: usize) -> Plain {
    let Found { pieces, own, ghosts } = found;
    let mut codes = Vec::new();
    pieces.bases.text().unpack(&mut codes);
    let bases: String = codes.iter().map(|&code| ['A', 'C', 'G', 'T'][code as usize]).collect();
    let texts = pieces.starts.windows(2).map(|of| bases[of[0] as usize..of[1] as usize].to_string());
    let borders = |borders: &[Border<W>]| {
        let text = |kmer| {
            let mut text = Vec::new();
            push_text(kmer, k, &mut text);
            String::from_utf8(text).expect("ASCII")
        };
        borders.iter().map(|border| (border.rank, text(border.kmer), border.end)).collect()
    };
    let counts = pieces.runs.counts.iter().enumerate().filter(|(_, count)| **count > 0);
    Plain {
        pieces: texts.collect(),
        cyclic: pieces.cyclic.clone(),
        empty: pieces.empty,
        sources: pieces.runs.iter().map(|(position, set)| (position, sets.members(set))).collect(),
        counts: counts.map(|(set, &count)| (sets.members(set as u32), count)).collect(),
        own: borders(own),
        ghosts: borders(ghosts),
    }
}

/// What every rank is given.
fn stores(lengths: Lengths, partitions: Partitions, sources: &[Vec<String>]) -> Vec<Sorted> {
    let ranks = partitions.ranks();
    let mut gather = Gather(Window::new(lengths.k, partitions, ranks - 1));
    let mut cutter = Cutter::new(lengths, partitions);
    for (source, sequences) in sources.iter().enumerate() {
        gather.0.set_source(source as u32);
        for sequence in sequences {
            let Ok(()) = cutter.letters(sequence.as_bytes(), &mut gather);
            let Ok(()) = cutter.end(&mut gather);
        }
    }
    let messages = gather.0.take(1);
    let mut at = 0;
    let deliver = |(rank, &count): (usize, &usize)| {
        let mut store = Store::new(lengths.k, sources.len(), partitions.subs());
        store.add(messages.data[at..at + count].to_vec(), &[count], 1).expect("well-formed");
        at += count;
        if rank == ranks - 1 {
            store.add(messages.own.to_vec(), &[messages.own.len()], 0).expect("well-formed");
        }
        store.sorted()
    };
    messages.counts.iter().enumerate().map(deliver).collect()
}

/// Numbers of ranks and of the virtual partitions of each.
const ALL: [(usize, usize); 6] = [(1, 1), (1, 7), (3, 1), (2, 5), (7, 40), (1, 2048)];

fn compare_as<W: Texts>(lengths: Lengths, all: &[(usize, usize)], sources: &[Vec<String>], what: &str) {
    let Lengths { k, m } = lengths;
    let naive = Naive::new(k, sources);
    let present: BTreeSet<String> = naive.kmers.keys().cloned().collect();
    let both = present.iter().flat_map(|kmer| [kmer.clone(), revcomp(kmer)]);
    let joins = both.map(|text| (text.clone(), joins(&text, &present))).collect();
    for &(ranks, subs) in all {
        let partitions = Partitions::with_subs(ranks, subs);
        let reference = Reference { naive: &naive, joins: &joins, k, m, partitions };
        let expected: Vec<Plain> = (0..ranks).map(|rank| reference.found(rank)).collect();
        for threads in [Threads::ONE, Threads::new(3)] {
            // Blocks are dealt out to threads; where there is one, nothing differs.
            if threads != Threads::ONE && subs < 40 {
                continue;
            }
            for (rank, store) in stores(lengths, partitions, sources).iter().enumerate() {
                let (mut sets, mut done) = (Sets::default(), 0);
                let task = Task { lengths, partitions, rank, store, threads };
                let found = task.pieces::<W>(&mut sets, &mut |kmers| done += kmers).expect("found");
                assert_eq!(done, store.kmers(), "reported, {what}");
                let found = plain(&found, &sets, k);
                let what = format!("{what} k {k} m {m} rank {rank} of {ranks} × {subs} by {threads:?}");
                assert!(found == expected[rank], "{what}: {found:#?} not {:#?}\n{sources:?}", expected[rank]);
            }
        }
    }
}

fn compare(k: usize, m: usize, all: &[(usize, usize)], sources: &[Vec<String>], what: &str) {
    let lengths = Lengths::new(k, m).expect("lengths");
    let compare = if lengths.is_wide() { compare_as::<u128> } else { compare_as::<u64> };
    compare(lengths, all, sources, what);
}

/// The shortest and the longest of everything that is permitted, of both kinds of words, and some between.
const LENGTHS: [(usize, usize); 13] = [
    (3, 1),
    (3, 2),
    (5, 2),
    (5, 4),
    (7, 3),
    (11, 5),
    (21, 20),
    (31, 1),
    (31, 11),
    (31, 30),
    (33, 11),
    (63, 1),
    (63, 31),
];

#[test]
fn random_genomes() {
    for (k, m) in LENGTHS {
        for seed in 0..6 {
            let sources = genomes(&mut Random(seed * 1000 + 500), k, 3);
            compare(k, m, &ALL, &sources, &format!("seed {seed}"));
        }
    }
}

/// One shape at a time: what a program that is mostly right may get wrong.
#[test]
fn shapes() {
    for (k, m) in LENGTHS {
        let mut random = Random(k as u64 * 100 + m as u64);
        let text = random.text(3 * k);
        let half = random.text(k.div_ceil(2) - 1);
        let palindrome = format!("{half}{}", revcomp(&half));
        assert_eq!((palindrome.len(), &palindrome), (k - 1, &revcomp(&palindrome)));
        let circle = |n: usize, circle: &str| circle.chars().cycle().take(n + k - 1).collect::<String>();
        let all = |texts: &[&str]| vec![texts.iter().map(|text| text.to_string()).collect::<Vec<_>>()];
        for (what, sources) in [
            ("nothing", vec![vec![]]),
            ("too short", all(&["", "A", &text[..k - 1]])),
            ("one k-mer", all(&[&text[..k]])),
            ("one k-mer, the other strand", all(&[&revcomp(&text[..k])])),
            ("one letter", all(&[&"A".repeat(k)])),
            ("one letter, longer", all(&[&"T".repeat(3 * k), &"C".repeat(k + 1)])),
            ("one letter on its way", all(&[&format!("{}{}{}", &text[..k], "A".repeat(2 * k), &text[k..])])),
            ("a circle of one", all(&[&"G".repeat(k + 5)])),
            ("a circle of two", all(&[&circle(2, "AC"), &circle(2, "GA")])),
            ("a circle of two that is its own reverse complement", all(&[&circle(2, "AT")])),
            ("a circle shorter than k", all(&[&circle(k - 1, &text[..k - 1])])),
            ("a circle", all(&[&circle(2 * k, &text[..2 * k])])),
            ("a circle, several times round", all(&[&circle(7 * k, &text[..2 * k])])),
            ("a circle with a way in", all(&[&format!("{}{}", &text[..k], circle(4 * k, &text[k..]))])),
            ("a hairpin", all(&[&format!("{text}{}", revcomp(&text))])),
            ("a hairpin that begins in the loop", all(&[&format!("{half}{}{}", &text, revcomp(&text))])),
            ("a palindrome at the right end", all(&[&format!("A{palindrome}")])),
            ("a palindrome at the left end", all(&[&format!("{palindrome}A")])),
            ("a palindrome within", all(&[&format!("{}{palindrome}{}", &text[..k], &text[k..])])),
            ("a palindrome and a branch", all(&[&format!("A{palindrome}C"), &format!("G{palindrome}T")])),
            ("duplicates", vec![vec![text.clone(), text.clone(), revcomp(&text)]; 3]),
            ("a repeat", all(&[&format!("{text}C{text}G{}", revcomp(&text))])),
            ("other sources within", vec![vec![text.clone()], vec![text[k / 2..2 * k].to_string()]]),
            ("another source at the end", vec![vec![text[..2 * k].to_string()], vec![text[k..].to_string()]]),
            ("breaks", all(&[&format!("N{}N{}nn{}-R", &text[..k], &text[..2 * k], &text[k..])])),
            ("both cases", all(&[&text.to_lowercase(), &text])),
            ("overlapping ends", all(&[&text[..2 * k - 1], &text[k..]])),
        ] {
            compare(k, m, &ALL, &sources, what);
        }
    }
}

/// Single k-mers, each a sequence of its own: nothing is known of neighbours but by the tables.
#[test]
fn single_kmers() {
    for (k, m) in [(3, 1), (3, 2), (5, 3), (7, 2)] {
        for seed in 0..30 {
            let mut random = Random((seed << 32) + k as u64);
            let count = 1 + random.below(if k == 3 { 40 } else { 200 });
            let source = |random: &mut Random| (0..count).map(|_| random.text(k)).collect();
            let sources: Vec<Vec<String>> = (0..1 + random.below(3)).map(|_| source(&mut random)).collect();
            compare(k, m, &ALL[..5], &sources, &format!("seed {seed}"));
        }
    }
}

/// All k-mers there are: every junction is full.
#[test]
fn all_kmers() {
    for (k, m) in [(3, 1), (3, 2), (5, 2)] {
        let letter = |number: usize, at: usize| ['A', 'C', 'G', 'T'][number >> (2 * at) & 3];
        let texts = (0..1 << (2 * k)).map(|number| (0..k).map(|at| letter(number, at)).collect());
        compare(k, m, &ALL, &[texts.collect()], "all");
    }
}

/// As many virtual partitions as the program has, and super-k-mers longer than the tables' texts.
#[test]
fn long_sequences() {
    for (k, m) in [(11, 5), (31, 1), (31, 11), (63, 31)] {
        let mut random = Random((k * m) as u64);
        let text = random.text(3000);
        let circle = random.text(900);
        let unit = random.text(3);
        let sources = [
            vec![text.clone(), format!("{circle}{}", &circle[..k - 1])],
            vec![revcomp(&text[500..1500]), unit.repeat(200)],
        ];
        for ranks in [1, 5] {
            let subs = Partitions::new(ranks).subs();
            compare(k, m, &[(ranks, subs), (ranks, 1)], &sources, "long");
        }
    }
}
