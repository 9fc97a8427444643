//! Error codes and classes (MPI-5.0, sections 9.4 and 9.5).

use std::ffi::{CStr, c_char, c_void};
use std::sync::PoisonError;

use bdrun_mpi_core::error::{Class, Code, CodeError, Codes};

use crate::Mpi;
use crate::calls::Errors;
use crate::face::Object;
use crate::failure::{Answer, Failure, code, number};
use crate::handle::{Comm, Errhandler, File, Session, Win};
use crate::handlers::Kind;
use crate::text;

impl From<CodeError> for Failure {
    fn from(_: CodeError) -> Self {
        Class::Arg.into()
    }
}

/// The code of a program's number.
fn known(value: i64) -> Answer<Code> {
    code(value).ok_or_else(|| Class::Arg.into())
}

impl Mpi {
    pub(crate) fn with_codes<T>(&self, f: impl FnOnce(&mut Codes) -> T) -> T {
        f(&mut self.codes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Errors for Mpi {
    unsafe fn comm_call_errhandler(&self, comm: Comm, value: i64) -> Answer<()> {
        self.comm(comm)?;
        self.call_errhandler(Object::Comm(comm), value)
    }

    unsafe fn comm_create_errhandler(&self, function: *mut c_void) -> Answer<Errhandler> {
        self.new_handler(Kind::Comm, function)
    }

    unsafe fn file_call_errhandler(&self, fh: File, value: i64) -> Answer<()> {
        if fh != File::NULL {
            self.file(fh)?;
        }
        self.call_errhandler(Object::File(fh), value)
    }

    unsafe fn file_create_errhandler(&self, function: *mut c_void) -> Answer<Errhandler> {
        self.new_handler(Kind::File, function)
    }

    unsafe fn session_call_errhandler(&self, session: Session, value: i64) -> Answer<()> {
        self.session(session)?;
        self.call_errhandler(Object::Session(session), value)
    }

    unsafe fn session_create_errhandler(&self, function: *mut c_void) -> Answer<Errhandler> {
        self.new_handler(Kind::Session, function)
    }

    unsafe fn win_call_errhandler(&self, win: Win, value: i64) -> Answer<()> {
        self.win(win)?;
        self.call_errhandler(Object::Win(win), value)
    }

    unsafe fn win_create_errhandler(&self, function: *mut c_void) -> Answer<Errhandler> {
        self.new_handler(Kind::Win, function)
    }

    unsafe fn file_get_errhandler(&self, file: File) -> Answer<Errhandler> {
        Ok(self.handle_of(match file {
            File::NULL => self.files_handler(),
            _ => self.file(file)?.handler(),
        }))
    }

    unsafe fn file_set_errhandler(&self, file: File, errhandler: Errhandler) -> Answer<()> {
        let handler = self.handler(errhandler, Kind::File)?;
        if file == File::NULL {
            *self.file_handler.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
            return Ok(());
        }
        self.file(file)?.comm().with(|state| state.handler = handler);
        Ok(())
    }

    unsafe fn win_get_errhandler(&self, win: Win) -> Answer<Errhandler> {
        Ok(self.handle_of(self.win(win)?.handler()))
    }

    unsafe fn win_set_errhandler(&self, win: Win, errhandler: Errhandler) -> Answer<()> {
        let window = self.win(win)?;
        let handler = self.handler(errhandler, Kind::Win)?;
        window.comm().with(|state| state.handler = handler);
        Ok(())
    }

    unsafe fn comm_get_errhandler(&self, comm: Comm) -> Answer<Errhandler> {
        Ok(self.handle_of(self.comm(comm)?.handler()))
    }

    unsafe fn comm_set_errhandler(&self, comm: Comm, errhandler: Errhandler) -> Answer<()> {
        let comm = self.comm(comm)?;
        let handler = self.handler(errhandler, Kind::Comm)?;
        comm.with(|state| state.handler = handler);
        Ok(())
    }

    unsafe fn session_get_errhandler(&self, session: Session) -> Answer<Errhandler> {
        Ok(self.handle_of(self.session(session)?.handler()))
    }

    unsafe fn session_set_errhandler(&self, session: Session, errhandler: Errhandler) -> Answer<()> {
        let session = self.session(session)?;
        session.set_handler(self.handler(errhandler, Kind::Session)?);
        Ok(())
    }

    unsafe fn errhandler_free(&self, errhandler: Errhandler) -> Answer<Errhandler> {
        self.free_handler(errhandler)
    }

    unsafe fn add_error_class(&self) -> Answer<i64> {
        Ok(number(self.with_codes(Codes::add_class)))
    }

    unsafe fn add_error_code(&self, class: i64) -> Answer<i64> {
        let class = known(class)?;
        Ok(number(self.with_codes(|codes| codes.add_code(class))?))
    }

    unsafe fn add_error_string(&self, value: i64, string: *const c_char) -> Answer<()> {
        if string.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: it ends.
        let string = unsafe { CStr::from_ptr(string) }.to_string_lossy();
        let code = known(value)?;
        Ok(self.with_codes(|codes| codes.set_text(code, &string))?)
    }

    unsafe fn error_class(&self, value: i64) -> Answer<i64> {
        let code = known(value)?;
        self.with_codes(|codes| codes.class(code)).map(number).ok_or_else(|| Class::Arg.into())
    }

    unsafe fn error_string(&self, value: i64, string: *mut c_char) -> Answer<i64> {
        let code = known(value)?;
        self.with_codes(|codes| {
            let said = codes.text(code).ok_or(Class::Arg)?;
            let said = match code {
                Code::Class(class) => format!("{}: {said}", class.name()),
                _ => said.into(),
            };
            // SAFETY: the caller's: there is room for the longest.
            Ok(unsafe { text::write(string, self.face().limits.error_string, said.as_bytes()) } as i64)
        })
    }

    unsafe fn remove_error_class(&self, value: i64) -> Answer<()> {
        let code = known(value)?;
        Ok(self.with_codes(|codes| codes.remove(code, true))?)
    }

    unsafe fn remove_error_code(&self, value: i64) -> Answer<()> {
        let code = known(value)?;
        Ok(self.with_codes(|codes| codes.remove(code, false))?)
    }

    unsafe fn remove_error_string(&self, value: i64) -> Answer<()> {
        let code = known(value)?;
        Ok(self.with_codes(|codes| codes.remove_text(code))?)
    }
}
