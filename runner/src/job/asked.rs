//! What the job answers to whoever looks at it (`bdrun top`, `bdrun explain`).

use std::cmp::Reverse;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use bdrun_ipc::pool::bytes_in;

use super::Job;
use super::ended;
use super::record::Record;
use crate::attach::{About, Answer, Asked, Limits, OVER, RankNow, TOLD};
use crate::nodes::Word;
use crate::residency::Activity;

/// How long the masters of other nodes may take to answer: whoever asked waits for that.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many are told of that have not begun, the first in line.
const NEXT: usize = 8;

/// A question to which other nodes have answers too.
struct Question {
    id: u64,
    about: About,
    reply: SyncSender<Answer>,
    answer: Answer,
    /// How many have not answered.
    left: u32,
    until: Instant,
}

/// Questions that are not answered yet.
#[derive(Default)]
pub(super) struct Questions {
    open: Vec<Question>,
    asked: u64,
}

impl Job<'_> {
    /// Answers, once the other nodes have. Whoever asked may have gone meanwhile.
    pub(super) fn answer(&mut self, asked: &Asked) {
        let (about, reply) = (asked.question.about, asked.reply.clone());
        let answer = self.answer_of_this_node(about);
        let id = self.questions.asked;
        self.questions.asked += 1;
        let mut left = 0;
        if let Some(elsewhere) = &self.elsewhere {
            left = elsewhere.count() - 1;
            elsewhere.say_to_all(&Word::Asked { id, about });
        }
        let until = Instant::now() + PATIENCE;
        self.questions.open.push(Question { id, about, reply, answer, left, until });
        self.reply();
    }

    /// The master of another node asks.
    pub(super) fn answer_node(&mut self, node: u32, id: u64, about: About) {
        // Numbers and texts: nothing that cannot be written.
        let answer = serde_json::to_vec(&self.answer_of_this_node(about)).unwrap_or_default();
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.say(node, Word::Answer { id, answer });
        }
    }

    /// It answers.
    pub(super) fn node_answers(&mut self, id: u64, answer: &[u8]) {
        if let Some(question) = self.questions.open.iter_mut().find(|question| question.id == id) {
            question.left = question.left.saturating_sub(1);
            question.answer.others.extend(serde_json::from_slice::<Answer>(answer));
        }
        self.reply();
    }

    /// Tells whoever asked what is known by now, if all have answered or others take too long.
    pub(super) fn reply(&mut self) {
        let now = Instant::now();
        let is_due = |question: &Question| question.left == 0 || question.until <= now;
        let (due, open) = std::mem::take(&mut self.questions.open).into_iter().partition(is_due);
        self.questions.open = open;
        for Question { about: About { rank, .. }, reply, mut answer, .. } in due {
            answer.others.sort_by_key(|other| other.node.as_ref().map(|node| node.0));
            if let Some(rank) = rank {
                let nobody =
                    answer.ranks.is_empty() && answer.others.iter().all(|other| other.ranks.is_empty());
                // Of one that no node has begun.
                answer.ranks.extend((nobody && rank < self.np()).then(|| self.rank_now(rank)));
                answer.of_who_knows_most();
            }
            let _ = reply.try_send(answer);
        }
    }

    /// Whether a rank is this node's, or was; or has ended where nothing of it is kept, for all that the
    /// first node knows.
    fn is_here(&self, rank: u32) -> bool {
        match &self.dealt {
            Some(dealt) => dealt.has(rank) || dealt.is_over(rank) || self.ended.get(rank).is_some(),
            None => !self.setup.segment.is_spread() || self.setup.segment.here().contains(&rank),
        }
    }

    fn answer_of_this_node(&mut self, about: About) -> Answer {
        let snapshot = self.snapshot();
        let np = self.np();
        let (ranks, more) = match about {
            About { rank: Some(rank), .. } if rank < np && self.is_here(rank) => {
                (vec![self.rank_now(rank)], 0)
            }
            About { rank: Some(_), .. } => (Vec::new(), 0),
            About { waiting, .. } => {
                let (ranks, all) = if waiting { self.those_that_wait() } else { self.those_that_live() };
                let more = u32::try_from(all - ranks.len()).unwrap_or(u32::MAX);
                (ranks.into_iter().map(|rank| self.lives_now(rank)).collect(), more)
            }
        };
        let limits = Limits {
            budget: snapshot.budget_bytes,
            used: snapshot.held_bytes.saturating_sub(self.kept_free),
            resident: self.setup.limits.resident,
            processors: self.setup.limits.processors,
            jobs: self.options.jobs,
            np,
        };
        let node = self.elsewhere.as_ref().map(|elsewhere| {
            let node = elsewhere.node();
            (node, elsewhere.host(node).to_owned())
        });
        Answer {
            line: self.options.line_for_the_shell(),
            elapsed_s: snapshot.elapsed_s,
            now: snapshot.to_string(),
            limits,
            ranks,
            more,
            node,
            others: Vec::new(),
        }
    }

    /// Those that hold most of those that live, and how many live.
    fn those_that_live(&self) -> (Vec<u32>, usize) {
        let key = |rank| {
            let (held, out) = self.holds(rank);
            (Reverse(held), Reverse(out), rank)
        };
        let mut living: Vec<_> = self.living().map(key).collect();
        living.sort_unstable();
        let all = living.len();
        (living.into_iter().take(TOLD).map(|(.., rank)| rank).collect(), all)
    }

    /// Those that do not run, first those that something of ours keeps from it; and of those that have not
    /// begun the first. How many there are of all.
    fn those_that_wait(&self) -> (Vec<u32>, usize) {
        let stands = |rank| {
            let activity = self.activity(rank).filter(|&activity| activity != Activity::Running)?;
            Some((!self.core.is_kept(rank), activity, rank))
        };
        let mut living: Vec<_> = self.living().filter_map(stands).collect();
        living.sort_unstable();
        let left = self.dealt.as_ref().map_or(0, super::dealt::Dealt::left);
        let unborn = self.core.counts().unborn as usize + left as usize;
        let all = living.len() + self.delayed.len() + unborn;
        let living = living.into_iter().take(TOLD - 2 * NEXT).map(|(.., rank)| rank);
        let delayed = self.delayed.iter().take(NEXT).map(|&(rank, _)| rank);
        (living.chain(delayed).chain(self.core.next_to_begin(NEXT)).collect(), all)
    }

    /// Bytes that a rank has in RAM, and out of it.
    fn holds(&self, rank: u32) -> (u64, u64) {
        let block = self.setup.segment.rank(rank);
        let accounts = &self.watch.accounts;
        let (granted, asked) = (bytes_in(&block.granted), bytes_in(&block.held));
        let lends = if accounts.is_adopted(rank) { asked.saturating_sub(granted) } else { 0 };
        (granted.saturating_add(accounts.held_by(rank)), lends.saturating_add(accounts.out_of(rank).0))
    }

    /// How a rank is, whatever has become of it. Looks for it among all that have ended.
    fn rank_now(&self, rank: u32) -> RankNow {
        let Some(stats) = self.ended.get(rank) else { return self.lives_now(rank) };
        RankNow {
            rank,
            part: self.setup.launch.part(rank),
            status: Some(stats.status.clone()),
            activity: None,
            held: 0,
            out: 0,
            peak: stats.peak_bytes,
            lived_s: ended::lived(stats),
            doing: None,
            situation: None,
        }
    }

    /// The same of one that is not among those.
    fn lives_now(&self, rank: u32) -> RankNow {
        let block = self.setup.segment.rank(rank);
        let record = &self.ranks[rank as usize];
        let (held, out) = self.holds(rank);
        let delayed = self.delayed.iter().position(|&(other, _)| other == rank);
        // For the core it is being started.
        let activity = self.activity(rank).filter(|_| delayed.is_none());
        let status = record.status.clone().or_else(|| self.is_over(rank).then(|| OVER.into()));
        let doing = match (&status, activity) {
            (Some(_), _) => None,
            (None, Some(_)) => self.doing(rank),
            (None, None) => self.waits_to_begin(record, delayed),
        };
        RankNow {
            rank,
            part: self.setup.launch.part(rank),
            status,
            activity,
            held,
            out,
            peak: record.peak(block),
            lived_s: record.process.map_or_else(
                || record.born.map_or(0.0, |born| born.elapsed().as_secs_f64()),
                |process| process.end - process.start,
            ),
            doing,
            situation: self.core.situation(rank).filter(|_| delayed.is_none()),
        }
    }

    /// Whether a rank has ended of which nothing is kept.
    fn is_over(&self, rank: u32) -> bool {
        match &self.dealt {
            Some(dealt) => dealt.is_over(rank),
            // Those of other nodes are over for this one.
            None => self.is_here(rank) && self.core.is_over(rank),
        }
    }

    /// What one waits for that has not begun, or not again, as far as the core does not know; `delayed`: so
    /// many begin before it that are to begin.
    fn waits_to_begin(&self, record: &Record, delayed: Option<usize>) -> Option<String> {
        let before = match &record.retried {
            Some((how, _)) => format!("has failed ({how}), and is to be run again"),
            None if record.nth > 0 => "was stopped to make room, and is to be run again".into(),
            None => "has not begun".into(),
        };
        Some(match delayed {
            None => before,
            Some(_) if !self.may_begin() => format!("{before}: a word of the first node is waited for"),
            Some(0) => format!("{before}: it waits for its time (--delay)"),
            Some(ahead) => format!("{before}: it waits for its time (--delay), {ahead} before it"),
        })
    }
}
