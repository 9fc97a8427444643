//! Wrong arguments: the class that the standard names, and nothing is done.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use bdrun_mpi_core::error::{Class, Code};

use super::{Well, one, run};
use crate::Mpi;
use crate::args::{Buffer, Ints, IntsOut, Status};
use crate::calls::{
    Attributes, Collectives, Communicators, Datatypes, Errors, Files, Groups, Infos, Messages, Operations,
    Processes, Requests, Topologies, Windows,
};
use crate::failure::Failure;
use crate::handle::{Comm, Datatype, Errhandler, File, Group, Handle, Info, Message, Op, Request, Win};

const INT: Datatype = Datatype(0x209);
const DOUBLE: Datatype = Datatype(532);
const BYTE: Datatype = Datatype(583);
const NONE: Datatype = Datatype::NULL;
const WORLD: Comm = Comm::WORLD;
/// What was made and freed, or never made.
const GONE: u64 = 0x1000 + 77;
const SUM: Op = Op(33);
const LAND: Op = Op(48);
const BAND: Op = Op(40);
const MAXLOC: Op = Op(57);
const REPLACE: Op = Op(60);
const HERE: Buffer = Buffer::At(null_mut());

/// What calls have answered instead of what they should have.
#[derive(Debug, Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn note<T>(&mut self, line: u32, call: &str, answer: Result<T, Failure>, class: Class) {
        let found = answer.err().map(|failure| failure.code);
        if found != Some(Code::Class(class)) {
            let call = call.split_whitespace().collect::<Vec<_>>().join(" ");
            self.0.push(format!("line {line}: {call}: {found:?} instead of {class:?}"));
        }
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        assert!(self.0.is_empty() || std::thread::panicking(), "{}", self.0.join("\n"));
    }
}

/// Calls, and the class of each.
macro_rules! wrong {
    ($($call:expr => $class:ident,)*) => {{
        let mut wrong = Wrong::default();
        $(wrong.note(line!(), stringify!($call), $call, Class::$class);)*
    }};
}

fn at<T>(of: &mut [T]) -> Buffer {
    Buffer::At(of.as_mut_ptr().cast())
}

fn small(of: &[c_int]) -> Ints {
    Ints::small(of.as_ptr())
}

unsafe fn uncommitted(mpi: &Mpi) -> Datatype {
    // SAFETY: nothing is given.
    unsafe { mpi.type_contiguous(2, INT, false) }.expect("made")
}

#[test]
fn of_point_to_point() {
    run(1, |mpi, _| {
        let data = &mut [0_i32; 4];
        // SAFETY: nothing is moved.
        unsafe {
            let (buffer, raw) = (at(data), uncommitted(mpi));
            let freed = mpi.comm_dup(WORLD).expect("made");
            mpi.comm_free(freed).expect("freed");
            wrong! {
                mpi.send(buffer, -1, INT, 0, 0, WORLD) => Count,
                mpi.send(HERE, 1, INT, 0, 0, WORLD) => Buffer,
                mpi.send(Buffer::InPlace, 1, INT, 0, 0, WORLD) => Buffer,
                mpi.send(buffer, 1, NONE, 0, 0, WORLD) => Type,
                mpi.send(buffer, 1, raw, 0, 0, WORLD) => Type,
                mpi.send(buffer, 1, Datatype(GONE), 0, 0, WORLD) => Type,
                mpi.send(buffer, 1, INT, 1, 0, WORLD) => Rank,
                mpi.send(buffer, 1, INT, -1, 0, WORLD) => Rank,
                mpi.send(buffer, 1, INT, 0, -1, WORLD) => Tag,
                mpi.send(buffer, 1, INT, 0, -2, WORLD) => Tag,
                mpi.send(buffer, 1, INT, 0, 1 << 31, WORLD) => Tag,
                mpi.send(buffer, 1, INT, 0, 0, Comm::NULL) => Comm,
                mpi.send(buffer, 1, INT, 0, 0, freed) => Comm,
                mpi.bsend(buffer, 1, INT, 0, 0, WORLD) => Buffer,
                mpi.issend(buffer, -1, INT, 0, 0, WORLD) => Count,
                mpi.rsend(buffer, 1, INT, 7, 0, WORLD) => Rank,
                mpi.send_init(buffer, 1, raw, 0, 0, WORLD) => Type,
                mpi.recv(buffer, -1, INT, 0, 0, WORLD) => Count,
                mpi.recv(HERE, 1, INT, 0, 0, WORLD) => Buffer,
                mpi.recv(buffer, 1, raw, 0, 0, WORLD) => Type,
                mpi.recv(buffer, 1, INT, 1, 0, WORLD) => Rank,
                mpi.recv(buffer, 1, INT, -9, 0, WORLD) => Rank,
                mpi.recv(buffer, 1, INT, 0, -7, WORLD) => Tag,
                mpi.irecv(buffer, 1, INT, 0, 0, Comm::NULL) => Comm,
                mpi.sendrecv(buffer, 1, INT, 3, 0, buffer, 1, INT, 0, 0, WORLD) => Rank,
                mpi.sendrecv(buffer, 1, INT, 0, 0, buffer, -1, INT, 0, 0, WORLD) => Count,
                mpi.sendrecv_replace(buffer, 1, INT, 0, -3, 0, 0, WORLD) => Tag,
                mpi.probe(4, 0, WORLD) => Rank,
                mpi.iprobe(0, -7, WORLD) => Tag,
                mpi.improbe(0, 0, Comm::NULL) => Comm,
                mpi.mrecv(buffer, 1, INT, Message::NULL) => Request,
                mpi.mrecv(buffer, 1, INT, Message(GONE)) => Request,
                mpi.buffer_attach(null_mut(), -1) => Arg,
                mpi.wait(one(&mut Request(GONE))) => Request,
                mpi.test(one(&mut Request(GONE))) => Request,
                mpi.start(Request::NULL) => Request,
                mpi.start(Request(GONE)) => Request,
                mpi.request_free(Request::NULL) => Request,
                mpi.cancel(Request::NULL) => Request,
                mpi.waitall(-1, one(&mut Request(GONE)), no_statuses()) => Count,
            }
            // A request that is not persistent cannot be started.
            let request = mpi.isend(buffer, 1, INT, 0, 0, WORLD).expect("begun");
            wrong! { mpi.start(request) => Request, }
            super::wait(mpi, request).expect("sent");
            // The message is longer than its place, and is gone.
            mpi.send(buffer, 4, INT, 0, 3, WORLD).expect("sent");
            wrong! {
                mpi.recv(buffer, 3, INT, 0, 0, WORLD).and(mpi.recv(buffer, 3, INT, 0, 3, WORLD)).well() => Truncate,
            }
            assert_eq!(mpi.iprobe(0, 3, WORLD), Ok((false, Status::EMPTY)));
        }
    });
}

fn no_statuses() -> crate::args::Statuses {
    unsafe fn nowhere(_: *mut c_void, _: usize, _: &Status) {}
    crate::args::Statuses::new(null_mut(), nowhere)
}

#[test]
fn of_collectives() {
    run(1, |mpi, _| {
        let (data, other) = (&mut [0_f64; 4], &mut [0_f64; 4]);
        // SAFETY: nothing is moved.
        unsafe {
            let (a, b, raw) = (at(data), at(other), uncommitted(mpi));
            let pair = mpi.type_commit(raw).expect("committed");
            let raw = uncommitted(mpi);
            let (counts, places) = (small(&[-1]), small(&[0]));
            wrong! {
                mpi.barrier(Comm::NULL) => Comm,
                mpi.bcast(a, 1, INT, 1, WORLD) => Root,
                mpi.bcast(a, 1, INT, -1, WORLD) => Root,
                mpi.bcast(a, -1, INT, 0, WORLD) => Count,
                mpi.bcast(HERE, 1, INT, 0, WORLD) => Buffer,
                mpi.bcast(a, 1, raw, 0, WORLD) => Type,
                mpi.bcast(a, 1, INT, 0, Comm(GONE)) => Comm,
                mpi.ibcast(a, 1, INT, 9, WORLD) => Root,
                mpi.reduce(a, b, 1, INT, SUM, 1, WORLD) => Root,
                mpi.reduce(a, b, 1, INT, Op::NULL, 0, WORLD) => Op,
                mpi.reduce(a, b, 1, INT, Op(GONE), 0, WORLD) => Op,
                mpi.reduce(a, b, -1, INT, SUM, 0, WORLD) => Count,
                mpi.reduce(a, HERE, 1, INT, SUM, 0, WORLD) => Buffer,
                mpi.reduce(a, b, 1, NONE, SUM, 0, WORLD) => Type,
                mpi.allreduce(a, b, 1, BYTE, SUM, WORLD) => Op,
                mpi.allreduce(a, b, 1, DOUBLE, BAND, WORLD) => Op,
                mpi.allreduce(a, b, 1, DOUBLE, LAND, WORLD) => Op,
                mpi.allreduce(a, b, 1, INT, MAXLOC, WORLD) => Op,
                mpi.allreduce(a, b, 1, INT, REPLACE, WORLD) => Op,
                mpi.allreduce(a, b, 1, pair, SUM, WORLD) => Op,
                mpi.allreduce(a, Buffer::InPlace, 1, INT, SUM, WORLD) => Buffer,
                mpi.scan(a, b, 1, BYTE, SUM, WORLD) => Op,
                mpi.exscan(a, b, -1, INT, SUM, WORLD) => Count,
                mpi.reduce_scatter_block(a, b, -1, INT, SUM, WORLD) => Count,
                mpi.reduce_scatter(a, b, counts, INT, SUM, WORLD) => Count,
                mpi.reduce_local(a, b, 1, BYTE, SUM) => Op,
                mpi.reduce_local(a, b, -1, INT, SUM) => Count,
                mpi.gather(a, 1, INT, b, 1, INT, 2, WORLD) => Root,
                mpi.gather(a, 1, INT, Buffer::InPlace, 1, INT, 0, WORLD) => Buffer,
                mpi.gather(a, 1, INT, b, -1, INT, 0, WORLD) => Count,
                mpi.gatherv(a, 1, INT, b, counts, places, INT, 0, WORLD) => Count,
                mpi.scatter(a, 1, raw, b, 1, INT, 0, WORLD) => Type,
                mpi.scatterv(a, counts, places, INT, b, 1, INT, 0, WORLD) => Count,
                mpi.allgather(a, 2, INT, b, 1, INT, WORLD) => Truncate,
                mpi.allgather(a, -1, INT, b, 1, INT, WORLD) => Count,
                mpi.alltoall(a, 1, INT, b, 1, NONE, WORLD) => Type,
                mpi.neighbor_allgather(a, 1, INT, b, 1, INT, WORLD) => Topology,
                mpi.op_free(SUM) => Op,
                mpi.op_free(Op::NULL) => Op,
                mpi.op_commutative(Op(GONE)) => Op,
                mpi.op_create(null_mut(), true, false) => Arg,
            }
        }
    });
}

#[test]
fn of_datatypes() {
    run(1, |mpi, _| {
        let data = &mut [0_i32; 4];
        let numbers = IntsOut::small(data.as_mut_ptr());
        // SAFETY: nothing is moved.
        unsafe {
            let (a, raw) = (at(data), uncommitted(mpi));
            let (two, three) = (small(&[2]), small(&[3]));
            let (none, addresses) = (small(&[0]), Ints::large([0_i64].as_ptr()));
            // The last one that is made, whose place nothing else has then.
            let freed = uncommitted(mpi);
            mpi.type_free(freed).expect("freed");
            wrong! {
                mpi.type_contiguous(-1, INT, false) => Count,
                mpi.type_contiguous(1, NONE, false) => Type,
                mpi.type_contiguous(1, freed, false) => Type,
                mpi.type_vector(-1, 1, 1, INT, false) => Count,
                mpi.type_indexed(-1, two, none, INT, false) => Count,
                mpi.type_create_hindexed(1, two, addresses, NONE, false) => Type,
                mpi.type_create_subarray(1, two, three, none, 12, INT, false) => Arg,
                mpi.type_create_subarray(1, two, two, none, 99, INT, false) => Arg,
                mpi.type_create_resized(Datatype(GONE), 0, 1, false) => Type,
                mpi.type_commit(NONE) => Type,
                mpi.type_free(INT) => Type,
                mpi.type_free(freed) => Type,
                mpi.type_size(NONE) => Type,
                mpi.type_get_envelope(freed) => Type,
                mpi.type_get_contents(INT, 0, 0, 0, numbers, IntsOut::large(null_mut()), no_types()) => Type,
                mpi.get_count(Status::EMPTY, NONE) => Type,
                mpi.pack(a, -1, INT, a, 16, 0, WORLD) => Count,
                mpi.pack(a, 1, raw, a, 16, 0, WORLD) => Type,
                mpi.pack(a, 1, INT, a, 16, 0, Comm::NULL) => Comm,
                mpi.pack_size(1, raw, WORLD) => Type,
                mpi.pack_size(-1, INT, WORLD) => Count,
                mpi.type_set_attr(raw, 0, null_mut()) => Keyval,
                mpi.type_get_attr(NONE, 0, null_mut()) => Type,
            }
        }
    });
}

fn no_types() -> crate::args::Handles<Datatype> {
    unsafe fn read(_: *mut c_void, _: usize) -> crate::failure::Answer<u64> {
        Ok(Datatype::NULL.value())
    }
    unsafe fn write(_: *mut c_void, _: usize, _: u64) {}
    crate::args::Handles::new(null_mut(), read, write)
}

#[test]
fn of_communicators_and_what_they_have() {
    run(1, |mpi, _| {
        // SAFETY: nothing is done.
        unsafe {
            let (group, freed) = (mpi.comm_group(WORLD).expect("made"), mpi.comm_group(WORLD).expect("made"));
            mpi.group_free(freed).expect("freed");
            let cart = mpi.cart_create(WORLD, 1, small(&[1]), small(&[0]), false).expect("made");
            let (info, place) = (mpi.info_create().expect("made"), IntsOut::small([0].as_mut_ptr()));
            let long = CString::new(vec![b'x'; 2000]).expect("no zeros");
            let (key, empty, long) = (c"key".as_ptr(), c"".as_ptr(), long.as_ptr());
            let wrong_rank = small(&[1]);
            wrong! {
                mpi.comm_rank(Comm::NULL) => Comm,
                mpi.comm_size(Comm(GONE)) => Comm,
                mpi.comm_free(WORLD) => Comm,
                mpi.comm_free(Comm::NULL) => Comm,
                mpi.comm_disconnect(WORLD) => Comm,
                mpi.comm_compare(WORLD, Comm::NULL) => Comm,
                mpi.comm_split(WORLD, -5, 0) => Arg,
                mpi.comm_split_type(WORLD, 7, 0, Info::NULL) => Arg,
                mpi.comm_split_type(WORLD, 221, 0, Info(GONE)) => Info,
                mpi.comm_create(WORLD, Group::NULL) => Group,
                mpi.comm_create(WORLD, freed) => Group,
                mpi.comm_create_group(WORLD, group, -1) => Tag,
                mpi.comm_remote_size(WORLD) => Comm,
                mpi.comm_remote_group(WORLD) => Comm,
                mpi.comm_set_name(WORLD, std::ptr::null()) => Arg,
                mpi.intercomm_create(WORLD, 3, WORLD, 0, 0) => Rank,
                mpi.intercomm_merge(WORLD, false) => Comm,
                mpi.group_incl(group, 1, wrong_rank) => Rank,
                mpi.group_excl(group, -1, wrong_rank) => Arg,
                mpi.group_incl(group, 2, small(&[0, 0])) => Rank,
                mpi.group_size(freed) => Group,
                mpi.group_union(group, Group::NULL) => Group,
                mpi.comm_free_keyval(0) => Keyval,
                mpi.comm_free_keyval(501) => Keyval,
                mpi.comm_set_attr(WORLD, 501, null_mut()) => Keyval,
                mpi.comm_set_attr(WORLD, 0, null_mut()) => Keyval,
                mpi.comm_get_attr(WORLD, 12345, null_mut()) => Keyval,
                mpi.comm_delete_attr(Comm::NULL, 501) => Comm,
                mpi.comm_set_errhandler(WORLD, Errhandler::NULL) => ErrorHandler,
                mpi.comm_set_errhandler(Comm::NULL, Errhandler::RETURN) => Comm,
                mpi.errhandler_free(Errhandler::NULL) => ErrorHandler,
                mpi.comm_call_errhandler(Comm::NULL, 1) => Comm,
                mpi.error_class(-7) => Arg,
                mpi.error_class(0x4000) => Arg,
                mpi.add_error_code(0x4000) => Arg,
                mpi.cart_create(WORLD, -1, small(&[]), small(&[]), false) => Dims,
                mpi.cart_create(WORLD, 1, small(&[-1]), small(&[0]), false) => Dims,
                mpi.cart_rank(WORLD, small(&[0])) => Topology,
                mpi.cart_coords(cart, 1, 1, place) => Rank,
                mpi.cart_rank(cart, small(&[1])) => Arg,
                mpi.cart_sub(WORLD, small(&[1])) => Topology,
                mpi.graph_neighbors_count(cart, 0) => Topology,
                mpi.dims_create(0, 1, place) => Dims,
                mpi.topo_test(Comm::NULL) => Comm,
                mpi.info_set(Info::NULL, key, key) => Info,
                mpi.info_set(info, empty, key) => InfoKey,
                mpi.info_set(info, long, key) => InfoKey,
                mpi.info_set(info, key, long) => InfoValue,
                mpi.info_delete(info, key) => InfoNoKey,
                mpi.info_get_nthkey(info, 0, null_mut()) => Arg,
                mpi.info_free(Info::NULL) => Info,
                mpi.info_dup(Info(GONE)) => Info,
            }
        }
    });
}

#[test]
fn of_windows() {
    run(1, |mpi, _| {
        let (memory, data) = (&mut [0_i32; 4], &mut [0_i32; 4]);
        let base = memory.as_mut_ptr().cast();
        // SAFETY: nothing is moved; the memory lives as long as the window.
        unsafe {
            let (a, raw) = (at(data), uncommitted(mpi));
            let win = mpi.win_create(base, 16, 4, Info::NULL, WORLD).expect("made");
            let group = mpi.comm_group(WORLD).expect("made");
            wrong! {
                mpi.win_create(base, -1, 4, Info::NULL, WORLD) => Size,
                mpi.win_create(base, 16, 4, Info::NULL, Comm::NULL) => Comm,
                mpi.win_create(base, 16, 4, Info(GONE), WORLD) => Info,
                mpi.put(a, 1, INT, 0, 0, 1, INT, win) => RmaSync,
                mpi.put(a, 1, INT, 0, 0, 1, INT, Win::NULL) => Win,
                mpi.win_fence(1, win) => Assert,
                mpi.win_lock(7, 0, 0, win) => LockType,
                mpi.win_lock(301, 1, 0, win) => Rank,
                mpi.win_lock(301, 0, 1, win) => Assert,
                mpi.win_unlock(0, win) => RmaSync,
                mpi.win_unlock_all(win) => RmaSync,
                mpi.win_flush(0, win) => RmaSync,
                mpi.win_complete(win) => RmaSync,
                mpi.win_wait(win) => RmaSync,
                mpi.win_test(win) => RmaSync,
                mpi.win_post(Group::NULL, 0, win) => Group,
                mpi.win_attach(win, base, 16) => RmaFlavor,
                mpi.win_set_attr(win, 0, null_mut()) => Keyval,
                mpi.win_free(Win::NULL) => Win,
                mpi.win_get_group(Win(GONE)) => Win,
            }
            mpi.win_lock(301, 0, 0, win).expect("locked");
            wrong! {
                mpi.put(HERE, 1, INT, 0, 0, 1, INT, win) => Buffer,
                mpi.put(a, -1, INT, 0, 0, 1, INT, win) => Count,
                mpi.put(a, 1, INT, 0, 0, -1, INT, win) => Count,
                mpi.put(a, 1, raw, 0, 0, 1, INT, win) => Type,
                mpi.put(a, 1, INT, 0, 0, 1, NONE, win) => Type,
                mpi.put(a, 1, INT, 1, 0, 1, INT, win) => Rank,
                mpi.put(a, 1, INT, 0, -1, 1, INT, win) => Disp,
                mpi.get(a, 2, INT, 0, 3, 2, INT, win) => RmaRange,
                mpi.rput(a, 1, INT, 5, 0, 1, INT, win) => Rank,
                mpi.accumulate(a, 1, INT, 0, 0, 1, INT, Op::NULL, win) => Op,
                mpi.accumulate(a, 1, INT, 0, 0, 1, INT, MAXLOC, win) => Op,
                mpi.fetch_and_op(a, a, raw, 0, 0, SUM, win) => Type,
                mpi.compare_and_swap(a, a, a, DOUBLE, 0, 0, win) => Type,
                mpi.win_lock(301, 0, 0, win) => RmaSync,
                mpi.win_fence(0, win) => RmaSync,
                mpi.win_start(group, 0, win) => RmaSync,
                mpi.win_free(win) => RmaSync,
            }
            mpi.win_unlock(0, win).expect("unlocked");
            mpi.win_lock_all(0, win).expect("locked");
            wrong! {
                mpi.win_unlock(0, win) => RmaSync,
                mpi.win_lock(302, 0, 0, win) => RmaSync,
                mpi.win_lock_all(0, win) => RmaSync,
            }
            mpi.win_unlock_all(win).expect("unlocked");
            mpi.win_free(win).expect("freed");
            wrong! {
                mpi.win_fence(0, win) => Win,
                mpi.win_free(win) => Win,
            }
        }
    });
}

#[test]
fn of_files() {
    run(1, |mpi, _| {
        let data = &mut [0_i32; 4];
        let path = std::env::temp_dir().join(format!("bdrun-arguments-{}", std::process::id()));
        let name = CString::new(path.to_str().expect("a name")).expect("no zeros");
        let (name, native) = (name.as_ptr(), c"native".as_ptr());
        // MPI_MODE_CREATE, _RDONLY, _RDWR, _SEQUENTIAL, _WRONLY, _EXCL, _DELETE_ON_CLOSE
        let [create, read, both, sequential, write, new, delete] = [2, 16, 32, 64, 256, 8, 4];
        // SAFETY: nothing is moved; names end.
        unsafe {
            let (a, raw) = (at(data), uncommitted(mpi));
            let open = |mode| mpi.file_open(WORLD, name, mode, Info::NULL);
            wrong! {
                open(read) => NoSuchFile,
                open(0) => Amode,
                open(read | write) => Amode,
                open(read | create) => Amode,
                open(both | sequential) => Amode,
                open(both | 1 << 20) => Amode,
                mpi.file_open(Comm::NULL, name, create | both, Info::NULL) => Comm,
                mpi.file_open(WORLD, name, create | both, Info(GONE)) => Info,
                mpi.file_open(WORLD, c"".as_ptr(), create | both, Info::NULL) => BadFile,
                mpi.file_delete(name, Info::NULL) => NoSuchFile,
                mpi.file_read(File::NULL, a, 1, INT) => File,
                mpi.file_close(File(GONE)) => File,
            }
            let file = open(create | write).expect("it opens");
            wrong! {
                open(create | new | both) => FileExists,
                mpi.file_read(file, a, 1, INT) => Access,
                mpi.file_write(file, a, -1, INT) => Count,
                mpi.file_write(file, HERE, 1, INT) => Buffer,
                mpi.file_write(file, a, 1, raw) => Type,
                mpi.file_write_at(file, -1, a, 1, INT) => Arg,
                mpi.file_seek(file, -1, 403) => Arg,
                mpi.file_seek(file, 0, 77) => Arg,
                mpi.file_set_size(file, -1) => Arg,
                mpi.file_preallocate(file, -1) => Arg,
                mpi.file_set_view(file, -3, INT, INT, native, Info::NULL) => Arg,
                mpi.file_set_view(file, 0, raw, raw, native, Info::NULL) => Type,
                mpi.file_set_view(file, 0, DOUBLE, INT, native, Info::NULL) => Arg,
                mpi.file_set_view(file, 0, INT, INT, c"upside".as_ptr(), Info::NULL) => UnsupportedDatarep,
                mpi.file_get_type_extent(file, NONE) => Type,
                mpi.file_get_byte_offset(file, -1) => Arg,
                mpi.file_write_all_end(file, a) => Other,
            }
            mpi.file_close(file).expect("closed");
            wrong! { mpi.file_sync(file) => File, }
            let file = open(read | sequential).expect("it opens");
            wrong! {
                mpi.file_read_at(file, 0, a, 1, INT) => UnsupportedOperation,
                mpi.file_seek(file, 0, 403) => UnsupportedOperation,
                mpi.file_seek_shared(file, 0, 403) => UnsupportedOperation,
                mpi.file_get_position_shared(file) => UnsupportedOperation,
                mpi.file_set_size(file, 0) => UnsupportedOperation,
                mpi.file_preallocate(file, 0) => UnsupportedOperation,
            }
            mpi.file_close(file).expect("closed");
            let file = open(read).expect("it opens");
            wrong! {
                mpi.file_write(file, a, 1, INT) => ReadOnly,
                mpi.file_set_size(file, 0) => ReadOnly,
                mpi.file_preallocate(file, 4) => ReadOnly,
                mpi.file_write_shared(file, a, 1, INT) => ReadOnly,
                mpi.file_write_ordered(file, a, 1, INT) => ReadOnly,
            }
            assert_eq!(mpi.file_get_position_shared(file), Ok(0), "nothing was written");
            mpi.file_close(file).expect("closed");
            let file = open(both | delete).expect("it opens");
            mpi.file_close(file).expect("closed");
            assert!(!path.exists());
        }
    });
}

fn no_infos() -> crate::args::Handles<Info> {
    unsafe fn read(_: *mut c_void, _: usize) -> crate::failure::Answer<u64> {
        Ok(Info::NULL.value())
    }
    unsafe fn write(_: *mut c_void, _: usize, _: u64) {}
    crate::args::Handles::new(null_mut(), read, write)
}

/// Nobody can be started or met: that is told to the handler in force, as any failure is.
#[test]
fn of_processes_that_cannot_be_had() {
    extern "C" fn told(comm: *mut u64, code: *mut c_int) {
        // SAFETY: the engine's: the addresses of both.
        unsafe { SEEN.with(|seen| seen.borrow_mut().push((comm.read(), code.read()))) }
    }
    thread_local! {
        static SEEN: std::cell::RefCell<Vec<(u64, c_int)>> = const { std::cell::RefCell::new(vec![]) };
    }
    run(1, |mpi, _| {
        let (name, port) = (c"name".as_ptr(), &mut [0; 2000]);
        let port = port.as_mut_ptr();
        let codes = IntsOut::small(null_mut());
        let infos = no_infos();
        // SAFETY: names end, and nothing is done.
        unsafe {
            wrong! {
                mpi.comm_spawn(name, null_mut(), 1, Info::NULL, 0, WORLD, codes) => UnsupportedOperation,
                mpi.comm_spawn_multiple(1, null_mut(), null_mut(), small(&[1]), infos, 0, WORLD, codes)
                    => UnsupportedOperation,
                mpi.comm_accept(name, Info::NULL, 0, WORLD) => UnsupportedOperation,
                mpi.comm_connect(name, Info::NULL, 0, WORLD) => UnsupportedOperation,
                mpi.comm_join(0) => UnsupportedOperation,
                mpi.open_port(Info::NULL, port) => UnsupportedOperation,
                mpi.close_port(name) => UnsupportedOperation,
                mpi.publish_name(name, Info::NULL, name) => UnsupportedOperation,
                mpi.unpublish_name(name, Info::NULL, name) => UnsupportedOperation,
                mpi.lookup_name(name, Info::NULL, port) => UnsupportedOperation,
                mpi.comm_spawn(name, null_mut(), 1, Info::NULL, 0, Comm::NULL, codes) => Comm,
                mpi.comm_spawn(name, null_mut(), 1, Info::NULL, 4, WORLD, codes) => Root,
                mpi.comm_spawn(name, null_mut(), -1, Info::NULL, 0, WORLD, codes) => Arg,
                mpi.comm_accept(name, Info::NULL, 1, WORLD) => Root,
                mpi.comm_connect(name, Info(GONE), 0, WORLD) => Info,
            }
            assert_eq!(mpi.comm_get_parent(), Ok(Comm::NULL));
            let handler = mpi.comm_create_errhandler(told as *mut c_void).expect("made");
            let comm = mpi.comm_dup(WORLD).expect("made");
            mpi.comm_set_errhandler(comm, handler).expect("set");
            let failure = mpi.comm_accept(name, Info::NULL, 0, comm).expect_err("it cannot");
            let code = mpi.tell(crate::face::Object::Comm(comm), &failure);
            assert_eq!(SEEN.with(|seen| seen.borrow().clone()), [(comm.0, code as c_int)]);
            mpi.comm_free(comm).expect("freed");
        }
    });
}
