//! Arguments of calls that are neither numbers nor one handle.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use crate::failure::Answer;
use crate::handle::Handle;

/// Memory of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// `MPI_IN_PLACE`.
    InPlace,
    /// From here on; null is `MPI_BOTTOM`.
    At(*mut u8),
}

/// Numbers that are only read. May be null.
#[derive(Debug, Clone, Copy)]
pub enum Ints {
    /// `int`.
    Small(*const c_int),
    /// `MPI_Aint`, `MPI_Count` or `MPI_Offset`.
    Large(*const i64),
}

impl Ints {
    /// Of `int`.
    #[must_use]
    pub const fn small(at: *const c_int) -> Self {
        Self::Small(at)
    }

    /// Of 64 bits.
    #[must_use]
    pub const fn large(at: *const i64) -> Self {
        Self::Large(at)
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_null(self) -> bool {
        match self {
            Self::Small(at) => at.is_null(),
            Self::Large(at) => at.is_null(),
        }
    }

    /// One of them.
    ///
    /// # Safety
    /// There are more than `index`.
    #[must_use]
    pub unsafe fn get(self, index: usize) -> i64 {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Small(at) => i64::from(at.add(index).read_unaligned()),
                Self::Large(at) => at.add(index).read_unaligned(),
            }
        }
    }
}

/// Numbers that are written. May be null.
#[derive(Debug, Clone, Copy)]
pub enum IntsOut {
    /// `int`.
    Small(*mut c_int),
    /// `MPI_Aint` or `MPI_Count`.
    Large(*mut i64),
    /// `int`, of which each ABI has others: written as this says.
    Meant(*mut c_int, fn(i64) -> c_int),
}

impl IntsOut {
    /// Of `int`.
    #[must_use]
    pub const fn small(at: *mut c_int) -> Self {
        Self::Small(at)
    }

    /// Of 64 bits.
    #[must_use]
    pub const fn large(at: *mut i64) -> Self {
        Self::Large(at)
    }

    /// Of `int`, written by the face.
    #[must_use]
    pub const fn meant(at: *mut c_int, write: fn(i64) -> c_int) -> Self {
        Self::Meant(at, write)
    }

    /// Whether there is no room for any.
    #[must_use]
    pub const fn is_null(self) -> bool {
        match self {
            Self::Small(at) | Self::Meant(at, _) => at.is_null(),
            Self::Large(at) => at.is_null(),
        }
    }

    /// One of them, as the program has written it.
    ///
    /// # Safety
    /// There are more than `index`, and they were written.
    #[must_use]
    pub unsafe fn get(self, index: usize) -> i64 {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Small(at) | Self::Meant(at, _) => i64::from(at.add(index).read_unaligned()),
                Self::Large(at) => at.add(index).read_unaligned(),
            }
        }
    }

    /// Writes one of them, as far as it fits.
    ///
    /// # Safety
    /// There is room for more than `index`.
    pub unsafe fn set(self, index: usize, value: i64) {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Small(at) => at.add(index).write_unaligned(value as c_int),
                Self::Large(at) => at.add(index).write_unaligned(value),
                Self::Meant(at, write) => at.add(index).write_unaligned(write(value)),
            }
        }
    }
}

/// Numbers that each ABI has others for.
#[derive(Debug, Clone, Copy)]
pub struct Meant {
    at: *const c_int,
    read: fn(c_int) -> Answer<i64>,
}

impl Meant {
    /// From here on, read by the face.
    #[must_use]
    pub const fn new(at: *const c_int, read: fn(c_int) -> Answer<i64>) -> Self {
        Self { at, read }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.at.is_null()
    }

    /// One of them.
    ///
    /// # Safety
    /// There are more than `index`.
    ///
    /// # Errors
    /// It means nothing.
    pub unsafe fn get(self, index: usize) -> Answer<i64> {
        // SAFETY: the caller's.
        (self.read)(unsafe { self.at.add(index).read_unaligned() })
    }
}

/// Several handles of the program's, which are read and written one by one. May be null.
#[derive(Debug, Clone, Copy)]
pub struct Handles<T> {
    at: *mut c_void,
    read: unsafe fn(*mut c_void, usize) -> Answer<u64>,
    write: unsafe fn(*mut c_void, usize, u64),
    kind: PhantomData<T>,
}

impl<T: Handle> Handles<T> {
    /// From here on, by functions of the face. What is only read is never written.
    #[must_use]
    pub const fn new(
        at: *mut c_void,
        read: unsafe fn(*mut c_void, usize) -> Answer<u64>,
        write: unsafe fn(*mut c_void, usize, u64),
    ) -> Self {
        Self { at, read, write, kind: PhantomData }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        self.at.is_null()
    }

    /// One of them.
    ///
    /// # Safety
    /// There are more than `index`.
    ///
    /// # Errors
    /// It is no handle.
    pub unsafe fn get(&self, index: usize) -> Answer<T> {
        // SAFETY: the caller's.
        unsafe { (self.read)(self.at, index) }.map(T::new)
    }

    /// Writes one of them.
    ///
    /// # Safety
    /// There is room for more than `index`, and the program expects it.
    pub unsafe fn set(&self, index: usize, handle: T) {
        // SAFETY: the caller's.
        unsafe { (self.write)(self.at, index, handle.value()) }
    }
}

/// What is told of a message, or of an operation that is complete (MPI-5.0, section 3.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// From which rank.
    pub source: i64,
    /// With which tag.
    pub tag: i64,
    /// The error code, of calls that complete several; else it is left as it was.
    pub error: Option<i64>,
    /// Bytes.
    pub count: i64,
    /// It was cancelled.
    pub cancelled: bool,
}

impl Status {
    /// Of an operation that has no message: "empty".
    pub const EMPTY: Self = Self { source: -1, tag: -2, error: Some(0), count: 0, cancelled: false };
}

/// Where several statuses go, if anywhere.
#[derive(Debug, Clone, Copy)]
pub struct Statuses {
    at: *mut c_void,
    write: unsafe fn(*mut c_void, usize, &Status),
}

impl Statuses {
    /// From here on, by a function of the face; null: nobody wants them.
    #[must_use]
    pub const fn new(at: *mut c_void, write: unsafe fn(*mut c_void, usize, &Status)) -> Self {
        Self { at, write }
    }

    /// Writes one of them.
    ///
    /// # Safety
    /// There is room for more than `index`.
    pub unsafe fn set(&self, index: usize, status: &Status) {
        if !self.at.is_null() {
            // SAFETY: the caller's.
            unsafe { (self.write)(self.at, index, status) }
        }
    }
}

/// Weights of edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// `MPI_UNWEIGHTED`.
    None,
    /// `MPI_WEIGHTS_EMPTY`: they have weights, but there are no edges.
    Empty,
    /// From here on; `MPI_Dist_graph_neighbors` writes them.
    At(*const c_int),
}
