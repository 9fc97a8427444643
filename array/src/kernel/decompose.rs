//! Factors of matrices, and counts of elements.

use faer::{Mat, MatRef};

use super::{Failure, Unsuitable, failure};
use crate::block::Block;
use crate::dtype::DType;

/// Which factors of a matrix of `f64`, all of it in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Decomposition {
    /// Of QR the first: orthonormal columns.
    QrQ,
    /// The second.
    QrR,
    /// Of a square matrix all three of its singular value decomposition: rows of U, singular values, rows of
    /// Vᵀ.
    Svd,
}

impl Decomposition {
    /// The shape of the result.
    pub(crate) fn shape(self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        let least = rows.min(columns);
        match self {
            Self::QrQ => [rows, least],
            Self::QrR => [least, columns],
            Self::Svd => [2 * columns + 1, columns],
        }
    }
}

pub(super) fn decompose(how: Decomposition, input: &Block) -> Result<Block, Failure> {
    let &[rows, columns] = input.shape() else {
        return Err(failure("no matrix: a defect of bdrun-array".into()));
    };
    let matrix = MatRef::from_row_major_slice(input.elements::<f64>(), rows, columns);
    let mut out = Block::zeros(DType::F64, &how.shape([rows, columns]))?;
    let to = out.elements_mut::<f64>();
    if to.is_empty() {
        return Ok(out);
    }
    match how {
        Decomposition::QrQ => {
            let q: Mat<f64> = matrix.qr().compute_thin_Q();
            put(to, q.as_ref());
        }
        Decomposition::QrR => put(to, matrix.qr().thin_R()),
        Decomposition::Svd => {
            let factors = matrix.thin_svd().map_err(|_| {
                // As LAPACK: what is no number has none.
                let why = "the singular value decomposition did not converge: are all elements finite?";
                Unsuitable::Linear(why.into())
            })?;
            let (u, rest) = to.split_at_mut(columns * columns);
            let (s, v) = rest.split_at_mut(columns);
            put(u, factors.U());
            s.iter_mut().zip(factors.S().column_vector().iter()).for_each(|(to, from)| *to = *from);
            put(v, factors.V().transpose());
        }
    }
    Ok(out)
}

fn put(to: &mut [f64], from: MatRef<'_, f64>) {
    for (row, to) in to.chunks_exact_mut(from.ncols()).enumerate() {
        to.iter_mut().enumerate().for_each(|(column, to)| *to = from[(row, column)]);
    }
}
