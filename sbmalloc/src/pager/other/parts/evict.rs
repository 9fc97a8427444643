//! How parts leave: the rank stands, those who leave next are written (`other::writer`) and dropped.

use super::choice::Choice;
use super::ranges::Ranges;
use super::state::{Dropping, FIRST, Key, Served, State};
use super::stays::{Own, Stays};
use super::{Parts, caller, serve_too};
use crate::pager::other::check;
use crate::pager::other::error::{OtherError, Refusal};
use crate::pager::other::image::granule;
use crate::pager::other::proc;
use crate::pager::other::space::{Kind, Space};
use crate::pager::other::together;
use crate::pager::other::writer::{Batch, Drop, From, Writer};
use crate::pager::transfer::table::{BLOCK, Pages, blocks, stretches};
use crate::sys::{Errno, GRANULE, PAGE};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes that leave together.
const BATCH: u64 = 16 << 20;
/// Where more leaves than must, such a part of what the rank may hold, so that there is soon room for what
/// was `recent`ly evicted; but so much at least, as each time calls are made for it.
const RECENT: u64 = 64;
const LEAST: u64 = 1 << 20;
/// The mappings are looked through again after this time at the soonest, unless nothing else is left.
const LIST: Duration = Duration::from_millis(100);
/// And after so many times as long as it took.
const LIST_SHARE: u32 = 30;

/// Which address space a process has.
pub(super) enum Found {
    Number(usize),
    /// It may have one that cannot be tried: the process has pages wherever that may.
    Full,
    Nothing,
}

impl Parts {
    /// Has parts leave until there are at most `goal` bytes, or nothing is left that can. The bytes that were
    /// given back.
    pub(super) fn evict(&mut self, goal: u64, progress: &mut dyn FnMut(u64)) -> Result<u64, OtherError> {
        let left = self.evict_while(goal, progress);
        // A child that was killed just now is passed over the next time.
        match left {
            Err(ref error @ (OtherError::Gone | OtherError::Rank { .. }))
                if self.threads.has_lost_one(self.spaces.iter().map(|(_, space)| space), error) =>
            {
                Err(OtherError::Busy)
            }
            left => left,
        }
    }

    fn evict_while(&mut self, goal: u64, progress: &mut dyn FnMut(u64)) -> Result<u64, OtherError> {
        let mut freed = 0;
        // Only now, as all stand: from here on nobody begins to.
        if let Some(refusal) = check::written_by_others(&self.threads.processes()) {
            if let Refusal::Busy { .. } = refusal {
                return Err(OtherError::Busy);
            }
            if !std::mem::replace(&mut self.told_of_others, true) {
                self.unserved.push_back(refusal.to_string());
            }
            return Ok(0);
        }
        if !self.shared.lock().settle_all() {
            return Err(OtherError::Busy);
        }
        let mut fresh = self.list_if_due(false)?;
        loop {
            let resident = self.measured_now().ok_or(OtherError::Busy)?;
            self.shared.lock().measured(resident, self.target);
            if resident <= goal {
                return Ok(freed);
            }
            let most = if goal < self.target { self.target / RECENT } else { BATCH };
            let batch = self.write_some((resident - goal).min(most.clamp(LEAST, BATCH)))?;
            if batch.drops.is_empty() {
                if std::mem::replace(&mut fresh, true) {
                    self.tell_what_stays(resident);
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
        if !now && self.list_not_before.is_some_and(|due| Instant::now() < due) {
            return Ok(false);
        }
        let begun = Instant::now();
        self.open_new_spaces();
        // Calls are made for it, during which the other thread serves.
        self.make_zeros_anonymous()?;
        let mut staying = Stays::default();
        let mut state = self.shared.lock();
        let state = &mut *state;
        for (number, space) in self.spaces.iter().filter(|(_, space)| space.caller != 0) {
            let Some(served) = &mut state.served[*number] else { continue };
            let (mut ranges, mut unwatched, mut wiped) = (vec![], vec![], Ranges::default());
            let mut own = Own::default();
            space.each_vma(&mut |vma| {
                let range = vma.from..vma.to;
                if vma.wiped {
                    wiped.add(range.clone());
                }
                own.add(&vma);
                if !vma.watched {
                    unwatched.push(range.clone());
                }
                if vma.can_leave() && vma.anonymous > 0 {
                    ranges.push(range);
                }
            })?;
            // Of these nothing is out. A child may have other mappings than its parent had when it was made
            // (`MADV_DONTFORK`).
            for range in unwatched {
                served.table.forget(&range, &mut state.image.slots);
                served.armed.remove(&range);
            }
            served.wiped = wiped;
            served.refused = Ranges::default();
            for range in ranges {
                // Of a mapping that another userfaultfd watches the kernel refuses ours, and it stays in RAM.
                match served.uffd.register(&range) {
                    Ok(()) => served.armed.add(range),
                    Err(_) => served.refused.add(range),
                }
            }
            staying.add(own.stays(served));
            let armed: Vec<Range<u64>> = served.armed.iter().collect();
            for range in armed {
                space.each_region(range, false, &mut |region, kind| {
                    if kind != Kind::Stays {
                        let found = blocks(&region);
                        found.for_each(|(block, pages)| state.choice.found((*number, block), pages));
                    }
                    Ok(())
                })?;
            }
        }
        self.staying = staying.seen(Some(begun));
        self.list_not_before = Some(Instant::now() + (begun.elapsed() * LIST_SHARE).max(LIST));
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
                Found::Number(number) => {
                    match caller(&self.threads, pid, &mut self.refused, &mut self.unserved) {
                        Some(tid) => space.choose(tid),
                        None => space.caller = 0,
                    }
                    self.spaces.push((number, space));
                }
                found => self.tell_who_is_unknown(pid, &space, matches!(found, Found::Full)),
            }
        }
    }

    /// Says once of a process if its page faults are served by somebody else, or if it has no page by which
    /// it could be known. Everything that was told has been settled, so what is watched where no copy of ours
    /// without its process has anything served is not ours.
    fn tell_who_is_unknown(&mut self, pid: i32, space: &Space, is_full: bool) {
        if self.refused.contains(&pid) || self.is_known(pid, space) {
            return;
        }
        let copies: Vec<Ranges> = {
            let state = self.shared.lock();
            let unknown = state.served.iter().flatten().filter(|served| served.pid.is_none());
            unknown.map(|served| served.armed.clone()).collect()
        };
        let (mut watched, mut may_be_ours) = (false, false);
        let listed = space.each_vma(&mut |vma| {
            let range = vma.from..vma.to;
            watched |= vma.watched;
            may_be_ours |= vma.watched && copies.iter().any(|armed| !armed.within(&range).is_empty());
        });
        if listed.is_ok() && watched && (is_full || !may_be_ours) {
            self.refused.push(pid);
            self.unserved.push_back(match may_be_ours {
                true => format!("process {pid} cannot be told from others, as it has pages wherever it can"),
                false => Refusal::Userfaultfd { pid }.to_string(),
            });
        }
    }

    /// Whether a process lives in an address space that is served: a child of `vfork` still lives in its
    /// parent's.
    fn is_known(&self, pid: i32, space: &Space) -> bool {
        self.spaces.iter().any(|(_, other)| match proc::share_memory(other.processes[0], pid) {
            Ok(is_same) => is_same,
            Err(_) => other.shares_with(space) != Some(false),
        })
    }

    /// The address space that a process has. Events of forks do not say whose the copies are, nor do they
    /// come in the order in which the children are made, and to take one for another would be to drop the
    /// pages of the wrong process. So it is tried: a page that holds nothing in the copy, and is not there in
    /// the process, is made a page of zeros, which changes nothing; if it is there then, it is this one.
    /// Everything stands. That could not be tried at one of them for a moment says nothing.
    pub(super) fn number_of(&self, pid: i32, space: &Space) -> Found {
        let mut state = self.shared.lock();
        if let Some(number) = state.of(pid) {
            return Found::Number(number);
        }
        let state = &mut *state;
        let (mut is_full, mut is_certain) = (false, true);
        for number in 0..state.served.len() {
            let Some(served) = state.served[number].as_mut().filter(|served| served.pid.is_none()) else {
                continue;
            };
            let Some(at) = served.nothing_in(space) else {
                is_full = true;
                continue;
            };
            let (_, made) = served.uffd.zero(&(at..at + PAGE as u64), &mut state.interference);
            match made.map(|()| space.is_there(at)) {
                Ok(Some(true)) => {
                    served.pid = Some(pid);
                    return Found::Number(number);
                }
                // It is another's: the page is not in this one, or was in that before.
                Ok(Some(false)) | Err(Errno(libc::EEXIST | libc::ESRCH)) => {}
                Ok(None) | Err(_) => is_certain = false,
            }
        }
        if is_full && is_certain { Found::Full } else { Found::Nothing }
    }

    /// A process that has executed another program since, or was started for one, has an address space that
    /// nobody serves: it gets a descriptor of its own, as the first ones did. Not one that has inherited
    /// ours.
    fn serve_new_programs(&mut self, processes: &[i32]) {
        for &pid in processes {
            if self.refused.contains(&pid) || self.shared.lock().of(pid).is_some() {
                continue;
            }
            if self.threads.is_foreign(pid) {
                self.refused.push(pid);
                self.unserved.push_back(Refusal::Foreign { pid }.to_string());
                continue;
            }
            let Some(tid) = caller(&self.threads, pid, &mut self.refused, &mut self.unserved) else {
                continue;
            };
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
                    self.unserved.push_back(error.to_string());
                }
            }
        }
        self.refused.retain(|pid| processes.contains(pid));
    }

    /// Chooses what leaves, copies and writes it.
    fn write_some(&mut self, wanted: u64) -> Result<Batch, OtherError> {
        // Also of a child that is not known yet: what it has with its parent does not become free.
        let alone = self.threads.processes().len() > 1;
        let mut state = self.shared.lock();
        let _copying = self.shared.copying(&state);
        let State { image, pump, choice, served, dropping, moved, recent, .. } = &mut *state;
        let mut seen = |slot, content: &[u8]| recent.put(slot, content);
        let mut writer = Writer::new(image, pump);
        writer.seen = Some(&mut seen);
        let filled = fill(&mut writer, wanted, choice, served, (&self.spaces[..], alone));
        let closed = filled.and_then(|()| writer.close()).and_then(|closed| writer.settle(closed));
        writer.end()?;
        let mut batch = closed?;
        // Before the other thread looks again, which might bring something to where it is dropped at once.
        batch.commit(image, served);
        *dropping = Dropping::new(&batch.drops);
        moved.written += batch.written;
        Ok(batch)
    }

    /// Drops what was written. The bytes that became free.
    fn drop_all(&mut self, batch: Batch) -> Result<u64, OtherError> {
        // The other thread goes on serving: the kernel may need pages of the very thread that makes the
        // calls.
        let mut dropped = Ok(());
        for drops in batch.drops.chunk_by(|a, b| a.number == b.number) {
            let Some((_, space)) = self.spaces.iter().find(|(number, _)| *number == drops[0].number) else {
                continue;
            };
            dropped = match self.drop_ranges(space, drops.to_vec()) {
                // All of its memory is nobody's any more.
                Err(ref error) if self.threads.has_lost(space, error) => Ok(()),
                done => done,
            };
            if dropped.is_err() {
                break;
            }
        }
        let mut state = self.shared.lock();
        state.dropping = Dropping::default();
        dropped?;
        state.moved.freed += batch.bytes;
        Ok(batch.bytes)
    }

    /// Drops ranges, while nothing of the rank runs. Where the kernel refuses, what is still there is not
    /// out: a call that fails may have dropped what lies before the mapping that it refused.
    fn drop_ranges(&self, space: &Space, drops: Vec<Drop>) -> Result<(), OtherError> {
        let mut dropping = together::Dropping::begin(&self.threads, space, drops)?;
        while dropping.on(space, &mut |drops, is_dropped| {
            let mut there = vec![];
            for drop in drops.iter().filter(|_| !is_dropped) {
                space.each_region(drop.range.clone(), false, &mut |region, _| {
                    there.push((drop.number, region));
                    Ok(())
                })?;
            }
            let mut state = self.shared.lock();
            for (number, region) in there {
                if let Some(served) = &mut state.served[number] {
                    served.table.is_there(&region);
                }
            }
            // From here on faults there are served.
            drops.iter().for_each(|drop| state.dropping.end(drop));
            Ok(())
        })? {}
        dropping.park(space)
    }
}

/// Takes up at least `wanted` bytes, of those who leave next, unless there are no more.
fn fill(
    writer: &mut Writer<'_>,
    wanted: u64,
    choice: &mut Choice<Key>,
    served: &[Option<Served>],
    (spaces, alone): (&[(usize, Space)], bool),
) -> Result<(), OtherError> {
    while writer.batch.bytes < wanted {
        let mut victims: Vec<(Key, Pages)> = vec![];
        let mut found = writer.batch.bytes;
        while found < wanted
            && let Some((key, pages)) = choice.next()
        {
            found += u64::from(pages.count_ones()) * PAGE as u64;
            victims.push((key, pages));
        }
        if victims.is_empty() {
            break;
        }
        victims.sort_unstable();
        for victims in victims.chunk_by(|a, b| a.0.0 == b.0.0) {
            let number = victims[0].0.0;
            let callable = |space: &&(usize, Space)| space.0 == number && space.1.caller != 0;
            let (Some((_, space)), Some(served)) = (spaces.iter().find(callable), &served[number]) else {
                continue;
            };
            let from = From { number, space, table: &served.table, forced: false, unit: FIRST };
            for victims in victims.chunk_by(|a, b| granule(a.0.1) == granule(b.0.1)) {
                fill_from_granule(writer, victims, served, from, alone)?;
            }
            writer.copy(from)?;
        }
    }
    Ok(())
}

/// Takes up what is there of pages of a granule.
fn fill_from_granule(
    writer: &mut Writer<'_>,
    victims: &[(Key, Pages)],
    served: &Served,
    from: From<'_>,
    alone: bool,
) -> Result<(), OtherError> {
    let mut pages = [0; GRANULE / BLOCK as usize];
    let of = |block: u64| (block % GRANULE as u64 / BLOCK) as usize;
    victims.iter().for_each(|&((_, block), more)| pages[of(block)] |= more);
    let (first, last) = (victims[0].0.1, victims[victims.len() - 1].0.1);
    for range in served.armed.within(&(first..last + BLOCK)) {
        // Where the last page lies that is there.
        let mut there = None;
        from.space.each_region(range, alone, &mut |region, kind| {
            let before = there.replace(region.end);
            if kind == Kind::Stays {
                return Ok(());
            }
            for (block, inside) in blocks(&region) {
                for stretch in stretches(block, inside & pages[of(block)]) {
                    let before = before.filter(|_| stretch.start == region.start);
                    writer.take(stretch, before, from)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
