//! How parts leave: the rank stands, granule by granule is copied, written unless it lies in the file as it is, and dropped.

use super::files::OfFiles;
use super::serve::granules;
use super::state::{Key, State};
use super::table::{BLOCK, Block, Ranges};
use super::uffd::Interference;
use super::{Parts, serve_too};
use crate::checksum;
use crate::pager::other::check;
use crate::pager::other::error::{OtherError, Refusal};
use crate::pager::other::image::{Buffers, CHUNK};
use crate::pager::other::inject::Session;
use crate::pager::other::proc;
use crate::pager::other::space::{Kind, Space};
use crate::store::{Direction, Transfer};
use crate::sys::{Errno, GRANULE, PAGE};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes that leave together.
const BATCH: u64 = 16 << 20;
/// The mappings are looked through again after this time at the soonest, unless nothing else is left.
const LIST: Duration = Duration::from_millis(100);

/// Pages looked at for one that holds nothing.
const MOST_TRIED: usize = 1 << 12;

/// What was copied, and is to be dropped when it has been written.
#[derive(Default)]
struct Batch {
    blocks: Vec<(usize, Block)>,
    drops: Vec<(usize, Range<u64>)>,
    bytes: u64,
}

impl Parts {
    /// Has parts leave until there are at most `goal` bytes, or nothing is left that can. The bytes that were given back.
    pub(super) fn leave(&mut self, goal: u64, progress: &mut dyn FnMut(u64)) -> Result<u64, OtherError> {
        let left = self.leave_while(goal, progress);
        // A child that was killed just now is passed over the next time.
        match left {
            Err(OtherError::Gone | OtherError::Rank { .. })
                if self.spaces.iter().any(|(_, space)| self.threads.has_lost(space)) =>
            {
                Err(OtherError::Busy)
            }
            left => left,
        }
    }

    fn leave_while(&mut self, goal: u64, progress: &mut dyn FnMut(u64)) -> Result<u64, OtherError> {
        let mut freed = 0;
        // Only now, as all stand: from here on nobody begins to.
        if let Some(refusal) = check::written_by_others(&self.threads.processes()) {
            if !std::mem::replace(&mut self.told_of_others, true) {
                self.unserved = Some(refusal.to_string());
            }
            return Ok(0);
        }
        if !self.shared.lock().settle_all() {
            return Err(OtherError::Busy);
        }
        let mut fresh = self.list_if_due(false)?;
        loop {
            let resident = self.resident();
            if resident <= goal {
                return Ok(freed);
            }
            let batch = self.write_some((resident - goal).min(BATCH))?;
            if batch.drops.is_empty() {
                if std::mem::replace(&mut fresh, true) {
                    self.tell_of_files(resident);
                    return Ok(freed);
                }
                self.list_if_due(true)?;
                continue;
            }
            freed += self.drop_all(batch)?;
            progress(freed);
        }
    }

    /// Looks which mappings there are, and has the faults of new ones told. Whether it was done.
    fn list_if_due(&mut self, now: bool) -> Result<bool, OtherError> {
        if !now && self.listed.is_some_and(|at| at.elapsed() < LIST) {
            return Ok(false);
        }
        self.listed = Some(Instant::now());
        self.open_new_spaces();
        // Calls are made for it, during which the other thread serves.
        self.make_zeros_anonymous()?;
        let mut of_files = OfFiles::default();
        let mut state = self.shared.lock();
        let state = &mut *state;
        for (number, space) in self.spaces.iter().filter(|(_, space)| space.caller != 0) {
            let Some(served) = &mut state.served[*number] else { continue };
            let (mut ranges, mut unwatched, mut wiped) = (vec![], vec![], Ranges::default());
            let mut of_its_files = 0;
            space.each_vma(&mut |vma| {
                let range = vma.from..vma.to;
                if vma.wiped {
                    wiped.add(range.clone());
                }
                if vma.is_of_file() {
                    of_its_files += vma.anonymous;
                }
                if !vma.watched {
                    unwatched.push(range.clone());
                }
                // Of a mapping that another userfaultfd watches the kernel refuses ours, and it stays in RAM.
                let whole = vma.is_own() && !vma.wiped;
                if whole && vma.readable && vma.writable && vma.anonymous > 0 && vma.name != "[stack]" {
                    ranges.push(range);
                }
            })?;
            of_files.add(of_its_files);
            // Of these nothing is out. A child may have other mappings than its parent had when it was made (`MADV_DONTFORK`).
            for range in unwatched {
                served.table.forget(&range, &mut state.slots);
                served.armed.remove(&range);
            }
            served.wiped = wiped;
            for range in &ranges {
                // What is refused stays in RAM.
                if served.uffd.register(range).is_ok() {
                    served.armed.add(range.clone());
                }
            }
            let armed: Vec<Range<u64>> = served.armed.iter().collect();
            for range in armed {
                space.each_region(range, false, &mut |region, kind| {
                    if kind != Kind::Stays {
                        granules(&region).for_each(|granule| state.choice.found((*number, granule)));
                    }
                    Ok(())
                })?;
            }
        }
        self.of_files = of_files.seen(self.listed);
        Ok(true)
    }

    /// Of children that are known by now parts may leave too.
    fn open_new_spaces(&mut self) {
        let processes = self.threads.processes();
        self.serve_new_programs(&processes);
        let mut state = self.shared.lock();
        state.close_dead();
        let is_there = |number: usize| state.served[number].is_some();
        self.spaces.retain(|(number, space)| is_there(*number) && processes.contains(&space.processes[0]));
        let known = |pid: i32| self.spaces.iter().any(|(_, space)| space.processes.contains(&pid));
        let new: Vec<i32> = processes.into_iter().filter(|&pid| !known(pid)).collect();
        // Looking at it may bring pages back, which the other thread does.
        drop(state);
        for pid in new {
            let Some(tid) = self.threads.parked(pid) else { continue };
            let Ok(mut space) = Space::open(pid, tid) else { continue };
            match self.number_of(pid, &space) {
                Some(number) => {
                    space.choose(tid);
                    self.spaces.push((number, space));
                }
                None => self.tell_of_others_faults(pid, &space),
            }
        }
    }

    /// Says once of a process if its page faults are served by somebody else. Everything that was told has been settled, so where no copy
    /// of ours is without its process, what is watched is not ours.
    fn tell_of_others_faults(&mut self, pid: i32, space: &Space) {
        let is_ours = self.shared.lock().served.iter().flatten().any(|served| served.pid.is_none());
        if is_ours || self.refused.contains(&pid) || self.is_known(pid, space) {
            return;
        }
        let mut watched = false;
        if space.each_vma(&mut |vma| watched |= vma.watched).is_ok() && watched {
            self.refused.push(pid);
            self.unserved.get_or_insert(Refusal::Userfaultfd { pid }.to_string());
        }
    }

    /// Whether a process lives in an address space that is served: a child of `vfork` still lives in its parent's.
    fn is_known(&self, pid: i32, space: &Space) -> bool {
        self.spaces.iter().any(|(_, other)| match proc::share_memory(other.processes[0], pid) {
            Ok(is_same) => is_same,
            Err(_) => other.shares_with(space) != Some(false),
        })
    }

    /// The address space that a process has. Events of forks do not say whose the copies are, nor do they come in the order in which the
    /// children are made, and to take one for another would be to drop the pages of the wrong process. So it is tried: a page that
    /// holds nothing in the copy, and is not there in the process, is made a page of zeros, which changes nothing; if it is there
    /// then, it is this one. Everything stands.
    fn number_of(&self, pid: i32, space: &Space) -> Option<usize> {
        let mut state = self.shared.lock();
        if let Some(number) = state.of(pid) {
            return Some(number);
        }
        for number in 0..state.served.len() {
            let Some(served) = state.served[number].as_mut().filter(|served| served.pid.is_none()) else {
                continue;
            };
            let is_empty = |at: &u64| served.table.find(*at).is_none() && space.is_there(*at) == Some(false);
            let pages = served.armed.iter().flat_map(|range| range.step_by(PAGE)).take(MOST_TRIED);
            let Some(at) = pages.into_iter().find(is_empty) else { continue };
            let (_, made) = served.uffd.zero(&(at..at + PAGE as u64), &mut Interference::default());
            if made.is_ok() && space.is_there(at) == Some(true) {
                served.pid = Some(pid);
                return Some(number);
            }
        }
        None
    }

    /// A process that has executed another program since, or was started for one, has an address space that nobody serves: it gets
    /// a descriptor of its own, as the first ones did. Not one that has inherited ours.
    fn serve_new_programs(&mut self, processes: &[i32]) {
        for &pid in processes {
            if self.refused.contains(&pid) || self.shared.lock().of(pid).is_some() {
                continue;
            }
            let Some(tid) = self.threads.parked(pid) else { continue };
            let Ok(mut space) = Space::open(pid, tid) else { continue };
            let (mut inherited, mut waits) = (false, false);
            let listed = space.each_vma(&mut |vma| {
                inherited |= vma.watched;
                waits |= vma.anonymous > 0;
            });
            if listed.is_err() || inherited || !waits || self.is_known(pid, &space) {
                continue;
            }
            space.choose(tid);
            match serve_too(&self.threads, &space, &self.shared) {
                Ok(number) => self.spaces.push((number, space)),
                Err(OtherError::Gone) => {}
                // It has no descriptor free just now.
                Err(OtherError::Rank { errno, .. }) if errno.is_passing() => {}
                Err(error) => {
                    self.refused.push(pid);
                    self.unserved.get_or_insert(error.to_string());
                }
            }
        }
        self.refused.retain(|pid| processes.contains(pid));
    }

    /// Chooses what leaves, copies and writes it.
    fn write_some(&mut self, wanted: u64) -> Result<Batch, OtherError> {
        let mut state = self.shared.lock();
        let mut writer = Writer::new(&mut state, &mut self.buffers);
        let alone = self.spaces.len() > 1;
        let mut result = Ok(());
        while writer.batch.bytes < wanted && result.is_ok() {
            let Some(key) = writer.state.choice.next() else { break };
            let callable = |(number, space): &&(usize, Space)| *number == key.0 && space.caller != 0;
            let space = self.spaces.iter().find(callable);
            if let Some((_, space)) = space {
                result = writer.granule(key, space, alone);
            }
        }
        let batch = writer.finish(result)?;
        // Before the other thread looks again, which might bring something to where it is dropped at once.
        let state = &mut *state;
        for &(number, block) in &batch.blocks {
            match &mut state.served[number] {
                Some(served) => served.table.add(block, &mut state.slots),
                None => state.slots.give(block.slot),
            }
        }
        state.dropping.clone_from(&batch.drops);
        Ok(batch)
    }

    /// Drops what was written. The bytes that became free.
    fn drop_all(&self, batch: Batch) -> Result<u64, OtherError> {
        // The other thread goes on serving: the kernel may need pages of the very thread that makes the calls.
        let dropped = self.drop_ranges(&batch.drops);
        let mut state = self.shared.lock();
        state.dropping.clear();
        dropped?;
        state.moved.freed += batch.bytes;
        Ok(batch.bytes)
    }

    /// Drops ranges, while nothing of the rank runs. Where the kernel refuses, what is still there is not out: a call that fails may
    /// have dropped what lies before the mapping that it refused.
    fn drop_ranges(&self, drops: &[(usize, Range<u64>)]) -> Result<(), OtherError> {
        for drops in drops.chunk_by(|a, b| a.0 == b.0) {
            let Some((_, space)) = self.spaces.iter().find(|(number, _)| *number == drops[0].0) else {
                continue;
            };
            match self.drop_ranges_of(space, drops) {
                // All of its memory is nobody's any more.
                Err(_) if self.threads.has_lost(space) => {}
                done => done?,
            }
        }
        Ok(())
    }

    fn drop_ranges_of(&self, space: &Space, drops: &[(usize, Range<u64>)]) -> Result<(), OtherError> {
        let mut session = Session::begin(&self.threads, space)?;
        for (number, range) in drops {
            let arguments = [range.start, range.end - range.start, libc::MADV_DONTNEED as u64];
            let mut there = vec![];
            if session.call(libc::SYS_madvise, arguments)? != 0 {
                space.each_region(range.clone(), false, &mut |region, _| {
                    there.push(region);
                    Ok(())
                })?;
            }
            let mut state = self.shared.lock();
            if let Some(served) = &mut state.served[*number] {
                there.iter().for_each(|region| served.table.is_there(region));
            }
            // From here on faults there are served.
            state.dropping.retain(|(n, r)| (n, r) != (number, range));
        }
        session.park(space)
    }
}

/// Copies blocks and writes them.
struct Writer<'a> {
    state: &'a mut State,
    buffers: &'a mut Buffers,
    beside: bool,
    batch: Batch,
    /// The buffer being filled, and the bytes in it.
    slot: Option<usize>,
    filled: usize,
    /// Of the buffer being filled, what is to be written: where in it, and the slot of the file.
    wanted: Vec<(usize, u32)>,
    /// Transfers under way of each buffer.
    flying: Vec<(usize, usize)>,
    failed: Option<(u64, Errno)>,
}

impl<'a> Writer<'a> {
    fn new(state: &'a mut State, buffers: &'a mut Buffers) -> Self {
        let beside = state.image.store().async_fd(0).is_some() && buffers.queue().is_ready();
        Self {
            state,
            buffers,
            beside,
            batch: Batch::default(),
            slot: None,
            filled: 0,
            wanted: vec![],
            flying: vec![],
            failed: None,
        }
    }

    /// Takes up what is there of a granule.
    fn granule(&mut self, key: Key, space: &Space, alone: bool) -> Result<(), OtherError> {
        let Some(served) = &self.state.served[key.0] else { return Ok(()) };
        let armed = served.armed.within(&(key.1..key.1 + GRANULE as u64));
        for range in armed {
            // Pages of each block, and ranges of them: those that are there.
            let mut there: Vec<Range<u64>> = vec![];
            let mut stays = false;
            space.each_region(range.clone(), alone, &mut |region, kind| {
                match kind {
                    Kind::Stays => stays = true,
                    _ => there.push(region),
                }
                Ok(())
            })?;
            let mut at = range.start & !(BLOCK - 1);
            let mut rest = &there[..];
            while at < range.end {
                while rest.first().is_some_and(|r| r.end <= at) {
                    rest = &rest[1..];
                }
                let inside: Vec<Range<u64>> = rest
                    .iter()
                    .take_while(|r| r.start < at + BLOCK)
                    .map(|r| r.start.max(at)..r.end.min(at + BLOCK))
                    .collect();
                if !inside.is_empty() {
                    self.block(key.0, at, &inside, space)?;
                }
                at += BLOCK;
            }
            self.batch.bytes += there.iter().map(|r| r.end - r.start).sum::<u64>();
            if stays {
                self.batch.drops.extend(there.into_iter().map(|range| (key.0, range)));
            } else if !there.is_empty() {
                // What lies between holds nothing, or zeros. Not what is out: the thread that makes the calls may need it first.
                let Some(served) = &self.state.served[key.0] else { return Ok(()) };
                let left = served.table.without_out(&range);
                let hit =
                    |piece: &Range<u64>| there.iter().any(|r| r.start < piece.end && piece.start < r.end);
                self.batch.drops.extend(left.iter().filter(hit).map(|piece| (key.0, piece)));
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        number: usize,
        at: u64,
        there: &[Range<u64>],
        space: &Space,
    ) -> Result<(), OtherError> {
        let slot = self.take_buffer()?;
        let base = self.filled;
        let bytes = &mut self.buffers.bytes(slot)[base..base + BLOCK as usize];
        let whole = there.len() == 1 && there[0].end - there[0].start == BLOCK;
        if !whole {
            bytes.fill(0);
        }
        let mut out = 0;
        for range in there {
            let part = (range.start - at) as usize..(range.end - at) as usize;
            let copied = space.copy_out(std::slice::from_ref(range), &mut bytes[part.clone()]);
            let copied = copied.map_err(|e| space.failed("read the memory of", e))?;
            if copied < part.len() {
                let rest = part.start + copied..part.end;
                space
                    .peek(range.start + copied as u64, &mut bytes[rest])
                    .map_err(|e| space.failed("read the memory of", e))?;
            }
            for page in part.step_by(PAGE) {
                if !checksum::content(&bytes[page..page + PAGE]).is_empty() {
                    out |= 1 << (page / PAGE);
                }
            }
        }
        let state = &mut *self.state;
        let Some(served) = &mut state.served[number] else { return Ok(()) };
        let clean = served.table.take_clean(at, &mut state.slots);
        if out == 0 {
            clean.into_iter().for_each(|block| state.slots.give(block.slot));
            return Ok(());
        }
        let sum = checksum::of(bytes);
        let place = clean.map_or_else(|| state.slots.take(), |block| block.slot);
        self.batch.blocks.push((number, Block { at, slot: place, out, sum }));
        if clean.is_none_or(|block| block.sum != sum) {
            self.wanted.push((base, place));
            self.filled += BLOCK as usize;
        }
        if self.filled == CHUNK { self.write() } else { Ok(()) }
    }

    fn take_buffer(&mut self) -> Result<usize, OtherError> {
        if let Some(slot) = self.slot {
            return Ok(slot);
        }
        loop {
            if let Some(slot) = self.buffers.take() {
                self.slot = Some(slot);
                return Ok(slot);
            }
            self.wait();
            self.verdict()?;
        }
    }

    /// Sends the buffer on its way.
    fn write(&mut self) -> Result<(), OtherError> {
        self.filled = 0;
        let Some(slot) = self.slot.take() else { return Ok(()) };
        let wanted = std::mem::take(&mut self.wanted);
        if wanted.is_empty() {
            self.buffers.give(slot);
            return Ok(());
        }
        let base = self.buffers.address(slot);
        // Where one file is followed by another a transfer ends: the kernel knows only the first.
        let store = self.state.image.store();
        let ends = |slot: u32| store.piece_end(u64::from(slot) * BLOCK) == u64::from(slot + 1) * BLOCK;
        let pieces: Vec<Transfer> = wanted
            .chunk_by(|a, b| a.0 + BLOCK as usize == b.0 && a.1 + 1 == b.1 && !ends(a.1))
            .map(|piece| Transfer {
                direction: Direction::Write,
                offset: piece[0].1 as usize * BLOCK as usize,
                at: base + piece[0].0,
                len: piece.len() * BLOCK as usize,
            })
            .collect();
        self.flying.push((slot, pieces.len()));
        let end = pieces.iter().map(|piece| piece.offset + piece.len).max().unwrap_or(0);
        let lengthened = self.state.image.lengthen(end as u64);
        if let Err(error) = lengthened {
            self.flying.pop();
            self.buffers.give(slot);
            return Err(error);
        }
        for piece in pieces {
            self.state.moved.written += piece.len as u64;
            if self.beside {
                while self.buffers.queue().is_full() {
                    self.wait();
                }
                // SAFETY: the buffer is taken, and nobody touches it before all of its transfers have ended: `finish` waits for all.
                unsafe { self.buffers.queue().start(self.state.image.store(), piece) };
            } else {
                // SAFETY: as above.
                let landed = unsafe { piece.by_calls(self.state.image.store(), 0) };
                self.failed = self.failed.or(landed.result.err());
                self.landed(slot);
            }
        }
        self.verdict()
    }

    /// A transfer of a buffer has ended.
    fn landed(&mut self, slot: usize) {
        if let Some(i) = self.flying.iter().position(|f| f.0 == slot) {
            self.flying[i].1 -= 1;
            if self.flying[i].1 == 0 {
                self.flying.swap_remove(i);
                self.buffers.give(slot);
            }
        }
    }

    fn wait(&mut self) -> bool {
        let Some(landed) = self.buffers.queue().wait(self.state.image.store()) else { return false };
        self.failed = self.failed.or(landed.result.err());
        let slot = self.buffers.slot_of(landed.transfer.at);
        self.landed(slot);
        true
    }

    fn verdict(&self) -> Result<(), OtherError> {
        self.failed.map_or(Ok(()), |(at, e)| Err(self.state.image.failed("write", Some(at), e)))
    }

    /// Waits for all; what was copied, if all of it is written.
    fn finish(mut self, result: Result<(), OtherError>) -> Result<Batch, OtherError> {
        let result = result.and_then(|()| self.write());
        while self.wait() {}
        if let Some(slot) = self.slot.take() {
            self.buffers.give(slot);
        }
        let settled =
            || self.state.image.store().settle().map_err(|e| self.state.image.failed("flush", None, e));
        let result = result.and_then(|()| self.verdict()).and_then(|()| settled());
        match result {
            Ok(()) => Ok(self.batch),
            Err(error) => {
                // Nothing of it was dropped.
                self.batch.blocks.iter().for_each(|(_, block)| self.state.slots.give(block.slot));
                Err(error)
            }
        }
    }
}
