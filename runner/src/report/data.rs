//! What the page is given: one object, columns where there are many of a kind.

use std::time::UNIX_EPOCH;

use serde::Serialize;

use super::Told;
use crate::history::{History, Sample};
use crate::residency::Activity;
use crate::stats::Stats;

/// Of the object.
const VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Page<'a> {
    bdrun_report: u32,
    line: &'a str,
    version: &'static str,
    /// Seconds since 1970.
    began: f64,
    stats: &'a Stats,
    history: Option<Columns>,
}

#[derive(Serialize)]
struct Columns {
    interval_s: f64,
    t: Vec<f64>,
    held: Vec<u64>,
    budget: Vec<u64>,
    running: Vec<u32>,
    resident: Vec<u32>,
    out: Vec<u32>,
    done: Vec<u32>,
    written: Vec<u64>,
    read: Vec<u64>,
    /// The names of what a rank does.
    states: [Activity; Activity::ALL.len()],
    /// Of each rank, one behind the other: from, to, and the number of the name.
    ranks: Vec<Vec<f64>>,
    notes: Vec<(f64, String)>,
}

impl<'a> Page<'a> {
    pub fn of(told: &Told<'a>) -> Self {
        let Told { line, began, stats, history } = *told;
        Self {
            bdrun_report: VERSION,
            line,
            version: env!("CARGO_PKG_VERSION"),
            began: began.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            stats,
            history: history.map(|history| Columns::of(history, stats)),
        }
    }
}

impl Columns {
    fn of(history: &History, stats: &Stats) -> Self {
        let samples = history.series.samples();
        fn column<T>(samples: &[Sample], of: impl Fn(&Sample) -> T) -> Vec<T> {
            samples.iter().map(of).collect()
        }
        let lane = |rank| {
            let spans = history.lanes.of(rank, stats.wall_s);
            spans.flat_map(|span| [short(span.from), short(span.to), number(span.activity)]).collect()
        };
        Self {
            interval_s: history.series.interval(),
            t: column(samples, |s| short(s.t)),
            held: column(samples, |s| s.held),
            budget: column(samples, |s| s.budget),
            running: column(samples, |s| s.running),
            resident: column(samples, |s| s.resident),
            out: column(samples, |s| s.out),
            done: column(samples, |s| s.done),
            written: column(samples, |s| s.written),
            read: column(samples, |s| s.read),
            states: Activity::ALL,
            ranks: (0..stats.np).map(lane).collect(),
            notes: history.notes().iter().map(|(t, text)| (short(*t), text.clone())).collect(),
        }
    }
}

/// As exact as a picture can be: a tenth of a millisecond.
fn short(seconds: f64) -> f64 {
    (seconds * 1e4).round() / 1e4
}

fn number(activity: Activity) -> f64 {
    Activity::ALL.iter().position(|other| *other == activity).map_or(0.0, |at| at as f64)
}
