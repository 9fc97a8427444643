//! What goes wrong in a call.

use std::sync::Arc;

use bdrun_mpi_core::error::{Class, Code};

use crate::comm::Communicator;
use crate::face::Object;
use crate::handlers::Handler;

/// Why a call has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What a program is told.
    pub code: Code,
    /// What a user is told, if more is known than the class says.
    pub text: Option<String>,
    /// Whose error handler is told, if that is not what the call was made on: a request belongs to a
    /// communicator, a window or a file (MPI-5.0, section 9.3).
    pub on: Option<Object>,
    /// The same, if the program has freed that communicator: it goes on as long as its requests.
    pub freed: Option<Freed>,
    /// The handler that the call was given for what it makes, and what its function is told of: before all
    /// others.
    pub given: Option<(Handler, Object)>,
}

impl Failure {
    /// A failure of a call that was given a handler for what it makes. There is no such object yet: `on` is
    /// a handle of nothing.
    #[must_use]
    pub fn told_to(self, handler: Handler, on: Object) -> Self {
        Self { given: Some((handler, on)), ..self }
    }
}

/// A communicator of which the program has no handle any more.
#[derive(Debug, Clone)]
pub struct Freed(pub(crate) Arc<Communicator>);

impl PartialEq for Freed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Freed {}

/// What a call gives.
pub type Answer<T> = Result<T, Failure>;

/// What a call gives that has completed something, and why that has failed, if it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told<T> {
    /// What the program is told in either case.
    pub given: T,
    /// What has failed.
    pub failure: Option<Failure>,
}

impl<T> Told<T> {
    /// Nothing has failed.
    pub const fn well(given: T) -> Self {
        Self { given, failure: None }
    }
}

impl From<Class> for Failure {
    fn from(class: Class) -> Self {
        Code::Class(class).into()
    }
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Self { code, text: None, on: None, freed: None, given: None }
    }
}

/// A call that is not implemented.
#[must_use]
pub fn unsupported(call: &str) -> Failure {
    let text = Some(format!("{call} is not implemented by bdrun (docs/mpi-status.md)"));
    Failure { text, ..Class::UnsupportedOperation.into() }
}

/// The first number of codes that a program adds: behind `MPI_ERR_LASTCODE`.
pub const ADDED: i64 = 0x4000;
/// The first number of classes of the interface for tools, and the first such class.
const TOOLS: (i64, Class) = (1001, Class::ToolCannotInit);

/// The number that a code has in the standard's ABI.
#[must_use]
pub const fn number(code: Code) -> i64 {
    match code {
        Code::Success => 0,
        Code::Class(class) => match class as i64 - TOOLS.1 as i64 {
            tool @ 0.. => TOOLS.0 + tool,
            _ => class as i64 + 1,
        },
        Code::Added(number) => ADDED + number as i64,
    }
}

/// The code of a number, if it can be one.
#[must_use]
pub fn code(number: i64) -> Option<Code> {
    let class = match number {
        0 => return Some(Code::Success),
        ADDED.. => return u32::try_from(number - ADDED).ok().map(Code::Added),
        _ if number >= TOOLS.0 => number - TOOLS.0 + TOOLS.1 as i64,
        _ if number > TOOLS.1 as i64 => return None,
        _ => number - 1,
    };
    usize::try_from(class).ok().and_then(|class| Class::ALL.get(class)).copied().map(Code::Class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bdrun_mpi_table::Value;

    #[test]
    fn numbers_are_the_standards() {
        let constants = bdrun_mpi_table::constants().expect("well-formed");
        for &class in Class::ALL {
            let constant = constants.iter().find(|constant| constant.name == class.name()).expect("there");
            assert_eq!(
                constant.standard,
                Some(Value::Number(number(Code::Class(class)))),
                "{}",
                class.name()
            );
            assert_eq!(code(number(Code::Class(class))), Some(Code::Class(class)));
        }
        for number in [-1, 63, 1000, 1019, 0x3fff] {
            assert_eq!(code(number), None, "{number}");
        }
        assert_eq!(code(number(Code::Added(7))), Some(Code::Added(7)));
    }
}
