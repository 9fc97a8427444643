//! Sums, means, extremes; sums up to each element.

use crate::array::{Array, Op};
use crate::dtype::DType;
use crate::error::{Error, shape_text};
use crate::kernel::{Reduction, Scan};
use crate::shape::{Chunks, axes, axis, is_possible};

impl Reduction {
    fn dtype(self, of: DType) -> DType {
        match self {
            Self::Sum | Self::Prod if of == DType::F32 => DType::F32,
            Self::Sum | Self::Prod => self.state(of),
            Self::Min | Self::Max => of,
            Self::Any | Self::All => DType::Bool,
            Self::ArgMin | Self::ArgMax => DType::I64,
            Self::Mean => match of {
                DType::F32 | DType::C64 => of,
                _ => DType::F64,
            },
            Self::Var(_) | Self::Std(_) => {
                if of == DType::F32 {
                    of
                } else {
                    DType::F64
                }
            }
        }
    }
}

impl Array {
    /// A reduction along axes (None: all). Axes that are kept have length 1.
    ///
    /// # Errors
    /// If an axis is not there or is named twice, an extreme is asked for of no elements, or what is made of
    /// none is longer than there can be.
    #[track_caller]
    pub fn reduce(&self, reduction: Reduction, along: Option<&[isize]>, keep: bool) -> Result<Self, Error> {
        let dimensions = self.dimensions();
        let is_mean = matches!(reduction, Reduction::Mean | Reduction::Var(_) | Reduction::Std(_));
        let along = match along {
            None => (0..dimensions).collect(),
            // NumPy's: a scalar has one axis, but for means.
            Some([0 | -1]) if dimensions == 0 && !is_mean => Vec::new(),
            Some(along) => axes(along, dimensions)?,
        };
        let is_index = matches!(reduction, Reduction::ArgMin | Reduction::ArgMax);
        if is_index && along.len() != 1 && along.len() != dimensions {
            return Err(Error::Type { what: "an index along several axes", dtype: self.dtype() });
        }
        let of: Vec<usize> = along.iter().map(|&axis| self.shape()[axis]).collect();
        let needs_one = is_index || matches!(reduction, Reduction::Min | Reduction::Max);
        if needs_one && of.contains(&0) {
            return Err(Error::Value("zero-size array to a reduction which has no identity".into()));
        }
        let mut lengths = self.chunks().lengths().to_vec();
        along.iter().for_each(|&axis| lengths[axis] = vec![1]);
        let (chunks, dtype) = (Chunks::from_lengths(lengths), reduction.dtype(self.dtype()));
        if !is_possible(&chunks.shape(), dtype.size()) {
            let path = format!("memory for an array of shape {}", shape_text(&chunks.shape()));
            return Err(Error::File { path, error: std::io::ErrorKind::OutOfMemory.into() });
        }
        // What has no elements is one block, however long its other axes are. Those are the result's, which
        // has elements: it is cut, and with it what it is made of.
        let chunks = chunks.limited(self.chunks().largest());
        let mut lengths = chunks.lengths().to_vec();
        along.iter().for_each(|&axis| lengths[axis].clone_from(&self.chunks().lengths()[axis]));
        let of = self.in_chunks(&Chunks::from_lengths(lengths));
        let result = Self::new(Op::Reduce { reduction, axes: along.clone(), of }, dtype, chunks);
        Ok(if keep { result } else { result.without(&along) })
    }

    /// Variance along axes (None: all), with `ddof` taken from the count.
    ///
    /// # Errors
    /// As [`Array::reduce`].
    #[track_caller]
    pub fn var(&self, along: Option<&[isize]>, ddof: u64) -> Result<Self, Error> {
        self.reduce(Reduction::Var(ddof), along, false)
    }

    /// Standard deviation along axes (None: all), with `ddof` taken from the count.
    ///
    /// # Errors
    /// As [`Array::reduce`].
    #[track_caller]
    pub fn std(&self, along: Option<&[isize]>, ddof: u64) -> Result<Self, Error> {
        self.reduce(Reduction::Std(ddof), along, false)
    }

    /// The index of the least element along an axis; without one, in the array flattened.
    ///
    /// # Errors
    /// If there are no elements, or there is no such axis.
    #[track_caller]
    pub fn argmin(&self, along: Option<isize>) -> Result<Self, Error> {
        self.reduce(Reduction::ArgMin, along.as_ref().map(std::slice::from_ref), false)
    }

    /// The index of the largest element along an axis; without one, in the array flattened.
    ///
    /// # Errors
    /// If there are no elements, or there is no such axis.
    #[track_caller]
    pub fn argmax(&self, along: Option<isize>) -> Result<Self, Error> {
        self.reduce(Reduction::ArgMax, along.as_ref().map(std::slice::from_ref), false)
    }

    #[track_caller]
    fn scan(&self, scan: Scan, along: isize) -> Result<Self, Error> {
        if self.dimensions() == 0 && matches!(along, 0 | -1) {
            return self.expand_dims(0)?.scan(scan, 0);
        }
        let along = axis(along, self.dimensions())?;
        let dtype = match self.dtype() {
            DType::Bool | DType::I32 => DType::I64,
            other => other,
        };
        Ok(Self::new(Op::Scan(scan, along, self.clone()), dtype, self.chunks().clone()))
    }

    /// Sums up to each element along an axis.
    ///
    /// # Errors
    /// If there is no such axis.
    #[track_caller]
    pub fn cumsum(&self, along: isize) -> Result<Self, Error> {
        self.scan(Scan::Sum, along)
    }

    /// Products up to each element along an axis.
    ///
    /// # Errors
    /// If there is no such axis.
    #[track_caller]
    pub fn cumprod(&self, along: isize) -> Result<Self, Error> {
        self.scan(Scan::Prod, along)
    }
}

macro_rules! reduction {
    ($($method:ident $reduction:ident),* $(,)?) => {
        impl Array {
            $(
                #[doc = concat!("[`Reduction::", stringify!($reduction), "`] along axes (None: all).")]
                ///
                /// # Errors
                /// As [`Array::reduce`].
                #[track_caller]
                pub fn $method(&self, along: Option<&[isize]>) -> Result<Self, Error> {
                    self.reduce(Reduction::$reduction, along, false)
                }
            )*
        }
    };
}

reduction!(sum Sum, prod Prod, min Min, max Max, any Any, all All, mean Mean);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn what_is_made_of_no_elements_is_cut_into_blocks() {
        const LONG: usize = 3 << 20;
        for (shape, along) in [([0, LONG], [0]), ([LONG, 0], [-1])] {
            let nothing = Array::full(&shape, 1.0, DType::F64);
            assert_eq!(nothing.chunks().grid(), [1, 1]);
            let sum = nothing.sum(Some(&along)).unwrap();
            assert_eq!((sum.shape(), sum.chunks().largest() <= 1 << 20), (&[LONG][..], true));
            let computed = Settings::default().compute(&[&sum]).unwrap();
            assert!(computed[0].elements::<f64>() == vec![0.0; LONG]);
            // Of what is computed, too.
            let of = (&nothing + 1.0).reduce(Reduction::Any, Some(&along), true).unwrap();
            assert!(of.shape().iter().product::<usize>() == LONG && of.chunks().largest() <= 1 << 20);
            let computed = Settings::default().compute(&[&of.ravel()]).unwrap();
            assert_eq!(computed[0].shape(), [LONG]);
        }
        // Nor are blocks listed that nobody has memory for.
        let error = Array::full(&[0, 1 << 50], 1.0, DType::F64).sum(Some(&[0])).unwrap_err();
        assert!(matches!(&error, Error::File { .. }), "{error}");
        // Elements are reduced in the blocks that they are in.
        let some = Array::full(&[4, 6], 1.0, DType::F64).rechunk_regular(&[2, 3]).unwrap();
        assert_eq!(some.sum(Some(&[0])).unwrap().chunks().lengths(), [vec![3, 3]]);
    }
}
