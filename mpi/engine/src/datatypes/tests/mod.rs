//! The calls, on a fresh [`Mpi`].

mod model;

use std::ffi::{c_char, c_int, c_void};

use bdrun_mpi_core::datatype::Basic;
use bdrun_mpi_core::error::{Class, Code};
use bdrun_mpi_table::Value;

use super::predefined::{self, handle};
use crate::Mpi;
use crate::args::{Buffer, Handles, Ints, IntsOut, Meant, Status};
use crate::calls::{Attributes as _, Datatypes as _};
use crate::face::DEFAULT_DARG;
use crate::failure::{Answer, Failure};
use crate::handle::{Comm, Datatype};

const INT: Datatype = handle(Basic::Int);
const CHAR: Datatype = handle(Basic::Char);
const DOUBLE: Datatype = handle(Basic::Double);

fn class(class: Class) -> Failure {
    class.into()
}

/// The class of a failure, whatever its text.
fn failed<T>(answer: Answer<T>) -> Option<Code> {
    answer.err().map(|failure| failure.code)
}

fn is(class: Class) -> Option<Code> {
    Some(Code::Class(class))
}

/// Handles as the standard's face has them.
fn handles(all: &mut [u64]) -> Handles<Datatype> {
    unsafe fn read(at: *mut c_void, index: usize) -> Answer<u64> {
        // SAFETY: the caller's.
        Ok(unsafe { at.cast::<u64>().add(index).read() })
    }
    unsafe fn write(at: *mut c_void, index: usize, value: u64) {
        // SAFETY: the caller's.
        unsafe { at.cast::<u64>().add(index).write(value) }
    }
    Handles::new(all.as_mut_ptr().cast(), read, write)
}

fn meant(all: &[c_int]) -> Meant {
    Meant::new(all.as_ptr(), |value| Ok(value.into()))
}

/// Numbers in both forms.
struct Numbers {
    small: Vec<c_int>,
    large: Vec<i64>,
}

impl Numbers {
    fn new(all: &[i64]) -> Self {
        Self { small: all.iter().map(|&one| one as c_int).collect(), large: all.to_vec() }
    }

    /// `int`, or `MPI_Count`.
    fn ints(&self, large: bool) -> Ints {
        if large { Ints::large(self.large.as_ptr()) } else { Ints::small(self.small.as_ptr()) }
    }
}

/// What `MPI_Type_get_contents_c` tells, and the combiner.
type Told = (i64, Vec<i64>, Vec<i64>, Vec<i64>, Vec<u64>);

fn told(mpi: &Mpi, of: Datatype) -> Told {
    // SAFETY: there is room for as many as the envelope says.
    unsafe {
        let (integers, addresses, counts, types, combiner) = mpi.type_get_envelope_c(of).expect("told");
        let mut found = (vec![0; integers as usize], vec![0; addresses as usize], vec![0; counts as usize]);
        let mut all = vec![0; types as usize];
        mpi.type_get_contents_c(
            of,
            integers,
            addresses,
            counts,
            types,
            IntsOut::small(found.0.as_mut_ptr()),
            IntsOut::large(found.1.as_mut_ptr()),
            IntsOut::large(found.2.as_mut_ptr()),
            handles(&mut all),
        )
        .expect("told");
        let integers: Vec<i64> = found.0.into_iter().map(|one: c_int| one.into()).collect();
        (combiner, integers, found.1, found.2, all)
    }
}

fn constant(name: &str) -> i64 {
    let constants = bdrun_mpi_table::constants().expect("well-formed");
    let found = constants.iter().find(|constant| constant.name == name).expect("there");
    let Some(Value::Number(number)) = found.standard else { panic!("{name} is no number") };
    number
}

fn name(mpi: &Mpi, of: Datatype) -> String {
    let mut bytes = [0_u8; 128];
    // SAFETY: there is room for the longest.
    let len = unsafe { mpi.type_get_name(of, bytes.as_mut_ptr().cast()) }.expect("there");
    String::from_utf8_lossy(&bytes[..len as usize]).into()
}

#[test]
fn predefined_ones_have_the_standards_handles_and_names() {
    let mpi = Mpi::new();
    for &basic in Basic::ALL {
        assert_eq!(handle(basic).0 as i64, constant(basic.name()));
        assert_eq!(name(&mpi, handle(basic)), basic.name());
        // SAFETY: a handle.
        unsafe {
            assert_eq!(mpi.type_size(handle(basic)), Ok(basic.size() as i64));
            assert_eq!(mpi.type_get_envelope(handle(basic)), Ok((0, 0, 0, constant("MPI_COMBINER_NAMED"))));
            assert_eq!(failed(mpi.type_free(handle(basic))), is(Class::Type));
            assert_eq!(mpi.type_commit(handle(basic)), Ok(handle(basic)));
        }
    }
}

#[test]
fn each_constructor_tells_what_it_was_given() {
    let mpi = Mpi::new();
    let (lengths, at) = (Numbers::new(&[2, 0, 3]), Numbers::new(&[5, -1, 40]));
    let (sizes, parts, starts) = (Numbers::new(&[4, 5]), Numbers::new(&[2, 3]), Numbers::new(&[1, 2]));
    let (processes, distributions, default) = (Numbers::new(&[2, 1]), [17, 16], [0; 2]);
    let bytes = Ints::large(at.large.as_ptr());
    for large in [false, true] {
        let check = |name: &str, made: Answer<Datatype>, integers: &[i64], more: &[i64], types: &[u64]| {
            let made = made.expect("legal");
            let combiner = constant(&format!("MPI_COMBINER_{name}"));
            let expected: Told = if large {
                (combiner, vec![], vec![], [integers, more].concat(), types.to_vec())
            } else {
                (combiner, integers.to_vec(), more.to_vec(), vec![], types.to_vec())
            };
            assert_eq!(told(&mpi, made), expected, "{name} {large}");
            // SAFETY: a handle.
            let small = unsafe { mpi.type_get_envelope(made) };
            if large && !integers.is_empty() | !more.is_empty() {
                assert_eq!(small, Err(class(Class::Type)), "{name}");
            } else {
                let lengths = (integers.len() as i64, more.len() as i64, types.len() as i64, combiner);
                assert_eq!(small, Ok(lengths), "{name}");
            }
        };
        let one = [INT.0];
        // SAFETY: arrays are as long as they are said to be.
        unsafe {
            check("CONTIGUOUS", mpi.type_contiguous(3, INT, large), &[3], &[], &one);
            check("VECTOR", mpi.type_vector(3, 2, -4, INT, large), &[3, 2, -4], &[], &one);
            check("HVECTOR", mpi.type_create_hvector(3, 2, -40, INT, large), &[3, 2], &[-40], &one);
            let (counts, extents) = (lengths.ints(large), at.ints(large));
            let made = mpi.type_indexed(3, counts, extents, INT, large);
            check("INDEXED", made, &[3, 2, 0, 3, 5, -1, 40], &[], &one);
            let made = mpi.type_create_hindexed(3, counts, bytes, INT, large);
            check("HINDEXED", made, &[3, 2, 0, 3], &[5, -1, 40], &one);
            let made = mpi.type_create_indexed_block(3, 7, extents, INT, large);
            check("INDEXED_BLOCK", made, &[3, 7, 5, -1, 40], &[], &one);
            let made = mpi.type_create_hindexed_block(3, 7, bytes, INT, large);
            check("HINDEXED_BLOCK", made, &[3, 7], &[5, -1, 40], &one);
            let mut types = [INT.0, DOUBLE.0, CHAR.0];
            let made = mpi.type_create_struct(3, counts, bytes, handles(&mut types), large);
            check("STRUCT", made, &[3, 2, 0, 3], &[5, -1, 40], &types);
            check("RESIZED", mpi.type_create_resized(INT, -3, 9, large), &[], &[-3, 9], &one);
            check("DUP", mpi.type_dup(INT), &[], &[], &one);

            // Of these some are an int in either form.
            let (sizes, parts) = (sizes.ints(large), parts.ints(large));
            let made = mpi.type_create_subarray(2, sizes, parts, starts.ints(large), 15, INT, large);
            let (plain, counts) = match large {
                true => (vec![2, 15], vec![4, 5, 2, 3, 1, 2]),
                false => (vec![2, 4, 5, 2, 3, 1, 2, 15], vec![]),
            };
            let combiner = constant("MPI_COMBINER_SUBARRAY");
            assert_eq!(told(&mpi, made.expect("legal")), (combiner, plain, vec![], counts, one.to_vec()));
            let (kinds, processes) = (meant(&distributions), processes.ints(false));
            let arguments = Meant::new(default.as_ptr(), |_| Ok(DEFAULT_DARG));
            let made = mpi.type_create_darray(2, 1, 2, sizes, kinds, arguments, processes, 12, INT, large);
            let (plain, counts) = match large {
                true => (vec![2, 1, 2, 17, 16, 19, 19, 2, 1, 12], vec![4, 5]),
                false => (vec![2, 1, 2, 4, 5, 17, 16, 19, 19, 2, 1, 12], vec![]),
            };
            let combiner = constant("MPI_COMBINER_DARRAY");
            assert_eq!(told(&mpi, made.expect("legal")), (combiner, plain, vec![], counts, one.to_vec()));
        }
    }
}

#[test]
fn what_it_was_made_of_is_a_new_one_to_be_freed() {
    let mpi = Mpi::new();
    // SAFETY: handles.
    unsafe {
        let row = mpi.type_contiguous(3, INT, false).expect("legal");
        let rows = mpi.type_vector(2, 1, 4, row, false).expect("legal");
        assert_eq!(mpi.type_free(row), Ok(Datatype::NULL));
        assert_eq!(failed(mpi.type_size(row)), is(Class::Type));
        assert_eq!(mpi.type_size(rows), Ok(24));
        let again = Datatype(told(&mpi, rows).4[0]);
        assert_eq!(
            told(&mpi, again),
            (constant("MPI_COMBINER_CONTIGUOUS"), vec![3], vec![], vec![], vec![INT.0])
        );
        assert_eq!((mpi.type_free(again), mpi.type_free(rows)), (Ok(Datatype::NULL), Ok(Datatype::NULL)));
        assert_eq!(failed(mpi.type_free(again)), is(Class::Type));
    }
}

#[test]
fn extents_are_those_of_the_standards_examples() {
    let mpi = Mpi::new();
    // SAFETY: arrays are as long as they are said to be.
    unsafe {
        // Section 5.1: {(double, 0), (char, 8)} has the extent 16.
        let (lengths, at, mut types) = ([1, 1], [0_i64, 8], [DOUBLE.0, CHAR.0]);
        let lengths = Ints::small(lengths.as_ptr());
        let of = handles(&mut types);
        let padded = mpi.type_create_struct(2, lengths, Ints::large(at.as_ptr()), of, false).expect("legal");
        assert_eq!((mpi.type_get_extent(padded), mpi.type_size(padded)), (Ok((0, 16)), Ok(9)));
        assert_eq!(mpi.type_get_true_extent(padded), Ok((0, 9)));
        // Example 5.2: three of them.
        let three = mpi.type_contiguous(3, padded, false).expect("legal");
        assert_eq!((mpi.type_get_extent(three), mpi.type_size(three)), (Ok((0, 48)), Ok(27)));
        // Section 5.1.6: an int with bounds of its own, and two of it.
        let resized = mpi.type_create_resized(INT, -3, 9, false).expect("legal");
        assert_eq!(mpi.type_get_extent(resized), Ok((-3, 9)));
        let two = mpi.type_contiguous(2, resized, false).expect("legal");
        assert_eq!((mpi.type_get_extent(two), mpi.type_get_true_extent(two)), (Ok((-3, 18)), Ok((0, 13))));
        assert_eq!(mpi.type_get_extent_x(two), Ok((-3, 18)));
        // Section 5.1.2: MPI_TYPE_VECTOR(2, 3, 4, {(double, 0), (char, 8)}).
        let vector = mpi.type_vector(2, 3, 4, padded, false).expect("legal");
        assert_eq!((mpi.type_get_extent(vector), mpi.type_size(vector)), (Ok((0, 112)), Ok(54)));
    }
}

#[test]
fn wrong_arguments_have_their_classes() {
    let mpi = Mpi::new();
    let (none, numbers) = (Ints::small(std::ptr::null()), [1, 2]);
    let ints = Ints::small(numbers.as_ptr());
    let mut memory = [0_u8; 64];
    let buffer = Buffer::At(memory.as_mut_ptr());
    let null = Buffer::At(std::ptr::null_mut());
    // SAFETY: arrays are as long as they are said to be, where they are read.
    unsafe {
        for bad in [Datatype::NULL, Datatype(0), Datatype(0x204), Datatype(0x1000), Datatype(u64::MAX)] {
            assert_eq!(failed(mpi.type_contiguous(1, bad, false)), is(Class::Type));
            assert_eq!(failed(mpi.type_commit(bad)), is(Class::Type));
            assert_eq!(failed(mpi.type_free(bad)), is(Class::Type));
            assert_eq!(failed(mpi.type_dup(bad)), is(Class::Type));
            assert_eq!(failed(mpi.get_count(Status::EMPTY, bad)), is(Class::Type));
            assert_eq!(failed(mpi.pack_size(1, bad, Comm::SELF)), is(Class::Type));
        }
        assert_eq!(failed(mpi.type_contiguous(-1, INT, false)), is(Class::Count));
        assert_eq!(failed(mpi.type_vector(1, -1, 0, INT, false)), is(Class::Count));
        assert_eq!(failed(mpi.type_indexed(-1, ints, ints, INT, false)), is(Class::Count));
        assert_eq!(failed(mpi.type_indexed(2, ints, none, INT, false)), is(Class::Arg));
        assert_eq!(failed(mpi.type_create_indexed_block(0, -1, ints, INT, false)), is(Class::Count));
        assert_eq!(failed(mpi.type_create_hindexed_block(2, 1, none, INT, false)), is(Class::Arg));
        assert_eq!(failed(mpi.type_contiguous(1 << 62, INT, true)), is(Class::ValueTooLarge));
        assert_eq!(failed(mpi.type_create_subarray(0, ints, ints, ints, 12, INT, false)), is(Class::Dims));
        assert_eq!(failed(mpi.type_create_subarray(2, ints, ints, ints, 12, INT, false)), is(Class::Arg));
        let zeros = [0, 0];
        let zeros = Ints::small(zeros.as_ptr());
        assert_eq!(failed(mpi.type_create_subarray(2, ints, ints, zeros, 13, INT, false)), is(Class::Arg));
        let mut types = [INT.0, Datatype::NULL.0];
        let made = mpi.type_create_struct(2, ints, ints, handles(&mut types), false);
        assert_eq!(failed(made), is(Class::Type));

        let pair = mpi.type_contiguous(2, INT, false).expect("legal");
        let pack = |from, count, of, to, size, position, comm| {
            failed(mpi.pack(from, count, of, to, size, position, comm))
        };
        assert_eq!(pack(buffer, 1, pair, null, 64, 0, Comm::SELF), is(Class::Type), "not committed");
        mpi.type_commit(pair).expect("there");
        let mut to = [0_u8; 64];
        let to = Buffer::At(to.as_mut_ptr());
        assert_eq!(pack(buffer, 1, pair, to, 64, 0, Comm::SELF), None);
        assert_eq!(pack(buffer, 1, pair, to, 64, 0, Comm::NULL), is(Class::Comm));
        assert_eq!(pack(buffer, -1, pair, to, 64, 0, Comm::SELF), is(Class::Count));
        assert_eq!(pack(Buffer::InPlace, 1, pair, to, 64, 0, Comm::SELF), is(Class::Buffer));
        assert_eq!(pack(null, 1, pair, to, 64, 0, Comm::SELF), is(Class::Buffer));
        assert_eq!(pack(null, 0, pair, null, 0, 0, Comm::SELF), None);
        assert_eq!(pack(buffer, 1, pair, null, 64, 0, Comm::SELF), is(Class::Buffer));
        assert_eq!(pack(buffer, 1, pair, to, 64, 57, Comm::SELF), is(Class::Truncate));
        assert_eq!(pack(buffer, 1, pair, to, 64, 56, Comm::SELF), None);
        assert_eq!(pack(buffer, 1, pair, to, 64, 65, Comm::SELF), is(Class::Arg));
        assert_eq!(pack(buffer, 1, pair, to, -1, 0, Comm::SELF), is(Class::Arg));
        assert_eq!(failed(mpi.unpack(to, 7, 0, buffer, 1, pair, Comm::SELF)), is(Class::Truncate));
        assert_eq!(failed(mpi.pack_size(-1, pair, Comm::SELF)), is(Class::Count));
        let size = |name: &std::ffi::CStr| failed(mpi.pack_external_size(name.as_ptr(), 1, pair));
        assert_eq!((size(c"external32"), size(c"native")), (None, is(Class::UnsupportedDatarep)));

        // Contents: of predefined ones none, and never more than there is room for.
        let no = IntsOut::small(std::ptr::null_mut());
        let contents = |of, integers| {
            let mut ints = [0];
            let ints = IntsOut::small(ints.as_mut_ptr());
            failed(mpi.type_get_contents(of, integers, 0, 1, ints, no, handles(&mut [0])))
        };
        assert_eq!(contents(INT, 1), is(Class::Type));
        assert_eq!((contents(pair, 0), contents(pair, 1)), (is(Class::Arg), None));
        let large = mpi.type_contiguous(2, INT, true).expect("legal");
        assert_eq!(contents(large, 1), is(Class::Type));
    }
}

#[test]
fn counts_and_elements_of_a_message() {
    let mpi = Mpi::new();
    let undefined = constant("MPI_UNDEFINED");
    let of = |bytes| Status { count: bytes, ..Status::EMPTY };
    // SAFETY: handles.
    unsafe {
        let three = mpi.type_contiguous(3, INT, false).expect("legal");
        let nothing = mpi.type_contiguous(0, INT, false).expect("legal");
        let count = |bytes, datatype| mpi.get_count(of(bytes), datatype).expect("told");
        let elements = |bytes, datatype| mpi.get_elements(of(bytes), datatype).expect("told");
        assert_eq!((count(24, three), elements(24, three)), (2, 6));
        assert_eq!((count(20, three), elements(20, three)), (undefined, 5));
        assert_eq!((count(21, three), elements(21, three)), (undefined, undefined));
        assert_eq!((count(0, nothing), elements(0, nothing)), (0, 0));
        assert_eq!((count(4, nothing), elements(4, nothing)), (undefined, undefined));
        assert_eq!(count(1 << 40, INT), 1 << 38);
        assert_eq!(mpi.get_elements_x(of(20), three), Ok(5));
        assert_eq!(elements(12, handle(Basic::DoubleInt)), 2);
    }
}

#[test]
fn addresses_are_computed_with() {
    let mpi = Mpi::new();
    let mut memory = [0_u32; 4];
    let at = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: nothing is read.
    unsafe {
        let first = mpi.get_address(at.cast()).expect("an address");
        assert_eq!(first, at as i64);
        let third = mpi.get_address(at.add(8).cast()).expect("an address");
        assert_eq!((mpi.aint_diff(third, first), mpi.aint_add(first, 8)), (Ok(8), Ok(third)));
        assert_eq!(mpi.get_address(std::ptr::null_mut()), Ok(0));
    }
}

#[test]
fn fortrans_types_are_found_by_what_is_asked() {
    let mpi = Mpi::new();
    let undefined = constant("MPI_UNDEFINED");
    // SAFETY: handles.
    unsafe {
        let real = mpi.type_create_f90_real(15, 300).expect("there is one");
        assert_eq!(mpi.type_create_f90_real(15, 300), Ok(real), "the same for the same");
        assert_ne!(mpi.type_create_f90_real(14, 300), Ok(real));
        assert_eq!(
            told(&mpi, real),
            (constant("MPI_COMBINER_F90_REAL"), vec![15, 300], vec![], vec![], vec![])
        );
        // Others that are asked for with the same numbers.
        let complex = mpi.type_create_f90_complex(15, 300).expect("there is one");
        let integer = mpi.type_create_f90_integer(15).expect("there is one");
        let combiner = |of| told(&mpi, of).0;
        assert_eq!(combiner(complex), constant("MPI_COMBINER_F90_COMPLEX"));
        assert_eq!(combiner(integer), constant("MPI_COMBINER_F90_INTEGER"));
        assert_eq!((mpi.type_size(complex), mpi.type_size(integer)), (Ok(16), Ok(8)));
        assert_eq!(failed(mpi.type_free(real)), is(Class::Type));
        assert_eq!(name(&mpi, real), "");
        let of_it = mpi.type_contiguous(2, real, false).expect("legal");
        assert_eq!((told(&mpi, of_it).4, mpi.type_size(of_it)), (vec![real.0], Ok(16)));
        let size = |made: Answer<Datatype>| made.and_then(|made| mpi.type_size(made));
        assert_eq!(size(mpi.type_create_f90_real(6, undefined)), Ok(4));
        assert_eq!(size(mpi.type_create_f90_real(6, 38)), Ok(8));
        assert_eq!(size(mpi.type_create_f90_real(undefined, 4000)), Ok(16));
        assert_eq!(size(mpi.type_create_f90_complex(7, 1)), Ok(16));
        // gfortran's kind 10, and its kind 16.
        let reals = [(16, undefined), (18, 4931), (undefined, 308), (19, 1), (33, 4931)];
        let reals = reals.map(|(p, r)| predefined::real(p, r));
        let (ten, sixteen) = (Some(Basic::LongDouble), Some(Basic::Real16));
        assert_eq!(reals, [ten, ten, ten, sixteen, sixteen]);
        let complex = [18, 19].map(|p| predefined::complex(p, undefined));
        assert_eq!(complex, [Some(Basic::CLongDoubleComplex), Some(Basic::Complex32)]);
        assert_eq!([2, 4, 9, 18, 38].map(|r| size(mpi.type_create_f90_integer(r))), [1, 2, 4, 8, 16].map(Ok));
        assert_eq!(failed(mpi.type_create_f90_integer(39)), is(Class::Arg));
        assert_eq!(failed(mpi.type_create_f90_real(34, 1)), is(Class::Arg));
        assert_eq!(failed(mpi.type_create_f90_real(undefined, undefined)), is(Class::Arg));

        let of = |class: &str, size| mpi.type_match_size(constant(&format!("MPI_TYPECLASS_{class}")), size);
        assert_eq!(of("REAL", 8), Ok(handle(Basic::Real8)));
        assert_eq!(of("INTEGER", 2), Ok(handle(Basic::Integer2)));
        assert_eq!(of("COMPLEX", 8), Ok(handle(Basic::Complex8)));
        assert_eq!(failed(of("REAL", 5)), is(Class::Arg));
        assert_eq!(failed(mpi.type_match_size(7, 4)), is(Class::Arg));

        assert_eq!(mpi.type_get_value_index(DOUBLE, INT), Ok(handle(Basic::DoubleInt)));
        let real = handle(Basic::Real);
        assert_eq!(mpi.type_get_value_index(real, real), Ok(handle(Basic::TwoReal)));
        assert_eq!(mpi.type_get_value_index(INT, DOUBLE), Ok(Datatype::NULL));
        assert_eq!(failed(mpi.type_get_value_index(of_it, INT)), is(Class::Type));
    }
}

#[test]
fn external32_is_big_endian_with_sizes_of_its_own() {
    let mpi = Mpi::new();
    let datarep = c"external32".as_ptr();
    let (lengths, at) = ([1, 1, 2], [0_i64, 8, 16]);
    let mut types = [handle(Basic::Long).0, handle(Basic::Short).0, handle(Basic::Float).0];
    let mut memory = [0_u8; 24];
    memory[..8].copy_from_slice(&(-2_i64).to_ne_bytes());
    memory[8..10].copy_from_slice(&0x0102_i16.to_ne_bytes());
    memory[16..20].copy_from_slice(&1.5_f32.to_ne_bytes());
    memory[20..].copy_from_slice(&(-0.25_f32).to_ne_bytes());
    let (mut packed, mut back) = ([0xee_u8; 16], [0_u8; 24]);
    let to = Buffer::At(packed.as_mut_ptr());
    // SAFETY: the memory is that of the datatype, and arrays are as long as they are said to be.
    unsafe {
        let (lengths, at) = (Ints::small(lengths.as_ptr()), Ints::large(at.as_ptr()));
        let made = mpi.type_create_struct(3, lengths, at, handles(&mut types), false).expect("legal");
        mpi.type_commit(made).expect("there");
        assert_eq!(mpi.pack_external_size(datarep, 1, made), Ok(14));
        let from = Buffer::At(memory.as_mut_ptr());
        assert_eq!(mpi.pack_external(datarep, from, 1, made, to, 16, 1), Ok(15));
        assert_eq!(failed(mpi.pack_external(datarep, from, 1, made, to, 16, 3)), is(Class::Truncate));
        let into = Buffer::At(back.as_mut_ptr());
        assert_eq!(mpi.unpack_external(datarep, to, 16, 1, into, 1, made), Ok(15));
        assert_eq!(failed(mpi.unpack_external(datarep, to, 13, 0, into, 1, made)), is(Class::Truncate));
    }
    // A long has four bytes there.
    let expected = [0xee, 0xff, 0xff, 0xff, 0xfe, 1, 2, 0x3f, 0xc0, 0, 0, 0xbe, 0x80, 0, 0, 0xee];
    assert_eq!(packed, expected);
    assert_eq!(back, memory);
}

#[test]
fn what_lies_together_is_not_packed() {
    let mpi = Mpi::new();
    let mut memory = [0_u8; 64];
    let at = memory.as_mut_ptr();
    // SAFETY: handles; nothing is read.
    unsafe {
        let row = mpi.type_contiguous(4, INT, false).expect("legal");
        let column = mpi.type_vector(2, 1, 2, INT, false).expect("legal");
        let [row, column] = [row, column].map(|made| mpi.type_commit(made).expect("there"));
        assert_eq!(mpi.span(Buffer::At(at), 4, row).expect("legal").contiguous(), Some(at));
        assert_eq!(mpi.span(Buffer::At(at), 1, column).expect("legal").contiguous(), None);
        // The datatype lives on.
        let span = mpi.span(Buffer::At(at), 2, column).expect("legal");
        mpi.type_free(column).expect("there");
        assert_eq!((span.bytes(), span.of().extent()), (16, 12));
    }
}

#[test]
fn a_copy_is_committed_as_its_original_is_and_has_no_name() {
    let mpi = Mpi::new();
    // SAFETY: handles, and strings that end.
    unsafe {
        let made = mpi.type_contiguous(2, INT, false).expect("legal");
        let before = mpi.type_dup(made).expect("there");
        mpi.type_commit(made).expect("there");
        mpi.type_set_name(made, c"a pair".as_ptr()).expect("there");
        let after = mpi.type_dup(made).expect("there");
        let packs = |of| failed(mpi.pack_size(1, of, Comm::SELF));
        assert_eq!((packs(before), packs(after)), (is(Class::Type), None));
        assert_eq!((name(&mpi, made), name(&mpi, after)), ("a pair".into(), String::new()));
        // A predefined one may be given another name; what is too long is cut.
        let long = [b'x' as c_char; 200];
        let mut long = long.to_vec();
        long.push(0);
        mpi.type_set_name(INT, long.as_ptr()).expect("there");
        assert_eq!(name(&mpi, INT), "x".repeat(127));
    }
}

/// 19 is `MPI_DISTRIBUTE_DFLT_DARG` of the standard's ABI alone.
#[test]
fn blocks_of_nineteen_are_such() {
    let mpi = Mpi::new();
    for (kind, size, expected) in [(18, 100, [57, 43]), (17, 38, [19, 19])] {
        for (rank, expected) in (0..).zip(expected) {
            let (sizes, processes) = (Numbers::new(&[size]), Numbers::new(&[2]));
            let (kinds, blocks) = ([kind], [19]);
            let (kinds, blocks) = (meant(&kinds), meant(&blocks));
            let (sizes, processes) = (sizes.ints(false), processes.ints(false));
            // SAFETY: arrays of one number.
            unsafe {
                let made =
                    mpi.type_create_darray(2, rank, 1, sizes, kinds, blocks, processes, 12, INT, false);
                let made = made.expect("legal");
                assert_eq!(mpi.type_size(made), Ok(4 * expected));
                assert_eq!(told(&mpi, made).1[5], 19);
            }
        }
    }
}
