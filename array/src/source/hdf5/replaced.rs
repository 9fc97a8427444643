//! Whether a file that is there may be replaced.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::ledger::is_locked_by_others;
use super::library::Locked;
use super::object::{self, Object};

fn refused(kind: io::ErrorKind, why: impl Display) -> io::Error {
    let rest = "the file would be replaced, and what else is in it would be lost; name another one, or remove this one";
    io::Error::new(kind, format!("{why}: {rest}"))
}

/// What is there is certainly no file of HDF5, or has no more in it than the dataset that is written, which
/// goes with its attributes: of others nobody wants to lose the rest. What cannot be looked at is not
/// replaced.
pub(super) fn can_be(locked: &Locked, path: &Path, inner: &str) -> io::Result<()> {
    let unseen =
        |error: io::Error| refused(error.kind(), format_args!("what is in it cannot be seen ({error})"));
    let more = |why: &str| Err(refused(io::ErrorKind::InvalidData, why));
    let plain = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(unseen)?,
    };
    // Whoever writes to it has the library's lock. What is in it is not in the file yet, and what comes later
    // would be in one without a name. Where there are no locks nobody has one. It is given back with `plain`.
    if is_locked_by_others(|| plain.try_lock_shared()).unwrap_or(false) {
        return more("somebody writes to it, here or in another program, and has to close it first");
    }
    let _lock = locked.enter();
    let Ok(file) = Object::open_file(locked, path) else {
        if !has_signature(&plain).map_err(unseen)? {
            return Ok(());
        }
        return more(
            "it is a file of HDF5 that cannot be opened (it is damaged, was not closed by who wrote it, or is of \
             a newer version than this libhdf5)",
        );
    };
    let count = object::count(locked, &file)?;
    let is_alone = count == 0 || count == 1 && Object::open_dataset(locked, &file, inner).is_ok();
    if !is_alone {
        return more(&format!("there is more in it than {inner}"));
    }
    if object::has_attributes(locked, &file)? {
        return more("the file has attributes of its own");
    }
    if object::is_shifted(locked, &file)? {
        return more("it begins with something that is not HDF5's (a user block)");
    }
    Ok(())
}

/// By which a file of HDF5 is known.
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// Whether a file has it where the library looks for it: at its beginning, at 512 bytes, at twice as many,
/// and so on.
fn has_signature(file: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let mut at = 0;
    while at + SIGNATURE.len() as u64 <= length {
        let mut found = [0; SIGNATURE.len()];
        match file.read_exact_at(&mut found, at) {
            // It became shorter.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        if found == SIGNATURE {
            return Ok(true);
        }
        at = if at == 0 { 512 } else { 2 * at };
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_found_where_it_may_be() {
        let path = std::env::temp_dir().join(format!("bdrun-array-signature-{}", std::process::id()));
        let has = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            has_signature(&File::open(&path).unwrap()).unwrap()
        };
        let behind = |zeros: usize| [&vec![0; zeros][..], &SIGNATURE].concat();
        for zeros in [0, 512, 1024, 1 << 20] {
            assert!(has(&behind(zeros)), "{zeros}");
            assert!(!has(&behind(zeros)[..zeros + 7]), "{zeros}");
        }
        for zeros in [1, 256, 511, 1536] {
            assert!(!has(&behind(zeros)), "{zeros}");
        }
        assert!(!has(b"") && !has(b"text"));
        std::fs::remove_file(&path).unwrap();
    }
}
