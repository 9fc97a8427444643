//! Copies pages that are to leave, and writes what of them is not on scratch as it is.

use super::error::OtherError;
use super::image::Image;
use super::space::{RANGES, Space};
use crate::checksum;
use crate::pager::transfer::pump::{BUFFER, Pump, Ticket, pieces};
use crate::pager::transfer::table::{Copied, Table};
use crate::sys::{Errno, PAGE};
use std::ops::Range;

/// What becomes of a page.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It holds zeros, which need not be written.
    Zeros,
    /// It lies on scratch as it is.
    Again,
    Written(Copied),
}

/// A range of an address space, which it has by number, that is to be dropped: pages that were copied, and
/// such as hold nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drop {
    pub number: usize,
    pub range: Range<u64>,
    /// Of the pages that are there.
    pub bytes: u64,
}

/// Tables of address spaces by number.
pub(super) trait Tables {
    /// `None`: it is gone.
    fn table(&mut self, number: usize) -> Option<&mut Table>;
}

/// What was copied, and is to be dropped when it has been written.
#[derive(Default)]
pub(super) struct Batch {
    pages: Vec<(usize, u64, Fate)>,
    pub drops: Vec<Drop>,
    pub bytes: u64,
    /// Of these, pages of zeros.
    pub zeros: u64,
    /// Bytes to be written.
    pub written: u64,
}

impl Batch {
    /// All of it is written: from here on it is out.
    pub fn commit(&mut self, image: &mut Image, tables: &mut dyn Tables) {
        for pages in std::mem::take(&mut self.pages).chunk_by(|a, b| a.0 == b.0) {
            let Some(table) = tables.table(pages[0].0) else {
                pages.iter().for_each(|page| image.give(page.2));
                continue;
            };
            for &(_, at, fate) in pages {
                match fate {
                    Fate::Zeros => table.forget(&(at..at + PAGE as u64), &mut image.slots),
                    Fate::Again => table.again(at),
                    Fate::Written(copy) => table.put(at, copy, &mut image.slots),
                }
            }
        }
    }

    /// Nothing of it was dropped, nor will be.
    pub fn take_back(self, image: &mut Image) {
        self.pages.into_iter().for_each(|(_, _, fate)| image.give(fate));
    }
}

/// A batch on its way to the disk.
pub(super) struct Closed(pub Batch, Ticket);

impl Image {
    fn give(&mut self, fate: Fate) {
        if let Fate::Written(copy) = fate {
            self.slots.give(copy.slot);
        }
    }
}

/// Told of a page that leaves: in which slot it lies, and what it holds.
pub(super) type Seen<'a> = dyn FnMut(u32, &[u8]) + 'a;

/// Fills batches. All that is taken up before [`copy`](Self::copy) is called is of one address space.
pub(super) struct Writer<'a> {
    pub image: &'a mut Image,
    pub pump: &'a mut Pump,
    pub batch: Batch,
    pub seen: Option<&'a mut Seen<'a>>,
    /// Where pages are to be copied from, and how many bytes.
    wanted: Vec<Range<u64>>,
    bytes: usize,
    /// The buffer being filled, and where the pages in it are to lie.
    buffer: Option<usize>,
    slots: Vec<u32>,
}

/// An address space that is copied from.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    pub number: usize,
    pub space: &'a Space,
    pub table: &'a Table,
    /// By means that disregard protection.
    pub forced: bool,
    /// Where anything has changed in so many bytes, all that leaves of them is written, so that it lies
    /// together when it is wanted again.
    pub unit: u64,
}

impl<'a> Writer<'a> {
    pub fn new(image: &'a mut Image, pump: &'a mut Pump) -> Self {
        let (wanted, slots) = (vec![], vec![]);
        Self { image, pump, batch: Batch::default(), seen: None, wanted, bytes: 0, buffer: None, slots }
    }

    /// Takes up adjacent pages. `before`: nothing is there between that address and the first of them.
    pub fn take(
        &mut self,
        mut range: Range<u64>,
        before: Option<u64>,
        from: From<'_>,
    ) -> Result<(), OtherError> {
        let bytes = range.end - range.start;
        self.batch.bytes += bytes;
        // What lies between holds nothing, or zeros, and may be dropped too. Not what is out: the thread that
        // makes the calls may need it first.
        let is_void = |gap: Range<u64>| gap.is_empty() || from.table.first_out(&gap).is_none();
        match self.batch.drops.last_mut() {
            Some(last)
                if last.number == from.number
                    && (last.range.end == range.start || before == Some(last.range.end))
                    && is_void(last.range.end..range.start) =>
            {
                last.range.end = range.end;
                last.bytes += bytes;
            }
            _ => self.batch.drops.push(Drop { number: from.number, range: range.clone(), bytes }),
        }
        while !range.is_empty() {
            if self.slots.len() * PAGE + self.bytes == BUFFER || self.wanted.len() == RANGES {
                self.copy(from)?;
            }
            let room = (BUFFER - self.slots.len() * PAGE - self.bytes) as u64;
            let part = range.start..range.end.min(range.start + room);
            range.start = part.end;
            self.bytes += (part.end - part.start) as usize;
            match self.wanted.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => self.wanted.push(part),
            }
        }
        Ok(())
    }

    /// What was taken up and not copied yet is gone.
    pub fn pass_over(&mut self) {
        self.wanted.clear();
        self.bytes = 0;
    }

    /// Copies what was taken up to the buffer, but for what need not be written, and writes the buffer if it
    /// is full.
    pub fn copy(&mut self, from: From<'_>) -> Result<(), OtherError> {
        let From { number, space, table, forced, unit } = from;
        let ranges = std::mem::take(&mut self.wanted);
        let total = std::mem::take(&mut self.bytes);
        if total == 0 {
            return Ok(());
        }
        // What lies there may be the arguments of a call that is under way.
        let lent = space.lent().unwrap_or(0..0);
        debug_assert!(ranges.iter().all(|range| range.end <= lent.start || lent.end <= range.start));
        #[cfg(test)]
        super::tests::before_copy(space, &ranges);
        let buffer = match self.buffer {
            Some(buffer) => buffer,
            None => self.pump.take(self.image.store()).map_err(|e| self.image.failed_to_write(e))?,
        };
        self.buffer = Some(buffer);
        let begin = self.slots.len() * PAGE;
        let bytes = &mut self.pump.bytes(buffer)[begin..begin + total];
        let read = |e| space.failed("read the memory of", e);
        let copied = if forced { 0 } else { space.copy_out(&ranges, bytes).map_err(read)? };
        let mut at = 0;
        for range in &ranges {
            let len = (range.end - range.start) as usize;
            if at + len > copied {
                peek(space, range, &mut bytes[at..at + len]).map_err(read)?;
            }
            at += len;
        }
        let pages = ranges.into_iter().flat_map(|range| range.step_by(PAGE));
        let judge = |(page, content): (u64, &[u8])| match checksum::content(content) {
            [] => (page, None),
            _ => {
                let sum = checksum::of_page(content);
                (page, Some((sum, table.kept(page).is_none_or(|copy| copy.sum != sum))))
            }
        };
        let judged: Vec<(u64, Option<(u64, bool)>)> = pages.zip(bytes.chunks(PAGE)).map(judge).collect();
        let (mut at, mut to) = (0, 0);
        for unit in judged.chunk_by(|a, b| a.0 / unit == b.0 / unit) {
            let has_changed = unit.iter().any(|(_, kept)| matches!(kept, Some((_, true))));
            for &(page, content) in unit {
                let fate = match content {
                    None => Fate::Zeros,
                    Some(_) if !has_changed => Fate::Again,
                    Some((sum, _)) => Fate::Written(Copied { slot: self.image.slots.take(), sum }),
                };
                let slot = match fate {
                    Fate::Zeros => None,
                    Fate::Again => table.kept(page).map(|copy| copy.slot),
                    Fate::Written(copy) => Some(copy.slot),
                };
                if let (Some(slot), Some(seen)) = (slot, &mut self.seen) {
                    seen(slot, &bytes[at..at + PAGE]);
                }
                match fate {
                    Fate::Zeros => self.batch.zeros += PAGE as u64,
                    Fate::Again => {}
                    Fate::Written(copy) => {
                        self.slots.push(copy.slot);
                        if at != to {
                            bytes.copy_within(at..at + PAGE, to);
                        }
                        to += PAGE;
                    }
                }
                self.batch.pages.push((number, page, fate));
                at += PAGE;
            }
        }
        if self.slots.len() * PAGE == BUFFER { self.write() } else { Ok(()) }
    }

    /// Sends the buffer on its way.
    fn write(&mut self) -> Result<(), OtherError> {
        let Some(buffer) = self.buffer.take() else { return Ok(()) };
        let slots = std::mem::take(&mut self.slots);
        let end = slots.iter().max().map_or(0, |&slot| (u64::from(slot) + 1) * PAGE as u64);
        if let Err(error) = self.image.lengthen(end) {
            self.pump.give(buffer);
            return Err(error);
        }
        self.batch.written += (slots.len() * PAGE) as u64;
        let pieces = pieces(slots.into_iter());
        self.pump.write(self.image.store(), buffer, &pieces).map_err(|e| self.image.failed_to_write(e))
    }

    /// What was copied so far.
    pub fn close(&mut self) -> Result<Closed, OtherError> {
        self.write()?;
        Ok(Closed(std::mem::take(&mut self.batch), self.pump.ticket()))
    }

    /// Waits until a batch is on the disk.
    pub fn settle(&mut self, Closed(batch, ticket): Closed) -> Result<Batch, OtherError> {
        let written =
            self.pump.wait_for(self.image.store(), ticket).map_err(|e| self.image.failed_to_write(e));
        let flush = || self.image.store().settle().map_err(|e| self.image.failed("flush", None, e));
        match written.and_then(|()| flush()) {
            Ok(()) => Ok(batch),
            Err(error) => {
                batch.take_back(self.image);
                Err(error)
            }
        }
    }

    /// Waits for all that is under way; what was taken up and not closed is not out.
    pub fn end(mut self) -> Result<(), OtherError> {
        let drained = self.pump.drain(self.image.store()).map_err(|e| self.image.failed_to_write(e));
        if let Some(buffer) = self.buffer.take() {
            self.pump.give(buffer);
        }
        std::mem::take(&mut self.batch).take_back(self.image);
        drained
    }
}

/// Reads pages, whatever their protection. One that the kernel has taken back since it was seen, as it was
/// freed lazily (`MADV_FREE`), holds zeros.
pub(super) fn peek(space: &Space, range: &Range<u64>, to: &mut [u8]) -> Result<(), Errno> {
    if space.peek(range.start, to).is_ok() {
        return Ok(());
    }
    for (at, page) in range.clone().step_by(PAGE).zip(to.chunks_mut(PAGE)) {
        match space.peek(at, page) {
            Err(_) if space.is_there(at) == Some(false) => page.fill(0),
            done => done?,
        }
    }
    Ok(())
}
