//! What is left of a super-k-mer of which k-mers are taken away.

use std::ops::Range;

use crate::superkmer::cut::{LEFT_FOREIGN, LEFT_OWNED, RIGHT_FOREIGN, RIGHT_OWNED};

/// The stretches of a super-k-mer's k-mers that stay.
#[derive(Default)]
pub struct Stretches {
    kmers: usize,
    stays: Vec<Range<usize>>,
}

impl Stretches {
    /// Of another super-k-mer.
    pub fn clear(&mut self) {
        self.kmers = 0;
        self.stays.clear();
    }

    /// The next k-mer stays, or not.
    #[inline]
    pub fn next(&mut self, stays: bool) {
        let at = self.kmers;
        self.kmers += 1;
        match self.stays.last_mut() {
            _ if !stays => {}
            Some(last) if last.end == at => last.end += 1,
            _ => self.stays.push(at..at + 1),
        }
    }

    /// Each stretch with its flags, those of the super-k-mer being these. At a cut it ends as at the end of a
    /// sequence: its junction is of this virtual partition.
    pub fn of(&self, flags: u16) -> impl Iterator<Item = (Range<usize>, u16)> {
        self.stays.iter().map(move |stays| {
            let left = if stays.start == 0 { flags & (LEFT_FOREIGN | LEFT_OWNED) } else { 0 };
            let right = if stays.end == self.kmers { flags & (RIGHT_FOREIGN | RIGHT_OWNED) } else { 0 };
            (stays.clone(), left | right)
        })
    }
}
