//! Windows: memory that others read and write (MPI-5.0, chapter 12).
//!
//! Memory that MPI allocates is mapped by all members of its window: they do what they want to it themselves,
//! at once, whether or not its owner runs or is in RAM. To memory of a program only its owner gets: it is
//! told what to do by messages, and does it in any call that it makes. So is it of any memory if members are
//! on several nodes. Either way a window is of the unified model: there is one copy of its memory.
//!
//! | question | file |
//! |---|---|
//! | what is a window? how is one made? | here, `mapping.rs` |
//! | what may be done to it now? who waits for whom? | `epochs.rs`, `control.rs` |
//! | what is done to memory? | `access.rs` |
//! | how is the owner told? | `active.rs` |
//! | what if members are on several nodes? | `apart.rs` |
//! | what do the calls check? | `calls.rs` |

mod access;
mod active;
mod apart;
mod calls;
mod control;
mod epochs;
pub mod mapping;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bdrun_mpi_core::error::Class;

pub use active::Active;
use active::Reply;
use apart::Apart;
use control::Control;
use epochs::Epochs;
use mapping::Mapping;

use crate::Mpi;
use crate::attributes::Attached;
use crate::comm::{Communicator, Form};
use crate::communicators::{bytes_of, numbers_in};
use crate::face::Meaning;
use crate::failure::{Answer, Failure};
use crate::handle::{Comm, Info, Win};
use crate::handlers::Handler;
use crate::link::Whom;

/// `MPI_WIN_FLAVOR_CREATE` and its like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    Create = 311,
    Allocate = 312,
    Dynamic = 313,
    Shared = 314,
}

/// `MPI_WIN_UNIFIED`.
const UNIFIED: i64 = 321;
/// `MPI_WIN_BASE`, the first of the attributes that windows have from the beginning.
const FIRST: i64 = 601;
/// Members' parts of memory that MPI allocates begin at multiples of this, where they need not follow each
/// other.
const ALIGN: i64 = 4096;

/// A window.
#[derive(Debug)]
pub struct Window {
    /// Its members, and what they say to each other about it.
    comm: Arc<Communicator>,
    flavor: Flavor,
    /// Of memory that is to be shared: whether members' parts need not follow each other.
    noncontiguous: Option<bool>,
    memory: Memory,
    /// Of each member: bytes, and how far one is from the next that is counted.
    parts: Vec<Part>,
    control: Control,
    /// Where members are on several nodes.
    apart: Option<Apart>,
    /// What was asked of each member.
    asked: Vec<AtomicU64>,
    replies: Mutex<HashMap<u64, Reply>>,
    next: AtomicU64,
    epochs: Mutex<Epochs>,
    pub attributes: Attached,
    /// Where a program reads predefined attributes.
    told: Told,
}

/// A member's part.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    size: i64,
    unit: i64,
}

#[derive(Debug, Default)]
struct Told {
    size: AtomicI64,
    numbers: [AtomicI32; 3],
}

/// Where its memory is.
#[derive(Debug)]
enum Memory {
    /// Mapped, each member's part at one of these places.
    Shared(Mapping, Vec<i64>),
    /// This process's part; the others know theirs.
    Own(usize),
    /// The same, where MPI has allocated it.
    Allocated(Mapping),
    /// What this process has attached: where, how many bytes.
    Dynamic(Mutex<Vec<(usize, usize)>>),
}

impl Window {
    /// The memory of a member as this process can reach it: a base, from which displacements count.
    fn base(&self, target: usize) -> Option<*mut u8> {
        match &self.memory {
            Memory::Shared(map, places) => Some(map.at().wrapping_offset(places[target] as isize)),
            Memory::Own(at) => (target == self.comm.rank).then_some(*at as *mut u8),
            Memory::Allocated(map) => (target == self.comm.rank).then_some(map.at()),
            Memory::Dynamic(_) => (target == self.comm.rank).then_some(std::ptr::null_mut()),
        }
    }

    /// Whether this process has all of these bytes for others.
    fn has(&self, from: i64, to: i64) -> bool {
        match &self.memory {
            Memory::Dynamic(all) => {
                let all = all.lock().unwrap_or_else(PoisonError::into_inner);
                // Memory that was attached by and by is attached as a whole, too.
                let mut left = from;
                while left < to {
                    let is_there =
                        |&&(at, len): &&(usize, usize)| (at as i64..(at + len) as i64).contains(&left);
                    let Some(&(at, len)) = all.iter().find(is_there) else { return false };
                    left = (at + len) as i64;
                }
                true
            }
            _ => 0 <= from && to <= self.parts[self.comm.rank].size,
        }
    }

    /// `MPI_Win_attach`.
    fn attach(&self, at: usize, size: i64) -> Answer<()> {
        let Memory::Dynamic(all) = &self.memory else { return Err(Class::RmaFlavor.into()) };
        let size = usize::try_from(size).map_err(|_| Class::Size)?;
        if at == 0 && size > 0 {
            return Err(Class::Base.into());
        }
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.iter().any(|&(other, len)| other < at + size && at < other + len) {
            return Err(Class::RmaAttach.into());
        }
        all.push((at, size));
        Ok(())
    }

    /// `MPI_Win_detach`.
    fn detach(&self, at: usize) -> Answer<()> {
        let Memory::Dynamic(all) = &self.memory else { return Err(Class::RmaFlavor.into()) };
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|&(other, _)| other == at).ok_or(Class::Base)?;
        all.swap_remove(found);
        Ok(())
    }

    fn replies(&self) -> MutexGuard<'_, HashMap<u64, Reply>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn epochs(&self) -> MutexGuard<'_, Epochs> {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who is told of failures.
    pub fn handler(&self) -> Handler {
        self.comm.handler()
    }

    /// Its communicator has its name, its handler and its hints.
    pub fn comm(&self) -> &Communicator {
        &self.comm
    }
}

fn no_memory(error: &std::io::Error) -> Failure {
    Failure { text: Some(format!("memory for a window: {error}")), ..Class::NoMemory.into() }
}

impl Mpi {
    /// A window.
    pub(crate) fn win(&self, win: Win) -> Answer<Arc<Window>> {
        self.windows.get(win).ok_or_else(|| Class::Win.into())
    }

    /// The value of a predefined attribute of a window, if it is one.
    pub(crate) fn win_attribute(&self, window: &Window, keyval: i64) -> Option<usize> {
        let number = |place: usize, value: i32| {
            window.told.numbers[place].store(value, SeqCst);
            window.told.numbers[place].as_ptr() as usize
        };
        let (own, face) = (window.parts[window.comm.rank], self.face());
        Some(match keyval - FIRST {
            0 => window.base(window.comm.rank)? as usize,
            1 => number(0, own.unit as i32),
            2 => {
                window.told.size.store(own.size, SeqCst);
                window.told.size.as_ptr() as usize
            }
            3 => number(1, (face.number)(Meaning::Flavor, window.flavor as i64)),
            4 => number(2, (face.number)(Meaning::Model, UNIFIED)),
            _ => return None,
        })
    }

    /// What all members say, by rank.
    pub(crate) fn said_by_all(
        &self,
        comm: &Communicator,
        name: &'static str,
        said: &[i64],
    ) -> Answer<Vec<Vec<i64>>> {
        let said = bytes_of(said.iter().copied());
        let meeting = comm.meet(&**self.link()?, (name, Form::Blocking), &Whom::ALL, &[&said])?;
        self.wait_meeting(&*meeting)?;
        (0..comm.group.size()).map(|member| numbers_in(meeting.part(member))).collect()
    }

    /// Whether its processes share memory.
    pub(crate) fn is_on_one_node(&self, comm: &Communicator) -> Answer<bool> {
        let link = self.link()?;
        let mut nodes = comm.group.members().iter().map(|&process| link.node_of(process));
        let first = nodes.next();
        Ok(nodes.all(|node| Some(node) == first))
    }

    /// Memory that all members share: the first one makes it.
    pub(crate) fn mapped_by_all(
        &self,
        comm: &Communicator,
        name: &'static str,
        len: usize,
    ) -> Answer<Mapping> {
        if !self.is_on_one_node(comm)? {
            let text = format!("{name}: its processes are on several nodes, and share no memory");
            return Err(Failure { text: Some(text), ..Class::RmaShared.into() });
        }
        let mut made = (comm.rank == 0).then(|| Mapping::make(len));
        let said = match &made {
            Some(Ok((_, open))) => open.said().to_vec(),
            _ => vec![],
        };
        let said = self.said_by_all(comm, name, &said)?.swap_remove(0);
        let mapping = match made.take() {
            Some(made) => made.map(|(mapping, open)| (mapping, Some(open))),
            None => match said[..] {
                [process, file] => Mapping::open([process, file], len).map(|mapping| (mapping, None)),
                _ => Err(std::io::ErrorKind::OutOfMemory.into()),
            },
        };
        // The file stays open until all have it, or know that they have not.
        let well = self.said_by_all(comm, name, &[mapping.is_ok().into()])?;
        let (mapping, _open) = mapping.map_err(|error| no_memory(&error))?;
        if well.iter().any(|well| well[..] != [1]) {
            return Err(no_memory(&std::io::ErrorKind::OutOfMemory.into()));
        }
        Ok(mapping)
    }

    /// Memory that each member has for itself.
    fn mapped_by_each(&self, comm: &Communicator, name: &'static str, len: usize) -> Answer<Mapping> {
        let mapping = Mapping::make(len).map(|(mapping, _)| mapping);
        let well = self.said_by_all(comm, name, &[mapping.is_ok().into()])?;
        let mapping = mapping.map_err(|error| no_memory(&error))?;
        if well.iter().any(|well| well[..] != [1]) {
            return Err(no_memory(&std::io::ErrorKind::OutOfMemory.into()));
        }
        Ok(mapping)
    }

    /// A window of the members of a communicator, all of which call this. `at` is the program's memory, or
    /// where it is told of memory that is made for it.
    fn make_window(
        &self,
        (comm, info): (Comm, Info),
        name: &'static str,
        flavor: Flavor,
        (size, unit): (i64, i64),
        at: usize,
    ) -> Answer<(Win, Arc<Window>)> {
        let of = self.intra(comm)?;
        let hints = self.content_of(info)?;
        // What is wrong here the others are told, as they must not wait.
        let wrong = match flavor {
            _ if size < 0 => Some(Class::Size),
            Flavor::Dynamic => None,
            _ if unit <= 0 => Some(Class::Disp),
            Flavor::Create if at == 0 && size > 0 => Some(Class::Base),
            Flavor::Allocate | Flavor::Shared if at == 0 => Some(Class::Arg),
            _ => None,
        };
        let comm = self.part_of(&of, of.groups(), name)?.ok_or(Class::Internal)?;
        let well = i64::from(wrong.is_none());
        let apart = hints.get(b"alloc_shared_noncontig", self.limits())? == Some(b"true");
        let said = self.said_by_all(&comm, name, &[size, unit, flavor as i64, apart.into(), well])?;
        if let Some(wrong) = wrong {
            return Err(wrong.into());
        }
        let (mut parts, mut apart) = (vec![], true);
        for said in said {
            match said[..] {
                [size, unit, other, may, 1] if other == flavor as i64 => {
                    // Where a part begins is for all to know: one that wants it to follow has its way.
                    apart &= may == 1;
                    parts.push(Part { size, unit });
                }
                [.., 1] => return Err(Class::NotSame.into()),
                _ => return Err(Class::Arg.into()),
            }
        }
        let members = parts.len();
        let is_apart = flavor != Flavor::Shared && !self.is_on_one_node(&comm)?;
        let control = if is_apart {
            self.mapped_by_each(&comm, name, Control::bytes(members))?
        } else {
            self.mapped_by_all(&comm, name, Control::bytes(members))?
        };
        let memory = match flavor {
            Flavor::Create => Memory::Own(at),
            Flavor::Dynamic => Memory::Dynamic(Mutex::default()),
            Flavor::Allocate if is_apart => {
                Memory::Allocated(self.mapped_by_each(&comm, name, parts[comm.rank].size as usize)?)
            }
            Flavor::Allocate | Flavor::Shared => {
                let apart = flavor == Flavor::Allocate || apart;
                let (mut places, mut end) = (vec![], 0i64);
                for part in &parts {
                    places.push(end);
                    let size = if apart {
                        part.size.checked_add(ALIGN - 1).map(|size| size / ALIGN * ALIGN)
                    } else {
                        Some(part.size)
                    };
                    end = size.and_then(|size| end.checked_add(size)).ok_or(Class::Size)?;
                }
                Memory::Shared(self.mapped_by_all(&comm, name, end as usize)?, places)
            }
        };
        comm.with(|state| {
            // Of a window failures end the job until the program says otherwise (section 9.3).
            (state.info, state.name, state.handler) = (hints, vec![], Handler::Fatal);
        });
        let window = Arc::new(Window {
            flavor,
            noncontiguous: (flavor == Flavor::Shared).then_some(apart),
            memory,
            control: Control::new(control, members),
            apart: is_apart.then(Apart::default),
            asked: (0..members).map(|_| AtomicU64::new(0)).collect(),
            replies: Mutex::default(),
            next: AtomicU64::new(0),
            epochs: Mutex::new(Epochs::new()),
            attributes: Attached::default(),
            told: Told::default(),
            parts,
            comm: Arc::new(comm),
        });
        self.active.add(window.comm.place()?.context, &window);
        // Nobody asks anything of a member that does not know the window.
        self.said_by_all(&window.comm, name, &[])?;
        let handle = self.windows.add(window.clone());
        Ok((handle, window))
    }

    /// `MPI_Win_free`.
    ///
    /// # Safety
    /// The functions of attributes are such.
    unsafe fn free_window(&self, win: Win) -> Answer<Win> {
        let window = self.win(win)?;
        window.epochs().may_end()?;
        // SAFETY: the caller's.
        unsafe { self.win_keys.delete_all(&window.attributes, self.whose(crate::face::Kind::Win, win)) }?;
        // What others have asked is done by then: they have waited for it in their last epoch, and here, for
        // their locks to be given back.
        self.flush(&window, 0..window.parts.len())?;
        self.said_by_all(&window.comm, "MPI_Win_free", &[])?;
        self.active.remove(window.comm.place()?.context);
        self.windows.take(win).ok_or(Class::Win)?;
        Ok(Win::NULL)
    }
}
