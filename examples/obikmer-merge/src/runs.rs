//! Which set of sources the k-mer at a position has: runs of positions with one set, as they lie in a file.
//!
//! A run is the lowest byte of where it begins, and the number of its set; for each block of 256 positions there is the
//! number of the first run that begins in it or beyond it. So a position's run is found with one look at the blocks and one at the
//! few runs of its block.
//!
//! Nothing in the arrays is trusted: what is damaged gives wrong sets or none.

use std::ops::Range;

use crate::error::Result;
use crate::format::{Mapped, Writer};

/// Numbers of sets are `u16` while they fit.
const NARROW: usize = 1 << 16;

/// Write runs: where they begin, strictly ascending, and their sets' numbers, all below `count`. Three sections.
pub fn write(writer: &mut Writer, starts: &[u32], sets: &[u32], count: usize) -> Result<()> {
    let blocks = starts.last().map_or(0, |&last| last as usize / 256 + 1);
    let mut firsts = Vec::with_capacity(blocks + 1);
    for (run, &start) in starts.iter().enumerate() {
        firsts.resize(firsts.len().max(start as usize / 256 + 1), run as u32);
    }
    firsts.push(starts.len() as u32);
    writer.section(bytemuck::cast_slice(&firsts))?;
    writer.begin()?;
    for chunk in starts.chunks(4096) {
        writer.append(&chunk.iter().map(|&start| start as u8).collect::<Vec<_>>())?;
    }
    writer.begin()?;
    for chunk in sets.chunks(4096) {
        if count <= NARROW {
            writer.append(bytemuck::cast_slice(&chunk.iter().map(|&set| set as u16).collect::<Vec<_>>()))?;
        } else {
            writer.append(bytemuck::cast_slice(chunk))?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Numbers<'a> {
    Narrow(&'a [u16]),
    Wide(&'a [u32]),
}

/// Runs as stored.
#[derive(Clone, Copy)]
pub struct Runs<'a> {
    firsts: &'a [u32],
    lows: &'a [u8],
    sets: Numbers<'a>,
}

impl<'a> Runs<'a> {
    /// From three sections, the first of them this one; there are `count` sets.
    pub fn new(mapped: &'a Mapped, section: usize, count: usize) -> Result<Self> {
        let lows = mapped.bytes(section + 1);
        let (sets, found) = if count <= NARROW {
            let sets = mapped.slice::<u16>(section + 2)?;
            (Numbers::Narrow(sets), sets.len())
        } else {
            let sets = mapped.slice::<u32>(section + 2)?;
            (Numbers::Wide(sets), sets.len())
        };
        let firsts = mapped.slice::<u32>(section)?;
        if found != lows.len() || firsts.last().is_none_or(|&end| end as usize != lows.len()) {
            return Err(mapped.bad("the runs of sets do not fit together"));
        }
        Ok(Self { firsts, lows, sets })
    }

    #[inline]
    fn set(&self, run: usize) -> Option<u32> {
        match self.sets {
            Numbers::Narrow(sets) => sets.get(run).map(|&set| set.into()),
            Numbers::Wide(sets) => sets.get(run).copied(),
        }
    }

    /// The set of the k-mer at a position, and positions around it that have the same.
    #[inline]
    pub fn at(&self, position: u32) -> Option<(u32, Range<u32>)> {
        // Beyond the last block there is its last run.
        let blocks = self.firsts.len() - 1;
        let (block, low) = match position as usize / 256 {
            block if block < blocks => (block, position as u8),
            _ => (blocks.checked_sub(1)?, u8::MAX),
        };
        let (first, end) = (self.firsts[block] as usize, self.firsts[block + 1] as usize);
        let lows = self.lows.get(first..end)?;
        let before = lows.iter().filter(|&&begin| begin <= low).count();
        let set = self.set((first + before).checked_sub(1)?)?;
        let base = (block as u32) << 8;
        let begin = before.checked_sub(1).map_or(0, |last| u32::from(lows[last]));
        let end = match lows.get(before) {
            Some(&next) => base + u32::from(next),
            None if block + 1 == blocks => u32::MAX,
            None => base + 256,
        };
        Some((set, base + begin..end))
    }

    /// Have what tells a position's run brought near.
    #[inline]
    pub fn prefetch(&self, position: u32) {
        crate::prefetch::read(self.firsts, position as usize / 256);
    }

    /// Have the rest of it brought near; what [`prefetch`](Self::prefetch) asks for should be.
    #[inline]
    pub fn prefetch_run(&self, position: u32) {
        let block = position as usize / 256;
        if let Some(bounds) = self.firsts.get(block..block + 2) {
            crate::prefetch::read(self.lows, bounds[0] as usize);
            let middle = usize::midpoint(bounds[0] as usize, bounds[1] as usize);
            match self.sets {
                Numbers::Narrow(sets) => crate::prefetch::read(sets, middle),
                Numbers::Wide(sets) => crate::prefetch::read(sets, middle),
            }
        }
    }

    /// Each run's beginning and set, in order.
    pub fn iter(self) -> impl Iterator<Item = (u32, u32)> + 'a {
        self.firsts.windows(2).enumerate().flat_map(move |(block, bounds)| {
            (bounds[0] as usize..bounds[1] as usize).map_while(move |run| {
                Some(((block as u32) << 8 | u32::from(*self.lows.get(run)?), self.set(run)?))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Kind, Place};
    use crate::kmer::Lengths;
    use crate::minimizer::order;

    #[test]
    fn every_position_has_the_set_of_its_run() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("runs");
        let place = Place { lengths: Lengths { k: 31, m: 11 }, partition: 0, partitions: 1 };
        for (runs, step, count) in
            [(1, 1, 1), (40, 3, 3), (500, 700, 9), (2000, 40, 1 << 16), (2000, 90, 70_000)]
        {
            let mut starts = vec![0u32];
            for i in 1..runs {
                starts.push(starts[i - 1] + 1 + (order(i as u64) % step) as u32);
            }
            let sets: Vec<u32> = (0..runs as u64).map(|i| (order(i + 9) % count) as u32).collect();
            let mut writer = Writer::create(&path, Kind::Sources, place, 3).expect("created");
            write(&mut writer, &starts, &sets, count as usize).expect("written");
            writer.finish().expect("finished");
            let mapped = Mapped::open(&path, Kind::Sources, place).expect("mapped");
            let stored = Runs::new(&mapped, 0, count as usize).expect("whole");
            let expected: Vec<_> = starts.iter().copied().zip(sets.iter().copied()).collect();
            assert_eq!(stored.iter().collect::<Vec<_>>(), expected);
            let mut same = 0..0;
            for position in 0..starts[runs - 1] + 600 {
                let run = starts.partition_point(|&start| start <= position) - 1;
                let (set, around) = stored.at(position).expect("a run");
                assert_eq!(set, sets[run], "{runs} {position}");
                assert!(around.contains(&position));
                assert!(around.start >= starts[run] && starts.get(run + 1).is_none_or(|&s| around.end <= s));
                assert!(same.contains(&position) || around.start >= same.end || same.is_empty());
                same = around;
            }
        }
    }
}
