//! Taking back what was begun (`MPI_Cancel`; MPI-5.0, section 3.8.4).
//!
//! A receive is taken back if it has no message. A message that was sent has left, and its send is complete,
//! unless that is synchronous: then its sender asks the receiver for it, and waits for one of two words.
//! Where nobody has claimed the message it goes, and the answer says so; else it is received, and the receipt
//! says that. What one process sends another comes in order, so the message is there when the question comes.
//! And whoever is asked answers in each call, whatever it waits for: so the send is complete soon either way.
//! Who has ended MPI makes no call, and receives nothing any more: what it has not answered by then is taken
//! back. (Of a process on another node that is not known.)
//! Of what sends and receives (`MPI_Isendrecv`) the send is complete at once, and the receive is taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Process;
use bdrun_mpi_core::matching::{Envelope, Matcher};

use super::{Arrived, Receive, Traffic};
use crate::Mpi;
use crate::args::Status;
use crate::failure::Answer;
use crate::link::{Come, Head, Link, Mode};
use crate::operation::{Done, Operation, Receipt};

/// What is told of what was taken back.
const CANCELLED: Done = Done { status: Status { cancelled: true, ..Status::EMPTY }, failure: None };

/// What a sender is told by a word of its receiver.
pub(super) fn told(word: Mode) -> Done {
    if matches!(word, Mode::TakenBack(_)) { CANCELLED } else { Done::well() }
}

/// By the receiver: who asks for a message back gets the answer, if nobody has claimed it. Who that is, and
/// its own rank, the receiver is told: it may have freed the communicator.
pub(super) fn take_back(
    matcher: &mut Matcher<Receive, Arrived>,
    head: Head,
    number: u32,
    question: Come<'_>,
) -> Answer<Option<(Process, Head)>> {
    let question = question.keep()?;
    if question.len() != 8 {
        return Err(Class::Internal.into());
    }
    let (mut process, mut own) = ([0; 4], [0; 4]);
    question.read(0, &mut process)?;
    question.read(4, &mut own)?;
    let envelope = Envelope { source: head.source, tag: head.tag };
    let is_it = |message: &Arrived| message.mode == Mode::Synchronous(number);
    let taken = matcher.withdraw(head.context, envelope, is_it);
    let answer = Head { source: u32::from_le_bytes(own), mode: Mode::TakenBack(number), ..head };
    Ok(taken.map(|_| (Process::from_le_bytes(process), answer)))
}

impl Traffic {
    /// Those of the messages that were asked back whose receivers have ended MPI.
    pub(super) fn who_have_left(&self, link: &dyn Link) -> Vec<Receipt> {
        let has_left = |of: &&Receipt| link.has_left(of.process) == Some(true);
        self.questions.iter().filter(has_left).copied().collect()
    }
}

impl Mpi {
    /// Those of the messages that were asked back which nobody will receive: who `left` has said all that it
    /// will. Of the rest those stay that are not answered.
    pub(super) fn settle_questions(
        &self,
        traffic: &mut Traffic,
        left: &[Receipt],
    ) -> Vec<(Arc<Operation>, Done)> {
        let Traffic { questions, awaited: Some(awaited), .. } = traffic else { return vec![] };
        if questions.is_empty() {
            return vec![];
        }
        let taken = left.iter().filter_map(|of| Some((awaited.remove(&of.number)?, CANCELLED))).collect();
        questions.retain(|of| awaited.contains_key(&of.number));
        self.questions.store(questions.len(), SeqCst);
        taken
    }

    /// Takes back what was begun, if that can be done: a receive that has no message, at once; a synchronous
    /// send by asking its receiver.
    pub(crate) fn take_back(&self, operation: &Operation) -> Answer<()> {
        if let Some(receipt) = operation.receipt() {
            return self.ask_for_message(receipt);
        }
        let parts = operation.parts();
        if !parts.is_empty() {
            return parts.iter().try_for_each(|part| self.take_back(part));
        }
        let taken = {
            let mut traffic = self.traffic();
            let Some((context, want, ticket)) = operation.takes_back() else { return Ok(()) };
            traffic.matcher.cancel(context, want, ticket)
        };
        if taken.is_some() {
            operation.finish(CANCELLED);
            // One may wait for it.
            self.tell_threads();
        }
        Ok(())
    }

    fn ask_for_message(&self, of: Receipt) -> Answer<()> {
        let link = self.link()?;
        let head =
            Head { context: of.context, source: of.own, tag: of.tag, mode: Mode::TakesBack(of.number) };
        self.act();
        link.send(of.process, head, &[&link.process().to_le_bytes(), &of.source.to_le_bytes()])?;
        let mut traffic = self.traffic();
        // Another thread may have heard the answer.
        let is_open = traffic.awaited.as_ref().is_some_and(|awaited| awaited.contains_key(&of.number));
        if is_open && link.has_left(of.process).is_some() && !traffic.questions.contains(&of) {
            traffic.questions.push(of);
            self.questions.store(traffic.questions.len(), SeqCst);
        }
        drop(traffic);
        // Who sends to itself need not wait for the answer: one that asks once whether this was taken back,
        // and receives it if not (mpi4py's tests), would wait for ever.
        if of.process == link.process() {
            self.progress()?;
            self.progress()?;
        }
        Ok(())
    }
}
