//! Every constructor against a naive model: the list of all elements, as the standard writes a type map.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;

/// A type map with every element, and the bounds: as the standard defines them, but that the extents of what
/// it was made of count.
#[derive(Debug, Clone)]
struct Model {
    map: Vec<(Basic, i64)>,
    /// Where its parts begin and end.
    parts: Option<(i64, i64)>,
    set: Option<(i64, i64)>,
}

impl Model {
    fn basic(basic: Basic) -> Self {
        Self { map: vec![(basic, 0)], parts: None, set: None }
    }

    fn first(&self) -> i64 {
        self.map.iter().map(|&(_, at)| at).min().unwrap_or(0)
    }

    fn end(&self) -> i64 {
        let end = |&(basic, at): &(Basic, i64)| {
            let (first, second) = basic.elements();
            at + second.map_or(first.size(), |second| basic.second_at() + second.size()) as i64
        };
        self.map.iter().map(end).max().unwrap_or(0)
    }

    fn lower(&self) -> i64 {
        self.set.map_or(self.parts().0, |(lower, _)| lower)
    }

    fn upper(&self) -> i64 {
        let align = self.map.iter().map(|(basic, _)| basic.align() as i64).max().unwrap_or(1);
        let (from, to) = self.parts();
        let padded = (0..).map(|more| to + more).find(|end| (end - from) % align == 0);
        self.set.map_or(padded.expect("there is one"), |(_, upper)| upper)
    }

    fn parts(&self) -> (i64, i64) {
        self.parts.unwrap_or((self.first(), self.end()))
    }

    fn extent(&self) -> i64 {
        self.upper() - self.lower()
    }

    /// Copies of others at places.
    fn of(parts: impl IntoIterator<Item = (i64, Self)>) -> Self {
        let mut all = Self { map: vec![], parts: None, set: None };
        for (place, part) in parts {
            if !part.map.is_empty() {
                let (from, to) = (place + part.lower(), place + part.upper());
                let before = all.parts.unwrap_or((from, to));
                all.parts = Some((before.0.min(from), before.1.max(to)));
            }
            all.map.extend(part.map.iter().map(|&(basic, at)| (basic, place + at)));
            if let Some((lower, upper)) = part.set {
                let (lower, upper) = (place + lower, place + upper);
                let before = all.set.unwrap_or((lower, upper));
                all.set = Some((before.0.min(lower), before.1.max(upper)));
            }
        }
        all
    }

    /// Blocks of copies next to each other.
    fn blocks(&self, blocks: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let copies = |(at, count): (i64, i64)| (0..count).map(move |nth| (at, nth));
        Self::of(
            blocks.into_iter().flat_map(copies).map(|(at, nth)| (at + nth * self.extent(), self.clone())),
        )
    }

    /// Where each byte is that is sent.
    fn bytes(&self, count: i64) -> Vec<i64> {
        let one = self.map.iter().flat_map(|&(basic, at)| {
            let (first, second) = basic.elements();
            let second = second.map_or(0, Scalar::size);
            let second = (0..second).map(move |i| at + (basic.second_at() + i) as i64);
            (0..first.size()).map(move |i| at + i as i64).chain(second)
        });
        // The extent is looked for in the whole map: once, of up to a quarter of a million elements.
        let (one, extent) = (one.collect::<Vec<i64>>(), self.extent());
        (0..count).flat_map(|nth| one.iter().map(move |at| at + nth * extent)).collect()
    }
}

/// One step of making a datatype.
#[derive(Debug, Clone)]
enum Make {
    Dup,
    Contiguous(i64),
    Vector(i64, i64, i64),
    Hvector(i64, i64, i64),
    Indexed(Vec<(i64, i64)>),
    Hindexed(Vec<(i64, i64)>),
    IndexedBlock(i64, Vec<i64>),
    HindexedBlock(i64, Vec<i64>),
    Struct(Vec<(i64, i64, bool)>, Basic),
    Resized(i64, i64),
    Subarray(Vec<(i64, i64, i64)>, bool),
    Darray(Vec<Grid>, i64, bool),
}

fn block(&(at, count): &(i64, i64)) -> Block {
    Block { count, at }
}

fn order(fortran: bool) -> Order {
    if fortran { Order::Fortran } else { Order::C }
}

/// The indices of each dimension, all combinations, the fastest running first.
fn combinations(dimensions: &[(i64, Vec<i64>)], fortran: bool) -> Vec<i64> {
    let mut list: Vec<&(i64, Vec<i64>)> = dimensions.iter().collect();
    if fortran {
        list.reverse();
    }
    // The last is the fastest now.
    let mut all = vec![0];
    for (size, indices) in list {
        all = all.iter().flat_map(|at| indices.iter().map(move |index| at * size + index)).collect();
    }
    all
}

fn owned(grid: &Grid, place: i64) -> Vec<i64> {
    let even = grid.size.div_euclid(grid.processes) + i64::from(grid.size % grid.processes != 0);
    let block = match grid.distribution {
        Distribution::None => grid.size,
        Distribution::Block(block) => block.unwrap_or(even),
        Distribution::Cyclic(block) => block.unwrap_or(1),
    };
    (0..grid.size).filter(|index| index / block % grid.processes == place).collect()
}

impl Make {
    fn make(&self, of: &Type, model: &Model) -> (Type, Model) {
        let (small, extent) = (Width::Small, model.extent());
        let basic = |basic: Basic| (Datatype::basic(basic), Model::basic(basic));
        match self {
            Self::Dup => (Datatype::dup(of), model.clone()),
            Self::Contiguous(count) => {
                (Datatype::contiguous(*count, of, small).expect("legal"), model.blocks([(0, *count)]))
            }
            &Self::Vector(count, length, stride) => {
                let made = Datatype::vector(count, length, stride, of, Width::Large).expect("legal");
                (made, model.blocks((0..count).map(|nth| (nth * stride * extent, length))))
            }
            &Self::Hvector(count, length, stride) => {
                let made = Datatype::hvector(count, length, stride, of, small).expect("legal");
                (made, model.blocks((0..count).map(|nth| (nth * stride, length))))
            }
            Self::Indexed(list) => {
                let blocks: Vec<Block> = list.iter().map(block).collect();
                let made = Datatype::indexed(&blocks, of, small).expect("legal");
                (made, model.blocks(list.iter().map(|&(at, count)| (at * extent, count))))
            }
            Self::Hindexed(list) => {
                let blocks: Vec<Block> = list.iter().map(block).collect();
                (Datatype::hindexed(&blocks, of, small).expect("legal"), model.blocks(list.iter().copied()))
            }
            Self::IndexedBlock(length, at) => {
                let made = Datatype::indexed_block(*length, at, of, small).expect("legal");
                (made, model.blocks(at.iter().map(|at| (at * extent, *length))))
            }
            Self::HindexedBlock(length, at) => {
                let made = Datatype::hindexed_block(*length, at, of, small).expect("legal");
                (made, model.blocks(at.iter().map(|&at| (at, *length))))
            }
            Self::Struct(list, other) => {
                let (other, other_model) = basic(*other);
                let pick = |mine: bool| if mine { (of, model) } else { (&other, &other_model) };
                let blocks: Vec<(Block, Type)> = list
                    .iter()
                    .map(|&(at, count, mine)| (Block { count, at }, pick(mine).0.clone()))
                    .collect();
                let parts = list.iter().map(|&(at, count, mine)| (0, pick(mine).1.blocks([(at, count)])));
                (Datatype::structure(&blocks, small).expect("legal"), Model::of(parts))
            }
            &Self::Resized(lower, extent) => {
                let made = Datatype::resized(of, lower, extent, small).expect("legal");
                (made, Model { set: Some((lower, lower + extent)), ..model.clone() })
            }
            Self::Subarray(list, fortran) => {
                let made = Datatype::subarray(list, order(*fortran), 0, of, small).expect("legal");
                let dimensions: Vec<(i64, Vec<i64>)> =
                    list.iter().map(|&(size, part, start)| (size, (start..start + part).collect())).collect();
                (made, array(model, &dimensions, *fortran))
            }
            Self::Darray(grid, rank, fortran) => {
                let size = grid.iter().map(|dimension| dimension.processes).product();
                let told = Told::default();
                let made = Datatype::darray(size, rank % size, grid, order(*fortran), &told, of, small);
                let mut left = rank % size;
                let mut dimensions: Vec<(i64, Vec<i64>)> = vec![];
                for dimension in grid.iter().rev() {
                    dimensions.insert(0, (dimension.size, owned(dimension, left % dimension.processes)));
                    left /= dimension.processes;
                }
                (made.expect("legal"), array(model, &dimensions, *fortran))
            }
        }
    }
}

fn array(model: &Model, dimensions: &[(i64, Vec<i64>)], fortran: bool) -> Model {
    let extent = model.extent();
    let places = combinations(dimensions, fortran).into_iter().map(|index| (index * extent, model.clone()));
    let all: i64 = dimensions.iter().map(|(size, _)| size).product();
    Model { set: Some((0, all * extent)), ..Model::of(places) }
}

fn basics() -> impl Strategy<Value = Basic> {
    proptest::sample::select(Basic::ALL)
}

fn grids() -> impl Strategy<Value = Grid> {
    (1_i64..9, 1_i64..4, 0..5, 1_i64..4).prop_map(|(size, processes, kind, block)| {
        let even = size / processes + i64::from(size % processes != 0);
        let distribution = match kind {
            0 => return Grid { size, distribution: Distribution::None, processes: 1 },
            1 => Distribution::Block(None),
            2 => Distribution::Block(Some(even + block - 1)),
            3 => Distribution::Cyclic(None),
            _ => Distribution::Cyclic(Some(block)),
        };
        Grid { size, distribution, processes }
    })
}

fn makes() -> impl Strategy<Value = Make> {
    let list = || proptest::collection::vec((-20_i64..20, 0_i64..4), 0..5);
    let places = || proptest::collection::vec(-20_i64..20, 0..5);
    let part = (1_i64..5, 0_i64..3, 0_i64..3)
        .prop_map(|(part, before, behind)| (part + before + behind, part, before));
    prop_oneof![
        Just(Make::Dup),
        (0_i64..5).prop_map(Make::Contiguous),
        (0_i64..4, 0_i64..4, -5_i64..6).prop_map(|(a, b, c)| Make::Vector(a, b, c)),
        (0_i64..4, 0_i64..4, -40_i64..40).prop_map(|(a, b, c)| Make::Hvector(a, b, c)),
        list().prop_map(Make::Indexed),
        list().prop_map(Make::Hindexed),
        (0_i64..4, places()).prop_map(|(a, b)| Make::IndexedBlock(a, b)),
        (0_i64..4, places()).prop_map(|(a, b)| Make::HindexedBlock(a, b)),
        (proptest::collection::vec((-60_i64..60, 0_i64..4, any::<bool>()), 0..5), basics())
            .prop_map(|(a, b)| Make::Struct(a, b)),
        (-30_i64..30, -10_i64..60).prop_map(|(a, b)| Make::Resized(a, b)),
        (proptest::collection::vec(part, 1..4), any::<bool>()).prop_map(|(a, b)| Make::Subarray(a, b)),
        (proptest::collection::vec(grids(), 1..4), 0_i64..30, any::<bool>())
            .prop_map(|(a, b, c)| Make::Darray(a, b, c)),
    ]
}

fn types() -> impl Strategy<Value = (Type, Model)> {
    (basics(), proptest::collection::vec(makes(), 0..4)).prop_map(|(basic, makes)| {
        let begin = (Datatype::basic(basic), Model::basic(basic));
        makes.iter().fold(begin, |(made, model), make| {
            // Of what has become large nothing larger is made: the model has every element.
            if model.map.len() > 500 { (made, model) } else { make.make(&made, &model) }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn bounds_and_bytes_are_those_of_the_type_map((made, model) in types(), count in 0_i64..4, cuts in (0.0..1.0, 0.0..1.0)) {
        prop_assert_eq!(made.size(), model.bytes(1).len() as i64);
        prop_assert_eq!((made.lower_bound(), made.extent()), (model.lower(), model.extent()), "{:?}", model);
        prop_assert_eq!(made.true_lower_bound(), model.first());
        prop_assert_eq!(made.true_extent(), model.end() - model.first());

        let mut seen = vec![];
        let _ = made.each_element::<()>(1, &mut |elements: Elements| {
            seen.extend((0..elements.count).map(|nth| (elements.basic, elements.at + nth * elements.stride)));
            ControlFlow::Continue(())
        });
        prop_assert_eq!(&seen, &model.map);

        // Any part of the bytes, as runs of which none follows another that it could be one with.
        let bytes = model.bytes(count);
        let (a, b) = ((cuts.0 * (bytes.len() + 1) as f64) as u64, (cuts.1 * (bytes.len() + 1) as f64) as u64);
        let (from, to) = (a.min(b), a.max(b));
        let mut runs = vec![];
        made.layout().each_run(count as u64, from, to, |at, len| runs.push((at, len)));
        let found: Vec<i64> = runs.iter().flat_map(|&(at, len)| (0..len as i64).map(move |i| at + i)).collect();
        prop_assert_eq!(&found, &bytes[from as usize..to as usize]);
        if let Some(at) = made.layout().contiguous(count as u64) {
            prop_assert!(bytes.iter().enumerate().all(|(nth, &byte)| byte == at + nth as i64));
        }
    }

    #[test]
    fn what_is_packed_comes_out_where_it_was((made, model) in types(), count in 0_i64..4, chunk in 1_usize..40) {
        let bytes = model.bytes(count);
        let (first, end) = (bytes.iter().min().copied().unwrap_or(0), bytes.iter().max().map_or(0, |at| at + 1));
        let memory: Vec<u8> = (first..end).map(|at| (at * 31 + 7) as u8).collect();
        let base = memory.as_ptr().wrapping_offset(-first as isize);
        let mut packed = vec![];
        loop {
            let mut piece = vec![0; chunk];
            // SAFETY: all bytes of the datatype lie in `memory`.
            let got = unsafe { made.layout().pack(base, count as u64, packed.len() as u64, &mut piece) };
            packed.extend(&piece[..got]);
            if got < chunk {
                break;
            }
        }
        let expected: Vec<u8> = bytes.iter().map(|at| (at * 31 + 7) as u8).collect();
        prop_assert_eq!(&packed, &expected);
        let mut other = vec![0; memory.len()];
        let base = other.as_mut_ptr().wrapping_offset(-first as isize);
        for (nth, piece) in packed.chunks(chunk).enumerate() {
            // SAFETY: all bytes of the datatype lie in `other`.
            let put = unsafe { made.layout().unpack(base, count as u64, (nth * chunk) as u64, piece) };
            prop_assert_eq!(put, piece.len());
        }
        for at in bytes {
            prop_assert_eq!(other[(at - first) as usize], memory[(at - first) as usize]);
        }
    }

    #[test]
    fn elements_are_counted((made, model) in types(), part in 0.0..3.0) {
        let sizes: Vec<i64> = model.map.iter().flat_map(|(basic, _)| {
            let (first, second) = basic.elements();
            std::iter::once(first.size() as i64).chain(second.map(|second| second.size() as i64))
        }).collect();
        let bytes = (part * made.size() as f64) as i64;
        let (mut left, mut count) = (bytes, 0);
        for size in sizes.iter().cycle().take(3 * sizes.len()) {
            if left < *size {
                break;
            }
            left -= size;
            count += 1;
        }
        prop_assert_eq!(made.elements_in(bytes), (left == 0).then_some(count));
        if left == 0 {
            prop_assert_eq!(made.bytes_of(count), Some(bytes));
        }
    }

    #[test]
    fn external_bytes_come_back((made, model) in types(), count in 0_i64..3, salt: u8, most in 1_usize..40) {
        // Overlapping elements have no value of their own.
        let mut bytes = model.bytes(count);
        let (first, end) = (bytes.iter().min().copied().unwrap_or(0), bytes.iter().max().map_or(0, |at| at + 1));
        bytes.sort_unstable();
        let many = bytes.len();
        bytes.dedup();
        prop_assume!(bytes.len() == many);
        // Small numbers fit wherever they are narrower, and `long double` has bytes that mean nothing.
        let small = |basic: &Basic| basic.external_sizes().0 != basic.elements().0.size();
        let long = |basic: &Basic| matches!(basic.elements().0, Scalar::Float(16) | Scalar::Complex(32));
        prop_assume!(!model.map.iter().any(|(basic, _)| small(basic) || long(basic)));
        let memory: Vec<u8> = (first..end).map(|at| (at as u8).wrapping_mul(31).wrapping_add(salt)).collect();
        let base = memory.as_ptr().wrapping_offset(-first as isize);
        let mut external = vec![];
        // SAFETY: all bytes of the datatype lie in `memory`.
        unsafe { made.pack_external(base, count, &mut external) };
        prop_assert_eq!(made.external_size().map(|size| size * count), Some(external.len() as i64));
        let mut other = vec![0; memory.len()];
        let base = other.as_mut_ptr().wrapping_offset(-first as isize);
        // SAFETY: all bytes of the datatype lie in `other`.
        let used = unsafe { made.unpack_external(base, count, &external) };
        prop_assert_eq!(used, external.len());
        for at in bytes {
            prop_assert_eq!(other[(at - first) as usize], memory[(at - first) as usize]);
        }
        // Piece by piece it is the same, also where it ends too early.
        let (mut pieces, mut longest) = (vec![], 0);
        let mut next = |piece: &mut Vec<u8>| {
            longest = longest.max(piece.len());
            pieces.append(piece);
            true
        };
        // SAFETY: as above.
        unsafe { made.each_external(memory.as_ptr().wrapping_offset(-first as isize), count, most, &mut next) };
        prop_assert!(longest < most + 32);
        prop_assert_eq!(&pieces, &external);
        let there = external.len() * most / 40;
        let (mut expected, mut got) = (vec![0; memory.len()], vec![0; memory.len()]);
        let [whole, by_piece] =
            [&mut expected, &mut got].map(|of: &mut Vec<u8>| of.as_mut_ptr().wrapping_offset(-first as isize));
        let mut left = &external[..there];
        let mut more = |into: &mut [u8]| {
            let (come, rest) = left.split_at(into.len().min(left.len()));
            into[..come.len()].copy_from_slice(come);
            left = rest;
            come.len()
        };
        // SAFETY: as above.
        let used = unsafe {
            [made.unpack_external(whole, count, &external[..there]), made.fill_external(by_piece, count, most, &mut more)]
        };
        prop_assert!(used[0] == used[1] && used[0] <= there);
        prop_assert_eq!(got, expected);
    }
}

#[test]
fn external_numbers_are_those_of_the_standard() {
    let pack = |basic: Basic, native: &[u8]| {
        let mut external = vec![];
        // SAFETY: `native` is one of it.
        unsafe { Datatype::basic(basic).pack_external(native.as_ptr(), 1, &mut external) };
        external
    };
    assert_eq!(pack(Basic::Int, &(-2_i32).to_ne_bytes()), (-2_i32).to_be_bytes());
    assert_eq!(pack(Basic::Long, &(-2_i64).to_ne_bytes()), (-2_i32).to_be_bytes());
    assert_eq!(pack(Basic::Double, &1.5_f64.to_ne_bytes()), 1.5_f64.to_be_bytes());
    assert_eq!(pack(Basic::DoubleInt, &[1.5_f64.to_ne_bytes(), 7_u64.to_le_bytes()].concat()).len(), 12);
    if cfg!(target_arch = "x86_64") {
        // 1.5 is 0x3fff, 1.1 in bits with the first one explicit; in 128 bits it is implied.
        let mut long_double = [0; 16];
        long_double[7..10].copy_from_slice(&[0xc0, 0xff, 0x3f]);
        let mut quad = [0; 16];
        quad[..3].copy_from_slice(&[0x3f, 0xff, 0x80]);
        assert_eq!(pack(Basic::LongDouble, &long_double), quad);
        let mut back = [0xee; 16];
        // SAFETY: `back` is one of it.
        unsafe { Datatype::basic(Basic::LongDouble).unpack_external(back.as_mut_ptr(), 1, &quad) };
        assert_eq!(back[..10], long_double[..10]);
        // No number, said by a bit that there is no room for, is not infinity.
        for (last, fraction) in [(0, 1_u64 << 63), (1, 0b11 << 62)] {
            let mut quad = [0; 16];
            quad[..2].copy_from_slice(&[0xff, 0xff]);
            quad[15] = last;
            // SAFETY: as above.
            unsafe { Datatype::basic(Basic::LongDouble).unpack_external(back.as_mut_ptr(), 1, &quad) };
            assert_eq!(back[..10], [&fraction.to_le_bytes()[..], &[0xff, 0xff]].concat());
        }
    }
}

#[test]
fn a_long_comes_back_with_its_sign() {
    let mut native = 0_i64;
    let external = (-3_i32).to_be_bytes();
    // SAFETY: `native` is one of it.
    let used =
        unsafe { Datatype::basic(Basic::Long).unpack_external((&raw mut native).cast(), 1, &external) };
    assert_eq!((used, native), (4, -3));
}

#[test]
fn few_steps_remain_of_usual_datatypes() {
    let int = Datatype::basic(Basic::Int);
    let runs = |datatype: &Type, count| {
        let mut runs = 0;
        datatype.layout().each_run(count, 0, u64::MAX, |_, _| runs += 1);
        runs
    };
    let row = Datatype::contiguous(100, &int, Width::Small).expect("legal");
    assert_eq!(row.layout().contiguous(50), Some(0));
    let dense = Datatype::vector(10, 4, 4, &int, Width::Small).expect("legal");
    assert_eq!(dense.layout().contiguous(7), Some(0));
    let column = Datatype::vector(10, 1, 10, &int, Width::Small).expect("legal");
    assert_eq!((column.layout().contiguous(1), runs(&column, 1)), (None, 10));
    let whole = Datatype::subarray(&[(4, 4, 0), (5, 5, 0)], Order::C, 0, &int, Width::Small).expect("legal");
    assert_eq!(whole.layout().contiguous(3), Some(0));
    let rows = Datatype::subarray(&[(4, 2, 1), (5, 5, 0)], Order::C, 0, &int, Width::Small).expect("legal");
    assert_eq!(rows.layout().contiguous(1), Some(20));
    let huge = Datatype::contiguous(1 << 40, &column, Width::Large).expect("legal");
    assert_eq!(huge.size(), 40 << 40);
    assert_eq!(Datatype::contiguous(1 << 62, &row, Width::Large).map(drop), Err(TypeError::TooLarge));
}

#[test]
fn what_is_not_legal_is_refused() {
    let int = Datatype::basic(Basic::Int);
    let small = Width::Small;
    assert_eq!(Datatype::contiguous(-1, &int, small).map(drop), Err(TypeError::Count));
    assert_eq!(Datatype::vector(1, -1, 1, &int, small).map(drop), Err(TypeError::Count));
    assert!(Datatype::subarray(&[], Order::C, 0, &int, small).is_err());
    assert!(Datatype::subarray(&[(4, 2, 3)], Order::C, 0, &int, small).is_err());
    let grid = Grid { size: 9, distribution: Distribution::Block(Some(2)), processes: 4 };
    assert!(Datatype::darray(4, 0, &[grid], Order::C, &Told::default(), &int, small).is_err());
    let grid = Grid { size: 9, distribution: Distribution::None, processes: 4 };
    assert!(Datatype::darray(4, 0, &[grid], Order::C, &Told::default(), &int, small).is_err());
}

#[test]
fn how_it_was_made_is_told() {
    let int = Datatype::basic(Basic::Int);
    let made = Datatype::hvector(3, 2, 40, &int, Width::Small).expect("legal");
    let contents = made.contents().expect("made");
    assert_eq!(
        (made.combiner(), &contents.integers[..], &contents.addresses[..]),
        (Combiner::Hvector, &[3, 2][..], &[40][..])
    );
    let made = Datatype::hvector(3, 2, 40, &int, Width::Large).expect("legal");
    let contents = made.contents().expect("made");
    assert_eq!((&contents.integers[..], &contents.counts[..]), (&[][..], &[3, 2, 40][..]));
    assert!(int.contents().is_none() && int.combiner() == Combiner::Named);
    assert_eq!(Datatype::dup(&int).as_basic(), Some(Basic::Int));
    assert_eq!(made.uniform(), Some(Basic::Int));
    let found = Datatype::found(Basic::Real8, Combiner::F90Real, &[15, 300]);
    assert_eq!((found.combiner(), found.as_basic()), (Combiner::F90Real, Some(Basic::Real8)));
    assert_eq!(found.contents().map(|contents| &contents.integers[..]), Some(&[15, 300][..]));
    let resized = Datatype::resized(&int, 0, 4, Width::Small).expect("legal");
    assert_eq!((resized.as_basic(), resized.uniform()), (None, Some(Basic::Int)));
    // What has no elements says nothing of those of others.
    let nothing = Datatype::contiguous(0, &Datatype::basic(Basic::Double), Width::Small).unwrap();
    let beside = |of: &Type| (Block { count: 1, at: 0 }, of.clone());
    let made = Datatype::structure(&[beside(&nothing), beside(&resized)], Width::Small).unwrap();
    assert_eq!((nothing.uniform(), made.uniform()), (None, Some(Basic::Int)));
}

/// What is kept of it is a few hundred kilobytes; written out it would be hundreds of gigabytes.
#[test]
fn irregular_ones_of_irregular_ones_are_not_written_out() {
    const MANY: i64 = 2000;
    let int = Datatype::basic(Basic::Int);
    let places: [fn(i64) -> i64; 3] =
        [|n| 12 * n + 4 * (n % 2), |n| 40_000 * n + 8 * (n % 3), |n| 100_000_000 * n + 16 * (n % 5)];
    for length in [1, 2] {
        let irregular = |of: &Type, place: fn(i64) -> i64| {
            let at: Vec<i64> = (0..MANY).map(place).collect();
            Datatype::hindexed_block(length, &at, of, Width::Small).expect("legal")
        };
        let made = places.iter().fold(int.clone(), |of, &place| irregular(&of, place));
        let extents = [4, irregular(&int, places[0]).extent()];
        let extents = [extents[0], extents[1], irregular(&irregular(&int, places[0]), places[1]).extent()];
        let each = MANY * length;
        assert_eq!(made.size(), 4 * each * each * each);
        for first in [0, each * each * each / 3, each * each * 1234 + each * 77 - 2, each * each * each - 4] {
            let mut bytes = vec![];
            let (from, to) = (4 * first as u64, 4 * (first + 4) as u64);
            made.layout().each_run(1, from, to, |at, len| bytes.extend(at..at + len as i64));
            let place = |mut nth: i64| {
                let mut at = 0;
                for (place, extent) in places.iter().zip(extents) {
                    let here = nth % each;
                    at += place(here / length) + here % length * extent;
                    nth /= each;
                }
                at
            };
            let expected: Vec<i64> = (first..first + 4).flat_map(|nth| place(nth)..place(nth) + 4).collect();
            assert_eq!(bytes, expected, "{length}, {first}");
        }
    }
}
