//! Jobs on several nodes: masters that MPICH's or Open MPI's `mpiexec` has started, all on this machine, each
//! with its own budget and segment. The same results as on one, whatever the split.

use std::path::Path;
use std::time::Duration;

use crate::beyond_mpi::compiled;
use crate::common::slurm::Slurm;
use crate::common::{
    Bdrun, Directory, LIMIT, bdrun, bdrun_args, first_of, limited, poll, proc, program, skipped,
};

/// Seconds after which a master that says nothing is lost.
pub const SILENCE: &str = "BDRUN_SILENCE";

/// An MPI that starts masters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Launcher {
    Mpich,
    OpenMpi,
    /// Where the others are not ended with one that is killed.
    MpichThatStays,
    OpenMpiThatStays,
}

use Launcher::{Mpich, OpenMpi};

impl Launcher {
    pub fn path(self) -> Option<&'static Path> {
        let (need, path) = match self {
            Mpich | Self::MpichThatStays => ("mpich", "/usr/bin/mpiexec.mpich"),
            OpenMpi | Self::OpenMpiThatStays => ("openmpi", "/usr/bin/mpiexec.openmpi"),
        };
        let found = Path::new(path).exists();
        if !found {
            skipped(need, format!("there is no {path}"));
        }
        found.then_some(Path::new(path))
    }

    /// Options of `mpiexec`. Open MPI's make and remove one directory in `/tmp` for all of a user, and two
    /// that begin and end at the same time may fail at that ("File exists"): each has its own.
    fn options(self, own: &Path) -> Vec<String> {
        let own = own.display().to_string();
        let words: &[&str] = match self {
            Mpich => &[],
            // Those of one machine it ends anyway.
            Self::MpichThatStays => {
                &["-disable-auto-cleanup", "-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2,127.0.0.3"]
            }
            OpenMpi | Self::OpenMpiThatStays => {
                &["--allow-run-as-root", "--oversubscribe", "--mca", "orte_tmpdir_base", &own]
            }
        };
        let words = words.iter().chain((self == Self::OpenMpiThatStays).then_some(&"--enable-recovery"));
        words.map(|word| (*word).to_owned()).collect()
    }

    /// A job on so many nodes, if that can be. A master that is late is none that is lost: who tests that
    /// says after how long one is.
    pub fn on(self, nodes: u32, job: Bdrun) -> Option<Bdrun> {
        let path = self.path()?;
        let options = self.options(job.directory());
        let job = job.with(|command| command.env(SILENCE, "300"));
        Some(job.by(path, options.into_iter().chain(["-n".into(), nodes.to_string()])))
    }
}

/// The communicator's conformance suite, and memory that each rank holds besides, and checks.
fn conform(launcher: Launcher, nodes: u32, np: u32, options: &str) {
    let Some(job) = launcher.on(nodes, bdrun(&format!("-np {np} {options} conformance 1048576"))) else {
        return;
    };
    let outcome = job.succeed();
    assert_eq!(outcome.stdout, format!("{np} ranks conform\n"), "{outcome:?}");
    let stats = outcome.stats();
    assert!(stats.ranks.iter().map(|rank| rank.rank).eq(0..np), "all nodes are in the statistics: {stats:?}");
    assert!(stats.ranks.iter().all(|rank| rank.status == "ok"), "{stats:?}");
}

#[test]
fn the_suite_on_two_nodes() {
    for np in [2, 5, 8] {
        conform(Mpich, 2, np, "--memory 1G");
        conform(OpenMpi, 2, np, "--memory 1G");
    }
}

/// Ranks of two masters on one machine share no memory: each counts it in its own budget.
#[test]
fn hybrid_ranks_share_memory_with_those_of_their_master() {
    let job = |step: &str| Mpich.on(2, bdrun(&format!("-np 5 --memory 200M hybrid-conformance {step}")));
    let Some(outcome) = job("node").map(Bdrun::succeed) else { return };
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    let shares = [2, 2, 3, 3, 3];
    let expected = shares.iter().enumerate();
    let expected = expected.map(|(rank, with)| format!("rank {rank} shares memory with {with} of 5"));
    assert_eq!(lines, expected.collect::<Vec<_>>(), "{outcome:?}");
}

#[test]
fn the_suite_on_three_and_four_nodes() {
    conform(Mpich, 3, 8, "--memory 1G");
    conform(OpenMpi, 4, 9, "--memory 1G");
    // One rank on each.
    conform(Mpich, 4, 4, "--memory 1G");
}

#[test]
fn the_suite_in_little_memory() {
    conform(Mpich, 2, 8, "--memory 1G --resident 1");
    conform(Mpich, 2, 8, "--memory 12M");
    conform(OpenMpi, 3, 9, "--memory 12M --processors 1");
}

/// Bytes of all files below a directory, with their names.
fn dump(what: &str, index: &Path) -> Vec<u8> {
    let dump = std::process::Command::new(program("obikmer-merge")).args(["dump", what]).arg(index).output();
    let dump = dump.expect("dump");
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let mut lines: Vec<&[u8]> = dump.stdout.split_inclusive(|&b| b == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}

#[test]
fn the_main_job_is_exact_on_any_number_of_nodes() {
    let dir = Directory::new("nodes");
    let out = |name: &str| dir.path().join(name);
    let merge = |options: &str, to: &str| {
        bdrun(&format!("{options} obikmer-merge --force --out {}", out(to).display()))
    };
    merge("-np 8 --memory 1G", "one").succeed();
    for (nodes, memory) in [(2, "1G"), (4, "16M")] {
        let Some(job) = Mpich.on(nodes, merge(&format!("-np 8 --memory {memory}"), "several")) else {
            return;
        };
        job.succeed();
        for what in ["--kmers", "--unitigs"] {
            assert!(dump(what, &out("one")) == dump(what, &out("several")), "{what} on {nodes} nodes");
        }
    }
}

/// A deadlock is one only if nothing goes on at any node.
#[test]
fn a_deadlock_over_nodes_is_told() {
    let Some(job) = Mpich.on(2, bdrun("-np 4 deadlock")) else { return };
    job.run().failed_with(119, &["deadlock", "waiting for a message from rank"]);
}

#[test]
fn who_sleeps_on_another_node_is_no_deadlock() {
    let script = "if [ $BDRUN_RANK = 0 ]; then sleep 2; fi; exec \"$0\"";
    let hello = program("hello");
    let args = ["-np", "4", "--", "sh", "-c", script, hello.to_str().unwrap()];
    let Some(job) = OpenMpi.on(2, bdrun_args(args)) else { return };
    let outcome = job.succeed();
    assert!(outcome.stdout.contains("4 ranks met"), "{outcome:?}");
    assert!(outcome.wall >= Duration::from_secs(2), "{outcome:?}");
}

/// What one rank does ends the job everywhere, with its code.
#[test]
fn a_rank_that_fails_ends_all_nodes() {
    for (launcher, bad) in [(Mpich, 3), (OpenMpi, 0)] {
        let script = format!("if [ $BDRUN_RANK = {bad} ]; then exit 7; fi; exec sleep 1000");
        let Some(job) = launcher.on(2, bdrun_args(["-np", "4", "-j", "2", "--", "sh", "-c", &script])) else {
            continue;
        };
        let outcome = job.run();
        outcome.failed_with(7, &[&format!("rank {bad} failed with exit code 7")]);
    }
}

/// A node whose ranks are over hears how the job ends elsewhere, and says so.
#[test]
fn a_rank_that_fails_late_is_told_by_all_nodes() {
    // Rank 3 is on the second node; the first has nothing more to do when it fails.
    let script = "if [ $BDRUN_RANK = 3 ]; then sleep 1; exit 7; fi";
    let Some(job) = Mpich.on(2, bdrun_args(["-np", "4", "-j", "2", "--", "sh", "-c", script])) else {
        return;
    };
    let outcome = job.run();
    outcome.failed_with(7, &["rank 3 failed with exit code 7"]);
    let stats = outcome.stats();
    assert_eq!((&stats.status[..], stats.exit_code), ("elsewhere", 7), "{stats:?}");
}

/// With `--keep-going` a failure ends nobody, neither here nor elsewhere.
#[test]
fn others_keep_going_on_all_nodes() {
    for bad in [0, 3] {
        let script = format!("if [ $BDRUN_RANK = {bad} ]; then exit 7; fi; sleep 1; echo done");
        let words = ["-np", "4", "-j", "4", "--keep-going", "--", "sh", "-c", &script];
        let Some(job) = Mpich.on(2, bdrun_args(words)) else { return };
        let outcome = job.run();
        outcome.failed_with(7, &[&format!("rank {bad} failed with exit code 7")]);
        assert_eq!(outcome.stdout, "done\n".repeat(3), "{outcome:?}");
        let stats = outcome.stats();
        assert_eq!(stats.exit_code, 7, "{stats:?}");
        assert_eq!(stats.ranks.iter().filter(|rank| rank.status == "ok").count(), 3, "{stats:?}");
    }
}

/// Ranks of all nodes have the time to end that those have whose master is told to. Of these five seconds
/// they need a little, if they have a processor.
#[test]
fn a_signal_to_one_master_gives_all_ranks_time() {
    if Mpich.path().is_none() {
        return;
    }
    first_of(0..10, |_| {
        let dir = Directory::new("grace");
        let at = dir.path().display();
        let script = format!(
            "trap 'sleep 0.3; : > {at}/$BDRUN_RANK.ended; exit 0' TERM; : > {at}/$BDRUN_RANK; while :; do sleep 0.1; done"
        );
        let job = Mpich.on(2, bdrun_args(["-np", "4", "-j", "2", "--", "sh", "-c", &script]));
        let mut job = job.expect("it is there").start();
        job.wait_for_ranks(4);
        let all = |kind: &str| (0..4).all(|rank| dir.path().join(format!("{rank}{kind}")).exists());
        assert!(poll(LIMIT, || all("").then_some(())).is_some());
        proc::kill(wait_for_masters(&job, 2)[0], libc::SIGTERM);
        let outcome = job.wait();
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        all(".ended").then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// A master that cannot begin tells the others why, who have begun.
#[test]
fn who_cannot_begin_ends_all_nodes() {
    let dir = Directory::new("cannot");
    let Some(path) = Mpich.path() else { return };
    // The same command line, but one is in a folder where there is no scratch.
    let (good, bad) = (dir.path().join("good"), dir.path().join("bad"));
    std::fs::create_dir_all(good.join("scratch")).expect("a folder");
    std::fs::create_dir_all(&bad).expect("a folder");
    std::fs::write(bad.join("scratch"), "no folder").expect("a file");
    let bdrun = env!("CARGO_BIN_EXE_bdrun");
    let job = [bdrun, "-np", "2", "--scratch", "scratch", "sleep", "1000"];
    // A master that takes 15 s to begin is not waited for by the other, and is killed by its launcher.
    first_of(0..3, |_| {
        let mut command = std::process::Command::new(path);
        let here = |folder: &Path| ["-n".into(), "1".into(), "-wdir".into(), folder.display().to_string()];
        command.args(here(&good)).args(job).arg(":").args(here(&bad)).args(job);
        let output = limited(command.env(SILENCE, "300"), LIMIT);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(!said.contains("could not begin"), "the reason itself is told: {said}");
        said.contains("the job ended on node 1: ").then_some(()).ok_or(said.into_owned())
    });
}

/// Windows and shared file pointers, whose memory no two nodes share.
#[test]
fn windows_and_files_are_as_on_one_node() {
    let dir = Directory::new("apart");
    let Some(program) = compiled(&dir, "apart") else { return };
    for (launcher, nodes, options, times) in
        [(Mpich, 2, "", "50"), (Mpich, 4, "--resident 1", "2"), (OpenMpi, 3, "", "50")]
    {
        let file = dir.path().join(format!("file.{nodes}"));
        let words = format!("-np 6 --timeout 500 {options}");
        let line = [&program, &file].map(|path| path.to_str().expect("a path in UTF-8"));
        let Some(job) = launcher.on(nodes, bdrun_args(words.split_whitespace().chain(line).chain([times])))
        else {
            continue;
        };
        assert_eq!(job.succeed().stdout, "as on one node\n");
    }
}

/// The script for PBS, with what PBS gives it: variables, and a file that names each node once.
#[test]
fn a_script_of_pbs_starts_a_master_on_each_node() {
    for launcher in [Mpich, OpenMpi] {
        let Some(path) = launcher.path() else { continue };
        let dir = Directory::new("pbs");
        let nodes = dir.path().join("nodes");
        std::fs::write(&nodes, "localhost\nlocalhost\n").expect("the file of nodes");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes/nodes.pbs");
        let ours = Path::new(env!("CARGO_BIN_EXE_bdrun")).parent().expect("a folder").display().to_string();
        let mut command = std::process::Command::new("bash");
        command.arg(script).current_dir("/").envs([
            ("PATH", format!("{ours}:{}", std::env::var("PATH").unwrap_or_default())),
            ("PBS_JOBID", "7.server".into()),
            ("PBS_ENVIRONMENT", "PBS_BATCH".into()),
            ("PBS_O_WORKDIR", dir.path().display().to_string()),
            ("PBS_NODEFILE", nodes.display().to_string()),
            ("NCPUS", "2".into()),
            ("TMPDIR", dir.path().display().to_string()),
            ("MPIEXEC", path.display().to_string()),
            ("MPIEXEC_OPTIONS", launcher.options(dir.path()).join(" ")),
            ("PROGRAM", program("conformance").display().to_string()),
            ("RANKS", "5".into()),
        ]);
        let output = limited(command.env(SILENCE, "300"), LIMIT);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "5 ranks conform\n", "{launcher:?}: {said}");
        // 512 MiB of each of two.
        assert!(output.status.success() && said.contains("budget 1.00 GiB"), "{launcher:?}: {said}");
    }
}

/// A step of Slurm, one task on each of two nodes, which it connects by PMI-2 (Debian's MPICH).
#[test]
fn masters_are_a_step_of_slurm() {
    if Mpich.path().is_none() {
        return;
    }
    let Some(slurm) = Slurm::start(2) else { return };
    let by = |job: Bdrun| {
        let words = "--mpi=pmi2 -N 2 --ntasks-per-node=1 --mem=200";
        let words = words.split(' ').map(str::to_owned);
        job.with(|command| command.env("SLURM_CONF", slurm.conf()).env(SILENCE, "300"))
            .by(Path::new("/usr/bin/srun"), words)
    };
    let outcome = by(bdrun("-np 6 --memory 64M conformance 1048576")).succeed();
    assert_eq!(outcome.stdout, "6 ranks conform\n", "{outcome:?} {}", slurm.logs());
    let script = "if [ $BDRUN_RANK = 3 ]; then exit 7; fi; exec sleep 1000";
    let outcome = by(bdrun_args(["-np", "4", "-j", "2", "--", "sh", "-c", script])).run();
    outcome.failed_with(7, &["rank 3 failed with exit code 7"]);
}

/// Masters of several nodes, by the numbers of their processes: those whose parents are not bdrun too.
fn masters(job: &crate::common::Job) -> Vec<i32> {
    let all = job.processes();
    let is_ours = |pid: i32| all.iter().any(|(other, name)| *other == pid && name == "bdrun");
    let parent = |pid: i32| -> Option<i32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    let is_master = |pid: &i32| is_ours(*pid) && parent(*pid).is_some_and(|parent| !is_ours(parent));
    all.iter().map(|(pid, _)| *pid).filter(is_master).collect()
}

/// The same, once there are so many.
pub fn wait_for_masters(job: &crate::common::Job, count: usize) -> Vec<i32> {
    let found = poll(LIMIT, || Some(masters(job)).filter(|found| found.len() >= count));
    found.unwrap_or_else(|| panic!("no {count} masters: {:?} {}", job.processes(), job.situation()))
}

#[test]
fn a_master_that_is_killed_ends_all_nodes() {
    for launcher in [Mpich, OpenMpi] {
        for which in [0, 1] {
            let Some(job) = launcher.on(2, bdrun("-np 4 deadlock asleep 1")) else { continue };
            let mut job = job.start();
            job.wait_for_ranks(4);
            let victim = wait_for_masters(&job, 2)[which];
            proc::kill(victim, libc::SIGKILL);
            let outcome = job.wait();
            assert_ne!(outcome.code, Some(0), "{outcome:?}");
        }
    }
}

/// One that stands still is as one that cannot be reached.
#[test]
fn a_master_that_says_nothing_ends_all_nodes() {
    for (launcher, which) in [(Mpich, 0), (Mpich, 1), (OpenMpi, 0)] {
        let Some(job) = launcher.on(3, bdrun("-np 6 deadlock asleep 1")) else { continue };
        let mut job = job.with(|command| command.env(SILENCE, "30")).start();
        job.wait_for_ranks(6);
        let victim = wait_for_masters(&job, 3)[which];
        proc::kill(victim, libc::SIGSTOP);
        let outcome = job.wait();
        assert!(
            outcome.code != Some(0) && outcome.stderr.contains("has said nothing for 30 s"),
            "{outcome:?}"
        );
    }
}

#[test]
fn masters_that_are_not_of_one_job_do_not_begin() {
    let Some(path) = Mpich.path() else { return };
    let bdrun = env!("CARGO_BIN_EXE_bdrun");
    let mut command = std::process::Command::new(path);
    command.args(["-n", "1", bdrun, "-np", "4", "true", ":", "-n", "1", bdrun, "-np", "5", "true"]);
    let output = limited(command.env(SILENCE, "300"), LIMIT);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the masters are not of one job"), "{said}");
    // More nodes than ranks.
    let Some(job) = Mpich.on(3, self::bdrun("-np 2 hello")) else { return };
    job.run().failed_with(120, &["3 masters for 2 ranks", "raise -np"]);
}

/// As many, by one command, that are not the same on all nodes: none is done twice, and none left out.
#[test]
fn masters_whose_lists_of_parts_differ_do_not_begin() {
    let Some(path) = Mpich.path() else { return };
    let dir = Directory::new("lists");
    for (node, name) in [("0", "a"), ("0", "b"), ("1", "a"), ("1", "c")] {
        std::fs::create_dir_all(dir.path().join(node)).expect("a directory");
        std::fs::write(dir.path().join(node).join(name), "").expect("a file");
    }
    let script = "cd \"$1/$PMI_RANK\" && exec \"$0\" --glob '*' -- echo {}";
    let on = |nodes: &str| {
        let mut command = std::process::Command::new(path);
        command.args(["-n", nodes, "sh", "-c", script, env!("CARGO_BIN_EXE_bdrun")]).arg(dir.path());
        limited(command.env(SILENCE, "300"), LIMIT)
    };
    let output = on("2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(said.contains("the masters are not of one job") && said.contains("has other parts"), "{said}");
    std::fs::rename(dir.path().join("1/c"), dir.path().join("1/b")).expect("renamed");
    let output = on("2");
    let mut lines: Vec<&[u8]> = output.stdout.split_inclusive(|&byte| byte == b'\n').collect();
    lines.sort_unstable();
    assert!(output.status.success() && lines == [b"a\n", b"b\n"], "{output:?}");
}

/// What there is not on several nodes is said, and jobs of one node are not taken for one of several.
#[test]
fn what_is_for_one_node_is_said() {
    let dir = Directory::new("journal");
    let journal = dir.path().join("journal");
    let args = ["-np", "4", "--journal", journal.to_str().unwrap(), "--", "true"];
    let Some(job) = Mpich.on(2, bdrun_args(args)) else { return };
    job.run().failed_with(118, &["--journal is for one node only", "BDRUN_NODES=1"]);
    let job = Mpich.on(2, bdrun_args(["-np", "4", "--halt", "now,fail=2", "--", "true"]));
    job.unwrap().run().failed_with(118, &["--halt other than never and now,fail=1 is for one node only"]);
    // Each of two has four ranks, and none of them is taken for a master.
    let script = "echo $BDRUN_RANK of $BDRUN_SIZE";
    let job = Mpich.on(2, bdrun_args(["-np", "4", "--", "sh", "-c", script]));
    let outcome = job.unwrap().with(|command| command.env("BDRUN_NODES", "1")).succeed();
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 of 4", "0 of 4", "1 of 4", "1 of 4", "2 of 4", "2 of 4", "3 of 4", "3 of 4"]);
}

/// MPICH's `mpiexec` may still write to the proxy of a process that ends at once, and is killed by that.
#[test]
fn who_ends_at_once_stays_for_the_launcher() {
    let wrong = || bdrun_args(["--no-such-option", "true"]);
    let outcome = wrong().with(|command| command.env("HYDI_CONTROL_FD", "77")).run();
    outcome.failed_with(118, &["--no-such-option"]);
    assert!(outcome.wall >= Duration::from_millis(500), "{outcome:?}");
}

/// Whoever looks at one master is told of all nodes.
#[test]
fn all_nodes_are_looked_at() {
    let dir = Directory::new("look");
    let list = dir.path().join("list");
    std::fs::write(&list, "a\nb\nc\nd\ne\nf\ng\nh\n").expect("a list");
    let parts = ["--parts", list.to_str().unwrap()];
    let look = |master: i32, words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bdrun"));
        command.args(words).args(["--job", &master.to_string()]);
        let output = limited(&mut command, LIMIT);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for (what, dealt) in [(&["-np", "8"][..], false), (&parts[..], true)] {
        let options = ["--processors", "1", "--memory", "64M", "--", "sh", "-c", "exec sleep 1000"];
        let Some(job) = Mpich.on(2, bdrun_args(what.iter().chain(&options))) else { return };
        let mut job = job.start();
        job.wait_for_ranks(2);
        for master in wait_for_masters(&job, 2) {
            let ranks = |text: &str| {
                let is_rank =
                    |line: &&str| line.trim_start().starts_with(|first: char| first.is_ascii_digit());
                text.lines().filter(is_rank).count()
            };
            let shown =
                poll(LIMIT, || Some(look(master, &["top", "--once"])).filter(|shown| ranks(shown) == 2));
            let shown = shown.unwrap_or_else(|| panic!("{}", look(master, &["top", "--once"])));
            assert!(shown.contains("node 0 (") && shown.contains("node 1 ("), "{shown}");
            // A master that does not hear of the other in time answers without it.
            let mut all: Vec<String> = vec![];
            let explained = poll(LIMIT, || {
                all = (0..8).map(|rank| look(master, &["explain", &rank.to_string()])).collect();
                let runs = |node: u32| {
                    let says =
                        |text: &&String| text.contains(&format!("node {node} (")) && text.contains(" runs: ");
                    all.iter().filter(says).count()
                };
                let waits = all.iter().filter(|text| text.contains(" has not begun")).count();
                ((runs(0), runs(1), waits) == (1, 1, 6)).then_some(())
            });
            assert!(explained.is_some(), "dealt: {dealt} {all:?}");
        }
        job.signal(libc::SIGTERM);
        job.wait();
    }
}
