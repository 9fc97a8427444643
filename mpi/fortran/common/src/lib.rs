//! What Fortran's arguments and functions are to C, whatever the ABI.
//!
//! | question | module |
//! |---|---|
//! | how do numbers become handles, and how are statuses passed? | [`args`] |
//! | how do strings? | [`text`] |
//! | what is exported, under which names? | [`exports`] |
//! | how does C call a function in Fortran, where it cannot be told which? | [`pool`] |
//!
//! `calls/` has what both libraries include: functions that are written by hand, in terms of the declarations
//! and types of each.

pub mod args;
pub mod exports;
pub mod pool;
pub mod text;
