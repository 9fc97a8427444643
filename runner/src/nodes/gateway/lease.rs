//! The clock of a lease: how long a master may begin ranks that were given to it, where ranks are dealt out.
//! It lasts for three quarters of the time of silence, from when it said that it was there, if the first has
//! heard that. What it has the first gives to others later than that.

/// Nanoseconds. The time in which this machine was suspended counts: the others' went on.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local. It cannot fail: all Linux that we run on have this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use bdrun_ipc::segment::monotonic_ns;

    /// Seconds.
    const SUSPENDED: u64 = 1_000_000;

    /// A namespace of time in which the machine was suspended for that long.
    fn there() -> Command {
        let mut command = Command::new("unshare");
        let suspended = SUSPENDED.to_string();
        command.args(["--user", "--map-root-user", "--time", "--boottime", &suspended]);
        command
    }

    #[test]
    fn the_time_in_which_the_machine_was_suspended_counts() {
        const ROLE: &str = "BDRUN_TEST_SUSPENDED";
        if std::env::var_os(ROLE).is_some() {
            let passed = super::now().saturating_sub(monotonic_ns());
            assert!(passed >= (SUSPENDED - 1000) * 1_000_000_000, "{passed}");
            return;
        }
        // A kernel may know such namespaces, and a process enter one only with its next child.
        let uptime = there().args(["cat", "/proc/uptime"]).output();
        let text = uptime.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let is_long = |text: &String| {
            let seconds = text.split('.').next().and_then(|whole| whole.parse::<u64>().ok());
            seconds.is_some_and(|seconds| seconds >= SUSPENDED)
        };
        if !text.as_ref().is_ok_and(is_long) {
            bdrun_skipped::skipped("namespace", format!("no namespace of time: {text:?}"));
            return;
        }
        let module = module_path!().split_once("::").expect("a crate").1;
        let name = format!("{module}::the_time_in_which_the_machine_was_suspended_counts");
        let program = std::env::current_exe().unwrap();
        let output = there().arg(program).args([&name, "--exact"]).env(ROLE, "").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }
}
