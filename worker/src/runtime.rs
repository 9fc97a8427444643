//! A rank as `bdrun` sees it: attached to the segment, waiting in the one place where it may leave RAM, and paying for
//! its memory.

use std::fmt::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bdrun_ipc::control::{self, FailureKind, Frame};
use bdrun_ipc::futex::SharedFutex;
use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::{EvictFailure, RankBlock, Segment, Waiting, monotonic_ns};
use bdrun_ipc::state::{Pager, State, Woken};
use sbmalloc::pager::PagerError;

use crate::{Error, Result};

/// Environment: this rank, the number of ranks, the descriptors handed down (segment, mail, spill, control).
pub(crate) const ENV: [&str; 3] = ["BDRUN_RANK", "BDRUN_SIZE", "BDRUN_FDS"];

/// How long a thread other than the communicating one waits for memory before it takes what is not there.
const OTHER_THREAD_PATIENCE: Duration = Duration::from_secs(5);

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// This process as a rank of a job.
pub(crate) struct Runtime {
    pub segment: Segment,
    pub mail: Mail,
    pub rank: u32,
    control: OwnedFd,
    owner: i32,
    attached: AtomicBool,
}

impl Runtime {
    /// Attach if `bdrun` started this process; `None` if nobody did.
    pub fn attach() -> Result<Option<&'static Self>> {
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
        let &[segment, mail, spill, control] = fds.as_slice() else {
            return Err(bad(format!("{} does not name four descriptors", ENV[2])));
        };
        if RUNTIME.get().is_some() {
            return Err(Error::Runtime("init was called twice".into()));
        }
        let mut owned = Vec::with_capacity(4);
        for fd in [segment, mail, spill, control] {
            // SAFETY: F_GETFD on any number is harmless.
            if fd < 3 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
                return Err(bad(format!("descriptor {fd} is not open")));
            }
            // SAFETY: it is open (just tested), was handed down for us alone, and is taken only once (RUNTIME is unset).
            owned.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let mut owned = owned.into_iter();
        let mut next = || owned.next().ok_or_else(|| bad("descriptors".into()));
        let segment = Segment::open(next()?).map_err(runtime)?;
        let mail = Mail::open(next()?, next()?);
        let control = next()?;
        if segment.np() != size || rank >= size {
            return Err(bad(format!("rank {rank} of {size}, but the segment has {} ranks", segment.np())));
        }
        if segment.rank(rank).attached.swap(1, SeqCst) != 0 {
            return Err(Error::Runtime(format!(
                "another process of rank {rank} has attached already; one process of each rank may call init"
            )));
        }
        // SAFETY: gettid has no preconditions.
        let owner = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        let this = Self { segment, mail, rank, control, owner, attached: AtomicBool::new(false) };
        let this = RUNTIME.get_or_init(|| this);
        this.block().next_span();
        sbmalloc::set_account(this)
            .map_err(|_| Error::Runtime("another memory account is installed in this process".into()))?;
        this.attached.store(true, SeqCst);
        control::send_frame(this.control.as_fd(), &Frame::Hello { protocol: control::PROTOCOL })
            .map_err(runtime)?;
        this.take_token();
        this.block().waiting_ns.fetch_add(this.block().next_span(), SeqCst);
        Ok(Some(this))
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
        self.segment.header().tokens.acquire();
        // From now on the master gives it back should this process end.
        self.block().has_token.store(1, SeqCst);
    }

    fn give_token(&self) {
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
    fn give_reserve_back(&self) {
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

    /// Ask the master for memory and wait for it.
    fn beg(&self, bytes: u64) {
        let block = self.block();
        // SAFETY: gettid has no preconditions.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        if thread == self.owner && block.word.load().state() == State::Running {
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

impl Runtime {
    /// Free frames are RAM that no rank is charged for: no more of it than the budget has free. Not before a restore,
    /// which uses them.
    fn trim_frames(&self) {
        sbmalloc::trim_frames(self.segment.header().pool.free().max(0) as u64);
    }
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
        self.trim_frames();
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
                self.runtime.trim_frames();
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
