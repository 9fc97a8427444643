//! The table.

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::record::Record;
use super::what_if::word;
use super::{Job, Outcome, Rates, Setting};
use crate::residency::sim::Policy;
use crate::units::{Bytes, Span};

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    /// In words, what is tried.
    what: String,
    #[serde(flatten)]
    setting: Setting,
    #[serde(flatten)]
    outcome: Outcome,
}

impl Row {
    pub fn new(what: &str, setting: Setting, outcome: Outcome) -> Self {
        Self { what: what.to_owned(), setting, outcome }
    }
}

/// What a job did that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Was {
    line: String,
    status: String,
    wall_s: f64,
    written_bytes: u64,
    read_bytes: u64,
    max_resident: u32,
    busy: f64,
    /// The least and the most of its budget, if that did not stay what it was at the beginning, as it does
    /// here.
    #[serde(skip_serializing_if = "Option::is_none")]
    budgets: Option<[u64; 2]>,
}

/// All that is told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Answer {
    ranks: u32,
    /// Bytes of memory a second, out and in, and whether that was seen.
    rates: Rates,
    rates_are_known: bool,
    recorded: Option<Was>,
    rows: Vec<Row>,
}

impl Answer {
    pub fn new(job: &Job, record: Option<&Record>, rows: Vec<Row>) -> Self {
        let recorded = record.map(|record| Was {
            line: record.line.clone(),
            status: record.status.clone(),
            wall_s: record.wall_s,
            written_bytes: record.written,
            read_bytes: record.read,
            max_resident: record.max_resident,
            busy: record.running_s / record.wall_s.max(1e-9),
            budgets: record.budgets,
        });
        Self { ranks: job.ranks(), rates: job.rates(), rates_are_known: job.rates_are_known, recorded, rows }
    }
}

/// As people read it.
pub(super) fn text(answer: &Answer) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "",
        "memory",
        "processors",
        "resident",
        "policy",
        "wall",
        "written",
        "read",
        "in RAM",
        "busy",
        "",
    ]);
    let mut figures =
        |head: [String; 5], wall: f64, bytes: [u64; 2], resident: u32, busy: f64, said: String| {
            let mut cells: Vec<Cell> = head.into_iter().map(Cell::new).collect();
            cells.push(Cell::new(Span(wall)));
            cells.extend(bytes.map(|bytes| Cell::new(Bytes(bytes))));
            cells.extend([Cell::new(resident), Cell::new(format!("{busy:.2}")), Cell::new(said)]);
            table.add_row(cells);
        };
    if let Some(was) = &answer.recorded {
        let head = ["recorded", "", "", "", ""].map(str::to_owned);
        let said = if was.status == "ok" { String::new() } else { format!("it ended with: {}", was.status) };
        figures(head, was.wall_s, [was.written_bytes, was.read_bytes], was.max_resident, was.busy, said);
    }
    for row in &answer.rows {
        let Row { what, setting, outcome } = row;
        let head = [
            what.clone(),
            Bytes(setting.budget_bytes).to_string(),
            setting.processors.to_string(),
            setting.resident.to_string(),
            word(setting.policy).to_owned(),
        ];
        let said = match (outcome.ends, outcome.fits) {
            (false, _) => "it does not end".to_owned(),
            (true, false) => "more is used than that".to_owned(),
            (true, true) => {
                let was = answer
                    .recorded
                    .as_ref()
                    .filter(|_| what == "as it was" && setting.policy == Policy::Ours);
                was.map_or(String::new(), |was| differences(was, outcome))
            }
        };
        let bytes = [outcome.written_bytes, outcome.read_bytes];
        figures(head, outcome.wall_s, bytes, outcome.max_resident, outcome.busy, said);
    }
    for column in [1, 2, 3, 5, 6, 7, 8, 9] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = answer.recorded.as_ref().map_or(String::new(), |was| format!("{}\n", was.line));
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if let Some([least, most]) = answer.recorded.as_ref().and_then(|was| was.budgets) {
        text.push_str(&format!(
            "the budget of the job was between {} and {} while it ran (--memory auto); here it stays what it is in each row, and \"as it was\" is what it \
             began with\n",
            Bytes(least),
            Bytes(most)
        ));
    }
    let Rates { out, back, out_s, back_s, .. } = answer.rates;
    let seen = if answer.rates_are_known {
        ""
    } else {
        ", which is a guess: nothing was seen to move (--disk READ,WRITE)"
    };
    let beside =
        |seconds: f64| if seconds < 1e-4 { String::new() } else { format!(" after {:.1} ms", 1e3 * seconds) };
    let (out, back) = (Bytes(out as u64), Bytes(back as u64));
    text.push_str(&format!(
        "memory moves out at {out}/s{}, in at {back}/s{}{seen}\n",
        beside(out_s),
        beside(back_s)
    ));
    text
}

/// How far what was simulated is from what was.
fn differences(was: &Was, outcome: &Outcome) -> String {
    let percent = |now: f64, then: f64| {
        if then <= 0.0 {
            return None;
        }
        Some(format!("{:+.0} %", 100.0 * (now - then) / then))
    };
    let figures = [
        ("wall", percent(outcome.wall_s, was.wall_s)),
        ("written", percent(outcome.written_bytes as f64, was.written_bytes as f64)),
        ("read", percent(outcome.read_bytes as f64, was.read_bytes as f64)),
    ];
    let said: Vec<String> =
        figures.into_iter().filter_map(|(name, percent)| Some(format!("{name} {}", percent?))).collect();
    said.join(", ")
}
