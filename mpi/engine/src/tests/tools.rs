//! The interface for tools.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use bdrun_mpi_core::error::{Class, Code};

use super::run;
use crate::Mpi;
use crate::args::Buffer;
use crate::calls::{Messages, Tools};
use crate::face::Object;
use crate::failure::{Answer, code};
use crate::handle::{Comm, Datatype};

const BYTE: Datatype = Datatype(0x247);
/// `MPI_T_PVAR_CLASS_COUNTER`, `MPI_T_PVAR_CLASS_AGGREGATE`
const CLASSES: [i64; 2] = [7, 8];
/// `MPI_T_PVAR_ALL_HANDLES`
const ALL: *mut c_void = std::ptr::without_provenance_mut(1);

fn class<T>(answer: Answer<T>) -> Option<Class> {
    match answer.err()?.code {
        Code::Class(class) => Some(class),
        other => panic!("{other:?}"),
    }
}

/// One handle, written by a call.
fn made(call: impl FnOnce(*mut c_void)) -> *mut c_void {
    let mut handle = null_mut::<c_void>();
    call((&raw mut handle).cast());
    handle
}

unsafe fn value(mpi: &Mpi, session: *mut c_void, handle: *mut c_void) -> Answer<u64> {
    let mut value = 0_u64;
    // SAFETY: the caller's; there is room.
    unsafe { mpi.t_pvar_read(session, handle, Buffer::At((&raw mut value).cast())) }.map(|()| value)
}

#[test]
fn variables_count_what_a_session_has_started() {
    run(2, |mpi, process| {
        let mut data = [0_u8; 100];
        let at = Buffer::At(data.as_mut_ptr());
        // SAFETY: buffers of the size that is said, handles that were made, strings that end.
        unsafe {
            mpi.t_init_thread(0).expect("it begins");
            assert_eq!(mpi.t_pvar_get_num(), Ok(2));
            let session = made(|to| mpi.t_pvar_session_create(to).expect("made"));
            let handles = [0, 1].map(|variable| {
                made(|to| {
                    let none = Buffer::At(null_mut());
                    assert_eq!(mpi.t_pvar_handle_alloc(session, variable, none, to), Ok(1));
                })
            });
            let values = || handles.map(|handle| value(mpi, session, handle).expect("it can be read"));
            let exchange = || {
                let other = i64::from(1 - process);
                mpi.sendrecv(
                    at,
                    50,
                    BYTE,
                    other,
                    0,
                    Buffer::At(at_of(at).add(50)),
                    50,
                    BYTE,
                    other,
                    0,
                    Comm::WORLD,
                )
                .expect("exchanged");
            };
            exchange();
            assert_eq!(values(), [0, 0]);
            mpi.t_pvar_start(session, ALL).expect("started");
            exchange();
            exchange();
            assert_eq!(values(), [2, 100]);
            mpi.t_pvar_stop(session, handles[0]).expect("stopped");
            exchange();
            assert_eq!(values(), [2, 150]);
            let mut before = 0_u64;
            let to = Buffer::At((&raw mut before).cast());
            mpi.t_pvar_readreset(session, handles[1], to).expect("read");
            assert_eq!((before, values()), (150, [2, 0]));
            mpi.t_pvar_write(session, handles[0], to).expect("written");
            mpi.t_pvar_start(session, handles[0]).expect("started");
            exchange();
            assert_eq!(values(), [151, 50]);
            mpi.t_pvar_reset(session, ALL).expect("reset");
            assert_eq!(values(), [0, 0]);
            mpi.t_finalize().expect("it ends");
        }
    });
}

fn at_of(buffer: Buffer) -> *mut u8 {
    match buffer {
        Buffer::At(at) => at,
        Buffer::InPlace => null_mut(),
    }
}

#[test]
fn strings_are_told_as_far_as_there_is_room() {
    run(1, |mpi, _| {
        let mut name = [b'?' as std::ffi::c_char; 64];
        // SAFETY: there is room for what is said.
        unsafe {
            mpi.t_init_thread(4096).expect("it begins");
            for (index, class) in CLASSES.into_iter().enumerate() {
                let index = index as i64;
                let asked = mpi.t_pvar_get_info(index, null_mut(), 0, null_mut(), null_mut(), 0);
                let (len, verbosity, found, of, text, bind, readonly, continuous, atomic) =
                    asked.expect("there");
                assert_eq!((verbosity, found, of, bind), (9, class, Datatype(527), 1));
                assert_eq!((readonly, continuous, atomic), (false, false, true));
                assert!(text > 10);
                let whole = mpi.t_pvar_get_info(index, name.as_mut_ptr(), 64, null_mut(), null_mut(), 0);
                let said = CStr::from_ptr(name.as_ptr());
                assert_eq!((whole.expect("there").0, said.to_bytes().len() as i64), (len, len - 1));
                assert_eq!(mpi.t_pvar_get_index(said.as_ptr(), class), Ok(index));
                let other = mpi.t_pvar_get_index(said.as_ptr(), 1);
                assert_eq!(super::tools::class(other), Some(Class::ToolInvalidName));
                let part = mpi.t_pvar_get_info(index, name.as_mut_ptr(), 6, null_mut(), null_mut(), 0);
                assert_eq!((part.expect("there").0, CStr::from_ptr(name.as_ptr())), (6, c"bdrun"));
            }
        }
    });
}

#[test]
fn what_is_wrong_has_a_class_of_its_own() {
    run(1, |mpi, _| {
        let none = Buffer::At(null_mut());
        let nothing = null_mut();
        // SAFETY: nothing is written, as all fail; strings end.
        unsafe {
            let early = [
                class(mpi.t_pvar_get_num()),
                class(mpi.t_cvar_get_num()),
                class(mpi.t_event_get_num()),
                class(mpi.t_category_changed()),
                class(mpi.t_cvar_read(nothing, none)),
                class(mpi.t_pvar_session_create(nothing)),
                class(mpi.t_finalize()),
            ];
            assert_eq!(early, [Some(Class::ToolNotInitialized); 7]);
            assert_eq!(class(mpi.t_init_thread(7)), Some(Class::ToolInvalid));
            mpi.t_init_thread(0).expect("it begins");
            mpi.t_init_thread(0).expect("again");
            assert_eq!((mpi.t_cvar_get_num(), mpi.t_event_get_num()), (Ok(0), Ok(0)));
            assert_eq!((mpi.t_category_get_num(), mpi.t_source_get_num()), (Ok(0), Ok(0)));
            let session = made(|to| mpi.t_pvar_session_create(to).expect("made"));
            let handle = made(|to| _ = mpi.t_pvar_handle_alloc(session, 0, none, to).expect("made"));
            let mut place = nothing;
            let to: *mut c_void = (&raw mut place).cast();
            let found = [
                (
                    class(mpi.t_pvar_get_info(2, null_mut(), 0, nothing, null_mut(), 0)),
                    Class::ToolInvalidIndex,
                ),
                (
                    class(mpi.t_pvar_get_info(-1, null_mut(), 0, nothing, null_mut(), 0)),
                    Class::ToolInvalidIndex,
                ),
                (class(mpi.t_pvar_get_index(c"none".as_ptr(), 7)), Class::ToolInvalidName),
                (class(mpi.t_pvar_handle_alloc(session, 2, none, to)), Class::ToolInvalidIndex),
                (class(mpi.t_pvar_handle_alloc(nothing, 0, none, to)), Class::ToolInvalidSession),
                (class(mpi.t_pvar_read(session, nothing, none)), Class::ToolInvalidHandle),
                (class(mpi.t_pvar_read(session, ALL, none)), Class::ToolInvalidHandle),
                (class(mpi.t_pvar_read(session, handle, none)), Class::ToolInvalid),
                (class(mpi.t_pvar_start(nothing, handle)), Class::ToolInvalidSession),
                (class(mpi.t_pvar_handle_free(session, to)), Class::ToolInvalidHandle),
                (class(mpi.t_pvar_session_free(to)), Class::ToolInvalidSession),
                (class(mpi.t_cvar_get_index(c"none".as_ptr())), Class::ToolInvalidName),
                (class(mpi.t_cvar_handle_alloc(0, none, to)), Class::ToolInvalidIndex),
                (class(mpi.t_cvar_write(nothing, none)), Class::ToolInvalidHandle),
                (class(mpi.t_category_get_index(c"none".as_ptr())), Class::ToolInvalidName),
                (class(mpi.t_category_get_num_events(0)), Class::ToolInvalidIndex),
                (class(mpi.t_event_get_index(c"none".as_ptr())), Class::ToolInvalidName),
                (class(mpi.t_source_get_timestamp(0)), Class::ToolInvalidIndex),
                (class(mpi.t_enum_get_info(nothing, null_mut(), 0)), Class::ToolInvalidHandle),
            ];
            for (place, (found, expected)) in found.into_iter().enumerate() {
                assert_eq!(found, Some(expected), "{place}");
            }
            // No handler is told, which would end the process; what no tool knows is "invalid".
            let told = |class: Class| code(mpi.tell(Object::Tools, &class.into()));
            assert_eq!(told(Class::ToolInvalidName), Some(Code::Class(Class::ToolInvalidName)));
            assert_eq!(told(Class::Arg), Some(Code::Class(Class::ToolInvalid)));
            place = session;
            mpi.t_pvar_session_free(to).expect("it was there");
            assert!(place.is_null());
            mpi.t_finalize().expect("one user left");
            assert_eq!(mpi.t_pvar_get_num(), Ok(2));
            mpi.t_finalize().expect("the last one");
            assert_eq!(class(mpi.t_pvar_get_num()), Some(Class::ToolNotInitialized));
        }
    });
}
