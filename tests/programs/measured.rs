//! What programs are said to hold, and of what kinds: memory that processes of a rank share is there once,
//! that of `/dev/zero` is paged like any other.

use crate::common::chaos::{self, UNTIL_PAGED, compiled};
use crate::common::{Bdrun, Directory, Outcome, bdrun_args, cap::Cap, first_of, skipped};

const MIB: u64 = 1 << 20;
/// What each program has, which eight children look at, too.
const SIZE: u64 = 100 * MIB;

/// Begins each: `memory` of 100 MiB, and `fork` makes a child that does something and ends.
const HEAD: &str = "
import mmap, os, sys, time, zlib
size = 100 << 20
def fill(memory):
    for at in range(0, size, 4096):
        memory[at] = 1 + at % 251
    return memory
def fork(act):
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    return child
def look(memory, rounds):
    for _ in range(rounds):
        zlib.adler32(memory)
        time.sleep(0.3)
def end(children):
    print('bad', sum(os.waitpid(child, 0)[1] != 0 for child in children))
";

fn ranks(np: &str, budget: &str, program: &str) -> Bdrun {
    let program = format!("{HEAD}{program}");
    bdrun_args(["-np", np, "--memory", budget, "--preload", "never", "--", "python3", "-c", &program])
}

/// Each rank had what there is in it, and not several times that: each Python has about 10 MiB, each child 2
/// more. Or too few of the children were seen at once to show that.
fn held_it_once(outcome: &Outcome) -> Result<(), String> {
    let stats = outcome.stats();
    for rank in &stats.ranks {
        let bytes = rank.peak_bytes;
        let rank = rank.measured.as_ref().expect("measured from outside");
        if rank.processes <= 8 {
            return Err(format!("{rank:?}"));
        }
        assert!((SIZE..SIZE * 3 / 2).contains(&bytes), "{} MiB: {rank:?}", bytes / MIB);
    }
    Ok(())
}

/// So often children look at their memory: 0.3 s each time.
const ROUNDS: [u32; 3] = [8, 80, 400];

/// Children that only read, and end one by one.
fn readers(rounds: u32) -> String {
    format!(
        "
memory = fill(bytearray(size))
end([fork(lambda: (look(memory, {rounds}), time.sleep(number * 0.05))) for number in range(8)])
"
    )
}

#[test]
fn what_children_only_read_is_counted_once() {
    first_of(ROUNDS, |rounds| {
        let outcome = ranks("1", "4G", &readers(rounds)).succeed();
        assert_eq!(outcome.stdout, "bad 0\n");
        held_it_once(&outcome)
    });
}

/// Two ranks of 100 MiB run side by side where there is room for three of them beside what is kept free, and
/// neither is too large. (That may be half of the budget for half a second: Python fills 100 MiB between two
/// looks.)
#[test]
fn ranks_that_share_after_a_fork_are_not_put_into_a_row() {
    // The second is begun when the first is known to need no more: however long that takes, the children of
    // the first are there until then.
    let both = "
def both():
    end = time.monotonic() + 300
    while not all(os.path.exists('begun.%d' % rank) for rank in range(2)) and time.monotonic() < end:
        time.sleep(0.1)
open('begun.' + os.environ['BDRUN_RANK'], 'w')
";
    first_of(ROUNDS, |rounds| {
        let dir = Directory::new("begun");
        let look = readers(rounds);
        let waits = look.replacen("lambda: (", "lambda: (both(), ", 1);
        assert_ne!(look, waits);
        let job = ranks("2", "800M", &format!("{both}{waits}"));
        let outcome = job.with(|command| command.current_dir(dir.path())).succeed();
        assert_eq!(outcome.stdout, "bad 0\nbad 0\n");
        let stats = outcome.stats();
        assert!(stats.max_running == 2 && stats.evictions == 0, "{stats:?}");
        assert!(!outcome.stderr.contains("more than the budget"), "{}", outcome.stderr);
        held_it_once(&outcome)
    });
}

/// Meanwhile the parent makes children without end that become other programs.
#[test]
fn so_while_programs_are_started_all_the_time() {
    first_of(ROUNDS, |rounds| {
        let program = format!(
            "
memory = fill(bytearray(size))
children = [fork(lambda: look(memory, {rounds})) for number in range(8)]
for _ in range(10 * {rounds}):
    os.waitpid(fork(lambda: os.execv('/bin/sleep', ['sleep', '0.02'])), 0)
end(children)
"
        );
        let outcome = ranks("1", "4G", &program).succeed();
        assert_eq!(outcome.stdout, "bad 0\n");
        held_it_once(&outcome)
    });
}

/// Shared memory, which each process counts from when it first touches it.
#[test]
fn shared_memory_that_children_touch_is_counted_once() {
    first_of(ROUNDS, |rounds| {
        let program = format!(
            "
memory = fill(mmap.mmap(-1, size))
time.sleep(0.5)
end([fork(lambda: (time.sleep(number * 0.2), look(memory, {rounds}))) for number in range(8)])
"
        );
        let outcome = ranks("1", "4G", &program).succeed();
        assert_eq!(outcome.stdout, "bad 0\n");
        held_it_once(&outcome)
    });
}

/// What children write is theirs, and is seen within the time that a look at all pages may take.
#[test]
fn what_children_write_is_counted() {
    let peak = |seconds: u32| {
        let program = format!(
            "
memory = fill(bytearray(size))
end([fork(lambda: (fill(memory), time.sleep({seconds}))) for number in range(3)])
"
        );
        ranks("1", "4G", &program).succeed().stats().ranks[0].peak_bytes
    };
    // How long that is depends on what else the machine does.
    let peaks: Vec<u64> = [6, 60].into_iter().map(peak).take_while(|&peak| peak <= 4 * SIZE).collect();
    assert!(peaks.len() < 2, "{peaks:?}");
}

/// Anonymous memory got the old way.
const ZEROS: &str = "
device = os.open('/dev/zero', os.O_RDWR)
def zeros(size):
    return mmap.mmap(device, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
";

/// Fills a mapping slowly, so that it is seen to grow, does something at so many MiB, and tells what is there
/// in the end.
const SLOWLY: &str = "
def slowly(memory, act=lambda mib: None):
    for at in range(0, len(memory), 4096):
        memory[at] = 1 + at % 251
        if at % (1 << 20) == 0:
            act(at >> 20)
            time.sleep(0.003)
    act(len(memory) >> 20)
    time.sleep(0.5)
    print(len(memory), zlib.adler32(memory))
";

#[test]
fn private_mappings_of_zeros_are_paged_whole() {
    first_of([1, 5, 25], |times| {
        let program = format!("{ZEROS}{SLOWLY}for _ in range({times}): slowly(zeros(size))\n");
        let expected = plainly(&program);
        let head = ["-np", "2", "--chaos", "50", "--preload", "never", "--", "python3", "-c"];
        let program = format!("{HEAD}{program}");
        let outcome = bdrun_args(head.iter().copied().chain([&*program])).succeed();
        assert_eq!(outcome.stdout, expected.repeat(2));
        let stats = outcome.stats();
        let moved = stats.evicted_bytes > SIZE && stats.restored_bytes > SIZE;
        moved.then_some(()).ok_or(format!("{stats:?}"))
    });
}

/// Given up, moved, protected, inherited, and counted in by a thread meanwhile. What is shared with the child
/// since the fork may stay as long as both live, and that may be said.
#[test]
fn mappings_of_zeros_in_parts_are_what_anonymous_ones_are() {
    let dir = Directory::new("zeros");
    let Some(program) = compiled(&dir, "outside/zeros.c", &[]) else { return };
    let program = program.display().to_string();
    // On a busy machine it may be through before it is looked at.
    first_of(["2", "20", "200"], |turns| {
        let words = [&*program, turns].map(String::from);
        let expected = chaos::text(&chaos::plainly(&words).stdout);
        assert!(expected.ends_with("lost 0\n"), "{expected}");
        let options = ["-np", "1", "--memory", "60M", "--preload", "never", "--", &program, turns];
        let outcome = bdrun_args(options).succeed();
        assert_eq!(outcome.stdout, expected, "{}", outcome.stderr);
        let stats = outcome.stats();
        let moved = stats.evicted_bytes > 40 * MIB && stats.restored_bytes > 40 * MIB;
        moved.then_some(()).ok_or(format!("{stats:?}"))
    });
}

/// `/proc` tells nothing of the memory of a process by its number once its first thread has ended.
#[test]
fn programs_whose_first_thread_ends_are_measured_and_paged() {
    let dir = Directory::new("first-ends");
    let Some(program) = compiled(&dir, "outside/first_ends.c", &["-pthread"]) else { return };
    let program = program.display().to_string();
    // One in parts, and three of which two are in RAM, which may be there in turn. On a busy machine they may
    // be through before they are looked at.
    for (ranks, memory, least) in [("1", "60M", 30), ("3", "190M", 70)] {
        first_of(["4", "40", "400"], |turns| {
            let words = [&*program, turns].map(String::from);
            let expected = chaos::text(&chaos::plainly(&words).stdout);
            let options = ["-np", ranks, "--memory", memory, "--preload", "never", "--", &program, turns];
            let outcome = bdrun_args(options).succeed();
            let lines = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(String::from).collect();
                lines.sort();
                lines
            };
            let count = ranks.parse().expect("a number");
            assert_eq!(lines(&outcome.stdout), lines(&expected.repeat(count)), "{}", outcome.stderr);
            let stats = outcome.stats();
            let moved = stats.evicted_bytes > 20 * MIB && stats.restored_bytes > 20 * MIB;
            let (moved, measured) = (moved || ranks == "3", stats.peak_resident_bytes > least * MIB);
            (moved && measured).then_some(()).ok_or(format!("{ranks} ranks: {stats:?}"))
        });
    }
}

/// It prints what it should, and that what it wrote stays in RAM is said while it runs.
fn stays_and_that_is_said(program: &str) {
    let expected = plainly(program);
    let dir = Directory::new("said");
    let said = dir.path().join("said");
    let job = ranks("1", "140M", program).with(|command| command.env("SAID", &said)).start();
    job.wait_for_error("stay in RAM");
    std::fs::write(&said, "").expect("a file");
    let outcome = job.wait();
    assert_eq!((outcome.code, &outcome.stdout), (Some(0), &expected), "{outcome:?}");
}

/// The kernel's own bound is less than the program needs, and it ends as if there were none.
#[test]
fn private_mappings_of_zeros_are_paged_in_parts() {
    let cap = match Cap::new(240 * MIB) {
        Ok(cap) => cap,
        Err(why) => return skipped("cgroup", why),
    };
    // So far what it needs more has gone by nothing that left.
    let slowly = "slowly(zeros(3 * size), lambda mib: mib == 176 and until_paged(mib))";
    let program = format!("{UNTIL_PAGED}{ZEROS}{SLOWLY}{slowly}\n");
    let expected = plainly(&program.replace(slowly, "slowly(zeros(3 * size))"));
    let outcome = ranks("1", "160M", &program).under(&cap).succeed();
    assert_eq!(outcome.stdout, expected);
    assert!(!outcome.stderr.contains("stay in RAM"), "{}", outcome.stderr);
    let stats = outcome.stats();
    assert!(stats.evicted_bytes > SIZE && stats.restored_bytes > SIZE, "{stats:?}");
}

#[test]
fn private_mappings_of_files_stay() {
    let directory = Directory::new("mapped");
    let path = directory.path().join("file");
    let file = std::fs::File::create(&path).expect("make a file");
    file.set_len(3 * SIZE).expect("as long as that");
    let path = path.display();
    stays_and_that_is_said(&format!(
        "{SLOWLY}
file = os.open('{path}', os.O_RDWR)
def until_said(mib):
    while mib == 300 and not os.path.exists(os.environ.get('SAID', '/')):
        time.sleep(0.01)
slowly(mmap.mmap(file, 3 * size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE), until_said)
"
    ));
}

/// They stay as long as they are there: afterwards the rank is within the budget again, which it finds in
/// what it holds itself.
#[test]
fn what_stayed_of_files_is_not_granted_for_ever() {
    let directory = Directory::new("mapped");
    let path = directory.path().join("file");
    let file = std::fs::File::create(&path).expect("make a file");
    file.set_len(SIZE).expect("as long as that");
    let path = path.display();
    let program = format!(
        "
def holds():
    return int(open('/proc/self/status').read().split('RssAnon:')[1].split()[0]) >> 10
def until(reached):
    end = time.monotonic() + 600
    while not reached(holds()):
        if time.monotonic() > end:
            return False
        zlib.adler32(memory[-1 << 20:])
    return True
file = os.open('{path}', os.O_RDWR)
mapped = fill(mmap.mmap(file, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
memory = fill(bytearray(size))
print('as little as stays', until(lambda mib: mib < 140), zlib.adler32(memory), zlib.adler32(mapped))
mapped.close()
memory = memory + memory
print('within', until(lambda mib: mib < 80), zlib.adler32(memory))
"
    );
    let expected = plainly(&program.replace("reached(holds())", "True"));
    let outcome = ranks("1", "80M", &program).succeed();
    assert_eq!(outcome.stdout, expected, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("stay in RAM"), "{}", outcome.stderr);
}

/// What it prints by itself.
fn plainly(program: &str) -> String {
    let output = std::process::Command::new("python3").args(["-c", &format!("{HEAD}{program}")]).output();
    let output = output.expect("python3");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a rank used of the processors is known when it has ended, also if nobody looked at it before.
#[test]
fn the_processor_time_of_a_short_rank_is_told() {
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done";
    let outcome = bdrun_args(["-np", "20", "--", "sh", "-c", script]).succeed();
    let used: Vec<f64> =
        outcome.stats().ranks.iter().map(|rank| rank.measured.as_ref().unwrap().cpu_s).collect();
    assert!(used.len() == 20 && used.iter().all(|&cpu_s| cpu_s > 0.0), "{used:?}");
}

/// What cannot be paged out counts as the most that it was, also once it is gone.
#[test]
fn shared_memory_that_was_given_back_was_there() {
    let dir = Directory::new("given-back");
    let at = |name: &str| dir.path().join(name);
    let program = "
import mmap, os, sys, time
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)
memory = mmap.mmap(-1, 200 << 20)
for place in range(0, len(memory), 4096):
    memory[place] = 1
wait(sys.argv[1])
memory.close()
wait(sys.argv[2])
";
    let marks = ["seen", "end"].map(|name| at(name).display().to_string());
    let words = ["-np", "1", "--memory", "4G", "--preload", "never", "--", "python3", "-c", program];
    let job = bdrun_args(words.into_iter().chain(marks.each_ref().map(String::as_str))).start();
    let held = |is_so: fn(u64) -> bool| job.sees(|rank| rank["held"].as_u64().is_some_and(is_so));
    // It may be filling it still, and goes on at once: so much is shared that was seen, beside its own.
    assert!(held(|held| held >= SIZE + 50 * MIB), "{}", job.situation());
    std::fs::write(at("seen"), "").unwrap();
    assert!(held(|held| held < SIZE / 2), "{}", job.situation());
    std::fs::write(at("end"), "").unwrap();
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let rank = outcome.stats().ranks[0].measured.as_ref().expect("measured from outside");
    assert!(rank.unmanaged_bytes >= rank.shared_bytes && rank.shared_bytes >= SIZE, "{rank:?}");
}
