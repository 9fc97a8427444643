//! Ranks that are dealt out over several nodes: the job's side of [`crate::nodes::deal`]. Each node's core
//! knows all of them, as over, until they are given to it. The first node's master says who is, and writes
//! down how they end (`--journal`, `--joblog`, `--learn`, `--halt`).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::elsewhere::Elsewhere;
use super::record::Record;
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

    /// Whether the first knows that a rank has ended, wherever that was.
    pub fn is_over(&self, rank: Rank) -> bool {
        self.dealer.as_ref().is_some_and(|dealer| dealer.is_over(rank))
    }

    /// How many the first has given to nobody.
    pub fn left(&self) -> u32 {
        self.dealer.as_ref().map_or(0, Dealer::left)
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
    for &Done { rank, peak, .. } in done {
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

/// It was not begun here. (One that waits for its next try was: elsewhere its tries would count anew.)
fn is_new(record: Option<&Record>) -> bool {
    record.is_none_or(|record| record.nth == 0)
}

/// Once nobody else is begun: who of these is over for the core, though nobody has said so. It was to be
/// begun anew, and was still on its way to its end when that was decided.
fn begun_no_more(has: &BTreeSet<Rank>, core: &Core) -> Vec<Rank> {
    has.iter().copied().filter(|&rank| core.activity(rank).is_none()).collect()
}

/// Who has ended for good by what a node says, and why it failed if it did. That one has ended well is said
/// twice: once it is written down nobody is to run it again, also if the node is lost before it says more.
fn has_ended(word: &Word) -> Option<(Rank, Option<&Ending>)> {
    match word {
        Word::Tried { rank, ended } if ended.exit == 0 && ended.signal == 0 && !ended.stopped => {
            Some((*rank, None))
        }
        Word::Over { rank, failed } => Some((*rank, failed.as_ref())),
        _ => None,
    }
}

impl Job<'_> {
    /// What the first has said to itself is heard, and ranks are asked for if more could be begun here.
    pub(super) fn ask_for_parts(&mut self) {
        self.hear_own_words();
        self.give_back_who_is_over();
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
        let over = has_ended(&word).map(|(rank, failed)| (rank, failed.cloned()));
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
                self.ended.tried(rank, ended);
            }
            // Below, or heard elsewhere.
            Word::Over { .. } | Word::Asked { .. } | Word::Answer { .. } => {}
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
        if let Some((rank, failed)) = over {
            self.has_ended_at(node, rank, failed);
        }
    }

    /// By the first: a rank has ended for good at another node. What is told a second time counts no more.
    fn has_ended_at(&mut self, node: u32, rank: Rank, failed: Option<Ending>) {
        let dealer = self.dealt.as_ref().and_then(|dealt| dealt.dealer.as_ref());
        if !dealer.is_some_and(|dealer| dealer.has(node, rank)) {
            return;
        }
        self.deal(News::Ended { node, rank });
        match failed {
            None => self.count_well(),
            Some(failed) => {
                let host = self.elsewhere.as_ref().map_or("", |elsewhere| elsewhere.host(node));
                self.count_failure(failed.on_node(&format!("node {node} ({host})")));
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
        let waits = |rank: &Rank| self.has_part(*rank) && self.core.activity(*rank).is_none();
        let may = |rank: &Rank| waits(rank) && (all || is_new(self.ranks.get(*rank)));
        let unbegun: Vec<Rank> = ranks.iter().copied().filter(may).collect();
        let keep = if all { 0 } else { unbegun.len() / 2 };
        back.extend(&unbegun[keep..]);
        let back = self.let_go(&back);
        self.say_of_parts(0, Word::Back(back));
    }

    /// Those of which it turned out only after a halt that they are begun no more.
    fn give_back_who_is_over(&mut self) {
        let Some(dealt) = self.dealt.as_ref().filter(|_| self.halted && self.ending.is_none()) else {
            return;
        };
        let over = begun_no_more(&dealt.has, &self.core);
        if over.is_empty() {
            return;
        }
        let back = self.let_go(&over);
        if !back.is_empty() {
            self.say_of_parts(0, Word::Back(back));
        }
        self.hear_own_words();
    }

    /// These are not begun here, or not again: which of them go back. Those that were to be run again because
    /// they have failed have failed for good.
    fn let_go(&mut self, ranks: &[Rank]) -> Vec<Rank> {
        let mut back = Vec::new();
        for &rank in ranks {
            if !self.core.was_done_before(rank, 0) {
                self.events.push(Event::Exited { rank, peak: 0, next: Next::Over });
            }
            let failed = self.ranks.get_mut(rank).and_then(|record| record.retried.take());
            if let Some((status, failed)) = failed {
                self.ranks[rank as usize].status = Some(status);
                if self.rank_is_over(rank, Some(&failed)) {
                    self.count_failure(failed);
                }
                self.retire(rank);
            } else {
                if let Some(dealt) = &mut self.dealt {
                    dealt.has.remove(&rank);
                }
                self.ranks.remove(rank);
                back.push(rank);
            }
        }
        back
    }

    fn has_part(&self, rank: Rank) -> bool {
        self.dealt.as_ref().is_some_and(|dealt| dealt.has(rank))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::residency::{Activity, Limits, Outcome};

    #[test]
    fn who_was_begun_once_is_not_new() {
        assert!(is_new(None) && is_new(Some(&Record::default())));
        // It waits for its next try.
        let tried = Record { nth: 1, born: None, ..Record::default() };
        assert!(!is_new(Some(&tried)));
    }

    /// Three have been begun, when the end of one that was to be run again comes together with the halt, and
    /// that of one that was stopped to make room after it.
    #[test]
    fn who_was_to_be_begun_anew_is_found_after_a_halt() {
        let limits = Limits {
            budget: 1 << 30,
            processors: 4,
            resident: 4,
            alive: 4,
            rank_limit: None,
            enforce: false,
            first_reserve: 0,
            moves: 1,
            part: 1,
            ahead: 0,
        };
        let mut core = Core::shared_out(limits, Can { rerun: true, ..Can::PROGRAM }, 5);
        let mut effects = Vec::new();
        let mut tell = |core: &mut Core, event| core.handle(event, &mut effects);
        tell(&mut core, Event::Pool { asked: 0, messages: 0, measured: 0, kept: 0 });
        let reaction = Duration::ZERO;
        tell(&mut core, Event::Looked { elapsed: Duration::ZERO, busy: 0.0, idle: 4.0, reaction });
        let has = BTreeSet::from([1, 2, 4]);
        for &rank in &has {
            tell(&mut core, Event::Given { rank, declared: 0, known: 1 << 20 });
            assert_eq!(core.activity(rank), Some(Activity::Starting));
            tell(&mut core, Event::Done { rank, outcome: Outcome::Started });
        }
        tell(&mut core, Event::Halt);
        assert_eq!(begun_no_more(&has, &core), [] as [Rank; 0]);
        tell(&mut core, Event::Exited { rank: 4, peak: 0, next: Next::Retry { least: 0 } });
        assert_eq!(begun_no_more(&has, &core), [4]);
        tell(&mut core, Event::Exited { rank: 1, peak: 0, next: Next::Stopped });
        assert_eq!(begun_no_more(&has, &core), [1, 4]);
    }

    /// What is written down as done is done, whether or not its node comes to say so again.
    #[test]
    fn who_has_ended_well_is_over_once_that_is_written_down() {
        let (began, lived, peak, file) = (SystemTime::UNIX_EPOCH, Duration::ZERO, 7, None);
        let tried = |exit, signal, stopped| Word::Tried {
            rank: 5,
            ended: Ended { exit, signal, stopped, began, lived, peak, file },
        };
        assert_eq!(has_ended(&tried(0, 0, false)), Some((5, None)));
        for other in [tried(3, 0, false), tried(0, 9, false), tried(0, 0, true), Word::Back(vec![5])] {
            assert_eq!(has_ended(&other), None, "{other:?}");
        }
        let failed = Ending::Internal("it failed".into());
        let over = |failed| Word::Over { rank: 5, failed };
        assert_eq!(has_ended(&over(Some(failed.clone()))), Some((5, Some(&failed))));
        assert_eq!(has_ended(&over(None)), Some((5, None)));
    }
}
