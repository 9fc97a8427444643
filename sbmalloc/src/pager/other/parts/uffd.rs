//! userfaultfd(2), thinly: the descriptor through which the missing pages of one address space are served.

use crate::sys::{Errno, Fd};
use std::ops::Range;
use std::sync::OnceLock;

const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const UNREGISTER: libc::c_ulong = 0x8010_aa01;
const WAKE: libc::c_ulong = 0x8010_aa02;
pub(super) const COPY: libc::c_ulong = 0xc028_aa03;
const ZEROPAGE: libc::c_ulong = 0xc020_aa04;

const VERSION: u64 = 0xaa;
const EVENT_FORK: u64 = 1 << 1;
const EVENT_REMAP: u64 = 1 << 2;
const EVENT_REMOVE: u64 = 1 << 3;
const EVENT_UNMAP: u64 = 1 << 6;
const THREAD_ID: u64 = 1 << 8;
const MODE_MISSING: u64 = 1;

/// What the kernel tells of an address space. All but faults happen only once they were read.
#[derive(Debug)]
pub(super) enum News {
    Fault(Fault),
    /// A copy of the address space was made; its missing pages are served through this.
    Fork(Uffd),
    /// A range now lies elsewhere.
    Moved {
        from: u64,
        to: u64,
        len: u64,
    },
    /// The content of a range is given up; the range stays.
    Removed(Range<u64>),
    /// A range is no more.
    Unmapped(Range<u64>),
}

/// A thread waits for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// The page's address.
    pub at: u64,
    /// The thread, by its id where it lives.
    pub by: u32,
}

/// Answers that a test makes the kernel seem to give when pages are to be placed: now an error, now fewer
/// pages than were asked for (0).
#[derive(Debug, Default)]
pub(super) struct Interference {
    answers: Vec<i32>,
    draws: u64,
}

impl Interference {
    pub fn new(answers: &[i32], seed: u64) -> Self {
        Self { answers: answers.to_vec(), draws: seed | 1 }
    }

    /// The bytes to be placed of so many, or why none.
    fn answer(&mut self, len: u64) -> Result<u64, Errno> {
        if self.answers.is_empty() {
            return Ok(len);
        }
        self.draws ^= self.draws << 13;
        self.draws ^= self.draws >> 7;
        self.draws ^= self.draws << 17;
        let page = crate::sys::PAGE as u64;
        match self.answers[(self.draws >> 20) as usize % self.answers.len()] {
            _ if !(self.draws >> 40).is_multiple_of(3) => Ok(len),
            0 => Ok(((self.draws >> 8) % (len / page) + 1) * page),
            errno => Err(Errno(errno)),
        }
    }
}

/// Where nothing is ever mapped that is watched.
pub(super) const NOWHERE: u64 = 1 << 20;

/// What is known of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probed {
    Watched,
    Unwatched,
    /// An event was not read yet.
    Changing,
    /// The address space is no more.
    Gone,
}

pub(super) struct Uffd(pub Fd);

impl std::fmt::Debug for Uffd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Uffd").field(&self.0.0).finish()
    }
}

impl Uffd {
    /// Agrees with the kernel on what is wanted.
    pub fn agree(fd: Fd) -> Result<Self, Errno> {
        let mut api = [VERSION, EVENT_FORK | EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP | THREAD_ID, 0];
        ioctl(&fd, API, &mut api)?;
        Ok(Self(fd))
    }

    /// Faults on missing pages of a range are told from now on.
    pub fn register(&self, range: &Range<u64>) -> Result<(), Errno> {
        ioctl(&self.0, REGISTER, &mut [range.start, range.end - range.start, MODE_MISSING, 0])
    }

    /// They are not told any more: who waits for one gets a new one of the kernel's.
    pub fn unregister(&self, range: &Range<u64>) -> Result<(), Errno> {
        ioctl(&self.0, UNREGISTER, &mut [range.start, range.end - range.start])
    }

    /// Has those who wait for pages of a range look again.
    pub fn wake(&self, range: &Range<u64>) -> Result<(), Errno> {
        ioctl(&self.0, WAKE, &mut [range.start, range.end - range.start])
    }

    /// Makes missing pages from `bytes`, and wakes who waits for them. The bytes that were placed, and why
    /// not all.
    pub fn copy(&self, to: u64, bytes: &[u8], interference: &mut Interference) -> (u64, Result<(), Errno>) {
        let len = match interference.answer(bytes.len() as u64) {
            Ok(len) => len,
            Err(errno) => return (0, Err(errno)),
        };
        let mut arguments = [to, bytes.as_ptr() as u64, len, 0, 0];
        let result = ioctl(&self.0, COPY, &mut arguments);
        placed(arguments[4], len, result)
    }

    /// The same with zeros.
    pub fn zero(&self, range: &Range<u64>, interference: &mut Interference) -> (u64, Result<(), Errno>) {
        let len = match interference.answer(range.end - range.start) {
            Ok(len) => len,
            Err(errno) => return (0, Err(errno)),
        };
        let mut arguments = [range.start, len, 0, 0];
        let result = ioctl(&self.0, ZEROPAGE, &mut arguments);
        placed(arguments[3], len, result)
    }

    /// Whether the address space is still there.
    pub fn is_alive(&self) -> bool {
        self.probe(NOWHERE) != Probed::Gone
    }

    /// Whether missing pages at an address are told, without changing anything: it is tried to fill the page
    /// from where nothing can be read, and where nothing is watched the kernel finds that out first.
    pub fn probe(&self, at: u64) -> Probed {
        static UNREADABLE: OnceLock<usize> = OnceLock::new();
        let page = crate::sys::PAGE;
        // SAFETY: a new mapping, which stays.
        let from = *UNREADABLE.get_or_init(|| unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let made = libc::mmap(std::ptr::null_mut(), page, libc::PROT_NONE, flags, -1, 0);
            if made == libc::MAP_FAILED { 0 } else { made as usize }
        });
        match ioctl(&self.0, COPY, &mut [at, from as u64, page as u64, 0, 0]) {
            Err(Errno(libc::EFAULT | libc::EEXIST)) => Probed::Watched,
            Err(Errno(libc::EAGAIN | libc::ENOMEM | libc::EINTR)) => Probed::Changing,
            Err(Errno(libc::ESRCH)) => Probed::Gone,
            _ => Probed::Unwatched,
        }
    }

    /// Whether there is something to be told.
    pub fn is_readable(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.0, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, as is told; it does not wait.
        unsafe { libc::poll(&mut poll, 1, 0) > 0 }
    }

    /// What there is to be told, if anything.
    pub fn read(&self) -> Option<News> {
        // struct uffd_msg
        let mut message = [0u64; 4];
        loop {
            // SAFETY: reads one message into a local of its size.
            let n = unsafe { libc::read(self.0.0, message.as_mut_ptr().cast(), size_of_val(&message)) };
            match n {
                32 => break,
                _ if n < 0 && Errno::last().0 == libc::EINTR => {}
                _ => return None,
            }
        }
        let [kind, a, b, c] = message;
        match kind & 0xff {
            0x12 => Some(News::Fault(Fault { at: b & !(crate::sys::PAGE as u64 - 1), by: c as u32 })),
            // The kernel has made the descriptor for this process.
            0x13 => Some(News::Fork(Self(Fd(a as u32 as i32)))),
            0x14 => Some(News::Moved { from: a, to: b, len: c }),
            0x15 => Some(News::Removed(a..b)),
            0x16 => Some(News::Unmapped(a..b)),
            _ => None,
        }
    }
}

/// The kernel says in place of the result how far it came, if it came anywhere.
fn placed(done: u64, len: u64, result: Result<(), Errno>) -> (u64, Result<(), Errno>) {
    match result {
        Ok(()) => (len, Ok(())),
        Err(e) => match done as i64 {
            // Not all: the reason is told at the next try.
            1.. => (done.min(len), Ok(())),
            _ => (0, Err(e)),
        },
    }
}

fn ioctl<const N: usize>(fd: &Fd, request: libc::c_ulong, arguments: &mut [u64; N]) -> Result<(), Errno> {
    // SAFETY: the kernel reads and writes the structure that belongs to the request, which has these words.
    // What it places elsewhere lies in another process.
    match unsafe { libc::ioctl(fd.0, request, arguments.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}
