//! The truth about each rank's memory and processor time, its children included.
//!
//! Programs that know nothing of bdrun tell nobody what they hold, so the master looks: it knows which
//! processes belong to a rank ([`Group`]), reads what the kernel says of each, and adds it up ([`Sample`]) in
//! a thread of its own ([`Sampler`]). Nothing is decided here and no process is changed, but for
//! [`Group::freeze`].
//!
//! | file | answers |
//! |---|---|
//! | `group.rs` | which processes belong to a rank; stopping and continuing all of them without ptrace |
//! | `cgroup.rs` | one cgroup per rank, where that is permitted: nothing escapes |
//! | `tree.rs` | else: descendants, process group and session, from `/proc` |
//! | `proc.rs` | the files of one process, read and understood |
//! | `meter.rs` | the sum over the processes of one rank |
//! | `reading.rs` | when what was read of a process is read again |
//! | `once.rs` | each page once in that sum, between two looks that find out |
//! | `shares.rs` | how much of that is counted twice because processes share it |
//! | `watched.rs` | one rank that is watched: what it tells, and which looks count |
//! | `sampler.rs` | the thread that looks at all ranks, scheduled before others where that is allowed |
//! | `idle.rs` | how many processors nobody uses |
//! | `permits.rs` | whether this machine lets us page by ptrace, and how it lets us freeze |
//!
//! # What a rank holds
//! *private*: anonymous pages, what paging can take out. *shared*: shared memory and tmpfs files that are
//! mapped; a segment that nobody has mapped at the moment is not seen. *file*: mapped pages of files, which
//! the kernel takes back by itself when memory is short. Huge pages of hugetlbfs, socket buffers and the page
//! cache of files that are only read and written belong to no process and are in none of these.

mod group;
mod idle;
mod meter;
mod once;
mod permits;
mod proc;
mod reading;
mod sample;
mod sampler;
mod shares;
#[cfg(test)]
mod tests;
mod tree;
mod usage;
mod watched;

pub use group::{Group, Tracking};
pub use idle::Idle;
pub use permits::{Freezer, Permits};
pub(crate) use proc::processor_time;
pub use sample::{Measured, Sample, Sent, own_max_rss};
pub use sampler::Sampler;
pub use usage::Usage;
pub use watched::{Tells, Told};
