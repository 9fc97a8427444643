//! Packing granules on their way out, and who sees to it that nobody touches them before they are restored.

use super::PagerError;
use super::evict::Writer;
use super::history::Outlook;
use super::images::{self, Content};
use super::look::BLOCK_PAGES;
use super::own::{block_bytes, is_likely};
use super::pagemap::Page;
use super::plan::{self, Fate};
use crate::arena::STORED;
use crate::checksum;
use crate::config::Compression;
use crate::set;
use crate::store::{Direction, Transfer};
use crate::sys::{CHUNK, GRANULE, PAGE};
use crate::threads;
use std::sync::atomic::{AtomicU64, Ordering};

const GRANULE_BLOCKS: usize = GRANULE / CHUNK;

/// Signals whose handlers touch nothing that may be packed.
pub(super) static TRUSTED: AtomicU64 = AtomicU64::new(0);

/// Whether no handler of a signal could come in between and touch anything.
pub(super) fn is_undisturbed() -> bool {
    threads::handled_signals() & !TRUSTED.load(Ordering::Acquire) == 0
}

/// Whether an address lies in a granule that is packed. In the handler of a fault.
pub(super) fn is_packed_at(address: usize) -> bool {
    let sets = set::all().filter(|set| set.is_packed());
    // An arena may be going away while others fault; only where something is packed, which its user has
    // promised not to touch, is it looked at, and then the process is about to end anyway.
    sets.flat_map(|set| set.arenas())
        .any(|arena| arena.holds(address) && arena.is_packed((address - arena.base) / GRANULE))
}

/// Says why the process is about to end. In the handler of a fault.
pub(super) fn complain_of_touch(address: usize) {
    let mut text = *b"sbmalloc: memory at 0x________________ was touched while it is out, compressed, and before it was \
        restored (pager::expect_restores); --compress none avoids this\n";
    let digits = text.iter().position(|&b| b == b'_').unwrap_or(0);
    for (k, byte) in text[digits..digits + 16].iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[address >> (60 - 4 * k) & 15];
    }
    crate::sys::say(&text);
}

/// How granules are packed by an evict.
#[derive(Clone, Copy)]
pub(super) struct Packing {
    pub how: Compression,
    /// What is not likely to be used stays legal to touch.
    pub outlook: Option<Outlook>,
}

/// What became of a granule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packed {
    /// It is, and has changed, or has not.
    Yes { changed: bool },
    /// It is in step with the file, which has it raw.
    Clean,
    /// It is to be written raw.
    No,
}

impl Writer<'_, '_> {
    /// Packs granule `g`, which is not out, if that is wanted and worth it, and starts to write it. `page`
    /// tells of its pages.
    pub fn pack(&mut self, g: usize, page: impl Fn(usize) -> Page) -> Result<Packed, PagerError> {
        let arena = self.arena;
        let packed = self.try_to_pack(g, &page)?;
        match packed {
            Packed::No if arena.has_packed_form(g) => images::forsake(arena, g, false),
            Packed::No => {}
            _ => {
                let pages = (0..GRANULE / PAGE).filter(|&p| page(p).is_in_ram()).count();
                self.goal.moved.freed_or_filled += (pages * PAGE) as u64;
            }
        }
        Ok(packed)
    }

    fn try_to_pack(&mut self, g: usize, page: impl Fn(usize) -> Page) -> Result<Packed, PagerError> {
        let (arena, tracker) = (self.arena, self.arena.tracker.tracker());
        let Some(Packing { how, outlook }) = self.goal.pack else { return Ok(Packed::No) };
        if arena.held(g) == 0 || !is_likely(outlook, arena, g) {
            return Ok(Packed::No);
        }
        let is_packed = arena.has_packed_form(g);
        if !is_packed && !self.images.wanted(how) {
            return Ok(Packed::No);
        }
        let may_be_dirty = tracker.may_be_dirty(arena, g);
        let first = g * GRANULE_BLOCKS;
        let mut contents: [Content; GRANULE_BLOCKS] = [None; GRANULE_BLOCKS];
        // Where the tracker knows that a block is clean, what is known of it is taken for granted.
        let mut changed = false;
        for (k, content) in contents.iter_mut().enumerate() {
            let i = first + k;
            let state = arena.block(i).load(Ordering::Acquire);
            let used = arena.pages_in_use(i) * PAGE;
            if !may_be_dirty || !tracker.block_may_be_dirty(arena, i) {
                *content = (state == STORED).then(|| (arena.sum(i), arena.stored_pages(i) * PAGE));
                continue;
            }
            let there = (0..BLOCK_PAGES).any(|p| page(k * BLOCK_PAGES + p).is_there());
            let bytes = if there { checksum::content(&block_bytes(arena, i)[..used]) } else { &[] };
            self.goal.moved.scanned += bytes.len() as u64;
            *content = (!bytes.is_empty()).then(|| (checksum::of(bytes), bytes.len()));
            let known = content.map(|(sum, _)| (sum, arena.sum(i)));
            changed |= plan::fate(state, known) != Fate::Keep;
        }
        if !changed {
            // Written once more it would only be smaller.
            return Ok(if is_packed { Packed::Yes { changed } } else { Packed::Clean });
        }
        if is_packed && !self.images.wanted(how) {
            return Ok(Packed::No);
        }
        let at = loop {
            match self.images.take() {
                Ok(Some(at)) => break at,
                Ok(None) if self.wait() => self.verdict()?,
                // No memory to work in.
                _ => return Ok(Packed::No),
            }
        };
        let Some((len, takes)) = self.images.make(arena, g, &contents, at) else {
            self.images.give(at);
            return Ok(Packed::No);
        };
        images::forsake(arena, g, true);
        for (k, (content, takes)) in contents.iter().zip(takes).enumerate() {
            arena.set_packed_block(first + k, takes);
            arena.set_stored_pages(first + k, content.map_or(0, |(_, bytes)| bytes / PAGE));
            if let Some((sum, _)) = content {
                arena.set_sum(first + k, *sum);
            }
        }
        self.transfer(Transfer { direction: Direction::Write, offset: g * GRANULE, at, len })?;
        Ok(Packed::Yes { changed })
    }
}
