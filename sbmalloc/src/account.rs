//! Who pays for memory: every byte an arena commits is charged here before it is handed out.

use crate::arena;
use crate::lock::Lock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The account refused the charge; the allocation that asked for it returns null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory account refused {bytes} bytes")]
pub struct Denied {
    /// Bytes that were asked for.
    pub bytes: usize,
}

/// The payer for memory, installed once per process by the runtime.
///
/// # Safety
/// No method allocates from the heap on arenas, or frees to it: they are called in the middle of its work,
/// which is not to be entered twice. That includes everything that allocates, where the heap is the
/// `#[global_allocator]`.
///
/// ```compile_fail,E0200
/// struct Free;
/// impl sbmalloc::Account for Free {
///     fn charge(&self, _: usize) -> Result<(), sbmalloc::Denied> {
///         Ok(())
///     }
///     fn uncharge(&self, _: usize) {}
/// }
/// ```
pub unsafe trait Account: Sync {
    /// Called with the bytes about to be committed, a multiple of 4096, with no lock of this crate held
    /// that the pager, or an allocation by another thread, needs. May block; while it does, the calling
    /// thread may run [`pager::evict`](crate::pager::evict) and [`pager::restore`](crate::pager::restore).
    ///
    /// # Errors
    /// [`Denied`] makes the allocation return null.
    fn charge(&self, bytes: usize) -> Result<(), Denied>;

    /// Called with bytes given back, a multiple of 4096. Must not block for long.
    fn uncharge(&self, bytes: usize);

    /// Called before a fork for which everything that was out has come in: so many bytes are in RAM now. Must
    /// not block.
    fn forks(&self, in_ram: usize) {
        let _ = in_ram;
    }
}

/// The installed account lives in a leaked-by-contract `&'static dyn`; the fat pointer is kept in a slot.
static SLOT: Lock<Option<&'static dyn Account>> = Lock::new(None);
static ACCOUNT: AtomicPtr<&'static dyn Account> = AtomicPtr::new(std::ptr::null_mut());
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Takes or lets go of the lock that is held while nobody pays yet, around a fork.
///
/// # Safety
/// Let go only by the thread that took it, or in its child.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { SLOT.hold_or_let_go(hold) };
}

fn installed() -> Option<&'static dyn Account> {
    let at = ACCOUNT.load(Ordering::Acquire);
    // SAFETY: a non-null pointer refers to the value inside the static SLOT, written before and never again.
    if at.is_null() { None } else { Some(unsafe { *at }) }
}

/// Installs the account: charges what is already held in one go, thereafter every commit.
///
/// # Errors
/// [`Denied`] if the account refuses what is held, or if one was installed before (`bytes` is 0 then).
pub fn set_account(account: &'static dyn Account) -> Result<(), Denied> {
    // Whoever commits before the account is there takes the same lock, so nothing is missed or counted twice.
    let mut slot = SLOT.lock();
    if slot.is_some() {
        return Err(Denied { bytes: 0 });
    }
    let held = HELD.load(Ordering::Relaxed);
    if held > 0 {
        account.charge(held)?;
    }
    ACCOUNT.store(std::ptr::from_mut(slot.insert(account)), Ordering::Release);
    Ok(())
}

pub(crate) fn charge(bytes: usize) -> Result<(), Denied> {
    let account = match installed() {
        Some(account) => account,
        None => {
            let slot = SLOT.lock();
            match *slot {
                None => {
                    HELD.fetch_add(bytes, Ordering::Relaxed);
                    return Ok(());
                }
                Some(account) => account,
            }
        }
    };
    account.charge(bytes)?;
    HELD.fetch_add(bytes, Ordering::Relaxed);
    Ok(())
}

pub(crate) fn uncharge(bytes: usize) {
    if bytes == 0 {
        return;
    }
    let account = match installed() {
        Some(account) => account,
        None => {
            let slot = SLOT.lock();
            HELD.fetch_sub(bytes, Ordering::Relaxed);
            match *slot {
                None => return,
                Some(account) => {
                    drop(slot);
                    return account.uncharge(bytes);
                }
            }
        }
    };
    HELD.fetch_sub(bytes, Ordering::Relaxed);
    account.uncharge(bytes);
}

/// Everything has come in for a fork.
pub(crate) fn forks(in_ram: usize) {
    if let Some(account) = installed() {
        account.forks(in_ram);
    }
}

/// Bytes committed by allocators on arenas of this process, in RAM or out.
pub fn held_bytes() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Of [`held_bytes`], those in RAM: all of them while resident, 0 right after an evict of everything.
///
/// Pages of what is out that were touched count from when the pager next looks
/// ([`pager::evict_to`](crate::pager::evict_to), [`pager::restore_for`](crate::pager::restore_for)).
pub fn resident_bytes() -> usize {
    held_bytes().saturating_sub(arena::out_bytes())
}
