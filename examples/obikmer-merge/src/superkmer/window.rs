//! What gathers between two exchanges, and the messages made of it.
//!
//! A window keeps the sequences once, packed one after another, and for each super-k-mer only where it
//! begins. The bytes that travel are cut out when the window is full, straight to their places in the
//! messages: a counting sort by virtual partition and source, from and to two buffers that are used again for
//! every window. What is for the rank itself is not sent.
//!
//! A message: a byte of status, then sections of one source and one virtual partition of the receiver, in
//! ascending order of the latter: `u32` source, `u32` bytes, `u16` virtual partition, little-endian; then
//! super-k-mers.

use crate::sequence::minimizer::Partitions;
use crate::sequence::packed;
use crate::superkmer::cut::{MAX_KMERS, encoded_len};

/// Bytes of a section's header.
pub const SECTION: usize = 10;

/// The header of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Number of the source.
    pub source: u32,
    /// Bytes of the super-k-mers.
    pub len: u32,
    /// The virtual partition, among those of the rank.
    pub sub: u16,
}

impl Section {
    /// As it travels.
    pub fn to_bytes(self) -> [u8; SECTION] {
        let mut bytes = [0; SECTION];
        bytes[..4].copy_from_slice(&self.source.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sub.to_le_bytes());
        bytes
    }

    /// From as many bytes as it has, and what follows them.
    pub fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[a, b, c, d, e, f, g, h, i, j], rest) = bytes.split_first_chunk::<SECTION>()?;
        let (source, len) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        Some((Self { source, len, sub: u16::from_le_bytes([i, j]) }, rest))
    }
}

/// A super-k-mer of the window.
struct Entry {
    virtual_partition: u32,
    /// Where it begins, in bases.
    at: u32,
    header: u16,
}

/// Super-k-mers of one source that came one after another.
struct Stretch {
    source: u32,
    begin: usize,
    end: usize,
}

/// Where the messages are being written.
#[derive(Clone, Copy)]
struct Cursor {
    /// The next super-k-mer, in bytes.
    at: u32,
    /// The open section, and its source; before the first: [`u32::MAX`].
    section: u32,
    source: u32,
}

/// A window's content, ready to go.
pub struct Messages<'a> {
    /// The messages to all ranks one after another; to this one only the status.
    pub data: &'a [u8],
    /// Bytes of each.
    pub counts: &'a [usize],
    /// The sections for this rank, which need not travel.
    pub own: &'a [u8],
}

const NO_SOURCE: u32 = u32::MAX;

/// See the module.
pub struct Window {
    k: usize,
    partitions: Partitions,
    rank: usize,
    source: u32,
    /// The sequences, each on a byte boundary.
    bases: Vec<u8>,
    /// Where the present one begins, in bases.
    run: usize,
    entries: Vec<Entry>,
    stretches: Vec<Stretch>,
    /// What the super-k-mers will have in bytes.
    bytes: usize,
    cursors: Vec<Cursor>,
    data: Vec<u8>,
    counts: Vec<usize>,
}

impl Window {
    /// An empty one, of this rank.
    pub fn new(k: usize, partitions: Partitions, rank: usize) -> Self {
        Self {
            k,
            partitions,
            rank,
            source: 0,
            bases: Vec::new(),
            run: 0,
            entries: Vec::new(),
            stretches: Vec::new(),
            bytes: 0,
            cursors: vec![Cursor { at: 0, section: 0, source: NO_SOURCE }; partitions.count()],
            data: Vec::new(),
            counts: Vec::with_capacity(partitions.ranks()),
        }
    }

    /// Bytes of the super-k-mers gathered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What follows is of this source.
    pub fn set_source(&mut self, source: u32) {
        self.close_stretch();
        self.source = source;
    }

    fn close_stretch(&mut self) {
        let begin = self.stretches.last().map_or(0, |s| s.end);
        if begin < self.entries.len() {
            self.stretches.push(Stretch { source: self.source, begin, end: self.entries.len() });
        }
    }

    /// A sequence of codes that super-k-mers are cut from.
    pub fn run(&mut self, codes: &[u8]) {
        self.run = 4 * self.bases.len();
        packed::pack(codes, &mut self.bases);
    }

    /// A super-k-mer that begins at a base of the sequence.
    #[inline]
    pub fn super_kmer(&mut self, virtual_partition: usize, first: usize, header: u16) {
        self.bytes += encoded_len(header as usize & MAX_KMERS, self.k);
        let (virtual_partition, at) = (virtual_partition as u32, (self.run + first) as u32);
        self.entries.push(Entry { virtual_partition, at, header });
    }

    /// What is to be sent and what is to be kept. The window is empty afterwards.
    pub fn take(&mut self, status: u8) -> Messages<'_> {
        self.close_stretch();
        self.stretches.sort_by_key(|s| s.source);
        let total = self.lay_out(status);
        // What was there is written over, every byte of it.
        if self.data.len() < total {
            self.data.resize(total, 0);
        }
        self.write(status);
        self.bases.clear();
        self.entries.clear();
        self.stretches.clear();
        self.bytes = 0;
        let (data, own) = self.data[..total].split_at(self.counts.iter().sum());
        Messages { data, counts: &self.counts, own }
    }

    /// Where everything goes: every virtual partition's first byte into its cursor, and the bytes of all.
    fn lay_out(&mut self, status: u8) -> usize {
        let k = self.k;
        self.cursors.fill(Cursor { at: 0, section: 0, source: NO_SOURCE });
        for stretch in &self.stretches {
            for entry in &self.entries[stretch.begin..stretch.end] {
                let cursor = &mut self.cursors[entry.virtual_partition as usize];
                let section = if cursor.source == stretch.source { 0 } else { SECTION };
                cursor.source = stretch.source;
                cursor.at += (section + encoded_len(entry.header as usize & MAX_KMERS, k)) as u32;
            }
        }
        self.counts.clear();
        let (subs, mut total) = (self.partitions.subs(), 0);
        for (rank, cursors) in self.cursors.chunks_mut(subs).enumerate() {
            let begin = total;
            total += size_of_val(&status);
            if rank != self.rank {
                total = place(cursors, total);
            }
            self.counts.push(total - begin);
        }
        place(&mut self.cursors[self.rank * subs..][..subs], total)
    }

    fn write(&mut self, status: u8) {
        let data = &mut self.data[..];
        let mut at = 0;
        for count in &self.counts {
            data[at] = status;
            at += count;
        }
        // So that sixteen bytes can be read wherever a super-k-mer begins.
        self.bases.extend_from_slice(&[0; 16]);
        for stretch in &self.stretches {
            for entry in &self.entries[stretch.begin..stretch.end] {
                let number = entry.virtual_partition as usize;
                let cursor = &mut self.cursors[number];
                if cursor.source != stretch.source {
                    close(data, cursor, self.partitions.sub_of(number));
                    *cursor =
                        Cursor { at: cursor.at + SECTION as u32, section: cursor.at, source: stretch.source };
                }
                let bases = (entry.header as usize & MAX_KMERS) + self.k - 1;
                let len = 2 + packed::bytes_for(bases);
                let out = &mut data[cursor.at as usize..][..len];
                put(&self.bases, entry.at as usize, bases, entry.header, out);
                cursor.at += len as u32;
            }
        }
        for (number, cursor) in self.cursors.iter().enumerate() {
            close(data, cursor, self.partitions.sub_of(number));
        }
    }
}

/// One after another from `at` on; where they end.
fn place(cursors: &mut [Cursor], mut at: usize) -> usize {
    for cursor in cursors {
        let len = cursor.at as usize;
        *cursor = Cursor { at: at as u32, section: 0, source: NO_SOURCE };
        at += len;
    }
    at
}

/// Write the header of the section that is open.
fn close(data: &mut [u8], cursor: &Cursor, sub: usize) {
    if cursor.source != NO_SOURCE {
        let begin = cursor.section as usize;
        let len = cursor.at - cursor.section - SECTION as u32;
        let section = Section { source: cursor.source, len, sub: sub as u16 };
        data[begin..begin + SECTION].copy_from_slice(&section.to_bytes());
    }
}

/// A super-k-mer of `bases` bases from `at` on, as it travels, into as many bytes as it has. Unused bits are
/// zero.
#[inline]
fn put(packed: &[u8], at: usize, bases: usize, header: u16, out: &mut [u8]) {
    let len = out.len();
    if let 8..=16 = len
        && let Some(bytes) = packed.get(at / 4..).and_then(|p| p.first_chunk::<16>())
    {
        // At most 56 bases: with the three before them in one load. Two stores that overlap do for every
        // length.
        let bases = (u128::from_be_bytes(*bytes) << (2 * (at % 4))) & (u128::MAX << (128 - 2 * bases));
        let all = u128::from_le_bytes(bases.to_be_bytes()) << 16 | u128::from(header);
        let (first, last) = (all as u64, (all >> (8 * (len - 8))) as u64);
        out[..8].copy_from_slice(&first.to_le_bytes());
        out[len - 8..].copy_from_slice(&last.to_le_bytes());
        return;
    }
    out[..2].copy_from_slice(&header.to_le_bytes());
    let mut done = 0;
    for part in out[2..].chunks_mut(8) {
        let now = (bases - done).min(32);
        let word = packed::word::<u64>(packed, at + done, now) << (64 - 2 * now);
        part.copy_from_slice(&word.to_be_bytes()[..part.len()]);
        done += now;
    }
}
