//! Large payloads. A payload lies in the *mail* file (a memfd: RAM that counts against the budget) while
//! there is room for it, else in the *spill* file on scratch, with checksums (`mail/spilled.rs`). Both are
//! written and read by offset, so that a payload costs no page tables and no address space; the last reader
//! punches it out.
//!
//! Offsets only grow (a sparse file does not care), but for pages of the mail file that are used again
//! (`spares`), and for the spill file, which no file system lets grow for ever (ext4: 16 TiB): it begins
//! anew whenever nothing lies there ([`Spill`]). Those that lie in the *window*, the first bytes of the mail
//! file, are copied in and out by whoever has mapped it: a system call and the kernel's copy take three times
//! as long as that. Fresh pages are written by offset all the same, which does not fill them with zeros
//! first.

mod spilled;

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwritev};

use crate::error::system;
use crate::segment::Segment;
use crate::spares::Range;
use crate::{Error, Result};
use spilled::Spilled;

pub use spilled::BLOCK;
pub(crate) use spilled::Spill;

/// Payloads lie at multiples of this, so that they can be punched out alone.
const PAGE: u64 = 4096;

/// The mail file is never shorter than this, however little lies there: so much of it may be mapped.
const WINDOW: u64 = 64 << 20;
/// What all ranks map seems to be held by each of them to whoever measures it: together this part of the
/// budget at most.
const WINDOWS_SHARE: u64 = 16;

/// Where a payload lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    kind: Kind,
    offset: u64,
    len: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// No payload here (empty, or inline elsewhere).
    #[default]
    None,
    Ram,
    Scratch,
    /// In RAM, in pages that are used again.
    Again,
}

impl Place {
    /// Bytes of the payload.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn to_words(self) -> [u64; 2] {
        [self.kind as u64, self.offset]
    }

    pub(crate) fn from_words(words: [u64; 2], len: u64) -> Self {
        let kind = match words[0] & 0xff {
            1 => Kind::Ram,
            2 => Kind::Scratch,
            3 => Kind::Again,
            _ => Kind::None,
        };
        Self { kind, offset: words[1], len }
    }

    /// Bytes of the pages that it takes: on scratch also those of its checksums.
    fn pages(&self) -> u64 {
        let sums = if self.kind == Kind::Scratch { spilled::sums_of(self.len) } else { 0 };
        self.len.saturating_add(sums).div_ceil(PAGE).saturating_mul(PAGE)
    }
}

/// The two files, handed down to every rank.
pub struct Mail {
    ram: OwnedFd,
    scratch: OwnedFd,
    /// The first bytes of the mail file, once they are used.
    window: OnceLock<Option<MmapRaw>>,
    /// All of it may be mapped: nobody takes it for memory of a rank.
    whole: bool,
}

impl Mail {
    /// By the master: a new mail file, beside a spill file on scratch that nobody else uses.
    pub fn create(scratch: OwnedFd) -> Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let ram = memfd_create("bdrun-mail", flags).map_err(system("memfd_create"))?;
        // It grows with what is written, but no rank takes the others' messages away by making it shorter.
        fcntl_add_seals(&ram, SealFlags::SHRINK | SealFlags::SEAL).map_err(system("seal the mail file"))?;
        ftruncate(&ram, WINDOW).map_err(system("size the mail file"))?;
        Ok(Self::open(ram, scratch))
    }

    /// By a rank: the files that it was handed.
    pub fn open(ram: OwnedFd, scratch: OwnedFd) -> Self {
        Self { ram, scratch, window: OnceLock::new(), whole: false }
    }

    /// By the gateway.
    pub fn open_whole(ram: OwnedFd, scratch: OwnedFd) -> Self {
        Self { whole: true, ..Self::open(ram, scratch) }
    }

    /// Where in memory these bytes of a payload are, if they are; as long as it is there and `self` is.
    pub fn at(&self, segment: &Segment, place: &Place, offset: u64, len: u64) -> Option<*mut u8> {
        let is_within = offset.checked_add(len).is_some_and(|end| end <= place.len);
        let at = self.mapped(segment, place).filter(|_| is_within)?;
        Some(at.wrapping_add(offset as usize))
    }

    /// Where a payload is mapped: one of pages that are used again, in the window. The file was made as long
    /// and is sealed, so that to touch it kills nobody, whatever another process has said of the payload.
    fn mapped(&self, segment: &Segment, place: &Place) -> Option<*mut u8> {
        if place.kind != Kind::Again {
            return None;
        }
        let window = self.window.get_or_init(|| self.map(segment)).as_ref()?;
        let end = place.offset.checked_add(place.len)?;
        (end <= window.len() as u64).then(|| window.as_mut_ptr().wrapping_add(place.offset as usize))
    }

    fn map(&self, segment: &Segment) -> Option<MmapRaw> {
        let share = segment.header().pool.budget() / WINDOWS_SHARE / segment.here().len().max(1) as u64;
        let bytes = if self.whole { WINDOW } else { WINDOW.min(share / PAGE * PAGE) };
        let is_long = fstat(&self.ram).is_ok_and(|file| file.st_size as u64 >= WINDOW);
        let is_sealed = fcntl_get_seals(&self.ram).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if bytes == 0 || !is_long || !is_sealed {
            return None;
        }
        MmapOptions::new().len(bytes as usize).map_raw(&self.ram).ok()
    }

    /// Descriptors to hand down: mail, spill.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.ram.as_fd(), self.scratch.as_fd()]
    }

    /// Store a payload given in pieces. Never waits; goes to scratch when RAM is tight.
    pub fn put(&self, segment: &Segment, pieces: &[&[u8]]) -> Result<Place> {
        let place = self.reserve(segment, pieces.iter().map(|p| p.len() as u64).sum());
        match self.write(segment, &place, 0, pieces) {
            Ok(()) => Ok(place),
            Err(error) => {
                self.release(segment, &place);
                Err(error)
            }
        }
    }

    /// Room for a payload that is written piece by piece, and in RAM if there is room.
    pub fn reserve(&self, segment: &Segment, len: u64) -> Place {
        if len == 0 {
            return Place::default();
        }
        let header = segment.header();
        let mut place = Place { kind: Kind::Ram, offset: 0, len };
        if let Some(offset) = self.take_spare(segment, place.pages()) {
            (place.kind, place.offset) = (Kind::Again, offset);
        } else {
            let found = || header.pool.take_mail(place.pages());
            if found() || self.give_spares_back(segment) && found() {
                place.offset = header.mail_end.fetch_add(place.pages(), SeqCst);
            } else {
                place.kind = Kind::Scratch;
                place.offset = header.spill.begin(place.pages());
            }
        }
        header.pool.demand_add(place.pages());
        header.pool.count_message(len, place.kind == Kind::Scratch);
        place
    }

    /// By the one who reserved it: write some of a payload's bytes, from `offset` on. Both this and where
    /// they end are multiples of [`BLOCK`], but for the payload's end.
    pub fn write(&self, segment: &Segment, place: &Place, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let len: u64 = pieces.iter().map(|p| p.len() as u64).sum();
        if offset.checked_add(len).is_none_or(|end| end > place.len) {
            return Err(Error::Damaged(format!("write past a message of {} bytes", place.len)));
        }
        if let Some(at) = self.mapped(segment, place) {
            let mut at = at.wrapping_add(offset as usize);
            for piece in pieces {
                // SAFETY: all pieces are within the payload (checked above), which lies in the window; the
                // range was taken, so no other payload lies there.
                unsafe { copy(piece.as_ptr(), at, piece.len()) };
                at = at.wrapping_add(piece.len());
            }
            return Ok(());
        }
        if let Some(spilled) = self.spilled(place) {
            return spilled.write(offset, pieces);
        }
        write_all(&self.ram, pieces, place.offset.saturating_add(offset)).map_err(|errno| match errno {
            Errno::NOSPC | Errno::DQUOT => Error::ScratchFull { bytes: len },
            errno => system("write a message")(errno),
        })
    }

    fn spilled(&self, place: &Place) -> Option<Spilled<'_>> {
        let spilled = Spilled { file: &self.scratch, at: place.offset, len: place.len };
        (place.kind == Kind::Scratch).then_some(spilled)
    }

    /// Copy `into.len()` bytes of a payload from `offset` on. After an error what is there is not to be used.
    pub fn get(&self, segment: &Segment, place: &Place, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > place.len) {
            return Err(Error::Damaged(format!("read past a message of {} bytes", place.len)));
        }
        if let Some(at) = self.mapped(segment, place) {
            // SAFETY: within the payload (checked above), which lies in the window; another process that
            // writes there meanwhile breaks the rules, and spoils no more than these bytes.
            unsafe {
                let from = at.wrapping_add(offset as usize);
                copy(from, into.as_mut_ptr(), into.len());
            }
            return Ok(());
        }
        if let Some(spilled) = self.spilled(place) {
            return spilled.read(offset, into);
        }
        if place.kind == Kind::None {
            return Ok(());
        }
        let (begin, mut done) = (place.offset.saturating_add(offset), 0);
        while done < into.len() {
            match pread(&self.ram, &mut into[done..], begin.saturating_add(done as u64)) {
                Ok(0) => return Err(Error::Damaged("a message is shorter than its header says".into())),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(system("read a message")(errno)),
            }
        }
        Ok(())
    }

    /// By the last reader: free a payload. Rings nobody; see [`crate::pool::Pool::wanted`].
    pub fn release(&self, segment: &Segment, place: &Place) {
        match place.kind {
            Kind::None => return,
            Kind::Ram | Kind::Again => {
                self.keep_or_free(segment, Range { first: place.offset / PAGE, pages: place.pages() / PAGE });
            }
            Kind::Scratch => {
                punch(&self.scratch, place.offset, place.pages());
                // Not before: what comes next may lie there.
                segment.header().spill.end();
            }
        }
        segment.header().pool.demand_sub(place.pages());
    }

    /// Pages that are in RAM already, and paid for, for a payload of `bytes`; their offset.
    fn take_spare(&self, segment: &Segment, bytes: u64) -> Option<u64> {
        let range = segment.spares().take(bytes / PAGE)?;
        let (first, pages) = (range.first + bytes / PAGE, range.pages - bytes / PAGE);
        if pages > 0 {
            self.keep_or_free(segment, Range { first, pages });
        }
        Some(range.first * PAGE)
    }

    fn keep_or_free(&self, segment: &Segment, range: Range) {
        let (pool, spares) = (&segment.header().pool, segment.spares());
        let kept = pool.may_keep((spares.pages() + range.pages) * PAGE) && spares.keep(range);
        if !kept {
            self.free(segment, range);
        } else if pool.wanted() {
            // The master began to look for memory meanwhile: it saw the range, or we do.
            self.give_spares_back(segment);
        }
    }

    fn free(&self, segment: &Segment, range: Range) {
        punch(&self.ram, range.first * PAGE, range.pages * PAGE);
        segment.header().pool.give_mail(range.pages * PAGE);
    }

    /// Give the pages back that were kept for messages to come; were there any? By whoever does not find
    /// memory, before it asks the master, and by the master. Rings nobody.
    pub fn give_spares_back(&self, segment: &Segment) -> bool {
        let mut any = false;
        for range in segment.spares().take_all() {
            self.free(segment, range);
            any = true;
        }
        any
    }
}

fn punch(fd: &OwnedFd, offset: u64, bytes: u64) {
    // A hole that cannot be punched costs room, not correctness.
    let _ = fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes);
}

/// Many pieces in one system call each time.
fn write_all(fd: &OwnedFd, pieces: &[&[u8]], mut at: u64) -> std::result::Result<(), Errno> {
    /// What one call takes: on the stack, because nothing may be allocated while a payload is paid for but
    /// not written.
    const BATCH: usize = 256;
    let mut pieces = pieces.iter().filter(|p| !p.is_empty()).peekable();
    // Bytes of the next piece that are written.
    let mut done = 0;
    loop {
        let mut batch = [IoSlice::new(&[]); BATCH];
        let mut count = 0;
        for (slot, piece) in batch.iter_mut().zip(pieces.clone()) {
            *slot = IoSlice::new(if count == 0 { &piece[done..] } else { piece });
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        match pwritev(fd, &batch[..count], at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => {
                at += n as u64;
                done += n;
                while let Some(piece) = pieces.next_if(|piece| done >= piece.len()) {
                    done -= piece.len();
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// So much is copied at a time.
const PIECE: usize = 1024;

/// Copies bytes, in pieces so short that the C library moves them through vector registers. From 2 KiB
/// on it would take `rep movsb`, which writes what another processor has read last at 8 GB/s where registers
/// do at 30 (64 KiB, Zen 4 in a virtual machine).
///
/// # Safety
/// As of [`std::ptr::copy_nonoverlapping`].
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    for at in (0..len).step_by(PIECE) {
        // SAFETY: a part of what the caller vouches for.
        unsafe { std::ptr::copy_nonoverlapping(from.add(at), to.add(at), PIECE.min(len - at)) };
    }
}

#[cfg(test)]
mod tests;
