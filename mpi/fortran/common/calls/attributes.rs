//! Attributes (MPI-3.1, sections 6.7 and 17.2.7). In Fortran a value is a number of the size of an address;
//! in the functions that MPI-2 has replaced, of the size of an `INTEGER`. In C it is an address: of what
//! Fortran has set, the number's; of what C has set, Fortran gets the address as a number. So each number
//! that Fortran sets has a place, which is never freed.
//!
//! C calls functions of Fortran with what they were given together with: it lies in memory that is never
//! freed, as a key that the program has freed lives on in the attributes that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use bdrun_mpi_fortran::args::{Handle, end, read};

use crate::c;
use crate::constants::*;
use crate::face::{Comm, Datatype, Win, keyval};

/// The places of numbers, and the numbers by their places.
static PLACES: Mutex<(BTreeMap<i64, usize>, BTreeSet<usize>)> =
    Mutex::new((BTreeMap::new(), BTreeSet::new()));

/// The place of a number.
fn place(number: i64) -> *mut c_void {
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let (of_numbers, all) = &mut *places;
    let at = *of_numbers.entry(number).or_insert_with(|| {
        let at: *mut i64 = Box::into_raw(Box::new(number));
        at.expose_provenance()
    });
    all.insert(at);
    ptr::with_exposed_provenance_mut(at)
}

/// The number of an attribute: that of a place, or the address.
fn number(at: *mut c_void) -> i64 {
    let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    if places.1.contains(&at.addr()) {
        // SAFETY: a place, which is never freed.
        return unsafe { at.cast::<i64>().read() };
    }
    at as i64
}

/// A value in Fortran. What does not fit is cut off, as the standard says.
trait Number: Copy {
    fn of(number: i64) -> Self;
    fn number(self) -> i64;
}

impl Number for i64 {
    fn of(number: i64) -> Self {
        number
    }

    fn number(self) -> i64 {
        self
    }
}

impl Number for c_int {
    fn of(number: i64) -> Self {
        number as Self
    }

    fn number(self) -> i64 {
        self.into()
    }
}

type Copies<N> = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut N, *mut N, *mut N, *mut c_int, *mut c_int);
type Deletes<N> = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut N, *mut N, *mut c_int);

/// What belongs to a key.
struct Key<N> {
    copies: Copies<N>,
    deletes: Deletes<N>,
    state: N,
}

unsafe extern "C" fn copy<H: Handle, N: Number>(
    object: H,
    mut keyval: c_int,
    key: *mut c_void,
    value: *mut c_void,
    to: *mut *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: `create` gave it, and it is never freed.
    let Key { copies, mut state, .. } = unsafe { key.cast::<Key<N>>().read() };
    let mut value = N::of(number(value));
    let (mut object, mut copied, mut code) = (object.number(), value, 0);
    // SAFETY: the program's word: such a function. C has room for the value and the flag.
    unsafe {
        copies(
            &raw mut object,
            &raw mut keyval,
            &raw mut state,
            &raw mut value,
            &raw mut copied,
            flag,
            &raw mut code,
        );
        if code == 0 && flag.read() != 0 {
            to.write(place(copied.number()));
        }
    }
    code
}

unsafe extern "C" fn delete<H: Handle, N: Number>(
    object: H,
    mut keyval: c_int,
    value: *mut c_void,
    key: *mut c_void,
) -> c_int {
    // SAFETY: `create` gave it, and it is never freed.
    let Key { deletes, mut state, .. } = unsafe { key.cast::<Key<N>>().read() };
    let (mut object, mut value, mut code) = (object.number(), N::of(number(value)), 0);
    // SAFETY: the program's word: such a function.
    unsafe {
        deletes(&raw mut object, &raw mut keyval, &raw mut value, &raw mut state, &raw mut code);
    }
    code
}

type Creates = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut c_void) -> c_int;

/// Makes a key with C's function for this kind of objects.
unsafe fn create<H: Handle, N: Number>(
    with: Creates,
    (copies, deletes): (Copies<N>, Deletes<N>),
    (keyval, state): (*mut c_int, *mut N),
    ierror: *mut c_int,
) {
    // SAFETY: the caller's: a number.
    let key = Box::into_raw(Box::new(Key { copies, deletes, state: unsafe { read(state) } }));
    // SAFETY: both functions are C's, and know what they are given.
    unsafe {
        let code = with(copy::<H, N> as *mut c_void, delete::<H, N> as *mut c_void, keyval, key.cast());
        if code != 0 {
            drop(Box::from_raw(key));
        }
        end(ierror, code);
    }
}

/// Reads an attribute with C's function for this kind of objects. Of what is predefined that tells an address
/// where the value is, but for the base of a window.
unsafe fn get<H: Handle, N: Number>(
    with: unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_int) -> c_int,
    (object, key): (*mut c_int, *mut c_int),
    (ints, aints): (&[c_int], &[c_int]),
    (value, flag, ierror): (*mut N, *mut c_int, *mut c_int),
) {
    let mut found: *mut c_void = ptr::null_mut();
    // SAFETY: the caller's, and C's: what is predefined has an address.
    unsafe {
        let key = keyval(read(key));
        let code = with(H::of(read(object)), key, (&raw mut found).cast(), flag);
        if code == 0 && read(flag) != 0 {
            let said = match key {
                _ if ints.contains(&key) => i64::from(found.cast::<c_int>().read()),
                _ if aints.contains(&key) => found.cast::<i64>().read(),
                _ => number(found),
            };
            value.write_unaligned(N::of(said));
        }
        end(ierror, code);
    }
}

const OF_COMMUNICATORS: [c_int; 7] = [TAG_UB, HOST, IO, WTIME_IS_GLOBAL, APPNUM, LASTUSEDCODE, UNIVERSE_SIZE];
const OF_WINDOWS: [c_int; 3] = [WIN_DISP_UNIT, WIN_CREATE_FLAVOR, WIN_MODEL];

macro_rules! attributes {
    ($($handle:ident $number:ident: $create:ident $get:ident $set:ident, $ints:expr, $aints:expr;)*) => {
        $(
            pub unsafe extern "C" fn $create(
                copies: Copies<$number>,
                deletes: Deletes<$number>,
                keyval: *mut c_int,
                state: *mut $number,
                ierror: *mut c_int,
            ) {
                // SAFETY: the caller's.
                unsafe {
                    create::<$handle, $number>(c::$create, (copies, deletes), (keyval, state), ierror);
                }
            }

            pub unsafe extern "C" fn $get(
                object: *mut c_int,
                key: *mut c_int,
                value: *mut $number,
                flag: *mut c_int,
                ierror: *mut c_int,
            ) {
                // SAFETY: the caller's.
                unsafe {
                    get::<$handle, $number>(c::$get, (object, key), ($ints, $aints), (value, flag, ierror));
                }
            }

            pub unsafe extern "C" fn $set(
                object: *mut c_int,
                key: *mut c_int,
                value: *mut $number,
                ierror: *mut c_int,
            ) {
                // SAFETY: the caller's.
                unsafe {
                    let object = $handle::of(read(object));
                    end(ierror, c::$set(object, keyval(read(key)), place(read(value).number())));
                }
            }
        )*
    };
}

attributes! {
    Comm i64: comm_create_keyval comm_get_attr comm_set_attr, &OF_COMMUNICATORS, &[];
    Datatype i64: type_create_keyval type_get_attr type_set_attr, &[], &[];
    Win i64: win_create_keyval win_get_attr win_set_attr, &OF_WINDOWS, &[WIN_SIZE];
    Comm c_int: keyval_create attr_get attr_put, &OF_COMMUNICATORS, &[];
}

macro_rules! predefined {
    ($($number:ident: $nothing:ident $same:ident $delete:ident;)*) => {
        $(
            /// The attribute is not copied.
            pub unsafe extern "C" fn $nothing(
                _: *mut c_int, _: *mut c_int, _: *mut $number, _: *mut $number, _: *mut $number,
                flag: *mut c_int, ierror: *mut c_int,
            ) {
                // SAFETY: the caller's.
                unsafe {
                    flag.write_unaligned(0);
                    end(ierror, 0);
                }
            }

            /// The copy has the same value.
            pub unsafe extern "C" fn $same(
                _: *mut c_int, _: *mut c_int, _: *mut $number, value: *mut $number, to: *mut $number,
                flag: *mut c_int, ierror: *mut c_int,
            ) {
                // SAFETY: the caller's.
                unsafe {
                    flag.write_unaligned(1);
                    to.write_unaligned(read(value));
                    end(ierror, 0);
                }
            }

            /// Nothing is to be done.
            pub unsafe extern "C" fn $delete(
                _: *mut c_int, _: *mut c_int, _: *mut $number, _: *mut $number, ierror: *mut c_int,
            ) {
                // SAFETY: the caller's.
                unsafe { end(ierror, 0) }
            }
        )*
    };
}

predefined! {
    i64: comm_null_copy_fn comm_dup_fn comm_null_delete_fn;
    i64: type_null_copy_fn type_dup_fn type_null_delete_fn;
    i64: win_null_copy_fn win_dup_fn win_null_delete_fn;
    c_int: null_copy_fn dup_fn null_delete_fn;
}
