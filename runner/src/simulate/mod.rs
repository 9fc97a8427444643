//! `bdrun simulate`: what would a job need? The simulator of the core (`residency/sim`) as a tool. It runs a
//! job again that was recorded (`--trace`), or one that is made up, with other memory, processors and disks,
//! and with other rules of who leaves.
//!
//! | file | what |
//! |---|---|
//! | `record.rs` | what `--trace` keeps of a job, and how it is read back |
//! | `rates.rs` | pure: how fast memory moved |
//! | `replay.rs`, `meetings.rs` | pure: from that to programs for the simulator, and who waits for whom |
//! | `synthetic.rs` | jobs that nobody has run |
//! | `what_if.rs` | pure: the settings that are tried, and what comes of each |
//! | `line.rs`, `show.rs` | the command line; the table |
//!
//! # What is assumed
//! - Between two waits a rank computes as long as it did, whoever else computes: what other programs, the
//!   pager and the memory bus took from it is in that. Processors are tokens: as many compute at once.
//! - Memory that a rank asked for is taken at once after a wait, the most that it held before the next; at
//!   that it holds what it held then. What was measured of others grows with the time they computed.
//! - What a rank needs of what it holds is known where it was out (it ran with a part, or asked for the
//!   rest); of the others what those needed that came from the same collective.
//! - A wait ends when the rank that ended it has come as far as it had; a collective for which all had come
//!   when all have. A message that was there before anybody waited for it is not known, so a receiver that is
//!   faster than it was may take it before it is sent. A wait that nobody ended is a sleep, and takes as
//!   long.
//! - The budget stays what it is, also where it did not (`--memory auto`), which is said. Of a job with `-j`
//!   as many live as there are processors.
//! - A move takes some time for itself, and then shares the disk evenly with others, both as fitted to what
//!   moves took: hashing, compression, page faults and the disk's own moods are in it. Of what leaves as
//!   large a part has to be written as was; what came back in parts comes back in the same parts.
//! - That a rank waits is heard as late as half of them were. Messages take no memory. Ranks begin and end as
//!   fast as they did. Nothing fails.

mod line;
mod meetings;
mod rates;
mod record;
mod replay;
mod show;
mod synthetic;
#[cfg(test)]
mod tests;
mod what_if;

pub use line::run;
pub use rates::Rates;
pub use record::{KEY, RankRecord, Record};
pub use replay::programs;
pub use synthetic::{Shape, Synthetic};
pub use what_if::{Job, Outcome, Setting};
