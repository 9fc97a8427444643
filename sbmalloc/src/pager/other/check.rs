//! Recognises what must not be paged from outside: memory that somebody else than the rank's threads reads or
//! writes, or processes that do not let themselves be stopped and made to call the system.

use super::OwnPager;
use super::error::Refusal;
use super::proc::{self, Stat, Status};
use crate::pager::async_io::DEVICES;
use crate::sys::Errno;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// What forbids to look at a process for a moment is asked for so often in any case, 100 µs apart.
const LEAST_ASKED: u32 = 20;
/// Becoming another program takes no more processor time than this, and, where that is scarce, no longer than
/// this.
const MOMENT: Duration = Duration::from_millis(20);
const WAITS_FOR_PROCESSOR: Duration = Duration::from_millis(300);

/// Threads of a process that are looked at beforehand.
const THREADS: usize = 32;

/// Looks, without disturbing the rank, whether anything speaks against paging these processes of it. What is
/// not there (any more) is passed over. Takes some 10 µs and 2 µs per open descriptor of each process.
///
/// # Errors
/// What speaks against it; [`Refusal::is_lasting`] tells whether to ask again later.
pub fn check(processes: &[i32]) -> Result<(), Refusal> {
    processes.iter().try_for_each(|&pid| process(pid, 0, None))
}

/// Of processes that stand, and of which parts may be out: whether something else than their threads has
/// begun to read or write their memory since they were looked at first, or could not be looked at just now
/// ([`Refusal::Busy`]). What may not be read says nothing here.
pub(super) fn written_by_others(processes: &[i32]) -> Option<Refusal> {
    let look = |&pid: &i32| -> Result<(), Refusal> {
        let Some(tid) = there(pid, proc::living_thread(pid))?.flatten() else { return Ok(()) };
        // Each of them is looked at, whatever is not told of the one before.
        let status = there(pid, Status::of(tid)).map(Option::unwrap_or_default);
        let pinned = status.and_then(|Status { pinned: bytes, .. }| match bytes {
            0 => Ok(()),
            bytes => Err(Refusal::Pinned { pid, bytes }),
        });
        let found = [pinned, mapped(pid, tid, 0), descriptors(pid, tid, true)].map(Result::err);
        let is_busy = |refusal: &Refusal| matches!(refusal, Refusal::Busy { .. });
        let mut said = found.into_iter().flatten().filter(|said| !matches!(said, Refusal::Forbidden { .. }));
        // Of userfaultfd the kernel tells where it refuses ours.
        match said.next() {
            Some(busy) if is_busy(&busy) => Err(said.find(|other| !is_busy(other)).unwrap_or(busy)),
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    };
    let unless_unreadable = |refusal: &Refusal| !matches!(refusal, Refusal::Forbidden { .. });
    processes.iter().find_map(|pid| look(pid).err().filter(unless_unreadable))
}

/// What the mappings of a process say of asynchronous I/O, but for the `ring` of our own, and of devices. A
/// ring of io_uring may be used without a descriptor, by a number that its thread has registered (Linux 6.3);
/// a device that is mapped is at work whether its descriptor is open or not.
fn mapped(pid: i32, tid: i32, ring: u64) -> Result<(), Refusal> {
    let mut found = None;
    let ranges = proc::each_range(tid, &mut |vma| {
        if vma.name.starts_with("/[aio]") && vma.from != ring {
            found = Some(Refusal::Aio { pid });
        } else if vma.name.starts_with("anon_inode:[io_uring]") {
            found.get_or_insert(Refusal::IoUring { pid });
        } else {
            found = found.take().or_else(|| device(pid, vma.name.as_bytes()));
        }
    });
    there(pid, ranges)?;
    found.map_or(Ok(()), Err)
}

/// A device that reads and writes memory by itself, if what is open or mapped is one.
fn device(pid: i32, path: &[u8]) -> Option<Refusal> {
    let is_one = DEVICES.iter().any(|device| path.starts_with(device));
    is_one.then(|| Refusal::Device { pid, path: String::from_utf8_lossy(path).into_owned() })
}

/// Passes over what has vanished; whatever else cannot be read is forbidden.
fn there<T>(pid: i32, result: io::Result<T>) -> Result<Option<T>, Refusal> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if proc::is_gone(&e) => Ok(None),
        Err(e) => Err(Refusal::unreadable(pid, Errno::from(&e))),
    }
}

/// As [`check`]; `tracer` is the thread that may have it stopped already, `own` what it has of a pager of its
/// own.
pub(super) fn process(pid: i32, tracer: i32, own: Option<OwnPager>) -> Result<(), Refusal> {
    past_the_moment(pid, || match there(pid, proc::living_thread(pid))?.flatten() {
        Some(tid) => look(pid, tid, tracer, own),
        None => Ok(()),
    })
}

/// Asks again while a process is forbidden perhaps only because it, or a thread of it, is ending or becoming
/// another program: then it may not be looked at for a moment, in which it computes. What sleeps, or computes
/// for longer than that takes, is forbidden.
pub(super) fn past_the_moment<T>(
    pid: i32,
    mut ask: impl FnMut() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let (begin, used) = (Instant::now(), cpu(pid));
    let mut asked = 0;
    loop {
        let answer = ask();
        let Err(Refusal::Forbidden { .. }) = answer else { return answer };
        asked += 1;
        let state = || Stat::of(pid).map_or(0, |stat| stat.state);
        if asked > LEAST_ASKED && !may_be_passing(cpu(pid).saturating_sub(used), begin.elapsed(), state()) {
            return answer;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Whether it may be in the middle of that, having computed and been waited for so long. On a busy machine it
/// waits for a processor there.
fn may_be_passing(used: Duration, waited: Duration, state: u8) -> bool {
    used < MOMENT && waited < WAITS_FOR_PROCESSOR && matches!(state, b'R' | b'D')
}

/// Processor time of all threads of a process; nothing where that is not told.
fn cpu(pid: i32) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both write to locals.
    let told = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0
    };
    if told { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
}

/// Looks at a process through one of its threads.
fn look(pid: i32, tid: i32, tracer: i32, own: Option<OwnPager>) -> Result<(), Refusal> {
    let Some(status) = there(pid, Status::of(tid))? else { return Ok(()) };
    if status.tracer != 0 && status.tracer != tracer {
        return Err(Refusal::Traced { pid, by: status.tracer });
    }
    if status.pinned > 0 {
        return Err(Refusal::Pinned { pid, bytes: status.pinned });
    }
    // A few pages stay where they are, and the rest moves; where most is locked (mlockall) nothing would be
    // gained.
    if status.locked >= status.anonymous.div_ceil(2).max(1) {
        return Err(Refusal::Locked { pid, bytes: status.locked });
    }
    // Filters belong to threads, mostly to all alike.
    if proc::threads(pid).unwrap_or_default().into_iter().take(THREADS).any(filters_calls) {
        return Err(Refusal::Seccomp { pid });
    }
    descriptors(pid, tid, own.is_some())?;
    mapped(pid, tid, own.map_or(0, |own| own.ring))
}

/// Whether a thread has filters that this process has not. What this process has, its children have
/// inherited: those permit what is needed, or this would not run.
pub(super) fn filters_calls(tid: i32) -> bool {
    let filters = |tid| Status::of(tid).map_or((0, false), |status| (status.filters, status.strict));
    let (theirs, strict) = filters(tid);
    strict || (theirs > 0 && theirs > filters(std::process::id() as i32).0)
}

/// `writes`: it may see which of its pages are written to, by itself.
fn descriptors(pid: i32, tid: i32, writes: bool) -> Result<(), Refusal> {
    let Some(entries) = there(pid, fs::read_dir(format!("/proc/{tid}/fd")))? else { return Ok(()) };
    for entry in entries.flatten() {
        let Some(target) = there(pid, fs::read_link(entry.path()))? else { continue };
        let target = target.as_os_str().as_bytes();
        if target.starts_with(b"anon_inode:[userfaultfd]") && !writes {
            return Err(Refusal::Userfaultfd { pid });
        }
        if let Some(refusal) = device(pid, target) {
            return Err(refusal);
        }
        if target.starts_with(b"anon_inode:[io_uring]") {
            // Rings of provided buffers (Linux 5.19), and rings in the program's own memory (6.5), are pages
            // that the kernel holds on to, and nothing tells whether there are such.
            return Err(Refusal::IoUring { pid });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// Ended when it goes.
    struct Program(Child);

    impl Program {
        fn new(script: &str) -> Self {
            Self(Command::new("/bin/sh").args(["-c", script]).spawn().expect("a shell"))
        }

        /// Asks of it what is forbidden so many times.
        fn ask(&self, forbidden: u32) -> (Result<(), Refusal>, u32) {
            let pid = self.0.id() as i32;
            let mut asked = 0;
            let answer = past_the_moment(pid, || {
                asked += 1;
                let errno = Errno(libc::EACCES);
                if asked <= forbidden { Err(Refusal::Forbidden { pid, errno }) } else { Ok(()) }
            });
            (answer, asked)
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_computes_is_asked_again_for_a_while() {
        let (none, moment) = (Duration::ZERO, MOMENT - Duration::from_nanos(1));
        assert!(may_be_passing(moment, moment, b'R') && may_be_passing(none, none, b'D'));
        assert!(!may_be_passing(MOMENT, MOMENT, b'R') && !may_be_passing(none, WAITS_FOR_PROCESSOR, b'R'));
        assert!(!may_be_passing(none, none, b'S') && !may_be_passing(none, none, 0));
    }

    /// Of a ring that is used by a number registered for its thread the descriptor may be closed.
    #[test]
    fn a_ring_without_a_descriptor_is_seen() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        // SAFETY: the child makes system calls only, on its own memory.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: parameters of the kernel's size; what is mapped and written is our own.
            unsafe {
                let mut parameters = [0_u32; 30];
                let ring = libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) as i32;
                let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
                let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, ring, 0);
                libc::close(ring);
                let said = if ring < 0 || at == libc::MAP_FAILED { b"-" } else { b"+" };
                libc::write(std::os::fd::AsRawFd::as_raw_fd(&writer), said.as_ptr().cast(), 1);
                libc::pause();
                libc::_exit(0)
            }
        }
        let mut said = [0];
        io::Read::read_exact(&mut reader, &mut said).expect("it says");
        let (found, all) = (mapped(pid, pid, 0), written_by_others(&[pid]));
        // SAFETY: our own child, which was not waited for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        if said == *b"-" {
            return bdrun_skipped::skipped("io-uring", "a ring cannot be made here");
        }
        assert_eq!(found, Err(Refusal::IoUring { pid }));
        assert_eq!(all, Some(Refusal::IoUring { pid }));
    }

    #[test]
    fn nobody_is_asked_for_ever_and_who_stands_not_for_long() {
        let computes = Program::new("while :; do :; done");
        assert!(matches!(computes.ask(u32::MAX), (Err(Refusal::Forbidden { .. }), _)));
        assert_eq!(computes.ask(LEAST_ASKED), (Ok(()), LEAST_ASKED + 1));
        let pid = computes.0.id() as i32;
        // SAFETY: a plain system call, to our own child.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        while Stat::of(pid).is_ok_and(|stat| stat.state != b'T') {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (answer, asked) = computes.ask(u32::MAX);
        assert!(matches!(answer, Err(Refusal::Forbidden { .. })));
        assert_eq!(asked, LEAST_ASKED + 1);
    }
}
