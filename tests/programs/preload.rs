//! Programs not written for us, with `libsbmalloc.so` in front of them: the same results as without it,
//! although they are moved out of RAM and in again all the time.
//!
//! Their sources are in `preload/`. With `BDRUN_PRELOAD_FULL=1` they run at the sizes and counts of the
//! project's bar (`benches/preload`), which takes minutes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::chaos::{
    Chaos, PYTHON, args, compiled, lines, plainly, python_with, source, text, text_file,
};
use crate::common::{
    Bdrun, Directory, LIMIT, Outcome, bdrun, bdrun_args, executable_copy, first_of, limited, poll, proc,
    refused::without,
};
use crate::common::{libraries::libraries, program, skipped};

const MIB: u64 = 1 << 20;

/// The library, beside `bdrun`.
pub(crate) fn library() -> PathBuf {
    libraries().join("libsbmalloc.so")
}

fn scale() -> Chaos {
    let (np, every, least, work) = match std::env::var_os("BDRUN_PRELOAD_FULL") {
        Some(_) => (4, 20, 50, 6),
        None => (2, 20, 5, 1),
    };
    Chaos { np, every, least, work, preload: "always", nobody: false, limit: LIMIT }
}

fn same_under_chaos(command: impl Fn(usize) -> Vec<String>) {
    library();
    scale().same_output(command);
}

#[test]
fn numpy_arrays() {
    if python_with("numpy") {
        let script = source("preload/arrays.py");
        let mib = if scale().work > 1 { 512 } else { 32 };
        same_under_chaos(|work| {
            args([&PYTHON, &script.display(), &mib, &(if mib > 32 { 20 * work } else { 25 * work })])
        });
    }
}

#[test]
fn python_objects() {
    if python_with("hashlib") {
        let script = source("preload/objects.py");
        same_under_chaos(|work| args([&PYTHON, &script.display(), &(3 * work)]));
    }
}

#[test]
fn perl() {
    let script = source("preload/words.pl");
    same_under_chaos(|work| args([&"/usr/bin/perl", &script.display(), &(2 * work)]));
}

#[test]
fn threads_of_cpp() {
    let dir = Directory::new("preload");
    if let Some(program) = compiled(&dir, "preload/threads.cc", &["-O2"]) {
        same_under_chaos(|work| args([&program.display(), &(60 * work)]));
    }
}

/// A script that becomes a program which writes to `$out`, a file for each rank and one without bdrun; all
/// must be equal.
fn same_files_under_chaos(script: &str, lines: usize) {
    let dir = Directory::new("preload");
    let script = dir
        .script("script", &format!("#!/bin/bash\nout=$0.${{BDRUN_RANK:-plain}}\necho written\n{script}\n"));
    same_under_chaos(|work| {
        let file = text_file(&dir, lines * work);
        args([&script.display(), &file.display()])
    });
    let written =
        |whose: String| std::fs::read(dir.path().join(format!("script.{whose}"))).expect("its output");
    let expected = written("plain".into());
    assert!(expected.len() > 100_000);
    for rank in 0..scale().np {
        assert!(written(rank.to_string()) == expected, "rank {rank} wrote something else");
    }
}

/// With little memory, so that it sorts in files.
#[test]
fn sort() {
    same_files_under_chaos("exec sort -S 4M -T \"$(dirname \"$0\")\" -o \"$out\" \"$1\"", 200_000);
}

#[test]
fn gzip() {
    same_files_under_chaos("exec gzip -9 < \"$1\" > \"$out\"", 300_000);
}

#[test]
fn bash_with_children() {
    let script = source("preload/children.sh");
    same_under_chaos(|work| args([&"/bin/bash", &script.display(), &(60 * work)]));
}

/// One process through several programs, as where `python3` is a script that looks for the real one.
#[test]
fn a_rank_that_executes_other_programs() {
    if python_with("hashlib") {
        let dir = Directory::new("preload");
        let text = format!("#!/bin/bash\nx=$(echo yes)\nexec env FOUND=$x {PYTHON} \"$@\"\n");
        let (shim, script) = (dir.script("python", &text), source("preload/objects.py"));
        same_under_chaos(|work| args([&shim.display(), &script.display(), &(3 * work)]));
    }
}

/// What a program held before it executed another is no longer counted, and what a child of fork holds only
/// while it lives: 30 MiB beside 90.
#[test]
fn the_account_of_a_program_ends_with_it() {
    library();
    if !python_with("hashlib") {
        return;
    }
    let line = "import os, sys; n = int(sys.argv[1]); a = bytearray(60 << 20); pid = os.fork(); b = bytearray(30 << 20); \
                pid or os._exit(0); c = os.waitpid(pid, 0); \
                os.execv(sys.executable, [sys.executable, '-c', sys.argv[2], str(n - 1), sys.argv[2]]) if n else print('end')";
    let job = ["-np", "2", "--preload", "always", "--memory", "8G", PYTHON, "-c", line, "4", line];
    let outcome = bdrun_args(job).succeed();
    assert_eq!(outcome.stdout, "end\nend\n");
    let stats = outcome.stats();
    assert!(stats.demand_bytes >= 90 * MIB && stats.demand_bytes < 2 * 140 * MIB, "{stats:?}");
    for rank in &stats.ranks {
        assert!((90 * MIB..140 * MIB).contains(&rank.peak_bytes), "{stats:?}");
    }
}

/// They fit one after the other only, and nobody of them knows.
#[test]
fn more_memory_than_there_is() {
    library();
    let script = source("preload/objects.py");
    if !python_with("hashlib") {
        return;
    }
    let words = args([&PYTHON, &script.display(), &8]);
    let expected = text(&plainly(&words).stdout);
    let options = ["-np", "4", "--memory", "40M", "--preload", "always"].map(String::from);
    let outcome = bdrun_args(options.into_iter().chain(words)).succeed();
    assert_eq!(lines(&outcome.stdout, 1), lines(&expected, 4));
    let stats = outcome.stats();
    assert!(stats.demand_bytes > stats.budget_bytes, "{stats:?}");
}

fn c_program_is_ok(name: &str, flags: &[&str], seconds: u32) {
    let library = library();
    let dir = Directory::new("preload");
    let Some(program) = compiled(&dir, &format!("preload/{name}"), flags) else { return };
    assert_eq!(text(&plainly(&args([&program.display(), &0])).stdout), "ok\n", "without the library");
    let mut alone = Command::new(&program);
    let alone = limited(alone.arg("0").env("LD_PRELOAD", &library), LIMIT);
    assert_eq!((text(&alone.stdout).as_str(), text(&alone.stderr)), ("ok\n", String::new()), "without bdrun");
    // On a busy machine it may be through before it is moved.
    first_of([1, 5, 25], |times| {
        let words = args([&program.display(), &(seconds * times)]);
        let options = ["-np", "2", "--chaos", "5", "--preload", "always"].map(String::from);
        let outcome = bdrun_args(options.into_iter().chain(words)).succeed();
        assert_eq!(outcome.stdout, "ok\nok\n");
        let moved = outcome.stats().evictions > 0 || seconds == 0;
        moved.then_some(()).ok_or(format!("{:?}", outcome.stats()))
    });
}

#[test]
fn the_functions_of_c() {
    c_program_is_ok("alloc.c", &["-ldl"], 1);
}

#[test]
fn new_and_delete() {
    c_program_is_ok("new.cc", &[], 0);
}

#[test]
fn mappings() {
    c_program_is_ok("map.c", &[], 2);
}

#[test]
fn system_calls_of_threads() {
    c_program_is_ok("io.c", &[], 2);
}

/// A handler that comes while its thread gives memory back that is out may wait like any other code. (The
/// thread waited for a lock that it had itself.)
#[test]
fn a_handler_in_the_middle_of_a_free() {
    c_program_is_ok("frees.c", &[], 3);
}

/// It is not moved while it may have transfers under way, which is said, and afterwards it is.
#[test]
fn asynchronous_reads_lose_nothing() {
    library();
    let dir = Directory::new("aio");
    let Some(program) = compiled(&dir, "preload/aio.c", &["-w"]) else { return };
    let job = |words: &[&str]| {
        let words = [&program.display().to_string()]
            .map(String::from)
            .into_iter()
            .chain(words.iter().map(|&w| w.into()));
        let options = ["-np", "2", "--chaos", "5", "--preload", "always", "--"].map(String::from);
        bdrun_args(options.into_iter().chain(words)).run()
    };
    for (seconds, kind) in [(2, None), (1, Some("uring"))] {
        // How soon it may leave is a matter of the machine's load.
        first_of([1, 5, 25], |times| {
            let seconds = (seconds * times).to_string();
            let outcome = job(&[&*seconds].into_iter().chain(kind).collect::<Vec<_>>());
            if outcome.code == Some(77) {
                skipped("kernel", format!("no asynchronous I/O of this kind here: {kind:?}"));
                return Ok(());
            }
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "ok\nok\n"), "{outcome:?}");
            let moved = outcome.stats().evicted_bytes > MIB;
            // It may have been evicted before it made the ring, which was before it filled its memory.
            assert!(!moved || kind.is_none(), "{outcome:?}");
            let said = outcome.stderr.contains("asynchronous I/O of its own");
            (said && moved == kind.is_none()).then_some(()).ok_or(format!("{outcome:?}"))
        });
    }
}

/// Nor what a device may be at work on, whose descriptor is closed.
#[test]
fn a_program_that_has_a_device_mapped_stays() {
    library();
    let dir = Directory::new("device");
    let Some(program) = compiled(&dir, "outside/mapped_device.c", &["-w"]) else { return };
    if Command::new(&program).output().is_ok_and(|output| output.status.code() == Some(2)) {
        return skipped("root", "no file can be made in /dev");
    }
    first_of([20, 100, 500], |rounds| {
        let words = args([&program.display(), &rounds]);
        let options = ["-np", "2", "--chaos", "5", "--preload", "always", "--"].map(String::from);
        let outcome = bdrun_args(options.into_iter().chain(words)).succeed();
        assert_eq!(outcome.stdout, "bad 0\nbad 0\n", "{outcome:?}");
        assert!(outcome.stats().evicted_bytes < MIB, "{outcome:?}");
        let said = outcome.stderr.contains("asynchronous I/O of its own");
        said.then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// A thread that blocks all signals and waits for them stands like any other, and is told of those alone that
/// the program sends; where it waits for something else its rank stays, which is said.
#[test]
fn threads_that_block_all_signals() {
    library();
    let dir = Directory::new("signals");
    let Some(program) = compiled(&dir, "preload/signals.c", &["-pthread"]) else { return };
    for (waits, moves) in [("waits", true), ("blocks", false)] {
        first_of([100, 500, 2500], |rounds| {
            let words = args([&program.display(), &rounds, &waits]);
            let options = ["-np", "2", "--chaos", "5", "--preload", "always"].map(String::from);
            let outcome = bdrun_args(options.into_iter().chain(words)).succeed();
            let timed = if moves { "timed" } else { "none timed" };
            let expected = format!("bad 0, strange 0, early 0, {timed}\n");
            assert_eq!(outcome.stdout, expected.repeat(2), "{}", outcome.stderr);
            let moved = outcome.stats().evicted_bytes > 20 * MIB;
            let said = outcome.stderr.contains("a thread of it does not stand still");
            (moved == moves && said != moves).then_some(()).ok_or(format!("{outcome:?}"))
        });
    }
}

/// Other threads took some of what was set aside for the one that asked, or were given some memory again as
/// soon as their rank had left: whoever needed more than there is never got all of it.
#[test]
fn threads_that_allocate_all_the_time_leave_what_another_asked_for() {
    library();
    let dir = Directory::new("storm");
    let Some(program) = compiled(&dir, "preload/storm.c", &["-pthread"]) else { return };
    let words = args([&program.display(), &2]);
    let expected = text(&plainly(&words).stdout);
    let options = ["-np", "3", "--memory", "60M", "--preload", "always", "--timeout", "900s"];
    let outcome = bdrun_args(options.map(String::from).into_iter().chain(words)).succeed();
    assert_eq!(lines(&outcome.stdout, 1), lines(&expected, 3), "{}", outcome.stderr);
}

/// By `/proc/self` nothing is told once the first thread has ended: nothing could be brought in, for ever.
#[test]
fn a_program_whose_first_thread_ends() {
    library();
    let dir = Directory::new("first-ends");
    let Some(program) = compiled(&dir, "outside/first_ends.c", &["-pthread"]) else { return };
    let expected = text(&plainly(&args([&program.display(), &4])).stdout);
    // Only one of three has room, and each leaves whenever another comes.
    let words = args([&program.display(), &4]);
    let options =
        ["-np", "3", "--memory", "100M", "--chaos", "5", "--preload", "always", "--timeout", "500s"];
    let outcome = bdrun_args(options.map(String::from).into_iter().chain(words)).succeed();
    assert_eq!(lines(&outcome.stdout, 1), lines(&expected, 3), "{}", outcome.stderr);
    let stats = outcome.stats();
    assert!(stats.evicted_bytes > 20 * MIB && stats.restored_bytes > 20 * MIB, "{stats:?}");
}

/// A program on the `worker` crate attaches itself, also where the library got in front of it by an `exec`.
#[test]
fn programs_of_ours_are_left_alone() {
    library();
    let expected = bdrun("-np 3 --preload never sweep 4M 3").succeed().stdout;
    assert_eq!(bdrun("-np 3 --preload always sweep 4M 3").succeed().stdout, expected);
    let line = format!("exec {} 4M 3", program("sweep").display());
    let outcome =
        bdrun_args(["-np", "3", "--chaos", "5", "--preload", "always", "bash", "-c", &line]).succeed();
    assert_eq!(outcome.stdout, expected);
    assert_eq!(outcome.stats().message_bytes, bdrun("-np 3 sweep 4M 3").succeed().stats().message_bytes);
}

fn shows_preload(job: Bdrun) -> Outcome {
    job.with(|command| command.env("LD_PRELOAD", "libm.so.6")).succeed()
}

#[test]
fn when_it_is_preloaded() {
    let library = library();
    let shell = |when: &str| {
        let args = ["-np", "1", "--preload", when, "sh", "-c", "echo $LD_PRELOAD"];
        shows_preload(bdrun_args(args))
    };
    let (both, alone) = (format!("{}:libm.so.6\n", library.display()), "libm.so.6\n".to_owned());
    assert_eq!((&shell("always").stdout, &shell("never").stdout), (&both, &alone));
    // Where ranks can be paged from outside, nothing is put in front of them; where they cannot, that is
    // said.
    let auto = shell("auto");
    assert_eq!(auto.stdout, if auto.stderr.contains("using --preload") { both } else { alone });

    // Where the library is not found.
    let dir = Directory::new("preload");
    let lonely = dir.path().join("bdrun");
    executable_copy(Path::new(env!("CARGO_BIN_EXE_bdrun")), &lonely);
    let run = |when: &str| {
        limited(Command::new(&lonely).args(["--preload", when, "--output", "quiet", "echo", "x"]), LIMIT)
    };
    let auto = run("auto");
    assert_eq!(
        (auto.status.code(), text(&auto.stdout), text(&auto.stderr)),
        (Some(0), "x\n".into(), String::new())
    );
    let always = run("always");
    assert_eq!(always.status.code(), Some(120));
    assert!(
        text(&always.stderr).contains("libsbmalloc.so") && text(&always.stderr).contains("--preload never")
    );

    // Where it can do nothing.
    std::fs::write(dir.path().join("main.c"), "int main(void) { return 0; }").expect("write a source");
    let fixed = dir.path().join("fixed");
    let mut compiler = Command::new("gcc");
    compiler.arg("-static").arg(dir.path().join("main.c")).arg("-o").arg(&fixed);
    if !compiler.output().is_ok_and(|output| output.status.success()) {
        return skipped("libc-static", "cannot link statically");
    }
    let job = |when: &str| bdrun_args(["--preload", when, &fixed.display().to_string()]);
    job("auto").succeed();
    job("always").run().failed_with(120, &["linked statically", "--preload never"]);
}

/// Also where ranks are preloaded for want of another way to page them.
#[test]
fn no_more_live_than_are_asked_for() {
    library();
    let dir = Directory::new("preload-jobs");
    let script = "
import os, sys, time
folder, rank = sys.argv[1:]
own = os.path.join(folder, rank)
open(own, 'w').close()
most = 0
for _ in range(20):
    most = max(most, len(os.listdir(folder)))
    time.sleep(0.01)
os.remove(own)
print('most', most)
";
    let options = ["-np", "9", "-j", "2", "--memory", "300M", "--verbose"];
    let command = [PYTHON, "-c", script, dir.path().to_str().expect("UTF-8"), "{rank}"];
    let job = bdrun_args(options.iter().chain(&command));
    let outcome = job.with(|command| without(libc::SYS_ptrace, command)).succeed();
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    assert!(lines.len() == 9 && lines.iter().all(|line| ["most 1", "most 2"].contains(line)), "{outcome:?}");
}

/// Two hold 35 MiB of 120, and what Python does, and the second waits for 40 more: what it has is free when
/// it is killed, and it is not given what it waited for then. The third needs what it had.
#[test]
fn what_is_awaited_by_a_rank_that_is_killed_is_given_to_nobody() {
    library();
    const SCRIPT: &str = "
import os, sys, time
rank, folder = sys.argv[1:]
at = lambda name: os.path.join(folder, name)
def hold(mib):
    memory = bytearray(mib << 20)
    for page in range(0, len(memory), 4096):
        memory[page] = 1
    return memory
def wait(name):
    while not os.path.exists(at(name)):
        time.sleep(0.01)
if rank == '0':
    held = hold(35)
    open(at('first'), 'w')
    # It computes: nobody is forced in meanwhile.
    while not os.path.exists(at('third')):
        pass
elif rank == '1':
    wait('first')
    held = hold(35)
    more = hold(40)
else:
    wait('killed')
    held = hold(50)
    open(at('third'), 'w')
print('ok', rank)
";
    let dir = Directory::new("killed-waiting");
    let options =
        ["-np", "3", "--processors", "3", "--memory", "120M", "--preload", "always", "--keep-going"];
    let command = [PYTHON, "-c", SCRIPT, "{rank}", dir.path().to_str().expect("UTF-8")];
    let job = bdrun_args(options.iter().chain(&command));
    // Nobody who computes can be made to leave.
    let job = job.with(|command| without(libc::SYS_ptrace, command)).start();
    assert!(job.sees(|rank| rank["rank"] == 1 && rank["activity"] == "waiting"), "{}", job.situation());
    let second = job.ranks().into_iter().find(|&(rank, _)| rank == 1).expect("it waits").1;
    proc::kill(second, libc::SIGKILL);
    let killed = poll(LIMIT, || job.ranks().iter().all(|&(rank, _)| rank != 1).then_some(()));
    assert!(killed.is_some(), "{}", job.situation());
    std::fs::write(dir.path().join("killed"), "").expect("a file");
    let outcome = job.wait();
    outcome.failed_with(137, &["rank 1 was killed by SIGKILL"]);
    assert!(["ok 0\n", "ok 2\n"].iter().all(|line| outcome.stdout.contains(line)), "{outcome:?}");
    assert_eq!(outcome.stats().overdraft_rank, None, "{outcome:?}");
}

/// What it asked for itself is what it held: written down, and set aside twice over where it is run again for
/// want of memory.
#[test]
fn what_a_rank_asked_for_stands_in_the_journal() {
    library();
    let dir = Directory::new("preloaded-peak");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (journal, output) = (at("journal"), at("out"));
    let options = ["-np", "1", "--memory", "1G", "--preload", "always", "--journal", &journal];
    let script = "print(len(b'x' * (64 << 20)))";
    let more = ["--output-files", &output, "--", PYTHON, "-c", script];
    let outcome = bdrun_args(options.iter().chain(&more)).succeed();
    let text = std::fs::read_to_string(&journal).expect("a journal");
    let line = text.lines().find_map(|line| line.split_once("\"peak\":"));
    let digits = |(_, rest): (&str, &str)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    let peak: u64 = line.and_then(digits).unwrap_or_else(|| panic!("no peak: {text}"));
    assert!(peak >= 64 * MIB, "{peak}: {text}");
    assert_eq!(peak, outcome.stats().ranks[0].peak_bytes, "{outcome:?}");
}
