//! [`SbAlloc`]: the allocator to give to collections that take one.

use crate::arena::Arena;
use crate::heap;
use allocator_api2::alloc::{AllocError, Allocator};
use std::alloc::Layout;
use std::ptr::NonNull;

/// Memory for collections: from the heap of the process, or from an explicit arena.
///
/// Implements the `Allocator` trait of `allocator-api2`, which hashbrown and others take, so that
/// `hashbrown::HashMap<K, V, S, SbAlloc>` lives on storage. From an explicit arena every allocation takes
/// whole 64 KiB chunks of address space: right for large tables, not for trees of small nodes. A refused
/// charge is an `AllocError`: what a collection makes of that is its affair (`try_reserve` returns it, `push`
/// and `insert` abort).
///
/// ```
/// use allocator_api2::{boxed::Box, vec::Vec};
/// use sbmalloc::{Arena, ArenaOptions, SbAlloc};
/// use std::collections::hash_map::RandomState;
///
/// let arena = Arena::new(&ArenaOptions::default())?;
/// let mut counts = hashbrown::HashMap::with_hasher_in(RandomState::new(), SbAlloc::in_arena(&arena));
/// *counts.entry("word").or_insert(0) += 1;
/// let mut list = Vec::new_in(SbAlloc::heap());
/// list.push(counts["word"]);
/// let shape: Box<dyn Fn(i32) -> i32, SbAlloc> =
///     allocator_api2::unsize_box!(Box::new_in(|x| x + 1, SbAlloc::heap()));
/// assert_eq!(shape(list[0]), 2);
/// # Ok::<(), sbmalloc::ArenaError>(())
/// ```
#[derive(Clone, Default)]
pub struct SbAlloc {
    arena: Option<Arena>,
}

impl SbAlloc {
    /// Memory from the heap of the process.
    pub const fn heap() -> Self {
        Self { arena: None }
    }

    /// Memory from an explicit arena, which lives as long as anything allocated this way.
    pub fn in_arena(arena: &Arena) -> Self {
        Self { arena: Some(arena.clone()) }
    }

    fn get(&self, layout: Layout, zeroed: bool) -> Result<NonNull<[u8]>, AllocError> {
        let (size, align) = (layout.size(), layout.align());
        if size == 0 {
            let nowhere = NonNull::new(std::ptr::without_provenance_mut(align)).ok_or(AllocError)?;
            return Ok(NonNull::slice_from_raw_parts(nowhere, 0));
        }
        let at = match &self.arena {
            Some(arena) => arena.alloc(size, align),
            None if zeroed => NonNull::new(heap::alloc_zeroed(size, align)),
            None => NonNull::new(heap::alloc(size, align)),
        };
        at.map(|at| NonNull::slice_from_raw_parts(at, size)).ok_or(AllocError)
    }

    /// Resizes where it lies if the memory allows, else moves. `zeroed` clears what is new.
    ///
    /// # Safety
    /// As for `grow` and `shrink` of [`Allocator`].
    unsafe fn resize(
        &self,
        at: NonNull<u8>,
        old: Layout,
        new: Layout,
        zeroed: bool,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let (from, to) = (old.size(), new.size());
        // The heap finds the kind of a block by size and alignment when it is freed, so one that is to have
        // another alignment is made anew; an arena has one kind.
        let stays = match &self.arena {
            Some(_) => new.align() <= old.align(),
            None => new.align() == old.align(),
        };
        if from > 0 && to > 0 && stays {
            let there = match &self.arena {
                // SAFETY: the caller's contract; what is cut off is no longer used.
                Some(arena) => unsafe { arena.resize(at, to) }.then_some(at),
                // SAFETY: the caller's contract.
                None => NonNull::new(unsafe { heap::realloc(at.as_ptr(), to, old.align()) }),
            };
            if let Some(there) = there {
                if zeroed && to > from {
                    // Only the rest of the old last chunk may hold anything, but who knows how it was shrunk.
                    // SAFETY: the block is now `to` bytes long.
                    unsafe { there.add(from).write_bytes(0, to - from) };
                }
                return Ok(NonNull::slice_from_raw_parts(there, to));
            }
            if self.arena.is_none() {
                return Err(AllocError);
            }
        }
        let there = self.get(new, zeroed)?;
        // SAFETY: two distinct blocks, each at least that long; the old one is then given back as it came.
        unsafe {
            std::ptr::copy_nonoverlapping(at.as_ptr(), there.as_ptr().cast(), from.min(to));
            self.deallocate(at, old);
        }
        Ok(there)
    }
}

// SAFETY: blocks stay valid until freed; clones refer to the same heap or arena.
unsafe impl Allocator for SbAlloc {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.get(layout, false)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.get(layout, true)
    }

    unsafe fn deallocate(&self, at: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        match &self.arena {
            // SAFETY: the caller's contract.
            Some(arena) => unsafe { arena.free(at) },
            // SAFETY: the caller's contract.
            None => unsafe { heap::free_sized(at.as_ptr(), layout.size(), layout.align()) },
        }
    }

    unsafe fn grow(&self, at: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's contract.
        unsafe { self.resize(at, old, new, false) }
    }

    unsafe fn grow_zeroed(
        &self,
        at: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's contract.
        unsafe { self.resize(at, old, new, true) }
    }

    unsafe fn shrink(&self, at: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's contract.
        unsafe { self.resize(at, old, new, false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is aligned to much is a run, and what is small is not: a block must not be freed as the other.
    #[test]
    fn a_block_that_needs_less_alignment_is_freed_as_what_it_is() {
        let heap = SbAlloc::heap();
        for align in [16, 4096, 1 << 16, 1 << 20] {
            let (old, new) = (Layout::from_size_align(100, align), Layout::from_size_align(50, 8));
            let (old, new) = (old.expect("a layout"), new.expect("a layout"));
            let at = heap.allocate(old).expect("memory").cast::<u8>();
            // SAFETY: as long as that; each block is given back as it came.
            unsafe {
                at.write_bytes(7, 100);
                let at = heap.shrink(at, old, new).expect("memory").cast::<u8>();
                assert_eq!(at.add(49).read(), 7);
                heap.deallocate(at, new);
            }
        }
    }
}
