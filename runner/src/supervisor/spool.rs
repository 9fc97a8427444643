//! The file for output that has to wait: for its turn (`order.rs`), or for the end of its line (`sink.rs`).
//!
//! One for all streams of a job; a piece of it belongs to whoever has put something there. The lock is for
//! the account only, never held while something is read or written.

use nix::fcntl::{FallocateFlags, fallocate};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is read back at once.
const READ: u64 = 256 << 10;

/// Where in the file something is: place and length, in order.
#[derive(Default)]
pub(super) struct Extents(VecDeque<(u64, u64)>);

impl Extents {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Where the file ends, and how much of it is still to be read.
#[derive(Default)]
struct Account {
    end: u64,
    stored: u64,
}

struct Inner {
    file: File,
    account: Mutex<Account>,
}

/// The file.
#[derive(Clone)]
pub(super) struct Spool(Arc<Inner>);

impl Spool {
    /// In an empty file that nobody else uses.
    pub(super) fn new(file: File) -> Self {
        Self(Arc::new(Inner { file, account: Mutex::default() }))
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.0.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes it behind what stands there, and notes where.
    pub(super) fn put(&self, extents: &mut Extents, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        let place = {
            let mut account = self.account();
            let place = account.end;
            account.end += length;
            account.stored += length;
            place
        };
        if let Err(error) = self.0.file.write_all_at(bytes, place) {
            let _ = self.free(place, length);
            return Err(error);
        }
        match extents.0.back_mut() {
            Some((before, size)) if *before + *size == place => *size += length,
            _ => extents.0.push_back((place, length)),
        }
        Ok(())
    }

    /// Gives what is there to `each`, piece by piece, and its room in the file back.
    pub(super) fn play(&self, extents: Extents, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let mut buffer = Vec::new();
        for (place, length) in extents.0 {
            let mut at = place;
            while at < place + length {
                let count = (place + length - at).min(READ);
                buffer.resize(count as usize, 0);
                self.0.file.read_exact_at(&mut buffer, at)?;
                each(&buffer);
                at += count;
            }
            self.free(place, length)?;
        }
        Ok(())
    }

    /// Nobody wants it any more.
    pub(super) fn forget(&self, extents: Extents) -> io::Result<()> {
        extents.0.into_iter().try_for_each(|(place, length)| self.free(place, length))
    }

    fn free(&self, place: u64, length: u64) -> io::Result<()> {
        // Where the file system cannot, the room is given back when nothing at all is needed any more.
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let _ = fallocate(&self.0.file, punch, place as libc::off_t, length as libc::off_t);
        let mut account = self.account();
        account.stored -= length;
        if account.stored == 0 {
            // Under the lock: nobody may have begun to write to the new end.
            account.end = 0;
            self.0.file.set_len(0)?;
        }
        Ok(())
    }

    /// How much is still to be read, and how long the file is.
    #[cfg(test)]
    pub(super) fn usage(&self) -> (u64, u64) {
        (self.account().stored, self.0.file.metadata().unwrap().len())
    }

    /// One in a file that has no name.
    #[cfg(test)]
    pub(super) fn nameless() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bdrun-spool-{}-{number}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        Self::new(file)
    }
}
