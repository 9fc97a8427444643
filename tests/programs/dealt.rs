//! Independent parts, dealt out over several nodes by the first node's master: each is run once,
//! by whoever can begin it, and what is written down of them is written down for all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::slurm::Slurm;
use crate::common::{Bdrun, Directory, LIMIT, Outcome, bdrun_args, first_of, poll, proc};
use crate::nodes::Launcher::{self, Mpich, OpenMpi};
use crate::nodes::{SILENCE, wait_for_masters};

/// A folder with a list of `p0` to `pN`, and a program that says in `ran` which master runs it, and does what
/// `do` says: it has the folder as `there`.
struct Bench {
    dir: Directory,
    parts: u32,
}

impl Bench {
    fn new(name: &str, parts: u32, what: &str) -> Self {
        let dir = Directory::new(name);
        fs::create_dir(dir.path().join("out")).unwrap();
        let list: String = (0..parts).map(|part| format!("p{part}\n")).collect();
        fs::write(dir.path().join("list"), list).unwrap();
        fs::write(dir.path().join("do"), what).unwrap();
        let script = "#!/bin/bash
            there=${0%/*}
            echo \"$1 $BDRUN_RANK $PPID $$\" >> $there/ran
            . $there/do
            echo \"result of $1\"\n";
        dir.script("program", script);
        Self { dir, parts }
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    /// On so many nodes of a launcher, if it is there.
    fn on(&self, launcher: Launcher, nodes: u32, options: &str) -> Option<Bdrun> {
        let named = |word: &str| word.replace("%/", &self.at(""));
        let options: Vec<String> = options.split_whitespace().map(named).collect();
        let line = ["--parts".into(), self.at("list"), "--memory".into(), "64M".into()];
        let command = ["--".into(), self.at("program"), "{}".into()];
        launcher.on(nodes, bdrun_args(line.into_iter().chain(options).chain(command)))
    }

    /// How often each part was run, and by how many masters all of them were.
    fn ran(&self) -> (BTreeMap<String, u32>, usize) {
        let ran = self.read("ran");
        let (mut times, mut masters) = (BTreeMap::new(), BTreeSet::new());
        for line in ran.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[0], format!("p{}", words[1]), "the rank is the part's number: {line}");
            *times.entry(words[0].to_owned()).or_default() += 1;
            masters.insert(words[2].to_owned());
        }
        (times, masters.len())
    }

    /// The parts that this master has begun.
    fn begun_on(&self, master: i32) -> BTreeSet<String> {
        let ran = self.read("ran");
        let words = ran.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        words.filter(|words| words[2].parse() == Ok(master)).map(|words| words[0].to_owned()).collect()
    }

    /// The process of a part that was begun.
    fn pid_of(&self, part: &str) -> Option<i32> {
        let ran = self.read("ran");
        ran.lines().find(|line| line.starts_with(&format!("{part} ")))?.split(' ').nth(3)?.parse().ok()
    }

    /// A part that this master ran, and that the journal has the end of.
    fn ended_on(&self, master: i32) -> Option<u32> {
        let (ran, journal) = (self.read("ran"), self.read("journal"));
        let mut parts = ran.lines().filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.get(2)?.parse() == Ok(master)).then(|| words[1].parse().ok())?
        });
        parts.find(|part| journal.contains(&format!("\"rank\":{part},")))
    }

    /// Each was run once, and nothing is left aside.
    fn all_ran_once(&self) {
        let (times, _) = self.ran();
        assert_eq!(times.len() as u32, self.parts, "{times:?}");
        assert!(times.values().all(|&times| times == 1), "{times:?}");
    }

    fn outputs(&self) -> Vec<PathBuf> {
        let mut all: Vec<_> =
            fs::read_dir(self.at("out")).unwrap().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all
    }
}

/// Has a part wait until each of so many masters runs one: that one of them gets none at all, or only some of
/// a kind, is else a matter of chance.
fn once_all_run(nodes: u32) -> String {
    let all = format!("[ $(ls -d $there/on-* | wc -l) -ge {nodes} ]");
    format!("mkdir -p $there/on-$PPID; until {all}; do sleep 0.05; done; ")
}

fn said_once(outcome: &Outcome, words: &str) {
    assert_eq!(outcome.stderr.matches(words).count(), 1, "{words}: {outcome:?}");
}

#[test]
fn each_part_is_run_once_by_whoever_is_free() {
    for (launcher, nodes) in [(Mpich, 2), (OpenMpi, 3)] {
        // The first takes as long as all others together: who has it gets few others.
        let what = once_all_run(nodes) + "[ $1 = p0 ] && sleep 3 || sleep 0.1";
        let bench = Bench::new("dealt", 60, &what);
        let options = "--processors 2 --output-files %/out/{} --joblog %/log --journal %/journal";
        let Some(job) = bench.on(launcher, nodes, options) else { continue };
        let outcome = job.succeed();
        bench.all_ran_once();
        assert_eq!(bench.ran().1, nodes as usize, "all nodes run some");
        let outputs = bench.outputs();
        assert_eq!(outputs.len(), 60, "{outputs:?}");
        assert!(outputs.iter().all(|path| fs::read_to_string(path).unwrap().starts_with("result of p")));
        let log = bench.read("log");
        let mut numbers: Vec<u32> =
            log.lines().skip(1).map(|line| line.split('\t').next().unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(1..=60), "{log}");
        let stats = outcome.stats();
        assert!(stats.ranks.iter().map(|rank| rank.rank).eq(0..60), "{stats:?}");
        assert!(stats.ranks.iter().all(|rank| rank.status == "ok"), "{stats:?}");
        assert_eq!(bench.read("journal").lines().count(), 61);
    }
}

/// What was done is not done again, on however many nodes.
#[test]
fn a_job_on_several_nodes_goes_on() {
    // However late the failure is heard of, the last parts have not ended by then.
    let what = "[ -e $there/well ] || case $1 in p17) exit 9;; p2?) sleep 1000;; esac; sleep 0.05";
    let bench = Bench::new("goes-on", 30, what);
    let options = "--output-files %/out/{} --joblog %/log";
    let Some(job) = bench.on(Mpich, 2, &format!("-j 2 --journal %/journal {options}")) else { return };
    let outcome = job.run();
    outcome.failed_with(9, &["p17", "exit code 9", "to go on: "]);
    let first = bench.ran().0;
    assert!(first.len() < 30, "it ends at the first failure: {first:?}");
    let done = bench.outputs().iter().filter(|path| path.extension().is_none()).count();
    fs::write(bench.at("well"), "").unwrap();
    let outcome = bench.on(Mpich, 3, &format!("--resume %/journal {options}")).unwrap().succeed();
    said_once(&outcome, &format!("{done} of 30 ranks were done before"));
    assert_eq!(bench.outputs().len(), 30);
    let (times, _) = bench.ran();
    assert_eq!(times.len(), 30);
    // Again were run only those that had not ended well.
    assert_eq!(times.values().sum::<u32>() as usize, first.len() + 30 - done, "{times:?}");
    // There is nothing left.
    let outcome = bench.on(Mpich, 2, &format!("--resume %/journal {options}")).unwrap().succeed();
    said_once(&outcome, "30 of 30 ranks were done before");
}

/// A device is nobody's file, and is not made anew for each.
#[test]
fn what_nobody_wants_goes_to_a_device() {
    let bench = Bench::new("device", 6, "true");
    if let Some(job) = bench.on(Mpich, 2, "--journal %/journal --output-files /dev/null") {
        job.succeed();
        bench.all_ran_once();
    }
}

/// All that fails counts, wherever that is.
#[test]
fn failures_are_counted_over_all_nodes() {
    let fails = "case $1 in *[05]) echo $1 >> $there/fails; exit 5; esac; sleep 0.05";
    // The first part of each node fails, too.
    let first = "mkdir $there/first-$PPID 2>/dev/null && { echo $1 >> $there/fails; exit 5; }; ";
    let bench = Bench::new("keep-going", 40, &(once_all_run(2) + first + fails));
    let Some(job) = bench.on(Mpich, 2, "--keep-going --processors 1") else { return };
    let outcome = job.run();
    let failed = bench.read("fails").lines().count();
    assert!((8..=10).contains(&failed), "{failed}: {outcome:?}");
    let said = [&format!("{failed} of 40 ranks failed"), ", on node 1 (", "), failed with exit code 5"];
    outcome.failed_with(5, &said);
    assert_eq!(outcome.stats().status, "rank-failed", "{outcome:?}");
    bench.all_ran_once();
    let bench = Bench::new("soon", 400, fails);
    let outcome = bench.on(Mpich, 2, "--halt soon,fail=3 --processors 1").unwrap().run();
    outcome.failed_with(5, &["no other rank is begun (--halt soon,fail=3)"]);
    let ran = bench.ran().0.len();
    assert!((3..400).contains(&ran), "{ran}: {outcome:?}");
    let stats = outcome.stats();
    let (well, all) = (|status: &str| stats.ranks.iter().filter(|rank| rank.status == status).count(), 400);
    assert_eq!((stats.ranks.len(), well("unborn")), (all, all - ran), "{outcome:?}");
    let bench = Bench::new("now", 400, "[ $1 != p11 ] || sleep 1000; sleep 0.05");
    let outcome = bench.on(OpenMpi, 2, "--halt now,success=5% --processors 1").map(Bdrun::succeed);
    if let Some(outcome) = outcome {
        said_once(&outcome, "(--halt now,success=5%): the others are ended");
        assert!(bench.ran().0.len() < 400, "{outcome:?}");
    }
    // Tries of one part are made where it is.
    let bench = Bench::new("retry", 12, "n=${0%/*}/try-$1; echo x >> $n; [ $(wc -l < $n) -ge 3 ] || exit 4");
    bench.on(Mpich, 2, "--retry 2 --joblog %/log --output-files %/out/{}").unwrap().succeed();
    assert!(bench.ran().0.values().all(|&times| times == 3));
    assert_eq!(bench.read("log").lines().count(), 1 + 36);
}

/// One that is killed for what it holds is told of with that reason, once it has ended.
#[test]
fn who_exceeds_its_limit_on_another_node_is_told() {
    let hog = "[ $1 != p3 ] || exec python3 -c 'import time; held = bytearray(80 << 20); time.sleep(1000)'; sleep 0.1";
    let bench = Bench::new("limit", 12, hog);
    let options = "--keep-going --processors 1 --rank-memory 40M --joblog %/log";
    let Some(job) = bench.on(Mpich, 2, options) else { return };
    let outcome = job.run();
    outcome.failed_with(123, &["p3", "memory limit exceeded"]);
    bench.all_ran_once();
    assert_eq!(bench.read("log").lines().count(), 1 + 12, "{}", bench.read("log"));
}

/// The pictures are of all nodes.
#[test]
fn the_trace_has_the_ranks_of_all_nodes() {
    if Mpich.path().is_none() {
        return;
    }
    // That one runs is seen late on a busy machine.
    first_of([0.3, 3.0, 30.0], |seconds| {
        let bench = Bench::new("trace", 8, &format!("sleep {seconds}"));
        let job = bench.on(Mpich, 2, "--processors 1 --trace %/trace --report %/page");
        job.expect("it is there").succeed();
        let trace: serde_json::Value = serde_json::from_str(&bench.read("trace")).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let done = events.iter().filter(|event| event["name"] == "ranks");
        let done: Vec<u64> = done.filter_map(|event| event["args"]["done"].as_u64()).collect();
        assert!(done.is_sorted() && done.first() == Some(&0), "{done:?}");
        // Those that end at once at the end are in no sample.
        let nearly_all = done.last() >= Some(&6);
        assert!(bench.read("page").contains("p7"));
        let ran = |rank: u32| {
            let of = |event: &&serde_json::Value| event["cat"] == "rank" && event["tid"] == rank + 1;
            let runs = events.iter().filter(of).filter(|event| event["name"] == "running");
            runs.filter_map(|event| event["dur"].as_f64()).sum::<f64>()
        };
        let runs: Vec<f64> = (0..8).map(ran).collect();
        let seen = runs.iter().all(|&micros| micros >= 650_000.0 * seconds);
        (seen && nearly_all).then_some(()).ok_or(format!("{runs:?} {done:?}"))
    });
}

/// What is learned is learned of all nodes' parts.
#[test]
fn all_nodes_learn() {
    if Mpich.path().is_none() {
        return;
    }
    // Of those that were looked at.
    first_of([0.6, 6.0, 60.0], |seconds| {
        let bench = Bench::new("learn", 12, &format!("{}sleep {seconds}", once_all_run(2)));
        bench.on(Mpich, 2, "--learn %/learned").expect("it is there").succeed();
        assert_eq!(bench.ran().1, 2);
        let learned = bench.read("learned");
        if !(0..12).all(|part| learned.contains(&format!("\"p{part}\""))) {
            return Err(learned);
        }
        bench.on(Mpich, 2, "--learn %/learned").unwrap().succeed();
        Ok(())
    });
}

/// What a node had that dies is run by others.
#[test]
fn the_parts_of_a_node_that_dies_are_run_by_others() {
    let options = "--processors 2 --output-files %/out/{} --journal %/journal --joblog %/log";
    for (launcher, which, signal) in [
        (Launcher::OpenMpiThatStays, 1, libc::SIGKILL),
        (Launcher::MpichThatStays, 2, libc::SIGKILL),
        (Launcher::MpichThatStays, 1, libc::SIGSTOP),
    ] {
        // The first part of each master ends, all others only once one of the masters has.
        let hold = "mkdir ${0%/*}/first-$PPID 2>/dev/null || while [ -e ${0%/*}/hold ]; do sleep 0.1; done";
        let bench = Bench::new("dies", 40, &format!("{hold}; sleep 0.3"));
        fs::write(bench.at("hold"), "").unwrap();
        let Some(job) = bench.on(launcher, 3, options) else { continue };
        let mut job = job.with(|command| command.env(SILENCE, "30")).start();
        job.wait_for_ranks(6);
        let victim = masters_by_node(&job, 3)[which];
        let ended = || bench.ended_on(victim);
        let ended = poll(LIMIT, ended).unwrap_or_else(|| panic!("{}", job.situation()));
        // It has another one, for which the others wait until it is known to be lost.
        let goes_on = || (bench.begun_on(victim).len() > 1).then_some(());
        assert!(poll(LIMIT, goes_on).is_some(), "{}", job.situation());
        proc::kill(victim, signal);
        let known = bench.read("journal");
        fs::remove_file(bench.at("hold")).unwrap();
        job.wait_for_error(&format!("the master of node {which} has said nothing for 30 s"));
        let there = || (bench.outputs().len() == 40).then_some(());
        assert!(poll(LIMIT, there).is_some(), "{}", job.situation());
        if signal == libc::SIGSTOP {
            // It is not killed by anybody: once it goes on it finds that it is alone.
            proc::kill(victim, libc::SIGCONT);
        }
        let outcome = job.wait();
        said_once(&outcome, "of the parts, ");
        assert!(bench.outputs().iter().all(|path| path.extension().is_none()), "{:?}", bench.outputs());
        let (times, masters) = bench.ran();
        // What it had begun may not have come to say so.
        assert!(times.len() == 40 && masters >= 2, "{masters} {times:?}");
        // At most what it had begun, and was not known to have ended, was run again, once: how much that is,
        // beside the two that compute, is a matter of the machine's load.
        let mut its = bench.begun_on(victim);
        its.retain(|part| !known.contains(&format!("\"rank\":{},", &part[1..])));
        let again = times.iter().filter(|&(part, &times)| times > 1 + u32::from(its.contains(part)));
        assert_eq!(again.count(), 0, "{its:?} {times:?}");
        // What had ended there was not, and is not lost.
        assert_eq!(times[&format!("p{ended}")], 1, "{times:?}");
        let ranks = &outcome.stats().ranks;
        assert!(ranks.iter().map(|rank| rank.rank).eq(0..40), "{ranks:?}");
        assert!(ranks.iter().all(|rank| rank.status == "ok"), "{ranks:?}");
    }
}

/// A master that is stopped in the moment in which it begins a rank has the rank's file open, as long as it
/// is: that does not keep others from running it.
#[test]
fn what_a_stopped_master_has_open_others_write_anew() {
    let options = "--processors 1 --output-files %/out/{} --journal %/journal";
    let bench = Bench::new("open", 16, "while [ -e ${0%/*}/hold ]; do sleep 0.1; done; sleep 0.1");
    fs::write(bench.at("hold"), "").unwrap();
    let Some(job) = bench.on(Launcher::MpichThatStays, 2, options) else { return };
    let mut job = job.with(|command| command.env(SILENCE, "30")).start();
    job.wait_for_ranks(2);
    let victim = masters_by_node(&job, 2)[1];
    let its = || {
        let ran = bench.read("ran");
        let line = ran.lines().find(|line| line.contains(&format!(" {victim} ")))?;
        line.split(' ').next().map(str::to_owned)
    };
    let name = poll(LIMIT, its).expect("a rank of the other node");
    let file = fs::File::options().write(true).open(bench.at(&format!("out/{name}.unfinished"))).unwrap();
    // The lock that the master would have: the rank's, once that is let go, unless the master does have it.
    let lock = proc::lock_of(&file).expect("a file that is in use");
    let pid = bench.pid_of(&name).expect("its process");
    proc::kill(victim, libc::SIGSTOP);
    fs::remove_file(bench.at("hold")).unwrap();
    let ended = poll(LIMIT, || matches!(proc::state(pid), 'Z' | '?').then_some(()));
    assert!(ended.is_some(), "{}", job.situation());
    let ours = proc::lock(&file, lock);
    assert!(ours.is_some() || proc::lock_of(&file) == Some(lock), "{}", job.situation());
    job.wait_for_error("the master of node 1 has said nothing for 30 s");
    let there = || bench.outputs().iter().filter(|path| path.extension().is_none()).count() == 16;
    assert!(poll(LIMIT, || there().then_some(())).is_some(), "{}", job.situation());
    proc::kill(victim, libc::SIGCONT);
    said_once(&job.wait(), "of the parts, ");
    assert_eq!((bench.outputs().len(), bench.ran().0.len()), (16, 16));
}

/// Slurm leaves the tasks of a step alone of which one has died, if it is told to.
#[test]
fn the_parts_of_a_task_of_slurm_that_dies_are_run_by_others() {
    if Mpich.path().is_none() {
        return;
    }
    let Some(slurm) = Slurm::start(2) else { return };
    let bench = Bench::new("slurm", 40, "while [ -e ${0%/*}/hold ]; do sleep 0.1; done; sleep 0.3");
    fs::write(bench.at("hold"), "").unwrap();
    let line = ["--parts".into(), bench.at("list"), "--memory".into(), "64M".into(), "--processors".into()];
    let files = ["2".into(), "--output-files".into(), bench.at("out/{}"), "--".into(), bench.at("program")];
    let words = "--mpi=pmi2 -N 2 --ntasks-per-node=1 --kill-on-bad-exit=0 --mem=200";
    let job = bdrun_args(line.into_iter().chain(files))
        .with(|command| command.env("SLURM_CONF", slurm.conf()).env(SILENCE, "30"))
        .by(Path::new("/usr/bin/srun"), words.split(' ').map(str::to_owned));
    let job = job.start();
    // Where the other node has begun nothing, nobody waits until it is known to be lost.
    let both = || (bench.ran().1 == 2).then_some(());
    assert!(poll(LIMIT, both).is_some(), "{} {}", job.situation(), slurm.logs());
    proc::kill(masters_by_node(&job, 2)[1], libc::SIGKILL);
    fs::remove_file(bench.at("hold")).unwrap();
    let outcome = job.wait();
    said_once(&outcome, "the master of node 1 has said nothing for 30 s");
    assert_eq!(bench.outputs().len(), 40, "{outcome:?} {}", slurm.logs());
    assert_eq!(bench.ran().0.len(), 40);
}

/// Masters by the number of their node, which the launcher tells them.
fn masters_by_node(job: &crate::common::Job, count: usize) -> Vec<i32> {
    let mut all: Vec<(u32, i32)> = wait_for_masters(job, count)
        .into_iter()
        .map(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
            let mut words =
                environment.split(|&byte| byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
            let number = |word: &'_ str| {
                let names = ["PMI_RANK=", "OMPI_COMM_WORLD_RANK=", "SLURM_PROCID="];
                names.iter().find_map(|name| word.strip_prefix(name)?.parse().ok())
            };
            let rank = words.find_map(number).expect("a rank");
            (rank, pid)
        })
        .collect();
    all.sort_unstable();
    all.into_iter().map(|(_, pid)| pid).collect()
}

/// Without the first nobody goes on.
#[test]
fn all_nodes_end_with_the_first() {
    let bench = Bench::new("first", 40, "sleep 1000");
    let Some(job) = bench.on(Launcher::MpichThatStays, 3, "--processors 2") else { return };
    let mut job = job.with(|command| command.env(SILENCE, "30")).start();
    job.wait_for_ranks(6);
    proc::kill(masters_by_node(&job, 3)[0], libc::SIGKILL);
    let outcome = job.wait();
    assert!(outcome.code != Some(0) && outcome.stderr.contains("the master of node 0"), "{outcome:?}");
}
