//! Functions that give or take numbers whose meaning their type does not say, and `MPI_Get_version`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use bdrun_mpi::args::{Ints, IntsOut};
use bdrun_mpi::calls::{Attributes as _, Datatypes as _, Groups as _};
use bdrun_mpi::entry::calls;
use bdrun_mpi::face::Object;
use bdrun_mpi::failure::Answer;
use bdrun_mpi_core::error::Class;

use crate::{call, face, numbers};

/// Functions under both names.
macro_rules! both {
    ($($name:ident $profiled:ident ($($argument:ident: $type:ty),* $(,)?) $on:expr => $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the caller's, who has what the standard says that it has.
                unsafe { call(|| $on, || $body) }
            }

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $profiled($($argument: $type),*) -> c_int {
                // SAFETY: the caller's, who has what the standard says that it has.
                unsafe { call(|| $on, || $body) }
            }
        )*
    };
}

both! {
    MPI_Get_version PMPI_Get_version(version: *mut c_int, subversion: *mut c_int) Object::Nothing => {
        put(version, crate::FACE.version.0 as c_int)?;
        put(subversion, crate::FACE.version.1 as c_int)
    }

    MPI_Comm_get_attr PMPI_Comm_get_attr(
        comm: face::Comm, keyval: c_int, value: *mut c_void, flag: *mut c_int,
    ) face::on_comm(comm) => {
        let found = calls().comm_get_attr(face::comm_in(comm)?, face::keyval_in(keyval)?, value)?;
        attribute(keyval, found, value, flag)
    }

    MPI_Attr_get PMPI_Attr_get(
        comm: face::Comm, keyval: c_int, value: *mut c_void, flag: *mut c_int,
    ) face::on_comm(comm) => {
        let found = calls().attr_get(face::comm_in(comm)?, face::keyval_in(keyval)?, value)?;
        attribute(keyval, found, value, flag)
    }

    MPI_Win_get_attr PMPI_Win_get_attr(
        win: face::Win, keyval: c_int, value: *mut c_void, flag: *mut c_int,
    ) face::on_win(win) => {
        let found = calls().win_get_attr(face::win_in(win)?, face::keyval_in(keyval)?, value)?;
        attribute(keyval, found, value, flag)
    }

    MPI_Group_translate_ranks PMPI_Group_translate_ranks(
        group1: face::Group, n: c_int, ranks1: *const c_int, group2: face::Group, ranks2: *mut c_int,
    ) Object::Nothing => {
        let len = usize::try_from(n).map_err(|_| Class::Arg)?;
        if len > 0 && (ranks1.is_null() || ranks2.is_null()) {
            return Err(Class::Arg.into());
        }
        let taken: Vec<i64> = (0..len)
            .map(|nth| numbers::ordinary_in(numbers::RANKS, ranks1.add(nth).read_unaligned()))
            .collect();
        let mut given = vec![0i64; len];
        let (group1, group2) = (face::group_in(group1)?, face::group_in(group2)?);
        calls().group_translate_ranks(
            group1, n.into(), Ints::large(taken.as_ptr()), group2, IntsOut::large(given.as_mut_ptr()),
        )?;
        for (nth, rank) in given.into_iter().enumerate() {
            ranks2.add(nth).write_unaligned(numbers::ordinary_out(numbers::RANKS, rank));
        }
        Ok(())
    }

    MPI_Type_get_contents PMPI_Type_get_contents(
        datatype: face::Datatype, max_integers: c_int, max_addresses: c_int, max_datatypes: c_int,
        integers: *mut c_int, addresses: *mut i64, datatypes: *mut face::Datatype,
    ) Object::Nothing => {
        let of = face::datatype_in(datatype)?;
        calls().type_get_contents(
            of, max_integers.into(), max_addresses.into(), max_datatypes.into(),
            IntsOut::small(integers), IntsOut::large(addresses), face::handles(datatypes),
        )?;
        let (count, _, _, combiner) = calls().type_get_envelope(of)?;
        contents(combiner, false, integers, count);
        Ok(())
    }

    MPI_Type_get_contents_c PMPI_Type_get_contents_c(
        datatype: face::Datatype, max_integers: i64, max_addresses: i64, max_counts: i64, max_datatypes: i64,
        integers: *mut c_int, addresses: *mut i64, counts: *mut i64, datatypes: *mut face::Datatype,
    ) Object::Nothing => {
        let of = face::datatype_in(datatype)?;
        calls().type_get_contents_c(
            of, max_integers, max_addresses, max_counts, max_datatypes,
            IntsOut::small(integers), IntsOut::large(addresses), IntsOut::large(counts), face::handles(datatypes),
        )?;
        let (count, _, larger, _, combiner) = calls().type_get_envelope_c(of)?;
        contents(combiner, larger > 0, integers, count);
        Ok(())
    }
}

/// Writes what must have a place.
unsafe fn put(at: *mut c_int, value: c_int) -> Answer<()> {
    if at.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's: there is room.
    unsafe { at.write(value) };
    Ok(())
}

/// What a program is told of an attribute that the engine has.
unsafe fn attribute(keyval: c_int, found: bool, value: *mut c_void, flag: *mut c_int) -> Answer<()> {
    // SAFETY: the caller's: there is room for both, and the engine has written the value if there is one.
    unsafe {
        if found && !value.is_null() {
            let place = value.cast::<*mut c_void>();
            place.write(meant(keyval, place.read()));
        }
        put(flag, found.into())
    }
}

/// Where the value of a predefined attribute is as this ABI has it. Others are the program's own.
unsafe fn meant(keyval: c_int, value: *mut c_void) -> *mut c_void {
    /// There is one of each of these, of all communicators.
    static HOST: AtomicI32 = AtomicI32::new(0);
    static IO: AtomicI32 = AtomicI32::new(0);
    static LAST: AtomicI32 = AtomicI32::new(0);
    /// A window's can be any of these.
    static SMALL: [c_int; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let keyval = i64::from(keyval);
    let is_known =
        [numbers::HOST, numbers::IO, numbers::LASTUSEDCODE, numbers::WIN_CREATE_FLAVOR, numbers::WIN_MODEL]
            .contains(&keyval);
    if value.is_null() || !is_known {
        return value;
    }
    // SAFETY: the caller's: the engine's values of these are ints.
    let theirs = i64::from(unsafe { value.cast::<c_int>().read() });
    let shared = |place: &'static AtomicI32, ours: c_int| {
        place.store(ours, Ordering::Relaxed);
        place.as_ptr().cast()
    };
    let window = |ours: Option<c_int>| match ours.and_then(|ours| SMALL.get(ours as usize)) {
        Some(place) => (&raw const *place).cast_mut().cast(),
        None => value,
    };
    match keyval {
        numbers::HOST => shared(&HOST, numbers::ordinary_out(numbers::RANKS, theirs)),
        numbers::IO => shared(&IO, numbers::ordinary_out(numbers::RANKS, theirs)),
        numbers::LASTUSEDCODE => shared(&LAST, numbers::error_out(theirs)),
        numbers::WIN_CREATE_FLAVOR => window(numbers::given(numbers::FLAVORS, theirs)),
        _ => window(numbers::given(numbers::MODELS, theirs)),
    }
}

/// Constants among the arguments of a constructor (MPI-5.0, section 5.1.13).
unsafe fn contents(combiner: i64, is_large: bool, at: *mut c_int, count: i64) {
    let Ok(count) = usize::try_from(count) else { return };
    if at.is_null() || count == 0 {
        return;
    }
    // SAFETY: the caller's: the engine has written so many.
    let all = unsafe { std::slice::from_raw_parts_mut(at, count) };
    // By which argument the dimensions are said, and how many precede distributions and order.
    let (dimensions, before) = match (combiner, is_large) {
        // MPI_COMBINER_SUBARRAY, MPI_COMBINER_DARRAY
        (111, false) => (0, 3),
        (111, true) => (0, 0),
        (112, false) => (2, 1),
        (112, true) => (2, 0),
        _ => return,
    };
    let n = all[dimensions].max(0) as usize;
    let order = dimensions + 1 + n * if combiner == 112 { before + 3 } else { before };
    if combiner == 112 {
        let from = dimensions + 1 + n * before;
        for nth in from..from + n {
            all[nth] = numbers::named_out(numbers::DISTRIBUTIONS, all[nth].into());
            all[nth + n] = numbers::darg_out(all[nth + n].into());
        }
    }
    all[order] = numbers::named_out(numbers::ORDERS, all[order].into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_among_the_contents_are_ours() {
        let told = |combiner, is_large, mut all: Vec<c_int>| {
            // SAFETY: so many.
            unsafe { contents(combiner, is_large, all.as_mut_ptr(), all.len() as i64) };
            all
        };
        // Two dimensions: sizes, parts, starts; MPI_ORDER_FORTRAN.
        assert_eq!(told(111, false, vec![2, 9, 8, 15, 3, 0, 12, 15]), [2, 9, 8, 15, 3, 0, 12, 1]);
        assert_eq!(told(111, true, vec![2, 12]), [2, 0]);
        // Size, rank, dimensions; sizes; MPI_DISTRIBUTE_BLOCK, _NONE; _DFLT_DARG, 5; grid; MPI_ORDER_C.
        let ours = [4, 1, 2, 17, 19, 0, 2, -1, 5, 2, 2, 0];
        assert_eq!(told(112, false, vec![4, 1, 2, 17, 19, 17, 16, 19, 5, 2, 2, 12]), ours);
        assert_eq!(told(112, true, vec![4, 1, 1, 18, 19, 4, 15]), [4, 1, 1, 1, -1, 4, 1]);
        assert_eq!(told(103, false, vec![12]), [12]);
    }

    #[test]
    fn attributes_with_meanings_are_ours() {
        let told = |keyval, theirs: c_int| {
            // SAFETY: an int, and what is returned is one.
            unsafe { meant(keyval, (&raw const theirs).cast_mut().cast()).cast::<c_int>().read() }
        };
        // MPI_HOST: MPI_PROC_NULL; MPI_IO: MPI_ANY_SOURCE; MPI_LASTUSEDCODE: an added one; MPI_TAG_UB
        assert_eq!([told(1, -3), told(2, -1), told(5, 0x4002), told(0, 1 << 20)], [-2, -1, 95, 1 << 20]);
        // MPI_WIN_CREATE_FLAVOR: MPI_WIN_FLAVOR_SHARED; MPI_WIN_MODEL: MPI_WIN_UNIFIED, MPI_WIN_SEPARATE
        assert_eq!([told(10, 314), told(11, 321), told(11, 322)], [4, 0, 1]);
    }

    #[test]
    fn ranks_are_translated_with_our_constants() {
        let empty = face::group_out(bdrun_mpi::handle::Group::EMPTY);
        let mut to = [7];
        // SAFETY: one rank in each. MPI_PROC_NULL.
        let code = unsafe { MPI_Group_translate_ranks(empty, 1, [-2].as_ptr(), empty, to.as_mut_ptr()) };
        assert_eq!((code, to), (0, [-2]));
        // SAFETY: one rank in each; the standard's MPI_PROC_NULL is none of ours: MPI_ERR_RANK.
        let code = unsafe { MPI_Group_translate_ranks(empty, 1, [-3].as_ptr(), empty, to.as_mut_ptr()) };
        assert_eq!(code, 6);
    }
}
