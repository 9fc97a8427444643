//! How bytes go between a program's memory and a file.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::SeqCst;

use bdrun_mpi_core::error::Class;

use super::representation::{Part, Representation};
use super::view::View;
use super::{Open, READ_ONLY, WRITE_ONLY, failed};
use crate::args::Status;
use crate::datatypes::Types;
use crate::datatypes::memory::Span;
use crate::failure::{Answer, Failure};
use crate::handle::Datatype;

/// So many bytes are packed at a time.
const PIECE: u64 = 4 << 20;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Read,
    Write,
}

/// Elements of a program's memory, and the handle of their datatype.
#[derive(Debug)]
pub struct Here {
    pub span: Span,
    pub datatype: Datatype,
    /// How many bytes they have in the file.
    pub stored: u64,
}

/// What was done.
#[derive(Debug)]
pub struct Moved {
    /// What is told of it.
    pub status: Status,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Here {
    /// Elements that go to, or come from, what a view sees.
    pub fn new(types: &Types, view: &View, span: Span, datatype: Datatype) -> Answer<Self> {
        let stored = view.representation.bytes(types, &span)?;
        Ok(Self { span, datatype, stored })
    }
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
    pub(super) fn permits(&self, way: Way) -> Answer<()> {
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

    /// Reads or writes elements, from so many units of a view on.
    ///
    /// # Safety
    /// The memory is what the program said it is, and nobody else uses it meanwhile.
    pub unsafe fn transfer(
        &self,
        types: &Types,
        way: Way,
        (view, units): (&View, i64),
        here: &Here,
    ) -> Answer<Moved> {
        self.permits(way)?;
        let units = u64::try_from(units).map_err(|_| Class::Arg)?;
        let from = units.checked_mul(view.unit() as u64).ok_or(Class::ValueTooLarge)?;
        let to = from.checked_add(here.stored).ok_or(Class::ValueTooLarge)?;
        let mut range: Option<(i64, i64)> = None;
        let mut lock = None;
        if self.atomic.load(SeqCst) {
            view.each_piece(from, to, |at, len| {
                let (first, last) = range.unwrap_or((at, at));
                range = Some((first.min(at), last.max(at + len as i64)));
            });
            lock = range.map(|range| Locked::begin(self, way, range)).transpose()?;
        }
        let (count, bytes) = match view.representation {
            Representation::Native => {
                // SAFETY: the caller's.
                let moved = unsafe { self.move_all(way, view, from, &here.span) }?;
                (moved as i64, moved)
            }
            // SAFETY: the caller's.
            _ => unsafe { self.convert_all(types, way, (view, from), here) }?,
        };
        drop(lock);
        Ok(Moved { status: Status { count, error: None, ..Status::EMPTY }, bytes })
    }

    /// Moves elements as they are; how many bytes there were.
    ///
    /// # Safety
    /// As of [`transfer`](Self::transfer).
    unsafe fn move_all(&self, way: Way, view: &View, from: u64, span: &Span) -> Answer<u64> {
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
        Ok(done)
    }

    /// Moves elements that lie otherwise in the file; how many bytes there were in memory, and in the file.
    ///
    /// # Safety
    /// As of [`transfer`](Self::transfer).
    unsafe fn convert_all(
        &self,
        types: &Types,
        way: Way,
        (view, from): (&View, u64),
        here: &Here,
    ) -> Answer<(i64, u64)> {
        let Here { span, datatype, stored } = here;
        let (mut native, mut done) = (0, 0);
        if *stored == 0 {
            return Ok((native, done));
        }
        let sizes = view.representation.sizes(types, span.of())?;
        let sizes = |basic| sizes.of(basic);
        if matches!(view.representation, Representation::External) {
            // SAFETY: the caller's.
            let done = unsafe { self.convert_external(way, (view, from), span) }?;
            return Ok((span.of().whole_in(done as i64, &sizes).1, done));
        }
        let one = stored / span.count() as u64;
        // Whole ones of the program's datatype at a time.
        let most = (PIECE / one).max(1) as i64;
        let (mut first, mut bytes) = (0, vec![]);
        while first < span.count() {
            let part = Part { first, count: most.min(span.count() - first) };
            let wanted = part.count as u64 * one;
            bytes.resize(wanted as usize, 0);
            if way == Way::Write {
                // SAFETY: the caller's.
                unsafe { view.representation.write(span, *datatype, part, &mut bytes) }?;
            }
            let moved = self.move_bytes(way, view, from + done, &mut bytes)?;
            let (items, whole) = span.of().whole_in(moved as i64, &sizes);
            if way == Way::Read {
                let got = &mut bytes[..moved];
                // SAFETY: the caller's.
                unsafe { view.representation.read((span, *datatype), part, (items, whole), got) }?;
            }
            native += whole;
            done += moved as u64;
            first += part.count;
            if (moved as u64) < wanted {
                break;
            }
        }
        Ok((native, done))
    }

    /// The same in "external32", piece by piece; how many bytes there were in the file.
    ///
    /// # Safety
    /// As of [`transfer`](Self::transfer).
    unsafe fn convert_external(&self, way: Way, (view, from): (&View, u64), span: &Span) -> Answer<u64> {
        let (mut done, mut result) = (0, Ok(()));
        let mut move_next = |bytes: &mut [u8]| match self.move_bytes(way, view, from + done, bytes) {
            Ok(moved) => {
                done += moved as u64;
                moved
            }
            Err(failure) => {
                result = Err(failure);
                0
            }
        };
        let (of, count, piece) = (span.of(), span.count(), PIECE as usize);
        match way {
            // SAFETY: the caller's.
            Way::Write => unsafe {
                of.each_external(span.at(), count, piece, &mut |bytes| move_next(bytes) == bytes.len());
            },
            // SAFETY: as above.
            Way::Read => {
                // No more than there is to be: others may be in the file behind it.
                let mut left = of.external_size().and_then(|size| size.checked_mul(count)).unwrap_or(0);
                let mut more = |into: &mut [u8]| {
                    let wanted = into.len().min(left.max(0) as usize);
                    let moved = move_next(&mut into[..wanted]);
                    left -= moved as i64;
                    moved
                };
                // SAFETY: the caller's.
                unsafe { of.fill_external(span.at(), count, piece, &mut more) };
            }
        }
        result.map(|()| done)
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
        let moved = self.move_bytes(way, view, from, bytes)?;
        if direct.is_none() && way == Way::Read {
            // SAFETY: the caller's.
            unsafe { span.unpack(done, &packed[..moved]) };
        }
        Ok(moved as u64)
    }

    /// Reads or writes the bytes that a view shows from `from` on; how many there were.
    fn move_bytes(&self, way: Way, view: &View, from: u64, bytes: &mut [u8]) -> Answer<usize> {
        let (mut moved, mut ended, mut result) = (0, false, Ok(()));
        view.each_piece(from, from + bytes.len() as u64, |at, len| {
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
        result.map(|()| moved)
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
