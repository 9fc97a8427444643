//! What MPI means, without handles, I/O or processes.
//!
//! | question | module |
//! |---|---|
//! | where are the elements of a message in memory? | [`datatype`] |
//! | what is computed with them? | [`operation`] |
//! | who belongs together, and in which order? | [`group`] |
//! | who is whose neighbour? | [`topology`] |
//! | what has the program hung on an object? | [`attribute`] |
//! | what does it say besides? | [`info`] |
//! | what can go wrong? | [`error`] |

pub mod attribute;
pub mod datatype;
pub mod error;
pub mod group;
pub mod info;
pub mod matching;
pub mod operation;
pub mod topology;
