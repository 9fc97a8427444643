//! Dealers and the nodes they deal to, with words under way and nodes that die.

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
                let unbegun: Vec<Rank> = ranks.into_iter().filter(|rank| node.waits.contains(rank)).collect();
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

/// However many stand before it in the order that need more than a node has.
#[test]
fn a_small_node_is_given_what_it_can_hold() {
    let needs = [vec![40; 300], vec![1; 100]].concat();
    let mut dealer = Dealer::new(2, (0..400).collect(), needs);
    let mut effects = vec![];
    dealer.handle(Event::Asks { node: 1, count: 2, idle: 2, free: 32, budget: 32 }, &mut effects);
    assert_eq!(effects, [Effect::Give { node: 1, ranks: vec![300, 301] }]);
    assert_eq!((dealer.left(), dealer.has(1, 300), dealer.has(0, 300)), (398, true, false));
    effects.clear();
    // The same of what passes one that does not fit beside what runs.
    dealer.handle(Event::Asks { node: 0, count: 1, idle: 1, free: 50, budget: 50 }, &mut effects);
    dealer.handle(Event::Asks { node: 0, count: 1, idle: 1, free: 10, budget: 50 }, &mut effects);
    let give = |rank| Effect::Give { node: 0, ranks: vec![rank] };
    assert_eq!(effects, [give(0), give(302)]);
}

/// What has ended well is run by nobody again, also if its node is lost thereafter.
#[test]
fn what_has_ended_is_not_dealt_anew_after_a_loss() {
    let mut dealer = Dealer::new(2, vec![0, 1], vec![]);
    let mut effects = vec![];
    let mut tell = |dealer: &mut Dealer, event| {
        dealer.handle(event, &mut effects);
        std::mem::take(&mut effects)
    };
    let asks = |node| Event::Asks { node, count: 2, idle: 2, free: 50, budget: 50 };
    assert_eq!(tell(&mut dealer, asks(1)), [Effect::Give { node: 1, ranks: vec![0, 1] }]);
    assert_eq!(tell(&mut dealer, Event::Ended { node: 1, rank: 0 }), []);
    assert_eq!((dealer.has(1, 0), dealer.has(1, 1)), (false, true));
    assert_eq!(tell(&mut dealer, Event::Lost(1)), []);
    assert_eq!(tell(&mut dealer, asks(0)), [Effect::Give { node: 0, ranks: vec![1] }]);
}

/// Who is lost before it has answered is not waited for.
#[test]
fn what_others_have_not_begun_is_dealt_anew_also_after_a_loss() {
    let mut dealer = Dealer::new(3, (0..6).collect(), vec![]);
    let mut effects = vec![];
    let mut tell = |event| {
        dealer.handle(event, &mut effects);
        std::mem::take(&mut effects)
    };
    let asks = |node, count, idle| Event::Asks { node, count, idle, free: 50, budget: 50 };
    assert_eq!(tell(asks(1, 3, 1)), [Effect::Give { node: 1, ranks: vec![0, 1, 2] }]);
    assert_eq!(tell(asks(2, 2, 1)), [Effect::Give { node: 2, ranks: vec![3, 4] }]);
    assert_eq!(tell(asks(0, 1, 1)), [Effect::Give { node: 0, ranks: vec![5] }]);
    assert_eq!(tell(Event::Ended { node: 0, rank: 5 }), []);
    let recall = |node, ranks| [Effect::Recall { node, ranks, all: false }];
    assert_eq!(tell(asks(0, 1, 1)), recall(1, vec![0, 1, 2]));
    assert_eq!(tell(Event::Lost(1)), [Effect::Give { node: 0, ranks: vec![0] }]);
    assert_eq!(tell(asks(0, 2, 2)), [Effect::Give { node: 0, ranks: vec![1, 2] }]);
    assert_eq!(tell(asks(0, 1, 1)), recall(2, vec![3, 4]));
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

#[test]
fn who_is_over_is_known() {
    // Of four ranks the first was done before.
    let mut dealer = Dealer::new(2, vec![3, 1, 2], vec![]);
    let mut effects = vec![];
    let over = |dealer: &Dealer| (0..5).filter(|&rank| dealer.is_over(rank)).collect::<Vec<Rank>>();
    assert_eq!(over(&dealer), [0, 4]);
    dealer.handle(Event::Asks { node: 1, count: 2, idle: 2, free: 9, budget: 9 }, &mut effects);
    assert_eq!(over(&dealer), [0, 4], "two of them run");
    dealer.handle(Event::Ended { node: 1, rank: 1 }, &mut effects);
    assert_eq!(over(&dealer), [0, 1, 4]);
    dealer.handle(Event::Lost(1), &mut effects);
    assert_eq!(over(&dealer), [0, 1, 4], "it runs anew");
}
