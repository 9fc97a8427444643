//! Why a rank cannot be paged from outside, and what can go wrong while it is.

use crate::sys::Errno;

/// Why the memory of a rank cannot be moved, now or ever. The rank runs on, unharmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Devices or the kernel have been promised the places of pages (io_uring with registered buffers, RDMA).
    #[error(
        "process {pid} has pinned {bytes} bytes of its memory (registered buffers of io_uring or of a device)"
    )]
    Pinned {
        /// The process.
        pid: i32,
        /// How much.
        bytes: u64,
    },
    /// The process locked memory.
    #[error("process {pid} has locked {bytes} bytes of its memory (mlock)")]
    Locked {
        /// The process.
        pid: i32,
        /// How much.
        bytes: u64,
    },
    /// The process has a context of asynchronous I/O, whose transfers nobody can see.
    #[error("process {pid} uses asynchronous I/O (io_submit)")]
    Aio {
        /// The process.
        pid: i32,
    },
    /// The process has an io_uring: nothing tells which of its pages the kernel holds on to for that.
    #[error(
        "process {pid} uses io_uring, and what the kernel holds on to of its memory for that cannot be seen"
    )]
    IoUring {
        /// The process.
        pid: i32,
    },
    /// The process resolves page faults itself.
    #[error("process {pid} uses userfaultfd")]
    Userfaultfd {
        /// The process.
        pid: i32,
    },
    /// The system does not let the missing pages of the process be served while it runs.
    #[error(
        "the page faults of process {pid} may not be served ({errno}); that takes CAP_SYS_PTRACE, for bdrun and for \
         the program: run bdrun as root"
    )]
    NotInParts {
        /// The process.
        pid: i32,
        /// The system's error.
        errno: Errno,
    },
    /// A debugger or the like is attached.
    #[error("process {pid} is traced already, by process {by}")]
    Traced {
        /// The process.
        pid: i32,
        /// Who traces it.
        by: i32,
    },
    /// The process has restricted its own system calls.
    #[error("process {pid} filters or redirects its own system calls (seccomp, user dispatch)")]
    Seccomp {
        /// The process.
        pid: i32,
    },
    /// The process uses a device that reads and writes memory by itself.
    #[error("process {pid} uses the device {path}, which may access its memory at any time")]
    Device {
        /// The process.
        pid: i32,
        /// The device.
        path: String,
    },
    /// The process runs the code of another processor.
    #[error("process {pid} is a program for another processor (32 bits)")]
    Foreign {
        /// The process.
        pid: i32,
    },
    /// No instruction was found with which the process could be made to give memory back.
    #[error("process {pid} has no code that makes a system call")]
    NoGate {
        /// The process.
        pid: i32,
    },
    /// The kernel lacks something.
    #[error("the kernel does not offer {0}, which is needed to page this rank")]
    Kernel(&'static str),
    /// The system does not let the rank be stopped and read: another user's, or set-user-ID, or ptrace is
    /// restricted.
    #[error(
        "process {pid} may not be traced: {errno}; it runs as another user or with other privileges, or ptrace \
         is restricted on this machine (/proc/sys/kernel/yama/ptrace_scope, the container's seccomp profile)"
    )]
    Forbidden {
        /// The process.
        pid: i32,
        /// The system's error.
        errno: Errno,
    },
    /// A thread did not stop in time: it is in a system call that cannot be interrupted.
    #[error("thread {tid} did not stop in time; it waits for a disk or the like")]
    Busy {
        /// The thread.
        tid: i32,
    },
    /// A process waits for a child made by vfork to exec.
    #[error("process {pid} is just starting another program (vfork)")]
    Vfork {
        /// The process.
        pid: i32,
    },
    /// The rank has ended.
    #[error("the rank has ended")]
    Gone,
    /// The rank's processes could not be listed.
    #[error("the processes of the rank could not be listed: {0}")]
    List(Errno),
}

impl Refusal {
    /// What is told of a process could not be read: it may not be, or this process has no descriptors or
    /// memory just now.
    pub(super) fn unreadable(pid: i32, errno: Errno) -> Self {
        if errno.is_passing() { Self::Busy { tid: pid } } else { Self::Forbidden { pid, errno } }
    }

    /// Whether it is of no use to ask again later: of the machine, not of processes, which end, or do
    /// something else.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Kernel(_) => true,
            Self::NotInParts { errno, .. } => !errno.is_passing(),
            _ => false,
        }
    }

    /// Whether it will be over in a moment.
    pub fn is_momentary(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Vfork { .. } | Self::Gone | Self::List(_))
    }
}

/// What went wrong while memory was moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtherError {
    /// The scratch directory is full. What was given back by then is in the image, the rest is resident and
    /// intact.
    #[error(
        "no space left in the scratch directory {dir}; free some, or name another directory with --scratch \
         or BDRUN_SCRATCH"
    )]
    NoSpace {
        /// The directory.
        dir: String,
    },
    /// The scratch file could not be made, written or read.
    #[error("cannot {op} the scratch file in {dir} (offset {offset}): {errno}")]
    Scratch {
        /// What was attempted.
        op: &'static str,
        /// The directory.
        dir: String,
        /// Byte offset in the file.
        offset: u64,
        /// The system's error.
        errno: Errno,
    },
    /// What was read back is not what was written. The rank must be killed.
    #[error("the scratch file in {dir} was damaged at offset {offset}: its checksum does not match")]
    Corrupt {
        /// The directory.
        dir: String,
        /// Byte offset of the page.
        offset: u64,
    },
    /// A system call on the rank failed.
    #[error("cannot {op} process {pid}: {errno}")]
    Rank {
        /// What was attempted.
        op: &'static str,
        /// The process.
        pid: i32,
        /// The system's error.
        errno: Errno,
    },
    /// Threads of the rank moved and unmapped the same addresses at the same time, or while another of them
    /// made a process, which now touches these; and what lies there cannot be told. It must be killed: it
    /// might go on with wrong memory.
    #[error(
        "threads of process {pid} moved, unmapped or copied the same addresses at the same time, and it is not \
         known what lies where; give the job more memory, so that the rank need not run in parts"
    )]
    Unordered {
        /// The process.
        pid: i32,
    },
    /// A thread of a rank that runs in parts did not stop in time, or this process has no descriptors or no
    /// memory just now. It may be tried again.
    #[error("a thread of the rank did not stop in time, or bdrun has no descriptors or no memory just now")]
    Busy,
    /// The rank ended meanwhile.
    #[error("the rank has ended")]
    Gone,
    /// The image still holds the memory of a rank, or that of another one.
    #[error("the image holds memory that was not brought back")]
    Occupied,
    /// The rank was not let go, because some of its memory is out; it was killed.
    #[error("the rank was killed: it was to go on while some of its memory was out")]
    StillOut,
}
