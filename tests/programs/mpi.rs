//! Programs in C that are linked to an MPI, started as they are: whose MPI they get, and what is said when
//! they cannot go on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::beyond_mpi::compiled;
use crate::common::libraries::libraries;
use crate::common::{Bdrun, Directory, Outcome, bdrun_args, proc, skipped};

/// An ABI: what the header calls it, what we have built for it, what programs are linked to.
struct Abi {
    name: &'static str,
    built: &'static str,
    soname: &'static str,
}

const STANDARD: Abi = Abi { name: "STANDARD", built: "libmpi_abi.so", soname: "libmpi_abi.so.1" };
const MPICH: Abi = Abi { name: "MPICH", built: "libmpich_face.so", soname: "libmpi.so.12" };
const OPENMPI: Abi = Abi { name: "OPENMPI", built: "libmpi_openmpi.so", soname: "libmpi.so.40" };

/// A program, in a folder of its own.
struct Compiled {
    folder: Directory,
    path: PathBuf,
}

fn gcc(args: &[&str]) {
    let made = Command::new("gcc").args(args).output().expect("run gcc");
    assert!(made.status.success(), "{args:?}: {}", String::from_utf8_lossy(&made.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// `faults.c`, linked to this library; nothing without a compiler.
fn compile(abi: &Abi, library: Option<&Path>, flags: &[&str]) -> Option<Compiled> {
    if Command::new("gcc").arg("--version").output().is_err() {
        skipped("gcc", "there is no gcc");
        return None;
    }
    let libraries = libraries();
    let folder = Directory::new("mpi");
    let path = folder.path().join("faults");
    let built = libraries.join(abi.built);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/mpi/faults.c");
    let define = format!("-DABI_{}", abi.name);
    let args = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", &define, source];
    let library = library.unwrap_or(&built);
    gcc(&[&args[..], flags, &[text(library), "-Wl,--allow-shlib-undefined", "-o", text(&path)]].concat());
    Some(Compiled { folder, path })
}

impl Compiled {
    /// `bdrun` with these options, and the program with these arguments.
    fn job(&self, options: &str, args: &str) -> Bdrun {
        let program = text(&self.path);
        let args = args.split_whitespace();
        bdrun_args(options.split_whitespace().chain([program]).chain(args))
    }
}

fn sorted(outcome: &Outcome) -> Vec<&str> {
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    lines
}

const THREE: [&str; 3] =
    ["rank 0 of 3, program 0, sum 3", "rank 1 of 3, program 0, sum 3", "rank 2 of 3, program 0, sum 3"];

/// Whatever RPATH says: another library of the same name lies there, which would say so.
#[test]
fn a_program_gets_ours_wherever_it_would_look() {
    for abi in [STANDARD, MPICH, OPENMPI] {
        for tags in ["--enable-new-dtags", "--disable-new-dtags"] {
            let rpath = format!("-Wl,{tags},-rpath,$ORIGIN/own");
            let Some(program) = compile(&abi, None, &[&rpath]) else { return };
            let own = program.folder.path().join("own");
            std::fs::create_dir(&own).expect("a folder");
            let decoy = program.folder.path().join("decoy.c");
            let mut says_so: String = ["comm_world", "int", "op_sum", "info_null"]
                .map(|name| format!("char ompi_mpi_{name}[8];\n"))
                .concat();
            says_so += "void _exit(int);\n__attribute__((constructor)) static void f(void) { _exit(99); }\n";
            std::fs::write(&decoy, says_so).expect("a file");
            let (soname, library) = (format!("-Wl,-soname,{}", abi.soname), own.join(abi.soname));
            gcc(&["-shared", "-fPIC", &soname, text(&decoy), "-o", text(&library)]);
            assert_eq!(sorted(&program.job("-np 3", "meet").succeed()), THREE, "{} {tags}", abi.soname);
            let outcome = program.job("-np 3 --mpi none", "meet").run();
            outcome.failed_with(99, &[]);
        }
    }
}

/// Instead of as three jobs of one rank.
#[test]
fn an_mpi_that_is_not_served_is_named_before_anything_starts() {
    let folder = Directory::new("mpi-other");
    let library = folder.path().join("libmpi.so.20");
    let Some(_) = compile(&STANDARD, None, &[]) else { return };
    // It has what the program calls, and is none of ours.
    let source = folder.path().join("other.c");
    let names = "MPI_Init MPI_Finalize MPI_Abort MPI_Comm_rank MPI_Comm_size MPI_Comm_split MPI_Comm_dup MPI_Comm_free MPI_Comm_set_name MPI_Irecv MPI_Type_contiguous \
                 MPI_Comm_get_attr MPI_Barrier MPI_Allreduce MPI_Reduce MPI_Op_create MPI_Send MPI_Ssend MPI_Recv \
                 MPI_Win_allocate MPI_Win_lock MPI_Win_unlock MPI_Iprobe MPI_Wtime";
    let functions: String =
        names.split_whitespace().map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
    std::fs::write(&source, functions).expect("a file");
    gcc(&["-shared", "-fPIC", "-Wl,-soname,libmpi.so.20", text(&source), "-o", text(&library)]);
    let rpath = format!("-Wl,-rpath,{}", text(folder.path()));
    let Some(program) = compile(&STANDARD, Some(&library), &[&rpath]) else { return };
    let refused = program.job("-np 3", "meet").run();
    refused.failed_with(120, &["is linked to libmpi.so.20", "libmpi.so.40, Open MPI's ABI", "--mpi none"]);
    assert_eq!(refused.stdout, "");
    let outcome = program.job("-np 3 --mpi none", "meet").succeed();
    assert_eq!(sorted(&outcome), ["rank 0 of 0, program -1, sum 0"; 3]);
}

#[test]
fn several_programs_have_one_world() {
    let Some(program) = compile(&STANDARD, None, &[]) else { return };
    let path = text(&program.path);
    let line = ["-np", "2", path, "meet", ":", "-np", "3", path, "meet"];
    let outcome = bdrun_args(line).succeed();
    let lines: Vec<String> =
        (0..5).map(|rank| format!("rank {rank} of 5, program {}, sum 10", usize::from(rank > 1))).collect();
    assert_eq!(sorted(&outcome), lines);
    // What an MPI library says to itself is none of the program's messages.
    assert!(!outcome.stderr.contains("never received"), "{outcome:?}");
}

#[test]
fn a_deadlock_names_groups_calls_communicators_peers_and_tags() {
    for abi in [STANDARD, MPICH, OPENMPI] {
        let Some(program) = compile(&abi, None, &[]) else { return };
        for (options, how, words) in [
            (
                "-np 3",
                "receive",
                &[
                    "3 ranks wait",
                    "ranks 0-1 are in MPI_Recv, waiting for rank 2, tag 7, on MPI_COMM_WORLD",
                    "rank 2 is in MPI_Barrier on MPI_COMM_WORLD, to which ranks 0-1 have not come",
                ][..],
            ),
            (
                "-np 2",
                "any",
                &["ranks 0-1 are in MPI_Recv, waiting for any rank, any tag, on MPI_COMM_WORLD"],
            ),
            (
                "-np 9",
                "ring",
                &["ranks 0-8 are in MPI_Recv, waiting for ranks 0-8, tag 3, on MPI_COMM_WORLD"],
            ),
            (
                "-np 4",
                "named",
                &["rank 0 is in MPI_Ssend, waiting for rank 1, tag 9, on lower pair", "on upper pair"],
            ),
        ] {
            let outcome = program.job(options, &format!("stuck {how}")).run();
            outcome.failed_with(119, words);
        }
    }
}

/// Who looks again and again waits a moment each time, and goes on by itself: also if it has no processor for
/// longer than a deadlock takes to be seen (it stands).
#[test]
fn who_only_looks_is_in_no_deadlock() {
    let Some(program) = compile(&STANDARD, None, &[]) else { return };
    for preload in ["never", "auto"] {
        let go = program.folder.path().join(format!("go.{preload}"));
        let job =
            program.job(&format!("-np 1 --preload {preload}"), &format!("poll {}", go.display())).start();
        job.wait_for_output("ready");
        std::thread::sleep(Duration::from_millis(500));
        let ranks = job.ranks();
        ranks.iter().for_each(|&(_, pid)| proc::kill(pid, libc::SIGSTOP));
        std::thread::sleep(Duration::from_millis(1500));
        ranks.iter().for_each(|&(_, pid)| proc::kill(pid, libc::SIGCONT));
        std::fs::write(&go, "").expect("a file");
        let outcome = job.wait();
        assert_eq!(
            (ranks.len(), outcome.code, sorted(&outcome)),
            (1, Some(0), vec!["found 0", "ready"]),
            "{outcome:?}"
        );
    }
}

/// Not for as long as who only waits: it took 10 ms for each look, 1,000 s for each of these ranks.
#[test]
fn who_works_between_its_looks_goes_on() {
    let Some(program) = compile(&STANDARD, None, &[]) else { return };
    let job = || {
        let outcome = program.job("-np 3 --timeout 250", "work").succeed();
        assert_eq!(sorted(&outcome), ["rank 0 has worked", "rank 1 has worked", "rank 2 has worked"]);
    };
    job();
    // Nor for as long as others on the machine run at each yield: 1 ms for each microsecond of work.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let job = std::panic::catch_unwind(job);
        is_over.store(true, Relaxed);
        job.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Nor does its memory leave for each look, where that is short: 89 GiB were moved in 100 s, and a hundredth
/// of the work was done. Now each rank leaves about once.
#[test]
fn who_works_between_its_looks_stays_in_memory() {
    let Some(program) = compile(&STANDARD, None, &[]) else { return };
    let outcome = program.job("-np 3 --memory 64M --timeout 550", "insert 48").succeed();
    let received = [0, 1, 2].map(|rank| format!("rank {rank} received 626"));
    assert_eq!(sorted(&outcome), received);
    let evicted = outcome.stats().evicted_bytes;
    assert!((40 << 20..2 << 30).contains(&evicted), "{} MiB: {outcome:?}", evicted >> 20);
}

#[test]
fn who_fails_is_named_with_call_and_reason() {
    let Some(program) = compile(&STANDARD, None, &[]) else { return };
    for (how, code, words) in [
        (
            "abort",
            7,
            &["rank 1: MPI_Abort(MPI_COMM_WORLD", "rank 1 failed with exit code 7 while in MPI_Abort"][..],
        ),
        ("error", 1, &["rank 1: MPI_Send: MPI_ERR_RANK", "rank 1 failed with exit code 1 while in MPI_Send"]),
        ("crash", 139, &["rank 1 was killed by SIGSEGV while in MPI_Reduce"]),
        ("locked", 139, &["rank 1 was killed by SIGSEGV while computing"]),
        ("outside", 139, &["rank 1 was killed by SIGSEGV while computing\n"]),
        (
            "leave",
            119,
            &["deadlock: 2 ranks wait", "to which rank 1 has not come", "rank 1 left without MPI_Finalize"],
        ),
    ] {
        let outcome = program.job("-np 3", &format!("fail {how}")).run();
        outcome.failed_with(code, words);
    }
    let outcome = program.job("-np 3", "fail leave-all").succeed();
    assert!(outcome.stderr.contains("ranks 0-2 left without MPI_Finalize"), "{outcome:?}");
}

/// Before it begins MPI nobody knows that it will; with a library in front of it it has said hello by then.
#[test]
fn what_is_for_independent_ranks_ends_with_the_first_call_of_mpi() {
    let Some(program) = compile(&STANDARD, None, &[]) else { return };
    let line = format!("#!/bin/sh\nexec {} meet\n", text(&program.path));
    let script = program.folder.script("around", &line);
    let script = text(&script);
    for preload in ["never", "always"] {
        let journal = program.folder.path().join(format!("journal.{preload}"));
        for option in [&["--keep-going"][..], &["--halt", "never"], &["--journal", text(&journal)]] {
            let words = ["-np", "2", "--mpi", "auto", "--preload", preload];
            let outcome = bdrun_args(words.iter().chain(option).chain(&[script])).run();
            outcome.failed_with(118, &[&format!("{} is for independent ranks", option[0])]);
        }
    }
}

/// Whatever the ABI calls an error of that number.
#[test]
fn an_abort_ends_the_job_with_the_number_that_the_program_gave() {
    for abi in [STANDARD, MPICH, OPENMPI] {
        let Some(program) = compile(&abi, None, &[]) else { return };
        for code in [7, 19, 99] {
            let outcome = program.job("-np 3", &format!("fail abort {code}")).run();
            let given = format!("rank 1: MPI_Abort(MPI_COMM_WORLD, {code})");
            let left = format!("rank 1 failed with exit code {code} while in MPI_Abort");
            outcome.failed_with(code, &[&given, &left]);
        }
    }
}

/// Only if it is asked for.
#[test]
fn what_a_program_has_left_is_said() {
    for abi in [STANDARD, MPICH, OPENMPI] {
        let Some(program) = compile(&abi, None, &[]) else { return };
        let said = program.job("-np 2 --check", "leaks").succeed().stderr;
        let words = "MPI, rank 1: left at MPI_Finalize: 1 request, 1 communicator (forgotten), 1 datatype, \
                     1 message that nobody received (from rank 0, tag 5, on MPI_COMM_WORLD)";
        assert!(said.contains(words) && !said.contains("rank 0: left"), "{said}");
        for (options, args) in [("-np 2", "leaks"), ("-np 2 --check", "meet")] {
            let said = program.job(options, args).succeed().stderr;
            assert!(!said.contains("left at MPI_Finalize"), "{said}");
        }
    }
}

/// A rank joins its job once, whichever thread's session is the first; and what fails before `MPI_Init` is
/// told as the call says.
#[test]
fn sessions_begin_in_several_threads_at_once() {
    let dir = Directory::new("sessions");
    let Some(program) = compiled(&dir, "sessions") else { return };
    for _ in 0..10 {
        let outcome = bdrun_args(["-np", "2", text(&program)]).succeed();
        let expected = ["begun 0 0", "of 2", "refused 1"].map(|line| [line; 2]);
        assert_eq!(sorted(&outcome), expected.concat(), "{outcome:?}");
    }
}

#[test]
fn who_only_gets_messages_completes_what_it_has_begun() {
    let dir = Directory::new("progress");
    let Some(program) = compiled(&dir, "progress") else { return };
    let outcome = bdrun_args(["-np", "2", text(&program)]).succeed();
    assert_eq!(sorted(&outcome), ["complete 1"; 2]);
}
