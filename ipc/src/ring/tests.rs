//! The ring beside a naive model: two lists.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A ring, and an inbox beside it, as `lane.rs` uses them.
struct Pair {
    lines: Vec<AtomicU64>,
    ends: Ends,
    sender: Sender,
    inbox: VecDeque<(u32, Vec<u8>)>,
}

impl Pair {
    fn new(lines: usize) -> Self {
        let lines = (0..lines * LINE).map(|_| AtomicU64::new(0)).collect();
        Self { lines, ends: Ends::default(), sender: Sender::default(), inbox: VecDeque::new() }
    }

    /// As if so many lines had been written and read.
    fn at(lines: usize, at: u64) -> Self {
        let mut pair = Self::new(lines);
        // What lies there is of the turn before.
        for nth in 0..lines as u64 {
            let stamp = pair.ring().stamp(at.wrapping_sub(nth + 1));
            pair.ring().line(at.wrapping_sub(nth + 1))[0].store(stamp, Relaxed);
        }
        pair.ends.receiving.read.store(at, Relaxed);
        (pair.sender.written, pair.sender.read) = (at, at);
        pair
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.lines, &self.ends)
    }

    /// Whether it went by the ring.
    fn send(&mut self, data: &[u8]) -> bool {
        let ring = Ring::new(&self.lines, &self.ends);
        let put = self.sender.put(&ring, [data.len() as u64, 7], data, false).unwrap();
        if !put {
            let mark = self.sender.go_outside();
            self.inbox.push_back((mark, data.to_vec()));
        }
        put
    }

    fn take_line(&self) -> Option<Vec<u8>> {
        let ring = self.ring();
        assert_eq!(ring.is_empty(), ring.peek().unwrap().is_none());
        let seen = ring.peek().unwrap()?;
        assert_eq!((seen.head, seen.is_aside), ([seen.len as u64, 7], false));
        let mut data = vec![0; seen.len];
        ring.copy(&seen, 0, &mut data).unwrap();
        // Each part of it by itself.
        for from in 0..seen.len {
            let mut part = vec![0; (seen.len - from).min(61)];
            ring.copy(&seen, from, &mut part).unwrap();
            assert_eq!(part, data[from..from + part.len()]);
        }
        assert_eq!(ring.copy(&seen, 1, &mut vec![0; seen.len]), Err(Damaged), "past its end");
        ring.pass(&seen);
        Some(data)
    }

    /// What the receiver takes next if it looks into the inbox first, or last.
    fn take(&mut self, inbox_first: bool) -> Option<Vec<u8>> {
        if !inbox_first && let Some(data) = self.take_line() {
            return Some(data);
        }
        let Some(&(mark, _)) = self.inbox.front() else { return self.take_line() };
        if !self.ring().has_passed(mark) {
            return Some(self.take_line().expect("it was written before"));
        }
        self.ring().took_outside();
        Some(self.inbox.pop_front()?.1)
    }
}

fn data(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number) as u8).collect()
}

proptest! {
    /// Whatever fits and does not, and whichever way the receiver looks first: nothing overtakes.
    #[test]
    fn as_a_list_would(
        deeds in proptest::collection::vec((0_u8..4, 0_usize..700), 0..300),
        begin in prop_oneof![Just(0), Just(16_u64 << 32), Just((1_u64 << 36) - 5), Just(u64::MAX - 3)],
    ) {
        let (mut pair, mut model) = (Pair::at(16, begin), VecDeque::new());
        for (number, (deed, len)) in deeds.into_iter().enumerate() {
            match deed {
                0 | 1 => {
                    let data = data(number, if deed == 0 { len % 50 } else { len });
                    pair.send(&data);
                    model.push_back(data);
                }
                _ => prop_assert_eq!(pair.take(deed == 2), model.pop_front()),
            }
        }
        while let Some(expected) = model.pop_front() {
            prop_assert_eq!(pair.take(model.len() % 2 == 0), Some(expected));
        }
        prop_assert_eq!(pair.take(true), None);
        prop_assert!(pair.ring().is_empty());
    }

    /// No word that another process writes makes anybody compute an index from it, or read without end.
    #[test]
    fn whatever_lies_there(
        words in proptest::collection::vec((0_usize..64, any::<u64>()), 0..40),
        read in any::<u64>(),
        taken in any::<u64>(),
    ) {
        let mut pair = Pair::new(8);
        for number in 0..5 {
            pair.send(&data(number, 30 * number));
        }
        words.iter().for_each(|&(at, word)| pair.lines[at].store(word, Relaxed));
        pair.ends.receiving.read.store(read, Relaxed);
        pair.ends.receiving.taken.store(taken, Relaxed);
        let ring = Ring::new(&pair.lines, &pair.ends);
        for _ in 0..20 {
            let Ok(Some(seen)) = ring.peek() else { break };
            prop_assert!(seen.len <= ring.most());
            let _ = ring.copy(&seen, 0, &mut vec![0; seen.len]);
            ring.pass(&seen);
        }
        let _ = pair.sender.put(&ring, [0; 2], &[1; 40], false);
    }
}

/// The bytes of a message are never taken for the first line of one, whatever they are.
#[test]
fn bytes_are_no_stamps() {
    for byte in 0..=255 {
        let mut pair = Pair::new(8);
        for turn in 0..40 {
            assert!(pair.send(&[byte; FIRST + NEXT]), "in turn {turn}");
            assert_eq!(pair.take(true), Some(vec![byte; FIRST + NEXT]));
            assert!(pair.ring().is_empty(), "bytes of {byte}, turn {turn}");
        }
    }
}

#[test]
fn a_full_ring_is_left_until_nothing_is_outside() {
    let mut pair = Pair::new(8);
    for number in 0..8 {
        assert!(pair.send(&data(number, 8)));
    }
    assert!(!pair.send(&data(8, 8)), "full");
    for number in 0..8 {
        assert_eq!(pair.take_line(), Some(data(number, 8)));
    }
    assert!(!pair.send(&data(9, 8)), "there is room, but one is outside");
    assert_eq!((pair.take(false), pair.take(false)), (Some(data(8, 8)), Some(data(9, 8))));
    assert!(pair.send(&data(10, 8)));
    assert_eq!(pair.take(true), Some(data(10, 8)));
}

/// A line that another process has taken away within a message is told.
#[test]
fn a_damaged_line_is_told() {
    let mut pair = Pair::new(16);
    let most = pair.ring().most();
    assert!(pair.send(&data(0, most)));
    pair.lines[2 * LINE].store(0, Relaxed);
    let seen = pair.ring().peek().unwrap().unwrap();
    assert_eq!(pair.ring().copy(&seen, 0, &mut vec![0; most]), Err(Damaged));
    pair.lines[0].store(pair.ring().stamp(0) | (most as u64 + 1), Relaxed);
    assert_eq!(pair.ring().peek().err(), Some(Damaged), "longer than any");
    pair.ends.receiving.read.store(17, Relaxed);
    pair.sender.written = 16;
    let ring = Ring::new(&pair.lines, &pair.ends);
    assert_eq!(pair.sender.put(&ring, [0; 2], &[0; 8], false), Err(Damaged), "more was read than written");
}
