//! A rank of a program that was written for another library, which is a front to us: it makes messages and
//! collectives of its own out of what the segment has. Here is what it must not do by itself: attach, wait,
//! wake others, and tell what went wrong.
//!
//! The rank's runtime is in one library of the process: in `libsbmalloc.so`, if that was preloaded and has
//! attached, since it charges what the program allocates; else in the front's own. A front calls it through a
//! [`Table`] either way, and finds that of the other library by its one exported symbol ([`SYMBOL`]).

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};
use std::time::Duration;

use bdrun_ipc::control::{self, FailureKind};
use bdrun_ipc::door;
use bdrun_ipc::far::Notice;
use bdrun_ipc::futex;
use bdrun_ipc::inbox;
use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::{Segment, Waiting, monotonic_ns};

use crate::preload::Busy;
use crate::runtime::far::{self, Wanted};
use crate::runtime::{Program, Runtime, failure_of};
use crate::{Error, Result, apart, site};

/// How often a thread looks that may not wait as the rank does.
const LOOK: Duration = Duration::from_micros(200);

/// The function by which `libsbmalloc.so` hands its table to a front: [`Ask`].
pub const SYMBOL: &CStr = c"bdrun_rank";

/// Given the version of the protocol that the front speaks: the rank's table; null if this process is no rank
/// that the library has attached, or has a front already.
pub type Ask = extern "C" fn(u32) -> *const Table;

/// What a runtime does for a front. Both libraries are of one release: the version of the protocol is looked
/// at before anything else.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// The version of the protocol.
    pub protocol: u32,
    /// The rank.
    pub rank: u32,
    /// Segment, mail, spill: open as long as the process runs.
    descriptors: [c_int; 3],
    /// Waits at a place until a time by the monotonic clock (0: for ever) for what the words mean, or until a
    /// function given with its argument says so; false if the calling thread may not wait now.
    wait:
        extern "C" fn(&[u64; 2], u64, &[u64; 4], extern "C" fn(*const c_void) -> bool, *const c_void) -> bool,
    /// More than 0 while anything of the process is out. Else there is nothing to vouch for, and a call into
    /// another library costs a rank that has just got its processor three misses of the cache.
    out: &'static AtomicUsize,
    vouch_for: extern "C" fn(*const u8, usize),
    pay_for_headers: extern "C" fn(u64),
    /// The kind of a failure, bytes, and text of so many bytes.
    report: extern "C" fn(u32, u64, *const u8, usize),
}

/// The table of the runtime in this library.
pub(crate) fn table(runtime: &'static Runtime) -> Table {
    let [mail, spill] = runtime.mail.fds();
    let descriptors = [runtime.segment.fd(), mail, spill].map(|fd| fd.as_raw_fd());
    let rank = runtime.rank;
    let out = sbmalloc::pager::out();
    Table { protocol: control::PROTOCOL, rank, descriptors, wait, out, vouch_for, pay_for_headers, report }
}

extern "C" fn wait(
    &[place, changes]: &[u64; 2],
    until: u64,
    words: &[u64; 4],
    satisfied: extern "C" fn(*const c_void) -> bool,
    argument: *const c_void,
) -> bool {
    let Some(runtime) = Runtime::of_front() else { return false };
    let _busy = Busy::begin();
    let Some(_turn) = runtime.turn() else { return false };
    site::set(place, changes);
    let until = (until != 0).then_some(until);
    runtime.wait_until(until, Waiting::from_words(*words), || satisfied(argument));
    true
}

extern "C" fn vouch_for(data: *const u8, len: usize) {
    let Some(runtime) = Runtime::of_front() else { return };
    // SAFETY: the front's own bytes, lent while this call lasts.
    runtime.vouch_for(&[unsafe { std::slice::from_raw_parts(data, len) }]);
}

extern "C" fn pay_for_headers(bytes: u64) {
    if let Some(runtime) = Runtime::of_front() {
        let _busy = Busy::begin();
        runtime.pay_for_headers(bytes);
    }
}

extern "C" fn report(kind: u32, bytes: u64, text: *const u8, len: usize) {
    let Some(runtime) = Runtime::of_front() else { return };
    // SAFETY: a text of the front's, lent while this call lasts.
    let text = unsafe { std::slice::from_raw_parts(text, len) };
    runtime.report(kind_of(kind), bytes, std::str::from_utf8(text).unwrap_or_default());
}

/// The kind of a failure, by its number in a table.
fn kind_of(number: u32) -> FailureKind {
    let known = FailureKind::ALL.into_iter().find(|kind| *kind as u32 == number);
    known.unwrap_or(FailureKind::Runtime)
}

/// Where the program calls, and how often that became another place.
static PLACE: AtomicU64 = AtomicU64::new(0);
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The program makes a call that may wait: the pager learns by the place what is used after the wait. With
/// several threads it is some one's place.
#[inline(always)]
pub fn enter(place: u64) {
    if PLACE.load(Relaxed) != place {
        PLACE.store(place, Relaxed);
        CHANGES.store(CHANGES.load(Relaxed) + 1, Relaxed);
    }
}

/// The longest that a rank looks for messages before it sleeps, nanoseconds: what a wake-up costs, a few
/// times.
const SPIN: u64 = 20_000;
/// Who slept for less would better have looked: it had hardly gone to sleep when it was woken, by a call that
/// held the other one up. Two ranks may go on so, each as slow as the other's calls make it.
const HASTY: u64 = 100_000;
/// So many looks in vain are that long once that was seen.
const LONGER: u32 = 16;
/// The same where ranks outnumber processors, while others run: as long as some hundred of them take to come
/// to a collective.
const OTHERS: u64 = 500_000;
/// Of so many looks in vain one is as long as any.
const LONG_ONE: u32 = 16;

/// How long a rank looks at something before it sleeps, or goes on without.
#[derive(Debug)]
struct Patience {
    /// How often the longest time is halved.
    halved: AtomicU32,
    /// How often it was in vain.
    vain: AtomicU32,
    /// So many looks in vain may be longer.
    longer: AtomicU32,
}

static FOR_MESSAGES: Patience = Patience::new();
static FOR_ROOM: Patience = Patience::new();
static FOR_GATEWAY: Patience = Patience::new();
static FOR_OTHERS: Patience = Patience::new();

impl Patience {
    const fn new() -> Self {
        Self { halved: AtomicU32::new(0), vain: AtomicU32::new(0), longer: AtomicU32::new(0) }
    }

    /// Looks for a moment, so many nanoseconds at most. If what was waited for did not come the last times, a
    /// shorter one: other programs may have the processors. But a long one now and then: two ranks that
    /// answer each other and both sleep would go on so for ever, since to be woken takes longer than the
    /// short one.
    #[inline]
    fn spin(&self, most: u64, satisfied: &impl Fn() -> bool) -> bool {
        self.look(most, 64, std::hint::spin_loop, satisfied)
    }

    /// The same while others may have the processor.
    fn pause(&self, most: u64, satisfied: &impl Fn() -> bool) -> bool {
        self.look(most, 4, futex::let_others_run, satisfied)
    }

    #[inline]
    fn look(&self, most: u64, times: u32, between: fn(), satisfied: &impl Fn() -> bool) -> bool {
        let halved = self.halved.load(Relaxed);
        let mut begun = 0;
        loop {
            for _ in 0..times {
                if satisfied() {
                    if halved > 0 {
                        self.halved.store(halved - 1, Relaxed);
                    }
                    return true;
                }
                between();
            }
            let now = monotonic_ns();
            begun = if begun == 0 { now } else { begun };
            let is_long = self.vain.load(Relaxed) % LONG_ONE == LONG_ONE - 1;
            let longer = self.longer.load(Relaxed);
            let most = match longer {
                0 if is_long => most,
                0 => most >> halved,
                _ => most.max(HASTY),
            };
            if now - begun >= most {
                self.vain.fetch_add(1, Relaxed);
                match longer {
                    0 => self.halved.store((halved + 1).min(LONG_ONE.ilog2()), Relaxed),
                    some => self.longer.store(some - 1, Relaxed),
                }
                return false;
            }
        }
    }

    /// After it had looked in vain the rank slept so many nanoseconds, and was woken by what it waited for.
    fn slept(&self, nanoseconds: u64) {
        if nanoseconds < HASTY {
            self.longer.store(LONGER, Relaxed);
        }
    }
}

/// What a front has of the job.
struct Front {
    segment: &'static Segment,
    mail: &'static Mail,
    table: &'static Table,
}

static FRONT: OnceLock<Front> = OnceLock::new();

/// What others have of it if a rank waits where it could go on, looking for messages again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// So many times of what it has spent on looking it may be made to wait: 0 where there is a processor for
    /// each; where ranks share them twice the number of others for each, so that those who only look leave
    /// about half of the processors; [`MOST_TIMES`] at most, and where memory is short.
    pub times: u32,
    /// About what it takes to move its memory out of RAM and back, at 2 GB/s each way, if it may have to
    /// leave when it waits.
    pub leaving: Option<Duration>,
}

impl Need {
    /// Nobody needs anything.
    pub const NONE: Self = Self { times: 0, leaving: None };

    /// Whether they need the processor only.
    pub fn is_processor(self) -> bool {
        self.times > 0 && self.leaving.is_none()
    }
}

/// The most of [`Need::times`].
pub const MOST_TIMES: u32 = 8;

/// This process as a rank of a job.
#[derive(Clone, Copy)]
pub struct Rank(&'static Front);

impl std::fmt::Debug for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.number(), self.size())
    }
}

/// The function by which `libsbmalloc.so` says whether memory is of its heap: [`Owns`].
pub const OWNS: &CStr = c"bdrun_owns";

/// Whether memory at an address is of the program's heap.
pub type Owns = extern "C" fn(*const c_void) -> bool;

/// Of `libsbmalloc.so`, if that is loaded: the program's heap lies on storage then.
#[must_use]
pub fn preloaded_heap() -> Option<Owns> {
    let found = find(OWNS);
    // SAFETY: the symbol is ours alone, and is a function of this type, or there is none.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Owns>(found) })
}

fn find(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends; looked up in everything that is loaded for all.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The table of a runtime in another library of this process.
fn preloaded() -> Option<&'static Table> {
    let found = find(SYMBOL);
    if found.is_null() {
        return None;
    }
    // SAFETY: the symbol is ours alone, and is a function of this type in all versions of the protocol.
    let ask: Ask = unsafe { std::mem::transmute(found) };
    // SAFETY: a table that stays as long as the library, which is not unloaded; or null.
    unsafe { ask(control::PROTOCOL).as_ref() }
}

/// A descriptor of our own for a file that is open.
fn own(number: c_int) -> Result<OwnedFd> {
    // SAFETY: the table's descriptors are open as long as the process runs.
    let lent = unsafe { BorrowedFd::borrow_raw(number) };
    let own = lent.try_clone_to_owned();
    own.map(door::out_of_the_way).map_err(|error| Error::Runtime(format!("another descriptor: {error}")))
}

impl Front {
    /// Of a runtime in another library.
    fn preloaded(table: &'static Table) -> Result<Self> {
        let [segment, mail, spill] = table.descriptors;
        let segment = Segment::open(own(segment)?).map_err(failure_of)?;
        let mail = Mail::open(own(mail)?, own(spill)?);
        Ok(Self { segment: Box::leak(Box::new(segment)), mail: Box::leak(Box::new(mail)), table })
    }

    /// Of that in this one.
    fn own(runtime: &'static Runtime) -> Self {
        let table = Box::leak(Box::new(table(runtime)));
        Self { segment: &runtime.segment, mail: &runtime.mail, table }
    }
}

impl Rank {
    /// Joins the job, if `bdrun` started this process. Without a preloaded runtime the calling thread is the
    /// one whose waits are the rank's.
    ///
    /// # Errors
    /// [`Error::Runtime`]: as of [`init`](crate::init).
    pub fn attach() -> Result<Option<Self>> {
        let front = match preloaded() {
            Some(table) => Front::preloaded(table)?,
            None => match Runtime::attach(Program::Front)? {
                Some(runtime) => Front::own(runtime),
                None => return Ok(None),
            },
        };
        Ok(Some(Self(FRONT.get_or_init(|| front))))
    }

    /// Its number, from 0.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0.table.rank
    }

    /// How many there are.
    #[must_use]
    pub fn size(self) -> u32 {
        self.0.segment.np()
    }

    /// The job's shared memory.
    #[must_use]
    pub fn segment(self) -> &'static Segment {
        self.0.segment
    }

    /// The job's mail.
    #[must_use]
    pub fn mail(self) -> &'static Mail {
        self.0.mail
    }

    /// Waits until `satisfied`, which reads shared memory only, at most so long; may return early. Meanwhile
    /// other ranks compute, and this one's memory may be out. A thread that may not wait as the rank (another
    /// one does, or it is not the one that attached) only looks again and again.
    pub fn wait<F: Fn() -> bool>(self, at_most: Option<Duration>, waiting: Waiting, satisfied: F) {
        if !self.looks(&satisfied) {
            self.sleep(at_most, waiting, satisfied);
        }
    }

    /// The same of who has [looked](Self::looks).
    pub fn sleep<F: Fn() -> bool>(self, at_most: Option<Duration>, waiting: Waiting, satisfied: F) {
        extern "C" fn call<F: Fn() -> bool>(satisfied: *const c_void) -> bool {
            // SAFETY: of that type, and lent while `wait` lasts.
            unsafe { (*satisfied.cast::<F>())() }
        }
        let until = at_most.map(|time| monotonic_ns() + time.as_nanos() as u64);
        let argument = (&raw const satisfied).cast();
        let place = [PLACE.load(Relaxed), CHANGES.load(Relaxed)];
        let begun = monotonic_ns();
        let waiting = waiting.to_words();
        // Another thread may have waited for memory just now: only who waits as the rank can be evicted.
        while !(self.0.table.wait)(&place, until.unwrap_or(0), &waiting, call::<F>, argument) {
            if satisfied() || until.is_some_and(|until| monotonic_ns() >= until) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        // Not if only its time has passed: who asks again and again would look that long each time.
        if satisfied() {
            FOR_MESSAGES.slept(monotonic_ns() - begun);
        }
    }

    /// Looks for a moment whether `satisfied`, where that may help.
    #[inline]
    pub fn looks(self, satisfied: &impl Fn() -> bool) -> bool {
        if !self.spins() {
            return self.lets_others_run() && FOR_OTHERS.pause(OTHERS, satisfied);
        }
        let found = FOR_MESSAGES.spin(SPIN, satisfied);
        if !found {
            apart::part(self.segment(), self.number());
        }
        found
    }

    /// The same for a receiver to fetch what it has, as long as it takes to copy so many bytes at 4 GB/s.
    pub fn looks_for_room(self, bytes: u64, satisfied: &impl Fn() -> bool) {
        if self.spins() {
            FOR_ROOM.spin(bytes / 4, satisfied);
        }
    }

    /// The same for the gateway to send what is to leave this node: the processor is its meanwhile.
    pub fn lets_leave(self, bytes: u64) {
        let is_ahead = || inbox::is_ahead(self.segment(), bytes);
        if is_ahead() {
            FOR_GATEWAY.pause((bytes * 8).max(SPIN), &|| !is_ahead());
        }
    }

    /// Whether to look for a moment before it sleeps: there is a processor for each rank, and for the gateway
    /// if there is one, and nobody waits for this one to leave RAM.
    fn spins(self) -> bool {
        let header = self.segment().header();
        self.size() > 1 && self.sharers() <= header.tokens.count() && !header.pool.wanted()
    }

    /// Who shares the processors: the ranks of this node, and the gateway if there is one.
    fn sharers(self) -> u32 {
        self.segment().here().len() as u32 + u32::from(self.segment().is_spread())
    }

    /// Whether to look for a moment while others have the processor, before it sleeps: memory is ample, so
    /// that the kernel shares the processors out, and a rank that is runnable costs no wake-up.
    fn lets_others_run(self) -> bool {
        self.size() > 1 && !self.segment().header().pool.wanted()
    }

    /// What others have of it if this rank waits where it could go on.
    pub fn others_need(self) -> Need {
        let segment = self.segment();
        let header = segment.header();
        if header.pool.wanted() {
            let takes = Duration::from_nanos(segment.rank(self.number()).granted.load(Relaxed));
            return Need { times: MOST_TIMES, leaving: Some(takes) };
        }
        let each = (2 * self.sharers()).div_ceil(header.tokens.count().max(1));
        Need { times: each.saturating_sub(2).min(MOST_TIMES), leaving: None }
    }

    /// Wakes a rank, if it waits.
    pub fn wake(self, rank: u32) {
        self.segment().wake(self.number(), rank);
    }

    /// What left the rank's own memory was right: before `data` leaves this process.
    pub fn vouch_for(self, data: &[&[u8]]) {
        if self.0.table.out.load(Acquire) > 0 {
            data.iter().for_each(|data| (self.0.table.vouch_for)(data.as_ptr(), data.len()));
        }
    }

    /// Asks the gateway of the node, and takes what it answers: as many bytes as `into` has.
    ///
    /// # Errors
    /// The answer is damaged, or there is no room for the question.
    pub fn ask(self, notice: &Notice, into: &mut [&mut [u8]]) -> bdrun_ipc::Result<()> {
        let rank = (self.segment(), self.mail(), self.number());
        far::ask(rank, notice, into, &|enough| self.wait(None, Waiting::Anything, enough))
    }

    /// Bytes of parts of a collective that lie on other nodes: of which member, from where on, and where they
    /// go.
    ///
    /// # Errors
    /// As of [`ask`](Self::ask).
    pub fn read_far(
        self,
        (comm, number): (u32, u64),
        wanted: Vec<(u32, u64, &mut [u8])>,
    ) -> bdrun_ipc::Result<()> {
        let wanted = wanted.into_iter();
        let wanted = wanted.map(|(member, offset, into)| Wanted { member, offset, into }).collect();
        for question in far::questions(wanted) {
            let ranges = far::ranges(&question);
            let mut into: Vec<&mut [u8]> = question.into_iter().map(|wanted| wanted.into).collect();
            self.ask(&Notice::Wants { comm, number, ranges }, &mut into)?;
        }
        Ok(())
    }

    /// Finds memory for headers of messages (see [`bdrun_ipc::inbox::push`]).
    pub fn pay_for_headers(self, bytes: u64) {
        if bytes > 0 {
            (self.0.table.pay_for_headers)(bytes);
        }
    }

    /// Memory of the budget was given back.
    pub fn gave_memory(self) {
        if self.segment().header().pool.wanted() {
            self.segment().ring(self.number());
        }
    }

    /// Turns an error of the layer below into one that can be told, and tells the master where that has to
    /// know.
    #[must_use]
    pub fn failed(self, error: bdrun_ipc::Error) -> Error {
        if let Some((kind, bytes)) = error.reason() {
            let text = error.to_string();
            (self.0.table.report)(kind as u32, bytes, text.as_ptr(), text.len());
        }
        failure_of(error)
    }
}

#[cfg(test)]
mod tests;
