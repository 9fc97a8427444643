//! How a process ended, what it used, and how that is said to people.

use std::fmt;

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It called `exit` with this code.
    Code(i32),
    /// It was killed by a signal.
    Signal {
        /// The signal's number.
        signal: i32,
        /// Whether the kernel wrote a core file.
        core: bool,
    },
}

impl Ending {
    /// Decodes the status word of `wait4`.
    pub fn from_wait_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) }
        } else {
            Self::Code(libc::WEXITSTATUS(status))
        }
    }

    /// Whether it ended with code 0.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// The code a shell would report: the exit code itself, or 128 + the signal's number.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal { signal, .. } => 128 + signal,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(0) => write!(f, "ended normally"),
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal { signal, core } => {
                write!(f, "was killed by {}", signal_name(signal))?;
                if core {
                    write!(f, " (core dumped)")?;
                }
                Ok(())
            }
        }
    }
}

/// The name of a signal (`SIGSEGV`), or `signal 44` where it has none.
pub fn signal_name(signal: i32) -> String {
    match nix::sys::signal::Signal::try_from(signal) {
        Ok(known) => known.as_str().to_owned(),
        Err(_) => format!("signal {signal}"),
    }
}

/// Whether the kernel's out-of-memory killer is the one who sent the SIGKILL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OomKill {
    /// No sign of it.
    #[default]
    No,
    /// The counter of the job's own memory cgroup (`--enforce`) went up: the job exceeded its limit.
    JobLimit,
    /// The machine's counter (`/proc/vmstat`) went up: the machine ran out of memory, or a cgroup around the
    /// job reached its limit. Very likely but not certain that it was this process that was meant.
    Outside,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_decoded_and_named() {
        assert_eq!(Ending::from_wait_status(0), Ending::Code(0));
        assert_eq!(Ending::from_wait_status(3 << 8), Ending::Code(3));
        let segv = Ending::from_wait_status(libc::SIGSEGV | 0x80);
        assert_eq!(segv, Ending::Signal { signal: libc::SIGSEGV, core: true });
        assert_eq!(segv.to_string(), "was killed by SIGSEGV (core dumped)");
        assert_eq!(segv.shell_code(), 139);
        assert_eq!(Ending::Code(3).to_string(), "ended with exit code 3");
        assert_eq!(signal_name(44), "signal 44");
    }
}
