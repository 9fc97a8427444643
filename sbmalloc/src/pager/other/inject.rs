//! Makes a parked thread call the system, and parks it again as it was.
//!
//! All signals are blocked meanwhile. `SIGSTOP`, which cannot be, is passed on: the thread stops in an event
//! stop like any other, is told to go on, and when the rank is let go all of it stops as it was told to.
//!
//! On its way to the call the kernel forgets that the thread was inside a restartable sequence, as the call
//! is not: what it knew is written back, so that the sequence is broken off, as it must be, when the thread
//! goes on in it.

use super::arch::Registers;
use super::error::OtherError;
use super::ptrace::{self, News, Whose};
use super::space::Space;
use super::stop::Threads;
use crate::sys::Errno;

/// A parked thread that makes calls. To be ended by [`park`](Self::park); if it is not, the rank cannot go
/// on.
pub(super) struct Session {
    tid: i32,
    leader: i32,
    gate: u64,
    registers: Registers,
    mask: u64,
    /// A call was begun.
    calling: bool,
    /// It is scheduled before others meanwhile.
    hurries: bool,
}

/// A thread's nice value while it makes calls.
const NICE: i32 = -15;

/// Has an ordinary thread scheduled before others, if that is allowed: it holds up the whole rank, and who
/// waits for its memory, and behind busy others each of its calls would take tens of milliseconds.
fn hurry(tid: i32) -> bool {
    // SAFETY: calls about a thread that read nothing but their arguments.
    unsafe {
        libc::sched_getscheduler(tid) == libc::SCHED_OTHER
            && libc::getpriority(libc::PRIO_PROCESS, tid as u32) == 0
            && libc::setpriority(libc::PRIO_PROCESS, tid as u32, NICE) == 0
    }
}

/// Nothing but the end of the thread makes these requests fail.
fn gone(_: Errno) -> OtherError {
    OtherError::Gone
}

impl Session {
    pub fn begin(threads: &Threads, space: &Space) -> Result<Self, OtherError> {
        let tid = space.caller;
        let registers = ptrace::registers(tid).map_err(gone)?.ok_or(OtherError::Gone)?;
        let mask = ptrace::signal_mask(tid).map_err(gone)?;
        ptrace::set_signal_mask(tid, u64::MAX).map_err(gone)?;
        let (leader, hurries) = (threads.leader(), hurry(tid));
        Ok(Self { tid, leader, gate: space.gate, registers, mask, calling: false, hurries })
    }

    /// Makes a call and waits for its end.
    pub fn call<const N: usize>(&mut self, number: i64, arguments: [u64; N]) -> Result<i64, OtherError> {
        self.start(number, arguments)?;
        Ok(self.finish()?.unwrap_or_default())
    }

    /// Begins a call, when the one before has ended; the thread makes it while this one goes on.
    pub fn start<const N: usize>(&mut self, number: i64, arguments: [u64; N]) -> Result<(), OtherError> {
        self.finish()?;
        let registers = self.registers.calling(self.gate, number, arguments);
        ptrace::set_registers(self.tid, &registers).map_err(gone)?;
        self.to_call()?;
        ptrace::go_to_call(self.tid, 0).map_err(gone)?;
        self.calling = true;
        Ok(())
    }

    /// Waits for the end of the call that was begun, if one was. What it returned.
    pub fn finish(&mut self) -> Result<Option<i64>, OtherError> {
        if !std::mem::take(&mut self.calling) {
            return Ok(None);
        }
        self.until(ptrace::AT_CALL, &mut |signal| ptrace::go_to_call(self.tid, signal))?;
        let registers = ptrace::registers(self.tid).map_err(gone)?.ok_or(OtherError::Gone)?;
        Ok(Some(registers.result()))
    }

    /// Whether something is to be heard of the call that was begun.
    pub fn has_news(&self) -> bool {
        !matches!(ptrace::look(Whose::All, false), Ok(None))
    }

    fn to_call(&self) -> Result<(), OtherError> {
        ptrace::go_to_call(self.tid, 0).map_err(gone)?;
        self.until(ptrace::AT_CALL, &mut |signal| ptrace::go_to_call(self.tid, signal))
    }

    /// Waits for a stop; at others lets the thread go on.
    fn until(&self, wanted: i32, resume: &mut dyn FnMut(i32) -> Result<(), Errno>) -> Result<(), OtherError> {
        loop {
            // Of all of them, as the death of another of the rank's threads may be the last that is heard of
            // it.
            let (tid, news) = ptrace::look(Whose::All, true).map_err(gone)?.ok_or(OtherError::Gone)?;
            if news == News::Ended && (tid == self.tid || tid == self.leader) {
                return Err(OtherError::Gone);
            }
            if tid != self.tid {
                // Nobody else can have got on but by being killed.
                ptrace::take_end(tid);
                continue;
            }
            let Some(status) = ptrace::take_stop(tid).map_err(gone)? else { return Err(OtherError::Gone) };
            if status == wanted || (wanted == STOP && status >> 8 == libc::PTRACE_EVENT_STOP) {
                return Ok(());
            }
            let event = status >> 8;
            let signal = if event == 0 && status != ptrace::AT_CALL { status } else { 0 };
            resume(signal).map_err(gone)?;
        }
    }

    /// Parks the thread as it was.
    pub fn park(mut self, space: &Space) -> Result<(), OtherError> {
        self.finish()?;
        if std::mem::take(&mut self.hurries) {
            // SAFETY: as in `hurry`.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, self.tid as u32, 0) };
        }
        ptrace::set_registers(self.tid, &self.registers).map_err(gone)?;
        ptrace::set_signal_mask(self.tid, self.mask).map_err(gone)?;
        ptrace::interrupt(self.tid).map_err(gone)?;
        ptrace::resume(self.tid, 0).map_err(gone)?;
        self.until(STOP, &mut |signal| ptrace::resume(self.tid, signal))?;
        space.put_rseq_back()
    }
}

/// Any event stop.
const STOP: i32 = libc::PTRACE_EVENT_STOP << 8;
