//! Recognises what must not be paged from outside: memory that somebody else than the rank's threads reads or writes,
//! or processes that do not let themselves be stopped and made to call the system.

use super::error::Refusal;
use super::proc::{self, Stat, Status};
use crate::sys::Errno;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Devices that read and write memory by themselves.
const DEVICES: [&[u8]; 5] = [b"/dev/nvidia", b"/dev/kfd", b"/dev/dri/", b"/dev/infiniband/", b"/dev/vfio/"];

/// Threads of a process that are looked at beforehand.
const THREADS: usize = 32;

/// Looks, without disturbing the rank, whether anything speaks against paging these processes of it. What is not there
/// (any more) is passed over. Takes some 10 µs and 2 µs per open descriptor of each process.
///
/// # Errors
/// What speaks against it; [`Refusal::is_lasting`] tells whether to ask again later.
pub fn check(processes: &[i32]) -> Result<(), Refusal> {
    processes.iter().try_for_each(|&pid| process(pid, 0))
}

/// Of processes that stand, and of which parts may be out: whether something else than their threads has begun to read or write their
/// memory since they were looked at first. What cannot be read says nothing here.
pub(super) fn written_by_others(processes: &[i32]) -> Option<Refusal> {
    let look = |&pid: &i32| {
        let pinned = Status::of(pid).map_or(0, |status| status.pinned);
        let mut aio = false;
        let _ = proc::each_range(pid, &mut |vma| aio |= vma.name.starts_with("/[aio]"));
        match () {
            () if pinned > 0 => Some(Refusal::Pinned { pid, bytes: pinned }),
            () if aio => Some(Refusal::Aio { pid }),
            () => descriptors(pid, pid)
                .err()
                .filter(|refusal| matches!(refusal, Refusal::IoUring { .. } | Refusal::Device { .. })),
        }
    };
    processes.iter().find_map(look)
}

/// Passes over what has vanished; whatever else cannot be read is forbidden.
fn there<T>(pid: i32, result: io::Result<T>) -> Result<Option<T>, Refusal> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if proc::is_gone(&e) => Ok(None),
        Err(e) => Err(Refusal::unreadable(pid, Errno::from(&e))),
    }
}

/// As [`check`]; `tracer` is the thread that may have it stopped already.
pub(super) fn process(pid: i32, tracer: i32) -> Result<(), Refusal> {
    // What is just ending, or becoming another program, may not be looked at for a moment.
    for _ in 0..20 {
        match living_thread(pid).map_or(Ok(()), |tid| look(pid, tid, tracer)) {
            Err(Refusal::Forbidden { .. }) => std::thread::sleep(Duration::from_micros(100)),
            other => return other,
        }
    }
    living_thread(pid).map_or(Ok(()), |tid| look(pid, tid, tracer))
}

/// The first thread of a process, or another if that has ended; `None` if all have.
fn living_thread(pid: i32) -> Option<i32> {
    let lives = |&tid: &i32| Stat::of(tid).is_ok_and(|stat| !stat.is_dead());
    Some(pid).filter(lives).or_else(|| proc::threads(pid).ok()?.into_iter().find(lives))
}

/// Looks at a process through one of its threads.
fn look(pid: i32, tid: i32, tracer: i32) -> Result<(), Refusal> {
    let Some(status) = there(pid, Status::of(tid))? else { return Ok(()) };
    if status.tracer != 0 && status.tracer != tracer {
        return Err(Refusal::Traced { pid, by: status.tracer });
    }
    if status.pinned > 0 {
        return Err(Refusal::Pinned { pid, bytes: status.pinned });
    }
    // A few pages stay where they are, and the rest moves; where most is locked (mlockall) nothing would be gained.
    if status.locked >= status.anonymous.div_ceil(2).max(1) {
        return Err(Refusal::Locked { pid, bytes: status.locked });
    }
    // Filters belong to threads, mostly to all alike.
    if proc::threads(pid).unwrap_or_default().into_iter().take(THREADS).any(filters_calls) {
        return Err(Refusal::Seccomp { pid });
    }
    descriptors(pid, tid)?;
    let mut aio = false;
    there(pid, proc::each_range(tid, &mut |vma| aio |= vma.name.starts_with("/[aio]")))?;
    if aio { Err(Refusal::Aio { pid }) } else { Ok(()) }
}

/// Whether a thread has filters that this process has not. What this process has, its children have inherited: those permit
/// what is needed, or this would not run.
pub(super) fn filters_calls(tid: i32) -> bool {
    let filters = |tid| Status::of(tid).map_or((0, false), |status| (status.filters, status.strict));
    let (theirs, strict) = filters(tid);
    strict || (theirs > 0 && theirs > filters(std::process::id() as i32).0)
}

fn descriptors(pid: i32, tid: i32) -> Result<(), Refusal> {
    let Some(entries) = there(pid, fs::read_dir(format!("/proc/{tid}/fd")))? else { return Ok(()) };
    for entry in entries.flatten() {
        let Some(target) = there(pid, fs::read_link(entry.path()))? else { continue };
        let target = target.as_os_str().as_bytes();
        if target.starts_with(b"anon_inode:[userfaultfd]") {
            return Err(Refusal::Userfaultfd { pid });
        }
        if DEVICES.iter().any(|device| target.starts_with(device)) {
            return Err(Refusal::Device { pid, path: String::from_utf8_lossy(target).into_owned() });
        }
        if target.starts_with(b"anon_inode:[io_uring]") {
            // Rings of provided buffers (Linux 5.19), and rings in the program's own memory (6.5), are pages that the kernel
            // holds on to, and nothing tells whether there are such.
            return Err(Refusal::IoUring { pid });
        }
    }
    Ok(())
}
