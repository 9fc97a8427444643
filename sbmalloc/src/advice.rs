//! What a program may tell about the content of its memory: that it is dead, that it will be needed, that it
//! will not.

use crate::arena::Inner;
use crate::sys::{self, CHUNK, GRANULE};
use crate::{pager, set};
use bytemuck::Zeroable;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// What [`advise`] tells about a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// It is likely to be used next: what of it is out is fetched ahead by the kernel, beside the program,
    /// and it is brought in among the first at the next restore.
    WillNeed,
    /// It is not likely to be used soon: it may be moved out before anything else. Its content is kept.
    DontNeed,
}

/// A range does not lie in an arena of this crate: it is on a stack, in static memory or a mapped file, comes
/// from another allocator, or reaches beyond its arena. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {len} bytes at {address:#x} are not memory of sbmalloc (the heap on arenas must be installed, or the \
     memory come from an SbVec, an SbBox, SbAlloc or an Arena)"
)]
pub struct NotOurs {
    /// The first address of the range.
    pub address: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// Gives the content of `content` up: it reads as zeros afterwards, and what it held is neither written to
/// scratch nor read from there again.
///
/// RAM of the whole 64 KiB chunks inside the range is given back at once, whether the range is resident or
/// out, and space in the scratch files, unless it is little (below 16 MiB) and the disk has room: then when
/// the disk is full. The rest at both ends is merely cleared. The memory stays allocated, and **stays
/// charged** to the [`Account`](crate::Account): it may be written again at any time without asking. To have
/// it uncharged, free it. RAM that lies in a huge page comes back once the whole page (2 MiB, aligned) is
/// discarded.
///
/// For types that are not [`Zeroable`], or may be read by others meanwhile, clear and discard the bytes of a
/// buffer that holds no value of theirs.
///
/// ```
/// let mut table = sbmalloc::SbVec::from(&[7u64; 100_000][..]);
/// sbmalloc::discard(&mut table[..50_000])?;
/// assert!(table[..50_000].iter().all(|&w| w == 0));
/// assert!(table[50_000..].iter().all(|&w| w == 7));
///
/// let mut on_the_stack = [1u8; 8];
/// assert!(sbmalloc::discard(&mut on_the_stack).is_err());
/// # Ok::<(), sbmalloc::NotOurs>(())
/// ```
///
/// # Errors
/// [`NotOurs`], with nothing changed. An empty range is never an error.
pub fn discard<T: Zeroable>(content: &mut [T]) -> Result<(), NotOurs> {
    let Some((arena, bytes)) = locate(content.as_ptr().cast(), size_of_val(content))? else { return Ok(()) };
    let (first, end) = (sys::round_up(bytes.start, CHUNK), bytes.end / CHUNK * CHUNK);
    let clear = |part: Range<usize>| {
        // SAFETY: inside `content`, which is borrowed exclusively, and zeros are a value of its type.
        unsafe { std::ptr::write_bytes((arena.base + part.start) as *mut u8, 0, part.len()) };
    };
    if first >= end {
        clear(bytes);
    } else {
        clear(bytes.start..first);
        arena.discard(first, end - first);
        clear(end..bytes.end);
    }
    Ok(())
}

/// Tells what is going to happen to `content`, whose bytes stay as they are.
///
/// Memory is moved in granules of 2 MiB: [`Advice::WillNeed`] speaks of every granule that the range touches,
/// [`Advice::DontNeed`] of those that lie wholly inside it, so for ranges below 2 MiB it mostly does
/// nothing. An advice goes before what the pager has learnt by itself, and holds until the granule has come
/// in, by a restore or because it was touched while it was out, or until the next advice about it. A whole
/// [`evict`](crate::pager::evict) or [`restore`](crate::pager::restore) heeds none.
///
/// Fetching ahead fills the kernel's page cache, which is not charged to the [`Account`](crate::Account).
///
/// ```
/// use sbmalloc::{Advice, SbVec, advise};
/// let table = SbVec::from(&[7u64; 1 << 20][..]);
/// advise(&table[..1 << 19], Advice::DontNeed)?;
/// advise(&table[1 << 19..], Advice::WillNeed)?;
/// assert!(table.iter().all(|&w| w == 7));
/// # Ok::<(), sbmalloc::NotOurs>(())
/// ```
///
/// # Errors
/// [`NotOurs`], with nothing changed. An empty range is never an error.
pub fn advise<T>(content: &[T], advice: Advice) -> Result<(), NotOurs> {
    let Some((arena, bytes)) = locate(content.as_ptr().cast(), size_of_val(content))? else { return Ok(()) };
    let granules = match advice {
        Advice::WillNeed => bytes.start / GRANULE..bytes.end.div_ceil(GRANULE),
        Advice::DontNeed => bytes.start.div_ceil(GRANULE)..bytes.end / GRANULE,
    };
    for g in granules.clone() {
        arena.advice(g).store(advice as u8 + 1, Ordering::Relaxed);
    }
    if advice == Advice::WillNeed {
        arena.fetch_ahead(granules);
    }
    Ok(())
}

impl Inner {
    /// What was last said of granule `g`, if it still holds.
    pub(crate) fn advised(&self, g: usize) -> Option<Advice> {
        match self.advice(g).load(Ordering::Relaxed) {
            1 => Some(Advice::WillNeed),
            2 => Some(Advice::DontNeed),
            _ => None,
        }
    }

    /// Granule `g` has come in, or was touched while it was out.
    pub(crate) fn forget_advice(&self, g: usize) {
        if self.advice(g).load(Ordering::Relaxed) != 0 {
            self.advice(g).store(0, Ordering::Relaxed);
        }
    }

    /// Asks the kernel to read what is mapped from the file of these granules.
    fn fetch_ahead(&self, mut granules: Range<usize>) {
        while let Some(out) = self.stretch(granules.clone(), true, usize::MAX) {
            granules.start = out.end;
            // Whatever became of the mapping meanwhile, this changes no content; and it may be refused.
            let _ = sys::advise(self.base + out.start * GRANULE, out.len() * GRANULE, libc::MADV_WILLNEED);
        }
    }
}

/// The arena of a range and the range's bytes from its base; `None` if it is empty.
///
/// The arena lives at least as long as the borrow that the range was taken from.
fn locate<'a>(at: *const u8, len: usize) -> Result<Option<(&'a Inner, Range<usize>)>, NotOurs> {
    let address = at as usize;
    if len == 0 {
        return Ok(None);
    }
    // Arenas leave their sets under the pager's lock.
    let pager = pager::exclude();
    let found = set::all().flat_map(|set| set.arenas()).find(|arena| arena.holds(address));
    let start = found.map_or(0, |arena| address - arena.base);
    let found = found.filter(|arena| arena.extent() - start >= len).map(std::ptr::from_ref);
    drop(pager);
    match found {
        // SAFETY: memory of the arena is borrowed, so whoever it was borrowed from keeps the arena alive.
        Some(arena) => Ok(Some((unsafe { &*arena }, start..start + len))),
        None => Err(NotOurs { address, len }),
    }
}
