//! Expressions over arrays.

use std::panic::Location;
use std::sync::Arc;

use crate::block::Block;
use crate::dtype::{DType, Scalar};
use crate::error::Error;
use crate::kernel::{Binary, Decomposition, Reduction, Roles, Scan, Unary};
use crate::origin::Origin;
use crate::shape::{Chunks, MOST_BLOCKS, Region};
use crate::source::{Identity, Memory, Source};

/// An array that is not computed yet: what it is made of, and into which blocks it is cut. Clones are the
/// same array, which is computed once however often an expression uses it.
#[derive(Clone, Debug)]
pub struct Array(pub(crate) Arc<Node>);

/// What an array is made of.
pub(crate) struct Node {
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) chunks: Chunks,
    /// Where in the user's program it was written.
    pub(crate) origin: Origin,
}

pub(crate) enum Op {
    /// A region of a source.
    Read {
        source: Arc<dyn Source>,
        start: Vec<usize>,
    },
    Full(Scalar),
    Unary(Unary, Array),
    /// Of operands in chunks that fit; computed in a type.
    Binary {
        function: Binary,
        of: DType,
        operands: [Array; 2],
    },
    Select([Array; 3]),
    Transpose(Vec<usize>, Array),
    /// The same blocks with axes of length 1 more or less.
    Axes(Array),
    /// Along each axis from where, and how far the next one is; in whatever chunks the result has.
    Slice(Vec<(usize, isize)>, Array),
    Concatenate(usize, Vec<Array>),
    Reduce {
        reduction: Reduction,
        axes: Vec<usize>,
        of: Array,
    },
    Contract {
        roles: [Roles; 2],
        operands: [Array; 2],
    },
    Scan(Scan, usize, Array),
    /// Of a matrix in one block.
    Decompose(Decomposition, Array),
    /// Of bins, from the first to the second.
    Bounds([Array; 2]),
    /// Of each block of the first one a row of counts, from the second to the third, in bins whose bounds the
    /// fourth one has.
    Histogram([Array; 4]),
    /// By the bits of their probabilities.
    Quantiles(Vec<u64>, Array),
}

impl Op {
    /// What arrays it is made of.
    pub(crate) fn operands(&self) -> &[Array] {
        match self {
            Self::Read { .. } | Self::Full(_) => &[],
            Self::Unary(_, of)
            | Self::Transpose(_, of)
            | Self::Axes(of)
            | Self::Slice(_, of)
            | Self::Reduce { of, .. }
            | Self::Decompose(_, of)
            | Self::Quantiles(_, of)
            | Self::Scan(_, _, of) => std::slice::from_ref(of),
            Self::Binary { operands, .. } | Self::Contract { operands, .. } => operands,
            Self::Select(operands) => operands,
            Self::Bounds(operands) => operands,
            Self::Histogram(operands) => operands,
            Self::Concatenate(_, operands) => operands,
        }
    }

    /// A word for it, as part of tasks' keys.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Read { .. } => "read".into(),
            Self::Full(_) => "full".into(),
            Self::Unary(function, _) => format!("{function:?}").to_lowercase(),
            Self::Binary { function, .. } => format!("{function:?}").to_lowercase(),
            Self::Select(_) => "where".into(),
            Self::Transpose(..) => "transpose".into(),
            Self::Axes(_) => "axes".into(),
            Self::Slice(..) => "slice".into(),
            Self::Concatenate(..) => "concatenate".into(),
            Self::Reduce { reduction: Reduction::Var(_), .. } => "var".into(),
            Self::Reduce { reduction: Reduction::Std(_), .. } => "std".into(),
            Self::Reduce { reduction, .. } => format!("{reduction:?}").to_lowercase(),
            Self::Contract { .. } => "dot".into(),
            Self::Decompose(Decomposition::Svd, _) => "svd".into(),
            Self::Decompose(..) => "qr".into(),
            Self::Bounds(_) => "bounds".into(),
            Self::Histogram(_) => "histogram".into(),
            Self::Quantiles(..) => "quantiles".into(),
            Self::Scan(scan, ..) => format!("cum{}", format!("{scan:?}").to_lowercase()),
        }
    }

    /// All of it but its operands, as text.
    fn text(&self) -> String {
        match self {
            Self::Read { source, start } => {
                format!("{} {} {:?} {start:?}", source.name(), source.stamp(), source.shape())
            }
            Self::Full(value) => format!("{value:?}"),
            Self::Unary(function, _) => format!("{function:?}"),
            Self::Binary { function, of, .. } => format!("{function:?} {of}"),
            Self::Select(_) | Self::Axes(_) | Self::Bounds(_) | Self::Histogram(_) => String::new(),
            Self::Decompose(how, _) => format!("{how:?}"),
            Self::Quantiles(bits, _) => format!("{bits:?}"),
            Self::Transpose(order, _) => format!("{order:?}"),
            Self::Slice(from, _) => format!("{from:?}"),
            Self::Concatenate(axis, _) => format!("{axis}"),
            Self::Reduce { reduction, axes, .. } => format!("{reduction:?} {axes:?}"),
            Self::Contract { roles, .. } => format!("{roles:?}"),
            Self::Scan(scan, axis, _) => format!("{scan:?} {axis}"),
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} of {} {}", self.op.name(), self.dtype, crate::error::shape_text(&self.shape))
    }
}

impl Drop for Node {
    /// One after the other: a long chain would not fit on the stack.
    fn drop(&mut self) {
        let mut next: Vec<Array> = self.op.operands().to_vec();
        if next.is_empty() {
            return;
        }
        self.op = Op::Full(Scalar::Bool(false));
        while let Some(Array(node)) = next.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                next.extend_from_slice(node.op.operands());
                node.op = Op::Full(Scalar::Bool(false));
            }
        }
    }
}

/// The arrays that one is made of, each behind its operands, and itself.
pub(crate) fn ordered(array: &Array) -> Vec<Array> {
    let mut found = Vec::new();
    let mut seen = hashbrown::HashSet::new();
    // With whether its operands are there.
    let mut next = vec![(array.clone(), false)];
    while let Some((array, is_ready)) = next.pop() {
        if is_ready {
            found.push(array);
        } else if seen.insert(Arc::as_ptr(&array.0)) {
            let operands: Vec<Array> = array.0.op.operands().to_vec();
            next.push((array, true));
            next.extend(operands.into_iter().rev().map(|operand| (operand, false)));
        }
    }
    found
}

/// Blocks of so many bytes if nothing else is asked for.
const BLOCK: usize = 8 << 20;

impl Array {
    #[track_caller]
    pub(crate) fn new(op: Op, dtype: DType, chunks: Chunks) -> Self {
        let shape = chunks.shape();
        Self(Arc::new(Node { op, dtype, shape, chunks, origin: Origin::of(Location::caller()) }))
    }

    /// All of a source, in blocks of about 8 MiB of whole pieces of its storage. [`Array::rechunk`] makes
    /// others, which are then read as such.
    #[track_caller]
    pub fn from_source(source: Arc<dyn Source>) -> Self {
        Self::from_source_in(source, BLOCK)
    }

    /// The same in blocks of at most so many bytes (or of a piece of its storage, if that is larger).
    #[track_caller]
    pub fn from_source_in(source: Arc<dyn Source>, bytes: usize) -> Self {
        let (dtype, shape) = (source.dtype(), source.shape().to_vec());
        let chunks = Chunks::of_at_most(&shape, bytes / dtype.size(), &source.unit());
        let start = vec![0; shape.len()];
        Self::new(Op::Read { source, start }, dtype, chunks)
    }

    /// An array in memory. Its memory is not counted in the budget.
    #[track_caller]
    pub fn from_block(block: Block) -> Self {
        Self::from_source(Arc::new(Memory(block)))
    }

    /// The same number everywhere.
    #[track_caller]
    pub fn full(shape: &[usize], value: impl Into<Scalar>, dtype: DType) -> Self {
        let unit = vec![1; shape.len()];
        let chunks = Chunks::of_at_most(shape, BLOCK / dtype.size(), &unit);
        Self::new(Op::Full(value.into()), dtype, chunks)
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// How many there are along each axis.
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// How many axes it has.
    pub fn dimensions(&self) -> usize {
        self.0.shape.len()
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        crate::shape::count(&self.0.shape)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Into which blocks it is cut.
    pub fn chunks(&self) -> &Chunks {
        &self.0.chunks
    }

    /// The same array in other blocks. What is read from a source is read in these; of what is computed,
    /// parts are put together.
    ///
    /// # Errors
    /// If they do not add up to its shape.
    #[track_caller]
    pub fn rechunk(&self, lengths: Vec<Vec<usize>>) -> Result<Self, Error> {
        Ok(self.in_chunks(&Chunks::new(self.shape(), lengths)?))
    }

    /// The same array in blocks of one size (0: the whole axis), but for the last ones.
    ///
    /// # Errors
    /// If that has another number of axes, or there are more than [`MOST_BLOCKS`].
    #[track_caller]
    pub fn rechunk_regular(&self, chunk: &[usize]) -> Result<Self, Error> {
        if chunk.len() != self.dimensions() {
            let (given, axes) = (chunk.len(), self.dimensions());
            return Err(Error::Value(format!("chunks along {given} axes, of an array of {axes}")));
        }
        let along = |(&length, &chunk): (&usize, &usize)| if chunk == 0 { 1 } else { length.div_ceil(chunk) };
        let blocks: Vec<usize> = self.shape().iter().zip(chunk).map(along).collect();
        if crate::shape::count(&blocks) > MOST_BLOCKS {
            return Err(Error::no_memory(format!("{blocks:?} blocks"), "there are 2^24 at most"));
        }
        Ok(self.in_chunks(&Chunks::regular(self.shape(), chunk)))
    }

    /// The same array in blocks that begin and end where pieces of so many elements do, as what is stored in
    /// whole chunks ([`Compression`](crate::source::zarr::Compression)) has to be; as near to its blocks as
    /// can be.
    ///
    /// # Errors
    /// If there are lengths for another number of axes.
    #[track_caller]
    pub fn aligned(&self, unit: &[usize]) -> Result<Self, Error> {
        if unit.len() != self.dimensions() {
            let (given, axes) = (unit.len(), self.dimensions());
            return Err(Error::Value(format!("chunks along {given} axes, of an array of {axes}")));
        }
        Ok(self.in_chunks(&self.chunks().aligned(unit)))
    }

    #[track_caller]
    pub(crate) fn in_chunks(&self, chunks: &Chunks) -> Self {
        if chunks == self.chunks() {
            return self.clone();
        }
        let every = vec![(0, 1); self.dimensions()];
        self.sliced(&every, chunks.clone())
    }

    /// Elements from a first one along each axis, so far apart; in chunks that are given. What is sliced of
    /// slices, of regions and of what is the same everywhere is one slice, region, number.
    #[track_caller]
    pub(crate) fn sliced(&self, from: &[(usize, isize)], chunks: Chunks) -> Self {
        match &self.0.op {
            Op::Full(value) => Self::new(Op::Full(*value), self.dtype(), chunks),
            Op::Read { source, start } if from.iter().all(|&(_, step)| step == 1) => {
                let start = start.iter().zip(from).map(|(start, (from, _))| start + from).collect();
                Self::new(Op::Read { source: source.clone(), start }, self.dtype(), chunks)
            }
            Op::Slice(before, of) => {
                // Of one element no other is that far away.
                let shape = chunks.shape();
                let both = |(axis, &(first, step)): (usize, &(usize, isize))| {
                    let (from, next) = from[axis];
                    let step_of_both = if shape[axis] > 1 { step * next } else { 1 };
                    ((first as isize + step * from as isize) as usize, step_of_both)
                };
                let from = before.iter().enumerate().map(both).collect();
                Self::new(Op::Slice(from, of.clone()), self.dtype(), chunks)
            }
            _ => Self::new(Op::Slice(from.to_vec(), self.clone()), self.dtype(), chunks),
        }
    }

    /// A number that is the same for the same expression in the same chunks of the same sources, as they are
    /// now: what was computed of it before may be used.
    pub fn identity(&self) -> Identity {
        let mut numbers = hashbrown::HashMap::new();
        let mut hasher = twox_hash::xxhash3_128::Hasher::new();
        for (number, array) in ordered(self).iter().enumerate() {
            numbers.insert(Arc::as_ptr(&array.0), number);
            let operands: Vec<usize> =
                array.0.op.operands().iter().map(|operand| numbers[&Arc::as_ptr(&operand.0)]).collect();
            let (name, text) = (array.0.op.name(), array.0.op.text());
            let line = format!("{name} {text} {operands:?} {} {:?}\n", array.dtype(), array.chunks());
            hasher.write(line.as_bytes());
        }
        hasher.finish_128()
    }

    /// The region of a source that a block of it is read from.
    pub(crate) fn read_region(start: &[usize], block: &Region) -> Region {
        let start = start.iter().zip(&block.start).map(|(start, at)| start + at).collect();
        Region { start, shape: block.shape.clone() }
    }
}
