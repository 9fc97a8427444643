//! Messages that have come and wait to be received.

use std::collections::VecDeque;

use crate::transport::Result;
use crate::{Cause, Tag};

/// Of one sender, in order; each with a label.
#[derive(Debug)]
pub struct Queue<L>(VecDeque<(L, Vec<u8>)>);

impl<L> Default for Queue<L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L> Queue<L> {
    /// None has come.
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// One has.
    pub fn push(&mut self, label: L, message: Vec<u8>) {
        self.0.push_back((label, message));
    }
}

impl<L: PartialEq> Queue<L> {
    /// The first one with that label.
    pub fn take(&mut self, label: &L) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|(is, _)| is == label)?;
        self.0.remove(at).map(|(_, message)| message)
    }
}

/// A message into the buffer for it.
pub fn deliver(message: &[u8], into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
    if message.len() != into.len() {
        return Err(Cause::Length { from, tag, bytes: message.len(), room: into.len() });
    }
    into.copy_from_slice(message);
    Ok(())
}

/// What is wrong where a rank waits for a message of its own that is not there.
pub const NEVER: Cause = Cause::Never("a rank waits for a message of its own that it has not sent");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_with_a_label_is_taken() {
        let mut queue = Queue::new();
        for (label, byte) in [(1, 1), (2, 2), (3, 3), (1, 4)] {
            queue.push(label, vec![byte]);
        }
        let mut take = |label| queue.take(&label).map(|message| message[0]);
        assert_eq!((take(2), take(1), take(1), take(1)), (Some(2), Some(1), Some(4), None));
        assert_eq!((take(3), take(3)), (Some(3), None));
    }
}
