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
    Cgroup(#[from] CgroupError),
}

/// A memory cgroup for the ranks (`--enforce`) could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// Neither hierarchy offers a memory controller to us.
    #[error(
        "--enforce: no memory cgroup is available here ({detail}). Run without --enforce, or where the memory \
         controller is mounted (cgroup v1: /sys/fs/cgroup/memory, v2: /sys/fs/cgroup)"
    )]
    Unavailable {
        /// What was looked for and not found.
        detail: String,
    },
    /// The directory could not be made.
    #[error("--enforce: cannot make the cgroup {}: {source}. {}", path.display(), REMEDY)]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A control file could not be written.
    #[error("--enforce: cannot write {value:?} to {}: {source}. {}", path.display(), REMEDY)]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// cgroup v2 gives limits only to groups without processes of their own, and others live in ours.
    #[error(
        "--enforce: the cgroup {} holds {others} other process(es), so it cannot have limited groups below it \
         (cgroup v2: no processes in inner groups). Start bdrun in a group of its own: \
         systemd-run --user --scope -p Delegate=yes bdrun …",
        path.display()
    )]
    NotAlone {
        /// The group the master runs in.
        path: PathBuf,
        /// How many others are in it.
        others: usize,
    },
}

const REMEDY: &str = "It takes root, or a delegated group: systemd-run --user --scope -p Delegate=yes bdrun …; or \
                      run without --enforce";

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
    #[error("cannot make the pipes of a rank: {source}{}", if source.raw_os_error() == Some(libc::EMFILE) {
        " (each rank needs 4 descriptors in the master: raise the hard limit, `ulimit -Hn`)"
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
