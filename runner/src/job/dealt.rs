//! Ranks that are dealt out over several nodes: the job's side of [`crate::nodes::deal`]. Each node's core
//! knows all of them, as over, until they are given to it. The first node's master says who is, and writes
//! down how they end (`--journal`, `--joblog`, `--learn`, `--halt`).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::elsewhere::Elsewhere;
use super::setup::Setup;
use super::{Job, watch};
use crate::cli::Options;
use crate::exit::Ending;
use crate::journal::{Done, Ended};
use crate::nodes::Word;
use crate::nodes::deal::{Dealer, Effect, Event as News};
use crate::residency::{Can, Core, Event, Next, Rank};
use crate::supervisor::EscalationEvent;

/// As many as have ended in such a time are had ready: longer than a word and its answer take.
const READY: Duration = Duration::from_millis(100);

/// See the module's text.
pub(super) struct Dealt {
    node: u32,
    nodes: u32,
    /// By the first.
    dealer: Option<Dealer>,
    /// Given to this node; not ended, nor given back.
    has: BTreeSet<Rank>,
    /// What ranks of this job are known to need, bytes.
    known: HashMap<Rank, u64>,
    /// What was asked for and is not given: how many, and how many of these would be begun at once.
    asked: [u32; 2],
    /// Since when how many have ended here, and how many had in the time before that.
    ended: (Instant, [u32; 2]),
    /// What the first says to itself.
    own: VecDeque<Word>,
    /// Nobody is given anything any more.
    is_over: bool,
}

impl Dealt {
    /// Of the master of a node, of whose job these are done before.
    pub fn new(options: &Options, setup: &Setup, done: &[Done], elsewhere: &Elsewhere) -> Self {
        let nodes = elsewhere.count();
        Self {
            node: elsewhere.node(),
            nodes,
            dealer: elsewhere.is_first().then(|| dealer(options, setup, done, nodes)),
            has: BTreeSet::new(),
            known: setup.known.informed.known.iter().copied().collect(),
            asked: [0; 2],
            ended: (Instant::now(), [0; 2]),
            own: VecDeque::new(),
            is_over: false,
        }
    }

    /// How many were given to somebody and have not ended, as far as the first knows.
    pub fn given(&self) -> u32 {
        let of = |dealer: &Dealer| (0..self.nodes).map(|node| dealer.count(node)).sum();
        self.dealer.as_ref().map_or(self.has.len() as u32, of)
    }

    /// Whether a rank was given to this node and has not ended.
    pub fn has(&self, rank: Rank) -> bool {
        self.has.contains(&rank)
    }

    /// How many are to be ready: those that end while a word is on its way.
    fn ready(&mut self) -> u32 {
        if self.ended.0.elapsed() >= READY {
            self.ended = (Instant::now(), [0, self.ended.1[0]]);
        }
        self.ended.1[0].max(self.ended.1[1]).max(1)
    }
}

/// In the order in which one node would begin them.
fn dealer(options: &Options, setup: &Setup, done: &[Done], nodes: u32) -> Dealer {
    let known = &setup.known.informed;
    let ranks = watch::independent(options, &setup.launch, Can::PROGRAM);
    let mut core = Core::new(setup.limits, &ranks).informed(known);
    for &Done { rank, peak } in done {
        core.was_done_before(rank, peak);
    }
    let order = core.line();
    let mut needs = vec![0; ranks.len()];
    for &rank in &order {
        needs[rank as usize] = match (core.expects(rank).1, ranks[rank as usize].1) {
            (Some(learned), _) => learned,
            (None, Some(size)) if size > 0 => core.expects(rank).0,
            _ => 0,
        };
    }
    for &(rank, bytes) in &known.known {
        if let Some(need) = needs.get_mut(rank as usize) {
            *need = bytes;
        }
    }
    Dealer::new(nodes, order, needs)
}

impl Job<'_> {
    /// What the first has said to itself is heard, and ranks are asked for if more could be begun here.
    pub(super) fn ask_for_parts(&mut self) {
        self.hear_own_words();
        let Some(dealt) = &mut self.dealt else { return };
        if dealt.is_over || self.ending.is_some() || self.halted {
            return;
        }
        let (counts, limits) = (self.core.counts(), self.core.limits());
        let begun = self.setup.launch.np() - counts.exited - counts.unborn;
        let places = limits.processors.min(limits.alive).saturating_sub(begun);
        let idle = if counts.unborn == 0 && self.core.has_room() { places } else { 0 };
        let count = dealt.ready().max(idle).saturating_sub(counts.unborn);
        let [asked, asked_idle] = dealt.asked;
        if count > asked || idle > asked_idle {
            dealt.asked = [count.max(asked), idle];
            let (free, budget) = (self.core.free_bytes(), limits.budget);
            self.say_of_parts(0, Word::Asks { count: count.max(asked), idle, free, budget });
            self.hear_own_words();
        }
    }

    /// A rank has ended for good, and failed if that is why: whether it is for this master to say what
    /// follows.
    pub(super) fn rank_is_over(&mut self, rank: Rank, failed: Option<&Ending>) -> bool {
        let Some(dealt) = &mut self.dealt else { return true };
        dealt.has.remove(&rank);
        dealt.ended.1[0] += 1;
        if dealt.dealer.is_some() {
            self.deal(News::Ended { node: 0, rank });
            return true;
        }
        self.say_of_parts(0, Word::Over { rank, failed: failed.cloned() });
        false
    }

    /// A try of a rank has ended here: it is written down.
    pub(super) fn try_has_ended(&mut self, rank: Rank, ended: Ended) {
        if self.dealt.as_ref().is_some_and(|dealt| dealt.dealer.is_none()) {
            self.say_of_parts(0, Word::Tried { rank, ended });
        } else {
            self.journal.ended(&self.setup.launch, rank, ended, None);
        }
    }

    /// By the first: no other is begun on any node.
    pub(super) fn deal_no_more(&mut self) {
        self.deal(News::Halt);
        self.hear_own_words();
    }

    /// How many of all have ended, as the first knows it.
    pub(super) fn parts_over(&self) -> u32 {
        self.ended.tally.earlier + self.well + self.failures
    }

    /// A node is lost.
    pub(super) fn lose_node(&mut self, node: u32, why: &str) {
        let Some(dealt) = &self.dealt else { return };
        let Some(dealer) = &dealt.dealer else { return };
        let had = dealer.count(node);
        self.note(&format!("{why}; what it had of the parts, {had} of them, others run"));
        self.deal(News::Lost(node));
    }

    /// What the first has said to itself.
    fn hear_own_words(&mut self) {
        while let Some(word) = self.dealt.as_mut().and_then(|dealt| dealt.own.pop_front()) {
            self.hear_of_parts(0, word);
        }
    }

    /// A master says this.
    pub(super) fn hear_of_parts(&mut self, node: u32, word: Word) {
        match word {
            Word::Asks { count, idle, free, budget } => {
                self.deal(News::Asks { node, count, idle, free, budget });
            }
            Word::Back(ranks) => self.deal(News::Back { node, ranks }),
            Word::Yours(ranks) => self.take_parts(&ranks),
            Word::Recall { ranks, all } => self.give_back(&ranks, all),
            Word::Tried { rank, ended } => {
                let host = self.elsewhere.as_ref().map(|elsewhere| elsewhere.host(node));
                self.journal.ended(&self.setup.launch, rank, ended, host);
            }
            Word::Over { rank, failed } => {
                self.deal(News::Ended { node, rank });
                match failed {
                    None => self.count_well(rank),
                    Some(failed) => {
                        let host = self.elsewhere.as_ref().map_or("", |elsewhere| elsewhere.host(node));
                        self.count_failure(rank, failed.on_node(&format!("node {node} ({host})")));
                    }
                }
            }
            // Heard elsewhere.
            Word::Asked { .. } | Word::Answer { .. } => {}
            Word::AllOver { now: true } => {
                self.ending.get_or_insert(Ending::Success);
                self.escalate(EscalationEvent::End);
            }
            Word::AllOver { now: false } => {
                if let Some(dealt) = &mut self.dealt {
                    dealt.is_over = true;
                }
                let ranks = self.np();
                self.events.push(Event::Came { ranks, more: false });
            }
        }
    }

    /// Says this to the master of a node. The first hears its own words before it looks for others'.
    fn say_of_parts(&mut self, node: u32, word: Word) {
        let Some(dealt) = &mut self.dealt else { return };
        if node == dealt.node {
            dealt.own.push_back(word);
        } else if let Some(elsewhere) = &self.elsewhere {
            elsewhere.say(node, word);
        }
    }

    fn deal(&mut self, news: News) {
        let mut effects = Vec::new();
        if let Some(dealer) = self.dealt.as_mut().and_then(|dealt| dealt.dealer.as_mut()) {
            dealer.handle(news, &mut effects);
        }
        for effect in effects {
            match effect {
                Effect::Give { node, ranks } => self.say_of_parts(node, Word::Yours(ranks)),
                Effect::Recall { node, ranks, all } => {
                    self.say_of_parts(node, Word::Recall { ranks, all });
                }
                Effect::Over => {
                    let nodes = self.dealt.as_ref().map_or(0, |dealt| dealt.nodes);
                    (0..nodes).for_each(|node| self.say_of_parts(node, Word::AllOver { now: false }));
                }
            }
        }
    }

    /// By the first: the job ends well, though not all have ended. Of other ends all nodes are told alike.
    pub(super) fn end_well_elsewhere(&mut self) {
        let nodes = self.dealt.as_ref().map_or(0, |dealt| dealt.nodes);
        (1..nodes).for_each(|node| self.say_of_parts(node, Word::AllOver { now: true }));
    }

    /// These are to be run here.
    fn take_parts(&mut self, ranks: &[Rank]) {
        let Some(dealt) = &mut self.dealt else { return };
        dealt.asked = dealt.asked.map(|asked| asked.saturating_sub(ranks.len() as u32));
        for &rank in ranks {
            dealt.has.insert(rank);
            let declared = self.setup.launch.declared(rank).unwrap_or(0);
            let known = dealt.known.get(&rank).copied().unwrap_or(0);
            self.events.push(Event::Given { rank, declared, known });
        }
    }

    /// What of these was not begun goes back to the first, or the later half of it.
    fn give_back(&mut self, ranks: &[Rank], all: bool) {
        let mut back = Vec::new();
        if all {
            // Before the end that is the reason: another would be begun in the place of who has ended.
            self.halted = true;
            self.events.insert(0, Event::Halt);
            back = self.begin_no_delayed();
        } else {
            // What was given just now may begin.
            self.schedule();
        }
        let Some(dealt) = &mut self.dealt else { return };
        let is_new = |rank: &Rank| self.ranks.get(*rank).is_none_or(|record| record.born.is_none());
        let waits = |rank: &Rank| dealt.has.contains(rank) && self.core.activity(*rank).is_none();
        let unbegun: Vec<Rank> =
            ranks.iter().copied().filter(|rank| waits(rank) && (all || is_new(rank))).collect();
        let keep = if all { 0 } else { unbegun.len() / 2 };
        back.extend(&unbegun[keep..]);
        for &rank in &back {
            dealt.has.remove(&rank);
            if !self.core.was_done_before(rank, 0) {
                self.events.push(Event::Exited { rank, peak: 0, next: Next::Over });
            }
            self.ranks.remove(rank);
        }
        self.say_of_parts(0, Word::Back(back));
    }
}
