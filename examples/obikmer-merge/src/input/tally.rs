//! Do a source's letters make k-mers? Those that break them are legal, but where most letters lie in none,
//! the source is hardly what its owner thinks: RNA, protein, an alignment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::input::{Inputs, SequenceFile, Unit, fasta, read};
use crate::sequence::kmer::Lengths;
use crate::superkmer::cut::Cut;

/// Letters looked at to say what they are.
const LOOK: u64 = 1 << 20;
/// Most sources that are told of one by one.
const MOST: usize = 10;

/// A source's letters, or those of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// All.
    letters: u64,
    /// Those that break k-mers.
    breaks: u64,
    /// Those in no k-mer.
    lost: u64,
}

impl Tally {
    /// Of letters, with what was cut from them.
    pub fn new(letters: u64, cut: Cut, k: usize) -> Self {
        let kept = cut.kmers + cut.runs * (k as u64 - 1);
        Self { letters, breaks: cut.breaks, lost: letters.saturating_sub(kept) }
    }

    fn add(&mut self, other: Self) {
        self.letters += other.letters;
        self.breaks += other.breaks;
        self.lost += other.lost;
    }

    /// Most letters are in no k-mer because of those that break them: not because the records are short. One
    /// that breaks spoils k − 1 letters on either side at most.
    fn is_broken(self, k: usize) -> bool {
        2 * self.lost > self.letters && 2 * self.breaks * k as u64 >= self.lost
    }
}

/// Tallies of the sources that may have to be told of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tallies(Vec<(u32, Tally)>);

impl Tallies {
    /// Of a unit. Where it is all of its source and nothing is wrong with it, it is forgotten.
    pub fn add(&mut self, source: u32, whole: bool, tally: Tally, k: usize) {
        if !whole || tally.is_broken(k) {
            self.0.push((source, tally));
        }
    }

    /// Take those of another rank too.
    pub fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// What is to be said of the inputs, whose k-mers are counted by source, as far as they occur often
    /// enough in it; their files are still there.
    pub fn warnings(&self, inputs: &Inputs, lengths: Lengths, min_count: u32, kmers: &[u64]) -> Vec<String> {
        let k = lengths.k;
        let mut sums: BTreeMap<u32, Tally> = BTreeMap::new();
        for &(source, tally) in &self.0 {
            sums.entry(source).or_default().add(tally);
        }
        let mut warnings = Vec::new();
        let mut more = 0;
        for (unit, source, file) in inputs.sequence_units() {
            let none = kmers.get(source as usize) == Some(&0);
            let broken = sums.get(&source).filter(|tally| tally.is_broken(k));
            if !none && broken.is_none() {
                continue;
            }
            if warnings.len() == MOST {
                more += 1;
                continue;
            }
            let mut what = inputs.shown(source, file);
            what.push_str(if none { ": not a single k-mer" } else { "" });
            match broken {
                Some(tally) => {
                    let Tally { letters, lost, .. } = *tally;
                    let share = share(lost, letters);
                    what.push_str(&format!(": {share} of its letters lie in no k-mer, for "));
                    what.push_str(&cause(unit, file, k));
                }
                None if min_count > 1 => {
                    what.push_str(&format!(": none occurs {min_count} times (--min-count)"));
                }
                None => {
                    what.push_str(&format!(": no record has {k} letters in a row that are A, C, G or T"));
                }
            }
            warnings.push(what);
        }
        if more > 0 {
            warnings.push(format!("and {more} more sources of which the same is to be said"));
        }
        warnings
    }
}

/// Never rounded up to all, or down to none.
fn share(part: u64, all: u64) -> String {
    if part == all {
        return "all".into();
    }
    format!("{:.1} %", (part as f64 * 100.0 / all.max(1) as f64).clamp(0.1, 99.9))
}

/// The letters of a source that break k-mers, and what that probably means.
fn cause(unit: &Unit, file: &SequenceFile, k: usize) -> String {
    let mut counts = [0u64; 256];
    let mut all = 0;
    // All letters have been read before; what cannot be read now is not known, and no error.
    let _ = look(unit, file, k, &mut |letters| {
        all += letters.len() as u64;
        letters.iter().for_each(|b| counts[usize::from(b.to_ascii_uppercase())] += 1);
        all < LOOK
    });
    let of = |letters: &[u8]| letters.iter().map(|&b| counts[usize::from(b)]).sum::<u64>();
    let kinds = [
        (of(b"U"), "U: RNA? Write T for U"),
        // Letters of amino acids that stand for no nucleotides.
        (of(b"EFILPQZJOX*"), "letters of amino acids: protein? Only DNA has k-mers here"),
        (of(b"N"), "N: masked, or mostly unknown?"),
        (of(b"RYSWKMBDHV"), "codes for several bases"),
        (of(b"-."), "gaps: an alignment? Take the gaps out"),
    ];
    let broken = all - of(b"ACGT");
    // Half of a protein's letters mean nucleotides too, or several of them.
    let protein = kinds[1].0 * 5 >= broken && broken > 0;
    let most = if protein { Some(kinds[1]) } else { kinds.into_iter().max_by_key(|kind| kind.0) };
    let of_these = most.map_or_else(String::new, |(_, what)| format!(", most of these {what}"));
    format!("{} of them are not A, C, G or T{of_these}", share(broken, all))
}

/// Letters from the beginning of a source, while `more` wants them.
fn look(unit: &Unit, file: &SequenceFile, k: usize, more: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
    if let Unit::Fasta { begin, end, .. } = *unit {
        let end = end.min(begin + LOOK);
        let mut each = |letters: &[u8]| {
            let letters = letters.strip_suffix(&[fasta::SEPARATOR]).unwrap_or(letters);
            more(letters);
            Ok(())
        };
        return fasta::read_range(file, begin, end, k, &mut each, &mut |_| {}).map(|_| ());
    }
    let mut records = read::open_records(&file.name, &file.path)?;
    while let Some(Ok(record)) = records.next() {
        if !more(&record.seq()) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_is_what_breaks_not_what_is_short() {
        let tally = |letters, breaks, lost| Tally { letters, breaks, lost };
        assert!(tally(1000, 250, 990).is_broken(31), "RNA");
        assert!(tally(1000, 780, 1000).is_broken(31), "protein");
        assert!(tally(1000, 600, 600).is_broken(31), "masked");
        assert!(tally(1000, 40, 900).is_broken(31), "one in 25");
        assert!(!tally(1000, 0, 1000).is_broken(31), "short records");
        assert!(!tally(1000, 2, 1000).is_broken(31), "short records and two letters");
        assert!(!tally(1000, 30, 450).is_broken(31), "half of it is there");
        assert!(!Tally::default().is_broken(31));
    }
}
