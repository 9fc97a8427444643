//! Programs that tests start.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The suite as a program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_hybrid-conformance");

/// The variables by which a launcher above these tests would be found.
pub const LAUNCHERS: [&str; 6] =
    ["BDRUN_COMM", "BDRUN_FDS", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"];

/// A program that finds no launcher but the one that is to be tested.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    LAUNCHERS.iter().for_each(|name| _ = command.env_remove(name));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A name that no other test has.
pub fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("suite-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

/// Waits for a process, as long as a busy machine needs.
pub fn output(mut child: Child) -> Output {
    let until = Instant::now() + Duration::from_secs(600);
    while child.try_wait().expect("wait").is_none() {
        if Instant::now() > until {
            child.kill().expect("kill");
            panic!("it does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("what it has written")
}

/// What it has written, if it was well.
pub fn succeed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// What processes of one job in shared memory have written, in rank order; something may be done to them
/// meanwhile.
pub fn shm(
    size: usize,
    step: &str,
    environment: &[(&str, &str)],
    meanwhile: impl FnOnce(&mut [Child]),
) -> Vec<Output> {
    let name = name();
    let start = |rank: usize| {
        let mut command = command(PROGRAM);
        command.env("BDRUN_SHM_NAME", &name).env("BDRUN_SHM_SIZE", size.to_string());
        command.envs(environment.iter().copied());
        command.env("BDRUN_SHM_RANK", rank.to_string()).arg(step).spawn().expect("start")
    };
    // The last one first: it waits for the others.
    let mut children: Vec<_> = (0..size).rev().map(start).collect();
    children.reverse();
    meanwhile(&mut children);
    let outputs = children.into_iter().map(output).collect();
    // SAFETY: geteuid has no preconditions.
    let user = unsafe { libc::geteuid() };
    let path = format!("/dev/shm/bdrun-{user}-{name}");
    assert!(!Path::new(&path).exists(), "{path} is cleaned up");
    outputs
}
