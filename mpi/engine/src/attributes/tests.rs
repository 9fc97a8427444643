//! Attributes of datatypes: which functions of the program are called when, and what follows from what they
//! return.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use bdrun_mpi_core::error::Class;

use super::INVALID;
use crate::Mpi;
use crate::calls::{Attributes as _, Datatypes as _};
use crate::failure::Answer;
use crate::handle::Datatype;

const INT: Datatype = Datatype(0x209);

/// What was called: the function, with which datatype and value. The extra state of every keyval here.
#[derive(Debug, Default)]
struct Calls(Mutex<Vec<(&'static str, u64, usize)>>);

impl Calls {
    fn state(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn took(&self) -> Vec<(&'static str, u64, usize)> {
        std::mem::take(&mut self.0.lock().expect("nobody panicked"))
    }
}

fn note(state: *mut c_void, name: &'static str, datatype: u64, value: usize) {
    // SAFETY: the extra state is one, and lives as long as the test.
    unsafe { &*state.cast::<Calls>() }.0.lock().expect("nobody panicked").push((name, datatype, value));
}

/// Copies a value that is one more; none of 13, and fails for 99.
extern "C" fn copy(
    datatype: u64,
    _: c_int,
    state: *mut c_void,
    value: usize,
    to: *mut usize,
    flag: *mut c_int,
) -> c_int {
    note(state, "copy", datatype, value);
    if value == 99 {
        return 15;
    }
    // SAFETY: the caller's: there is room.
    unsafe {
        *to = value + 1;
        *flag = c_int::from(value != 13);
    }
    0
}

/// Fails for 77.
extern "C" fn delete(datatype: u64, _: c_int, value: usize, state: *mut c_void) -> c_int {
    note(state, "delete", datatype, value);
    if value == 77 { 0x3000 } else { 0 }
}

fn keyval(mpi: &Mpi, calls: &Calls) -> i64 {
    // SAFETY: functions of that type.
    unsafe { mpi.type_create_keyval(copy as *mut c_void, delete as *mut c_void, calls.state()) }
        .expect("made")
}

fn set(mpi: &Mpi, of: Datatype, key: i64, value: usize) -> Answer<()> {
    // SAFETY: a value is no address that is followed.
    unsafe { mpi.type_set_attr(of, key, value as *mut c_void) }
}

fn get(mpi: &Mpi, of: Datatype, key: i64) -> Answer<Option<usize>> {
    let mut value = 0_usize;
    // SAFETY: there is room for an address.
    let found = unsafe { mpi.type_get_attr(of, key, (&raw mut value).cast()) }?;
    Ok(found.then_some(value))
}

#[test]
fn they_are_copied_in_order_and_deleted_from_the_last() {
    let (mpi, calls) = (Mpi::new(), Calls::default());
    let keys = [(); 3].map(|()| keyval(&mpi, &calls));
    // SAFETY: handles.
    unsafe {
        let made = mpi.type_contiguous(2, INT, false).expect("legal");
        for (key, value) in keys.into_iter().zip([20, 13, 10]) {
            set(&mpi, made, key, value).expect("set");
        }
        assert_eq!(calls.took(), []);
        let copied = mpi.type_dup(made).expect("copied");
        assert_eq!(calls.took(), [("copy", made.0, 20), ("copy", made.0, 13), ("copy", made.0, 10)]);
        let found = keys.map(|key| get(&mpi, copied, key).expect("told"));
        assert_eq!(found, [Some(21), None, Some(11)]);
        // Others are made without attributes.
        let other = mpi.type_contiguous(2, made, false).expect("legal");
        assert_eq!((get(&mpi, other, keys[0]), calls.took()), (Ok(None), vec![]));
        mpi.type_free(made).expect("freed");
        assert_eq!(calls.took(), [("delete", made.0, 10), ("delete", made.0, 13), ("delete", made.0, 20)]);
        mpi.type_free(copied).expect("freed");
        assert_eq!(calls.took(), [("delete", copied.0, 11), ("delete", copied.0, 21)]);
    }
}

#[test]
fn what_is_replaced_or_deleted_is_told_its_function() {
    let (mpi, calls) = (Mpi::new(), Calls::default());
    let key = keyval(&mpi, &calls);
    // SAFETY: handles. A predefined datatype has attributes as any other.
    unsafe {
        set(&mpi, INT, key, 1).expect("set");
        set(&mpi, INT, key, 2).expect("set");
        assert_eq!((get(&mpi, INT, key), calls.took()), (Ok(Some(2)), vec![("delete", INT.0, 1)]));
        mpi.type_delete_attr(INT, key).expect("deleted");
        assert_eq!((get(&mpi, INT, key), calls.took()), (Ok(None), vec![("delete", INT.0, 2)]));
        mpi.type_delete_attr(INT, key).expect("there is none");
        assert_eq!(calls.took(), []);
    }
}

#[test]
fn a_function_that_fails_stops_the_call() {
    let (mpi, calls) = (Mpi::new(), Calls::default());
    let keys = [(); 3].map(|()| keyval(&mpi, &calls));
    // SAFETY: handles.
    unsafe {
        let made = mpi.type_contiguous(2, INT, false).expect("legal");
        for (key, value) in keys.into_iter().zip([1, 77, 99]) {
            set(&mpi, made, key, value).expect("set");
        }
        // The third cannot be copied: the code is that of the function, and the copies are deleted again.
        assert_eq!(mpi.type_dup(made), Err(Class::Truncate.into()));
        let copies = [("copy", made.0, 1), ("copy", made.0, 77), ("copy", made.0, 99)];
        let deleted = [("delete", made.0, 78), ("delete", made.0, 2)];
        assert_eq!(calls.took(), [&copies[..], &deleted].concat());
        // The second cannot be deleted: the datatype stays, without what was. A number that is no code is
        // none.
        assert_eq!(mpi.type_free(made), Err(Class::Other.into()));
        assert_eq!(calls.took(), [("delete", made.0, 99), ("delete", made.0, 77)]);
        assert_eq!(keys.map(|key| get(&mpi, made, key)), [Ok(Some(1)), Ok(Some(77)), Ok(None)]);
        assert_eq!(set(&mpi, made, keys[1], 5), Err(Class::Other.into()));
        assert_eq!((get(&mpi, made, keys[1]), mpi.type_size(made)), (Ok(Some(77)), Ok(8)));
    }
}

#[test]
fn a_freed_keyval_is_not_for_the_program_but_for_its_attributes() {
    let (mpi, calls) = (Mpi::new(), Calls::default());
    let key = keyval(&mpi, &calls);
    // SAFETY: handles.
    unsafe {
        let made = mpi.type_contiguous(2, INT, false).expect("legal");
        set(&mpi, made, key, 4).expect("set");
        assert_eq!(mpi.type_free_keyval(key), Ok(INVALID));
        for answer in
            [get(&mpi, made, key).map(drop), set(&mpi, made, key, 5), mpi.type_delete_attr(made, key)]
        {
            assert_eq!(answer, Err(Class::Keyval.into()));
        }
        assert_eq!(mpi.type_free_keyval(key), Err(Class::Keyval.into()));
        let copied = mpi.type_dup(made).expect("copied");
        mpi.type_free(made).expect("freed");
        assert_eq!(calls.took(), [("copy", made.0, 4), ("delete", made.0, 4)]);
        mpi.type_free(copied).expect("freed");
        assert_eq!(calls.took(), [("delete", copied.0, 5)]);
    }
}

/// The extra state of a keyval whose function frees it.
struct Own<'a> {
    mpi: &'a Mpi,
    calls: Calls,
}

extern "C" fn delete_keyval(datatype: u64, key: c_int, value: usize, state: *mut c_void) -> c_int {
    // SAFETY: the extra state is one, and lives as long as the test.
    let own = unsafe { &*state.cast::<Own<'_>>() };
    note(own.calls.state(), "delete", datatype, value);
    // SAFETY: no function is called.
    let _ = unsafe { own.mpi.type_free_keyval(key.into()) };
    0
}

#[test]
fn a_function_may_free_its_keyval() {
    let mpi = Mpi::new();
    let own = Own { mpi: &mpi, calls: Calls::default() };
    let state = std::ptr::from_ref(&own).cast_mut().cast();
    let none = std::ptr::null_mut();
    // SAFETY: handles, and functions of that type.
    unsafe {
        let key = mpi.type_create_keyval(none, delete_keyval as *mut c_void, state).expect("made");
        let made = mpi.type_contiguous(2, INT, false).expect("legal");
        set(&mpi, made, key, 4).expect("set");
        assert_eq!(set(&mpi, made, key, 5), Err(Class::Keyval.into()));
        assert_eq!(own.calls.took(), [("delete", made.0, 4)]);
        // The old one is gone with it, and the next keyval has its place.
        mpi.type_free(made).expect("freed");
        assert_eq!(own.calls.took(), []);
        assert_eq!(mpi.type_create_keyval(none, none, none), Ok(key));
    }
}

#[test]
fn the_standards_own_functions_copy_all_or_nothing() {
    let mpi = Mpi::new();
    let make = |copy: usize| {
        let none = std::ptr::null_mut();
        // SAFETY: MPI_TYPE_NULL_COPY_FN or MPI_TYPE_DUP_FN, and MPI_TYPE_NULL_DELETE_FN.
        unsafe { mpi.type_create_keyval(copy as *mut c_void, none, none) }.expect("made")
    };
    let (null, dup) = (make(0), make(1));
    assert!(null != dup && null != INVALID && dup != INVALID);
    // SAFETY: handles.
    unsafe {
        let made = mpi.type_contiguous(2, INT, false).expect("legal");
        set(&mpi, made, null, 1).expect("set");
        set(&mpi, made, dup, 2).expect("set");
        let copied = mpi.type_dup(made).expect("copied");
        assert_eq!((get(&mpi, copied, null), get(&mpi, copied, dup)), (Ok(None), Ok(Some(2))));
        mpi.type_free(made).expect("freed");
    }
}

#[test]
fn wrong_arguments_have_their_classes() {
    let (mpi, calls) = (Mpi::new(), Calls::default());
    let key = keyval(&mpi, &calls);
    for bad in [INVALID, -1, key + 1, key + 2, key + 4, 501, i64::MAX] {
        assert_eq!(get(&mpi, INT, bad), Err(Class::Keyval.into()), "{bad}");
        assert_eq!(set(&mpi, INT, bad, 1), Err(Class::Keyval.into()), "{bad}");
        // SAFETY: no function is called.
        assert_eq!(unsafe { mpi.type_free_keyval(bad) }, Err(Class::Keyval.into()), "{bad}");
    }
    assert_eq!(set(&mpi, Datatype::NULL, key, 1), Err(Class::Type.into()));
    assert_eq!(get(&mpi, Datatype(0x1000), key), Err(Class::Type.into()));
    let null = std::ptr::null_mut();
    // SAFETY: nothing is written.
    unsafe {
        assert_eq!(mpi.type_get_attr(INT, key, null), Err(Class::Arg.into()));
        assert_eq!(mpi.type_set_name(INT, std::ptr::null()), Err(Class::Arg.into()));
        assert_eq!(mpi.type_get_name(Datatype::NULL, std::ptr::null_mut()), Err(Class::Arg.into()));
        assert_eq!(mpi.type_get_name(Datatype(4711), std::ptr::null_mut()), Err(Class::Type.into()));
    }
}
