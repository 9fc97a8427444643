//! The master: spawns one worker process per rank, decides who is in RAM, and tells what happened.
//!
//! What it is: the program `bdrun`, as a library so that its parts can be tested. What it is not: in the way. While a job
//! fits its budget, ranks wake each other through the shared segment and the master sleeps.
//!
//! | module | answers |
//! |---|---|
//! | [`cli`] | one definition of every flag |
//! | [`budget`] | what memory is really there |
//! | [`scheduler`] | pure: who is admitted, evicted, restored next |
//! | [`supervisor`] | processes: spawned, tied to our life, heard, ended |
//! | [`job`] | the shell that ties them together: events in, effects out |
//! | [`display`], [`stats`] | what people and programs are told |
//! | [`exit`] | every exit code |

pub mod budget;
pub mod cli;
pub mod display;
pub mod exit;
pub mod job;
pub mod scheduler;
pub mod stats;
pub mod supervisor;
