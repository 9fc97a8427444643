//! The typed collectives (MPI 4.1, chapter 6), each written once over [`Backend::collective`]: deposit, wait
//! until all have, read. Reductions combine in rank order, so that a result does not depend on timing.
//!
//! [`Backend::collective`]: crate::backend::Backend::collective

use bytemuck::Pod;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::{Parts, check_rank};
use crate::communicator::{decode, encode};
use crate::{Communicator, Error, Result};

/// Whole elements of a part, appended to `out`; how many.
fn append<T: Pod>(
    call: &'static str,
    parts: &dyn Parts,
    from: usize,
    offset: usize,
    bytes: usize,
    out: &mut Vec<T>,
) -> Result<usize> {
    let size = size_of::<T>();
    if size == 0 || !bytes.is_multiple_of(size) {
        return Err(Error::ElementSize { call, from, bytes, size });
    }
    let old = out.len();
    out.resize(old + bytes / size, T::zeroed());
    parts.read(from, offset, bytemuck::cast_slice_mut(&mut out[old..]))?;
    Ok(bytes / size)
}

/// By the rank that arrives last: the parts of all ranks in one, if they are neither so short that they need
/// no system call nor so long that one for each does not matter; else nothing.
fn joined(parts: &dyn Parts, size: usize) -> Result<Vec<u8>> {
    const SHORT: usize = 64;
    const LONG: usize = 16 << 10;
    let total: usize = (0..size).map(|r| parts.len(r)).sum();
    if total <= SHORT * size || total > LONG * size {
        return Ok(Vec::new());
    }
    let mut all = vec![0u8; total];
    read_each(parts, size, &mut all)?;
    Ok(all)
}

/// The parts of all ranks, one behind the other.
fn read_each(parts: &dyn Parts, size: usize, into: &mut [u8]) -> Result<()> {
    let mut rest = into;
    let mut wanted = Vec::with_capacity(size);
    for rank in 0..size {
        let (part, more) = std::mem::take(&mut rest).split_at_mut(parts.len(rank));
        wanted.push((rank, 0, part));
        rest = more;
    }
    parts.read_all(wanted)
}

/// What `joined` made, and how many elements of each rank.
fn everything_joined<T: Pod>(
    call: &'static str,
    parts: &dyn Parts,
    size: usize,
) -> Result<(Vec<T>, Vec<usize>)> {
    let (mut all, counts) = room_for_all(call, parts, size)?;
    parts.read_folded(0, bytemuck::cast_slice_mut(&mut all))?;
    Ok((all, counts))
}

/// Room for all elements of all parts, so that gathering allocates once, and how many each rank has.
fn room_for_all<T: Pod>(call: &'static str, parts: &dyn Parts, size: usize) -> Result<(Vec<T>, Vec<usize>)> {
    let element = size_of::<T>();
    let counts: Result<Vec<usize>> = (0..size)
        .map(|from| match parts.len(from) {
            bytes if element > 0 && bytes.is_multiple_of(element) => Ok(bytes / element),
            bytes => Err(Error::ElementSize { call, from, bytes, size: element }),
        })
        .collect();
    let counts = counts?;
    Ok((vec![T::zeroed(); counts.iter().sum()], counts))
}

/// Parts combined element by element in rank order.
fn fold_parts<T: Pod>(
    call: &'static str,
    parts: &dyn Parts,
    ranks: std::ops::Range<usize>,
    op: &dyn Fn(T, T) -> T,
) -> Result<Vec<T>> {
    /// Bytes of parts that are read at a time.
    const AT_A_TIME: usize = 1 << 20;
    if ranks.is_empty() {
        return Ok(Vec::new());
    }
    let (element, bytes) = (size_of::<T>(), parts.len(ranks.start));
    if element == 0 || !bytes.is_multiple_of(element) {
        return Err(Error::ElementSize { call, from: ranks.start, bytes, size: element });
    }
    let each = bytes / element;
    if let Some(rank) = ranks.clone().find(|&rank| parts.len(rank) != bytes) {
        let what =
            format!("rank {rank} gave {} elements, rank {} {each}", parts.len(rank) / element, ranks.start);
        return Err(Error::Argument { call, what });
    }
    let mut total = vec![T::zeroed(); each];
    parts.read(ranks.start, 0, bytemuck::cast_slice_mut(&mut total))?;
    let group = (AT_A_TIME / bytes.max(1)).clamp(1, ranks.len().max(1));
    let mut next = vec![T::zeroed(); group * each];
    let mut rank = ranks.start + 1;
    while rank < ranks.end && each > 0 {
        let now = group.min(ranks.end - rank);
        let wanted = next.chunks_exact_mut(each).zip(rank..rank + now);
        parts.read_all(wanted.map(|(into, rank)| (rank, 0, bytemuck::cast_slice_mut(into))).collect())?;
        for part in next.chunks_exact(each).take(now) {
            for (a, b) in total.iter_mut().zip(part) {
                *a = op(*a, *b);
            }
        }
        rank += now;
    }
    Ok(total)
}

/// A part cut for every rank: `size + 1` cumulated byte offsets, then the data.
fn cut_offsets<T: Pod>(call: &'static str, data: &[T], counts: &[usize], size: usize) -> Result<Vec<u64>> {
    if counts.len() != size {
        let what = format!("{} counts for {size} ranks", counts.len());
        return Err(Error::Argument { call, what });
    }
    let mut at = 8 * (size as u64 + 1);
    let mut offsets = Vec::with_capacity(size + 1);
    offsets.push(at);
    for &count in counts {
        at += (count * size_of::<T>()) as u64;
        offsets.push(at);
    }
    if counts.iter().sum::<usize>() != data.len() {
        let what = format!("counts add up to {}, data has {}", counts.iter().sum::<usize>(), data.len());
        return Err(Error::Argument { call, what });
    }
    Ok(offsets)
}

/// What a cut part holds for `rank`: offset and bytes.
fn cut_for(
    call: &'static str,
    parts: &dyn Parts,
    from: usize,
    rank: usize,
    size: usize,
) -> Result<(usize, usize)> {
    let bad = || Error::Runtime(format!("{call}: the part of rank {from} is malformed"));
    if parts.len(from) < 8 * (size + 1) {
        return Err(bad());
    }
    let mut pair = [0u64; 2];
    parts.read(from, 8 * rank, bytemuck::cast_slice_mut(&mut pair))?;
    let [begin, end] = pair.map(|x| x as usize);
    if begin <= end && end <= parts.len(from) { Ok((begin, end - begin)) } else { Err(bad()) }
}

impl Communicator {
    /// Wait until every rank is here.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // … each rank writes its file …
    /// comm.barrier()?;
    /// // … now each may read those of all …
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.waiting().collective("barrier", &[], None, &mut |_| Ok(()))
    }

    /// `data` of rank `root` for everybody; the others' vectors are replaced.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let mut table = if comm.rank() == 0 { vec![3u64, 1, 4] } else { Vec::new() };
    /// comm.broadcast(0, &mut table)?;
    /// assert_eq!(table, [3, 1, 4]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast<T: Pod>(&self, root: usize, data: &mut Vec<T>) -> Result<()> {
        check_rank("broadcast", root, self.size())?;
        let mine = self.rank() == root;
        let part: &[u8] = if mine { bytemuck::cast_slice(data) } else { &[] };
        let mut got = Vec::new();
        self.waiting().collective("broadcast", &[part], None, &mut |parts| {
            if !mine {
                append("broadcast", parts, root, 0, parts.len(root), &mut got)?;
            }
            Ok(())
        })?;
        if !mine {
            *data = got;
        }
        Ok(())
    }

    /// A serde value of rank `root` (which passes `Some`) for everybody.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let settings = (comm.rank() == 0).then(|| (String::from("exact"), 31));
    /// let (mode, k) = comm.broadcast_value(0, settings)?;
    /// assert_eq!((mode.as_str(), k), ("exact", 31));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_value<V: Serialize + DeserializeOwned>(
        &self,
        root: usize,
        value: Option<V>,
    ) -> Result<V> {
        let call = "broadcast_value";
        let mut bytes = match (&value, self.rank() == root) {
            (Some(v), true) => encode(call, v)?,
            (None, true) => {
                return Err(Error::Argument { call, what: "the root passed no value".into() });
            }
            (_, false) => Vec::new(),
        };
        self.broadcast(root, &mut bytes)?;
        match value {
            Some(v) if self.rank() == root => Ok(v),
            _ => decode(call, &bytes),
        }
    }

    /// Element-wise combination over all ranks, in rank order, for rank `root`; `None` elsewhere.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let last = comm.size() - 1;
    /// let most = comm.reduce(last, &[comm.rank() as u64, 7], u64::max)?;
    /// assert_eq!(most, (comm.rank() == last).then(|| vec![last as u64, 7]));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn reduce<T: Pod>(&self, root: usize, data: &[T], op: impl Fn(T, T) -> T) -> Result<Option<Vec<T>>> {
        check_rank("reduce", root, self.size())?;
        let mut total = None;
        self.waiting().collective("reduce", &[bytemuck::cast_slice(data)], None, &mut |parts| {
            if self.rank() == root {
                total = Some(fold_parts("reduce", parts, 0..self.size(), &op)?);
            }
            Ok(())
        })?;
        Ok(total)
    }

    /// Element-wise combination over all ranks, in rank order, for everybody.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let size = comm.size() as u64;
    /// let sums = comm.allreduce(&[1, comm.rank() as u64], |a, b| a + b)?;
    /// assert_eq!(sums, [size, size * (size - 1) / 2]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn allreduce<T: Pod>(&self, data: &[T], op: impl Fn(T, T) -> T) -> Result<Vec<T>> {
        let mut total = vec![T::zeroed(); data.len()];
        self.waiting().collective(
            "allreduce",
            &[bytemuck::cast_slice(data)],
            Some(&mut |parts| {
                let all = fold_parts("allreduce", parts, 0..self.size(), &op)?;
                Ok(bytemuck::cast_slice(&all).to_vec())
            }),
            &mut |parts| {
                let into: &mut [u8] = bytemuck::cast_slice_mut(&mut total);
                if parts.folded_len() != into.len() {
                    let what = format!("{} bytes here, {} in the result", into.len(), parts.folded_len());
                    return Err(Error::Argument { call: "allreduce", what });
                }
                parts.read_folded(0, into)
            },
        )?;
        Ok(total)
    }

    /// Inclusive prefix combination: rank `r` gets the combination of ranks `0..=r`.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // Where this rank's items begin among those of all: rank 0 has one, rank 1 two, and so on.
    /// let count = comm.rank() + 1;
    /// let begin = comm.scan(&[count], |a, b| a + b)?[0] - count;
    /// assert_eq!(begin, (1..count).sum());
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn scan<T: Pod>(&self, data: &[T], op: impl Fn(T, T) -> T) -> Result<Vec<T>> {
        let mut total = Vec::new();
        self.waiting().collective("scan", &[bytemuck::cast_slice(data)], None, &mut |parts| {
            total = fold_parts("scan", parts, 0..self.rank() + 1, &op)?;
            Ok(())
        })?;
        Ok(total)
    }

    /// Equally long parts of all ranks, in rank order, for rank `root`; `None` elsewhere.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let squares = comm.gather(0, &[comm.rank() * comm.rank()])?;
    /// assert_eq!(squares, (comm.rank() == 0).then(|| (0..comm.size()).map(|r| r * r).collect()));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn gather<T: Pod>(&self, root: usize, data: &[T]) -> Result<Option<Vec<T>>> {
        match self.gatherv(root, data)? {
            Some((all, counts)) => {
                equal("gather", &counts)?;
                Ok(Some(all))
            }
            None => Ok(None),
        }
    }

    /// Parts of all ranks, in rank order, and how many elements each has, for rank `root`; `None` elsewhere.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // As many elements as its number says.
    /// let mine = vec![comm.rank() as u64; comm.rank()];
    /// if let Some((all, counts)) = comm.gatherv(0, &mine)? {
    ///     assert!(counts.into_iter().eq(0..comm.size()));
    ///     assert!(all.is_sorted());
    /// }
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn gatherv<T: Pod>(&self, root: usize, data: &[T]) -> Result<Option<(Vec<T>, Vec<usize>)>> {
        check_rank("gather", root, self.size())?;
        let mut got = None;
        self.waiting().collective("gather", &[bytemuck::cast_slice(data)], None, &mut |parts| {
            if self.rank() == root {
                got = Some(self.everything("gather", parts)?);
            }
            Ok(())
        })?;
        Ok(got)
    }

    /// Serde values of all ranks, in rank order, for rank `root`; `None` elsewhere.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let names = comm.gather_value(0, &format!("rank {}", comm.rank()))?;
    /// assert_eq!(names.is_some(), comm.rank() == 0);
    /// assert!(names.is_none_or(|names| names.len() == comm.size() && names[0] == "rank 0"));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn gather_value<V: Serialize + DeserializeOwned>(
        &self,
        root: usize,
        value: &V,
    ) -> Result<Option<Vec<V>>> {
        match self.gatherv(root, &encode("gather_value", value)?)? {
            Some((bytes, counts)) => decode_all("gather_value", &bytes, &counts).map(Some),
            None => Ok(None),
        }
    }

    /// Equally long parts of all ranks, in rank order, for everybody.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let pairs = comm.allgather(&[comm.rank(), 1])?;
    /// assert!(pairs.chunks(2).enumerate().all(|(rank, pair)| pair == [rank, 1]));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn allgather<T: Pod>(&self, data: &[T]) -> Result<Vec<T>> {
        let (all, counts) = self.allgatherv(data)?;
        equal("allgather", &counts)?;
        Ok(all)
    }

    /// Parts of all ranks, in rank order, and how many elements each has, for everybody.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let mine = vec![comm.rank() as u8; comm.rank()];
    /// let (all, counts) = comm.allgatherv(&mine)?;
    /// assert_eq!((all.len(), counts.len()), (counts.iter().sum(), comm.size()));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn allgatherv<T: Pod>(&self, data: &[T]) -> Result<(Vec<T>, Vec<usize>)> {
        let call = "allgather";
        let mut got = (Vec::new(), Vec::new());
        self.waiting().collective(
            call,
            &[bytemuck::cast_slice(data)],
            Some(&mut |parts| joined(parts, self.size())),
            &mut |parts| {
                got = if parts.folded_len() > 0 {
                    everything_joined(call, parts, self.size())?
                } else {
                    self.everything(call, parts)?
                };
                Ok(())
            },
        )?;
        Ok(got)
    }

    /// Serde values of all ranks, in rank order, for everybody.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let names = comm.allgather_value(&format!("rank {}", comm.rank()))?;
    /// assert_eq!(names[comm.rank()], format!("rank {}", comm.rank()));
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn allgather_value<V: Serialize + DeserializeOwned>(&self, value: &V) -> Result<Vec<V>> {
        let (bytes, counts) = self.allgatherv(&encode("allgather_value", value)?)?;
        decode_all("allgather_value", &bytes, &counts)
    }

    /// `data` of rank `root` (which passes `Some`), cut into equally long parts, one for each rank.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// let all: Option<Vec<usize>> = (comm.rank() == 0).then(|| (0..2 * comm.size()).collect());
    /// let mine = comm.scatter(0, all.as_deref())?;
    /// assert_eq!(mine, [2 * comm.rank(), 2 * comm.rank() + 1]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter<T: Pod>(&self, root: usize, data: Option<&[T]>) -> Result<Vec<T>> {
        let size = self.size();
        match data {
            Some(all) if self.rank() == root => {
                if all.len() % size != 0 {
                    let what = format!("{} elements cannot be cut for {size} ranks", all.len());
                    return Err(Error::Argument { call: "scatter", what });
                }
                self.scatterv(root, Some((all, &vec![all.len() / size; size])))
            }
            _ => self.scatterv(root, None),
        }
    }

    /// `data` of rank `root` (which passes `Some`), cut by `counts`, one part for each rank.
    ///
    /// ```
    /// # let world = bdrun_worker::init()?;
    /// # let comm = world.communicator();
    /// // One element for rank 0, two for rank 1, and so on.
    /// let counts: Vec<usize> = (1..=comm.size()).collect();
    /// let all = vec![5u32; counts.iter().sum()];
    /// let mine = comm.scatterv(0, (comm.rank() == 0).then_some((&all[..], &counts[..])))?;
    /// assert_eq!(mine, vec![5; comm.rank() + 1]);
    /// # Ok::<(), bdrun_worker::Error>(())
    /// ```
    #[track_caller]
    pub fn scatterv<T: Pod>(&self, root: usize, data: Option<(&[T], &[usize])>) -> Result<Vec<T>> {
        let call = "scatter";
        check_rank(call, root, self.size())?;
        let offsets;
        let part: [&[u8]; 2] = match data {
            Some((all, counts)) if self.rank() == root => {
                offsets = cut_offsets(call, all, counts, self.size())?;
                [bytemuck::cast_slice(&offsets), bytemuck::cast_slice(all)]
            }
            None if self.rank() == root => {
                return Err(Error::Argument { call, what: "the root passed no data".into() });
            }
            _ => [&[], &[]],
        };
        let mut mine = Vec::new();
        self.waiting().collective(call, &part, None, &mut |parts| {
            let (offset, bytes) = cut_for(call, parts, root, self.rank(), self.size())?;
            append(call, parts, root, offset, bytes, &mut mine).map(|_| ())
        })?;
        Ok(mine)
    }

    fn everything<T: Pod>(&self, call: &'static str, parts: &dyn Parts) -> Result<(Vec<T>, Vec<usize>)> {
        let (mut all, counts) = room_for_all(call, parts, self.size())?;
        read_each(parts, self.size(), bytemuck::cast_slice_mut(&mut all))?;
        Ok((all, counts))
    }
}

pub(crate) fn equal(call: &'static str, counts: &[usize]) -> Result<()> {
    match counts.iter().position(|&c| c != counts[0]) {
        None => Ok(()),
        Some(rank) => {
            let what = format!("rank {rank} gave {} elements, rank 0 {}", counts[rank], counts[0]);
            Err(Error::Argument { call, what })
        }
    }
}

fn decode_all<V: DeserializeOwned>(call: &'static str, bytes: &[u8], counts: &[usize]) -> Result<Vec<V>> {
    let mut at = 0;
    counts
        .iter()
        .map(|&n| {
            at += n;
            decode(call, &bytes[at - n..at])
        })
        .collect()
}
