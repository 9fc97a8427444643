//! The calls of attributes and names.

use std::ffi::{CStr, c_char, c_void};

use bdrun_mpi_core::error::Class;

use super::Keys;
use crate::Mpi;
use crate::calls::Attributes;
use crate::face::Kind;
use crate::failure::Answer;
use crate::handle::{Comm, Datatype, Win};
use crate::text;

/// Writes what an attribute holds, an address, to where a program wants it.
///
/// # Safety
/// There is room for an address, or the place is null.
unsafe fn tell(found: Option<usize>, at: *mut c_void) -> Answer<bool> {
    if at.is_null() {
        return Err(Class::Arg.into());
    }
    if let Some(value) = found {
        // SAFETY: the caller's.
        unsafe { at.cast::<usize>().write(value) };
    }
    Ok(found.is_some())
}

impl Mpi {
    /// Tells a name; how long it is.
    ///
    /// # Safety
    /// There is room for the longest name, or the place is null.
    unsafe fn tell_name(&self, name: &[u8], at: *mut c_char) -> Answer<i64> {
        if at.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's.
        Ok(unsafe { text::write(at, self.face().limits.object_name, name) } as i64)
    }

    /// A name that a program gives, as much of it as is kept.
    ///
    /// # Safety
    /// It is null or ends.
    unsafe fn given_name(&self, at: *const c_char) -> Answer<Vec<u8>> {
        if at.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's.
        let name = unsafe { CStr::from_ptr(at) }.to_bytes();
        Ok(name[..name.len().min(self.face().limits.object_name - 1)].into())
    }

    const fn comm_keys(&self) -> &Keys {
        &self.comm_keys
    }
}

impl Attributes for Mpi {
    unsafe fn attr_delete(&self, comm: Comm, keyval: i64) -> Answer<()> {
        // SAFETY: the caller's.
        unsafe { self.comm_delete_attr(comm, keyval) }
    }

    unsafe fn attr_get(&self, comm: Comm, keyval: i64, attribute_val: *mut c_void) -> Answer<bool> {
        // SAFETY: the caller's.
        unsafe { self.comm_get_attr(comm, keyval, attribute_val) }
    }

    unsafe fn attr_put(&self, comm: Comm, keyval: i64, attribute_val: *mut c_void) -> Answer<()> {
        // SAFETY: the caller's.
        unsafe { self.comm_set_attr(comm, keyval, attribute_val) }
    }

    unsafe fn comm_create_keyval(
        &self,
        comm_copy_attr_fn: *mut c_void,
        comm_delete_attr_fn: *mut c_void,
        extra_state: *mut c_void,
    ) -> Answer<i64> {
        Ok(self.comm_keys().create(comm_copy_attr_fn, comm_delete_attr_fn, extra_state))
    }

    unsafe fn comm_delete_attr(&self, comm: Comm, comm_keyval: i64) -> Answer<()> {
        let object = self.comm(comm)?;
        // SAFETY: the caller's.
        unsafe { self.comm_keys().delete(comm_keyval, &object.attributes, self.whose(Kind::Comm, comm)) }
    }

    unsafe fn comm_free_keyval(&self, comm_keyval: i64) -> Answer<i64> {
        self.comm_keys().free(comm_keyval)
    }

    unsafe fn comm_get_attr(&self, comm: Comm, comm_keyval: i64, attribute_val: *mut c_void) -> Answer<bool> {
        let object = self.comm(comm)?;
        let found = match self.predefined(comm_keyval)? {
            Some(address) => Some(address),
            None => self.comm_keys().get(comm_keyval, &object.attributes)?,
        };
        // SAFETY: the caller's.
        unsafe { tell(found, attribute_val) }
    }

    unsafe fn comm_get_name(&self, comm: Comm, comm_name: *mut c_char) -> Answer<i64> {
        let name = match comm {
            Comm::NULL => b"MPI_COMM_NULL".into(),
            _ => self.comm(comm)?.with(|state| state.name.clone()),
        };
        // SAFETY: the caller's.
        unsafe { self.tell_name(&name, comm_name) }
    }

    unsafe fn comm_set_attr(&self, comm: Comm, comm_keyval: i64, attribute_val: *mut c_void) -> Answer<()> {
        let (object, value) = (self.comm(comm)?, attribute_val as usize);
        // SAFETY: the caller's.
        unsafe { self.comm_keys().set(comm_keyval, value, &object.attributes, self.whose(Kind::Comm, comm)) }
    }

    unsafe fn comm_set_name(&self, comm: Comm, comm_name: *const c_char) -> Answer<()> {
        let object = self.comm(comm)?;
        // SAFETY: the caller's.
        let name = unsafe { self.given_name(comm_name) }?;
        // One that is still being made has no place yet.
        if let Ok(place) = object.place() {
            self.link()?.set_name(place, &String::from_utf8_lossy(&name));
        }
        object.with(|state| state.name = name);
        Ok(())
    }

    unsafe fn keyval_create(
        &self,
        copy_fn: *mut c_void,
        delete_fn: *mut c_void,
        extra_state: *mut c_void,
    ) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { self.comm_create_keyval(copy_fn, delete_fn, extra_state) }
    }

    unsafe fn keyval_free(&self, keyval: i64) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { self.comm_free_keyval(keyval) }
    }

    unsafe fn type_create_keyval(
        &self,
        type_copy_attr_fn: *mut c_void,
        type_delete_attr_fn: *mut c_void,
        extra_state: *mut c_void,
    ) -> Answer<i64> {
        Ok(self.types.keys.create(type_copy_attr_fn, type_delete_attr_fn, extra_state))
    }

    unsafe fn type_delete_attr(&self, datatype: Datatype, type_keyval: i64) -> Answer<()> {
        let object = self.types.get(datatype)?;
        // SAFETY: the caller's.
        unsafe {
            self.types.keys.delete(type_keyval, &object.attributes, self.whose(Kind::Datatype, datatype))
        }
    }

    unsafe fn type_free_keyval(&self, type_keyval: i64) -> Answer<i64> {
        self.types.keys.free(type_keyval)
    }

    unsafe fn type_get_attr(
        &self,
        datatype: Datatype,
        type_keyval: i64,
        attribute_val: *mut c_void,
    ) -> Answer<bool> {
        let object = self.types.get(datatype)?;
        let found = self.types.keys.get(type_keyval, &object.attributes)?;
        // SAFETY: the caller's.
        unsafe { tell(found, attribute_val) }
    }

    unsafe fn type_get_name(&self, datatype: Datatype, type_name: *mut c_char) -> Answer<i64> {
        let name = match datatype {
            Datatype::NULL => b"MPI_DATATYPE_NULL".into(),
            _ => self.types.get(datatype)?.name(),
        };
        // SAFETY: the caller's.
        unsafe { self.tell_name(&name, type_name) }
    }

    unsafe fn type_set_attr(
        &self,
        datatype: Datatype,
        type_keyval: i64,
        attribute_val: *mut c_void,
    ) -> Answer<()> {
        let object = self.types.get(datatype)?;
        let value = attribute_val as usize;
        // SAFETY: the caller's.
        unsafe {
            self.types.keys.set(type_keyval, value, &object.attributes, self.whose(Kind::Datatype, datatype))
        }
    }

    unsafe fn type_set_name(&self, datatype: Datatype, type_name: *const c_char) -> Answer<()> {
        let object = self.types.get(datatype)?;
        // SAFETY: the caller's.
        object.set_name(&unsafe { self.given_name(type_name) }?);
        Ok(())
    }

    unsafe fn win_create_keyval(
        &self,
        win_copy_attr_fn: *mut c_void,
        win_delete_attr_fn: *mut c_void,
        extra_state: *mut c_void,
    ) -> Answer<i64> {
        Ok(self.win_keys.create(win_copy_attr_fn, win_delete_attr_fn, extra_state))
    }

    unsafe fn win_delete_attr(&self, win: Win, win_keyval: i64) -> Answer<()> {
        let object = self.win(win)?;
        // SAFETY: the caller's.
        unsafe { self.win_keys.delete(win_keyval, &object.attributes, self.whose(Kind::Win, win)) }
    }

    unsafe fn win_free_keyval(&self, win_keyval: i64) -> Answer<i64> {
        self.win_keys.free(win_keyval)
    }

    unsafe fn win_get_attr(&self, win: Win, win_keyval: i64, attribute_val: *mut c_void) -> Answer<bool> {
        let object = self.win(win)?;
        let found = match self.win_attribute(&object, win_keyval) {
            Some(address) => Some(address),
            None => self.win_keys.get(win_keyval, &object.attributes)?,
        };
        // SAFETY: the caller's.
        unsafe { tell(found, attribute_val) }
    }

    unsafe fn win_get_name(&self, win: Win, win_name: *mut c_char) -> Answer<i64> {
        let name = match win {
            Win::NULL => b"MPI_WIN_NULL".into(),
            _ => self.win(win)?.comm().with(|state| state.name.clone()),
        };
        // SAFETY: the caller's.
        unsafe { self.tell_name(&name, win_name) }
    }

    unsafe fn win_set_attr(&self, win: Win, win_keyval: i64, attribute_val: *mut c_void) -> Answer<()> {
        let (object, value) = (self.win(win)?, attribute_val as usize);
        // SAFETY: the caller's.
        unsafe { self.win_keys.set(win_keyval, value, &object.attributes, self.whose(Kind::Win, win)) }
    }

    unsafe fn win_set_name(&self, win: Win, win_name: *const c_char) -> Answer<()> {
        let object = self.win(win)?;
        // SAFETY: the caller's.
        let name = unsafe { self.given_name(win_name) }?;
        object.comm().with(|state| state.name = name);
        Ok(())
    }
}
