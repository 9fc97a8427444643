//! Which thread has changed an address space.
//!
//! The kernel tells what was changed, not by whom. But whoever did waits in that very call until it was read:
//! so what the threads wait in is looked at before something is read, and compared with it. From that follows
//! an order that is certain: what one thread did is read as it was done, and what it did before it made a
//! copy the copy has.

use super::uffd::News;
use crate::pager::other::proc;
use crate::sys::{Errno, Fd, PAGE, PathBuf};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Of a process with more threads than that it is not asked.
const MOST: usize = 64;

/// Who is woken in vain sleeps again after that; when processors are busy, after this.
const AWAKE: Duration = Duration::from_micros(50);
const SLOW: Duration = Duration::from_millis(2);

/// A call that a thread waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    by: u32,
    number: i64,
    arguments: [u64; 5],
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
    pub fn calls(&mut self) -> Vec<Call> {
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
            let (calls, awake) = match self.look() {
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
                self.waited = calls.iter().filter(|call| call.changes()).map(|call| call.by).collect();
                return calls;
            }
            std::thread::yield_now();
        }
    }

    /// What was read then was this thread's, if that is known.
    pub fn was_read(&mut self, by: Option<u32>) {
        self.last = Some(Instant::now());
        self.waited.retain(|&tid| Some(tid) != by);
    }

    /// The calls, and who runs; `None` if one has ended: another may have begun since.
    fn look(&mut self) -> Option<(Vec<Call>, Vec<u32>)> {
        let (mut calls, mut awake) = (vec![], vec![]);
        let mut text = [0; 256];
        let before = self.threads.len();
        self.threads.retain(|(tid, file)| {
            let Ok(len) = file.pread(&mut text, 0) else { return false };
            match parse(*tid, &text[..len]) {
                Some(call) if call.may_wait_for_a_program() && is_elsewhere(*tid) => {}
                Some(call) => calls.push(call),
                None if text.starts_with(b"running") => awake.push(*tid),
                None => {}
            }
            true
        });
        (self.threads.len() == before).then_some((calls, awake))
    }

    fn list(&mut self, count: u64) {
        let mut tids = proc::threads(self.pid).unwrap_or_default();
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

/// `/proc/TID/syscall`: number, arguments, and registers, or that it runs.
fn parse(by: u32, text: &[u8]) -> Option<Call> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut arguments = [0; 5];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(Call { by, number, arguments })
}

/// Whether a thread waits for a page within a call that makes a mapping larger: that page is new. `pid`: its
/// process, if that is known; else it must be one of those that this process traces.
pub(super) fn grows(pid: Option<i32>, tid: u32) -> bool {
    let text = match pid {
        Some(pid) => std::fs::read(format!("/proc/{pid}/task/{tid}/syscall")),
        None => std::fs::read(format!("/proc/{tid}/syscall")),
    };
    let text = text.unwrap_or_default();
    let is_larger = parse(tid, &text).is_some_and(|Call { number, arguments: [_, old, new, ..], .. }| {
        number == libc::SYS_mremap && new > old
    });
    let is_traced = || {
        let tracer = proc::Status::of(tid as i32).map_or(0, |status| status.tracer);
        std::path::Path::new(&format!("/proc/self/task/{tracer}")).exists()
    };
    is_larger && place(tid) == "handle_userfault" && (pid.is_some() || is_traced())
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
pub(super) fn actor(calls: &[Call], news: &News) -> Option<u32> {
    let mut found = calls.iter().filter(|call| call.fits(news));
    let by = found.next()?.by;
    found.next().is_none().then_some(by)
}

impl Call {
    fn fits(&self, news: &News) -> bool {
        let [a, b, _, _, e] = self.arguments;
        let within = |at: u64| a <= at && at < a.saturating_add(b.next_multiple_of(PAGE as u64));
        match news {
            News::Fault(_) => false,
            News::Fork(_) => self.copies(),
            // Several mappings are moved one by one.
            News::Moved { from, .. } => self.number == libc::SYS_mremap && within(*from),
            News::Removed(range) => self.number == libc::SYS_madvise && within(range.start),
            News::Unmapped(range) => match self.number {
                libc::SYS_munmap | libc::SYS_mmap => a == range.start,
                // Where it was, its end, or where it is to be.
                libc::SYS_mremap => within(range.start) || e == range.start,
                libc::SYS_brk => a <= range.start,
                _ => false,
            },
        }
    }

    /// Whether something may be changed by it.
    fn changes(&self) -> bool {
        const CHANGES: [i64; 6] = [
            libc::SYS_munmap,
            libc::SYS_mmap,
            libc::SYS_mremap,
            libc::SYS_brk,
            libc::SYS_madvise,
            libc::SYS_clone3,
        ];
        CHANGES.contains(&self.number) || self.copies()
    }

    /// Whoever starts a program waits until that runs, mostly in `clone3`, of which no flags are seen.
    const fn may_wait_for_a_program(&self) -> bool {
        self.number == libc::SYS_clone3
    }

    /// Whether it may make a copy.
    const fn copies(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.number == libc::SYS_fork {
            return true;
        }
        let shares = self.arguments[0] & libc::CLONE_VM as u64 != 0;
        (self.number == libc::SYS_clone && !shares) || self.number == libc::SYS_clone3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(by: u32, number: i64, arguments: [u64; 5]) -> Call {
        Call { by, number, arguments }
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        let text = b"25 0x1000 0x2000 0x2000 0x3 0x7f0000 0x0 0x7ffe10 0x7f25\n";
        assert_eq!(parse(7, text), Some(call(7, 25, [0x1000, 0x2000, 0x2000, 3, 0x7f_0000])));
        assert_eq!((parse(7, b"running\n"), parse(7, b"-1 0x7ffe10 0x7f25\n")), (None, None));
    }

    #[test]
    fn a_call_fits_what_it_does() {
        let calls = [
            call(1, libc::SYS_munmap, [0x1000, 0x1800, 0, 0, 0]),
            call(2, libc::SYS_mremap, [0x8000, 0x2000, 0x2000, 3, 0x20000]),
            call(3, libc::SYS_mmap, [0x40000, 0x1000, 3, 0x32, u64::MAX]),
            call(4, libc::SYS_madvise, [0x50000, 0x4000, 4, 0, 0]),
            call(5, libc::SYS_futex, [0x1000, 0, 0, 0, 0x20000]),
        ];
        let by = |news| actor(&calls, &news);
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
        let calls = [1, 2].map(|by| call(by, libc::SYS_munmap, [0x1000, 0x1000, 0, 0, 0]));
        assert_eq!(actor(&calls, &News::Unmapped(0x1000..0x2000)), None);
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
        let is_seen = |calls: &[Call]| calls.iter().any(|c| c.by == tid && c.number == libc::SYS_read);
        while !is_seen(&actors.calls()) {
            assert!(begun.elapsed().as_secs() < 60, "it is not seen");
        }
        // Of too many none is asked.
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        let many: Vec<_> = (0..MOST)
            .map(|_| std::sync::Arc::clone(&ended))
            .map(|ended| std::thread::spawn(move || ended.lock().expect("no panic").recv().is_err()))
            .collect();
        assert_eq!((actors.calls(), actors.threads.len()), (vec![], 0));
        drop(end);
        assert!(many.into_iter().all(|thread| thread.join().expect("no panic")));
        while !is_seen(&actors.calls()) {
            assert!(begun.elapsed().as_secs() < 60, "it is not seen again");
        }
        drop(writer);
        assert_eq!(thread.join().expect("no panic"), 0);
        while is_seen(&actors.calls()) {
            assert!(begun.elapsed().as_secs() < 60, "it is seen still");
        }
    }
}
