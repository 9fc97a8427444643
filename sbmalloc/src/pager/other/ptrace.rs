//! The calls of ptrace(2) and waitid(2) that are needed, thinly.

use super::arch::{Registers, Registers32};
use crate::sys::Errno;
use std::ptr;

/// New threads and children are held from their first instruction, and an exec is told.
pub(super) const WATCH: i32 = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD;
/// The thread is killed when the thread that traces it ends, for whatever reason.
pub(super) const WATCH_AND_KILL: i32 = WATCH | libc::PTRACE_O_EXITKILL;

/// A stop at the beginning or the end of a system call.
pub(super) const AT_CALL: i32 = libc::SIGTRAP | 0x80;

const GET_RSEQ: u32 = 0x420f;
const GET_DISPATCH: u32 = 0x4211;

fn request(request: u32, tid: i32, address: usize, data: usize) -> Result<usize, Errno> {
    // SAFETY: the kernel reads or writes at `data` only what the callers below hand over for their request.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request as usize, tid as usize, address, data) };
    if result < 0 { Err(Errno::last()) } else { Ok(result as usize) }
}

pub(super) fn seize(tid: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SEIZE, tid, 0, WATCH as usize).map(drop)
}

pub(super) fn interrupt(tid: i32) -> Result<(), Errno> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

pub(super) fn set_options(tid: i32, options: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as usize).map(drop)
}

/// Lets the thread go on, with a signal unless it is 0.
pub(super) fn resume(tid: i32, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Lets the thread stand where its process was stopped by a signal, but so that it is heard of when that
/// ends.
pub(super) fn listen(tid: i32) -> Result<(), Errno> {
    request(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// The signal of the event stop in which the thread stands: `SIGTRAP`, or that by which its process was
/// stopped.
pub(super) fn stop_signal(tid: i32) -> Result<i32, Errno> {
    // SAFETY: a zeroed siginfo is valid, and the kernel fills it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info as usize)?;
    Ok(info.si_signo)
}

/// Lets the thread go on to the next beginning or end of a system call.
pub(super) fn go_to_call(tid: i32, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize).map(drop)
}

pub(super) fn detach(tid: i32) -> Result<(), Errno> {
    request(libc::PTRACE_DETACH, tid, 0, 0).map(drop)
}

/// What belongs to the event at which the thread stands: a new thread, or the one that was.
pub(super) fn event_message(tid: i32) -> Result<i32, Errno> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(message as i32)
}

/// The registers; `None` if the thread runs another processor's programs (32 bits).
pub(super) fn registers(tid: i32) -> Result<Option<Registers>, Errno> {
    let mut regs = Registers::ZERO;
    Ok((get_registers(tid, &mut regs)? == size_of::<Registers>()).then_some(regs))
}

pub(super) fn set_registers(tid: i32, regs: &Registers) -> Result<(), Errno> {
    put_registers(tid, regs)
}

/// The registers of a thread that runs a program of 32 bits; `None` of all others.
pub(super) fn registers_32(tid: i32) -> Result<Option<Registers32>, Errno> {
    // With room for more than there is, as the kernel hands over no more than fits.
    let mut regs = [Registers32::ZERO; 4];
    Ok((get_registers(tid, &mut regs)? == size_of::<Registers32>()).then_some(regs[0]))
}

pub(super) fn set_registers_32(tid: i32, regs: &Registers32) -> Result<(), Errno> {
    put_registers(tid, regs)
}

/// The bytes that were handed over: as many as the thread's registers have, if there is room.
fn get_registers<T>(tid: i32, regs: &mut T) -> Result<usize, Errno> {
    let mut io = libc::iovec { iov_base: ptr::from_mut(regs).cast(), iov_len: size_of::<T>() };
    request(libc::PTRACE_GETREGSET, tid, libc::NT_PRSTATUS as usize, &raw mut io as usize)?;
    Ok(io.iov_len)
}

fn put_registers<T>(tid: i32, regs: &T) -> Result<(), Errno> {
    let mut io = libc::iovec { iov_base: ptr::from_ref(regs) as *mut _, iov_len: size_of::<T>() };
    request(libc::PTRACE_SETREGSET, tid, libc::NT_PRSTATUS as usize, &raw mut io as usize).map(drop)
}

/// A word of memory, whatever its protection; fails rather than wait for a page that is out.
pub(super) fn peek(tid: i32, at: u64) -> Result<u64, Errno> {
    let mut word = 0u64;
    request(libc::PTRACE_PEEKDATA, tid, at as usize, &raw mut word as usize)?;
    Ok(word)
}

/// Writes a word of memory; fails as [`peek`] does.
pub(super) fn poke(tid: i32, at: u64, word: u64) -> Result<(), Errno> {
    request(libc::PTRACE_POKEDATA, tid, at as usize, word as usize).map(drop)
}

pub(super) fn signal_mask(tid: i32) -> Result<u64, Errno> {
    let mut mask = 0u64;
    request(libc::PTRACE_GETSIGMASK, tid, 8, &raw mut mask as usize)?;
    Ok(mask)
}

pub(super) fn set_signal_mask(tid: i32, mask: u64) -> Result<(), Errno> {
    request(libc::PTRACE_SETSIGMASK, tid, 8, &raw const mask as usize).map(drop)
}

/// Where the thread keeps the address of the restartable sequence it is in; `None` if it has none, or on
/// kernels that do not tell (before 5.13).
pub(super) fn rseq_pointer(tid: i32) -> Option<u64> {
    // struct ptrace_rseq_configuration
    let mut configuration = [0u64; 3];
    let size = size_of_val(&configuration);
    request(GET_RSEQ, tid, size, &raw mut configuration as usize).ok()?;
    // The field behind cpu_id_start and cpu_id.
    (configuration[0] != 0).then_some(configuration[0] + 8)
}

/// Whether the thread has its system calls turned into signals (`PR_SET_SYSCALL_USER_DISPATCH`), as far as
/// the kernel tells (6.4).
pub(super) fn dispatches_calls(tid: i32) -> bool {
    // struct ptrace_sud_config: mode, selector, offset, len
    let mut configuration = [0u64; 4];
    let size = size_of_val(&configuration);
    request(GET_DISPATCH, tid, size, &raw mut configuration as usize).is_ok() && configuration[0] != 0
}

/// What became of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// It stands; the signal, and the event above bit 8.
    Stopped(i32),
    /// It has ended.
    Ended,
}

/// Whose news are wanted.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    Thread(i32),
    /// Whatever the calling thread traces.
    All,
}

fn wait(whose: Whose, flags: i32) -> Result<Option<(i32, News)>, Errno> {
    let (kind, id) = match whose {
        Whose::Thread(tid) => (libc::P_PID, tid),
        Whose::All => (libc::P_ALL, 0),
    };
    loop {
        // SAFETY: a zeroed siginfo is valid, and the kernel fills it.
        let (result, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = flags | libc::__WALL | libc::__WNOTHREAD;
            (libc::waitid(kind, id as libc::id_t, &mut info, flags), info)
        };
        match result {
            0 => {
                // SAFETY: waitid fills in the fields of SIGCHLD, or leaves zeros.
                let (tid, status) = unsafe { (info.si_pid(), info.si_status()) };
                let ended = matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
                let news = if ended { News::Ended } else { News::Stopped(status) };
                return Ok((tid != 0).then_some((tid, news)));
            }
            _ if Errno::last().0 == libc::EINTR => {}
            _ => return Err(Errno::last()),
        }
    }
}

/// Looks what there is to be told, and leaves it there; with `block` waits until there is something.
pub(super) fn look(whose: Whose, block: bool) -> Result<Option<(i32, News)>, Errno> {
    let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
    wait(whose, flags | if block { 0 } else { libc::WNOHANG })
}

/// Takes the news that a thread stands.
pub(super) fn take_stop(tid: i32) -> Result<Option<i32>, Errno> {
    match wait(Whose::Thread(tid), libc::WSTOPPED | libc::WNOHANG)? {
        Some((_, News::Stopped(status))) => Ok(Some(status)),
        _ => Ok(None),
    }
}

/// Takes the news that a thread has ended. Never to be called for the rank's first process.
pub(super) fn take_end(tid: i32) {
    // That there is nothing to be taken is no harm.
    let _ = wait(Whose::Thread(tid), libc::WEXITED | libc::WNOHANG);
}
