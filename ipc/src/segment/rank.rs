//! What lies in the segment of a rank: its words, what it waits for, how far it is.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use super::monotonic_ns;
use crate::state::StateWord;

/// What a rank waits for, as its peers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// For nothing.
    Nothing,
    /// For a message of a context from a source (`None`: any) with a tag (`None`: any).
    Message {
        /// Context number of the communicator.
        context: u32,
        /// Rank in the communicator.
        source: Option<u32>,
        /// Tag.
        tag: Option<u32>,
    },
    /// For any message at all, or somebody at a collective.
    Anything,
    /// For a collective to be complete.
    Collective {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective on it.
        number: u64,
    },
    /// For memory.
    Memory {
        /// Bytes.
        bytes: u64,
    },
}

impl Waiting {
    /// As it lies in the segment.
    #[must_use]
    pub fn to_words(self) -> [u64; 4] {
        let some = |x: Option<u32>| x.map_or(ANY, u64::from);
        match self {
            Self::Nothing => [0; 4],
            Self::Message { context, source, tag } => [1, u64::from(context), some(source), some(tag)],
            Self::Anything => [2, 0, 0, 0],
            Self::Collective { comm, number } => [3, u64::from(comm), number, 0],
            Self::Memory { bytes } => [4, bytes, 0, 0],
        }
    }

    /// What such words mean, whatever they are.
    #[must_use]
    pub fn from_words([kind, a, b, c]: [u64; 4]) -> Self {
        let some = |x: u64| u32::try_from(x).ok();
        match kind {
            1 => Self::Message { context: a as u32, source: some(b), tag: some(c) },
            2 => Self::Anything,
            3 => Self::Collective { comm: a as u32, number: b },
            4 => Self::Memory { bytes: a },
            _ => Self::Nothing,
        }
    }
}

/// One rank's part of the segment. Only atomics: everybody may look.
#[repr(C, align(512))]
pub struct RankBlock {
    /// The state word.
    pub word: StateWord,
    wait_kind: AtomicU32,
    wait_a: AtomicU64,
    wait_b: AtomicU64,
    wait_c: AtomicU64,
    /// Last message that arrived: node index + 1; a stack.
    pub(crate) inbox: AtomicU64,
    /// Lanes that lead to it.
    pub(crate) lanes: AtomicU32,
    /// The processor it last slept on, from 1; 0: not known.
    pub processor: AtomicU32,
    /// Non-zero once it has attached.
    pub attached: AtomicU32,
    /// The process that has, as all ranks of the node know it.
    pub process: AtomicU32,
    /// Non-zero when the master wants it to wait, as for memory, at its next call that is a scheduling point
    /// (an allocation of a program under the preloaded library), so that it can be evicted. The rank clears
    /// it when it does.
    pub yield_wanted: AtomicU32,
    /// Times it has begun to wait.
    pub waits: AtomicU64,
    /// Account, in bytes: held from the allocator in RAM or out; its highest; part of the budget it has.
    pub held: AtomicU64,
    /// Highest `held`.
    pub peak: AtomicU64,
    /// Bytes of the budget that it has, used or not.
    pub granted: AtomicU64,
    /// Of `granted`, set aside and not yet used.
    pub prepaid: AtomicU64,
    /// Bytes that it asks for; 0 when it asks for none.
    pub request: AtomicU64,
    /// Ordered by the master, of an eviction: so much of `granted` it may keep.
    pub keep: AtomicU64,
    /// Of a restore: it may run once `granted` is this much. Less brings in a part.
    pub all: AtomicU64,
    /// Of `all`, what it asked for on top of what it held: set aside for it once it runs.
    pub asked: AtomicU64,
    /// Said by the rank when evicted: it must have so much of the budget to run again.
    pub need: AtomicU64,
    /// Why the last eviction failed: 0, or an [`EvictFailure`].
    pub evict_failure: AtomicU32,
    /// Bytes that the failed eviction wanted to write.
    pub evict_need: AtomicU64,
    /// Memory given back by evictions; memory filled by restores.
    pub evicted: AtomicU64,
    /// See `evicted`.
    pub restored: AtomicU64,
    /// Bytes written to and read from scratch for it.
    pub written: AtomicU64,
    /// See `written`.
    pub read: AtomicU64,
    /// Evictions carried out.
    pub evictions: AtomicU32,
    /// Nanoseconds computing (with a token), waiting, and moving memory.
    pub running_ns: AtomicU64,
    /// See `running_ns`.
    pub waiting_ns: AtomicU64,
    /// See `running_ns`.
    pub paging_ns: AtomicU64,
    /// When it last began to compute or to wait, by [`monotonic_ns`]: what it has done since is in none of
    /// these yet.
    pub mark_ns: AtomicU64,
    /// Bytes that threads beside the one that waits need, and wait for.
    pub lacks: AtomicU64,
    /// Bytes that were taken although they were not free, because it forked.
    pub forked: AtomicU64,
    /// With which it waits for the critical section, plus one; 0: it does not.
    pub(crate) ticket: AtomicU64,
    /// The kernel's name for the asynchronous I/O of its pager, once it has some: not the program's own.
    pub ring: AtomicU64,
    /// What it was in when it last waited, or ended: a call of the library that its program was written for.
    call: [AtomicU64; 4],
    /// Non-zero while the program is between that library's first and last call; see [`RankBlock::end_in`].
    pub begun: AtomicU32,
    /// Non-zero if it waits until some time at most: it goes on by itself.
    pub timed: AtomicU32,
    /// Non-zero once its program has ended, and its process is about to.
    pub ends: AtomicU32,
    progress_label: [AtomicU64; 3],
    progress_done: AtomicU64,
    progress_total: AtomicU64,
}

/// Why an eviction did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EvictFailure {
    /// Scratch is full.
    NoSpace = 1,
    /// The rank's threads could not be stopped, or something else makes paging impossible now.
    Refused = 2,
    /// Scratch failed otherwise.
    Io = 3,
    /// The program has asynchronous I/O of its own.
    InUse = 4,
}

impl EvictFailure {
    fn from_u32(n: u32) -> Option<Self> {
        [Self::NoSpace, Self::Refused, Self::Io, Self::InUse].into_iter().find(|f| *f as u32 == n)
    }
}

/// How far a rank says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Of what; at most 24 bytes.
    pub label: String,
    /// Units done.
    pub done: u64,
    /// Units in all.
    pub total: u64,
}

const ANY: u64 = u64::MAX;

/// [`RankBlock::begun`] of who cannot go on.
const ENDED: u32 = 2;

/// Writes a text, or what of it there is room for.
pub(crate) fn set_text(words: &[AtomicU64], text: &str) {
    let mut cut = text.len().min(8 * words.len());
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut rest = &text.as_bytes()[..cut];
    for word in words {
        let (now, later) = rest.split_at(rest.len().min(8));
        let mut bytes = [0u8; 8];
        bytes[..now.len()].copy_from_slice(now);
        word.store(u64::from_le_bytes(bytes), SeqCst);
        rest = later;
    }
}

/// A text that was written so. Whatever is there: it is shared with processes that may fail.
pub(crate) fn text(words: &[AtomicU64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(SeqCst).to_le_bytes()).collect();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string()
}

impl RankBlock {
    /// By the master: a process of the rank begins. Whoever attached last was one that has ended, not a
    /// program that this one executed before: what is set aside is not his.
    pub fn begin(&self) {
        self.attached.store(0, SeqCst);
    }

    /// Nanoseconds since it last began to compute or to wait; from now on it does something else.
    pub fn next_span(&self) -> u64 {
        let now = monotonic_ns();
        now.saturating_sub(self.mark_ns.swap(now, SeqCst))
    }

    /// Publish what this rank is about to wait for. Relaxed in effect: the state word's fence orders it.
    pub fn publish(&self, waiting: Waiting) {
        let [kind, a, b, c] = waiting.to_words();
        self.wait_a.store(a, SeqCst);
        self.wait_b.store(b, SeqCst);
        self.wait_c.store(c, SeqCst);
        self.wait_kind.store(kind as u32, SeqCst);
    }

    /// What it waits for. May be torn while the rank is running; see the proof in `state/README.md`.
    pub fn waiting(&self) -> Waiting {
        let [a, b, c] = [&self.wait_a, &self.wait_b, &self.wait_c].map(|word| word.load(SeqCst));
        Waiting::from_words([self.wait_kind.load(SeqCst).into(), a, b, c])
    }

    /// Why the last eviction failed.
    pub fn eviction_failure(&self) -> Option<EvictFailure> {
        EvictFailure::from_u32(self.evict_failure.load(SeqCst))
    }

    /// Say in which call of the library that its program was written for the rank is.
    pub fn set_call(&self, name: &str) {
        set_text(&self.call, name);
    }

    /// The call; `None` if it never said.
    pub fn call(&self) -> Option<String> {
        Some(text(&self.call)).filter(|name| !name.is_empty())
    }

    /// By a rank that cannot go on: in this call. Only stores.
    pub fn end_in(&self, call: Option<&str>) {
        self.set_call(call.unwrap_or_default());
        self.begun.store(ENDED, SeqCst);
    }

    /// Whether it has said so.
    pub fn has_ended(&self) -> bool {
        self.begun.load(SeqCst) == ENDED
    }

    /// Say how far the rank is.
    pub fn set_progress(&self, label: &str, done: u64, total: u64) {
        set_text(&self.progress_label, label);
        self.progress_done.store(done, SeqCst);
        self.progress_total.store(total, SeqCst);
    }

    /// How far the rank says it is; `None` if it never said.
    pub fn progress(&self) -> Option<Progress> {
        let label = text(&self.progress_label);
        let (done, total) = (self.progress_done.load(SeqCst), self.progress_total.load(SeqCst));
        (!label.is_empty()).then_some(Progress { label, done, total })
    }
}
