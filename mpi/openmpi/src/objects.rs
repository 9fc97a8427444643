//! Handles. Each is the address of an object whose first word is the engine's handle, and the second a mark
//! of its kind, by which what is no handle is mostly recognised.
//!
//! - Predefined: exported objects. Their addresses are those that the dynamic linker has found, as the
//!   executable may have copies: so they are only taken through relocations. A copy says the same, as it is
//!   made of what the library's file says.
//! - Made by the program: a cell for each value of each kind. It stays where it is and says the same for
//!   ever, as the engine uses its values again.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use bdrun_mpi::handle::{self, Handle, MADE};

/// An exported object.
#[repr(C, align(32))]
pub struct Object<const WORDS: usize>(UnsafeCell<[u64; WORDS]>);

// SAFETY: it is never written. The cell puts it among what can be written, where copies may be made of it.
unsafe impl<const WORDS: usize> Sync for Object<WORDS> {}

impl<const WORDS: usize> Object<WORDS> {
    const fn new(value: u64, mark: u64) -> Self {
        let mut words = [0; WORDS];
        words[0] = value;
        words[1] = mark;
        Self(UnsafeCell::new(words))
    }
}

/// What all objects begin with. Those of what a program has made are nothing else, and are written when they
/// are first given.
#[repr(C)]
struct Cell {
    value: AtomicU64,
    mark: AtomicU64,
}

/// Where the dynamic linker says that an object is.
struct Place(*const c_void);

// SAFETY: an address; what is there is not written.
unsafe impl Sync for Place {}

const NOWHERE: Place = Place(ptr::null());

/// A kind of handles.
pub trait Kind: Handle {
    /// Its number.
    const INDEX: usize;
    /// In the second word of its objects.
    const MARK: u64 = 0x6264_7275_6e00_4d00 + Self::INDEX as u64;
    /// The engine's handle of nothing.
    const NONE: Self;
}

macro_rules! kinds {
    ($($index:literal $name:ident,)*) => {
        $(impl Kind for handle::$name {
            const INDEX: usize = $index;
            const NONE: Self = Self::NULL;
        })*
        const KINDS: usize = [$($index),*].len();
    };
}

kinds! {
    0 Comm,
    1 Datatype,
    2 Errhandler,
    3 File,
    4 Group,
    5 Info,
    6 Message,
    7 Op,
    8 Request,
    9 Session,
    10 Win,
}

#[allow(non_upper_case_globals, reason = "Open MPI's names")]
mod exported {
    use super::{Kind, NOWHERE, Object, Place, c_void, handle};
    include!(concat!(env!("OUT_DIR"), "/objects.rs"));

    /// Where the object of a predefined value is.
    pub(super) fn place(value: u64) -> *const c_void {
        usize::try_from(value).ok().and_then(|value| PLACES.get(value)).map_or(NOWHERE.0, |place| place.0)
    }
}

/// Whether a value is that of an exported object.
#[must_use]
pub fn exists(value: u64) -> bool {
    !exported::place(value).is_null()
}

/// The first cells of a kind lie in these: for values below `MADE` that have no object, then for 64 that are
/// made, and twice as many in each that follows. Memory that nobody has given a handle of is not touched.
static CELLS: [[AtomicPtr<Cell>; 40]; KINDS] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; 40] }; KINDS];

/// The cell of a value, if there can be such a value.
fn cell<K: Kind>(value: u64) -> Option<*const Cell> {
    let (nth, len, place) = match value.checked_sub(MADE) {
        None => (0, MADE, value),
        Some(made) => {
            let shifted = made.checked_add(64)?;
            let power = shifted.ilog2();
            (power as usize - 5, 1 << power, shifted - (1 << power))
        }
    };
    let chunk = CELLS[K::INDEX].get(nth)?;
    let mut cells = chunk.load(Ordering::Acquire);
    if cells.is_null() {
        let layout = Layout::array::<Cell>(len as usize).ok()?;
        // SAFETY: it has a size.
        let new = unsafe { alloc_zeroed(layout) }.cast::<Cell>();
        if new.is_null() {
            return None;
        }
        match chunk.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => cells = new,
            Err(other) => {
                // SAFETY: allocated above with this layout, and nobody has seen it.
                unsafe { dealloc(new.cast(), layout) };
                cells = other;
            }
        }
    }
    // SAFETY: there are `len` cells, of zeros at least, and `place` is below; they are never freed.
    let cell = unsafe { &*cells.add(place as usize) };
    if cell.mark.load(Ordering::Acquire) == 0 {
        // Whoever else does writes the same.
        cell.value.store(value, Ordering::Relaxed);
        cell.mark.store(K::MARK, Ordering::Release);
    }
    Some(cell)
}

/// The engine's handle. What is no handle of this kind becomes 0, which the engine does not know.
///
/// # Safety
/// The address is that of an object, or is no possible one: null, odd or too small.
#[inline(always)]
pub unsafe fn taken<K: Kind>(at: *const c_void) -> K {
    let address = at as usize;
    if address < 0x1000 || !address.is_multiple_of(align_of::<Cell>()) || address >> 47 != 0 {
        return K::new(0);
    }
    // SAFETY: the caller's: every object begins like this, and stays.
    let cell = unsafe { &*at.cast::<Cell>() };
    let is_one = cell.mark.load(Ordering::Acquire) == K::MARK;
    K::new(if is_one { cell.value.load(Ordering::Relaxed) } else { 0 })
}

/// The program's handle. For one that cannot be, that of nothing.
#[inline(always)]
pub fn given<K: Kind>(handle: K) -> *mut c_void {
    let value = handle.value();
    if value < MADE {
        let place = exported::place(value);
        if !place.is_null() {
            return place.cast_mut();
        }
    }
    match cell::<K>(value) {
        Some(cell) => cell.cast_mut().cast(),
        None => exported::place(K::NONE.value()).cast_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bdrun_mpi::handle::{Comm, Datatype, Request};
    use bdrun_mpi_table::Value;

    fn back<K: Kind>(value: u64) -> u64 {
        // SAFETY: it was just given.
        unsafe { taken::<K>(given(K::new(value))) }.value()
    }

    #[test]
    fn every_predefined_handle_comes_back() {
        let mut seen = std::collections::BTreeMap::new();
        for constant in bdrun_mpi_table::constants().expect("well-formed") {
            let Some(Value::Number(value)) = constant.standard else { continue };
            let value = value as u64;
            let (handle, again) = match &*constant.c_type {
                "Comm" => (given(Comm(value)), back::<Comm>(value)),
                "Datatype" => (given(Datatype(value)), back::<Datatype>(value)),
                "Errhandler" => (given(handle::Errhandler(value)), back::<handle::Errhandler>(value)),
                "File" => (given(handle::File(value)), back::<handle::File>(value)),
                "Group" => (given(handle::Group(value)), back::<handle::Group>(value)),
                "Info" => (given(handle::Info(value)), back::<handle::Info>(value)),
                "Message" => (given(handle::Message(value)), back::<handle::Message>(value)),
                "Op" => (given(handle::Op(value)), back::<handle::Op>(value)),
                "Request" => (given(Request(value)), back::<Request>(value)),
                "Session" => (given(handle::Session(value)), back::<handle::Session>(value)),
                "Win" => (given(handle::Win(value)), back::<handle::Win>(value)),
                _ => continue,
            };
            assert_eq!(again, value, "{}", constant.name);
            if let Some(other) = seen.insert(handle as usize, value) {
                assert_eq!(other, value, "{} is where another is", constant.name);
            }
        }
        assert_eq!(seen.len(), 103, "as many as the standard has");
        // What the table says is an object is that object.
        assert_eq!(given(Comm::WORLD).cast_const(), (&raw const exported::ompi_mpi_comm_world).cast());
        assert_eq!(given(Request::NULL).cast_const(), (&raw const exported::ompi_request_null).cast());
    }

    #[test]
    fn what_is_made_keeps_its_place_and_has_one_of_its_own() {
        let values: Vec<u64> = (0..5000).chain([1 << 16, (1 << 20) + 5]).map(|nth| MADE + nth).collect();
        let places: Vec<usize> = values.iter().map(|&value| given(Request(value)) as usize).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|two| two[1] - two[0] >= size_of::<Cell>()));
        for (&value, &place) in values.iter().zip(&places) {
            assert_eq!(given(Request(value)) as usize, place);
            assert_eq!(back::<Request>(value), value);
        }
        assert_ne!(given(Comm(MADE)), given(Request(MADE)));
        assert_eq!(given(Request(u64::MAX)), given(Request::NULL));
    }

    #[test]
    fn threads_that_come_at_once_get_the_same_places() {
        let all: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let one = || (0..300).map(|nth| given(handle::Win(MADE + nth)) as usize).collect();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        assert!(all.windows(2).all(|two| two[0] == two[1]));
    }

    #[test]
    fn what_is_no_handle_is_none_for_the_engine() {
        let garbage = [0u64; 4];
        let inside = garbage.as_ptr().cast::<u8>();
        for at in [ptr::null(), ptr::without_provenance(1), ptr::without_provenance(0x440), inside.cast()] {
            // SAFETY: no possible addresses, or words that can be read.
            assert_eq!(unsafe { taken::<Comm>(at) }, Comm(0));
        }
        // SAFETY: odd, so it is not read.
        assert_eq!(unsafe { taken::<Comm>(inside.wrapping_add(1).cast()) }, Comm(0));
        // SAFETY: an object, of another kind.
        assert_eq!(unsafe { taken::<Comm>(given(Datatype(0x209))) }, Comm(0));
    }
}
