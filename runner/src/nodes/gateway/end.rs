//! How the job ends, and who is still there until then.
//!
//! *Goodbye* a master says when all is over at its node: it needs nothing more of others, but does for them
//! what they ask, and hears how the job ends there. Once all have said so each says its *last word*, and
//! leaves when it has heard that of all. Who is silent is not waited for (`watch.rs`).
//!
//! Where ranks are dealt out a job goes on without one that is lost, but for the first. So the first says who
//! is: another that hears nothing of one does not wait for it until it does. That the job ends is told to the
//! first, which tells the others, so that one that it has lost ends nobody.
//!
//! What goes wrong in a gateway's work does not end it: it does nothing more for ranks, but the other masters
//! have to be told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use super::{Gateway, Order, Peer, SILENCE, Told, lease};
use crate::exit::Ending;
use crate::nodes::frame::{End, Frame};
use crate::nodes::transport::{Came, Result, Transport, TransportError};

/// How long the others get to say goodbye when the job ends by a failure, as long as they are heard: ranks
/// have five seconds after a signal or a time limit, and who reads their output as many.
pub const FAREWELL: Duration = Duration::from_secs(15);
/// How long others get after a failure to say their last word: whoever knows why the job ends tells it
/// before, and must not be killed meanwhile by its launcher, as launchers do when somebody leaves by a
/// failure.
const LAST_WORD: Duration = Duration::from_secs(30);

impl<T: Transport> Gateway<T> {
    /// What is to be done now. A panic is an error like others: the masters are told of it.
    pub(super) fn turn_unless_broken(
        &mut self,
        early: Vec<(u32, Came)>,
        orders: &Receiver<Order>,
    ) -> Result<bool> {
        if self.is_broken {
            return Ok(self.turn_of_broken(orders));
        }
        let turn = AssertUnwindSafe(|| self.turn(early, orders));
        let panicked = |_| Err(TransportError::Broken("the gateway to other nodes has panicked".into()));
        catch_unwind(turn).unwrap_or_else(panicked)
    }

    /// Nothing more is done for ranks here. The main thread ends the job, and tells whom it can reach.
    pub(super) fn break_off(&mut self, error: TransportError) {
        self.is_broken = true;
        self.failed.get_or_insert_with(Instant::now);
        (self.tell)(Told::Broken(error));
    }

    /// What is left to do after that. Whom it cannot reach it cannot tell either: errors are nothing new.
    fn turn_of_broken(&mut self, orders: &Receiver<Order>) -> bool {
        let mut any = self.obey(orders).unwrap_or(true);
        let mut come = vec![];
        any |= self.transport.receive(&mut |from, what| come.push((from, what))).unwrap_or(false);
        self.take_what_ends(come.into_iter());
        let _ = self.look_at_others();
        let _ = self.say_last();
        any
    }

    /// Of all that has come what masters say of the end.
    pub(super) fn take_what_ends(&mut self, come: impl Iterator<Item = (u32, Came)>) {
        for (from, what) in come {
            if let Came::Frame(frame) = what
                && let Some((frame, bytes)) = Frame::decode(&frame)
            {
                let _ = self.take(from, frame, bytes);
            }
        }
    }

    /// Says to the others that this one is there, and ends the job if one of them does not.
    pub(super) fn look_at_others(&mut self) -> Result<()> {
        let seen = self.watch.look(Instant::now());
        for node in seen.lost {
            let judges = !self.deals || self.spread.node == 0 || node == 0;
            let peer = &mut self.peers[node as usize];
            if !judges {
                peer.is_silent = true;
                continue;
            }
            let why = peer.cut_off.take().unwrap_or_else(|| {
                let silent = self.limit.unwrap_or_default().as_secs_f64();
                format!(
                    "the master of node {node} has said nothing for {silent} s: its machine, or the network to it, is down, or stands still \
                     ({SILENCE}=SECONDS in the environment waits longer, 0 for ever)"
                )
            });
            if self.goes_on_without(node) {
                // Should it be there after all: what it had others run now.
                let end = Ending::Internal("it was silent for too long: others run its parts".into());
                let (code, why) = (end.code(), end.to_string());
                self.send(node, &Frame::End(End { code, why, has_grace: false }), &[])?;
            }
            self.lose(node, why)?;
        }
        if seen.beats { self.tell_all(&Frame::Beat(lease::now())) } else { Ok(()) }
    }

    /// Between two pieces of what may take long, since scratch is slow, say.
    pub(super) fn beat_if_due(&mut self) -> Result<()> {
        if self.watch.is_due(Instant::now()) { self.tell_all(&Frame::Beat(lease::now())) } else { Ok(()) }
    }

    /// This one is lost. The main thread is told, if the job does not end anyway. Where it goes on, so are
    /// the others: none of them waits for it, nor, in MPI, for those that do not come there without it.
    fn lose(&mut self, node: u32, why: String) -> Result<()> {
        self.peers[node as usize].is_lost = true;
        let goes_on = self.goes_on_without(node);
        if self.failed.is_none() && self.said_last.is_none() {
            (self.tell)(if goes_on {
                Told::Lost(node, why)
            } else {
                // The main thread ends the job, and tells those that can be reached.
                Told::Broken(TransportError::Broken(why))
            });
        }
        if goes_on { self.tell_all(&Frame::Lost(node)) } else { Ok(()) }
    }

    /// Whether a job goes on that has lost this node.
    fn goes_on_without(&self, node: u32) -> bool {
        self.deals && node != 0
    }

    /// The same with what comes of a transport that can reach one no more.
    pub(super) fn without_who_is_lost<R: Default>(&mut self, result: Result<R>) -> Result<R> {
        match result {
            Err(TransportError::Lost { node, why }) if self.goes_on_without(node) => {
                if !std::mem::replace(&mut self.peers[node as usize].is_lost, true) {
                    self.cut_off(node, why)?;
                }
                Ok(R::default())
            }
            other => other,
        }
    }

    /// This node cannot be reached. It may be there all the same, and then begins what it was given until its
    /// lease is over: so it is told as late as that of one of which nothing is heard from now on.
    fn cut_off(&mut self, node: u32, why: String) -> Result<()> {
        if self.spread.node != 0 {
            self.watch.forget(node);
        } else if self.limit.is_some() {
            self.watch.heard(node);
            self.peers[node as usize].cut_off = Some(why);
        } else {
            // Leases have no end.
            self.lose(node, why)?;
        }
        Ok(())
    }

    /// A node says that the job ends.
    pub(super) fn heard_of_the_end(&mut self, from: u32, end: End) -> Result<()> {
        let mut told = Ok(());
        if self.failed.is_none() {
            self.failed = Some(Instant::now());
            self.follows = Some(from);
            if self.deals && self.spread.node == 0 {
                let frame = Frame::End(end.clone());
                let others = self.others().filter(|&node| node != from);
                told = others.map(|node| self.send(node, &frame, &[])).fold(Ok(()), Result::and);
            }
        }
        (self.tell)(Told::Ended(from, end));
        told
    }

    /// A node says nothing more. Where ranks are dealt out, and the first does so before all is over here, or
    /// another before all is over at the first, though nothing has failed, that one is lost. (Its ranks are
    /// over: it has said goodbye before.)
    pub(super) fn heard_the_last(&mut self, from: u32) -> Result<()> {
        self.watch.forget(from);
        let is_early = self.deals && !self.said_bye && self.failed.is_none();
        if is_early && (from == 0 || self.spread.node == 0) {
            return self.lose(from, format!("the master of node {from} has left"));
        }
        self.peers[from as usize].said_last = true;
        Ok(())
    }

    pub(super) fn obey(&mut self, orders: &Receiver<Order>) -> Result<bool> {
        let mut any = false;
        loop {
            match orders.try_recv() {
                Ok(Order::End(end)) => {
                    self.failed.get_or_insert_with(Instant::now);
                    let frame = Frame::End(end);
                    if self.deals && self.spread.node != 0 {
                        self.send(0, &frame, &[])?;
                    } else {
                        self.tell_all(&frame)?;
                    }
                }
                Ok(Order::Bye(account)) => {
                    self.is_awaited = true;
                    let told =
                        if self.spread.node == 0 { Ok(()) } else { self.send(0, &Frame::Account, &account) };
                    self.say_bye().and(told)?;
                }
                Ok(Order::Last) => self.may_leave = true,
                Ok(Order::Say(node, word)) => self.send(node, &Frame::Said(word), &[])?,
                Err(TryRecvError::Disconnected) if !self.may_leave => {
                    self.may_leave = true;
                    if !self.said_bye {
                        self.say_bye()?;
                    }
                }
                Err(_) => return Ok(any),
            }
            any = true;
        }
    }

    fn say_bye(&mut self) -> Result<()> {
        self.said_bye = true;
        self.tell_all(&Frame::Bye)
    }

    pub(super) fn others(&self) -> impl Iterator<Item = u32> + use<T> {
        let own = self.spread.node;
        (0..self.spread.nodes).filter(move |&node| node != own)
    }

    /// Tells all that can be reached.
    pub(super) fn tell_all(&mut self, frame: &Frame) -> Result<()> {
        self.others().map(|node| self.send(node, frame, &[])).fold(Ok(()), Result::and)
    }

    /// Once all is over everywhere, of which nobody knows who has only said goodbye: the first is given what
    /// others have told, and when that was told, nothing more goes to anybody.
    pub(super) fn say_last(&mut self) -> Result<()> {
        let is_done = |peer: &Peer| peer.said_bye || !peer.is_waited_for();
        let all = self.others().all(|node| is_done(&self.peers[node as usize]));
        let in_time = self.failed.is_none_or(|since| since.elapsed() < self.farewell);
        if !self.said_bye || (!all && in_time) {
            return Ok(());
        }
        if std::mem::take(&mut self.is_awaited) {
            (self.tell)(Told::Over(std::mem::take(&mut self.accounts)));
        }
        if self.may_leave && self.said_last.is_none() {
            // Who cannot be reached, and was not given up, does not come where the others wait for all.
            let cut_off = |&node: &u32| self.peers[node as usize].cut_off.is_some();
            let lost: Vec<u32> = self.others().filter(cut_off).collect();
            let told = lost.into_iter().map(|node| self.tell_all(&Frame::Lost(node)));
            let told = told.fold(Ok(()), Result::and).and(self.tell_all(&Frame::Last));
            self.said_last = Some(Instant::now());
            told?;
        }
        Ok(())
    }

    /// All have said their last word, and all that was sent has come: MPI wants it so of those that leave it.
    /// Where the job ends by a failure those are not waited for that have not even said goodbye in time, but
    /// for the one that knows why; which that is is not known where the first has passed it on. Where it ends
    /// well they may take as long as they are heard.
    pub(super) fn is_over(&self) -> bool {
        let Some(since) = self.said_last else { return false };
        let has_failed = self.failed.is_some();
        let may_know = |node| self.follows == Some(node) || (self.deals && self.follows == Some(0));
        let peers = || self.others().map(|node| (node, &self.peers[node as usize]));
        let is_done = |(node, peer): (u32, &Peer)| {
            let is_gone = has_failed && !peer.said_bye && !may_know(node);
            let has_come = peer.coming.is_empty() || self.is_broken;
            !peer.is_waited_for() || is_gone || (peer.said_last && has_come)
        };
        let is_lost = |(_, peer): (u32, &Peer)| !peer.is_waited_for();
        let is_sent = self.transport.unsent() == 0 || has_failed || peers().any(is_lost);
        (peers().all(is_done) && is_sent) || (has_failed && since.elapsed() > LAST_WORD)
    }

    /// If somebody is gone without a word, MPI would wait for it: the launcher sees to the others.
    pub(super) fn leave(mut self) {
        let comes = |peer: &Peer| peer.said_last && !(peer.is_lost && self.deals);
        if !self.is_broken && self.others().all(|node| comes(&self.peers[node as usize])) {
            self.shared.finish();
            self.transport.finish();
        }
        let moves = |peer: &Peer| !peer.lent.is_empty() || !peer.coming.is_empty();
        if self.transport.unsent() > 0 || self.peers.iter().any(moves) {
            // MPI may still read and write where it was told to.
            std::mem::forget(self);
        }
    }
}
