//! What one rank holds: the sum over its processes.
//!
//! A process that has not run since the last look holds what it held then, and its processor clock is the
//! cheapest thing to read. So each look reads the clock of each process, and `statm` of those that have run
//! (of the others ten times a second, since the kernel may have changed their memory). The rest is read where
//! it can have changed: the list of processes if any process has been made anywhere since, `status` twice a
//! second and when mapped pages came or went, the processor time of a whole cgroup every 50 ms. Of a rank
//! that asks for its memory nearly all that `status` and `stat` tell changes only if a process or a thread
//! has been made, so they are read ten times more seldom while none has been.

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::group::{Group, Tracking};
use super::once::{Known, Once};
use super::proc::{self, Statm, StatmOf, Status};
use super::reading::Reading;
use super::sample::Sample;
use super::shares::Found;
use super::tree::{self, Table};
use crate::cgroups::pids;
use crate::descriptors::{Kept, Spare};

/// How often the list of processes is read at most.
const LIST: Duration = Duration::from_millis(50);
/// How often `statm` is read at least.
const STATM: Duration = Duration::from_millis(100);
/// The same where it must be opened for that.
const STATM_DEAR: Duration = Duration::from_secs(1);
/// How often processor time is read at most, and over how long its rate is taken.
const CPU: Duration = Duration::from_millis(50);
/// Of so many threads of a rank it is read whether they wait for a processor.
const STARVED: usize = 64;
/// How often it is asked which pages are shared, while the processes stay the same.
const SHARES: Duration = Duration::from_secs(1);
/// It is not asked where all but the largest process hold less than this, or than this part of it (a shell
/// before a program).
const WORTH_DIVIDING: u64 = 1 << 20;
const WORTH_DIVIDING_PART: u64 = 64;
/// It is asked at once if they map so much more shared memory.
const SHARED_CHANGE: u64 = 8 << 20;
/// Answers that speak of other processes than there are by then are of no use, but if so many were none then
/// that is as it is there: some are made all the time.
const USELESS: u32 = 3;

/// What is the same for all ranks at one look.
pub(super) struct Look<'a> {
    pub(super) now: Instant,
    /// See [`proc::Load`].
    pub(super) births: Option<u64>,
    /// Not everybody who is ready has a processor. Then ranks that wait for one are told from those that do
    /// nothing.
    pub(super) crowded: Crowded,
    /// All processes, if somebody needed them and they are fresh.
    pub(super) table: Option<&'a Table>,
}

/// Whether more threads are ready than there are processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowded {
    No,
    /// Yes, and what was read last holds.
    Yes,
    /// Yes, and it is to be read who waits.
    Read,
}

struct Process {
    pid: i32,
    file: StatmOf,
    clock: Option<libc::clockid_t>,
    statm: Statm,
    statm_due: Instant,
    status: Status,
    /// When it was read; none: it is read at once.
    status_read: Option<Reading>,
    cpu: Duration,
    /// Of children that it has waited for, and when that was read.
    children: Duration,
    children_read: Option<Reading>,
    /// How long it was ready and had no processor, as read last.
    starved: Option<Duration>,
    /// What of its memory it shares.
    known: Known,
    /// It runs in the memory of this one (between `vfork` and `exec`).
    guest_of: Option<i32>,
}

/// One rank.
pub(super) struct Meter {
    group: Group,
    spare: Spare,
    /// Kept open where that gives fresh answers.
    list: Option<Kept>,
    cpu_stat: Option<Kept>,
    /// Processor time is counted for the whole group.
    counts_cpu: bool,
    processes: Vec<Process>,
    page: u64,
    tick: Duration,
    listed: Option<(Instant, Option<u64>)>,
    cpu_read: Option<(Instant, Duration)>,
    busy: f64,
    /// When it was read who waits for a processor.
    starved_read: Option<Instant>,
    /// Processors it waits for.
    starving: f64,
    /// Something has run since processor time was read.
    ran: bool,
    /// The rank asks for most of what it takes.
    asks: bool,
    /// Counts changes of the list.
    generation: u64,
    /// The list for which the sample was added up.
    counted: Option<u64>,
    /// What its processes hold together.
    once: Once,
    /// When it was last asked which pages are shared, and when and for which list that was last found out.
    asked: Option<Instant>,
    divided: Option<(Instant, u64)>,
    /// Answers that were of no use since.
    useless: u32,
    /// What all mapped of shared memory then, each process all of it.
    shared_then: u64,
    sample: Sample,
}

impl Meter {
    pub(super) fn new(group: Group, spare: Spare) -> Self {
        let list = group.cgroup().and_then(|cgroup| cgroup.list());
        let cpu_stat = group.cgroup().and_then(|cgroup| cgroup.cpu_stat());
        // SAFETY: plain library calls.
        let (page, ticks) = unsafe { (libc::sysconf(libc::_SC_PAGESIZE), libc::sysconf(libc::_SC_CLK_TCK)) };
        Self {
            counts_cpu: cpu_stat.is_some(),
            list: list.and_then(|list| spare.keep(list)),
            cpu_stat: cpu_stat.and_then(|account| spare.keep(account)),
            spare,
            group,
            processes: Vec::new(),
            page: u64::try_from(page).unwrap_or(4096),
            tick: Duration::from_secs(1) / u32::try_from(ticks).unwrap_or(100).max(1),
            listed: None,
            cpu_read: None,
            busy: 0.0,
            starved_read: None,
            starving: 0.0,
            ran: false,
            asks: false,
            generation: 0,
            counted: None,
            once: Once::default(),
            asked: None,
            divided: None,
            useless: 0,
            shared_then: 0,
            sample: Sample::default(),
        }
    }

    /// What was found at the last look.
    pub(super) fn sample(&self) -> Sample {
        self.sample
    }

    /// Processors it uses, or would if others did not.
    pub(super) fn busy(&self) -> f64 {
        self.busy + self.starving
    }

    /// Whether the next look wants [`Look::table`].
    pub(super) fn wants_table(&self, now: Instant, births: Option<u64>) -> bool {
        self.group.tracking() == Tracking::Tree && self.list_due(now, births)
    }

    fn list_due(&self, now: Instant, births: Option<u64>) -> bool {
        self.listed.is_none_or(|(then, known)| {
            now.saturating_duration_since(then) >= LIST && (births.is_none() || births != known)
        })
    }

    /// Everything is read anew at the next look: somebody else has changed its memory.
    pub(super) fn refresh(&mut self) {
        self.counted = None;
        let now = Instant::now();
        for process in &mut self.processes {
            (process.statm_due, process.status_read) = (now, None);
        }
    }

    /// What is in RAM now of processes that stand still, most of whose memory has left. Changes nothing that
    /// is known of them: what they shared they may share again when it is back.
    pub(super) fn remains(&self) -> Sample {
        let mut found = Sample { private: 0, shared: 0, page_tables: 0, ..self.sample };
        let (mut private, mut shared) = (0, 0);
        for process in self.processes.iter().filter(|process| process.guest_of.is_none()) {
            let anonymous = process.file.read(self.page, process.statm).map_or(0, Statm::anonymous);
            let status = proc::status(process.pid).unwrap_or_default();
            found.private += anonymous;
            found.shared += status.shared;
            found.page_tables += status.page_tables;
            (private, shared) = (anonymous.max(private), status.shared.max(shared));
        }
        // Pages of several processes are counted once for each, but together they never held more than
        // before.
        found.private = found.private.min(private.max(self.sample.private));
        found.shared = found.shared.min(shared.max(self.sample.shared));
        found
    }

    /// Looks at all processes.
    /// `asks`: what it shares and has mapped is not reckoned, so how much that is may be old. `idle`: nothing
    /// of it has run since the last look, so nothing waits for a processor.
    pub(super) fn look(&mut self, look: &Look<'_>, asks: bool, idle: bool) {
        self.asks = asks;
        if self.list_due(look.now, look.births)
            && let Some(pids) = self.read_list(look)
        {
            self.listed = Some((look.now, look.births));
            self.update(&pids, look.now);
        } else if self.listed.is_none() && self.processes.is_empty() {
            // No table of all processes is due yet. The first of a rank is known without.
            self.update(&[self.group.leader()], look.now);
        }
        if self.read_processes(look.now, look.births) {
            self.ran = true;
            self.add_up();
        }
        self.read_cpu(look.now);
        match look.crowded {
            _ if idle => (self.starved_read, self.starving) = (None, 0.0),
            Crowded::No => (self.starved_read, self.starving) = (None, 0.0),
            Crowded::Yes => {}
            Crowded::Read => self.read_starved(look.now),
        }
    }

    fn read_list(&self, look: &Look<'_>) -> Option<Vec<i32>> {
        if self.group.tracking() == Tracking::Tree {
            return look.table.map(|table| self.group.of_table(table));
        }
        if let Some(list) = &self.list
            && self.group.cgroup().is_some_and(|cgroup| !cgroup.is_nested())
        {
            let mut text = [0_u8; 2048];
            let length = list.read_at(&mut text, 0).ok()?;
            // Almost always; with more it takes another read.
            if length < text.len() {
                return Some(pids(std::str::from_utf8(&text[..length]).ok()?).collect());
            }
        }
        self.group.processes().ok()
    }

    /// Takes over a new list.
    fn update(&mut self, pids: &[i32], now: Instant) {
        let there: HashSet<i32> = pids.iter().copied().collect();
        self.keep(|process| there.contains(&process.pid));
        let before = self.processes.len();
        for &pid in pids {
            if self.processes[..before].iter().all(|process| process.pid != pid)
                && let Some(process) = self.new_process(pid, now)
            {
                self.processes.push(process);
            }
        }
        if self.processes.len() == before {
            return;
        }
        self.generation += 1;
        // What they are copies of has run since the last look.
        for process in &mut self.processes[..before] {
            process.statm = process.file.read(self.page, process.statm).unwrap_or(process.statm);
        }
        for at in before..self.processes.len() {
            self.processes[at].guest_of = self.host(at);
            self.note_copy(at, at);
        }
    }

    /// Goes through the processes; those that are not to be kept have ended.
    fn keep(&mut self, mut keep: impl FnMut(&mut Process) -> bool) {
        let before = self.processes.len();
        let once = &mut self.once;
        self.processes.retain_mut(|process| {
            let kept = keep(process);
            if !kept {
                once.gone(process.known, process.statm.anonymous());
            }
            kept
        });
        self.generation += u64::from(self.processes.len() != before);
    }

    /// One that holds at first sight much of what another holds is its copy, made by `fork` since the last
    /// look: the pages are the same ones. Whether that is right is found out soon. The first so many others
    /// may be what it is a copy of.
    fn note_copy(&mut self, at: usize, others: usize) {
        let Process { statm, guest_of, .. } = self.processes[at];
        if guest_of.is_some() {
            return;
        }
        let mut original = 0;
        for (place, other) in self.processes[..others].iter_mut().enumerate() {
            let held = other.statm.anonymous();
            if place != at
                && other.guest_of.is_none()
                && statm.anonymous() * 2 >= held
                && statm.size * 2 >= other.statm.size
            {
                original = original.max(held);
                other.known.was_copied(held);
            }
        }
        self.processes[at].known = self.once.copied(statm.anonymous(), original);
    }

    fn new_process(&self, pid: i32, now: Instant) -> Option<Process> {
        let file = StatmOf::open(pid, &self.spare)?;
        let statm = file.read(self.page, Statm::default())?;
        Some(Process {
            pid,
            file,
            clock: proc::clock(pid),
            statm,
            statm_due: now,
            status: Status::default(),
            status_read: None,
            cpu: Duration::ZERO,
            children: Duration::ZERO,
            children_read: None,
            starved: None,
            known: Known::new(statm.anonymous()),
            guest_of: None,
        })
    }

    /// Whose memory the process at this place in the list runs in, if it is that of another.
    fn host(&self, at: usize) -> Option<i32> {
        let Process { pid, statm, .. } = self.processes[at];
        let same = |other: &&Process| {
            other.pid != pid && other.guest_of != Some(pid) && other.statm.size == statm.size
        };
        self.processes
            .iter()
            .filter(same)
            .find(|other| proc::same_memory(pid, other.pid).unwrap_or(other.statm == statm))
            .map(|other| other.pid)
    }

    /// Whether anything can have changed.
    fn read_processes(&mut self, now: Instant, births: Option<u64>) -> bool {
        let page = self.page;
        let mut changed = self.counted != Some(self.generation);
        self.keep(|process| {
            let cpu = process.clock.and_then(proc::cpu);
            if cpu == Some(process.cpu) && now < process.statm_due {
                return true;
            }
            let statm = process.file.read(page, process.statm);
            changed |= cpu != Some(process.cpu) || statm != Some(process.statm);
            let Some(statm) = statm else { return false };
            process.cpu = cpu.unwrap_or(process.cpu);
            process.statm = statm;
            // Not all at once, here and below.
            let pause = if process.file.is_open() { STATM } else { STATM_DEAR };
            process.statm_due = now + pause + Duration::from_millis(process.pid as u64 % 32);
            true
        });
        changed |= self.counted != Some(self.generation);
        if !changed {
            return false;
        }
        for process in self.processes.iter_mut().filter(|process| process.guest_of.is_none()) {
            let let_go = self.once.let_go(&mut process.known, process.statm.anonymous());
            self.generation += u64::from(let_go);
        }
        for at in 0..self.processes.len() {
            self.read_details(at, now, births);
        }
        self.counted = Some(self.generation);
        true
    }

    /// What `statm` does not say of the process at this place in the list.
    fn read_details(&mut self, at: usize, now: Instant, births: Option<u64>) {
        if self.processes[at].guest_of.is_some() {
            self.processes[at].guest_of = self.host(at);
            // It runs another program now, or was taken for a guest while it was a copy that had not changed
            // yet.
            self.note_copy(at, self.processes.len());
        }
        let alone = self.processes.len() == 1;
        let process = &mut self.processes[at];
        let now = Reading { at: now, births, statm: process.statm };
        let spread = Duration::from_millis(process.pid as u64 % 64);
        if process.status_read.is_some_and(|then| !then.status_is_old(&now, self.asks, spread)) {
            return;
        }
        process.status_read = Some(now);
        process.status = proc::status(process.pid).unwrap_or_default();
        // Who has no children, and has got none, waits for none.
        let childless = alone && process.children_read.is_some_and(|then| then.nobody_born(&now));
        if !self.counts_cpu
            && !childless
            && let Some(entry) = tree::entry(process.pid)
        {
            process.children_read = Some(now);
            process.children = self.tick * u32::try_from(entry.children_ticks).unwrap_or(u32::MAX);
        }
    }

    fn read_cpu(&mut self, now: Instant) {
        if self.processes.is_empty() {
            return;
        }
        let since = self.cpu_read.map(|(then, _)| now.saturating_duration_since(then));
        if since.is_some_and(|since| since < CPU) {
            return;
        }
        let all = match self.ran.then(|| self.cpu_of_group()).flatten() {
            Some(all) => all,
            None => self.processes.iter().map(|process| process.cpu + process.children).sum(),
        };
        self.ran = false;
        // A child that has ended counts again once its parent has waited for it and that has been read.
        let all = all.max(self.sample.cpu);
        if let (Some(since), Some((_, before))) = (since, self.cpu_read) {
            self.busy = all.saturating_sub(before).as_secs_f64() / since.as_secs_f64();
        }
        self.cpu_read = Some((now, all));
        self.sample.cpu = all;
    }

    fn cpu_of_group(&self) -> Option<Duration> {
        match &self.cpu_stat {
            Some(kept) => proc::cpu_of_group(kept),
            None => proc::cpu_of_group(&self.group.cgroup()?.cpu_stat()?),
        }
    }

    fn read_starved(&mut self, now: Instant) {
        let (mut starved, mut left) = (Duration::ZERO, STARVED);
        for process in &mut self.processes {
            let threads = process.status.threads;
            let read = if left == 0 { None } else { proc::starved(process.pid, threads, left) };
            left = left.saturating_sub(threads.max(1) as usize);
            let before = std::mem::replace(&mut process.starved, read);
            starved += read.zip(before).map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before));
        }
        if let Some(before) = self.starved_read.replace(now) {
            let since = now.saturating_duration_since(before).as_secs_f64().max(0.001);
            self.starving = (starved.as_secs_f64() / since).min((STARVED - left) as f64);
        }
    }

    fn add_up(&mut self) {
        let own = self.processes.iter().filter(|process| process.guest_of.is_none());
        let sum = |of: fn(&Process) -> u64| own.clone().map(of).sum::<u64>();
        let shared = own.clone().map(|process| process.status.shared);
        let several = own.clone().nth(1).is_some();
        self.sample = Sample {
            private: self.once.anonymous(own.clone().map(|process| process.statm.anonymous())),
            // A segment that other ranks map too is divided among them, if anybody has asked how.
            shared: if several { self.once.shared(shared) } else { shared.sum() },
            // Small changes since `status` was read are of files, large ones have been looked into.
            file: sum(|process| process.statm.mapped.saturating_sub(process.status.shared)),
            swap: sum(|process| process.status.swap),
            page_tables: sum(|process| process.status.page_tables),
            processes: u32::try_from(self.processes.len()).unwrap_or(u32::MAX),
            threads: self.processes.iter().map(|process| process.status.threads).sum(),
            ..self.sample
        };
        self.sample.note_peaks();
    }

    /// Whether it should be found out which pages are shared; since when that is not known, if it ever was
    /// asked. One process shares nothing within its rank.
    pub(super) fn wants_division(&self, now: Instant) -> Option<Option<Instant>> {
        if self.processes.len() < 2 {
            return None;
        }
        let own = self.processes.iter().filter(|process| process.guest_of.is_none());
        let each = own.map(|process| process.statm.anonymous() + process.status.shared);
        let one = each.clone().max().unwrap_or(0);
        // Of the largest no page is counted twice but beside another.
        if each.sum::<u64>() - one < WORTH_DIVIDING.max(one / WORTH_DIVIDING_PART) {
            return None;
        }
        let is_known = self.divided.is_some_and(|(then, generation)| {
            generation == self.generation
                && now.saturating_duration_since(then) < SHARES
                && self.all_shared() < self.shared_then + SHARED_CHANGE.max(self.shared_then / 8)
        });
        (!is_known).then_some(self.asked)
    }

    fn all_shared(&self) -> u64 {
        self.processes.iter().map(|process| process.status.shared).sum()
    }

    /// It is being asked: for which list, and of whom.
    pub(super) fn to_divide(&self) -> (u64, Vec<i32>) {
        let own = self.processes.iter().filter(|process| process.guest_of.is_none());
        (self.generation, own.map(|process| process.pid).collect())
    }

    /// It has been asked.
    pub(super) fn note_asked(&mut self, now: Instant) {
        self.asked = Some(now);
        self.processes.iter_mut().for_each(|process| process.known.is_asked());
    }

    /// What was found out of the processes there were.
    pub(super) fn divide(&mut self, now: Instant, generation: u64, found: &[Found]) {
        // Whoever ended before the answer came is in nobody's share. To count it beside them would be to
        // count it twice.
        for process in &mut self.processes {
            process.statm_due = now;
        }
        if self.read_processes(now, None) {
            self.ran = true;
            self.add_up();
        }
        if generation != self.generation {
            self.useless += 1;
            if self.useless < USELESS {
                return;
            }
        }
        self.useless = 0;
        self.divided = Some((now, generation));
        self.shared_then = self.all_shared();
        self.counted = None;
        let own = self.processes.iter_mut().filter(|process| process.guest_of.is_none());
        let own = own.map(|process| (process.pid, process.statm.anonymous(), &mut process.known));
        self.once.found(found, own);
    }
}
