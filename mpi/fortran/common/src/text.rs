//! Strings: in Fortran they are as long as their variable, filled up with blanks, and do not end.

use std::ffi::{CString, c_char, c_void};

/// The longest string that any ABI has room for, and its end.
const LONGEST: usize = 8192 + 1;

/// A string as C has it, without the blanks at its end, and those before it if they are none of it.
///
/// # Safety
/// There are so many bytes.
#[must_use]
pub unsafe fn taken(at: *const c_void, len: usize, strips: bool) -> CString {
    let bytes = if at.is_null() || len == 0 {
        &[]
    } else {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) }
    };
    // Some programs end it as in C.
    let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    let end = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    let blanks = bytes[..end].iter().take_while(|&&byte| byte == b' ').count();
    CString::new(&bytes[if strips { blanks } else { 0 }..end]).unwrap_or_default()
}

/// Strings that lie behind each other, `step` bytes from one to the next, until one is empty.
///
/// # Safety
/// There are strings of so many bytes, the last of them blank.
#[must_use]
pub unsafe fn until_blank(at: *const c_void, len: usize, step: usize) -> Vec<CString> {
    let mut all = vec![];
    loop {
        // SAFETY: the caller's: the last one was not blank.
        let one = unsafe { taken(at.wrapping_byte_add(all.len() * step), len, false) };
        if one.is_empty() {
            return all;
        }
        all.push(one);
    }
}

/// Their addresses, and the end, as C wants arguments of a program.
#[must_use]
pub fn addresses(all: &[CString]) -> Vec<*const c_char> {
    all.iter().map(|one| one.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Writes a string into a variable of so many bytes.
///
/// # Safety
/// There is room.
pub unsafe fn given(text: &[u8], at: *mut c_void, len: usize) {
    let at: *mut u8 = at.cast();
    let copied = text.len().min(len);
    if len > 0 {
        // SAFETY: the caller's.
        unsafe {
            at.copy_from(text.as_ptr(), copied);
            at.add(copied).write_bytes(b' ', len - copied);
        }
    }
}

/// Room for a string of C's.
#[derive(Debug)]
pub struct Room(Box<[u8; LONGEST]>);

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

impl Room {
    /// The longest string that C may write.
    pub const MOST: usize = LONGEST - 1;

    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self(Box::new([0; LONGEST]))
    }

    /// Where C writes.
    #[must_use]
    pub fn pointer(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    /// What C has written becomes the program's.
    ///
    /// # Safety
    /// There is room for so many bytes.
    pub unsafe fn write(&self, at: *mut c_void, len: usize) {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(LONGEST);
        // SAFETY: the caller's.
        unsafe { given(&self.0[..end], at, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, strips: bool) -> String {
        // SAFETY: as many as there are.
        unsafe { taken(text.as_ptr().cast(), text.len(), strips) }.into_string().expect("it is text")
    }

    #[test]
    fn blanks_at_the_end_are_none_of_it() {
        for (text, kept, stripped) in [
            ("abc   ", "abc", "abc"),
            ("  a b ", "  a b", "a b"),
            ("    ", "", ""),
            ("", "", ""),
            ("x\0 y  ", "x", "x"),
        ] {
            assert_eq!((&*all(text, false), &*all(text, true)), (kept, stripped), "{text:?}");
        }
    }

    #[test]
    fn what_is_given_is_filled_up_or_cut() {
        let mut room = Room::new();
        // SAFETY: there is room.
        unsafe { room.pointer().cast::<[u8; 6]>().write(*b"name\0x") };
        for (len, said) in [(8, "name    "), (4, "name"), (2, "na")] {
            let mut to = vec![b'#'; len + 1];
            // SAFETY: there is room.
            unsafe { room.write(to.as_mut_ptr().cast(), len) };
            assert_eq!(to, format!("{said}#").into_bytes());
        }
    }

    #[test]
    fn arguments_end_with_a_blank_one() {
        let rows = b"-a  b c     xxxx";
        // SAFETY: the third is blank.
        let found = unsafe { until_blank(rows.as_ptr().cast(), 4, 4) };
        assert_eq!(found, [c"-a".to_owned(), c"b c".to_owned()]);
        // Every second one, as of the first of two programs.
        let columns = b"a yyb zz    xxxx";
        // SAFETY: the third is blank.
        let found = unsafe { until_blank(columns.as_ptr().cast(), 2, 4) };
        assert_eq!(found, [c"a".to_owned(), c"b".to_owned()]);
        assert_eq!(addresses(&found).len(), 3);
    }
}
