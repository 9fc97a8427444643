//! The text of the live line, and how long it will still take.

use crate::units::{Bytes, Count, Span};

/// The state of the job at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// Seconds since the job began.
    pub elapsed_s: f64,
    /// Number of ranks.
    pub np: u32,
    /// Ranks that compute.
    pub running: u32,
    /// Ranks in RAM, running ones included.
    pub resident: u32,
    /// Ranks out of RAM.
    pub evicted: u32,
    /// Ranks that have ended.
    pub done: u32,
    /// Of them, those that failed.
    pub failed: u32,
    /// Bytes of the budget in use.
    pub held_bytes: u64,
    /// The budget, bytes.
    pub budget_bytes: u64,
    /// Bytes a second moved to and from scratch lately.
    pub disk_bytes_per_s: f64,
    /// What the ranks report of their work, summed; none if they report nothing.
    pub progress: Option<JobProgress>,
}

/// How far the job's own work is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobProgress {
    /// What is being done, as in `merge`.
    pub label: String,
    /// How much of it is done, in units of the job.
    pub done: u64,
    /// How much there is to do; 0 if unknown.
    pub total: u64,
}

/// Estimates the time left from the pace since the present label appeared.
#[derive(Debug, Default)]
pub(super) struct Pace {
    label: String,
    began_s: f64,
    began_done: u64,
}

impl Pace {
    /// Seconds left at this pace; none before there is one.
    pub fn left(&mut self, snapshot: &Snapshot) -> Option<f64> {
        let progress = snapshot.progress.as_ref()?;
        if progress.label != self.label || progress.done < self.began_done {
            *self = Self {
                label: progress.label.clone(),
                began_s: snapshot.elapsed_s,
                began_done: progress.done,
            };
        }
        let (spent, done) = (snapshot.elapsed_s - self.began_s, progress.done - self.began_done);
        // The first second says little.
        if spent < 1.0 || done == 0 || progress.total <= progress.done {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        Some(spent * (progress.total - progress.done) as f64 / done as f64)
    }
}

impl std::fmt::Display for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&line(self, None))
    }
}

/// All of it: for whoever asks from outside, and has room.
fn line(snapshot: &Snapshot, left_s: Option<f64>) -> String {
    let Snapshot { np, running, resident, evicted, done, failed, held_bytes, budget_bytes, .. } = snapshot;
    let mut text = String::new();
    if let Some(progress) = &snapshot.progress {
        text.push_str(&progress.label);
        if progress.total > 0 {
            #[expect(clippy::cast_precision_loss, reason = "shown as a percentage")]
            let percent = 100.0 * progress.done as f64 / progress.total as f64;
            text.push_str(&format!(" {:.0}%", percent.min(100.0)));
        } else {
            text.push_str(&format!(" {}", Count(progress.done)));
        }
        if let Some(left) = left_s {
            text.push_str(&format!(", {} left", Span(left)));
        }
        text.push_str(" | ");
    }
    let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
    text.push_str(&format!(
        "{np} ranks: {running} running, {resident} resident, {evicted} evicted, {done} done{failed} | {} of {}",
        Bytes(*held_bytes),
        Bytes(*budget_bytes)
    ));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shown rounded; a float out of range saturates"
    )]
    let rate = snapshot.disk_bytes_per_s.max(0.0) as u64;
    text.push_str(&format!(" | disk {}/s | {}", Bytes(rate), Span(snapshot.elapsed_s)));
    text
}

/// Cells of the bar that shows memory.
const CELLS: u64 = 10;

/// What the live line says of one thing, from the long form to the short one; the last may be empty.
struct Piece {
    forms: Vec<String>,
    form: usize,
}

impl Piece {
    fn new<const N: usize>(forms: [String; N]) -> Self {
        Self { forms: forms.into(), form: 0 }
    }

    fn text(&self) -> &str {
        &self.forms[self.form.min(self.forms.len() - 1)]
    }
}

/// What becomes shorter first, by the places of the pieces in [`fitted`]: the time since the beginning, the
/// disk, who does what, what is done, memory; last the time left and failures.
const SHORTER: [usize; 12] = [4, 3, 1, 2, 1, 3, 0, 2, 2, 1, 0, 1];

/// The live line for a terminal of so many columns: as much as fits.
pub(super) fn fitted(snapshot: &Snapshot, left_s: Option<f64>, columns: usize) -> String {
    let mut pieces =
        [far(snapshot, left_s), counts(snapshot), memory(snapshot), disk(snapshot), elapsed(snapshot)];
    let joined = |pieces: &[Piece]| {
        let texts: Vec<&str> = pieces.iter().map(Piece::text).filter(|text| !text.is_empty()).collect();
        texts.join(" | ")
    };
    let mut text = joined(&pieces);
    for piece in SHORTER {
        if text.chars().count() <= columns {
            break;
        }
        pieces[piece].form += 1;
        text = joined(&pieces);
    }
    text.chars().take(columns).collect()
}

/// How far it is, and the time left.
fn far(snapshot: &Snapshot, left_s: Option<f64>) -> Piece {
    let Some(progress) = &snapshot.progress else { return Piece::new([String::new()]) };
    let far = if progress.total > 0 {
        let percent = 100.0 * progress.done as f64 / progress.total as f64;
        format!("{:.0}%", percent.min(100.0))
    } else {
        Count(progress.done).to_string()
    };
    let left = left_s.map(|left| format!(", {} left", Span(left))).unwrap_or_default();
    Piece::new([format!("{} {far}{left}", progress.label), format!("{far}{left}"), far])
}

/// How many have ended, failed, not begun; and what the others do.
fn counts(snapshot: &Snapshot) -> Piece {
    let Snapshot { np, running, resident, evicted, done, failed, .. } = *snapshot;
    let queued = np.saturating_sub(done.saturating_add(resident).saturating_add(evicted));
    let some = |count: u32, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
    let failed = some(failed, "failed");
    let (running, out) = (some(running, "running"), some(evicted, "out"));
    let queued = some(queued, "queued");
    let short = format!("{done}/{np}");
    Piece::new([
        format!("{done} of {np} done{failed}{running}{out}{queued}"),
        format!("{done}/{np} done{failed}{queued}"),
        format!("{short} done{failed}"),
        format!("{short}{failed}"),
        short,
    ])
}

/// Memory against the budget.
fn memory(snapshot: &Snapshot) -> Piece {
    let Snapshot { held_bytes: held, budget_bytes: budget, .. } = *snapshot;
    let part = |of: u64| (u128::from(held) * u128::from(of) / u128::from(budget.max(1))) as u64;
    let full = usize::try_from(part(CELLS).min(CELLS)).unwrap_or_default();
    let bar = format!("[{:-<width$}]", "#".repeat(full), width = CELLS as usize);
    let percent = part(100);
    Piece::new([
        format!("{bar} {} of {}", Bytes(held), Bytes(budget)),
        format!("{bar} {percent}%"),
        format!("RAM {percent}%"),
        String::new(),
    ])
}

/// What is moved to and from scratch; nothing, if nothing is.
fn disk(snapshot: &Snapshot) -> Piece {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shown rounded; a float out of range saturates"
    )]
    let rate = snapshot.disk_bytes_per_s.max(0.0) as u64;
    if rate == 0 {
        return Piece::new([String::new()]);
    }
    Piece::new([format!("disk {}/s", Bytes(rate)), format!("{}/s", Bytes(rate)), String::new()])
}

fn elapsed(snapshot: &Snapshot) -> Piece {
    Piece::new([Span(snapshot.elapsed_s).to_string(), String::new()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        Snapshot {
            elapsed_s: 75.0,
            np: 256,
            running: 2,
            resident: 16,
            evicted: 200,
            done: 40,
            failed: 0,
            held_bytes: 600 << 20,
            budget_bytes: 700 << 20,
            disk_bytes_per_s: 1.5e9,
            progress: None,
        }
    }

    #[test]
    fn without_and_with_progress_of_the_job() {
        let mut snapshot = snapshot();
        let rest = "256 ranks: 2 running, 16 resident, 200 evicted, 40 done | 600.0 MiB of 700.0 MiB \
                    | disk 1.40 GiB/s | 1m15s";
        assert_eq!(line(&snapshot, None), rest);
        snapshot.progress = Some(JobProgress { label: "merge".into(), done: 50, total: 200 });
        assert_eq!(line(&snapshot, Some(130.0)), format!("merge 25%, 2m10s left | {rest}"));
        snapshot.progress = Some(JobProgress { label: "read".into(), done: 5000, total: 0 });
        assert_eq!(line(&snapshot, None), format!("read 5,000 | {rest}"));
    }

    #[test]
    fn a_line_for_every_width() {
        let merge = Some(JobProgress { label: "merge".into(), done: 50, total: 200 });
        let snapshot = Snapshot { progress: merge, ..snapshot() };
        for (columns, expected) in [
            (
                120,
                "merge 25%, 2m10s left | 40 of 256 done, 2 running, 200 out | [########--] 600.0 MiB of 700.0 MiB | disk 1.40 GiB/s",
            ),
            (80, "merge 25%, 2m10s left | 40/256 done | [########--] 85% | 1.40 GiB/s"),
            (60, "merge 25%, 2m10s left | 40/256 done | [########--] 85%"),
            (40, "25%, 2m10s left | 40/256 done | RAM 85%"),
        ] {
            let text = fitted(&snapshot, Some(130.0), columns);
            assert_eq!(text, expected, "{columns}");
        }
    }

    /// Whatever there is to say, it fits, and what matters most is in it.
    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let merge = JobProgress { label: "counting k-mers".into(), done: 123_456, total: 200_000 };
        let full = Snapshot {
            np: 65_536,
            done: 12_345,
            failed: 1_234,
            running: 128,
            resident: 300,
            evicted: 4_000,
            progress: Some(merge),
            elapsed_s: 300_000.0,
            ..snapshot()
        };
        let last = |columns| fitted(&full, Some(200_000.0), columns);
        for columns in 0..200 {
            assert!(last(columns).chars().count() <= columns, "{columns}: {}", last(columns));
            assert!(!last(columns).ends_with(' ') || columns < 20, "{columns}: {}", last(columns));
        }
        for (columns, words) in
            [(40, "1234 failed"), (60, "1234 failed"), (80, "[########--] 85%"), (120, "queued")]
        {
            let text = last(columns);
            assert!(text.contains("62%") && text.contains(words), "{columns}: {text}");
        }
        let idle = Snapshot {
            np: 2,
            running: 2,
            resident: 2,
            evicted: 0,
            done: 0,
            disk_bytes_per_s: 0.0,
            ..snapshot()
        };
        let text = fitted(&idle, None, 80);
        assert_eq!(text, "0 of 2 done, 2 running | [########--] 600.0 MiB of 700.0 MiB | 1m15s");
        assert_eq!(fitted(&Snapshot::default(), None, 80), "0 of 0 done | [----------] 0 B of 0 B | 0 s");
    }

    #[test]
    fn pace_starts_anew_with_each_label() {
        let mut pace = Pace::default();
        let mut at = |elapsed_s, label: &str, done, total| {
            let progress = Some(JobProgress { label: label.into(), done, total });
            pace.left(&Snapshot { elapsed_s, progress, ..snapshot() })
        };
        assert_eq!(at(10.0, "read", 100, 200), None, "no pace yet");
        assert_eq!(at(20.0, "read", 150, 200), Some(10.0));
        assert_eq!(at(21.0, "read", 200, 200), None, "nothing left");
        assert_eq!(at(30.0, "merge", 0, 10), None);
        assert_eq!(at(32.0, "merge", 1, 10), Some(18.0));
    }
}
