//! Which node runs which part of a job whose ranks need not each other: the first node's master deals them
//! out as others can begin them. Pure: `handle(event)` says what is to be done.
//!
//! A node asks when it has none left that it has not begun. It is given those that come next in the order in
//! which one node would begin them, as far as they fit beside what it runs. If the first does not, those
//! behind it may pass, but only [`PASSES`] for each node: then it goes to whoever asks next, and waits there
//! for the memory. One that needs more than the budget of some nodes goes to others.
//!
//! Who could begin more at once, and can be given nothing, gets what others have not begun: they are told to
//! give some of it back. What a lost node had goes to others, in its place in the order.

use std::collections::BTreeSet;

use crate::residency::Rank;

/// How many may pass the first that does not fit, for each node.
const PASSES: u32 = 16;
/// So many are looked through for one that fits.
const LOOKS: usize = 256;

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

impl Node {
    /// Whether its budget is enough for this need.
    fn may(&self, need: u64) -> bool {
        self.budget.is_some_and(|budget| need <= budget)
    }
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
    /// Of these places nobody has the rank.
    left: BTreeSet<u32>,
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
        Self {
            left: (0..order.len() as u32).collect(),
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

    /// How many have not been dealt out, or came back.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left.len() as u32
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
            self.left.insert(self.places[rank as usize]);
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
        self.left.remove(&place);
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
        let is_largest = node.budget == largest;
        let may = |place: &&u32| is_largest || node.may(self.need(self.order[**place as usize]));
        let fits = |place: &&u32| self.need(self.order[**place as usize]) <= node.free;
        let mut all = self.left.iter().take(LOOKS).filter(may);
        let first = all.next()?;
        if fits(&first) {
            self.passed = 0;
            return Some(*first);
        }
        // Nothing else runs here: it fits better nowhere.
        if is_first && node.has.is_empty() {
            return Some(*first);
        }
        let most = PASSES * self.nodes.len() as u32;
        let other = all.find(fits).filter(|_| self.passed < most);
        let first = *first;
        match other.copied() {
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
mod tests {
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    /// A node as the shell makes it of a dealer's effects: it begins what fits, in the order it was given.
    struct Runner {
        budget: u64,
        processors: u32,
        /// Not begun.
        waits: VecDeque<Rank>,
        running: BTreeSet<Rank>,
        free: u64,
        asked: u32,
        is_dead: bool,
    }

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Word {
        ToFirst(u32, Told),
        ToNode(u32, Told),
        Ends(u32, Rank),
        Dies(u32),
    }

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    enum Told {
        Asks(u32, u32, u64),
        Ended(Rank),
        Back(Vec<Rank>),
        Yours(Vec<Rank>),
        Recall(Vec<Rank>, bool),
        Over,
        Lost,
    }

    /// Time in µs; a word takes 100.
    const WAY: u64 = 100;

    struct World<'a> {
        parts: &'a [(u64, u64)],
        nodes: Vec<Runner>,
        dealer: Dealer,
        agenda: BinaryHeap<Reverse<(u64, u64, Word)>>,
        now: u64,
        count: u64,
        /// How often each has ended.
        ended: Vec<u32>,
        over: u32,
    }

    impl World<'_> {
        fn at(&mut self, time: u64, word: Word) {
            self.count += 1;
            self.agenda.push(Reverse((time, self.count, word)));
        }

        /// What a node does once something has changed.
        fn go_on(&mut self, number: u32) {
            let node = &mut self.nodes[number as usize];
            let mut begun = vec![];
            while let Some(&rank) = node.waits.front() {
                let need = self.parts[rank as usize].0.min(node.budget);
                if node.running.len() as u32 == node.processors || need > node.free {
                    break;
                }
                node.waits.pop_front();
                node.free -= need;
                assert!(node.running.insert(rank), "twice at once");
                begun.push(rank);
            }
            let idle = node.processors - node.running.len() as u32;
            let wants = if node.waits.is_empty() { idle.max(1) } else { 0 };
            let (free, asks) = (node.free, wants > node.asked);
            node.asked = node.asked.max(wants);
            if asks {
                self.at(self.now + WAY, Word::ToFirst(number, Told::Asks(wants, idle, free)));
            }
            for rank in begun {
                self.at(self.now + self.parts[rank as usize].1, Word::Ends(number, rank));
            }
        }

        fn deal(&mut self, event: Event) {
            let mut effects = vec![];
            self.dealer.handle(event, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Give { node, ranks } => {
                        assert!(!ranks.is_empty());
                        self.at(self.now + WAY, Word::ToNode(node, Told::Yours(ranks)));
                    }
                    Effect::Recall { node, ranks, all } => {
                        self.at(self.now + WAY, Word::ToNode(node, Told::Recall(ranks, all)));
                    }
                    Effect::Over => {
                        self.over += 1;
                        for node in 0..self.nodes.len() as u32 {
                            self.at(self.now + WAY, Word::ToNode(node, Told::Over));
                        }
                    }
                }
            }
        }

        fn hear(&mut self, number: u32, told: Told) {
            let node = &mut self.nodes[number as usize];
            if node.is_dead {
                return;
            }
            match told {
                Told::Yours(ranks) => {
                    node.asked = node.asked.saturating_sub(ranks.len() as u32);
                    node.waits.extend(ranks);
                }
                Told::Recall(ranks, all) => {
                    let unbegun: Vec<Rank> =
                        ranks.into_iter().filter(|rank| node.waits.contains(rank)).collect();
                    let keep = if all { 0 } else { unbegun.len() / 2 };
                    let back = unbegun[keep..].to_vec();
                    node.waits.retain(|rank| !back.contains(rank));
                    self.at(self.now + WAY, Word::ToFirst(number, Told::Back(back)));
                }
                _ => {}
            }
            self.go_on(number);
        }

        fn run(&mut self, until: u64) {
            for node in 0..self.nodes.len() as u32 {
                self.go_on(node);
            }
            while let Some(Reverse((time, _, word))) = self.agenda.pop() {
                assert!(self.count < 1_000_000, "it does not end");
                if time > until {
                    self.at(time, word);
                    return;
                }
                self.now = time;
                match word {
                    Word::ToFirst(node, Told::Asks(count, idle, free)) => {
                        let budget = self.nodes[node as usize].budget;
                        self.deal(Event::Asks { node, count, idle, free, budget });
                    }
                    Word::ToFirst(node, Told::Ended(rank)) => {
                        self.ended[rank as usize] += 1;
                        self.deal(Event::Ended { node, rank });
                    }
                    Word::ToFirst(node, Told::Back(ranks)) => self.deal(Event::Back { node, ranks }),
                    Word::ToFirst(node, Told::Lost) => self.deal(Event::Lost(node)),
                    Word::ToFirst(..) => {}
                    Word::ToNode(node, told) => self.hear(node, told),
                    Word::Ends(number, rank) => {
                        let node = &mut self.nodes[number as usize];
                        if node.is_dead {
                            continue;
                        }
                        assert!(node.running.remove(&rank));
                        node.free += self.parts[rank as usize].0.min(node.budget);
                        self.at(self.now + WAY, Word::ToFirst(number, Told::Ended(rank)));
                        self.go_on(number);
                    }
                    Word::Dies(number) => {
                        self.nodes[number as usize].is_dead = true;
                        self.at(self.now + 50 * WAY, Word::ToFirst(number, Told::Lost));
                    }
                }
            }
        }
    }

    fn world<'a>(parts: &'a [(u64, u64)], nodes: &[(u64, u32)], by_need: bool) -> World<'a> {
        let mut order: Vec<Rank> = (0..parts.len() as Rank).collect();
        if by_need {
            order.sort_by_key(|&rank| Reverse(parts[rank as usize].0));
        }
        let runner = |&(budget, processors): &(u64, u32)| Runner {
            budget,
            processors,
            waits: VecDeque::new(),
            running: BTreeSet::new(),
            free: budget,
            asked: 0,
            is_dead: false,
        };
        World {
            nodes: nodes.iter().map(runner).collect(),
            dealer: Dealer::new(nodes.len() as u32, order, parts.iter().map(|part| part.0).collect()),
            agenda: BinaryHeap::new(),
            now: 0,
            count: 0,
            ended: vec![0; parts.len()],
            over: 0,
            parts,
        }
    }

    proptest! {
        /// Whoever dies, and however large parts are: all are run, each once but for those of lost nodes, and
        /// that it is over is said once.
        #[test]
        fn all_parts_are_run(
            parts in proptest::collection::vec((0_u64..200, 1_u64..20_000), 0..120),
            nodes in proptest::collection::vec((50_u64..150, 1_u32..5), 1..9),
            deaths in proptest::collection::vec((0_u64..400_000, 1_u32..9), 0..6),
            by_need in any::<bool>(),
        ) {
            let mut world = world(&parts, &nodes, by_need);
            for &(time, node) in deaths.iter().filter(|(_, node)| (*node as usize) < nodes.len()) {
                world.at(time, Word::Dies(node));
            }
            world.run(u64::MAX);
            prop_assert_eq!(world.over, 1);
            let once = |ended: &u32| if deaths.is_empty() { *ended == 1 } else { *ended >= 1 };
            prop_assert!(world.ended.iter().all(once), "{:?}", world.ended);
            prop_assert!(world.nodes.iter().all(|node| node.is_dead || node.running.is_empty()));
        }

        /// Whenever it is halted: nobody is begun who had not been given before, and all else is heard of.
        #[test]
        fn a_halt_takes_back_what_was_not_begun(
            parts in proptest::collection::vec((0_u64..200, 1_u64..20_000), 0..80),
            nodes in proptest::collection::vec((50_u64..150, 1_u32..5), 1..6),
            at in 0_u64..200_000,
        ) {
            let mut world = world(&parts, &nodes, true);
            world.run(at);
            let begun: u32 = world.ended.iter().sum();
            let running: usize = world.nodes.iter().map(|node| node.running.len()).sum();
            let given: usize = (0..nodes.len() as u32).map(|node| world.dealer.count(node) as usize).sum();
            world.deal(Event::Halt);
            world.run(u64::MAX);
            prop_assert_eq!(world.over, 1);
            let ended: u32 = world.ended.iter().sum();
            prop_assert!(ended >= begun && ended as usize <= begun as usize + given.max(running));
            prop_assert!(world.nodes.iter().all(|node| node.running.is_empty() && node.waits.is_empty()));
        }

        /// No node is idle for long while another has parts that it has not begun.
        #[test]
        fn nodes_end_together(
            lengths in proptest::collection::vec(50_000_u64..200_000, 40..200),
            nodes in proptest::collection::vec(1_u32..5, 2..9),
        ) {
            let parts: Vec<_> = lengths.iter().map(|&length| (0, length)).collect();
            let nodes: Vec<_> = nodes.into_iter().map(|processors| (1, processors)).collect();
            let mut world = world(&parts, &nodes, false);
            world.run(u64::MAX);
            let processors: u64 = nodes.iter().map(|node| u64::from(node.1)).sum();
            // Graham's bound for any list, and what words take.
            let bound = lengths.iter().sum::<u64>() / processors + 200_000;
            let words = 4 * WAY * (lengths.len() as u64 / processors + 2);
            prop_assert!(world.now <= bound + words, "{} of {}", world.now, bound + words);
        }
    }

    #[test]
    fn what_one_node_cannot_hold_goes_to_one_that_can() {
        let mut dealer = Dealer::new(2, vec![0, 1, 2], vec![90, 10, 200]);
        let mut effects = vec![];
        let mut tell = |dealer: &mut Dealer, event| {
            dealer.handle(event, &mut effects);
            std::mem::take(&mut effects)
        };
        let asks = |node, free, budget| Event::Asks { node, count: 1, idle: 1, free, budget };
        assert_eq!(tell(&mut dealer, asks(0, 50, 50)), [Effect::Give { node: 0, ranks: vec![1] }]);
        // Nobody has told of a larger budget yet, nor has everybody told.
        assert_eq!(tell(&mut dealer, asks(0, 40, 50)), []);
        assert_eq!(tell(&mut dealer, asks(1, 100, 100)), [Effect::Give { node: 1, ranks: vec![0] }]);
        assert_eq!(tell(&mut dealer, Event::Ended { node: 1, rank: 0 }), []);
        // What is larger than all budgets goes to the largest.
        assert_eq!(tell(&mut dealer, asks(1, 100, 100)), [Effect::Give { node: 1, ranks: vec![2] }]);
        assert_eq!(tell(&mut dealer, Event::Ended { node: 0, rank: 1 }), []);
        assert_eq!(tell(&mut dealer, Event::Lost(1)), [Effect::Give { node: 0, ranks: vec![2] }]);
        assert_eq!(tell(&mut dealer, Event::Ended { node: 0, rank: 2 }), [Effect::Over]);
        assert_eq!(tell(&mut dealer, Event::Lost(0)), []);
    }

    /// A hundred nodes of eight processors, 20,000 parts.
    #[test]
    fn at_scale() {
        let parts: Vec<_> = (0..20_000_u64).map(|part| (1, 100_000 + part * 7919 % 100_000)).collect();
        let nodes = vec![(1 << 30, 8); 100];
        let mut world = world(&parts, &nodes, false);
        world.run(u64::MAX);
        assert!(world.ended.iter().all(|&ended| ended == 1));
        let work: u64 = parts.iter().map(|part| part.1).sum();
        assert!(world.now <= work / 800 + 250_000, "{} of {}", world.now, work / 800);
    }
}
