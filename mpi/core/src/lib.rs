//! What MPI means, without handles, I/O or processes.
//!
//! | question | module |
//! |---|---|
//! | where are the elements of a message in memory? | [`datatype`] |
//! | what is computed with them? | [`operation`] |
//! | who belongs together, and in which order? | [`group`] |
//! | who is whose neighbour? | [`topology`] |

pub mod datatype;
pub mod group;
pub mod operation;
pub mod topology;
