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

/// The live line; most important first, since a narrow terminal cuts it.
pub(super) fn line(snapshot: &Snapshot, left_s: Option<f64>) -> String {
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
