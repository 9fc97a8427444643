//! Singular values of tall matrices, histograms, quantiles.

use crate::array::{Array, Op};
use crate::dtype::DType;
use crate::error::Error;
use crate::kernel::Decomposition;
use crate::shape::Chunks;

/// Factors of a tall matrix by blocks of rows, and of their triangles two by two (TSQR: Demmel, Grigori,
/// Hoemmen, Langou 2012, Communication-optimal parallel and sequential QR and LU factorizations).
enum Tree {
    Rows(Array),
    Pair { q: Array, parts: Box<[Tree; 2]>, first: usize },
}

/// A block per row of blocks, and the triangle of all.
#[track_caller]
fn factor(mut rows: Vec<Array>) -> (Tree, Array) {
    if rows.len() == 1 {
        let rows = rows.remove(0);
        let r = rows.decompose(Decomposition::QrR);
        return (Tree::Rows(rows), r);
    }
    let behind = rows.split_off(rows.len().div_ceil(2));
    let ((one, above), (two, below)) = (factor(rows), factor(behind));
    let first = above.shape()[0];
    let both = Array::concatenate(&[above, below], 0).expect("triangles of as many columns").in_one();
    let q = both.decompose(Decomposition::QrQ);
    (Tree::Pair { q, parts: Box::new([one, two]), first }, both.decompose(Decomposition::QrR))
}

impl Tree {
    /// The orthonormal factor times a matrix, in blocks of rows.
    #[track_caller]
    fn times(&self, matrix: &Array, to: &mut Vec<Array>) -> Result<(), Error> {
        match self {
            Self::Rows(rows) => to.push(rows.decompose(Decomposition::QrQ).dot(matrix)?),
            Self::Pair { q, parts, first } => {
                let (first, all) = (*first as isize, q.shape()[0] as isize);
                parts[0].times(&q.index(&[(0..first).into()])?.dot(matrix)?.in_one(), to)?;
                parts[1].times(&q.index(&[(first..all).into()])?.dot(matrix)?.in_one(), to)?;
            }
        }
        Ok(())
    }
}

/// So many bounds have no room in any memory; of more of them sizes would overflow.
const MOST_BINS: usize = 1 << 56;

impl Array {
    /// In one block.
    #[track_caller]
    fn in_one(&self) -> Self {
        self.in_chunks(&Chunks::whole(self.shape()))
    }

    #[track_caller]
    fn decompose(&self, how: Decomposition) -> Self {
        let shape = how.shape([self.shape()[0], self.shape()[1]]);
        Self::new(Op::Decompose(how, self.in_one()), DType::F64, Chunks::whole(&shape))
    }

    /// The thin singular value decomposition of a matrix: U (rows × k), singular values in descending order
    /// (k) and Vᵀ (k × columns), k the lesser side, along which it has to fit in a block. `f32` is computed
    /// as `f64`, integers too.
    ///
    /// # Errors
    /// If it is no matrix, or of complex numbers.
    #[track_caller]
    pub fn svd(&self) -> Result<[Self; 3], Error> {
        let &[rows, columns] = self.shape() else {
            return Err(match self.dimensions() {
                0 | 1 => Error::Value("a singular value decomposition is of a matrix".into()),
                _ => Error::Unsupported("singular value decompositions of many matrices at once".into()),
            });
        };
        if self.dtype() == DType::C64 {
            return Err(Error::Unsupported("a singular value decomposition of complex numbers".into()));
        }
        if rows < columns {
            let [u, s, vt] = self.t().svd()?;
            return Ok([vt.t(), s, u.t()]);
        }
        let dtype = if self.dtype() == DType::F32 { DType::F32 } else { DType::F64 };
        // Blocks of no fewer rows than columns, so that triangles are smaller than what they are of.
        let most = self.chunks().largest().max(2 * columns * columns);
        let height = (most / columns.max(1)).clamp(1, rows.max(1));
        let tall = self.astype(DType::F64).in_chunks(&Chunks::regular(self.shape(), &[height, 0]));
        let mut parts = Vec::new();
        for region in tall.chunks().regions() {
            let (from, to) = (region.start[0] as isize, (region.start[0] + region.shape[0]) as isize);
            parts.push(tall.index(&[(from..to).into()])?);
        }
        let (tree, r) = factor(parts);
        let factors = r.decompose(Decomposition::Svd);
        let k = columns as isize;
        let part = |from: isize, to: isize| factors.index(&[(from..to).into()]);
        let mut u = Vec::new();
        tree.times(&part(0, k)?, &mut u)?;
        let u = Self::concatenate(&u, 0)?;
        Ok([
            u.astype(dtype),
            part(k, k + 1)?.without(&[0]).astype(dtype),
            part(k + 1, 2 * k + 1)?.astype(dtype),
        ])
    }

    /// How many elements there are in each of `bins` bins of one width, and the bounds of bins
    /// (`numpy.histogram`): between two numbers, or the least element and the largest. What is no number is
    /// not counted.
    ///
    /// # Errors
    /// If there are no bins, the range is not one, or elements are complex. Computing them fails if bounds
    /// are too near for numbers of the elements' type.
    #[track_caller]
    pub fn histogram(&self, bins: usize, range: Option<(f64, f64)>) -> Result<[Self; 2], Error> {
        if bins == 0 {
            return Err(Error::Value("`bins` must be positive".into()));
        }
        if bins > MOST_BINS {
            return Err(Error::Value("Maximum allowed size exceeded".into()));
        }
        if self.dtype() == DType::C64 {
            return Err(Error::Type { what: "histogram", dtype: self.dtype() });
        }
        // NumPy's: bounds are of the elements' type, if that is no integer, and so are the least element and
        // the largest; numbers that are given are as exact as they are.
        let dtype = if self.dtype() == DType::F32 { DType::F32 } else { DType::F64 };
        let number = |value: f64| Self::full(&[], value, DType::F64);
        let (low, high) = match range {
            Some((low, high)) if !(low <= high && low.is_finite() && high.is_finite()) => {
                return Err(Error::Value("max must be larger than min in range parameter".into()));
            }
            Some((low, high)) => (number(low), number(high)),
            // NumPy's for no elements.
            None if self.is_empty() => (number(0.0), number(1.0)),
            None => (self.min(None)?.astype(dtype), self.max(None)?.astype(dtype)),
        };
        let ends = [low.clone(), high.clone()];
        let bounds = Self::new(Op::Bounds(ends), dtype, Chunks::whole(&[bins + 1]));
        let blocks = self.chunks().grid().iter().product();
        let of = [self.astype(dtype), low, high, bounds.clone()];
        let chunks = Chunks::from_lengths(vec![vec![1; blocks], vec![bins]]);
        let counts = Self::new(Op::Histogram(of), DType::I64, chunks).sum(Some(&[0]))?;
        Ok([counts, bounds])
    }

    /// Quantiles of all elements, in the order of their probabilities: each within half a per cent of an
    /// element of that rank, but that elements of one sign are taken for one where they are smaller than the
    /// largest by more than a factor of 10^17, and for 0 below 2e-281. Infinities are elements like others.
    /// Not a number if an element is none, or there is none.
    ///
    /// # Errors
    /// If a probability is not between 0 and 1, or elements are complex.
    #[track_caller]
    pub fn quantiles(&self, probabilities: &[f64]) -> Result<Self, Error> {
        if self.dtype() == DType::C64 {
            return Err(Error::Type { what: "quantiles", dtype: self.dtype() });
        }
        if !probabilities.iter().all(|q| (0.0..=1.0).contains(q)) {
            return Err(Error::Value("Quantiles must be in the range [0, 1]".into()));
        }
        let bits = probabilities.iter().map(|q| q.to_bits()).collect();
        let chunks = Chunks::whole(&[probabilities.len()]);
        Ok(Self::new(Op::Quantiles(bits, self.astype(DType::F64)), DType::F64, chunks))
    }
}
