//! Which node runs which part of a job of independent ranks: the first node's master deals them
//! out as others can begin them. Pure: `handle(event)` says what is to be done.
//!
//! A node asks when it has none left that it has not begun. It is given those that come next in the order in
//! which one node would begin them, as far as they fit beside what it runs. If the first does not, those
//! behind it may pass, but only [`PASSES`] for each node: then it goes to whoever asks next, and waits there
//! for the memory. One that needs more than the budget of some nodes goes to others.
//!
//! Who could begin more at once, and can be given nothing, gets what others have not begun: they are told to
//! give some of it back. What a lost node had goes to others, in its place in the order.

mod left;

use std::collections::BTreeSet;

use crate::residency::Rank;
use left::Left;

/// How many may pass the first that does not fit, for each node.
const PASSES: u32 = 16;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node could begin more.
    Asks {
        /// The node.
        node: u32,
        /// How many, those included that it has asked for before and was not given.
        count: u32,
        /// How many of these it would begin at once; the others it would have ready.
        idle: u32,
        /// Bytes of its budget that are free.
        free: u64,
        /// Bytes of all of it.
        budget: u64,
    },
    /// A rank has ended for good at a node.
    Ended {
        /// The node.
        node: u32,
        /// The rank.
        rank: Rank,
    },
    /// A node gives back what it has not begun: the answer to [`Effect::Recall`].
    Back {
        /// The node.
        node: u32,
        /// What.
        ranks: Vec<Rank>,
    },
    /// A node is lost, with all that it had.
    Lost(u32),
    /// No other is dealt out.
    Halt,
}

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// These are that node's to run.
    Give {
        /// The node.
        node: u32,
        /// The ranks, in the order in which they are to begin.
        ranks: Vec<Rank>,
    },
    /// A node is to give back what it has not begun of these, or the later half of that.
    Recall {
        /// The node.
        node: u32,
        /// Of these, in the order in which they are to begin.
        ranks: Vec<Rank>,
        /// All of it.
        all: bool,
    },
    /// All have ended, or nobody else is begun: no node is given anything any more.
    Over,
}

#[derive(Debug, Default)]
struct Node {
    /// Bytes, once it has asked for the first time.
    budget: Option<u64>,
    asks: u32,
    /// Of these, how many it would begin at once.
    idle: u32,
    free: u64,
    has: BTreeSet<Rank>,
    /// It was told to give back, and has not answered.
    is_recalled: bool,
    /// It had nothing to give back since it was given something.
    has_begun_all: bool,
    is_lost: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Dealer {
    /// Those that are to be run, in the order in which one node would begin them.
    order: Vec<Rank>,
    /// Bytes that each of all ranks needs, as far as is known; empty if of none.
    needs: Vec<u64>,
    /// Where each is in that order; only for those that come back.
    places: Vec<u32>,
    /// Of which places nobody has the rank.
    left: Left,
    nodes: Vec<Node>,
    passed: u32,
    halted: bool,
    is_over: bool,
}

impl Dealer {
    /// Of a job on so many nodes, of which these ranks are to be run, in this order; `needs`: bytes of each
    /// rank of the job by its number, or empty.
    #[must_use]
    pub fn new(nodes: u32, order: Vec<Rank>, needs: Vec<u64>) -> Self {
        let most = order.iter().max().map_or(0, |&rank| rank as usize + 1);
        let mut places = vec![u32::MAX; most];
        (0..).zip(&order).for_each(|(place, &rank)| places[rank as usize] = place);
        let need = |rank: &Rank| needs.get(*rank as usize).copied().unwrap_or(0);
        Self {
            left: Left::new(order.iter().map(need)),
            order,
            needs,
            places,
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            passed: 0,
            halted: false,
            is_over: false,
        }
    }

    /// How many a node has that have not ended.
    #[must_use]
    pub fn count(&self, node: u32) -> u32 {
        self.nodes.get(node as usize).map_or(0, |node| node.has.len() as u32)
    }

    /// Whether a node was given this rank, which has not ended there.
    #[must_use]
    pub fn has(&self, node: u32, rank: Rank) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| node.has.contains(&rank))
    }

    /// Whether a rank has ended, or was done before.
    #[must_use]
    pub fn is_over(&self, rank: Rank) -> bool {
        let place = self.places.get(rank as usize).copied().unwrap_or(u32::MAX);
        !self.left.contains(place) && !self.nodes.iter().any(|node| node.has.contains(&rank))
    }

    /// How many have not been dealt out, or came back.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left.len()
    }

    /// What is to be done about it; in order.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Asks { node, count, idle, free, budget } => {
                let Some(node) = self.living(node) else { return };
                (node.asks, node.idle) = (count, idle.min(count));
                (node.free, node.budget) = (free, Some(budget));
            }
            Event::Ended { node, rank } => {
                if let Some(node) = self.living(node) {
                    node.has.remove(&rank);
                }
            }
            Event::Back { node, ranks } => self.back(node, &ranks),
            Event::Lost(node) => {
                let Some(node) = self.living(node) else { return };
                (node.is_lost, node.asks, node.idle) = (true, 0, 0);
                // It gives nothing back any more: others are told to.
                node.is_recalled = false;
                let had = std::mem::take(&mut node.has);
                self.take_back(had);
            }
            Event::Halt => {
                self.halted = true;
                for (number, node) in (0..).zip(&mut self.nodes) {
                    (node.asks, node.idle) = (0, 0);
                    if !node.has.is_empty() {
                        node.is_recalled = true;
                        let ranks = node.has.iter().copied().collect();
                        effects.push(Effect::Recall { node: number, ranks, all: true });
                    }
                }
            }
        }
        if !self.halted {
            self.deal(effects);
        }
        let none = self.nodes.iter().all(|node| node.has.is_empty());
        if !self.is_over && none && (self.left.is_empty() || self.halted) {
            self.is_over = true;
            effects.push(Effect::Over);
        }
    }

    fn living(&mut self, node: u32) -> Option<&mut Node> {
        self.nodes.get_mut(node as usize).filter(|node| !node.is_lost)
    }

    fn back(&mut self, number: u32, ranks: &[Rank]) {
        let Some(node) = self.living(number) else { return };
        node.is_recalled = false;
        node.has_begun_all = ranks.is_empty();
        let had: Vec<Rank> = ranks.iter().copied().filter(|rank| node.has.remove(rank)).collect();
        self.take_back(had);
    }

    fn take_back(&mut self, ranks: impl IntoIterator<Item = Rank>) {
        for rank in ranks {
            self.left.insert(self.places[rank as usize], self.need(rank));
        }
    }

    fn need(&self, rank: Rank) -> u64 {
        self.needs.get(rank as usize).copied().unwrap_or(0)
    }

    /// Gives to those that ask, in turns, while there is anything for them; then lets others give back.
    fn deal(&mut self, effects: &mut Vec<Effect>) {
        let living = || self.nodes.iter().filter(|node| !node.is_lost);
        // Before all have told it may be that another has more.
        let all_have_told = living().all(|node| node.budget.is_some());
        let largest = living().filter_map(|node| node.budget).max().filter(|_| all_have_told);
        let mut given = vec![vec![]; self.nodes.len()];
        // Who would only have them ready comes after those that would begin them.
        for is_idle in [true, false] {
            for (number, given) in given.iter_mut().enumerate() {
                while self.nodes[number].asks > 0 && (self.nodes[number].idle > 0 || !is_idle) {
                    let Some(place) = self.next_for(number, largest, given.is_empty()) else { break };
                    given.push(self.give(number, place));
                }
            }
        }
        let given = (0..).zip(given).filter(|(_, ranks)| !ranks.is_empty());
        effects.extend(given.map(|(node, ranks)| Effect::Give { node, ranks }));
        if let Some(idle) = self.nodes.iter().position(|node| node.idle > 0) {
            self.recall(idle, effects);
        }
    }

    fn give(&mut self, number: usize, place: u32) -> Rank {
        let rank = self.order[place as usize];
        self.left.remove(place);
        let need = self.need(rank);
        let node = &mut self.nodes[number];
        (node.asks, node.idle) = (node.asks - 1, node.idle.saturating_sub(1));
        node.free = node.free.saturating_sub(need);
        node.has.insert(rank);
        node.has_begun_all = false;
        rank
    }

    /// The place of the one that a node is to be given; `is_first`: it was given none just now.
    fn next_for(&mut self, number: usize, largest: Option<u64>, is_first: bool) -> Option<u32> {
        let node = &self.nodes[number];
        // What is larger than all budgets goes to the largest.
        let may = if node.budget == largest { u64::MAX } else { node.budget? };
        let first = self.left.first(0, may)?;
        if self.need(self.order[first as usize]) <= node.free {
            self.passed = 0;
            return Some(first);
        }
        // Nothing else runs here: it fits better nowhere.
        if is_first && node.has.is_empty() {
            return Some(first);
        }
        let most = PASSES * self.nodes.len() as u32;
        let other = self.left.first(first + 1, node.free.min(may)).filter(|_| self.passed < most);
        match other {
            Some(other) => {
                self.passed += 1;
                Some(other)
            }
            None if is_first => {
                self.passed = 0;
                Some(first)
            }
            None => None,
        }
    }

    /// Who has most that this node may run may not have begun all of it.
    fn recall(&mut self, idle: usize, effects: &mut Vec<Effect>) {
        if self.nodes.iter().any(|node| node.is_recalled) {
            return;
        }
        let of = |node: &Node| -> Vec<Rank> {
            // What does not fit there now either would go back and forth.
            let may = |rank: &Rank| self.need(*rank) <= self.nodes[idle].free;
            node.has.iter().copied().filter(may).collect()
        };
        let all = (0..).zip(&self.nodes).filter(|&(number, node)| number != idle && !node.has_begun_all);
        let most = all.map(|(number, node)| (of(node), number)).max_by_key(|(ranks, _)| ranks.len());
        if let Some((mut ranks, number)) = most.filter(|(ranks, _)| !ranks.is_empty()) {
            ranks.sort_unstable_by_key(|&rank| self.places[rank as usize]);
            self.nodes[number].is_recalled = true;
            effects.push(Effect::Recall { node: number as u32, ranks, all: false });
        }
    }
}

#[cfg(test)]
mod tests;
