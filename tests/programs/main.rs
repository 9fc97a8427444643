//! Whole programs: `bdrun` with the small jobs of `examples/ranks` as users start them, in real processes.
//!
//! One test program with a module per subject, so that `cargo test --test programs faults` runs one subject
//! and the helpers exist once. Every job has a time limit, and after every job it is checked that no process
//! and no file is left of it (`common`). They run side by side, more of them than there are processors
//! (`.cargo/config.toml`): no test may depend on having the machine for itself.
//!
//! What needs root (memory cgroups, mounts) says `skipped: why` where that is not permitted; run with
//! `--nocapture`, or see `tests/skipped` for how skips are counted, and forbidden.

mod after_exec;
mod attach;
mod besides;
mod beyond_mpi;
mod cli;
mod common;
mod conformance;
mod dealt;
mod deepbind;
mod descriptors;
mod doors;
mod elastic;
mod ends;
mod enforced;
mod faults;
mod full_disk;
mod house;
mod journal;
mod lanes;
mod launch;
mod learned;
mod main_job;
mod measured;
mod mixed;
mod mpi;
mod named;
mod nodes;
mod out_of_core;
mod output;
mod outside;
mod oversize;
mod pace;
mod parts;
mod phases;
mod pictures;
mod pids;
mod preload;
mod recipes;
mod requests;
mod scale;
mod scratch;
mod seams;
mod signals;
mod simulate;
mod stranger;
mod stuck;
mod threads;
mod timeouts;
