//! What is likely to be used after a wait: rules only, no system calls.
//!
//! A *site* is where the process waited (the key of its blocking call); the *phase* after it lasts until the
//! pager looks again. Of each granule one byte is remembered per site, and one for the last phase whatever
//! its site ([`ANYWHERE`]), which answers for granules a site knows nothing about. What can be seen at the
//! end of a phase:
//! - a granule that was out has pages there: it was used, and if they are private copies, written;
//! - one that was out has none, or a few here and there (`plan::is_worth_bringing`): not used, or not enough
//!   to be brought in as a whole;
//! - one that was brought in for it has changed: written;
//! - one that was brought in for it has not changed: read, or not used, nobody can see which;
//! - one that was resident before says nothing: it may have changed in an earlier phase.
//!
//! The last kind is *probed*: left on the file mapping at a later visit, where being used shows. First an
//! eighth of the granules at a time, by groups of adjacent ones; once an eighth turns out mostly unused, all
//! the rest at the next visit. A granule that a probe found read is probed again only every 8, 16, … 128
//! visits. An unused granule stays out until it is touched. If most of what was thus left out was touched,
//! the site turns back to bringing everything in.
//!
//! *Much* of what is out has been touched, so that the rest is brought in at once, when it was a
//! sixty-fourth: a process that goes through its memory has touched that in milliseconds. But so has one that
//! looks things up here and there, for which all of it is then moved for nothing, at each of its waits.
//! Nobody can see what is used of what was brought in, but what has changed. So each time that less than half
//! has (or than a quarter of all), it takes twice as much to be much, up to half; and when half was touched
//! while most was out, a sixty-fourth again. Only granules that were used from end to end count, or nearly:
//! of others what is touched comes in, and is no more known to be used afterwards than before.

use super::SAME_PHASE;

/// Sites remembered at a time.
const SITES: usize = 16;
/// Bytes of history a granule may have.
pub const SLOTS: usize = SITES + 1;
/// The slot that every phase writes to.
const ANYWHERE: usize = 0;
/// Granules probed together: scattered ones would cut the transfers, and the mappings, to pieces.
const GROUP: usize = 4;
/// The base period of probes, in visits, and how often it may be doubled.
const PERIOD: u32 = 8;
const DOUBLINGS: u8 = 4;
/// Fewer unused granules than this say nothing about a site.
const ENOUGH: u32 = 4;

/// Bytes that are never much.
const LITTLE: usize = 1 << 20;
/// Of what is out this part is much, as a power of a half, of a process that goes through its memory…
const PART: u32 = 6;
/// …and at most so much.
const LARGEST_PART: u32 = 1;

/// Phases that can be told apart; what was resident for longer than so many may be taken for younger.
const NUMBERS: u8 = 15;

/// What is remembered of a granule: a kind, and for [`READ`] how often its period was doubled, in the high
/// bits.
const KIND: u8 = 0x0f;
/// No phase of the site is known in which it could be seen.
const NEVER: u8 = 0;
const WRITTEN: u8 = 1;
const READ: u8 = 2;
/// Read or not used.
const UNKNOWN: u8 = 3;
const UNUSED: u8 = 4;

/// What to do with a granule that is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Bring it in.
    Bring,
    /// Leave it out to see whether it is used.
    Probe,
    /// Leave it out, it is not used.
    Leave,
}

/// How a slot looks at its bytes at its next visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct View {
    visit: u32,
    /// Bring everything in.
    eager: bool,
    /// Probe every unknown granule, not an eighth of them.
    probe_all: bool,
    /// What is left out and used after all is soon noticed and brought in, see [`Sites::expect_catch_up`].
    caught_up: bool,
}

impl View {
    fn plan(self, byte: u8, g: usize) -> Plan {
        let due = |period: u32| (self.visit + stagger(g)).is_multiple_of(period);
        match byte & KIND {
            READ if !self.eager && due(PERIOD << (byte >> 4)) => Plan::Probe,
            UNKNOWN if !self.eager && (self.probe_all || self.caught_up || due(PERIOD)) => Plan::Probe,
            UNUSED if !self.eager => Plan::Leave,
            _ => Plan::Bring,
        }
    }
}

/// Spreads the groups of granules over the visits.
fn stagger(g: usize) -> u32 {
    ((g / GROUP) as u32).wrapping_mul(0x9e37_79b1) >> 24
}

/// What was remembered of a granule that was resident during the phase, after it.
fn after_resident(byte: u8, changed: bool, eager: bool) -> u8 {
    match byte & KIND {
        _ if changed => WRITTEN,
        READ => byte,
        UNUSED if !eager => UNUSED,
        _ => UNKNOWN,
    }
}

/// What was remembered of a granule that was out during the phase, after it.
fn after_out(byte: u8, seen: Seen) -> u8 {
    match (seen, byte & KIND) {
        (Seen::Untouched, _) => UNUSED,
        (Seen::Written, _) => WRITTEN,
        // A probe that found it used, again.
        (Seen::Read, READ) => READ | ((byte >> 4) + 1).min(DOUBLINGS) << 4,
        (Seen::Read, _) => READ,
    }
}

/// What a granule that was out during a phase has to show for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Untouched,
    Read,
    Written,
}

/// What is known before a visit to a site; copied out, so that the rules need nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    slot: usize,
    site: View,
    anywhere: View,
}

impl Outlook {
    /// What to do with granule `g`, whose history is `bytes`.
    pub fn plan(self, g: usize, bytes: impl Fn(usize) -> u8) -> Plan {
        if self.slot != ANYWHERE {
            let byte = bytes(self.slot);
            if byte & KIND != NEVER {
                return self.site.plan(byte, g);
            }
        }
        if self.site.caught_up && (self.slot == ANYWHERE || !self.site.eager) {
            return Plan::Probe;
        }
        self.anywhere.plan(bytes(ANYWHERE), g)
    }
}

/// The phase that was ended by the last look, to which what is found afterwards belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    slot: usize,
    eager: [bool; 2],
    number: u8,
}

impl Past {
    /// The new history of a granule that was resident, slot by slot.
    pub fn resident(self, changed: bool, bytes: impl Fn(usize) -> u8) -> impl Iterator<Item = (usize, u8)> {
        self.slots().map(move |(slot, eager)| (slot, after_resident(bytes(slot), changed, eager)))
    }

    /// The number of the phase: what was brought in for it is marked with that.
    pub fn number(self) -> u8 {
        self.number
    }

    fn slots(self) -> impl Iterator<Item = (usize, bool)> {
        let both = [(ANYWHERE, self.eager[0]), (self.slot, self.eager[1])];
        both.into_iter().take(if self.slot == ANYWHERE { 1 } else { 2 })
    }
}

/// What the granules left out in a phase came to, for one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tally {
    unused: u32,
    unused_touched: u32,
    probed: u32,
    probed_touched: u32,
}

impl Tally {
    const EMPTY: Self = Self { unused: 0, unused_touched: 0, probed: 0, probed_touched: 0 };

    fn add(&mut self, byte: u8, seen: Seen) {
        let touched = (seen != Seen::Untouched) as u32;
        match byte & KIND {
            UNUSED => (self.unused, self.unused_touched) = (self.unused + 1, self.unused_touched + touched),
            UNKNOWN => (self.probed, self.probed_touched) = (self.probed + 1, self.probed_touched + touched),
            _ => {}
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    key: u64,
    /// When it was last visited, 0 for never.
    used: u32,
    view: View,
    tally: Tally,
    /// The phase that goes on uses everything.
    all_used: bool,
}

impl Slot {
    const FREE: Self = Self {
        key: 0,
        used: 0,
        view: View { visit: 1, eager: false, probe_all: false, caught_up: false },
        tally: Tally::EMPTY,
        all_used: false,
    };

    /// A phase has been looked at.
    fn close(&mut self) {
        let t = std::mem::replace(&mut self.tally, Tally::EMPTY);
        let all_used = std::mem::take(&mut self.all_used);
        self.view.eager = all_used || t.unused >= ENOUGH && t.unused_touched * 2 > t.unused;
        self.view.probe_all = t.probed > 0 && t.probed_touched * 4 <= t.probed;
        self.view.visit = self.view.visit.wrapping_add(1);
    }
}

/// The sites of a process, and which phase it is in.
#[derive(Debug)]
pub struct Sites {
    slots: [Slot; SLOTS],
    clock: u32,
    /// The slot of the phase that goes on.
    phase: Option<usize>,
    past: Past,
    /// Of the phase that goes on or comes next: from 1 to [`NUMBERS`] and around.
    number: u8,
    caught_up: bool,
    /// Such a part of what is out is much, as a power of a half.
    part: u32,
    /// Everything was brought in for the phase that goes on, or of the one last looked at: nobody has seen
    /// yet what for.
    whole: bool,
    /// Most of what it holds was out when somebody looked at what it touches.
    most_out: bool,
}

impl Sites {
    pub const fn new() -> Self {
        let past = Past { slot: ANYWHERE, eager: [false; 2], number: NUMBERS };
        Self {
            slots: [Slot::FREE; SLOTS],
            clock: 0,
            phase: None,
            past,
            number: 1,
            caught_up: false,
            part: PART,
            whole: false,
            most_out: false,
        }
    }

    /// From now on a process that uses much of what was left out is noticed while it does, and the rest
    /// brought in: a wrong guess costs a few milliseconds. So what is not known to be used is left out, at a
    /// new site everything.
    pub fn expect_catch_up(&mut self) {
        self.caught_up = true;
        for slot in &mut self.slots {
            slot.view.caught_up = true;
        }
    }

    /// What was left out in the phase that goes on is used after all: next time everything is brought in at
    /// once.
    pub fn turn_eager(&mut self) {
        let slot = self.phase.unwrap_or(ANYWHERE);
        self.slots[slot].all_used = true;
        self.whole = true;
        if self.part == LARGEST_PART && self.most_out {
            self.part = PART;
        }
    }

    /// How many of the bytes that are out, of those that it holds, the process must have touched for the rest
    /// to be worth bringing in.
    pub fn much(&mut self, held: usize, out: usize) -> usize {
        self.most_out = out >= held / 2;
        (out >> self.part).max(LITTLE)
    }

    /// Of so many blocks that were brought in for the phase last looked at, of those that it holds, so many
    /// have changed. Of a few that are out all may change, of a process that uses nothing else.
    pub fn changed(&mut self, changed: usize, of: usize, held: usize) {
        if of > 0 && std::mem::take(&mut self.whole) {
            let most = 2 * changed >= of && 4 * changed >= held;
            self.part = if most { PART } else { (self.part - 1).max(LARGEST_PART) };
        }
    }

    fn find(&self, site: u64) -> Option<usize> {
        (ANYWHERE + 1..SLOTS).find(|&i| self.slots[i].used > 0 && self.slots[i].key == site)
    }

    /// What is known for the next phase after a wait at `site`, or of the one that goes on.
    pub fn outlook(&self, site: u64) -> Outlook {
        let slot = match site {
            SAME_PHASE => self.phase,
            site => self.find(site),
        };
        let slot = slot.unwrap_or(ANYWHERE);
        Outlook { slot, site: self.slots[slot].view, anywhere: self.slots[ANYWHERE].view }
    }

    /// A phase begins after a wait at `site`, unless one goes on: what is seen at its end comes from all
    /// phases since the pager looked, and is of use where memory was last brought in. Returns the slot whose
    /// history, of another site, must be forgotten first.
    pub fn begin(&mut self, site: u64) -> Option<usize> {
        if self.phase.is_some() {
            return None;
        }
        self.clock += 1;
        let known = self.find(site);
        let slot = known.unwrap_or_else(|| {
            (ANYWHERE + 1..SLOTS).min_by_key(|&i| self.slots[i].used).unwrap_or(ANYWHERE + 1)
        });
        if known.is_none() {
            self.slots[slot] = Slot { key: site, ..Slot::FREE };
            self.slots[slot].view.caught_up = self.caught_up;
        }
        self.slots[slot].used = self.clock;
        self.phase = Some(slot);
        known.is_none().then_some(slot)
    }

    /// The phase that goes on is no longer that of one site.
    pub fn blur(&mut self) {
        if self.phase.is_some() {
            self.phase = Some(ANYWHERE);
        }
    }

    /// Whether a phase goes on, so that a look at the granules tells something about it.
    pub fn in_phase(&self) -> bool {
        self.phase.is_some()
    }

    /// In a look at the end of a phase: what granule `bytes`, which was out in it, has to show. Returns its
    /// new history, slot by slot.
    pub fn out(&mut self, seen: Seen, bytes: impl Fn(usize) -> u8) -> impl Iterator<Item = (usize, u8)> {
        let slot = self.phase.unwrap_or(ANYWHERE);
        let new = [ANYWHERE, slot].map(|slot| (slot, after_out(bytes(slot), seen)));
        for &(slot, _) in &new[..if slot == ANYWHERE { 1 } else { 2 }] {
            self.slots[slot].tally.add(bytes(slot), seen);
        }
        new.into_iter()
    }

    /// Ends the phase that goes on, after all granules that are out were looked at.
    pub fn close(&mut self) {
        if let Some(slot) = self.phase.take() {
            let eager = [ANYWHERE, slot].map(|s| self.slots[s].view.eager);
            self.past = Past { slot, eager, number: self.number };
            self.number = self.number % NUMBERS + 1;
            self.slots[ANYWHERE].close();
            self.slots[slot].close();
        }
    }

    /// The number of the phase that goes on or comes next.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The phase last looked at.
    pub fn past(&self) -> Past {
        self.past
    }
}

#[cfg(test)]
mod tests;
