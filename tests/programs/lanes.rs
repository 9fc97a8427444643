//! Messages between MPI ranks of a node, whichever way each takes: lane, inbox, mail or spill file.

use crate::beyond_mpi::compiled;
use crate::common::{Directory, bdrun_args};

/// With a processor for each rank and without, in RAM and out, with lanes and where there is no memory for
/// any.
#[test]
fn nothing_overtakes_whichever_way_it_goes() {
    let dir = Directory::new("order");
    let Some(program) = compiled(&dir, "order") else { return };
    let program = program.to_str().expect("a path in UTF-8");
    let jobs = [
        "-np 2 --processors 2",
        "-np 4",
        "-np 2 --preload never",
        "-np 4 --chaos 2 --memory 400M",
        "-np 3 --memory 24M",
        "-np 3 --memory 24M --chaos 5",
    ];
    for job in jobs {
        let outcome = bdrun_args(job.split_whitespace().chain([program])).succeed();
        let lines = outcome.stdout.lines().filter(|line| line.ends_with("in order")).count();
        assert_eq!(lines, job.as_bytes()[4] as usize - '0' as usize, "{job}: {outcome:?}");
    }
}
