//! One way from a process to another: a ring of cache lines in the segment, of which one writes and the
//! other reads. Only words and positions: nothing of messages but their order. A message that finds no room
//! goes *outside* (by the inbox) with a [mark](Sender::go_outside).
//!
//! # A line
//! Its first word is its *stamp* (which turn of the ring it was written in, so that a line of an earlier one
//! is not taken for new) and in the low half, of the first line of a message, how many bytes follow. A first
//! line then has two words that are the message's, and 40 bytes of it; each line behind it 56 more. The first
//! word of the first line is written last, with release, and read first, with acquire: who sees it sees the
//! message whole. Every line has a stamp, those that go on a message too, so no bytes of a message ever stand
//! where a stamp is looked for.
//!
//! # Nothing overtakes
//! Sends of a process to another are in an order (those of several threads in that of the lock that they
//! hold). Two of them, one after the other:
//! - *ring, ring*: positions are written and read in order.
//! - *outside, outside*: the inbox keeps a sender's order.
//! - *ring, outside*: the mark is the position behind all that was written. The receiver reads the ring up to
//!   it before it takes the message, and finds all there: it was published before the message was pushed.
//! - *outside, ring*: the sender writes only when `taken` is as many as it has sent outside, and the receiver
//!   counts one as taken after it took it.
//!
//! Messages sent before there was a ring have no mark. The one with which the ring begins goes outside and
//! has one, and is taken after them.
//!
//! # Nobody sleeps over it
//! Writing here is "make C true" of the wake-up protocol (`state/README.md`), and [`Ring::is_empty`] is C:
//! the sender publishes, fences, and reads the receiver's word, which the receiver has written before it
//! fences and looks here. loom checks both (`model.rs`).
//!
//! # Whatever another process wrote
//! A position is taken modulo the ring, a length is checked, a line's stamp too: what cannot be is
//! [`Damaged`], never an index. Bytes are copied by words that are atomics. A sender that is killed within a
//! message has not published it.

use crate::sync::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

/// Words of a line.
pub const LINE: usize = 8;
/// Bytes of a message in its first line.
pub const FIRST: usize = 40;
/// The same in each line behind it.
pub const NEXT: usize = 56;

/// What is said of a message beside its bytes.
pub type Head = [u64; 2];

/// What lies there was not written by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// What the receiver writes: a cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Receiving {
    /// Lines read.
    read: AtomicU64,
    /// Messages taken that came outside.
    taken: AtomicU64,
    /// Bytes aside that are not needed any more.
    freed: AtomicU64,
}

/// What the sender writes, and others may read.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Sending {
    bytes: AtomicU64,
}

/// Both ends' words beside the lines. Zeros are an empty ring.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Ends {
    receiving: Receiving,
    sending: Sending,
}

/// A ring in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    lines: &'a [AtomicU64],
    ends: &'a Ends,
}

/// Lines of a message of so many bytes.
const fn lines_of(bytes: usize) -> u64 {
    1 + bytes.saturating_sub(FIRST).div_ceil(NEXT) as u64
}

/// Of a length: the bytes say where the message's are.
const ASIDE: u32 = 1 << 31;

/// A message that was seen, and not yet passed.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// What is said of it.
    pub head: Head,
    /// Its bytes here.
    pub len: usize,
    /// They say where the message's are.
    pub is_aside: bool,
    at: u64,
}

impl<'a> Ring<'a> {
    /// Of `lines`, a power of two of them, with these ends.
    pub fn new(lines: &'a [AtomicU64], ends: &'a Ends) -> Self {
        debug_assert!((lines.len() / LINE).is_power_of_two() && lines.len().is_multiple_of(LINE));
        Self { lines, ends }
    }

    fn lines(&self) -> u64 {
        (self.lines.len() / LINE) as u64
    }

    /// Bytes of messages sent this way in lines.
    pub fn bytes(&self) -> u64 {
        self.ends.sending.bytes.load(Relaxed)
    }

    /// By the sender: so many more.
    #[inline]
    pub fn count(&self, bytes: u64) {
        self.ends.sending.bytes.store(self.bytes().wrapping_add(bytes), Relaxed);
    }

    /// Most bytes of a message: a quarter of the ring, so that several find room.
    pub fn most(&self) -> usize {
        FIRST + NEXT * (self.lines() as usize / 4).saturating_sub(1)
    }

    fn line(&self, at: u64) -> &'a [AtomicU64] {
        let first = (at & (self.lines() - 1)) as usize * LINE;
        &self.lines[first..first + LINE]
    }

    /// Of a line in this turn, never that of the turn before; zeros are in no first turn.
    fn stamp(&self, at: u64) -> u64 {
        let turn = at >> self.lines().trailing_zeros();
        u64::from((turn as u32).wrapping_add(1)) << 32
    }

    /// By the receiver: is there no message?
    #[inline]
    pub fn is_empty(&self) -> bool {
        let at = self.ends.receiving.read.load(Relaxed);
        self.line(at)[0].load(Acquire) >> 32 << 32 != self.stamp(at)
    }

    /// By the receiver: the first message.
    #[inline]
    pub fn peek(&self) -> Result<Option<Seen>, Damaged> {
        let at = self.ends.receiving.read.load(Relaxed);
        let line = self.line(at);
        let first = line[0].load(Acquire);
        if first >> 32 << 32 != self.stamp(at) {
            return Ok(None);
        }
        let (len, is_aside) = ((first as u32 & !ASIDE) as usize, first as u32 & ASIDE != 0);
        if len > self.most() {
            return Err(Damaged);
        }
        Ok(Some(Seen { head: [line[1].load(Relaxed), line[2].load(Relaxed)], len, is_aside, at }))
    }

    /// By the receiver: copies bytes of a message, from `offset` on.
    #[inline]
    pub fn copy(&self, seen: &Seen, offset: usize, into: &mut [u8]) -> Result<(), Damaged> {
        if offset.checked_add(into.len()).is_none_or(|end| end > seen.len) {
            return Err(Damaged);
        }
        if offset == 0 && into.len() <= FIRST {
            return copy_out(&self.line(seen.at)[LINE - FIRST / 8..], 0, into);
        }
        self.copy_lines(seen, offset, into)
    }

    fn copy_lines(&self, seen: &Seen, mut offset: usize, mut into: &mut [u8]) -> Result<(), Damaged> {
        while !into.is_empty() {
            let (nth, within, bytes) = match offset.checked_sub(FIRST) {
                None => (0, offset, FIRST),
                Some(behind) => (1 + behind / NEXT, behind % NEXT, NEXT),
            };
            let at = seen.at.wrapping_add(nth as u64);
            let line = self.line(at);
            if nth > 0 && line[0].load(Relaxed) != self.stamp(at) {
                return Err(Damaged);
            }
            let (now, later) = into.split_at_mut(into.len().min(bytes - within));
            copy_out(&line[LINE - bytes / 8..], within, now)?;
            offset += now.len();
            into = later;
        }
        Ok(())
    }

    /// By the receiver: the first message is not needed any more.
    #[inline]
    pub fn pass(&self, seen: &Seen) {
        self.ends.receiving.read.store(seen.at.wrapping_add(lines_of(seen.len)), Release);
    }

    /// By the receiver: has it passed all that was there when a message with this mark went outside?
    pub fn has_passed(&self, mark: u32) -> bool {
        self.ends.receiving.read.load(Relaxed) as u32 == mark
    }

    /// By the receiver: so many bytes aside are not needed any more.
    pub fn free_aside(&self, bytes: u64) {
        self.ends.receiving.freed.fetch_add(bytes, Relaxed);
    }

    /// By the receiver: it has taken a message that had a mark.
    pub fn took_outside(&self) {
        let taken = &self.ends.receiving.taken;
        taken.store(taken.load(Relaxed).wrapping_add(1), Release);
    }
}

/// Copies bytes of words, from a byte on.
#[inline]
fn copy_out(words: &[AtomicU64], from: usize, into: &mut [u8]) -> Result<(), Damaged> {
    if from.is_multiple_of(8) {
        let words = words.get(from / 8..).ok_or(Damaged)?;
        for (piece, word) in into.chunks_mut(8).zip(words) {
            let bytes = word.load(Relaxed).to_ne_bytes();
            match <&mut [u8; 8]>::try_from(&mut *piece) {
                Ok(whole) => *whole = bytes,
                Err(_) => piece.copy_from_slice(&bytes[..piece.len()]),
            }
        }
        return Ok(());
    }
    for (nth, byte) in into.iter_mut().enumerate() {
        let at = from + nth;
        *byte = words.get(at / 8).ok_or(Damaged)?.load(Relaxed).to_ne_bytes()[at % 8];
    }
    Ok(())
}

/// What the sender knows, in its own memory.
#[derive(Debug, Default)]
pub struct Sender {
    /// Lines written.
    written: u64,
    /// Lines read, as last seen: what the receiver writes is looked at only when it must be.
    read: u64,
    /// Messages sent outside since there is a ring, and of them those taken, as last seen.
    outside: u64,
    taken: u64,
    /// Bytes that the receiver was told of, and were put aside.
    aside: u64,
}

impl Sender {
    /// Writes a message of which this is said, if there is [room](Self::has_room).
    #[inline]
    pub fn put(&mut self, ring: &Ring<'_>, head: Head, data: &[u8], is_aside: bool) -> Result<bool, Damaged> {
        if !self.has_room(ring, data.len())? {
            return Ok(false);
        }
        let (at, line) = (self.written, ring.line(self.written));
        let (first, mut rest) = data.split_at(data.len().min(FIRST));
        copy_in(&line[LINE - FIRST / 8..], first);
        self.written = self.written.wrapping_add(1);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(NEXT));
            let line = ring.line(self.written);
            copy_in(&line[LINE - NEXT / 8..], now);
            line[0].store(ring.stamp(self.written), Relaxed);
            self.written = self.written.wrapping_add(1);
            rest = later;
        }
        line[1].store(head[0], Relaxed);
        line[2].store(head[1], Relaxed);
        let len = data.len() as u32 | if is_aside { ASIDE } else { 0 };
        line[0].store(ring.stamp(at) | u64::from(len), Release);
        Ok(true)
    }

    /// Whether so many bytes may be written: there is room for them, and nothing is outside.
    #[inline]
    pub fn has_room(&mut self, ring: &Ring<'_>, bytes: usize) -> Result<bool, Damaged> {
        let lines = lines_of(bytes);
        if bytes > ring.most() {
            return Ok(false);
        }
        if self.outside != self.taken {
            self.taken = ring.ends.receiving.taken.load(Acquire);
            if self.outside != self.taken {
                return Ok(false);
            }
        }
        if self.written.wrapping_sub(self.read) + lines > ring.lines() {
            let read = ring.ends.receiving.read.load(Acquire);
            if self.written.wrapping_sub(read) > ring.lines() {
                return Err(Damaged);
            }
            self.read = read;
        }
        Ok(self.written.wrapping_sub(self.read) + lines <= ring.lines())
    }

    /// So many bytes were put aside, of which a message says where.
    pub fn put_aside(&mut self, bytes: u64) {
        self.aside = self.aside.wrapping_add(bytes);
    }

    /// Bytes aside that the receiver still needs, as far as it can be believed.
    pub fn aside(&self, ring: &Ring<'_>) -> u64 {
        self.aside.wrapping_sub(ring.ends.receiving.freed.load(Relaxed))
    }

    /// A message goes outside now: with this mark.
    pub fn go_outside(&mut self) -> u32 {
        self.outside = self.outside.wrapping_add(1);
        self.written as u32
    }

    /// It did not go after all.
    pub fn stay(&mut self) {
        self.outside = self.outside.wrapping_sub(1);
    }
}

/// Copies bytes into words, as many as they need.
#[inline]
fn copy_in(words: &[AtomicU64], data: &[u8]) {
    for (word, piece) in words.iter().zip(data.chunks(8)) {
        let bytes = <[u8; 8]>::try_from(piece).unwrap_or_else(|_| {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            bytes
        });
        word.store(u64::from_ne_bytes(bytes), Relaxed);
    }
}
