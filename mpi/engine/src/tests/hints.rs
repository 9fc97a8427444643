//! Hints of communicators, windows and files: what a program sets later leaves the others as they are.

use std::ffi::{CStr, c_char};

use super::messages::{BYTE, WORLD};
use super::run;
use crate::Mpi;
use crate::calls::{Communicators, Files, Infos, Windows};
use crate::failure::Answer;
use crate::handle::Info;

/// An info with these keys and values.
fn made(mpi: &Mpi, pairs: &[(&CStr, &CStr)]) -> Info {
    // SAFETY: strings end.
    unsafe {
        let info = mpi.info_create().expect("made");
        for (key, value) in pairs {
            mpi.info_set(info, key.as_ptr(), value.as_ptr()).expect("short");
        }
        info
    }
}

/// The values of `a`, `b` and `c`.
fn values(mpi: &Mpi, info: Info) -> [Option<String>; 3] {
    [c"a", c"b", c"c"].map(|key| {
        let mut value = [0 as c_char; 8];
        // SAFETY: a string that ends, and so much room.
        unsafe {
            let (_, is_there) =
                mpi.info_get_string(info, key.as_ptr(), 8, value.as_mut_ptr()).expect("asked");
            is_there.then(|| CStr::from_ptr(value.as_ptr()).to_str().expect("text").to_owned())
        }
    })
}

/// Sets some and then others of something, and asks for them.
fn stay(mpi: &Mpi, set: impl Fn(Info) -> Answer<()>, ask: impl Fn() -> Answer<Info>) {
    let are = |expected: [Option<&str>; 3]| {
        assert_eq!(values(mpi, ask().expect("told")), expected.map(|value| value.map(str::to_owned)));
    };
    let set = |pairs: &[(&CStr, &CStr)]| set(made(mpi, pairs)).expect("set");
    set(&[(c"a", c"1")]);
    set(&[(c"b", c"2")]);
    are([Some("1"), Some("2"), None]);
    set(&[(c"c", c"3"), (c"a", c"4")]);
    are([Some("4"), Some("2"), Some("3")]);
    set(&[]);
    are([Some("4"), Some("2"), Some("3")]);
}

#[test]
fn hints_of_a_communicator_stay() {
    run(1, |mpi, _| {
        // SAFETY: nothing is given but handles.
        unsafe {
            let comm = mpi.comm_dup(WORLD).expect("made");
            stay(mpi, |info| mpi.comm_set_info(comm, info), || mpi.comm_get_info(comm));
            mpi.comm_free(comm).expect("freed");
        }
    });
}

#[test]
fn hints_of_a_window_stay() {
    run(1, |mpi, _| {
        // SAFETY: it has no memory.
        unsafe {
            let win = mpi.win_create_dynamic(Info::NULL, WORLD).expect("made");
            stay(mpi, |info| mpi.win_set_info(win, info), || mpi.win_get_info(win));
            mpi.win_free(win).expect("freed");
        }
    });
}

#[test]
fn hints_of_a_file_stay() {
    run(1, |mpi, _| {
        // SAFETY: nothing is given but handles.
        unsafe {
            let file = super::files::open(mpi, "hints");
            stay(mpi, |info| mpi.file_set_info(file, info), || mpi.file_get_info(file));
            mpi.file_close(file).expect("closed");
        }
    });
}

#[test]
fn hints_of_a_file_stay_where_its_view_is_set() {
    run(1, |mpi, _| {
        // SAFETY: the name of the representation ends.
        unsafe {
            let file = super::files::open(mpi, "hints-of-views");
            let view = |info| mpi.file_set_view(file, 0, BYTE, BYTE, c"native".as_ptr(), info);
            stay(mpi, view, || mpi.file_get_info(file));
            view(Info::NULL).expect("no hints");
            let still = values(mpi, mpi.file_get_info(file).expect("told"));
            assert_eq!(still.map(|value| value.is_some()), [true; 3]);
            mpi.file_close(file).expect("closed");
        }
    });
}
