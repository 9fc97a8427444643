//! Stops every thread of every process of a rank, and lets them go again.
//!
//! A thread is *parked* when it stands in an event stop: on its way back to the program, with nothing half
//! done in the kernel, its registers those with which the kernel will go on (restart a call, deliver a
//! signal) when it is let go. A parent that has just made a child by vfork is also taken as it stands, in
//! front of its wait for the child.
//!
//! Threads and children made meanwhile are held from their first instruction, and become known by the event
//! of who made them. What is not traced yet is found by listing again, until nothing new appears: then
//! nothing that could make anything new is running.
//!
//! While stopping, a rank is not killed if this thread ends: it is let go by the kernel, as nothing of it was
//! changed. Only when all of it stands that is turned round (`PTRACE_O_EXITKILL`), before anything is
//! changed.

mod seized;

pub(super) use seized::Deed;

use super::OwnPager;
use super::call::Call;
use super::check;
use super::error::{OtherError, Refusal};
use super::proc::{self, Stat, Status};
use super::ptrace::{self, News, Whose};
use super::restart::{self, Again};
use super::space::Space;
use crate::sys::{Errno, Fd};
use std::io;
use std::time::{Duration, Instant};

/// How long threads that are not wanted after all are waited for, so as to let them go.
const LET_GO: Duration = Duration::from_secs(2);
/// After this time it is looked why a thread does not stop.
const SLOW: Duration = Duration::from_millis(2);
/// Who was killed while it stood, and is not traced any more, is dead by then, however busy the machine is.
const DYING: Duration = Duration::from_secs(60);
/// What else goes wrong with its memory it does when it is dead already, or nearly.
const NEARLY_DEAD: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Told to stop.
    Running,
    /// In an event stop.
    Parked,
    /// Stands where it made a child by vfork: nothing can be done by this thread.
    Inside,
}

#[derive(Debug, Clone, Copy)]
struct Tracee {
    tid: i32,
    tgid: i32,
    state: State,
    /// It was in a call with a timeout when it was stopped; or it is, and went on.
    again: Option<Again>,
    /// It runs, in a call of which it is to be told at this moment that its time is over.
    due: Option<u64>,
    /// It was stopped for that.
    is_told: bool,
    /// It runs the code of another processor (32 bits): nothing can be done by it.
    is_foreign: bool,
}

impl Tracee {
    fn new(tid: i32, tgid: i32) -> Self {
        let state = State::Running;
        Self { tid, tgid, state, again: None, due: None, is_told: false, is_foreign: false }
    }

    /// To be called before it is let go: sees to the time of its call.
    /// It has just stopped: what call that has broken off is made again when it goes on.
    fn take_up_call(&mut self) {
        self.state = State::Parked;
        let regs = ptrace::registers(self.tid);
        self.is_foreign = matches!(regs, Ok(None));
        if self.is_foreign {
            restart::undo_interruption_of_32_bits(self.tid);
        }
        // What fails here fails because the thread was killed, which will be heard of.
        if let Ok(Some(mut regs)) = regs {
            let thread = restart::Thread { tid: self.tid, tgid: self.tgid };
            let (is_changed, again) = restart::undo_interruption(thread, &mut regs);
            if is_changed {
                let _ = ptrace::set_registers(self.tid, &regs);
            }
            self.again = again;
        }
    }

    fn see_to_its_time(&mut self) {
        let thread = restart::Thread { tid: self.tid, tgid: self.tgid };
        let over = self.again.filter(|_| self.state == State::Parked).and_then(|again| again.resume(thread));
        // Once is enough: what it is in then begins anew.
        let was_told = std::mem::take(&mut self.is_told);
        self.due = over.filter(|_| !was_told);
    }
}

/// The threads of a rank as far as they are traced.
pub(super) struct Threads {
    leader: i32,
    /// Tells whether the first process is still there; never waited for, its end is another's. Or why there
    /// is none.
    alive: Result<Fd, Errno>,
    list: Vec<Tracee>,
    /// When one that ran stood last, for a signal or an event.
    stood: Option<Instant>,
    /// It has a pager of its own.
    pub own: Option<OwnPager>,
}

pub(super) fn own_tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

impl Threads {
    fn new(leader: i32) -> Self {
        // SAFETY: makes a descriptor, closed on drop.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, leader as usize, 0_usize) };
        let alive = if fd < 0 { Err(Errno::last()) } else { Ok(Fd(fd as i32)) };
        Self { leader, alive, list: vec![], stood: None, own: None }
    }

    /// Stops them all, within `patience`.
    pub fn stop(
        leader: i32,
        list: &mut dyn FnMut() -> io::Result<Vec<i32>>,
        patience: Duration,
        own: Option<OwnPager>,
    ) -> Result<(Self, Vec<i32>), Refusal> {
        let mut threads = Self { own, ..Self::new(leader) };
        match threads.stop_all(list, Instant::now() + patience) {
            Ok(processes) => Ok((threads, processes)),
            Err(refusal) => {
                threads.detach();
                Err(refusal)
            }
        }
    }

    fn stop_all(
        &mut self,
        list: &mut dyn FnMut() -> io::Result<Vec<i32>>,
        deadline: Instant,
    ) -> Result<Vec<i32>, Refusal> {
        if !self.is_alive() {
            return Err(Refusal::Gone);
        }
        let mut listed = || list().map_err(|e| Refusal::List(Errno::from(&e)));
        let mut processes = listed()?;
        processes.iter().try_for_each(|&pid| check::process(pid, 0, self.own))?;
        loop {
            let mut new = false;
            for &pid in &processes {
                new |= self.seize_process(pid)?;
            }
            self.settle(deadline)?;
            if !new {
                break;
            }
            processes = listed()?;
        }
        let mut processes: Vec<i32> = self.list.iter().map(|t| t.tgid).collect();
        processes.sort_unstable();
        processes.dedup();
        if processes.is_empty() || !self.is_alive() {
            return Err(Refusal::Gone);
        }
        if let Some(foreign) = self.list.iter().find(|t| t.is_foreign) {
            return Err(Refusal::Foreign { pid: foreign.tgid });
        }
        // Now that nothing changes any more, and before anything does.
        processes.iter().try_for_each(|&pid| check::process(pid, own_tid(), self.own))?;
        // Those that are to make calls must not have them filtered.
        let callers = processes.iter().filter_map(|&pid| Some((pid, self.parked(pid)?)));
        for (pid, tid) in callers {
            if check::filters_calls(tid) {
                return Err(Refusal::Seccomp { pid });
            }
        }
        for t in &self.list {
            if ptrace::dispatches_calls(t.tid) {
                return Err(Refusal::Seccomp { pid: t.tgid });
            }
            ptrace::set_options(t.tid, ptrace::WATCH_AND_KILL).map_err(|_| Refusal::Gone)?;
        }
        Ok(processes)
    }

    /// Tells every thread of a process to stop that is not traced yet. Whether there was one.
    fn seize_process(&mut self, pid: i32) -> Result<bool, Refusal> {
        let mut new = false;
        loop {
            let mut more = false;
            let threads = match proc::threads(pid) {
                Ok(threads) => threads,
                Err(e) if proc::is_gone(&e) => vec![],
                // None is to be missed for want of a descriptor: it would run while its memory is moved.
                Err(e) => return Err(Refusal::unreadable(pid, Errno::from(&e))),
            };
            for tid in threads {
                if !self.knows(tid) && self.seize(pid, tid)? {
                    more = true;
                }
            }
            new |= more;
            if !more {
                return Ok(new);
            }
        }
    }

    fn knows(&self, tid: i32) -> bool {
        self.list.iter().any(|t| t.tid == tid)
    }

    fn seize(&mut self, pid: i32, tid: i32) -> Result<bool, Refusal> {
        // A thread that was just ending may have given its number to one that becomes another program.
        check::past_the_moment(pid, || self.try_seize(pid, tid))
    }

    fn try_seize(&mut self, pid: i32, tid: i32) -> Result<bool, Refusal> {
        match ptrace::seize(tid) {
            Ok(()) => {
                self.list.push(Tracee::new(tid, pid));
                // It may have ended; then that is what will be heard of it.
                let _ = ptrace::interrupt(tid);
                Ok(true)
            }
            Err(Errno(libc::ESRCH)) => Ok(false),
            Err(errno) => match (Stat::of(tid), Status::of(tid)) {
                (Ok(stat), _) if stat.is_dead() || stat.is_worker => Ok(false),
                (_, Ok(status)) if status.tracer == own_tid() => {
                    // Held since it was made.
                    self.list.push(Tracee::new(tid, pid));
                    Ok(true)
                }
                (_, Ok(status)) if status.tracer != 0 => Err(Refusal::Traced { pid, by: status.tracer }),
                (Err(e), _) | (_, Err(e)) if proc::is_gone(&e) => Ok(false),
                _ => Err(Refusal::Forbidden { pid, errno }),
            },
        }
    }

    /// Waits until every thread that is traced stands.
    fn settle(&mut self, deadline: Instant) -> Result<(), Refusal> {
        let begun = Instant::now();
        let mut pause = Pause::new();
        while self.list.iter().any(|t| t.state == State::Running) {
            if self.hear()? {
                pause = Pause::new();
                continue;
            }
            let now = Instant::now();
            if now > begun + SLOW {
                self.forget_the_dead();
                let slow = self.list.iter().find(|t| t.state == State::Running);
                if let Some(&Tracee { tid, tgid, .. }) = slow {
                    if self.is_in_vfork(tid) {
                        return Err(Refusal::Vfork { pid: tgid });
                    }
                    if now > deadline {
                        return Err(Refusal::Busy { tid });
                    }
                }
            }
            pause.pause();
        }
        Ok(())
    }

    /// What has ended does not stop any more, and needs not: the first thread of a process that ended before
    /// the others, and a child whose end was heard of before its beginning, of which nothing will be heard
    /// again.
    fn forget_the_dead(&mut self) {
        self.list.retain(|t| t.state != State::Running || !is_dead(t.tid));
    }

    /// Whether a thread waits for its child to exec.
    fn is_in_vfork(&self, tid: i32) -> bool {
        let Some(call) = Call::of(tid) else { return false };
        Stat::of(tid).is_ok_and(|stat| stat.state == b'D') && call.is_vfork(tid)
    }

    /// Takes note of whatever there is to be told. Whether there was anything.
    fn hear(&mut self) -> Result<bool, Refusal> {
        let mut heard = false;
        let running: Vec<i32> =
            self.list.iter().filter(|t| t.state == State::Running).map(|t| t.tid).collect();
        for tid in running {
            match ptrace::look(Whose::Thread(tid), false) {
                Ok(Some((_, news))) => {
                    heard = true;
                    self.note(tid, news)?;
                }
                Ok(None) => {}
                // Ended, and another has taken note; or its number has gone to the thread that execs.
                Err(_) => {
                    heard = true;
                    self.remove(tid)?;
                }
            }
        }
        // Those that stand may be killed; others not known yet may stand.
        while !heard && let Ok(Some((tid, news))) = ptrace::look(Whose::All, false) {
            heard = true;
            self.note(tid, news)?;
        }
        Ok(heard)
    }

    fn remove(&mut self, tid: i32) -> Result<(), Refusal> {
        self.list.retain(|t| t.tid != tid);
        if tid == self.leader && !self.is_alive() { Err(Refusal::Gone) } else { Ok(()) }
    }

    fn get(&mut self, tid: i32) -> Option<&mut Tracee> {
        self.list.iter_mut().find(|t| t.tid == tid)
    }

    /// Adds one that was made by one of ours.
    fn add(&mut self, tid: i32) {
        // It may have ended, and that have been heard of, before its parent's word of it.
        if self.knows(tid) || is_dead(tid) {
            return;
        }
        let process = match Status::of(tid) {
            Ok(status) => Some(status.tgid),
            Err(e) if proc::is_gone(&e) => None,
            // No descriptor is free just now. What is not known would never be let go on.
            Err(_) => self.processes().into_iter().chain([tid]).find(|&pid| is_of(tid, pid)),
        };
        self.list.extend(process.map(|pid| Tracee::new(tid, pid)));
    }

    fn note(&mut self, tid: i32, news: News) -> Result<(), Refusal> {
        let News::Stopped(_) = news else {
            if tid == self.leader {
                return Err(Refusal::Gone);
            }
            ptrace::take_end(tid);
            return self.remove(tid);
        };
        self.add(tid);
        let Ok(Some(status)) = ptrace::take_stop(tid) else { return Ok(()) };
        let Some(tracee) = self.get(tid) else { return Ok(()) };
        let message = || ptrace::event_message(tid);
        tracee.state = State::Running;
        (tracee.again, tracee.due) = (None, None);
        // What fails below fails because the thread was killed, which will be heard of.
        match (status >> 8, status & 0xff) {
            (libc::PTRACE_EVENT_STOP, _) => {
                tracee.take_up_call();
            }
            (libc::PTRACE_EVENT_VFORK, _) => {
                tracee.state = State::Inside;
                message().into_iter().for_each(|child| self.add(child));
            }
            (libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_CLONE, _) => {
                message().into_iter().for_each(|child| self.add(child));
                let _ = ptrace::resume(tid, 0);
            }
            (libc::PTRACE_EVENT_EXEC, _) => {
                // The thread that called it has taken the number of the first.
                if let Ok(before) = message()
                    && before != tid
                {
                    self.list.retain(|t| t.tid != before);
                }
                let _ = ptrace::interrupt(tid);
                let _ = ptrace::resume(tid, 0);
            }
            // On the way to a signal's handler: it gets there, and stops at the handler's first instruction.
            // One that is ignored would not have been sent if nobody traced it: its call goes on.
            (0, signal) if signal != ptrace::AT_CALL => {
                tracee.take_up_call();
                tracee.see_to_its_time();
                tracee.state = State::Running;
                let _ = ptrace::resume(tid, signal);
            }
            _ => {
                let _ = ptrace::resume(tid, 0);
            }
        }
        Ok(())
    }

    /// Whether the first process has not ended.
    pub fn is_alive(&self) -> bool {
        match &self.alive {
            Ok(fd) => {
                let mut poll = libc::pollfd { fd: fd.0, events: libc::POLLIN, revents: 0 };
                // SAFETY: one pollfd.
                unsafe { libc::poll(&mut poll, 1, 0) < 1 }
            }
            // SAFETY: signal 0 only asks.
            Err(_) => unsafe { libc::kill(self.leader, 0) == 0 },
        }
    }

    /// This went wrong with an address space: whether that is because all who lived in it were killed
    /// meanwhile, while the rank lives. Then nothing of it matters any more.
    pub fn has_lost(&self, space: &Space, error: &OtherError) -> bool {
        self.has_lost_one(std::iter::once(space), error)
    }

    /// The same of one of several.
    pub fn has_lost_one<'a>(
        &self,
        spaces: impl Iterator<Item = &'a Space> + Clone,
        error: &OtherError,
    ) -> bool {
        let patience = match error {
            OtherError::Gone => DYING,
            OtherError::Rank { .. } => NEARLY_DEAD,
            // Of scratch: nobody's death makes that.
            _ => Duration::ZERO,
        };
        let begun = Instant::now();
        while self.is_alive() {
            if spaces.clone().any(|space| space.processes.iter().all(|&pid| proc::is_over(pid))) {
                return true;
            }
            if begun.elapsed() >= patience {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Takes note of threads that were killed while they stood: nobody else can, and until then their process
    /// does not end. False if the rank has ended.
    pub fn watch(&mut self) -> bool {
        while let Ok(Some((tid, news))) = ptrace::look(Whose::All, false) {
            if self.note(tid, news).is_err() {
                return false;
            }
        }
        self.is_alive()
    }

    /// A thread of a process by which calls can be made.
    pub fn parked(&self, process: i32) -> Option<i32> {
        let can = |t: &&Tracee| t.tgid == process && t.state == State::Parked && !t.is_foreign;
        self.list.iter().find(can).map(|t| t.tid)
    }

    pub fn leader(&self) -> i32 {
        self.leader
    }

    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Kills them all, and takes note of their ends, so that the first process can end too.
    pub fn kill(&mut self) {
        for t in &self.list {
            // SAFETY: a signal to a process that is traced by this thread, and so still has its number.
            unsafe { libc::kill(t.tgid, libc::SIGKILL) };
        }
        let (begun, mut pause) = (Instant::now(), Pause::new());
        self.list.iter_mut().for_each(|t| t.state = State::Running);
        while !self.list.is_empty() && begun.elapsed() < LET_GO {
            match self.hear() {
                // Of the first process no more is to be heard.
                Err(_) => self.list.retain(|t| t.tid != self.leader),
                Ok(true) => {}
                Ok(false) => pause.pause(),
            }
        }
    }

    /// Lets them all go, as they stand. Those that have not stopped yet are waited for.
    pub fn detach(&mut self) {
        let (begun, mut pause) = (Instant::now(), Pause::new());
        loop {
            let mut left = vec![];
            for mut t in std::mem::take(&mut self.list) {
                t.see_to_its_time();
                // One that was killed meanwhile cannot be let go, only its end heard of.
                let gone = t.state != State::Running && ptrace::detach(t.tid).is_ok();
                if !gone {
                    left.push(Tracee { state: State::Running, ..t });
                }
            }
            self.list = left;
            if self.list.is_empty() || begun.elapsed() > LET_GO {
                return;
            }
            self.forget_the_dead();
            match self.hear() {
                Ok(true) => pause = Pause::new(),
                Ok(false) => pause.pause(),
                Err(Refusal::Gone) => self.list.retain(|t| t.tid != self.leader),
                Err(_) => {}
            }
        }
    }
}

/// Whether a thread is one of a process. Needs no descriptor.
fn is_of(tid: i32, process: i32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, process, tid, 0) };
    asked == 0 || Errno::last().0 == libc::EPERM
}

/// Whether a thread has ended, or its number is nobody's.
pub(super) fn is_dead(tid: i32) -> bool {
    match Stat::of(tid) {
        Ok(stat) => stat.is_dead(),
        Err(error) => proc::is_gone(&error),
    }
}

/// Waiting by looking again: soon at first.
struct Pause(u32);

impl Pause {
    fn new() -> Self {
        Self(0)
    }

    fn pause(&mut self) {
        self.0 += 1;
        if self.0 < 20 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(u64::from(self.0.min(1000))));
        }
    }
}
