//! Generalized requests (MPI-5.0, section 13.2): what they wait for, the program does.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;

use crate::args::Status;
use crate::attributes::returned;
use crate::face::Face;
use crate::failure::Answer;
use crate::operation::Done;

/// `MPI_Grequest_query_function`.
type Query = extern "C" fn(*mut c_void, *mut u8) -> c_int;
/// `MPI_Grequest_free_function`.
type Free = extern "C" fn(*mut c_void) -> c_int;
/// `MPI_Grequest_cancel_function`.
type Cancel = extern "C" fn(*mut c_void, c_int) -> c_int;

/// A program's functions, and their extra state: addresses.
#[derive(Debug)]
pub struct General {
    pub query: usize,
    pub free: usize,
    pub cancel: usize,
    pub state: usize,
    /// `MPI_Request_free` was called.
    pub is_freed: AtomicBool,
    /// It was that call, or the one that completes it, which came last: that one ends it.
    pub has_ended: AtomicBool,
}

impl General {
    fn state(&self) -> *mut c_void {
        self.state as *mut c_void
    }

    /// What is told of it.
    ///
    /// # Safety
    /// The function is such.
    pub unsafe fn query(&self, face: &Face) -> Done {
        // As aligned as any status is.
        let mut status = vec![0_u64; face.status.size.div_ceil(8)];
        let at = status.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's; there is room for a status, and one is written first.
        unsafe {
            (face.status.write)(at, &Status::EMPTY);
            let query = (self.query != 0).then(|| std::mem::transmute::<usize, Query>(self.query));
            let code = query.map_or(0, |query| query(self.state(), at));
            let told = (face.status.read)(at);
            Done { status: Status { error: None, ..told }, failure: returned(face, code).err() }
        }
    }

    /// It is not needed any more.
    ///
    /// # Safety
    /// The function is such.
    pub unsafe fn free(&self, face: &Face) -> Answer<()> {
        if self.free == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        let free = unsafe { std::mem::transmute::<usize, Free>(self.free) };
        returned(face, free(self.state()))
    }

    /// The program would like it to end.
    ///
    /// # Safety
    /// The function is such.
    pub unsafe fn cancel(&self, face: &Face, is_complete: bool) -> Answer<()> {
        if self.cancel == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        let cancel = unsafe { std::mem::transmute::<usize, Cancel>(self.cancel) };
        returned(face, cancel(self.state(), is_complete.into()))
    }
}
