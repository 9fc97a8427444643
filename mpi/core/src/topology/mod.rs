//! Who is whose neighbour (MPI-5.0, chapter 8).

mod cartesian;
mod graph;

pub use cartesian::{Cartesian, balanced};
pub use graph::{Graph, Neighbours, adjacency};

/// Why a topology cannot be made, or something of it not be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// `MPI_ERR_DIMS`.
    #[error("a dimension is not legal")]
    Dimensions,
    /// `MPI_ERR_RANK`.
    #[error("there is no such rank")]
    Rank,
    /// `MPI_ERR_ARG`.
    #[error("an argument is not legal")]
    Argument,
    /// `MPI_ERR_TOPOLOGY`.
    #[error("there are not enough processes")]
    TooFew,
}
