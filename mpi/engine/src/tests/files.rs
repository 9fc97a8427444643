//! Files in representations that are not the machine's.

use std::ffi::{CString, c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use bdrun_mpi_core::error::{Class, Code};

use super::{Well, run};
use crate::Mpi;
use crate::args::Buffer;
use crate::calls::{Collectives, Datatypes, Files, Messages};
use crate::face::Object;
use crate::failure::number;
use crate::handle::{Comm, Datatype, File, Info};

const BYTE: Datatype = Datatype(0x247);
const INT: Datatype = Datatype(0x209);
const LONG: Datatype = Datatype(0x20a);
const DOUBLE: Datatype = Datatype(0x214);
/// `MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE`
const MODE: i64 = 2 | 32 | 4;

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("bdrun-files-{name}-{}", std::process::id()))
}

fn at<T>(of: &mut [T]) -> Buffer {
    Buffer::At(of.as_mut_ptr().cast())
}

pub(super) unsafe fn open(mpi: &Mpi, name: &str) -> File {
    let name = CString::new(path(name).to_str().expect("a name")).expect("no zeros");
    // SAFETY: the name ends.
    unsafe { mpi.file_open(Comm::WORLD, name.as_ptr(), MODE, Info::NULL) }.expect("it opens")
}

/// `fsync` refuses a device.
#[test]
fn what_cannot_be_synced_is_closed() {
    run(2, |mpi, _| {
        // SAFETY: the name ends, the buffer is of the size that is said.
        unsafe {
            // `MPI_MODE_RDWR`
            let file = mpi.file_open(Comm::WORLD, c"/dev/null".as_ptr(), 32, Info::NULL).expect("it opens");
            mpi.file_write_at(file, 0, at(&mut [1_i32]), 1, INT).expect("written");
            assert_eq!(mpi.file_sync(file), Ok(()));
            assert_eq!(mpi.file_close(file), Ok(File::NULL));
        }
    });
}

/// Where there is no file the default handler is told, which lets the call return until a program has
/// another.
#[test]
fn a_file_that_is_missing_ends_no_job() {
    run(1, |mpi, _| {
        let name = CString::new(path("missing").to_str().expect("a name")).expect("no zeros");
        // MPI_MODE_RDONLY. SAFETY: the name ends.
        let failure = unsafe { mpi.file_open(Comm::WORLD, name.as_ptr(), 16, Info::NULL) };
        let failure = failure.expect_err("there is none");
        let code = mpi.tell(Object::File(File::NULL), &failure);
        assert_eq!(code, number(Code::Class(Class::NoSuchFile)));
    });
}

/// Two processes write integers and floating point numbers in turns; what lies there is big-endian.
#[test]
fn external32_is_big_endian_on_disk_and_comes_back() {
    run(2, |mpi, process| {
        // SAFETY: buffers of the size that is said; strings end.
        unsafe {
            let file = open(mpi, "external");
            // Of each two numbers one is this process's.
            let one = mpi.type_vector(1, 1, 1, DOUBLE, false).expect("made");
            let mine = mpi.type_create_resized(one, 0, 16, false).expect("made");
            let mine = mpi.type_commit(mine).expect("committed");
            let external = c"external32".as_ptr();
            let begin = i64::from(process) * 8;
            mpi.file_set_view(file, begin, DOUBLE, mine, external, Info::NULL).expect("it is known");
            let mut numbers = [1.5, -2.0, 3.25].map(|number| number + f64::from(process));
            let status = mpi.file_write_all(file, at(&mut numbers), 3, DOUBLE).expect("written");
            assert_eq!(status.count, 24);
            assert_eq!(mpi.file_get_position(file), Ok(3));
            mpi.file_sync(file).expect("on disk");
            let bytes = std::fs::read(path("external")).expect("it is there");
            let all = [1.5_f64, 2.5, -2.0, -1.0, 3.25, 4.25].map(f64::to_be_bytes).concat();
            assert_eq!(bytes, all);
            let mut back = [0.0; 4];
            let status = mpi.file_read_at(file, 1, at(&mut back), 4, DOUBLE).expect("read");
            assert_eq!((status.count, back), (16, [numbers[1], numbers[2], 0.0, 0.0]));
            let mut name = [0; 128];
            let (disp, etype, _) = mpi.file_get_view(file, name.as_mut_ptr()).expect("it has one");
            assert_eq!((disp, etype), (begin, DOUBLE));
            assert_eq!(std::ffi::CStr::from_ptr(name.as_ptr()), c"external32");
            mpi.file_close(file).expect("closed");
        }
    });
}

/// What is told of a view can be set again as it is: both datatypes are committed.
#[test]
fn a_view_can_be_set_again() {
    run(1, |mpi, _| {
        // SAFETY: buffers of the size that is said; strings end.
        unsafe {
            let file = open(mpi, "again");
            let pair = mpi.type_commit(mpi.type_contiguous(2, INT, false).expect("made")).expect("committed");
            let other = mpi.type_create_resized(pair, 0, 16, false).expect("made");
            let other = mpi.type_commit(other).expect("committed");
            let native = c"native".as_ptr();
            mpi.file_set_view(file, 8, pair, other, native, Info::NULL).expect("set");
            let (disp, etype, filetype) = mpi.file_get_view(file, [0; 128].as_mut_ptr()).expect("it has one");
            mpi.file_set_view(file, 0, BYTE, BYTE, native, Info::NULL).expect("set");
            assert_eq!(mpi.file_set_view(file, disp, etype, filetype, native, Info::NULL), Ok(()));
            mpi.file_write(file, at(&mut [1_i32, 2, 3, 4]), 2, pair).expect("written");
            let bytes = std::fs::read(path("again")).expect("it is there");
            assert_eq!(bytes, [0_i32, 0, 1, 2, 0, 0, 3, 4].map(i32::to_ne_bytes).concat());
            for made in [etype, filetype] {
                mpi.type_free(made).expect("they are the program's");
            }
            mpi.file_close(file).expect("closed");
        }
    });
}

/// Whoever goes on makes another of that name, which stays.
#[test]
fn a_file_is_deleted_before_its_close_is_over() {
    run(2, |mpi, process| {
        let name = CString::new(path("deleted").to_str().expect("a name")).expect("no zeros");
        for round in 0..200_i32 {
            // SAFETY: buffers of the size that is said; the name ends.
            unsafe {
                let file = open(mpi, "deleted");
                assert_eq!(mpi.file_close(file), Ok(File::NULL));
                if process == 1 {
                    // MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR
                    let file = mpi.file_open(Comm::SELF, name.as_ptr(), 2 | 8 | 32, Info::NULL);
                    let file = file.expect("there is none any more");
                    mpi.file_write_at(file, 0, at(&mut [round]), 1, INT).expect("written");
                    mpi.file_close(file).expect("closed");
                }
                mpi.barrier(Comm::WORLD).expect("all come");
                assert_eq!(std::fs::read(path("deleted")).expect("it is there"), round.to_ne_bytes());
                mpi.barrier(Comm::WORLD).expect("all come");
                if process == 1 {
                    mpi.file_delete(name.as_ptr(), Info::NULL).expect("it is there");
                }
                mpi.barrier(Comm::WORLD).expect("all come");
            }
        }
    });
}

/// `MPI_LONG` has four bytes there: units of the view, pointers and counts are in terms of those.
#[test]
fn what_is_narrower_in_the_file_is_counted_so() {
    run(1, |mpi, _| {
        // SAFETY: as above.
        unsafe {
            let file = open(mpi, "narrow");
            mpi.file_set_view(file, 4, LONG, LONG, c"external32".as_ptr(), Info::NULL).expect("known");
            assert_eq!(mpi.file_get_type_extent(file, LONG), Ok(4));
            let mut numbers: Vec<i64> = (-3..3).collect();
            // Every other one of memory.
            let other = mpi.type_vector(3, 1, 2, LONG, false).expect("made");
            let other = mpi.type_commit(other).expect("committed");
            assert_eq!(mpi.file_write(file, at(&mut numbers), 1, other).map(|status| status.count), Ok(24));
            assert_eq!(mpi.file_get_position(file), Ok(3));
            mpi.file_write_shared(file, at(&mut numbers), 1, LONG).expect("written");
            assert_eq!(mpi.file_get_position_shared(file), Ok(1));
            let bytes = std::fs::read(path("narrow")).expect("it is there");
            assert_eq!(bytes, [0, -3, -1, 1].map(i32::to_be_bytes).concat());
            assert_eq!(mpi.file_get_byte_offset(file, 2), Ok(12));
            mpi.file_seek(file, -1, 402).expect("from the end");
            let mut back = [7_i64; 6];
            assert_eq!(mpi.file_read(file, at(&mut back), 2, other).map(|status| status.count), Ok(8));
            assert_eq!(back, [1, 7, 7, 7, 7, 7]);
            mpi.file_close(file).expect("closed");
        }
    });
}

/// One datatype is as large as the program likes: it goes and comes piece by piece.
#[test]
fn a_large_datatype_is_converted_piece_by_piece() {
    const MANY: i64 = 3_000_000;
    run(1, |mpi, _| {
        // SAFETY: as above.
        unsafe {
            let file = open(mpi, "large");
            mpi.file_set_view(file, 0, LONG, LONG, c"external32".as_ptr(), Info::NULL).expect("known");
            let all =
                mpi.type_contiguous(MANY, LONG, false).and_then(|all| mpi.type_commit(all)).expect("made");
            let mut numbers: Vec<i64> = (-MANY / 2..MANY / 2).collect();
            let written = mpi.file_write(file, at(&mut numbers), 1, all).map(|status| status.count);
            assert_eq!((written, mpi.file_get_position(file)), (Ok(8 * MANY), Ok(MANY)));
            assert_eq!(mpi.file_get_size(file), Ok(4 * MANY));
            // One that is not all there.
            let (from, mut back) = (MANY / 3, vec![0_i64; MANY as usize]);
            let read = mpi.file_read_at(file, from, at(&mut back), 1, all).map(|status| status.count);
            assert_eq!(read, Ok(8 * (MANY - from)));
            assert!(back[..(MANY - from) as usize] == numbers[from as usize..]);
            // No more is read than was asked for.
            mpi.file_seek(file, 7, 403).expect("sought");
            let read = mpi.file_read(file, at(&mut back), 2, LONG).map(|status| status.count);
            assert_eq!((read, mpi.file_get_position(file)), (Ok(16), Ok(9)));
            assert_eq!(back[..2], numbers[7..9]);
            mpi.file_close(file).expect("closed");
        }
    });
}

/// Each integer as six bytes: its complement, and how often a function was called.
unsafe extern "C" fn extent(_: u64, extent: *mut i64, _: *mut c_void) -> c_int {
    // SAFETY: the caller's: there is room.
    unsafe { extent.write(6) };
    0
}

/// The state: calls, and the code that is returned.
static STATE: [AtomicI64; 2] = [AtomicI64::new(0), AtomicI64::new(0)];

unsafe fn told(state: *mut c_void) -> c_int {
    // SAFETY: the caller's: the state above.
    let state = unsafe { &*state.cast::<[AtomicI64; 2]>() };
    state[0].fetch_add(1, SeqCst);
    state[1].load(SeqCst) as c_int
}

unsafe extern "C" fn write(
    memory: *mut c_void,
    datatype: u64,
    count: c_int,
    file: *mut c_void,
    position: i64,
    state: *mut c_void,
) -> c_int {
    assert_eq!(datatype, INT.0);
    for nth in 0..count as usize {
        // SAFETY: the caller's: so many of memory from the position on, and of the file.
        unsafe {
            let number: i32 = memory.cast::<i32>().add(position as usize + nth).read();
            file.cast::<u8>().add(nth * 6).cast::<i32>().write_unaligned(!number);
            file.cast::<u8>().add(nth * 6 + 4).cast::<u16>().write_unaligned(0x7777);
        }
    }
    // SAFETY: the caller's.
    unsafe { told(state) }
}

unsafe extern "C" fn read(
    memory: *mut c_void,
    _: u64,
    count: c_int,
    file: *mut c_void,
    position: i64,
    state: *mut c_void,
) -> c_int {
    for nth in 0..count as usize {
        // SAFETY: as above.
        unsafe {
            let number = !file.cast::<u8>().add(nth * 6).cast::<i32>().read_unaligned();
            memory.cast::<i32>().add(position as usize + nth).write(number);
        }
    }
    // SAFETY: as above.
    unsafe { told(state) }
}

fn class<T: std::fmt::Debug>(answer: crate::failure::Answer<T>) -> Class {
    match answer.expect_err("it fails").code {
        Code::Class(class) => class,
        other => panic!("{other:?}"),
    }
}

#[test]
fn functions_of_the_program_convert() {
    run(1, |mpi, _| {
        let state = (&raw const STATE).cast_mut().cast();
        let functions = [read as *mut c_void, write as *mut c_void, extent as *mut c_void];
        // SAFETY: the functions have such types, and the state is theirs.
        unsafe {
            let [read, write, extent] = functions;
            let known = |name: &std::ffi::CStr| {
                mpi.register_datarep(name.as_ptr(), read, write, extent, state, false)
            };
            let file = open(mpi, "made");
            let view =
                |name: &std::ffi::CStr| mpi.file_set_view(file, 0, INT, INT, name.as_ptr(), Info::NULL);
            assert_eq!(class(view(c"upside down")), Class::UnsupportedDatarep);
            known(c"upside down").expect("it is new");
            assert_eq!(class(known(c"upside down")), Class::DupDatarep);
            assert_eq!(class(known(c"external32")), Class::DupDatarep);
            assert_eq!(class(known(c"")), Class::Arg);
            view(c"upside down").expect("it is known");
            assert_eq!(mpi.file_get_type_extent(file, INT), Ok(6));
            // More than is converted at a time.
            let mut numbers: Vec<i32> = (0..2_000_000).collect();
            let count = numbers.len() as i64;
            let status = mpi.file_write(file, at(&mut numbers), count, INT).expect("written");
            assert_eq!(status.count, count * 4);
            let calls = STATE[0].load(SeqCst);
            assert!(calls > 1, "{calls} calls");
            let bytes = std::fs::read(path("made")).expect("it is there");
            assert_eq!((bytes.len(), &bytes[6..12]), (12_000_000, &[0xfe, 0xff, 0xff, 0xff, 0x77, 0x77][..]));
            let mut back = vec![0; numbers.len()];
            assert_eq!(
                mpi.file_read_at(file, 3, at(&mut back), count, INT).map(|s| s.count),
                Ok(count * 4 - 12)
            );
            assert!(back[..back.len() - 3] == numbers[3..]);
            STATE[1].store(1, SeqCst);
            assert_eq!(class(mpi.file_read_at(file, 0, at(&mut back), 1, INT)), Class::Conversion);
            mpi.file_close(file).expect("closed");
        }
    });
}

/// Does something collective with a file in one process, and something else in the other, which comes to it
/// only when the first is there already.
unsafe fn while_the_first_waits(mpi: &Mpi, process: u32, mut early: impl FnMut(), mut late: impl FnMut()) {
    let mut got = [0_i32];
    // SAFETY: buffers of the size that is said.
    unsafe {
        if process == 0 {
            let asked = mpi.irecv(at(&mut got), 1, INT, 1, 0, Comm::WORLD).expect("begun");
            // Nothing comes in any more before this process waits in what it does.
            let sent = mpi.isend(at(&mut [1_i32]), 1, INT, 1, 0, Comm::WORLD).expect("sent");
            early();
            super::wait(mpi, asked).expect("received");
            super::wait(mpi, sent).expect("sent");
        } else {
            mpi.recv(at(&mut got), 1, INT, 0, 0, Comm::WORLD).well().expect("received");
            mpi.ssend(at(&mut [1_i32]), 1, INT, 0, 0, Comm::WORLD).expect("received");
            late();
        }
    }
}

/// What one has written at the pointer that all share, and then comes, is not written over.
#[test]
fn in_the_order_of_ranks_begins_where_the_last_one_has_left_it() {
    run(2, |mpi, process| {
        // SAFETY: buffers of the size that is said.
        unsafe {
            let file = open(mpi, "ordered");
            let ordered = || {
                let mut own = [10 + process as i32];
                let status = mpi.file_write_ordered(file, at(&mut own), 1, INT).expect("written");
                assert_eq!(status.count, 4);
            };
            while_the_first_waits(mpi, process, ordered, || {
                mpi.file_write_shared(file, at(&mut [7_i32]), 1, INT).expect("written");
                ordered();
            });
            assert_eq!(mpi.file_get_position_shared(file), Ok(12));
            mpi.file_sync(file).expect("all have written");
            let mut all = [0_i32; 3];
            mpi.file_read_at(file, 0, at(&mut all), 3, INT).expect("read");
            assert_eq!(all, [7, 10, 11]);
            mpi.file_close(file).expect("closed");
        }
    });
}

/// So is a view from there on the same for all.
#[test]
fn a_view_from_here_on_begins_where_the_last_one_has_left_it() {
    run(2, |mpi, process| {
        // SAFETY: buffers of the size that is said; strings end.
        unsafe {
            let name = CString::new(path("sequential").to_str().expect("a name")).expect("no zeros");
            // MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL | MPI_MODE_DELETE_ON_CLOSE
            let mode = 2 | 256 | 64 | 4;
            let file = mpi.file_open(Comm::WORLD, name.as_ptr(), mode, Info::NULL).expect("it opens");
            let view = || {
                mpi.file_set_view(file, -1, INT, INT, c"native".as_ptr(), Info::NULL).expect("from here");
                let mut name = [0; 128];
                assert_eq!(mpi.file_get_view(file, name.as_mut_ptr()).expect("it has one").0, 4);
            };
            while_the_first_waits(mpi, process, view, || {
                mpi.file_write_shared(file, at(&mut [7_i32]), 1, INT).expect("written");
                view();
            });
            mpi.file_close(file).expect("closed");
        }
    });
}
