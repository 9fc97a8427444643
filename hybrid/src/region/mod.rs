//! Memory that the ranks of a node have in common: one writes, all read, and never at the same time.

mod mapping;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bytemuck::{Pod, cast_slice, cast_slice_mut};

use crate::communicator::by;
use crate::element::combine_all;
use crate::transport::{self, Transport};
use crate::{Cause, ReduceOp, Result};
use mapping::{Kind, Mapping, Name};

/// `len` elements that the ranks of a communicator share. The leader (rank 0) writes them, a fence makes what
/// it wrote everybody's, and all read.
///
/// ```
/// use bdrun_hybrid::{Communicator, LocalBackend, SharedMemory};
///
/// let node = LocalBackend.split_local()?;
/// let mut region = node.create_shared_region::<f64>(1_000)?;
/// region.update(|values| values.fill(0.5))?; // on the leader; all wait
/// assert_eq!(region.as_slice().iter().sum::<f64>(), 500.0); // on all
///
/// // The same in steps.
/// let mut writing = region.write()?; // nobody reads any more
/// if let Some(values) = writing.range_mut(10..20) {
///     values.fill(1.0); // the leader
/// }
/// writing.fence()?; // it has written
/// assert_eq!(region.as_slice()[9..12], [0.5, 1.0, 1.0]);
/// # Ok::<(), bdrun_hybrid::Error>(())
/// ```
///
/// Nobody reads while the leader writes, by borrow rules on each rank and by waiting between them:
/// [`write`](Self::write) and [`fence`](Self::fence) need `&mut self`, so no slice of this rank lives across
/// them, and both wait for all ranks. A slice that was kept does not compile:
///
/// ```compile_fail,E0502
/// use bdrun_hybrid::{LocalBackend, SharedMemory};
/// let mut region = LocalBackend.create_shared_region::<u32>(4)?;
/// let kept = region.as_slice();
/// region.fence()?;
/// println!("{kept:?}");
/// # Ok::<(), bdrun_hybrid::Error>(())
/// ```
///
/// The elements exist once for all ranks of a node (a sealed memfd, which ranks other than the leader map
/// without the right to write); they are freed when the last rank has dropped its region or has ended. Where
/// they cannot be shared, each rank has its own copy on the heap, and a fence broadcasts what the leader has
/// written since the one before: from the first element that it asked for to the last
/// ([`range_mut`](Writing::range_mut)).
pub struct SharedRegion<T> {
    memory: Memory<T>,
    comm: Box<dyn Transport>,
    /// Which region of the communicator it is: the same number on all ranks.
    number: u64,
    /// Opened for writing, and not fenced.
    open: bool,
    /// What the leader may have written since the last fence.
    written: Range<usize>,
}

enum Memory<T> {
    Heap(Vec<T>),
    Shared { mapping: ManuallyDrop<Mapping>, len: usize, element: PhantomData<T> },
}

impl<T> std::fmt::Debug for SharedRegion<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (len, kind) = match &self.memory {
            Memory::Heap(elements) => (elements.len(), "copied"),
            Memory::Shared { len, .. } => (*len, "shared"),
        };
        write!(f, "region of {len} elements, {kind}")
    }
}

/// Regions that were made in this process. Of ranks the leader's count is a region's number.
static MADE: AtomicU64 = AtomicU64::new(0);

/// What ranks come together for: two numbers that nothing else is.
const WRITE: u64 = u64::from_le_bytes(*b"region-w");
const FENCE: u64 = u64::from_le_bytes(*b"region-f");

impl<T: Pod> SharedRegion<T> {
    /// A collective over `comm`.
    pub(crate) fn create(comm: &dyn Transport, len: usize) -> Result<Self> {
        Self::make(comm, len).map_err(by(comm, "create_shared_region"))
    }

    fn make(comm: &dyn Transport, len: usize) -> transport::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
        // All ranks take part in all that follows, also one whose own arguments are wrong.
        let said = bytes.map_or(u64::MAX, |bytes| bytes as u64);
        let all = allgather(comm, &[said, MADE.fetch_add(1, SeqCst)])?;
        let (lens, number) = (all.chunks(2).map(|said| said[0]).collect::<Vec<_>>(), all[1]);
        if lens.iter().any(|other| *other != said) {
            return Err(Cause::Mismatch(format!("regions of {lens:?} bytes")));
        }
        let Some(bytes) = bytes else {
            return Err(Cause::Argument(format!("{len} elements of {} bytes", size_of::<T>())));
        };
        let mapping = if comm.is_alone() || bytes == 0 { None } else { map(comm, bytes)? };
        let memory = match mapping {
            Some(mapping) => {
                Memory::Shared { mapping: ManuallyDrop::new(mapping), len, element: PhantomData }
            }
            None => Memory::Heap(copies(comm, len)?),
        };
        Ok(Self { memory, comm: comm.handle(), number, open: false, written: 0..0 })
    }

    /// One of which each rank has a copy.
    pub(crate) fn copied(comm: &dyn Transport, len: usize) -> Self {
        let memory = Memory::Heap(bytemuck::allocation::zeroed_vec(len));
        Self { memory, comm: comm.handle(), number: u64::MAX, open: false, written: 0..0 }
    }

    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.memory {
            Memory::Heap(elements) => elements.len(),
            Memory::Shared { len, .. } => *len,
        }
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the ranks have them in common, so that they exist once. Otherwise each has a copy, or there is
    /// only one rank.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self.memory, Memory::Shared { .. })
    }

    /// Whether this rank writes them.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.comm.rank() == 0
    }

    /// The elements as of the last fence. Threads of a pool may read them too.
    ///
    /// ```should_panic
    /// use bdrun_hybrid::{LocalBackend, SharedMemory};
    /// let mut region = LocalBackend.create_shared_region::<u32>(4).unwrap();
    /// assert_eq!(region.as_slice(), [0; 4]);
    /// drop(region.write().unwrap()); // no fence
    /// region.as_slice();
    /// ```
    ///
    /// # Panics
    /// If the region was opened for writing, and no fence came after: what [`Writing`] is for was not ended.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        match self.try_as_slice() {
            Some(elements) => elements,
            None => panic!("{}", Cause::Unfenced),
        }
    }

    /// The same; `None` where that panics.
    #[must_use]
    pub fn try_as_slice(&self) -> Option<&[T]> {
        if self.open {
            return None;
        }
        Some(match &self.memory {
            Memory::Heap(elements) => elements,
            // SAFETY: `len` elements of plain old data, at the beginning of a page; the mapping lives as long
            // as `self`. Nobody writes them while the slice lives: the leader writes between the two
            // meetings of `write` and `fence` only, and this rank comes to neither while `self` is borrowed,
            // nor is any other call of it taken for one.
            Memory::Shared { mapping, len, .. } => unsafe {
                std::slice::from_raw_parts(mapping.at().cast::<T>(), *len)
            },
        })
    }

    /// Opens the region for the leader to write (a collective): waits until no rank reads any more.
    ///
    /// # Errors
    /// [`Cause::Unfenced`]: it is open already; [`Cause::Mismatch`]: others write or fence another region; as
    /// of [`Communicator::barrier`](crate::Communicator::barrier). Then nobody reads it before a fence.
    pub fn write(&mut self) -> Result<Writing<'_, T>> {
        if self.open {
            return Err(by(&*self.comm, "write")(Cause::Unfenced));
        }
        // Before they meet: if that fails here, it may be over for the leader, who writes then.
        self.open = true;
        // Copies need not wait: what others read is theirs.
        if self.is_shared() {
            self.meet([WRITE, 0, 0]).map_err(by(&*self.comm, "write"))?;
        }
        Ok(Writing { region: self })
    }

    /// What the leader has written becomes what all read (a collective): waits until it has. Ends what
    /// [`write`](Self::write) began, also where its guard was dropped.
    ///
    /// # Errors
    /// As of [`write`](Self::write), but for `Unfenced`.
    pub fn fence(&mut self) -> Result<()> {
        self.end().map_err(by(&*self.comm, "fence"))?;
        (self.open, self.written) = (false, 0..0);
        Ok(())
    }

    /// All ranks come together for the same thing of the same region, or are told that they do not: a barrier
    /// would not know one from another. What the leader says with it.
    fn meet(&self, said: [u64; 3]) -> transport::Result<[u64; 2]> {
        let all = allgather(&*self.comm, &[said[0], self.number, said[1], said[2]])?;
        if all.chunks(4).any(|other| other[..2] != all[..2]) {
            let does = |other: &[u64]| {
                format!("{} {}", if other[0] == WRITE { "opens" } else { "fences" }, other[1])
            };
            let texts: Vec<String> = all.chunks(4).map(does).collect();
            return Err(Cause::Mismatch(format!("of regions, rank by rank: {}", texts.join(", "))));
        }
        Ok([all[2], all[3]])
    }

    fn end(&mut self) -> transport::Result<()> {
        if self.comm.is_alone() {
            return Ok(());
        }
        let written = self.meet([FENCE, self.written.start as u64, self.written.end as u64])?;
        let Memory::Heap(elements) = &mut self.memory else { return Ok(()) };
        let [start, end] = written.map(|index| index as usize);
        let part = elements
            .get_mut(start..end)
            .ok_or_else(|| Cause::Mismatch(format!("the leader has written elements {start} to {end}")))?;
        if part.is_empty() { Ok(()) } else { self.comm.broadcast(cast_slice_mut(part), 0) }
    }

    /// [`write`](Self::write), `change` on the leader, [`fence`](Self::fence) (a collective).
    ///
    /// # Errors
    /// As those two.
    pub fn update(&mut self, change: impl FnOnce(&mut [T])) -> Result<()> {
        let mut writing = self.write()?;
        if let Some(elements) = writing.as_mut_slice() {
            change(elements);
        }
        writing.fence()
    }
}

/// A region that is open for the leader to write; no rank reads it. To be ended by [`fence`](Self::fence) on
/// all ranks: if it is dropped, the region cannot be read before [`SharedRegion::fence`].
#[must_use = "the region is closed to readers until a fence"]
pub struct Writing<'a, T> {
    region: &'a mut SharedRegion<T>,
}

impl<T> std::fmt::Debug for Writing<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, open for writing", self.region)
    }
}

impl<T: Pod> Writing<'_, T> {
    /// All elements, on the leader; `None` on the others.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        self.range_mut(0..self.region.len())
    }

    /// Some elements, on the leader; `None` on the others. Where each rank has a copy, less is sent than with
    /// [`as_mut_slice`](Self::as_mut_slice).
    ///
    /// # Panics
    /// If there are not so many elements.
    #[must_use]
    pub fn range_mut(&mut self, range: Range<usize>) -> Option<&mut [T]> {
        let region = &mut *self.region;
        if !region.is_leader() {
            return None;
        }
        if !range.is_empty() {
            let written = &mut region.written;
            *written = match &*written {
                Range { start, end } if start == end => range.clone(),
                Range { start, end } => range.start.min(*start)..range.end.max(*end),
            };
        }
        Some(match &mut region.memory {
            Memory::Heap(elements) => &mut elements[range],
            // SAFETY: as in `as_slice`; and all ranks have come to this region's `write`, so no slice lives,
            // and none is made before all have come to its `fence`, which this rank does when this borrow has
            // ended. The leader has mapped it for writing.
            Memory::Shared { mapping, len, .. } => unsafe {
                &mut std::slice::from_raw_parts_mut(mapping.at().cast::<T>(), *len)[range]
            },
        })
    }

    /// The leader has written (a collective): [`SharedRegion::fence`].
    ///
    /// # Errors
    /// As of that.
    pub fn fence(self) -> Result<()> {
        self.region.fence()
    }
}

/// What all ranks say, one behind the other.
pub(crate) fn allgather(comm: &dyn Transport, words: &[u64]) -> transport::Result<Vec<u64>> {
    let (size, len) = (comm.size(), words.len());
    let mut all = vec![0; size * len];
    let displs: Vec<usize> = (0..size).map(|rank| rank * size_of_val(words)).collect();
    let counts = vec![size_of_val(words); size];
    comm.allgatherv(cast_slice(words), cast_slice_mut(&mut all), &counts, &displs)?;
    Ok(all)
}

/// Elements of which each rank has its own. If one has no memory for them, none has.
fn copies<T: Pod>(comm: &dyn Transport, len: usize) -> transport::Result<Vec<T>> {
    let own = bytemuck::allocation::try_zeroed_vec(len);
    let mut least = [0];
    comm.allreduce(&[u8::from(own.is_ok())], &mut least, 1, &|into, with| {
        combine_all(into, with, ReduceOp::Min);
    })?;
    let no_memory = || Cause::System {
        what: "memory for a region that each rank has a copy of",
        error: std::io::ErrorKind::OutOfMemory.into(),
    };
    own.ok().filter(|_| least[0] != 0).ok_or_else(no_memory)
}

/// Memory that all ranks have mapped; `None` if some rank could not: on all the same.
fn map(comm: &dyn Transport, bytes: usize) -> transport::Result<Option<Mapping>> {
    let (mut made, mut opened, mut refused) = (None, None, None);
    if comm.rank() == 0 {
        match comm.set_aside(bytes as u64) {
            Ok(()) => made = Some(Mapping::make(bytes)),
            Err(cause) => refused = Some(cause),
        }
    }
    let mut said = match &made {
        Some(Ok((_, name))) => name.words(),
        _ => Name::NONE,
    };
    let mut is_refused = [u8::from(refused.is_some())];
    comm.broadcast(&mut is_refused, 0)?;
    if is_refused[0] != 0 {
        let all = || Cause::Backend(format!("there is no room for {bytes} bytes that ranks share"));
        return Err(refused.unwrap_or_else(all));
    }
    comm.broadcast(cast_slice_mut(&mut said), 0)?;
    let mapped = match &made {
        Some(made) => made.is_ok(),
        None => {
            opened = Mapping::open(said, bytes, Kind::Reader).ok();
            opened.is_some()
        }
    };
    let mut least = [0];
    comm.allreduce(&[u8::from(mapped)], &mut least, 1, &|into, with| {
        combine_all(into, with, ReduceOp::Min);
    })?;
    // From here on nobody needs the name.
    if least[0] == 0 && comm.rank() == 0 {
        comm.give_back(bytes as u64);
    }
    let made = made.and_then(std::result::Result::ok).map(|(mapping, _)| mapping);
    Ok(made.or(opened).filter(|_| least[0] == 1))
}

impl<T> Drop for SharedRegion<T> {
    fn drop(&mut self) {
        if let Memory::Shared { mapping, len, .. } = &mut self.memory {
            // SAFETY: taken once, here, and not used after that.
            let mapping = unsafe { ManuallyDrop::take(mapping) };
            if mapping.leave() {
                self.comm.give_back((*len * size_of::<T>()) as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Tag;
    use crate::transport::Combine;

    #[test]
    fn a_region_that_cannot_be_had_is_an_error() {
        use crate::SharedMemory;
        let Err(error) = crate::LocalBackend.create_shared_region::<u8>(1 << 62) else {
            panic!("2^62 bytes")
        };
        assert!(error.to_string().contains("memory for a region"), "{error}");
    }

    /// Rank 1 of two, whose barriers fail when they are told to.
    struct Fails<'a>(&'a Cell<bool>);

    impl Transport for Fails<'static> {
        fn rank(&self) -> usize {
            1
        }
        fn size(&self) -> usize {
            2
        }
        fn barrier(&self) -> transport::Result<()> {
            if self.0.get() { Err(Cause::Lost { peer: 0 }) } else { Ok(()) }
        }
        fn broadcast(&self, _: &mut [u8], _: usize) -> transport::Result<()> {
            self.barrier()
        }
        fn allgatherv(&self, all: &[u8], to: &mut [u8], _: &[usize], _: &[usize]) -> transport::Result<()> {
            // The other one says the same.
            to.chunks_mut(all.len()).for_each(|to| to.copy_from_slice(all));
            self.barrier()
        }
        fn allreduce(&self, _: &[u8], _: &mut [u8], _: usize, _: &Combine<'_>) -> transport::Result<()> {
            self.barrier()
        }
        fn send(&self, _: &[u8], _: usize, _: Tag) -> transport::Result<()> {
            self.barrier()
        }
        fn recv(&self, _: &mut [u8], _: usize, _: Tag) -> transport::Result<()> {
            self.barrier()
        }
        fn abort(&self, _: i32) -> ! {
            panic!("nobody asks for it")
        }
        fn handle(&self) -> Box<dyn Transport> {
            Box::new(Self(self.0))
        }
    }

    /// A barrier that fails here may be over for the leader, which then writes: nobody reads after that.
    #[test]
    fn a_region_whose_opening_has_failed_is_not_read() {
        let fails: &'static Cell<bool> = Box::leak(Box::new(Cell::new(false)));
        let (leader, name) = Mapping::make(4096).expect("a mapping");
        let mapping = ManuallyDrop::new(Mapping::open(name.words(), 4096, Kind::Reader).expect("mapped"));
        let memory = Memory::Shared { mapping, len: 4096, element: PhantomData::<u8> };
        let comm = Fails(fails).handle();
        let mut region = SharedRegion { memory, comm, number: 0, open: false, written: 0..0 };
        assert_eq!(region.as_slice(), [0; 4096]);
        fails.set(true);
        assert!(region.write().is_err() && region.try_as_slice().is_none());
        assert!(region.fence().is_err() && region.try_as_slice().is_none());
        fails.set(false);
        // SAFETY: one byte of the mapping, which nobody refers to.
        unsafe { leader.at().write(7) };
        region.fence().expect("a fence");
        assert_eq!(region.try_as_slice().map(|all| all[0]), Some(7));
    }
}
