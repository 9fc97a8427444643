//! The calls of windows.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};

use bdrun_mpi_core::datatype::{Class as Elements, Type};
use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::operation::Operation as Predefined;

use super::access::{Deed, Pieces};
use super::active::Reply;
use super::control::Hold;
use super::epochs::{NO_CHECK, NO_SUCCEED};
use super::{Flavor, Memory, Window};
use crate::Mpi;
use crate::args::Buffer;
use crate::calls::Windows;
use crate::datatypes::memory::Span;
use crate::failure::Answer;
use crate::groups::PROC_NULL;
use crate::handle::{Comm, Datatype, Group, Info, Op, Request, Win};
use crate::hints;
use crate::messages::bytes_of;
use crate::operation::{Done, Operation, Waits};
use crate::operations::predefined;

/// `MPI_LOCK_EXCLUSIVE` and `MPI_LOCK_SHARED`.
const EXCLUSIVE: i64 = 301;
/// See [`EXCLUSIVE`].
const SHARED: i64 = 302;

/// A buffer of the program, as the calls say it.
type Here = (Buffer, i64, Datatype);
/// A member's memory: rank, displacement, count, datatype.
type There = (i64, i64, i64, Datatype);

/// A member's memory, all of it checked.
struct Target {
    rank: usize,
    /// From where the datatype counts: bytes from the window's base, or an address.
    at: i64,
    count: u64,
    of: Type,
}

fn complete() -> Arc<Operation> {
    Operation::complete(Done::well())
}

impl Target {
    /// Where it is for this process, if it can get there.
    fn here(&self, window: &Window) -> Option<*mut u8> {
        window.base(self.rank).map(|base| base.wrapping_offset(self.at as isize))
    }

    /// Its pieces from the window's base on.
    fn shifted(&self, mut pieces: Pieces) -> Pieces {
        pieces.list.iter_mut().for_each(|piece| piece.0 += self.at);
        pieces
    }
}

impl Mpi {
    /// A member's memory that may be used now; none of `MPI_PROC_NULL`.
    fn target(&self, window: &Window, (rank, disp, count, datatype): There) -> Answer<Option<Target>> {
        if rank == PROC_NULL {
            return Ok(None);
        }
        let rank = window.target(rank)?;
        let of = self.types.committed(datatype)?;
        let count = u64::try_from(count).map_err(|_| Class::Count)?;
        window.epochs().access(rank)?;
        let at = match window.flavor {
            Flavor::Dynamic => disp,
            _ if disp < 0 => return Err(Class::Disp.into()),
            _ => disp.checked_mul(window.parts[rank].unit).ok_or(Class::Disp)?,
        };
        let last = (count as i64 - 1).max(0).checked_mul(of.extent()).ok_or(Class::RmaRange)?;
        let from = at.checked_add(of.true_lower_bound() + last.min(0)).ok_or(Class::RmaRange)?;
        let to = at.checked_add(of.true_lower_bound() + last.max(0)).ok_or(Class::RmaRange)?;
        let to = to.checked_add(of.true_extent()).ok_or(Class::RmaRange)?;
        let is_empty = count == 0 || of.size() == 0;
        let is_in = match window.memory {
            // Others say so themselves. Between its pieces there may be what is not attached.
            Memory::Dynamic(_) if rank != window.comm.rank || window.has(from, to) => true,
            Memory::Dynamic(_) => Pieces::bytes(&of, count)
                .all(|from, to| window.has(at.saturating_add(from), at.saturating_add(to))),
            _ => 0 <= from && to <= window.parts[rank].size,
        };
        if is_empty || is_in { Ok(Some(Target { rank, at, count, of })) } else { Err(Class::RmaRange.into()) }
    }

    fn begin_put(&self, window: &Window, from: Here, to: There) -> Answer<Arc<Operation>> {
        let from = self.span(from.0, from.1, from.2)?;
        let Some(target) = self.target(window, to)? else { return Ok(complete()) };
        fits(from.bytes(), target.of.size() as u64 * target.count)?;
        if let Some(at) = target.here(window) {
            // SAFETY: both are memory of programs, as they have said.
            unsafe { copy(&from, &from.like(target.of, at, target.count), from.bytes()) };
            return Ok(complete());
        }
        let mut pieces = Pieces::bytes(&target.of, target.count);
        pieces.cut(from.bytes());
        // SAFETY: as above.
        let data = unsafe { bytes_of(&from) };
        self.ask(window, target.rank, (Deed::Put, target.shifted(pieces)), &data, None)?;
        Ok(complete())
    }

    fn begin_get(&self, window: &Window, into: Here, from: There) -> Answer<Arc<Operation>> {
        let into = self.span(into.0, into.1, into.2)?;
        let Some(target) = self.target(window, from)? else { return Ok(complete()) };
        let bytes = target.of.size() as u64 * target.count;
        fits(bytes, into.bytes())?;
        if let Some(at) = target.here(window) {
            // SAFETY: both are memory of programs, as they have said.
            unsafe { copy(&into.like(target.of, at, target.count), &into, bytes) };
            return Ok(complete());
        }
        let pieces = target.shifted(Pieces::bytes(&target.of, target.count));
        self.ask_back(window, &target, (Deed::Get, pieces), &[], into)
    }

    /// Asks for something of which something is told.
    fn ask_back(
        &self,
        window: &Window,
        target: &Target,
        what: (Deed, Pieces),
        data: &[u8],
        into: Span,
    ) -> Answer<Arc<Operation>> {
        let operation = Operation::begun(Waits::Word);
        let reply = Reply { target: target.rank, into, operation: operation.clone() };
        self.ask(window, target.rank, what, data, Some(reply))?;
        Ok(operation)
    }

    /// Combines elements with a member's, and tells what they were where that is wanted.
    fn begin_combine(
        &self,
        window: &Window,
        from: Here,
        into: Option<Here>,
        to: There,
        op: Op,
    ) -> Answer<Arc<Operation>> {
        let operation = predefined(op).ok_or(Class::Op)?;
        let into = into.map(|into| self.span(into.0, into.1, into.2)).transpose()?;
        // Nothing of this process is looked at where nothing is changed.
        let from = match operation {
            Predefined::Nothing => None,
            _ => Some(self.span(from.0, from.1, from.2)?),
        };
        let Some(target) = self.target(window, to)? else { return Ok(complete()) };
        // Nothing is of any datatype.
        if target.count == 0 || target.of.size() == 0 {
            let is_nothing = from.is_none_or(|from| from.bytes() == 0);
            return if is_nothing { Ok(complete()) } else { Err(Class::Arg.into()) };
        }
        let pieces = Pieces::elements(&target.of, target.count)?;
        let basic = pieces.basic.ok_or(Class::Type)?;
        operation.kernel(basic).ok_or(Class::Op)?;
        if from.as_ref().is_some_and(|from| from.of().uniform() != Some(basic)) {
            return Err(Class::Type.into());
        }
        if from.as_ref().is_some_and(|from| from.bytes() != pieces.total()) {
            return Err(Class::Arg.into());
        }
        if let Some(into) = &into {
            fits(pieces.total(), into.bytes())?;
        }
        // SAFETY: the program has said that its memory is there.
        let data = from.as_ref().map(|from| unsafe { bytes_of(from) }).unwrap_or_default();
        let deed = Deed::Combine { operation, fetches: into.is_some() };
        self.do_or_ask(window, &target, (deed, pieces), &data, into)
    }

    fn do_or_ask(
        &self,
        window: &Window,
        target: &Target,
        (deed, pieces): (Deed, Pieces),
        data: &[u8],
        into: Option<Span>,
    ) -> Answer<Arc<Operation>> {
        let Some(at) = target.here(window) else {
            let what = (deed, target.shifted(pieces));
            return match into {
                Some(into) => self.ask_back(window, target, what, data, into),
                None => self.ask(window, target.rank, what, data, None).map(|()| complete()),
            };
        };
        let mut told = vec![];
        // SAFETY: the owner has said that it is there, and is used as windows are.
        unsafe { pieces.apply(deed, at, window.control.busy(target.rank), data, &mut told) }?;
        if let Some(into) = into {
            // SAFETY: the program has said that it is there.
            unsafe { into.unpack(0, &told) };
        }
        Ok(complete())
    }

    fn win_request(&self, window: &Window, operation: Arc<Operation>) -> Request {
        self.new_request(window.comm.clone(), operation)
    }
}

fn fits(bytes: u64, room: u64) -> Answer<()> {
    if bytes <= room { Ok(()) } else { Err(Class::Truncate.into()) }
}

/// So much of what must be packed is copied at a time.
const PIECE: u64 = 64 << 10;

/// Copies bytes of elements to where others are.
///
/// # Safety
/// Both are memory of programs, as they have said.
unsafe fn copy(from: &Span, into: &Span, bytes: u64) {
    if let (Some(from), Some(into)) = (from.contiguous(), into.contiguous()) {
        // SAFETY: the caller's; they may be the same.
        return unsafe { std::ptr::copy(from, into, bytes as usize) };
    }
    let mut piece = vec![0; bytes.min(PIECE) as usize];
    let mut done = 0;
    while done < bytes {
        let part = &mut piece[..(bytes - done).min(PIECE) as usize];
        // SAFETY: as above.
        unsafe {
            from.pack(done, part);
            into.unpack(done, part);
        }
        done += part.len() as u64;
    }
}

/// Tells where memory is.
///
/// # Safety
/// There is room for an address, or the place is null.
unsafe fn tell(at: *mut u8, to: *mut c_void) -> Answer<()> {
    if to.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's.
    unsafe { to.cast::<*mut u8>().write(at) };
    Ok(())
}

/// What a program asserts, if the standard has it: it is not told where it does not apply.
fn known(assert: i64) -> Answer<i64> {
    // The bits from MPI_MODE_NOCHECK to MPI_MODE_NOSUCCEED.
    let all = 2 * NO_SUCCEED - NO_CHECK;
    if assert & !all == 0 { Ok(assert) } else { Err(Class::Assert.into()) }
}

impl Windows for Mpi {
    unsafe fn accumulate(
        &self,
        origin_addr: Buffer,
        origin_count: i64,
        origin_datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        target_count: i64,
        target_datatype: Datatype,
        op: Op,
        win: Win,
    ) -> Answer<()> {
        let from = (origin_addr, origin_count, origin_datatype);
        let to = (target_rank, target_disp, target_count, target_datatype);
        self.begin_combine(&*self.win(win)?, from, None, to, op).map(drop)
    }

    unsafe fn compare_and_swap(
        &self,
        origin_addr: Buffer,
        compare_addr: Buffer,
        result_addr: Buffer,
        datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        win: Win,
    ) -> Answer<()> {
        let window = self.win(win)?;
        let new = self.span(origin_addr, 1, datatype)?;
        let (old, into) = (self.span(compare_addr, 1, datatype)?, self.span(result_addr, 1, datatype)?);
        let Some(target) = self.target(&window, (target_rank, target_disp, 1, datatype))? else {
            return Ok(());
        };
        let basic = target.of.as_basic().ok_or(Class::Type)?;
        if !matches!(basic.class(), Elements::Integer | Elements::Logical | Elements::Byte) {
            return Err(Class::Type.into());
        }
        // SAFETY: the program has said that they are there.
        let data = unsafe { [&*bytes_of(&new), &*bytes_of(&old)].concat() };
        let pieces = Pieces::elements(&target.of, 1)?;
        self.do_or_ask(&window, &target, (Deed::Swap, pieces), &data, Some(into)).map(drop)
    }

    unsafe fn fetch_and_op(
        &self,
        origin_addr: Buffer,
        result_addr: Buffer,
        datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        op: Op,
        win: Win,
    ) -> Answer<()> {
        self.types.committed(datatype)?.as_basic().ok_or(Class::Type)?;
        let (from, into) = ((origin_addr, 1, datatype), (result_addr, 1, datatype));
        let to = (target_rank, target_disp, 1, datatype);
        self.begin_combine(&*self.win(win)?, from, Some(into), to, op).map(drop)
    }

    unsafe fn get(
        &self,
        origin_addr: Buffer,
        origin_count: i64,
        origin_datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        target_count: i64,
        target_datatype: Datatype,
        win: Win,
    ) -> Answer<()> {
        let into = (origin_addr, origin_count, origin_datatype);
        let from = (target_rank, target_disp, target_count, target_datatype);
        self.begin_get(&*self.win(win)?, into, from).map(drop)
    }

    unsafe fn get_accumulate(
        &self,
        origin_addr: Buffer,
        origin_count: i64,
        origin_datatype: Datatype,
        result_addr: Buffer,
        result_count: i64,
        result_datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        target_count: i64,
        target_datatype: Datatype,
        op: Op,
        win: Win,
    ) -> Answer<()> {
        let from = (origin_addr, origin_count, origin_datatype);
        let into = (result_addr, result_count, result_datatype);
        let to = (target_rank, target_disp, target_count, target_datatype);
        self.begin_combine(&*self.win(win)?, from, Some(into), to, op).map(drop)
    }

    unsafe fn put(
        &self,
        origin_addr: Buffer,
        origin_count: i64,
        origin_datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        target_count: i64,
        target_datatype: Datatype,
        win: Win,
    ) -> Answer<()> {
        let from = (origin_addr, origin_count, origin_datatype);
        let to = (target_rank, target_disp, target_count, target_datatype);
        self.begin_put(&*self.win(win)?, from, to).map(drop)
    }

    unsafe fn raccumulate(
        &self,
        origin_addr: Buffer,
        origin_count: i64,
        origin_datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        target_count: i64,
        target_datatype: Datatype,
        op: Op,
        win: Win,
    ) -> Answer<Request> {
        let window = self.win(win)?;
        let from = (origin_addr, origin_count, origin_datatype);
        let to = (target_rank, target_disp, target_count, target_datatype);
        Ok(self.win_request(&window, self.begin_combine(&window, from, None, to, op)?))
    }

    unsafe fn rget(
        &self,
        origin_addr: Buffer,
        origin_count: i64,
        origin_datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        target_count: i64,
        target_datatype: Datatype,
        win: Win,
    ) -> Answer<Request> {
        let window = self.win(win)?;
        let into = (origin_addr, origin_count, origin_datatype);
        let from = (target_rank, target_disp, target_count, target_datatype);
        Ok(self.win_request(&window, self.begin_get(&window, into, from)?))
    }

    unsafe fn rget_accumulate(
        &self,
        origin_addr: Buffer,
        origin_count: i64,
        origin_datatype: Datatype,
        result_addr: Buffer,
        result_count: i64,
        result_datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        target_count: i64,
        target_datatype: Datatype,
        op: Op,
        win: Win,
    ) -> Answer<Request> {
        let window = self.win(win)?;
        let from = (origin_addr, origin_count, origin_datatype);
        let into = (result_addr, result_count, result_datatype);
        let to = (target_rank, target_disp, target_count, target_datatype);
        Ok(self.win_request(&window, self.begin_combine(&window, from, Some(into), to, op)?))
    }

    unsafe fn rput(
        &self,
        origin_addr: Buffer,
        origin_count: i64,
        origin_datatype: Datatype,
        target_rank: i64,
        target_disp: i64,
        target_count: i64,
        target_datatype: Datatype,
        win: Win,
    ) -> Answer<Request> {
        let window = self.win(win)?;
        let from = (origin_addr, origin_count, origin_datatype);
        let to = (target_rank, target_disp, target_count, target_datatype);
        Ok(self.win_request(&window, self.begin_put(&window, from, to)?))
    }

    unsafe fn win_allocate(
        &self,
        size: i64,
        disp_unit: i64,
        info: Info,
        comm: Comm,
        baseptr: *mut c_void,
    ) -> Answer<Win> {
        let (unit, name) = ((size, disp_unit), "MPI_Win_allocate");
        let (win, window) = self.make_window((comm, info), name, Flavor::Allocate, unit, baseptr as usize)?;
        // SAFETY: the caller's.
        unsafe { tell(window.base(window.comm.rank).ok_or(Class::Internal)?, baseptr) }?;
        Ok(win)
    }

    unsafe fn win_allocate_shared(
        &self,
        size: i64,
        disp_unit: i64,
        info: Info,
        comm: Comm,
        baseptr: *mut c_void,
    ) -> Answer<Win> {
        let (unit, name) = ((size, disp_unit), "MPI_Win_allocate_shared");
        let (win, window) = self.make_window((comm, info), name, Flavor::Shared, unit, baseptr as usize)?;
        // SAFETY: the caller's.
        unsafe { tell(window.base(window.comm.rank).ok_or(Class::Internal)?, baseptr) }?;
        Ok(win)
    }

    unsafe fn win_attach(&self, win: Win, base: *mut c_void, size: i64) -> Answer<()> {
        self.win(win)?.attach(base as usize, size)
    }

    unsafe fn win_complete(&self, win: Win) -> Answer<()> {
        self.complete(&*self.win(win)?)
    }

    unsafe fn win_create(
        &self,
        base: *mut c_void,
        size: i64,
        disp_unit: i64,
        info: Info,
        comm: Comm,
    ) -> Answer<Win> {
        let unit = (size, disp_unit);
        Ok(self.make_window((comm, info), "MPI_Win_create", Flavor::Create, unit, base as usize)?.0)
    }

    unsafe fn win_create_dynamic(&self, info: Info, comm: Comm) -> Answer<Win> {
        Ok(self.make_window((comm, info), "MPI_Win_create_dynamic", Flavor::Dynamic, (0, 1), 0)?.0)
    }

    unsafe fn win_detach(&self, win: Win, base: Buffer) -> Answer<()> {
        let Buffer::At(at) = base else { return Err(Class::Base.into()) };
        self.win(win)?.detach(at as usize)
    }

    unsafe fn win_fence(&self, assert: i64, win: Win) -> Answer<()> {
        self.fence(&*self.win(win)?, known(assert)?)
    }

    unsafe fn win_flush(&self, rank: i64, win: Win) -> Answer<()> {
        let window = self.win(win)?;
        if rank == PROC_NULL {
            return Ok(());
        }
        self.flush_locked(&window, Some(window.target(rank)?))
    }

    unsafe fn win_flush_all(&self, win: Win) -> Answer<()> {
        self.flush_locked(&*self.win(win)?, None)
    }

    unsafe fn win_flush_local(&self, rank: i64, win: Win) -> Answer<()> {
        // SAFETY: the same.
        unsafe { self.win_flush(rank, win) }
    }

    unsafe fn win_flush_local_all(&self, win: Win) -> Answer<()> {
        // SAFETY: the same.
        unsafe { self.win_flush_all(win) }
    }

    unsafe fn win_free(&self, win: Win) -> Answer<Win> {
        // SAFETY: the caller's.
        unsafe { self.free_window(win) }
    }

    unsafe fn win_get_group(&self, win: Win) -> Answer<Group> {
        Ok(self.new_group(self.win(win)?.comm.group.clone()))
    }

    unsafe fn win_get_info(&self, win: Win) -> Answer<Info> {
        let window = self.win(win)?;
        let mut content = self.hints_told(&window.comm, hints::WIN)?;
        if let Some(noncontiguous) = window.noncontiguous {
            let done: &[u8] = if noncontiguous { b"true" } else { b"false" };
            content.set(b"alloc_shared_noncontig", done, self.limits())?;
        }
        Ok(self.new_info(content))
    }

    unsafe fn win_lock(&self, lock_type: i64, rank: i64, assert: i64, win: Win) -> Answer<()> {
        let window = self.win(win)?;
        known(assert)?;
        let hold = match lock_type {
            EXCLUSIVE => Hold::Exclusive,
            SHARED => Hold::Shared,
            _ => return Err(Class::LockType.into()),
        };
        if rank == PROC_NULL {
            return Ok(());
        }
        self.lock(&window, window.target(rank)?, hold)
    }

    unsafe fn win_lock_all(&self, assert: i64, win: Win) -> Answer<()> {
        let window = self.win(win)?;
        known(assert)?;
        self.lock_all(&window)
    }

    unsafe fn win_post(&self, group: Group, assert: i64, win: Win) -> Answer<()> {
        self.post_window(&*self.win(win)?, &*self.group(group)?, known(assert)?)
    }

    unsafe fn win_set_info(&self, win: Win, info: Info) -> Answer<()> {
        let window = self.win(win)?;
        let content = self.with_info(info, |content| Ok(content.clone()))?;
        window.comm.set_hints(&content);
        Ok(())
    }

    unsafe fn win_shared_query(&self, win: Win, rank: i64, baseptr: *mut c_void) -> Answer<(i64, i64)> {
        let window = self.win(win)?;
        if window.flavor == Flavor::Dynamic {
            return Err(Class::RmaFlavor.into());
        }
        let target = match rank {
            // The first that has any.
            PROC_NULL => window.parts.iter().position(|part| part.size > 0).unwrap_or(0),
            _ => window.target(rank)?,
        };
        let (base, part) = (window.base(target), window.parts[target]);
        // SAFETY: the caller's.
        unsafe { tell(base.unwrap_or(std::ptr::null_mut()), baseptr) }?;
        Ok((if base.is_some() { part.size } else { 0 }, part.unit))
    }

    unsafe fn win_start(&self, group: Group, assert: i64, win: Win) -> Answer<()> {
        self.start(&*self.win(win)?, &*self.group(group)?, known(assert)?)
    }

    unsafe fn win_sync(&self, win: Win) -> Answer<()> {
        self.win(win)?;
        fence(SeqCst);
        // Who looks at its memory again and again calls this.
        self.look_for(|| None::<()>).map(drop)
    }

    unsafe fn win_test(&self, win: Win) -> Answer<bool> {
        self.completed(&*self.win(win)?, false)
    }

    unsafe fn win_unlock(&self, rank: i64, win: Win) -> Answer<()> {
        let window = self.win(win)?;
        if rank == PROC_NULL {
            return Ok(());
        }
        self.unlock(&window, window.target(rank)?)
    }

    unsafe fn win_unlock_all(&self, win: Win) -> Answer<()> {
        self.unlock_all(&*self.win(win)?)
    }

    unsafe fn win_wait(&self, win: Win) -> Answer<()> {
        self.completed(&*self.win(win)?, true).map(drop)
    }
}
