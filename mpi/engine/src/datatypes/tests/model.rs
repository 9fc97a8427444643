//! Packing of nested datatypes, against the bytes of the type map one by one.

use std::ffi::c_int;

use bdrun_mpi_core::datatype::Basic;
use proptest::prelude::*;

use super::super::predefined::handle;
use super::{CHAR, handles};
use crate::Mpi;
use crate::args::{Buffer, Ints};
use crate::calls::Datatypes as _;
use crate::handle::{Comm, Datatype};

/// One step of making a datatype.
#[derive(Debug, Clone)]
enum Make {
    Dup,
    Contiguous(i64),
    Vector(i64, i64, i64),
    Hindexed(Vec<(i64, i64)>),
    WithChars(i64, i64),
    Resized(i64, i64),
    Subarray(i64, i64, i64, bool),
}

/// The bytes of a type map in order, as the standard defines each constructor, and the extent.
#[derive(Debug, Clone)]
struct Model {
    bytes: Vec<i64>,
    extent: i64,
}

impl Model {
    fn copies(&self, at: impl IntoIterator<Item = i64>) -> Vec<i64> {
        at.into_iter().flat_map(|at| self.bytes.iter().map(move |byte| byte + at)).collect()
    }
}

impl Make {
    fn apply(&self, mpi: &Mpi, of: Datatype, model: &Model) -> (Datatype, Model) {
        let extent = model.extent;
        // SAFETY: arrays are as long as they are said to be.
        let (made, bytes) = unsafe {
            match self {
                Self::Dup => (mpi.type_dup(of), model.bytes.clone()),
                &Self::Contiguous(n) => {
                    (mpi.type_contiguous(n, of, true), model.copies((0..n).map(|i| i * extent)))
                }
                &Self::Vector(n, length, stride) => {
                    let at = (0..n).flat_map(|i| (0..length).map(move |j| (i * stride + j) * extent));
                    (mpi.type_vector(n, length, stride, of, false), model.copies(at))
                }
                Self::Hindexed(blocks) => {
                    let lengths: Vec<c_int> = blocks.iter().map(|block| block.1 as c_int).collect();
                    let places: Vec<i64> = blocks.iter().map(|block| block.0).collect();
                    let (lengths, places) = (Ints::small(lengths.as_ptr()), Ints::large(places.as_ptr()));
                    let made = mpi.type_create_hindexed(blocks.len() as i64, lengths, places, of, false);
                    let at = |&(at, n): &(i64, i64)| (0..n).map(move |i| at + i * extent);
                    (made, model.copies(blocks.iter().flat_map(at)))
                }
                &Self::WithChars(at, n) => {
                    let (lengths, places) = ([1, n], [0, at]);
                    let mut types = [of.0, CHAR.0];
                    let (lengths, places) = (Ints::large(lengths.as_ptr()), Ints::large(places.as_ptr()));
                    let made = mpi.type_create_struct(2, lengths, places, handles(&mut types), true);
                    (made, model.bytes.iter().copied().chain(at..at + n).collect())
                }
                &Self::Resized(lower, extent) => {
                    (mpi.type_create_resized(of, lower, extent, false), model.bytes.clone())
                }
                &Self::Subarray(rows, columns, part, fortran) => {
                    // All but the first row and column; in Fortran's order the first index is the fastest.
                    let (sizes, parts) = ([rows + 1, columns + part], [rows, columns]);
                    let starts = [1, part];
                    let numbers = [sizes, parts, starts].map(|all| all.map(|one| one as c_int));
                    let [a, b, c] = [0, 1, 2].map(|i: usize| Ints::small(numbers[i].as_ptr()));
                    let order = if fortran { 15 } else { 12 };
                    let made = mpi.type_create_subarray(2, a, b, c, order, of, false);
                    let index = |row: i64, column: i64| match fortran {
                        true => (row + 1 + (column + part) * sizes[0]) * extent,
                        false => ((row + 1) * sizes[1] + column + part) * extent,
                    };
                    let at: Vec<i64> = match fortran {
                        true => (0..columns).flat_map(|j| (0..rows).map(move |i| index(i, j))).collect(),
                        false => (0..rows).flat_map(|i| (0..columns).map(move |j| index(i, j))).collect(),
                    };
                    (made, model.copies(at))
                }
            }
        };
        let made = made.expect("legal");
        // SAFETY: a handle. The core's tests check bounds against the standard's definition.
        let (_, extent) = unsafe { mpi.type_get_extent(made) }.expect("there");
        (made, Model { bytes, extent })
    }
}

fn makes() -> impl Strategy<Value = Make> {
    let blocks = proptest::collection::vec((-20_i64..20, 0_i64..3), 0..4);
    prop_oneof![
        Just(Make::Dup),
        (0_i64..4).prop_map(Make::Contiguous),
        (0_i64..4, 0_i64..3, -4_i64..5).prop_map(|(a, b, c)| Make::Vector(a, b, c)),
        blocks.prop_map(Make::Hindexed),
        (-40_i64..40, 0_i64..3).prop_map(|(a, b)| Make::WithChars(a, b)),
        (-30_i64..30, 0_i64..60).prop_map(|(a, b)| Make::Resized(a, b)),
        (1_i64..4, 1_i64..4, 0_i64..2, any::<bool>()).prop_map(|(a, b, c, d)| Make::Subarray(a, b, c, d)),
    ]
}

proptest! {
    #[test]
    fn packed_bytes_follow_the_type_map(
        basic in proptest::sample::select(&[Basic::Char, Basic::Short, Basic::Int, Basic::Double][..]),
        makes in proptest::collection::vec(makes(), 0..4),
        count in 0_i64..3,
        position in 0_i64..9,
    ) {
        let mpi = Mpi::new();
        let size = basic.size() as i64;
        let begin = (handle(basic), Model { bytes: (0..size).collect(), extent: size });
        let (made, model) = makes.iter().fold(begin, |(made, model), make| {
            if model.bytes.len() > 500 { (made, model) } else { make.apply(&mpi, made, &model) }
        });
        let bytes = model.copies((0..count).map(|nth| nth * model.extent));
        let (first, end) = (bytes.iter().min().map_or(0, |at| *at), bytes.iter().max().map_or(1, |at| at + 1));
        let mut memory: Vec<u8> = (first..end).map(|at| (at * 31 + 7) as u8).collect();
        let mut other = vec![0; memory.len()];
        let base = |memory: &mut Vec<u8>| Buffer::At(memory.as_mut_ptr().wrapping_offset(-first as isize));
        let (from, into) = (base(&mut memory), base(&mut other));
        let room = position + bytes.len() as i64;
        let mut packed = vec![0xee; room as usize];
        let to = Buffer::At(packed.as_mut_ptr());
        // SAFETY: all bytes of the datatype lie in `memory` and `other`.
        unsafe {
            mpi.type_commit(made).expect("there");
            prop_assert_eq!(mpi.pack_size(count, made, Comm::SELF), Ok(bytes.len() as i64));
            prop_assert_eq!(mpi.pack(from, count, made, to, room, position, Comm::SELF), Ok(room));
            prop_assert_eq!(mpi.unpack(to, room, position, into, count, made, Comm::SELF), Ok(room));
        }
        let expected: Vec<u8> = bytes.iter().map(|at| (at * 31 + 7) as u8).collect();
        prop_assert_eq!(&packed[position as usize..], &expected);
        for (at, &byte) in (first..).zip(&other) {
            let moved = bytes.contains(&at);
            prop_assert_eq!(byte, if moved { (at * 31 + 7) as u8 } else { 0 });
        }
    }
}
