//! Files (MPI-5.0, chapter 14), of the node's file systems.
//!
//! Each process opens the file for itself. Collective accesses are those of each process, as they see one
//! another's at once; the pointer that all share lies in memory that all share.
//!
//! | question | file |
//! |---|---|
//! | what is an open file? how is it opened and closed? | here |
//! | which of its bytes does a process see? | `view.rs` |
//! | how are they read and written? | `transfer.rs` |
//! | how are they converted? | `representation.rs` |
//! | what do the calls check? | `calls.rs` |

mod calls;
pub mod representation;
mod transfer;
mod view;

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bdrun_ipc::far::Change;
use bdrun_mpi_core::datatype::{Basic, Datatype as Tree, Type};
use bdrun_mpi_core::error::Class;

use representation::Representation;
use view::View;

use crate::Mpi;
use crate::args::Status;
use crate::comm::Communicator;
use crate::failure::{Answer, Failure};
use crate::handle::{Comm, File, Info};
use crate::handlers::Handler;

/// `MPI_MODE_APPEND` and its like.
const APPEND: i64 = 1;
const CREATE: i64 = 2;
const DELETE_ON_CLOSE: i64 = 4;
const EXCLUSIVE: i64 = 8;
const READ_ONLY: i64 = 16;
const READ_WRITE: i64 = 32;
const SEQUENTIAL: i64 = 64;
const UNIQUE: i64 = 128;
const WRITE_ONLY: i64 = 256;

/// An open file.
#[derive(Debug)]
pub struct Open {
    comm: Arc<Communicator>,
    file: std::fs::File,
    path: PathBuf,
    mode: i64,
    /// What is done is seen at once, and whole.
    atomic: AtomicBool,
    seen: Mutex<Seen>,
    /// The pointer that all share, in units of the view, where there is nobody else: others have the word of
    /// their communicator's place.
    own: AtomicI64,
    /// What a split collective has done, until its end is called.
    split: Mutex<Option<Split>>,
}

/// What a process sees of it.
#[derive(Debug)]
struct Seen {
    view: View,
    /// The datatypes and the representation that the program has said.
    etype: Type,
    filetype: Type,
    datarep: Vec<u8>,
    /// Its own pointer, in units of the view.
    position: i64,
}

/// A split collective that was begun.
#[derive(Debug)]
struct Split {
    name: &'static str,
    done: Answer<Status>,
}

impl Open {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who is told of failures.
    pub fn handler(&self) -> Handler {
        self.comm.handler()
    }

    /// What was written is on storage, if there is any behind it: a pipe or a device is none.
    fn sync(&self) -> Answer<()> {
        match self.file.sync_all() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced.map_err(|error| failed(&self.path, &error)),
        }
    }

    /// Its communicator has its handler and its hints.
    pub fn comm(&self) -> &Communicator {
        &self.comm
    }

    fn size(&self) -> Answer<i64> {
        Ok(self.file.metadata().map_err(|error| failed(&self.path, &error))?.len() as i64)
    }
}

/// What went wrong with a file.
fn failed(path: &Path, error: &io::Error) -> Failure {
    let class = match error.raw_os_error() {
        Some(libc::ENOENT) => Class::NoSuchFile,
        Some(libc::EEXIST) => Class::FileExists,
        Some(libc::EACCES | libc::EPERM) => Class::Access,
        Some(libc::ENOSPC) => Class::NoSpace,
        Some(libc::EDQUOT) => Class::Quota,
        Some(libc::EROFS) => Class::ReadOnly,
        Some(libc::ENAMETOOLONG | libc::ENOTDIR | libc::EISDIR | libc::ELOOP | libc::EINVAL) => {
            Class::BadFile
        }
        Some(libc::ETXTBSY | libc::EBUSY) => Class::FileInUse,
        _ => Class::Io,
    };
    Failure { text: Some(format!("{}: {error}", path.display())), ..class.into() }
}

/// Whether a mode is one that the standard has.
fn check(mode: i64) -> Answer<()> {
    let known = APPEND | CREATE | DELETE_ON_CLOSE | EXCLUSIVE | READ_ONLY | READ_WRITE | SEQUENTIAL;
    let has = |flags: i64| mode & flags != 0;
    let one = [READ_ONLY, READ_WRITE, WRITE_ONLY].into_iter().filter(|&way| has(way)).count() == 1;
    let is_legal = one
        && mode & !(known | UNIQUE | WRITE_ONLY) == 0
        && !(has(READ_ONLY) && has(CREATE | EXCLUSIVE))
        && !(has(READ_WRITE) && has(SEQUENTIAL));
    if is_legal { Ok(()) } else { Err(Class::Amode.into()) }
}

fn open(path: &Path, mode: i64, may_create: bool) -> io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(mode & (READ_ONLY | READ_WRITE) != 0).write(mode & (WRITE_ONLY | READ_WRITE) != 0);
    if may_create && mode & CREATE != 0 {
        options.create(true).create_new(mode & EXCLUSIVE != 0).mode(0o666);
    }
    options.open(path)
}

/// A program's name of a file: a prefix says for which file system it is, and there is one.
///
/// # Safety
/// The name ends.
unsafe fn path_of(name: *const std::ffi::c_char) -> Answer<PathBuf> {
    if name.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let known = [&b"ufs:"[..], b"nfs:", b"file:", b"testfs:"];
    let name = known.iter().find_map(|prefix| name.strip_prefix(*prefix)).unwrap_or(name);
    if name.is_empty() {
        return Err(Class::BadFile.into());
    }
    Ok(Path::new(std::ffi::OsStr::from_bytes(name)).into())
}

impl Mpi {
    /// An open file.
    pub(crate) fn file(&self, file: File) -> Answer<Arc<Open>> {
        self.files.get(file).ok_or_else(|| Class::File.into())
    }

    /// Who is told of failures of files that are not opened yet: at first nobody (section 14.7).
    pub(crate) fn files_handler(&self) -> Handler {
        self.file_handler.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or(Handler::Return)
    }

    /// Changes the pointer that all share; what it was.
    fn change_shared(&self, open: &Open, change: Change) -> Answer<i64> {
        if open.comm.group.size() == 1 {
            return Ok(change.apply(&open.own));
        }
        self.link()?.word(open.comm.place()?, change)
    }

    fn shared(&self, open: &Open) -> Answer<i64> {
        self.change_shared(open, Change::Add(0))
    }

    fn set_shared(&self, open: &Open, to: i64) -> Answer<()> {
        self.change_shared(open, Change::Set(to)).map(drop)
    }

    /// What all members of a file say, by rank.
    fn said_of_file(&self, open: &Open, name: &'static str, said: &[i64]) -> Answer<Vec<Vec<i64>>> {
        self.said_by_all(&open.comm, name, said)
    }

    /// All have come this far.
    fn all_are_here(&self, open: &Open, name: &'static str) -> Answer<()> {
        self.said_of_file(open, name, &[]).map(drop)
    }

    fn open_file(&self, comm: Comm, path: &Path, mode: i64, info: Info) -> Answer<File> {
        const NAME: &str = "MPI_File_open";
        let of = self.intra(comm)?;
        let hints = self.content_of(info)?;
        let comm = self.part_of(&of, of.groups(), NAME)?.ok_or(Class::Internal)?;
        let well = check(mode);
        let modes = self.said_by_all(&comm, NAME, &[mode, well.is_ok().into()])?;
        well?;
        if modes.iter().any(|said| said[..] != modes[0][..]) {
            return Err(Class::NotSame.into());
        }
        // The first one makes it, if that is wanted; then the others find it, or hear why not.
        let first = (comm.rank == 0).then(|| open(path, mode, true));
        let why = |error: &io::Error| i64::from(error.raw_os_error().unwrap_or(libc::EIO));
        let said = match &first {
            Some(Err(error)) => why(error),
            _ => 0,
        };
        let said = self.said_by_all(&comm, NAME, &[said])?;
        if said[0] != [0] {
            let error = io::Error::from_raw_os_error(*said[0].first().unwrap_or(&0) as i32);
            return Err(failed(path, &error));
        }
        let file = first.unwrap_or_else(|| open(path, mode, false));
        let said = self.said_by_all(&comm, NAME, &[file.as_ref().err().map_or(0, why)])?;
        let file = file.map_err(|error| failed(path, &error))?;
        if let Some(other) = said.iter().find(|said| said[..] != [0]) {
            let error = io::Error::from_raw_os_error(*other.first().unwrap_or(&0) as i32);
            return Err(failed(path, &error));
        }
        comm.with(|state| (state.info, state.handler) = (hints, self.files_handler()));
        let byte = Tree::basic(Basic::Byte);
        let (etype, filetype) = (byte.clone(), byte.clone());
        let representation = Representation::Native;
        let view = View { disp: 0, etype: byte.clone(), filetype: byte, representation };
        let seen = Seen { view, etype, filetype, datarep: b"native".into(), position: 0 };
        let open = Open {
            comm: Arc::new(comm),
            file,
            path: path.into(),
            mode,
            atomic: AtomicBool::new(false),
            seen: Mutex::new(seen),
            own: AtomicI64::new(0),
            split: Mutex::default(),
        };
        if mode & APPEND != 0 {
            let end = open.size()?;
            open.seen().position = end;
            if open.comm.rank == 0 {
                self.set_shared(&open, end)?;
            }
        }
        self.all_are_here(&open, NAME)?;
        Ok(self.files.add(Arc::new(open)))
    }

    fn close_file(&self, handle: File) -> Answer<File> {
        let open = self.file(handle)?;
        if open.split.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            let text = Some("a split collective of the file was begun and not ended".into());
            return Err(Failure { text, ..Class::File.into() });
        }
        let is_written = open.mode & (READ_WRITE | WRITE_ONLY) != 0;
        let synced = if is_written { open.sync() } else { Ok(()) };
        // Others come there, and would wait for ever for one whose disk has failed. The file is closed either
        // way.
        self.all_are_here(&open, "MPI_File_close")?;
        self.files.take(handle).ok_or(Class::File)?;
        let removed = if open.mode & DELETE_ON_CLOSE != 0 {
            // Before anybody goes on: from then on another file may have the name.
            self.file_by_first(&open, "MPI_File_close", 0, || std::fs::remove_file(&open.path))
        } else {
            Ok(())
        };
        synced?;
        removed?;
        Ok(File::NULL)
    }
}
