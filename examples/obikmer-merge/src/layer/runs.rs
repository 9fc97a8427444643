//! Which set of sources the k-mer at a position has: runs of positions with one set, as they lie in a file.
//!
//! A run is the lowest byte of where it begins, and the number of its set (`u16` while there are at most 2^16
//! sets, or `u32`). For each block of 256 positions there is the number of the first run that begins in it or
//! beyond it; the runs of a block lie together, first their bytes, then their sets. So a position's run is
//! found with one look at the blocks and one at the few runs of its block.
//!
//! Nothing in the arrays is trusted: what is damaged gives wrong sets or none.

use std::ops::Range;

use crate::error::Result;
use crate::layer::format::{Mapped, Writer};

/// Bytes of a set's number, if there are `count` sets.
#[inline]
fn width(count: usize) -> usize {
    if count <= 1 << 16 { 2 } else { 4 }
}

/// Write runs: where they begin, strictly ascending, and their sets' numbers, all below `count`. Two
/// sections.
pub fn write(writer: &mut Writer, starts: &[u32], sets: &[u32], count: usize) -> Result<()> {
    let mut firsts = Vec::with_capacity(starts.last().map_or(0, |&last| last as usize / 256 + 1) + 1);
    for (run, &start) in starts.iter().enumerate() {
        firsts.resize(firsts.len().max(start as usize / 256 + 1), run as u32);
    }
    firsts.push(starts.len() as u32);
    writer.section(bytemuck::cast_slice(&firsts))?;
    writer.begin()?;
    let mut bytes = Vec::new();
    for bounds in firsts.windows(2) {
        let runs = bounds[0] as usize..bounds[1] as usize;
        bytes.extend(starts[runs.clone()].iter().map(|&start| start as u8));
        for set in &sets[runs] {
            bytes.extend_from_slice(&set.to_le_bytes()[..width(count)]);
        }
        if bytes.len() >= 1 << 16 {
            writer.append(&bytes)?;
            bytes.clear();
        }
    }
    writer.append(&bytes)
}

/// Runs as stored.
#[derive(Clone, Copy)]
pub struct Runs<'a> {
    firsts: &'a [u32],
    bytes: &'a [u8],
    width: usize,
}

/// The runs of a block.
struct Block<'a> {
    lows: &'a [u8],
    sets: &'a [u8],
    width: usize,
}

impl Block<'_> {
    #[inline]
    fn set(&self, run: usize) -> Option<u32> {
        let bytes = self.sets.get(run * self.width..(run + 1) * self.width)?;
        Some(bytes.iter().rev().fold(0, |set, &byte| set << 8 | u32::from(byte)))
    }
}

impl<'a> Runs<'a> {
    /// From two sections, the first of them this one; there are `count` sets.
    pub fn new(mapped: &'a Mapped, section: usize, count: usize) -> Result<Self> {
        let (firsts, bytes) = (mapped.slice::<u32>(section)?, mapped.bytes(section + 1));
        let width = width(count);
        if firsts.last().is_none_or(|&end| end as usize * (1 + width) != bytes.len()) {
            return Err(mapped.bad("the runs of sets do not fit together"));
        }
        Ok(Self { firsts, bytes, width })
    }

    /// A block; `None` if there is none.
    #[inline]
    fn block(&self, block: usize) -> Option<Block<'a>> {
        let (&first, &end) = (self.firsts.get(block)?, self.firsts.get(block + 1)?);
        let each = 1 + self.width;
        let bytes = self.bytes.get(first as usize * each..end as usize * each)?;
        let (lows, sets) = bytes.split_at(bytes.len() / each);
        Some(Block { lows, sets, width: self.width })
    }

    /// The set of the k-mer at a position, and positions around it that have the same.
    #[inline]
    pub fn at(&self, position: u32) -> Option<(u32, Range<u32>)> {
        // Beyond the last block there is its last run.
        let blocks = self.firsts.len() - 1;
        let (number, low) = match position as usize / 256 {
            number if number < blocks => (number, position as u8),
            _ => (blocks.checked_sub(1)?, u8::MAX),
        };
        let block = self.block(number)?;
        let before = block.lows.iter().filter(|&&begin| begin <= low).count();
        let base = (number as u32) << 8;
        let (set, begin) = match before.checked_sub(1) {
            Some(run) => (block.set(run)?, u32::from(block.lows[run])),
            // The last run before this block: it lies in the last block that has any.
            None => {
                let first = self.firsts[number];
                let number = self.firsts[..number].iter().rposition(|&begin| begin < first)?;
                let block = self.block(number)?;
                (block.set(block.lows.len().checked_sub(1)?)?, 0)
            }
        };
        let end = match block.lows.get(before) {
            Some(&next) => base + u32::from(next),
            None if number + 1 == blocks => u32::MAX,
            None => base.saturating_add(256),
        };
        Some((set, base + begin..end))
    }

    /// Have what tells a position's run brought near.
    #[inline]
    pub fn prefetch(&self, position: u32) {
        crate::lookup::prefetch::read(self.firsts, position as usize / 256);
    }

    /// Have its run brought near; what [`prefetch`](Self::prefetch) asks for should be.
    #[inline]
    pub fn prefetch_run(&self, position: u32) {
        if let Some(&first) = self.firsts.get(position as usize / 256) {
            crate::lookup::prefetch::read(self.bytes, first as usize * (1 + self.width));
        }
    }

    /// Each run's beginning and set, in order.
    pub fn iter(self) -> impl Iterator<Item = (u32, u32)> + 'a {
        let blocks = (0..self.firsts.len() - 1).filter_map(move |number| Some((number, self.block(number)?)));
        blocks.flat_map(|(number, block)| {
            let starts = block.lows.iter().map(move |&low| (number as u32) << 8 | u32::from(low));
            starts.enumerate().filter_map(move |(run, start)| Some((start, block.set(run)?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::format::{Kind, Place};
    use crate::sequence::kmer::Lengths;
    use crate::sequence::minimizer::order;

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
            let mut writer = Writer::create(&path, Kind::Sources, place, 2).expect("created");
            write(&mut writer, &starts, &sets, count as usize).expect("written");
            writer.finish().expect("finished");
            let mapped = Mapped::open(&path, Kind::Sources, place, None).expect("mapped");
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
