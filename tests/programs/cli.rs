//! The command line as users meet it: arguments, exit codes, output, the statistics file.

use std::process::{Command, Stdio};

use bdrun::stats::Stats;

use crate::common::{Directory, LIMIT, bdrun, bdrun_args, bdrun_on, first_of, program, terminal};

#[test]
fn the_number_of_ranks_in_every_form() {
    for form in ["-np 3", "-n 3", "--np 3", "-np3", "-np=3", "--np=3", "-n3"] {
        let outcome = bdrun(&format!("{form} hello")).succeed();
        assert_eq!(outcome.stdout, "3 ranks met\n", "{form}");
    }
    assert_eq!(bdrun("hello").succeed().stdout, "1 ranks met\n", "one rank if nothing is said");
}

#[test]
fn a_colon_behind_two_dashes_is_the_programs() {
    let outcome = bdrun_args(["--", "sh", "-c", "echo $#", "sh", "a", ":", "-np", "b"]).succeed();
    assert_eq!(outcome.stdout, "4\n");
    let outcome = bdrun_args(["expr", "abc", ":", "a.*"]).succeed();
    assert_eq!(outcome.stdout, "3\n", "one that no option of mpiexec follows is too");
}

#[test]
fn several_programs_are_one_job() {
    assert_eq!(bdrun("-np 2 hello : -np 3 hello").succeed().stdout, "5 ranks met\n");
    let script = "echo $0 $BDRUN_RANK of $BDRUN_SIZE, $BDRUN_APPNUM $A$B";
    let line = ["--keep-order", "--genv", "A=x", "-np", "2", "sh", "-c", script, "first", ":"];
    let outcome = bdrun_args(line.iter().chain(&["-env", "B", "y", "sh", "-c", script, "second"])).succeed();
    assert_eq!(outcome.stdout, "first 0 of 3, 0 x\nfirst 1 of 3, 0 x\nsecond 2 of 3, 1 xy\n");
    bdrun("-np 2 hello : -np 1 no-such-program-anywhere")
        .run()
        .failed_with(127, &["no-such-program-anywhere"]);
}

/// What is to be written at the end is looked at before anything runs.
#[test]
fn statistics_that_cannot_be_written_are_said_first() {
    let dir = Directory::new("stats-first");
    let ran = dir.path().join("ran");
    let touch = format!("touch {}", ran.display());
    let run = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bdrun"));
        crate::common::limited(command.args(["--stats", file, "sh", "-c", &touch]), LIMIT)
    };
    for file in ["/nowhere/x", dir.path().to_str().expect("UTF-8")] {
        let output = run(file);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(120), "{said}");
        assert!(said.contains("--stats") && said.contains(file), "{said}");
        assert!(!ran.exists(), "nothing ran");
    }
    let output = run("-");
    let stats: Stats = serde_json::from_slice(&output.stdout).expect("the object, on standard output");
    assert!(stats.status == "ok" && ran.exists());
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 1, "nothing is left behind");
}

/// Sizes without a unit are bytes, and what the machine does not have is said.
#[test]
fn a_budget_that_cannot_be_meant_is_said() {
    bdrun("-np 2 --memory 1024 hello").run().failed_with(120, &["1024M", "without a unit"]);
    let outcome = bdrun("-np 2 --memory 5000G hello").succeed();
    assert!(outcome.stderr.contains("the kernel may kill them"), "{outcome:?}");
}

/// When memory runs out the kernel takes a rank, and bdrun says which.
#[test]
fn ranks_go_before_the_master_when_memory_runs_out() {
    // On a clean clone it is not there yet.
    crate::preload::library();
    let own: i32 =
        std::fs::read_to_string("/proc/self/oom_score_adj").expect("own").trim().parse().expect("number");
    for preload in ["never", "always"] {
        // Its program runs by then.
        let raised = "until [ \"$(cat /proc/$$/oom_score_adj)\" -gt $0 ]; do sleep 0.01; done; cat /proc/$$/oom_score_adj";
        if own < 1000 {
            let outcome = bdrun_args(["--preload", preload, "sh", "-c", raised, &own.to_string()]).succeed();
            let score: i32 = outcome.stdout.trim().parse().expect("a number");
            assert!(score > own, "{score} of a rank, {own} of the master");
        }
    }
}

#[test]
fn a_wrong_command_line_is_118_and_says_what_is_wrong() {
    for (args, word) in [
        ("--no-such-option hello", "--no-such-option"),
        ("-np 0 hello", "--np"),
        ("-np x hello", "--np"),
        ("-np 2", "PROGRAM"),
        ("--memory lots hello", "1.5GiB"),
        ("--memory 0% hello", "percentage"),
        ("--memory 101% hello", "percentage"),
        ("--memory 0 hello", "no memory"),
        ("--rank-memory 5Q hello", "--rank-memory"),
        ("--resident 0 hello", "--resident"),
        ("--timeout soon hello", "1h30m"),
        ("--env =x hello", "needs a name"),
        ("-np 2 -hosts a,b hello", "-hosts"),
        ("-np 1 hello : -np 2 --memory 1G hello", "whole job"),
        ("--output loud hello", "json"),
    ] {
        let outcome = bdrun(args).run();
        outcome.failed_with(118, &[word]);
        assert!(outcome.stdout.is_empty() && outcome.stats.is_none(), "{args}: {outcome:?}");
    }
}

#[test]
fn programs_that_cannot_be_run() {
    let dir = Directory::new("programs");
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "echo never").unwrap();
    let no_interpreter = dir.script("no-interpreter", "#!/no/such/interpreter\n");
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    for (name, code, word) in [
        ("no-such-program-anywhere".to_owned(), 127, "neither beside bdrun nor in PATH"),
        (path(&dir.path().join("absent")), 127, "absent"),
        (path(&plain), 126, "no executable file"),
        (path(dir.path()), 126, "cannot be executed"),
        (path(&no_interpreter), 126, "interpreter is not found"),
    ] {
        let outcome = bdrun_args(["-np", "2", &name]).run();
        outcome.failed_with(code, &["bdrun: error:", word]);
        assert_eq!(i32::from(outcome.stats().exit_code), code);
    }
    // A script without a first line is the shell's, as for everybody who executes programs.
    let bare = dir.script("bare", "echo a bare script\n");
    assert_eq!(bdrun_args([bare]).succeed().stdout, "a bare script\n");
}

#[test]
fn programs_are_looked_for_beside_bdrun_then_in_path() {
    let dir = Directory::new("path");
    dir.script("hello", "#!/bin/sh\necho the wrong one\n");
    dir.script("only-in-path", "#!/bin/sh\necho found in PATH\n");
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap_or_default());
    let run = |name: &str| bdrun(name).with(|command| command.env("PATH", &path)).succeed().stdout;
    assert_eq!(run("hello"), "1 ranks met\n");
    assert_eq!(run("only-in-path"), "found in PATH\n");
    let here = bdrun("./only-in-path").with(|command| command.current_dir(dir.path())).succeed();
    assert_eq!(here.stdout, "found in PATH\n");
}

#[test]
fn arguments_are_passed_on_as_they_are() {
    let script = r#"for a in "$@"; do printf '<%s>' "$a"; done; echo"#;
    let expected = "<-np><7><--memory><-x><--><a  b><><--output=json>\n";
    let theirs = ["-np", "7", "--memory", "-x", "--", "a  b", "", "--output=json"];
    for ours in [&["-np", "1"][..], &["--"], &["-np", "1", "--"]] {
        let args = ours.iter().copied().chain(["sh", "-c", script, "sh"]).chain(theirs);
        assert_eq!(bdrun_args(args).succeed().stdout, expected, "{ours:?}");
    }
}

#[test]
fn the_environment_of_ranks() {
    let script = "echo $BDRUN_RANK/$BDRUN_SIZE $FIRST $SECOND $THIRD; test -d $BDRUN_SCRATCH";
    let args = ["-np", "2", "--env", "FIRST=one=1", "--env", "SECOND", "sh", "-c", script];
    let outcome = bdrun_args(args).with(|c| c.env("SECOND", "two").env("THIRD", "3")).succeed();
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0/2 one=1 two 3", "1/2 one=1 two 3"]);
}

#[test]
fn several_scratch_directories_are_handed_on() {
    let (first, second) = (Directory::new("first"), Directory::new("second"));
    let expected = format!("{}:{}\n", first.path().display(), second.path().display());
    let dir = second.path().to_str().expect("UTF-8");
    let args = ["--scratch", dir, "sh", "-c", "echo $BDRUN_SCRATCH"];
    assert_eq!(bdrun_on(first.path(), args).succeed().stdout, expected);
    let missing = bdrun_on(first.path(), ["--scratch", "/no/such/place", "true"]).run();
    missing.failed_with(120, &["/no/such/place", "--scratch"]);
}

#[test]
fn ranks_are_told_how_to_compress() {
    for how in ["auto", "none", "lz4"] {
        let test = format!("test $BDRUN_COMPRESS = {how}");
        bdrun_args(["--compress", how, "sh", "-c", &test]).succeed();
    }
    bdrun_args(["--compress", "zip", "true"]).run().failed_with(118, &["--compress", "lz4"]);
}

#[test]
fn codes_of_ranks_are_passed_on() {
    let run = |script: &str| bdrun_args(["-np", "3", "sh", "-c", script]).run();
    for (script, code, status, word) in [
        ("exit 5", 5, "exit 5", "failed with exit code 5"),
        (
            "test $BDRUN_RANK != 1 || exit 111; sleep 1000",
            111,
            "exit 111",
            "rank 1 failed with exit code 111",
        ),
        (
            "test $BDRUN_RANK != 2 || exit 119; sleep 1000",
            112,
            "exit 119",
            "rank 2 failed with exit code 119",
        ),
        (
            "test $BDRUN_RANK != 1 || kill -SEGV $$; sleep 1000",
            139,
            "signal 11",
            "rank 1 was killed by SIGSEGV",
        ),
    ] {
        let outcome = run(script);
        outcome.failed_with(code, &[word]);
        assert!(outcome.stats().ranks.iter().any(|rank| rank.status == status), "{outcome:?}");
        assert!(outcome.wall < std::time::Duration::from_secs(500), "the others were not ended: {outcome:?}");
    }
}

#[test]
fn a_time_limit_is_124() {
    let outcome = bdrun("-np 2 --timeout 500ms sleep 100").run();
    outcome.failed_with(124, &["--timeout", "give more time"]);
    assert!(outcome.wall.as_secs_f64() >= 0.5, "{outcome:?}");
    assert_eq!(outcome.stats().status, "timeout");
    // Deaf to the polite request: killed after the grace period.
    let script = "trap '' TERM; echo deaf; while :; do sleep 1; done";
    first_of(["0.3", "5", "50"], |limit| {
        let deaf = bdrun_args(["--timeout", limit, "sh", "-c", script]).run();
        deaf.failed_with(124, &[]);
        (deaf.stdout == "deaf\n").then_some(()).ok_or("it still listened".into())
    });
    assert_eq!(bdrun("--timeout 1h hello").succeed().stdout, "1 ranks met\n");
}

#[test]
fn lines_are_never_mixed() {
    // Each line in pieces, longer than a pipe takes at once, to both streams, by ranks that run together.
    let script = r"
        piece=$(printf '%01000d' 0 | tr 0 abcdefghijklmnop | tr a $(echo abcdefgh | cut -c$((BDRUN_RANK + 1))))
        i=0; while [ $i -lt 40 ]; do
            printf %s $piece; printf %s $piece >&2; printf '%s\n' $piece$piece; printf '%s\n' $piece$piece >&2
            i=$((i + 1)); done; printf 'no newline'";
    let outcome = bdrun_args(["-np", "8", "--output", "quiet", "sh", "-c", script]).succeed();
    for (text, more) in [(&outcome.stdout, 8), (&outcome.stderr, 0)] {
        let (long, short): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.len() == 3000);
        assert_eq!((long.len(), short.len()), (8 * 40, more), "{short:?}");
        for line in long {
            let first = line.as_bytes()[0];
            assert!(line.bytes().all(|byte| byte == first), "mixed: {line}");
        }
        assert!(short.iter().all(|line| *line == "no newline"), "{short:?}");
    }
}

#[test]
fn tagged_output_names_the_rank() {
    let args = [
        "-np",
        "3",
        "--tag-output",
        "sh",
        "-c",
        "echo out $BDRUN_RANK; echo err $BDRUN_RANK >&2; printf end",
    ];
    let outcome = bdrun_args(args).succeed();
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] end", "[0] out 0", "[1] end", "[1] out 1", "[2] end", "[2] out 2"]);
    for rank in 0..3 {
        assert!(outcome.stderr.contains(&format!("[{rank}] err {rank}\n")), "{}", outcome.stderr);
    }
}

#[test]
fn standard_input_is_that_of_rank_0() {
    let dir = Directory::new("stdin");
    let input = dir.path().join("input");
    std::fs::write(&input, "for one\n").unwrap();
    let file = std::fs::File::open(input).unwrap();
    let outcome = bdrun("-np 3 --tag-output cat").with(|command| command.stdin(Stdio::from(file))).succeed();
    assert_eq!(outcome.stdout, "[0] for one\n");
}

#[test]
fn what_bdrun_prints_itself() {
    let quiet = bdrun("-np 2 --output quiet idle 1 0.5").succeed();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("asleep\n", ""));
    let json = bdrun("-np 2 --output json idle 1 0.5").succeed();
    assert_eq!(json.stderr.lines().count(), 1, "{}", json.stderr);
    assert_eq!(&serde_json::from_str::<Stats>(&json.stderr).unwrap(), json.stats());
    // On a pipe: the table, and nothing of the live line, which a job of this length would have drawn.
    let human = bdrun("-np 2 idle 1 0.5").succeed();
    assert!(human.stderr.contains("bdrun: 2 ranks, ok after"), "{}", human.stderr);
    assert!(
        !human.stderr.contains(['\r', '\x1b']) && !human.stderr.contains("running,"),
        "{:?}",
        human.stderr
    );
    bdrun("--output quiet no-such-program").run().failed_with(127, &["bdrun: error:", "bdrun: remedy:"]);
    let failed = bdrun("--output json no-such-program").run();
    assert_eq!(serde_json::from_str::<Stats>(&failed.stderr).unwrap().status, "not-found");
}

#[test]
fn a_terminal_shows_a_live_line() {
    // Of several seconds: what draws it may be late.
    first_of(["4", "40"], |seconds| {
        let Some((window, theirs)) = terminal::both_ends() else { return Ok(()) };
        let reader = terminal::reading(window);
        let job = bdrun(&format!("-np 2 idle 1 {seconds}"));
        let job = job.with(|command| command.stderr(Stdio::from(theirs)).env("TERM", "xterm"));
        assert_eq!(job.succeed().stdout, "asleep\n");
        let shown = reader.join().unwrap();
        assert!(shown.contains("ok after"), "the table follows: {shown:?}");
        let live = shown.contains(" of 2 done") && shown.contains("running | [----------] ");
        live.then_some(()).ok_or(format!("{shown:?}"))
    });
}

#[test]
fn statistics_are_complete_and_consistent() {
    // Long enough that starting and ending are little of it, also on a loaded machine.
    first_of([30, 120, 480], statistics_of_a_paged_job);
    // A rank that never waits has run all the time all the same.
    let one = bdrun("sweep 16M 150").succeed();
    let (rank, wall) = (&one.stats().ranks[0], one.stats().wall_s);
    // 150 times through 16 MiB at no more than 100 GB/s. Starting and ending may take any time on a loaded
    // machine.
    assert!(rank.running_s > 0.025 && rank.running_s <= wall, "{rank:?} of {wall} s");
}

/// With so many phases; or starting and ending were much of it all the same.
fn statistics_of_a_paged_job(phases: u32) -> Result<(), String> {
    let outcome = bdrun(&format!("-np 4 --memory 24M --processors 1 sweep 12M {phases}")).succeed();
    let stats = outcome.stats();
    assert_eq!((stats.version, stats.status.as_str(), stats.exit_code, stats.np), (1, "ok", 0, 4));
    assert_eq!((stats.budget_bytes, stats.resident_limit, stats.error.as_deref()), (24 << 20, 4, None));
    assert!(stats.wall_s > 0.0 && stats.wall_s <= outcome.wall.as_secs_f64(), "{stats:?}");
    assert!(stats.demand_bytes >= 48 << 20 && stats.demand_bytes < 80 << 20, "{stats:?}");
    assert!(stats.peak_resident_bytes <= stats.budget_bytes, "{stats:?}");
    assert!(stats.message_bytes > 0 && stats.spilled_message_bytes <= stats.message_bytes, "{stats:?}");
    assert!(stats.max_running == 1 && (2..=4).contains(&stats.max_resident), "{stats:?}");
    let numbers: Vec<u32> = stats.ranks.iter().map(|rank| rank.rank).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!(stats.ranks.iter().map(|rank| rank.evicted_bytes).sum::<u64>(), stats.evicted_bytes);
    assert_eq!(stats.ranks.iter().map(|rank| rank.restored_bytes).sum::<u64>(), stats.restored_bytes);
    assert!(stats.evictions > 0 && stats.scratch_read_bytes > 0, "{stats:?}");
    assert!(stats.scratch_written_bytes <= stats.evicted_bytes + stats.message_bytes, "{stats:?}");
    let peaks: u64 = stats.ranks.iter().map(|rank| rank.peak_bytes).sum();
    assert!(peaks >= 48 << 20, "{stats:?}");
    let mut least = f64::INFINITY;
    for rank in &stats.ranks {
        assert_eq!(rank.status, "ok");
        assert!(rank.peak_bytes >= 12 << 20, "{rank:?}");
        let total = rank.running_s + rank.waiting_s + rank.paging_s;
        assert!(rank.running_s > 0.0 && rank.waiting_s > 0.0 && rank.paging_s > 0.0, "{rank:?}");
        assert!(total <= stats.wall_s, "{rank:?} of {} s", stats.wall_s);
        least = least.min(total);
    }
    // One computes at a time, and what is not told of is starting and ending.
    let running = stats.ranks.iter().map(|rank| rank.running_s).sum::<f64>();
    let told = least >= 0.3 * stats.wall_s && running <= 1.05 * stats.wall_s;
    told.then_some(()).ok_or(format!("{stats:?}"))
}

#[test]
fn memory_as_a_share_of_what_is_there() {
    // What is available changes from one moment to the next.
    let [half, tenth, default] = first_of(0..8, |_| {
        let [half, tenth, default, again] = ["--memory 50%", "--memory 5%", "", "--memory 50%"]
            .map(|memory| bdrun(&format!("{memory} hello")).succeed().stats().budget_bytes as f64);
        let same = again > 0.8 * half && again < 1.25 * half;
        if same { Ok([half, tenth, default]) } else { Err(format!("{half}, then {again}")) }
    });
    assert!(half > 6.0 * tenth && half < 16.0 * tenth, "{half} {tenth}");
    assert!(default > 0.6 * half && default < 1.6 * half, "{default} {half}");
    let total = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total =
        total.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap() * 1024.0;
    assert!(half <= total / 2.0, "{half} of {total}");
}

#[test]
fn a_place_for_the_statistics_that_does_not_exist() {
    let outcome = bdrun("--stats /no/such/directory/stats.json hello").run();
    // Given twice: the later one counts, or it is an error; it is never ignored.
    assert!(matches!(outcome.code, Some(118 | 120)), "{outcome:?}");
    let dir = Directory::new("no-stats");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bdrun"));
    command
        .arg("--scratch")
        .arg(dir.path())
        .args(["--stats", "/no/such/directory/stats.json"])
        .arg(program("hello"));
    let output = crate::common::limited(&mut command, LIMIT);
    assert_eq!(output.status.code(), Some(120), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/directory"), "{output:?}");
}

#[test]
fn help_and_version_are_no_errors() {
    let help = bdrun("--help").succeed().stdout;
    for word in ["--resident", "--enforce", "--rank-memory", "119", "deadlock"] {
        assert!(help.contains(word), "{help}");
    }
    assert!(bdrun("--version").succeed().stdout.contains(env!("CARGO_PKG_VERSION")));
}

/// What is wrong is said in words that say what would be right.
#[test]
fn wrong_lines_are_told_what_would_be_right() {
    let dir = Directory::new("wrong-lines");
    let file = dir.path().join("a.fa").display().to_string();
    std::fs::write(&file, "x\n").unwrap();
    let wrong = |args: &[&str], code: i32, words: &[&str]| {
        let outcome = bdrun_args(args.iter().copied()).run();
        outcome.failed_with(code, words);
        outcome.stderr
    };
    let unknown = wrong(&["--rezident", "3", "true"], 118, &["a similar argument exists: '--resident'"]);
    assert!(!unknown.contains("as a value"), "{unknown}");
    wrong(&["-np", "x", "true"], 118, &["it must be a whole number, 1 or more"]);
    wrong(&["-np", "0", "true"], 118, &["it must be 1 or more"]);
    wrong(&["-np", "65537", "true"], 118, &["it is more than 65536, the most ranks that a job may have"]);
    wrong(&["--resident=-1", "true"], 118, &["it must be a whole number, 1 or more"]);
    wrong(&["echo {} | wc"], 127, &["a line for the shell is run by: sh -c 'LINE'"]);
    wrong(&["--glob", &file, &file, "cat"], 118, &["has the shell replaced the pattern? Quote it"]);
    wrong(&["--dry-run", "-np", "2", "no-such-program-anywhere"], 127, &["neither beside bdrun nor in PATH"]);
    wrong(&["--halt", "later,fail=1", "true"], 118, &["now,fail=1, soon,fail=10%"]);
    wrong(&["-j", "4", "--resident", "2", "true"], 118, &["give one of the two"]);
    wrong(&["--retry", "often", "--output-files", "x", "true"], 118, &["a whole number, 0 or more"]);
    wrong(&["./no-such-program"], 127, &["./no-such-program is not there", "from where bdrun is started"]);
    // Whoever reads nothing any more is not told much.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let outcome = bdrun_args(["-np", "2", "yes"]).with(|command| command.stdout(writer)).run();
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(141), 1), "{outcome:?}");
}

/// The words `help` and `help SUBCOMMAND` mean what they say, alone.
#[test]
fn help_is_asked_for_in_words() {
    let run = |words: &[&str]| {
        let output = crate::common::limited(Command::new(env!("CARGO_BIN_EXE_bdrun")).args(words), LIMIT);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(run(&["help"]), run(&["--help"]));
    assert!(run(&["help"]).1.starts_with("Run a partitioned"));
    for what in bdrun::SUBCOMMANDS {
        let (code, shown, _) = run(&["help", what]);
        assert!(code == Some(0) && shown.contains("Usage: bdrun ") && shown.contains("--json"), "{shown}");
        assert_eq!(shown, run(&[what, "--help"]).1);
    }
    let (code, _, said) = run(&["help", "ls"]);
    assert!(code == Some(118) && said.contains("not for 'ls'"), "{said}");
}

/// A program may be in a folder of PATH that cannot be looked into: that is said.
#[test]
fn a_folder_of_path_that_cannot_be_looked_into_is_named() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let dir = Directory::new("closed");
    dir.open_to_all();
    let mine = dir.path().join("bdrun");
    crate::common::executable_copy(std::path::Path::new(env!("CARGO_BIN_EXE_bdrun")), &mine);
    std::fs::set_permissions(&mine, std::fs::Permissions::from_mode(0o755)).expect("for all");
    let closed = dir.path().join("closed-to-all");
    std::fs::create_dir(&closed).expect("a folder");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).expect("closed");
    let run = |program: &str| {
        let mut command = Command::new(&mine);
        command.arg(program).env("PATH", format!("/usr/bin:{}", closed.display())).current_dir("/");
        if nix::unistd::geteuid().is_root() {
            // Root looks into every folder.
            command.uid(65_534).gid(65_534);
        }
        let output = crate::common::limited(&mut command, LIMIT);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run("no-such-program-anywhere");
    assert_eq!(code, Some(127), "{said}");
    assert!(
        said.contains(&format!("{}, a folder of PATH, cannot be looked into", closed.display())),
        "{said}"
    );
    let (code, said) = run(&closed.join("x").display().to_string());
    assert_eq!(code, Some(126), "{said}");
    assert!(said.contains("cannot be looked at: Permission denied"), "{said}");
}
