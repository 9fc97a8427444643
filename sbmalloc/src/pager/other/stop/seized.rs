//! Threads that stay traced while they run: stopped and let go on again and again, and served in between.

use super::*;

/// What a traced thread did while it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Deed {
    /// It runs another program now; its process.
    Exec(i32),
}

impl Threads {
    /// None at all.
    pub(in super::super) fn none(leader: i32) -> Self {
        Self { leader, alive: Err(Errno(libc::ESRCH)), list: vec![], stood: None, own: None }
    }

    /// Tells when the rank's first process has ended; or why nothing does.
    pub(in super::super) fn end(&self) -> Result<&Fd, Errno> {
        self.alive.as_ref().map_err(|&errno| errno)
    }

    /// Whether a thread is one of them.
    pub(in super::super) fn has(&self, tid: i32) -> bool {
        self.knows(tid)
    }

    /// Whether a thread of a process was last seen to run the code of another processor.
    pub(in super::super) fn is_foreign(&self, process: i32) -> bool {
        self.list.iter().any(|t| t.tgid == process && t.is_foreign)
    }

    /// The process of one of the threads.
    pub(in super::super) fn process_of(&self, tid: i32) -> Option<i32> {
        self.list.iter().find(|t| t.tid == tid).map(|t| t.tgid)
    }

    /// The processes they belong to.
    pub(in super::super) fn processes(&self) -> Vec<i32> {
        let mut processes: Vec<i32> = self.list.iter().map(|t| t.tgid).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    /// Lets those that stand go on, traced as they are. One whose process was stopped by a signal goes on
    /// standing, until that is taken back.
    pub(in super::super) fn resume(&mut self) {
        for tracee in &mut self.list {
            if tracee.state != State::Running {
                tracee.resume();
            }
        }
    }

    /// Whether one that ran stood so lately for a signal or an event: there may be more.
    pub(in super::super) fn stood_within(&self, time: Duration) -> bool {
        self.stood.is_some_and(|stood| stood.elapsed() < time)
    }

    /// Takes note of what those that run did meanwhile, and lets them go on from where that made them stand.
    ///
    /// # Errors
    /// [`Refusal::Gone`] if the rank has ended.
    pub(in super::super) fn mind(&mut self, deeds: &mut Vec<Deed>) -> Result<(), Refusal> {
        while let Ok(Some((tid, news))) = ptrace::look(Whose::All, false) {
            self.stood = Some(Instant::now());
            self.mind_one(tid, news, deeds)?;
        }
        self.tell_the_time();
        self.is_alive().then_some(()).ok_or(Refusal::Gone)
    }

    fn mind_one(&mut self, tid: i32, news: News, deeds: &mut Vec<Deed>) -> Result<(), Refusal> {
        let event = if let News::Stopped(status) = news { status >> 8 } else { 0 };
        self.note(tid, news)?;
        if event == libc::PTRACE_EVENT_EXEC {
            deeds.push(Deed::Exec(tid));
        }
        if let Some(tracee) = self.get(tid)
            && tracee.state != State::Running
        {
            tracee.resume();
        }
        Ok(())
    }

    /// Stops those for a moment that are in a call whose time is over, so that it ends.
    fn tell_the_time(&mut self) {
        let now = restart::now();
        for tracee in &mut self.list {
            if tracee.state == State::Running && tracee.due.take_if(|due| *due <= now).is_some() {
                let call = tracee.again.and_then(Again::call);
                if call.is_some() && Call::of(tracee.tid).map(|is_in| is_in.number) == call {
                    tracee.is_told = ptrace::interrupt(tracee.tid).is_ok();
                }
            }
        }
    }

    /// Stops them all again. If it fails they run.
    pub(in super::super) fn stop_again(
        &mut self,
        patience: Duration,
        deeds: &mut Vec<Deed>,
    ) -> Result<(), Refusal> {
        self.mind(deeds)?;
        for tracee in &self.list {
            // One that has ended meanwhile will be heard of.
            let _ = ptrace::interrupt(tracee.tid);
        }
        let begun = Instant::now();
        let deadline = begun + patience;
        let mut pause = Pause::new();
        loop {
            if self.list.iter().all(|t| t.state != State::Running) {
                return self.is_alive().then_some(()).ok_or(Refusal::Gone);
            }
            let next = ptrace::look(Whose::All, false);
            if let Ok(Some((tid, news))) = next {
                let parks = matches!(news, News::Stopped(status) if status >> 8 == libc::PTRACE_EVENT_STOP);
                if parks {
                    self.note(tid, news)?;
                } else {
                    self.mind_one(tid, news, deeds)?;
                    // On the way from whatever that was it stops; a child that is new is told to.
                    let _ = ptrace::interrupt(tid);
                }
                pause = Pause::new();
                continue;
            }
            self.forget_the_dead();
            let now = Instant::now();
            let slow = self.list.iter().find(|t| t.state == State::Running).map_or(0, |t| t.tid);
            // A parent in vfork stops only when its child, which stands by now, has gone on to become another
            // program.
            if now > deadline || now > begun + SLOW && self.is_in_vfork(slow) {
                self.resume();
                return Err(Refusal::Busy { tid: slow });
            }
            pause.pause();
        }
    }
}

impl Tracee {
    fn resume(&mut self) {
        self.see_to_its_time();
        self.state = State::Running;
        let stopped = ptrace::stop_signal(self.tid).is_ok_and(|signal| signal != libc::SIGTRAP);
        // What fails here was killed, which will be heard of.
        let _ = if stopped { ptrace::listen(self.tid) } else { ptrace::resume(self.tid, 0) };
    }
}
