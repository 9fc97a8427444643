//! Handles. They are ints whose uppermost bits say what they are; but a file's is a pointer.
//!
//! | bits | what |
//! |---|---|
//! | 31, 30 | 0: of nothing; 1: predefined; 2: predefined too (pairs of values); 3: made by the program |
//! | 29 to 26 | of what kind of object |
//! | 25 to 0 | which; of predefined datatypes: bytes (15 to 8) and which |
//!
//! MPICH makes its own with 2 and 3 as well; nothing that a program can see tells one from the other.

use std::ffi::{c_int, c_void};

use bdrun_mpi::failure::Answer;
use bdrun_mpi::handle::{self, Handle, MADE};

use crate::convert;

/// The engine's handle for what is none: nothing has ever been made there.
const NONE: u64 = u64::MAX;

/// Bits of a place.
const PLACE: u32 = 26;

/// Of keyvals, which are no handles but look like them.
pub const KEYVAL: u32 = 0x9;

/// The uppermost bits of what a program makes.
const fn made_of(kind: u32) -> u32 {
    0x30 | kind
}

/// The engine's value for one that a program has made.
#[inline(always)]
pub const fn made_in(kind: u32, value: c_int) -> Option<u64> {
    let value = value as u32;
    if value >> PLACE == made_of(kind) { Some(MADE + (value & ((1 << PLACE) - 1)) as u64) } else { None }
}

/// The value of what a program has made. `None`: it is predefined, or there are 2^26 of them already.
#[inline(always)]
pub const fn made_out(kind: u32, value: u64) -> Option<c_int> {
    match value.checked_sub(MADE) {
        Some(place) if place < 1 << PLACE => Some((made_of(kind) << PLACE | place as u32) as c_int),
        _ => None,
    }
}

/// A handle of the engine's that stands in memory of the program as this ABI has it.
pub trait Word: Handle {
    /// The program's type.
    type C: Copy;

    /// The engine's.
    fn of(value: Self::C) -> Self;

    /// The program's.
    fn out(self) -> Self::C;
}

macro_rules! handles {
    ($($name:ident $kind:literal $in:ident $out:ident,)*) => {
        $(
            pub type $name = c_int;

            impl Word for handle::$name {
                type C = c_int;

                #[inline(always)]
                fn of(value: c_int) -> Self {
                    let made = made_in($kind, value);
                    // What is predefined lies below MADE, and is not negative.
                    let predefined = || convert::$in(value.into()).map_or(NONE, |value| value as u64);
                    Self(made.unwrap_or_else(predefined))
                }

                #[inline(always)]
                fn out(self) -> c_int {
                    if let Some(value) = made_out($kind, self.0) {
                        return value;
                    }
                    let predefined = i64::try_from(self.0).ok().and_then(convert::$out);
                    // Of what has no handle here, that of nothing, which is the kind alone.
                    predefined.map_or(($kind as c_int) << PLACE, |value| value as c_int)
                }
            }

            #[inline(always)]
            pub fn $in(value: c_int) -> Answer<handle::$name> {
                Ok(Word::of(value))
            }

            #[inline(always)]
            #[allow(dead_code, reason = "of some there is nothing to write")]
            pub fn $out(value: handle::$name) -> c_int {
                value.out()
            }
        )*
    };
}

handles! {
    Comm 0x1 comm_in comm_out,
    Group 0x2 group_in group_out,
    Datatype 0x3 datatype_in datatype_out,
    Errhandler 0x5 errhandler_in errhandler_out,
    Op 0x6 op_in op_out,
    Info 0x7 info_in info_out,
    Win 0x8 win_in win_out,
    // A message is a request to MPICH.
    Message 0xb message_in message_out,
    Request 0xb request_in request_out,
    Session 0xe session_in session_out,
}

/// A pointer: null is of nothing, and no object lies where the engine's numbers begin.
pub type File = *mut c_void;

impl Word for handle::File {
    type C = File;

    #[inline(always)]
    fn of(value: File) -> Self {
        match value as u64 {
            0 => Self::NULL,
            value @ MADE.. => Self(value),
            _ => Self(NONE),
        }
    }

    #[inline(always)]
    fn out(self) -> File {
        if self.0 < MADE { std::ptr::null_mut() } else { self.0 as File }
    }
}

#[inline(always)]
pub fn file_in(value: File) -> Answer<handle::File> {
    Ok(Word::of(value))
}

#[inline(always)]
pub fn file_out(value: handle::File) -> File {
    value.out()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Handles of the table, and many that a program may have made.
    fn round_trips<K: Word<C = c_int>>(c_type: &str) -> usize {
        let constants = bdrun_mpi_table::constants().expect("well-formed");
        let all = bdrun_mpi_table::convert::handle(&constants, |constant| constant.mpich.as_ref(), c_type);
        let mut engine_of = HashMap::new();
        for &(name, ours, standard) in &all {
            assert_eq!(K::of(ours as c_int).value(), standard as u64, "{name}");
            // Of two for one datatype of the engine's, the first.
            let first = all.iter().find(|(.., other)| *other == standard).map(|&(_, ours, _)| ours);
            assert_eq!(Some(i64::from(K::new(standard as u64).out())), first, "{name}");
            assert_eq!(*engine_of.entry(ours).or_insert(standard as u64), standard as u64, "{name}");
        }
        assert!(!all.is_empty(), "{c_type}");
        let named = engine_of.len();
        for place in (0..10_000).chain([0x00ff_ffff, 0x0100_0000, 0x03ff_fffe, 0x03ff_ffff]) {
            let value = MADE + place;
            let ours = K::new(value).out();
            assert_eq!(K::of(ours).value(), value, "{ours:#x}");
            assert_eq!(engine_of.insert(ours.into(), value), None, "{ours:#x} is of two");
        }
        // What cannot be a handle is none of the engine's; what has no handle is of nothing.
        let kinds = (0..16)
            .map(|kind: i32| (3 << 30 | kind << PLACE) | 77)
            .filter(|c| !engine_of.contains_key(&i64::from(*c)));
        let wrong = kinds.chain([0, 1, -1, 257, 0x7fff_ffff, i32::MIN, 0x4c00_0010]);
        for value in wrong {
            assert_eq!(K::of(value).value(), NONE, "{value:#x}");
        }
        for value in [1 << PLACE, u64::MAX - MADE] {
            assert_eq!(K::new(MADE + value).out() as u32 >> 30, 0, "{value:#x}");
        }
        named
    }

    #[test]
    fn every_handle_has_one_value_here_and_in_the_engine() {
        assert_eq!(round_trips::<handle::Comm>("Comm"), 3);
        assert_eq!(round_trips::<handle::Group>("Group"), 2);
        assert!(round_trips::<handle::Datatype>("Datatype") > 70);
        assert_eq!(round_trips::<handle::Errhandler>("Errhandler"), 4);
        assert_eq!(round_trips::<handle::Op>("Op"), 15);
        assert_eq!(round_trips::<handle::Info>("Info"), 2);
        assert_eq!(round_trips::<handle::Win>("Win"), 1);
        assert_eq!(round_trips::<handle::Message>("Message"), 2);
        assert_eq!(round_trips::<handle::Request>("Request"), 1);
        assert_eq!(round_trips::<handle::Session>("Session"), 1);
    }

    #[test]
    fn a_file_is_a_pointer() {
        assert_eq!(handle::File::of(std::ptr::null_mut()), handle::File::NULL);
        assert!(handle::File::NULL.out().is_null());
        for place in [0, 1, 77, 1 << 40] {
            let file = handle::File(MADE + place);
            assert_eq!(handle::File::of(file.out()), file);
        }
        for wrong in [1, 280, MADE - 1] {
            assert_eq!(handle::File::of(wrong as File), handle::File(NONE));
        }
    }

    /// Programs read the size of a predefined datatype from its handle.
    #[test]
    fn a_predefined_datatype_says_its_bytes() {
        for (standard, bytes) in [(0x209, 4), (0x214, 8), (0x220, 16), (0x202, 8)] {
            assert_eq!(handle::Datatype(standard).out() >> 8 & 0xff, bytes, "{standard:#x}");
        }
    }
}
