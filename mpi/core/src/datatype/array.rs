//! Parts of arrays of several dimensions (MPI-5.0, sections 5.1.3 and 5.1.4).

use super::bounds::Bounds;
use super::origin::{Combiner, Contents, Width};
use super::{Copies, Datatype, Type, TypeError};

/// In which order the elements of an array are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The last index is the fastest.
    C,
    /// The first is.
    Fortran,
}

/// How a dimension is given to processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// All of it to each.
    None,
    /// Blocks of so many, one for each; as even as can be without a number.
    Block(Option<i64>),
    /// Blocks of so many, in turn; of one without a number.
    Cyclic(Option<i64>),
}

/// One dimension of a distributed array, and of the grid of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Elements of the whole array.
    pub size: i64,
    /// How they are given out.
    pub distribution: Distribution,
    /// To so many processes.
    pub processes: i64,
}

/// What a program gave, as it is told again: `MPI_ORDER_C` and the like are the face's.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The order.
    pub order: i64,
    /// Distributions, and their arguments, of a distributed array.
    pub distributions: Vec<i64>,
    /// See `distributions`.
    pub arguments: Vec<i64>,
}

impl Datatype {
    /// `MPI_Type_create_subarray`: for each dimension its size, that of the part, and where the part begins.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn subarray(
        dimensions: &[(i64, i64, i64)],
        order: Order,
        told: i64,
        of: &Type,
        width: Width,
    ) -> Result<Type, TypeError> {
        if dimensions.is_empty() {
            return Err(TypeError::Dimensions);
        }
        let legal = |&(size, part, start): &(i64, i64, i64)| {
            size >= 1 && part >= 1 && start >= 0 && part <= size && start <= size - part
        };
        if !dimensions.iter().all(legal) {
            return Err(TypeError::Argument("the part does not lie in the array"));
        }
        let contents = Contents::of_types([of])
            .plain([dimensions.len() as i64])
            .integers(width, dimensions.iter().map(|dimension| dimension.0))
            .integers(width, dimensions.iter().map(|dimension| dimension.1))
            .integers(width, dimensions.iter().map(|dimension| dimension.2))
            .plain([told]);
        let mut array = Array::new(of);
        each_fastest_first(dimensions, order, |&(size, part, start)| {
            array.add(size, &[Piece { first: start, count: part, stride: 1, block: 1 }])
        })?;
        array.finish(Combiner::Subarray, contents)
    }

    /// `MPI_Type_create_darray`: what process `rank` of `size` has of an array. Processes are counted with
    /// the last dimension of the grid as the fastest, whatever the order of the array.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn darray(
        size: i64,
        rank: i64,
        grid: &[Grid],
        order: Order,
        told: &Told,
        of: &Type,
        width: Width,
    ) -> Result<Type, TypeError> {
        if grid.is_empty() {
            return Err(TypeError::Dimensions);
        }
        let all = grid.iter().try_fold(1_i64, |all, dimension| all.checked_mul(dimension.processes));
        if grid.iter().any(|dimension| dimension.processes < 1 || dimension.size < 1) || all != Some(size) {
            return Err(TypeError::Argument("the grid does not have as many processes as there are"));
        }
        if !(0..size).contains(&rank) {
            return Err(TypeError::Argument("there is no such process"));
        }
        let contents = Contents::of_types([of])
            .plain([size, rank, grid.len() as i64])
            .integers(width, grid.iter().map(|dimension| dimension.size))
            .plain(told.distributions.iter().copied())
            .plain(told.arguments.iter().copied())
            .plain(grid.iter().map(|dimension| dimension.processes))
            .plain([told.order]);
        let mut left = rank;
        let mut places: Vec<(Grid, i64)> = vec![];
        for dimension in grid.iter().rev() {
            places.insert(0, (*dimension, left % dimension.processes));
            left /= dimension.processes;
        }
        let mut array = Array::new(of);
        each_fastest_first(&places, order, |&(dimension, place)| {
            array.add(dimension.size, &pieces(dimension, place)?)
        })?;
        array.finish(Combiner::Darray, contents)
    }
}

fn each_fastest_first<D>(
    dimensions: &[D],
    order: Order,
    mut f: impl FnMut(&D) -> Result<(), TypeError>,
) -> Result<(), TypeError> {
    match order {
        Order::C => dimensions.iter().rev().try_for_each(&mut f),
        Order::Fortran => dimensions.iter().try_for_each(&mut f),
    }
}

/// So many blocks of indices, the first at some index, the others so many from each other.
#[derive(Debug, Clone, Copy)]
struct Piece {
    first: i64,
    count: i64,
    stride: i64,
    block: i64,
}

/// The indices of a dimension that a process has.
fn pieces(dimension: Grid, place: i64) -> Result<Vec<Piece>, TypeError> {
    let Grid { size, distribution, processes } = dimension;
    let even = size / processes + i64::from(size % processes != 0);
    let block = match distribution {
        Distribution::None if processes != 1 => {
            return Err(TypeError::Argument("a dimension that is not distributed has several processes"));
        }
        Distribution::None => size,
        Distribution::Block(block) => block.unwrap_or(even),
        Distribution::Cyclic(block) => block.unwrap_or(1),
    };
    let covers = block.checked_mul(processes).is_none_or(|all| all >= size);
    if block < 1 || (matches!(distribution, Distribution::Block(_)) && !covers) {
        return Err(TypeError::Argument("the blocks do not cover the dimension"));
    }
    let first = block.saturating_mul(place);
    if first >= size {
        return Ok(vec![]);
    }
    let round = block.saturating_mul(processes);
    // Blocks that begin within it; the last may be cut.
    let blocks = (size - first - 1) / round + 1;
    let last = first + (blocks - 1) * round;
    let length = block.min(size - last);
    let whole = blocks - i64::from(length < block);
    let mut pieces = vec![];
    if whole > 0 {
        pieces.push(Piece { first, count: whole, stride: round, block });
    }
    if length < block {
        pieces.push(Piece { first: last, count: 1, stride: round, block: length });
    }
    Ok(pieces)
}

/// An array, dimension by dimension, the fastest first.
struct Array {
    part: Type,
    /// Bytes from one index of the next dimension to the next.
    unit: i64,
}

impl Array {
    fn new(of: &Type) -> Self {
        Self { part: of.clone(), unit: of.extent() }
    }

    /// The next dimension has so many indices, and these are of the part.
    fn add(&mut self, size: i64, pieces: &[Piece]) -> Result<(), TypeError> {
        let bytes = |indices: i64| indices.checked_mul(self.unit).ok_or(TypeError::TooLarge);
        let mut list = vec![];
        for piece in pieces {
            let block = Datatype::row(piece.block, self.unit, &self.part)?;
            let (at, stride) = (bytes(piece.first)?, if piece.count > 1 { bytes(piece.stride)? } else { 0 });
            list.push(Copies { at, count: piece.count, stride, of: block });
        }
        let bounds = Bounds::of_copies(&list)?;
        self.unit = bytes(size)?;
        self.part = Datatype::bounded(list, bounds, Combiner::Struct, Contents::default())?;
        Ok(())
    }

    /// All dimensions are there: it is as large as the whole array.
    fn finish(self, combiner: Combiner, contents: Contents) -> Result<Type, TypeError> {
        let list = vec![Copies { at: 0, count: 1, stride: 0, of: self.part }];
        let bounds = Bounds { set: Some((0, self.unit)), ..Bounds::of_copies(&list)? };
        Datatype::bounded(list, bounds, combiner, contents)
    }
}
