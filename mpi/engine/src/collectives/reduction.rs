//! How what the members have is combined.
//!
//! Always in the order of ranks and from the last one on, whether the operation commutes or not: so all
//! members get the same bits, however many they are on and in whatever order they came.

use std::ops::Range;
use std::sync::Arc;

use bdrun_mpi_core::error::Class;

use super::exchange::Part;
use crate::datatypes::memory::Span;
use crate::failure::Answer;
use crate::link::{Combines, Meeting, Parcel, Whom};
use crate::messages;
use crate::operations::Fold;

/// So many bytes of each member are combined before the next ones: they stay in the cache.
const PIECE: i64 = 16 << 10;

/// What is given, and what is wanted of whom.
#[derive(Debug, Clone)]
pub struct Reduction {
    /// This process's elements, if any are wanted of it.
    pub gives: Option<Span>,
    /// Where the result goes: of the elements from this one on, combined so.
    pub takes: Option<(Span, u64, Fold)>,
    /// Of these members.
    pub members: Range<usize>,
    /// Who waits for whom.
    pub whom: Whom,
    /// All want the same: one of them may combine it for all.
    pub is_for_all: bool,
}

impl Reduction {
    /// Deposits what is given.
    pub fn deposit<T>(&self, meet: impl FnOnce(&[&[u8]]) -> Answer<T>) -> Answer<T> {
        let Some(gives) = &self.gives else { return meet(&[]) };
        // SAFETY: the program's memory is as it said, and it leaves it alone until this is complete.
        meet(&[&unsafe { messages::bytes_of(gives) }])
    }

    /// Takes what was deposited, combined: by itself, unless somebody has done that for all.
    pub fn finish(&self, meeting: &dyn Meeting) -> Answer<()> {
        let Some((into, first, fold)) = &self.takes else { return Ok(()) };
        if let Some(all) = meeting.combined() {
            let size = into.of().size() as u64;
            return messages::take_all(into, &Part { of: all, from: first * size, len: into.bytes() });
        }
        let part = |member| meeting.part(member);
        self.fold((*first, fold, into), &part, |done, count| into.part(done, count), |_| {})
    }

    /// Combines what the members have, piece by piece: each piece where `target` says, and `then` it is told.
    fn fold<'p>(
        &self,
        (first, fold, like): (u64, &Fold, &Span),
        part: &dyn Fn(usize) -> &'p dyn Parcel,
        mut target: impl FnMut(i64, i64) -> Span,
        mut then: impl FnMut(&Span),
    ) -> Answer<()> {
        let Some(last) = self.members.clone().next_back() else { return Ok(()) };
        let size = like.of().size() as u64;
        let step = pieces_of(like);
        let mut room = Room::new(like, step.min(like.count()));
        let mut done = 0;
        while done < like.count() {
            let count = step.min(like.count() - done);
            let target = target(done, count);
            let part = |member: usize| Part {
                of: part(member),
                from: (first + done as u64) * size,
                len: count as u64 * size,
            };
            messages::take_all(&target, &part(last))?;
            for member in self.members.clone().rev().skip(1) {
                let operand = room.span(count);
                messages::take_all(&operand, &part(member))?;
                // SAFETY: the one is ours; the other too, or the program has said that it is there, and
                // leaves it alone until this is complete.
                unsafe { fold.apply(operand.at(), target.at(), count as u64) };
            }
            then(&target);
            done += count;
        }
        Ok(())
    }
}

impl Combines for Reduction {
    fn combine<'p>(&self, part: &dyn Fn(usize) -> &'p dyn Parcel) -> Answer<Vec<u8>> {
        let (like, first, fold) = self.takes.as_ref().ok_or(Class::Internal)?;
        let mut room = Room::new(like, pieces_of(like).min(like.count()));
        let mut all = Vec::with_capacity(like.bytes() as usize);
        // SAFETY: a span of ours.
        let then = |target: &Span| all.extend_from_slice(&unsafe { messages::bytes_of(target) });
        self.fold((*first, fold, like), part, |_, count| room.span(count), then)?;
        Ok(all)
    }

    fn kept(&self) -> Arc<dyn Combines> {
        Arc::new(self.clone())
    }
}

/// Elements that are combined at a time.
fn pieces_of(like: &Span) -> i64 {
    (PIECE / like.of().extent().unsigned_abs().max(1) as i64).max(1)
}

/// Memory for elements as they lie in the program's memory.
struct Room {
    bytes: Vec<u128>,
    /// Where the first element's address is in it: before it, if its bytes lie behind.
    origin: i64,
    like: Span,
}

impl Room {
    fn new(like: &Span, count: i64) -> Self {
        let of = like.of();
        let last = (count - 1).max(0).saturating_mul(of.extent());
        let from = of.true_lower_bound() + last.min(0);
        let to = of.true_lower_bound() + of.true_extent() + last.max(0);
        let words = (to - from).max(0) as usize / size_of::<u128>() + 2;
        // Elements are as aligned there as an address is that is a multiple of 16.
        let origin = -from.div_euclid(16) * 16;
        Self { bytes: vec![0; words], origin, like: like.clone() }
    }

    fn span(&mut self, count: i64) -> Span {
        let at = self.bytes.as_mut_ptr().cast::<u8>().wrapping_offset(self.origin as isize);
        self.like.elsewhere(at, count)
    }
}
