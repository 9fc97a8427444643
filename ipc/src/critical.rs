//! A critical section of the node: so many ranks are inside at once, in the order in which they came.
//!
//! Whoever comes takes a ticket and waits as a rank does; whoever leaves wakes the rank whose ticket is next.
//! None that is outside is missed: a waiter notes its ticket and then looks how many have left, a leaver
//! counts itself and then looks for that ticket. A rank that ends inside has not left: nobody after it comes
//! in.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::segment::Segment;

/// Lies in the segment's header.
#[repr(C)]
#[derive(Debug)]
pub struct Critical {
    /// How many may be inside; 0 until the first one has come.
    most: AtomicU32,
    come: AtomicU32,
    left: AtomicU32,
}

impl Critical {
    /// A ticket. The first who comes says how many may be inside; at least one may.
    pub fn come(&self, most: u32) -> u32 {
        let _ = self.most.compare_exchange(0, most.max(1), SeqCst, SeqCst);
        self.come.fetch_add(1, SeqCst)
    }

    /// Whether one with this ticket may go in. Reads two words.
    pub fn may_enter(&self, ticket: u32) -> bool {
        // Numbers begin again after the last one; as many ranks there are not.
        (ticket.wrapping_sub(self.left.load(SeqCst)) as i32) < self.most.load(SeqCst) as i32
    }

    /// One who was inside is not; the ticket that may go in for it.
    pub fn leave(&self) -> u32 {
        self.left.fetch_add(1, SeqCst).wrapping_add(self.most.load(SeqCst))
    }
}

/// By a rank: it waits with this ticket, or does not any more.
pub fn note(segment: &Segment, rank: u32, ticket: Option<u32>) {
    segment.rank(rank).ticket.store(ticket.map_or(0, |ticket| u64::from(ticket) + 1), SeqCst);
}

/// Whether a rank waits to go in.
pub fn waits(segment: &Segment, rank: u32) -> bool {
    segment.rank(rank).ticket.load(SeqCst) != 0
}

/// The rank that waits with a ticket.
pub fn waiter(segment: &Segment, ticket: u32) -> Option<u32> {
    segment.here().find(|&rank| segment.rank(rank).ticket.load(SeqCst) == u64::from(ticket) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn segment(np: u32) -> Segment {
        Segment::create(np, 1 << 20, 1 << 18, 1).unwrap()
    }

    #[test]
    fn they_go_in_as_they_came() {
        let segment = segment(4);
        let critical = &segment.header().critical;
        let tickets: Vec<u32> = (0..4).map(|_| critical.come(2)).collect();
        let inside = || tickets.iter().map(|&ticket| critical.may_enter(ticket)).collect::<Vec<_>>();
        assert_eq!(inside(), [true, true, false, false]);
        note(&segment, 3, Some(tickets[2]));
        assert!(waits(&segment, 3) && !waits(&segment, 0));
        assert_eq!(waiter(&segment, critical.leave()), Some(3));
        note(&segment, 3, None);
        assert_eq!(inside(), [true, true, true, false]);
        assert_eq!(waiter(&segment, critical.leave()), None, "the next one does not sleep yet");
        assert_eq!(inside(), [true; 4]);
        assert_eq!(critical.come(9), 4, "another number than the first one's means nothing");
        assert!(!critical.may_enter(4));
    }

    #[test]
    fn tickets_begin_again() {
        let segment = segment(1);
        let critical = &segment.header().critical;
        for word in [&critical.come, &critical.left] {
            word.store(u32::MAX, SeqCst);
        }
        assert_eq!((critical.come(1), critical.come(1)), (u32::MAX, 0));
        assert!(critical.may_enter(u32::MAX) && !critical.may_enter(0));
        assert_eq!(critical.leave(), 0);
        assert!(critical.may_enter(0));
    }

    #[test]
    fn never_more_than_may_be() {
        let (segment, inside) = (segment(1), AtomicU32::new(0));
        let critical = &segment.header().critical;
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let ticket = critical.come(3);
                        while !critical.may_enter(ticket) {
                            std::thread::yield_now();
                        }
                        assert!(inside.fetch_add(1, SeqCst) < 3);
                        inside.fetch_sub(1, SeqCst);
                        critical.leave();
                    }
                });
            }
        });
    }
}
