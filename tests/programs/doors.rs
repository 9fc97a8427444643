//! What a program that a rank runs can reach of the job: nobody but itself is hurt by what it does to its
//! descriptors.

use crate::common::chaos::{PYTHON, args, lines, plainly, python_with, text};
use crate::common::{Directory, bdrun, bdrun_args, program};

/// Makes every file that it has open, and can, empty; then it computes for a while.
const VANDAL: &str = "
import os
for fd in range(3, 1024):
    try: os.ftruncate(fd, 0)
    except OSError: pass
for i in range(20): b = bytearray(1 << 20)
print('rank lives')
";

/// It has dropped root's rights, as a program may that root runs, and so cannot do worse than this.
#[test]
fn a_rank_that_makes_all_its_files_empty() {
    if !python_with("os") {
        return;
    }
    crate::preload::library();
    let dropped = format!("import os\nif os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n{VANDAL}");
    for options in [&["--preload", "never"][..], &["--preload", "always"]] {
        let program = [PYTHON, "-c", &dropped];
        let outcome = bdrun_args(["-np", "3"].iter().chain(options).chain(&program)).succeed();
        assert_eq!(lines(&outcome.stdout, 1), ["rank lives"; 3], "{options:?}");
    }
}

/// A script around a program of ours: what its other children do to their files does not reach the job.
#[test]
fn a_child_that_makes_all_its_files_empty() {
    if !python_with("os") {
        return;
    }
    let dir = Directory::new("doors");
    let script = format!(
        "#!/bin/bash\n{PYTHON} -c \"{VANDAL}\" > /dev/null\nexec {} \"$@\"\n",
        program("sweep").display()
    );
    let script = dir.script("script", &script).display().to_string();
    for options in [&["-np", "3"][..], &["-np", "3", "--memory", "40M"]] {
        let outcome = bdrun_args(options.iter().copied().chain([&*script, "8M", "4"])).succeed();
        assert_eq!(outcome.stdout, bdrun("-np 3 sweep 8M 4").succeed().stdout, "{options:?}");
    }
}

/// What a program has open, by number: a name without what differs from run to run.
const OPEN: &str = "
import os
seen = []
for fd in sorted(map(int, os.listdir('/proc/self/fd'))):
    try: name = os.readlink('/proc/self/fd/%d' % fd)
    except OSError: continue # that of the listing
    if fd > 2: seen.append('%d %s' % (fd, name.split(':[')[0].split(' ')[0]))
print(', '.join(seen))
";

#[test]
fn who_does_not_attach_has_nothing_but_the_socket() {
    if !python_with("os") {
        return;
    }
    let show = |files: &[&str]| format!("{0}\n{0}\n", files.join(", "));
    // The tests may have been started with files open.
    let plain = text(&plainly(&args([&PYTHON, &"-c", &OPEN])).stdout);
    let mut files: Vec<&str> = plain.trim().split(", ").filter(|file| !file.is_empty()).collect();
    let none = show(&files);
    files.push("203 socket");
    files.sort_by_key(|file| file.split(' ').next().and_then(|number| number.parse::<u32>().ok()));
    let socket = show(&files);
    // Nor has a child, whose parent may be the rank.
    let dir = Directory::new("doors");
    let child = dir.script("child", &format!("#!/bin/bash\n{PYTHON} -c \"{OPEN}\"\ntrue\n"));
    let child = child.display().to_string();
    let outcome = bdrun_args(["-np", "2", "--preload", "never", PYTHON, "-c", OPEN]);
    assert_eq!(outcome.succeed().stdout, socket);
    let outcome = bdrun_args(["-np", "2", "--preload", "never", &child]);
    assert_eq!(outcome.succeed().stdout, socket);
    // A rank's own children are no ranks: they have not even the socket.
    crate::preload::library();
    let outcome = bdrun_args(["-np", "2", "--preload", "always", &child]);
    assert_eq!(outcome.succeed().stdout, none);
}

/// What is handed over stays out of the way of the numbers that programs choose, and ends with the program;
/// the next one in the same process asks anew.
#[test]
fn what_a_rank_is_given_ends_with_its_program() {
    if !python_with("os") {
        return;
    }
    crate::preload::library();
    let check = "
import fcntl, os, sys
files = {}
for fd in map(int, os.listdir('/proc/self/fd')):
    try: name = os.readlink('/proc/self/fd/%d' % fd)
    except OSError: continue
    if 'memfd:bdrun-' in name: files[name.split(':')[1].split(' ')[0]] = fd
assert len(files) == 2 and min(files.values()) >= 100, files
assert all(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for fd in files.values()), files
n = int(sys.argv[1])
if n: os.execv(sys.executable, [sys.executable, '-c', sys.argv[2], str(n - 1), sys.argv[2]])
print(sorted(files))
";
    let job = ["-np", "2", "--preload", "always", "--chaos", "5", PYTHON, "-c", check];
    let outcome = bdrun_args(job.into_iter().chain(["4", check])).succeed();
    let expected = "['bdrun-mail', 'bdrun-segment']";
    assert_eq!(lines(&outcome.stdout, 1), [expected; 2]);
}

/// As many files as it may have are open when it attaches, or the limit is below the usual numbers.
#[test]
fn a_rank_with_a_low_limit_of_open_files() {
    let line = |limit: u32| format!("ulimit -n {limit}; exec {} 4M 3", program("sweep").display());
    let expected = bdrun("-np 2 sweep 4M 3").succeed().stdout;
    let job = |limit| bdrun_args(["-np", "2", "--preload", "never", "bash", "-c", &line(limit)]);
    assert_eq!(job(40).succeed().stdout, expected);
    assert_eq!(job(150).succeed().stdout, expected);
    let outcome = job(4).run();
    assert!(outcome.code.is_some_and(|code| code != 0), "{outcome:?}");
    assert!(outcome.stderr.contains("ulimit -n"), "{outcome:?}");
}
