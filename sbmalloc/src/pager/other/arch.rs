//! What differs between processors: where a stopped thread's registers are, how a system call is made with
//! them, and how one that was broken off by the stop is put back.
//!
//! The layouts are those of `NT_PRSTATUS`, which every kernel for the processor has always had.

/// The registers of a stopped thread, as `PTRACE_GETREGSET` hands them over.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Registers(pub [u64; COUNT]);

#[cfg(target_arch = "x86_64")]
mod layout {
    /// Words of `struct user_regs_struct`.
    pub const COUNT: usize = 27;
    pub const COUNT_32: usize = 17;
    /// `syscall`
    pub const GATE: &[u8] = &[0x0f, 0x05];
    pub const GATE_ALIGN: usize = 1;
    pub const RESULT: usize = 10; // rax
    pub const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8]; // rdi, rsi, rdx, r10, r8, r9
    pub const CALL: usize = 15; // orig_rax: the call the thread is in, below 0 if it is in none
    pub const NEXT: usize = 16; // rip
}

#[cfg(target_arch = "aarch64")]
mod layout {
    /// Words of `struct user_pt_regs`.
    pub const COUNT: usize = 34;
    pub const COUNT_32: usize = 18;
    /// `svc #0`
    pub const GATE: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
    pub const GATE_ALIGN: usize = 4;
    pub const RESULT: usize = 0; // x0
    pub const ARGUMENTS: [usize; 6] = [0, 1, 2, 3, 4, 5];
    pub const NEXT: usize = 32; // pc
    pub const NUMBER: usize = 8; // x8
}

use layout::COUNT_32;
pub(super) use layout::{COUNT, GATE, GATE_ALIGN};

impl Registers {
    pub const ZERO: Self = Self([0; COUNT]);

    /// These registers, but so that the thread makes a call by the instruction at `gate` next.
    pub fn calling<const N: usize>(&self, gate: u64, number: i64, arguments: [u64; N]) -> Self {
        let mut regs = *self;
        for (at, value) in layout::ARGUMENTS.into_iter().zip(arguments) {
            regs.0[at] = value;
        }
        regs.0[layout::NEXT] = gate;
        #[cfg(target_arch = "x86_64")]
        {
            // In no call: the kernel must not restart the one that the stop broke off on the way to ours.
            regs.0[layout::CALL] = u64::MAX;
            regs.0[layout::RESULT] = number as u64;
        }
        #[cfg(target_arch = "aarch64")]
        {
            regs.0[layout::NUMBER] = number as u64;
        }
        regs
    }

    /// What a call that has just ended returned.
    pub fn result(&self) -> i64 {
        self.0[layout::RESULT] as i64
    }

    /// What the call was made with that the thread is in.
    pub fn arguments(&self) -> [u64; 6] {
        layout::ARGUMENTS.map(|at| self.0[at])
    }
}

/// The registers of a stopped thread that runs a program of 32 bits, as they are handed over then.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Registers32(pub [u32; COUNT_32]);

impl Registers32 {
    pub const ZERO: Self = Self([0; COUNT_32]);
}

#[cfg(target_arch = "x86_64")]
mod i386 {
    //! Words of `struct user_regs_struct32`, and calls.

    pub const EBX: usize = 0;
    pub const EDX: usize = 2;
    pub const ESI: usize = 3;
    pub const RESULT: usize = 6; // eax
    pub const CALL: usize = 11; // orig_eax

    pub const IPC: i32 = 117;
    pub const SEMOP: u32 = 1; // of `ipc`
    pub const RT_SIGTIMEDWAIT: i32 = 177;
    pub const RT_SIGTIMEDWAIT_TIME64: i32 = 421;
    pub const EPOLL_WAIT: i32 = 256;
    pub const EPOLL_PWAIT: i32 = 319;
}

#[cfg(target_arch = "x86_64")]
impl Registers32 {
    /// As of [`Registers`], but only of calls that wait without an end: what is left of the time of others
    /// has no room in these registers, and made again as they were they might wait for ever.
    pub fn undo_interruption(&mut self) -> bool {
        let [first, third, fourth] = [i386::EBX, i386::EDX, i386::ESI].map(|at| self.0[at]);
        let has_no_end = match self.0[i386::CALL] as i32 {
            i386::EPOLL_WAIT | i386::EPOLL_PWAIT => (fourth as i32) < 0,
            // The upper half is a version.
            i386::IPC => first & 0xffff == i386::SEMOP,
            i386::RT_SIGTIMEDWAIT | i386::RT_SIGTIMEDWAIT_TIME64 => third == 0,
            _ => false,
        };
        let interrupted = has_no_end && self.0[i386::RESULT] as i32 == -libc::EINTR;
        if interrupted {
            self.0[i386::RESULT] = -ERESTARTNOHAND as u32;
        }
        interrupted
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers32 {
    pub fn undo_interruption(&mut self) -> bool {
        false
    }
}

#[cfg(target_arch = "x86_64")]
const ERESTARTNOHAND: i64 = 514;

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// The number of the call that the thread is in, below 0 if it is in none. The kernel takes only this
    /// half.
    fn number(&self) -> i64 {
        i64::from(self.0[layout::CALL] as i32)
    }

    /// If the stop itself made a call return `EINTR`, says so in the kernel's own way, `ERESTARTNOHAND`: on
    /// its way back to the program the kernel makes the call again, unless it runs a handler, whose program
    /// must see `EINTR`. Whether anything was changed.
    ///
    /// `EINTR` with the call's number still there is seen only between the end of the call and the program's
    /// next instruction. The one call that must not be made again is `close`: its descriptor is gone already.
    pub fn undo_interruption(&mut self) -> bool {
        let call = self.number();
        let interrupted = call >= 0 && call != libc::SYS_close && self.result() == -i64::from(libc::EINTR);
        if interrupted {
            self.0[layout::RESULT] = -ERESTARTNOHAND as u64;
        }
        interrupted
    }

    /// The call that the kernel makes again when the thread goes on, unless it runs a handler.
    pub fn call_made_again(&self) -> Option<i64> {
        (self.number() >= 0 && self.result() == -ERESTARTNOHAND).then(|| self.number())
    }

    /// What was written beside the call's number, 0 if nothing.
    pub fn mark(&self) -> u32 {
        (self.0[layout::CALL] >> 32) as u32
    }

    /// Writes something beside the call's number, where the kernel does not look. It is there again if the
    /// kernel makes the call again, and gone with the call's end.
    pub fn set_mark(&mut self, mark: u32) {
        self.0[layout::CALL] = u64::from(self.0[layout::CALL] as u32) | u64::from(mark) << 32;
    }

    /// Has the call not be made again but return this.
    pub fn end_call(&mut self, result: i64) {
        self.set_mark(0);
        self.0[layout::RESULT] = result as u64;
    }
}

/// On this processor the first argument of a call that has ended is not to be had, so a call that the kernel
/// does not restart by itself returns `EINTR`, as it does after `SIGSTOP` and `SIGCONT`.
#[cfg(target_arch = "aarch64")]
impl Registers {
    pub fn undo_interruption(&mut self) -> bool {
        false
    }

    pub fn call_made_again(&self) -> Option<i64> {
        None
    }

    pub fn mark(&self) -> u32 {
        0
    }

    pub fn set_mark(&mut self, _: u32) {}

    pub fn end_call(&mut self, _: i64) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn in_call(number: i64, result: i64) -> Registers {
        let mut regs = Registers::ZERO;
        regs.0[layout::CALL] = number as u64;
        regs.0[layout::RESULT] = result as u64;
        regs
    }

    #[test]
    fn only_calls_broken_off_are_made_again() {
        let eintr = -i64::from(libc::EINTR);
        let mut wait = in_call(libc::SYS_epoll_wait, eintr);
        assert!(wait.undo_interruption());
        assert_eq!((wait.result(), wait.0[layout::CALL] as i64), (-514, libc::SYS_epoll_wait));
        assert!(!wait.undo_interruption(), "once is enough");
        for mut left in [
            in_call(libc::SYS_close, eintr),
            in_call(-1, eintr),
            in_call(libc::SYS_read, -i64::from(libc::EAGAIN)),
            in_call(libc::SYS_nanosleep, -516),
            in_call(libc::SYS_read, 4),
        ] {
            let before = left;
            assert!(!left.undo_interruption() && left == before);
        }
    }

    #[test]
    fn of_32_bits_only_calls_without_an_end_are_made_again() {
        let broken_off = |call: i32, arguments: [u32; 4]| {
            let mut regs = Registers32::ZERO;
            regs.0[..4].copy_from_slice(&arguments);
            (regs.0[i386::CALL], regs.0[i386::RESULT]) = (call as u32, -libc::EINTR as u32);
            let before = regs;
            let changed = regs.undo_interruption();
            assert_eq!(changed, regs != before);
            assert!(!changed || regs.0[i386::RESULT] as i32 == -514);
            assert!(!regs.undo_interruption() || !changed, "once is enough");
            changed
        };
        for call in [i386::EPOLL_WAIT, i386::EPOLL_PWAIT] {
            assert!(broken_off(call, [3, 4096, 1, u32::MAX]) && !broken_off(call, [3, 4096, 1, 1000]));
        }
        // semop and semtimedop.
        assert!(broken_off(i386::IPC, [1, 7, 1, 0]) && !broken_off(i386::IPC, [4, 7, 1, 0]));
        for call in [i386::RT_SIGTIMEDWAIT, i386::RT_SIGTIMEDWAIT_TIME64] {
            assert!(broken_off(call, [4096, 0, 0, 8]) && !broken_off(call, [4096, 0, 8192, 8]));
        }
        // close, socketcall, none.
        assert!([6, 102, -1].iter().all(|&call| !broken_off(call, [u32::MAX; 4])));
    }

    #[test]
    fn a_mark_leaves_the_call_what_it_is() {
        let mut wait = in_call(libc::SYS_epoll_wait, -i64::from(libc::EINTR));
        assert!(wait.undo_interruption() && wait.mark() == 0);
        wait.set_mark(0x7fff_ffff);
        assert_eq!((wait.call_made_again(), wait.mark()), (Some(libc::SYS_epoll_wait), 0x7fff_ffff));
        assert!((wait.0[layout::CALL] as i64) > 0, "it is in a call");
        let mut again = in_call(wait.0[layout::CALL] as i64, -i64::from(libc::EINTR));
        assert!(again.undo_interruption() && again.mark() == 0x7fff_ffff, "broken off again");
        again.end_call(0);
        assert!(again == in_call(libc::SYS_epoll_wait, 0));
        let mut close = in_call(libc::SYS_close, -i64::from(libc::EINTR));
        close.set_mark(1);
        assert!(!close.undo_interruption());
    }

    #[test]
    fn a_call_is_made_from_the_gate() {
        let regs = in_call(libc::SYS_read, -512).calling(0x1000, 28, [1, 2, 3]);
        assert_eq!(regs.0[layout::NEXT], 0x1000);
        assert_eq!(regs.arguments()[..3], [1, 2, 3]);
        assert_eq!((regs.0[layout::CALL], regs.result()), (u64::MAX, 28));
    }
}
