//! Hints of communicators, windows, files and sessions: what a program sets later leaves the others as they
//! are, and those are told that are not passed over.

use std::ffi::{CStr, c_char};

use super::messages::{BYTE, WORLD};
use super::run;
use crate::Mpi;
use crate::calls::{Communicators, Environment, Files, Infos, Windows};
use crate::failure::Answer;
use crate::handle::{Errhandler, Info};

type Pairs<'a> = &'a [(&'a CStr, &'a CStr)];

/// An info with these keys and values.
fn made(mpi: &Mpi, pairs: Pairs<'_>) -> Info {
    // SAFETY: strings end.
    unsafe {
        let info = mpi.info_create().expect("made");
        for (key, value) in pairs {
            mpi.info_set(info, key.as_ptr(), value.as_ptr()).expect("short");
        }
        info
    }
}

/// All keys and values, in the order of the keys.
fn all(mpi: &Mpi, info: Info) -> Vec<(String, String)> {
    let text = |bytes: &[c_char]| {
        // SAFETY: a string that ends.
        unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_str().expect("text").to_owned()
    };
    let (mut key, mut value) = ([0 as c_char; 256], [0 as c_char; 1024]);
    // SAFETY: there is so much room.
    let mut all: Vec<_> = unsafe {
        let pair = |nth| {
            mpi.info_get_nthkey(info, nth, key.as_mut_ptr()).expect("there");
            mpi.info_get_string(info, key.as_ptr(), 1024, value.as_mut_ptr()).expect("asked");
            (text(&key), text(&value))
        };
        (0..mpi.info_get_nkeys(info).expect("an info")).map(pair).collect()
    };
    all.sort();
    all
}

/// What each object tells of memory, of which a program may send.
const MEMORY: (&CStr, &CStr) = (c"mpi_memory_alloc_kinds", c"mpi,system");

/// That these and no others are told, beside those of memory.
fn are(mpi: &Mpi, info: Answer<Info>, expected: Pairs<'_>) {
    let expected = expected.iter().chain([&MEMORY]);
    let text = |of: &CStr| of.to_str().expect("text").to_owned();
    let mut expected: Vec<_> = expected.map(|(key, value)| (text(key), text(value))).collect();
    expected.sort();
    assert_eq!(all(mpi, info.expect("told")), expected);
}

/// Sets some and then others of something, and asks for them: two that are kept, with two values of the
/// first.
fn stay(
    mpi: &Mpi,
    (a, b): (&CStr, &CStr),
    [a1, a2, b1]: [&CStr; 3],
    set: impl Fn(Info) -> Answer<()>,
    ask: impl Fn() -> Answer<Info>,
) {
    let set = |pairs: Pairs<'_>| set(made(mpi, pairs)).expect("set");
    let are = |pairs: Pairs<'_>| are(mpi, ask(), pairs);
    are(&[]);
    set(&[(a, a1)]);
    set(&[(b, b1)]);
    are(&[(a, a1), (b, b1)]);
    set(&[(a, a2)]);
    are(&[(a, a2), (b, b1)]);
    set(&[]);
    // Nobody does anything of these: who asks must not think so.
    set(&[(c"a", c"1"), (MEMORY.0, c"system,mpi,cuda:device"), (c"cb_nodes", c"8")]);
    set(&[(c"alloc_shared_noncontig", c"true"), (c"filename", c"other"), (c"thread_level", c"x")]);
    are(&[(a, a2), (b, b1)]);
}

#[test]
fn the_length_of_what_is_not_there_is_left_as_it_was() {
    run(1, |mpi, _| {
        let info = made(mpi, &[(c"key", c"value")]);
        // SAFETY: strings end.
        let len = |key: &CStr| unsafe { mpi.info_get_valuelen(info, key.as_ptr(), 42) };
        assert_eq!((len(c"key"), len(c"other")), (Ok((5, true)), Ok((42, false))));
    });
}

/// The same of promises that are kept or not.
const YES: [&CStr; 3] = [c"true", c"false", c"true"];

#[test]
fn hints_of_a_communicator_stay() {
    run(1, |mpi, _| {
        // SAFETY: nothing is given but handles.
        unsafe {
            let keys = (c"mpi_assert_no_any_tag", c"mpi_assert_exact_length");
            let comm = mpi.comm_dup(WORLD).expect("made");
            stay(mpi, keys, YES, |info| mpi.comm_set_info(comm, info), || mpi.comm_get_info(comm));
            mpi.comm_set_info(comm, made(mpi, &[(keys.0, c"perhaps")])).expect("set");
            are(mpi, mpi.comm_get_info(comm), &[(keys.1, c"true")]);
            let info = made(mpi, &[(keys.0, c"true"), (c"no_locks", c"true")]);
            let other = mpi.comm_dup_with_info(comm, info).expect("made");
            are(mpi, mpi.comm_get_info(other), &[(keys.0, c"true")]);
            are(mpi, mpi.comm_get_info(WORLD), &[]);
            mpi.comm_free(comm).expect("freed");
            mpi.comm_free(other).expect("freed");
        }
    });
}

#[test]
fn hints_of_a_window_stay() {
    run(1, |mpi, _| {
        // SAFETY: it has no memory.
        unsafe {
            let (keys, values) = ((c"accumulate_ordering", c"no_locks"), [c"rar,waw", c"none", c"true"]);
            let win = mpi.win_create_dynamic(Info::NULL, WORLD).expect("made");
            stay(mpi, keys, values, |info| mpi.win_set_info(win, info), || mpi.win_get_info(win));
            mpi.win_free(win).expect("freed");
            let info = made(mpi, &[(c"same_size", c"true"), (c"access_style", c"random")]);
            let win = mpi.win_create_dynamic(info, WORLD).expect("made");
            are(mpi, mpi.win_get_info(win), &[(c"same_size", c"true")]);
            mpi.win_free(win).expect("freed");
        }
    });
}

const STYLE: (&CStr, &CStr) = (c"access_style", c"mpi_assert_memory_alloc_kinds");
const STYLES: [&CStr; 3] = [c"read_once,sequential", c"random", c"system"];

#[test]
fn hints_of_a_file_stay() {
    run(1, |mpi, _| {
        // SAFETY: nothing is given but handles.
        unsafe {
            let file = super::files::open(mpi, "hints");
            stay(mpi, STYLE, STYLES, |info| mpi.file_set_info(file, info), || mpi.file_get_info(file));
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
            stay(mpi, STYLE, STYLES, view, || mpi.file_get_info(file));
            view(Info::NULL).expect("no hints");
            are(mpi, mpi.file_get_info(file), &[(STYLE.0, STYLES[1]), (STYLE.1, STYLES[2])]);
            mpi.file_close(file).expect("closed");
        }
    });
}

/// How threads may use it is told also if nothing was asked for.
#[test]
fn a_session_says_what_it_supports() {
    let mpi = Mpi::new();
    let level = c"thread_level";
    let (single, serialized) = (c"MPI_THREAD_SINGLE", c"MPI_THREAD_SERIALIZED");
    for (asked, told) in [
        (None, c"MPI_THREAD_MULTIPLE"),
        (Some(single), single),
        (Some(serialized), serialized),
        (Some(c"all"), c"MPI_THREAD_MULTIPLE"),
    ] {
        // SAFETY: nothing is given but handles.
        unsafe {
            let info = asked.map_or(Info::NULL, |asked| {
                made(&mpi, &[(level, asked), (MEMORY.0, c"system,mpi,cuda:device"), (c"a", c"1")])
            });
            let session = mpi.session_init(info, Errhandler::RETURN).expect("begun");
            are(&mpi, mpi.session_get_info(session), &[(level, told)]);
            mpi.session_finalize(session).expect("ended");
        }
    }
}
