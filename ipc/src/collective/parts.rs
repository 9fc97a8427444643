//! What lies in a collective that is complete, and what becomes of it when all have left.

use std::sync::atomic::Ordering::SeqCst;

use super::{Comm, PHASES, has_come};
use crate::Result;
use crate::far::{self, Notice};
use crate::mail::Mail;
use crate::segment::Segment;

impl Comm {
    /// By who came last: store the folded result (`Err`: it could not be made) and complete the collective.
    /// The caller then wakes the other members.
    pub fn complete(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        folded: Option<std::result::Result<&[u8], ()>>,
    ) -> Result<()> {
        let phase = self.phase(segment, number);
        let stored = match folded {
            None => Ok(()),
            Some(Ok(bytes)) => phase.folded.put(segment, mail, &[bytes]),
            Some(Err(())) => Ok(()),
        };
        if stored.is_err() || folded == Some(Err(())) {
            phase.fold_failed.store(1, SeqCst);
        }
        phase.complete.store(number + 1, SeqCst);
        stored
    }

    /// Have all come?
    pub fn is_complete(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).complete.load(SeqCst) > number
    }

    /// Did the fold fail?
    pub fn fold_failed(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).fold_failed.load(SeqCst) != 0
    }

    /// Bytes of a part.
    pub fn part_len(self, segment: &Segment, number: u64, rank: u32) -> usize {
        self.seat(segment, number, rank).part.len()
    }

    /// Copy bytes of a part.
    pub fn part(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        rank: u32,
        offset: usize,
        into: &mut [u8],
    ) -> Result<()> {
        self.seat(segment, number, rank).part.get(segment, mail, offset, into)
    }

    /// Bytes of the folded result.
    pub fn folded_len(self, segment: &Segment, number: u64) -> usize {
        self.phase(segment, number).folded.len()
    }

    /// Copy bytes of the folded result.
    pub fn folded(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        offset: usize,
        into: &mut [u8],
    ) -> Result<()> {
        self.phase(segment, number).folded.get(segment, mail, offset, into)
    }

    /// This rank has read what it needs. The last frees the parts; was it the last? `wake` is called with
    /// each member that wanted to come to the collective that is next here.
    pub fn leave(
        self,
        segment: &Segment,
        mail: &Mail,
        (number, rank): (u64, u32),
        wake: &mut dyn FnMut(u32),
    ) -> Result<bool> {
        let phase = self.phase(segment, number);
        if self.is_spread(segment) && phase.left_here.fetch_add(1, SeqCst) + 1 == self.here(segment) {
            let own = self.member(segment, rank)?;
            far::tell(segment, mail, own, &Notice::AllLeft { comm: self.index, number })?;
        }
        Ok(self.left(segment, mail, number, 1, wake))
    }

    /// By the gateway: so many members of another node have left.
    pub fn leave_far(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        count: u32,
        wake: &mut dyn FnMut(u32),
    ) -> bool {
        self.left(segment, mail, number, count, wake)
    }

    pub(super) fn left(
        self,
        segment: &Segment,
        mail: &Mail,
        number: u64,
        count: u32,
        wake: &mut dyn FnMut(u32),
    ) -> bool {
        let phase = self.phase(segment, number);
        if phase.left.fetch_add(count, SeqCst) + count != self.size(segment) {
            return false;
        }
        // It is over before its parts are freed, so that what `see` has read of them, if it is still this
        // number's afterwards, was all there. This number is nobody's: the next one here is `next`.
        phase.number.store(number + 1, SeqCst);
        for rank in 0..self.size(segment) {
            let seat = self.seat(segment, number, rank);
            seat.part.free(segment, mail);
            seat.awaits.store(0, SeqCst);
            seat.come.store(0, SeqCst);
        }
        phase.folded.free(segment, mail);
        phase.clear();
        let next = number + PHASES;
        phase.number.store(next, SeqCst);
        for (rank, member) in (0..).zip(self.ranks(segment)) {
            let here = self.seat(segment, next, rank).here.load(SeqCst);
            let is_early = || here % 2 == 1 && here >= has_come(next) - 1;
            if segment.is_here(member) && is_early() {
                wake(member);
            }
        }
        if self.is_spread(segment) {
            // What came too early from elsewhere can come now.
            segment.ring_gateway();
        }
        true
    }
}
