//! Ranks as threads of one process: what a program gets that was started without `bdrun` (one rank), and what
//! tests use where processes would only be slower.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::backend::{Backend, Fold, Parts, Read, check_rank};
use crate::matching::{Matcher, Selector, Source, Status, Tag, TagSel, Ticket};
use crate::{Communicator, Error, Result};

/// Run `body` in `size` threads, each a rank; their results in rank order. A panic in one is passed on. Who
/// waits for a rank whose `body` has returned gets an error.
///
/// ```
/// // To test what four ranks do, without `bdrun`.
/// let sums = bdrun_worker::local::run(4, |comm| comm.allreduce(&[comm.rank() as u64], |a, b| a + b));
/// for sum in sums {
///     assert_eq!(sum?, [0 + 1 + 2 + 3]);
/// }
/// # Ok::<(), bdrun_worker::Error>(())
/// ```
pub fn run<R: Send>(size: usize, body: impl Fn(Communicator) -> R + Sync) -> Vec<R> {
    let group = Group::new(size, Arc::default());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let (group, body) = (group.clone(), &body);
                scope.spawn(move || body(Communicator::new(Box::new(Local::new(group, rank)))))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    })
}

/// The communicator of a program that runs alone.
pub(crate) fn alone() -> Communicator {
    Communicator::new(Box::new(Local::new(Group::new(1, Arc::default()), 0)))
}

const PANICKED: &str = "another rank has panicked";

struct Group {
    state: Mutex<State>,
    changed: Condvar,
    size: usize,
    /// Of all groups that came of one.
    bell: Arc<Bell>,
}

/// Counts what changes in any of the groups, for who waits for several.
#[derive(Default)]
struct Bell {
    rung: Mutex<u64>,
    again: Condvar,
}

impl Bell {
    fn count(&self) -> u64 {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.again.notify_all();
    }

    /// Until it has been rung since it was counted so.
    fn wait(&self, before: u64) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.again.wait_while(rung, |rung| *rung == before));
    }
}

struct State {
    inboxes: Vec<Matcher<Vec<u8>>>,
    /// The collective under way: its parts, who has read, and its number.
    parts: Vec<Option<Vec<u8>>>,
    names: Vec<&'static str>,
    folded: Option<Result<Vec<u8>>>,
    complete: bool,
    left: usize,
    subgroups: Vec<(Vec<usize>, Arc<Group>)>,
    /// A rank panicked: whoever waits for it would wait for ever.
    failed: bool,
    /// Ranks that will do nothing more here.
    gone: Vec<bool>,
}

impl Group {
    fn new(size: usize, bell: Arc<Bell>) -> Arc<Self> {
        let state = State {
            inboxes: (0..size).map(|_| Matcher::default()).collect(),
            parts: vec![None; size],
            names: Vec::new(),
            folded: None,
            complete: false,
            left: 0,
            subgroups: Vec::new(),
            failed: false,
            gone: vec![false; size],
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), size, bell })
    }

    /// A rank that panicked elsewhere leaves consistent data: every critical section below is a short update.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until something has changed; if that is in vain it says why.
    fn wait<'a>(
        &self,
        guard: MutexGuard<'a, State>,
        in_vain: impl FnOnce(&State) -> Option<String>,
    ) -> Result<MutexGuard<'a, State>> {
        guard.check()?;
        match in_vain(&guard) {
            Some(why) => Err(Error::Runtime(why)),
            None => Ok(self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

impl State {
    fn check(&self) -> Result<()> {
        if self.failed { Err(Error::Runtime(PANICKED.into())) } else { Ok(()) }
    }
}

struct Local {
    group: Arc<Group>,
    rank: usize,
    in_collective: Cell<bool>,
}

impl Local {
    fn new(group: Arc<Group>, rank: usize) -> Self {
        Self { group, rank, in_collective: Cell::new(false) }
    }

    fn selector(from: Source, tag: TagSel) -> Selector {
        Selector { context: 0, source: from, tag }
    }

    /// Why no message will come from any of these, if none will.
    fn none_will_come(&self, state: &State, mut from: impl Iterator<Item = Source>) -> Option<String> {
        // Not from itself, since it waits.
        let may_send = |rank| rank != self.rank && state.gone.get(rank) == Some(&false);
        let may_come = |source| match source {
            Source::Any => (0..self.group.size).any(may_send),
            Source::Rank(rank) => may_send(rank),
        };
        if from.any(may_come) {
            return None;
        }
        Some(match self.group.size {
            1 => "a rank that is alone waits for a message that nobody sent".into(),
            _ => format!("rank {} waits for a message that nobody is left to send", self.rank),
        })
    }

    /// Comes to a collective and waits for all others; what it came with is taken back if one never will.
    fn meet(
        &self,
        name: &'static str,
        part: &[&[u8]],
        fold: Option<&mut Fold<'_>>,
    ) -> Result<MutexGuard<'_, State>> {
        let mut state = self.group.lock();
        // The previous collective is over for this rank, but others may still be reading it.
        while state.complete {
            state = self.group.wait(state, |_| None)?;
        }
        // What it came with may lie here still.
        state.check()?;
        state.parts[self.rank] = Some(part.concat());
        state.names.push(name);
        if state.names.len() == self.group.size {
            let same = state.names.iter().all(|n| *n == state.names[0]);
            if let (true, Some(fold)) = (same, fold) {
                let folded = fold(&Deposited { parts: &state.parts, folded: &[] });
                state.folded = Some(folded);
            }
            state.complete = true;
            self.group.changed.notify_all();
        }
        while !state.complete {
            let missed = |state: &State| {
                let rank = (0..self.group.size).find(|&r| state.gone[r] && state.parts[r].is_none())?;
                Some(format!("{name}: rank {rank} has ended without it"))
            };
            state = self.group.wait(state, missed).inspect_err(|_| {
                let mut state = self.group.lock();
                state.parts[self.rank] = None;
                if let Some(at) = state.names.iter().position(|other| *other == name) {
                    state.names.swap_remove(at);
                }
            })?;
        }
        Ok(state)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let mut state = self.group.lock();
        state.gone[self.rank] = true;
        state.failed |= std::thread::panicking();
        self.group.changed.notify_all();
        self.group.bell.ring();
    }
}

struct Deposited<'a> {
    parts: &'a [Option<Vec<u8>>],
    folded: &'a [u8],
}

/// Bytes of `all` from `offset` on; `None` if there are not as many.
fn copy(all: &[u8], offset: usize, into: &mut [u8]) -> Option<()> {
    into.copy_from_slice(all.get(offset..)?.get(..into.len())?);
    Some(())
}

impl Parts for Deposited<'_> {
    fn len(&self, rank: usize) -> usize {
        self.parts[rank].as_ref().map_or(0, Vec::len)
    }

    fn read(&self, rank: usize, offset: usize, into: &mut [u8]) -> Result<()> {
        copy(self.parts[rank].as_deref().unwrap_or(&[]), offset, into)
            .ok_or_else(|| Error::Runtime(format!("read past the part of rank {rank}")))
    }

    fn folded_len(&self) -> usize {
        self.folded.len()
    }

    fn read_folded(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        copy(self.folded, offset, into).ok_or_else(|| Error::Runtime("read past the folded result".into()))
    }
}

impl Backend for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.size
    }

    fn send(&self, to: usize, tag: Tag, data: &[u8]) -> Result<()> {
        check_rank("send", to, self.group.size)?;
        let status = Status { source: self.rank, tag, bytes: data.len() };
        self.group.lock().inboxes[to].arrive(0, status, data.to_vec());
        self.group.changed.notify_all();
        self.group.bell.ring();
        Ok(())
    }

    fn post(&self, from: Source, tag: TagSel) -> Ticket {
        self.group.lock().inboxes[self.rank].post(Self::selector(from, tag))
    }

    fn test(&self, ticket: Ticket) -> Result<Option<Status>> {
        Ok(self.group.lock().inboxes[self.rank].status(ticket))
    }

    fn wait_any(&self, tickets: &[Ticket]) -> Result<(usize, Status)> {
        let mut state = self.group.lock();
        loop {
            for (i, &ticket) in tickets.iter().enumerate() {
                if let Some(status) = state.inboxes[self.rank].status(ticket) {
                    return Ok((i, status));
                }
            }
            state = self.group.wait(state, |state| {
                let inbox = &state.inboxes[self.rank];
                let waiting = tickets.iter().filter_map(|&ticket| inbox.waiting_for(ticket));
                self.none_will_come(state, waiting.map(|want| want.source))
            })?;
        }
    }

    /// Each group has tickets of its own.
    fn wait_any_of(&self, receives: &[(&dyn Backend, Ticket)]) -> Result<usize> {
        loop {
            let before = self.group.bell.count();
            // Before it is looked what has come: if nobody is left to send, nothing comes after that.
            let in_vain: Option<Vec<String>> =
                receives.iter().map(|&(backend, ticket)| backend.in_vain(ticket)).collect();
            for (i, &(backend, ticket)) in receives.iter().enumerate() {
                if backend.test(ticket)?.is_some() {
                    return Ok(i);
                }
            }
            if let Some(why) = in_vain {
                return Err(Error::Runtime(why.join("; ")));
            }
            self.group.bell.wait(before);
        }
    }

    fn in_vain(&self, ticket: Ticket) -> Option<String> {
        let state = self.group.lock();
        if state.failed {
            return Some(PANICKED.into());
        }
        let waiting = state.inboxes[self.rank].waiting_for(ticket);
        self.none_will_come(&state, waiting.map(|want| want.source).into_iter())
    }

    fn fetch(&self, ticket: Ticket, into: &mut [u8]) -> Result<()> {
        match self.group.lock().inboxes[self.rank].take(ticket) {
            Some((_, payload)) => {
                into.copy_from_slice(&payload);
                Ok(())
            }
            None => Err(Error::Runtime("fetch of a receive without a message".into())),
        }
    }

    fn cancel(&self, ticket: Ticket) {
        self.group.lock().inboxes[self.rank].cancel(ticket);
    }

    fn probe(&self, from: Source, tag: TagSel, wait: bool) -> Result<Option<Status>> {
        let want = Self::selector(from, tag);
        let mut state = self.group.lock();
        loop {
            let found = state.inboxes[self.rank].probe(&want);
            if found.is_some() || !wait {
                return Ok(found);
            }
            state = self.group.wait(state, |state| self.none_will_come(state, std::iter::once(from)))?;
        }
    }

    fn collective(
        &self,
        name: &'static str,
        part: &[&[u8]],
        fold: Option<&mut Fold<'_>>,
        read: &mut Read<'_>,
    ) -> Result<()> {
        if self.in_collective.replace(true) {
            return Err(Error::Runtime(format!("{name} inside another collective")));
        }
        let mut state = self.meet(name, part, fold).inspect_err(|_| self.in_collective.set(false))?;
        let other = state.names.iter().find(|n| **n != name);
        let result = match (other, &state.folded) {
            (Some(theirs), _) => {
                Err(Error::Mismatch { rank: self.rank, ours: name, theirs: (*theirs).to_string() })
            }
            (None, Some(Err(error))) => Err(Error::Runtime(error.to_string())),
            (None, Some(Ok(folded))) => read(&Deposited { parts: &state.parts, folded }),
            (None, None) => read(&Deposited { parts: &state.parts, folded: &[] }),
        };
        state.left += 1;
        if state.left == self.group.size {
            state.parts.fill(None);
            state.names.clear();
            state.folded = None;
            state.left = 0;
            state.complete = false;
            self.group.changed.notify_all();
        }
        self.in_collective.set(false);
        result
    }

    fn subgroup(&self, members: &[usize]) -> Result<Option<Box<dyn Backend>>> {
        // Between two collectives the lowest member makes the group and the others find it.
        if members.first() == Some(&self.rank) {
            let group = Group::new(members.len(), self.group.bell.clone());
            self.group.lock().subgroups.push((members.to_vec(), group));
        }
        self.collective("split", &[], None, &mut |_| Ok(()))?;
        let found = self.group.lock().subgroups.iter().find(|(m, _)| m == members).map(|(_, g)| g.clone());
        self.collective("split", &[], None, &mut |_| Ok(()))?;
        self.group.lock().subgroups.clear();
        // Nobody makes the next group before all have cleared the list of this one.
        self.collective("split", &[], None, &mut |_| Ok(()))?;
        Ok(match (found, members.iter().position(|&m| m == self.rank)) {
            (Some(group), Some(rank)) => Some(Box::new(Self::new(group, rank))),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// What ranks give back; who waits for ever fails the test, and not only stops it.
    fn all_end<R: Send + 'static>(
        size: usize,
        body: impl Fn(Communicator) -> R + Send + Sync + 'static,
    ) -> Vec<R> {
        let (done, all) = channel();
        std::thread::spawn(move || done.send(run(size, body)));
        all.recv_timeout(Duration::from_secs(600)).expect("no rank waits for ever")
    }

    fn is_told(result: &Result<()>, words: &str) {
        let said = result.as_ref().expect_err("in vain").to_string();
        assert!(said.contains(words), "{said}");
    }

    #[test]
    fn who_waits_for_a_rank_that_has_ended_is_told() {
        let ends = || Err(Error::Runtime("ends early".into()));
        let all = all_end(2, move |c| if c.rank() == 0 { ends() } else { c.barrier() });
        is_told(&all[0], "ends early");
        is_told(&all[1], "barrier: rank 0 has ended without it");
        // Twice, and by several: what they came with is none of the next one's.
        let all = all_end(3, |c| match c.rank() {
            0 => Ok(()),
            _ => c.barrier().or_else(|_| c.allreduce(&[1], |a, b| a + b).map(drop)),
        });
        for result in &all[1..] {
            is_told(result, "allreduce: rank 0 has ended without it");
        }
        // For a message, whoever it may be from.
        let from = [Source::Rank(0), Source::Any];
        for (from, probes) in from.into_iter().flat_map(|from| [(from, false), (from, true)]) {
            let all = all_end(2, move |c| match (c.rank(), probes) {
                (0, _) => Ok(()),
                (_, false) => c.recv::<u8>(from, 7).map(drop),
                (_, true) => c.probe(from, 7).map(drop),
            });
            is_told(&all[1], "rank 1 waits for a message that nobody is left to send");
        }
        // In a communicator of some.
        let all = all_end(3, |c| {
            let own = c.split(Some(u32::from(c.rank() > 0)), 0)?.expect("it is in one");
            if c.rank() == 2 { own.barrier() } else { Ok(()) }
        });
        is_told(&all[2], "barrier: rank 0 has ended without it");
    }

    /// Of what comes in the last of them, and that nobody is left in any.
    #[test]
    fn who_waits_in_several_communicators_hears_of_each() {
        let all = all_end(2, |c| -> Result<()> {
            let twin = c.duplicate()?;
            if c.rank() == 0 {
                twin.recv::<u8>(1, 1)?;
                return twin.send(1, 2, &[7u8]);
            }
            let requests = [c.irecv::<u8>(0, 2)?, twin.irecv::<u8>(0, 2)?];
            twin.send(0, 1, &[1u8])?;
            assert_eq!(crate::wait_any(&requests)?, 1);
            let [never, came] = requests;
            assert_eq!(came.wait()?.0, [7]);
            crate::wait_any(&[never, twin.irecv::<u8>(0, 3)?]).map(drop)
        });
        assert!(all[0].is_ok(), "{all:?}");
        is_told(&all[1], "nobody is left to send");
    }

    #[test]
    fn what_a_rank_did_before_it_ended_counts() {
        let all = all_end(3, |c| -> Result<u64> {
            let next = (c.rank() + 1) % 3;
            c.send(next, 7, &[c.rank() as u64])?;
            if c.rank() < 2 {
                return Ok(0);
            }
            // The others may have ended by now, and one of them has sent nothing more.
            assert!(c.recv::<u64>(0, 7).is_err());
            Ok(c.recv::<u64>(Source::Any, 7)?.0[0])
        });
        assert_eq!(all.into_iter().map(Result::unwrap).collect::<Vec<u64>>(), [0, 0, 1]);
    }
}
