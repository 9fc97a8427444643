//! Positions by 32-bit hashes, in a table that is built by counting and used as it lies in a file.
//!
//! Two arrays: where each bucket's entries begin, and the entries. An entry is a `u32`: in its lower bits, as
//! many as any position needs, the position; in the others the lowest bits of the mixed hash, which keep
//! nearly all foreign entries of a bucket from being followed. With `LOAD` entries to a bucket both together
//! are 4.5 bytes an entry.
//!
//! Nothing in the arrays is trusted: what is damaged gives wrong candidates or none.

use crate::error::Result;
use crate::threads::Threads;

/// Mean entries of a bucket: eight of them lie in one or two cache lines.
const LOAD: usize = 8;

/// The hash with its bits spread: the buckets take the high ones, the entries the low ones. (Lowest hashes
/// are low.)
#[inline]
fn mix(hash: u32) -> u32 {
    let y = hash.wrapping_mul(0x9e37_79b1);
    y ^ y >> 15
}

/// Bits for all positions below `bases`.
#[inline]
pub fn position_bits(bases: usize) -> u32 {
    (usize::BITS - bases.leading_zeros()).min(32)
}

/// The bucket of a mixed hash among so many.
#[inline]
fn bucket(mixed: u32, buckets: usize) -> usize {
    ((u64::from(mixed) * buckets as u64) >> 32) as usize
}

/// An item to be put into a table.
#[inline]
pub fn item(hash: u32, position: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(position)
}

/// What [`build`] made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// Where each bucket's entries begin; one more for the end.
    pub offsets: Vec<u32>,
    /// The entries.
    pub entries: Vec<u32>,
    /// Items of buckets that would have had more than the limit, in the order given. Those buckets are empty.
    pub refused: Vec<u64>,
}

/// The buckets of one thread: it goes through all items, and does with its own what would otherwise be done
/// with all.
struct Part<'a> {
    /// The number of its first bucket.
    first: usize,
    /// Of each of its buckets: a count, and later where the next entry goes.
    offsets: &'a mut [u32],
    /// Where its entries begin, and they themselves.
    begin: u32,
    entries: &'a mut [u32],
}

/// A table of [`item`]s, fewer than 2^32, those of a bucket in the order given. Buckets with more than
/// `limit` are left empty.
///
/// # Errors
/// Threads cannot be started.
pub fn build(items: &[u64], position_bits: u32, limit: u32, threads: Threads) -> Result<Built> {
    let buckets = items.len().div_ceil(LOAD);
    let mut offsets = vec![0u32; buckets + 1];
    let of = |item: u64| bucket(mix((item >> 32) as u32), buckets);
    let parts = split(&mut offsets, threads).into_iter();
    let count = |part: Part<'_>| {
        for &item in items {
            if let Some(count) = part.offsets.get_mut(of(item).wrapping_sub(part.first)) {
                *count += 1;
            }
        }
    };
    threads.in_order(parts, count, |()| Ok(()))?;
    let (mut end, mut any) = (0, false);
    let mut parts = split(&mut offsets, threads);
    for part in &mut parts {
        part.begin = end;
        for count in &mut *part.offsets {
            let refused = *count > limit;
            any |= refused;
            // Entries are put in from the end of their bucket on; a refused one is marked by an end beyond
            // all.
            end += if refused { 0 } else { *count };
            *count = if refused { u32::MAX } else { end };
        }
    }
    let mut built = Built { entries: vec![0u32; end as usize], ..Built::default() };
    let mut rest = &mut built.entries[..];
    for part in parts.iter_mut().rev() {
        (rest, part.entries) = rest.split_at_mut(part.begin as usize);
    }
    let put = |part: Part<'_>| {
        let mut refused = Vec::new();
        for (number, &item) in items.iter().enumerate().rev() {
            let mixed = mix((item >> 32) as u32);
            match part.offsets.get_mut(bucket(mixed, buckets).wrapping_sub(part.first)) {
                None => {}
                Some(&mut u32::MAX) => refused.push(number as u32),
                Some(place) => {
                    *place -= 1;
                    part.entries[(*place - part.begin) as usize] =
                        item as u32 | mixed.checked_shl(position_bits).unwrap_or(0);
                }
            }
        }
        refused
    };
    let mut refused = Vec::new();
    threads.in_order(parts, put, |numbers| {
        refused.extend(numbers);
        Ok(())
    })?;
    if any {
        refused.sort_unstable();
        built.refused = refused.into_iter().map(|number| items[number as usize]).collect();
    }
    // A refused bucket begins where the next one does.
    let mut next = end;
    for offset in offsets.iter_mut().rev() {
        if *offset == u32::MAX {
            *offset = next;
        }
        next = *offset;
    }
    built.offsets = offsets;
    Ok(built)
}

/// A part for each thread.
fn split(mut offsets: &mut [u32], threads: Threads) -> Vec<Part<'_>> {
    let ranges = threads.ranges(offsets.len());
    ranges
        .map(|range| {
            let (mine, rest) = std::mem::take(&mut offsets).split_at_mut(range.len());
            offsets = rest;
            Part { first: range.start, offsets: mine, begin: 0, entries: &mut [] }
        })
        .collect()
}

/// A table as stored.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    offsets: &'a [u32],
    entries: &'a [u32],
    position_bits: u32,
}

impl<'a> Table<'a> {
    /// From the arrays of [`Built`].
    pub fn new(offsets: &'a [u32], entries: &'a [u32], position_bits: u32) -> Self {
        Self { offsets, entries, position_bits }
    }

    /// Has it no entries?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    fn at(&self, hash: u32) -> usize {
        bucket(mix(hash), self.offsets.len().saturating_sub(1))
    }

    /// All entries of the bucket of a hash.
    #[inline]
    pub fn bucket(&self, hash: u32) -> &'a [u32] {
        let at = self.at(hash);
        match self.offsets.get(at..at + 2) {
            Some(bounds) => self.entries.get(bounds[0] as usize..bounds[1] as usize).unwrap_or(&[]),
            None => &[],
        }
    }

    /// The positions in a bucket that may belong to this hash.
    #[inline]
    pub fn positions(&self, bucket: &'a [u32], hash: u32) -> impl Iterator<Item = u32> + use<'a> {
        let mask = 1u32.checked_shl(self.position_bits).map_or(u32::MAX, |bit| bit - 1);
        let print = mix(hash).checked_shl(self.position_bits).unwrap_or(0);
        bucket.iter().filter(move |&&entry| entry & !mask == print).map(move |&entry| entry & mask)
    }

    /// Have the bounds of a hash's bucket brought near.
    #[inline]
    pub fn prefetch_bounds(&self, hash: u32) {
        crate::lookup::prefetch::read(self.offsets, self.at(hash));
    }

    /// Have a bucket's entries brought near; its bounds should be.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u32) {
        let at = self.at(hash);
        if let Some(bounds) = self.offsets.get(at..at + 2) {
            crate::lookup::prefetch::read(self.entries, bounds[0] as usize);
            crate::lookup::prefetch::read(self.entries, (bounds[1] as usize).wrapping_sub(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::minimizer::order;

    #[test]
    fn every_item_is_found_or_refused() {
        for (count, values, bits, limit) in [
            (0, 1, 1, 9),
            (1, 1, 1, 9),
            (7, 3, 3, 9),
            (5000, 5000, 13, 40),
            (5000, 60, 32, 60),
            (5000, 1, 13, 99),
        ] {
            let items: Vec<u64> =
                (0..count).map(|i| item((order(order(i) % values) >> 32) as u32, i as u32)).collect();
            let built = build(&items, bits, limit, Threads::ONE).expect("built");
            for threads in [2, 3, 8] {
                let same = build(&items, bits, limit, Threads::new(threads)).expect("built");
                assert_eq!(same, built, "{count} items by {threads} threads");
            }
            assert_eq!(built.entries.len() + built.refused.len(), items.len());
            assert!(built.refused.is_sorted_by_key(|&item| item as u32));
            assert!(values < 5000 || built.refused.is_empty());
            let table = Table::new(&built.offsets, &built.entries, bits);
            for &item in &items {
                let (hash, position) = ((item >> 32) as u32, item as u32);
                let bucket = table.bucket(hash);
                assert!(bucket.len() <= limit as usize);
                let found: Vec<u32> = table.positions(bucket, hash).collect();
                assert!(found.is_sorted());
                assert_eq!(found.contains(&position), !built.refused.contains(&item), "{count} {position}");
                assert_eq!(bucket.is_empty(), built.refused.contains(&item));
            }
        }
    }

    #[test]
    fn damaged_arrays_are_no_danger() {
        for (offsets, entries) in [(vec![], vec![1]), (vec![0], vec![1]), (vec![7, 3, u32::MAX], vec![1, 2])]
        {
            let table = Table::new(&offsets, &entries, 5);
            for hash in (0..64u64).map(|i| order(i) as u32) {
                table.prefetch_bounds(hash);
                table.prefetch_bucket(hash);
                assert!(table.bucket(hash).is_empty());
            }
        }
    }
}
