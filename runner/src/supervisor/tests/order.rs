//! The order of output with real processes, and ranks with files and directories of their own.

use super::*;
use std::path::Path;

/// A file that has no name any more.
fn nameless(name: &str) -> std::fs::File {
    let path = std::env::temp_dir().join(format!("bdrun-held-{}-{name}", std::process::id()));
    let file =
        std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

#[test]
fn ranks_are_heard_in_order_also_those_that_run_again_or_never() {
    let config = Config { spool: Some(nameless("order")), tag_output: true, ..Config::default() };
    let rig = rig(Config { keep_order: true, ..config });
    rig.shell(3, "echo three; printf half");
    rig.shell(1, "echo first try; exec sleep 1000");
    rig.shell(2, "exit 0");
    let mut absent = shell(0, "");
    absent.program = "/nonexistent/program".into();
    // The others have ended, and it runs, in whatever order.
    let (mut ended, mut runs) = (0, false);
    while ended < 2 || !runs {
        match rig.next() {
            Happening::Exited { .. } => ended += 1,
            Happening::Spawned { rank, .. } => runs |= rank == 1,
            other => panic!("{other:?}"),
        }
    }
    [2, 3].into_iter().for_each(|rank| rig.supervisor.is_over(rank));
    rig.supervisor.signal(1, libc::SIGKILL);
    assert_eq!(rig.ends(1)[0].0, 1);
    rig.supervisor.forget(1);
    rig.supervisor.spawn(absent);
    assert!(matches!(rig.next(), Happening::SpawnFailed { rank: 0, .. }));
    // One that failed, and is tried once more, goes on with what it prints, before all others.
    rig.shell(1, "echo second try; exit 1");
    rig.ends(1);
    rig.shell(1, "echo third try; echo error >&2");
    rig.ends(1);
    rig.supervisor.is_over(1);
    let (out, err, farewell) = rig.finish();
    assert_eq!(out, "[1] second try\n[1] third try\n[3] three\n[3] half");
    assert_eq!(err, "[1] error\n");
    assert!(farewell.output_complete);
}

#[test]
fn files_and_directories_that_cannot_be_used_are_named() {
    let rig = rig(Config::default());
    let failure = |spec: SpawnSpec| {
        rig.supervisor.spawn(spec);
        match rig.next() {
            Happening::SpawnFailed { error, .. } => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let absent = || Some(PathBuf::from("/no/such/place"));
    let error = failure(SpawnSpec { directory: absent(), ..shell(0, "") });
    assert_eq!(error, "cannot run in /no/such/place: No such file or directory (os error 2) (--chdir)");
    let error = failure(SpawnSpec { stderr: Some("/proc".into()), ..shell(0, "") });
    assert!(error.contains("cannot open /proc as its standard error"), "{error}");
    let error = failure(SpawnSpec { stderr: Some("/dev/null/place".into()), ..shell(0, "") });
    assert!(error.contains("cannot make the directory /dev/null for its standard error"), "{error}");
    let error = failure(SpawnSpec { stdin: Stdin::File("/no/such/place".into()), ..shell(0, "") });
    assert!(error.contains("/no/such/place as its standard input"), "{error}");
}

#[test]
fn files_are_the_ranks_own_descriptors() {
    both_streams(Some("same"), Some("same"), &[("same", "out\nerr\nout\n")], "", "");
    both_streams(Some("one"), Some("two"), &[("one", "out\nout\n"), ("two", "err\n")], "", "");
    both_streams(None, Some("two"), &[("two", "err\n")], "out\nout\n", "");
    both_streams(Some("one"), None, &[("one", "out\nout\n")], "", "err\n");
}

fn both_streams(
    stdout: Option<&str>,
    stderr: Option<&str>,
    files: &[(&str, &str)],
    forwarded: &str,
    errors: &str,
) {
    let dir = std::env::temp_dir().join(format!("bdrun-own-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let rig = rig(Config::default());
    let file = |name: Option<&str>| name.map(|name| dir.join(name));
    rig.supervisor.spawn(SpawnSpec {
        stdout: file(stdout),
        stderr: file(stderr),
        directory: Some(dir.clone()),
        stdin: Stdin::File("/dev/null".into()),
        ..shell(0, "echo out; echo err >&2; echo out; : > here")
    });
    assert_eq!(rig.ends(1)[0].1, Ending::Code(0));
    let read = |name: &str| std::fs::read_to_string(Path::new(&dir).join(name)).unwrap();
    for (name, text) in files {
        assert_eq!(read(name), *text);
    }
    assert_eq!(read("here"), "");
    let (out, err, _) = rig.finish();
    assert_eq!((out.as_str(), err.as_str()), (forwarded, errors));
    std::fs::remove_dir_all(dir).unwrap();
}
