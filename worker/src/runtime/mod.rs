//! A rank as `bdrun` sees it: attached to the segment, waiting in the one place where it may leave RAM, and
//! paying for its memory.

mod alive;
mod executor;
pub(crate) mod far;
mod memory;
mod place;
#[cfg(test)]
pub(crate) mod tests;
mod text;

use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bdrun_ipc::control::{self, FailureKind, Frame};
use bdrun_ipc::door::{self, Given};
use bdrun_ipc::futex::TimedFutex;
use bdrun_ipc::mail::Mail;
use bdrun_ipc::note::Note;
use bdrun_ipc::segment::{RankBlock, Segment, Waiting, monotonic_ns};
use bdrun_ipc::state::State;
use bdrun_ipc::steps::Step;
use sbmalloc::pager::{self, PagerError};

use self::alive::Alive;
use self::executor::RankPager;
use self::place::Place;
use self::text::FixedText;
use crate::meter::{Clock, Meter};
use crate::{Error, Result, site};

/// Environment: this rank, the number of ranks, the number of the control socket, over which the rest is
/// handed over.
pub(crate) const ENV: [&str; 3] = ["BDRUN_RANK", "BDRUN_SIZE", "BDRUN_FDS"];

/// Bytes of the budget for each rank below which memory is scarce.
const SMALL_SHARE: u64 = 32 << 20;

pub(crate) static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// This process as a rank of a job.
pub(crate) struct Runtime {
    pub segment: Segment,
    pub mail: Mail,
    pub rank: u32,
    control: OwnedFd,
    /// The thread that may wait; 0 while any may take its turn.
    owner: AtomicI32,
    /// Whether it is one thread that communicates. In programs not written for us any thread may wait, one at
    /// a time.
    native: bool,
    /// Another library waits here for the program: what it waits for is told. Of programs that know nothing
    /// of us that is so from the moment on at which such a library asks for the runtime.
    is_front: AtomicBool,
    process: i32,
    attached: AtomicBool,
    /// Something of it was moved out since it last ran.
    out: AtomicBool,
    /// It is to run with what is in RAM, however little, to see how much it uses.
    probes: AtomicBool,
    /// Page faults of this process when what the kernel brought in was last verified.
    vouched: AtomicU64,
    meter: Meter,
    /// Children of fork have this structure, and are not the rank.
    pub(crate) alive: Alive,
    /// [`site::changes`] when the pager's phase began.
    phase_changes: AtomicU64,
    /// The thread that waits for memory, and has the right to wait; 0 if none does.
    asks: AtomicI32,
    /// Restores in a row that failed.
    failed: AtomicU32,
}

/// Tells `bdrun`, and `libsbmalloc.so`, that this program needs no library in front of it.
#[used]
#[unsafe(link_section = ".note.bdrun")]
static NOTE: Note = Note::OURS;

/// What the program of a rank knows of us.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// It was written for us.
    Native,
    /// It was written for another library, which we are to it: it waits in our calls, and its memory is its
    /// own.
    Front,
    /// Nothing.
    Any,
}

/// What `bdrun` hands over to a rank.
pub(crate) struct Handed {
    pub segment: Segment,
    pub mail: Mail,
    pub control: OwnedFd,
    pub rank: u32,
}

impl Handed {
    /// Ask for it over the socket that the environment names; `None` if it names none. The socket alone stays
    /// open if the process executes another program, which asks again.
    pub fn take() -> Result<Option<Self>> {
        let Some(socket) = std::env::var_os(ENV[2]) else { return Ok(None) };
        let bad = |what: String| Error::Runtime(format!("environment of this rank: {what}"));
        let number = |name: &str| {
            std::env::var(name)
                .ok()
                .and_then(|v| v.parse::<u32>().ok())
                .ok_or_else(|| bad(format!("{name} is missing")))
        };
        let (rank, size) = (number(ENV[0])?, number(ENV[1])?);
        let Some(socket) = socket.to_str().and_then(|number| number.parse::<RawFd>().ok()) else {
            return Err(bad(format!(
                "{} is {socket:?}, and not the number of a socket: bdrun is of another version than this program; build both from \
                 one release",
                ENV[2]
            )));
        };
        if RUNTIME.get().is_some() {
            return Err(Error::Runtime("init was called twice".into()));
        }
        // SAFETY: F_GETFD on any number is harmless.
        if socket < 3 || unsafe { libc::fcntl(socket, libc::F_GETFD) } < 0 {
            return Err(bad(format!("descriptor {socket} is not open")));
        }
        // SAFETY: it is open (just tested), was handed down for us alone, and is taken only once (RUNTIME is
        // unset).
        let control = unsafe { OwnedFd::from_raw_fd(socket) };
        let Given { segment, mail, spill } = door::ask(control.as_fd()).map_err(failure_of)?;
        let segment = Segment::open(segment).map_err(failure_of)?;
        if segment.np() != size || rank >= size {
            return Err(bad(format!("rank {rank} of {size}, but the segment has {} ranks", segment.np())));
        }
        Ok(Some(Self { segment, mail: Mail::open(mail, spill), control, rank }))
    }
}

impl Runtime {
    /// Attach if `bdrun` started this process; `None` if nobody did.
    pub fn attach(program: Program) -> Result<Option<&'static Self>> {
        let Some(handed) = Handed::take()? else { return Ok(None) };
        // SAFETY: an open descriptor of ours.
        unsafe { libc::fcntl(handed.control.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        if handed.segment.rank(handed.rank).attached.swap(1, SeqCst) != 0 {
            return Err(Error::Runtime(format!(
                "another process of rank {} has attached already; one process of each rank may call init. (With \
                 `--preload always`, which it is where ptrace is forbidden, a script has attached: it has to `exec` \
                 its last program, or say `--preload never`)",
                handed.rank
            )));
        }
        Self::begin(handed, program, |this| this).map(Some)
    }

    /// This process is the rank from now on. `account` says who charges its memory.
    pub(crate) fn begin(
        handed: Handed,
        program: Program,
        account: impl FnOnce(&'static Self) -> &'static dyn sbmalloc::Account,
    ) -> Result<&'static Self> {
        let Handed { segment, mail, rank, control } = handed;
        let native = program != Program::Any;
        let owner = AtomicI32::new(if native { thread() } else { 0 });
        // SAFETY: getpid has no preconditions.
        let process = unsafe { libc::getpid() };
        let this = Self {
            segment,
            mail,
            rank,
            control,
            owner,
            native,
            is_front: AtomicBool::new(program == Program::Front),
            process,
            attached: AtomicBool::new(false),
            out: AtomicBool::new(false),
            probes: AtomicBool::new(false),
            vouched: AtomicU64::new(0),
            meter: Meter::new(),
            alive: Alive::new(native),
            phase_changes: AtomicU64::new(0),
            asks: AtomicI32::new(0),
            failed: AtomicU32::new(0),
        };
        let this = RUNTIME.get_or_init(|| this);
        this.block().next_span();
        this.block().process.store(process as u32, SeqCst);
        sbmalloc::set_account(account(this))
            .map_err(|_| Error::Runtime("another memory account is installed in this process".into()))?;
        this.attached.store(true, SeqCst);
        // Ranks with a small share of the budget are out most of the time: what they freed is not worth
        // keeping.
        let share = this.segment.header().pool.budget() / this.segment.here().len().max(1) as u64;
        sbmalloc::raw::give_back_at_once(share < SMALL_SHARE);
        // Of other programs it is not known which thread will wait here, or what they hold is moved from
        // outside.
        let is_ours = program == Program::Native;
        if is_ours {
            this.open_meter(Clock::Wall);
        }
        if !is_ours {
            pager::expect_async_io();
        }
        if is_ours {
            // In a wait this thread touches static memory, its stack and the segment, and so does the meter's
            // handler.
            pager::expect_restores(this.meter.signals());
        }
        if native {
            this.tell(&Frame::Talks)?;
        }
        this.tell(&Frame::Attached)?;
        let attached = monotonic_ns();
        this.take_token();
        this.block().waiting_ns.fetch_add(this.block().next_span(), SeqCst);
        if this.is_recorded() {
            this.tell_step(Waiting::Nothing, attached, attached, 0);
        }
        if native {
            leave_at_exit();
        }
        Ok(this)
    }

    fn tell(&self, frame: &Frame) -> Result<()> {
        control::send_frame(self.control.as_fd(), frame).map_err(failure_of)
    }

    /// A library that the program calls waits here from now on: the rank computes with a token, and tells
    /// what it waits for. False if one does already.
    pub(crate) fn become_front(&self) -> bool {
        if self.is_front.swap(true, SeqCst) {
            return false;
        }
        // If that fails bdrun is gone, and so is whoever could be talked to.
        let _ = self.tell(&Frame::Talks);
        // Its heap is in arenas, of which parts may be out while it computes.
        self.open_meter(Clock::Thread);
        self.take_token();
        leave_at_exit();
        true
    }

    /// The calling thread is looked at while it computes with memory out, if ranks are.
    fn open_meter(&self, clock: Clock) {
        if self.segment.header().metered.load(SeqCst) != 0 && self.meter.open(clock) {
            pager::expect_catch_up();
        }
    }

    /// That of this process, if it has a front; none in a child of fork.
    pub(crate) fn of_front() -> Option<&'static Self> {
        RUNTIME.get().filter(|runtime| runtime.is_front.load(SeqCst) && runtime.alive.is_rank())
    }

    /// Whether it computes with a token, and says when it waits.
    fn tells(&self) -> bool {
        self.native || self.is_front.load(SeqCst)
    }

    /// The number of the control socket.
    pub(crate) fn socket(&self) -> RawFd {
        self.control.as_raw_fd()
    }

    pub fn block(&self) -> &RankBlock {
        self.segment.rank(self.rank)
    }

    /// Wait until `satisfied`, which reads shared memory only; may return early. This is the scheduling point
    /// of every call: meanwhile another rank computes, and this one's memory may be on scratch.
    pub fn wait(&self, waiting: Waiting, satisfied: impl Fn() -> bool) {
        self.wait_until(None, waiting, satisfied);
    }

    /// The same, at most until a time by [`monotonic_ns`](bdrun_ipc::segment::monotonic_ns).
    pub fn wait_until(&self, until: Option<u64>, waiting: Waiting, satisfied: impl Fn() -> bool) {
        if satisfied() {
            return;
        }
        let block = self.block();
        self.meter.stop();
        let for_memory = matches!(waiting, Waiting::Memory { .. });
        // From the place where the phase began to this one, at most.
        self.end_phase_if(|changes| changes > 1);
        let place = if for_memory && self.tells() {
            // A program not written for us waits nowhere else.
            Place::known(pager::SAME_PHASE)
        } else {
            Place::of_call(self)
        };
        if !for_memory {
            if self.tells() && self.segment.header().pool.wanted() {
                // It may have to leave: what it freed, and the heap keeps for the next time, need not be
                // written.
                sbmalloc::trim();
            }
            self.give_reserve_back();
        }
        if !for_memory && pager::is_evicted() {
            // What it holds now was enough until here; after this wait it may not be.
            let need = self.needs(place.site());
            block.need.store(need, SeqCst);
            self.out.store(need > block.granted.load(SeqCst), SeqCst);
        }
        let moved = self.wait_at(until, waiting, &place, satisfied);
        // Of a phase that goes on after a wait for memory nothing is to be forgotten.
        if !moved && !for_memory {
            self.end_phase_if(|_| true);
        }
    }

    /// The phase goes on, but says nothing any more about the place where it began, if the program has passed
    /// too many others.
    fn end_phase_if(&self, passed: impl Fn(u64) -> bool) {
        if passed(changes_since(self.phase_changes.load(SeqCst), site::changes())) {
            pager::continue_phase();
        }
    }

    /// The wait itself, at `place`; was the rank moved meanwhile?
    fn wait_at(
        &self,
        until: Option<u64>,
        waiting: Waiting,
        place: &Place<'_>,
        satisfied: impl Fn() -> bool,
    ) -> bool {
        let block = self.block();
        let for_memory = matches!(waiting, Waiting::Memory { .. });
        let recorded = self.is_recorded();
        let began = if recorded { monotonic_ns() } else { 0 };
        block.timed.store(u32::from(until.is_some()), SeqCst);
        self.segment.falls_asleep(self.rank, waiting);
        block.waits.fetch_add(1, SeqCst);
        block.running_ns.fetch_add(block.next_span(), SeqCst);
        let gives = self.tells();
        if gives {
            self.segment.header().tokens.release(self.rank);
        }
        let futex = TimedFutex::until(until);
        let mut executor =
            RankPager { runtime: self, until: &futex, for_memory, place, paging_ns: 0, moved: false };
        block.word.wait(&futex, &mut executor, satisfied);
        let RankPager { paging_ns, moved, .. } = executor;
        self.segment.is_awake(self.rank);
        let returned = if recorded { monotonic_ns() } else { 0 };
        // Another thread may have made this rank one that computes with a token, and have taken it.
        if gives {
            self.take_token();
        }
        if recorded {
            self.tell_step(
                waiting,
                began,
                returned,
                if moved || pager::is_evicted() { block.need.load(SeqCst) } else { 0 },
            );
        }
        block.waiting_ns.fetch_add(block.next_span().saturating_sub(paging_ns), SeqCst);
        block.paging_ns.fetch_add(paging_ns, SeqCst);
        if pager::is_evicted() {
            self.meter.start();
        }
        moved
    }

    /// Whether what ranks do is recorded.
    fn is_recorded(&self) -> bool {
        self.segment.header().recorded.load(SeqCst) != 0
    }

    /// A wait from `began` to `returned` is over, and the rank computes. Only stores.
    fn tell_step(&self, waiting: Waiting, began: u64, returned: u64, need: u64) {
        let (block, log) = (self.block(), self.segment.steps(self.rank));
        let waker = log.woken_since(began).filter(|_| !matches!(waiting, Waiting::Memory { .. }));
        let held = block.held.load(SeqCst);
        let [left, came, written, read] =
            [&block.evicted, &block.restored, &block.written, &block.read].map(|sum| sum.load(SeqCst));
        let step = Step {
            waiting,
            tokenless: !self.tells(),
            waker: waker.map(|(by, _)| by),
            began,
            woken: waker.map_or(returned, |(_, at)| at),
            ran: monotonic_ns(),
            held,
            most: log.take_most(held),
            need,
            moved: [left, came, written, read, log.given()],
        };
        if log.put(&step) {
            self.segment.ring(self.rank);
        }
    }

    /// Bytes of the budget that this rank must have to run on after a wait at `site`. A large one need not
    /// have all that it holds if the meter can notice what it touches beyond. Where nearly everything is
    /// likely, it *probes*: nothing is brought in before it is seen to use much, which takes milliseconds; a
    /// rank that only looks at a message and waits again never is.
    fn needs(&self, site: u64) -> u64 {
        const MIB: u64 = 1 << 20;
        const LARGE: u64 = 8 * MIB;
        let held = self.block().held.load(SeqCst);
        if !self.meter.is_open() || held < LARGE || site == pager::EVERYTHING {
            self.probes.store(false, SeqCst);
            return held;
        }
        // What it can touch until it is looked at, of a small rank a part.
        let slack = (held / 8).clamp(MIB, LARGE);
        let likely = pager::likely(site) as u64;
        let probes = likely >= held - held / 8 && site != pager::SAME_PHASE;
        self.probes.store(probes, SeqCst);
        if probes { slack } else { held.min(likely + slack) }
    }

    /// The rank computes while some of its memory is out: see whether it uses that. In a signal handler,
    /// which may wait like any call of this library: it interrupted the thread that communicates, and not in
    /// a wait.
    fn look(&self) {
        let block = self.block();
        if !self.meter.is_armed() || block.word.load().state() != State::Running {
            return;
        }
        match pager::touched() {
            Ok(Some(touched)) if touched.much => self.come_in_whole(),
            Ok(Some(touched)) => {
                self.own_up(touched.in_ram as u64);
                if touched.soon {
                    self.meter.hurry();
                }
            }
            Ok(None) => {}
            // Nothing is broken, a descriptor is missing, say: it is looked again.
            Err(error) if error.is_passing() => {}
            Err(error) => self.lost(error),
        }
        if pager::is_evicted() {
            self.meter.go_on();
        }
    }

    /// The rank computes, and needs all that it holds: it leaves the processor and comes back like any rank
    /// that is out, so that others compute while it is brought in.
    fn come_in_whole(&self) {
        let Some(_turn) = self.turn() else { return };
        let block = self.block();
        let held = block.held.load(SeqCst);
        self.meter.stop();
        block.need.store(held, SeqCst);
        self.out.store(true, SeqCst);
        let bytes = held.saturating_sub(block.granted.load(SeqCst));
        self.end_phase_if(|changes| changes > 0);
        self.wait_at(None, Waiting::Memory { bytes }, &Place::known(pager::EVERYTHING), || true);
    }

    /// Programs that know nothing of us have none: they block in calls that would not give it back.
    fn take_token(&self) {
        if self.is_front.load(SeqCst) {
            self.take_token_if_it_comes();
        } else if self.native {
            self.segment.header().tokens.acquire(self.rank);
        }
    }

    /// Takes a token, or goes on without: while memory is ample, when the kernel shares the processors out
    /// well enough, and to be woken once more for a token costs as much as what is done between two calls;
    /// and if those who have one do not compute, or have computed for long without a call: a program that was
    /// not written for us may sleep, or look at memory again and again, until this rank has done something.
    /// Allocates nothing.
    fn take_token_if_it_comes(&self) {
        let header = self.segment.header();
        let tokens = &header.tokens;
        if tokens.acquire_now(self.rank) || !header.pool.wanted() {
            return;
        }
        let begun = monotonic_ns();
        let (mut looked, mut before) = (begun, [None; Self::LOOKED_AT]);
        while !tokens.acquire_within(self.rank, Some(Self::A_LOOK)) {
            let now = monotonic_ns();
            if now - looked < Self::A_LOOK.as_nanos() as u64 {
                continue;
            }
            looked = now;
            let mut times = [None; Self::LOOKED_AT];
            let mut sleeps = false;
            for (place, holder) in times.iter_mut().zip(tokens.holders()) {
                let holder = holder % self.segment.np();
                let Some(used) = processor_time(self.segment.rank(holder)) else { continue };
                *place = Some((holder, used));
                let then = before.iter().flatten().find(|(other, _)| *other == holder);
                sleeps |= then.is_some_and(|(_, then)| used.saturating_sub(*then) < Self::A_LOOK / 4);
            }
            before = times;
            if sleeps || now - begun > Self::LONG {
                return;
            }
        }
    }

    /// Of so many holders of tokens it is looked whether they compute, so often.
    const LOOKED_AT: usize = 64;
    const A_LOOK: Duration = Duration::from_millis(5);
    const LONG: u64 = 500_000_000;

    fn give_token(&self) {
        if self.tells() {
            self.segment.header().tokens.release(self.rank);
        }
    }

    /// Wake a rank of the node.
    pub fn wake(&self, rank: u32) {
        self.segment.wake(self.rank, rank);
    }

    /// After memory of the budget was given back: tell the master if it is looking for some.
    pub fn gave_memory(&self) {
        if self.segment.header().pool.wanted() {
            self.segment.ring(self.rank);
        }
    }

    /// Tell the master why this rank cannot go on. The caller returns an error or ends the process.
    pub fn report(&self, kind: FailureKind, bytes: u64, text: &str) {
        // If the master is gone there is nobody to tell.
        let _ = control::send_failed(self.control.as_fd(), kind, bytes, text);
    }

    fn report_scratch(&self, what: &str, error: PagerError) {
        let mut text = FixedText::default();
        let _ = write!(text, "{what}: {error}");
        self.report(FailureKind::Scratch, 0, text.as_str());
    }

    /// The rank's memory cannot be had, or is damaged: running on would compute from wrong data; unwinding or
    /// exit handlers would too.
    fn lost(&self, error: PagerError) -> ! {
        self.report_scratch("its memory cannot be restored", error);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(122) }
    }

    /// Before `data` leaves this rank: what it was computed from, if the kernel brought it in from scratch by
    /// itself, is what was written there. Ends the process if not.
    pub fn vouch_for(&self, data: &[&[u8]]) {
        if !pager::is_evicted() {
            return;
        }
        for part in data {
            // What is sent from memory that is out is brought in now, to be verified with the rest.
            for page in part.chunks(sbmalloc::PAGE) {
                std::hint::black_box(page[0]);
            }
            std::hint::black_box(part.last());
        }
        let faults = page_faults();
        if self.vouched.swap(faults, SeqCst) == faults {
            return; // nothing was brought in since
        }
        match pager::verify_touched() {
            Ok(()) => {}
            // Verified with what is sent next, or when the rank leaves RAM or comes back.
            Err(error) if error.is_passing() => self.vouched.store(faults.wrapping_sub(1), SeqCst),
            Err(error) => self.lost(error),
        }
    }

    /// Turn an error of the layer below into ours, and tell the master if it has an exit code of its own.
    pub fn failed(&self, error: bdrun_ipc::Error) -> Error {
        if let Some((kind, bytes)) = error.reason() {
            self.report(kind, bytes, &error.to_string());
        }
        failure_of(error)
    }

    /// The right to wait, if this thread may: until it is dropped no other one has it.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        let may = if self.native {
            self.owner.load(SeqCst) == thread()
        } else {
            // A child made by `vfork` runs in this memory, but is not the rank.
            // SAFETY: getpid has no preconditions.
            let here = unsafe { libc::getpid() } == self.process;
            here && self.owner.compare_exchange(0, thread(), SeqCst, SeqCst).is_ok()
        };
        let turn = may.then(|| Turn(self))?;
        (self.block().word.load().state() == State::Running).then_some(turn)
    }
}

/// See [`Runtime::turn`].
pub(crate) struct Turn<'a>(&'a Runtime);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.0.native {
            self.0.owner.store(0, SeqCst);
        }
    }
}

/// How many places the program has passed since there were `then`. Of several threads each says for itself
/// how many there were, and not all at once: what says that there are fewer now knows nothing of the places
/// between.
fn changes_since(then: u64, now: u64) -> u64 {
    u64::try_from(now.wrapping_sub(then).cast_signed()).unwrap_or(u64::MAX)
}

fn thread() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

fn leave_at_exit() {
    // If it is refused the token comes back when the process has gone.
    // SAFETY: the function never unwinds and needs nothing but the segment, which stays mapped.
    unsafe { libc::atexit(leave) };
}

/// The program has ended, and the process is about to. That takes the kernel some 50 ms: it winds up
/// asynchronous I/O and frees the scratch file, which may lie in many pieces. Others compute meanwhile, and
/// one may come in.
extern "C" fn leave() {
    let Some(runtime) = RUNTIME.get() else { return };
    // A child of fork is not the rank.
    if !runtime.alive.is_rank() {
        return;
    }
    if runtime.segment.header().tokens.has(runtime.rank) {
        runtime.block().running_ns.fetch_add(runtime.block().next_span(), SeqCst);
        if runtime.is_recorded() {
            let now = monotonic_ns();
            runtime.tell_step(Waiting::Nothing, now, now, 0);
        }
        runtime.give_token();
    }
    // Of other programs processes may go on that this one has started.
    if runtime.native {
        runtime.block().ends.store(1, SeqCst);
        runtime.segment.ring(runtime.rank);
    }
}

/// The meter's signal has come.
pub(crate) fn tick() {
    if let Some(runtime) = RUNTIME.get() {
        runtime.look();
    }
}

/// What the process of a rank has computed so far.
fn processor_time(block: &RankBlock) -> Option<Duration> {
    let process = libc::pid_t::try_from(block.process.load(SeqCst)).ok().filter(|&pid| pid > 0)?;
    // SAFETY: both write to locals.
    unsafe {
        let (mut clock, mut time) = (0, std::mem::zeroed::<libc::timespec>());
        let well = libc::clock_getcpuclockid(process, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0;
        well.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

/// Page faults of this process so far: memory that is out does not come in without one.
fn page_faults() -> u64 {
    // SAFETY: the kernel fills the structure, for which zeros are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    (usage.ru_minflt as u64).wrapping_add(usage.ru_majflt as u64)
}

/// An error of the layer below as ours.
pub(crate) fn failure_of(error: bdrun_ipc::Error) -> Error {
    Error::Runtime(error.to_string())
}
