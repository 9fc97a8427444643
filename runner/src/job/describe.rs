//! What a rank is doing, in words for error messages.

use std::sync::atomic::Ordering::SeqCst;

use bdrun_ipc::collective::Comm;
use bdrun_ipc::critical;
use bdrun_ipc::segment::{Segment, Waiting};
use bdrun_ipc::state::State;

use super::Job;
use crate::units::Bytes;

/// How many ranks a deadlock message describes.
const DESCRIBED: usize = 3;

/// What a rank does or did last; `None` if it never attached and nothing is known.
pub(super) fn doing(segment: &Segment, rank: u32) -> Option<String> {
    let block = segment.rank(rank);
    if block.attached.load(SeqCst) == 0 {
        return None;
    }
    let of = |context: u32| if context == 0 { String::new() } else { format!(" on communicator {context}") };
    let word = block.word.load();
    let text = match block.waiting() {
        _ if word.runnable() => "waiting for its turn in memory".to_string(),
        Waiting::Nothing => "computing".to_string(),
        Waiting::Anything if critical::waits(segment, rank) => "waiting for the critical section".into(),
        Waiting::Anything => "waiting for one of several messages".into(),
        Waiting::Message { context, source, tag } => {
            let from = source.map_or("any rank".into(), |s| format!("rank {s}"));
            let tag = tag.map_or(String::new(), |t| format!(", tag {t}"));
            format!("waiting for a message from {from}{tag}{}", of(context))
        }
        Waiting::Collective { comm, number } => {
            let missing = Comm::at(segment, comm).map_or(0, |c| c.missing(segment, number));
            let context = Comm::at(segment, comm).map_or(0, |c| c.context(segment));
            format!("waiting in collective {number}{} for {missing} more ranks", of(context))
        }
        Waiting::Memory { bytes } => format!("waiting for {} of memory", Bytes(bytes)),
    };
    Some(match word.state() {
        State::Evicting => format!("{text}, being evicted"),
        State::Evicted => format!("{text}, evicted"),
        State::Restoring => format!("{text}, being restored"),
        _ => text,
    })
}

impl Job<'_> {
    /// For a deadlock: what some of the ranks wait for.
    pub(super) fn what_ranks_wait_for(&self) -> String {
        let segment = &self.setup.segment;
        let living = (0..segment.np())
            .filter(|&r| self.ranks[r as usize].pid.is_some() && self.ranks[r as usize].status.is_none());
        let some: Vec<String> = living
            .filter_map(|rank| doing(segment, rank).map(|d| format!("rank {rank} is {d}")))
            .take(DESCRIBED)
            .collect();
        some.join("; ")
    }
}
