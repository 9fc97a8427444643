//! The short way of plain messages: sent into a lane and received out of it with nothing made in between.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::sync::{MutexGuard, PoisonError};

use bdrun_ipc::inbox;
use bdrun_ipc::lane::{self, Way};
use bdrun_ipc::segment::Waiting;
use bdrun_ipc::state::State;
use bdrun_mpi_core::group::Process;
use bdrun_mpi_core::matching::{Envelope, Want};

use super::{Node, failed, mode_of, note_of};
use crate::failure::Answer;
use crate::link::{Head, Mode};

/// From so many bytes on it matters that the receiver's cache is not passed over.
const LARGE: usize = 32 << 10;

/// What became of a look for a message.
#[derive(Debug)]
pub enum Direct {
    /// None has come.
    Nothing,
    /// Something has that is not what is wanted, or not known to be.
    Other,
    /// It is received; how long it was.
    Taken(Envelope, u64),
}

impl Node {
    fn way(&self, to: Process) -> MutexGuard<'_, Way> {
        self.ways[to as usize].get_or_init(Box::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a copy of `data`, and wakes the receiver if it waits for that.
    #[inline]
    pub fn send_at(&self, to: Process, head: Head, data: &[&[u8]]) -> Answer<()> {
        let Head { context, source, tag, mode } = head;
        let (segment, tag) = (self.segment(), tag as u32);
        self.rank.vouch_for(data);
        let what = [context, source, tag, note_of(mode)];
        let mut way = self.way(to);
        let bytes: usize = data.iter().map(|piece| piece.len()).sum();
        if bytes >= LARGE {
            self.let_fetch(&way, to, bytes as u64);
        }
        let sent = way.send(segment, self.rank.mail(), to, what, data);
        drop(way);
        let unpaid = sent.map_err(|error| failed(self.rank, error))?;
        // The receiver writes that it is blocked, fences, and looks for messages: either it finds this one,
        // or we find it blocked. What it waits for it has written before.
        fence(SeqCst);
        if segment.rank(to).word.load().state() != State::Running {
            self.wake_for(to, &head);
        }
        self.rank.pay_for_headers(unpaid);
        Ok(())
    }

    /// A receiver that is about to fetch large messages is given a moment for it, or the gateway.
    fn let_fetch(&self, way: &Way, to: Process, bytes: u64) {
        let segment = self.segment();
        if !segment.is_here(to) {
            return self.rank.lets_leave(bytes);
        }
        if way.is_ahead(segment, to, bytes) {
            let is_asleep = || segment.rank(to).word.load().state() != State::Running;
            self.rank.looks_for_room(bytes, &|| !way.is_ahead(segment, to, bytes) || is_asleep());
        }
    }

    #[cold]
    fn wake_for(&self, to: Process, head: &Head) {
        let waiting = self.segment().rank(to).waiting();
        // Who sends it waits until it is received, also if the receiver waits for something else.
        let is_urgent = matches!(head.mode, Mode::Synchronous(_) | Mode::TakesBack(_) | Mode::Active)
            && matches!(waiting, Waiting::Message { .. } | Waiting::Collective { .. });
        if is_urgent || inbox::concerns(waiting, head.context, head.source, head.tag as u32) {
            self.rank.wake(to);
        }
    }

    /// Looks for a moment whether anything has come.
    #[inline]
    pub fn looks(&self) -> bool {
        let (segment, number) = (self.segment(), self.rank.number());
        self.rank.looks(&|| !lane::is_quiet(segment, number))
    }

    /// Receives the first message if it is a plain one that is wanted, as far as there is room. Only while no
    /// other receive waits and no other message is kept, and by one thread at a time.
    #[inline]
    pub fn take_first(&self, context: u32, want: Want, into: &mut [u8]) -> Answer<Direct> {
        let (segment, mail, number) = (self.segment(), self.rank.mail(), self.rank.number());
        // Those of the inbox would never be taken if lanes always had something, and collectives that wait
        // for a place would wait for ever: also for one that this process itself has to complete before.
        if !inbox::is_empty(segment, number) || self.early.is_some() {
            return Ok(Direct::Other);
        }
        let found = lane::first(segment, number, self.next.load(Relaxed));
        let Some((lane, lying)) = found.map_err(|error| failed(self.rank, error))? else {
            return Ok(Direct::Nothing);
        };
        let envelope = Envelope { source: lying.source, tag: lying.tag as i32 };
        let fits = lying.context == context && want.accepts(envelope) && mode_of(lying.note) == Mode::Plain;
        if !fits {
            return Ok(Direct::Other);
        }
        let len = lying.len;
        let room = into.len().min(usize::try_from(len).unwrap_or(usize::MAX));
        lying.read(mail, 0, &mut into[..room]).map_err(|error| failed(self.rank, error))?;
        if lying.pass(mail) {
            self.rank.gave_memory();
        }
        self.next.store(lane.wrapping_add(1), Relaxed);
        Ok(Direct::Taken(envelope, len))
    }
}
