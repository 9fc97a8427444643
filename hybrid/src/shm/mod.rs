//! Processes of one machine, without a launcher of their own: each is told name, rank and size by its
//! environment (`BDRUN_SHM_NAME`, `BDRUN_SHM_RANK`, `BDRUN_SHM_SIZE`).
//!
//! A collective is a sequence of *steps*. In each every rank puts some bytes into its own slot, all meet at a
//! barrier, and read what the others have put. Slots are twofold, for steps of even and of odd number: who
//! puts something for step *n* + 2 has passed the barrier of *n* + 1, so all have come there, and have read
//! what was there for *n*. Messages go through a ring of bytes for each two ranks, from which a receiver
//! takes whatever has come into its own memory; so does a sender that waits for room, so that two that send
//! to each other do not wait for ever.

mod messages;
mod process;
mod segment;
mod spec;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use bdrun_ipc::futex;
use bytemuck::Pod;

use crate::transport::{Combine, Result, Transport, exit_code};
use crate::{Cause, SharedMemory, SharedRegion, Tag};
use messages::Inbox;
use segment::{EVERYBODY, LOOK, Segment};
pub use spec::{ENV, Spec};

/// A rank of several processes on one machine.
#[derive(Debug)]
pub struct ShmBackend {
    rank: Rc<Rank>,
    /// Tells messages of this communicator from those of others.
    context: u32,
}

/// What all its communicators have in common.
#[derive(Debug)]
struct Rank {
    segment: Segment,
    rank: usize,
    size: usize,
    /// Steps so far.
    steps: Cell<u64>,
    /// A rank that was waited for in vain: there is no step any more.
    lost: Cell<Option<usize>>,
    contexts: Cell<u32>,
    inbox: RefCell<Inbox>,
    /// How often it is looked before it sleeps.
    spins: u32,
}

/// What a step belongs to, for ranks to see that they make the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Call {
    Barrier,
    Broadcast,
    Allgatherv,
    Allreduce,
}

impl Call {
    const NAMES: [&str; 4] = ["barrier", "broadcast", "allgatherv", "allreduce"];

    /// With what must be the same in all ranks.
    fn word(self, argument: u64) -> u64 {
        // Not all bits of it: 2^-56 is the chance that a difference is missed.
        (self as u64) << 56 | (mix(argument) >> 8)
    }

    fn name(word: u64) -> &'static str {
        Self::NAMES.get((word >> 56) as usize).copied().unwrap_or("nothing known")
    }
}

/// Bits of a number that depend on all of it (the finaliser of SplitMix64; Steele et al. 2014).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn mix_all(numbers: &[usize]) -> u64 {
    numbers.iter().fold(numbers.len() as u64, |sum, &number| {
        mix(sum.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ number as u64)
    })
}

impl Rank {
    /// One step: puts `mine` into this rank's slot and waits for all; what they have put is then read by
    /// [`put_by`](Self::put_by), until the next step but one.
    fn step(&self, call: u64, mine: &[u8]) -> Result<usize> {
        if let Some(peer) = self.lost.get() {
            return Err(Cause::Lost { peer });
        }
        // Who has left a step before it was over takes part in none any more: it would be counted twice.
        self.nobody_has_ended_it()?;
        let number = self.steps.replace(self.steps.get() + 1);
        let parity = (number % 2) as usize;
        let (header, own) = (self.segment.header(), self.segment.block(self.rank));
        assert!(mine.len() <= self.segment.slot_bytes());
        // SAFETY: as long as a slot, and this rank's own; the others read what is there for step `number` - 2
        // no more, since all have come to the barrier of step `number` - 1 (see above).
        unsafe { mine.as_ptr().copy_to_nonoverlapping(self.segment.slot(self.rank, parity), mine.len()) };
        own.calls[parity].store(call, SeqCst);
        let generation = header.generation.load(SeqCst);
        let is_last = header.arrived.fetch_add(1, SeqCst) + 1 == self.size as u32;
        if is_last {
            header.arrived.store(0, SeqCst);
            header.generation.fetch_add(1, SeqCst);
            futex::wake(&header.generation, EVERYBODY);
        }
        // Last: who is killed before this line is missed, so that nobody waits for ever.
        own.at.store(number + 1, SeqCst);
        if !is_last {
            let missing = |rank: &usize| self.segment.block(*rank).at.load(SeqCst) <= number;
            self.wait(&header.generation, generation, &missing).inspect_err(|cause| {
                if let Cause::Lost { peer } = cause {
                    self.lost.set(Some(*peer));
                }
            })?;
        }
        let calls = |rank| self.segment.block(rank).calls[parity].load(SeqCst);
        match (0..self.size).find(|&rank| calls(rank) != call) {
            None => Ok(parity),
            Some(rank) => Err(mismatch(self.rank, call, rank, calls(rank))),
        }
    }

    /// Waits until a word is no longer `value`, or a rank has ended that is `missing`.
    fn wait(&self, word: &AtomicU32, value: u32, missing: &dyn Fn(&usize) -> bool) -> Result<()> {
        for _ in 0..self.spins {
            if word.load(SeqCst) != value {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        while word.load(SeqCst) == value {
            self.nobody_has_ended_it()?;
            let ended =
                (0..self.size).filter(missing).find(|&rank| rank != self.rank && !self.segment.lives(rank));
            // Before it ended it may have done what is waited for, or ended the job.
            if let Some(peer) = ended.filter(|_| word.load(SeqCst) == value) {
                self.nobody_has_ended_it()?;
                return Err(Cause::Lost { peer });
            }
            futex::wait(word, value, Some(LOOK));
        }
        Ok(())
    }

    fn nobody_has_ended_it(&self) -> Result<()> {
        match self.segment.header().aborted.load(SeqCst) {
            0 => Ok(()),
            said => Err(Cause::Aborted { by: (said >> 32) as usize - 1, code: said as u32 as i32 }),
        }
    }

    /// What a rank has put in the last step, which was of this parity.
    fn put_by(&self, rank: usize, parity: usize, bytes: usize) -> &[u8] {
        assert!(bytes <= self.segment.slot_bytes());
        // SAFETY: as long as a slot. It is written by nobody before this rank has come to the barrier of the
        // next step (see above), and callers use it only until then.
        unsafe { std::slice::from_raw_parts(self.segment.slot(rank, parity), bytes) }
    }
}

fn mismatch(rank: usize, call: u64, other: usize, others: u64) -> Cause {
    let (mine, others) = (Call::name(call), Call::name(others));
    Cause::Mismatch(match mine == others {
        true => format!("{mine} of ranks {rank} and {other} has different lengths, counts or roots"),
        false => format!("rank {rank} is in {mine}, rank {other} in {others}"),
    })
}

impl ShmBackend {
    /// Joins the job; waits for all its ranks.
    ///
    /// # Errors
    /// [`Cause::Backend`], [`Cause::System`]: the others do not come, or something is wrong with `/dev/shm`;
    /// [`Cause::Lost`]: rank 0 has ended before all had come.
    pub fn join(spec: &Spec) -> Result<Self> {
        let segment = Segment::join(spec)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let rank = Rank {
            segment,
            rank: spec.rank,
            size: spec.size,
            steps: Cell::new(0),
            lost: Cell::new(None),
            contexts: Cell::new(1),
            inbox: RefCell::new(Inbox::new(spec.size)),
            // About what it costs to sleep and be woken; not where others need the processor.
            spins: if spec.size <= processors { 2_000 } else { 0 },
        };
        Ok(Self { rank: Rc::new(rank), context: 0 })
    }
}

impl Transport for ShmBackend {
    fn rank(&self) -> usize {
        self.rank.rank
    }

    fn size(&self) -> usize {
        self.rank.size
    }

    fn barrier(&self) -> Result<()> {
        self.rank.step(Call::Barrier.word(0), &[]).map(drop)
    }

    fn broadcast(&self, data: &mut [u8], root: usize) -> Result<()> {
        let (this, word) = (&*self.rank, Call::Broadcast.word(mix_all(&[root, data.len()])));
        if data.is_empty() {
            return this.step(word, &[]).map(drop);
        }
        for chunk in data.chunks_mut(this.segment.slot_bytes()) {
            if this.rank == root {
                this.step(word, chunk)?;
            } else {
                let parity = this.step(word, &[])?;
                chunk.copy_from_slice(this.put_by(root, parity, chunk.len()));
            }
        }
        Ok(())
    }

    fn allgatherv(&self, send: &[u8], recv: &mut [u8], counts: &[usize], displs: &[usize]) -> Result<()> {
        let (this, word) = (&*self.rank, Call::Allgatherv.word(mix_all(counts)));
        let longest = counts.iter().copied().max().unwrap_or(0);
        // One step at least, for ranks that call something else to be told.
        let slot = this.segment.slot_bytes();
        for begin in (0..longest.max(1)).step_by(slot) {
            let part = |bytes: usize| begin.min(bytes)..(begin + slot).min(bytes);
            let parity = this.step(word, &send[part(send.len())])?;
            for rank in 0..this.size {
                let part = part(counts[rank]);
                let bytes = part.len();
                recv[displs[rank]..][part].copy_from_slice(this.put_by(rank, parity, bytes));
            }
        }
        Ok(())
    }

    fn allreduce(&self, send: &[u8], recv: &mut [u8], element: usize, combine: &Combine<'_>) -> Result<()> {
        let (this, word) = (&*self.rank, Call::Allreduce.word(mix_all(&[send.len(), element])));
        if send.is_empty() {
            return this.step(word, &[]).map(drop);
        }
        // Whole elements.
        let slot = this.segment.slot_bytes() / element * element;
        if slot == 0 {
            return Err(Cause::Argument(format!("elements of {element} bytes")));
        }
        for (mine, all) in send.chunks(slot).zip(recv.chunks_mut(slot)) {
            let parity = this.step(word, mine)?;
            if mine.len() <= ALONE {
                self.fold(parity, 0, all, combine);
                continue;
            }
            // Each rank folds its own part of the elements, and all gather these.
            let each = mine.len().div_ceil(element).div_ceil(this.size) * element;
            let part = |rank: usize| (rank * each).min(mine.len())..((rank + 1) * each).min(mine.len());
            let own = part(this.rank);
            self.fold(parity, own.start, &mut all[own.clone()], combine);
            let parity = this.step(word, &all[own])?;
            for rank in 0..this.size {
                let part = part(rank);
                let bytes = part.len();
                all[part].copy_from_slice(this.put_by(rank, parity, bytes));
            }
        }
        Ok(())
    }

    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        self.rank.send(data, to, (self.context, tag))
    }

    fn recv(&self, data: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        self.rank.recv(data, from, (self.context, tag))
    }

    /// The others are told where they next wait: [`Cause::Aborted`].
    fn abort(&self, code: i32) -> ! {
        let (this, code) = (&*self.rank, exit_code(code));
        let header = this.segment.header();
        let said = (this.rank as u64 + 1) << 32 | u64::from(code as u32);
        // Who was first has.
        let _ = header.aborted.compare_exchange(0, said, SeqCst, SeqCst);
        futex::wake(&header.generation, EVERYBODY);
        (0..this.size).for_each(|rank| this.ring_bell(rank));
        std::process::exit(code)
    }

    fn handle(&self) -> Box<dyn Transport> {
        Box::new(Self { rank: self.rank.clone(), context: self.context })
    }
}

/// So many bytes each rank folds by itself.
const ALONE: usize = 1 << 10;

impl ShmBackend {
    /// Into `all`: the parts of all ranks, from their byte `begin` on, in rank order.
    fn fold(&self, parity: usize, begin: usize, all: &mut [u8], combine: &Combine<'_>) {
        let end = begin + all.len();
        let part = |rank| &self.rank.put_by(rank, parity, end)[begin..];
        all.copy_from_slice(part(0));
        (1..self.rank.size).for_each(|rank| combine(all, part(rank)));
    }
}

impl SharedMemory for ShmBackend {
    /// All ranks are on this machine.
    fn split_local(&self) -> crate::Result<Self> {
        crate::Communicator::barrier(self)?;
        // All ranks make the same calls in the same order, so it is the same number everywhere.
        let context = self.rank.contexts.replace(self.rank.contexts.get() + 1);
        Ok(Self { rank: self.rank.clone(), context })
    }

    fn create_shared_region<T: Pod>(&self, len: usize) -> crate::Result<SharedRegion<T>> {
        SharedRegion::create(self, len)
    }
}
