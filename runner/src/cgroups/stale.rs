//! Groups that were left behind: a master locks the directory of its groups as long as it lives; what nobody
//! has locked, and whose process is gone, is removed at the next start, with what lives in it.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::kill;

/// Processes in a group, without ourselves (whose spawner thread is there in v1) and those we cannot see (0).
pub(super) fn others_in(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let own = std::process::id() as i32;
    text.lines().filter_map(|line| line.trim().parse().ok()).filter(|&pid| pid > 1 && pid != own).collect()
}

/// The lock of a group that was just made. Whoever looks whether it is stale holds it for a moment only.
pub(crate) fn lock(group: &Path) -> Option<File> {
    let file = File::open(group).ok()?;
    while let Err(error) = file.lock() {
        if error.kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
    Some(file)
}

/// How long a start waits for the end of what it finds in a stale group. The next one goes on.
const STALE: Duration = Duration::from_millis(200);

/// Removes groups of masters that are gone, below the group `own`, with what has outlived master and keepers.
pub(crate) fn remove_stale(own: &Path) {
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix("bdrun-")) else { continue };
        // `.master`, or the number of a job of this process.
        let Some(Ok(pid)) = rest.split('.').next().map(str::parse::<u32>) else { continue };
        if Path::new(&format!("/proc/{pid}")).exists() {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        // Else its master lives, in a PID namespace that we do not see. Held until the group is gone.
        if file.try_lock().is_ok() {
            let deadline = Instant::now() + STALE;
            while !cleared(&entry.path()) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Kills what lives in a group and in those below it, and removes them. Whether that is done.
fn cleared(group: &Path) -> bool {
    let removed = |group: &Path| match fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if removed(group) {
        return true;
    }
    if fs::write(group.join("cgroup.kill"), "1").is_err() {
        others_in(group).into_iter().for_each(|pid| {
            kill(pid);
        });
        // A frozen process of version 1 dies when it thaws.
        let freezer = group.join("freezer.state");
        if freezer.exists() {
            let _ = fs::write(freezer, "THAWED");
        }
    }
    for below in fs::read_dir(group).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            cleared(&below.path());
        }
    }
    removed(group)
}
