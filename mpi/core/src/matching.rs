//! Which message belongs to which receive (MPI-5.0, section 3.5), without payloads and without waiting.
//!
//! Messages of one sender are received in the order in which they were sent, and a message goes to the first
//! receive posted that fits. Both follow from two queues for each context: receives that have no message, in
//! the order posted, and messages that nobody has claimed, in the order of arrival. At no time does one of
//! either fit one of the other.
//!
//! Receives without wildcards, and messages, are found by source and tag at once, however many there are.

use std::collections::btree_map::Entry as Place;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// From which rank of the communicator, and with which tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The sender's rank.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
}

/// What a receive, or a probe, accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// From whom; none: from anybody.
    pub source: Option<u32>,
    /// With which tag; none: with any.
    pub tag: Option<i32>,
}

impl Want {
    /// Whether it accepts a message.
    #[must_use]
    pub fn accepts(self, message: Envelope) -> bool {
        self.source.is_none_or(|source| source == message.source)
            && self.tag.is_none_or(|tag| tag == message.tag)
    }

    /// The only envelope it accepts, if there is only one.
    fn exact(self) -> Option<Envelope> {
        Some(Envelope { source: self.source?, tag: self.tag? })
    }
}

/// A receive that has no message yet. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Things of the same envelope, with their numbers, in that order.
type Line<T> = VecDeque<(u64, T)>;

/// Of one context.
#[derive(Debug)]
struct Queues<R, M> {
    /// Receives of one envelope only.
    exact: HashMap<Envelope, Line<R>>,
    /// The others.
    wild: BTreeMap<u64, (Want, R)>,
    messages: HashMap<Envelope, Line<M>>,
    /// All messages in the order of arrival.
    arrived: BTreeMap<u64, Envelope>,
}

impl<R, M> Default for Queues<R, M> {
    fn default() -> Self {
        Self {
            exact: HashMap::new(),
            wild: BTreeMap::new(),
            messages: HashMap::new(),
            arrived: BTreeMap::new(),
        }
    }
}

impl<R, M> Queues<R, M> {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wild.is_empty() && self.arrived.is_empty()
    }

    /// The first message that fits.
    fn first(&self, want: Want) -> Option<Envelope> {
        match want.exact() {
            Some(envelope) => self.messages.contains_key(&envelope).then_some(envelope),
            None => self.arrived.values().copied().find(|&message| want.accepts(message)),
        }
    }

    fn take_message(&mut self, envelope: Envelope) -> Option<M> {
        let (number, message) = pop(&mut self.messages, envelope)?;
        self.arrived.remove(&number);
        Some(message)
    }

    /// The first receive that a message fits.
    fn take_receive(&mut self, message: Envelope) -> Option<R> {
        let exact = self.exact.get(&message).and_then(VecDeque::front).map(|&(number, _)| number);
        let wild = self.wild.iter().find(|(_, (want, _))| want.accepts(message)).map(|(&number, _)| number);
        match (exact, wild) {
            (Some(exact), wild) if wild.is_none_or(|wild| exact < wild) => {
                pop(&mut self.exact, message).map(|(_, receive)| receive)
            }
            (_, wild) => self.wild.remove(&wild?).map(|(_, receive)| receive),
        }
    }
}

/// The first of an envelope's.
fn pop<T>(lines: &mut HashMap<Envelope, Line<T>>, envelope: Envelope) -> Option<(u64, T)> {
    let Entry::Occupied(mut line) = lines.entry(envelope) else { return None };
    let first = line.get_mut().pop_front();
    if line.get().is_empty() {
        line.remove();
    }
    first
}

/// Receives `R` and messages `M` of one process.
#[derive(Debug)]
pub struct Matcher<R, M> {
    contexts: BTreeMap<u32, Queues<R, M>>,
    next: u64,
}

impl<R, M> Default for Matcher<R, M> {
    fn default() -> Self {
        Self::new()
    }
}

/// What has become of a receive when it was posted.
#[derive(Debug, PartialEq, Eq)]
pub enum Posted<R, M> {
    /// It has a message.
    Has(Envelope, M, R),
    /// It waits for one.
    Waits(Ticket),
}

impl<R, M> Matcher<R, M> {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { contexts: BTreeMap::new(), next: 0 }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Does something with the queues of a context, which are forgotten when they are empty.
    fn within<T>(&mut self, context: u32, act: impl FnOnce(&mut Queues<R, M>) -> Option<T>) -> Option<T> {
        let Place::Occupied(mut queues) = self.contexts.entry(context) else { return None };
        let done = act(queues.get_mut());
        if queues.get().is_empty() {
            queues.remove();
        }
        done
    }

    /// A receive is posted.
    pub fn post(&mut self, context: u32, want: Want, receive: R) -> Posted<R, M> {
        if let Some((envelope, message)) = self.claim(context, want) {
            return Posted::Has(envelope, message, receive);
        }
        let number = self.number();
        let queues = self.contexts.entry(context).or_default();
        match want.exact() {
            Some(envelope) => queues.exact.entry(envelope).or_default().push_back((number, receive)),
            None => drop(queues.wild.insert(number, (want, receive))),
        }
        Posted::Waits(Ticket(number))
    }

    /// A message has come: the receive that gets it, with it, if one waits for it.
    pub fn arrive(&mut self, context: u32, envelope: Envelope, message: M) -> Option<(R, M)> {
        match self.take_receive(context, envelope) {
            Some(receive) => Some((receive, message)),
            None => {
                self.keep(context, envelope, message);
                None
            }
        }
    }

    /// A message has come: the receive that gets it, if one waits for it; else it is to be
    /// [kept](Self::keep).
    pub fn take_receive(&mut self, context: u32, envelope: Envelope) -> Option<R> {
        self.within(context, |queues| queues.take_receive(envelope))
    }

    /// A message has come for which no receive waits.
    pub fn keep(&mut self, context: u32, envelope: Envelope, message: M) {
        let number = self.number();
        let queues = self.contexts.entry(context).or_default();
        queues.messages.entry(envelope).or_default().push_back((number, message));
        queues.arrived.insert(number, envelope);
    }

    /// Whether there is neither a receive that waits nor a message that nobody has claimed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// The first message that fits and nobody has claimed.
    #[must_use]
    pub fn probe(&self, context: u32, want: Want) -> Option<(Envelope, &M)> {
        let queues = self.contexts.get(&context)?;
        let envelope = queues.first(want)?;
        Some((envelope, &queues.messages.get(&envelope)?.front()?.1))
    }

    /// The same, and nobody else gets it (`MPI_Mprobe`).
    pub fn claim(&mut self, context: u32, want: Want) -> Option<(Envelope, M)> {
        self.within(context, |queues| {
            let envelope = queues.first(want)?;
            Some((envelope, queues.take_message(envelope)?))
        })
    }

    /// Takes a receive back that has no message; none if it has.
    pub fn cancel(&mut self, context: u32, want: Want, ticket: Ticket) -> Option<R> {
        self.within(context, |queues| match want.exact() {
            Some(envelope) => {
                let line = queues.exact.get_mut(&envelope)?;
                let at = line.iter().position(|&(number, _)| number == ticket.0)?;
                let (_, receive) = line.remove(at)?;
                if line.is_empty() {
                    queues.exact.remove(&envelope);
                }
                Some(receive)
            }
            None => queues.wild.remove(&ticket.0).map(|(_, receive)| receive),
        })
    }

    /// Its sender takes a message back that nobody has claimed: the first of an envelope that is the one.
    pub fn withdraw(&mut self, context: u32, envelope: Envelope, is_it: impl Fn(&M) -> bool) -> Option<M> {
        self.within(context, |queues| {
            let line = queues.messages.get_mut(&envelope)?;
            let at = line.iter().position(|(_, message)| is_it(message))?;
            let (number, message) = line.remove(at)?;
            if line.is_empty() {
                queues.messages.remove(&envelope);
            }
            queues.arrived.remove(&number);
            Some(message)
        })
    }

    /// What nobody has received, by context: for those who look for what was forgotten.
    pub fn unclaimed(&self) -> impl Iterator<Item = (u32, Envelope)> {
        self.contexts
            .iter()
            .flat_map(|(&context, queues)| queues.arrived.values().map(move |&of| (context, of)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the standard says, word for word: two lists.
    #[derive(Default)]
    struct Model {
        receives: Vec<(u32, Want, usize)>,
        messages: Vec<(u32, Envelope, usize)>,
    }

    impl Model {
        fn post(&mut self, context: u32, want: Want, name: usize) -> Option<usize> {
            let found =
                self.messages.iter().position(|&(of, envelope, _)| of == context && want.accepts(envelope));
            match found {
                Some(at) => Some(self.messages.remove(at).2),
                None => {
                    self.receives.push((context, want, name));
                    None
                }
            }
        }

        fn arrive(&mut self, context: u32, envelope: Envelope, name: usize) -> Option<usize> {
            let found =
                self.receives.iter().position(|&(of, want, _)| of == context && want.accepts(envelope));
            match found {
                Some(at) => Some(self.receives.remove(at).2),
                None => {
                    self.messages.push((context, envelope, name));
                    None
                }
            }
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Deed {
        Post(u32, Want),
        Arrive(u32, Envelope),
        Probe(u32, Want),
        Claim(u32, Want),
        Cancel(usize),
        Withdraw(usize),
    }

    fn deeds() -> impl Strategy<Value = Deed> {
        let want = (proptest::option::of(0_u32..3), proptest::option::of(0_i32..3));
        let want = want.prop_map(|(source, tag)| Want { source, tag });
        let envelope = (0_u32..3, 0_i32..3).prop_map(|(source, tag)| Envelope { source, tag });
        prop_oneof![
            4 => (0_u32..2, want.clone()).prop_map(|(context, want)| Deed::Post(context, want)),
            4 => (0_u32..2, envelope).prop_map(|(context, envelope)| Deed::Arrive(context, envelope)),
            1 => (0_u32..2, want.clone()).prop_map(|(context, want)| Deed::Probe(context, want)),
            1 => (0_u32..2, want).prop_map(|(context, want)| Deed::Claim(context, want)),
            1 => (0_usize..100).prop_map(Deed::Cancel),
            1 => (0_usize..100).prop_map(Deed::Withdraw),
        ]
    }

    proptest! {
        #[test]
        fn as_two_lists_would(deeds in proptest::collection::vec(deeds(), 0..200)) {
            let (mut matcher, mut model) = (Matcher::new(), Model::default());
            let mut waiting: Vec<(u32, Want, Ticket, usize)> = vec![];
            for (name, deed) in deeds.into_iter().enumerate() {
                match deed {
                    Deed::Post(context, want) => match matcher.post(context, want, name) {
                        Posted::Has(envelope, message, receive) => {
                            prop_assert_eq!(receive, name);
                            prop_assert!(want.accepts(envelope));
                            prop_assert_eq!(model.post(context, want, name), Some(message));
                        }
                        Posted::Waits(ticket) => {
                            prop_assert_eq!(model.post(context, want, name), None);
                            waiting.push((context, want, ticket, name));
                        }
                    },
                    Deed::Arrive(context, envelope) => {
                        let got = matcher.arrive(context, envelope, name).map(|(receive, _)| receive);
                        prop_assert_eq!(got, model.arrive(context, envelope, name));
                        waiting.retain(|&(.., of)| Some(of) != got);
                    }
                    Deed::Probe(context, want) => {
                        let fits = |&&(of, envelope, _): &&(u32, Envelope, usize)| of == context && want.accepts(envelope);
                        let expected = model.messages.iter().find(fits).map(|&(_, envelope, name)| (envelope, name));
                        prop_assert_eq!(matcher.probe(context, want).map(|(envelope, &name)| (envelope, name)), expected);
                    }
                    Deed::Claim(context, want) => {
                        let fits = |&(of, envelope, _): &(u32, Envelope, usize)| of == context && want.accepts(envelope);
                        let at = model.messages.iter().position(fits);
                        let expected = at.map(|at| model.messages.remove(at)).map(|(_, envelope, name)| (envelope, name));
                        prop_assert_eq!(matcher.claim(context, want), expected);
                    }
                    Deed::Withdraw(nth) if model.messages.is_empty() => prop_assert!(nth < 100),
                    Deed::Withdraw(nth) => {
                        let at = nth % model.messages.len();
                        let (context, envelope, name) = model.messages.remove(at);
                        let is_it = |&message: &usize| message == name;
                        prop_assert_eq!(matcher.withdraw(context, envelope, is_it), Some(name));
                        prop_assert_eq!(matcher.withdraw(context, envelope, is_it), None);
                    }
                    Deed::Cancel(nth) if waiting.is_empty() => prop_assert!(nth < 100),
                    Deed::Cancel(nth) => {
                        let (context, want, ticket, name) = waiting.swap_remove(nth % waiting.len());
                        prop_assert_eq!(matcher.cancel(context, want, ticket), Some(name));
                        prop_assert_eq!(matcher.cancel(context, want, ticket), None);
                        model.receives.retain(|&(.., of)| of != name);
                    }
                }
            }
            let mut left: Vec<_> = matcher.unclaimed().collect();
            let mut expected: Vec<_> = model.messages.iter().map(|&(context, envelope, _)| (context, envelope)).collect();
            expected.sort_by_key(|&(context, _)| context);
            prop_assert_eq!(left.len(), expected.len());
            left.sort_by_key(|&(context, _)| context);
            prop_assert_eq!(left, expected);
        }
    }

    #[test]
    fn nothing_is_left_of_what_was_matched() {
        let mut matcher = Matcher::new();
        for round in 0..100 {
            let envelope = Envelope { source: round, tag: 0 };
            let want = Want { source: None, tag: Some(0) };
            assert!(matches!(matcher.post(round, want, 'r'), Posted::Waits(_)));
            assert_eq!(matcher.arrive(round, envelope, 'm'), Some(('r', 'm')));
        }
        assert!(matcher.contexts.is_empty());
    }
}
