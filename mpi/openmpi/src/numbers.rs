//! Numbers: this ABI's, and the standard's, which are the engine's.

use std::ffi::c_int;

use bdrun_mpi::face::DEFAULT_DARG;
use bdrun_mpi::standard;

include!(concat!(env!("OUT_DIR"), "/numbers.rs"));

/// What means nothing in this ABI; nor does it for the engine.
pub const NOTHING: i64 = c_int::MIN as i64;
/// What means nothing here: `MPI_UNDEFINED`.
pub const UNDEFINED: c_int = -32766;
/// The engine's numbers of error codes that the program adds, and those of keyvals, begin here.
const ADDED: i64 = 0x4000;
/// Predefined keyvals lie below, in both.
const KEYS: i64 = 0x300;

/// The standard's number.
#[must_use]
pub fn taken(table: &[(c_int, i64)], value: c_int) -> Option<i64> {
    table.iter().find(|(ours, _)| *ours == value).map(|(_, standard)| *standard)
}

/// This ABI's number.
#[must_use]
pub fn given(table: &[(c_int, i64)], value: i64) -> Option<c_int> {
    table.iter().find(|(_, standard)| *standard == value).map(|(ours, _)| *ours)
}

/// Of those that are only what the table says.
#[must_use]
pub fn named_in(table: &[(c_int, i64)], value: c_int) -> i64 {
    taken(table, value).unwrap_or(NOTHING)
}

/// Back.
#[must_use]
pub fn named_out(table: &[(c_int, i64)], value: i64) -> c_int {
    given(table, value).unwrap_or(UNDEFINED)
}

/// Of those that are ordinary from 0 on, and else what the table says.
#[inline(always)]
#[must_use]
pub fn ordinary_in(table: &[(c_int, i64)], value: c_int) -> i64 {
    if value >= 0 { value.into() } else { named_in(table, value) }
}

/// Back.
#[inline(always)]
#[must_use]
pub fn ordinary_out(table: &[(c_int, i64)], value: i64) -> c_int {
    if value >= 0 { value as c_int } else { given(table, value).unwrap_or(value as c_int) }
}

/// Of those that are bits.
#[must_use]
pub fn bits_in(table: &[(c_int, i64)], value: c_int) -> i64 {
    let known = table.iter().fold(0, |known, (ours, _)| known | ours);
    if value & !known != 0 {
        return NOTHING;
    }
    table.iter().filter(|(ours, _)| value & ours != 0).fold(0, |all, (_, standard)| all | standard)
}

/// Back.
#[must_use]
pub fn bits_out(table: &[(c_int, i64)], value: i64) -> c_int {
    table.iter().filter(|(_, standard)| value & standard != 0).fold(0, |all, (ours, _)| all | ours)
}

/// Of error codes: those that a program adds lie behind `MPI_ERR_LASTCODE`.
#[must_use]
pub fn error_in(value: c_int) -> i64 {
    match i64::from(value) - ERR_LASTCODE - 1 {
        added @ 0.. => ADDED + added,
        _ => named_in(ERRORS, value),
    }
}

/// Back. Classes that this ABI does not have become the next best.
#[must_use]
pub fn error_out(value: i64) -> c_int {
    if value >= ADDED {
        return c_int::try_from(value - ADDED + ERR_LASTCODE + 1).unwrap_or(c_int::MAX);
    }
    given(ERRORS, value).unwrap_or(match value {
        // What meant nothing on the way in.
        ..0 => value as c_int,
        // MPI_ERR_ERRHANDLER: MPI_ERR_ARG
        61 => 13,
        // MPI_T_ERR_NOT_ACCESSIBLE: MPI_T_ERR_NOT_INITIALIZED
        1002 => 55,
        // MPI_T_ERR_NOT_SUPPORTED: MPI_T_ERR_INVALID
        1004 => 72,
        // MPI_ERR_OTHER
        _ => 16,
    })
}

/// Of keyvals.
#[must_use]
pub fn keyval_in(value: c_int) -> i64 {
    if i64::from(value) >= KEYS { value.into() } else { named_in(KEYVALS, value) }
}

/// Back. One that is neither predefined nor made is `MPI_KEYVAL_INVALID`.
#[must_use]
pub fn keyval_out(value: i64) -> c_int {
    match given(KEYVALS, value) {
        Some(ours) => ours,
        None if value >= KEYS => value as c_int,
        None => -1,
    }
}

/// Of arguments of distributions: `MPI_DISTRIBUTE_DFLT_DARG`, and sizes of blocks.
#[must_use]
pub fn darg_in(value: c_int) -> i64 {
    taken(DARGS, value).map_or(value.into(), |_| DEFAULT_DARG)
}

/// Back.
#[must_use]
pub fn darg_out(value: i64) -> c_int {
    match value {
        DEFAULT_DARG => given(DARGS, standard::darg_out(value).into()).unwrap_or_default(),
        size => size as c_int,
    }
}

/// Of displacements of views: -1 is the standard's `MPI_DISPLACEMENT_CURRENT`.
#[must_use]
pub fn displacement_in(value: i64) -> i64 {
    match value {
        DISPLACEMENT_CURRENT => -1,
        -1 => NOTHING,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bdrun_mpi_table::Value;

    #[test]
    fn what_has_a_name_comes_back() {
        let named = [
            THREADS,
            ORDERS,
            DISTRIBUTIONS,
            COMBINERS,
            TYPECLASSES,
            COMPARISONS,
            TOPOLOGIES,
            SPLITTYPES,
            LOCKTYPES,
            WHENCES,
            VERBOSITIES,
            BINDS,
            SCOPES,
            PVARCLASSES,
            FLAVORS,
            MODELS,
            RANKS,
            TAGS,
        ];
        for table in named {
            assert!(table.len() >= 2);
            for &(ours, standard) in table {
                assert_eq!((named_in(table, ours), named_out(table, standard)), (standard, ours));
            }
            assert_eq!(named_in(table, 77), NOTHING);
            assert_eq!(named_out(table, 77), UNDEFINED);
        }
    }

    #[test]
    fn ranks_and_tags_are_ordinary_or_named() {
        // MPI_ANY_SOURCE, MPI_PROC_NULL, MPI_ROOT
        assert_eq!([-1, -2, -4, 0, 7].map(|rank| ordinary_in(RANKS, rank)), [-1, -3, -4, 0, 7]);
        assert_eq!([-1, -3, -4, 0, 7].map(|rank| ordinary_out(RANKS, rank)), [-1, -2, -4, 0, 7]);
        // The standard's MPI_PROC_NULL means nothing here, and so does its MPI_ANY_TAG.
        assert_eq!((ordinary_in(RANKS, -3), ordinary_in(TAGS, -2)), (NOTHING, NOTHING));
        assert_eq!((ordinary_in(TAGS, -1), ordinary_out(TAGS, -2)), (-2, -1));
    }

    #[test]
    fn bits_come_back_and_unknown_ones_mean_nothing() {
        for (table, all) in [(ASSERTS, 31), (AMODES, 511)] {
            for ours in 0..=all {
                let standard = bits_in(table, ours);
                assert_eq!(standard.count_ones(), ours.count_ones(), "{ours}");
                assert_eq!(bits_out(table, standard), ours);
            }
            assert_eq!(bits_in(table, all + 1), NOTHING);
        }
        // MPI_MODE_CREATE | MPI_MODE_RDWR; MPI_MODE_NOSUCCEED
        assert_eq!((bits_in(AMODES, 1 | 8), bits_in(ASSERTS, 16)), (2 | 32, 16384));
    }

    #[test]
    fn error_codes_come_back_and_added_ones_lie_behind_the_last() {
        for constant in bdrun_mpi_table::constants().expect("well-formed") {
            let is_error = constant.name.contains("MPI_ERR_") || constant.name.contains("MPI_T_ERR_");
            let (Some(Value::Number(standard)), true) = (constant.standard, is_error) else { continue };
            match constant.openmpi {
                Some(Value::Number(ours)) => {
                    assert_eq!(i64::from(error_out(standard)), ours, "{}", constant.name);
                    assert_eq!(error_in(ours as c_int), standard, "{}", constant.name);
                }
                // Something that fails, at least.
                _ => assert!((1..ERR_LASTCODE).contains(&error_out(standard).into()), "{}", constant.name),
            }
        }
        assert_eq!((error_out(0), error_in(0)), (0, 0));
        assert_eq!((error_out(0x4000), error_in(93)), (93, 0x4000));
        assert_eq!((error_out(0x4321), error_in(93 + 0x321)), (93 + 0x321, 0x4321));
        assert_eq!((error_in(91), error_in(-5)), (NOTHING, NOTHING));
        assert_eq!(error_out(i64::MAX), c_int::MAX);
    }

    #[test]
    fn keyvals_dargs_and_displacements() {
        for &(ours, standard) in KEYVALS {
            assert_eq!((keyval_in(ours), keyval_out(standard)), (standard, ours));
        }
        assert_eq!((keyval_in(-1), keyval_out(0)), (0, -1));
        assert_eq!((keyval_in(0x1003), keyval_out(0x1003)), (0x1003, 0x1003));
        assert_eq!((keyval_in(40), keyval_out(40)), (NOTHING, -1));
        assert_eq!((darg_in(-1), darg_out(DEFAULT_DARG)), (DEFAULT_DARG, -1));
        // What is the constant in other ABIs, too.
        assert_eq!([4, 19, -49767].map(darg_in), [4, 19, -49767]);
        assert_eq!([4, 19, -49767].map(darg_out), [4, 19, -49767]);
        assert_eq!([-54278278, -1, 0, 8].map(displacement_in), [-1, NOTHING, 0, 8]);
    }
}
