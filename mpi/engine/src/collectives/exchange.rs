//! What each gives to others and takes from them, unchanged.

use std::borrow::Cow;

use bdrun_mpi_core::error::Class;

use crate::datatypes::memory::Span;
use crate::failure::Answer;
use crate::link::{Meeting, Needed, Parcel};
use crate::messages;

/// Which of what a member has deposited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// All of it: it is for everybody.
    Whole,
    /// The one with this number.
    Nth(usize),
}

/// What is deposited, and what is taken of whom.
#[derive(Debug, Default)]
pub struct Exchange {
    /// One piece for everybody, or several.
    gives: Vec<Span>,
    /// They are for different members, and told apart by a table of where each ends.
    is_divided: bool,
    takes: Vec<(usize, Piece, Span)>,
}

/// A number of the table.
const WORD: usize = size_of::<u64>();

impl Exchange {
    /// Nothing is given or taken.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the same to everybody.
    pub fn give(&mut self, whole: Span) {
        self.gives.push(whole);
    }

    /// Gives each a piece of its own.
    pub fn give_each(&mut self, pieces: Vec<Span>) {
        (self.gives, self.is_divided) = (pieces, true);
    }

    /// Takes something of a member.
    pub fn take(&mut self, from: usize, piece: Piece, into: Span) {
        self.takes.push((from, piece, into));
    }

    /// Whose parts are wanted.
    pub fn needed(&self) -> Needed {
        Needed::These(self.takes.iter().map(|&(member, ..)| member).collect())
    }

    /// Deposits what is given.
    pub fn deposit(
        &self,
        meet: impl FnOnce(&[&[u8]]) -> Answer<Box<dyn Meeting>>,
    ) -> Answer<Box<dyn Meeting>> {
        // SAFETY: the program's memory is as it said, and it leaves it alone until this is complete.
        let pieces: Vec<Cow<[u8]>> =
            self.gives.iter().map(|span| unsafe { messages::bytes_of(span) }).collect();
        let mut table: Vec<u8> = vec![];
        if self.is_divided {
            let mut end = ((pieces.len() + 1) * WORD) as u64;
            table.extend(end.to_le_bytes());
            for piece in &pieces {
                end += piece.len() as u64;
                table.extend(end.to_le_bytes());
            }
        }
        let all: Vec<&[u8]> = std::iter::once(&table[..]).chain(pieces.iter().map(|p| &**p)).collect();
        meet(&all)
    }

    /// Takes what was deposited.
    pub fn finish(&self, meeting: &dyn Meeting) -> Answer<()> {
        for (member, piece, into) in &self.takes {
            let part = meeting.part(*member);
            let range = match *piece {
                Piece::Whole => 0..part.len(),
                Piece::Nth(n) => {
                    let mut ends = [0; 2 * WORD];
                    part.read((n * WORD) as u64, &mut ends)?;
                    let end = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| ends[i * WORD + k]));
                    end(0)..end(1)
                }
            };
            let part = Part { of: part, from: range.start, len: range.end.saturating_sub(range.start) };
            messages::take_all(into, &part)?;
        }
        Ok(())
    }
}

/// A range of a parcel.
#[derive(Debug)]
pub struct Part<'a> {
    /// Of which.
    pub of: &'a dyn Parcel,
    /// From where on.
    pub from: u64,
    /// How many bytes.
    pub len: u64,
}

impl Parcel for Part<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<()> {
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > self.len) {
            return Err(Class::Internal.into());
        }
        self.of.read(self.from + offset, into)
    }
}
