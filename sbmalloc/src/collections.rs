//! Collections on storage: [`SbVec`].

use crate::alloc_api::SbAlloc;
use crate::arena::Arena;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes from which on a vector grows by a quarter instead of doubling: what it reserves is charged, and a
/// large run mostly grows where it lies, without being copied.
const GENTLE_FROM: usize = 4 << 20;

/// A growable vector in the heap on arenas, or in an explicit arena.
///
/// Holds any `T`: evicted memory stays legal to touch, so nothing about a value changes when it is out. What
/// a `T` itself points to is evicted only if that lies in an arena too.
///
/// Whatever makes it longer aborts the process, as the standard vector does, if memory is refused, and
/// [`try_reserve_exact`](Self::try_reserve_exact) does not. From 4 MiB on it grows by a quarter at a time,
/// where it lies if there is room. What it has room for is charged, used or not. Everything a slice can do,
/// it can.
///
/// ```
/// use sbmalloc::{SbVec, pager};
/// let mut numbers: SbVec<u64> = (0..1_000_000).collect();
/// numbers.push(7);
/// // SAFETY: only threads write to what is moved.
/// unsafe { pager::evict() }?;
/// assert_eq!(numbers[999_999], 999_999); // read from the scratch file, one page
/// // SAFETY: as above.
/// unsafe { pager::restore() }?;
/// assert_eq!(numbers.len(), 1_000_001);
/// # Ok::<(), pager::PagerError>(())
/// ```
pub struct SbVec<T> {
    items: Vec<T, SbAlloc>,
}

impl<T> SbVec<T> {
    /// An empty vector on the heap of the process. Allocates nothing.
    pub const fn new() -> Self {
        Self { items: Vec::new_in(SbAlloc::heap()) }
    }

    /// An empty vector in an explicit arena, with that arena's tracker.
    pub fn new_in(arena: &Arena) -> Self {
        Self { items: Vec::new_in(SbAlloc::in_arena(arena)) }
    }

    pub(crate) fn from_items(items: Vec<T, SbAlloc>) -> Self {
        Self { items }
    }

    pub(crate) fn into_boxed(self) -> Box<[T], SbAlloc> {
        self.items.into_boxed_slice()
    }

    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: T) {
        if self.items.len() == self.items.capacity() {
            self.reserve(1);
        }
        self.items.push(value);
    }

    /// Removes the last value.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop()
    }

    /// Makes room for at least `more` values.
    pub fn reserve(&mut self, more: usize) {
        let (len, capacity) = (self.items.len(), self.items.capacity());
        if capacity - len >= more {
            return;
        }
        let bytes = capacity.saturating_mul(size_of::<T>());
        let step = if bytes < GENTLE_FROM { capacity } else { capacity / 4 };
        self.items.reserve_exact(more.max(capacity.saturating_add(step).max(4) - len));
    }

    /// Makes room for exactly `more` values, or hands the refusal back.
    ///
    /// # Errors
    /// If the account, or the address space, refuses.
    pub fn try_reserve_exact(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let need = more.saturating_mul(size_of::<T>());
        self.items.try_reserve_exact(more).map_err(|_| OutOfMemory { bytes: need })
    }

    /// Shortens to `len` values, dropping the others; keeps the memory.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
    }

    /// Drops all values; keeps the memory.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Gives back memory that holds no value.
    pub fn shrink_to_fit(&mut self) {
        self.items.shrink_to_fit();
    }

    /// Values there is room for.
    pub fn capacity(&self) -> usize {
        self.items.capacity()
    }
}

impl<T: Clone> SbVec<T> {
    /// Appends clones of all values of a slice.
    pub fn extend_from_slice(&mut self, values: &[T]) {
        self.reserve(values.len());
        self.items.extend_from_slice(values);
    }

    /// Lengthens with clones of `value`, or shortens, to `len` values.
    pub fn resize(&mut self, len: usize, value: T) {
        self.reserve(len.saturating_sub(self.items.len()));
        self.items.resize(len, value);
    }
}

/// A reservation that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory for {bytes} more bytes")]
pub struct OutOfMemory {
    /// Bytes that were asked for.
    pub bytes: usize,
}

impl<T> Deref for SbVec<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> DerefMut for SbVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<T> Default for SbVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Extend<T> for SbVec<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let values = values.into_iter();
        self.reserve(values.size_hint().0);
        values.for_each(|v| self.push(v));
    }
}

impl<T> FromIterator<T> for SbVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut new = Self::new();
        new.extend(values);
        new
    }
}

impl<T: Clone> From<&[T]> for SbVec<T> {
    fn from(values: &[T]) -> Self {
        let mut new = Self::new();
        new.extend_from_slice(values);
        new
    }
}

impl<T> IntoIterator for SbVec<T> {
    type Item = T;
    type IntoIter = allocator_api2::vec::IntoIter<T, SbAlloc>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a SbVec<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut SbVec<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: fmt::Debug> fmt::Debug for SbVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: PartialEq> PartialEq for SbVec<T> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}
