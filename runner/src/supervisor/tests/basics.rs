//! Starting, ending, descriptors, dispositions, signals.

use super::*;
use std::os::fd::AsRawFd;

#[test]
fn endings_are_reported_as_they_were() {
    both(|config| {
        let rig = rig(config);
        // It is there when the others have ended.
        rig.shell(3, "exec sleep 1000");
        assert!(matches!(rig.next(), Happening::Spawned { rank: 3, .. }));
        rig.shell(0, "exit 0");
        rig.shell(1, "exit 3");
        rig.shell(2, "kill -SEGV $$");
        let mut ends = rig.ends(3);
        ends.sort_by_key(|end| end.0);
        assert_eq!(ends[0].1, Ending::Code(0));
        assert_eq!(ends[1].1, Ending::Code(3));
        assert!(matches!(ends[2].1, Ending::Signal { signal: libc::SIGSEGV, .. }));
        assert!(!rig.supervisor.signal(0, libc::SIGTERM), "it has ended");
        assert!(rig.supervisor.signal(3, libc::SIGTERM), "it has not");
        assert_eq!(rig.ends(1)[0].1, Ending::Signal { signal: libc::SIGTERM, core: false });
        let (_, _, farewell) = rig.finish();
        assert!(farewell.stuck.is_empty() && farewell.output_complete);
    });
}

#[test]
fn what_cannot_be_started_is_named() {
    both(|config| {
        let rig = rig(config);
        let mut spec = shell(4, "");
        spec.program = "/nonexistent/program".into();
        rig.supervisor.spawn(spec);
        match rig.next() {
            Happening::SpawnFailed { rank: 4, error } => {
                assert_eq!(
                    error.to_string(),
                    "cannot execute /nonexistent/program: No such file or directory (os error 2)"
                );
            }
            other => panic!("{other:?}"),
        }
        let mut spec = shell(5, "");
        spec.args.push("a\0b".into());
        rig.supervisor.spawn(spec);
        assert!(matches!(rig.next(), Happening::SpawnFailed { rank: 5, error: SpawnError::ZeroByte { .. } }));
        rig.supervisor.kill_all();
        rig.shell(6, "exit 0");
        assert!(matches!(rig.next(), Happening::SpawnFailed { rank: 6, error: SpawnError::Cancelled }));
    });
}

/// What was left there of an earlier try stays as it is for whoever still writes to it.
#[test]
fn a_new_file_is_made_where_one_is_left() {
    use std::io::{Read, Seek};
    let path = std::env::temp_dir().join(format!("bdrun-left-{}", std::process::id()));
    let mut left = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::io::Write::write_all(&mut left, b"of the earlier").unwrap();
    let rig = rig(Config::default());
    let mut spec = shell(0, "echo new");
    (spec.stdout, spec.stdout_is_new) = (Some(path.clone()), true);
    rig.supervisor.spawn(spec);
    assert_eq!(rig.ends(1)[0].1, Ending::Code(0));
    let mut text = String::new();
    left.rewind().unwrap();
    left.read_to_string(&mut text).unwrap();
    assert_eq!(
        (text.as_str(), std::fs::read_to_string(&path).unwrap().as_str()),
        ("of the earlier", "new\n")
    );
    std::fs::remove_file(path).unwrap();
    rig.finish();
}

#[test]
fn a_script_without_interpreter_runs_in_the_shell() {
    let path = std::env::temp_dir().join(format!("bdrun-script-{}", std::process::id()));
    // By another process ("text file busy", see `measure/tests/figures.rs`).
    let mut shell_that_writes = std::process::Command::new("sh");
    shell_that_writes.args(["-c", "echo 'echo script $1' > $0"]).arg(&path);
    assert!(shell_that_writes.status().unwrap().success());
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, permissions).unwrap();
    let rig = rig(Config::default());
    let mut spec = shell(0, "");
    spec.program.clone_from(&path);
    spec.args = vec!["one".into()];
    rig.supervisor.spawn(spec);
    rig.ends(1);
    assert_eq!(rig.finish().0, "script one\n");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn children_start_clean() {
    both(|config| {
        let rig = rig(config);
        let before = crate::descriptors::original().rlim_cur;
        rig.shell(0, "grep -E '^Sig(Blk|Ign)' /proc/self/status; ulimit -Sn; cat; ls -l /proc/self/fd >&2");
        rig.ends(1);
        let (out, err, _) = rig.finish();
        let zero = "0000000000000000";
        assert_eq!(out, format!("SigBlk:\t{zero}\nSigIgn:\t{zero}\n{before}\n"));
        assert!(!err.contains("pidfd") && !err.contains("eventpoll"), "{err}");
    });
}

/// Not a test by itself: a master whose only rank copies its input.
#[test]
fn helper_copies_stdin() {
    if role().is_none() {
        return;
    }
    let (sender, events) = channel::<Happening>();
    let mut supervisor = Supervisor::start(grouped(), sender).unwrap();
    let spec = |rank, stdin| SpawnSpec { stdin, ..shell(rank, "exec cat") };
    supervisor.spawn(spec(1, Stdin::Null));
    supervisor.spawn(spec(0, Stdin::Inherit));
    let ends = events.iter().filter(|happening| matches!(happening, Happening::Exited { .. }));
    assert_eq!(ends.take(2).count(), 2);
    supervisor.finish(LIMIT);
}

#[test]
fn one_rank_reads_the_masters_input() {
    use std::io::Write;
    let mut command = again(module_path!(), "helper_copies_stdin", "copy");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut master = command.spawn().unwrap();
    master.stdin.take().unwrap().write_all(b"from the pipe\n").unwrap();
    let output = master.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("from the pipe").count(), 1, "{text}");
}

#[test]
fn writes_go_through_the_displays_hands() {
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let around: AroundWrite = Arc::new(move |write| {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        write();
    });
    let rig = rig(Config { around_write: Some(around), ..Config::default() });
    rig.shell(0, "echo not there; echo one >&2; echo two >&2");
    rig.ends(1);
    assert_eq!(rig.finish().1, "one\ntwo\n");
    assert!((1..=2).contains(&count.load(std::sync::atomic::Ordering::Relaxed)));
}

#[test]
fn environment_and_descriptors_arrive() {
    both(|config| {
        let rig = rig(config);
        let (read, write) = sys::pipe().unwrap();
        let shared = Arc::new(write);
        let (other, other_write) = sys::pipe().unwrap();
        // A target that is the number of another source.
        let crossed = other_write.as_raw_fd();
        let mut spec = shell(9, &format!("echo $RANK $X > /proc/self/fd/{crossed}; echo four >&4"));
        spec.env.extend([("X".into(), "first".into()), ("X".into(), "second".into())]);
        spec.fds = vec![(Arc::clone(&shared).into(), crossed), (other_write.into(), 4)];
        rig.supervisor.spawn(spec);
        assert_eq!(rig.ends(1)[0].1, Ending::Code(0));
        drop(shared);
        let text = |fd: OwnedFd| std::io::read_to_string(std::fs::File::from(fd)).unwrap();
        assert_eq!(text(read), "9 second\n");
        assert_eq!(text(other), "four\n");
    });
}

#[test]
fn output_comes_before_the_end_and_last_lines_are_ended() {
    both(|config| {
        let rig = rig(Config { tag_output: true, ..config });
        rig.shell(3, "echo whole; printf 'error without end' >&2; printf half");
        rig.ends(1);
        // A child left behind keeps the pipe open; it has left the group, so it lives on for now.
        rig.shell(4, "printf left; setsid sleep 2 & exit 1");
        rig.ends(1);
        let (out, err, farewell) = rig.finish();
        assert_eq!(out, "[3] whole\n[3] half\n[4] left", "the last one only where something follows");
        assert_eq!(err, "[3] error without end\n");
        assert!(farewell.output_complete);
    });
}

#[test]
fn kill_all_reaches_groups_and_daemons() {
    both(|config| {
        let in_a_group = config.common_group;
        let rig = rig(config);
        let mark = format!("SUP_MARK=kill{}{in_a_group}", std::process::id());
        for rank in 0..4 {
            let mut spec = shell(rank, "sleep 1000 & setsid sleep 1000 & echo up; sleep 1000");
            spec.env.push(("SUP_MARK".into(), mark[9..].into()));
            rig.supervisor.spawn(spec);
        }
        let deadline = Instant::now() + LIMIT;
        while marked(&mark).iter().filter(|(_, name)| name == "sleep").count() < 12 {
            assert!(Instant::now() < deadline, "{:?}", marked(&mark));
            std::thread::sleep(Duration::from_millis(5));
        }
        rig.supervisor.kill_all();
        assert!(rig.ends(4).iter().all(|end| end.1 == Ending::Signal { signal: libc::SIGKILL, core: false }));
        let left = wait_unmarked(&mark);
        assert!(left.is_empty(), "{left:?}");
        let (out, ..) = rig.finish();
        assert_eq!(out, "up\n".repeat(4));
    });
}

#[test]
fn what_waits_to_be_started_can_be_cancelled() {
    // A thread that is very late finds all of them made.
    assert!((0..3).any(|_| some_are_cancelled()), "hardly any of them");
}

/// Whether more than a few of many were not made yet; what was is ended.
fn some_are_cancelled() -> bool {
    let rig = rig(Config::default());
    const RANKS: u32 = 3000;
    for rank in 0..RANKS {
        rig.shell(rank, "exec sleep 1000");
    }
    // One or the other of those that are made at the same time.
    assert!(matches!(rig.next(), Happening::Spawned { rank: 0 | 1, .. }));
    rig.supervisor.cancel_pending();
    rig.supervisor.signal_all(libc::SIGTERM);
    let (mut ended, mut cancelled) = (0, 0);
    while ended + cancelled < RANKS {
        match rig.next() {
            Happening::SpawnFailed { error: SpawnError::Cancelled, .. } => cancelled += 1,
            Happening::Exited { .. } => ended += 1,
            _ => {}
        }
    }
    assert!(ended >= 1, "{ended} ended, {cancelled} cancelled");
    rig.shell(0, "exit 4");
    assert_eq!(rig.ends(1)[0].1, Ending::Code(4));
    cancelled > 100
}

#[test]
fn a_rank_takes_its_group_along() {
    both(|config| {
        let rig = rig(config);
        let mark = format!("SUP_MARK=group{}", std::process::id());
        let mut spec = shell(0, "sleep 1000 & exit 0");
        spec.env.push(("SUP_MARK".into(), mark[9..].into()));
        rig.supervisor.spawn(spec);
        rig.ends(1);
        assert_eq!(wait_unmarked(&mark), []);
    });
}

#[test]
fn a_rank_number_can_be_used_again() {
    let rig = rig(Config::default());
    for code in [5, 6] {
        rig.shell(0, &format!("exit {code}"));
        assert_eq!(rig.ends(1)[0].1, Ending::Code(code));
    }
}

/// The first or second keeper, as long as there is one.
fn keeper(rig: &Rig, which: usize) -> i32 {
    rig.supervisor.shared.keepers.pids()[which].unwrap_or(0)
}

#[test]
fn a_keeper_that_is_lost_is_replaced_for_a_while() {
    both(|config| {
        let rig = rig(config);
        rig.shell(0, "exec sleep 1000");
        assert!(matches!(rig.next(), Happening::Spawned { .. }));
        // It goes on for ever otherwise.
        for loss in 0..1_000 {
            let which = loss % 2;
            let before = keeper(&rig, which);
            sys::kill(before, libc::SIGKILL);
            let deadline = Instant::now() + LIMIT;
            while keeper(&rig, which) == before {
                assert!(Instant::now() < deadline, "loss {loss}");
                std::thread::sleep(Duration::from_millis(1));
            }
            if keeper(&rig, which) == 0 {
                assert!(loss > 8, "{loss}");
                assert!(matches!(rig.next(), Happening::KeeperLost));
                // The other one is still there, and the rank does not notice.
                assert!(keeper(&rig, 1 - which) != 0);
                rig.shell(1, "exit 0");
                assert_eq!(rig.ends(1)[0], (1, Ending::Code(0), OomKill::No));
                return;
            }
        }
        panic!("it is replaced for ever");
    });
}

#[test]
fn signals_to_the_master_are_reported() {
    let rig = rig(Config { catch_signals: Catch::Running, ..Config::default() });
    sys::kill(std::process::id() as i32, libc::SIGUSR1);
    assert!(matches!(rig.next(), Happening::Signal(libc::SIGUSR1)));
}

/// Not a test by itself: a master that listens for signals, finishes, and lives on.
#[test]
fn helper_finishes_and_waits() {
    if role().is_none() {
        return;
    }
    for _ in 0..2 {
        let (sender, events) = channel::<Happening>();
        let mut supervisor =
            Supervisor::start(Config { catch_signals: Catch::Running, ..Config::default() }, sender).unwrap();
        sys::kill(std::process::id() as i32, libc::SIGTERM);
        assert!(matches!(events.recv().unwrap(), Happening::Signal(libc::SIGTERM)));
        supervisor.finish(Duration::from_secs(1));
    }
    sys::kill(std::process::id() as i32, libc::SIGTERM);
    std::thread::sleep(Duration::from_secs(10));
}

#[test]
fn after_the_finish_signals_have_their_default_effect() {
    use std::os::unix::process::ExitStatusExt;
    let status = again(module_path!(), "helper_finishes_and_waits", "wait")
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{status}");
}

#[test]
fn a_closed_output_is_reported_and_does_not_block() {
    let (sender, events) = channel::<Happening>();
    let (read, write) = sys::pipe().unwrap();
    let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
    let config = Config { outputs: Some((write, null.into())), ..Config::default() };
    let mut supervisor = Supervisor::start(config, sender).unwrap();
    drop(read);
    // Much more than pipes can hold: it must be taken and thrown away.
    supervisor.spawn(shell(0, "head -c 3000000 /dev/zero | tr '\\0' '\\n'; exit 7"));
    let (mut failed, mut ended) = (false, false);
    while !(failed && ended) {
        match events.recv_timeout(LIMIT).unwrap() {
            Happening::OutputFailed { stream: Stream::Stdout, error } => {
                assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
                failed = true;
            }
            Happening::Exited { ending: Ending::Code(7), .. } => ended = true,
            Happening::Spawned { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(supervisor.finish(LIMIT).output_complete);
}

/// Whether a pipe takes more, now.
fn has_room(pipe: &OwnedFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
}

#[test]
fn a_blocked_output_neither_hides_an_end_nor_hangs_the_finish() {
    let (sender, events) = channel::<Happening>();
    let (_read, write) = sys::pipe().unwrap();
    let output = write.try_clone().unwrap();
    let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
    let config = Config { outputs: Some((write, null.into())), ..Config::default() };
    let mut supervisor = Supervisor::start(config, sender).unwrap();
    supervisor.spawn(shell(1, "yes"));
    let deadline = Instant::now() + LIMIT;
    while has_room(&output) {
        assert!(Instant::now() < deadline, "it is never full");
        std::thread::sleep(Duration::from_millis(5));
    }
    supervisor.spawn(shell(0, "echo unseen; exit 7"));
    loop {
        let happening = events.recv_timeout(LIMIT).unwrap();
        if matches!(happening, Happening::Exited { rank: 0, ending: Ending::Code(7), .. }) {
            break;
        }
    }
    // Who is killed may take its time to end; only the output is given up.
    supervisor.stop(LIMIT);
    let start = Instant::now();
    let farewell = supervisor.finish(Duration::from_millis(500));
    assert!(!farewell.output_complete && farewell.stuck.is_empty());
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}
