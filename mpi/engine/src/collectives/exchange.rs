//! What each gives to others and takes from them, unchanged.

use std::borrow::Cow;
use std::ops::Range;

use bdrun_mpi_core::error::Class;

use crate::datatypes::memory::Span;
use crate::failure::{Answer, Failure};
use crate::link::{Meeting, Parcel, Whom};
use crate::messages;

/// Which of what a member has deposited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// All of it: it is for everybody.
    Whole,
    /// The one with this number.
    Nth(usize),
    /// The same, of so many equal ones that no table is of them.
    Of(usize, usize),
    /// Of those that it gives to this member, the one with this number.
    For(usize, usize),
}

/// What is deposited, and what is taken of whom.
#[derive(Debug)]
pub struct Exchange {
    /// One piece for everybody, or several.
    gives: Vec<Span>,
    /// They are for different members, and told apart by a table of where each ends.
    is_divided: bool,
    /// For whom they are, where that is not clear from their number: behind that in the table.
    receivers: Vec<usize>,
    takes: Vec<(usize, Piece, Span)>,
    /// Who waits for whom.
    pub whom: Whom,
}

/// A number of the table.
const WORD: usize = size_of::<u64>();

impl Exchange {
    /// Nothing is given or taken yet.
    pub fn new(whom: Whom) -> Self {
        Self { gives: vec![], is_divided: false, receivers: vec![], takes: vec![], whom }
    }

    /// Gives the same to everybody.
    pub fn give(&mut self, whole: Span) {
        self.gives.push(whole);
    }

    /// Gives each a piece of its own. Of those that are of one size, and taken so, there need be no table.
    pub fn give_each(&mut self, pieces: Vec<Span>, are_equal: bool) {
        (self.gives, self.is_divided) = (pieces, !are_equal);
    }

    /// Gives these members a piece each; some may get several.
    pub fn give_these(&mut self, pieces: Vec<Span>, receivers: Vec<usize>) {
        self.give_each(pieces, false);
        self.receivers = receivers;
    }

    /// Takes something of a member.
    pub fn take(&mut self, from: usize, piece: Piece, into: Span) {
        self.takes.push((from, piece, into));
    }

    /// Deposits what is given.
    pub fn deposit<T>(&self, meet: impl FnOnce(&[&[u8]]) -> Answer<T>) -> Answer<T> {
        // SAFETY: the program's memory is as it said, and it leaves it alone until this is complete.
        let pieces: Vec<Cow<[u8]>> =
            self.gives.iter().map(|span| unsafe { messages::bytes_of(span) }).collect();
        let mut table: Vec<u8> = vec![];
        if self.is_divided {
            let mut end = ((pieces.len() + 1 + self.receivers.len()) * WORD) as u64;
            table.extend(end.to_le_bytes());
            for piece in &pieces {
                end += piece.len() as u64;
                table.extend(end.to_le_bytes());
            }
            table.extend(self.receivers.iter().flat_map(|&member| (member as u64).to_le_bytes()));
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
                Piece::Nth(n) => range_of(part, n)?,
                Piece::Of(n, pieces) => {
                    let each = part.len() / pieces.max(1) as u64;
                    n as u64 * each..(n as u64 + 1) * each
                }
                Piece::For(member, nth) => range_of(part, find(part, member, nth)?)?,
            };
            let part = Part { of: part, from: range.start, len: range.end.saturating_sub(range.start) };
            messages::take_all(into, &part)?;
        }
        Ok(())
    }
}

/// Two words of a table that follow each other.
fn words(part: &dyn Parcel, n: usize) -> Answer<[u64; 2]> {
    let mut words = [0; 2 * WORD];
    part.read((n * WORD) as u64, &mut words)?;
    let [first, second] = [0, WORD].map(|at| words[at..at + WORD].try_into().unwrap_or_default());
    Ok([u64::from_le_bytes(first), u64::from_le_bytes(second)])
}

/// A word of a table.
fn word(part: &dyn Parcel, n: usize) -> Answer<u64> {
    let mut word = [0; WORD];
    part.read((n * WORD) as u64, &mut word)?;
    Ok(u64::from_le_bytes(word))
}

/// Where a piece is.
fn range_of(part: &dyn Parcel, n: usize) -> Answer<Range<u64>> {
    let [from, to] = words(part, n)?;
    Ok(from..to)
}

/// Which piece is for a member, of those the one with a number.
fn find(part: &dyn Parcel, member: usize, nth: usize) -> Answer<usize> {
    // As many ends as receivers, and the first begin.
    let pieces = (word(part, 0)? as usize / WORD - 1) / 2;
    let mut found = 0;
    for piece in 0..pieces {
        if word(part, pieces + 1 + piece)? == member as u64 {
            if found == nth {
                return Ok(piece);
            }
            found += 1;
        }
    }
    let text = Some("a neighbour has no such edge to this process".into());
    Err(Failure { text, ..Class::Topology.into() })
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
