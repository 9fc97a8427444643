//! Datatypes (MPI-5.0, chapter 5): their handles. What they mean is in `bdrun_mpi_core::datatype`.
//!
//! | question | file |
//! |---|---|
//! | which handle is which datatype? | here, `predefined.rs` |
//! | what do the calls check? | `arguments.rs` |
//! | what do they do? | `calls.rs` |
//! | how does another chapter get at a program's memory? | `memory.rs` |

mod arguments;
mod calls;
pub mod memory;
mod predefined;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bdrun_mpi_core::datatype::{Basic, Combiner, Datatype as Tree, Type};
use bdrun_mpi_core::error::Class;

use crate::attributes::{Attached, Keys};
use crate::failure::Answer;
use crate::handle::Datatype;
use crate::slab::Slab;

/// What a handle stands for. Who uses the datatype has it by itself: the object may be freed meanwhile.
#[derive(Debug)]
pub struct Object {
    pub of: Type,
    committed: AtomicBool,
    /// It may not be freed.
    permanent: bool,
    /// It was: its handle is told to functions of the program until those that need it have ended.
    is_freed: AtomicBool,
    /// Once the program has given it one.
    name: Mutex<Option<Vec<u8>>>,
    pub attributes: Attached,
}

impl Object {
    fn new(of: Type) -> Self {
        let (committed, name) = (AtomicBool::new(false), Mutex::new(None));
        let is_freed = AtomicBool::new(false);
        Self { of, committed, permanent: false, is_freed, name, attributes: Attached::default() }
    }

    fn permanent(of: Type) -> Self {
        Self { committed: AtomicBool::new(true), permanent: true, ..Self::new(of) }
    }

    fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }

    /// Its name: that of the standard, or none, until it is given one.
    pub fn name(&self) -> Vec<u8> {
        let given = self.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let named = || self.of.as_basic().filter(|_| self.of.combiner() == Combiner::Named);
        given.unwrap_or_else(|| named().map_or_else(Vec::new, |basic| basic.name().into()))
    }

    /// Gives it a name.
    pub fn set_name(&self, name: &[u8]) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.into());
    }
}

/// A predefined datatype without a name: what a program asked for, and got.
#[derive(Debug)]
struct Found {
    combiner: Combiner,
    asked: Vec<i64>,
    handle: Datatype,
    of: Type,
}

/// All datatypes, by handle.
#[derive(Debug)]
pub struct Types {
    /// The predefined ones, by value.
    predefined: OnceLock<Box<[Option<Arc<Object>>]>>,
    /// Of those whose elements lie one behind the other without gaps the size, plus one; else 0.
    plain: OnceLock<Box<[u32]>>,
    /// Those of `MPI_Type_create_f90_real` and its relatives: the same for the same arguments, for ever.
    found: Mutex<Vec<Found>>,
    made: Slab<Object>,
    /// Handles of those that were freed, and that somebody had then.
    freed: Mutex<Vec<Datatype>>,
    pub keys: Keys,
}

impl Types {
    pub const fn new() -> Self {
        Self {
            predefined: OnceLock::new(),
            plain: OnceLock::new(),
            found: Mutex::new(vec![]),
            made: Slab::new(),
            freed: Mutex::new(vec![]),
            keys: Keys::new(1),
        }
    }

    fn predefined(&self) -> &[Option<Arc<Object>>] {
        self.predefined.get_or_init(|| {
            let mut all = vec![];
            for &basic in Basic::ALL {
                let place = (predefined::handle(basic).0 - Datatype::NULL.0) as usize;
                all.resize_with(all.len().max(place + 1), || None);
                all[place] = Some(Arc::new(Object::permanent(Tree::basic(basic))));
            }
            all.into()
        })
    }

    /// The size of a predefined datatype whose elements lie one behind the other without gaps.
    #[inline]
    pub fn plain_size(&self, handle: Datatype) -> Option<usize> {
        let plain = self.plain.get_or_init(|| self.predefined().iter().map(Self::plain_size_of).collect());
        let place = usize::try_from(handle.0.checked_sub(Datatype::NULL.0)?).ok()?;
        plain.get(place)?.checked_sub(1).map(|size| size as usize)
    }

    fn plain_size_of(object: &Option<Arc<Object>>) -> u32 {
        let of = object.as_ref().map(|object| &object.of);
        let is_plain =
            |of: &&Type| of.layout().contiguous(1) == Some(0) && of.layout().contiguous(2) == Some(0);
        of.filter(is_plain).map_or(0, |of| of.size() as u32 + 1)
    }

    /// The object of a handle.
    pub fn get(&self, handle: Datatype) -> Answer<Arc<Object>> {
        let object = match handle.made() {
            Some(_) => self.made.get(handle),
            None => {
                let place = handle.0.checked_sub(Datatype::NULL.0);
                place.and_then(|place| self.predefined().get(place as usize)?.clone())
            }
        };
        object.ok_or_else(|| Class::Type.into())
    }

    /// The datatype of a handle that may be used to move or compute something: it was committed.
    pub fn committed(&self, handle: Datatype) -> Answer<Type> {
        Ok(self.get_committed(handle)?.of.clone())
    }

    /// The same with its handle, which no other has before this is dropped.
    pub fn get_committed(&self, handle: Datatype) -> Answer<Arc<Object>> {
        let object = self.get(handle)?;
        if object.is_committed() { Ok(object) } else { Err(Class::Type.into()) }
    }

    /// How many are there that the program has made.
    pub fn left(&self) -> usize {
        let is_left = |object: &&Arc<Object>| !object.permanent && !object.is_freed.load(Ordering::SeqCst);
        self.made.all().iter().filter(is_left).count()
    }

    /// The program frees one: no other has its handle before nobody is told of it any more.
    fn free(&self, handle: Datatype, object: Arc<Object>) -> Answer<()> {
        if object.is_freed.swap(true, Ordering::SeqCst) {
            return Err(Class::Type.into());
        }
        drop(object);
        let mut freed = self.freed.lock().unwrap_or_else(PoisonError::into_inner);
        freed.push(handle);
        freed.retain(|&handle| {
            // It is had here, and by the slab.
            let is_told = self.made.get(handle).is_some_and(|object| Arc::strong_count(&object) > 2);
            if !is_told {
                self.made.take(handle);
            }
            is_told
        });
        Ok(())
    }

    /// A handle of a new datatype.
    fn add(&self, of: Type) -> Datatype {
        self.made.add(Arc::new(Object::new(of)))
    }

    /// A handle of what another was made of: of a predefined one its own, else a new one, which the program
    /// frees.
    pub fn again(&self, of: &Type) -> Datatype {
        match (of.combiner(), of.as_basic()) {
            (Combiner::Named, Some(basic)) => return predefined::handle(basic),
            (Combiner::F90Real | Combiner::F90Complex | Combiner::F90Integer, _) => {
                let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(found) = found.iter().find(|found| Arc::ptr_eq(&found.of, of)) {
                    return found.handle;
                }
            }
            _ => {}
        }
        self.add(of.clone())
    }

    /// The same, to be used as it is.
    pub fn again_committed(&self, of: &Type) -> Answer<Datatype> {
        let handle = self.again(of);
        self.get(handle)?.committed.store(true, Ordering::Relaxed);
        Ok(handle)
    }

    /// The predefined datatype without a name that answers what a program asks for.
    fn find(&self, basic: Basic, combiner: Combiner, asked: &[i64]) -> Datatype {
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.iter().find(|found| found.combiner == combiner && found.asked == asked) {
            return found.handle;
        }
        let of = Tree::found(basic, combiner, asked);
        let handle = self.made.add(Arc::new(Object::permanent(of.clone())));
        all.push(Found { combiner, asked: asked.to_vec(), handle, of });
        handle
    }
}
