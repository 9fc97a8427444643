//! Functions whose arguments are others than in C, or mean something else. Both libraries include this.

use std::ffi::{c_int, c_void};
use std::ptr;

use bdrun_mpi_fortran::args::{Handle, end, len, read, read_all};
use bdrun_mpi_fortran::text;

use crate::c;
use crate::face::{Comm, Info, Session, has_no_arguments, has_no_arguments_at_all, is_errcodes_ignore};

pub unsafe extern "C" fn init(ierror: *mut c_int) {
    // SAFETY: the caller's.
    unsafe { end(ierror, c::init(ptr::null_mut(), ptr::null_mut())) }
}

pub unsafe extern "C" fn init_thread(required: *mut c_int, provided: *mut c_int, ierror: *mut c_int) {
    // SAFETY: the caller's.
    unsafe { end(ierror, c::init_thread(ptr::null_mut(), ptr::null_mut(), read(required), provided)) }
}

/// It returns nothing.
pub unsafe extern "C" fn pcontrol(level: *mut c_int) {
    // SAFETY: the caller's.
    unsafe { c::pcontrol(read(level)) };
}

/// Only keeps the compiler from moving what it is given.
pub extern "C" fn f_sync_reg(_: *mut c_void) {}

/// The address is not told: a program has the variable that it has attached.
pub unsafe extern "C" fn buffer_detach(_: *mut c_void, size: *mut c_int, ierror: *mut c_int) {
    let mut address: *mut c_void = ptr::null_mut();
    // SAFETY: the caller's.
    unsafe { end(ierror, c::buffer_detach((&raw mut address).cast(), size)) }
}

pub unsafe extern "C" fn comm_detach_buffer(
    comm: *mut c_int,
    _: *mut c_void,
    size: *mut c_int,
    ierror: *mut c_int,
) {
    let mut address: *mut c_void = ptr::null_mut();
    // SAFETY: the caller's.
    unsafe { end(ierror, c::comm_detach_buffer(Comm::of(read(comm)), (&raw mut address).cast(), size)) }
}

pub unsafe extern "C" fn session_detach_buffer(
    session: *mut c_int,
    _: *mut c_void,
    size: *mut c_int,
    ierror: *mut c_int,
) {
    let mut address: *mut c_void = ptr::null_mut();
    // SAFETY: the caller's.
    unsafe {
        let session = Session::of(read(session));
        end(ierror, c::session_detach_buffer(session, (&raw mut address).cast(), size));
    }
}

pub unsafe extern "C" fn info_create_env(info: *mut c_int, ierror: *mut c_int) {
    let mut own = Info::NOTHING;
    // SAFETY: the caller's.
    unsafe {
        let code = c::info_create_env(0, ptr::null_mut(), &raw mut own);
        if code == 0 {
            info.write_unaligned(own.number());
        }
        end(ierror, code);
    }
}

pub unsafe extern "C" fn info_get(
    info: *mut c_int,
    key: *mut c_void,
    valuelen: *mut c_int,
    value: *mut c_void,
    flag: *mut c_int,
    ierror: *mut c_int,
    len_key: usize,
    len_value: usize,
) {
    let mut room = text::Room::new();
    // SAFETY: the caller's.
    unsafe {
        let key = text::taken(key, len_key, true);
        let most = read(valuelen).min(text::Room::MOST as c_int);
        let info = Info::of(read(info));
        let code = c::info_get(info, key.as_ptr().cast_mut().cast(), most, room.pointer(), flag);
        if code == 0 && read(flag) != 0 {
            room.write(value, len_value);
        }
        end(ierror, code);
    }
}

/// A length that includes the end in C, which a string has not in Fortran; 0 asks only how long it is.
fn with_end(length: c_int) -> c_int {
    if length <= 0 { 0 } else { length.min(text::Room::MOST as c_int - 1) + 1 }
}

pub unsafe extern "C" fn info_get_string(
    info: *mut c_int,
    key: *mut c_void,
    buflen: *mut c_int,
    value: *mut c_void,
    flag: *mut c_int,
    ierror: *mut c_int,
    len_key: usize,
    len_value: usize,
) {
    let mut room = text::Room::new();
    // SAFETY: the caller's.
    unsafe {
        let key = text::taken(key, len_key, true);
        let mut length = with_end(read(buflen));
        let is_wanted = length > 0;
        let (info, key) = (Info::of(read(info)), key.as_ptr().cast_mut().cast());
        let code = c::info_get_string(info, key, &raw mut length, room.pointer(), flag);
        if code == 0 && read(flag) != 0 {
            buflen.write_unaligned(length - 1);
            if is_wanted {
                room.write(value, len_value);
            }
        }
        end(ierror, code);
    }
}

pub unsafe extern "C" fn session_get_nth_pset(
    session: *mut c_int,
    info: *mut c_int,
    n: *mut c_int,
    pset_len: *mut c_int,
    pset_name: *mut c_void,
    ierror: *mut c_int,
    len_pset_name: usize,
) {
    let mut room = text::Room::new();
    // SAFETY: the caller's.
    unsafe {
        let mut length = with_end(read(pset_len));
        let is_wanted = length > 0;
        let (session, info) = (Session::of(read(session)), Info::of(read(info)));
        let code = c::session_get_nth_pset(session, info, read(n), &raw mut length, room.pointer());
        if code == 0 {
            pset_len.write_unaligned(length - 1);
            if is_wanted {
                room.write(pset_name, len_pset_name);
            }
        }
        end(ierror, code);
    }
}

/// Where codes go; C knows nowhere by null.
fn errcodes_at(errcodes: *mut c_int) -> *mut c_int {
    if is_errcodes_ignore(errcodes.cast()) { ptr::null_mut() } else { errcodes }
}

pub unsafe extern "C" fn comm_spawn(
    command: *mut c_void,
    argv: *mut c_void,
    maxprocs: *mut c_int,
    info: *mut c_int,
    root: *mut c_int,
    comm: *mut c_int,
    intercomm: *mut c_int,
    errcodes: *mut c_int,
    ierror: *mut c_int,
    len_command: usize,
    len_argv: usize,
) {
    let mut own = Comm::NOTHING;
    // SAFETY: the caller's.
    unsafe {
        let command = text::taken(command, len_command, false);
        let arguments = match has_no_arguments(argv) {
            true => None,
            false => Some(text::until_blank(argv, len_argv, len_argv)),
        };
        let addresses = arguments.as_deref().map(text::addresses);
        let code = c::comm_spawn(
            command.as_ptr().cast_mut().cast(),
            addresses.as_ref().map_or(ptr::null_mut(), |all| all.as_ptr().cast_mut().cast()),
            read(maxprocs),
            Info::of(read(info)),
            read(root),
            Comm::of(read(comm)),
            &raw mut own,
            errcodes_at(errcodes),
        );
        if code == 0 {
            intercomm.write_unaligned(own.number());
        }
        end(ierror, code);
    }
}

/// Of the arguments, those of one program are a row of a matrix, whose columns lie behind each other.
pub unsafe extern "C" fn comm_spawn_multiple(
    count: *mut c_int,
    commands: *mut c_void,
    argvs: *mut c_void,
    maxprocs: *mut c_int,
    infos: *mut c_int,
    root: *mut c_int,
    comm: *mut c_int,
    intercomm: *mut c_int,
    errcodes: *mut c_int,
    ierror: *mut c_int,
    len_commands: usize,
    len_argvs: usize,
) {
    let mut own = Comm::NOTHING;
    // SAFETY: the caller's.
    unsafe {
        let programs = len(count);
        let at = |nth: usize| commands.wrapping_byte_add(nth * len_commands);
        let names: Vec<_> = (0..programs).map(|nth| text::taken(at(nth), len_commands, false)).collect();
        let names_at = text::addresses(&names);
        let arguments = match has_no_arguments_at_all(argvs) {
            true => None,
            false => {
                let row = |nth: usize| argvs.wrapping_byte_add(nth * len_argvs);
                let all = (0..programs)
                    .map(|nth| text::until_blank(row(nth), len_argvs, programs * len_argvs))
                    .collect::<Vec<_>>();
                Some(all)
            }
        };
        let addresses: Option<Vec<_>> =
            arguments.as_ref().map(|all| all.iter().map(|one| text::addresses(one)).collect());
        let rows: Option<Vec<_>> =
            addresses.as_ref().map(|all| all.iter().map(|one: &Vec<_>| one.as_ptr()).collect());
        let mut infos: Vec<Info> = read_all(infos, programs);
        let code = c::comm_spawn_multiple(
            read(count),
            names_at.as_ptr().cast_mut().cast(),
            rows.as_ref().map_or(ptr::null_mut(), |all| all.as_ptr().cast_mut().cast()),
            maxprocs,
            infos.as_mut_ptr(),
            read(root),
            Comm::of(read(comm)),
            &raw mut own,
            errcodes_at(errcodes),
        );
        if code == 0 {
            intercomm.write_unaligned(own.number());
        }
        end(ierror, code);
    }
}
