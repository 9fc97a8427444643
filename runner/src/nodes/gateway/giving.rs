//! Answers to other nodes that ask for parts of collectives. Each is a copy in this process until MPI has
//! sent it, and many ranks may ask at the same time: so many bytes may be on their way, and what is asked
//! beyond that waits, as a question.

use std::collections::VecDeque;

use bdrun_ipc::far::Range;

use super::messages::WINDOW;

/// Bytes of answers that may be on their way to all nodes together.
const ROOM: u64 = 16 * WINDOW;

/// What a rank of another node asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub asker: u32,
    /// Communicator and number of the collective.
    pub of: (u32, u64),
    pub ranges: Vec<Range>,
}

impl Question {
    /// Bytes of the answer.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.len))
    }
}

#[derive(Default)]
struct Node {
    waiting: VecDeque<Question>,
    /// Of each answer on its way: its number, and how many bytes.
    leaving: VecDeque<(u64, u64)>,
    bytes: u64,
}

/// Questions and answers of all nodes.
pub(super) struct Giving {
    nodes: Vec<Node>,
    bytes: u64,
    /// Whose turn it is: who asks for much does not keep others waiting.
    turn: usize,
}

impl Giving {
    pub fn new(nodes: u32) -> Self {
        Self { nodes: (0..nodes).map(|_| Node::default()).collect(), bytes: 0, turn: 0 }
    }

    /// A node asks.
    pub fn ask(&mut self, node: u32, question: Question) {
        self.nodes[node as usize].waiting.push_back(question);
    }

    /// Whether nobody waits for its turn.
    pub fn is_idle(&self) -> bool {
        self.nodes.iter().all(|node| node.waiting.is_empty())
    }

    /// A question that may be answered now. What is longer than all that may be on its way goes alone.
    pub fn next(&mut self) -> Option<(u32, Question)> {
        let fits = |bytes: u64, more: u64, most: u64| bytes == 0 || bytes.saturating_add(more) <= most;
        for _ in 0..self.nodes.len() {
            let at = self.turn;
            let node = &self.nodes[at];
            let may =
                node.waiting.front().map(Question::bytes).filter(|&more| fits(node.bytes, more, WINDOW));
            if may.is_some_and(|more| !fits(self.bytes, more, ROOM)) {
                // It is the next: what is shorter does not slip in before it, again and again.
                return None;
            }
            self.turn = (at + 1) % self.nodes.len();
            if may.is_some() {
                return Some((at as u32, self.nodes[at].waiting.pop_front()?));
            }
        }
        None
    }

    /// An answer of so many bytes is on its way, as what has this number.
    pub fn gave(&mut self, node: u32, number: u64, bytes: u64) {
        self.bytes += bytes;
        let node = &mut self.nodes[node as usize];
        node.bytes += bytes;
        node.leaving.push_back((number, bytes));
    }

    /// All to this node is sent up to this number.
    pub fn sent(&mut self, node: u32, number: u64) {
        let node = &mut self.nodes[node as usize];
        while let Some(&(leaving, bytes)) = node.leaving.front()
            && leaving <= number
        {
            node.leaving.pop_front();
            node.bytes -= bytes;
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODES: u32 = 40;

    fn question(asker: u32, len: u64) -> Question {
        Question { asker, of: (0, 0), ranges: vec![Range { member: 0, offset: 0, len }] }
    }

    proptest! {
        /// However many ask, no more is on its way than may be; each is answered in turn as what was sent
        /// before has gone, and those of a node in order.
        #[test]
        fn answers_are_bounded_and_nobody_is_left(
            asks in proptest::collection::vec((0..NODES, 0..=WINDOW / 4), 0..600),
            often in 1u64..9,
        ) {
            let mut giving = Giving::new(NODES);
            let mut asked = vec![VecDeque::new(); NODES as usize];
            for (asker, &(node, len)) in (0..).zip(&asks) {
                giving.ask(node, question(asker, len));
                asked[node as usize].push_back(asker);
            }
            // What is on its way, by node: bytes; and how many were given, and are sent.
            let mut flying = vec![VecDeque::new(); NODES as usize];
            let (mut given, mut sent) = (vec![0; NODES as usize], vec![0; NODES as usize]);
            for step in 0.. {
                while let Some((node, question)) = giving.next() {
                    prop_assert_eq!(asked[node as usize].pop_front(), Some(question.asker));
                    given[node as usize] += 1;
                    giving.gave(node, given[node as usize], question.bytes());
                    flying[node as usize].push_back(question.bytes());
                }
                let bytes = |node: &VecDeque<u64>| node.iter().sum::<u64>();
                prop_assert!(flying.iter().all(|node| bytes(node) <= WINDOW));
                prop_assert!(flying.iter().map(bytes).sum::<u64>() <= ROOM);
                if flying.iter().all(VecDeque::is_empty) {
                    break;
                }
                for node in (0..NODES as usize).filter(|&node| (node as u64 + step).is_multiple_of(often)) {
                    sent[node] += u64::from(flying[node].pop_front().is_some());
                    giving.sent(node as u32, sent[node]);
                }
            }
            prop_assert!(giving.is_idle() && asked.iter().all(VecDeque::is_empty));
            prop_assert_eq!(giving.bytes, 0);
        }
    }

    #[test]
    fn a_node_that_takes_nothing_keeps_no_other_waiting() {
        let mut giving = Giving::new(3);
        (0..100).for_each(|asker| giving.ask(0, question(asker, WINDOW / 4)));
        (1..100).for_each(|number| {
            giving.ask(1, question(7, WINDOW / 4));
            while let Some((node, question)) = giving.next() {
                giving.gave(node, number, question.bytes());
            }
            assert!(giving.nodes[1].waiting.is_empty());
            giving.sent(1, number);
        });
        assert_eq!(giving.nodes[0].waiting.len(), 96);
    }

    #[test]
    fn what_is_too_long_goes_alone() {
        let mut giving = Giving::new(1);
        giving.ask(0, question(1, 2 * ROOM));
        giving.ask(0, question(2, 0));
        assert_eq!(giving.next(), Some((0, question(1, 2 * ROOM))));
        giving.gave(0, 1, 2 * ROOM);
        assert_eq!(giving.next(), None);
        giving.sent(0, 1);
        assert_eq!(giving.next(), Some((0, question(2, 0))));
    }
}
