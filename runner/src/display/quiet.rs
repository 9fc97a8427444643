//! Nothing but errors.

use std::io::Write;

use super::{Output, Snapshot, error_text};
use crate::exit::Ending;
use crate::stats::Stats;

/// Shows why a job failed, and nothing else.
pub struct Quiet<W> {
    out: W,
}

impl<W: Write + Send> Quiet<W> {
    /// Shows it on `out`.
    pub fn new(out: W) -> Self {
        Self { out }
    }
}

impl<W: Write + Send> Output for Quiet<W> {
    fn progress(&mut self, _snapshot: &Snapshot) {}

    fn note(&mut self, _text: &str) {}

    fn finish(&mut self, _stats: &Stats, ending: &Ending) {
        let _ = self.out.write_all(error_text(ending).as_bytes());
        let _ = self.out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors() {
        let mut shown = Vec::new();
        let mut quiet = Quiet::new(&mut shown);
        quiet.note("something");
        quiet.finish(&Stats::default(), &Ending::Success);
        assert!(shown.is_empty());
        let missing = Ending::NotFound { program: "prog".into(), closed: None };
        Quiet::new(&mut shown).finish(&Stats::default(), &missing);
        let text = "bdrun: error: prog is neither beside bdrun nor in PATH\n\
                    bdrun: remedy: give a path (./program), or put it into PATH or beside bdrun\n";
        assert_eq!(String::from_utf8(shown).unwrap(), text);
    }
}
