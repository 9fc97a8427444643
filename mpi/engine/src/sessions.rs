//! Sessions (MPI-5.0, section 11.3).

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Group as Members;
use bdrun_mpi_core::info::Info as Content;

use crate::Mpi;
use crate::face::Object;
use crate::failure::Answer;
use crate::handle::{Errhandler, Group, Info, Session as Handle};
use crate::handlers::{Handler, Kind};
use crate::messages::Buffers;
use crate::text;

/// The sets of processes that there are.
const SETS: [&str; 2] = ["mpi://WORLD", "mpi://SELF"];
/// Of which level a session may be. All of them are the last.
const LEVELS: [&[u8]; 4] =
    [b"MPI_THREAD_SINGLE", b"MPI_THREAD_FUNNELED", b"MPI_THREAD_SERIALIZED", b"MPI_THREAD_MULTIPLE"];
const LEVEL: &[u8] = b"thread_level";

/// Numbers of sessions.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A session.
#[derive(Debug)]
pub struct Session {
    /// By which groups, and what is made of them, know it: no other has it, also when this one is over.
    number: u64,
    handler: Mutex<Handler>,
    /// For `MPI_Bsend`.
    pub buffers: Buffers,
    /// By name, how threads may use it.
    level: &'static [u8],
}

impl Session {
    /// Who is told of failures.
    pub fn handler(&self) -> Handler {
        self.handler.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who will be told.
    pub fn set_handler(&self, handler: Handler) {
        *self.handler.lock().unwrap_or_else(PoisonError::into_inner) = handler;
    }
}

impl Mpi {
    /// A session.
    pub(crate) fn session(&self, session: Handle) -> Answer<Arc<Session>> {
        self.sessions.get(session).ok_or_else(|| Class::Session.into())
    }

    /// The session from which a group comes, if it comes from one that goes on.
    pub(crate) fn session_of(&self, group: &Members) -> Option<Arc<Session>> {
        let number = group.session()?;
        self.sessions.all().into_iter().find(|session| session.number == number)
    }

    /// There is MPI: it was initialised and is not over, or a session is not.
    pub(crate) fn goes_on(&self) -> Answer<()> {
        if self.sessions.all().is_empty() { self.world().map(drop) } else { Ok(()) }
    }

    pub(crate) fn new_session(&self, info: Info, errhandler: Errhandler) -> Answer<Handle> {
        let handler = self.handler(errhandler, Kind::Session)?;
        let made = self.begun_session(info, handler.clone());
        made.map_err(|failure| failure.told_to(handler, Object::Session(Handle::NULL)))
    }

    fn begun_session(&self, info: Info, handler: Handler) -> Answer<Handle> {
        let info = self.content_of(info)?;
        let asked = info.get(LEVEL, self.limits())?;
        let level = LEVELS.into_iter().find(|&level| asked == Some(level)).unwrap_or(LEVELS[3]);
        self.begin()?;
        let _one = self.life.lock();
        self.link()?.set_begun(true);
        if level == LEVELS[3] {
            self.life.set_for_several();
        }
        Ok(self.sessions.add(Arc::new(Session {
            number: NEXT.fetch_add(1, SeqCst),
            handler: Mutex::new(handler),
            buffers: Buffers::new(),
            level,
        })))
    }

    pub(crate) fn end_session(&self, session: Handle) -> Answer<Handle> {
        let _one = self.life.lock();
        self.sessions.take(session).ok_or(Class::Session)?;
        if self.goes_on().is_err() {
            self.link()?.set_begun(false);
        }
        Ok(Handle::NULL)
    }

    pub(crate) fn session_info(&self, session: Handle) -> Answer<Info> {
        let session = self.session(session)?;
        let mut content = self.hints_of_all()?;
        content.set(LEVEL, session.level, self.limits())?;
        Ok(self.new_info(content))
    }

    pub(crate) fn count_sets(&self, session: Handle) -> Answer<i64> {
        self.session(session)?;
        Ok(SETS.len() as i64)
    }

    /// The name of a set: as much as there is `room` for, and how much there is, with its end. With room for
    /// 0 bytes only that.
    ///
    /// # Safety
    /// There is so much room.
    pub(crate) unsafe fn nth_set(&self, session: Handle, n: i64, room: i64, to: *mut c_char) -> Answer<i64> {
        self.session(session)?;
        let name = usize::try_from(n).ok().and_then(|n| SETS.get(n)).ok_or(Class::Arg)?;
        match usize::try_from(room).map_err(|_| Class::Arg)? {
            0 => {}
            room if to.is_null() || room > isize::MAX as usize => return Err(Class::Arg.into()),
            // SAFETY: the caller's.
            room => _ = unsafe { text::write(to, room, name.as_bytes()) },
        }
        Ok(name.len() as i64 + 1)
    }

    /// The processes of a set.
    ///
    /// # Safety
    /// The name ends.
    unsafe fn set(&self, session: Handle, name: *const c_char) -> Answer<Vec<u32>> {
        self.session(session)?;
        if name.is_null() {
            return Err(Class::Arg.into());
        }
        let link = self.link()?;
        // SAFETY: the caller's.
        match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok("mpi://WORLD") => Ok((0..link.processes()).collect()),
            Ok("mpi://SELF") => Ok(vec![link.process()]),
            _ => Err(Class::Arg.into()),
        }
    }

    /// # Safety
    /// The name ends.
    pub(crate) unsafe fn set_info(&self, session: Handle, name: *const c_char) -> Answer<Info> {
        // SAFETY: the caller's.
        let size = unsafe { self.set(session, name) }?.len();
        let mut content = Content::default();
        content.set(b"mpi_size", size.to_string().as_bytes(), self.limits())?;
        Ok(self.new_info(content))
    }

    /// # Safety
    /// The name ends.
    pub(crate) unsafe fn set_group(&self, session: Handle, name: *const c_char) -> Answer<Group> {
        // SAFETY: the caller's.
        let set = unsafe { self.set(session, name) }?;
        let number = self.session(session)?.number;
        Ok(self.new_group(set.into_iter().collect::<Members>().of_session(Some(number))))
    }
}
