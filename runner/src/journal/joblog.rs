//! One line for each rank that has ended, in the columns of GNU parallel's `--joblog`.

use super::Ended;
use crate::launch::Launch;
use crate::residency::Rank;

/// The first line.
pub(super) const HEADER: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

/// `begin`: seconds since 1970. `host`: if it is not this one. Nothing was sent to it nor fetched.
pub(super) fn line(launch: &Launch, rank: Rank, ended: &Ended, begin: f64, host: Option<&str>) -> String {
    let Ended { signal, lived, .. } = ended;
    // GNU parallel's way to say that a job was ended: what it says of itself does not count.
    let exit = if ended.stopped && ended.exit == 0 && *signal == 0 { -1 } else { ended.exit };
    let (seconds, host) = (lived.as_secs_f64(), host.unwrap_or(":"));
    let command = launch.command_line(rank).replace('\n', " ");
    let number = u64::from(rank) + 1;
    format!("{number}\t{host}\t{begin:.3}\t{seconds:10.3}\t0\t0\t{exit}\t{signal}\t{command}\n")
}
