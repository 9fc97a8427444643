//! The first call, scheduling points, forks, and whoever waits for the program.
//!
//! Every intercepted call looks at one flag, by two relaxed loads: [`FLAG`] points to a word that is 1 until
//! the start has been made, to one that is always 0 in programs that are no rank, and to the rank's word in
//! the shared segment otherwise.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed};
use std::sync::atomic::{Ordering::Release, Ordering::SeqCst};

use bdrun_ipc::control::PROTOCOL;
use bdrun_ipc::note;
use bdrun_worker::front::Table;
use bdrun_worker::preload;

static NEW: AtomicU32 = AtomicU32::new(1);
static NEVER: AtomicU32 = AtomicU32::new(0);
static FLAG: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const NEW).cast_mut());

/// Somebody is making, or has made, the start.
static STARTED: AtomicBool = AtomicBool::new(false);
/// This process is a rank, and not a child of one.
static RANK: AtomicBool = AtomicBool::new(false);
/// A rank's socket, for children to close.
static SOCKET: AtomicI32 = AtomicI32::new(-1);

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// A call at which the rank may be moved.
#[inline(always)]
pub(crate) fn scheduling_point() {
    // SAFETY: it points to a static, or into a segment that is never unmapped.
    if unsafe { &*FLAG.load(Relaxed) }.load(Relaxed) != 0 {
        wanted();
    }
}

/// Whether this process is a rank whose memory is moved.
pub(crate) fn is_rank() -> bool {
    RANK.load(Relaxed)
}

#[cold]
fn wanted() {
    crate::sys::keeping_errno(|| {
        if STARTED.load(Acquire) {
            preload::scheduling_point();
        } else {
            start();
        }
    });
}

fn start() {
    // SAFETY: a pointer that the C library sets once it is ready; null before.
    let ready = unsafe { !(&raw const environ).read().is_null() };
    // SAFETY: neither has preconditions. The first thread is the one to attach.
    let first = unsafe { libc::syscall(libc::SYS_gettid) == i64::from(libc::getpid()) };
    if !ready || !first || STARTED.swap(true, SeqCst) {
        return;
    }
    FLAG.store((&raw const NEVER).cast_mut(), Release);
    crate::deep::lead_here();
    // The earlier the better: what is registered first is called last before a fork, and first after it, so
    // that handlers of others may allocate. Ours come before those of the heap, which may wait: the calling
    // thread is busy by then.
    heap::fork::install();
    // SAFETY: functions of the type wanted. Without memory for it forks stay as they were.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child)) };
    if let Some(flag) = preload::attach(program_has_note()) {
        SOCKET.store(preload::socket().unwrap_or(-1), Relaxed);
        heap::pager::choose_stop_signal();
        RANK.store(true, Release);
        FLAG.store(std::ptr::from_ref(flag).cast_mut(), Release);
    }
}

/// For a library that waits for the program (`bdrun_worker::front`): the rank's runtime is here.
#[unsafe(no_mangle)]
extern "C" fn bdrun_rank(protocol: u32) -> *const Table {
    let table = (protocol == PROTOCOL && is_rank()).then(preload::front).flatten();
    table.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// For the same: whether memory is of this heap.
#[unsafe(no_mangle)]
extern "C" fn bdrun_owns(at: *const c_void) -> bool {
    heap::raw::owns(at.cast())
}

/// Of a program that allocates nothing before its first wait.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        scheduling_point();
    }
    at_load
};

extern "C" fn before_fork() {
    crate::sys::keeping_errno(|| {
        preload::before_fork();
    });
}

extern "C" fn after_fork_in_parent() {
    crate::sys::keeping_errno(|| {
        preload::after_fork();
    });
}

extern "C" fn after_fork_in_child() {
    crate::sys::keeping_errno(|| {
        preload::after_fork();
        RANK.store(false, Release);
        FLAG.store((&raw const NEVER).cast_mut(), Release);
        // SAFETY: -1 is refused; a socket is ours, and of no use to what the child executes.
        unsafe { libc::fcntl(SOCKET.load(Relaxed), libc::F_SETFD, libc::FD_CLOEXEC) };
    });
}

/// Whether the program has the runtime in it.
fn program_has_note() -> bool {
    // SAFETY: getauxval has no preconditions.
    let (at, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    if at == 0 {
        return false;
    }
    // SAFETY: the kernel says where the program's headers lie, and how many there are.
    let headers = unsafe { std::slice::from_raw_parts(at as *const libc::Elf64_Phdr, count as usize) };
    let base = headers.iter().find(|h| h.p_type == libc::PT_PHDR).map_or(0, |h| at - h.p_vaddr);
    headers.iter().filter(|h| h.p_type == libc::PT_NOTE).any(|h| {
        // SAFETY: a note segment is part of a loaded one.
        let notes =
            unsafe { std::slice::from_raw_parts((base + h.p_vaddr) as *const u8, h.p_memsz as usize) };
        note::is_in(notes)
    })
}
