//! Which pages are there, from `/proc/self/pagemap`.

use super::PagerError;
use crate::sys::{Errno, Fd, PAGE};

/// One entry of the pagemap.
#[derive(Clone, Copy)]
pub(super) struct Page(u64);

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The page belongs to a file (or is shared): not a private copy.
const OF_FILE: u64 = 1 << 61;

impl Page {
    /// In RAM or in swap.
    pub fn is_there(self) -> bool {
        self.0 & (PRESENT | SWAPPED) != 0
    }

    pub fn is_in_ram(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// Written by somebody: memory of our own, not a page of the mapped file.
    pub fn is_private(self) -> bool {
        self.is_there() && self.0 & OF_FILE == 0
    }
}

/// Pages looked up at a time: 16 MiB of memory, 32 KiB of buffer.
pub(super) const WINDOW: usize = 4096;
pub(super) type Window = [u64; WINDOW];

/// The open pagemap. Opened anew each time: it belongs to the address space at open, a parent's after a fork.
pub(super) struct Pagemap(Fd);

impl Pagemap {
    pub fn open() -> Result<Self, PagerError> {
        Fd::open(c"/proc/self/pagemap", libc::O_RDONLY)
            .map(Self)
            .map_err(|e| PagerError::io("open /proc/self/pagemap", 0, e))
    }

    /// The pages of `[address, address+len)`, at most a window of them.
    pub fn read<'a>(
        &self,
        window: &'a mut [u64],
        address: usize,
        len: usize,
    ) -> Result<impl Fn(usize) -> Page + use<'a>, PagerError> {
        let count = (len / PAGE).min(window.len());
        // SAFETY: u64s may be seen as bytes, and any bytes are u64s.
        let bytes = unsafe { std::slice::from_raw_parts_mut(window.as_mut_ptr().cast::<u8>(), count * 8) };
        let mut done = 0;
        while done < bytes.len() {
            let at = (address / PAGE * 8 + done) as u64;
            match self.0.pread(&mut bytes[done..], at) {
                Ok(0) => return Err(PagerError::io("read /proc/self/pagemap", address, Errno(libc::EIO))),
                Ok(n) => done += n,
                Err(e) => return Err(PagerError::io("read /proc/self/pagemap", address, e)),
            }
        }
        let window: &'a [u64] = window;
        Ok(move |i: usize| Page(window[..count][i]))
    }
}
