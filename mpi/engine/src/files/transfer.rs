//! How bytes go between a program's memory and a file.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::SeqCst;

use bdrun_mpi_core::error::Class;

use super::view::View;
use super::{Open, READ_ONLY, WRITE_ONLY, failed};
use crate::args::Status;
use crate::datatypes::memory::Span;
use crate::failure::{Answer, Failure};

/// So many bytes are packed at a time.
const PIECE: u64 = 4 << 20;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Read,
    Write,
}

/// Nobody else changes or reads these bytes of a file so, until it is dropped.
struct Locked<'a> {
    open: &'a Open,
    range: (i64, i64),
}

impl<'a> Locked<'a> {
    fn begin(open: &'a Open, way: Way, range: (i64, i64)) -> Answer<Self> {
        // A reader that may not read cannot lock for reading, nor a writer that may not write for writing.
        let kind = if way == Way::Read { libc::F_RDLCK } else { libc::F_WRLCK };
        Self::set(open, kind, range, libc::F_OFD_SETLKW).map_err(|error| failed(&open.path, &error))?;
        Ok(Self { open, range })
    }

    fn set(open: &Open, kind: i32, (from, to): (i64, i64), how: i32) -> io::Result<()> {
        // SAFETY: zeros are a legal value of it.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
        (lock.l_start, lock.l_len) = (from, to - from);
        loop {
            // SAFETY: a file of ours, and a lock that is described.
            if unsafe { libc::fcntl(open.file.as_raw_fd(), how, &raw mut lock) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = Self::set(self.open, libc::F_UNLCK, self.range, libc::F_OFD_SETLK);
    }
}

impl Open {
    /// What a file's mode permits.
    fn permits(&self, way: Way) -> Answer<()> {
        let forbidden = if way == Way::Read { WRITE_ONLY } else { READ_ONLY };
        if self.mode & forbidden == 0 {
            return Ok(());
        }
        let (class, text) = match way {
            Way::Read => (Class::Access, "the file was opened for writing alone"),
            Way::Write => (Class::ReadOnly, "the file was opened for reading alone"),
        };
        Err(Failure { text: Some(text.into()), ..class.into() })
    }

    /// Reads or writes elements, from so many units of a view on; what is told of it.
    ///
    /// # Safety
    /// The memory is what the program said it is, and nobody else uses it meanwhile.
    pub unsafe fn transfer(&self, way: Way, view: &View, units: i64, span: &Span) -> Answer<Status> {
        self.permits(way)?;
        let units = u64::try_from(units).map_err(|_| Class::Arg)?;
        let from = units.checked_mul(view.unit() as u64).ok_or(Class::ValueTooLarge)?;
        let to = from.checked_add(span.bytes()).ok_or(Class::ValueTooLarge)?;
        let mut range: Option<(i64, i64)> = None;
        let mut lock = None;
        if self.atomic.load(SeqCst) {
            view.each_piece(from, to, |at, len| {
                let (first, last) = range.unwrap_or((at, at));
                range = Some((first.min(at), last.max(at + len as i64)));
            });
            lock = range.map(|range| Locked::begin(self, way, range)).transpose()?;
        }
        let mut done = 0;
        while done < span.bytes() {
            let part = (span.bytes() - done).min(PIECE);
            // SAFETY: the caller's.
            let moved = unsafe { self.move_part(way, view, from + done, (span, done, part)) }?;
            done += moved;
            if moved < part {
                break;
            }
        }
        drop(lock);
        Ok(Status { count: done as i64, error: None, ..Status::EMPTY })
    }

    /// The same of a part of the elements' bytes; how many there were.
    ///
    /// # Safety
    /// As of [`transfer`](Self::transfer).
    unsafe fn move_part(
        &self,
        way: Way,
        view: &View,
        from: u64,
        (span, done, part): (&Span, u64, u64),
    ) -> Answer<u64> {
        let direct = span.contiguous().map(|at| at.wrapping_add(done as usize));
        let mut packed = vec![];
        let bytes = match direct {
            // SAFETY: the caller's: the bytes are there.
            Some(at) => unsafe { std::slice::from_raw_parts_mut(at, part as usize) },
            None => {
                packed.resize(part as usize, 0);
                if way == Way::Write {
                    // SAFETY: the caller's.
                    unsafe { span.pack(done, &mut packed) };
                }
                &mut packed[..]
            }
        };
        let (mut moved, mut ended, mut result) = (0, false, Ok(()));
        view.each_piece(from, from + part, |at, len| {
            if ended || result.is_err() {
                return;
            }
            let piece = &mut bytes[moved..moved + len as usize];
            match self.piece(way, at as u64, piece) {
                Ok(n) => {
                    moved += n;
                    ended = n < piece.len();
                }
                Err(error) => result = Err(failed(&self.path, &error)),
            }
        });
        result?;
        if direct.is_none() && way == Way::Read {
            // SAFETY: the caller's.
            unsafe { span.unpack(done, &packed[..moved]) };
        }
        Ok(moved as u64)
    }

    /// One piece of the file; fewer bytes only at its end.
    fn piece(&self, way: Way, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        if way == Way::Write {
            return self.file.write_all_at(bytes, at).map(|()| bytes.len());
        }
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}
