//! Which thread has changed an address space.
//!
//! The kernel tells what was changed, not by whom. But whoever did waits in that very call until it was read:
//! so what the threads wait in is looked at before something is read, and compared with it. From that follows
//! an order that is certain: what one thread did is read as it was done, and what it did before it made a
//! copy the copy has.

use super::uffd::News;
use crate::pager::other::call::Call;
use crate::pager::other::proc;
use crate::sys::{Errno, Fd, PAGE, PathBuf};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Of a process with more threads than that it is not asked.
const MOST: usize = 64;

/// Who is woken in vain sleeps again after that; when processors are busy, after this.
const AWAKE: Duration = Duration::from_micros(50);
const SLOW: Duration = Duration::from_millis(2);

/// A thread and the call that it waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller {
    tid: u32,
    call: Call,
}

/// The threads of a process, looked at again and again.
pub(super) struct Actors {
    pid: i32,
    threads: Vec<(u32, Fd)>,
    /// So many there were when they were listed.
    count: u64,
    /// All of them are looked at.
    is_complete: bool,
    /// Those that waited in a call by which something may be changed.
    waited: Vec<u32>,
    /// When the last change was read.
    last: Option<Instant>,
}

impl Actors {
    pub const fn new(pid: i32) -> Self {
        Self { pid, threads: vec![], count: 0, is_complete: false, waited: vec![], last: None }
    }

    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// The calls in which its threads wait; none if there may be others than those that are known.
    ///
    /// When something is read the kernel wakes all who wait, and those of which it was not go back to sleep.
    pub fn callers(&mut self) -> Vec<Caller> {
        // Links of the directory: one for each, and two.
        let count = std::fs::metadata(format!("/proc/{}/task", self.pid)).map_or(0, |found| found.nlink());
        let mut is_new = count != self.count;
        if is_new {
            self.list(count);
        }
        let begun = Instant::now();
        let is_recent = self.last.is_some_and(|last| last.elapsed() < AWAKE);
        loop {
            if !self.is_complete {
                return vec![];
            }
            let (callers, awake) = match self.look() {
                Some(found) => found,
                None if is_new => {
                    // Those that end meanwhile wait for nothing.
                    self.count = 0;
                    continue;
                }
                None => {
                    is_new = true;
                    self.list(count);
                    continue;
                }
            };
            let patience = match awake.iter().any(|tid| self.waited.contains(tid)) {
                true => SLOW,
                false if is_recent && !awake.is_empty() => AWAKE,
                false => Duration::ZERO,
            };
            if begun.elapsed() >= patience {
                let changing = callers.iter().filter(|caller| changes(&caller.call));
                self.waited = changing.map(|caller| caller.tid).collect();
                return callers;
            }
            std::thread::yield_now();
        }
    }

    /// What was read then was this thread's, if that is known.
    pub fn was_read(&mut self, by: Option<u32>) {
        self.last = Some(Instant::now());
        self.waited.retain(|&tid| Some(tid) != by);
    }

    /// Who waits, and who runs; `None` if one has ended: another may have begun since.
    fn look(&mut self) -> Option<(Vec<Caller>, Vec<u32>)> {
        let (mut callers, mut awake) = (vec![], vec![]);
        let mut text = [0; 256];
        let before = self.threads.len();
        self.threads.retain(|&(tid, ref file)| {
            let Ok(len) = file.pread(&mut text, 0) else { return false };
            match Call::parse(&text[..len]) {
                // Whoever starts a program waits until that runs, mostly in `clone3`, of which no flags are
                // seen.
                Some(call) if call.number == libc::SYS_clone3 && is_elsewhere(tid) => {}
                Some(call) => callers.push(Caller { tid, call }),
                None if text[..len].starts_with(b"running") => awake.push(tid),
                None => {}
            }
            true
        });
        (self.threads.len() == before).then_some((callers, awake))
    }

    fn list(&mut self, count: u64) {
        let Ok(mut tids) = proc::threads(self.pid) else {
            // No descriptor is free just now, or it has ended.
            (self.is_complete, self.count) = (false, 0);
            return;
        };
        self.is_complete = tids.len() <= MOST;
        self.count = count;
        if !self.is_complete {
            tids.clear();
        }
        self.threads.retain(|(tid, _)| tids.contains(&(*tid as i32)));
        for tid in tids {
            if !self.threads.iter().any(|(known, _)| *known as i32 == tid) {
                let mut path = PathBuf::<64>::new();
                path.push(b"/proc/").push_number(self.pid as u64).push(b"/task/").push_number(tid as u64);
                path.push(b"/syscall");
                match Fd::open(path.as_cstr(), libc::O_RDONLY | libc::O_CLOEXEC) {
                    Ok(file) => self.threads.push((tid as u32, file)),
                    Err(Errno(libc::ENOENT | libc::ESRCH)) => {}
                    // None is free just now.
                    Err(_) => (self.is_complete, self.count) = (false, 0),
                }
            }
        }
    }
}

/// Whether a thread waits for a page within a call that makes a mapping larger: that page is new. `pid`: its
/// process, if that is known; else it must be one of those that this process traces.
pub(super) fn grows(pid: Option<i32>, tid: u32) -> bool {
    let is_larger = Call::of(tid as i32)
        .is_some_and(|Call { number, arguments: [_, old, new, ..] }| number == libc::SYS_mremap && new > old);
    let is_one_of_them = || match (proc::Status::of(tid as i32), pid) {
        (Ok(status), Some(pid)) => status.tgid == pid,
        (Ok(status), None) => std::path::Path::new(&format!("/proc/self/task/{}", status.tracer)).exists(),
        (Err(_), _) => false,
    };
    is_larger && place(tid) == "handle_userfault" && is_one_of_them()
}

/// Where in the kernel a thread sleeps; "0" if that is not told.
fn place(tid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{tid}/wchan")).unwrap_or_default()
}

/// Whether a thread waits, as far as that can be told, for something else than that its deed is read.
fn is_elsewhere(tid: u32) -> bool {
    let place = place(tid);
    place.len() > 1 && !place.contains("userfaultfd")
}

/// Who of those that waited did what was read then, if that can be told.
pub(super) fn actor(callers: &[Caller], news: &News) -> Option<u32> {
    let mut found = callers.iter().filter(|caller| fits(&caller.call, news));
    let by = found.next()?.tid;
    found.next().is_none().then_some(by)
}

/// Whether what was read may be what the call does.
fn fits(call: &Call, news: &News) -> bool {
    let [a, b, _, _, e, _] = call.arguments;
    let within = |at: u64| a <= at && at < a.saturating_add(b.next_multiple_of(PAGE as u64));
    match news {
        News::Fault(_) => false,
        News::Fork(_) => copies(call),
        // Several mappings are moved one by one.
        News::Moved { from, .. } => call.number == libc::SYS_mremap && within(*from),
        News::Removed(range) => call.number == libc::SYS_madvise && within(range.start),
        News::Unmapped(range) => match call.number {
            libc::SYS_munmap | libc::SYS_mmap => a == range.start,
            // Where it was, its end, or where it is to be.
            libc::SYS_mremap => within(range.start) || e == range.start,
            libc::SYS_brk => a <= range.start,
            _ => false,
        },
    }
}

/// Whether something may be changed by it.
fn changes(call: &Call) -> bool {
    const CHANGES: [i64; 6] = [
        libc::SYS_munmap,
        libc::SYS_mmap,
        libc::SYS_mremap,
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_clone3,
    ];
    CHANGES.contains(&call.number) || copies(call)
}

/// Whether it may make a copy.
const fn copies(call: &Call) -> bool {
    #[cfg(target_arch = "x86_64")]
    if call.number == libc::SYS_fork {
        return true;
    }
    let shares = call.arguments[0] & libc::CLONE_VM as u64 != 0;
    (call.number == libc::SYS_clone && !shares) || call.number == libc::SYS_clone3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(tid: u32, number: i64, [a, b, c, d, e]: [u64; 5]) -> Caller {
        Caller { tid, call: Call { number, arguments: [a, b, c, d, e, 0] } }
    }

    #[test]
    fn a_call_fits_what_it_does() {
        let callers = [
            caller(1, libc::SYS_munmap, [0x1000, 0x1800, 0, 0, 0]),
            caller(2, libc::SYS_mremap, [0x8000, 0x2000, 0x2000, 3, 0x20000]),
            caller(3, libc::SYS_mmap, [0x40000, 0x1000, 3, 0x32, u64::MAX]),
            caller(4, libc::SYS_madvise, [0x50000, 0x4000, 4, 0, 0]),
            caller(5, libc::SYS_futex, [0x1000, 0, 0, 0, 0x20000]),
        ];
        let by = |news| actor(&callers, &news);
        assert_eq!(by(News::Unmapped(0x1000..0x3000)), Some(1));
        assert_eq!(by(News::Moved { from: 0x8000, to: 0x20000, len: 0x2000 }), Some(2));
        // What lay where it moves to, and where it was.
        assert_eq!(by(News::Unmapped(0x20000..0x22000)), Some(2));
        assert_eq!(by(News::Unmapped(0x8000..0xa000)), Some(2));
        assert_eq!(by(News::Unmapped(0x40000..0x41000)), Some(3));
        assert_eq!(by(News::Removed(0x51000..0x52000)), Some(4));
        assert_eq!(by(News::Removed(0x1000..0x2000)), None);
        assert_eq!(by(News::Unmapped(0x60000..0x61000)), None);
    }

    #[test]
    fn of_two_that_fit_neither_is_taken() {
        let callers = [1, 2].map(|by| caller(by, libc::SYS_munmap, [0x1000, 0x1000, 0, 0, 0]));
        assert_eq!(actor(&callers, &News::Unmapped(0x1000..0x2000)), None);
    }

    /// A thread that waits is found with what it waits in.
    #[test]
    fn calls_of_a_process_are_seen() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: asks for a number.
            tell.send(unsafe { libc::gettid() }).expect("told");
            let mut byte = [0; 1];
            std::io::Read::read(&mut &reader, &mut byte).expect("read")
        });
        let tid = told.recv().expect("its number") as u32;
        let mut actors = Actors::new(std::process::id() as i32);
        let begun = std::time::Instant::now();
        let is_seen =
            |callers: &[Caller]| callers.iter().any(|c| c.tid == tid && c.call.number == libc::SYS_read);
        while !is_seen(&actors.callers()) {
            assert!(begun.elapsed().as_secs() < 60, "it is not seen");
        }
        // Of too many none is asked.
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        let many: Vec<_> = (0..MOST)
            .map(|_| std::sync::Arc::clone(&ended))
            .map(|ended| std::thread::spawn(move || ended.lock().expect("no panic").recv().is_err()))
            .collect();
        assert_eq!((actors.callers(), actors.threads.len()), (vec![], 0));
        drop(end);
        assert!(many.into_iter().all(|thread| thread.join().expect("no panic")));
        while !is_seen(&actors.callers()) {
            assert!(begun.elapsed().as_secs() < 60, "it is not seen again");
        }
        drop(writer);
        assert_eq!(thread.join().expect("no panic"), 0);
        while is_seen(&actors.callers()) {
            assert!(begun.elapsed().as_secs() < 60, "it is seen still");
        }
    }
}
