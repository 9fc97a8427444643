//! How a datatype was made, as `MPI_Type_get_envelope` and `MPI_Type_get_contents` tell (MPI-5.0, section
//! 5.1.13).

use super::{Datatype, Type};

/// With which constructor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the standard's names")]
pub enum Combiner {
    Named,
    Dup,
    Contiguous,
    Vector,
    Hvector,
    Indexed,
    Hindexed,
    IndexedBlock,
    HindexedBlock,
    Struct,
    Subarray,
    Darray,
    F90Real,
    F90Complex,
    F90Integer,
    Resized,
    ValueIndex,
}

/// Whether the form with `MPI_Count` was called (`_c`): its counts and displacements are told as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// `int`, and `MPI_Aint`.
    Small,
    /// `MPI_Count`.
    Large,
}

/// The constructor's arguments, in the order of the standard.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// Of type `int`.
    pub integers: Vec<i64>,
    /// Of type `MPI_Aint`.
    pub addresses: Vec<i64>,
    /// Of type `MPI_Count`.
    pub counts: Vec<i64>,
    /// Datatypes.
    pub types: Vec<Type>,
}

impl Contents {
    pub(super) fn of_types<'a>(types: impl IntoIterator<Item = &'a Type>) -> Self {
        Self { types: types.into_iter().cloned().collect(), ..Self::default() }
    }

    /// Adds what is an `int`, or an `MPI_Count`.
    pub(super) fn integers(mut self, width: Width, values: impl IntoIterator<Item = i64>) -> Self {
        match width {
            Width::Small => self.integers.extend(values),
            Width::Large => self.counts.extend(values),
        }
        self
    }

    /// Adds what is an `MPI_Aint`, or an `MPI_Count`.
    pub(super) fn addresses(mut self, width: Width, values: impl IntoIterator<Item = i64>) -> Self {
        match width {
            Width::Small => self.addresses.extend(values),
            Width::Large => self.counts.extend(values),
        }
        self
    }

    /// Adds what is an `int` in either form.
    pub(super) fn plain(mut self, values: impl IntoIterator<Item = i64>) -> Self {
        self.integers.extend(values);
        self
    }
}

#[derive(Debug)]
pub(super) enum Origin {
    Named,
    Made { combiner: Combiner, contents: Contents },
}

impl Datatype {
    /// With which constructor it was made.
    #[must_use]
    pub fn combiner(&self) -> Combiner {
        match &self.origin {
            Origin::Named => Combiner::Named,
            Origin::Made { combiner, .. } => *combiner,
        }
    }

    /// With which arguments; none of a predefined one.
    #[must_use]
    pub fn contents(&self) -> Option<&Contents> {
        match &self.origin {
            Origin::Named => None,
            Origin::Made { contents, .. } => Some(contents),
        }
    }
}
