//! Error handlers (MPI-5.0, section 9.3): who is told that a call has failed, and what happens then.

use std::ffi::c_void;
use std::io::Write;
use std::sync::Arc;

use bdrun_mpi_core::error::{Class, Code, Codes};

use crate::Mpi;
use crate::entry::current_call;
use crate::face::Object;
use crate::failure::{ADDED, Answer, Failure, code, number};
use crate::handle::{Comm, Errhandler, File};

/// Whose handler is told of what has none.
const OWN: Object = Object::Comm(Comm::SELF);

/// For what kind of object a program has made a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Communicators.
    Comm,
    /// Windows.
    Win,
    /// Files.
    File,
    /// Sessions.
    Session,
}

/// A program's function.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    kind: Kind,
    at: *mut c_void,
    /// What it gets behind the code, if a language's library has made it.
    with: *mut c_void,
}

// SAFETY: the address of a function.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// What is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Handler {
    /// `MPI_ERRORS_ARE_FATAL`: the job ends.
    #[default]
    Fatal,
    /// `MPI_ERRORS_ABORT`: the processes of the object end, which here is the job as well.
    Abort,
    /// `MPI_ERRORS_RETURN`: the call returns the code.
    Return,
    /// The program's function is called, then the call returns the code.
    Calls(Arc<Function>),
}

impl Mpi {
    /// The handler of a handle, for this kind of object.
    pub(crate) fn handler(&self, handle: Errhandler, kind: Kind) -> Answer<Handler> {
        Ok(match handle {
            Errhandler::FATAL => Handler::Fatal,
            Errhandler::ABORT => Handler::Abort,
            Errhandler::RETURN => Handler::Return,
            _ => {
                let function = self.handlers.get(handle).ok_or(Class::ErrorHandler)?;
                if function.kind != kind {
                    return Err(Class::ErrorHandler.into());
                }
                Handler::Calls(function)
            }
        })
    }

    /// A handle of a handler; the program frees it.
    pub(crate) fn handle_of(&self, handler: Handler) -> Errhandler {
        match handler {
            Handler::Fatal => Errhandler::FATAL,
            Handler::Abort => Errhandler::ABORT,
            Handler::Return => Errhandler::RETURN,
            Handler::Calls(function) => self.handlers.add(function),
        }
    }

    pub(crate) fn new_handler(&self, kind: Kind, at: *mut c_void) -> Answer<Errhandler> {
        if at.is_null() {
            return Err(Class::Arg.into());
        }
        Ok(self.new_handler_with(kind, at, std::ptr::null_mut()))
    }

    /// A handler whose function gets a third argument.
    pub fn new_handler_with(&self, kind: Kind, at: *mut c_void, with: *mut c_void) -> Errhandler {
        self.handlers.add(Arc::new(Function { kind, at, with }))
    }

    pub(crate) fn free_handler(&self, handle: Errhandler) -> Answer<Errhandler> {
        let is_predefined = [Errhandler::FATAL, Errhandler::ABORT, Errhandler::RETURN].contains(&handle);
        if !is_predefined {
            self.handlers.take(handle).ok_or(Class::ErrorHandler)?;
        }
        Ok(Errhandler::NULL)
    }

    /// Who is told of a failure in a call on this object, and of what: of what has no handler, or is none,
    /// `MPI_COMM_SELF`. The program's function may use what it is told of.
    fn handler_of(&self, on: Object) -> (Handler, Object) {
        let own = match on {
            Object::Comm(comm) => self.comm(comm).map(|comm| comm.handler()),
            Object::Session(session) => self.session(session).map(|session| session.handler()),
            Object::Win(win) => self.win(win).map(|window| window.handler()),
            Object::File(file) => match self.file(file) {
                Ok(open) => Ok(open.handler()),
                Err(_) => return (self.files_handler(), Object::File(File::NULL)),
            },
            Object::Nothing | Object::Tools => Err(Class::Other.into()),
        };
        let of_own = |_| (self.world().map_or(Handler::Fatal, |world| world.own.handler()), OWN);
        own.map_or_else(of_own, |handler| (handler, on))
    }

    /// A call on this object has failed: the code that it returns, if it does.
    pub fn tell(&self, on: Object, failure: &Failure) -> i64 {
        let told = number(failure.code);
        if on == Object::Tools {
            // What a face could not convert has a class of the rest of MPI.
            let is_of_tools = told >= number(Code::Class(Class::ToolCannotInit)) && told < ADDED;
            return if is_of_tools { told } else { number(Code::Class(Class::ToolInvalid)) };
        }
        // One that was freed has a handle again while its handler is called, which may use it.
        let lent = failure.freed.as_ref().map(|freed| self.comms.add::<Comm>(freed.0.clone()));
        let on = || self.handler_of(lent.map(Object::Comm).or(failure.on).unwrap_or(on));
        let (handler, on) = failure.given.clone().unwrap_or_else(on);
        match handler {
            Handler::Fatal | Handler::Abort => self.end(failure),
            Handler::Return => {}
            Handler::Calls(function) => self.call_handler(&function, on, told),
        }
        lent.map(|lent| self.comms.take(lent));
        told
    }

    /// Calls a program's function.
    fn call_handler(&self, function: &Function, on: Object, code: i64) {
        let (mut object, mut code) = (self.face().word(on), self.face().code(code));
        // SAFETY: the program's word: a function that takes the addresses of a handle and of a code, and more
        // of which nothing is known. A handle of fewer bytes is the first ones.
        let call: unsafe extern "C" fn(*mut u64, *mut i32, ...) = unsafe { std::mem::transmute(function.at) };
        // SAFETY: as above; both live on.
        unsafe { call(&raw mut object, &raw mut code, function.with) }
    }

    /// `MPI_Comm_call_errhandler` and its like.
    pub(crate) fn call_errhandler(&self, on: Object, value: i64) -> Answer<()> {
        let known = code(value).filter(|&code| self.with_codes(|codes| codes.class(code)).is_some());
        self.tell(on, &known.ok_or(Class::Arg)?.into());
        Ok(())
    }

    /// The job ends because of a failure.
    fn end(&self, failure: &Failure) -> ! {
        let text = self.with_codes(|codes: &mut Codes| codes.text(failure.code).map(str::to_owned));
        let text = failure.text.clone().or(text).unwrap_or_default();
        let name = match failure.code {
            Code::Class(class) => class.name().to_owned(),
            code => format!("error code {}", self.face().code(number(code))),
        };
        self.die(&format!("{name}: {text}"), 1)
    }

    /// This process ends, and with it the job.
    pub fn die(&self, why: &str, code: i32) -> ! {
        let process = self.link().map_or(0, |link| link.process());
        let call = current_call();
        if let Ok(link) = self.link() {
            link.ends_in(call);
        }
        // What ends it by its name says so already.
        let call = call.filter(|call| !why.starts_with(call));
        let why = call.map_or_else(|| why.to_owned(), |call| format!("{call}: {why}"));
        flush_output();
        // If nobody reads it that changes nothing.
        let _ = writeln!(std::io::stderr(), "MPI, rank {process}: {why}");
        // SAFETY: ends the process; a handler at exit might use MPI.
        unsafe { libc::_exit(code) }
    }
}

/// What the program has printed is written, as where `exit` ends it. Other threads go on: one that has the
/// stream locked may hold it for ever, and then the bytes are lost as before. Only this stream: a thread that
/// reads holds its own.
fn flush_output() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        fn ftrylockfile(stream: *mut libc::FILE) -> libc::c_int;
        fn funlockfile(stream: *mut libc::FILE);
    }
    // SAFETY: the C library's stream, which is there from the beginning; unlocked only if locked here.
    unsafe {
        if ftrylockfile(stdout) == 0 {
            libc::fflush(stdout);
            funlockfile(stdout);
        }
    }
}
