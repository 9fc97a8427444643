//! Joining of pieces: random chains and circles cut at random, dealt out to ranks in any order and direction,
//! with empty pieces between, against the texts they were cut from.

use bdrun_worker::local;
use obikmer_merge::Error;
use obikmer_merge::join::border::{CLOSED, EMPTY, Link};
use obikmer_merge::join::join;
use obikmer_merge::pieces::Pieces;
use obikmer_merge::sequence::cycle;
use obikmer_merge::sequence::packed::reverse_complement;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (obikmer_merge::sequence::minimizer::order(self.0) % n as u64) as usize
    }

    fn codes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.below(4) as u8).collect()
    }
}

/// A piece as cut: its text in the direction of its chain (empty: none), and how it is dealt out.
struct Cut {
    text: Vec<u8>,
    turned: bool,
    rank: usize,
    /// The piece's number there.
    number: usize,
    /// The pieces before and behind it.
    neighbours: [Option<usize>; 2],
    cyclic: bool,
}

#[derive(Default)]
struct World {
    cuts: Vec<Cut>,
    /// What is to come out: canonical text, cyclic.
    expected: Vec<(Vec<u8>, bool)>,
}

fn canonical(text: &[u8], cyclic: bool, k: usize) -> Vec<u8> {
    if cyclic {
        return cycle::canonical(&text[..text.len() + 1 - k], k);
    }
    let mut reverse = text.to_vec();
    reverse_complement(&mut reverse);
    reverse.min(text.to_vec())
}

impl World {
    /// A chain or circle of so many pieces with text, each of up to `most` k-mers.
    fn add(&mut self, random: &mut Random, k: usize, ranks: usize, pieces: usize, most: usize, cyclic: bool) {
        let lengths: Vec<usize> = (0..pieces).map(|_| 1 + random.below(most)).collect();
        let kmers: usize = lengths.iter().sum();
        let mut text = random.codes(if cyclic { kmers } else { kmers + k - 1 });
        if cyclic {
            text = text.iter().copied().cycle().take(kmers + k - 1).collect();
        }
        self.expected.push((canonical(&text, cyclic, k), cyclic));
        // A circle of one piece may be known as such, or only by its links.
        if cyclic && pieces == 1 && random.below(2) == 0 {
            self.cut(random, ranks, canonical(&text, true, k), [None; 2]);
            let cut = self.cuts.last_mut().expect("just added");
            (cut.turned, cut.cyclic) = (false, true);
            return;
        }
        let first = self.cuts.len();
        let mut at = 0;
        for (i, n) in lengths.iter().enumerate() {
            self.cut(random, ranks, text[at..at + n + k - 1].to_vec(), [None; 2]);
            at += n;
            while (i + 1 < pieces || cyclic) && random.below(8) == 0 {
                self.cut(random, ranks, Vec::new(), [None; 2]);
            }
        }
        let last = self.cuts.len() - 1;
        for i in first..=last {
            let before = if i > first { Some(i - 1) } else { cyclic.then_some(last) };
            let behind = if i < last { Some(i + 1) } else { cyclic.then_some(first) };
            self.cuts[i].neighbours = [before, behind];
        }
    }

    fn cut(&mut self, random: &mut Random, ranks: usize, text: Vec<u8>, neighbours: [Option<usize>; 2]) {
        let (turned, rank) = (random.below(2) == 1, random.below(ranks));
        self.cuts.push(Cut { text, turned, rank, number: 0, neighbours, cyclic: false });
    }

    /// Pieces and links of every rank.
    fn deal(&mut self, random: &mut Random, ranks: usize, k: usize) -> Vec<(Pieces, Vec<Link>)> {
        let mut order: Vec<usize> = (0..self.cuts.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
        // Those without text last.
        order.sort_by_key(|&i| self.cuts[i].text.is_empty());
        let mut dealt: Vec<(Pieces, Vec<Link>)> =
            (0..ranks).map(|_| (Pieces::default(), Vec::new())).collect();
        for (pieces, _) in &mut dealt {
            pieces.starts.push(0);
        }
        for &i in &order {
            let cut = &mut self.cuts[i];
            let pieces = &mut dealt[cut.rank].0;
            cut.number = pieces.len() + pieces.empty;
            if cut.text.is_empty() {
                pieces.empty += 1;
                continue;
            }
            let mut text = cut.text.clone();
            if cut.turned {
                reverse_complement(&mut text);
            }
            pieces.bases.push(&text);
            pieces.starts.push(pieces.bases.len() as u32);
            if cut.cyclic {
                pieces.cyclic.push(cut.number as u32);
            }
            assert_eq!(pieces.kmers(cut.number, k) as usize, text.len() + 1 - k);
        }
        for &i in &order {
            let cut = &self.cuts[i];
            let link = |towards: usize| {
                let Some(other) = cut.neighbours[towards] else { return CLOSED };
                let other = &self.cuts[other];
                // Entered at its other end in the chain's direction.
                let end = 2 * other.number + usize::from((towards == 0) != other.turned);
                let empty = if other.text.is_empty() { EMPTY } else { 0 };
                (other.rank as Link) << 32 | end as Link | empty
            };
            let links = if cut.turned { [link(1), link(0)] } else { [link(0), link(1)] };
            assert_eq!(dealt[cut.rank].1.len(), 2 * cut.number);
            dealt[cut.rank].1.extend(links);
        }
        dealt
    }

    /// Join to the end by contraction, and with the end left to one rank from any number of linked ends on;
    /// compare, and tell of the first: exchanges, bytes.
    fn check(mut self, random: &mut Random, ranks: usize, k: usize, what: &str) -> (usize, u64) {
        let dealt = self.deal(random, ranks, k);
        let run = |few: u64| {
            local::run(ranks, |comm| {
                let (pieces, links) = &dealt[comm.rank()];
                let pieces = Pieces {
                    starts: pieces.starts.clone(),
                    bases: pieces.bases.clone(),
                    cyclic: pieces.cyclic.clone(),
                    empty: pieces.empty,
                    ..Pieces::default()
                };
                let mut unitigs = Vec::new();
                let mut each = |text: obikmer_merge::sequence::packed::Text<'_>, cyclic: bool| {
                    let mut codes = Vec::new();
                    text.unpack(&mut codes);
                    unitigs.push((canonical(&codes, cyclic, k), cyclic));
                };
                let links = links.clone();
                let joined = join(&comm, k, pieces, links, few, &mut each, &|_, _| {}).expect("joined");
                joined.state.expect("joined to the end");
                (unitigs, joined.rounds, joined.bytes)
            })
        };
        self.expected.sort();
        let mut figures = None;
        for few in [0, random.below(50) as u64, u64::MAX] {
            let (first, second) = (run(few), run(few));
            assert!(first == second, "the same again, {what}");
            let mut found: Vec<_> = first.iter().flat_map(|rank| rank.0.iter().cloned()).collect();
            found.sort();
            assert!(found == self.expected, "unitigs, {what}, few: {few}");
            assert!(few < u64::MAX || first[0].1 <= 4, "{} exchanges", first[0].1);
            figures.get_or_insert((first[0].1, first.iter().map(|rank| rank.2).sum()));
        }
        figures.expect("three runs")
    }
}

#[test]
fn random_chains_and_circles() {
    for seed in 0..300 {
        let mut random = Random(seed << 32);
        let ranks = [1, 2, 3, 7, 16][random.below(5)];
        let k = [3, 5, 21, 31, 33, 63][random.below(6)];
        let mut world = World::default();
        for _ in 0..random.below(30) {
            let pieces = 1 + [0, random.below(3), random.below(40)][random.below(3)];
            let most = [1, 3, 20, 200][random.below(4)];
            let cyclic = random.below(4) == 0;
            world.add(&mut random, k, ranks, pieces, most, cyclic);
        }
        world.check(&mut random, ranks, k, &format!("seed {seed} ranks {ranks} k {k}"));
    }
}

/// Exchanges grow with the logarithm of the longest chain, bytes with the number of pieces.
#[test]
fn long_chains() {
    for (seed, pieces, most, cyclic, rounds) in [
        (1, 10_000, 9, false, 34),
        (2, 10_000, 9, true, 34),
        (3, 100, 5000, false, 20),
        (4, 6000, 1, true, 32),
    ] {
        let mut random = Random(seed << 40);
        let (k, ranks) = (31, 5);
        let mut world = World::default();
        world.add(&mut random, k, ranks, pieces, most, cyclic);
        for _ in 0..100 {
            world.add(&mut random, k, ranks, 3, most, false);
        }
        let (count, kmers) =
            (world.cuts.len(), world.expected.iter().map(|e| e.0.len() + 1 - k).sum::<usize>());
        let (exchanges, bytes) = world.check(&mut random, ranks, k, &format!("seed {seed}"));
        assert!(exchanges <= rounds, "{exchanges} exchanges, seed {seed}");
        // About 28 bytes for each piece, 12 of the head of each of an exchange's messages, and the bases some
        // times.
        let most = 40 * count + 12 * exchanges * ranks * ranks + kmers / 4 * exchanges / 2;
        assert!(bytes as usize <= most, "{bytes} bytes, not {most}, seed {seed}");
    }
}

#[test]
fn nothing_to_join() {
    let mut random = Random(9);
    let (exchanges, _) = World::default().check(&mut random, 3, 31, "nothing");
    assert_eq!(exchanges, 1);
    let mut world = World::default();
    (0..50).for_each(|_| world.add(&mut random, 31, 3, 1, 40, false));
    assert_eq!(world.check(&mut random, 3, 31, "single pieces").0, 1);
}

/// A link to a piece that is not there is an error, not a chain without end.
#[test]
fn a_link_to_nowhere() {
    let k = 5;
    for seed in 0..200 {
        let mut random = Random(seed << 24);
        let mut world = World::default();
        (0..6).for_each(|_| world.add(&mut random, k, 3, 4, 5, false));
        let mut dealt = world.deal(&mut random, 3, k);
        let (rank, to) = (random.below(3), random.below(3));
        let Some(end) = dealt[rank].1.iter_mut().find(|link| **link == CLOSED) else { continue };
        *end = (to as Link) << 32 | 1_000_000;
        let results = local::run(3, |comm| {
            let (pieces, links) = &dealt[comm.rank()];
            let pieces =
                Pieces { starts: pieces.starts.clone(), bases: pieces.bases.clone(), ..Pieces::default() };
            let links = links.iter().map(|&l| if l == CLOSED { l } else { l & !EMPTY }).collect();
            let few = [0, u64::MAX][(seed % 2) as usize];
            join(&comm, k, pieces, links, few, &mut |_, _| {}, &|_, _| {}).and_then(|joined| joined.state)
        });
        assert!(results.iter().any(|r| matches!(r, Err(Error::Internal(_)))), "seed {seed}");
    }
}
