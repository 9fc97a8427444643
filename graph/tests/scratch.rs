//! Where scratch is if nobody names a directory.

use std::process::Command;

const NAME: &str = "scratch_is_where_the_environment_says";

#[test]
fn scratch_is_where_the_environment_says() {
    if std::env::var_os("SAY_WHERE").is_some() {
        return println!("\nin {}", bdrun_graph::run::scratch_directory().display());
    }
    let said = |named: Option<&str>, temporary: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([NAME, "--exact", "--nocapture"]).env("SAY_WHERE", "").env("TMPDIR", temporary);
        match named {
            Some(named) => command.env("BDRUN_SCRATCH", named),
            None => command.env_remove("BDRUN_SCRATCH"),
        };
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.lines().find_map(|line| line.strip_prefix("in ").map(str::to_owned)).expect(&said)
    };
    assert_eq!(said(Some("/disk/one:/disk/two"), "/usr"), "/disk/one");
    assert_eq!(said(None, "/usr"), "/usr");
    // In memory nothing makes room for anything.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    if !mounts.lines().any(|line| line.contains(" /dev/shm tmpfs ")) {
        return bdrun_skipped::skipped("kernel", "there is no tmpfs on /dev/shm");
    }
    assert_eq!(said(None, "/dev/shm"), "/var/tmp");
}
