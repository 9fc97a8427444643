//! What a partition received: super-k-mers by virtual partition and source, in the buffers they came in.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::error::{Error, Result};
use crate::graph::Record;
use crate::sequence::kmer::Oriented;
use crate::sequence::packed;
use crate::sequence::word::Word;
use crate::superkmer::cut::{LEFT_FOREIGN, LEFT_OWNED, MAX_KMERS, RIGHT_FOREIGN, RIGHT_OWNED, encoded_len};
use crate::superkmer::frequent::{Frequent, Least};
use crate::superkmer::window::Section;

/// A section that came: its place in the buffers.
#[derive(Clone, Copy)]
struct Came {
    sub: u32,
    source: u32,
    buffer: u32,
    begin: u32,
    len: u32,
}

/// A buffer, and how many of its sections have not been drained.
struct Buffer {
    bytes: RwLock<Vec<u8>>,
    left: AtomicUsize,
}

/// What a virtual partition has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Super-k-mers, repeats included.
    pub super_kmers: u64,
    /// K-mers, repeats included.
    pub kmers: u64,
}

/// Super-k-mers as they come.
pub struct Store {
    k: usize,
    sources: usize,
    buffers: Vec<Buffer>,
    sections: Vec<Came>,
    totals: Vec<Totals>,
    least: Least,
}

impl Store {
    /// For k-mers of this length, so many sources and so many virtual partitions.
    pub fn new(k: usize, sources: usize, subs: usize) -> Self {
        let totals = vec![Totals::default(); subs];
        Self { k, sources, buffers: Vec::new(), sections: Vec::new(), totals, least: Least::default() }
    }

    /// Only k-mers that occur so often in their source are to be taken out of it.
    pub fn require(self, least: Least) -> Self {
        Self { least, ..self }
    }

    /// K-mers, repeats included.
    pub fn kmers(&self) -> u64 {
        self.totals.iter().map(|t| t.kmers).sum()
    }

    /// An empty one of the same kind, for what was taken out.
    pub fn like(&self) -> Self {
        Self::new(self.k, self.sources, self.subs())
    }

    /// Number of virtual partitions.
    pub fn subs(&self) -> usize {
        self.totals.len()
    }

    /// Keep what came: messages of so many bytes each, the first `skip` of each something else. Fails where a
    /// message is malformed; what is kept then is undefined.
    pub fn add(&mut self, bytes: Vec<u8>, messages: &[usize], skip: usize) -> Result<()> {
        self.add_in_parts(bytes, messages, skip, u32::MAX as usize)
    }

    /// The same in buffers of at most `most` bytes: places in one are counted in 32 bits.
    fn add_in_parts(
        &mut self,
        mut bytes: Vec<u8>,
        mut messages: &[usize],
        skip: usize,
        most: usize,
    ) -> Result<()> {
        while bytes.len() > most {
            let ends = messages.iter().scan(0, |end, message| (*end += message, Some(*end)).1);
            let Some((number, end)) = ends.take_while(|&end| end <= most).enumerate().last() else {
                return Err(Error::Limit(format!(
                    "a rank was sent more than {most} bytes at once by another"
                )));
            };
            let rest = bytes.split_off(end);
            bytes.shrink_to_fit();
            self.add_buffer(std::mem::replace(&mut bytes, rest), &messages[..=number], skip)?;
            messages = &messages[number + 1..];
        }
        self.add_buffer(bytes, messages, skip)
    }

    fn add_buffer(&mut self, bytes: Vec<u8>, messages: &[usize], skip: usize) -> Result<()> {
        let malformed = || Error::Internal("a malformed section arrived".into());
        let (mut at, before) = (0, self.sections.len());
        for message in messages {
            let end = at + message;
            at += skip;
            while at < end {
                let (section, rest) = bytes.get(at..end).and_then(Section::split).ok_or_else(malformed)?;
                let body = rest.get(..section.len as usize).ok_or_else(malformed)?;
                if body.is_empty() {
                    return Err(malformed());
                }
                let begin = end - rest.len();
                at = begin + body.len();
                self.check(section, body)?;
                let buffer = self.buffers.len() as u32;
                let place = u32::try_from(begin).map_err(|_| malformed())?;
                let Section { source, len, sub } = section;
                self.sections.push(Came { sub: u32::from(sub), source, buffer, begin: place, len });
            }
        }
        let left = self.sections.len() - before;
        if left > 0 {
            self.buffers.push(Buffer { bytes: RwLock::new(bytes), left: AtomicUsize::new(left) });
        }
        Ok(())
    }

    /// Whole super-k-mers, of a known source and virtual partition? They are counted.
    fn check(&mut self, section: Section, body: &[u8]) -> Result<()> {
        if section.source as usize >= self.sources {
            let what = format!("super-k-mers of an unknown source {}", section.source);
            return Err(Error::Internal(what));
        }
        let totals = self.totals.get_mut(usize::from(section.sub)).ok_or_else(|| {
            Error::Internal(format!("super-k-mers of an unknown virtual partition {}", section.sub))
        })?;
        let (mut at, mut kmers, mut number) = (0, 0, 0);
        while let Some(header) = body.get(at..at + 2) {
            let here = usize::from(u16::from_le_bytes([header[0], header[1]])) & MAX_KMERS;
            if here == 0 {
                break;
            }
            at += encoded_len(here, self.k);
            kmers += here as u64;
            number += 1;
        }
        if at != body.len() {
            return Err(Error::Internal("a malformed super-k-mer arrived".into()));
        }
        totals.kmers += kmers;
        totals.super_kmers += number;
        Ok(())
    }

    /// All have come.
    pub fn sorted(self) -> Sorted {
        let Self { k, buffers, mut sections, totals, least, .. } = self;
        // Stable: they stand in the order they came.
        sections.sort_by_key(|s| (s.sub, s.source));
        let drained = totals.iter().map(|_| AtomicBool::new(false)).collect();
        Sorted { k, buffers, sections, totals, least, drained }
    }
}

/// Super-k-mers by virtual partition, to be drained by one thread or several.
pub struct Sorted {
    k: usize,
    buffers: Vec<Buffer>,
    sections: Vec<Came>,
    totals: Vec<Totals>,
    least: Least,
    drained: Vec<AtomicBool>,
}

impl Sorted {
    /// K-mers, repeats included, drained or not.
    pub fn kmers(&self) -> u64 {
        self.totals.iter().map(|t| t.kmers).sum()
    }

    /// What a virtual partition has, drained or not.
    pub fn totals(&self, sub: usize) -> Totals {
        self.totals[sub]
    }

    /// Every super-k-mer of a virtual partition with its source, in ascending order of source, and within one
    /// in the order they came; where k-mers are [required](Store::require) to occur more than once, what of
    /// it does. Each can be drained once. A buffer is freed when nothing in it is left.
    pub fn drain<W: Word>(
        &self,
        sub: usize,
        frequent: &mut Frequent<W>,
        mut each: impl FnMut(u32, Record<'_>),
    ) {
        if self.drained[sub].swap(true, Ordering::Relaxed) {
            return;
        }
        let begin = self.sections.partition_point(|s| (s.sub as usize) < sub);
        let end = self.sections.partition_point(|s| s.sub as usize <= sub);
        for sections in self.sections[begin..end].chunk_by(|a, b| a.source == b.source) {
            let (source, k) = (sections[0].source, self.k);
            let least = self.least.of(source);
            if least > 1 {
                frequent.clear();
                sections.iter().for_each(|&section| self.visit(section, |r| frequent.count(r, k)));
            }
            for &section in sections {
                self.visit(section, |record| match least {
                    0 | 1 => each(source, record),
                    _ => frequent.filter(record, k, least, |record| each(source, record)),
                });
                let buffer = &self.buffers[section.buffer as usize];
                if buffer.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    *buffer.bytes.write().unwrap_or_else(PoisonError::into_inner) = Vec::new();
                }
            }
        }
    }

    /// Every super-k-mer of a section.
    #[inline]
    fn visit(&self, section: Came, mut each: impl FnMut(Record<'_>)) {
        let buffer = &self.buffers[section.buffer as usize];
        let bytes = buffer.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let mut rest = &bytes[section.begin as usize..][..section.len as usize];
        while let [a, b, body @ ..] = rest {
            let header = u16::from_le_bytes([*a, *b]);
            let kmers = usize::from(header) & MAX_KMERS;
            let (bases, more) = body.split_at(packed::bytes_for(kmers + self.k - 1));
            each(Record { flags: header & !(MAX_KMERS as u16), kmers, bases });
            rest = more;
        }
    }
}

/// Every k-mer of a super-k-mer, and whether this virtual partition owns it: counts and stores it.
#[inline]
pub fn each_kmer<W: Word>(record: Record<'_>, k: usize, mut each: impl FnMut(Oriented<W>, bool)) {
    let Record { flags, kmers, bases } = record;
    let left_is_ghost = flags & (LEFT_FOREIGN | LEFT_OWNED) == LEFT_FOREIGN;
    let right_is_ghost = flags & (RIGHT_FOREIGN | RIGHT_OWNED) == RIGHT_FOREIGN;
    let mut kmer = Oriented::new(packed::word(bases, 0, k - 1), k);
    for index in 0..kmers {
        kmer = kmer.right(packed::get(bases, index + k - 1), k);
        let ghost = (index == 0 && left_is_ghost) || (index + 1 == kmers && right_is_ghost);
        each(kmer, !ghost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superkmer::window::Section;

    /// What is drained: source and bases of each super-k-mer.
    fn drained(store: Store) -> Vec<(u32, Vec<u8>)> {
        let (sorted, mut all) = (store.sorted(), Vec::new());
        sorted.drain(0, &mut Frequent::<u64>::default(), |source, record| {
            all.push((source, record.bases.to_vec()))
        });
        all
    }

    #[test]
    fn more_than_a_buffer_can_count_is_kept_in_several() {
        let message = |number: u32| {
            let kmers = 1 + number as u16 % 7;
            let bases = vec![number as u8; packed::bytes_for(usize::from(kmers) + 4)];
            let body = [&kmers.to_le_bytes()[..], &bases].concat();
            let section = Section { source: number % 3, len: body.len() as u32, sub: 0 };
            [&[9][..], &section.to_bytes(), &body].concat()
        };
        let messages: Vec<Vec<u8>> = (0..20).map(message).collect();
        let lens: Vec<usize> = messages.iter().map(Vec::len).collect();
        let longest = *lens.iter().max().expect("some");
        let kept = |most| {
            let mut store = Store::new(5, 3, 1);
            store.add_in_parts(messages.concat(), &lens, 1, most)?;
            let buffers = store.buffers.len();
            Ok::<_, Error>((drained(store), buffers))
        };
        let (whole, one) = kept(1 << 20).expect("kept");
        assert_eq!((whole.len(), one), (20, 1));
        for most in [longest, longest + 1, 60, 100] {
            let (parts, buffers) = kept(most).expect("kept");
            assert!(parts == whole && buffers > 1, "{most}: {buffers}");
        }
        assert!(matches!(kept(longest - 1), Err(Error::Limit(_))));
    }
}
