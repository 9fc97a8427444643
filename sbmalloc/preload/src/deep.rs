//! glibc's own names for what we stand in for: who finds glibc's definition finds ours.
//!
//! Being first in the order of lookup is not enough. A module loaded with `RTLD_DEEPBIND` (all of PHP's,
//! plug-ins of some data bases) looks in its own dependencies before anything preloaded, and so does `dlsym`
//! on glibc's handle (`ctypes.CDLL("libc.so.6")`). Both find glibc's `free`, and give it what glibc itself,
//! in `strdup`, has from us.
//!
//! To drop the flag would be half a cure, and would change which of two equal names such a module gets, which
//! is what the flag is for. To recognise blocks of glibc's in our `free` is none: it is glibc's that is
//! called, with ours. So the entries of glibc's symbol table that are about memory are set to our functions,
//! in this process. Every lookup from then on finds the same functions, in whatever order. No code is
//! changed, and nothing that is bound already.
//!
//! Only functions that never ask for the next definition behind ours are led here: a library that is
//! preloaded behind us and asks for the next one behind itself must not come round in a circle. `new` and
//! `delete` of the C++ library need nothing: they call `malloc` and `free`. A namespace of its own
//! (`dlmopen`) has its own glibc, which keeps its own memory.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::elf::Object;
use crate::sys::PAGE;

const NAMES: [&CStr; 29] = [
    c"malloc",
    c"calloc",
    c"free",
    c"cfree",
    c"free_sized",
    c"free_aligned_sized",
    c"realloc",
    c"reallocarray",
    c"posix_memalign",
    c"aligned_alloc",
    c"memalign",
    c"valloc",
    c"pvalloc",
    c"malloc_usable_size",
    c"__libc_malloc",
    c"__libc_calloc",
    c"__libc_realloc",
    c"__libc_free",
    c"__libc_memalign",
    c"__libc_valloc",
    c"__libc_pvalloc",
    c"__posix_memalign",
    // The kernel would unmap, or empty, parts of arenas.
    c"mmap",
    c"mmap64",
    c"munmap",
    c"mremap",
    c"madvise",
    c"mprotect",
    c"mlockall",
];

/// glibc's `realloc`, for blocks that are not ours.
static REALLOC: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// glibc's own `realloc`; null before [`lead_here`], when a lookup still finds it.
pub(crate) fn realloc_of_glibc() -> *mut c_void {
    REALLOC.load(Ordering::Acquire)
}

/// Done once, before the program has a second thread. Where the table cannot be made writable everything
/// stays as it is.
pub(crate) fn lead_here() {
    let (mut ours, mut glibc) = (None, None);
    Object::for_each(|object| {
        if object.contains((&raw const REALLOC).addr()) {
            ours = Some(object);
        } else if glibc.is_none() && object.functions(c"gnu_get_libc_version").next().is_some() {
            glibc = Some(object);
        }
    });
    let (Some(ours), Some(glibc)) = (ours, glibc) else { return };
    let pairs = || {
        NAMES
            .into_iter()
            .filter_map(|name| Some((name, ours.functions(name).next()?)))
            .flat_map(|(name, ours)| glibc.functions(name).map(move |theirs| (name, ours, theirs)))
    };
    let Some(first) = pairs().map(|(_, _, theirs)| theirs.addr()).min() else { return };
    let last = pairs().map(|(_, _, theirs)| theirs.addr()).max().unwrap_or(first);
    let Some((_, rights)) = glibc.segment(first).filter(|(range, _)| range.contains(&last)) else { return };
    let begin = first / PAGE * PAGE;
    let len = last + size_of::<libc::Elf64_Sym>() - begin;
    // SAFETY: pages of glibc's that keep the rights they have.
    let set = |rights: i32| unsafe { libc::syscall(libc::SYS_mprotect, begin, len, rights) == 0 };
    if !set(rights | libc::PROT_WRITE) {
        return;
    }
    for (name, ours_at, theirs) in pairs() {
        // SAFETY: entries of tables that stay; the place of an address is aligned. Nobody writes them, and
        // who reads one meanwhile finds one function or the other.
        unsafe {
            let address = ours.address((*ours_at).st_value);
            let value = AtomicU64::from_ptr(&raw mut (*theirs).st_value);
            let before = value.swap(glibc.in_file(address), Ordering::Relaxed);
            if name == c"realloc" {
                REALLOC.store(glibc.address(before) as *mut c_void, Ordering::Release);
            }
        }
    }
    set(rights);
}
