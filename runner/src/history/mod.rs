//! What happened when: memory, disk and ranks over the time of a job. Pure, and small however long the job
//! takes and however many ranks it has: what is old and short is told less exactly.
//!
//! | file | what |
//! |---|---|
//! | `series.rs` | numbers of the whole job, sampled |
//! | `lanes.rs` | what each rank did, from when to when |
//! | `legs.rs` | what ranks that tell did, wait by wait |
//! | `sizes.rs` | what ranks held that do not ask |

mod lanes;
mod legs;
mod series;
mod sizes;

pub use lanes::{Lanes, Span};
pub use legs::{Leg, Legs, On};
pub use series::{Sample, Series};
pub use sizes::Sizes;

use std::cell::{Ref, RefCell};

use serde::{Deserialize, Serialize};

use crate::residency::{Activity, Can, Limits, Rank};

/// Beside the samples and lanes so many notes are kept, the first.
const NOTES: usize = 200;

/// The history of a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct History {
    /// Numbers of the whole job.
    pub series: Series,
    /// What each rank did.
    pub lanes: Lanes,
    /// What those that tell did, wait by wait.
    pub legs: Legs,
    /// What those held that do not ask.
    pub sizes: Sizes,
    /// What the job may use, and what can be done with each rank at first; nothing before it begins.
    pub rules: Option<(Limits, Can)>,
    /// In a cell: who has something to say holds parts of the job.
    notes: RefCell<Vec<(f64, String)>>,
}

impl History {
    /// Of a job of so many ranks.
    #[must_use]
    pub fn new(np: u32) -> Self {
        Self {
            series: Series::new(np),
            lanes: Lanes::new(np),
            legs: Legs::new(np),
            sizes: Sizes::new(np),
            rules: None,
            notes: RefCell::default(),
        }
    }

    /// At `t` seconds a rank does this from now on; `None`: it does not live.
    pub fn rank(&mut self, t: f64, rank: Rank, activity: Option<Activity>) {
        self.lanes.set(t, rank, activity);
    }

    /// Something was said, `t` seconds after the beginning.
    pub fn note(&self, t: f64, text: &str) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < NOTES {
            notes.push((t, text.to_owned()));
        }
    }

    /// Adds that of another node of the job, which began so many seconds later there (by the clocks of the
    /// two machines). What they all may use together is not what one master decides by, so that is forgotten.
    pub fn join(&mut self, node: u32, later: f64, other: Self) {
        self.series.join(later, &other.series);
        self.lanes.join(later, other.lanes);
        self.legs.join(later, other.legs);
        self.sizes.join(later, other.sizes);
        self.rules = None;
        let notes = self.notes.get_mut();
        notes.extend(
            other.notes.take().into_iter().map(|(t, text)| (t + later, format!("node {node}: {text}"))),
        );
        notes.sort_by(|a, b| a.0.total_cmp(&b.0));
        notes.truncate(NOTES);
    }

    /// What was said, and when.
    #[must_use]
    pub fn notes(&self) -> Ref<'_, Vec<(f64, String)>> {
        self.notes.borrow()
    }
}
