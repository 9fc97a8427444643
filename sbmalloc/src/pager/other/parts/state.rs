//! What the thread that serves and the thread that traces share: address spaces, what of them is out, and
//! where.

use super::actors::{Actors, actor};
use super::choice::Choice;
use super::faults::Told;
use super::guard::Guard;
use super::ranges::Ranges;
use super::recent::Recent;
use super::serve::WINDOW;
use super::uffd::{Fault, Interference, NOWHERE, News, Probed, Uffd};
use crate::pager::other::error::OtherError;
use crate::pager::other::image::Image;
use crate::pager::other::proc;
use crate::pager::other::space::Space;
use crate::pager::other::writer::{Drop, Tables};
use crate::pager::transfer::pump::Pump;
use crate::pager::transfer::slots::Slots;
use crate::pager::transfer::table::{BLOCK, Table};
use crate::sys::PAGE;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So much more than its target a rank may hold for a moment: a part of it, in these bounds.
const SLACK: (u64, Range<u64>) = (64, 256 << 10..4 << 20);
/// An event that was not read by then does not come.
const MISSED: Duration = Duration::from_secs(10);
/// So many are told apart at the same time.
const STREAMS: usize = 16;
/// So much may be there between two faults of one sweep.
const SKIPPED: u64 = 32 << 20;
/// What is brought for a fault that has nothing to do with those before: objects of one kind mostly lie
/// together, and a page more costs little of what a fault costs.
pub(super) const FIRST: u64 = 16 << 10;
/// Blocks of which something was missed that are remembered.
const LATELY: usize = 64;
/// After so many copies at the soonest it is looked which address spaces are no more.
const COPIES: usize = 16;
/// Pages looked at for one that holds nothing, in a range, where the kernel does not list them.
const MOST_TRIED: usize = 1 << 12;

/// An address space whose missing pages are served.
pub(super) struct Served {
    pub uffd: Arc<Uffd>,
    pub table: Table,
    /// The ranges that are registered.
    pub armed: Ranges,
    /// Those that the kernel refused, as something else watches them.
    pub refused: Ranges,
    /// Those of the registered ones whose content no child has.
    pub wiped: Ranges,
    /// Where it is not known what a missing page holds, nor ever will be: nobody goes on with one.
    pub doubtful: Ranges,
    /// Its table is not known yet: that waits for its parent's.
    pub is_unborn: bool,
    /// What was read of it and not applied yet.
    pub told: Vec<Told>,
    /// Its threads, if its process is known.
    actors: Option<Actors>,
    /// What each thread missed last.
    pub missing: Missing,
    /// Its process, if that is known.
    pub pid: Option<i32>,
    /// The latest stretches of faults one behind the other, the newest in front.
    streams: VecDeque<Stream>,
    /// Blocks of which something was missed, the newest in front, and whether all of them was brought.
    missed_lately: VecDeque<(u64, bool)>,
    /// A page that is out and not memory, and since when.
    missed: Option<(u64, Instant)>,
}

impl Served {
    pub fn new(uffd: Uffd, pid: i32) -> Self {
        Self {
            uffd: Arc::new(uffd),
            table: Table::default(),
            armed: Ranges::default(),
            refused: Ranges::default(),
            wiped: Ranges::default(),
            doubtful: Ranges::default(),
            is_unborn: false,
            told: vec![],
            actors: None,
            missing: Missing::default(),
            pid: Some(pid),
            streams: VecDeque::new(),
            missed_lately: VecDeque::new(),
            missed: None,
        }
    }

    /// A copy of which is not known yet what its parent had when it was made.
    pub fn unborn(uffd: Uffd) -> Self {
        Self { pid: None, is_unborn: true, ..Self::new(uffd, 0) }
    }

    /// What there is to be told, if anything, and by which thread it was, if that can be told.
    /// `is_ours`: what is changed now we change.
    pub fn read(&mut self, is_ours: bool) -> Option<(News, Option<u32>)> {
        if !self.uffd.is_readable() {
            return None;
        }
        let is_changing = !is_ours && matches!(self.uffd.probe(NOWHERE), Probed::Changing);
        let callers = match self.pid {
            Some(pid) if is_changing => {
                if self.actors.as_ref().is_none_or(|actors| actors.pid() != pid) {
                    self.actors = Some(Actors::new(pid));
                }
                self.actors.as_mut().map(Actors::callers).unwrap_or_default()
            }
            _ => vec![],
        };
        let news = self.uffd.read()?;
        let by = actor(&callers, &news);
        match (&news, &mut self.actors) {
            (News::Fault(fault), _) => self.missing.note(*fault),
            (_, Some(actors)) => actors.was_read(by),
            _ => {}
        }
        Some((news, by))
    }

    /// It has what its parent has.
    pub fn inherit(&mut self, parent: &Self, slots: &mut Slots) {
        self.table = parent.table.copy(slots);
        self.doubtful = parent.doubtful.clone();
        for range in parent.wiped.iter() {
            self.table.forget(&range, slots);
            self.doubtful.remove(&range);
        }
        self.armed = parent.armed.clone();
        self.is_unborn = false;
    }

    /// It is not known what lies in these ranges, if anything of them is out.
    pub fn doubt(&mut self, ranges: &[Range<u64>], slots: &mut Slots) {
        if ranges.iter().any(|range| self.table.first_out(range).is_some() || self.is_doubtful(range)) {
            for range in ranges {
                self.table.forget(range, slots);
                self.doubtful.add(range.clone());
            }
        }
    }

    /// Whether that is so for something of a range.
    pub fn is_doubtful(&self, range: &Range<u64>) -> bool {
        !self.doubtful.within(range).is_empty()
    }

    /// A page that is out lies where no memory is, as far as the kernel says. Between a change of addresses
    /// and its event that is so for a moment; if no event comes, what is out can never be put back.
    pub fn is_patient(&mut self, at: u64) -> bool {
        match self.missed {
            Some((page, since)) if page == at => since.elapsed() < MISSED,
            _ => {
                self.missed = Some((at, Instant::now()));
                true
            }
        }
    }

    /// A page that holds nothing by what is known, and is not there in a process, which may be that of this
    /// address space.
    pub fn nothing_in(&self, space: &Space) -> Option<u64> {
        let mut found = None;
        for range in self.armed.iter() {
            space.each_hole(range, MOST_TRIED, &mut |hole| {
                let mut at = hole.start;
                while found.is_none()
                    && let Some(page) = self.table.first_not_out(&(at..hole.end))
                {
                    match self.doubtful.within(&(page..hole.end)).first() {
                        Some(doubtful) if doubtful.start == page => at = doubtful.end,
                        _ => found = Some(page),
                    }
                }
                found.is_none()
            });
            if found.is_some() {
                break;
            }
        }
        found
    }

    /// What to bring for a fault, of what is out there: twice as much as before where it goes on behind that;
    /// all of a block where that, or what lies beside it, was missed a moment ago, wherever; else little.
    pub fn window(&mut self, at: u64) -> Range<u64> {
        // What is there in between was not missed.
        let goes_on = |stream: &Stream| {
            at == stream.next
                || (at > stream.next
                    && at - stream.next <= SKIPPED
                    && self.table.first_out(&(stream.next..at)).is_none())
        };
        let known = self.streams.iter().position(goes_on);
        let range = match known.and_then(|i| self.streams.remove(i)) {
            Some(stream) => at..at + (stream.window * 2).min(WINDOW),
            None => self.around(at),
        };
        self.streams.truncate(STREAMS - 1);
        self.streams.push_front(Stream { next: at, window: range.end - range.start });
        range
    }

    fn around(&mut self, at: u64) -> Range<u64> {
        let block = at & !(BLOCK - 1);
        let is_used = self
            .missed_lately
            .iter()
            .any(|&(other, whole)| other == block || (whole && other.abs_diff(block) == BLOCK));
        self.missed_lately.retain(|&(other, _)| other != block);
        self.missed_lately.truncate(LATELY - 1);
        self.missed_lately.push_front((block, is_used));
        if is_used {
            return block..block + BLOCK;
        }
        let from = at & !(FIRST - 1);
        from..from + FIRST
    }

    /// What was last brought was for somebody who goes through a whole range.
    pub fn sweeps(&self) -> bool {
        self.streams.front().is_some_and(|stream| stream.window >= BLOCK)
    }

    /// What was brought for the last fault ends here.
    pub fn brought(&mut self, end: u64) {
        if let Some(stream) = self.streams.front_mut() {
            stream.next = end;
        }
    }
}

/// The page that each thread missed last.
#[derive(Debug, Default)]
pub(super) struct Missing {
    last: HashMap<u32, u64>,
    /// With so many it is time to forget those that are no more.
    many: usize,
}

impl Missing {
    fn note(&mut self, Fault { at, by }: Fault) {
        self.last.insert(by, at);
        if self.last.len() > self.many {
            self.last.retain(|&tid, _| tid == by || proc::is_there(tid));
            self.many = (2 * self.last.len()).max(256);
        }
    }

    pub fn is_last(&self, Fault { at, by }: Fault) -> bool {
        self.last.get(&by) == Some(&at)
    }
}

impl Tables for Vec<Option<Served>> {
    fn table(&mut self, number: usize) -> Option<&mut Table> {
        self.get_mut(number)?.as_mut().map(|served| &mut served.table)
    }
}

/// Faults one behind the other.
#[derive(Debug, Clone, Copy)]
struct Stream {
    /// Where what was brought ends.
    next: u64,
    /// How much that was.
    window: u64,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartsMoved {
    /// Times that a thread waited for a page: one that was out, or a new one.
    pub faults: u64,
    /// Memory brought back, bytes.
    pub filled: u64,
    /// Memory given back, bytes.
    pub freed: u64,
    /// Bytes read from scratch.
    pub read: u64,
    /// Bytes written to scratch.
    pub written: u64,
    /// How long serving faults took.
    pub serving: Duration,
    /// How long the rank stood still so that parts of it could leave.
    pub standing: Duration,
}

/// Ranges that are about to be dropped by us, while the rank stands: the table says already that they are
/// out.
#[derive(Debug, Default)]
pub(super) struct Dropping(BTreeMap<(usize, u64), u64>);

impl Dropping {
    pub fn new(drops: &[Drop]) -> Self {
        Self(drops.iter().map(|drop| ((drop.number, drop.range.start), drop.range.end)).collect())
    }

    /// The last of them that has something in common with a range.
    pub fn with(&self, number: usize, range: &Range<u64>) -> Option<Range<u64>> {
        let (&(_, start), &end) = self.0.range((number, 0)..(number, range.end)).next_back()?;
        (end > range.start).then_some(start..end)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn end(&mut self, drop: &Drop) {
        self.0.remove(&(drop.number, drop.range.start));
    }
}

/// A block of an address space.
pub(super) type Key = (usize, u64);

pub(super) struct State {
    /// By number; what is gone leaves its place empty.
    pub served: Vec<Option<Served>>,
    pub choice: Choice<Key>,
    pub image: Image,
    pub pump: Pump,
    /// Of what is out.
    pub recent: Recent,
    pub moved: PartsMoved,
    pub guard: Guard,
    pub dropping: Dropping,
    /// Copies that were told of since it was looked which address spaces are no more, and with how many it is
    /// looked again.
    copies: (usize, usize),
    /// Faults that could not be served yet.
    pub waiting: Vec<(usize, Fault)>,
    /// The system had no memory for a page.
    pub starved: bool,
    /// Private memory of the rank as it was last measured, and what came since.
    pub resident: u64,
    /// So much it may be.
    pub target: u64,
    /// Beyond this much whoever waits for a page waits until parts have left.
    pub limit: u64,
    /// Of a test.
    pub interference: Interference,
    /// The rank is being stopped: who waits for a page inside a system call stops only when it has it.
    pub urgent: bool,
    pub failed: Option<OtherError>,
    pub stop: bool,
}

impl State {
    pub fn new(image: Image, pump: Pump, guard: Guard) -> Self {
        Self {
            served: vec![],
            choice: Choice::new(),
            image,
            pump,
            recent: Recent::default(),
            moved: PartsMoved::default(),
            guard,
            dropping: Dropping::default(),
            copies: (0, COPIES),
            waiting: vec![],
            starved: false,
            resident: 0,
            target: u64::MAX,
            limit: u64::MAX,
            interference: Interference::default(),
            urgent: false,
            failed: None,
            stop: false,
        }
    }

    /// Bytes that are out.
    pub fn out(&self) -> u64 {
        self.served.iter().flatten().map(|s| s.table.pages()).sum::<u64>() * PAGE as u64
    }

    /// There is no room for more pages before parts have left.
    pub fn is_full(&self) -> bool {
        self.resident > self.limit && !self.urgent
    }

    /// So much is there now, and so much may be.
    pub fn measured(&mut self, resident: u64, target: u64) {
        self.resident = resident;
        self.target = target;
        self.keep_recent();
        let (part, bounds) = SLACK;
        let slack = (target / part).clamp(bounds.start, bounds.end);
        self.limit = target.max(resident).saturating_add(slack);
    }

    /// What was evicted last may take what room is left.
    pub fn keep_recent(&mut self) {
        let room = match self.target {
            u64::MAX => 0,
            target => target.saturating_sub(self.resident),
        };
        self.recent.allow(room);
    }

    /// Something of a range is about to be dropped.
    pub fn is_leaving(&self, number: usize, range: &Range<u64>) -> bool {
        self.dropping.with(number, range).is_some()
    }

    /// Faults that are served later.
    pub fn wait_for(&mut self, number: usize, faults: &[Fault]) {
        self.waiting.extend(faults.iter().map(|&fault| (number, fault)));
    }

    /// Those whose process this is.
    pub fn of(&self, pid: i32) -> Option<usize> {
        self.served.iter().position(|s| s.as_ref().is_some_and(|s| s.pid == Some(pid)))
    }

    /// Another address space. Its number.
    pub fn add(&mut self, served: Served) -> usize {
        match self.served.iter().position(Option::is_none) {
            // Its descriptor's number may be one that was just polled for another; nothing is read from it
            // yet.
            Some(free) => {
                self.served[free] = Some(served);
                free
            }
            None => {
                self.served.push(Some(served));
                self.served.len() - 1
            }
        }
    }

    pub fn close(&mut self, number: usize) {
        // Copies of it take over first what it had.
        if !self.settle(number) {
            return;
        }
        self.waiting.retain(|&(n, _)| n != number);
        if let Some(mut gone) = self.served[number].take() {
            gone.table.clear(&mut self.image.slots);
        }
    }

    /// Forgets address spaces that are no more.
    pub fn close_dead(&mut self) {
        for number in 0..self.served.len() {
            if self.served[number].as_ref().is_some_and(|s| !s.uffd.is_alive()) {
                self.close(number);
            }
        }
        self.copies = (0, self.served.iter().flatten().count().max(COPIES));
    }

    /// A copy was made. Its number.
    pub fn add_copy(&mut self, uffd: Uffd) -> usize {
        self.copies.0 += 1;
        self.add(Served::unborn(uffd))
    }

    /// Forgets them when as many copies were made as there are address spaces: nothing tells of the end of
    /// one that nobody waits in, and each has a descriptor.
    pub fn close_dead_now_and_then(&mut self) {
        if self.copies.0 >= self.copies.1 {
            self.close_dead();
        }
    }
}
