//! The interface for tools (MPI-5.0, chapter 15): performance variables. There are no control variables, no
//! categories and no events; what asks for one is told so.
//!
//! It may be used before MPI is initialised and after it was finalised, and tells no error handler
//! (`Object::Tools`).

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bdrun_mpi_core::error::Class;

use crate::Mpi;
use crate::args::{Buffer, Handles, IntsOut};
use crate::calls::Tools as Calls;
use crate::environment::LEVELS;
use crate::failure::Answer;
use crate::handle::{Datatype, Info};
use crate::text;

/// `MPI_UNSIGNED_LONG_LONG`
const NUMBER: Datatype = Datatype(0x20f);
/// `MPI_T_VERBOSITY_USER_BASIC`
const FOR_USERS: i64 = 9;
/// `MPI_T_BIND_NO_OBJECT`
const OF_THE_PROCESS: i64 = 1;
/// `MPI_T_PVAR_CLASS_COUNTER`, `MPI_T_PVAR_CLASS_AGGREGATE`
const COUNTER: i64 = 7;
const SUM: i64 = 8;
/// Handles begin here: none of them is null or `MPI_T_PVAR_ALL_HANDLES` in any ABI.
const FIRST: usize = 0x1000;

/// A performance variable.
struct Variable {
    name: &'static str,
    class: i64,
    text: &'static str,
}

/// All of them; the place is the index.
const VARIABLES: [Variable; 2] = [
    Variable {
        name: "bdrun_messages_sent",
        class: COUNTER,
        text: "Messages of point-to-point communication that this process has sent",
    },
    Variable {
        name: "bdrun_message_bytes_sent",
        class: SUM,
        text: "Bytes of the messages of point-to-point communication that this process has sent",
    },
];

/// What a handle of a variable has seen.
#[derive(Debug, Default)]
struct Counting {
    variable: usize,
    /// While it was started before.
    counted: u64,
    /// What the variable was when it was started, while it is.
    since: Option<u64>,
}

type Session = HashMap<usize, Counting>;

/// What tools have begun.
#[derive(Debug)]
struct State {
    /// `MPI_T_init_thread` without `MPI_T_finalize`.
    users: u64,
    sessions: Vec<(usize, Session)>,
    next: usize,
}

/// The interface.
#[derive(Debug)]
pub struct Tools {
    state: Mutex<State>,
    /// As [`VARIABLES`].
    values: [AtomicU64; 2],
}

impl Tools {
    /// Not initialised.
    pub const fn new() -> Self {
        let state = State { users: 0, sessions: vec![], next: FIRST };
        Self { state: Mutex::new(state), values: [const { AtomicU64::new(0) }; 2] }
    }

    /// A message was sent.
    pub fn sent(&self, bytes: u64) {
        self.values[0].fetch_add(1, Relaxed);
        self.values[1].fetch_add(bytes, Relaxed);
    }

    fn state(&self) -> Answer<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.users > 0 { Ok(state) } else { Err(Class::ToolNotInitialized.into()) }
    }

    /// Does something with one handle of a session.
    fn with<T>(
        &self,
        session: *mut c_void,
        handle: *mut c_void,
        act: impl FnOnce(&mut Counting, u64) -> T,
    ) -> Answer<T> {
        let mut state = self.state()?;
        let counting = state.session(session)?.get_mut(&(handle as usize));
        let counting = counting.ok_or(Class::ToolInvalidHandle)?;
        let now = self.values[counting.variable].load(Relaxed);
        Ok(act(counting, now))
    }

    /// The same with all of a session, if that is said.
    fn with_all(
        &self,
        session: *mut c_void,
        handle: *mut c_void,
        all: usize,
        act: impl Fn(&mut Counting, u64),
    ) -> Answer<()> {
        if handle as usize != all {
            return self.with(session, handle, act);
        }
        let mut state = self.state()?;
        for counting in state.session(session)?.values_mut() {
            let now = self.values[counting.variable].load(Relaxed);
            act(counting, now);
        }
        Ok(())
    }

    /// How many there are of what there is nothing, and how often that has changed.
    fn number(&self) -> Answer<i64> {
        self.state().map(|_| 0)
    }

    /// Nothing has this index.
    fn no_index<T>(&self) -> Answer<T> {
        self.state().and(Err(Class::ToolInvalidIndex.into()))
    }

    fn no_name<T>(&self) -> Answer<T> {
        self.state().and(Err(Class::ToolInvalidName.into()))
    }

    fn no_handle<T>(&self) -> Answer<T> {
        self.state().and(Err(Class::ToolInvalidHandle.into()))
    }
}

impl State {
    fn new_handle(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn session(&mut self, session: *mut c_void) -> Answer<&mut Session> {
        let found = self.sessions.iter_mut().find(|(handle, _)| *handle == session as usize);
        Ok(&mut found.ok_or(Class::ToolInvalidSession)?.1)
    }
}

impl Counting {
    fn value(&self, now: u64) -> u64 {
        self.counted.wrapping_add(self.since.map_or(0, |since| now.wrapping_sub(since)))
    }

    fn set(&mut self, value: u64, now: u64) {
        (self.counted, self.since) = (value, self.since.map(|_| now));
    }
}

/// The variable of an index.
fn variable(index: i64) -> Answer<&'static Variable> {
    let found = usize::try_from(index).ok().and_then(|index| VARIABLES.get(index));
    found.ok_or_else(|| Class::ToolInvalidIndex.into())
}

/// Writes a string as tools want it (section 15.3.3); what its length is then.
///
/// # Safety
/// It is null or has room for so many bytes.
unsafe fn tell(to: *mut c_char, room: i64, said: &str) -> i64 {
    match usize::try_from(room) {
        Ok(room @ 1..) if !to.is_null() => {
            // SAFETY: the caller's.
            let written = unsafe { text::write(to, room, said.as_bytes()) };
            written as i64 + 1
        }
        // Only the length is wanted.
        _ => said.len() as i64 + 1,
    }
}

/// Writes to where something is wanted.
///
/// # Safety
/// It is null or there is room.
unsafe fn put(to: *mut c_void, value: usize) {
    if !to.is_null() {
        // SAFETY: the caller's.
        unsafe { to.cast::<usize>().write(value) }
    }
}

/// Where a number is read or written.
fn place(buffer: Buffer) -> Answer<*mut u64> {
    match buffer {
        Buffer::At(at) if !at.is_null() => Ok(at.cast()),
        _ => Err(Class::ToolInvalid.into()),
    }
}

/// Calls that say nothing but what this function says.
macro_rules! none {
    ($says:ident $($call:ident($($given:ty),*) -> $answer:ty;)*) => {
        $(unsafe fn $call(&self, $(_: $given),*) -> Answer<$answer> {
            self.tools.$says()
        })*
    };
}

impl Calls for Mpi {
    unsafe fn t_init_thread(&self, required: i64) -> Answer<i64> {
        if !LEVELS.contains(&required) {
            return Err(Class::ToolInvalid.into());
        }
        self.tools.state.lock().unwrap_or_else(PoisonError::into_inner).users += 1;
        Ok(required)
    }

    unsafe fn t_finalize(&self) -> Answer<()> {
        let mut state = self.tools.state()?;
        state.users -= 1;
        if state.users == 0 {
            state.sessions.clear();
        }
        Ok(())
    }

    unsafe fn t_pvar_get_num(&self) -> Answer<i64> {
        self.tools.state().map(|_| VARIABLES.len() as i64)
    }

    unsafe fn t_pvar_get_index(&self, name: *const c_char, var_class: i64) -> Answer<i64> {
        let _state = self.tools.state()?;
        if name.is_null() {
            return Err(Class::ToolInvalidName.into());
        }
        // SAFETY: the caller's: it ends.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let is_it = |one: &Variable| one.name.as_bytes() == name && one.class == var_class;
        let index = VARIABLES.iter().position(is_it).ok_or(Class::ToolInvalidName)?;
        Ok(index as i64)
    }

    unsafe fn t_pvar_get_info(
        &self,
        pvar_index: i64,
        name: *mut c_char,
        name_len: i64,
        enumtype: *mut c_void,
        desc: *mut c_char,
        desc_len: i64,
    ) -> Answer<(i64, i64, i64, Datatype, i64, i64, bool, bool, bool)> {
        let _state = self.tools.state()?;
        let Variable { name: said, class, text } = variable(pvar_index)?;
        // SAFETY: the caller's. MPI_T_ENUM_NULL
        let (name_len, desc_len) = unsafe {
            put(enumtype, 0);
            (tell(name, name_len, said), tell(desc, desc_len, text))
        };
        let (readonly, continuous, atomic) = (false, false, true);
        Ok((name_len, FOR_USERS, *class, NUMBER, desc_len, OF_THE_PROCESS, readonly, continuous, atomic))
    }

    unsafe fn t_pvar_session_create(&self, session: *mut c_void) -> Answer<()> {
        let mut state = self.tools.state()?;
        if session.is_null() {
            return Err(Class::ToolInvalid.into());
        }
        let handle = state.new_handle();
        state.sessions.push((handle, Session::new()));
        // SAFETY: the caller's.
        unsafe { put(session, handle) };
        Ok(())
    }

    unsafe fn t_pvar_session_free(&self, session: *mut c_void) -> Answer<()> {
        let mut state = self.tools.state()?;
        if session.is_null() {
            return Err(Class::ToolInvalidSession.into());
        }
        // SAFETY: the caller's: a handle.
        let handle = unsafe { session.cast::<usize>().read() };
        state.session(handle as *mut c_void)?;
        state.sessions.retain(|(other, _)| *other != handle);
        // SAFETY: as above. MPI_T_PVAR_SESSION_NULL
        unsafe { put(session, 0) };
        Ok(())
    }

    unsafe fn t_pvar_handle_alloc(
        &self,
        session: *mut c_void,
        pvar_index: i64,
        _: Buffer,
        handle: *mut c_void,
    ) -> Answer<i64> {
        let mut state = self.tools.state()?;
        let number = state.new_handle();
        let session = state.session(session)?;
        variable(pvar_index)?;
        if handle.is_null() {
            return Err(Class::ToolInvalid.into());
        }
        session.insert(number, Counting { variable: pvar_index as usize, ..Counting::default() });
        // SAFETY: the caller's.
        unsafe { put(handle, number) };
        Ok(1)
    }

    unsafe fn t_pvar_handle_free(&self, session: *mut c_void, handle: *mut c_void) -> Answer<()> {
        let mut state = self.tools.state()?;
        let session = state.session(session)?;
        if handle.is_null() {
            return Err(Class::ToolInvalidHandle.into());
        }
        // SAFETY: the caller's: a handle.
        let number = unsafe { handle.cast::<usize>().read() };
        session.remove(&number).ok_or(Class::ToolInvalidHandle)?;
        // SAFETY: as above. MPI_T_PVAR_HANDLE_NULL
        unsafe { put(handle, 0) };
        Ok(())
    }

    unsafe fn t_pvar_start(&self, session: *mut c_void, handle: *mut c_void) -> Answer<()> {
        self.tools.with_all(session, handle, (self.face().all_handles)(), |counting, now| {
            counting.since.get_or_insert(now);
        })
    }

    unsafe fn t_pvar_stop(&self, session: *mut c_void, handle: *mut c_void) -> Answer<()> {
        self.tools.with_all(session, handle, (self.face().all_handles)(), |counting, now| {
            (counting.counted, counting.since) = (counting.value(now), None);
        })
    }

    unsafe fn t_pvar_reset(&self, session: *mut c_void, handle: *mut c_void) -> Answer<()> {
        let all = (self.face().all_handles)();
        self.tools.with_all(session, handle, all, |counting, now| counting.set(0, now))
    }

    unsafe fn t_pvar_read(&self, session: *mut c_void, handle: *mut c_void, buf: Buffer) -> Answer<()> {
        let value = self.tools.with(session, handle, |counting, now| counting.value(now))?;
        // SAFETY: the caller's: there is room for one element.
        unsafe { place(buf)?.write_unaligned(value) };
        Ok(())
    }

    unsafe fn t_pvar_readreset(&self, session: *mut c_void, handle: *mut c_void, buf: Buffer) -> Answer<()> {
        let at = place(buf);
        let value = self.tools.with(session, handle, |counting, now| {
            let value = counting.value(now);
            if at.is_ok() {
                counting.set(0, now);
            }
            value
        })?;
        // SAFETY: the caller's: there is room for one element.
        unsafe { at?.write_unaligned(value) };
        Ok(())
    }

    unsafe fn t_pvar_write(&self, session: *mut c_void, handle: *mut c_void, buf: Buffer) -> Answer<()> {
        let at = place(buf);
        self.tools.with(session, handle, |counting, now| {
            // SAFETY: the caller's: one element.
            at.map(|at| counting.set(unsafe { at.read_unaligned() }, now))
        })?
    }

    // There are no control variables, categories and events, and nothing that events come from.

    none! { number
        t_cvar_get_num() -> i64;
        t_category_changed() -> i64;
        t_category_get_num() -> i64;
        t_source_get_num() -> i64;
        t_event_get_num() -> i64;
    }

    none! { no_index
        t_cvar_get_info(i64, *mut c_char, i64, *mut c_void, *mut c_char, i64) -> (i64, i64, Datatype, i64, i64, i64);
        t_cvar_handle_alloc(i64, Buffer, *mut c_void) -> i64;
        t_category_get_info(i64, *mut c_char, i64, *mut c_char, i64) -> (i64, i64, i64, i64, i64);
        t_category_get_num_events(i64) -> i64;
        t_category_get_categories(i64, i64, IntsOut) -> ();
        t_category_get_cvars(i64, i64, IntsOut) -> ();
        t_category_get_events(i64, i64, IntsOut) -> ();
        t_category_get_pvars(i64, i64, IntsOut) -> ();
        t_source_get_info(i64, *mut c_char, i64, *mut c_char, i64, *mut c_void) -> (i64, i64, i64, i64, Info);
        t_source_get_timestamp(i64) -> i64;
        t_event_get_info(i64, *mut c_char, i64, Handles<Datatype>, IntsOut, *mut c_void, *mut c_char, i64) -> (i64, i64, i64, Info, i64, i64);
        t_event_handle_alloc(i64, Buffer, Info, *mut c_void) -> ();
    }

    none! { no_name
        t_cvar_get_index(*const c_char) -> i64;
        t_category_get_index(*const c_char) -> i64;
        t_event_get_index(*const c_char) -> i64;
    }

    none! { no_handle
        t_cvar_handle_free(*mut c_void) -> ();
        t_cvar_read(*mut c_void, Buffer) -> ();
        t_cvar_write(*mut c_void, Buffer) -> ();
        t_enum_get_info(*mut c_void, *mut c_char, i64) -> (i64, i64);
        t_enum_get_item(*mut c_void, i64, *mut c_char, i64) -> (i64, i64);
        t_event_callback_get_info(*mut c_void, *mut c_void) -> Info;
        t_event_callback_set_info(*mut c_void, *mut c_void, Info) -> ();
        t_event_copy(*mut c_void, Buffer) -> ();
        t_event_get_source(*mut c_void) -> i64;
        t_event_get_timestamp(*mut c_void) -> i64;
        t_event_handle_free(*mut c_void, Buffer, *mut c_void) -> ();
        t_event_handle_get_info(*mut c_void) -> Info;
        t_event_handle_set_info(*mut c_void, Info) -> ();
        t_event_read(*mut c_void, i64, Buffer) -> ();
        t_event_register_callback(*mut c_void, *mut c_void, Info, Buffer, *mut c_void) -> ();
        t_event_set_dropped_handler(*mut c_void, *mut c_void) -> ();
    }
}
