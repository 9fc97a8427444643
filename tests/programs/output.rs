//! What ranks print: byte for byte where it has to be, in whole lines where several print, and whoever reads
//! it slowly or not at all stops nothing but those who print.

use std::fs::{self, File};
use std::io::{PipeReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::besides::may_be_paged;
use crate::common::{Bdrun, Directory, Job, LIMIT, bdrun_args, first_of, limited, poll, skipped, terminal};

/// What a pipe can hold.
const PIPE: usize = 64 << 10;

/// Runs it with standard output in a file; what is there then.
fn printed(dir: &Directory, bdrun: Bdrun) -> Vec<u8> {
    let path = dir.path().join("printed");
    let file = File::create(&path).unwrap();
    bdrun.with(|command| command.stdout(file)).succeed();
    fs::read(path).unwrap()
}

/// Bytes of every value, without an order that could hide a loss.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn in_order_every_byte_is_as_the_rank_wrote_it() {
    let dir = Directory::new("exact");
    // A text without a last newline, noise, nothing, newlines only, 3 MiB without any.
    let no_newlines = |length| noise(7, length).into_iter().filter(|&byte| byte != b'\n').collect();
    let contents: [Vec<u8>; 6] = [
        b">a\nACGT".to_vec(),
        noise(3, 2_500_000),
        Vec::new(),
        b"\n\n".to_vec(),
        no_newlines(3 << 20),
        b"end".to_vec(),
    ];
    for (number, content) in contents.iter().enumerate() {
        fs::write(dir.path().join(format!("a{number}.fa")), content).unwrap();
    }
    let pattern = dir.path().join("a?.fa").display().to_string();
    for program in
        [&["cat", "{}"][..], &["gzip", "-c", "{}"], &["sh", "-c", "sleep 0.$((5 - {#} % 5)); cat {}"]]
    {
        let args = ["--glob", &pattern, "--keep-order", "--"];
        let got = printed(&dir, bdrun_args(args.iter().chain(program)));
        let expected: Vec<u8> = (0..contents.len())
            .flat_map(|number| {
                let path = dir.path().join(format!("a{number}.fa")).display().to_string();
                let args: Vec<String> =
                    program.iter().map(|arg| arg.replace("{}", &path).replace("{#}", "1")).collect();
                limited_to_file(&dir, Command::new(&args[0]).args(&args[1..]))
            })
            .collect();
        assert!(got == expected, "{program:?}: {} bytes instead of {}", got.len(), expected.len());
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), contents.len() + 2);
}

/// What a command prints, however much.
fn limited_to_file(dir: &Directory, command: &mut Command) -> Vec<u8> {
    let path = dir.path().join("expected");
    let status = command.stdin(Stdio::null()).stdout(File::create(&path).unwrap()).status().unwrap();
    assert!(status.success());
    fs::read(path).unwrap()
}

/// One of 5 MiB, in pieces, while others print all the time.
#[test]
fn a_long_line_stays_whole_among_others() {
    let dir = Directory::new("long-line");
    let script = "if [ $0 = 0 ]; then
            i=0; while [ $i -lt 20 ]; do head -c 262144 /dev/zero | tr '\\0' x; sleep 0.02; i=$((i+1)); done
            echo; printf 'last of 0'
        else
            i=0; while [ $i -lt 300 ]; do echo \"line $i of $0\"; sleep 0.002; i=$((i+1)); done
        fi";
    for options in [&[][..], &["--tag-output"], &["--keep-order"], &["--keep-order", "--tag-output"]] {
        let tag = |rank: u32| {
            if options.contains(&"--tag-output") { format!("[{rank}] ") } else { String::new() }
        };
        let args = ["-np", "3"].into_iter().chain(options.iter().copied());
        let text = printed(&dir, bdrun_args(args.chain(["sh", "-c", script, "{rank}"])));
        let text = String::from_utf8(text).unwrap();
        let mut expected = vec![format!("{}{}", tag(0), "x".repeat(5 << 20)), format!("{}last of 0", tag(0))];
        for rank in [1, 2] {
            expected.extend((0..300).map(|line| format!("{}line {line} of {rank}", tag(rank))));
        }
        let mut lines: Vec<&str> = text.lines().collect();
        if options == ["--keep-order"] {
            // Nothing at all is added, so the last line of rank 0 and the first of rank 1 are one.
            expected.remove(1);
            expected[1] = format!("last of 0{}", expected[1]);
        }
        if !options.contains(&"--keep-order") {
            lines.sort_unstable();
            expected.sort_unstable();
        }
        let lengths =
            |lines: &mut dyn Iterator<Item = usize>| lines.filter(|&length| length > 40).collect::<Vec<_>>();
        assert_eq!(
            lengths(&mut lines.iter().map(|line| line.len())),
            lengths(&mut expected.iter().map(String::len))
        );
        assert!(lines == expected, "{options:?}: {} lines", lines.len());
    }
}

#[test]
fn a_last_line_without_an_end_gets_one_only_if_another_follows() {
    let dir = Directory::new("last-line");
    let text = printed(&dir, bdrun_args(["-np", "3", "sh", "-c", "printf 'rank %s' $0", "{rank}"]));
    let text = String::from_utf8(text).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rank 0", "rank 1", "rank 2"]);
    assert!(!text.ends_with('\n'), "{text:?}");
    // bdrun's own words begin with a line.
    let outcome =
        bdrun_args(["-np", "2", "sh", "-c", "printf 'rank %s' $0 >&2; sleep 2; exit 3", "{rank}"]).run();
    outcome.failed_with(3, &["\nbdrun: error: rank"]);
}

/// Whether a pipe that nobody reads is full.
fn is_full(pipe: &PipeReader) -> bool {
    let mut count: libc::c_int = 0;
    // SAFETY: writes a number to a local.
    let done = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut count) };
    // A page at its end may be used in part.
    done == 0 && count as usize > PIPE - 4096
}

/// Waits until it is.
fn wait_full(pipe: &PipeReader) {
    assert!(poll(LIMIT, || is_full(pipe).then_some(())).is_some(), "nobody fills the pipe");
}

/// Whether nothing more can be written to a terminal.
fn stands_still(terminal: &OwnedFd) -> bool {
    let mut asked = libc::pollfd { fd: terminal.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: reads and writes a local.
    unsafe { libc::poll(&raw mut asked, 1, 0) == 0 }
}

/// Waits until the ranks have printed more than the pipe of the reader takes: what they print more slowly
/// than bdrun is told to end may all fit into it. Only what calls of theirs have said they wrote is seen, and
/// nothing of the call in which they wait.
fn wait_for_more(job: &Job) {
    let written = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse::<usize>().ok())
    };
    let more = || {
        let ranks = job.processes().into_iter().filter(|&(pid, _)| pid != job.pid());
        let all = ranks.filter_map(|(pid, _)| written(pid)).sum::<usize>();
        (all > PIPE + 4096).then_some(())
    };
    assert!(poll(LIMIT, more).is_some(), "the ranks print no more");
}

fn wait_for(path: &Path) {
    assert!(poll(LIMIT, || path.exists().then_some(())).is_some(), "{} does not come", path.display());
}

/// As long as nothing changes; nothing if the job ends before.
fn descriptors_at_rest(job: &Job) -> Option<usize> {
    let (mut before, mut since) = (0, Instant::now());
    let rest = || {
        if job.has_ended() {
            return Some(None);
        }
        let open = fs::read_dir(format!("/proc/{}/fd", job.pid())).map_or(0, Iterator::count);
        if open != before || !job.ranks().is_empty() {
            (before, since) = (open, Instant::now());
        }
        (since.elapsed() > Duration::from_secs(3)).then_some(Some(open))
    };
    poll(LIMIT, rest).unwrap_or_else(|| panic!("no rest: {}", job.situation()))
}

/// With standard output a pipe.
fn piped(bdrun: Bdrun) -> (Bdrun, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    (bdrun.with(|command| command.stdout(writer)), reader)
}

/// As `bdrun … | less` where nobody turns the page. What was shown at the terminal; nothing if there is none.
fn shown_while_nobody_reads(limit: &str, by_signal: bool) -> Option<String> {
    let (window, theirs) = terminal::both_ends()?;
    let args = ["-np", "2", "--timeout", limit, "--preload", "never", "sh", "-c", "yes 2>/dev/null"];
    let (bdrun, reader) = piped(bdrun_args(args));
    let job = bdrun.with(|command| command.stderr(theirs)).within(2 * LIMIT).start();
    let shown = terminal::reading(window);
    if by_signal {
        wait_full(&reader);
        wait_for_more(&job);
        job.signal(libc::SIGTERM);
    }
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(if by_signal { 143 } else { 124 }), "{outcome:?}");
    drop(reader);
    Some(shown.join().unwrap())
}

#[test]
fn a_job_that_nobody_reads_ends_when_it_is_told_to() {
    let said = |shown: String| shown.contains("was not read").then_some(()).ok_or(shown);
    let Some(shown) = shown_while_nobody_reads("1h", true) else { return };
    assert_eq!(said(shown), Ok(()));
    // Long enough for all to be full by then.
    first_of(["10s", "100s", "500s"], |limit| said(shown_while_nobody_reads(limit, false).unwrap()));
}

/// The terminal itself stands still, as after ^S: neither live line nor account can be written. Or the job's
/// time was over before it did.
fn ends_at_a_terminal_that_stands_still(output: &str, limit: &str, by_signal: bool) -> Result<(), String> {
    let Some((window, theirs)) = terminal::both_ends() else { return Ok(()) };
    let args = ["-np", "2", "--timeout", limit, "--output", output, "sh", "-c", "yes >&2 & yes"];
    let (stdout, terminal) = (theirs.try_clone().unwrap(), theirs.try_clone().unwrap());
    let job = bdrun_args(args).with(|command| command.stdout(stdout).stderr(theirs)).within(2 * LIMIT);
    let job = job.start();
    // At the end there may be room again for a little.
    let stood = poll(LIMIT, || match stands_still(&terminal) {
        false if !job.has_ended() => None,
        stood => Some(stood),
    });
    if by_signal {
        job.signal(libc::SIGTERM);
    }
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(if by_signal { 143 } else { 124 }), "{output} {outcome:?}");
    drop(window);
    if stood == Some(true) { Ok(()) } else { Err(format!("{outcome:?}")) }
}

#[test]
fn a_terminal_that_stands_still_does_not_stop_the_job() {
    for output in ["human", "json", "quiet"] {
        assert_eq!(ends_at_a_terminal_that_stands_still(output, "1h", true), Ok(()));
        let limits = ["2s", "20s", "200s"];
        first_of(limits, |limit| ends_at_a_terminal_that_stands_still(output, limit, false));
    }
}

/// Ranks that print stand; others are admitted, and end.
#[test]
fn while_nobody_reads_the_other_ranks_go_on() {
    let Some((window, theirs)) = terminal::both_ends() else { return };
    let dir = Directory::new("go-on");
    let at = |name: &str| dir.path().join(name);
    let script = format!(
        "if [ $0 = 0 ]; then yes | head -c 1000000; fi
        until [ -e {0}/go ]; do sleep 0.01; done
        [ $0 = 1 ] && echo heard all the same >&2
        : > {0}/done.$0",
        dir.path().display()
    );
    let (bdrun, mut reader) = piped(bdrun_args([
        "-np",
        "6",
        "--resident",
        "3",
        "--preload",
        "never",
        "sh",
        "-c",
        &script,
        "{rank}",
    ]));
    let job = bdrun.with(|command| command.stderr(theirs)).start();
    let shown = terminal::reading(window);
    wait_full(&reader);
    // Long enough for the live line to be drawn again.
    std::thread::sleep(Duration::from_millis(500));
    fs::write(at("go"), "").unwrap();
    for rank in 1..6 {
        wait_for(&at(&format!("done.{rank}")));
    }
    assert!(!at("done.0").exists(), "rank 0 waits for its reader");
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "y\n".repeat(500_000));
    assert_eq!(job.wait().code, Some(0));
    assert!(shown.join().unwrap().contains("heard all the same"));
}

/// One that waits for its reader is paged out for one that needs memory.
#[test]
fn while_nobody_reads_memory_is_paged() {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return skipped("python3", "no python3 here");
    }
    let Some((window, theirs)) = terminal::both_ends() else { return };
    let dir = Directory::new("paged");
    let at = |name: &str| dir.path().join(name);
    // What does nothing is found out by looking at it for a while, and what holds memory by looking at all:
    // on a busy machine that is seldom.
    let script = "import os, sys, time
rank, there = sys.argv[1:]
while rank == '1' and not os.path.exists(there + '/go'): time.sleep(0.01)
memory = bytearray(60 << 20)
memory[::4096] = b'y' * (len(memory) // 4096)
if rank == '0': sys.stdout.write('y\\n' * 500000)
while memory.count(b'y') == len(memory) // 4096 and rank == '1' and not os.path.exists(there + '/seen'): pass
assert memory.count(b'y') == len(memory) // 4096
open(there + '/done.' + rank, 'w')";
    let path = dir.path().display().to_string();
    let args =
        ["-np", "2", "--memory", "90M", "--preload", "never", "python3", "-c", script, "{rank}", &path];
    let (bdrun, mut reader) = piped(bdrun_args(args));
    // Unbuffered, Python forgets what a write that was broken off has left over; a stop (SIGSTOP or ours)
    // breaks one off into a full pipe.
    let job = bdrun.with(|command| command.stderr(theirs).env_remove("PYTHONUNBUFFERED")).start();
    let shown = terminal::reading(window);
    wait_full(&reader);
    fs::write(at("go"), "").unwrap();
    if may_be_paged() {
        assert!(job.sees(|rank| rank["out"].as_u64() > Some(20 << 20)), "{}", job.situation());
    }
    fs::write(at("seen"), "").unwrap();
    wait_for(&at("done.1"));
    assert!(!at("done.0").exists(), "rank 0 waits for its reader");
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(text == "y\n".repeat(500_000), "{} bytes", text.len());
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(0), "{}", shown.join().unwrap());
    let measured = outcome.stats().measured.as_ref().expect("independent ranks are measured");
    if measured.paging_refused.is_none() {
        assert!(measured.out_bytes > 20 << 20, "{measured:?}");
    }
}

/// A stream of which nothing is read does not stop the other.
#[test]
fn standard_error_is_heard_while_standard_output_is_not_read() {
    let dir = Directory::new("streams");
    let go = dir.path().join("go");
    let script = format!(
        "if [ $0 = 0 ]; then exec yes; fi
        until [ -e {} ]; do sleep 0.01; done; echo an error >&2; sleep 1000",
        go.display()
    );
    let (bdrun, reader) = piped(bdrun_args(["-np", "2", "sh", "-c", &script, "{rank}"]));
    let (errors, writer) = std::io::pipe().unwrap();
    let job = bdrun.with(|command| command.stderr(writer)).start();
    wait_full(&reader);
    fs::write(go, "").unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(&errors), &mut line).unwrap();
    assert_eq!(line, "an error\n");
    wait_for_more(&job);
    let rest = terminal::reading(errors);
    job.signal(libc::SIGTERM);
    assert_eq!(job.wait().code, Some(143));
    assert!(rest.join().unwrap().contains("was not read"));
}

/// Every rank has ended, and what they printed waits for its reader; or the job's time was over before.
fn unread(limit: &str) -> Option<(Job, PipeReader)> {
    let dir = Directory::new("unread");
    // The pipe of each holds all of it, that of the reader a third.
    let script = format!("yes | head -c 60000; : > {}/done.$0", dir.path().display());
    let (bdrun, reader) = piped(bdrun_args(["-np", "3", "--timeout", limit, "sh", "-c", &script, "{rank}"]));
    let job = bdrun.within(2 * LIMIT).start();
    let done = || (0..3).all(|rank| dir.path().join(format!("done.{rank}")).exists());
    let (waits, over) = (|| is_full(&reader) && done(), || job.has_ended());
    assert!(poll(LIMIT, || (waits() || over()).then_some(())).is_some(), "{}", job.situation());
    waits().then_some((job, reader))
}

#[test]
fn a_job_whose_ranks_have_ended_waits_for_its_reader_but_can_be_ended() {
    let (job, mut reader) = unread("1h").unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!((job.wait().code, text.len()), (Some(0), 180_000));

    let (job, reader) = unread("1h").unwrap();
    job.signal(libc::SIGTERM);
    let outcome = job.wait();
    outcome.failed_with(143, &["was not read"]);
    assert_eq!(outcome.stats().status, "interrupted");
    drop(reader);

    let (job, reader) = first_of(["10s", "100s", "500s"], |limit| unread(limit).ok_or("it was over".into()));
    job.wait().failed_with(124, &["was not read"]);
    drop(reader);

    let (job, reader) = unread("1h").unwrap();
    drop(reader);
    assert_eq!(job.wait().code, Some(141), "a reader that has gone");
}

/// Who reads when the job is told to end gets all of it.
#[test]
fn what_is_read_is_not_lost_to_the_first_signal() {
    // On a busy machine it may be waited for in vain: for five seconds.
    first_of(0..5, |_| {
        let (job, mut reader) = unread("1h").unwrap();
        // From then on nothing but the output is waited for.
        job.wait_for_all_ends();
        job.signal(libc::SIGTERM);
        job.wait_for_error("what the ranks have printed is waited for");
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let outcome = job.wait();
        assert_eq!(outcome.code, Some(143), "{outcome:?}");
        let all = text.len() == 180_000;
        assert!(all || outcome.stderr.contains("was not read"), "{} {outcome:?}", text.len());
        all.then_some(()).ok_or(outcome.stderr)
    });
}

/// A rank that asks at the terminal would be stopped for that, as any program in the background.
#[test]
fn a_rank_has_no_terminal_to_wait_for() {
    use std::os::unix::process::CommandExt;
    let Some((window, theirs)) = terminal::both_ends() else { return };
    let script = "read answer < /dev/tty; echo code $?";
    let own = theirs.as_raw_fd();
    let take_terminal = move || {
        // SAFETY: system calls without memory.
        unsafe {
            libc::setsid();
            match libc::ioctl(own, libc::TIOCSCTTY, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
    };
    let job = bdrun_args(["-np", "1", "--preload", "never", "sh", "-c", script]);
    // SAFETY: the closure makes two system calls.
    let job = job.with(|command| unsafe { command.pre_exec(take_terminal) });
    let outcome = job.succeed();
    assert!(outcome.stdout.starts_with("code ") && outcome.stdout != "code 0\n", "{outcome:?}");
    drop((window, theirs));
}

/// The account at the end, where there is no room for it.
#[test]
fn an_account_that_nobody_reads_is_given_up() {
    for stats in [true, false] {
        let dir = Directory::new("unread-account");
        let mut command = Command::new(env!("CARGO_BIN_EXE_bdrun"));
        command.arg("--scratch").arg(dir.path()).args(["--timeout", "1s", "--preload", "never"]);
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[b'x'; PIPE]).unwrap();
        if stats {
            command.args(["--stats", "-"]).stdout(writer).stderr(Stdio::null());
        } else {
            command.stdout(Stdio::null()).stderr(writer);
        }
        let mut child = command.args(["sleep", "1000"]).stdin(Stdio::null()).spawn().unwrap();
        drop(command);
        let status = poll(LIMIT, || child.try_wait().unwrap());
        if status.is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(status.and_then(|status| status.code()), Some(124), "stats {stats}");
        drop(reader);
    }
    // Where it is read it is there.
    let dir = Directory::new("read-account");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bdrun"));
    command.arg("--scratch").arg(dir.path()).args(["--stats", "-", "--output", "quiet", "true"]);
    let output = limited(&mut command, LIMIT);
    assert!(serde_json::from_slice::<bdrun::stats::Stats>(&output.stdout).is_ok(), "{output:?}");
}

/// `seq … | bdrun --parts - echo {} | less`: what ended ranks have left in their pipes takes a descriptor each.
#[test]
fn while_nobody_reads_no_more_begin_than_there_are_descriptors_for() {
    let dir = Directory::new("unread-parts");
    let list = dir.path().join("list");
    // A few of them are all that the reader's pipe takes.
    fs::write(&list, format!("{}\n", "x".repeat(4000)).repeat(1500)).unwrap();
    let args = ["--parts", list.to_str().unwrap(), "-j", "8", "--preload", "never", "--", "echo"];
    let (bdrun, reader) = piped(bdrun_args(args));
    let job = bdrun.start();
    wait_full(&reader);
    let open = descriptors_at_rest(&job).expect("parts are left");
    assert!(open < 256 + 8 * 11, "{open} descriptors");
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        File::from(OwnedFd::from(reader)).read_to_string(&mut text).map(|_| text)
    });
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(reading.join().unwrap().unwrap().lines().filter(|line| line.len() == 4000).count(), 1500);
}
