//! The index against a program that follows its definitions letter by letter, against other programs and the
//! truth.
//!
//! One test program with a module per subject, so that it is linked once.

mod common;
mod counts;
mod cut;
mod damage;
mod formats;
mod graph;
mod identity;
mod inputs;
mod join;
mod memory;
mod others;
mod pipes;
mod program;
mod queries;
mod random;
mod replaced;
mod rounds;
mod truth;
mod warnings;
mod writers;
