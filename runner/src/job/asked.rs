//! What the job answers to whoever looks at it (`bdrun top`, `bdrun explain`).

use std::cmp::Reverse;
use std::sync::atomic::Ordering::SeqCst;

use bdrun_ipc::pool::bytes_in;

use super::Job;
use super::ended;
use crate::attach::{Answer, Asked, Limits, RankNow, TOLD};

impl Job<'_> {
    /// Answers. Whoever asked may have gone meanwhile.
    pub(super) fn answer(&mut self, asked: &Asked) {
        let snapshot = self.snapshot();
        let np = self.np();
        let (ranks, more) = match asked.question.rank {
            Some(rank) if rank < np => (vec![self.rank_now(rank)], 0),
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
        let answer = Answer {
            line: self.options.line_for_the_shell(),
            elapsed_s: snapshot.elapsed_s,
            now: snapshot.to_string(),
            limits,
            ranks,
            more,
        };
        let _ = asked.reply.try_send(answer);
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
