//! Products of blocks, summed over axes that both have.

use faer::linalg::matmul::matmul;
use faer::traits::ComplexField;
use faer::{Accum, MatMut, MatRef, Par};

use super::assemble::{own, transpose};
use super::number::Number;
use super::walk::{Walk, dense, stretched};
use super::{Failure, failure};
use crate::block::Block;
use crate::dtype::{Complex, DType, Element, Truth};

/// Which axes of an operand are which, each list in the order in which the other operand or the result has
/// them. The result has the axes of the batch, the first operand's own, and the second one's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Roles {
    /// Both have them, and the result too.
    pub(crate) batch: Vec<usize>,
    /// Only it has them.
    pub(crate) own: Vec<usize>,
    /// Both have them, and they are summed over.
    pub(crate) summed: Vec<usize>,
}

/// How an operand's matrices lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Neighbours along the axes that are summed over are neighbours in memory.
    Summed,
    /// Those along its own axes are.
    Own,
    /// Neither: it has to be transposed first.
    No,
}

impl Roles {
    pub(crate) fn lie(&self) -> Lie {
        let is_sorted = |lists: [&[usize]; 3]| lists.concat().into_iter().eq(0..self.len());
        if is_sorted([&self.batch, &self.own, &self.summed]) {
            Lie::Summed
        } else if is_sorted([&self.batch, &self.summed, &self.own]) {
            Lie::Own
        } else {
            Lie::No
        }
    }

    fn len(&self) -> usize {
        self.batch.len() + self.own.len() + self.summed.len()
    }

    fn lengths(axes: &[usize], shape: &[usize]) -> Vec<usize> {
        axes.iter().map(|&axis| shape[axis]).collect()
    }
}

/// As many of what is summed over are packed at a time.
const DEPTH: usize = 512;

/// Bytes that a thread packs at most to multiply matrices of so many rows and columns, and keeps: of the one
/// that has more of them. (How much it is depends on the caches of the machine too, and may be less.)
pub(crate) fn packed(dtype: DType, [rows, columns]: [usize; 2], summed: usize) -> u64 {
    if !matches!(dtype, DType::F32 | DType::F64 | DType::C64) {
        return 0;
    }
    rows.max(columns).saturating_mul(summed.min(DEPTH)).saturating_mul(dtype.size()) as u64
}

/// A stack of matrices: of `own` rows and `summed` columns, or the other way round in memory.
struct Stack {
    block: Block,
    batch: Vec<usize>,
    own: Vec<usize>,
    summed: usize,
    lie: Lie,
}

impl Stack {
    fn new(block: Block, roles: &Roles) -> Result<Self, Failure> {
        let lengths = |axes: &[usize]| Roles::lengths(axes, block.shape());
        let (batch, own) = (lengths(&roles.batch), lengths(&roles.own));
        let summed = lengths(&roles.summed).iter().product();
        let (block, lie) = match roles.lie() {
            Lie::No => {
                let axes = [&roles.batch[..], &roles.own, &roles.summed].concat();
                (transpose(&axes, &block)?, Lie::Summed)
            }
            lie => (block, lie),
        };
        Ok(Self { block, batch, own, summed, lie })
    }

    fn size(&self) -> usize {
        self.own.iter().product()
    }

    /// A matrix of `own` rows from an offset.
    fn matrix<T: Element>(&self, matrix: usize) -> MatRef<'_, T> {
        let (rows, columns) = (self.size(), self.summed);
        let elements = &self.block.elements::<T>()[matrix * rows * columns..][..rows * columns];
        if self.lie == Lie::Own {
            MatRef::from_column_major_slice(elements, rows, columns)
        } else {
            MatRef::from_row_major_slice(elements, rows, columns)
        }
    }
}

/// The product of the last two inputs, added to the one before if there is one.
pub(super) fn contract(dtype: DType, roles: &[Roles; 2], mut inputs: Vec<Block>) -> Result<Block, Failure> {
    let missing = || failure("two blocks are multiplied: a defect of bdrun-array".into());
    let two = Stack::new(inputs.pop().ok_or_else(missing)?, &roles[1])?;
    let one = Stack::new(inputs.pop().ok_or_else(missing)?, &roles[0])?;
    let batch = crate::shape::broadcast("blocks", &[&one.batch, &two.batch])?;
    let shape = [&batch[..], &one.own, &two.own].concat();
    let sum = inputs.pop().map(own).transpose()?;
    let accumulate = if sum.is_some() { Accum::Add } else { Accum::Replace };
    let mut out = match sum {
        Some(sum) => sum,
        None => Block::zeros(dtype, &shape)?,
    };
    match dtype {
        DType::F64 => each(&batch, &one, &two, &mut out, |to, x, y| field::<f64>(to, accumulate, x, y)),
        DType::F32 => each(&batch, &one, &two, &mut out, |to, x, y| field::<f32>(to, accumulate, x, y)),
        DType::C64 => each(&batch, &one, &two, &mut out, |to, x, y| field::<Complex>(to, accumulate, x, y)),
        DType::I32 => each(&batch, &one, &two, &mut out, ring::<i32>),
        DType::I64 => each(&batch, &one, &two, &mut out, ring::<i64>),
        DType::Bool => each(&batch, &one, &two, &mut out, ring::<Truth>),
    }
    Ok(out)
}

/// Multiplies matrix by matrix.
fn each<T: Element>(
    batch: &[usize],
    one: &Stack,
    two: &Stack,
    out: &mut Block,
    multiply: impl Fn(&mut [T], MatRef<'_, T>, MatRef<'_, T>),
) {
    let size = one.size() * two.size();
    let to = out.elements_mut::<T>();
    if to.is_empty() {
        return;
    }
    let strides = [dense(batch), stretched(&one.batch, batch), stretched(&two.batch, batch)];
    let walk = Walk::new(batch, [&strides[0], &strides[1], &strides[2]]);
    walk.rows([0; 3], |at| {
        for step in 0..walk.row {
            let [to_, x, y] =
                std::array::from_fn(|of| (at[of] as isize + step as isize * walk.step[of]) as usize);
            multiply(&mut to[to_ * size..][..size], one.matrix(x), two.matrix(y));
        }
    });
}

fn field<T>(to: &mut [T], accumulate: Accum, x: MatRef<'_, T>, y: MatRef<'_, T>)
where
    T: Element + ComplexField + faer::traits::Conjugate<Canonical = T>,
{
    let to = MatMut::from_row_major_slice_mut(to, x.nrows(), y.nrows());
    matmul(to, accumulate, x, y.transpose(), T::from_f64(1.0), Par::Seq);
}

/// Numbers that faer does not multiply: integers, which wrap, and truth values. The result begins as zeros,
/// or as what is added to.
fn ring<T: Number>(to: &mut [T], x: MatRef<'_, T>, y: MatRef<'_, T>) {
    let columns = y.nrows();
    for (row, to) in to.chunks_exact_mut(columns).enumerate() {
        for middle in 0..x.ncols() {
            let factor = x[(row, middle)];
            for (column, to) in to.iter_mut().enumerate() {
                *to = to.plus(factor.times(y[(column, middle)]));
            }
        }
    }
}
