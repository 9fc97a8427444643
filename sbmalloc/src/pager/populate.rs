//! Restoring by mapping, for the `cow` tracker: the granules stay mapped from the file, and the kernel is told
//! to bring their pages in. What was written meanwhile stays where it is.

use super::PagerError;
use super::back::{Room, next_group};
use super::look::{BLOCK_PAGES, WINDOW_GRANULES, verify_arena};
use super::own::Session;
use super::plan;
use crate::arena::Inner;
use crate::config;
use crate::sys::{self, CHUNK, Errno, GRANULE, PAGE};
use std::sync::atomic::Ordering;

/// Linux 5.14.
const MADV_POPULATE_READ: libc::c_int = 22;

impl Session {
    /// Brings in the granules of an arena that are wanted, in ascending order, while there is room. False if the
    /// kernel cannot.
    pub fn populate(
        &mut self,
        arena: &Inner,
        room: &mut Room,
        want: impl Fn(usize) -> bool,
    ) -> Result<bool, PagerError> {
        // Some hold nothing, or all of it was touched.
        for g in (0..arena.granules()).filter(|&g| want(g) && arena.away(g) == 0) {
            arena.set_populated(g, room.phase);
        }
        let want = |g: usize| want(g) && arena.away(g) > 0;
        let mut at = 0;
        while !room.ended {
            let group = next_group(arena, &mut at, &want, room.ram, room.limit, &mut room.ended);
            if group.is_empty() {
                break;
            }
            room.ram += group.granules().map(|g| arena.away(g)).sum::<usize>();
            let mut k = 0;
            while let Some((next, bytes)) = group.stretch(k, WINDOW_GRANULES) {
                k = next;
                let state = |i: usize| arena.block(i).load(Ordering::Acquire);
                let mut blocks = bytes.start / CHUNK..bytes.end / CHUNK;
                while let Some(stored) = plan::next_stored(blocks.clone(), usize::MAX / CHUNK, state) {
                    blocks.start = stored.end;
                    let (offset, len) = (stored.start * CHUNK, stored.len() * CHUNK);
                    match sys::advise(arena.base + offset, len, MADV_POPULATE_READ) {
                        Ok(()) => {}
                        Err(Errno(libc::EINVAL)) => return Ok(false),
                        // A fault that would have ended a thread that touched it.
                        Err(Errno(libc::EFAULT)) => {
                            return Err(PagerError::io("read the scratch file", offset, Errno(libc::EIO)));
                        }
                        Err(e) => return Err(PagerError::io("read the scratch file", offset, e)),
                    }
                    room.moved.bytes += len as u64;
                    room.moved.freed_or_filled += len as u64;
                }
                // Holes hold nothing to bring in, and may be allocated from: all of it counts.
                for g in bytes.start / GRANULE..bytes.end / GRANULE {
                    arena.set_populated(g, room.phase);
                }
            }
        }
        if config::verify() {
            let Self { pagemap, buffers, .. } = self;
            room.moved.scanned += verify_arena(pagemap, buffers, arena)? as u64 * (BLOCK_PAGES * PAGE) as u64;
        }
        Ok(true)
    }
}
