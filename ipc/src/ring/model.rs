//! A ring and the way beside it under loom: nothing overtakes, and nobody sleeps over a message. Run as the
//! wake-up protocol's.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{AtomicU64, Ends, LINE, Ring, Sender};
use crate::state::model::{ModelFutex, check};
use crate::state::{Pager, StateWord};

struct Shared {
    lines: Vec<AtomicU64>,
    ends: Ends,
    /// Marks, and what was sent.
    inbox: Mutex<Vec<(u32, u8)>>,
    word: StateWord,
    futex: ModelFutex,
}

/// It stays in RAM: what becomes of a rank that is moved is looked at in the model of the word.
struct Stays;

impl Pager for Stays {
    fn is_whole(&self) -> bool {
        true
    }
    fn evict(&mut self) {}
    fn restore(&mut self) -> bool {
        true
    }
    fn blocked(&mut self) {}
    fn changed(&mut self) {}
}

impl Shared {
    fn new(lines: usize) -> Arc<Self> {
        let lines = (0..lines * LINE).map(|_| AtomicU64::new(0)).collect();
        let (inbox, futex) = (Mutex::new(vec![]), ModelFutex::default());
        let shared = Self { lines, ends: Ends::default(), inbox, word: StateWord::default(), futex };
        assert!(shared.word.birth());
        Arc::new(shared)
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.lines, &self.ends)
    }

    fn send(&self, sender: &mut Sender, number: u8) {
        if !sender.put(&self.ring(), [number.into(), 0], &[number], false).unwrap() {
            let mark = sender.go_outside();
            self.inbox.lock().unwrap().push((mark, number));
        }
        self.word.wake(&self.futex);
    }

    fn is_quiet(&self) -> bool {
        self.inbox.lock().unwrap().is_empty() && self.ring().is_empty()
    }

    fn take_line(&self) -> Option<u8> {
        let seen = self.ring().peek().unwrap()?;
        let mut byte = [0];
        self.ring().copy(&seen, 0, &mut byte).unwrap();
        assert_eq!(seen.head, [byte[0].into(), 0]);
        self.ring().pass(&seen);
        Some(byte[0])
    }

    /// All that has come, as `lane::receive` takes it.
    fn receive(&self, taken: &mut Vec<u8>) {
        for (mark, number) in std::mem::take(&mut *self.inbox.lock().unwrap()) {
            while !self.ring().has_passed(mark) {
                taken.push(self.take_line().expect("it was written before the mark"));
            }
            taken.push(number);
            self.ring().took_outside();
        }
        while let Some(number) = self.take_line() {
            taken.push(number);
        }
    }
}

fn messages(lines: usize, count: u8, preemptions: usize) {
    check(preemptions, move || {
        let shared = Shared::new(lines);
        let sends = thread::spawn({
            let shared = shared.clone();
            move || {
                let mut sender = Sender::default();
                (0..count).for_each(|number| shared.send(&mut sender, number));
            }
        });
        let mut taken = vec![];
        while taken.len() < usize::from(count) {
            shared.receive(&mut taken);
            if taken.len() < usize::from(count) {
                shared.word.wait(&shared.futex, &mut Stays, || !shared.is_quiet());
            }
        }
        assert!(taken.is_sorted(), "{taken:?}");
        sends.join().unwrap();
    });
}

#[test]
fn two_messages_by_the_ring() {
    messages(2, 2, 3);
}

/// One line: the second message goes outside, unless the first was read before; so may the third.
#[test]
fn a_ring_that_is_full() {
    messages(1, 3, 3);
}
