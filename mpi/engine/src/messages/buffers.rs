//! Buffers for `MPI_Bsend` (MPI-5.0, section 3.6). Messages are copied where they go, so nothing ever lies in
//! such a buffer: it says how much a program may send so.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use bdrun_mpi_core::error::Class;

use crate::failure::Answer;

/// A buffer: where it is and how large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attached {
    at: usize,
    size: i64,
}

/// The buffer of a process, a communicator or a session, if it has one.
#[derive(Debug, Default)]
pub struct Buffers(Mutex<Option<Attached>>);

impl Buffers {
    /// None.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// There is one from now on.
    pub fn attach(&self, at: *mut c_void, size: i64) -> Answer<()> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.is_some() {
            return Err(Class::Buffer.into());
        }
        if size < 0 {
            return Err(Class::Arg.into());
        }
        *buffer = Some(Attached { at: at as usize, size });
        Ok(())
    }

    /// Gives it back: its size, and its address at `to`.
    ///
    /// # Safety
    /// There is room for a pointer.
    pub unsafe fn detach(&self, to: *mut c_void) -> Answer<i64> {
        if to.is_null() {
            return Err(Class::Arg.into());
        }
        let buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Attached { at, size } = buffer.unwrap_or(Attached { at: 0, size: 0 });
        // SAFETY: the caller's.
        unsafe { to.cast::<usize>().write(at) };
        Ok(size)
    }

    /// How large it is, if there is one: without bounds if it is MPI's own (`MPI_BUFFER_AUTOMATIC`).
    pub fn size(&self, automatic: Option<usize>) -> Option<i64> {
        let buffer = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.map(|buffer| if automatic == Some(buffer.at) { i64::MAX } else { buffer.size })
    }
}
