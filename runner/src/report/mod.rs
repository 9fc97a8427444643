//! What a job did, in pictures: a page for people (`--report`), a trace for Perfetto (`--trace`).
//!
//! | file | what |
//! |---|---|
//! | `page.html` | the page, whole but for its data; it needs nothing from anywhere |
//! | `data.rs` | what the page is given |
//! | `trace.rs` | the events of a trace |

mod data;
mod trace;

use std::io::{self, Write};
use std::time::SystemTime;

use crate::history::History;
use crate::stats::Stats;

const PAGE: &str = include_str!("page.html");

/// The place of the data in the page.
const PLACE: &str = "@DATA@";

/// All that is told of a job.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The command line as it was given.
    pub line: &'a str,
    /// When the job began.
    pub began: SystemTime,
    /// Its account.
    pub stats: &'a Stats,
    /// What happened when; none if it never came to that.
    pub history: Option<&'a History>,
}

/// Writes the page.
///
/// # Errors
/// Those of `out`.
pub fn page(told: &Told<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (before, after) = PAGE.split_once(PLACE).unwrap_or((PAGE, ""));
    // In a page a text ends where `</script` begins; JSON has `<` only in texts.
    let data = serde_json::to_string(&data::Page::of(told))?.replace('<', "\\u003c");
    out.write_all(before.as_bytes())?;
    out.write_all(data.as_bytes())?;
    out.write_all(after.as_bytes())
}

/// Writes the trace: JSON, as ui.perfetto.dev and chrome://tracing read it.
///
/// # Errors
/// Those of `out`.
pub fn trace(told: &Told<'_>, out: &mut dyn Write) -> io::Result<()> {
    trace::write(told, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Sample;
    use crate::residency::Activity;
    use crate::stats::RankStats;

    fn told(of: impl FnOnce(&Told<'_>)) {
        let part = Some("</script><b>\"a\"".to_owned());
        let rank = RankStats { rank: 0, status: "ok".into(), part, ..RankStats::default() };
        let stats = Stats { wall_s: 2.0, np: 2, ranks: vec![rank], ..Stats::default() };
        let mut history = History::new(2);
        let sample = Sample { held: 5, budget: 7, running: 1, resident: 1, ..Sample::default() };
        history.series.add(sample);
        history.series.add(Sample { t: 1.0, written: 1 << 20, ..sample });
        history.rank(0.25, 0, Some(Activity::Running));
        history.rank(1.25, 0, Some(Activity::Out));
        history.note(0.5, "something");
        let line = "bdrun -np 2 x";
        of(&Told { line, began: SystemTime::UNIX_EPOCH, stats: &stats, history: Some(&history) });
    }

    /// What stands between two texts.
    fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
        let (_, rest) = text.split_once(begin).expect(begin);
        rest.split_once(end).expect(end).0
    }

    #[test]
    fn the_page_has_its_data_and_they_cannot_leave_their_place() {
        let mut page = Vec::new();
        told(|told| super::page(told, &mut page).unwrap());
        let page = String::from_utf8(page).unwrap();
        let data = between(&page, "<script type=\"application/json\" id=\"data\">", "</script>");
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["stats"]["ranks"][0]["part"], "</script><b>\"a\"");
        assert_eq!(data["history"]["held"], serde_json::json!([5, 5]));
        assert_eq!(data["history"]["ranks"][0], serde_json::json!([0.25, 1.25, 1.0, 1.25, 2.0, 5.0]));
        assert_eq!(data["history"]["ranks"][1], serde_json::json!([]));
        assert_eq!(data["history"]["notes"], serde_json::json!([[0.5, "something"]]));
        assert_eq!(data["line"], "bdrun -np 2 x");
    }

    #[test]
    fn the_trace_has_lanes_and_counters() {
        let mut text = Vec::new();
        told(|told| trace(told, &mut text).unwrap());
        let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        let lanes = of("X");
        assert_eq!(lanes.len(), 2);
        assert_eq!((&lanes[0]["name"], lanes[0]["ts"].as_f64()), (&"running".into(), Some(250_000.0)));
        assert_eq!((&lanes[1]["name"], lanes[1]["dur"].as_f64()), (&"out".into(), Some(750_000.0)));
        let memory: Vec<_> = of("C").into_iter().filter(|event| event["name"] == "memory").collect();
        assert_eq!(memory.len(), 2);
        assert_eq!(memory[0]["args"]["held"], 5);
        let disk = of("C").into_iter().rfind(|event| event["name"] == "disk").unwrap();
        assert_eq!(disk["args"]["written per second"].as_f64(), Some(f64::from(1 << 20)));
        assert_eq!(of("i").len(), 1);
        let names: Vec<_> = of("M").into_iter().map(|event| event["args"]["name"].clone()).collect();
        assert!(names.iter().any(|name| name.as_str().unwrap().contains("rank 0")), "{names:?}");
    }
}
