//! What carries bytes between the processes of a job, and knows nothing of what they mean.
//!
//! Processes have numbers; messages belong to a context, which is a communicator's. What a collective
//! exchanges is *deposited* at a place: a [`Meeting`] is complete for a member when those have come to it
//! whose parts it wants, and nobody need make progress for another until then.
//!
//! Who waits says what for ([`Awaited`]), so that nothing else wakes it: its memory may be out meanwhile.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bdrun_ipc::far::Change;
use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Process;
use bdrun_worker::front::Need;

use crate::failure::Answer;

/// What is said of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Of which communicator.
    pub context: u32,
    /// The sender's rank there.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// What the sender wants to hear of it.
    pub mode: Mode,
}

/// What the sender of a message wants to hear of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Plain,
    /// When it is received; this number is said then.
    Synchronous(u32),
    /// Something that the receiver is to do, whatever it waits for.
    Active,
    /// This is no message but that word: the one with this number is received.
    Received(u32),
    /// A word too: the sender takes the one with this number back, if nobody has claimed it.
    TakesBack(u32),
    /// The answer, if nobody had: nobody will get it.
    TakenBack(u32),
}

/// A message's bytes, wherever they are.
pub trait Parcel: Debug + Send + Sync {
    /// How many.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies some of them, from `offset` on.
    ///
    /// # Errors
    /// They are damaged, or cannot be read.
    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<()>;
}

impl Parcel for Vec<u8> {
    fn len(&self) -> u64 {
        Self::len(self) as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        into.copy_from_slice(from.and_then(|rest| rest.get(..into.len())).ok_or(Class::Internal)?);
        Ok(())
    }
}

/// A message's bytes when it comes.
#[derive(Debug)]
pub enum Come<'a> {
    /// They are the receiver's.
    Whole(Box<dyn Parcel>),
    /// They are lent, and few.
    Passing(&'a dyn Parcel),
}

impl Come<'_> {
    /// They are kept.
    ///
    /// # Errors
    /// As of [`Parcel::read`].
    pub fn keep(self) -> Answer<Box<dyn Parcel>> {
        match self {
            Self::Whole(parcel) => Ok(parcel),
            Self::Passing(parcel) => {
                let mut bytes = vec![0; parcel.len() as usize];
                parcel.read(0, &mut bytes)?;
                Ok(Box::new(bytes))
            }
        }
    }
}

/// Members of a meeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// Everybody.
    All,
    /// Those with these numbers.
    Range(std::ops::Range<usize>),
    /// The same, one by one.
    These(Vec<usize>),
}

impl Needed {
    /// Nobody.
    pub const NOBODY: Self = Self::Range(0..0);

    /// This one.
    pub const fn one(member: usize) -> Self {
        Self::Range(member..member + 1)
    }

    /// Their numbers, of so many members.
    pub fn of(&self, members: usize) -> impl Iterator<Item = usize> {
        let (range, these) = match self {
            Self::All => (0..members, &[][..]),
            Self::Range(range) => (range.clone(), &[][..]),
            Self::These(these) => (0..0, &these[..]),
        };
        range.chain(these.iter().copied())
    }
}

/// Who waits for whom in a meeting: by nobody is waited who does not know that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whom {
    /// Those whose parts this process wants. It may be one of them itself.
    pub awaits: Needed,
    /// Those that want this one's, but not all.
    pub awaited_by: Needed,
}

impl Whom {
    /// Everybody wants everybody's.
    pub const ALL: Self = Self { awaits: Needed::All, awaited_by: Needed::NOBODY };
    /// Nobody wants this one's, which wants nobody's.
    pub const NOBODY: Self = Self { awaits: Needed::NOBODY, awaited_by: Needed::NOBODY };

    /// Each of these wants that of each other.
    pub const fn mutual(others: std::ops::Range<usize>) -> Self {
        Self { awaits: Needed::Range(others.start..others.end), awaited_by: Needed::Range(others) }
    }

    /// It wants those of these.
    pub const fn awaits(awaits: Needed) -> Self {
        Self { awaits, awaited_by: Needed::NOBODY }
    }

    /// These want its.
    pub const fn awaited_by(awaited_by: Needed) -> Self {
        Self { awaits: Needed::NOBODY, awaited_by }
    }
}

/// With what a process comes to a meeting.
#[derive(Debug)]
pub struct Coming<'a> {
    /// Of all at this place: 0, 2, 4, …, and 1, 3, 5, …
    pub number: u64,
    /// Of what it is the meeting.
    pub name: &'static str,
    /// This process's number there.
    pub seat: usize,
    /// Who waits for whom.
    pub whom: &'a Whom,
    /// What it deposits.
    pub part: &'a [&'a [u8]],
    /// What all parts become, if all want the same.
    pub combines: Option<&'a dyn Combines>,
}

/// Makes one thing of what all members have deposited.
pub trait Combines: Debug + Send + Sync {
    /// By one member for all, given what each has deposited.
    ///
    /// # Errors
    /// Something cannot be read.
    fn combine<'p>(&self, part: &dyn Fn(usize) -> &'p dyn Parcel) -> Answer<Vec<u8>>;

    /// The same, for when the call has returned in which this is lent.
    fn kept(&self) -> Arc<dyn Combines>;
}

/// A collective in which this process's part is deposited. Dropped, this process has read what it wants.
pub trait Meeting: Debug + Send + Sync {
    /// Whether those have come that are awaited.
    ///
    /// # Errors
    /// Somebody came for something else.
    fn is_complete(&self) -> Answer<bool>;

    /// What a member has deposited; only of one that has come.
    fn part(&self, member: usize) -> &dyn Parcel;

    /// What was made of all, if somebody did that for all.
    fn combined(&self) -> Option<&dyn Parcel> {
        None
    }

    /// Whether it may be complete. Changes nothing.
    fn is_due(&self) -> bool {
        true
    }

    /// Waits until it may be complete.
    fn wait(&self, limits: Limits<'_>);
}

/// What a process waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// A message.
    Message {
        /// Of which communicator.
        context: u32,
        /// From this rank there.
        source: Option<u32>,
        /// With this tag.
        tag: Option<i32>,
    },
    /// Any message, or somebody at any meeting.
    Anything,
}

/// When waiting ends although nothing has come.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// After this time.
    pub at_most: Option<Duration>,
    /// Another thread has found something: looked at before this one sleeps, and when it is
    /// [nudged](Link::nudge).
    pub unless: &'a dyn Fn() -> bool,
    /// Something else may come that changes `unless`: it is woken by whatever comes.
    pub by_anything: bool,
    /// Another thread of this process may do something meanwhile: it is none that only waits.
    pub beside: bool,
}

/// Where the members of a communicator meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number, the same for all.
    pub number: u32,
    /// The first of four contexts: of the program's messages, and behind it of MPI's own.
    pub context: u32,
}

/// Carries bytes between processes.
pub trait Link: Debug + Send + Sync {
    /// This one's number.
    fn process(&self) -> Process;

    /// How many there are.
    fn processes(&self) -> u32;

    /// Sends a copy of `data`. Never waits for who receives it.
    ///
    /// # Errors
    /// There is no room for it.
    fn send(&self, to: Process, head: Head, data: &[&[u8]]) -> Answer<()>;

    /// Takes in what has come, each sender's in the order sent. By one thread at a time.
    ///
    /// # Errors
    /// What came is damaged.
    fn receive(&self, take: &mut dyn FnMut(Head, Come<'_>)) -> Answer<()>;

    /// Waits until something may have come that is awaited.
    fn wait(&self, awaited: Awaited, limits: Limits<'_>);

    /// What others have of it if this process waits where it could go on.
    fn others_need(&self) -> Need {
        Need::NONE
    }

    /// By a thread: another one that waits shall look what limits it.
    fn nudge(&self);

    /// A process, if it waits, shall look what limits it.
    fn wake(&self, process: Process);

    /// Whether a process has ended MPI: it receives nothing any more, and has sent all that it ever will.
    /// None: that is not known here.
    fn has_left(&self, _: Process) -> Option<bool> {
        None
    }

    /// By one process for all: a place where these will meet.
    ///
    /// # Errors
    /// There are too many.
    fn open(&self, members: &[Process]) -> Answer<Place>;

    /// This process will not come there any more.
    fn close(&self, place: Place);

    /// For people who look from outside: this process ends in this call.
    fn ends_in(&self, _call: Option<&'static str>) {}

    /// This process has begun with MPI, or has ended that.
    fn set_begun(&self, _begun: bool) {}

    /// The same: this is what a place is called.
    fn set_name(&self, _place: Place, _name: &str) {}

    /// Comes to a meeting.
    ///
    /// # Errors
    /// There is no room for the part.
    fn meet(&self, place: Place, coming: &Coming<'_>) -> Answer<Box<dyn Meeting>>;

    /// The same, and `stays` as long as that lasts.
    ///
    /// # Errors
    /// As of [`Link::meet`], and those of `stays`.
    fn meet_while(
        &self,
        place: Place,
        coming: &Coming<'_>,
        stays: &mut dyn FnMut(&dyn Meeting) -> Answer<()>,
    ) -> Answer<()> {
        stays(&*self.meet(place, coming)?)
    }

    /// Whether this process is too early for a meeting: members have not left an earlier one yet, this
    /// process among them perhaps.
    fn is_early(&self) -> bool {
        false
    }

    /// Changes the number that all of a place share, which is 0 at first; what it was.
    ///
    /// # Errors
    /// It cannot be asked for.
    fn word(&self, _: Place, _: Change) -> Answer<i64> {
        Err(Class::Internal.into())
    }

    /// The number of a process's node.
    fn node_of(&self, _: Process) -> u32 {
        0
    }

    /// Comes to the critical section of the node, in which so many may be; a ticket. Who is alone need not
    /// wait.
    fn come_to_critical(&self, _: u32) -> u32 {
        0
    }

    /// Whether one with this ticket may go in.
    fn may_enter_critical(&self, _: u32) -> bool {
        true
    }

    /// It is in.
    fn entered_critical(&self) {}

    /// It is not in any more.
    fn leave_critical(&self) {}
}

/// The place of all processes, and that of each by itself.
pub const EVERYBODY: Place = Place { number: 0, context: 0 };
/// See [`EVERYBODY`].
pub const ONESELF: Place = Place { number: ALONE, context: 4 };
/// Where there is nobody else.
pub const ALONE: u32 = u32::MAX;

/// The link of a process that was started by itself.
#[derive(Debug, Default)]
pub struct Alone {
    sent: Mutex<Vec<(Head, Vec<u8>)>>,
    opened: AtomicU64,
}

/// The only member is there.
#[derive(Debug)]
pub struct Met(Vec<u8>);

impl Met {
    /// With its part.
    #[must_use]
    pub fn new(part: &[&[u8]]) -> Self {
        Self(part.concat())
    }
}

impl Meeting for Met {
    fn is_complete(&self) -> Answer<bool> {
        Ok(true)
    }

    fn part(&self, _: usize) -> &dyn Parcel {
        &self.0
    }

    fn wait(&self, _: Limits<'_>) {}
}

impl Link for Alone {
    fn process(&self) -> Process {
        0
    }

    fn processes(&self) -> u32 {
        1
    }

    fn send(&self, _: Process, head: Head, data: &[&[u8]]) -> Answer<()> {
        self.sent.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((head, data.concat()));
        Ok(())
    }

    fn receive(&self, take: &mut dyn FnMut(Head, Come<'_>)) -> Answer<()> {
        let sent = std::mem::take(&mut *self.sent.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        sent.into_iter().for_each(|(head, data)| take(head, Come::Whole(Box::new(data))));
        Ok(())
    }

    fn wait(&self, _: Awaited, limits: Limits<'_>) {
        // Another thread may send something; and who waits for himself waits for ever, as with others.
        if !(limits.unless)() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn nudge(&self) {}

    fn wake(&self, _: Process) {}

    fn open(&self, _: &[Process]) -> Answer<Place> {
        let number = self.opened.fetch_add(1, SeqCst) + 2;
        let number =
            u32::try_from(number).ok().filter(|&number| number < u32::MAX / 4).ok_or(Class::NoMemory)?;
        Ok(Place { number: ALONE, context: 4 * number })
    }

    fn close(&self, _: Place) {}

    fn meet(&self, _: Place, coming: &Coming<'_>) -> Answer<Box<dyn Meeting>> {
        Ok(Box::new(Met::new(coming.part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_hears_himself() {
        let link = Alone::default();
        let head = Head { context: 0, source: 0, tag: 3, mode: Mode::Plain };
        link.send(0, head, &[b"ab", b"c"]).unwrap();
        link.send(0, Head { tag: 4, ..head }, &[]).unwrap();
        let mut heard = vec![];
        let mut take = |head: Head, come: Come<'_>| {
            let parcel = come.keep().unwrap();
            let mut bytes = vec![0; parcel.len() as usize];
            parcel.read(0, &mut bytes).unwrap();
            heard.push((head.tag, bytes, parcel.is_empty()));
        };
        link.receive(&mut take).unwrap();
        link.receive(&mut take).unwrap();
        assert_eq!(heard, [(3, b"abc".to_vec(), false), (4, vec![], true)]);
        let (a, b) = (link.open(&[0]).unwrap(), link.open(&[0]).unwrap());
        assert!(a != b && a.context.abs_diff(b.context) >= 4 && ![EVERYBODY, ONESELF].contains(&a));
        let coming = Coming {
            number: 0,
            name: "barrier",
            seat: 0,
            whom: &Whom::ALL,
            part: &[b"part"],
            combines: None,
        };
        let meeting = link.meet(a, &coming).unwrap();
        assert_eq!((meeting.is_complete(), meeting.part(0).len()), (Ok(true), 4));
        assert!(meeting.part(0).read(2, &mut [0; 3]).is_err(), "past its end");
    }
}
