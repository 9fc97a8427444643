//! The program as a whole, on one process and on many.

mod bounds;
mod policies;
mod ranks;
mod workspaces;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bdrun_sddp::highs::Library;
use bdrun_skipped::skipped;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sddp");

/// Variables by which a launcher above these tests would be found.
const LAUNCHERS: [&str; 6] =
    ["BDRUN_COMM", "BDRUN_FDS", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"];

/// Whether HiGHS can be loaded; else says that the test is skipped.
fn has_highs() -> bool {
    Library::get().inspect_err(|error| skipped("highs", error)).is_ok()
}

fn bundled(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    LAUNCHERS.iter().for_each(|name| _ = command.env_remove(name));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for a process, as long as a busy machine needs.
fn output(mut child: Child) -> Output {
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

/// What it has written to standard output, if it was successful.
fn succeed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Runs `sddp` alone.
fn sddp(arguments: &[&str]) -> Output {
    output(command(PROGRAM).args(arguments).spawn().expect("start"))
}

/// What it complains of, if it fails.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    text
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}
