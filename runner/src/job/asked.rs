//! What the job answers to whoever looks at it (`bdrun top`, `bdrun explain`).

use std::cmp::Reverse;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use bdrun_ipc::pool::bytes_in;

use super::Job;
use super::ended;
use crate::attach::{Answer, Asked, Limits, RankNow, TOLD};
use crate::nodes::Word;

/// How long the masters of other nodes may take to answer: whoever asked waits for that.
const PATIENCE: Duration = Duration::from_secs(2);

/// A question to which other nodes have answers too.
struct Question {
    id: u64,
    rank: Option<u32>,
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
        let (rank, reply) = (asked.question.rank, asked.reply.clone());
        let answer = self.answer_of_this_node(rank);
        let id = self.questions.asked;
        self.questions.asked += 1;
        let mut left = 0;
        if let Some(elsewhere) = &self.elsewhere {
            left = elsewhere.count() - 1;
            elsewhere.say_to_all(&Word::Asked { id, rank });
        }
        let until = Instant::now() + PATIENCE;
        self.questions.open.push(Question { id, rank, reply, answer, left, until });
        self.reply();
    }

    /// The master of another node asks.
    pub(super) fn answer_node(&mut self, node: u32, id: u64, rank: Option<u32>) {
        // Numbers and texts: nothing that cannot be written.
        let answer = serde_json::to_vec(&self.answer_of_this_node(rank)).unwrap_or_default();
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
        for Question { rank, reply, mut answer, .. } in due {
            answer.others.sort_by_key(|other| other.node.as_ref().map(|node| node.0));
            let nobody = answer.ranks.is_empty() && answer.others.iter().all(|other| other.ranks.is_empty());
            // Of one that no node has begun.
            answer
                .ranks
                .extend(rank.filter(|&rank| nobody && rank < self.np()).map(|rank| self.rank_now(rank)));
            let _ = reply.try_send(answer);
        }
    }

    /// Whether a rank is this node's, or was.
    fn is_here(&self, rank: u32) -> bool {
        match &self.dealt {
            Some(dealt) => dealt.has(rank) || self.ended.get(rank).is_some(),
            None => !self.setup.segment.is_spread() || self.setup.segment.here().contains(&rank),
        }
    }

    fn answer_of_this_node(&mut self, rank: Option<u32>) -> Answer {
        let snapshot = self.snapshot();
        let np = self.np();
        let (ranks, more) = match rank {
            Some(rank) if rank < np && self.is_here(rank) => (vec![self.rank_now(rank)], 0),
            Some(_) => (Vec::new(), 0),
            None => {
                let mut ranks: Vec<RankNow> = self.living().map(|rank| self.rank_now(rank)).collect();
                ranks.sort_by_key(|rank| (Reverse(rank.held), Reverse(rank.out), rank.rank));
                let more = ranks.len().saturating_sub(TOLD);
                ranks.truncate(TOLD);
                (ranks, u32::try_from(more).unwrap_or(u32::MAX))
            }
        };
        let limits = Limits {
            budget: snapshot.budget_bytes,
            used: snapshot.held_bytes.saturating_sub(self.kept_free),
            resident: self.setup.limits.resident,
            processors: self.setup.limits.processors,
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

    fn rank_now(&self, rank: u32) -> RankNow {
        if let Some(stats) = self.ended.get(rank) {
            return RankNow {
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
            };
        }
        let block = self.setup.segment.rank(rank);
        let record = &self.ranks[rank as usize];
        let accounts = &self.watch.accounts;
        let (granted, asked) = (bytes_in(&block.granted), bytes_in(&block.held));
        let lends = if accounts.is_adopted(rank) { asked.saturating_sub(granted) } else { 0 };
        RankNow {
            rank,
            part: self.setup.launch.part(rank),
            status: record.status.clone(),
            activity: self.activity(rank),
            held: granted.saturating_add(accounts.held_by(rank)),
            out: lends.saturating_add(accounts.out_of(rank).0),
            peak: block.peak.load(SeqCst).max(record.most),
            lived_s: record.process.map_or_else(
                || record.born.map_or(0.0, |born| born.elapsed().as_secs_f64()),
                |process| process.end - process.start,
            ),
            doing: self.doing(rank).filter(|_| record.status.is_none()),
            situation: self.core.situation(rank),
        }
    }
}
