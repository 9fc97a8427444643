//! The calls of MPI that are made, with slices and errors.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::rc::Rc;

use super::last_words;
use super::table::{AnyTable, Handle, Status, Table};
use crate::transport::Result;
use crate::{Cause, Tag};

/// Most bytes of one call: its counts are numbers of C.
pub const MOST: usize = 1 << 30;

/// A number of C.
fn int(number: usize) -> Result<c_int> {
    let wrong = || Cause::Argument(format!("{number} bytes: MPI takes at most {} in one call", c_int::MAX));
    c_int::try_from(number).map_err(|_| wrong())
}

fn ints(numbers: &[usize]) -> Result<Vec<c_int>> {
    numbers.iter().map(|&number| int(number)).collect()
}

/// Counts and displacements in bytes, one of each for each rank.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    pub counts: &'a [usize],
    pub displs: &'a [usize],
}

impl Parts<'_> {
    /// As C has them: as many as ranks, and none outside the buffer.
    fn checked(&self, size: usize, buffer: usize) -> Result<[Vec<c_int>; 2]> {
        let Self { counts, displs } = self;
        assert!(counts.len() == size && displs.len() == size);
        assert!(counts.iter().zip(*displs).all(|(count, displ)| displ + count <= buffer));
        Ok([ints(counts)?, ints(displs)?])
    }
}

/// A communicator of MPI. Ranks and lengths were checked by the caller.
pub trait Comm: std::fmt::Debug {
    /// Rank and size.
    fn place(&self) -> Result<[usize; 2]>;
    fn split(&self, color: usize, key: usize) -> Result<Box<dyn Comm>>;
    fn barrier(&self) -> Result<()>;
    fn broadcast(&self, data: &mut [u8], root: usize) -> Result<()>;
    fn allgatherv(&self, send: &[u8], recv: &mut [u8], at: Parts<'_>) -> Result<()>;
    fn alltoallv(&self, send: &[u8], from: Parts<'_>, recv: &mut [u8], to: Parts<'_>) -> Result<()>;
    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()>;
    /// Bytes of the next message, which it waits for.
    fn probe(&self, from: usize, tag: Tag) -> Result<usize>;
    fn recv(&self, data: &mut [u8], from: usize, tag: Tag) -> Result<()>;
    fn abort(&self, code: c_int) -> !;
}

/// The communicator of all ranks, for this library alone: its messages do not mix with the program's.
/// Initialises MPI, if the program has not.
pub fn world(table: AnyTable, file: &str) -> Result<Box<dyn Comm>> {
    match table {
        AnyTable::Numbers(table) => Library::start(table, file).and_then(Of::world),
        AnyTable::Pointers(table) => Library::start(table, file).and_then(Of::world),
    }
}

/// A library in which MPI is initialised.
#[derive(Debug)]
struct Library<H: Handle> {
    table: Table<H>,
    /// By us: it is finalised when nobody needs it any more.
    ours: bool,
    /// A call has failed: what others wait for may never come.
    failed: Cell<bool>,
}

impl<H: Handle> Library<H> {
    fn start(table: Table<H>, file: &str) -> Result<Rc<Self>> {
        let wrong = |why: &str| Err(Cause::Backend(format!("{file}: {why}")));
        let ask = |call: unsafe extern "C" fn(*mut c_int) -> c_int| -> Result<c_int> {
            let mut answer = 0;
            // SAFETY: it stores a number.
            check(&table, unsafe { call(&raw mut answer) })?;
            Ok(answer)
        };
        if ask(table.finalized)? != 0 {
            return wrong("MPI was finalised already");
        }
        let ours = ask(table.initialized)? == 0;
        let mut level = 0;
        if ours {
            let (no_arguments, none) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: without the program's arguments, which the standard permits; it stores a number.
            let code = unsafe { (table.init_thread)(no_arguments, none, table.funneled, &raw mut level) };
            check(&table, code)?;
        } else {
            level = ask(table.query_thread)?;
            if ask(table.is_thread_main)? == 0 {
                return wrong("another thread has initialised MPI, and only that one may call it");
            }
        }
        let this = Rc::new(Self { table, ours, failed: Cell::new(false) });
        if level < this.table.funneled {
            return wrong("it permits no threads beside the one that calls it (MPI_THREAD_FUNNELED)");
        }
        Ok(this)
    }
}

impl<H: Handle> Library<H> {
    /// Its functions and handles, for a call: an error where the program, which has initialised MPI itself,
    /// has finalised it, and a call would end the process.
    fn table(&self) -> Result<&Table<H>> {
        match !self.ours && self.is_finalized() {
            true => Err(Cause::Backend("the program has finalised MPI, which it had initialised".into())),
            false => Ok(&self.table),
        }
    }

    fn is_finalized(&self) -> bool {
        let mut finalized = 0;
        // SAFETY: it stores a number, and may be called at any time (MPI 4.1, 11.4.1).
        unsafe { (self.table.finalized)(&raw mut finalized) != 0 || finalized != 0 }
    }
}

impl<H: Handle> Drop for Library<H> {
    fn drop(&mut self) {
        if self.ours && (std::thread::panicking() || self.failed.get()) && !self.is_finalized() {
            // Others may wait for what this rank will not do any more, and it would wait for them.
            last_words::are_heard();
            // SAFETY: MPI is initialised; this ends the job's processes.
            unsafe { (self.table.abort)(self.table.world, 1) };
        }
        if self.ours && !self.is_finalized() {
            // SAFETY: MPI was initialised by this thread, which `self` has not left, and all communicators
            // that we have made were freed: they hold a reference to `self`.
            unsafe { (self.table.finalize)() };
        }
    }
}

/// What a call has returned, in the library's words.
fn check<H: Handle>(table: &Table<H>, code: c_int) -> Result<()> {
    // MPI_SUCCESS in every ABI.
    if code == 0 {
        return Ok(());
    }
    // The longest is 512 (MPI_MAX_ERROR_STRING).
    let mut text = [0 as c_char; 4096];
    let mut len = 0;
    // SAFETY: room for any text, which it ends; may be called at any time (MPI 4.1, 11.4.1).
    let said = unsafe { (table.error_string)(code, text.as_mut_ptr(), &raw mut len) } == 0;
    // SAFETY: it was all zeros, and the text is shorter.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
    Err(Cause::Backend(if said { text.into_owned() } else { format!("MPI's error {code}") }))
}

/// A communicator, of handles of one kind.
#[derive(Debug)]
struct Of<H: Handle> {
    library: Rc<Library<H>>,
    comm: H,
    /// Ranks, once they are known.
    size: usize,
}

impl<H: Handle + std::fmt::Debug> Of<H> {
    fn world(library: Rc<Library<H>>) -> Result<Box<dyn Comm>> {
        let (table, mut comm) = (&library.table, library.table.world);
        // SAFETY: MPI is initialised, as long as there is a `Library`, and this is its thread: `Rc` has kept
        // it here. This holds for all calls below. It stores a handle.
        check(table, unsafe { (table.comm_dup)(table.world, &raw mut comm) })?;
        Self::adopt(library, comm)
    }

    /// Of a handle that is ours to free.
    fn adopt(library: Rc<Library<H>>, comm: H) -> Result<Box<dyn Comm>> {
        let mut this = Self { library, comm, size: 0 };
        let table = &this.library.table;
        // SAFETY: a communicator that is there, and a handle of MPI's own.
        this.done(unsafe { (table.comm_set_errhandler)(this.comm, table.errors_return) })?;
        this.size = this.place()?[1];
        Ok(Box::new(this))
    }

    fn done(&self, code: c_int) -> Result<()> {
        check(&self.library.table, code).inspect_err(|_| self.library.failed.set(true))
    }
}

impl<H: Handle> Drop for Of<H> {
    fn drop(&mut self) {
        let Ok(table) = self.library.table() else { return };
        // SAFETY: a communicator of ours that nobody uses any more. What it returns nobody can be told.
        unsafe { (table.comm_free)(&raw mut self.comm) };
    }
}

impl<H: Handle + std::fmt::Debug> Comm for Of<H> {
    fn place(&self) -> Result<[usize; 2]> {
        let (table, mut place) = (self.library.table()?, [0; 2]);
        let [rank, size] = &mut place;
        // SAFETY: they store numbers.
        let codes = unsafe { [(table.comm_rank)(self.comm, rank), (table.comm_size)(self.comm, size)] };
        codes.into_iter().try_for_each(|code| self.done(code))?;
        Ok(place.map(|number| usize::try_from(number).unwrap_or(0)))
    }

    fn split(&self, color: usize, key: usize) -> Result<Box<dyn Comm>> {
        let (table, mut comm) = (self.library.table()?, self.comm);
        // SAFETY: it stores a handle.
        self.done(unsafe { (table.comm_split)(self.comm, int(color)?, int(key)?, &raw mut comm) })?;
        Self::adopt(self.library.clone(), comm)
    }

    fn barrier(&self) -> Result<()> {
        // SAFETY: nothing but the communicator.
        self.done(unsafe { (self.library.table()?.barrier)(self.comm) })
    }

    fn broadcast(&self, data: &mut [u8], root: usize) -> Result<()> {
        let (table, bytes) = (self.library.table()?, int(data.len())?);
        // SAFETY: so many bytes, which it reads or writes until it returns.
        self.done(unsafe {
            (table.bcast)(data.as_mut_ptr().cast(), bytes, table.byte, int(root)?, self.comm)
        })
    }

    fn allgatherv(&self, send: &[u8], recv: &mut [u8], at: Parts<'_>) -> Result<()> {
        let (table, [counts, displs]) = (self.library.table()?, at.checked(self.size, recv.len())?);
        let (from, bytes, to) = (send.as_ptr().cast(), int(send.len())?, recv.as_mut_ptr().cast());
        let (byte, comm, counts, displs) = (table.byte, self.comm, counts.as_ptr(), displs.as_ptr());
        // SAFETY: it reads so many bytes, and writes inside `recv` (just checked) until it returns; as many
        // counts and displacements as ranks.
        self.done(unsafe { (table.allgatherv)(from, bytes, byte, to, counts, displs, byte, comm) })
    }

    fn alltoallv(&self, send: &[u8], from: Parts<'_>, recv: &mut [u8], to: Parts<'_>) -> Result<()> {
        let table = self.library.table()?;
        let (out, into) = (from.checked(self.size, send.len())?, to.checked(self.size, recv.len())?);
        // SAFETY: it reads inside `send` and writes inside `recv` (just checked) until it returns; as many
        // counts and displacements as ranks.
        self.done(unsafe {
            (table.alltoallv)(
                send.as_ptr().cast(),
                out[0].as_ptr(),
                out[1].as_ptr(),
                table.byte,
                recv.as_mut_ptr().cast(),
                into[0].as_ptr(),
                into[1].as_ptr(),
                table.byte,
                self.comm,
            )
        })
    }

    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        let (table, bytes) = (self.library.table()?, int(data.len())?);
        let (data, to, tag) = (data.as_ptr().cast(), int(to)?, int(tag as usize)?);
        // SAFETY: so many bytes, which it reads until it returns.
        self.done(unsafe { (table.send)(data, bytes, table.byte, to, tag, self.comm) })
    }

    fn probe(&self, from: usize, tag: Tag) -> Result<usize> {
        let (table, mut status, mut count) = (self.library.table()?, Status::new(), 0);
        let (from, tag) = (int(from)?, int(tag as usize)?);
        // SAFETY: room for a status of any ABI.
        self.done(unsafe { (table.probe)(from, tag, self.comm, &raw mut status) })?;
        // SAFETY: a status that the library has filled; it stores a number.
        self.done(unsafe { (table.get_count)(&raw const status, table.byte, &raw mut count) })?;
        // MPI_UNDEFINED, which is negative, where there are more than a number of C can say: none of ours.
        usize::try_from(count).map_err(|_| Cause::Backend("a message of more than 2 GiB".into()))
    }

    fn recv(&self, data: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        let (table, mut status, bytes) = (self.library.table()?, Status::new(), int(data.len())?);
        let (data, from, tag) = (data.as_mut_ptr().cast(), int(from)?, int(tag as usize)?);
        // SAFETY: it writes so many bytes at most until it returns; room for a status of any ABI.
        self.done(unsafe { (table.recv)(data, bytes, table.byte, from, tag, self.comm, &raw mut status) })
    }

    fn abort(&self, code: c_int) -> ! {
        last_words::are_heard();
        // SAFETY: ends the job's processes.
        unsafe { (self.library.table.abort)(self.library.table.world, code) };
        std::process::exit(code)
    }
}
