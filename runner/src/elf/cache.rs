//! `/etc/ld.so.cache`: where the libraries of the system are.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::{long, word};

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Bytes of its head and of an entry.
const HEAD: usize = 48;
const ENTRY: usize = 24;

/// Libraries by name. Of several with one name (for another machine, for other processors) all.
#[derive(Debug, Default)]
pub(super) struct Cache(HashMap<OsString, Vec<PathBuf>>);

impl Cache {
    /// Empty if there is none.
    pub fn read() -> Self {
        std::fs::read("/etc/ld.so.cache").map(|bytes| Self::parse(&bytes)).unwrap_or_default()
    }

    /// Offsets count from the head, in front of which an older one may lie.
    fn parse(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        let starts = (0..bytes.len()).step_by(8).find(|&at| bytes[at..].starts_with(MAGIC));
        let Some(bytes) = starts.map(|at| &bytes[at..]).filter(|bytes| bytes.len() >= HEAD) else {
            return all;
        };
        let text = |at: u32| {
            let rest = bytes.get(at as usize..)?;
            Some(OsStr::from_bytes(rest.split(|&byte| byte == 0).next()?))
        };
        let entries = bytes[HEAD..].chunks_exact(ENTRY).take(word(bytes, MAGIC.len()) as usize);
        // Those for processors with more than all have come by other names too.
        for entry in entries.filter(|entry| long(entry, 16) == 0) {
            let (Some(name), Some(path)) = (text(word(entry, 4)), text(word(entry, 8))) else { continue };
            all.0.entry(name.to_owned()).or_default().push(path.into());
        }
        all
    }

    /// Where one may be.
    pub fn find(&self, name: &OsStr) -> &[PathBuf] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_places() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.resize(HEAD, 0);
        let strings = HEAD + 3 * ENTRY;
        for (hwcap, name, path) in [(0u64, 0u32, 5u32), (1 << 62, 0, 8), (0, 0, 11)] {
            bytes.extend(0x303u32.to_le_bytes());
            bytes.extend((strings as u32 + name).to_le_bytes());
            bytes.extend((strings as u32 + path).to_le_bytes());
            bytes.extend(0u32.to_le_bytes());
            bytes.extend(hwcap.to_le_bytes());
        }
        bytes.extend(b"liba\0/x\0/y\0/z\0");
        let places = [PathBuf::from("/x"), PathBuf::from("/z")];
        assert_eq!(Cache::parse(&bytes).find(OsStr::new("liba")), places);
        let behind_another = [&b"ld.so-1.7.0\0\0\0\0\0"[..], &bytes].concat();
        assert_eq!(Cache::parse(&behind_another).find(OsStr::new("liba")), places);
        assert!(Cache::parse(&bytes).find(OsStr::new("libb")).is_empty());
        for cut in 0..bytes.len() {
            let _ = Cache::parse(&bytes[..cut]);
        }
    }

    #[test]
    fn that_of_this_machine_has_its_c_library() {
        if !std::path::Path::new("/etc/ld.so.cache").exists() {
            return;
        }
        assert!(!Cache::read().find(OsStr::new("libc.so.6")).is_empty());
    }
}
