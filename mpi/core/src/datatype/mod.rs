//! Datatypes (MPI-5.0, chapter 5): where the elements of a message are in memory, in which order.
//!
//! A datatype is a tree that never changes once it is made. Its order of elements is that of the standard's
//! type map. What is moved is decided by [`Layout`], into which the tree is flattened once: runs of bytes,
//! with loops kept, and parts that others are made of too. Handles, names, attributes and whether it was
//! committed are no concern of this module.
//!
//! | question | file |
//! |---|---|
//! | what are the predefined ones made of? | `basic.rs` |
//! | how is one made of others? | `build.rs`, `array.rs` |
//! | where does it begin and end? | `bounds.rs` |
//! | how was it made, as a program may ask? | `origin.rs` |
//! | which bytes are moved? | `layout.rs` |
//! | which elements are there? what is "external32"? | `elements.rs`, `external.rs` |
//! | what is it in a file of another representation? | `stored.rs` |

mod array;
mod basic;
mod bounds;
mod build;
mod elements;
mod external;
mod layout;
mod origin;
mod stored;
#[cfg(test)]
mod tests;

pub use array::{Distribution, Grid, Order, Told};
pub use basic::{Basic, Class, Scalar};
pub use build::Block;
pub use elements::Elements;
pub use layout::Layout;
pub use origin::{Combiner, Contents, Width};
pub use stored::Sizes;

use std::sync::{Arc, OnceLock};

use bounds::Bounds;

/// Why a datatype cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// `MPI_ERR_COUNT`.
    #[error("a count is negative")]
    Count,
    /// `MPI_ERR_ARG`.
    #[error("an argument is not legal: {0}")]
    Argument(&'static str),
    /// `MPI_ERR_DIMS`.
    #[error("the dimensions are not legal")]
    Dimensions,
    /// It is larger than any address space.
    #[error("a size or displacement is too large")]
    TooLarge,
}

/// A datatype, shared by all that are made of it.
pub type Type = Arc<Datatype>;

/// A datatype.
#[derive(Debug)]
pub struct Datatype {
    map: Map,
    bounds: Bounds,
    /// Bytes of its elements.
    size: i64,
    /// How many elements there are.
    elements: i64,
    origin: origin::Origin,
    layout: OnceLock<Layout>,
}

/// The type map.
#[derive(Debug, Clone)]
enum Map {
    Basic(Basic),
    /// The same as another's.
    Same(Type),
    /// One behind the other: copies of others.
    Copies(Box<[Copies]>),
}

/// So many copies of a datatype, the first at some place, the others so many bytes from each other.
#[derive(Debug, Clone)]
struct Copies {
    at: i64,
    count: i64,
    stride: i64,
    of: Type,
}

impl Datatype {
    /// A predefined one.
    #[must_use]
    pub fn basic(basic: Basic) -> Type {
        let elements = 1 + i64::from(basic.elements().1.is_some());
        Arc::new(Self {
            map: Map::Basic(basic),
            bounds: Bounds::of_basic(basic),
            size: basic.size() as i64,
            elements,
            origin: origin::Origin::Named,
            layout: OnceLock::new(),
        })
    }

    /// Bytes of its elements, without gaps.
    #[must_use]
    pub const fn size(&self) -> i64 {
        self.size
    }

    /// Its lower bound, bytes.
    #[must_use]
    pub fn lower_bound(&self) -> i64 {
        self.bounds.lower()
    }

    /// From its lower to its upper bound: from one to the next of several, bytes.
    #[must_use]
    pub fn extent(&self) -> i64 {
        self.bounds.upper() - self.bounds.lower()
    }

    /// Where its first byte is.
    #[must_use]
    pub const fn true_lower_bound(&self) -> i64 {
        self.bounds.first
    }

    /// From its first byte to behind its last one.
    #[must_use]
    pub const fn true_extent(&self) -> i64 {
        self.bounds.end - self.bounds.first
    }

    /// If it is a predefined one, or a copy of one.
    #[must_use]
    pub fn as_basic(&self) -> Option<Basic> {
        match &self.map {
            Map::Basic(basic) => Some(*basic),
            Map::Same(of) if self.combiner() != Combiner::Resized => of.as_basic(),
            _ => None,
        }
    }

    /// The predefined datatype of all its elements, if they are all of one: what reductions and accumulates
    /// need.
    #[must_use]
    pub fn uniform(&self) -> Option<Basic> {
        match &self.map {
            Map::Basic(basic) => Some(*basic),
            Map::Same(of) => of.uniform(),
            Map::Copies(list) => {
                let some = list.iter().filter(|copies| copies.count > 0 && copies.of.elements > 0);
                let mut all = some.map(|copies| copies.of.uniform());
                let first = all.next()??;
                all.all(|other| other == Some(first)).then_some(first)
            }
        }
    }

    /// How its bytes lie, flattened when it is asked for first.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.layout.get_or_init(|| Layout::of(self))
    }
}
