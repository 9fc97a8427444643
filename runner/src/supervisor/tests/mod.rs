//! Real processes: `/bin/sh`, `sleep`, `setsid`, and this test program itself in other roles.

mod basics;
mod enforce;
mod order;
mod orphans;
pub(super) mod traced;
mod volume;

use super::*;
use std::io::Read;
use std::sync::mpsc::{Receiver, channel};

/// Without and with a cgroup for all ranks.
fn both(test: impl Fn(Config)) {
    test(Config::default());
    test(grouped());
}

/// Whether a cgroup could be made; said, if not.
fn has_group(supervisor: &Supervisor) -> bool {
    let made = supervisor.isolation() == Isolation::Cgroup;
    if !made {
        bdrun_skipped::skipped("cgroup", "no cgroup can be made");
    }
    made
}

/// However busy the machine is: who waits does so for something that comes.
const LIMIT: Duration = Duration::from_secs(600);

/// A supervisor whose output is collected.
struct Rig {
    supervisor: Supervisor,
    events: Receiver<Happening>,
    texts: [JoinHandle<String>; 2],
}

fn rig(config: Config) -> Rig {
    let group = config.cgroup_limit.map(|limit| MemoryCgroup::create(limit).unwrap());
    rig_in(config, group)
}

fn rig_in(config: Config, group: Option<MemoryCgroup>) -> Rig {
    let (sender, events) = channel();
    let (out, out_write) = sys::pipe().unwrap();
    let (err, err_write) = sys::pipe().unwrap();
    let collect = |fd: OwnedFd| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            std::fs::File::from(fd).read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let config = Config { outputs: Some((out_write, err_write)), ..config };
    let supervisor = Supervisor::start_in(config, group, sender.into()).unwrap();
    Rig { supervisor, events, texts: [collect(out), collect(err)] }
}

fn grouped() -> Config {
    Config { common_group: true, ..Config::default() }
}

impl Rig {
    fn shell(&self, rank: u32, script: &str) {
        self.supervisor.spawn(shell(rank, script));
    }

    fn next(&self) -> Happening {
        self.events.recv_timeout(LIMIT).expect("something happens")
    }

    /// Waits for so many ends, in the order they come.
    fn ends(&self, count: usize) -> Vec<(u32, Ending, OomKill)> {
        let mut ends = Vec::new();
        while ends.len() < count {
            match self.next() {
                Happening::Exited { rank, ending, oom, .. } => ends.push((rank, ending, oom)),
                Happening::SpawnFailed { rank, error } => panic!("rank {rank}: {error}"),
                _ => {}
            }
        }
        ends
    }

    fn finish(mut self) -> (String, String, Farewell) {
        let farewell = self.supervisor.finish(LIMIT);
        let [out, err] = self.texts.map(|text| text.join().unwrap());
        (out, err, farewell)
    }
}

fn shell(rank: u32, script: &str) -> SpawnSpec {
    SpawnSpec {
        rank,
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("RANK".into(), rank.to_string().into())],
        fds: Vec::new(),
        stdin: Stdin::Null,
        stdout: None,
        stdout_is_new: false,
        stderr: None,
        directory: None,
    }
}

/// This test program again, running only the test `name` of the module `module` with `role` in its
/// environment.
fn again(module: &str, name: &str, role: &str) -> std::process::Command {
    let module = module.split_once("::").expect("a crate").1;
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args([&format!("{module}::{name}"), "--exact", "--nocapture", "--test-threads=1"])
        .env("ROLE", role);
    command
}

fn role() -> Option<String> {
    std::env::var("ROLE").ok()
}

/// Processes that have this text in their environment.
fn marked(mark: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ.windows(mark.len()).any(|window| window == mark.as_bytes()) {
            let command = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((pid, command.trim().to_owned()));
        }
    }
    found
}

/// Waits until no process has this text in its environment, and returns those that still do.
fn wait_unmarked(mark: &str) -> Vec<(i32, String)> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = marked(mark);
        if found.is_empty() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
