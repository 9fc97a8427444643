//! How the owner of memory is told what to do with it, and what it tells.
//!
//! Each message is done once it is its turn, in whatever call its owner is; those of one origin in the order
//! in which they were sent. That it is done stands in the window's shared words, or is told, where there are
//! none.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};

use bdrun_mpi_core::datatype::Basic;
use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::operation::Operation as Op;

use super::access::{Deed, Pieces};
use super::{Memory, Window};
use crate::Mpi;
use crate::communicators::bytes_of;
use crate::datatypes::memory::Span;
use crate::failure::{Answer, Failure};
use crate::link::{Head, Mode, Parcel};
use crate::operation::{Done, Operation};

/// The context of such messages, behind that of the window's members.
const CONTEXT: u32 = 2;
/// Something is asked.
const ASK: i32 = 0;
/// It is answered.
const REPLY: i32 = 1;
/// It is done; of members on several nodes.
pub(super) const DONE: i32 = 2;
/// A lock is wanted, is given, is given back; of these too.
pub(super) const LOCK: i32 = 3;
/// See [`LOCK`].
pub(super) const LOCKED: i32 = 4;
/// See [`LOCK`].
pub(super) const UNLOCK: i32 = 5;

/// Where an answer goes.
#[derive(Debug)]
pub struct Reply {
    /// From whom it comes.
    pub target: usize,
    /// Memory of the program.
    pub into: Span,
    /// What is complete then.
    pub operation: Arc<Operation>,
}

/// All windows of which something may be asked, and what was.
#[derive(Debug)]
pub struct Active {
    windows: Mutex<Vec<(u32, Arc<Window>)>>,
    come: Mutex<VecDeque<(Head, Box<dyn Parcel>)>>,
    /// One thread does it at a time: in order.
    turn: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Active {
    /// None.
    pub const fn new() -> Self {
        Self { windows: Mutex::new(vec![]), come: Mutex::new(VecDeque::new()), turn: Mutex::new(()) }
    }

    pub fn add(&self, context: u32, window: &Arc<Window>) {
        lock(&self.windows).push((context + CONTEXT, window.clone()));
    }

    pub fn remove(&self, context: u32) {
        lock(&self.windows).retain(|window| window.0 != context + CONTEXT);
    }

    fn window(&self, context: u32) -> Option<Arc<Window>> {
        lock(&self.windows).iter().find(|window| window.0 == context).map(|window| window.1.clone())
    }

    /// A message has come.
    pub fn add_come(&self, head: Head, parcel: Box<dyn Parcel>) {
        lock(&self.come).push_back((head, parcel));
    }

    fn next(&self) -> Option<(Head, Box<dyn Parcel>)> {
        lock(&self.come).pop_front()
    }

    fn is_empty(&self) -> bool {
        lock(&self.come).is_empty()
    }
}

/// What is asked, as it is sent before the bytes that belong to it.
struct Asked {
    id: u64,
    deed: Deed,
    pieces: Pieces,
}

impl Asked {
    fn said(&self) -> Vec<u8> {
        let operation = |operation| Op::ALL.iter().position(|&other| other == operation).unwrap_or(0) as i64;
        let deed = match self.deed {
            Deed::Put => [0, 0, 0],
            Deed::Get => [1, 0, 0],
            Deed::Combine { operation: of, fetches } => [2, operation(of), fetches.into()],
            Deed::Swap => [3, 0, 0],
        };
        let basic = self.pieces.basic.map_or(-1, |basic| basic as i64);
        let list = self.pieces.list.iter().flat_map(|&(at, n)| [at, n as i64]);
        let head = [self.id as i64, deed[0], deed[1], deed[2], basic, self.pieces.list.len() as i64];
        bytes_of(head.into_iter().chain(list))
    }

    /// And how many bytes it took.
    fn heard(bytes: &[u8]) -> Option<(Self, usize)> {
        let words = bytes.as_chunks().0;
        let word = |at: usize| words.get(at).map(|&word| i64::from_le_bytes(word));
        let operation = || Op::ALL.get(usize::try_from(word(2)?).ok()?).copied();
        let deed = match word(1)? {
            0 => Deed::Put,
            1 => Deed::Get,
            2 => Deed::Combine { operation: operation()?, fetches: word(3)? != 0 },
            3 => Deed::Swap,
            _ => return None,
        };
        let basic = match word(4)? {
            -1 => None,
            nth => Some(*Basic::ALL.get(usize::try_from(nth).ok()?)?),
        };
        let count = usize::try_from(word(5)?).ok()?;
        let mut list = vec![];
        for nth in 0..count {
            list.push((word(6 + 2 * nth)?, u64::try_from(word(7 + 2 * nth)?).ok()?));
        }
        let len = (6 + 2 * count) * size_of::<i64>();
        Some((Self { id: word(0)? as u64, deed, pieces: Pieces { basic, list } }, len))
    }
}

impl Window {
    pub(super) fn head(&self, tag: i32) -> Answer<Head> {
        let (context, source) = (self.comm.place()?.context + CONTEXT, self.comm.rank as u32);
        Ok(Head { context, source, tag, mode: Mode::Active })
    }
}

impl Mpi {
    /// Asks a member to do something to its memory.
    pub(super) fn ask(
        &self,
        window: &Window,
        target: usize,
        (deed, pieces): (Deed, Pieces),
        data: &[u8],
        reply: Option<Reply>,
    ) -> Answer<()> {
        let id = window.next.fetch_add(1, SeqCst);
        let operation = reply.as_ref().map(|reply| reply.operation.clone());
        if let Some(reply) = reply {
            window.replies().insert(id, reply);
        }
        let (to, said) = (window.comm.group.members()[target], Asked { id, deed, pieces }.said());
        window.asked[target].fetch_add(1, SeqCst);
        self.act();
        self.link()?.send(to, window.head(ASK)?, &[&said, data]).inspect_err(|failure| {
            window.asked[target].fetch_sub(1, SeqCst);
            if let (Some(_), Some(operation)) = (window.replies().remove(&id), operation) {
                operation.finish(Done { failure: Some(failure.clone()), ..Done::well() });
            }
        })
    }

    /// Does what was asked of this process, and takes what was told.
    pub(crate) fn do_asked(&self) -> Answer<()> {
        while !self.active.is_empty() {
            // Another thread that has the turn does these too, or sees that there are more.
            let Ok(_turn) = self.active.turn.try_lock() else { return Ok(()) };
            while let Some((head, parcel)) = self.active.next() {
                let mut bytes = vec![0; parcel.len() as usize];
                parcel.read(0, &mut bytes)?;
                drop(parcel);
                // Members leave a window only when nothing is asked any more.
                let window = self.active.window(head.context).ok_or(Class::Internal)?;
                let from = head.source as usize;
                match head.tag {
                    ASK => self.do_ask(&window, from, &bytes)?,
                    REPLY => self.take_reply(&window, from, &bytes)?,
                    tag => self.hear_apart(&window, from, tag, &bytes)?,
                }
            }
        }
        Ok(())
    }

    fn do_ask(&self, window: &Window, origin: usize, bytes: &[u8]) -> Answer<()> {
        let (asked, len) = Asked::heard(bytes).ok_or(Class::Internal)?;
        let Asked { id, deed, pieces } = asked;
        if !pieces.all(|from, to| window.has(from, to)) {
            // Who asked has gone on: nobody else can be told.
            let whose = match window.memory {
                Memory::Dynamic(_) => "attached to",
                _ => "in",
            };
            self.die(&format!("rank {origin} accesses memory that is not {whose} the window"), 1);
        }
        let own = window.comm.rank;
        let base = window.base(own).ok_or(Class::Internal)?;
        let mut told = bytes_of([id as i64]);
        // SAFETY: the program has said that its memory is there (checked), and others' from now on.
        unsafe { pieces.apply(deed, base, window.control.busy(own), &bytes[len..], &mut told) }?;
        let (link, to) = (self.link()?, window.comm.group.members()[origin]);
        let is_answered = matches!(deed, Deed::Get | Deed::Swap | Deed::Combine { fetches: true, .. });
        if is_answered {
            link.send(to, window.head(REPLY)?, &[&told])?;
        }
        if window.apart.is_some() {
            return if is_answered { Ok(()) } else { self.say_apart(window, origin, DONE, &[]) };
        }
        window.control.done(own, origin).fetch_add(1, SeqCst);
        link.wake(to);
        Ok(())
    }

    fn take_reply(&self, window: &Window, from: usize, bytes: &[u8]) -> Answer<()> {
        let (id, told) = bytes.split_first_chunk().ok_or(Class::Internal)?;
        let Some(Reply { into, operation, .. }) = window.replies().remove(&u64::from_le_bytes(*id)) else {
            return Err(Class::Internal.into());
        };
        let failure = (told.len() as u64 > into.bytes()).then(|| Failure::from(Class::Truncate));
        if failure.is_none() {
            // SAFETY: the program has said that it is there, and leaves it alone until this is complete.
            unsafe { into.unpack(0, told) };
        }
        operation.finish(Done { failure, ..Done::well() });
        if window.apart.is_some() {
            window.control.done(from, window.comm.rank).fetch_add(1, SeqCst);
        }
        self.tell_threads();
        Ok(())
    }
}
