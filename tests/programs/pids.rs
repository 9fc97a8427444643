//! A rank's process id is that of the machine: for the rank itself, for `/proc`, for the other ranks, and for
//! `bdrun`. And nothing of a job outlives it all the same, whoever is killed, daemons included.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::common::{Directory, Job, LIMIT, bdrun_args, poll, proc, skipped};

/// Both kinds of ranks: those that may join a communicator, and independent ones.
const KINDS: [&str; 2] = ["auto", "never"];

fn shell<'a>(np: &'a str, preload: &'a str, script: &'a str) -> [&'a str; 10] {
    ["-np", np, "--output", "quiet", "--preload", preload, "--", "sh", "-c", script]
}

#[test]
fn a_rank_finds_itself_in_proc() {
    // The shell's own number, and what the kernel says of that number and of whoever reads it.
    let script = "read -r name < /proc/$$/comm; read -r self rest < /proc/self/stat; \
                  echo $$ $self $name $BDRUN_PROCESS; kill -0 $$ && ps -o comm= -p $$";
    for kind in KINDS {
        let outcome = bdrun_args(shell("1", kind, script)).succeed();
        let mut lines = outcome.stdout.lines();
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [number, itself, name, process] = words[..] else { panic!("{outcome:?}") };
        assert_eq!((number, name), (itself, "sh"), "{kind}: {outcome:?}");
        assert_eq!(process.parse::<u32>().ok(), number.parse().ok(), "{kind}: {outcome:?}");
        assert_eq!(lines.next(), Some("sh"), "{kind}: {outcome:?}");
    }
}

/// As whoever looks at the job from outside sees it.
#[test]
fn a_ranks_number_is_the_machines() {
    for kind in KINDS {
        let script = "echo $BDRUN_RANK $$; exec sleep 1000";
        let mut job = bdrun_args(shell("2", kind, script)).start();
        let there = job.wait_for_ranks(2);
        let lines: Vec<String> = there.iter().map(|(rank, pid)| format!("{rank} {pid}\n")).collect();
        lines.iter().for_each(|line| job.wait_for_output(line));
        // Or by what that number is sent.
        proc::kill(there[1].1, libc::SIGKILL);
        let outcome = job.wait();
        outcome.failed_with(137, &["rank 1 was killed by SIGKILL"]);
    }
}

/// What countless scripts do: a file by the number of the process.
#[test]
fn files_by_process_id_of_two_jobs_do_not_meet() {
    for kind in KINDS {
        let dir = Directory::new("pids");
        let script = format!(
            "f={}/x.$$; test -e $f && echo taken; echo $JOB.$BDRUN_RANK > $f; sleep 0.7; read -r l < $f; echo $l",
            dir.path().display()
        );
        let jobs = ["a", "b"].map(|name| {
            bdrun_args(shell("2", kind, &script)).with(|command| command.env("JOB", name)).start()
        });
        for (job, name) in jobs.into_iter().zip(["a", "b"]) {
            let outcome = job.wait();
            let lines: BTreeSet<&str> = outcome.stdout.lines().collect();
            let expected = [0, 1].map(|rank| format!("{name}.{rank}"));
            assert_eq!(lines, expected.iter().map(String::as_str).collect(), "{kind}: {outcome:?}");
        }
        // None has written over another's.
        assert_eq!(std::fs::read_dir(dir.path()).expect("the directory").count(), 4, "{kind}");
    }
}

/// glibc names another thread by `/proc/self/task/<its number>/comm`; and a debugger, or LeakSanitizer, stops
/// threads by these numbers.
const NAMES_A_THREAD: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile int number;
static void *run(void *none) { number = syscall(SYS_gettid); for (;;) pause(); return none; }
int main(void) {
    pthread_t thread;
    char name[16] = "";
    pthread_create(&thread, NULL, run, NULL);
    while (!number) usleep(1000);
    int set = pthread_setname_np(thread, "other");
    int got = pthread_getname_np(thread, name, sizeof name);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", getpid(), number);
    int there = access(path, R_OK);
    printf("%s %s %s %s\n", strerror(set), strerror(got), name, there ? "missing" : "listed");
    return syscall(SYS_tgkill, getpid(), number, 0);
}
"#;

#[test]
fn threads_have_the_numbers_that_proc_lists() {
    let dir = Directory::new("threads");
    let source = dir.path().join("names.c");
    std::fs::write(&source, NAMES_A_THREAD).expect("write a file");
    let program = dir.path().join("names");
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).arg("-lpthread").status();
    assert!(built.is_ok_and(|status| status.success()), "the C compiler");
    let program = program.display().to_string();
    for kind in KINDS {
        let args = ["-np", "2", "--output", "quiet", "--preload", kind, "--", &program];
        let outcome = bdrun_args(args).succeed();
        assert_eq!(outcome.stdout, "Success Success other listed\n".repeat(2), "{kind}");
    }
}

/// A child in the rank's group, and one that has left parents, group and session.
const DAEMON: &str =
    "sleep 3000 & (setsid sh -c 'sleep 3001 & exec sleep 3002' &) ; echo started $BDRUN_RANK; sleep 3003";

fn with_daemons(kind: &str) -> Job {
    let job = bdrun_args(shell("2", kind, DAEMON)).start();
    job.wait_for_output("started 0");
    job.wait_for_output("started 1");
    let there = || {
        let sleeping = job.processes().iter().filter(|(_, name)| name == "sleep").count();
        // Those that look after it may have begun later than its ranks on a machine with much to do.
        (sleeping == 8 && keepers(&job).len() == 2).then_some(())
    };
    assert!(poll(LIMIT, there).is_some(), "{:?}", job.processes());
    job
}

/// The processes that look after the job besides the master: its children that are no ranks.
fn keepers(job: &Job) -> BTreeSet<i32> {
    let children = |pid: i32| {
        let text = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten();
        let text = text.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let numbers: Vec<i32> = text
            .flat_map(|line| line.split(' ').filter_map(|n| n.parse().ok()).collect::<Vec<_>>())
            .collect();
        numbers
    };
    let is_one = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.contains("keeper"))
    };
    children(job.pid()).into_iter().filter(is_one).collect()
}

#[test]
fn a_killed_master_leaves_no_daemon() {
    for kind in KINDS {
        let job = with_daemons(kind);
        job.signal(libc::SIGKILL);
        // That nothing with the job's mark is left is part of waiting for it.
        assert_eq!(job.wait().signal, Some(libc::SIGKILL), "{kind}");
    }
}

/// Each of the two that look after the job suffices.
#[test]
fn one_keeper_suffices() {
    for kind in KINDS {
        for which in 0..2 {
            let job = with_daemons(kind);
            let both: Vec<i32> = keepers(&job).into_iter().collect();
            assert_eq!(both.len(), 2, "{kind}: {:?}", job.processes());
            // The master stands still, so it replaces nobody.
            job.signal(libc::SIGSTOP);
            proc::kill(both[which], libc::SIGKILL);
            job.signal(libc::SIGKILL);
            assert_eq!(job.wait().signal, Some(libc::SIGKILL), "{kind}");
        }
    }
}

/// Whoever kills all by name (`pkill -9 bdrun`) kills the masters; the daemons go all the same.
#[test]
fn killing_by_name_leaves_nothing() {
    for kind in KINDS {
        let job = with_daemons(kind);
        job.signal(libc::SIGSTOP);
        for (pid, name) in job.processes() {
            if name.contains("bdrun") && pid != job.pid() {
                proc::kill(pid, libc::SIGKILL);
            }
        }
        job.signal(libc::SIGKILL);
        assert_eq!(job.wait().signal, Some(libc::SIGKILL), "{kind}");
    }
}

/// One that is killed is replaced; the job does not notice.
#[test]
fn a_killed_keeper_is_replaced() {
    for kind in KINDS {
        let job = with_daemons(kind);
        let first = keepers(&job);
        assert_eq!(first.len(), 2, "{kind}");
        first.iter().for_each(|&pid| proc::kill(pid, libc::SIGKILL));
        let replaced = || {
            let now = keepers(&job);
            (now.len() == 2 && now.is_disjoint(&first)).then_some(())
        };
        assert!(poll(LIMIT, replaced).is_some(), "{kind}: {first:?}, {:?}", keepers(&job));
        job.signal(libc::SIGKILL);
        assert_eq!(job.wait().signal, Some(libc::SIGKILL), "{kind}");
    }
}

/// A `bdrun` that is a rank of another goes with it, and so do its own ranks and their daemons.
#[test]
fn a_job_within_a_job_goes_with_it() {
    let bdrun = env!("CARGO_BIN_EXE_bdrun");
    for kind in KINDS {
        let script = format!("{bdrun} -np 2 --output quiet --preload {kind} -- sh -c \"$DAEMON\"");
        let job = bdrun_args(shell("1", kind, &script)).with(|command| command.env("DAEMON", DAEMON)).start();
        job.wait_for_output("started 0");
        job.wait_for_output("started 1");
        job.signal(libc::SIGKILL);
        assert_eq!(job.wait().signal, Some(libc::SIGKILL), "{kind}");
    }
}

/// Of a container that runs nothing else `bdrun` is process 1, to whom those come who lose their parent.
#[test]
fn as_process_1_it_reaps_orphans() {
    let words = || ["--pid", "--fork", "--kill-child", "--mount-proc"].map(String::from);
    let may = Command::new("unshare").args(words()).arg("true").output();
    if !may.is_ok_and(|output| output.status.success()) {
        return skipped("namespace", "no namespaces of one's own here");
    }
    let script = "pid=$(sh -c 'sleep 0.1 > /dev/null & echo $!'); looks=0
        while [ -e /proc/$pid ] && [ $looks -lt 600 ]; do sleep 0.05; looks=$((looks + 1)); done
        [ -e /proc/$pid ] && echo left || echo reaped; exit $BDRUN_RANK";
    let job = bdrun_args(["-np", "2", "--preload", "never", "--halt", "never", "--", "sh", "-c", script]);
    let outcome = job.by(Path::new("unshare"), words()).run();
    outcome.failed_with(1, &["rank 1 failed with exit code 1"]);
    assert_eq!(outcome.stdout, "reaped\nreaped\n", "{outcome:?}");
}
