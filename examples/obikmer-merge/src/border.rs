//! Which end of which piece continues in which partition: one exchange.
//!
//! Both partitions of a border k-mer have it, one as owner, the other as a ghost. So each pair of partitions can list
//! its border k-mers in the same order, and only the numbers of piece ends travel: four bytes each way.

use bdrun_worker::Communicator;

use crate::error::{Error, Result};
use crate::exchange::{Outgoing, exchange};
use crate::kmer::Lengths;
use crate::minimizer::{of_word, owner, partition};
use crate::pieces::{self, End, Pieces};
use crate::word::Word;

/// No end.
const NONE: End = End::MAX;

/// Where an end leads: rank in the upper half, end in the lower.
pub type Link = u64;

/// In a link: the piece it leads to is an empty one.
pub const EMPTY: Link = 1 << 31;

/// The unitig ends here.
pub const CLOSED: Link = u64::MAX;

/// A border k-mer: the other partition, the k-mer, the end here.
type Border<W> = (u32, W, End);

/// Those owned here, and the ghosts.
type Lists<W> = (Vec<Border<W>>, Vec<Border<W>>);

/// The link of every end.
pub fn links<W: Word>(
    comm: &Communicator,
    lengths: Lengths,
    pieces: Result<(&Pieces, pieces::Borders<W>)>,
) -> Result<Vec<Link>> {
    let size = comm.size();
    let mut kept = None;
    let outgoing = pieces.map(|(pieces, borders)| {
        let with_text = 2 * pieces.len() as u32;
        let ends = 2 * (pieces.len() + pieces.empty);
        let (own, ghosts) = lists(comm.rank(), size, lengths, borders);
        let mut outgoing = Outgoing::new(size);
        for list in [&ghosts, &own] {
            // The length of each list, so that both sides can check that they agree.
            for rank in 0..size {
                outgoing.to(rank).push(0);
            }
            let headers: Vec<usize> = (0..size).map(|rank| outgoing.to(rank).len() - 1).collect();
            for &(rank, _, end) in list {
                let words = outgoing.to(rank as usize);
                words.push(if end != NONE && end >= with_text { end | EMPTY as u32 } else { end });
                words[headers[rank as usize]] += 1;
            }
        }
        kept = Some((own, ghosts, ends));
        outgoing
    });
    let incoming = exchange(comm, outgoing)?;
    let (own, ghosts, ends) = kept.ok_or_else(|| Error::Internal("no list of borders".into()))?;
    let mut links = vec![CLOSED; ends];
    for rank in 0..size {
        let words = incoming.from(rank);
        let (theirs_as_ghosts, rest) = take_list(words)?;
        let (theirs_owned, _) = take_list(rest)?;
        // Their ghosts are our border k-mers, and the other way round.
        for (list, answers) in [(&own, theirs_as_ghosts), (&ghosts, theirs_owned)] {
            let mine = of_rank(list, rank);
            if mine.len() != answers.len() {
                let what = format!("ranks {} and {rank} see different borders", comm.rank());
                return Err(Error::Internal(what));
            }
            for (&(_, _, end), &other) in mine.iter().zip(answers) {
                if end != NONE && other != NONE {
                    links[end as usize] = (rank as u64) << 32 | u64::from(other);
                }
            }
        }
    }
    Ok(links)
}

fn take_list(words: &[u32]) -> Result<(&[u32], &[u32])> {
    let list = words.split_first().and_then(|(&n, rest)| rest.split_at_checked(n as usize));
    list.ok_or_else(|| Error::Internal("a malformed list of borders".into()))
}

fn of_rank<W>(list: &[Border<W>], rank: usize) -> &[Border<W>] {
    let begin = list.partition_point(|b| (b.0 as usize) < rank);
    let end = list.partition_point(|b| b.0 as usize <= rank);
    &list[begin..end]
}

/// The border k-mers owned here, by the partition that has them as ghosts; and the ghosts here, by owner. Sorted.
fn lists<W: Word>(me: usize, size: usize, lengths: Lengths, borders: pieces::Borders<W>) -> Lists<W> {
    let mut own: Vec<Border<W>> = borders
        .foreign
        .into_iter()
        .map(|(kmer, end)| (other_partition(me, size, lengths, kmer) as u32, kmer, end))
        .collect();
    own.sort_unstable();
    let mut linked = borders.ghost_links;
    linked.sort_unstable();
    let mut ghosts: Vec<Border<W>> = borders
        .ghosts
        .into_iter()
        .map(|kmer| {
            let end = linked.binary_search_by_key(&kmer, |l| l.0).map_or(NONE, |i| linked[i].1);
            (owner(kmer, lengths, size) as u32, kmer, end)
        })
        .collect();
    ghosts.sort_unstable();
    (own, ghosts)
}

/// The partition of that junction of a border k-mer that is not in partition `me`.
fn other_partition<W: Word>(me: usize, size: usize, lengths: Lengths, kmer: W) -> usize {
    let Lengths { k, m } = lengths;
    let left = partition(of_word(kmer >> 2, k - 1, m), size);
    if left != me { left } else { partition(of_word(kmer & W::mask(k - 1), k - 1, m), size) }
}
