//! Where things meet that know nothing of each other: ranks that wait for one another while memory is short,
//! children that are killed while their rank is moved, memory that somebody else writes, scripts around
//! programs of ours.

use std::process::Command;
use std::time::Duration;

use crate::common::chaos::{PYTHON, args, compiled, source};
use crate::common::refused::without;
use crate::common::{
    Directory, LIMIT, Outcome, bdrun, bdrun_args, first_of, late::Lateness, poll, proc, program, skipped,
};

/// How much more is to be done than is enough on an idle machine, until what is to happen meanwhile has.
const MORE: [u32; 3] = [1, 6, 30];

/// A job of one program under `--chaos`.
fn under_chaos(every: u32, command: &[String]) -> crate::common::Bdrun {
    let options = format!("-np 1 --chaos {every} --preload never --");
    bdrun_args(options.split(' ').map(String::from).chain(command.iter().cloned()))
}

/// An older rank waits for a younger one that must still grow: the younger takes its turn, and the older
/// makes room.
#[test]
fn an_older_rank_may_wait_for_a_younger_one_that_grows() {
    first_of(MORE, |seconds| {
        let dir = Directory::new("waits");
        let (script, flag) = (source("outside/waits.py"), dir.path().join("flag"));
        let command = args([&PYTHON, &script.display(), &"{rank}", &flag.display(), &seconds]);
        let options = "-np 2 --processors 2 --memory 100M --preload never --timeout 500s --";
        let outcome = bdrun_args(options.split(' ').map(String::from).chain(command)).succeed();
        assert!(outcome.stdout.contains("0 done") && outcome.stdout.contains("1 done"), "{outcome:?}");
        // They do not fit at once.
        (outcome.stats().evictions > 0).then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// Two that answer each other by a file each, and do not fit at once: they get through, and it is said why it
/// is slow.
#[test]
fn ranks_that_answer_each_other_take_turns_and_that_is_said() {
    first_of(MORE, |more| {
        let dir = Directory::new("turns");
        let (script, rounds) = (source("outside/ping.py"), 4 * more);
        let command = args([&PYTHON, &script.display(), &"{rank}", &dir.path().display(), &rounds]);
        let options = "-np 2 --processors 2 --memory 100M --preload never --timeout 500s --";
        let outcome = bdrun_args(options.split(' ').map(String::from).chain(command)).succeed();
        assert!(outcome.stdout.contains("0 done") && outcome.stdout.contains("1 done"), "{outcome:?}");
        outcome.stderr.contains("wait for one another").then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// Whoever kills a child of a rank (the kernel, when memory is short) may do so in the middle of a move: the
/// rank goes on, and so does moving it.
#[test]
fn a_child_that_is_killed_while_its_rank_is_moved_ends_nothing() {
    let script =
        "i=0; while [ $i -lt $0 ]; do sleep 1000 & wait $! 2>/dev/null; i=$((i+1)); done; echo through";
    first_of(MORE, |more| {
        let late = Lateness::new();
        let job = under_chaos(5, &args([&"sh", &"-c", &script, &(300 * more)])).start();
        let (mut killed, mut last) = (0, std::time::Instant::now());
        // On a busy machine all of them take a while; none does.
        let ended = poll(2 * LIMIT, || {
            let before = killed;
            for (_, pid) in job.ranks() {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                if name.trim() == "sleep" {
                    proc::kill(pid, libc::SIGKILL);
                    killed += 1;
                }
            }
            if killed > before {
                last = std::time::Instant::now();
            }
            assert!(last.elapsed() < LIMIT, "{killed} killed, and it does not go on");
            (killed > 0 && job.ranks().is_empty()).then_some(())
        });
        assert!(ended.is_some(), "{killed} killed, and it does not end");
        let outcome = job.wait();
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "through\n"), "{outcome:?}");
        let (ordered, done) = (outcome.stats().chaos_evictions, outcome.stats().evictions);
        assert!(killed >= 300 * more, "{killed} killed");
        if ordered < 25 {
            return Err(format!("{ordered} orders, {done} done"));
        }
        // Who gets no processor for half a second when it is to leave stays that time.
        let least = if late.most() < Duration::from_millis(250) { ordered * 8 / 10 } else { 20 };
        assert!(done >= least, "{killed} killed, {ordered} orders, {done} done");
        Ok(())
    });
}

/// What the kernel writes by itself, or kills at the first call it did not allow, is left in RAM.
#[test]
fn what_cannot_be_seen_through_is_only_held() {
    let dir = Directory::new("seams");
    for (name, says) in [
        ("provided_buffers", "all rounds right"),
        ("ring_in_own_memory", "bad 0"),
        ("mapped_device", "bad 0"),
        ("seccomp_strict", "done"),
    ] {
        let Some(path) = compiled(&dir, &format!("outside/{name}.c"), &["-w"]) else { return };
        if Command::new(&path).output().is_ok_and(|output| output.status.code() == Some(2)) {
            skipped("kernel", format!("{name}: not on this kernel"));
            continue;
        }
        first_of(MORE, |more| {
            let outcome = under_chaos(20, &args([&path.display(), &(40 * more)])).succeed();
            assert!(outcome.stdout.contains(says), "{name}: {outcome:?}");
            let said = outcome.stderr.contains("cannot be paged out now");
            said.then_some(()).ok_or(format!("{name}: {outcome:?}"))
        });
    }
}

/// Nor in parts, even where it begins only when some are out: nothing leaves any more, which is said.
#[test]
fn what_is_pinned_when_parts_are_out_stays() {
    let dir = Directory::new("seams");
    let Some(path) = compiled(&dir, "outside/pinned_late.c", &["-w"]) else { return };
    if Command::new(&path).arg("plainly").output().is_ok_and(|output| output.status.code() == Some(2)) {
        return skipped("kernel", "no io_uring here");
    }
    let command = args([&path.display()]);
    let options = "-np 1 --memory 60M --preload never --";
    let outcome = bdrun_args(options.split(' ').map(String::from).chain(command)).succeed();
    assert_eq!(outcome.stdout, "parts are out: 1\nread 1048576, lost 0, wrong 0\n", "{outcome:?}");
    // It may be looked at after the ring is made and before the buffer is pinned.
    let why = ["pinned", "io_uring"].iter().any(|&why| outcome.stderr.contains(why));
    assert!(why && outcome.stderr.contains("cannot be paged in parts any more"), "{outcome:?}");
}

/// Where kcmp(2) is refused, as in containers, ranks of several processes are paged all the same.
#[test]
fn ranks_of_two_processes_are_paged_where_kcmp_is_refused() {
    let script = "(i=0; while [ $i -lt $0 ]; do i=$((i+1)); sleep 0.05; done; echo inner) | cat";
    first_of(MORE, |more| {
        let bdrun = under_chaos(20, &args([&"sh", &"-c", &script, &(60 * more)]));
        let outcome = bdrun.with(|command| without(libc::SYS_kcmp, command)).succeed();
        assert_eq!(outcome.stdout, "inner\n");
        (outcome.stats().ranks[0].evictions >= 5).then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// A page that is locked stays; the rest moves, and nobody is run a second time.
#[test]
fn a_locked_page_makes_nobody_run_twice() {
    let dir = Directory::new("locked");
    let Some(path) = compiled(&dir, "outside/locked.c", &[]) else { return };
    first_of(MORE, |more| {
        let records = dir.path().join(format!("records.{more}"));
        let command = args([&path.display(), &"150", &"{rank}", &records.display(), &(4 * more)]);
        let options = "-np 2 --processors 2 --memory 220M --preload never --";
        let outcome = bdrun_args(options.split(' ').map(String::from).chain(command)).succeed();
        let mut lines: Vec<&str> = outcome.stdout.lines().filter(|line| line.starts_with("begin")).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["begin 0", "begin 1"], "{outcome:?}");
        let records = std::fs::read_to_string(records).expect("records");
        assert_eq!(records.lines().count(), 2, "{records}");
        (outcome.stats().evictions > 0).then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// Two ranks of a program that checks what it holds, in 110 MiB, which go on for long enough for this to be
/// seen of them.
fn two_right_in_110_mib(program: &str, seen: impl Fn(&Outcome) -> bool) {
    let dir = Directory::new(program);
    let Some(path) = compiled(&dir, &format!("outside/{program}.c"), &[]) else { return };
    first_of(MORE, |more| {
        let place = Directory::new(program);
        let command = args([&path.display(), &"{rank}", &place.path().display(), &more]);
        let options = "-np 2 --processors 2 --memory 110M --preload never --";
        let outcome = bdrun_args(options.split(' ').map(String::from).chain(command)).succeed();
        let mut lines: Vec<&str> = outcome.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["right 0", "right 1"], "{outcome:?}");
        seen(&outcome).then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// What is locked of one that is out, beside one that is in: more than the budget, though each of them fits.
/// That is said.
#[test]
fn locked_memory_of_those_that_are_out_counts() {
    two_right_in_110_mib("remnants", |outcome| {
        let said = outcome.stderr.contains("of others that cannot be paged out");
        // What of rank 1 stays is counted, also what it took after it was last looked at.
        let stats = outcome.stats();
        said && stats.overdraft_rank.is_some() && stats.peak_resident_bytes >= 119 << 20
    });
}

/// A rank with locked memory is held without being traced. While it is, it is not ordered out, which would
/// let it run unmeasured. On a busy machine it may have grown beyond the budget before anything that was
/// ordered takes effect, which is told.
#[test]
fn a_rank_held_without_being_traced_stays_held() {
    two_right_in_110_mib("frozen", |outcome| {
        let stats = outcome.stats();
        let told =
            stats.overdraft_rank.is_some() || outcome.stderr.contains("faster than they could be stopped");
        assert!(stats.peak_resident_bytes <= stats.budget_bytes || told, "{outcome:?}");
        // All of it was measured.
        stats.ranks[1].peak_bytes >= 60 << 20
    });
}

/// A rank that has used up its descriptors is paged when it has some again: nothing is broken.
#[test]
fn a_rank_without_free_descriptors_goes_on() {
    crate::preload::library();
    let script = source("outside/no_descriptors.py");
    let words =
        ["-np", "1", "--preload", "always", "--chaos", "20", "--", PYTHON, &script.display().to_string()];
    let outcome = bdrun_args(words).succeed();
    assert_eq!(outcome.stdout, "right\n", "{outcome:?}");
}

/// `--rerun` takes back what a stopped try printed, or is refused.
#[test]
fn running_again_is_asked_for_and_its_output_must_be_ours() {
    bdrun("-np 2 --rerun hello").run().failed_with(118, &["--output-files"]);
    // Those that are never run again are told so.
    crate::preload::library();
    let files = Directory::new("rerun");
    let at = files.path().join("{rank}").display().to_string();
    let with =
        |words: &[&str]| bdrun_args(["-np", "2", "--rerun", "--output-files", &at].iter().chain(words)).run();
    with(&["hello"]).failed_with(118, &["--rerun is for independent ranks"]);
    with(&["--preload", "always", "true"])
        .failed_with(118, &["--rerun is for ranks that are paged from outside"]);
}

/// A program with bdrun's runtime behind a shell script: from its hello on it has its own account, and the
/// budget holds.
#[test]
fn a_native_rank_behind_a_script_keeps_the_budget() {
    let sweep = program("sweep");
    let script = format!("{} \"$@\"; code=$?; echo script; exit $code", sweep.display());
    let plain =
        bdrun_args(["-np", "4", "--memory", "64M", &sweep.display().to_string(), "32M", "2"]).succeed();
    let words = ["-np", "4", "--memory", "64M", "sh", "-c", &script, "sh", "32M", "2"];
    let outcome = bdrun_args(words).succeed();
    let (budget, peak) = (outcome.stats().budget_bytes, outcome.stats().peak_resident_bytes);
    assert!(peak <= budget, "{peak} of {budget}; without the script {}", plain.stats().peak_resident_bytes);
    assert_eq!(outcome.stdout.matches("script").count(), 4);
    // It writes its own time: nobody else writes over that.
    assert!(outcome.stats().ranks.iter().all(|rank| rank.running_s > 0.0), "{outcome:?}");
}

/// A rank that was moved as a script, by a thread that held it, and is native by now moves itself: what that
/// thread was told last is over. Paged out for no need, and because memory is short.
#[test]
fn a_native_rank_that_was_moved_as_a_script_leaves_and_comes_back() {
    let sweep = program("sweep");
    let grows = "head -c 10M /dev/zero | tail -c 10M > /dev/null";
    for (np, options, script, evictions) in
        [("2", "--memory 64M --chaos 5", "sleep 0.3", 6), ("3", "--memory 24M", grows, 1)]
    {
        first_of(MORE, |more| {
            let phases = (4 * more).to_string();
            let plain = bdrun_args(["-np", np, &sweep.display().to_string(), "12M", &phases]).succeed();
            let script = format!("{script}; {} \"$@\"; exit $?", sweep.display());
            let words = ["-np", np, "--preload", "never"].into_iter().chain(options.split(' '));
            let bdrun = bdrun_args(words.chain(["sh", "-c", &script, "sh", "12M", &phases]));
            let outcome = bdrun.succeed();
            assert_eq!(outcome.stdout, plain.stdout, "{outcome:?}");
            (outcome.stats().evictions >= evictions).then_some(()).ok_or(format!("{outcome:?}"))
        });
    }
}
