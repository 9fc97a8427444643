//! Cutting, windows and the store, from letters to the k-mers of each virtual partition, against the
//! definition: every k-mer lies in the virtual partitions of its two junctions, and that of its minimizer
//! owns it.

use std::convert::Infallible;

use crate::common::gather::Gather;
use obikmer_merge::sequence::kmer::{CODE, Lengths, Oriented};
use obikmer_merge::sequence::minimizer::{Partitions, of_word, order, partition};
use obikmer_merge::sequence::word::Word;
use obikmer_merge::superkmer::cut::{Cut, Cutter, LEFT_FOREIGN, RIGHT_FOREIGN, Sink};
use obikmer_merge::superkmer::frequent::Frequent;
use obikmer_merge::superkmer::store::{self, Store};
use obikmer_merge::superkmer::window::Window;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 += 1;
        (order(self.0) % n as u64) as usize
    }
}

struct Nowhere;

impl Sink for Nowhere {
    type Error = Infallible;

    fn run(&mut self, _: &[u8]) {}

    fn super_kmer(&mut self, _: usize, _: usize, _: u16) {}

    fn slice_done(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// What is counted is what the definition says, however the letters come.
#[test]
fn breaks_runs_and_kmers_are_counted() {
    let mut random = Random(77);
    for round in 0..300 {
        let k = [3, 11, 31, 63][round % 4];
        let mut cutter = Cutter::new(Lengths { k, m: 2 }, Partitions::new(3));
        let mut expected = Cut::default();
        for _ in 0..3 {
            let text = letters(&mut random, k);
            for run in text.split(|b| !b"ACGTacgt".contains(b)) {
                expected.breaks += 1;
                expected.runs += u64::from(run.len() >= k);
                expected.kmers += (run.len() + 1).saturating_sub(k) as u64;
            }
            expected.breaks -= 1;
            let mut rest = &text[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(1 + random.below(5000)));
                cutter.letters(now, &mut Nowhere).expect("cut");
                rest = later;
            }
            cutter.end(&mut Nowhere).expect("cut");
        }
        assert_eq!(cutter.take_cut(), expected, "k = {k}");
        assert_eq!(cutter.take_cut(), Cut::default());
    }
}

/// Letters with breaks, repeats and both cases; a few are long.
fn letters(random: &mut Random, k: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..1 + random.below(5) {
        let most = if random.below(6) == 0 { 9000 } else { 8 * k };
        let len = random.below(most);
        match random.below(5) {
            0 => text.extend(std::iter::repeat_n(b"ACgt"[random.below(4)], len)),
            1 => text.push(b"N-nR"[random.below(4)]),
            _ => text.extend((0..len).map(|_| b"ACGTacgt"[random.below(8)])),
        }
    }
    text
}

/// Give what has gathered to the ranks' stores; what was kept by the rank itself, the last one.
fn deliver(window: &mut Window, stores: &mut [Store]) -> Vec<u8> {
    let messages = window.take(1);
    let mut at = 0;
    for (store, &count) in stores.iter_mut().zip(messages.counts) {
        assert_eq!(messages.data[at], 1);
        store.add(messages.data[at..at + count].to_vec(), &[count], 1).expect("well-formed");
        at += count;
    }
    assert_eq!(at, messages.data.len());
    assert_eq!(messages.counts.last(), Some(&1));
    let own = messages.own.to_vec();
    let last = stores.last_mut().expect("a store");
    last.add(own.clone(), &[own.len()], 0).expect("well-formed");
    own
}

/// Source, virtual partition, canonical k-mer; are its left and its right junction there, and does it own the
/// k-mer?
type Seen<W> = (u32, usize, W, [bool; 3]);

fn by_definition<W: Word>(text: &[u8], source: u32, lengths: Lengths, p: Partitions, all: &mut Vec<Seen<W>>) {
    let Lengths { k, m } = lengths;
    for window in text.windows(k) {
        let codes: Vec<u8> = window.iter().map(|&b| CODE[b as usize]).collect();
        if codes.iter().any(|&c| c > 3) {
            continue;
        }
        let kmer = Oriented::new(W::from_codes(&codes), k).canonical();
        let hashes = [kmer >> 2, kmer & W::mask(k - 1)].map(|junction| of_word(junction, k - 1, m));
        let [left, right] = hashes.map(|hash| p.virtual_of(hash));
        let owner = p.virtual_of(of_word(kmer, k, m));
        assert!(owner == left || owner == right);
        assert_eq!(p.rank_of(owner), partition(hashes[0].min(hashes[1]), p.ranks()));
        for here in if left == right { vec![left] } else { vec![left, right] } {
            all.push((source, here, kmer, [left == here, right == here, owner == here]));
        }
    }
}

fn compare<W: Word>(lengths: Lengths, partitions: Partitions, seed: u64) {
    let mut random = Random(seed << 32);
    let mut gather = Gather(Window::new(lengths.k, partitions, partitions.ranks() - 1));
    let mut cutter = Cutter::new(lengths, partitions);
    let mut stores: Vec<Store> =
        (0..partitions.ranks()).map(|_| Store::new(lengths.k, 3, partitions.subs())).collect();
    let mut expected = Vec::new();
    for _ in 0..8 {
        let source = random.below(3) as u32;
        gather.0.set_source(source);
        let text = letters(&mut random, lengths.k);
        by_definition::<W>(&text, source, lengths, partitions, &mut expected);
        let mut rest = &text[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + random.below(rest.len()));
            let Ok(()) = cutter.letters(now, &mut gather);
            rest = later;
        }
        let Ok(()) = cutter.end(&mut gather);
        if random.below(3) == 0 {
            deliver(&mut gather.0, &mut stores);
        }
    }
    deliver(&mut gather.0, &mut stores);
    let mut seen = Vec::new();
    for (rank, store) in stores.into_iter().map(Store::sorted).enumerate() {
        for sub in 0..partitions.subs() {
            let (mut last, mut kmers, mut super_kmers) = (0, 0, 0);
            let totals = store.totals(sub);
            store.drain(sub, &mut Frequent::<W>::default(), |source, record| {
                assert!(source >= last, "ascending sources");
                last = source;
                (kmers, super_kmers) = (kmers + record.kmers as u64, super_kmers + 1);
                let mut number = 0;
                store::each_kmer::<W>(record, lengths.k, |kmer, owned| {
                    let left = number > 0 || record.flags & LEFT_FOREIGN == 0;
                    number += 1;
                    let right = number < record.kmers || record.flags & RIGHT_FOREIGN == 0;
                    let [left, right] =
                        if kmer.forward < kmer.reverse { [left, right] } else { [right, left] };
                    let here = rank * partitions.subs() + sub;
                    seen.push((source, here, kmer.canonical(), [left, right, owned]));
                });
                assert_eq!(number, record.kmers);
            });
            assert_eq!((totals.kmers, totals.super_kmers), (kmers, super_kmers));
            store.drain(sub, &mut Frequent::<W>::default(), |_, _| panic!("drained twice"));
        }
    }
    expected.sort_unstable();
    seen.sort_unstable();
    assert!(seen == expected, "{lengths:?} {partitions:?} seed {seed}");
}

#[test]
fn every_virtual_partition_has_what_the_definition_says() {
    let lengths = [(3, 1), (3, 2), (5, 4), (7, 3), (11, 8), (15, 7), (21, 16), (31, 11), (31, 17), (31, 30)];
    for (seed, (k, m)) in lengths.into_iter().enumerate() {
        let lengths = Lengths::new(k, m).expect("lengths");
        for (ranks, subs) in [(1, 1), (1, 7), (3, 1), (2, 5), (1, 2048), (7, 40)] {
            compare::<u64>(lengths, Partitions::with_subs(ranks, subs), seed as u64);
        }
    }
    for (seed, (k, m)) in [(33, 11), (45, 31), (63, 12), (63, 31)].into_iter().enumerate() {
        let lengths = Lengths::new(k, m).expect("lengths");
        for (ranks, subs) in [(1, 30), (4, 9)] {
            compare::<u128>(lengths, Partitions::with_subs(ranks, subs), 100 + seed as u64);
        }
    }
}

#[test]
fn malformed_messages_are_refused() {
    let (lengths, partitions) = (Lengths { k: 31, m: 11 }, Partitions::with_subs(1, 5));
    let mut gather = Gather(Window::new(lengths.k, partitions, partitions.ranks() - 1));
    let mut cutter = Cutter::new(lengths, partitions);
    let mut random = Random(1);
    let text: Vec<u8> = (0..100).map(|_| b"ACGT"[random.below(4)]).collect();
    let Ok(()) = cutter.letters(&text, &mut gather);
    let Ok(()) = cutter.end(&mut gather);
    let good = deliver(&mut gather.0, &mut [Store::new(31, 1, 5)]);
    let sections = good.len();
    let add = |bytes: &[u8], subs| Store::new(31, 1, subs).add(bytes.to_vec(), &[bytes.len()], 0);
    assert!(add(&good, 5).is_ok() && add(&[], 5).is_ok());
    // Cut anywhere but between two sections.
    let whole: Vec<usize> = (1..sections).filter(|&n| add(&good[..n], 5).is_ok()).collect();
    assert!(whole.len() <= 5, "{whole:?}");
    // An unknown source, an unknown virtual partition, a section without content, a super-k-mer without
    // k-mers.
    let broken = |at: usize, bytes: &[u8]| {
        let mut data = good.clone();
        data[at..at + bytes.len()].copy_from_slice(bytes);
        data
    };
    assert!(add(&broken(0, &[1, 0, 0, 0]), 5).is_err());
    assert!(add(&broken(8, &[5, 0]), 5).is_err());
    assert!(add(&broken(4, &[0, 0, 0, 0]), 5).is_err());
    assert!(add(&broken(4, &[255, 255, 255, 255]), 5).is_err());
    assert!(add(&broken(10, &[0, 0]), 5).is_err());
}
