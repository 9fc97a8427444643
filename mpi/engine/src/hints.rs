//! Hints (MPI-5.0, sections 7.4.4, 11.4.3, 12.2.7 and 14.2.8): of which a program is told that they count.
//!
//! Those that nobody heeds are not told: a program would rely on them. What a program promises of itself is
//! told again, as there is nothing to be done for that. What it asks for is told by who does it.

use bdrun_mpi_core::info::Info as Content;

use crate::Mpi;
use crate::comm::Communicator;
use crate::failure::Answer;

/// Promises: the key, and the words of which its value may be, between commas; none: any text.
type Promises = &'static [(&'static str, &'static [&'static str])];

const BOOLEAN: &[&str] = &["true", "false"];
const ORDERS: &[&str] = &["rar", "raw", "war", "waw", "none"];
const STYLES: &[&str] =
    &["read_once", "write_once", "read_mostly", "write_mostly", "sequential", "reverse_sequential", "random"];

/// Of communicators.
pub const COMM: Promises = &[
    ("mpi_assert_no_any_tag", BOOLEAN),
    ("mpi_assert_no_any_source", BOOLEAN),
    ("mpi_assert_exact_length", BOOLEAN),
    ("mpi_assert_allow_overtaking", BOOLEAN),
    ("mpi_assert_strict_persistent_collective_ordering", BOOLEAN),
    ("mpi_assert_memory_alloc_kinds", &[]),
];
/// Of windows.
pub const WIN: Promises = &[
    ("no_locks", BOOLEAN),
    ("accumulate_ordering", ORDERS),
    ("accumulate_ops", &["same_op", "same_op_no_op"]),
    ("same_size", BOOLEAN),
    ("same_disp_unit", BOOLEAN),
    ("mpi_assert_memory_alloc_kinds", &[]),
];
/// Of files.
pub const FILE: Promises = &[("access_style", STYLES), ("mpi_assert_memory_alloc_kinds", &[])];

fn is_legal(value: &[u8], words: &[&str]) -> bool {
    let is_word = |word: &[u8]| words.iter().any(|legal| legal.as_bytes() == word.trim_ascii());
    words.is_empty() || value.split(|&byte| byte == b',').all(is_word)
}

impl Mpi {
    /// What every object tells: which memory a program may send from and receive into.
    pub(crate) fn hints_of_all(&self) -> Answer<Content> {
        let mut content = Content::default();
        content.set(b"mpi_memory_alloc_kinds", b"mpi,system", self.limits())?;
        Ok(content)
    }

    /// What is told of something with a communicator that has its hints.
    pub(crate) fn hints_told(&self, comm: &Communicator, promises: Promises) -> Answer<Content> {
        let (mut told, limits) = (self.hints_of_all()?, self.limits());
        let set = comm.with(|state| state.info.clone());
        for (key, words) in promises {
            // In some ABIs a key may be too long: then nobody has set it.
            if let Ok(Some(value)) = set.get(key.as_bytes(), limits)
                && is_legal(value, words)
            {
                told.set(key.as_bytes(), value, limits)?;
            }
        }
        Ok(told)
    }
}
