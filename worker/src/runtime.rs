//! A rank as `bdrun` sees it: attached to the segment, waiting in the one place where it may leave RAM, and paying for
//! its memory.

use std::fmt::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bdrun_ipc::control::{self, FailureKind, Frame};
use bdrun_ipc::futex::SharedFutex;
use bdrun_ipc::mail::Mail;
use bdrun_ipc::note::Note;
use bdrun_ipc::segment::{EvictFailure, RankBlock, Segment, Waiting, monotonic_ns};
use bdrun_ipc::state::{Pager, State, Woken};
use sbmalloc::pager::PagerError;

use crate::{Error, Result};

/// Environment: this rank, the number of ranks, the descriptors handed down (segment, mail, spill, control).
pub(crate) const ENV: [&str; 3] = ["BDRUN_RANK", "BDRUN_SIZE", "BDRUN_FDS"];

/// How long a thread other than the communicating one waits for memory before it takes what is not there.
const OTHER_THREAD_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// This process as a rank of a job.
pub(crate) struct Runtime {
    pub segment: Segment,
    pub mail: Mail,
    pub rank: u32,
    control: OwnedFd,
    /// The thread that may wait; 0 while any may take its turn.
    owner: AtomicI32,
    /// Whether it is one thread that communicates, and computes only while it has a token. In programs not written
    /// for us any thread may wait, one at a time, and none has a token: they block in calls that would not give it back.
    native: bool,
    process: i32,
    /// The numbers of what was handed down.
    pub(crate) fds: [RawFd; 4],
    attached: AtomicBool,
}

/// Tells `bdrun`, and `libsbmalloc.so`, that this program needs no library in front of it.
#[used]
#[unsafe(link_section = ".note.bdrun")]
static NOTE: Note = Note::OURS;

/// What `bdrun` hands down to a rank.
pub(crate) struct Handed {
    pub segment: Segment,
    pub mail: Mail,
    pub control: OwnedFd,
    pub rank: u32,
    /// The numbers of all four descriptors.
    pub fds: [RawFd; 4],
}

impl Handed {
    /// Take what the environment says was handed down to this process; `None` if nothing was.
    pub fn take() -> Result<Option<Self>> {
        let Some(fds) = std::env::var_os(ENV[2]) else { return Ok(None) };
        let bad = |what: String| Error::Runtime(format!("environment of this rank: {what}"));
        let number = |name: &str| {
            std::env::var(name)
                .ok()
                .and_then(|v| v.parse::<u32>().ok())
                .ok_or_else(|| bad(format!("{name} is missing")))
        };
        let (rank, size) = (number(ENV[0])?, number(ENV[1])?);
        let fds: Vec<RawFd> =
            fds.to_str().map(|s| s.split(',').filter_map(|x| x.parse().ok()).collect()).unwrap_or_default();
        let Ok(fds) = <[RawFd; 4]>::try_from(fds) else {
            return Err(bad(format!("{} does not name four descriptors", ENV[2])));
        };
        if RUNTIME.get().is_some() {
            return Err(Error::Runtime("init was called twice".into()));
        }
        // SAFETY: F_GETFD on any number is harmless.
        if let Some(fd) = fds.iter().find(|&&fd| fd < 3 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0) {
            return Err(bad(format!("descriptor {fd} is not open")));
        }
        // SAFETY: they are open (just tested), were handed down for us alone, and are taken only once (RUNTIME is unset).
        let [segment, mail, spill, control] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let segment = Segment::open(segment).map_err(runtime)?;
        if segment.np() != size || rank >= size {
            return Err(bad(format!("rank {rank} of {size}, but the segment has {} ranks", segment.np())));
        }
        Ok(Some(Self { segment, mail: Mail::open(mail, spill), control, rank, fds }))
    }
}

impl Runtime {
    /// Attach if `bdrun` started this process; `None` if nobody did.
    pub fn attach() -> Result<Option<&'static Self>> {
        let Some(handed) = Handed::take()? else { return Ok(None) };
        for fd in handed.fds {
            // SAFETY: an open descriptor of ours.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        if handed.segment.rank(handed.rank).attached.swap(1, SeqCst) != 0 {
            return Err(Error::Runtime(format!(
                "another process of rank {} has attached already; one process of each rank may call init",
                handed.rank
            )));
        }
        Self::begin(handed, true, |this| this).map(Some)
    }

    /// This process is the rank from now on. `account` says who charges its memory, `native` whether the program was
    /// written for us.
    pub(crate) fn begin(
        handed: Handed,
        native: bool,
        account: impl FnOnce(&'static Self) -> &'static dyn sbmalloc::Account,
    ) -> Result<&'static Self> {
        let Handed { segment, mail, rank, control, fds } = handed;
        let owner = AtomicI32::new(if native { thread() } else { 0 });
        // SAFETY: getpid has no preconditions.
        let process = unsafe { libc::getpid() };
        let attached = AtomicBool::new(false);
        let this = Self { segment, mail, rank, control, owner, native, process, fds, attached };
        let this = RUNTIME.get_or_init(|| this);
        this.block().next_span();
        sbmalloc::set_account(account(this))
            .map_err(|_| Error::Runtime("another memory account is installed in this process".into()))?;
        this.attached.store(true, SeqCst);
        control::send_frame(this.control.as_fd(), &Frame::Hello { protocol: control::PROTOCOL })
            .map_err(runtime)?;
        this.take_token();
        this.block().waiting_ns.fetch_add(this.block().next_span(), SeqCst);
        Ok(this)
    }

    pub fn block(&self) -> &RankBlock {
        self.segment.rank(self.rank)
    }

    /// Wait until `satisfied`, which reads shared memory only; may return early. This is the scheduling point of every
    /// call: meanwhile another rank computes, and this one's memory may be on scratch.
    pub fn wait(&self, waiting: Waiting, satisfied: impl Fn() -> bool) {
        if satisfied() {
            return;
        }
        let block = self.block();
        let for_memory = matches!(waiting, Waiting::Memory { .. });
        if !for_memory {
            self.give_reserve_back();
        }
        block.publish(waiting);
        block.waits.fetch_add(1, SeqCst);
        block.running_ns.fetch_add(block.next_span(), SeqCst);
        self.give_token();
        let mut pager = RankPager { runtime: self, for_memory, paging_ns: 0 };
        block.word.wait(&SharedFutex, &mut pager, satisfied);
        let paging_ns = pager.paging_ns;
        block.publish(Waiting::Nothing);
        self.take_token();
        block.waiting_ns.fetch_add(block.next_span().saturating_sub(paging_ns), SeqCst);
        block.paging_ns.fetch_add(paging_ns, SeqCst);
    }

    fn take_token(&self) {
        if !self.native {
            return;
        }
        self.segment.header().tokens.acquire();
        // From now on the master gives it back should this process end.
        self.block().has_token.store(1, SeqCst);
    }

    fn give_token(&self) {
        if !self.native {
            return;
        }
        self.block().has_token.store(0, SeqCst);
        self.segment.header().tokens.release();
    }

    /// Wake a rank of the node.
    pub fn wake(&self, rank: u32) {
        if self.segment.rank(rank).word.wake(&SharedFutex) == Woken::NeedsMaster {
            self.segment.ring(rank);
        }
    }

    /// After memory of the budget was given back: tell the master if it is looking for some.
    pub fn gave_memory(&self) {
        if self.segment.header().pool.wanted() {
            self.segment.ring(self.rank);
        }
    }

    /// What was set aside for this rank and not used is others' while it waits.
    pub(crate) fn give_reserve_back(&self) {
        let block = self.block();
        let unused = block.prepaid.swap(0, SeqCst);
        if unused > 0 {
            block.granted.fetch_sub(unused, SeqCst);
            self.segment.header().pool.give(unused);
        }
    }

    /// Tell the master why this rank cannot go on. The caller returns an error or ends the process.
    pub fn report(&self, kind: FailureKind, bytes: u64, text: &str) {
        // If the master is gone there is nobody to tell.
        let _ = control::send_failed(self.control.as_fd(), kind, bytes, text);
    }

    /// Turn an error of the layer below into ours, and tell the master if it has an exit code of its own.
    pub fn failed(&self, error: bdrun_ipc::Error) -> Error {
        match &error {
            bdrun_ipc::Error::ScratchFull { bytes } => {
                self.report(FailureKind::ScratchFull, *bytes, &error.to_string());
            }
            bdrun_ipc::Error::Damaged(_) | bdrun_ipc::Error::Version(_) => {
                self.report(FailureKind::Runtime, 0, &error.to_string());
            }
            _ => {}
        }
        runtime(error)
    }

    /// Take `bytes` out of what was set aside, then out of the pool.
    fn pay(&self, bytes: u64) -> bool {
        let block = self.block();
        let mut from_reserve = 0;
        let _ = block.prepaid.fetch_update(SeqCst, SeqCst, |reserve| {
            from_reserve = reserve.min(bytes);
            Some(reserve - from_reserve)
        });
        let rest = bytes - from_reserve;
        if rest == 0 {
            return true;
        }
        if self.segment.header().pool.take(rest) {
            block.granted.fetch_add(rest, SeqCst);
            return true;
        }
        block.prepaid.fetch_add(from_reserve, SeqCst);
        false
    }

    /// Find memory of the budget for message headers, as if it were this rank's own, and hand it over.
    pub fn pay_for_headers(&self, bytes: u64) {
        if !self.pay(bytes) {
            self.beg(bytes);
        }
        self.block().granted.fetch_sub(bytes, SeqCst);
        self.segment.header().pool.headers_paid(bytes);
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

    /// Ask the master for memory and wait for it.
    fn beg(&self, bytes: u64) {
        let block = self.block();
        if let Some(_turn) = self.turn() {
            while !self.pay(bytes) {
                block.request.store(bytes - block.prepaid.load(SeqCst).min(bytes), SeqCst);
                self.wait(Waiting::Memory { bytes }, || block.request.load(SeqCst) == 0);
                block.request.store(0, SeqCst);
            }
            return;
        }
        // Another thread: it has no state word, so the rank cannot leave RAM for it. Wait for others to give.
        let since = Instant::now();
        while !self.pay(bytes) {
            if since.elapsed() > OTHER_THREAD_PATIENCE {
                block.granted.fetch_add(bytes, SeqCst);
                self.segment.header().pool.force(bytes);
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
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

fn thread() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

impl sbmalloc::Account for Runtime {
    fn charge(&self, bytes: usize) -> std::result::Result<(), sbmalloc::Denied> {
        let (block, bytes64) = (self.block(), bytes as u64);
        let limit = self.segment.header().rank_limit.load(SeqCst);
        if limit != 0 && block.held.load(SeqCst) + bytes64 > limit {
            let mut text = FixedText::default();
            let held = block.held.load(SeqCst);
            let _ = write!(
                text,
                "memory limit exceeded: it holds {held} bytes and asked for {bytes} more; --rank-memory permits {limit}"
            );
            self.report(FailureKind::MemoryLimit, held + bytes64, text.as_str());
            return Err(sbmalloc::Denied { bytes });
        }
        if !self.pay(bytes64) {
            if self.attached.load(SeqCst) {
                self.beg(bytes64);
            } else {
                // What the process held before it attached is in RAM already.
                block.granted.fetch_add(bytes64, SeqCst);
                self.segment.header().pool.force(bytes64);
            }
        }
        let held = block.held.fetch_add(bytes64, SeqCst) + bytes64;
        block.peak.fetch_max(held, SeqCst);
        self.segment.header().pool.demand_add(bytes64);
        Ok(())
    }

    fn uncharge(&self, bytes: usize) {
        let bytes = bytes as u64;
        let block = self.block();
        block.held.fetch_sub(bytes, SeqCst);
        block.granted.fetch_sub(bytes, SeqCst);
        let pool = &self.segment.header().pool;
        pool.demand_sub(bytes);
        pool.give(bytes);
        self.gave_memory();
    }
}

/// The rank's own executor of the master's orders. Allocates nothing.
struct RankPager<'a> {
    runtime: &'a Runtime,
    for_memory: bool,
    paging_ns: u64,
}

impl RankPager<'_> {
    fn timed<R>(&mut self, body: impl FnOnce() -> R) -> R {
        let begin = monotonic_ns();
        let result = body();
        self.paging_ns += monotonic_ns().saturating_sub(begin);
        result
    }
}

impl Pager for RankPager<'_> {
    fn evict(&mut self) -> bool {
        let block = self.runtime.block();
        match self.timed(sbmalloc::pager::evict) {
            Ok(moved) => {
                block.prepaid.store(0, SeqCst);
                let granted = block.granted.swap(0, SeqCst);
                block.evicted.fetch_add(moved.freed_or_filled, SeqCst);
                block.written.fetch_add(moved.bytes, SeqCst);
                block.evictions.fetch_add(1, SeqCst);
                self.runtime.segment.header().pool.give(granted);
                true
            }
            Err(error) => {
                let (kind, need) = match error {
                    PagerError::NoSpace { needed, .. } => (EvictFailure::NoSpace, needed),
                    PagerError::ThreadsBusy { .. } => (EvictFailure::Refused, 0),
                    _ => (EvictFailure::Io, 0),
                };
                block.evict_need.store(need, SeqCst);
                block.evict_failure.store(kind as u32, SeqCst);
                false
            }
        }
    }

    fn restore(&mut self) {
        let block = self.runtime.block();
        match self.timed(sbmalloc::pager::restore) {
            Ok(moved) => {
                block.restored.fetch_add(moved.freed_or_filled, SeqCst);
                block.read.fetch_add(moved.bytes, SeqCst);
            }
            Err(error) => {
                let mut text = FixedText::default();
                let _ = write!(text, "its memory cannot be restored: {error}");
                self.runtime.report(FailureKind::Scratch, 0, text.as_str());
                // Running on would compute from wrong data; unwinding or exit handlers would too.
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(122) }
            }
        }
    }

    fn blocked(&mut self) {
        if self.for_memory || self.runtime.segment.header().pool.wanted() {
            self.runtime.segment.ring(self.runtime.rank);
        }
    }

    fn changed(&mut self) {
        self.runtime.segment.ring(self.runtime.rank);
    }
}

/// Text made without allocating; what does not fit is cut.
struct FixedText {
    bytes: [u8; 512],
    used: usize,
}

impl Default for FixedText {
    fn default() -> Self {
        Self { bytes: [0; 512], used: 0 }
    }
}

impl FixedText {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.used]).unwrap_or_default()
    }
}

impl Write for FixedText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let mut cut = text.len().min(self.bytes.len() - self.used);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        self.bytes[self.used..self.used + cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.used += cut;
        Ok(())
    }
}

fn runtime(error: bdrun_ipc::Error) -> Error {
    Error::Runtime(error.to_string())
}
