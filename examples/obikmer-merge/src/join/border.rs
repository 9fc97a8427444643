//! Which end of which piece continues in which partition: one exchange.
//!
//! Both partitions of a border k-mer have it, one as owner, the other as a ghost. So each pair of partitions
//! can list its border k-mers in the same order, and only the numbers of piece ends travel: four bytes each
//! way.

use bdrun_worker::Communicator;

use crate::error::{Error, Result};
use crate::exchange::{Outgoing, exchange};
use crate::pieces::{Border, Found, NO_END, Pieces};
use crate::sequence::word::Word;
use crate::threads::Threads;

/// Where an end leads: rank in the upper half, end in the lower.
pub type Link = u64;

/// In a link: the piece it leads to is an empty one.
pub const EMPTY: Link = 1 << 31;

/// The unitig ends here.
pub const CLOSED: Link = u64::MAX;

/// The pieces, and the link of every end.
pub fn links<W: Word>(
    comm: &Communicator,
    found: Result<Found<W>>,
    threads: Threads,
) -> Result<(Pieces, Vec<Link>)> {
    let size = comm.size();
    let mut kept = None;
    let outgoing = found.and_then(|Found { pieces, own, ghosts }| {
        let with_text = 2 * pieces.len() as u32;
        let (own, ghosts) = (sorted(own, size, threads)?, sorted(ghosts, size, threads)?);
        let mut outgoing = Outgoing::new(size);
        for list in [&ghosts, &own] {
            // The length of each list, so that both sides can check that they agree.
            for (rank, borders) in by_rank(list, size).enumerate() {
                let words = outgoing.to(rank);
                words.reserve(borders.len() + 2);
                words.push(borders.len() as u32);
                words.extend(borders.iter().map(|border| match border.end {
                    end if end != NO_END && end >= with_text => end | EMPTY as u32,
                    end => end,
                }));
            }
        }
        kept = Some((own, ghosts, pieces));
        Ok(outgoing)
    });
    let incoming = exchange(comm, outgoing)?;
    let (own, ghosts, pieces) = kept.ok_or_else(|| Error::Internal("no list of borders".into()))?;
    let mut links = vec![CLOSED; 2 * (pieces.len() + pieces.empty)];
    for (rank, (own, ghosts)) in by_rank(&own, size).zip(by_rank(&ghosts, size)).enumerate() {
        let words = incoming.from(rank);
        let (theirs_as_ghosts, rest) = take_list(words)?;
        let (theirs_owned, _) = take_list(rest)?;
        // Their ghosts are our border k-mers, and the other way round.
        for (mine, answers) in [(own, theirs_as_ghosts), (ghosts, theirs_owned)] {
            if mine.len() != answers.len() {
                let what = format!("ranks {} and {rank} see different borders", comm.rank());
                return Err(Error::Internal(what));
            }
            for (border, &other) in mine.iter().zip(answers) {
                if border.end != NO_END && other != NO_END {
                    links[border.end as usize] = (rank as u64) << 32 | u64::from(other);
                }
            }
        }
    }
    Ok((pieces, links))
}

fn take_list(words: &[u32]) -> Result<(&[u32], &[u32])> {
    let list = words.split_first().and_then(|(&n, rest)| rest.split_at_checked(n as usize));
    list.ok_or_else(|| Error::Internal("a malformed list of borders".into()))
}

/// Sorted by rank and k-mer, each k-mer once: with its end, if it has one.
fn sorted<W: Word>(borders: Vec<Border<W>>, size: usize, threads: Threads) -> Result<Vec<Border<W>>> {
    // By rank first, with counters: what is left to sort are lists of a few hundred.
    let mut ends = vec![0usize; size + 1];
    for border in &borders {
        ends[border.rank as usize + 1] += 1;
    }
    for rank in 0..size {
        ends[rank + 1] += ends[rank];
    }
    let Some(&any) = borders.first() else { return Ok(borders) };
    let mut ordered = vec![any; borders.len()];
    let mut next = ends.clone();
    for border in borders {
        let at = &mut next[border.rank as usize];
        ordered[*at] = border;
        *at += 1;
    }
    for rank in 0..size {
        let list = &mut ordered[ends[rank]..ends[rank + 1]];
        threads.sort_unstable_by_key(list, |border| (border.kmer, border.end))?;
    }
    ordered.dedup_by_key(|border| (border.rank, border.kmer));
    Ok(ordered)
}

/// The part of each rank.
fn by_rank<W>(mut borders: &[Border<W>], size: usize) -> impl Iterator<Item = &[Border<W>]> {
    (0..size).map(move |rank| {
        let end = borders.iter().position(|border| border.rank as usize != rank).unwrap_or(borders.len());
        let (part, rest) = borders.split_at(end);
        borders = rest;
        part
    })
}
