//! Memory that ranks of bdrun's runtime, and preloaded programs, do not get from its allocator: it is
//! counted, and moved with the rest.

use crate::common::chaos::{PYTHON, args, python_with};
use crate::common::{Directory, LIMIT, Outcome, bdrun, bdrun_args, first_of, skipped};
use crate::preload::library;

const MIB: u64 = 1 << 20;

/// Whether ranks may be paged from outside here.
pub(crate) fn may_be_paged() -> bool {
    let permits = bdrun("-np 1 --preload never true").succeed();
    match permits.stats().measured.as_ref().and_then(|measured| measured.paging_refused.clone()) {
        None => true,
        Some(why) => {
            skipped("root", why);
            false
        }
    }
}

fn besides(options: &str) -> Outcome {
    bdrun(options).within(2 * LIMIT).succeed()
}

/// Of 6 × 56 MiB, 48 each from the kernel, 128 fit.
#[test]
fn what_waiting_ranks_hold_besides_leaves_with_them() {
    if !may_be_paged() {
        return;
    }
    let outcome = besides("-np 6 --memory 128M besides 8 48 3 0");
    assert_eq!(outcome.stdout, "6 ranks, 0 words wrong\n");
    let stats = outcome.stats();
    assert!(stats.demand_bytes > 6 * 48 * MIB, "{stats:?}");
    assert!(stats.evicted_bytes > 2 * (stats.demand_bytes - stats.budget_bytes), "{stats:?}");
}

/// Two that only compute, for longer than it takes to see that they do not fit, which the machine decides:
/// one of them leaves as it is.
#[test]
fn a_rank_that_computes_leaves_for_another() {
    if !may_be_paged() {
        return;
    }
    first_of(["1.5", "10", "60"], |seconds| {
        let outcome = besides(&format!("-np 2 --processors 2 --memory 100M besides 16 60 2 {seconds}"));
        assert_eq!(outcome.stdout, "2 ranks, 0 words wrong\n");
        let leaves = outcome.stats().ranks.iter().any(|rank| rank.evicted_bytes > 60 * MIB);
        leaves.then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// What the threads of ranks allocate while these wait makes others leave, and what they touch of ranks that
/// are out makes them stand still.
#[test]
fn other_threads_wait_for_memory() {
    if !may_be_paged() {
        return;
    }
    let outcome = besides("-np 4 --memory 128M threads 30");
    assert_eq!(outcome.stdout, "4 ranks, 0 wrong\n");
    let stats = outcome.stats();
    // All of the first 30 MiB of each; how many hold the second at a time depends on the machine.
    assert!(stats.demand_bytes > 140 * MIB && stats.evictions > 0, "{stats:?}");
    assert_eq!(stats.overdraft_rank, None, "{stats:?}");
}

/// A copy of a rank that is out in parts needs all of it: where that is more than there is, it is said.
#[test]
fn a_fork_does_not_exceed_the_budget_unsaid() {
    let outcome = besides("-np 3 --memory 100M threads 40 fork");
    assert_eq!(outcome.stdout, "3 ranks, 0 wrong\n");
    let stats = outcome.stats();
    let said = ["made a copy of itself", "is exceeded", "were in RAM, more than the budget"];
    let said = said.iter().any(|text| outcome.stderr.contains(text));
    assert!(said || stats.peak_resident_bytes <= stats.budget_bytes, "{outcome:?}");
}

/// Moved again and again, in the middle of whatever they do.
#[test]
fn nobody_notices() {
    first_of([20, 60, 180], |phases| {
        let outcome = besides(&format!("-np 4 --memory 1G --chaos 10 besides 8 16 {phases} 0.02"));
        assert_eq!(outcome.stdout, "4 ranks, 0 words wrong\n");
        (outcome.stats().chaos_evictions >= 10).then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// Memory of the heap, or of a call of the system that the library does not see.
const WAITS: &str = "
import ctypes, os, sys, time
rank, there, kind = sys.argv[1:]
size = 60 << 20
def mapped():
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    number, length, none = ctypes.c_long(9), ctypes.c_long(size), ctypes.c_long(-1)
    return (ctypes.c_ubyte * size).from_address(call(number, ctypes.c_long(0), length, 3, 0x22, none, ctypes.c_long(0)))
def wait(name):
    while not os.path.exists(os.path.join(there, name)): time.sleep(0.2)
def tell(name): open(os.path.join(there, name), 'w')
if rank == '1': wait('there')
memory = bytearray(size) if kind == 'heap' else mapped()
for at in range(0, size, 4096): memory[at] = 1 + at % 251
tell('there')
if rank == '0': wait('done')
while rank == '1' and not os.path.exists(os.path.join(there, 'seen')): pass
assert all(memory[at] == 1 + at % 251 for at in range(0, size, 4096))
print('right', rank)
tell('done')
";

/// The first waits for a file that the second writes, which does not fit beside it; in calls of the system,
/// of which the library sees nothing.
fn one_that_waits_in_calls_of_the_system(kind: &str) {
    library();
    if !python_with("ctypes") || !may_be_paged() {
        return;
    }
    let dir = Directory::new("calls");
    let options = args([&"-np", &2, &"--processors", &2, &"--memory", &"90M", &"--preload", &"always"]);
    let program = args([&PYTHON, &"-c", &WAITS, &"{rank}", &dir.path().display(), &kind]);
    let job = bdrun_args(options.into_iter().chain(program)).within(2 * LIMIT).start();
    job.wait_until_out();
    std::fs::write(dir.path().join("seen"), "").expect("a file");
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("right 0") && outcome.stdout.contains("right 1"), "{outcome:?}");
    assert!(outcome.stats().evictions > 0, "{outcome:?}");
}

#[test]
fn a_preloaded_rank_blocked_in_a_call_leaves() {
    one_that_waits_in_calls_of_the_system("heap");
}

#[test]
fn so_does_one_with_memory_of_its_own() {
    one_that_waits_in_calls_of_the_system("mapping");
}

/// What was set aside for a rank, and it does not use, is not what it holds besides.
#[test]
fn who_holds_most_of_its_limit_besides_is_within_it() {
    if !may_be_paged() {
        return;
    }
    let within = besides("-np 4 --memory 8G --rank-memory 64M besides 8 48 3 0");
    assert_eq!(within.stdout, "4 ranks, 0 words wrong\n");
    let options = "-np 2 --memory 8G --rank-memory 64M besides 8 80 3 60";
    let above = bdrun_args(options.split(' ')).run();
    above.failed_with(123, &["memory limit exceeded", "may hold 64.0 MiB"]);
}
