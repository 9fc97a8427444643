//! What tasks do with blocks. Kernels are data: equal ones are one function of the graph.
//!
//! | module | answers |
//! |---|---|
//! | `elementwise` | functions of single elements |
//! | `reduce` | sums, means, extremes along axes |
//! | `contract` | products |
//! | `decompose` | factors of matrices |
//! | `histogram` | how many elements are in each bin |
//! | `sketch` | approximate quantiles |
//! | `scan` | sums up to each element |
//! | `assemble` | slices, other chunks, transposed blocks |
//! | `number` | what can be done with elements of each type |
//! | `complex` | the same of complex numbers |
//! | `walk` | going over several blocks at once |

mod assemble;
mod complex;
mod contract;
mod decompose;
mod elementwise;
mod histogram;
pub(crate) mod number;
mod reduce;
mod scan;
mod sketch;
mod walk;

pub(crate) use assemble::Piece;
pub(crate) use contract::{Lie, Roles, packed};
pub(crate) use decompose::Decomposition;
pub use elementwise::{Binary, Unary};
pub(crate) use reduce::Indices;
pub use reduce::Reduction;
pub use scan::Scan;
pub(crate) use sketch::STATE;

use crate::block::Block;
use crate::dtype::{DType, Scalar};
use crate::shape::Region;

/// Why a kernel could not do its work.
pub(crate) type Failure = bdrun_graph::run::Failure;

pub(crate) fn failure(text: String) -> Failure {
    text.into()
}

/// Elements of which a function cannot be computed, as it turns out when it is: the cause of a
/// [`TaskFailure`](bdrun_graph::run::TaskFailure).
#[derive(Debug, thiserror::Error)]
pub enum Unsuitable {
    /// `ValueError` in NumPy.
    #[error("{0}")]
    Value(String),
    /// `LinAlgError` in NumPy.
    #[error("{0}")]
    Linear(String),
}

/// A function of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    /// Reads a region of a source, by its number in the computation.
    Read { source: usize, region: Region },
    /// Writes its input to a region of a sink. Its result is empty.
    Write { sink: usize, region: Region },
    /// The same number everywhere.
    Full { value: Number, dtype: DType, shape: Vec<usize> },
    /// See [`Unary`].
    Unary { function: Unary, dtype: DType },
    /// See [`Binary`]: computed in type `of`.
    Binary { function: Binary, of: DType, dtype: DType },
    /// The second input where the first is true, else the third.
    Select { dtype: DType },
    /// Other axes.
    Transpose { axes: Vec<usize> },
    /// The same elements in another shape.
    Reshape { shape: Vec<usize> },
    /// Pieces of inputs, put into a new block, or into the first input.
    Assemble { dtype: DType, shape: Vec<usize>, pieces: Vec<Piece> },
    /// The partial result of a reduction.
    Partial { reduction: Reduction, axes: Vec<usize>, indices: Option<Indices> },
    /// Partial results as one.
    Merge { reduction: Reduction, of: DType, counts: Vec<u64> },
    /// The result of a reduction.
    Finish { reduction: Reduction, count: u64, dtype: DType, shape: Vec<usize> },
    /// The product of the last two inputs, added to the one before.
    Contract { dtype: DType, roles: [Roles; 2] },
    /// See [`Decomposition`].
    Decompose(Decomposition),
    /// The bounds of so many bins.
    Bounds { bins: usize, dtype: DType },
    /// How many elements are in each bin.
    Histogram,
    /// A sketch of its input.
    Sketch,
    /// Sketches as one.
    MergeSketches,
    /// Quantiles of a sketch, by the bits of their probabilities.
    Quantiles(Vec<u64>),
    /// See [`Scan`].
    Scan { scan: Scan, axis: usize, dtype: DType },
}

/// A scalar by its bits, so that kernels are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number(pub(crate) Scalar);

impl Number {
    fn bits(self) -> (u8, [u64; 2]) {
        match self.0 {
            Scalar::Bool(value) => (0, [value.into(), 0]),
            Scalar::Int(value) => (1, [value as u64, 0]),
            Scalar::Float(value) => (2, [value.to_bits(), 0]),
            Scalar::Complex(value) => (3, [value.re.to_bits(), value.im.to_bits()]),
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Number {}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

impl Kernel {
    /// Does it, but for what reads and writes.
    pub(crate) fn run(&self, mut inputs: Vec<Block>) -> Result<Block, Failure> {
        let one = |inputs: &mut Vec<Block>| {
            inputs.pop().ok_or_else(|| failure("without an input: a defect of bdrun-array".into()))
        };
        match self {
            Self::Read { .. } | Self::Write { .. } => {
                Err(failure("not here: a defect of bdrun-array".into()))
            }
            Self::Full { value, dtype, shape } => {
                let mut block = Block::zeros(*dtype, shape)?;
                crate::dtype::with_type!(*dtype, T => {
                    block.elements_mut::<T>().fill(crate::dtype::Element::from_scalar(value.0));
                });
                Ok(block)
            }
            Self::Unary { function, dtype } => elementwise::unary(*function, one(&mut inputs)?, *dtype),
            Self::Binary { function, of, dtype } => elementwise::binary(*function, inputs, *of, *dtype),
            Self::Select { dtype } => elementwise::select(inputs, *dtype),
            Self::Transpose { axes } => assemble::transpose(axes, &one(&mut inputs)?),
            Self::Reshape { shape } => Ok(one(&mut inputs)?.reshaped(shape)),
            Self::Assemble { dtype, shape, pieces } => assemble::assemble(*dtype, shape, pieces, inputs),
            Self::Partial { reduction, axes, indices } => {
                reduce::partial(*reduction, axes, indices.as_ref(), &one(&mut inputs)?)
            }
            Self::Merge { reduction, of, counts } => reduce::merge(*reduction, *of, counts, inputs),
            Self::Finish { reduction, count, dtype, shape } => {
                reduce::finish(*reduction, *count, *dtype, shape, &one(&mut inputs)?)
            }
            Self::Contract { dtype, roles } => contract::contract(*dtype, roles, inputs),
            Self::Decompose(how) => decompose::decompose(*how, &one(&mut inputs)?),
            Self::Bounds { bins, dtype } => histogram::bounds(*bins, *dtype, &inputs),
            Self::Histogram => histogram::histogram(&inputs),
            Self::Sketch => sketch::sketch(&one(&mut inputs)?),
            Self::MergeSketches => sketch::merge(&inputs),
            Self::Quantiles(bits) => {
                sketch::quantiles(bits.iter().map(|&bits| f64::from_bits(bits)), &one(&mut inputs)?)
            }
            Self::Scan { scan, axis, dtype } => scan::scan(*scan, *axis, *dtype, &inputs),
        }
    }
}
