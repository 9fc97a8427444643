//! The exchange of a part from each rank to each rank, at a cost that depends on the parts that are not
//! empty.
//!
//! A rank deposits its *index*, a word for each part that is not empty (for whom, bytes), and behind it those
//! parts. Who arrives last sorts the indexes by receiver, so that a receiver reads its own list, where each
//! of its parts lies, and then those parts. (If it read all indexes itself, an exchange would take ranks²
//! system calls however little there was to exchange.) Where parts are shorter than what a system call costs,
//! the list has the parts themselves behind it.
//!
//! | sorted | words |
//! |---|---|
//! | ends | one for each rank: where its list ends, in words from the beginning of all lists; the first list begins at 0 |
//! | lists | twice the number of parts *n*, and 1 if the parts follow; *n* entries (from whom, bytes); then either *n* offsets into the senders' deposits, or the parts, filled up to a whole word |
//!
//! Nothing at all is stored if every part is empty. 16 bytes for each part that is not are
//! in the memory of the rank that arrives last, and up to [`SHORT`] more for its bytes.

use bytemuck::Pod;

use crate::backend::Parts;
use crate::{Communicator, Error, Result};

const CALL: &str = "alltoallv";
/// Bits of an entry that say how many bytes a part has; those above are a rank.
const LENGTH_BITS: u32 = 48;
/// Parts that have no more bytes than this on average are sorted with their entries.
const SHORT: usize = 64;

/// What came from each rank in an exchange. Given to the next one, its memory is used again.
#[derive(Clone, Debug)]
pub struct Received<T> {
    /// At least as long as what came.
    data: Vec<T>,
    /// Where in `data` the part of each rank ends.
    ends: Vec<usize>,
}

impl<T> Default for Received<T> {
    fn default() -> Self {
        Self { data: Vec::new(), ends: Vec::new() }
    }
}

impl<T: Pod> Received<T> {
    /// Nothing, without memory.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// assert!(bdrun_worker::Received::<u64>::new().data().is_empty());
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// What came, in rank order.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// # let mut received = bdrun_worker::Received::new();
    /// # let parts = vec![[comm.rank(), 7]; comm.size()];
    /// # comm.alltoallv_into(parts.iter().map(|part| &part[..]), &mut received)?;
    /// // Every rank has sent two elements to each: its number, and 7.
    /// assert_eq!(received.data().len(), 2 * comm.size());
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn data(&self) -> &[T] {
        &self.data[..self.ends.last().copied().unwrap_or(0)]
    }

    /// The part of `rank`.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// # let mut received = bdrun_worker::Received::new();
    /// # let parts = vec![[comm.rank(), 7]; comm.size()];
    /// # comm.alltoallv_into(parts.iter().map(|part| &part[..]), &mut received)?;
    /// // Every rank has sent two elements to each: its number, and 7.
    /// assert_eq!(received.from(comm.size() - 1), [comm.size() - 1, 7]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the exchange had no such rank.
    pub fn from(&self, rank: usize) -> &[T] {
        &self.data[self.begin(rank)..self.ends[rank]]
    }

    /// The parts of all ranks, in rank order.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// # let mut received = bdrun_worker::Received::new();
    /// # let parts = vec![[comm.rank(), 7]; comm.size()];
    /// # comm.alltoallv_into(parts.iter().map(|part| &part[..]), &mut received)?;
    /// // Every rank has sent two elements to each: its number, and 7.
    /// for (rank, part) in received.parts().enumerate() {
    ///     assert_eq!(part, [rank, 7]);
    /// }
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[T]> {
        (0..self.ends.len()).map(|rank| self.from(rank))
    }

    /// What came, in rank order, and how many elements of each rank.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// # let mut received = bdrun_worker::Received::new();
    /// # let parts = vec![[comm.rank(), 7]; comm.size()];
    /// # comm.alltoallv_into(parts.iter().map(|part| &part[..]), &mut received)?;
    /// // Every rank has sent two elements to each: its number, and 7.
    /// let (data, counts) = received.into_vec();
    /// assert_eq!((data.len(), counts), (2 * comm.size(), vec![2; comm.size()]));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    pub fn into_vec(mut self) -> (Vec<T>, Vec<usize>) {
        let counts = self.parts().map(<[T]>::len).collect();
        self.data.truncate(self.data().len());
        (self.data, counts)
    }

    fn begin(&self, rank: usize) -> usize {
        rank.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Room for exactly the parts of these lengths; what they hold is of the exchange before.
    fn fit(&mut self, counts: impl Iterator<Item = usize>) {
        let mut end = 0;
        self.ends.clear();
        self.ends.extend(counts.map(|count| {
            end += count;
            end
        }));
        if self.data.len() < end {
            // Fresh memory that reads as zeros is not touched twice, and the old is given back first.
            self.data = Vec::new();
            self.data = vec![T::zeroed(); end];
        }
    }

    /// Room for the part of each rank.
    fn each_mut(&mut self) -> Vec<&mut [u8]> {
        let (mut rest, mut begin) = (&mut self.data[..], 0);
        let each = self.ends.iter().map(|&end| {
            let (part, more) = std::mem::take(&mut rest).split_at_mut(end - begin);
            (rest, begin) = (more, end);
            bytemuck::cast_slice_mut(part)
        });
        each.collect()
    }
}

fn entry(rank: usize, bytes: usize) -> u64 {
    (rank as u64) << LENGTH_BITS | bytes as u64
}

/// Rank and bytes of an entry.
fn taken_apart(entry: u64) -> (usize, usize) {
    ((entry >> LENGTH_BITS) as usize, (entry & ((1 << LENGTH_BITS) - 1)) as usize)
}

fn malformed(from: usize) -> Error {
    Error::Runtime(format!("{CALL}: the part of rank {from} is malformed"))
}

/// The indexes of all ranks.
struct Indexes {
    /// What the ranks deposited first, in rank order; without the numbers of entries.
    entries: Vec<u64>,
    /// Where the entries of each rank end.
    ends: Vec<usize>,
    bytes: usize,
}

impl Indexes {
    fn read(parts: &dyn Parts, size: usize) -> Result<Self> {
        let mut all = Self { entries: Vec::new(), ends: Vec::with_capacity(size), bytes: 0 };
        let mut words = vec![0u64; size + 1];
        for from in 0..size {
            // At least the index; what lies behind it is not looked at.
            let here = parts.len(from).min(8 * words.len()) / 8;
            if here > 0 {
                parts.read(from, 0, bytemuck::cast_slice_mut(&mut words[..here]))?;
                let index = usize::try_from(words[0]).ok().and_then(|n| words[1..here].get(..n));
                let index = index.ok_or_else(|| malformed(from))?;
                let bytes: usize = index.iter().map(|&e| taken_apart(e).1).sum();
                let all_ranks = index.iter().all(|&e| taken_apart(e).0 < size);
                if !all_ranks || bytes.checked_add(8 * (1 + index.len())) != Some(parts.len(from)) {
                    return Err(malformed(from));
                }
                all.entries.extend_from_slice(index);
                all.bytes += bytes;
            }
            all.ends.push(all.entries.len());
        }
        Ok(all)
    }

    /// The entries of each rank.
    fn each(&self) -> impl Iterator<Item = (usize, &[u64])> {
        self.ends.iter().enumerate().map(|(from, &end)| {
            let begin = from.checked_sub(1).map_or(0, |before| self.ends[before]);
            (from, &self.entries[begin..end])
        })
    }
}

/// By the rank that arrives last: see the head of this file.
fn sorted(parts: &dyn Parts, size: usize) -> Result<Vec<u8>> {
    let indexes = Indexes::read(parts, size)?;
    if indexes.entries.is_empty() {
        return Ok(Vec::new());
    }
    let with_parts = indexes.bytes <= SHORT * indexes.entries.len();
    // Of each receiver: parts, bytes; later where the next entry and the next offset or part go.
    let mut next = vec![[0usize; 2]; size];
    for &e in &indexes.entries {
        let (to, bytes) = taken_apart(e);
        next[to] = [next[to][0] + 1, next[to][1] + bytes];
    }
    let words: usize = next.iter().map(|&[n, bytes]| list_words(n, bytes, with_parts)).sum();
    let mut out = vec![0u8; 8 * (size + words)];
    let put = |out: &mut [u8], at: usize, word: u64| out[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    let mut at = size;
    for (to, next) in next.iter_mut().enumerate() {
        let [n, bytes] = *next;
        put(&mut out, 8 * at, 2 * n as u64 + u64::from(with_parts));
        *next = [8 * (at + 1), 8 * (at + 1 + n)];
        at += list_words(n, bytes, with_parts);
        put(&mut out, 8 * to, (at - size) as u64);
    }
    let mut data: Vec<u8> = Vec::new();
    for (from, index) in indexes.each() {
        let begin = 8 * (1 + index.len());
        let mut offset = begin;
        if with_parts && !index.is_empty() {
            data.resize(parts.len(from) - begin, 0);
            parts.read(from, begin, &mut data)?;
        }
        for &e in index {
            let (to, bytes) = taken_apart(e);
            let [entries, behind] = &mut next[to];
            put(&mut out, *entries, entry(from, bytes));
            *entries += 8;
            if with_parts {
                out[*behind..*behind + bytes].copy_from_slice(&data[offset - begin..offset - begin + bytes]);
                *behind += bytes;
            } else {
                put(&mut out, *behind, offset as u64);
                *behind += 8;
            }
            offset += bytes;
        }
    }
    Ok(out)
}

/// Words of the list of a receiver.
fn list_words(parts: usize, bytes: usize, with_parts: bool) -> usize {
    1 + parts + if with_parts { bytes.div_ceil(8) } else { parts }
}

/// By every rank: its list, and its parts into `into`.
fn take<T: Pod>(parts: &dyn Parts, rank: usize, size: usize, into: &mut Received<T>) -> Result<()> {
    let element = size_of::<T>();
    let total = parts.folded_len();
    if total == 0 {
        into.fit((0..size).map(|_| 0));
        return Ok(());
    }
    let bad = || Error::Runtime(format!("{CALL}: the list of rank {rank} is malformed"));
    let mut ends = [0u64; 2];
    let before = rank.min(1);
    parts.read_folded(8 * (rank - before), bytemuck::cast_slice_mut(&mut ends[1 - before..]))?;
    let [begin, end] = ends.map(|end| end as usize);
    if begin >= end || end > total / 8 {
        return Err(bad());
    }
    let mut list = vec![0u64; end - begin];
    parts.read_folded(8 * (size + begin), bytemuck::cast_slice_mut(&mut list))?;
    let (n, with_parts) = ((list[0] / 2) as usize, list[0] % 2 == 1);
    let (entries, behind) = list[1..].split_at_checked(n).ok_or_else(bad)?;
    let mut counts = vec![0usize; size];
    let mut bytes_here = 0;
    for &e in entries {
        let (from, bytes) = taken_apart(e);
        if from >= size || bytes > parts.len(from) {
            return Err(bad());
        }
        if element == 0 || !bytes.is_multiple_of(element) {
            return Err(Error::ElementSize { call: CALL, from, bytes, size: element });
        }
        counts[from] = bytes / element;
        bytes_here += bytes;
    }
    if list_words(n, bytes_here, with_parts) != list.len() {
        return Err(bad());
    }
    into.fit(counts.iter().copied());
    let mut short: &[u8] = bytemuck::cast_slice(behind);
    let mut room = into.each_mut();
    let mut wanted = Vec::new();
    for (i, &e) in entries.iter().enumerate() {
        let (from, bytes) = taken_apart(e);
        let to = std::mem::take(&mut room[from]);
        if to.len() != bytes {
            return Err(bad()); // two entries of one rank
        }
        if with_parts {
            let (part, rest) = short.split_at_checked(bytes).ok_or_else(bad)?;
            to.copy_from_slice(part);
            short = rest;
        } else {
            wanted.push((from, behind[i] as usize, to));
        }
    }
    parts.read_all(wanted)
}

impl Communicator {
    /// An equally long part from each rank to each rank: part `r` of `data` goes to rank `r`.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let data: Vec<usize> = (0..size).map(|to| 100 * rank + to).collect();
    /// let got = comm.alltoall(&data)?;
    /// assert!(got.into_iter().eq((0..size).map(|from| 100 * from + rank)));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn alltoall<T: Pod>(&self, data: &[T]) -> Result<Vec<T>> {
        let size = self.size();
        if !data.len().is_multiple_of(size) {
            let what = format!("{} elements cannot be cut for {size} ranks", data.len());
            return Err(Error::Argument { call: "alltoall", what });
        }
        let (all, counts) = self.alltoallv(data, &vec![data.len() / size; size])?;
        crate::collective::equal("alltoall", &counts)?;
        Ok(all)
    }

    /// A part from each rank to each rank: the first `counts[0]` elements of `data` go to rank 0, and so on.
    /// What came, in rank order, and how many elements from each.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // Nothing for rank 0, one element for rank 1, and so on.
    /// let counts: Vec<usize> = (0..comm.size()).collect();
    /// let data = vec![comm.rank(); counts.iter().sum()];
    /// let (got, counts) = comm.alltoallv(&data, &counts)?;
    /// assert_eq!(counts, vec![comm.rank(); comm.size()]);
    /// assert!(got.is_sorted());
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn alltoallv<T: Pod>(&self, data: &[T], counts: &[usize]) -> Result<(Vec<T>, Vec<usize>)> {
        let sum: usize = counts.iter().sum();
        if sum != data.len() {
            let what = format!("counts add up to {sum}, data has {}", data.len());
            return Err(Error::Argument { call: CALL, what });
        }
        let mut rest = data;
        let mut received = Received::new();
        let parts = counts.iter().map(|&count| {
            let (part, more) = rest.split_at(count);
            rest = more;
            part
        });
        self.alltoallv_into(parts, &mut received)?;
        Ok(received.into_vec())
    }

    /// A part from each rank to each rank: `parts` are those for rank 0, rank 1, and so on. What came is in
    /// `into`, whose memory is used again where there is enough; after an error it holds nothing of use. What
    /// is sent and received is copied once each, and an empty part costs nothing.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// use bdrun_worker::Received;
    ///
    /// let mut received = Received::new();
    /// for round in 0..3u64 {
    ///     let parts: Vec<Vec<u64>> = (0..comm.size()).map(|to| vec![round; to]).collect();
    ///     comm.alltoallv_into(parts.iter().map(Vec::as_slice), &mut received)?;
    ///     assert_eq!(received.from(0), vec![round; comm.rank()]);
    /// }
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn alltoallv_into<'a, T: Pod>(
        &self,
        parts: impl IntoIterator<Item = &'a [T]>,
        into: &mut Received<T>,
    ) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let mut index = vec![0u64];
        let mut pieces: Vec<&[u8]> = vec![&[]];
        let mut given = 0;
        for part in parts {
            let bytes: &[u8] = bytemuck::cast_slice(part);
            if given >= 1 << (64 - LENGTH_BITS) || bytes.len() >= 1 << LENGTH_BITS {
                let what =
                    format!("{} bytes for rank {given} are more than an exchange can move", bytes.len());
                return Err(Error::Argument { call: CALL, what });
            }
            if !bytes.is_empty() {
                index.push(entry(given, bytes.len()));
                pieces.push(bytes);
            }
            given += 1;
        }
        if given != size {
            let what = format!("{given} parts for {size} ranks");
            return Err(Error::Argument { call: CALL, what });
        }
        index[0] = index.len() as u64 - 1;
        if pieces.len() > 1 {
            pieces[0] = bytemuck::cast_slice(&index);
        }
        if self.backend.memory_is_wanted() {
            // What it holds is of no use any more, and would be written to scratch.
            *into = Received::new();
        }
        self.waiting().collective(CALL, &pieces, Some(&mut |parts| sorted(parts, size)), &mut |parts| {
            take(parts, rank, size, into)
        })
    }
}
