//! Ranks of every kind in one job: with bdrun's runtime behind a script, preloaded, known to nobody, and such
//! as cannot be paged.

use std::process::Command;

use crate::common::cap::Cap;
use crate::common::chaos::{PYTHON, python_with};
use crate::common::{Directory, LIMIT, bdrun, bdrun_args, limited, program, skipped};
use crate::preload::library;

const MIB: u64 = 1 << 20;

/// 8 × 64 MiB in 200, which the kernel grants 80 more: nobody is killed, and the budget holds.
#[test]
fn native_ranks_behind_a_script_under_a_cap() {
    let expected = bdrun("-np 8 --memory 4G sweep 64M 2").succeed().stdout;
    let script = format!("{} \"$@\"; code=$?; exit $code", program("sweep").display());
    for time in 0..if std::env::var_os("BDRUN_OUTSIDE_FULL").is_some() { 20 } else { 2 } {
        let cap = match Cap::new(280 * MIB) {
            Ok(cap) => cap,
            Err(why) => return skipped("cgroup", why),
        };
        let words = ["-np", "8", "--memory", "200M", "sh", "-c", &script, "sh", "64M", "2"];
        let outcome = bdrun_args(words).under(&cap).within(2 * LIMIT).succeed();
        assert_eq!((outcome.stdout.as_str(), cap.oom_kills()), (expected.as_str(), 0), "{time}: {outcome:?}");
        let stats = outcome.stats();
        assert!(stats.peak_resident_bytes <= stats.budget_bytes, "{time}: {stats:?}");
        assert!(stats.demand_bytes > 2 * stats.budget_bytes, "{time}: {stats:?}");
    }
}

/// Holds memory, and looks at it again and again.
const HOLDS: &str = "
import sys, time, zlib
name, mib = sys.argv[1], int(sys.argv[2])
memory = bytearray(mib << 20)
for at in range(0, len(memory), 4096): memory[at:at + 8] = (at * 2654435761 % 2**64).to_bytes(8, 'little')
if name == 'locked':
    import ctypes
    assert ctypes.CDLL(None).mlockall(1) == 0
sums = set()
while time.process_time() < 2: sums.add(zlib.adler32(memory))
print(name, mib, sums)
";

/// One of each kind, 80 MiB each and 20 that are locked, in 112.
#[test]
fn one_rank_of_each_kind_in_less_than_half_of_what_they_need() {
    let library = library();
    if !python_with("ctypes") {
        return;
    }
    let dir = Directory::new("mixed");
    let holds = dir.script("holds.py", HOLDS);
    let python = |name: &str, mib: u64| format!("exec {PYTHON} {} {name} {mib}", holds.display());
    let scripts = [
        ("a-any", python("any", 80)),
        ("b-locked", python("locked", 20)),
        ("c-native", format!("{} 80 12", program("solo").display())),
        ("d-preloaded", format!("export LD_PRELOAD={}; {}", library.display(), python("preloaded", 80))),
    ];
    let expected: Vec<String> = scripts
        .iter()
        .map(|(name, text)| {
            let path = dir.script(&format!("{name}.part"), text);
            let plain = limited(Command::new("sh").arg(path), LIMIT);
            String::from_utf8_lossy(&plain.stdout).into_owned()
        })
        .collect();
    let pattern = format!("{}/*.part", dir.path().display());
    let words =
        ["--memory", "112M", "--processors", "2", "--preload", "never", "--keep-order", "--glob", &pattern];
    let outcome = bdrun_args(words.into_iter().chain(["--", "sh", "{}"])).within(2 * LIMIT).succeed();
    assert_eq!(outcome.stdout, expected.concat(), "{outcome:?}");
    let stats = outcome.stats();
    let told = stats.overdraft_rank.is_some() || outcome.stderr.contains("faster than they could be stopped");
    assert!(stats.peak_resident_bytes <= stats.budget_bytes || told, "{outcome:?}");
    assert!(stats.ranks.iter().map(|rank| rank.peak_bytes).sum::<u64>() > 240 * MIB, "{outcome:?}");
}
