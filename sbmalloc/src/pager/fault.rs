//! The `SIGSEGV` handler that says what happened if packed memory is touched while it is out.
//!
//! It runs with every signal blocked: if the handler of another touched packed memory meanwhile, the kernel
//! would end the process without a word.

use super::pack::{complain_of_touch, is_packed_at};
use crate::lock::Lock;
use crate::sys::Errno;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Held while the handler is installed.
static INSTALLING: Lock<()> = Lock::new(());

/// The action that was there before ours, written once before ours is installed.
struct Previous(std::cell::UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: written once under INSTALLING before the handler can run, then only read.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(std::cell::UnsafeCell::new(MaybeUninit::uninit()));
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Takes or lets go of the lock under which the handler is installed, over a fork.
///
/// # Safety
/// As for the lock.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { INSTALLING.hold_or_let_go(hold) };
}

/// Installs the handler, once. To be called before anything is packed.
pub(super) fn install_handler() -> Result<(), Errno> {
    let _installing = INSTALLING.lock();
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
    if code == 2 && is_packed_at(address) {
        complain_of_touch(address);
        // SAFETY: puts the default back; the instruction faults again, which ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
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
