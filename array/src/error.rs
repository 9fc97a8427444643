//! What can be wrong with an expression, or go wrong when it is computed.

use crate::dtype::DType;

/// What is wrong. Kinds are those of NumPy: what raises `ValueError`, `TypeError`, `IndexError` or
/// `OverflowError` there is named beside each.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Shapes that do not fit each other (`ValueError`).
    #[error("{what}: shapes {} do not fit each other", shape_texts(.shapes))]
    Shapes {
        /// The operation.
        what: &'static str,
        /// All of them.
        shapes: Vec<Vec<usize>>,
    },
    /// A value that an operation does not take (`ValueError`).
    #[error("{0}")]
    Value(
        /// In words.
        String,
    ),
    /// An axis that there is not (`numpy.exceptions.AxisError`, a `ValueError` and an `IndexError`).
    #[error("axis {axis} of an array of {dimensions} dimensions")]
    Axis {
        /// Which was asked for.
        axis: isize,
        /// How many there are.
        dimensions: usize,
    },
    /// An operation that a type does not have (`TypeError`).
    #[error("{what} is not defined for {dtype}")]
    Type {
        /// The operation.
        what: &'static str,
        /// The type.
        dtype: DType,
    },
    /// An index out of range (`IndexError`).
    #[error("index {index} of axis {axis}, which has {length}")]
    Index {
        /// Which was asked for.
        index: isize,
        /// Of which axis.
        axis: usize,
        /// How many there are.
        length: usize,
    },
    /// A scalar that the array's type does not hold (`OverflowError`).
    #[error("{value} is out of bounds for {dtype}")]
    Overflow {
        /// The scalar.
        value: String,
        /// The type.
        dtype: DType,
    },
    /// What NumPy can do and this crate cannot.
    #[error("not supported: {0}")]
    Unsupported(
        /// In words.
        String,
    ),
    /// Something of the expression takes more than the budget.
    #[error(transparent)]
    TooLarge(#[from] bdrun_graph::TooLarge),
    /// It went wrong while it ran.
    #[error(transparent)]
    Run(#[from] bdrun_graph::run::RunError),
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: std::io::Error,
    },
}

impl Error {
    pub(crate) fn no_such_type(what: &'static str, name: &str) -> Self {
        Self::Unsupported(format!("NumPy makes {name} of {what}, a type that there is not here; cast first"))
    }

    /// For what is not begun, as it would take more memory than there can be.
    pub(crate) fn no_memory(what: String, why: &str) -> Self {
        Self::File { path: what, error: std::io::Error::new(std::io::ErrorKind::OutOfMemory, why) }
    }

    pub(crate) fn file(path: &std::path::Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}

fn shape_texts(shapes: &[Vec<usize>]) -> String {
    let texts: Vec<String> = shapes.iter().map(|shape| shape_text(shape)).collect();
    texts.join(" and ")
}

/// A shape as NumPy writes it.
pub(crate) fn shape_text(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}
