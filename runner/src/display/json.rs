//! One JSON object at the end, for programs.

use std::io::Write;

use super::{Output, Snapshot};
use crate::exit::Ending;
use crate::stats::Stats;

/// Writes the object of `--stats` as one line when the job has ended. The error, if any, is in it.
pub struct Json<W> {
    out: W,
}

impl<W: Write + Send> Json<W> {
    /// Writes it to `out`.
    pub fn new(out: W) -> Self {
        Self { out }
    }
}

impl<W: Write + Send> Output for Json<W> {
    fn progress(&mut self, _snapshot: &Snapshot) {}

    fn note(&mut self, _text: &str) {}

    fn finish(&mut self, stats: &Stats, ending: &Ending) {
        let mut stats = stats.clone();
        if stats.error.is_none() && !ending.is_success() {
            stats.error = Some(ending.to_string());
        }
        // As one piece, so that a rank's last words cannot come in between.
        if let Ok(mut line) = serde_json::to_vec(&stats) {
            line.push(b'\n');
            let _ = self.out.write_all(&line);
            let _ = self.out.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_with_the_error_in_it() {
        let mut shown = Vec::new();
        let mut json = Json::new(&mut shown);
        json.note("not shown");
        let stats = Stats { version: 1, status: "internal-error".into(), ..Stats::default() };
        json.finish(&stats, &Ending::Internal("broken".into()));
        let text = String::from_utf8(shown).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        let back: Stats = serde_json::from_str(&text).unwrap();
        assert_eq!(back.error.as_deref(), Some("broken"));
    }
}
