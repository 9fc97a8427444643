//! Arguments. Fortran aligns its numbers to four bytes, some programs not even to that.

use std::ffi::{c_int, c_void};
use std::ptr;

/// A handle of C's.
pub trait Handle: Copy + PartialEq {
    /// What no function gives.
    const NOTHING: Self;

    /// Of a number of Fortran's.
    fn of(number: c_int) -> Self;

    /// Its number.
    fn number(self) -> c_int;
}

/// Reads an argument.
///
/// # Safety
/// It is there.
#[inline(always)]
pub unsafe fn read<T: Copy>(at: *const T) -> T {
    // SAFETY: the caller's.
    unsafe { at.read_unaligned() }
}

/// How many there are of something; of a number that cannot be right none, and C says so.
///
/// # Safety
/// There is a number.
#[must_use]
pub unsafe fn len(at: *const c_int) -> usize {
    // SAFETY: the caller's.
    usize::try_from(unsafe { read(at) }).unwrap_or(0)
}

/// Several handles.
///
/// # Safety
/// There are so many numbers.
#[must_use]
pub unsafe fn read_all<H: Handle>(at: *const c_int, len: usize) -> Vec<H> {
    // SAFETY: the caller's.
    (0..len).map(|index| H::of(unsafe { read(at.add(index)) })).collect()
}

/// Writes all of them.
///
/// # Safety
/// There is room for so many numbers.
pub unsafe fn write_all<H: Handle>(all: &[H], at: *mut c_int) {
    for (index, handle) in all.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { at.add(index).write_unaligned(handle.number()) }
    }
}

/// Writes those that were given.
///
/// # Safety
/// There is room for their numbers.
pub unsafe fn write_given<H: Handle>(all: &[H], at: *mut c_int) {
    for (index, handle) in all.iter().enumerate().filter(|(_, handle)| **handle != H::NOTHING) {
        // SAFETY: the caller's.
        unsafe { at.add(index).write_unaligned(handle.number()) }
    }
}

/// Ends a function: most programs want to know its code.
///
/// # Safety
/// There is room for a number, or the place is null.
#[inline(always)]
pub unsafe fn end(ierror: *mut c_int, code: c_int) {
    if !ierror.is_null() {
        // SAFETY: the caller's.
        unsafe { ierror.write_unaligned(code) }
    }
}

/// `MPI_UNDEFINED`, in MPICH's ABI and in Open MPI's.
pub const UNDEFINED: c_int = -32766;

/// An index, counted from one.
#[must_use]
pub const fn from_one(index: c_int) -> c_int {
    if index == UNDEFINED { index } else { index + 1 }
}

/// The same of several, of which there may be `UNDEFINED`.
///
/// # Safety
/// There are so many.
pub unsafe fn all_from_one(at: *mut c_int, count: c_int) {
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's.
        unsafe { at.add(index).write_unaligned(from_one(read(at.add(index)))) }
    }
}

/// Statuses, which are the same bytes in both languages, but may have to be aligned for C.
#[derive(Debug)]
pub struct Statuses<S> {
    at: *mut S,
    own: Vec<S>,
}

impl<S: Copy> Statuses<S> {
    /// None is wanted: C is given this instead.
    #[must_use]
    pub const fn ignored(instead: *mut S) -> Self {
        Self { at: instead, own: vec![] }
    }

    /// Those of a program.
    ///
    /// # Safety
    /// There are so many.
    #[must_use]
    pub unsafe fn new(at: *mut c_int, len: usize) -> Self {
        let at: *mut S = at.cast();
        if at.is_aligned() {
            return Self { at, own: vec![] };
        }
        // SAFETY: the caller's.
        Self { at, own: (0..len).map(|index| unsafe { at.add(index).read_unaligned() }).collect() }
    }

    /// What C is given.
    #[must_use]
    pub fn pointer(&mut self) -> *mut S {
        if self.own.is_empty() { self.at } else { self.own.as_mut_ptr() }
    }

    /// What C has written is the program's.
    ///
    /// # Safety
    /// They are still there.
    pub unsafe fn write(self) {
        for (index, status) in self.own.iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { self.at.add(index).write_unaligned(*status) }
        }
    }
}

/// Whether an argument is this one, whose address is its meaning. Fortran's compilers and linkers give the
/// name to one place in the whole program.
#[must_use]
pub fn is_one_of(at: *const c_void, marks: &[*const c_void]) -> bool {
    marks.iter().any(|&mark| ptr::eq(mark, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Twice(u64);

    impl Handle for Twice {
        const NOTHING: Self = Self(0);

        fn of(number: c_int) -> Self {
            Self(number as u64 * 2)
        }

        fn number(self) -> c_int {
            (self.0 / 2) as c_int
        }
    }

    #[test]
    fn handles_are_numbers() {
        let mut numbers = [4, 5, 6];
        // SAFETY: there are three.
        let handles: Vec<Twice> = unsafe { read_all(numbers.as_ptr(), 3) };
        assert_eq!(handles, [Twice(8), Twice(10), Twice(12)]);
        // SAFETY: there are two.
        unsafe { write_all(&[Twice(2), Twice(0)], numbers.as_mut_ptr()) };
        assert_eq!(numbers, [1, 0, 6]);
        // SAFETY: there are two.
        unsafe { write_given(&[Twice::NOTHING, Twice(14)], numbers.as_mut_ptr()) };
        assert_eq!(numbers, [1, 7, 6]);
    }

    #[test]
    fn indices_are_counted_from_one_unless_there_is_none() {
        assert_eq!([from_one(0), from_one(7), from_one(UNDEFINED)], [1, 8, UNDEFINED]);
        let mut indices = [0, 3, 9];
        for count in [2, UNDEFINED, -1] {
            // SAFETY: there are three.
            unsafe { all_from_one(indices.as_mut_ptr(), count) };
        }
        assert_eq!(indices, [1, 4, 9]);
    }

    #[test]
    fn statuses_are_aligned_and_come_back() {
        let mut words = [1, 2, 3, 4, 5, 6, 7];
        for from in [0, 1] {
            // SAFETY: three longer words lie there.
            let mut statuses = unsafe { Statuses::<u64>::new(words[from..].as_mut_ptr(), 3) };
            let at = statuses.pointer();
            assert!(at.is_aligned());
            // SAFETY: there are three.
            unsafe {
                assert_eq!(at.read() as c_int, 1 + from as c_int * 8);
                at.write((9 << 32) | (8 + from as u64));
                statuses.write();
            }
            assert_eq!(words[from..from + 2], [8 + from as c_int, 9]);
        }
    }
}
