//! The calls of files.

use std::ffi::{CStr, c_char, c_void};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};

use bdrun_ipc::far::Change;
use bdrun_mpi_core::datatype::Type;
use bdrun_mpi_core::error::Class;

use super::representation::{Made, Representation};
use super::transfer::Here;
use super::transfer::Way::{self, Read, Write};
use super::view::View;
use super::{Open, SEQUENTIAL, Seen, Split, failed, path_of};
use crate::Mpi;
use crate::args::{Buffer, Status};
use crate::calls::Files;
use crate::failure::{Answer, Failure};
use crate::handle::{Comm, Datatype, File, Group, Info, Request};
use crate::hints;
use crate::operation::{Done, Operation};
use crate::text;

/// `MPI_SEEK_CUR`, `MPI_SEEK_END`, `MPI_SEEK_SET`.
const FROM_HERE: i64 = 401;
const FROM_END: i64 = 402;
const FROM_BEGIN: i64 = 403;
/// `MPI_DISPLACEMENT_CURRENT`.
const HERE: i64 = -1;

/// A buffer of the program, as the calls say it.
type Memory = (Buffer, i64, Datatype);

impl Open {
    /// Of a file that is read or written from one end to the other nothing may be used but the pointer that
    /// all share, and that may not be moved or asked for.
    fn may_go_anywhere(&self) -> Answer<()> {
        if self.mode & SEQUENTIAL == 0 {
            return Ok(());
        }
        let text = Some("MPI_MODE_SEQUENTIAL permits the shared pointer alone".into());
        Err(Failure { text, ..Class::UnsupportedOperation.into() })
    }

    fn view(&self) -> View {
        self.seen().view.clone()
    }

    /// A place, in units of the view.
    fn sought(&self, here: i64, offset: i64, whence: i64) -> Answer<i64> {
        let from = match whence {
            FROM_BEGIN => 0,
            FROM_HERE => here,
            FROM_END => {
                let view = self.view();
                view.seen_before(self.size()?).div_ceil(view.unit() as u64) as i64
            }
            _ => return Err(Class::Arg.into()),
        };
        from.checked_add(offset).filter(|&place| place >= 0).ok_or_else(|| Class::Arg.into())
    }
}

impl Mpi {
    /// What a call of a file with this view is given.
    fn here(&self, view: &View, (buffer, count, datatype): Memory) -> Answer<Here> {
        Here::new(&self.types, view, self.span(buffer, count, datatype)?, datatype)
    }

    /// From an explicit place on.
    unsafe fn file_at(&self, fh: File, way: Way, offset: i64, here: Memory) -> Answer<Status> {
        let open = self.file(fh)?;
        open.may_go_anywhere()?;
        let view = open.view();
        let here = self.here(&view, here)?;
        // SAFETY: the caller's.
        Ok(unsafe { open.transfer(&self.types, way, (&view, offset), &here) }?.status)
    }

    /// From this process's pointer on.
    unsafe fn file_here(&self, fh: File, way: Way, here: Memory) -> Answer<Status> {
        let open = self.file(fh)?;
        open.may_go_anywhere()?;
        // Threads that use the same pointer do so one after the other.
        let mut seen = open.seen();
        let here = self.here(&seen.view, here)?;
        // SAFETY: the caller's.
        let moved = unsafe { open.transfer(&self.types, way, (&seen.view, seen.position), &here) }?;
        seen.position += moved.bytes as i64 / seen.view.unit();
        Ok(moved.status)
    }

    /// From the pointer on that all share.
    unsafe fn file_shared(&self, fh: File, way: Way, here: Memory) -> Answer<Status> {
        let open = self.file(fh)?;
        open.permits(way)?;
        let view = open.view();
        let here = self.here(&view, here)?;
        let units = (here.stored as i64 + view.unit() - 1) / view.unit();
        let from = self.change_shared(&open, Change::Add(units))?;
        // SAFETY: the caller's.
        Ok(unsafe { open.transfer(&self.types, way, (&view, from), &here) }?.status)
    }

    /// The same in the order of ranks.
    unsafe fn file_ordered(&self, fh: File, way: Way, name: &'static str, here: Memory) -> Answer<Status> {
        let open = self.file(fh)?;
        let view = open.view();
        let here = open.permits(way).and_then(|()| self.here(&view, here));
        let bytes = here.as_ref().map_or(0, |here| here.stored as i64);
        let units = (bytes + view.unit() - 1) / view.unit();
        let said = self.said_of_file(&open, name, &[units])?;
        let before = |rank: usize| said[..rank].iter().map(|said| said[0]).sum::<i64>();
        // Only now: who has come last may have moved the pointer by itself before.
        let first = open.comm.rank == 0;
        let begin = first.then(|| self.change_shared(&open, Change::Add(before(said.len()))));
        let told = begin.as_ref().map_or(0, |begin| begin.as_ref().copied().unwrap_or(-1));
        let told = self.said_of_file(&open, name, &[told])?[0][0];
        begin.transpose()?;
        if told < 0 {
            return Err(Class::Io.into());
        }
        let from = told + before(open.comm.rank);
        // SAFETY: the caller's.
        Ok(unsafe { open.transfer(&self.types, way, (&view, from), &here?) }?.status)
    }

    /// The representation of a name.
    fn representation(&self, name: &[u8]) -> Answer<Representation> {
        match name {
            b"native" | b"internal" => return Ok(Representation::Native),
            b"external32" => return Ok(Representation::External),
            _ => {}
        }
        let known = self.datareps.lock().unwrap_or_else(PoisonError::into_inner);
        let made = known.iter().find(|made| made.name == name);
        Ok(Representation::Made(made.ok_or(Class::UnsupportedDatarep)?.clone()))
    }

    /// What was done at once has a request all the same.
    fn file_request(&self, fh: File, done: Answer<Status>) -> Answer<Request> {
        let (open, status) = (self.file(fh)?, done?);
        Ok(self.new_request(open.comm.clone(), Operation::complete(Done { status, failure: None })))
    }

    /// Does what a split collective begins.
    fn file_begin(&self, fh: File, name: &'static str, done: impl FnOnce() -> Answer<Status>) -> Answer<()> {
        let open = self.file(fh)?;
        let mut split = open.split.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Split { name, .. }) = &*split {
            let text = Some(format!("{name}_begin of this file has no end yet"));
            return Err(Failure { text, ..Class::Other.into() });
        }
        *split = Some(Split { name, done: done() });
        Ok(())
    }

    /// What it was.
    fn file_end(&self, fh: File, name: &'static str) -> Answer<Status> {
        let open = self.file(fh)?;
        let mut split = open.split.lock().unwrap_or_else(PoisonError::into_inner);
        match &*split {
            Some(Split { name: begun, .. }) if *begun == name => {}
            _ => {
                let text = Some(format!("{name}_begin of this file was not called"));
                return Err(Failure { text, ..Class::Other.into() });
            }
        }
        split.take().ok_or(Class::Internal)?.done
    }

    /// Something that the first process does for all, who know what became of it.
    pub(super) fn file_by_first(
        &self,
        open: &Open,
        name: &'static str,
        said: i64,
        act: impl FnOnce() -> std::io::Result<()>,
    ) -> Answer<()> {
        let all = self.said_of_file(open, name, &[said])?;
        if all.iter().any(|other| other[..] != [said]) {
            return Err(Class::NotSame.into());
        }
        let error = (open.comm.rank == 0).then(act).and_then(Result::err);
        let code = error.map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        let said = self.said_of_file(open, name, &[code.into()])?;
        match said[0][..] {
            [0] => Ok(()),
            [code] => Err(failed(&open.path, &std::io::Error::from_raw_os_error(code as i32))),
            _ => Err(Class::Internal.into()),
        }
    }
}

/// Calls that move data: from an explicit place on.
macro_rules! at {
    ($call:ident, $way:ident, $answer:ty, |$mpi:ident, $fh:ident, $done:ident| $then:expr) => {
        unsafe fn $call(
            &self,
            $fh: File,
            offset: i64,
            buf: Buffer,
            count: i64,
            datatype: Datatype,
        ) -> Answer<$answer> {
            // SAFETY: the caller's.
            let $done = || unsafe { self.file_at($fh, $way, offset, (buf, count, datatype)) };
            let $mpi = self;
            $then
        }
    };
}

/// The same from a pointer on; behind the kind of access what else it takes.
macro_rules! here {
    ($call:ident, $how:ident($($how_arg:expr),*), $answer:ty, |$mpi:ident, $fh:ident, $done:ident| $then:expr) => {
        unsafe fn $call(&self, $fh: File, buf: Buffer, count: i64, datatype: Datatype) -> Answer<$answer> {
            // SAFETY: the caller's.
            let $done = || unsafe { self.$how($fh, $($how_arg,)* (buf, count, datatype)) };
            let $mpi = self;
            $then
        }
    };
}

/// The end of a split collective.
macro_rules! end {
    ($call:ident, $name:literal) => {
        unsafe fn $call(&self, fh: File, _: Buffer) -> Answer<Status> {
            self.file_end(fh, $name)
        }
    };
}

impl Files for Mpi {
    at!(file_read_at, Read, Status, |_mpi, fh, done| done());
    at!(file_read_at_all, Read, Status, |_mpi, fh, done| done());
    at!(file_iread_at, Read, Request, |mpi, fh, done| mpi.file_request(fh, done()));
    at!(file_iread_at_all, Read, Request, |mpi, fh, done| mpi.file_request(fh, done()));
    at!(file_read_at_all_begin, Read, (), |mpi, fh, done| mpi.file_begin(fh, "MPI_File_read_at_all", done));
    end!(file_read_at_all_end, "MPI_File_read_at_all");
    here!(file_read, file_here(Read), Status, |_mpi, fh, done| done());
    here!(file_read_all, file_here(Read), Status, |_mpi, fh, done| done());
    here!(file_iread, file_here(Read), Request, |mpi, fh, done| mpi.file_request(fh, done()));
    here!(file_iread_all, file_here(Read), Request, |mpi, fh, done| mpi.file_request(fh, done()));
    here!(file_read_all_begin, file_here(Read), (), |mpi, fh, done| mpi.file_begin(
        fh,
        "MPI_File_read_all",
        done
    ));
    end!(file_read_all_end, "MPI_File_read_all");
    here!(file_read_shared, file_shared(Read), Status, |_mpi, fh, done| done());
    here!(file_iread_shared, file_shared(Read), Request, |mpi, fh, done| mpi.file_request(fh, done()));
    here!(file_read_ordered, file_ordered(Read, "MPI_File_read_ordered"), Status, |_mpi, fh, done| done());
    here!(file_read_ordered_begin, file_ordered(Read, "MPI_File_read_ordered"), (), |mpi, fh, done| mpi
        .file_begin(fh, "MPI_File_read_ordered", done));
    end!(file_read_ordered_end, "MPI_File_read_ordered");

    at!(file_write_at, Write, Status, |_mpi, fh, done| done());
    at!(file_write_at_all, Write, Status, |_mpi, fh, done| done());
    at!(file_iwrite_at, Write, Request, |mpi, fh, done| mpi.file_request(fh, done()));
    at!(file_iwrite_at_all, Write, Request, |mpi, fh, done| mpi.file_request(fh, done()));
    at!(file_write_at_all_begin, Write, (), |mpi, fh, done| mpi.file_begin(
        fh,
        "MPI_File_write_at_all",
        done
    ));
    end!(file_write_at_all_end, "MPI_File_write_at_all");
    here!(file_write, file_here(Write), Status, |_mpi, fh, done| done());
    here!(file_write_all, file_here(Write), Status, |_mpi, fh, done| done());
    here!(file_iwrite, file_here(Write), Request, |mpi, fh, done| mpi.file_request(fh, done()));
    here!(file_iwrite_all, file_here(Write), Request, |mpi, fh, done| mpi.file_request(fh, done()));
    here!(file_write_all_begin, file_here(Write), (), |mpi, fh, done| mpi.file_begin(
        fh,
        "MPI_File_write_all",
        done
    ));
    end!(file_write_all_end, "MPI_File_write_all");
    here!(file_write_shared, file_shared(Write), Status, |_mpi, fh, done| done());
    here!(file_iwrite_shared, file_shared(Write), Request, |mpi, fh, done| mpi.file_request(fh, done()));
    here!(file_write_ordered, file_ordered(Write, "MPI_File_write_ordered"), Status, |_mpi, fh, done| done());
    here!(file_write_ordered_begin, file_ordered(Write, "MPI_File_write_ordered"), (), |mpi, fh, done| mpi
        .file_begin(fh, "MPI_File_write_ordered", done));
    end!(file_write_ordered_end, "MPI_File_write_ordered");

    unsafe fn file_close(&self, fh: File) -> Answer<File> {
        self.close_file(fh)
    }

    unsafe fn file_delete(&self, filename: *const c_char, info: Info) -> Answer<()> {
        self.content_of(info)?;
        // SAFETY: the caller's.
        let path = unsafe { path_of(filename) }?;
        std::fs::remove_file(&path).map_err(|error| failed(&path, &error))
    }

    unsafe fn file_get_amode(&self, fh: File) -> Answer<i64> {
        Ok(self.file(fh)?.mode)
    }

    unsafe fn file_get_atomicity(&self, fh: File) -> Answer<bool> {
        Ok(self.file(fh)?.atomic.load(SeqCst))
    }

    unsafe fn file_get_byte_offset(&self, fh: File, offset: i64) -> Answer<i64> {
        let open = self.file(fh)?;
        open.may_go_anywhere()?;
        let (view, units) = (open.view(), u64::try_from(offset).map_err(|_| Class::Arg)?);
        Ok(view.byte_at(units.checked_mul(view.unit() as u64).ok_or(Class::ValueTooLarge)?))
    }

    unsafe fn file_get_group(&self, fh: File) -> Answer<Group> {
        Ok(self.new_group(self.file(fh)?.comm.group.clone()))
    }

    unsafe fn file_get_info(&self, fh: File) -> Answer<Info> {
        let content = self.hints_told(&self.file(fh)?.comm, hints::FILE)?;
        Ok(self.new_info(content))
    }

    unsafe fn file_get_position(&self, fh: File) -> Answer<i64> {
        let open = self.file(fh)?;
        open.may_go_anywhere()?;
        Ok(open.seen().position)
    }

    unsafe fn file_get_position_shared(&self, fh: File) -> Answer<i64> {
        let open = self.file(fh)?;
        open.may_go_anywhere()?;
        self.shared(&open)
    }

    unsafe fn file_get_size(&self, fh: File) -> Answer<i64> {
        self.file(fh)?.size()
    }

    unsafe fn file_get_type_extent(&self, fh: File, datatype: Datatype) -> Answer<i64> {
        let view = self.file(fh)?.view();
        let of = self.types.committed(datatype)?;
        Ok(view.representation.stored(&self.types, &of)?.extent())
    }

    unsafe fn file_get_view(&self, fh: File, datarep: *mut c_char) -> Answer<(i64, Datatype, Datatype)> {
        let open = self.file(fh)?;
        let seen = open.seen();
        if datarep.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: there is room for the longest.
        unsafe { text::write(datarep, self.face().limits.datarep, &seen.datarep) };
        let [etype, filetype] = [&seen.etype, &seen.filetype].map(|of| self.types.again_committed(of));
        Ok((seen.view.disp, etype?, filetype?))
    }

    unsafe fn file_open(&self, comm: Comm, filename: *const c_char, amode: i64, info: Info) -> Answer<File> {
        // SAFETY: the caller's.
        let path = unsafe { path_of(filename) }?;
        self.open_file(comm, &path, amode, info)
    }

    unsafe fn file_preallocate(&self, fh: File, size: i64) -> Answer<()> {
        let open = self.file(fh)?;
        open.may_go_anywhere()?;
        open.permits(Write)?;
        if size < 0 {
            return Err(Class::Arg.into());
        }
        self.file_by_first(&open, "MPI_File_preallocate", size, || {
            // SAFETY: a file of ours.
            match unsafe { libc::posix_fallocate(open.file.as_raw_fd(), 0, size) } {
                0 => Ok(()),
                // Of nothing, which is all that was wanted.
                libc::EINVAL if size == 0 => Ok(()),
                error => Err(std::io::Error::from_raw_os_error(error)),
            }
        })
    }

    unsafe fn file_seek(&self, fh: File, offset: i64, whence: i64) -> Answer<()> {
        let open = self.file(fh)?;
        open.may_go_anywhere()?;
        let here = open.seen().position;
        let place = open.sought(here, offset, whence)?;
        open.seen().position = place;
        Ok(())
    }

    unsafe fn file_seek_shared(&self, fh: File, offset: i64, whence: i64) -> Answer<()> {
        let open = self.file(fh)?;
        open.may_go_anywhere()?;
        let said = self.said_of_file(&open, "MPI_File_seek_shared", &[offset, whence])?;
        if said.iter().any(|other| other[..] != [offset, whence]) {
            return Err(Class::NotSame.into());
        }
        let place = open.sought(self.shared(&open)?, offset, whence);
        // All have seen where it was before it moves.
        self.all_are_here(&open, "MPI_File_seek_shared")?;
        if let (0, Ok(place)) = (open.comm.rank, &place) {
            self.set_shared(&open, *place)?;
        }
        self.all_are_here(&open, "MPI_File_seek_shared")?;
        place.map(drop)
    }

    unsafe fn file_set_atomicity(&self, fh: File, flag: bool) -> Answer<()> {
        let open = self.file(fh)?;
        let said = self.said_of_file(&open, "MPI_File_set_atomicity", &[flag.into()])?;
        if said.iter().any(|other| other[..] != [i64::from(flag)]) {
            return Err(Class::NotSame.into());
        }
        open.atomic.store(flag, SeqCst);
        Ok(())
    }

    unsafe fn file_set_info(&self, fh: File, info: Info) -> Answer<()> {
        let open = self.file(fh)?;
        let content = self.with_info(info, |content| Ok(content.clone()))?;
        open.comm.set_hints(&content);
        Ok(())
    }

    unsafe fn file_set_size(&self, fh: File, size: i64) -> Answer<()> {
        let open = self.file(fh)?;
        open.may_go_anywhere()?;
        open.permits(Write)?;
        let size_in_bytes = u64::try_from(size).map_err(|_| Class::Arg)?;
        self.file_by_first(&open, "MPI_File_set_size", size, || open.file.set_len(size_in_bytes))
    }

    unsafe fn file_set_view(
        &self,
        fh: File,
        disp: i64,
        etype: Datatype,
        filetype: Datatype,
        datarep: *const c_char,
        info: Info,
    ) -> Answer<()> {
        const NAME: &str = "MPI_File_set_view";
        let (open, hints) = (self.file(fh)?, self.content_of(info)?);
        if datarep.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: it ends.
        let datarep = unsafe { CStr::from_ptr(datarep) }.to_bytes().to_ascii_lowercase();
        // Where the pointer is that all share is the same for all once nobody moves it.
        if open.mode & SEQUENTIAL != 0 {
            self.all_are_here(&open, NAME)?;
        }
        let checked = || {
            let (etype, filetype) = (self.types.committed(etype)?, self.types.committed(filetype)?);
            let representation = self.representation(&datarep)?;
            let disp = match disp {
                HERE if open.mode & SEQUENTIAL != 0 => {
                    let view = open.view();
                    view.byte_at(self.shared(&open)? as u64 * view.unit() as u64)
                }
                0.. => disp,
                _ => return Err(Class::Arg.into()),
            };
            let said = (etype.clone(), filetype.clone());
            let stored = |of: &Type| representation.stored(&self.types, of);
            let (etype, filetype) = (stored(&etype)?, stored(&filetype)?);
            // Only whole units are seen, in rising order.
            let fits = etype.size() > 0 && filetype.size() % etype.size() == 0 && filetype.extent() >= 0;
            if !fits {
                return Err(Failure::from(Class::Arg));
            }
            Ok((View { disp, etype, filetype, representation }, said))
        };
        let checked = checked();
        let mut same = vec![checked.as_ref().map_or(0, |(view, _)| view.unit())];
        same.extend(datarep.iter().map(|&byte| i64::from(byte)));
        let said = self.said_of_file(&open, NAME, &same)?;
        let (view, (etype, filetype)) = checked?;
        if said.iter().any(|other| *other != same) {
            return Err(Class::NotSame.into());
        }
        *open.seen() = Seen { view, etype, filetype, datarep, position: 0 };
        open.comm.set_hints(&hints);
        if open.comm.rank == 0 {
            self.set_shared(&open, 0)?;
        }
        self.all_are_here(&open, NAME)
    }

    unsafe fn file_sync(&self, fh: File) -> Answer<()> {
        let open = self.file(fh)?;
        let synced = open.sync();
        self.all_are_here(&open, "MPI_File_sync")?;
        synced
    }

    unsafe fn register_datarep(
        &self,
        datarep: *const c_char,
        read: *mut c_void,
        write: *mut c_void,
        extent: *mut c_void,
        state: *mut c_void,
        large: bool,
    ) -> Answer<()> {
        if datarep.is_null() || extent.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: it ends.
        let name = unsafe { CStr::from_ptr(datarep) }.to_bytes().to_ascii_lowercase();
        if name.is_empty() || name.len() >= self.face().limits.datarep {
            return Err(Class::Arg.into());
        }
        let mut known = self.datareps.lock().unwrap_or_else(PoisonError::into_inner);
        let is_predefined = [&b"native"[..], b"internal", b"external32"].contains(&&name[..]);
        if is_predefined || known.iter().any(|made| made.name == name) {
            return Err(Class::DupDatarep.into());
        }
        let [read, write, extent, state] = [read, write, extent, state].map(|at| at as usize);
        known.push(Arc::new(Made { name, read, write, extent, state, large, face: self.face() }));
        Ok(())
    }
}
