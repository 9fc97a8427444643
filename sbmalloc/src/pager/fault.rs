//! The `SIGSEGV` handler that says what happened if packed memory is touched while it is out.
//!
//! It runs with every signal blocked but those of other faults: if the handler of another touched packed
//! memory meanwhile, the kernel would end the process without a word. Whoever handled faults before sees
//! those blocked that it asked for: it may fault itself, or never return.

use super::pack::{complain_of_touch, is_packed_at};
use crate::lock::Lock;
use crate::sys::Errno;
use crate::threads::{all_but_faults, of_kernel, set_mask};
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
        action.sa_mask = all_but_faults();
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

/// What is blocked while a handler runs, bit 0 for signal 1.
///
/// # Safety
/// The context is what the kernel passed to a handler.
unsafe fn mask_of(action: &libc::sigaction, signal: i32, context: *mut libc::c_void) -> u64 {
    // SAFETY: the caller's. The kernel fills its part of the set only.
    let before =
        unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>().read() };
    let own = if action.sa_flags & libc::SA_NODEFER == 0 { 1 << (signal - 1) } else { 0 };
    before | of_kernel(&action.sa_mask) | own
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
                set_mask(mask_of(previous, signal, context));
                let f: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                f(signal, info, context);
            }
            handler => {
                set_mask(mask_of(previous, signal, context));
                let f: extern "C" fn(i32) = std::mem::transmute(handler);
                f(signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{self, PAGE};
    use std::sync::atomic::{AtomicU64, AtomicUsize};

    /// A page that nobody may read, and one of a file that ends before it.
    static CLOSED: AtomicUsize = AtomicUsize::new(0);
    static BEHIND: AtomicUsize = AtomicUsize::new(0);
    static SEEN: AtomicU64 = AtomicU64::new(0);

    /// What this thread blocks, bit 0 for signal 1.
    fn blocked() -> u64 {
        let mask = set_mask(0);
        set_mask(mask);
        mask
    }

    /// The program's: faults itself, in another way, and opens the page.
    extern "C" fn before(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
        SEEN.store(blocked(), Ordering::SeqCst);
        // SAFETY: mapped; `on_bus` puts a page there.
        assert_eq!(unsafe { (BEHIND.load(Ordering::SeqCst) as *const u8).read_volatile() }, 0);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        sys::set_protection(CLOSED.load(Ordering::SeqCst), PAGE, rights).expect("ours");
    }

    extern "C" fn on_bus(_: i32) {
        // SAFETY: puts memory over the page of the test's.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let at = BEHIND.load(Ordering::SeqCst) as *mut libc::c_void;
            libc::mmap(at, PAGE, libc::PROT_READ, flags, -1, 0);
        }
    }

    fn handle(signal: i32, handler: usize, flags: i32, also: Option<i32>) {
        // SAFETY: zeros are a valid action, which is filled; the handlers are those above.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            also.map(|also| libc::sigaddset(&raw mut action.sa_mask, also));
            assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
        }
    }

    #[test]
    fn whoever_handled_faults_before_may_fault() {
        // In a process of its own, whose handlers nobody else needs.
        const ALONE: &str = "SBMALLOC_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let me = std::env::current_exe().expect("this program");
            let name = "pager::fault::tests::whoever_handled_faults_before_may_fault";
            let mut alone = std::process::Command::new(me);
            let out = alone.args([name, "--exact"]).env(ALONE, "1").output().expect("run");
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(out.status.success() && said.contains("1 passed"), "{}: {said}", out.status);
            return;
        }
        handle(libc::SIGBUS, on_bus as *const () as usize, 0, None);
        handle(libc::SIGSEGV, before as *const () as usize, libc::SA_SIGINFO, Some(libc::SIGUSR1));
        install_handler().expect("a handler");
        // SAFETY: makes mappings of its own; the file is empty.
        let closed = unsafe {
            let file = libc::memfd_create(c"empty".as_ptr(), 0);
            let map = |flags, rights, file| libc::mmap(std::ptr::null_mut(), PAGE, rights, flags, file, 0);
            let behind = map(libc::MAP_SHARED, libc::PROT_READ, file);
            let closed = map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_NONE, -1);
            assert!(behind != libc::MAP_FAILED && closed != libc::MAP_FAILED);
            BEHIND.store(behind as usize, Ordering::SeqCst);
            CLOSED.store(closed as usize, Ordering::SeqCst);
            closed
        };
        let was = blocked();
        // SAFETY: mapped, and opened by the handler.
        assert_eq!(unsafe { closed.cast::<u8>().read_volatile() }, 0);
        let of = |signal: i32| 1u64 << (signal - 1);
        assert_eq!(SEEN.load(Ordering::SeqCst), was | of(libc::SIGSEGV) | of(libc::SIGUSR1));
        assert_eq!(blocked(), was);
    }
}
