//! Operations of reductions (MPI-5.0, section 6.9).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::operation::{Kernel, Operation};

use crate::Mpi;
use crate::args::Buffer;
use crate::calls::Operations;
use crate::datatypes::Object;
use crate::face::Kind;
use crate::failure::Answer;
use crate::handle::{Datatype, Op};

/// `MPI_User_function`, and one argument more, which most do not look at (`Mpi::op_with`).
type Small = extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut u64, *mut c_void);
/// `MPI_User_function_c`.
type Large = extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut u64);

/// An operation that a program has made.
#[derive(Debug)]
pub struct Made {
    function: Function,
    commutes: bool,
    /// What the function gets behind what the standard says.
    with: AtomicPtr<c_void>,
}

#[derive(Debug, Clone, Copy)]
enum Function {
    Small(Small),
    Large(Large),
}

/// The handle of a predefined one.
const fn handle(operation: Operation) -> Op {
    Op(match operation {
        Operation::Sum => 0x21,
        Operation::Min => 0x22,
        Operation::Max => 0x23,
        Operation::Product => 0x24,
        Operation::BitAnd => 0x28,
        Operation::BitOr => 0x29,
        Operation::BitXor => 0x2a,
        Operation::LogicalAnd => 0x30,
        Operation::LogicalOr => 0x31,
        Operation::LogicalXor => 0x32,
        Operation::MinLocation => 0x38,
        Operation::MaxLocation => 0x39,
        Operation::Replace => 0x3c,
        Operation::Nothing => 0x3d,
    })
}

/// The predefined one with a handle.
pub fn predefined(op: Op) -> Option<Operation> {
    Operation::ALL.into_iter().find(|&operation| handle(operation) == op)
}

/// What folds elements of a datatype into others. It lives on when its handle is freed.
#[derive(Debug, Clone)]
pub struct Fold {
    how: How,
    /// The datatype, whose handle no other has as long as this is here.
    of: Arc<Object>,
}

#[derive(Debug, Clone)]
enum How {
    Predefined(Kernel),
    /// The handle is what the program's function is told.
    Made(Arc<Made>, u64),
}

impl Fold {
    /// Combines `count` elements: each of the second becomes *first* op *second*.
    ///
    /// # Safety
    /// What the datatype says of so many of them can be read and written, nobody else uses them meanwhile,
    /// and they do not overlap. A function that a program has given is one.
    pub unsafe fn apply(&self, first: *const u8, second: *mut u8, count: u64) {
        if count == 0 {
            return;
        }
        match &self.how {
            // SAFETY: the caller's; a predefined datatype has no gaps that belong to others.
            How::Predefined(kernel) => unsafe { kernel(first, second, count as usize) },
            How::Made(made, datatype) => {
                // An ABI with handles of 4 bytes reads the first ones.
                let mut datatype = *datatype;
                match made.function {
                    Function::Large(f) => {
                        let mut len = count as i64;
                        f(first.cast_mut().cast(), second.cast(), &raw mut len, &raw mut datatype);
                    }
                    Function::Small(f) => {
                        // What no int can count is folded in parts.
                        let (mut done, with) = (0, made.with.load(Relaxed));
                        while done < count {
                            let part = (count - done).min(c_int::MAX as u64);
                            let by = (done as i64).wrapping_mul(self.of.of.extent()) as isize;
                            let (mut len, mut handle) = (part as c_int, datatype);
                            let (first, second) = (first.wrapping_offset(by), second.wrapping_offset(by));
                            f(first.cast_mut().cast(), second.cast(), &raw mut len, &raw mut handle, with);
                            done += part;
                        }
                    }
                }
            }
        }
    }
}

impl Mpi {
    /// The function of an operation, made by a language's library, gets this as its last argument.
    ///
    /// # Errors
    /// `MPI_ERR_OP`: it is not one that was made.
    pub fn op_with(&self, op: Op, with: *mut c_void) -> Answer<()> {
        self.ops.get(op).ok_or(Class::Op)?.with.store(with, Relaxed);
        Ok(())
    }

    /// What an operation does with a datatype, in a reduction.
    ///
    /// # Errors
    /// `MPI_ERR_OP`: there is no such operation, or it is not defined for this datatype, or not for
    /// reductions; `MPI_ERR_TYPE`: the datatype is none, or not committed.
    pub(crate) fn fold(&self, op: Op, datatype: Datatype) -> Answer<Fold> {
        let of = self.types.get_committed(datatype)?;
        let how = match predefined(op) {
            Some(operation) if operation.is_for_accumulates() => return Err(Class::Op.into()),
            Some(operation) => {
                let kernel = of.of.as_basic().and_then(|basic| operation.kernel(basic));
                How::Predefined(kernel.ok_or(Class::Op)?)
            }
            None => How::Made(
                self.ops.get(op).ok_or(Class::Op)?,
                (self.face().handle)(Kind::Datatype, datatype.0),
            ),
        };
        Ok(Fold { how, of })
    }

    /// Whether the order of operands may be changed.
    ///
    /// # Errors
    /// `MPI_ERR_OP`: there is no such operation.
    pub(crate) fn commutes(&self, op: Op) -> Answer<bool> {
        match predefined(op) {
            Some(operation) => Ok(!operation.is_for_accumulates()),
            None => Ok(self.ops.get(op).ok_or(Class::Op)?.commutes),
        }
    }
}

impl Operations for Mpi {
    unsafe fn op_commutative(&self, op: Op) -> Answer<bool> {
        self.commutes(op)
    }

    unsafe fn op_create(&self, user_fn: *mut c_void, commute: bool, large: bool) -> Answer<Op> {
        if user_fn.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: it is such a function, of the form of the call.
        let function = unsafe {
            if large {
                Function::Large(std::mem::transmute::<*mut c_void, Large>(user_fn))
            } else {
                Function::Small(std::mem::transmute::<*mut c_void, Small>(user_fn))
            }
        };
        Ok(self.ops.add(Arc::new(Made {
            function,
            commutes: commute,
            with: AtomicPtr::new(ptr::null_mut()),
        })))
    }

    unsafe fn op_free(&self, op: Op) -> Answer<Op> {
        self.ops.take(op).ok_or(Class::Op)?;
        Ok(Op::NULL)
    }

    unsafe fn reduce_local(
        &self,
        inbuf: Buffer,
        inoutbuf: Buffer,
        count: i64,
        datatype: Datatype,
        op: Op,
    ) -> Answer<()> {
        let (from, into) = (self.span(inbuf, count, datatype)?, self.span(inoutbuf, count, datatype)?);
        let fold = self.fold(op, datatype)?;
        // SAFETY: the caller's: two buffers that do not overlap, and hold as many.
        unsafe { fold.apply(from.at(), into.at(), count as u64) };
        Ok(())
    }
}

#[cfg(test)]
#[path = "operations_tests.rs"]
mod tests;
