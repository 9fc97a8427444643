//! The system call that a thread is in.

use super::proc::word_of;

/// A call of the kernel, as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub number: i64,
    pub arguments: [u64; 6],
}

impl Call {
    /// The one that a thread waits in; none if it runs, or that is not told.
    pub fn of(tid: i32) -> Option<Self> {
        Self::parse(&std::fs::read(format!("/proc/{tid}/syscall")).ok()?)
    }

    /// `/proc/TID/syscall`: number, arguments, and registers; or that it runs.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(Self { number, arguments })
    }

    /// Whether this thread, whose call it is, makes a child and waits until that execs. One that only makes a
    /// child may have to wait, too: while processes are moved between control groups.
    pub fn is_vfork(&self, tid: i32) -> bool {
        self.is_vfork_with(|at| word_of(tid, at))
    }

    fn is_vfork_with(&self, word_at: impl FnOnce(u64) -> Option<u64>) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.number == libc::SYS_vfork {
            return true;
        }
        let flags = match self.number {
            libc::SYS_clone => Some(self.arguments[0]),
            // They stand first in its arguments, which are in memory.
            libc::SYS_clone3 => word_at(self.arguments[0]),
            _ => None,
        };
        flags.is_some_and(|flags| flags & libc::CLONE_VFORK as u64 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let text = b"25 0x1000 0x2000 0x2000 0x3 0x7f0000 0x0 0x7ffe10 0x7f25\n";
        let call = Call { number: 25, arguments: [0x1000, 0x2000, 0x2000, 3, 0x7f_0000, 0] };
        assert_eq!(Call::parse(text), Some(call));
        for text in [&b"running\n"[..], b"-1 0x7ffe10 0x7f25\n", b""] {
            assert_eq!(Call::parse(text), None);
        }
    }

    #[test]
    fn who_only_makes_a_child_is_not_in_vfork() {
        let says = |number, first, word| {
            let call = Call { number, arguments: [first, 0, 0, 0x7f0, 0, 0] };
            call.is_vfork_with(|at| (at == 0x7ffc_a0d0_81f0).then_some(word))
        };
        let vfork = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
        // As glibc's fork, and as a thread's beginning.
        for flags in [0x120_0011, 0x3d_0f00, 0] {
            assert!(!says(libc::SYS_clone, flags, 0), "{flags:#x}");
        }
        assert!(says(libc::SYS_clone, vfork | libc::SIGCHLD as u64, 0));
        let clone3 = |word| says(libc::SYS_clone3, 0x7ffc_a0d0_81f0, word);
        assert!(clone3(vfork) && !clone3(vfork & !(libc::CLONE_VFORK as u64)));
        #[cfg(target_arch = "x86_64")]
        assert!(says(libc::SYS_vfork, 0, 0));
        assert!(!says(libc::SYS_read, u64::MAX, u64::MAX));
    }
}
