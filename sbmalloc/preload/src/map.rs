//! `mmap` and what goes with it.
//!
//! Served from arenas: private anonymous memory to read and write, from [`LEAST`] on, wherever the kernel
//! likes, in a rank. Everything else is the kernel's business: files, shared memory, stacks, fixed addresses
//! and hints, code, huge page pools, locked or sparse (`MAP_NORESERVE`) memory, and reservations
//! (`PROT_NONE`), which programs open and close by `mprotect` as they like.
//!
//! What is served can be unmapped, moved, advised and protected like any other, by the page. It differs in
//! this: it is charged when it is mapped, not when it is touched; the rest of a 64 KiB chunk of which a part
//! is unmapped stays readable; and what new mappings could not keep is refused: `MADV_DONTFORK`,
//! `MADV_WIPEONFORK` (`EINVAL`), shared memory put over it by `MAP_FIXED` (`EINVAL`), and `mlockall`
//! (`ENOMEM`).

use std::ffi::{c_int, c_long, c_void};
use std::ops::Range;

use heap::mapping;

use crate::start::{is_rank, scheduling_point};
use crate::sys::{PAGE, keeping_errno, set_errno};

/// Bytes from which on a mapping is served; smaller ones would waste most of their chunk.
const LEAST: usize = 64 << 10;
const RW: c_int = libc::PROT_READ | libc::PROT_WRITE;

const FAILED: *mut c_void = libc::MAP_FAILED;

fn fail(errno: c_int) -> *mut c_void {
    set_errno(errno);
    FAILED
}

fn pages(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(PAGE)
}

/// Whether the kernel may choose freely and nobody could tell its memory from ours.
fn is_served(at: *mut c_void, len: usize, rights: c_int, flags: c_int) -> bool {
    at.is_null() && len >= LEAST && rights == RW && flags == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    if is_served(at, len, rights, flags) && is_rank() {
        scheduling_point();
        if let Some(there) = pages(len).and_then(|len| keeping_errno(|| mapping::map(len))) {
            return there.as_ptr().cast();
        }
    }
    if flags & libc::MAP_FIXED != 0
        && let Some(part) = pages(len).and_then(|len| mapping::part(at as usize, len))
    {
        // SAFETY: the caller's contract: what was there is to go.
        return unsafe { map_over(part, at, len, rights, flags, fd, offset) };
    }
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_mmap, at, len, rights, flags, fd, offset) as *mut c_void }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { mmap(at, len, rights, flags, fd, offset) }
}

/// A mapping at an address of ours: emptied, filled from the file if there is one, and given its rights. That
/// is how programs give memory back, or replace it.
unsafe fn map_over(
    part: Range<usize>,
    at: *mut c_void,
    len: usize,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    if flags & libc::MAP_PRIVATE == 0
        || part.len() != len.next_multiple_of(PAGE)
        || !mapping::is_mapped(part.clone())
    {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's: what was there is to go.
    if let Err(errno) = unsafe { mapping::protect(part.clone(), RW) } {
        return fail(errno.0);
    }
    // SAFETY: as above.
    unsafe { mapping::empty(part.clone()) };
    if flags & libc::MAP_ANONYMOUS == 0 {
        let mut done = 0;
        while done < len {
            // SAFETY: mapped and writable.
            match unsafe { libc::pread(fd, at.byte_add(done), len - done, offset + done as i64) } {
                n @ 1.. => done += n as usize,
                0 => break,
                _ => return FAILED,
            }
        }
    }
    // SAFETY: as above.
    match unsafe { mapping::protect(part, rights) } {
        Ok(()) => at,
        Err(errno) => fail(errno.0),
    }
}

/// What lies in front of `part` and behind it.
fn around(at: usize, len: usize, part: &Range<usize>) -> [Range<usize>; 2] {
    [at..part.start, part.end..(at + len).max(part.end)]
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller's contract.
    let kernel = |at: usize, len: usize| unsafe { libc::syscall(libc::SYS_munmap, at, len) as c_int };
    let at = at as usize;
    let whole = pages(len).filter(|&len| len > 0 && at.is_multiple_of(PAGE));
    let Some((len, part)) = whole.and_then(|len| Some((len, mapping::part(at, len)?))) else {
        return kernel(at, len);
    };
    scheduling_point();
    for rest in around(at, len, &part) {
        if !rest.is_empty() && kernel(rest.start, rest.len()) != 0 {
            return -1;
        }
    }
    // SAFETY: the caller's contract.
    keeping_errno(|| unsafe { mapping::unmap(part) });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let (Some(old_len), Some(new_len)) = (pages(old), pages(new)) else { return fail(libc::EINVAL) };
    let fixed = flags & libc::MREMAP_FIXED != 0;
    if fixed && mapping::part(to as usize, new_len).is_some() {
        return fail(libc::EINVAL);
    }
    let Some(part) = mapping::part(at as usize, old_len.max(1)) else {
        // SAFETY: the caller's contract.
        return unsafe { libc::syscall(libc::SYS_mremap, at, old, new, flags, to) as *mut c_void };
    };
    let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    if !(at as usize).is_multiple_of(PAGE) || old_len == 0 || new_len == 0 || flags & !known != 0 {
        return fail(libc::EINVAL);
    }
    if part.len() != old_len || !mapping::is_mapped(part.clone()) {
        return fail(libc::EFAULT);
    }
    scheduling_point();
    if new_len <= old_len && !fixed {
        if new_len < old_len {
            // SAFETY: the caller gives the end up.
            keeping_errno(|| unsafe { mapping::unmap(part.start + new_len..part.end) });
        }
        return at;
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return fail(libc::ENOMEM);
    }
    let there = if fixed {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the caller's contract: what is there goes.
        unsafe { mmap(to, new_len, RW, flags, -1, 0) }
    } else {
        // SAFETY: a new mapping replaces nothing.
        unsafe { mmap(std::ptr::null_mut(), new_len, RW, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }
    };
    if there != FAILED {
        // SAFETY: two mappings, each at least that long; the old one's rights may be none, so they are opened
        // first.
        unsafe {
            let _ = mapping::protect(part.clone(), RW);
            std::ptr::copy_nonoverlapping(at.cast::<u8>(), there.cast::<u8>(), old_len.min(new_len));
            keeping_errno(|| mapping::unmap(part));
        }
    }
    there
}

/// What an advice means for memory of ours.
#[derive(Debug, PartialEq, Eq)]
enum Advice {
    /// The content goes.
    Empty,
    /// A hint; the pager knows better.
    Ignore,
    /// Would have to outlast new mappings.
    Refuse,
    /// The kernel does it as always.
    Kernel,
}

fn advice(advice: c_int) -> Advice {
    match advice {
        // By the kernel the old content would come back from the scratch file.
        libc::MADV_DONTNEED => Advice::Empty,
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => Advice::Kernel,
        // The page may keep its content until the kernel needs it; here it keeps it.
        libc::MADV_FREE
        | libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_WILLNEED
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_DONTDUMP
        | libc::MADV_DODUMP
        | libc::MADV_DOFORK
        | libc::MADV_KEEPONFORK
        | libc::MADV_COLD
        | libc::MADV_PAGEOUT => Advice::Ignore,
        // Also MADV_DONTFORK, MADV_WIPEONFORK, MADV_REMOVE, MADV_HWPOISON and those of later kernels.
        _ => Advice::Refuse,
    }
}

/// Calls `ours` for each part of a range that lies in an arena and `kernel` for the others, until one fails.
/// A range that the kernel would refuse is its business.
fn by_parts(
    at: *mut c_void,
    len: usize,
    ours: impl Fn(Range<usize>) -> c_int,
    kernel: impl Fn(Range<usize>) -> c_int,
) -> c_int {
    let mut at = at as usize;
    let whole = pages(len).filter(|&len| len > 0 && at.is_multiple_of(PAGE));
    let Some(end) = whole.and_then(|len| at.checked_add(len)) else {
        return kernel(at..at.saturating_add(len));
    };
    while at < end {
        let part = mapping::part_in_any_arena(at, end - at).unwrap_or(end..end);
        if at < part.start && kernel(at..part.start) != 0 {
            return -1;
        }
        at = part.end;
        if !part.is_empty() && ours(part) != 0 {
            return -1;
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(at: *mut c_void, len: usize, what: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let kernel =
        |r: Range<usize>| unsafe { libc::syscall(libc::SYS_madvise, r.start, r.len(), what) as c_int };
    let ours = |part| match advice(what) {
        Advice::Empty => {
            // SAFETY: the caller's contract: the content goes.
            keeping_errno(|| unsafe { mapping::empty(part) });
            0
        }
        Advice::Ignore => 0,
        Advice::Kernel => kernel(part),
        Advice::Refuse => {
            set_errno(libc::EINVAL);
            -1
        }
    };
    by_parts(at, len, ours, kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, rights: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let kernel =
        |r: Range<usize>| unsafe { libc::syscall(libc::SYS_mprotect, r.start, r.len(), rights) as c_int };
    // SAFETY: the caller's contract.
    let ours = |part| match unsafe { mapping::protect(part, rights) } {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno.0);
            -1
        }
    };
    by_parts(at, len, ours, kernel)
}

/// Would bring every byte of address space of the arenas into RAM, for good.
#[unsafe(no_mangle)]
extern "C" fn mlockall(_: c_int) -> c_int {
    set_errno(libc::ENOMEM);
    -1
}

/// Pages of a long, so that bare system calls return addresses whole.
const _: () = assert!(size_of::<c_long>() == size_of::<usize>());
