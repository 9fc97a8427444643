//! The scratch files of an arena as one store: one file in each scratch directory, used in turn.
//!
//! Stripe *s* of the arena lies in file *s* mod *n*, at its own offset: the files are sparse, and no
//! offset ever needs translating. The pager's transfers and mappings end where stripes end.

use super::Store;
use super::file::{FileStore, Mode};
use crate::config::{self, MAX_DIRS};
use crate::sys::{Errno, GRANULE};
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a stripe. Smaller ones would spread what is under way more evenly, and take more mappings: these
/// make 128 in each GiB, a process may have 65,530.
const STRIPE: u64 = 8 << 20;
const _: () = assert!(STRIPE.is_multiple_of(GRANULE as u64));

/// Which of `n` files holds byte `offset`, and where it is followed by the next.
fn place(n: usize, offset: u64) -> (usize, u64) {
    if n <= 1 {
        return (0, u64::MAX);
    }
    let stripe = offset / STRIPE;
    ((stripe % n as u64) as usize, (stripe + 1) * STRIPE)
}

/// The pieces of `[offset, offset+len)`: file, offset and length of each.
fn pieces(n: usize, offset: u64, len: u64) -> impl Iterator<Item = (usize, u64, u64)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let (file, end) = place(n, at);
        let from = at;
        at = end.min(offset + len);
        (from < offset + len).then_some((file, from, at - from))
    })
}

/// A file in each scratch directory.
pub(crate) struct Striped {
    files: [Option<FileStore>; MAX_DIRS],
    count: usize,
    /// The file whose call failed last.
    failed: AtomicUsize,
}

impl Striped {
    /// Makes the files.
    pub fn open(mode: Mode) -> Result<Self, Errno> {
        let count = config::scratch_dirs();
        let mut files = [const { None }; MAX_DIRS];
        for (i, file) in files[..count].iter_mut().enumerate() {
            *file = Some(FileStore::open(config::scratch_dir(i), mode)?);
        }
        Ok(Self { files, count, failed: AtomicUsize::new(0) })
    }

    fn files(&self) -> impl Iterator<Item = &FileStore> {
        self.files.iter().flatten()
    }

    fn file(&self, i: usize) -> &FileStore {
        match &self.files[i] {
            Some(file) => file,
            None => unreachable!("a stripe beyond the last file"),
        }
    }

    /// The file of byte `offset`, and how many of `len` bytes from there it holds.
    fn at(&self, offset: u64, len: usize) -> (&FileStore, usize) {
        let (i, end) = place(self.count, offset);
        (self.file(i), len.min(usize::try_from(end - offset).unwrap_or(usize::MAX)))
    }

    /// Does `f` to every file; remembers which failed.
    fn all(&self, f: impl Fn(&FileStore) -> Result<(), Errno>) -> Result<(), Errno> {
        let failed = |i| self.failed.store(i, Ordering::Relaxed);
        self.files().enumerate().try_for_each(|(i, file)| f(file).inspect_err(|_| failed(i)))
    }
}

// SAFETY: files of its own, which nobody else writes, closed only with it.
unsafe impl Store for Striped {
    unsafe fn write_at(&self, offset: u64, from: *const u8, len: usize) -> Result<usize, Errno> {
        let (file, len) = self.at(offset, len);
        // SAFETY: this method's contract; no more than `len`.
        unsafe { file.write_at(offset, from, len) }
    }

    unsafe fn read_at(&self, offset: u64, to: *mut u8, len: usize) -> Result<usize, Errno> {
        let (file, len) = self.at(offset, len);
        // SAFETY: this method's contract; no more than `len`.
        unsafe { file.read_at(offset, to, len) }
    }

    fn punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        pieces(self.count, offset, len).try_for_each(|(file, at, len)| self.file(file).punch(at, len))
    }

    fn give_back(&self, zeros: &mut dyn Iterator<Item = (u64, u64)>) -> bool {
        let kept = self.files().fold(false, |any, file| any | file.take_kept());
        if kept {
            for (file, at, len) in zeros.flat_map(|(offset, len)| pieces(self.count, offset, len)) {
                // What cannot be given back still reads as zeros.
                let _ = self.file(file).punch_hole(at, len);
            }
        }
        kept
    }

    fn ensure_len(&self, len: u64) -> Result<(), Errno> {
        self.all(|file| file.ensure_len(len))
    }

    fn settle(&self) -> Result<(), Errno> {
        self.all(FileStore::settle)
    }

    fn drop_cache(&self) {
        self.files().for_each(FileStore::drop_cache);
    }

    fn piece_end(&self, offset: u64) -> u64 {
        place(self.count, offset).1
    }

    fn mapping_fd(&self, offset: u64) -> i32 {
        self.at(offset, 0).0.mapping_fd()
    }

    fn directory(&self, offset: Option<u64>) -> &'static CStr {
        let failed = self.failed.load(Ordering::Relaxed);
        config::scratch_dir(offset.map_or(failed, |offset| place(self.count, offset).0))
    }

    fn async_fd(&self, offset: u64) -> Option<i32> {
        // All or none: the pager decides once.
        if self.files().any(|file| file.async_fd().is_none()) {
            return None;
        }
        self.at(offset, 0).0.async_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_take_turns_and_cover_everything_once() {
        let m = 1 << 20;
        assert_eq!(pieces(1, 5 * m, 500 * m).collect::<Vec<_>>(), [(0, 5 * m, 500 * m)]);
        assert_eq!(
            pieces(2, 5 * m, 15 * m).collect::<Vec<_>>(),
            [(0, 5 * m, 3 * m), (1, 8 * m, 8 * m), (0, 16 * m, 4 * m)]
        );
        assert_eq!(pieces(3, 24 * m, 8 * m).collect::<Vec<_>>(), [(0, 24 * m, 8 * m)]);
        assert_eq!(pieces(3, 7 * m, 0).count(), 0);
        for n in 1..=5 {
            let (mut at, to) = (3 * m, 99 * m);
            for (file, from, len) in pieces(n, at, to - at) {
                assert!(from == at && len > 0 && place(n, from + len - 1).0 == file);
                at += len;
            }
            assert_eq!(at, to);
        }
    }
}
