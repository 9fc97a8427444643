//! The master: spawns one worker process per rank, decides who is in RAM, and tells what happened.
//!
//! What it is: the program `bdrun`, as a library so that its parts can be tested. What it is not: in the way.
//! While a job fits its budget, ranks wake each other through the shared segment and the master sleeps.
//!
//! | module | answers |
//! |---|---|
//! | [`cli`] | one definition of every flag |
//! | [`budget`], [`elastic`] | what memory is really there, and how the budget follows that |
//! | [`residency`] | pure: who is admitted, evicted, held, restored next |
//! | [`launch`] | what each rank is given: its part, its command line, its files |
//! | [`supervisor`] | processes: spawned, tied to our life, heard, ended |
//! | [`measure`] | what ranks hold, told by the kernel |
//! | [`holder`] | the threads that hold and move independent ranks |
//! | [`job`] | the shell that ties them together: events in, effects out |
//! | [`display`], [`stats`] | what people and programs are told |
//! | [`history`], [`report`] | what happened when; a page about it for people, and a trace for Perfetto |
//! | [`attach`] | looking at a job that runs: `top`, `explain` |
//! | [`simulate`] | what a job would need: the simulator of the core as a tool |
//! | [`nodes`] | the masters of a job on several nodes: what they tell each other, and the MPI that carries it |
//! | [`learn`] | what ranks needed, kept from run to run |
//! | [`journal`] | what has ended, on disk: to go on from, and for others to read |
//! | [`exit`] | every exit code |
//! | [`init`] | process 1 of a container |
//! | [`cgroups`], [`descriptors`], [`elf`], [`in_use`], [`units`], [`urgent`], [`whole`] | leaves: control groups; open files of the master; what programs are linked to; files that one bdrun at a time writes; bytes and times in words; threads scheduled first; files that are whole or not there |

pub mod attach;
pub mod budget;
pub mod cgroups;
pub mod cli;
pub mod descriptors;
pub mod display;
pub mod elastic;
pub mod elf;
pub mod exit;
mod gate;
pub mod history;
pub mod holder;
pub mod in_use;
pub mod init;
pub mod job;
pub mod journal;
pub mod launch;
pub mod learn;
pub mod measure;
pub mod nodes;
pub mod post;
pub mod report;
pub mod residency;
pub mod simulate;
pub mod stats;
pub mod supervisor;
pub mod units;
pub mod urgent;
pub mod whole;

/// First words of a line that is no job to run.
pub const SUBCOMMANDS: &[&str] = &["top", "explain", "simulate"];
