//! Read-only granules and a `SIGSEGV` handler that records the granule written to and opens it.
//!
//! The handler runs with every signal blocked. It must: were a thread parked between the mark and the
//! `mprotect`, an evict and a restore could pass, and the granule would be opened without its new mark.
//! A fault that happened before such a pass and is handled after it merely opens and marks a clean granule.

use super::{CLEAN, Tracker, UNKNOWN, mark};
use crate::arena::Inner;
use crate::lock::Lock;
use crate::pager;
use crate::sys::{self, Errno, GRANULE};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// As many arenas as a process may have.
const SLOTS: usize = crate::set::MAX_ARENAS;

/// What the handler must know of an arena, in static memory: an arena's own metadata may be going away
/// while the handler looks for the owner of an address elsewhere.
struct Watched {
    base: AtomicUsize,
    len: AtomicUsize,
    arena: AtomicPtr<Inner>,
}

static WATCHED: [Watched; SLOTS] = [const {
    Watched {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        arena: AtomicPtr::new(std::ptr::null_mut()),
    }
}; SLOTS];
static IN_USE: AtomicUsize = AtomicUsize::new(0);
static REGISTER: Lock<()> = Lock::new(());

/// The action that was there before ours, written once before ours is installed.
struct Previous(std::cell::UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: written once under REGISTER before the handler can run, then only read.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(std::cell::UnsafeCell::new(MaybeUninit::uninit()));
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Takes or lets go of the lock of the handler's table, over a fork.
///
/// # Safety
/// As for the lock.
pub(super) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { REGISTER.hold_or_let_go(hold) };
}

/// Installs the handler, which also says what happened if packed memory is touched.
pub(crate) fn install_handler() -> Result<(), Errno> {
    let _register = REGISTER.lock();
    install()
}

fn install() -> Result<(), Errno> {
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: a zeroed sigaction is valid; the kernel fills PREVIOUS with the old one. Asked for first and
    // separately, so that the handler never runs without it. SA_ONSTACK keeps Rust's stack overflow report
    // working, SA_SIGINFO brings the address; the full mask is explained at the top.
    unsafe {
        if libc::sigaction(libc::SIGSEGV, std::ptr::null(), (*PREVIOUS.0.get()).as_mut_ptr()) != 0 {
            return Err(Errno::last());
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) != 0 {
            return Err(Errno::last());
        }
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo for SIGSEGV.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // 2 is SEGV_ACCERR: mapped, but not for this access. Anything else is a real crash.
    if code == 2 {
        if pager::is_packed_at(address) {
            pager::complain_of_touch(address);
            // SAFETY: puts the default back; the instruction faults again, which ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            return;
        }
        for slot in &WATCHED[..IN_USE.load(Ordering::Acquire)] {
            let arena = slot.arena.load(Ordering::Acquire);
            let base = slot.base.load(Ordering::Relaxed);
            if !arena.is_null() && address.wrapping_sub(base) < slot.len.load(Ordering::Relaxed) {
                let g = (address - base) / GRANULE;
                // SAFETY: somebody is using this arena's memory right now, so it is alive.
                unsafe { &*arena }.granule(g).store(UNKNOWN, Ordering::Release);
                // SAFETY: errno is saved because the interrupted code may be about to read it.
                let saved = unsafe { *libc::__errno_location() };
                let opened = sys::protect(base + g * GRANULE, GRANULE, true);
                // SAFETY: as above.
                unsafe { *libc::__errno_location() = saved };
                if opened.is_ok() {
                    return;
                }
            }
        }
    }
    chain(signal, info, context);
}

/// Hands a fault that is not ours to whoever was there before.
fn chain(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: PREVIOUS was written before this handler was installed, by the kernel, so a handler in it has
    // the signature its flags announce. For SIG_DFL and SIG_IGN the default is put back and the instruction
    // faults again, which ends the process the way it would have ended without us.
    unsafe {
        let previous = (*PREVIOUS.0.get()).assume_init_ref();
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let f: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                f(signal, info, context);
            }
            handler => {
                let f: extern "C" fn(i32) = std::mem::transmute(handler);
                f(signal);
            }
        }
    }
}

/// Read-only granules.
pub(super) struct Mprotect;

impl Tracker for Mprotect {
    fn attach(&self, arena: &Inner) -> Result<(), Errno> {
        let _register = REGISTER.lock();
        install()?;
        let used = IN_USE.load(Ordering::Relaxed);
        let free = WATCHED[..used].iter().position(|s| s.arena.load(Ordering::Relaxed).is_null());
        let at = free.unwrap_or(used);
        let slot = WATCHED.get(at).ok_or(Errno(libc::EMFILE))?;
        slot.base.store(arena.base, Ordering::Relaxed);
        slot.len.store(arena.len(), Ordering::Relaxed);
        slot.arena.store(std::ptr::from_ref(arena).cast_mut(), Ordering::Release);
        IN_USE.store(used.max(at + 1), Ordering::Release);
        Ok(())
    }

    fn detach(&self, arena: &Inner) {
        let _register = REGISTER.lock();
        for slot in &WATCHED {
            if std::ptr::eq(slot.arena.load(Ordering::Relaxed), arena) {
                slot.arena.store(std::ptr::null_mut(), Ordering::Release);
            }
        }
    }

    fn arm(&self, arena: &Inner, start: usize, len: usize) -> Result<(), Errno> {
        mark(arena, start, len, CLEAN);
        sys::protect(arena.base + start, len, false).inspect_err(|_| mark(arena, start, len, UNKNOWN))
    }

    fn note(&self, arena: &Inner, start: usize, len: usize) {
        mark(arena, start, len, UNKNOWN);
    }

    fn may_be_dirty(&self, arena: &Inner, g: usize) -> bool {
        arena.granule(g).load(Ordering::Acquire) == UNKNOWN
    }
}
