//! Who comes to a collective, who waits for whom, and who is woken.

use std::sync::atomic::Ordering::SeqCst;

use super::{ALL, Arrival, Coming, Comm, FarComing, HEAD, Seen, has_come};
use crate::far::{self, Notice};
use crate::mail::Mail;
use crate::segment::{Segment, Waiting};
use crate::{Error, Result};

impl Comm {
    /// Come to a collective. `wake` is called with each rank of the node that may have waited for this one,
    /// though not for all.
    pub fn arrive(
        self,
        segment: &Segment,
        mail: &Mail,
        coming: &Coming<'_>,
        wake: &mut dyn FnMut(u32),
    ) -> Result<Arrival> {
        let Coming { number, rank, name, .. } = *coming;
        let (phase, seat) = (self.phase(segment, number), self.seat(segment, number, rank));
        if phase.number.load(SeqCst) != number {
            seat.here.fetch_max(has_come(number) - 1, SeqCst);
            // Either who leaves last sees that, or this one sees that it has left.
            if phase.number.load(SeqCst) != number {
                return Ok(Arrival::TooEarly);
            }
        }
        seat.part.put(segment, mail, coming.part)?;
        if let Err(theirs) = phase.name.compare_exchange(0, name, SeqCst, SeqCst)
            && theirs != name
        {
            phase.other_name.store(name, SeqCst);
        }
        seat.awaits.store(coming.awaits.unwrap_or(ALL), SeqCst);
        if coming.combines {
            phase.combines.store(1, SeqCst);
        }
        seat.here.fetch_max(has_come(number), SeqCst);
        let elsewhere = self.count_for(segment, number, coming.awaited_by, wake);
        if self.is_spread(segment) {
            let comm = self.index;
            let own = self.member(segment, rank)?;
            if !elsewhere.is_empty() {
                let notice = Notice::Came { comm, number, member: rank, awaited_by: elsewhere };
                far::tell(segment, mail, own, &notice)?;
            }
            if phase.arrived_here.fetch_add(1, SeqCst) + 1 == self.here(segment) {
                far::tell(segment, mail, own, &Notice::AllCame { comm, number })?;
            }
        }
        let arrived = phase.arrived.fetch_add(1, SeqCst) + 1;
        Ok(if arrived == self.size(segment) { Arrival::Last } else { Arrival::Here })
    }

    /// One has come for whom these wait, though not for all; those that are on other nodes.
    pub(super) fn count_for(
        self,
        segment: &Segment,
        number: u64,
        awaited_by: &[u32],
        wake: &mut dyn FnMut(u32),
    ) -> Vec<u32> {
        let mut elsewhere = vec![];
        for &other in awaited_by {
            if !self.is_here(segment, other) {
                elsewhere.push(other);
                continue;
            }
            let seat = self.seat(segment, number, other);
            let come = seat.come.fetch_add(1, SeqCst) + 1;
            if come == seat.awaits.load(SeqCst) {
                self.wake_if_waiting(segment, number, other, wake);
            }
        }
        elsewhere
    }

    /// The rank of a member.
    pub(super) fn member(self, segment: &Segment, rank: u32) -> Result<u32> {
        let member = self.members(segment).get(rank as usize).map(|member| member.load(SeqCst));
        let member = member.filter(|&member| member < segment.np());
        member.ok_or_else(|| Error::Damaged(format!("member {rank} of communicator {}", self.index)))
    }

    pub(super) fn is_here(self, segment: &Segment, rank: u32) -> bool {
        !segment.is_spread() || self.member(segment, rank).is_ok_and(|member| segment.is_here(member))
    }

    /// By the gateway: a member that is on another node comes, or has come already.
    pub fn arrive_far(
        self,
        segment: &Segment,
        mail: &Mail,
        coming: &FarComing<'_>,
        wake: &mut dyn FnMut(u32),
    ) -> Result<Arrival> {
        let FarComing { number, rank, names, .. } = *coming;
        let (phase, seat) = (self.phase(segment, number), self.seat(segment, number, rank));
        if phase.number.load(SeqCst) != number {
            return Ok(Arrival::TooEarly);
        }
        if seat.here.load(SeqCst) == has_come(number) {
            return Ok(Arrival::Here);
        }
        seat.part.put_far(segment, mail, coming.len, coming.head)?;
        for name in names.into_iter().filter(|&name| name != 0) {
            if let Err(theirs) = phase.name.compare_exchange(0, name, SeqCst, SeqCst)
                && theirs != name
            {
                phase.other_name.store(name, SeqCst);
            }
        }
        seat.awaits.store(0, SeqCst);
        seat.here.store(has_come(number), SeqCst);
        self.count_for(segment, number, coming.awaited_by, wake);
        if phase.arrived.fetch_add(1, SeqCst) + 1 != self.size(segment) {
            return Ok(Arrival::Here);
        }
        if phase.combines.load(SeqCst) != 0 {
            phase.claim.store(1, SeqCst);
        } else {
            self.complete(segment, mail, number, None)?;
        }
        self.wake_all(segment, number, wake);
        Ok(Arrival::Last)
    }

    /// All have come, the gateway last, and somebody is to combine the parts: is it left to the caller? Who
    /// claims it does what [`Arrival::Last`] says.
    pub fn claim(self, segment: &Segment, number: u64) -> bool {
        self.is_to_be_claimed(segment, number)
            && self.phase(segment, number).claim.compare_exchange(1, 2, SeqCst, SeqCst).is_ok()
    }

    /// Whether [`Comm::claim`] may succeed. Reads shared memory only.
    pub fn is_to_be_claimed(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).claim.load(SeqCst) == 1
    }

    /// By the gateway: what a member here has come with; nothing if the collective is over, and so nobody
    /// wants it any more. An error if it cannot be read while somebody may.
    pub fn see(self, segment: &Segment, mail: &Mail, number: u64, rank: u32) -> Result<Seen> {
        let is_now = || {
            let is_its = self.phase(segment, number).number.load(SeqCst) == number;
            // It may have found the phase taken when it came to the next collective there.
            is_its && self.seat(segment, number, rank).here.load(SeqCst) >= has_come(number)
        };
        if !is_now() {
            return Ok(Seen::default());
        }
        let phase = self.phase(segment, number);
        let names = [phase.name.load(SeqCst), phase.other_name.load(SeqCst)];
        let len = self.part_len(segment, number, rank);
        let mut head = vec![0; if len <= 2 * HEAD { len } else { HEAD }];
        let read = self.part(segment, mail, number, rank, 0, &mut head);
        // What was freed meanwhile may have been read amiss.
        if !is_now() {
            return Ok(Seen::default());
        }
        read.map(|()| Seen { names, len: len as u64, head })
    }

    /// Are these bytes of a part on this node?
    pub fn is_near(self, segment: &Segment, number: u64, rank: u32, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        !segment.is_spread() || end <= self.seat(segment, number, rank).part.near()
    }

    pub(super) fn wake_if_waiting(
        self,
        segment: &Segment,
        number: u64,
        rank: u32,
        wake: &mut dyn FnMut(u32),
    ) {
        let Some(member) = self.members(segment).get(rank as usize) else { return };
        let member = member.load(SeqCst);
        if member >= segment.np() || !segment.is_here(member) {
            return;
        }
        match segment.rank(member).waiting() {
            Waiting::Collective { comm, number: other } if comm == self.index && other == number => {}
            Waiting::Anything => {}
            _ => return,
        }
        wake(member);
    }

    /// By who has completed a collective: `wake` is called with each member that may have waited for that.
    pub fn wake_all(self, segment: &Segment, number: u64, wake: &mut dyn FnMut(u32)) {
        if !segment.may_any_sleep() {
            return;
        }
        for rank in 0..self.size(segment) {
            if self.seat(segment, number, rank).awaits.load(SeqCst) == ALL {
                self.wake_if_waiting(segment, number, rank, wake);
            }
        }
    }

    /// Have those come that this member said it waits for? Reads shared memory only.
    pub fn is_enough(self, segment: &Segment, number: u64, rank: u32) -> bool {
        let seat = self.seat(segment, number, rank);
        match seat.awaits.load(SeqCst) {
            ALL => self.is_complete(segment, number),
            awaits => seat.come.load(SeqCst) >= awaits,
        }
    }

    /// Can this member come to a collective, which was too early for it? Reads shared memory only.
    pub fn is_free(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).number.load(SeqCst) >= number
    }

    /// By the gateway: can a member that is elsewhere come to it, or leave it?
    pub fn is_now(self, segment: &Segment, number: u64) -> bool {
        self.phase(segment, number).number.load(SeqCst) == number
    }

    /// How many have not come yet to collective `number`; 0 once complete.
    pub fn missing(self, segment: &Segment, number: u64) -> u32 {
        if self.is_complete(segment, number) {
            return 0;
        }
        self.size(segment).saturating_sub(self.phase(segment, number).arrived.load(SeqCst))
    }

    /// Who has not come yet, by their ranks in the communicator.
    pub fn absent(self, segment: &Segment, number: u64) -> Vec<u32> {
        let here = |rank: &u32| self.seat(segment, number, *rank).here.load(SeqCst) >= has_come(number);
        (0..self.size(segment)).filter(|rank| !here(rank)).collect()
    }

    /// If ranks came with different names: two of them.
    pub fn names_differ(self, segment: &Segment, number: u64) -> Option<(u64, u64)> {
        let phase = self.phase(segment, number);
        let other = phase.other_name.load(SeqCst);
        (other != 0).then(|| (phase.name.load(SeqCst), other))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicBool;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::spread::Spread;

    /// Told to other nodes as an empty one it would be lost, and nobody would know.
    #[test]
    fn a_part_that_cannot_be_read_is_no_empty_one() {
        let spread = Spread { ranks: 4, nodes: 2, node: 0 };
        // No room in RAM: all go to scratch, which can be written and not be read.
        let segment = Segment::create_spread(spread, 1 << 24, 0, 2).unwrap();
        let spill = memfd_create("spill", MemfdFlags::CLOEXEC).unwrap();
        let written = format!("/proc/self/fd/{}", spill.as_raw_fd());
        let written = std::fs::File::options().write(true).open(written).unwrap();
        let mail = Mail::create(written.into()).unwrap();
        let world = Comm::WORLD;
        let come = |rank, part: &[u8]| {
            let part = &[part][..];
            let coming =
                Coming { number: 0, rank, name: 7, awaits: None, awaited_by: &[], combines: false, part };
            world.arrive(&segment, &mail, &coming, &mut |_| ()).unwrap();
        };
        come(0, &[5; 100]);
        come(1, &[6; 10]);
        let seen = world.see(&segment, &mail, 0, 0);
        assert!(matches!(seen, Err(Error::Scratch { .. })), "{seen:?}");
        let short = world.see(&segment, &mail, 0, 1).unwrap();
        assert_eq!((short.len, &short.head[..]), (10, &[6; 10][..]));
        // Nobody wants what is of a collective that is over.
        world.phase(&segment, 0).number.store(8, SeqCst);
        assert_eq!(world.see(&segment, &mail, 0, 0).unwrap().len, 0);
    }

    /// The gateway tells of who has come while the last leaves, who needs nothing of other nodes: it sees
    /// all of a part or that the collective is over, and never half of what is being freed.
    #[test]
    fn a_part_is_seen_whole_or_not_at_all_while_the_last_leaves() {
        let spread = Spread { ranks: 4, nodes: 2, node: 0 };
        let segment = Segment::create_spread(spread, 1 << 24, 0, 2).unwrap();
        let mail = Mail::create(memfd_create("spill", MemfdFlags::CLOEXEC).unwrap()).unwrap();
        let world = Comm::WORLD;
        for number in 0..4000 {
            for rank in 0..4 {
                let part = &[&[7_u8; 20][..]][..];
                if rank < 2 {
                    let (name, awaits, awaited_by, combines) = (7, None, &[][..], false);
                    let coming = Coming { number, rank, name, awaits, awaited_by, combines, part };
                    world.arrive(&segment, &mail, &coming, &mut |_| ()).unwrap();
                } else {
                    let (names, awaited_by, len, head) = ([7, 0], &[][..], 20, part[0]);
                    let coming = FarComing { number, rank, names, awaited_by, len, head };
                    world.arrive_far(&segment, &mail, &coming, &mut |_| ()).unwrap();
                }
            }
            assert!(!world.left(&segment, &mail, number, 2, &mut |_| ()));
            let is_seen = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_seen.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                    assert!(world.left(&segment, &mail, number, 2, &mut |_| ()));
                });
                loop {
                    let seen = [0, 1].map(|rank| world.see(&segment, &mail, number, rank).unwrap());
                    is_seen.store(true, SeqCst);
                    if seen.iter().any(|seen| seen.len == 0) {
                        break;
                    }
                    assert!(seen.iter().all(|seen| seen.head == [7; 20] && seen.names == [7, 0]));
                }
            });
        }
    }
}
