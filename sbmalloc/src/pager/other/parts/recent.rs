//! What was evicted last, still in RAM.
//!
//! After parts have left, the rank holds less than it may for a while. Until it needs that room, what has
//! just left stays there: whoever misses it has it back without the disk. So what is used all the time costs
//! little when it is its turn to leave, and is known for it (`choice`): nothing else tells of use.

use crate::sys::{self, Errno, PAGE};
use std::collections::{HashMap, VecDeque};

/// Bytes that are made free at once.
const CHUNK: usize = 256 << 10;
const PAGES: usize = CHUNK / PAGE;
/// Bytes at most, whatever room there is.
const MOST: u64 = 64 << 20;

/// Memory of our own, one chunk of it.
#[derive(Debug)]
struct Memory(usize);

impl Memory {
    fn new() -> Result<Self, Errno> {
        sys::map_anon_aligned(CHUNK, PAGE).map(Self)
    }

    fn page(&self, page: usize) -> &[u8] {
        assert!(page < PAGES);
        // SAFETY: a part of the mapping made above, which this owns, and which is borrowed as this is.
        unsafe { std::slice::from_raw_parts((self.0 + page * PAGE) as *const u8, PAGE) }
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8] {
        assert!(page < PAGES);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut((self.0 + page * PAGE) as *mut u8, PAGE) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        sys::unmap(self.0, CHUNK);
    }
}

/// Pages one behind the other as they left, and the slot of each.
#[derive(Debug)]
struct Chunk {
    memory: Memory,
    slots: Vec<u32>,
}

/// Pages by the slots they were written to.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The oldest in front.
    chunks: VecDeque<Chunk>,
    /// The number of the first of all pages that are there.
    first: u64,
    /// The number of the page that holds what was last written to a slot.
    pages: HashMap<u32, u64>,
    /// So many chunks there may be.
    room: usize,
}

impl Recent {
    /// Bytes of RAM that it takes.
    pub fn bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK) as u64
    }

    /// There is room for so many bytes from now on; the oldest make room.
    pub fn allow(&mut self, bytes: u64) {
        self.room = (bytes.min(MOST) / CHUNK as u64) as usize;
        while self.chunks.len() > self.room {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> Option<Memory> {
        let Chunk { memory, slots } = self.chunks.pop_front()?;
        for (number, slot) in (self.first..).zip(&slots) {
            if self.pages.get(slot) == Some(&number) {
                self.pages.remove(slot);
            }
        }
        self.first += PAGES as u64;
        Some(memory)
    }

    /// A page leaves, which is in a slot.
    pub fn put(&mut self, slot: u32, content: &[u8]) {
        let is_full = self.chunks.back().is_none_or(|chunk| chunk.slots.len() == PAGES);
        if is_full && !self.begin_chunk() {
            // What was there of it before is not what it is now.
            self.pages.remove(&slot);
            return;
        }
        let before = (self.chunks.len() - 1) * PAGES;
        let Some(Chunk { memory, slots }) = self.chunks.back_mut() else { return };
        memory.page_mut(slots.len()).copy_from_slice(content);
        self.pages.insert(slot, self.first + (before + slots.len()) as u64);
        slots.push(slot);
    }

    fn begin_chunk(&mut self) -> bool {
        let oldest = if self.chunks.len() >= self.room { self.forget_oldest() } else { None };
        let memory = match oldest {
            Some(memory) => Some(memory),
            None if self.chunks.len() < self.room => Memory::new().ok(),
            None => None,
        };
        let Some(memory) = memory else { return false };
        self.chunks.push_back(Chunk { memory, slots: Vec::with_capacity(PAGES) });
        true
    }

    /// What a slot holds, if that is here.
    pub fn find(&self, slot: u32) -> Option<&[u8]> {
        let place = (self.pages.get(&slot)? - self.first) as usize;
        Some(self.chunks.get(place / PAGES)?.memory.page(place % PAGES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_what_was_put_last() {
        let mut recent = Recent::default();
        let mut random = 1_u32;
        let mut next = move |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        let mut last: HashMap<u32, u32> = HashMap::new();
        let (mut order, mut found) = (vec![], 0);
        for round in 0..20_000_u32 {
            match next(200) {
                0 => recent.allow(u64::from(next(9)) * CHUNK as u64 / 2),
                1..100 => {
                    let slot = next(700);
                    let content = [round.to_le_bytes().as_slice()].concat().repeat(PAGE / 4);
                    recent.put(slot, &content);
                    last.insert(slot, round);
                    order.push(slot);
                }
                _ => {
                    let slot = next(700);
                    let Some(content) = recent.find(slot) else { continue };
                    found += 1;
                    assert!(content.chunks(4).all(|word| word == last[&slot].to_le_bytes()), "{slot}");
                }
            }
            assert!(recent.chunks.len() <= recent.room);
            assert!(recent.pages.len() <= recent.chunks.len() * PAGES);
        }
        assert!(found > 500, "{found}");
        recent.allow(0);
        assert_eq!((recent.bytes(), recent.pages.len()), (0, 0));
    }

    #[test]
    fn those_that_left_last_are_there() {
        let mut recent = Recent::default();
        recent.allow(3 * CHUNK as u64);
        (0..1000).for_each(|slot| recent.put(slot, &[slot as u8; PAGE]));
        let there: Vec<u32> = (0..1000).filter(|&slot| recent.find(slot).is_some()).collect();
        assert!(there.len() > 2 * PAGES && there.len() <= 3 * PAGES, "{}", there.len());
        assert_eq!(
            there.last().zip(there.first()).map(|(a, b)| (*a, a - b + 1)),
            Some((999, there.len() as u32))
        );
    }
}
