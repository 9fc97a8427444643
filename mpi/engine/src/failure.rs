//! What goes wrong in a call.

use bdrun_mpi_core::error::{Class, Code};

/// Why a call has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What a program is told.
    pub code: Code,
    /// What a user is told, if more is known than the class says.
    pub text: Option<String>,
}

/// What a call gives.
pub type Answer<T> = Result<T, Failure>;

impl From<Class> for Failure {
    fn from(class: Class) -> Self {
        Self { code: Code::Class(class), text: None }
    }
}

/// A call that is not implemented.
#[must_use]
pub fn unsupported(call: &str) -> Failure {
    let text = Some(format!("{call} is not implemented by bdrun (docs/mpi-status.md)"));
    Failure { code: Code::Class(Class::UnsupportedOperation), text }
}
