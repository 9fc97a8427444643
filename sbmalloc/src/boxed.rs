//! One value, or a slice of fixed length, on storage: [`SbBox`].

use crate::alloc_api::SbAlloc;
use crate::arena::Arena;
use crate::collections::{OutOfMemory, SbVec};
use allocator_api2::boxed::Box;
use bytemuck::Zeroable;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A box in the heap on arenas, or in an explicit arena.
///
/// `SbBox<[T]>` is a slice whose length does not change: made [`zeroed`](SbBox::zeroed) it costs no RAM until
/// it is written. Around `allocator_api2`'s `Box<T, SbAlloc>`, into and from which it converts, for all that
/// that type does besides, trait objects for one (`allocator_api2::unsize_box!`).
///
/// Holds any `T`: evicted memory stays legal to touch. What a `T` itself points to is evicted only if that
/// lies in an arena too.
///
/// ```
/// use sbmalloc::SbBox;
/// let mut point = SbBox::new((1.0, 2.0));
/// point.0 = 3.0;
/// let mut grid: SbBox<[f64]> = SbBox::zeroed(1 << 20)?;
/// grid[77] = point.0;
/// assert_eq!(grid.iter().sum::<f64>(), 3.0);
/// # Ok::<(), sbmalloc::OutOfMemory>(())
/// ```
pub struct SbBox<T: ?Sized>(Box<T, SbAlloc>);

impl<T> SbBox<T> {
    /// Moves a value to the heap of the process. Aborts the process, as the standard box does, if memory is
    /// refused.
    ///
    /// The value passes over the stack; for what is too large for that use a slice.
    pub fn new(value: T) -> Self {
        Self(Box::new_in(value, SbAlloc::heap()))
    }

    /// As [`new`](Self::new), in an explicit arena, where it takes whole 64 KiB chunks of address space and
    /// is charged by the 4 KiB page.
    pub fn new_in(value: T, arena: &Arena) -> Self {
        Self(Box::new_in(value, SbAlloc::in_arena(arena)))
    }

    /// As [`new`](Self::new), or hands the refusal back; the value is dropped then.
    ///
    /// # Errors
    /// If the account, or the address space, refuses.
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        Box::try_new_in(value, SbAlloc::heap()).map(Self).map_err(|_| OutOfMemory { bytes: size_of::<T>() })
    }

    /// The value; the memory is freed.
    pub fn into_inner(this: Self) -> T {
        Box::into_inner(this.0)
    }
}

impl<T: Zeroable> SbBox<[T]> {
    /// A slice of `len` zeros on the heap of the process.
    ///
    /// # Errors
    /// If the account, or the address space, refuses.
    pub fn zeroed(len: usize) -> Result<Self, OutOfMemory> {
        Self::zeroed_with(len, SbAlloc::heap())
    }

    /// A slice of `len` zeros in an explicit arena.
    ///
    /// # Errors
    /// If the account, or the address space, refuses.
    pub fn zeroed_in(len: usize, arena: &Arena) -> Result<Self, OutOfMemory> {
        Self::zeroed_with(len, SbAlloc::in_arena(arena))
    }

    fn zeroed_with(len: usize, alloc: SbAlloc) -> Result<Self, OutOfMemory> {
        let refused = OutOfMemory { bytes: len.saturating_mul(size_of::<T>()) };
        let zeros = Box::try_new_zeroed_slice_in(len, alloc).map_err(|_| refused)?;
        // SAFETY: zeros are values of a Zeroable type.
        Ok(Self(unsafe { zeros.assume_init() }))
    }
}

impl<T: ?Sized> Deref for SbBox<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for SbBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: ?Sized> From<Box<T, SbAlloc>> for SbBox<T> {
    fn from(inner: Box<T, SbAlloc>) -> Self {
        Self(inner)
    }
}

impl<T: ?Sized> From<SbBox<T>> for Box<T, SbAlloc> {
    fn from(outer: SbBox<T>) -> Self {
        outer.0
    }
}

/// Gives back what the vector has room for beyond its values.
impl<T> From<SbVec<T>> for SbBox<[T]> {
    fn from(values: SbVec<T>) -> Self {
        Self(values.into_boxed())
    }
}

impl<T: Clone> From<&[T]> for SbBox<[T]> {
    fn from(values: &[T]) -> Self {
        SbVec::from(values).into()
    }
}

impl<T> FromIterator<T> for SbBox<[T]> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        SbVec::from_iter(values).into()
    }
}

impl<T> From<SbBox<[T]>> for SbVec<T> {
    fn from(slice: SbBox<[T]>) -> Self {
        Self::from_items(slice.0.into_vec())
    }
}

/// In the same heap or arena.
impl<T: Clone> Clone for SbBox<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// In the same heap or arena.
impl<T: Clone> Clone for SbBox<[T]> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Default> Default for SbBox<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for SbBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: PartialEq + ?Sized> PartialEq for SbBox<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq + ?Sized> Eq for SbBox<T> {}

impl<'a, T> IntoIterator for &'a SbBox<[T]> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut SbBox<[T]> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
