//! A process that outlives this one by a moment, and holds the descriptors meanwhile.
//!
//! When the last descriptor of a userfaultfd is closed the kernel lets go whoever waits for a page, and gives
//! it zeros. Should this process be killed, its descriptors are closed in no certain order with the end of
//! the thread that traces the rank, by which the rank is killed: for a moment it might run on with zeros for
//! its data. So another process, which knows nothing else, holds the same descriptors until the rank has
//! ended.

use super::uffd::{COPY, NOWHERE};
use crate::sys::{Errno, Fd, PAGE};
use std::mem;
use std::time::{Duration, Instant};

/// What the kernel is asked of a descriptor: to fill where nothing is watched, from where nothing is. Of what
/// is there nothing changes.
const QUESTION: [u64; 5] = [NOWHERE, NOWHERE, PAGE as u64, 0, 0];
// Some kernels look first whether both lie where programs may have memory (from `vm.mmap_min_addr` on, mostly
// 64 KiB). If not they look no further, and all would seem of use.
const _: () = assert!(QUESTION[0] >= 1 << 16 && QUESTION[1] >= 1 << 16);

/// After this time it ends in any case.
const LONGEST: i32 = 10_000;
/// With so many descriptors at the soonest it looks which are of no use any more.
const MANY: usize = 32;

pub(super) struct Guard {
    pid: i32,
    socket: Fd,
}

fn check(result: i32) -> Result<i32, Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

impl Guard {
    /// Starts it; `rank` is a descriptor that becomes readable when the rank has ended.
    ///
    /// It becomes a child of the process, not of the calling thread, which traces and so has none.
    pub fn start(rank: &Fd) -> Result<Self, Errno> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: makes two descriptors.
        check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
        let (ours, theirs) = (Fd(ends[0]), Fd(ends[1]));
        let (socket, alive) = (theirs.0, rank.0);
        let fork = move || {
            // SAFETY: the child makes only async-signal-safe calls and ends by `_exit`.
            match unsafe { libc::fork() } {
                0 => watch(socket, alive),
                pid => check(pid),
            }
        };
        let thread = std::thread::Builder::new().name("guard".into()).stack_size(64 << 10).spawn(fork);
        let pid = thread.map_err(|e| Errno::from(&e))?.join().unwrap_or(Err(Errno(libc::EAGAIN)))?;
        Ok(Self { pid, socket: ours })
    }

    #[cfg(test)]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Has it hold one more.
    pub fn hold(&self, fd: &Fd) -> Result<(), Errno> {
        let mut byte = 0u8;
        let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut space = [0u64; 8];
        // SAFETY: a message with one descriptor, in a buffer that is large enough and aligned for its header.
        check(unsafe {
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_iov = &mut data;
            message.msg_iovlen = 1;
            message.msg_control = space.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd.0);
            libc::sendmsg(self.socket.0, &message, libc::MSG_NOSIGNAL) as i32
        })
        .map(drop)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: a child of ours that only this waits for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        let begun = Instant::now();
        // SAFETY: as above.
        while unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) } == 0
            && begun.elapsed() < Duration::from_secs(1)
        {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// The life of the guard: it takes descriptors, and keeps them as long as their address spaces are there,
/// until the other end of the socket is gone and the rank too.
fn watch(socket: i32, rank: i32) -> ! {
    // SAFETY: async-signal-safe system calls only; every pointer is to a local.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"bdrun-guard".as_ptr(), 0, 0, 0);
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // Nothing of the process's but these two, so that whoever waits for the end of a pipe does not wait
        // for this.
        let high = [libc::fcntl(socket, libc::F_DUPFD, 3), libc::fcntl(rank, libc::F_DUPFD, 3)];
        libc::dup2(high[0], 0);
        libc::dup2(high[1], 1);
        if libc::syscall(libc::SYS_close_range, 2_u32, u32::MAX, 0_u32) != 0 {
            libc::_exit(1);
        }
        libc::chdir(c"/".as_ptr());
        let mut byte = 0u8;
        let mut space = [0u64; 8];
        // One more than the highest that came; how many there are, and with how many it looks again.
        let (mut end, mut held, mut many) = (0, 0, MANY);
        loop {
            let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_iov = &mut data;
            message.msg_iovlen = 1;
            message.msg_control = space.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&space) as _;
            // It is left there, so that the descriptor is not lost if there is no room for it.
            match libc::recvmsg(0, &mut message, libc::MSG_PEEK) {
                1.. => {}
                -1 if *libc::__errno_location() == libc::EINTR => continue,
                _ => break,
            }
            let (header, before) = (libc::CMSG_FIRSTHDR(&message), held);
            if !header.is_null() {
                end = end.max(libc::CMSG_DATA(header).cast::<i32>().read_unaligned() + 1);
                held += 1;
            }
            if header.is_null() || held >= many {
                held = (2..end).filter(|&fd| is_of_use(fd)).count();
                many = (2 * held).max(MANY);
            }
            // Once there is room, or none can be made.
            if !header.is_null() || held >= before {
                libc::recv(0, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT);
            }
        }
        let mut ended = libc::pollfd { fd: 1, events: libc::POLLIN, revents: 0 };
        libc::poll(&mut ended, 1, LONGEST);
        libc::_exit(0)
    }
}

/// Whether a descriptor is one, and its address space is there; closes it if that is not. Async-signal-safe.
fn is_of_use(fd: i32) -> bool {
    let mut arguments = QUESTION;
    // SAFETY: the kernel reads and writes these words; nothing is placed anywhere.
    let failed = unsafe { libc::ioctl(fd, COPY, arguments.as_mut_ptr()) } != 0;
    match Errno::last().0 {
        libc::ESRCH if failed => {
            // SAFETY: it came to this process, which knows it by nothing but its number.
            unsafe { libc::close(fd) };
            false
        }
        libc::EBADF if failed => false,
        _ => true,
    }
}
