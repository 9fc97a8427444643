//! Numbers that mean something else here than in the engine.
//!
//! What means nothing becomes a number below all ints, which the engine refuses as it refuses any that it
//! does not know. The way back takes its lower half: so whatever a program writes into a status it reads
//! again.

use std::ffi::c_int;

use bdrun_mpi::face::DEFAULT_DARG;
use bdrun_mpi::failure::Answer;
use bdrun_mpi::handle::MADE;
use bdrun_mpi::standard;

use crate::convert;
use crate::handles::{KEYVAL, made_in, made_out};

/// The engine's numbers of error codes that the program adds begin here.
const ADDED: i64 = 0x4000;
/// `MPI_UNDEFINED`: what has no number here.
const UNDEFINED: c_int = -32766;

/// What means nothing.
const fn nothing(value: c_int) -> i64 {
    -1 << 40 | value as u32 as i64
}

/// Of those that are ordinary from 0 on, and else what the table says.
macro_rules! ordinary {
    ($($in:ident $out:ident,)*) => {
        $(
            #[inline(always)]
            pub fn $in(value: c_int) -> Answer<i64> {
                let named = || convert::$in(value.into()).unwrap_or(nothing(value));
                Ok(if value >= 0 { value.into() } else { named() })
            }

            #[inline(always)]
            pub fn $out(value: i64) -> c_int {
                let named = || convert::$out(value).unwrap_or(value);
                (if value >= 0 { value } else { named() }) as c_int
            }
        )*
    };
}

/// Of those that are only what the table says.
macro_rules! named {
    ($($in:ident $out:ident,)*) => {
        $(
            #[allow(dead_code, reason = "some are only written")]
            pub fn $in(value: c_int) -> Answer<i64> {
                Ok(convert::$in(value.into()).unwrap_or(nothing(value)))
            }

            #[allow(dead_code, reason = "some are only read")]
            pub fn $out(value: i64) -> c_int {
                convert::$out(value).map_or(UNDEFINED, |value| value as c_int)
            }
        )*
    };
}

/// Of those of which several are said at once.
macro_rules! bits {
    ($($in:ident $out:ident $table:ident,)*) => {
        $(
            pub fn $in(value: c_int) -> Answer<i64> {
                let known = convert::$table.iter().fold(0, |known, (ours, _)| known | ours);
                if i64::from(value) & !known != 0 {
                    return Ok(nothing(value));
                }
                let said = convert::$table.iter().filter(|(ours, _)| i64::from(value) & ours != 0);
                Ok(said.fold(0, |all, (_, standard)| all | standard))
            }

            #[allow(dead_code, reason = "some are only read")]
            pub fn $out(value: i64) -> c_int {
                let said = convert::$table.iter().filter(|(_, standard)| value & standard != 0);
                said.fold(0, |all, (ours, _)| all | ours) as c_int
            }
        )*
    };
}

ordinary! {
    rank_in rank_out,
    tag_in tag_out,
}

named! {
    thread_in thread_out,
    order_in order_out,
    distribution_in distribution_out,
    combiner_in combiner_out,
    typeclass_in typeclass_out,
    comparison_in comparison_out,
    topology_in topology_out,
    splittype_in splittype_out,
    locktype_in locktype_out,
    whence_in whence_out,
    verbosity_in verbosity_out,
    bind_in bind_out,
    scope_in scope_out,
    pvarclass_in pvarclass_out,
    flavor_in flavor_out,
    model_in model_out,
}

bits! {
    assert_in assert_out ASSERT,
    amode_in amode_out AMODE,
}

/// Of arguments of distributions: `MPI_DISTRIBUTE_DFLT_DARG`, and sizes of blocks.
pub fn darg_in(value: c_int) -> Answer<i64> {
    Ok(convert::darg_in(value.into()).map_or(value.into(), |_| DEFAULT_DARG))
}

/// Back.
pub fn darg_out(value: i64) -> c_int {
    match value {
        DEFAULT_DARG => convert::darg_out(standard::darg_out(value).into()).unwrap_or_default() as c_int,
        size => size as c_int,
    }
}

/// Of error codes: those that a program adds lie behind `MPI_ERR_LASTCODE`.
pub fn error_in(value: c_int) -> Answer<i64> {
    Ok(match i64::from(value) - convert::MPI_ERR_LASTCODE - 1 {
        added @ 0.. => ADDED + added,
        -1 => ADDED - 1,
        _ => convert::error_in(value.into()).unwrap_or(nothing(value)),
    })
}

/// Back. A class that this ABI does not have is `MPI_ERR_OTHER`.
pub fn error_out(value: i64) -> c_int {
    const OTHER: c_int = 15;
    match value - ADDED {
        // What means nothing.
        ..-0x1_0000 => value as c_int,
        added @ -1.. => c_int::try_from(added + convert::MPI_ERR_LASTCODE + 1).unwrap_or(c_int::MAX),
        _ => convert::error_out(value).map_or(OTHER, |value| value as c_int),
    }
}

/// Of keyvals, which look like handles.
pub fn keyval_in(value: c_int) -> Answer<i64> {
    let predefined = || convert::keyval_in(value.into()).unwrap_or(nothing(value));
    Ok(made_in(KEYVAL, value).map_or_else(predefined, |value| value as i64))
}

/// Back.
pub fn keyval_out(value: i64) -> c_int {
    let predefined = convert::keyval_out(value).map(|value| value as c_int);
    let made = || u64::try_from(value).ok().filter(|&value| value >= MADE);
    let made = || made().and_then(|value| made_out(KEYVAL, value));
    // MPI_KEYVAL_INVALID
    predefined.or_else(made).unwrap_or((KEYVAL as c_int) << 26)
}

pub fn displacement_in(value: i64) -> Answer<i64> {
    Ok(convert::displacement_in(value).unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    type In = fn(c_int) -> Answer<i64>;
    type Out = fn(i64) -> c_int;

    #[test]
    fn every_number_of_the_table_goes_both_ways() {
        let constants = bdrun_mpi_table::constants().expect("well-formed");
        let all: [(&str, In, Out); 22] = [
            ("rank", rank_in, rank_out),
            ("tag", tag_in, tag_out),
            ("error", error_in, error_out),
            ("keyval", keyval_in, keyval_out),
            ("thread", thread_in, thread_out),
            ("order", order_in, order_out),
            ("distribution", distribution_in, distribution_out),
            ("combiner", combiner_in, combiner_out),
            ("typeclass", typeclass_in, typeclass_out),
            ("comparison", comparison_in, comparison_out),
            ("topology", topology_in, topology_out),
            ("splittype", splittype_in, splittype_out),
            ("locktype", locktype_in, locktype_out),
            ("assert", assert_in, assert_out),
            ("amode", amode_in, amode_out),
            ("whence", whence_in, whence_out),
            ("verbosity", verbosity_in, verbosity_out),
            ("bind", bind_in, bind_out),
            ("scope", scope_in, scope_out),
            ("pvarclass", pvarclass_in, pvarclass_out),
            ("flavor", flavor_in, flavor_out),
            ("model", model_in, model_out),
        ];
        for (meaning, read, write) in all {
            let pairs =
                bdrun_mpi_table::convert::meaning(&constants, |constant| constant.mpich.as_ref(), meaning);
            assert!(!pairs.is_empty(), "{meaning}");
            for (name, ours, standard) in pairs {
                assert_eq!(read(ours as c_int), Ok(standard), "{name}");
                assert_eq!(i64::from(write(standard)), ours, "{name}");
            }
            // What means nothing is no int of the engine's.
            let known = HashSet::from([0, 1]);
            if !["rank", "tag", "error"].contains(&meaning) && !known.contains(&123_457) {
                assert!(read(123_456).unwrap() < i64::from(c_int::MIN), "{meaning}");
            }
        }
        // A program's own.
        assert_eq!((rank_in(7), tag_in(9), darg_in(4)), (Ok(7), Ok(9), Ok(4)));
        // MPI_DISTRIBUTE_DFLT_DARG, and what that is in other ABIs.
        assert_eq!((darg_in(-49767), darg_out(DEFAULT_DARG)), (Ok(DEFAULT_DARG), -49767));
        assert_eq!([19, -1].map(darg_in), [Ok(19), Ok(-1)]);
        assert_eq!([19, -1, 4].map(darg_out), [19, -1, 4]);
        for value in [-7, c_int::MIN] {
            assert_eq!(rank_out(rank_in(value).unwrap()), value, "whatever stands in a status");
        }
        for added in [0, 1, 1000] {
            let code = error_out(ADDED + added);
            assert_eq!((error_in(code), i64::from(code)), (Ok(ADDED + added), 0x4000_0000 + added));
        }
        for key in [MADE as i64, MADE as i64 + 4711] {
            assert_eq!(keyval_in(keyval_out(key)), Ok(key));
        }
        // MPI_MODE_CREATE | MPI_MODE_RDWR
        assert_eq!(amode_out(amode_in(1 | 8).unwrap()), 9);
        assert_eq!(displacement_in(-54_278_278), displacement_in(-54_278_278));
    }
}
