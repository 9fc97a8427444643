//! The end of joining: when few chains are left, all their links go to one rank, which puts them in order,
//! and each text goes straight to the rank that writes its unitig. Three exchanges instead of the last ten or
//! so, which would be nearly empty. What that rank holds is bounded by [`linked`], whatever the job's size.

use crate::error::{Error, Result};
use crate::join::border::{CLOSED, EMPTY, Link};
use crate::sequence::packed::{Packed, Text, words_for};

/// Linked ends of all ranks from which downwards this is done, in a job with such a budget. The rank that
/// orders them holds some 50 bytes for each: a tenth of the budget, if that is not tiny. More of them save an
/// exchange at first, and then make the others wait for that rank.
pub fn linked(budget: Option<u64>) -> u64 {
    const LEAST: u64 = 1 << 18;
    const MOST: u64 = 1 << 19;
    budget.map_or(MOST, |bytes| (bytes / 512).clamp(LEAST, MOST))
}

/// Words by which a chain is told of.
pub const TOLD: usize = 6;
/// Words of the answer.
pub const ANSWER: usize = 3;
/// Words before a text.
const HEAD: usize = 3;

/// Tell of a chain: its piece, its length, where its two ends lead.
pub fn tell(piece: u32, kmers: u32, links: [Link; 2], words: &mut [u32]) {
    let [a, b] = links;
    words.copy_from_slice(&[piece, kmers, a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32]);
}

/// Where a chain's text goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The rank that writes the unitig.
    pub rank: u32,
    /// The unitig's number, among those in the answers.
    unitig: u32,
    /// Its place in the unitig, counted from 1 and without chains that have no text; of those: 0.
    nth: u32,
    forward: bool,
    cyclic: bool,
}

impl Place {
    /// From its words.
    pub fn read(words: &[u32]) -> Option<Self> {
        let &[rank, unitig, rest] = words else { return None };
        Some(Self { rank, unitig, nth: rest >> 2, forward: rest & 1 != 0, cyclic: rest & 2 != 0 })
    }

    /// As words.
    pub fn write(self, words: &mut [u32]) {
        let rest = self.nth << 2 | u32::from(self.cyclic) << 1 | u32::from(self.forward);
        words.copy_from_slice(&[self.rank, self.unitig, rest]);
    }

    /// Has the chain a text?
    pub fn has_text(self) -> bool {
        self.nth > 0
    }

    /// The part of its text that goes there: the whole of the first, of others one base for each k-mer.
    fn part(self, text: Text<'_>, kmers: usize) -> Text<'_> {
        let text = if self.forward { text } else { text.flipped() };
        if self.nth == 1 { text } else { text.cut(text.len() - kmers, kmers) }
    }

    /// Words of the message with its text.
    pub fn words(self, kmers: u32, k: usize) -> usize {
        HEAD + words_for(kmers as usize + if self.nth == 1 { k - 1 } else { 0 })
    }

    /// The message.
    pub fn send(self, text: Text<'_>, kmers: u32, words: &mut [u32]) {
        let part = self.part(text, kmers as usize);
        words[..HEAD].copy_from_slice(&[
            self.unitig,
            self.nth << 1 | u32::from(self.cyclic),
            part.len() as u32,
        ]);
        part.write(&mut words[HEAD..]);
    }
}

/// A chain that was told of.
struct Chain {
    id: Link,
    kmers: u32,
    links: [Link; 2],
    place: Option<Place>,
}

/// All chains, in order of rank and piece: where each lies, in the same order.
///
/// # Errors
/// Links that contradict each other, or a unitig of 2^32 k-mers or more.
pub fn order<'a>(told: impl Iterator<Item = (usize, &'a [u32])>) -> Result<Vec<Place>> {
    let broken = || Error::Internal("links of chains contradict each other".into());
    let mut chains = Vec::new();
    for (rank, words) in told {
        for chain in words.chunks(TOLD) {
            let &[piece, kmers, a, b, c, d] = chain else { return Err(broken()) };
            let link = |low: u32, high: u32| Link::from(high) << 32 | Link::from(low);
            let id = (rank as Link) << 32 | (2 * Link::from(piece));
            chains.push(Chain { id, kmers, links: [link(a, b), link(c, d)], place: None });
        }
    }
    let mut path: Vec<(usize, bool)> = Vec::new();
    let mut unitig = 0;
    // First those that have an end, from it; what is left are circles.
    for circles in [false, true] {
        for first in 0..chains.len() {
            let chain = &chains[first];
            if chain.place.is_some() || (!circles && !chain.links.contains(&CLOSED)) {
                continue;
            }
            path.clear();
            let (mut at, mut forward) = (first, circles || chain.links[0] == CLOSED);
            loop {
                path.push((at, forward));
                let next = chains[at].links[usize::from(forward)] & !EMPTY;
                if next == CLOSED & !EMPTY {
                    break;
                }
                let id = next & !1;
                let there = chains.binary_search_by_key(&id, |chain| chain.id).map_err(|_| broken())?;
                let enters_left = next & 1 == 0;
                // Back where it began, or astray?
                if there == first {
                    if !circles || enters_left != path[0].1 {
                        return Err(broken());
                    }
                    break;
                }
                if path.len() > chains.len() || chains[there].place.is_some() {
                    return Err(broken());
                }
                (at, forward) = (there, enters_left);
            }
            place(&mut chains, &path, unitig, circles)?;
            unitig += 1;
        }
    }
    Ok(chains.into_iter().filter_map(|chain| chain.place).collect())
}

/// Note the places of one unitig's chains. It is written where most of it lies.
fn place(chains: &mut [Chain], path: &[(usize, bool)], unitig: u32, cyclic: bool) -> Result<()> {
    let longest = path.iter().map(|&(at, _)| &chains[at]).max_by_key(|c| (c.kmers, std::cmp::Reverse(c.id)));
    let rank = longest.map_or(0, |chain| (chain.id >> 32) as u32);
    let kmers: u64 = path.iter().map(|&(at, _)| u64::from(chains[at].kmers)).sum();
    if kmers > u64::from(u32::MAX) {
        return Err(Error::Limit("a unitig has more than 4 G k-mers".into()));
    }
    let mut nth = 0;
    for &(at, forward) in path {
        let has_text = chains[at].kmers > 0;
        nth += u32::from(has_text);
        let nth = if has_text { nth } else { 0 };
        chains[at].place = Some(Place { rank, unitig, nth, forward, cyclic });
    }
    Ok(())
}

/// Texts that came for unitigs that are written here, put together.
pub fn assemble<'a>(
    came: impl Iterator<Item = &'a [u32]>,
    each: &mut dyn FnMut(Text<'_>, bool),
) -> Result<()> {
    let broken = || Error::Internal("malformed texts of chains arrived".into());
    let mut parts: Vec<(u32, u32, &[u32], u32)> = Vec::new();
    for mut words in came {
        while let Some((&[unitig, nth, len], rest)) = words.split_first_chunk::<HEAD>() {
            let (text, more) = rest.split_at_checked(words_for(len as usize)).ok_or_else(broken)?;
            parts.push((unitig, nth, text, len));
            words = more;
        }
        if !words.is_empty() {
            return Err(broken());
        }
    }
    parts.sort_unstable_by_key(|part| (part.0, part.1));
    let mut whole = Packed::default();
    for unitig in parts.chunk_by(|a, b| a.0 == b.0) {
        whole.clear();
        for (number, part) in unitig.iter().enumerate() {
            if part.1 >> 1 != number as u32 + 1 {
                return Err(broken());
            }
            whole.append(Text::new(bytemuck::cast_slice(part.2), 0, part.3 as usize));
        }
        each(whole.text(), unitig[0].1 & 1 != 0);
    }
    Ok(())
}
