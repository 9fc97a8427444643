//! How a job can end, and the exit code `bdrun` then returns: the only place that knows these codes.
//!
//! The scheme has no collisions: whoever sees a code knows from it alone what happened.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | every rank ended with 0 |
//! | 1–111 | a rank ended with this code (the first one that failed) |
//! | 112 | a rank ended with a code of 112 or above; the message and `--stats` name it |
//! | 117 | a rank took longer than `--rank-timeout` (the first that failed) |
//! | 118 | the command line is wrong |
//! | 119 | deadlock: every rank waits, and nobody can wake another |
//! | 120 | the job cannot be set up (scratch directory, shared memory, cgroup for `--enforce`) |
//! | 121 | scratch is full |
//! | 122 | scratch cannot be read or written, or gave back other bytes than were written |
//! | 123 | a rank needs more memory than it may have |
//! | 124 | `--timeout` is over |
//! | 125 | `bdrun` itself failed (protocol or internal error) |
//! | 126 | PROGRAM cannot be executed |
//! | 127 | PROGRAM is not found |
//! | 128 + *s* | a rank was killed by signal *s*, or `bdrun` was told to stop by it (130 SIGINT, 143 SIGTERM) |
//!
//! 124 to 127 and 128 + *s* mean what they mean for `timeout(1)`, `env(1)` and the shells. Codes of ranks
//! from 112 on are folded into one, because passed through they could not be told from ours.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::residency::{Failure, Rank};
use crate::units::{Bytes, Span};

/// The highest exit code of a rank that is passed through as it is.
pub const LAST_PASSED_THROUGH: u8 = 111;

/// Every code and what it means, as `--help` and the documentation print it.
pub const TABLE: &[(&str, &str)] = &[
    ("0", "every rank ended with 0"),
    ("1-111", "a rank ended with this code (the first that failed)"),
    ("112", "a rank ended with a code of 112 or above (named in the message)"),
    ("117", "a rank took longer than --rank-timeout (the first that failed)"),
    ("118", "wrong command line"),
    ("119", "deadlock: every rank waits and nobody can wake another"),
    ("120", "the job cannot be set up (scratch, shared memory, cgroup)"),
    ("121", "scratch is full"),
    ("122", "scratch cannot be read or written, or its content is damaged"),
    ("123", "a rank needs more memory than it may have"),
    ("124", "the time given by --timeout is over"),
    ("125", "bdrun itself failed"),
    ("126", "PROGRAM cannot be executed"),
    ("127", "PROGRAM not found"),
    ("128+s", "a rank was killed by signal s, or bdrun was stopped by it"),
];

/// The table of exit codes as indented text, one code a line.
#[must_use]
pub fn help() -> String {
    let mut text = String::from("Exit codes:");
    for (code, meaning) in TABLE {
        text.push_str(&format!("\n  {code:<7}{meaning}"));
    }
    text
}

/// How the job ended. [`Display`](fmt::Display) gives the message for people (without a remedy, see
/// [`Ending::remedy`]), [`Ending::code`] the exit code, [`Ending::status`] the word in `--stats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Ending {
    /// Every rank ended with 0.
    Success,
    /// A rank ended with a code other than 0. `doing` says what it was waiting for or doing, where known.
    RankExited {
        /// The rank that failed first.
        rank: Rank,
        /// What it is called, if it has a part.
        name: Option<String>,
        /// Its exit code.
        code: u8,
        /// What it was doing, as in `waiting for a message from rank 3`.
        doing: Option<String>,
    },
    /// A rank was killed by a signal.
    RankKilled {
        /// The rank that was killed first.
        rank: Rank,
        /// What it is called, if it has a part.
        name: Option<String>,
        /// The signal's number.
        signal: u8,
        /// What it was doing, as in `waiting for a message from rank 3`.
        doing: Option<String>,
    },
    /// A rank took longer than `--rank-timeout` allows.
    RankTimeout {
        /// The rank.
        rank: Rank,
        /// What it is called, if it has a part.
        name: Option<String>,
        /// What it may take.
        limit: Duration,
    },
    /// The command line is wrong; the text is complete.
    Usage(String),
    /// Every rank waits and nobody can wake another.
    Deadlock {
        /// How many ranks wait.
        waiting: u32,
        /// What some of them wait for, where known.
        detail: Option<String>,
    },
    /// The job cannot be set up: scratch directory, shared memory, cgroup.
    Setup(String),
    /// Scratch is full and no resident rank can go on.
    ScratchFull {
        /// The rank that needs room.
        rank: Rank,
        /// How many bytes it needs.
        need: u64,
        /// The scratch directory, where known.
        directory: Option<String>,
    },
    /// Scratch cannot be read or written, or gave back other bytes than were written.
    ScratchBroken(String),
    /// A rank needs more memory than it may have; the text says which and how much.
    Memory(String),
    /// `--timeout` is over.
    Timeout(Duration),
    /// `bdrun` was told to stop by a signal.
    Interrupted {
        /// The signal's number.
        signal: u8,
    },
    /// PROGRAM was found but cannot be executed: the program and the reason.
    NotExecutable(String, String),
    /// PROGRAM is not where it was said to be, or neither beside `bdrun` nor in PATH.
    NotFound {
        /// As it was named.
        program: String,
        /// A folder of PATH that could not be looked into.
        closed: Option<String>,
    },
    /// The job ends because of what happened on another node.
    Elsewhere {
        /// The node, from 0.
        node: u32,
        /// The exit code of its master, and of this one.
        code: u8,
        /// What it said.
        why: String,
    },
    /// `bdrun` itself failed: a broken protocol or an internal error.
    Internal(String),
}

impl Ending {
    /// The same of what was a rank's of this node.
    #[must_use]
    pub(crate) fn on_node(mut self, node: &str) -> Self {
        match &mut self {
            Self::RankExited { rank, name, .. }
            | Self::RankKilled { rank, name, .. }
            | Self::RankTimeout { rank, name, .. } => {
                let who = name.take().unwrap_or_else(|| format!("rank {rank}"));
                *name = Some(format!("{who}, on {node},"));
            }
            Self::Setup(text) | Self::ScratchBroken(text) | Self::Memory(text) | Self::Internal(text) => {
                *text = format!("on {node}: {text}");
            }
            _ => {}
        }
        self
    }

    /// The exit code of `bdrun` for this ending.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Success => 0,
            // A rank that "failed" with 0 left a communicating job early; 0 would hide it.
            Self::RankExited { code: 0, .. } => 1,
            Self::RankExited { code, .. } if *code <= LAST_PASSED_THROUGH => *code,
            Self::RankExited { .. } => 112,
            Self::RankTimeout { .. } => 117,
            Self::Usage(_) => 118,
            Self::Deadlock { .. } => 119,
            Self::Setup(_) => 120,
            Self::ScratchFull { .. } => 121,
            Self::ScratchBroken(_) => 122,
            Self::Memory(_) => 123,
            Self::Timeout(_) => 124,
            Self::Elsewhere { code, .. } => *code,
            Self::Internal(_) => 125,
            Self::NotExecutable(..) => 126,
            Self::NotFound { .. } => 127,
            Self::RankKilled { signal, .. } | Self::Interrupted { signal } => 128_u8.saturating_add(*signal),
        }
    }

    /// The word for this ending in `--stats`; stable.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match self {
            Self::Success => "ok",
            Self::RankExited { .. } => "rank-failed",
            Self::RankKilled { .. } => "rank-killed",
            Self::RankTimeout { .. } => "rank-timeout",
            Self::Usage(_) => "usage",
            Self::Deadlock { .. } => "deadlock",
            Self::Setup(_) => "setup-failed",
            Self::ScratchFull { .. } => "scratch-full",
            Self::ScratchBroken(_) => "scratch-broken",
            Self::Memory(_) => "memory",
            Self::Timeout(_) => "timeout",
            Self::Interrupted { .. } => "interrupted",
            Self::NotExecutable(..) => "not-executable",
            Self::NotFound { .. } => "not-found",
            Self::Elsewhere { .. } => "elsewhere",
            Self::Internal(_) => "internal-error",
        }
    }

    /// What the user can do about it, where something general can be said.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::ScratchFull { .. } => {
                Some("free space there, name a larger directory with --scratch, or give more with --memory")
            }
            Self::ScratchBroken(_) => {
                Some("check the disk (dmesg), or name another directory with --scratch")
            }
            Self::Memory(_) => Some(
                "raise --memory or --rank-memory, drop --enforce, or split the work over more ranks (-np)",
            ),
            Self::Timeout(_) => Some("give more time with --timeout"),
            Self::RankTimeout { .. } => Some("give more time with --rank-timeout"),
            Self::NotFound { program, .. } if program.contains(char::is_whitespace) => {
                Some("PROGRAM is one word; a line for the shell is run by: sh -c 'LINE'")
            }
            Self::NotFound { program, .. } if program.contains('/') => {
                Some("a path is looked for from where bdrun is started, whatever --chdir says")
            }
            Self::NotFound { closed: Some(_), .. } => {
                Some("give a path, or the right to look into that folder")
            }
            Self::NotFound { .. } => Some("give a path (./program), or put it into PATH or beside bdrun"),
            Self::RankKilled { signal: 9, .. } => Some(
                "if nobody sent it, the kernel ran out of memory: see dmesg, and give bdrun less with --memory",
            ),
            _ => None,
        }
    }

    /// Whether every rank ended with 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Success)
    }
}

/// `, while …`, or nothing.
fn doing_text(doing: Option<&String>) -> String {
    doing.map(|doing| format!(" while {doing}")).unwrap_or_default()
}

fn write_name(f: &mut fmt::Formatter<'_>, rank: Rank, name: Option<&String>) -> fmt::Result {
    match name {
        Some(name) => f.write_str(name),
        None => write!(f, "rank {rank}"),
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("all ranks ended well"),
            Self::RankExited { rank, name, code: 0, doing } => {
                write_name(f, *rank, name.as_ref())?;
                write!(f, " left the job early with exit code 0{}", doing_text(doing.as_ref()))
            }
            Self::RankExited { rank, name, code, doing } => {
                write_name(f, *rank, name.as_ref())?;
                write!(f, " failed with exit code {code}{}", doing_text(doing.as_ref()))
            }
            Self::RankKilled { rank, name, signal, doing } => {
                write_name(f, *rank, name.as_ref())?;
                f.write_str(" was killed by ")?;
                write_signal(f, *signal)?;
                f.write_str(&doing_text(doing.as_ref()))?;
                if i32::from(*signal) == libc::SIGXFSZ {
                    f.write_str(
                        ": a file of its own, or what it has on scratch, was to become longer than `ulimit -f` says \
                         (ulimit -f unlimited)",
                    )?;
                }
                Ok(())
            }
            Self::RankTimeout { rank, name, limit } => {
                write_name(f, *rank, name.as_ref())?;
                write!(f, " did not end within {} (--rank-timeout)", Span(limit.as_secs_f64()))
            }
            Self::Deadlock { waiting, detail } => {
                write!(f, "deadlock: {waiting} ranks wait and nobody can wake another")?;
                detail.as_ref().map_or(Ok(()), |detail| write!(f, " ({detail})"))
            }
            Self::ScratchFull { rank, need, directory } => {
                f.write_str("scratch is full")?;
                if let Some(directory) = directory {
                    write!(f, " ({directory})")?;
                }
                write!(f, ": rank {rank} needs {} more and no resident rank can go on", Bytes(*need))
            }
            Self::Usage(text)
            | Self::Setup(text)
            | Self::ScratchBroken(text)
            | Self::Memory(text)
            | Self::Internal(text) => f.write_str(text),
            Self::Elsewhere { node, why, .. } => write!(f, "the job ended on node {node}: {why}"),
            Self::Timeout(after) => {
                write!(f, "the job did not end within {} (--timeout)", Span(after.as_secs_f64()))
            }
            Self::Interrupted { signal } => {
                f.write_str("stopped by ")?;
                write_signal(f, *signal)
            }
            Self::NotExecutable(program, why) => write!(f, "{program} cannot be executed: {why}"),
            Self::NotFound { program, .. } if program.contains('/') => write!(f, "{program} is not there"),
            Self::NotFound { program, closed: None } => {
                write!(f, "{program} is neither beside bdrun nor in PATH")
            }
            Self::NotFound { program, closed: Some(folder) } => {
                write!(f, "{program} is not found, and {folder}, a folder of PATH, cannot be looked into")
            }
        }
    }
}

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::ScratchFull { rank, need } => Self::ScratchFull { rank, need, directory: None },
            Failure::Deadlock { waiting } => Self::Deadlock { waiting, detail: None },
            Failure::RankTooLarge { .. } | Failure::RankOverLimit { .. } | Failure::Unpageable { .. } => {
                Self::Memory(failure.to_string())
            }
        }
    }
}

/// A signal by its name where it has a well-known one, by its number otherwise.
fn write_signal(f: &mut fmt::Formatter<'_>, signal: u8) -> fmt::Result {
    match signal {
        1 => f.write_str("SIGHUP"),
        2 => f.write_str("SIGINT"),
        3 => f.write_str("SIGQUIT"),
        4 => f.write_str("SIGILL"),
        6 => f.write_str("SIGABRT"),
        7 => f.write_str("SIGBUS"),
        8 => f.write_str("SIGFPE"),
        9 => f.write_str("SIGKILL"),
        11 => f.write_str("SIGSEGV"),
        13 => f.write_str("SIGPIPE"),
        14 => f.write_str("SIGALRM"),
        15 => f.write_str("SIGTERM"),
        24 => f.write_str("SIGXCPU"),
        25 => f.write_str("SIGXFSZ"),
        other => write!(f, "signal {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endings() -> Vec<Ending> {
        vec![
            Ending::Success,
            Ending::RankExited { rank: 3, name: None, code: 7, doing: None },
            Ending::RankExited { rank: 3, name: None, code: 200, doing: None },
            Ending::Usage("wrong".into()),
            Ending::Deadlock { waiting: 4, detail: None },
            Ending::Setup("no".into()),
            Ending::ScratchFull { rank: 1, need: 1 << 20, directory: Some("/x".into()) },
            Ending::ScratchBroken("no".into()),
            Ending::Memory("no".into()),
            Ending::Timeout(Duration::from_secs(90)),
            Ending::RankTimeout { rank: 1, name: None, limit: Duration::from_secs(3) },
            Ending::Internal("no".into()),
            Ending::NotExecutable("p".into(), "why".into()),
            Ending::NotFound { program: "p".into(), closed: None },
            Ending::RankKilled { rank: 9, name: None, signal: 11, doing: None },
        ]
    }

    #[test]
    fn no_two_kinds_of_ending_share_a_code() {
        let mut codes: Vec<u8> = endings().iter().map(Ending::code).collect();
        codes.sort_unstable();
        let all = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), all);
        assert_eq!(Ending::Interrupted { signal: 2 }.code(), 130);
        assert_eq!(Ending::Interrupted { signal: 15 }.code(), 143);
        assert_eq!(Ending::RankExited { rank: 0, name: None, code: 0, doing: None }.code(), 1);
    }

    #[test]
    fn every_code_is_in_the_table() {
        for ending in endings() {
            let code = ending.code();
            let listed = TABLE.iter().any(|(text, _)| match *text {
                "1-111" => (1..=LAST_PASSED_THROUGH).contains(&code),
                "128+s" => code > 128,
                exact => exact.parse() == Ok(code),
            });
            assert!(listed, "{code} is not in the table");
        }
        assert!(help().contains("\n  121    scratch is full\n"));
    }

    #[test]
    fn messages_name_rank_and_cause() {
        let killed = Ending::RankKilled {
            rank: 9,
            name: None,
            signal: 11,
            doing: Some("waiting for a message from rank 3".into()),
        };
        assert_eq!(
            killed.to_string(),
            "rank 9 was killed by SIGSEGV while waiting for a message from rank 3"
        );
        let longer = Ending::RankKilled { rank: 9, name: None, signal: 25, doing: None };
        assert!(longer.to_string().starts_with("rank 9 was killed by SIGXFSZ: a file"), "{longer}");
        assert!(longer.to_string().ends_with("(ulimit -f unlimited)"), "{longer}");
        let name = Some("reads/7.fa (line 8, rank 7)".to_owned());
        let failed = Ending::RankExited { rank: 7, name, code: 200, doing: None };
        assert_eq!(failed.to_string(), "reads/7.fa (line 8, rank 7) failed with exit code 200");
        let full: Ending = Failure::ScratchFull { rank: 1, need: 3 << 20 }.into();
        assert_eq!(
            full.to_string(),
            "scratch is full: rank 1 needs 3.0 MiB more and no resident rank can go on"
        );
        assert!(full.remedy().is_some());
    }
}
