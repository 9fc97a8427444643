//! Ranks of other nodes. They have their places in the segment of each node, and nobody is there: what is
//! sent to them lies in their inboxes until the *gateway*, a thread of the master, takes it to their node,
//! and what they do at collectives it does here for them ([`crate::collective`]).
//!
//! What a rank tells the gateway is a *notice*. Some are questions (a communicator is to be opened at all
//! nodes of its members; parts that lie elsewhere are wanted): their answers come to the rank's [`Answer`],
//! one at a time, and the rank waits for them as for anything else.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use crate::inbox;
use crate::mail::{Mail, Place};
use crate::segment::{AtomicsOnly, Segment};
use crate::{Error, Result};

/// What a rank tells the gateway of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A communicator was made: it is to be opened where its members are. A question.
    Opened {
        /// Its index.
        comm: u32,
    },
    /// All members of this node have given up their handles.
    Closed {
        /// Its index.
        comm: u32,
    },
    /// A member came to a collective, and members elsewhere wait for it.
    Came {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
        /// The member.
        member: u32,
        /// Those that wait for this one though not for all.
        awaited_by: Vec<u32>,
    },
    /// All members of this node have come.
    AllCame {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
    },
    /// And all have left.
    AllLeft {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
    },
    /// Bytes of parts that lie elsewhere. A question.
    Wants {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
        /// Which.
        ranges: Vec<Range>,
    },
    /// The word of a communicator that another node holds is changed. A question, answered by what it was
    /// (8 bytes).
    Word {
        /// Index of the communicator.
        comm: u32,
        /// How.
        change: Change,
    },
}

/// What happens to the word of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Change {
    /// So much is added, beyond the last number from the first one on again.
    Add(i64),
    /// It becomes this.
    Set(i64),
}

impl Change {
    /// Does it; what the word was.
    pub fn apply(self, word: &AtomicI64) -> i64 {
        match self {
            Self::Add(more) => word.fetch_add(more, SeqCst),
            Self::Set(new) => word.swap(new, SeqCst),
        }
    }
}

/// Bytes of a member's part of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Range {
    /// The member.
    pub member: u32,
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// Most bytes that one question may ask for.
pub const MOST_WANTED: u64 = 1 << 20;

/// Most bytes of a notice: more than any question has ranges. What claims to be longer is of nobody's
/// making, and would take the master's memory.
const MOST_TOLD: u64 = 64 << 20;

impl Notice {
    fn to_words(&self) -> Vec<u64> {
        match self {
            Self::Opened { comm } => vec![0, u64::from(*comm)],
            Self::Closed { comm } => vec![1, u64::from(*comm)],
            Self::Came { comm, number, member, awaited_by } => {
                let mut words = vec![2, u64::from(*comm), *number, u64::from(*member)];
                words.extend(awaited_by.iter().map(|&other| u64::from(other)));
                words
            }
            Self::AllCame { comm, number } => vec![3, u64::from(*comm), *number],
            Self::AllLeft { comm, number } => vec![4, u64::from(*comm), *number],
            Self::Wants { comm, number, ranges } => {
                let mut words = vec![5, u64::from(*comm), *number];
                words.extend(ranges.iter().flat_map(|r| [u64::from(r.member), r.offset, r.len]));
                words
            }
            Self::Word { comm, change: Change::Add(more) } => vec![6, u64::from(*comm), more.cast_unsigned()],
            Self::Word { comm, change: Change::Set(new) } => vec![7, u64::from(*comm), new.cast_unsigned()],
        }
    }

    fn from_words(words: &[u64]) -> Option<Self> {
        let small = |word: u64| u32::try_from(word).ok();
        Some(match *words {
            [0, comm] => Self::Opened { comm: small(comm)? },
            [1, comm] => Self::Closed { comm: small(comm)? },
            [2, comm, number, member, ref awaited_by @ ..] => {
                let awaited_by = awaited_by.iter().map(|&other| small(other)).collect::<Option<_>>()?;
                Self::Came { comm: small(comm)?, number, member: small(member)?, awaited_by }
            }
            [3, comm, number] => Self::AllCame { comm: small(comm)?, number },
            [4, comm, number] => Self::AllLeft { comm: small(comm)?, number },
            [5, comm, number, ref ranges @ ..] => {
                let (ranges, []) = ranges.as_chunks() else { return None };
                let range =
                    |&[member, offset, len]: &[u64; 3]| Some(Range { member: small(member)?, offset, len });
                let ranges = ranges.iter().map(range).collect::<Option<_>>()?;
                Self::Wants { comm: small(comm)?, number, ranges }
            }
            [6, comm, more] => Self::Word { comm: small(comm)?, change: Change::Add(more.cast_signed()) },
            [7, comm, new] => Self::Word { comm: small(comm)?, change: Change::Set(new.cast_signed()) },
            _ => return None,
        })
    }
}

/// By a rank: tells the gateway. Never waits.
pub fn tell(segment: &Segment, mail: &Mail, rank: u32, notice: &Notice) -> Result<()> {
    let words: Vec<u8> = notice.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
    let unpaid = inbox::push_notice(segment, mail, rank, &words)?;
    if unpaid > 0 {
        // A block of headers that is not free is taken all the same: notices are few, and soon read.
        segment.header().pool.force(unpaid);
        segment.header().pool.headers_paid(unpaid);
    }
    segment.ring_gateway();
    Ok(())
}

/// By the gateway: what ranks have told, in the order of each.
pub fn heard(segment: &Segment, mail: &Mail, take: &mut dyn FnMut(u32, Notice)) -> Result<()> {
    let mut all = vec![];
    inbox::drain_notices(segment, &mut all)?;
    for notice in all {
        if !segment.here().contains(&notice.source) || notice.len > MOST_TOLD {
            let (rank, len) = (notice.source, notice.len);
            return Err(Error::Damaged(format!("a notice of rank {rank} and {len} bytes to the gateway")));
        }
        let (rank, mut bytes) = (notice.source, vec![0; notice.len as usize]);
        inbox::take(segment, mail, notice, &mut bytes)?;
        let (words, _) = bytes.as_chunks();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let notice = Notice::from_words(&words)
            .ok_or_else(|| Error::Damaged(format!("a notice of rank {rank} to the gateway")))?;
        take(rank, notice);
    }
    Ok(())
}

/// Have ranks told something that was not heard yet?
#[must_use]
pub fn is_any_told(segment: &Segment) -> bool {
    inbox::has_notices(segment)
}

/// The answer to a rank's question.
#[repr(C, align(64))]
pub struct Answer {
    /// Questions answered so far.
    count: AtomicU64,
    len: AtomicU64,
    place: [AtomicU64; 2],
}

// SAFETY: all fields are atomics.
unsafe impl AtomicsOnly for Answer {}

impl Answer {
    /// How many questions were answered. Reads shared memory only.
    pub fn count(&self) -> u64 {
        self.count.load(SeqCst)
    }

    /// By the gateway: answers, with bytes. The caller then wakes the rank.
    pub fn give(&self, segment: &Segment, mail: &Mail, pieces: &[&[u8]]) -> Result<()> {
        let place = mail.put(segment, pieces)?;
        let [kind, offset] = place.to_words();
        self.place[0].store(kind, SeqCst);
        self.place[1].store(offset, SeqCst);
        self.len.store(place.len(), SeqCst);
        self.count.fetch_add(1, SeqCst);
        Ok(())
    }

    /// By the rank, once it was answered: the bytes in pieces, as many as were asked for.
    pub fn take(&self, segment: &Segment, mail: &Mail, pieces: &mut [&mut [u8]]) -> Result<()> {
        let words = [self.place[0].load(SeqCst), self.place[1].load(SeqCst)];
        let place = Place::from_words(words, self.len.load(SeqCst));
        if place.len() != pieces.iter().map(|piece| piece.len() as u64).sum::<u64>() {
            return Err(Error::Damaged(format!("an answer of {} bytes", place.len())));
        }
        let mut offset = 0;
        for piece in pieces {
            mail.get(segment, &place, offset, piece)?;
            offset += piece.len() as u64;
        }
        mail.release(segment, &place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    use crate::spread::Spread;

    #[test]
    fn notices_are_heard_in_order_and_answered() {
        let spread = Spread { ranks: 4, nodes: 2, node: 1 };
        let segment = Segment::create_spread(spread, 1 << 24, 1 << 20, 2).unwrap();
        let mail = Mail::create(memfd_create("spill", MemfdFlags::CLOEXEC).unwrap()).unwrap();
        let ranges = (0..100).map(|n| Range { member: n, offset: 7, len: 1 << 40 }).collect();
        let notices = [
            Notice::Opened { comm: 3 },
            Notice::Closed { comm: 3 },
            Notice::Came { comm: 0, number: 1 << 40, member: 2, awaited_by: vec![0, 1] },
            Notice::AllCame { comm: 0, number: 9 },
            Notice::AllLeft { comm: 0, number: 9 },
            Notice::Wants { comm: 1, number: 2, ranges },
            Notice::Word { comm: 3, change: Change::Add(-5) },
            Notice::Word { comm: 3, change: Change::Set(i64::MAX) },
        ];
        for notice in &notices {
            tell(&segment, &mail, 3, notice).unwrap();
        }
        let mut heard_of = vec![];
        heard(&segment, &mail, &mut |rank, notice| heard_of.push((rank, notice))).unwrap();
        assert!(heard_of.iter().map(|(rank, notice)| (*rank, notice)).eq(notices.iter().map(|n| (3, n))));
        let answer = segment.answer(3);
        assert_eq!(answer.count(), 0);
        answer.give(&segment, &mail, &[b"ab", b"cde"]).unwrap();
        let (mut one, mut two) = ([0; 1], [0; 4]);
        answer.take(&segment, &mail, &mut [&mut one, &mut two]).unwrap();
        assert_eq!((answer.count(), &one, &two), (1, b"a", b"bcde"));
        mail.give_spares_back(&segment);
        assert_eq!(segment.header().pool.mail(), 64 << 10, "what is left are headers");
    }

    #[test]
    fn a_notice_of_nobody_is_told() {
        let spread = Spread { ranks: 4, nodes: 2, node: 1 };
        let segment = Segment::create_spread(spread, 1 << 24, 1 << 20, 2).unwrap();
        let mail = Mail::create(memfd_create("spill", MemfdFlags::CLOEXEC).unwrap()).unwrap();
        for stray in [0, 4, u32::MAX] {
            tell(&segment, &mail, stray, &Notice::Closed { comm: 3 }).unwrap();
            let heard = heard(&segment, &mail, &mut |_, _| panic!("it came from nobody here"));
            assert!(matches!(heard, Err(Error::Damaged(_))), "{stray}: {heard:?}");
        }
        tell(&segment, &mail, 3, &Notice::Closed { comm: 3 }).unwrap();
        let mut count = 0;
        heard(&segment, &mail, &mut |_, _| count += 1).unwrap();
        assert_eq!(count, 1);
    }

    #[test]
    fn what_is_no_notice_is_told() {
        for words in [&[][..], &[9], &[0], &[0, 1 << 32], &[5, 0, 0, 1], &[2, 0, 0]] {
            assert_eq!(Notice::from_words(words), None, "{words:?}");
        }
    }
}
