//! Attributes and names (MPI-5.0, sections 7.7 and 7.8): those of datatypes and of communicators; those of
//! windows wait for these.
//!
//! | question | file |
//! |---|---|
//! | when is which function of the program called? | here |
//! | what do the calls check? | `calls.rs` |
//! | what does a communicator have without a program's doing? | `predefined.rs` |

mod calls;
mod predefined;

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bdrun_mpi_core::attribute::{Attribute, Attributes as Set, Key, Keyvals};
use bdrun_mpi_core::error::{Class, Code};

use crate::Mpi;
use crate::face::{Face, Kind, Meaning};
use crate::failure::{Answer, code};
use crate::handle::Handle;

pub use predefined::Predefined;

/// `MPI_KEYVAL_INVALID`.
pub const INVALID: i64 = 0;
/// Keyvals of programs begin here.
const FIRST: i64 = 0x1000;
/// Kinds of objects that have attributes.
const KINDS: i64 = 4;
/// `MPI_TYPE_NULL_COPY_FN`, `MPI_TYPE_NULL_DELETE_FN` and their like.
const NONE: usize = 0;

/// `MPI_Type_copy_attr_function` and its like.
type Copy = extern "C" fn(u64, c_int, *mut c_void, usize, *mut usize, *mut c_int) -> c_int;
/// `MPI_Type_delete_attr_function` and its like.
type Delete = extern "C" fn(u64, c_int, usize, *mut c_void) -> c_int;

/// The functions of a keyval, and their extra state: addresses.
#[derive(Debug, Clone, Copy)]
pub struct Functions {
    copy: usize,
    delete: usize,
    state: usize,
}

/// The attributes of an object.
pub type Attached = Mutex<Set>;

/// All keyvals of one kind of object. A program's functions are called while nothing is locked.
#[derive(Debug)]
pub struct Keys {
    /// Which kind: no keyval of one has the number of another's.
    kind: i64,
    keyvals: Mutex<Keyvals<Functions>>,
}

/// The object that a program's functions are told of, as they know it.
#[derive(Debug, Clone, Copy)]
pub struct Whose {
    face: &'static Face,
    word: u64,
}

impl Mpi {
    /// An object for the functions of its attributes.
    pub(crate) fn whose(&self, kind: Kind, handle: impl Handle) -> Whose {
        let face = self.face();
        Whose { face, word: (face.handle)(kind, handle.value()) }
    }
}

/// What a function of the program has returned.
pub fn returned(face: &Face, value: c_int) -> Answer<()> {
    match code((face.error)(value)) {
        Some(Code::Success) => Ok(()),
        Some(code) => Err(code.into()),
        None => Err(Class::Other.into()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keys {
    /// None, of this kind of object (below four).
    pub const fn new(kind: i64) -> Self {
        assert!(kind < KINDS);
        Self { kind, keyvals: Mutex::new(Keyvals::new()) }
    }

    fn number(&self, key: Key) -> i64 {
        FIRST + KINDS * i64::from(key) + self.kind
    }

    fn key(&self, number: i64) -> Answer<Key> {
        let place = number - FIRST;
        let key = (place >= 0 && place % KINDS == self.kind).then_some(place / KINDS);
        key.and_then(|key| Key::try_from(key).ok()).ok_or_else(|| Class::Keyval.into())
    }

    /// The key of one that a program may use.
    fn usable(&self, number: i64) -> Answer<Key> {
        let key = self.key(number)?;
        lock(&self.keyvals).get(key).ok_or(Class::Keyval)?;
        Ok(key)
    }

    /// `MPI_X_create_keyval`.
    pub fn create(&self, copy: *mut c_void, delete: *mut c_void, state: *mut c_void) -> i64 {
        let functions = Functions { copy: copy as usize, delete: delete as usize, state: state as usize };
        let key = lock(&self.keyvals).create(functions);
        self.number(key)
    }

    /// `MPI_X_free_keyval`.
    pub fn free(&self, number: i64) -> Answer<i64> {
        let key = self.key(number)?;
        if lock(&self.keyvals).free(key) { Ok(INVALID) } else { Err(Class::Keyval.into()) }
    }

    /// `MPI_X_get_attr`.
    pub fn get(&self, number: i64, of: &Attached) -> Answer<Option<usize>> {
        let key = self.usable(number)?;
        Ok(lock(of).get(key))
    }

    /// `MPI_X_set_attr`, of an object with this handle.
    ///
    /// # Safety
    /// The functions of the keyvals are such.
    pub unsafe fn set(&self, number: i64, value: usize, of: &Attached, whose: Whose) -> Answer<()> {
        let key = self.usable(number)?;
        let old = lock(of).find(key, &lock(&self.keyvals));
        if let Some(old) = old {
            // SAFETY: the caller's.
            unsafe { self.deleted(&old, whose) }?;
        }
        let (mut attributes, mut keyvals) = (lock(of), lock(&self.keyvals));
        if keyvals.get(key).is_none() {
            // The function has freed it: what it was called for is gone, and nothing new comes.
            attributes.remove(key, &mut keyvals);
            return Err(Class::Keyval.into());
        }
        attributes.set(key, value, &mut keyvals);
        Ok(())
    }

    /// `MPI_X_delete_attr`; nothing if there is none.
    ///
    /// # Safety
    /// As of [`set`](Self::set).
    pub unsafe fn delete(&self, number: i64, of: &Attached, whose: Whose) -> Answer<()> {
        let key = self.usable(number)?;
        let old = lock(of).find(key, &lock(&self.keyvals));
        if let Some(old) = old {
            // SAFETY: the caller's.
            unsafe { self.deleted(&old, whose) }?;
            lock(of).remove(key, &mut lock(&self.keyvals));
        }
        Ok(())
    }

    /// The attributes of a copy of the object with this handle. If a function fails, what was copied is
    /// deleted again, as attributes of the same object.
    ///
    /// # Safety
    /// As of [`set`](Self::set).
    pub unsafe fn copy(&self, of: &Attached, whose: Whose) -> Answer<Attached> {
        let copies = Mutex::new(Set::default());
        let all = lock(of).to_copy(&lock(&self.keyvals));
        for one in all {
            // SAFETY: the caller's.
            match unsafe { self.copied(&one, whose) } {
                Ok(Some(value)) => lock(&copies).set(one.key, value, &mut lock(&self.keyvals)),
                Ok(None) => {}
                Err(failure) => {
                    // The first failure is told, whatever else fails now.
                    // SAFETY: the caller's.
                    let _ = unsafe { self.delete_all(&copies, whose) };
                    return Err(failure);
                }
            }
        }
        Ok(copies)
    }

    /// Deletes all attributes of an object that is to be freed: the last first, up to one whose function
    /// fails.
    ///
    /// # Safety
    /// As of [`set`](Self::set).
    pub unsafe fn delete_all(&self, of: &Attached, whose: Whose) -> Answer<()> {
        loop {
            let last = lock(of).last(&lock(&self.keyvals));
            let Some(last) = last else { return Ok(()) };
            // SAFETY: the caller's.
            unsafe { self.deleted(&last, whose) }?;
            lock(of).remove(last.key, &mut lock(&self.keyvals));
        }
    }

    /// Calls the function for copies; what the copy has, if anything.
    ///
    /// # Safety
    /// As of [`set`](Self::set).
    unsafe fn copied(&self, one: &Attribute<Functions>, whose: Whose) -> Answer<Option<usize>> {
        match one.functions.copy {
            NONE => Ok(None),
            address if whose.face.duplicate == Some(address) => Ok(Some(one.value)),
            address => {
                // SAFETY: the caller's: it is such a function. A handle that is an `int` elsewhere is read
                // from the same register.
                let copy = unsafe { std::mem::transmute::<usize, Copy>(address) };
                let (mut value, mut flag) = (0, 0);
                let key = (whose.face.number)(Meaning::Keyval, self.number(one.key));
                let state = one.functions.state as *mut c_void;
                returned(whose.face, copy(whose.word, key, state, one.value, &raw mut value, &raw mut flag))?;
                Ok((flag != 0).then_some(value))
            }
        }
    }

    /// Calls the function for deletion.
    ///
    /// # Safety
    /// As of [`set`](Self::set).
    unsafe fn deleted(&self, one: &Attribute<Functions>, whose: Whose) -> Answer<()> {
        if one.functions.delete == NONE {
            return Ok(());
        }
        // SAFETY: the caller's: it is such a function, as above.
        let delete = unsafe { std::mem::transmute::<usize, Delete>(one.functions.delete) };
        let state = one.functions.state as *mut c_void;
        let key = (whose.face.number)(Meaning::Keyval, self.number(one.key));
        returned(whose.face, delete(whose.word, key, one.value, state))
    }
}

#[cfg(test)]
mod tests;
