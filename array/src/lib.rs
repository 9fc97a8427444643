//! Arrays that do not fit in memory, computed block by block within a budget.
//!
//! ```
//! use bdrun_array::{Array, Block, Settings};
//!
//! // In blocks of two rows; nothing is computed until it is asked for.
//! let x = Block::from_slice(&[4, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0])?;
//! let x = Array::from_block(x).rechunk_regular(&[2, 0])?;
//! let centred = &x - x.mean(Some(&[0]))?;
//! let gram = centred.t().dot(&centred)?;
//!
//! let settings = Settings { budget: Some(1000), ..Settings::default() };
//! let result = settings.compute(&[&gram])?;
//! assert_eq!(result[0].elements::<f64>(), [45.0; 9]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Shapes, types and errors are NumPy's (2.4), of the types that there are here: [`DType`]. An expression
//! becomes a graph of tasks over blocks ([`bdrun_graph`]); what that takes is known before anything runs.
//!
//! | module | answers |
//! |---|---|
//! | `array` | what an expression is |
//! | `ops` | which there are, and what shapes, types and chunks results have |
//! | `shape` | how arrays are cut into blocks |
//! | `lower` | which tasks an expression becomes |
//! | `kernel` | what tasks do with blocks |
//! | `compute` | running them |
//! | [`source`] | where arrays come from and go to |
//! | `dtype` | types of elements |
//! | `block` | memory of elements |
//! | `origin` | where in a program an expression is |

mod array;
mod block;
mod compute;
mod dtype;
mod error;
mod kernel;
mod lower;
mod ops;
mod origin;
mod shape;
pub mod source;

pub use array::Array;
pub use bdrun_graph::run::{Progress, Threads};
pub use block::Block;
pub use compute::{Prepared, Report, Settings};
pub use dtype::{Complex, DType, Element, Scalar, Truth};
pub use error::Error;
pub use kernel::{Binary, Reduction, Scan, Unary, Unsuitable};
pub use ops::{Index, Operand};
pub use origin::from_origin;
pub use shape::{Chunks, MOST_BLOCKS, Region, is_possible};
