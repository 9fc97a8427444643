//! One address space of a rank, seen from outside: what is in it, and copying from and to it.

use super::arch::{GATE, GATE_ALIGN};
use super::error::{OtherError, Refusal};
use super::proc::{self, Vma};
use super::ptrace;
use super::together::DESK;
use crate::scan::{self, Query, ScanError};
use crate::sys::{Errno, Fd, PAGE, PathBuf};
use std::ops::Range;

/// Remote ranges of one call.
pub(super) const RANGES: usize = 512;

// What is lent is whole pages.
const _: () = assert!(DESK.is_multiple_of(PAGE as u64));

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

/// What is to be done with pages that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// They are moved.
    Small,
    /// They are moved, and are parts of huge pages.
    Huge,
    /// They stay: swapped out, shared with another process, or not memory at all. What is not told of holds
    /// nothing.
    Stays,
}

pub(super) struct Space {
    /// The processes that have it: more than one only with `CLONE_VM`.
    pub processes: Vec<i32>,
    /// A thread that lives in it.
    pub via: i32,
    memory: Fd,
    pagemap: Fd,
    /// Address of an instruction that makes a system call, in memory that is never moved.
    pub gate: u64,
    /// The lowest end of the main thread's stack, for arguments of calls. Never moved: others of its pages
    /// are copied while such arguments lie there.
    pub desk: Option<u64>,
    /// The thread that makes the calls, and where its pointer to the restartable sequence it is in lies, with
    /// what that was before anything was moved or called.
    pub caller: i32,
    pub rseq: Option<(u64, u64)>,
    /// A pager of its own sees which of its pages are written to: what is put back counts as written.
    pub has_own_pager: bool,
}

fn open(tid: i32, what: &[u8], flags: i32) -> Result<Fd, Errno> {
    let mut path = PathBuf::<64>::new();
    path.push(b"/proc/").push_number(tid as u64).push(b"/").push(what);
    Fd::open(path.as_cstr(), flags)
}

impl Space {
    /// That of a process, of which `via` is a thread that stands.
    pub fn open(pid: i32, via: i32) -> Result<Self, Refusal> {
        let forbidden = |errno| match errno {
            Errno(libc::ENOENT | libc::ESRCH) => Refusal::Gone,
            errno => Refusal::unreadable(pid, errno),
        };
        let memory = open(via, b"mem", libc::O_RDWR).map_err(forbidden)?;
        let pagemap = open(via, b"pagemap", libc::O_RDONLY).map_err(forbidden)?;
        let mut space = Self {
            processes: vec![pid],
            via,
            memory,
            pagemap,
            gate: 0,
            desk: None,
            caller: 0,
            rseq: None,
            has_own_pager: false,
        };
        space.gate = space.find_gate().ok_or(Refusal::NoGate { pid })?;
        Ok(space)
    }

    /// The thread through which it is copied.
    pub fn via(&self) -> i32 {
        self.via
    }

    /// Chooses a parked thread to make the calls.
    pub fn choose(&mut self, tid: i32) {
        let mut pointer = [0; 8];
        self.caller = tid;
        self.rseq = ptrace::rseq_pointer(tid)
            .filter(|&at| self.peek(at, &mut pointer).is_ok())
            .map(|at| (at, u64::from_ne_bytes(pointer)));
    }

    /// Makes the caller be in the restartable sequence again in which it was, which calls make the kernel
    /// forget.
    pub fn put_rseq_back(&self) -> Result<(), OtherError> {
        match self.rseq {
            Some((at, pointer)) if pointer != 0 => self
                .poke(at, &pointer.to_ne_bytes())
                .map_err(|e| self.failed("put back the restartable sequence of", e)),
            _ => Ok(()),
        }
    }

    /// In the kernel's own code (vdso) if there is any, else in the program's or a library's.
    fn find_gate(&mut self) -> Option<u64> {
        let (mut kernels, mut files, mut desk) = (vec![], vec![], None);
        proc::each_range(self.via, &mut |vma| {
            if vma.executable && vma.name == "[vdso]" {
                kernels.push(vma.from..vma.to);
            } else if vma.executable && vma.readable && vma.name.starts_with('/') {
                files.push(vma.from..vma.to);
            } else if vma.name == "[stack]" && vma.writable && vma.to - vma.from >= 2 * DESK {
                desk = Some(vma.from);
            }
        })
        .ok()?;
        self.desk = desk;
        kernels.into_iter().chain(files).find_map(|range| self.find_gate_in(range))
    }

    fn find_gate_in(&self, range: Range<u64>) -> Option<u64> {
        let mut piece = vec![0u8; 64 << 10];
        for at in range.clone().step_by(piece.len() - GATE.len()) {
            let len = piece.len().min((range.end - at) as usize);
            self.peek(at, &mut piece[..len]).ok()?;
            let found = piece[..len]
                .windows(GATE.len())
                .enumerate()
                .position(|(i, bytes)| bytes == GATE && (at as usize + i).is_multiple_of(GATE_ALIGN));
            if let Some(i) = found {
                return Some(at + i as u64);
            }
        }
        None
    }

    /// Reads memory, whatever its protection.
    pub fn peek(&self, at: u64, to: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < to.len() {
            match self.memory.pread(&mut to[done..], at + done as u64)? {
                0 => return Err(Errno(libc::EFAULT)),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Writes private memory, whatever its protection.
    pub fn poke(&self, at: u64, from: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < from.len() {
            let rest = &from[done..];
            // SAFETY: `rest` is readable for its length.
            let n = unsafe {
                libc::pwrite(self.memory.0, rest.as_ptr().cast(), rest.len(), (at + done as u64) as i64)
            };
            match n {
                1.. => done += n as usize,
                0 => return Err(Errno(libc::EFAULT)),
                _ if Errno::last().0 == libc::EINTR => {}
                _ => return Err(Errno::last()),
            }
        }
        Ok(())
    }

    /// Copies ranges, at most [`RANGES`] of them, one behind the other to `to`; returns the bytes that were
    /// copied before the first page that cannot be read this way.
    pub fn copy_out(&self, ranges: &[Range<u64>], to: &mut [u8]) -> Result<usize, Errno> {
        self.copy(ranges, to.as_mut_ptr(), to.len(), libc::SYS_process_vm_readv)
    }

    /// The same the other way.
    pub fn copy_in(&self, ranges: &[Range<u64>], from: &[u8]) -> Result<usize, Errno> {
        self.copy(ranges, from.as_ptr().cast_mut(), from.len(), libc::SYS_process_vm_writev)
    }

    /// Writes a zero to a page about to be filled.
    pub fn touch(&self, at: u64) -> bool {
        self.copy_in(std::slice::from_ref(&(at..at + 1)), &[0]) == Ok(1)
    }

    fn copy(
        &self,
        ranges: &[Range<u64>],
        at: *mut u8,
        len: usize,
        call: libc::c_long,
    ) -> Result<usize, Errno> {
        let mut remote = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; RANGES];
        let count = ranges.len().min(RANGES);
        for (io, range) in remote.iter_mut().zip(ranges) {
            io.iov_base = range.start as *mut _;
            io.iov_len = (range.end - range.start) as usize;
        }
        let local = libc::iovec { iov_base: at.cast(), iov_len: len };
        // SAFETY: the kernel reads or writes at most `len` bytes at `at`, which the caller borrowed for it;
        // the other addresses are another process's.
        let n = unsafe {
            {
                // Whole words: the last lies on the stack.
                let (tid, one, flags) = (self.via as usize, 1_usize, 0_usize);
                libc::syscall(call, tid, &raw const local, one, remote.as_ptr(), count, flags)
            }
        };
        match n {
            0.. => Ok(n as usize),
            _ if Errno::last().0 == libc::EFAULT => Ok(0),
            _ => Err(Errno::last()),
        }
    }

    /// Whether another process's memory is this, while all threads of both stand: what is written here is
    /// there, too. It is written to the last words of the stack, behind everything that a program has there,
    /// and put back. `None` if that cannot be done.
    pub fn shares_with(&self, other: &Self) -> Option<bool> {
        let mut end = None;
        proc::each_range(self.via, &mut |vma| {
            if vma.name == "[stack]" && vma.writable {
                end = Some(vma.to - 8);
            }
        })
        .ok()?;
        let (at, mut here, mut there) = (end?, [0; 8], [0; 8]);
        self.peek(at, &mut here).ok()?;
        if other.peek(at, &mut there).is_err() || here != there {
            return Some(false);
        }
        self.poke(at, &here.map(|byte| !byte)).ok()?;
        let seen = other.peek(at, &mut there);
        self.poke(at, &here).ok()?;
        seen.ok().map(|()| here != there)
    }

    /// Every mapping, with its flags.
    pub fn each_vma(&self, f: &mut dyn FnMut(Vma)) -> Result<(), OtherError> {
        proc::each_vma(self.via, f).map_err(|e| self.not_listed(Errno::from(&e)))
    }

    /// Why its mappings could not be listed. Where only a descriptor or memory was missing, nothing is wrong
    /// with the rank, and it can be tried again.
    pub fn not_listed(&self, errno: Errno) -> OtherError {
        if errno.is_passing() { OtherError::Busy } else { self.failed("list the mappings of", errno) }
    }

    pub fn failed(&self, op: &'static str, errno: Errno) -> OtherError {
        match errno.0 {
            libc::ESRCH | libc::ENOENT => OtherError::Gone,
            _ => OtherError::Rank { op, pid: self.processes[0], errno },
        }
    }

    /// Calls `f` with the stretches of alike pages of a mapping that are there, in ascending order. With
    /// `alone`, pages that other processes have too stay.
    ///
    /// So does the page in which the kernel writes for the caller on which processor it runs. From Linux 6.19
    /// on it writes only what has changed since it last did, so that what it writes during our calls must not
    /// be replaced by what was there before. And so do those where arguments of our calls lie.
    pub fn each_region(
        &self,
        range: Range<u64>,
        alone: bool,
        f: &mut dyn FnMut(Range<u64>, Kind) -> Result<(), OtherError>,
    ) -> Result<(), OtherError> {
        let page = PAGE as u64;
        let kernels = self.rseq.map(|(at, _)| at & !(page - 1)).map_or(0..0, |at| at..at + page);
        let mut stays = [kernels, self.lent().unwrap_or(0..0)];
        stays.sort_unstable_by_key(|stays| stays.start);
        self.each_present(range, alone, &mut |mut region, kind| {
            for stays in &stays {
                let here = stays.start.max(region.start)..stays.end.min(region.end);
                if here.is_empty() {
                    continue;
                }
                if region.start < here.start {
                    f(region.start..here.start, kind)?;
                }
                region.start = here.end;
                f(here, Kind::Stays)?;
            }
            if region.is_empty() { Ok(()) } else { f(region, kind) }
        })
    }

    /// Where arguments of our calls may lie.
    pub fn lent(&self) -> Option<Range<u64>> {
        self.desk.map(|desk| desk..desk + DESK)
    }

    fn each_present(
        &self,
        range: Range<u64>,
        alone: bool,
        f: &mut dyn FnMut(Range<u64>, Kind) -> Result<(), OtherError>,
    ) -> Result<(), OtherError> {
        let mut buffer = vec![[0u64; 3]; 512];
        let query = Query {
            inverted: scan::OF_FILE | scan::ZERO_PAGE,
            all_of: scan::OF_FILE | scan::ZERO_PAGE,
            any_of: scan::IN_RAM | scan::SWAPPED,
            report: scan::SWAPPED | scan::HUGE,
        };
        let bounds = [range.start as usize, range.end as usize];
        let scanned = scan::each(&self.pagemap, &mut buffer, bounds, query, |[from, to, kinds]| {
            let kind = match kinds {
                _ if kinds & scan::SWAPPED != 0 => Kind::Stays,
                _ if kinds & scan::HUGE != 0 => Kind::Huge,
                _ => Kind::Small,
            };
            if alone && kind != Kind::Stays {
                return self.by_entries(from..to, true, kind, f);
            }
            f(from..to, kind)
        });
        match scanned {
            Ok(()) => Ok(()),
            Err(ScanError::Unknown) => self.by_entries(range, alone, Kind::Small, f),
            Err(ScanError::At(_, errno)) => Err(self.failed("scan the pages of", errno)),
            Err(ScanError::Caller(e)) => Err(e),
        }
    }

    /// The same from the entries of the pagemap; `kind` is what pages are that move.
    fn by_entries(
        &self,
        range: Range<u64>,
        alone: bool,
        kind: Kind,
        f: &mut dyn FnMut(Range<u64>, Kind) -> Result<(), OtherError>,
    ) -> Result<(), OtherError> {
        const WINDOW: usize = 2048;
        let mut bytes = vec![0u8; WINDOW * 8];
        let page = PAGE as u64;
        let mut current: Option<(Range<u64>, Kind)> = None;
        for at in range.clone().step_by(WINDOW * PAGE) {
            let count = (((range.end - at) / page) as usize).min(WINDOW);
            let read = self.pagemap.pread(&mut bytes[..count * 8], at / page * 8);
            match read {
                Ok(n) if n == count * 8 => {}
                Ok(_) => return Err(self.failed("read the page table of", Errno(libc::EIO))),
                Err(e) => return Err(self.failed("read the page table of", e)),
            }
            for (i, entry) in bytes[..count * 8].as_chunks::<8>().0.iter().enumerate() {
                let entry = u64::from_ne_bytes(*entry);
                let here = at + i as u64 * page;
                // The page of zeros shows as one, shared with everybody.
                let kind = match () {
                    _ if entry & (PRESENT | SWAPPED) == 0 => None,
                    _ if entry & (SWAPPED | OF_FILE) != 0 => Some(Kind::Stays),
                    _ if alone && entry & EXCLUSIVE == 0 => Some(Kind::Stays),
                    _ => Some(kind),
                };
                match (&mut current, kind) {
                    (Some((range, k)), Some(kind)) if *k == kind && range.end == here => range.end += page,
                    (_, kind) => {
                        if let Some((range, k)) = current.take() {
                            f(range, k)?;
                        }
                        current = kind.map(|kind| (here..here + page, kind));
                    }
                }
            }
        }
        current.map_or(Ok(()), |(range, kind)| f(range, kind))
    }

    /// Calls `f` with the stretches of a range in which a mapping has no page, ascending, until that says
    /// that it is enough. Of a kernel before 6.7, which tells of each page by itself, so many pages at most.
    pub fn each_hole(&self, range: Range<u64>, most: usize, f: &mut dyn FnMut(Range<u64>) -> bool) {
        const THERE: u64 = scan::IN_RAM | scan::SWAPPED;
        let query = Query { inverted: THERE, all_of: THERE, any_of: 0, report: THERE };
        let bounds = [range.start as usize, range.end as usize];
        let scanned = scan::each(&self.pagemap, &mut [[0; 3]; 64], bounds, query, |[from, to, _]| {
            if f(from..to) { Ok(()) } else { Err(()) }
        });
        if let Err(ScanError::Unknown) = scanned {
            let mut pages = range.step_by(PAGE).take(most);
            pages.all(|at| self.is_there(at) != Some(false) || f(at..at + PAGE as u64));
        }
    }

    /// Whether the page at `at` is in RAM, be it one of zeros; `None` if that cannot be read.
    pub fn is_there(&self, at: u64) -> Option<bool> {
        let mut entry = [0; 8];
        let read = self.pagemap.pread(&mut entry, at / PAGE as u64 * 8);
        (read == Ok(8)).then(|| u64::from_ne_bytes(entry) & (PRESENT | SWAPPED) != 0)
    }

    /// Whether the page at `at` is part of a huge one, as far as the kernel tells.
    pub fn is_huge(&self, at: u64) -> bool {
        let query = Query { all_of: scan::HUGE, report: scan::HUGE, ..Query::default() };
        let mut found = false;
        let bounds = [at as usize, at as usize + PAGE];
        let scanned = scan::each(&self.pagemap, &mut [[0; 3]], bounds, query, |_| {
            found = true;
            Ok::<(), ()>(())
        });
        scanned.is_ok() && found
    }
}
