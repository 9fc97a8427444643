//! What is done when bytes of the scratch file do not match their checksum.
//!
//! They are read again, by ordinary calls: a disk, or the kernel between two changes of a file, may be wrong
//! once and right the next time. Bytes that match are right, however they came. Whether or not it helped,
//! what was found is said on standard error, as it is all that anybody will ever know of it.

use super::{PagerError, look::read_block};
use crate::arena::Inner;
use crate::checksum;
use crate::sys::{self, CHUNK, GRANULE, PAGE, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Nanoseconds to wait before each time it is read again.
const PAUSES: [i64; 3] = [0, 1_000_000, 50_000_000];

/// How often a process says so.
const MOST_SAID: u32 = 8;

/// What is known of wrong bytes of a block.
pub(super) struct Wrong {
    block: usize,
    sum: u128,
    pages: usize,
    zeros: usize,
}

impl Wrong {
    /// `bytes`, of block `i`.
    pub fn new(i: usize, bytes: &[u8]) -> Self {
        let zeros = bytes.chunks(PAGE).filter(|page| checksum::content(page).is_empty()).count();
        Self { block: i, sum: checksum::of_block(bytes), pages: bytes.len() / PAGE, zeros }
    }

    /// Reads the block until it is right, to `copy`.
    pub fn read_again(&self, arena: &Inner, copy: &mut [u8; CHUNK]) -> Result<(), PagerError> {
        let mut is_same = true;
        for pause in PAUSES {
            sys::pause(pause);
            read_block(arena, copy, self.block)?;
            let sum = checksum::of_block(copy);
            if sum == arena.sum(self.block) {
                self.say(b"read again it was right");
                return Ok(());
            }
            is_same &= sum == self.sum;
        }
        self.say(if is_same { b"read again it was the same" } else { b"read again it was otherwise wrong" });
        Err(self.error())
    }

    /// The process has seen the bytes; `copy` is for what the file has.
    pub fn was_seen(&self, arena: &Inner, copy: &mut [u8; CHUNK]) -> PagerError {
        self.say(match read_block(arena, copy, self.block) {
            Ok(()) if checksum::of_block(copy) == arena.sum(self.block) => {
                b"it was mapped so, and the file has it right"
            }
            Ok(()) => b"it was mapped so, and the file has it wrong",
            Err(_) => b"it was mapped so, and the file cannot be read",
        });
        self.error()
    }

    fn error(&self) -> PagerError {
        PagerError::Corrupt { offset: (self.block * CHUNK) as u64 }
    }

    fn say(&self, then: &[u8]) {
        let mut text = PathBuf::<256>::new();
        text.push(b"sbmalloc: the block at offset ").push_number((self.block * CHUNK) as u64);
        text.push(b" of the scratch file did not match its checksum (").push_number(self.zeros as u64);
        text.push(b" of ")
            .push_number(self.pages as u64)
            .push(b" pages were zeros); ")
            .push(then)
            .push(b"\n");
        say(&text);
    }
}

/// Says the first few.
fn say(text: &PathBuf<256>) {
    static SAID: AtomicU32 = AtomicU32::new(0);
    if SAID.load(Ordering::Relaxed) < MOST_SAID {
        SAID.fetch_add(1, Ordering::Relaxed);
        sys::say(text.as_cstr().to_bytes());
    }
}

/// Reads the image of granule `g`, of which a block is `wrong`, again and takes it apart, until it is right.
pub(super) fn read_image_again<T>(
    g: usize,
    mut wrong: PagerError,
    mut again: impl FnMut() -> Option<Result<T, PagerError>>,
) -> Result<T, PagerError> {
    let found = |then: &[u8]| {
        let mut text = PathBuf::<256>::new();
        text.push(b"sbmalloc: the compressed blocks at offset ").push_number((g * GRANULE) as u64);
        text.push(b" of the scratch file did not match their checksums; ").push(then).push(b"\n");
        say(&text);
    };
    for pause in PAUSES {
        sys::pause(pause);
        match again() {
            Some(Ok(done)) => {
                found(b"read again they were right");
                return Ok(done);
            }
            Some(Err(e)) => wrong = e,
            None => {}
        }
    }
    found(b"nor when read again");
    Err(wrong)
}
