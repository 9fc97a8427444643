//! Looking at a job that runs: `bdrun top` and `bdrun explain`.
//!
//! A master listens on a socket without a file (Linux's abstract names, `@bdrun/UID/PID`), so that nothing is
//! left of it whatever ends it. A question is one line of JSON, the answer another, and then it is closed.
//! Only its own user and root are answered.
//!
//! | file | what |
//! |---|---|
//! | `server.rs` | the thread that listens, and hands questions to the job |
//! | `client.rs` | finds jobs, asks, and shows what is answered |
//! | `words.rs` | pure: why a rank waits, in sentences |

mod client;
mod server;
mod words;

use serde::{Deserialize, Serialize};

use crate::residency::{Activity, Situation};

pub use client::run;
pub use server::{Asked, Server};

/// Of what is asked and answered.
const VERSION: u32 = 2;

/// So many ranks are told of at once, at most.
pub const TOLD: usize = 200;

/// In the place of how a rank ended, where nothing is kept of that.
pub const OVER: &str = "over";

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The version of both.
    pub version: u32,
    /// What.
    #[serde(flatten)]
    pub about: About,
}

/// Whom a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Only this rank; else all that live, those that hold most first.
    pub rank: Option<u32>,
    /// Instead of those: all that do not run, and of those that have not begun the first.
    pub waiting: bool,
}

/// The answer: how the job is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The command line.
    pub line: String,
    /// Seconds since it began.
    pub elapsed_s: f64,
    /// The live line.
    pub now: String,
    /// What it may use.
    pub limits: Limits,
    /// Ranks, as far as they were asked for.
    pub ranks: Vec<RankNow>,
    /// How many others there are of those that were asked for.
    pub more: u32,
    /// Which node this is, of several, and what its machine is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<(u32, String)>,
    /// What other nodes answer, as far as they did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Answer>,
}

impl Answer {
    /// Of a rank that was asked for: who only knows that it is over keeps still if another knows more.
    pub fn of_who_knows_most(&mut self) {
        let knows = |rank: &RankNow| rank.status.as_deref() != Some(OVER);
        if self.nodes().any(|node| node.ranks.iter().any(knows)) {
            self.ranks.retain(knows);
            self.others.iter_mut().for_each(|other| other.ranks.retain(knows));
        }
    }

    /// The answers of all nodes.
    fn nodes(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }
}

/// What a job may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes for all ranks together.
    pub budget: u64,
    /// Bytes of them that are used.
    pub used: u64,
    /// Places in RAM.
    pub resident: u32,
    /// Processors.
    pub processors: u32,
    /// Of `-j`, if that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Ranks.
    pub np: u32,
}

/// A rank at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankNow {
    /// Its number.
    pub rank: u32,
    /// Its part.
    pub part: Option<String>,
    /// How it ended, if it has; [`OVER`] where that is not kept.
    pub status: Option<String>,
    /// What it does; none of one that does not live.
    pub activity: Option<Activity>,
    /// Bytes in RAM, bytes out of it, and the most it held so far.
    pub held: u64,
    /// Bytes out of RAM.
    pub out: u64,
    /// The most it held so far, bytes.
    pub peak: u64,
    /// Seconds since it began.
    pub lived_s: f64,
    /// What it does in its own words, if it tells; of one that is to begin, what it waits for.
    pub doing: Option<String>,
    /// Why it does not run.
    pub situation: Option<Situation>,
}
