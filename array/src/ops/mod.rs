//! What expressions are written with: shapes, types and chunks of results, by NumPy's rules.

mod arithmetic;
mod axes;
mod contract;
mod index;
mod linalg;
mod reduce;

pub use arithmetic::Operand;
pub use index::Index;
