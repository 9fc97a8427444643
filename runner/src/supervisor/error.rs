//! What can go wrong in the supervisor, with what was tried and what helps.

use std::io;
use std::path::PathBuf;

/// The supervisor could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// A thread could not be made.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// Which one.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A helper process could not be made.
    #[error("cannot start {what}: {source}")]
    Helper {
        /// Which one.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A descriptor or a poll set could not be made.
    #[error("cannot prepare the supervisor ({what}): {source}")]
    Setup {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// `--enforce` could not be carried out.
    #[error(transparent)]
    Cgroup(#[from] crate::cgroups::CgroupError),
}

/// A rank could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program could not be executed.
    #[error("cannot execute {}: {source}", program.display())]
    Exec {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A step before that failed in the child.
    #[error("cannot {what}: {source}")]
    Prepare {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Its cgroup could not be made.
    #[error(
        "cannot make a cgroup for it: {source} (`cgroup.max.descendants` of a group above may be reached)"
    )]
    Group {
        /// Why.
        source: io::Error,
    },
    /// Its directory could not be entered.
    #[error("cannot run in {}: {source} (--chdir)", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its program is not there any more.
    #[error("{why}")]
    Program {
        /// Why, in words.
        why: String,
    },
    /// The directory for the file of one of its streams could not be made.
    #[error(
        "cannot make the directory {} for its {what}: {source} (make it, or name another: --output-files, --error-files)",
        path.display()
    )]
    OutputDirectory {
        /// Which stream.
        what: &'static str,
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of one of its streams could not be opened.
    #[error("cannot open {} as its {what}: {source}", path.display())]
    File {
        /// Which stream.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another job writes the file of one of its streams.
    #[error("cannot write {} as its {what}, it is in use: {source}", path.display())]
    InUse {
        /// Which stream.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Who.
        source: crate::in_use::InUse,
    },
    /// No process could be made.
    #[error("cannot make a process: {source}{}", if source.raw_os_error() == Some(libc::EAGAIN) {
        " (the limit of processes, `ulimit -u`, or the pids cgroup is reached)"
    } else {
        ""
    })]
    Fork {
        /// Why.
        source: io::Error,
    },
    /// A pipe or a descriptor could not be made.
    #[error("cannot make the pipes of a rank: {source}{}", if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::EINVAL)) {
        " (something besides the ranks has taken what the limit permits: raise the hard limit, `ulimit -Hn`)"
    } else if source.raw_os_error() == Some(libc::ENFILE) {
        " (the machine's limit of open files is reached, fs.file-max)"
    } else {
        ""
    })]
    Descriptors {
        /// Why.
        source: io::Error,
    },
    /// A zero byte in the program's name, an argument or the environment.
    #[error("the program's name, its arguments or its environment contain a zero byte: {text:?}")]
    ZeroByte {
        /// The text.
        text: std::ffi::OsString,
    },
    /// The job is being ended.
    #[error("not started: the job is being ended")]
    Cancelled,
}
