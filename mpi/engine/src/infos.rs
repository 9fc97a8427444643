//! Info objects (MPI-5.0, chapter 10).

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::info::{Info as Content, Limits};

use crate::Mpi;
use crate::calls::Infos;
use crate::failure::Answer;
use crate::handle::Info;
use crate::text;

/// An info that a program has made.
pub type Shared = Mutex<Content>;

impl Mpi {
    pub(crate) fn limits(&self) -> Limits {
        let limits = self.face().limits;
        Limits { key: limits.info_key - 1, value: limits.info_value - 1 }
    }

    /// Does something with an info.
    pub(crate) fn with_info<T>(&self, info: Info, f: impl FnOnce(&mut Content) -> Answer<T>) -> Answer<T> {
        if info == Info::ENV {
            // Who changes it changes a copy.
            return f(&mut self.environment());
        }
        let shared = self.infos.get(info).ok_or(Class::Info)?;
        let mut content = shared.lock().unwrap_or_else(PoisonError::into_inner);
        f(&mut content)
    }

    /// A new info.
    pub(crate) fn new_info(&self, content: Content) -> Info {
        self.infos.add(Arc::new(Mutex::new(content)))
    }

    /// `MPI_INFO_ENV` (section 11.4): of what is known.
    fn environment(&self) -> Content {
        let mut content = Content::default();
        let limits = self.limits();
        let mut say = |key: &str, value: &[u8]| {
            let value = &value[..value.len().min(limits.value)];
            let _ = content.set(key.as_bytes(), value, limits);
        };
        let arguments: Vec<String> =
            std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
        if let Some((command, rest)) = arguments.split_first() {
            say("command", command.as_bytes());
            say("argv", rest.join(" ").as_bytes());
        }
        if let Ok(folder) = std::env::current_dir() {
            say("wdir", folder.as_os_str().as_encoded_bytes());
        }
        say("host", text::host().as_bytes());
        content
    }
}

/// A string of the program.
///
/// # Safety
/// It is null, or ends.
unsafe fn string<'a>(at: *const c_char, class: Class) -> Answer<&'a [u8]> {
    if at.is_null() {
        return Err(class.into());
    }
    // SAFETY: the caller's.
    Ok(unsafe { CStr::from_ptr(at) }.to_bytes())
}

impl Infos for Mpi {
    unsafe fn info_create(&self) -> Answer<Info> {
        Ok(self.new_info(Content::default()))
    }

    unsafe fn info_create_env(&self, _: i64, _: *mut c_void) -> Answer<Info> {
        Ok(self.new_info(self.environment()))
    }

    unsafe fn info_delete(&self, info: Info, key: *const c_char) -> Answer<()> {
        // SAFETY: the caller's.
        let key = unsafe { string(key, Class::InfoKey) }?;
        let limits = self.limits();
        self.with_info(info, |content| Ok(content.delete(key, limits)?))
    }

    unsafe fn info_dup(&self, info: Info) -> Answer<Info> {
        let copy = self.with_info(info, |content| Ok(content.clone()))?;
        Ok(self.new_info(copy))
    }

    unsafe fn info_free(&self, info: Info) -> Answer<Info> {
        self.infos.take(info).ok_or(Class::Info)?;
        Ok(Info::NULL)
    }

    unsafe fn info_get(&self, info: Info, key: *const c_char, most: i64, value: *mut c_char) -> Answer<bool> {
        if most < 0 {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's.
        let key = unsafe { string(key, Class::InfoKey) }?;
        let limits = self.limits();
        self.with_info(info, |content| {
            let found = content.get(key, limits)?;
            if let Some(found) = found {
                // SAFETY: the caller's: there is room for so many bytes, and the end.
                unsafe { text::write(value, most as usize + 1, found) };
            }
            Ok(found.is_some())
        })
    }

    unsafe fn info_get_nkeys(&self, info: Info) -> Answer<i64> {
        self.with_info(info, |content| Ok(content.len() as i64))
    }

    unsafe fn info_get_nthkey(&self, info: Info, n: i64, key: *mut c_char) -> Answer<()> {
        let most = self.face().limits.info_key;
        self.with_info(info, |content| {
            let found = usize::try_from(n).ok().and_then(|n| content.nth(n)).ok_or(Class::Arg)?;
            // SAFETY: the caller's: there is room for the longest key.
            unsafe { text::write(key, most, found) };
            Ok(())
        })
    }

    unsafe fn info_get_string(
        &self,
        info: Info,
        key: *const c_char,
        room: i64,
        value: *mut c_char,
    ) -> Answer<(i64, bool)> {
        if room < 0 {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's.
        let key = unsafe { string(key, Class::InfoKey) }?;
        let limits = self.limits();
        self.with_info(info, |content| {
            let Some(found) = content.get(key, limits)? else { return Ok((room, false)) };
            if room > 0 {
                // SAFETY: the caller's: there is room for so many bytes.
                unsafe { text::write(value, room as usize, found) };
            }
            Ok((found.len() as i64 + 1, true))
        })
    }

    unsafe fn info_get_valuelen(&self, info: Info, key: *const c_char, was: i64) -> Answer<(i64, bool)> {
        // SAFETY: the caller's.
        let key = unsafe { string(key, Class::InfoKey) }?;
        let limits = self.limits();
        self.with_info(info, |content| {
            // Where there is no such key it stays what it was.
            Ok(content.get(key, limits)?.map_or((was, false), |value| (value.len() as i64, true)))
        })
    }

    unsafe fn info_set(&self, info: Info, key: *const c_char, value: *const c_char) -> Answer<()> {
        // SAFETY: the caller's.
        let (key, value) = unsafe { (string(key, Class::InfoKey)?, string(value, Class::InfoValue)?) };
        let limits = self.limits();
        self.with_info(info, |content| Ok(content.set(key, value, limits)?))
    }
}
