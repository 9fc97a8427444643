//! Which message belongs to which receive: a pure state machine without memory of its own for the payload.
//!
//! MPI 4.1, section 3.5: messages from one sender on one communicator are received in the order sent, and a
//! message goes to the first posted receive that matches it. Both follow from two queues: receives posted and
//! unmet, in the order posted, and messages arrived and unclaimed, in the order of arrival. At no time does a
//! message in the one match a receive in the other.

use std::collections::VecDeque;

/// A message's tag.
pub type Tag = u32;

/// From whom to receive.
///
/// ```
/// # let world = bdrun_worker::init()?;
/// # let comm = world.communicator();
/// use bdrun_worker::Source;
///
/// comm.send(comm.rank(), 18, &[1u8])?;
/// assert_eq!(comm.recv::<u8>(Source::Any, 18)?.1.source, comm.rank());
/// comm.send(comm.rank(), 18, &[1u8])?;
/// comm.recv::<u8>(comm.rank(), 18)?; // as Source::Rank(…)
/// # Ok::<(), bdrun_worker::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From anybody.
    Any,
    /// From this rank of the communicator.
    Rank(usize),
}

/// Which tag to receive.
///
/// ```
/// # let world = bdrun_worker::init()?;
/// # let comm = world.communicator().duplicate()?;
/// use bdrun_worker::TagSel;
///
/// comm.send(comm.rank(), 19, &[1u8])?;
/// assert_eq!(comm.recv::<u8>(comm.rank(), TagSel::Any)?.1.tag, 19);
/// comm.send(comm.rank(), 20, &[1u8])?;
/// comm.recv::<u8>(comm.rank(), 20)?; // as TagSel::Is(20)
/// # Ok::<(), bdrun_worker::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagSel {
    /// Whatever its tag.
    Any,
    /// Only this tag.
    Is(Tag),
}

impl From<usize> for Source {
    fn from(rank: usize) -> Self {
        Self::Rank(rank)
    }
}

impl From<Tag> for TagSel {
    fn from(tag: Tag) -> Self {
        Self::Is(tag)
    }
}

/// What is known of a message before its payload is taken.
///
/// ```
/// # let world = bdrun_worker::init()?;
/// # let comm = world.communicator();
/// use bdrun_worker::Status;
///
/// comm.send(comm.rank(), 21, &[1u32, 2])?;
/// let (_, status) = comm.recv::<u32>(comm.rank(), 21)?;
/// assert_eq!(status, Status { source: comm.rank(), tag: 21, bytes: 8 });
/// # Ok::<(), bdrun_worker::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Sender, as a rank of the communicator.
    pub source: usize,
    /// Its tag.
    pub tag: Tag,
    /// Length of the payload in bytes.
    pub bytes: usize,
}

/// What a receive accepts: a communicator (by its context number), a source and a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Context number of the communicator.
    pub context: u32,
    /// From whom.
    pub source: Source,
    /// Which tag.
    pub tag: TagSel,
}

impl Selector {
    /// Does it accept a message of this context and status?
    pub fn accepts(&self, context: u32, status: &Status) -> bool {
        self.context == context
            && match self.source {
                Source::Any => true,
                Source::Rank(r) => r == status.source,
            }
            && match self.tag {
                TagSel::Any => true,
                TagSel::Is(t) => t == status.tag,
            }
    }
}

/// A posted receive, by number. Numbers are never used again.
pub type Ticket = u64;

/// Messages and receives of one rank, over all its communicators. `P` says where a payload lies.
#[derive(Debug)]
pub struct Matcher<P> {
    posted: VecDeque<(Ticket, Selector)>,
    unexpected: VecDeque<Message<P>>,
    matched: Vec<(Ticket, Message<P>)>,
    next: Ticket,
    arrivals: u64,
}

#[derive(Debug)]
struct Message<P> {
    /// How many arrived before it.
    number: u64,
    context: u32,
    status: Status,
    payload: P,
}

impl<P> Default for Matcher<P> {
    fn default() -> Self {
        Self {
            posted: VecDeque::new(),
            unexpected: VecDeque::new(),
            matched: Vec::new(),
            next: 0,
            arrivals: 0,
        }
    }
}

impl<P> Matcher<P> {
    /// A message came in.
    pub fn arrive(&mut self, context: u32, status: Status, payload: P) {
        let number = self.arrivals;
        self.arrivals += 1;
        self.place(Message { number, context, status, payload });
    }

    /// To the first receive that wants it, else among the unclaimed, by its place in the order of arrival.
    fn place(&mut self, message: Message<P>) {
        let wants = |(_, want): &(Ticket, Selector)| want.accepts(message.context, &message.status);
        match self.posted.iter().position(wants).and_then(|i| self.posted.remove(i)) {
            Some((ticket, _)) => self.matched.push((ticket, message)),
            None => {
                let at = self.unexpected.partition_point(|m| m.number < message.number);
                self.unexpected.insert(at, message);
            }
        }
    }

    /// A receive is posted.
    pub fn post(&mut self, want: Selector) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        match self.find(&want).and_then(|i| self.unexpected.remove(i)) {
            Some(message) => self.matched.push((ticket, message)),
            None => self.posted.push_back((ticket, want)),
        }
        ticket
    }

    fn find(&self, want: &Selector) -> Option<usize> {
        self.unexpected.iter().position(|m| want.accepts(m.context, &m.status))
    }

    /// Has the receive got its message?
    pub fn status(&self, ticket: Ticket) -> Option<Status> {
        self.matched.iter().find(|(t, _)| *t == ticket).map(|(_, m)| m.status)
    }

    /// What the receive still waits for; `None` once it is matched or gone.
    pub fn waiting_for(&self, ticket: Ticket) -> Option<Selector> {
        self.posted.iter().find(|(t, _)| *t == ticket).map(|(_, want)| *want)
    }

    /// Take the matched message and end the receive.
    pub fn take(&mut self, ticket: Ticket) -> Option<(Status, P)> {
        self.remove(ticket).map(|m| (m.status, m.payload))
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Message<P>> {
        let i = self.matched.iter().position(|(t, _)| *t == ticket)?;
        Some(self.matched.swap_remove(i).1)
    }

    /// End a receive that nobody waits for any more. A message that it had got goes to others.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.posted.retain(|(t, _)| *t != ticket);
        if let Some(message) = self.remove(ticket) {
            self.place(message);
        }
    }

    /// Takes all messages that no receive has taken, in the order in which they arrived.
    pub fn take_all(&mut self) -> Vec<P> {
        let matched = self.matched.drain(..).map(|(_, message)| message);
        let mut all: Vec<_> = matched.chain(self.unexpected.drain(..)).collect();
        all.sort_by_key(|message| message.number);
        all.into_iter().map(|message| message.payload).collect()
    }

    /// The first unclaimed message that fits.
    pub fn probe(&self, want: &Selector) -> Option<Status> {
        self.find(want).map(|i| self.unexpected[i].status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(source: usize, tag: Tag) -> Status {
        Status { source, tag, bytes: 0 }
    }

    fn selector(source: Option<usize>, tag: Option<Tag>) -> Selector {
        Selector {
            context: 0,
            source: source.map_or(Source::Any, Source::Rank),
            tag: tag.map_or(TagSel::Any, TagSel::Is),
        }
    }

    #[test]
    fn a_posted_receive_gets_the_first_message_that_fits() {
        let mut m = Matcher::default();
        let t = m.post(selector(Some(1), None));
        m.arrive(0, status(2, 0), 'a');
        assert_eq!(m.status(t), None);
        m.arrive(0, status(1, 5), 'b');
        assert_eq!(m.take(t), Some((status(1, 5), 'b')));
        assert_eq!(m.take(t), None);
        assert_eq!(m.probe(&selector(None, None)), Some(status(2, 0)));
    }

    #[test]
    fn all_that_nobody_has_taken_is_given_back_in_order() {
        let mut m = Matcher::default();
        m.arrive(0, status(1, 7), 'a');
        m.arrive(0, status(1, 8), 'b');
        m.arrive(0, status(1, 9), 'c');
        m.arrive(0, status(2, 9), 'd');
        let taken = m.post(selector(Some(1), Some(7)));
        m.take(taken);
        m.post(selector(None, Some(9)));
        assert_eq!(m.take_all(), ['b', 'c', 'd']);
        assert_eq!(m.take_all(), []);
    }

    #[test]
    fn what_a_cancelled_receive_had_got_keeps_its_place() {
        let mut m = Matcher::default();
        m.arrive(0, status(1, 7), 'a');
        m.arrive(0, status(1, 8), 'b');
        m.arrive(0, status(1, 8), 'c');
        let t = m.post(selector(Some(1), Some(8)));
        m.cancel(t);
        for expected in ['a', 'b', 'c'] {
            let t = m.post(selector(None, None));
            assert_eq!(m.take(t).unwrap().1, expected);
        }
        let (t, u) = (m.post(selector(None, None)), m.post(selector(None, None)));
        m.arrive(0, status(2, 0), 'd');
        m.cancel(t);
        assert_eq!(m.take(u).unwrap().1, 'd');
    }

    #[test]
    fn contexts_do_not_mix() {
        let mut m = Matcher::default();
        let t = m.post(selector(None, None));
        m.arrive(7, status(0, 0), ());
        assert_eq!(m.status(t), None);
    }

    proptest! {
        /// Against the definition: serve each receive from one list of messages in order of arrival.
        #[test]
        fn order_is_kept(ops in proptest::collection::vec((any::<bool>(), 0usize..3, 0u32..3, any::<bool>(), any::<bool>()), 1..60)) {
            let mut m = Matcher::default();
            let mut tickets = Vec::new();
            let mut arrived: Vec<(usize, Status)> = Vec::new();
            for (number, (is_message, source, tag, any_source, any_tag)) in ops.iter().enumerate() {
                if *is_message {
                    m.arrive(0, status(*source, *tag), number);
                    arrived.push((number, status(*source, *tag)));
                } else {
                    let want = selector((!any_source).then_some(*source), (!any_tag).then_some(*tag));
                    tickets.push((number, want, m.post(want)));
                }
            }
            // Model: events in order; a message takes the earliest open receive, a receive the earliest open
            // message.
            let mut open_messages: Vec<(usize, Status)> = Vec::new();
            let mut open_receives: Vec<(Selector, Ticket)> = Vec::new();
            let mut expected = std::collections::HashMap::new();
            for number in 0..ops.len() {
                if let Some((_, s)) = arrived.iter().find(|(n, _)| *n == number) {
                    match open_receives.iter().position(|(w, _)| w.accepts(0, s)) {
                        Some(i) => { expected.insert(open_receives.remove(i).1, number); }
                        None => open_messages.push((number, *s)),
                    }
                }
                if let Some((_, w, t)) = tickets.iter().find(|(n, ..)| *n == number) {
                    match open_messages.iter().position(|(_, s)| w.accepts(0, s)) {
                        Some(i) => { expected.insert(*t, open_messages.remove(i).0); }
                        None => open_receives.push((*w, *t)),
                    }
                }
            }
            for (_, _, t) in &tickets {
                prop_assert_eq!(m.take(*t).map(|(_, p)| p), expected.get(t).copied());
            }
            // Non-overtaking: among messages of one source and tag, what was received came in order sent.
            prop_assert!(open_messages.iter().map(|(n, _)| n).is_sorted());
        }
    }
}
