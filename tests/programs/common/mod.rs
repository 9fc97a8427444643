//! Running `bdrun`, and seeing what it leaves behind.

pub mod cap;
pub mod chaos;
pub mod late;
pub mod libraries;
pub mod proc;
pub mod refused;
pub mod slurm;
pub mod terminal;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bdrun::stats::Stats;
pub use bdrun_skipped::skipped;
use serde_json::Value;

use cap::Cap;
use proc::MARK;

/// Longest time that anything may take here, on a slow and busy machine; only a hang takes it. What is not to
/// go on by itself must last longer.
pub const LIMIT: Duration = Duration::from_secs(600);

/// The user and group "nobody".
const NOBODY: u32 = 65534;

/// A number that no other call in this process returns.
fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Poll until there is something: for so long, and at least a few times.
pub fn poll<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    for looks in 1.. {
        // A look may take long: what `/proc` tells of a process that is short of memory (not of ours) was
        // seen to take 27 s.
        let last = looks >= 10 && Instant::now() >= deadline;
        if let Some(found) = look() {
            return Some(found);
        }
        if last {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

/// The first attempt that shows something; for where the machine decides how much happens in one, or in which
/// order. `Err` is why one shows nothing: neither that all is right nor what is wrong, which panics at once.
pub fn first_of<A: Debug + Copy, T>(
    attempts: impl IntoIterator<Item = A>,
    mut attempt: impl FnMut(A) -> Result<T, String>,
) -> T {
    let mut vain = String::new();
    for each in attempts {
        match attempt(each) {
            Ok(shown) => return shown,
            Err(why) => vain += &format!("{each:?}: {why}\n"),
        }
    }
    panic!("no attempt shows anything:\n{vain}")
}

/// A directory that is removed in the end.
pub struct Directory(PathBuf);

impl Directory {
    /// An empty one, on a disk: memory is what the tests are about.
    pub fn new(name: &str) -> Self {
        let name = format!("bdrun-test-{}-{}-{name}", std::process::id(), unique());
        let path = Path::new("/var/tmp").join(name);
        std::fs::create_dir_all(&path).expect("make a directory");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Let any user write here.
    pub fn open_to_all(&self) {
        use std::os::unix::fs::PermissionsExt;
        let all = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(&self.0, all).expect("open a directory");
    }

    /// Make an executable script in it.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.0.join(name);
        let plain = self.0.join(format!("{name}.text"));
        std::fs::write(&plain, text).expect("write a script");
        executable_copy(&plain, &path);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("make it executable");
        std::fs::remove_file(plain).expect("the text");
        path
    }
}

/// Copies a program. By another process: a child that another test makes while this process has it open for
/// writing has it open too, until it has become what it is to be, and so long nobody can execute it ("text
/// file busy").
pub fn executable_copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.expect("cp").success(), "{} is not copied", from.display());
}

/// Files of a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What the test found wrong has been told; this is only tidiness.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One of our programs, beside `bdrun`.
pub fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_bdrun")).with_file_name(name);
    assert!(
        path.is_file(),
        "{} is missing: cargo build --workspace (or cargo test --workspace)",
        path.display()
    );
    path
}

/// A command that is `bdrun`, to be started.
pub struct Bdrun {
    command: Command,
    scratch: PathBuf,
    /// What `scratch` is, unless the test named another.
    own: Option<Directory>,
    stats: Directory,
    mark: String,
    limit: Duration,
}

/// `bdrun` with these arguments, separated by spaces.
pub fn bdrun(args: &str) -> Bdrun {
    bdrun_args(args.split_whitespace())
}

/// `bdrun` with these arguments, with a scratch directory and `--stats` of its own.
pub fn bdrun_args<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Bdrun {
    let scratch = Directory::new("scratch");
    let path = scratch.path().to_owned();
    Bdrun { own: Some(scratch), ..bdrun_on(&path, args) }
}

/// `bdrun` with these arguments and this scratch directory.
pub fn bdrun_on<S: AsRef<OsStr>>(scratch: &Path, args: impl IntoIterator<Item = S>) -> Bdrun {
    // Its absence would look like any other failure.
    program("hello");
    let stats = Directory::new("stats");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bdrun"));
    command.arg("--scratch").arg(scratch).arg("--stats").arg(stats.path().join("stats.json")).args(args);
    let mark = format!("{}-{}", std::process::id(), unique());
    command.env(MARK, &mark).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // What failing programs print is compared.
    command.env_remove("RUST_BACKTRACE");
    Bdrun { command, scratch: scratch.to_owned(), own: None, stats, mark, limit: LIMIT }
}

impl Bdrun {
    /// Anything else a command can be told.
    pub fn with(mut self, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        change(&mut self.command);
        self
    }

    /// A directory of its own, beside that of its scratch files.
    pub fn directory(&self) -> &Path {
        self.stats.path()
    }

    /// By a launcher, with these words of its own before ours.
    pub fn by(mut self, launcher: &Path, words: impl IntoIterator<Item = String>) -> Self {
        let mut command = Command::new(launcher);
        command.args(words).arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command = command;
        self
    }

    /// With its memory under a kernel-enforced cap.
    pub fn under(self, cap: &Cap) -> Self {
        self.with(|command| cap.confine(command))
    }

    /// With another limit than [`LIMIT`].
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// As the user "nobody"; takes root.
    pub fn by_nobody(self) -> Self {
        use std::os::unix::process::CommandExt;
        for directory in [self.scratch.as_path(), self.stats.path()] {
            std::os::unix::fs::chown(directory, Some(NOBODY), Some(NOBODY)).expect("give a directory away");
        }
        self.with(|command| command.uid(NOBODY).gid(NOBODY).env("HOME", "/nonexistent"))
    }

    /// Start it.
    pub fn start(mut self) -> Job {
        // On a busy machine it may have run for a while when this goes on.
        let begin = Instant::now();
        let mut child = self.command.spawn().expect("start bdrun");
        // No pipe where the test has redirected it.
        let out = Collector::new(child.stdout.take());
        let err = Collector::new(child.stderr.take());
        let Self { scratch, own, stats, mark, limit, .. } = self;
        Job { child, out, err, scratch, _own: own, stats, mark, limit, begin }
    }

    /// Start it and wait for its end.
    pub fn run(self) -> Outcome {
        self.start().wait()
    }

    /// As [`run`](Self::run), of a job that must end well.
    pub fn succeed(self) -> Outcome {
        let outcome = self.run();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome
    }
}

/// Reads a pipe all the time, so that nobody blocks on it.
struct Collector {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Collector {
    fn new(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = bytes.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            let Some(mut pipe) = pipe else { return };
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                shared.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
            }
        });
        Self { bytes, thread }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// A running `bdrun`; killed if it is dropped before it has ended.
pub struct Job {
    child: Child,
    out: Collector,
    err: Collector,
    scratch: PathBuf,
    _own: Option<Directory>,
    stats: Directory,
    mark: String,
    limit: Duration,
    begin: Instant,
}

impl Job {
    /// The master's process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Processes of ranks, by rank, as far as there are any now.
    pub fn ranks(&self) -> Vec<(u32, i32)> {
        proc::ranks(self.pid(), &self.mark)
    }

    /// Every process of it, whoever its parent is: number and name. Without the master once that has ended.
    pub fn processes(&self) -> Vec<(i32, String)> {
        proc::marked(self.pid(), &self.mark)
    }

    /// Wait until so many ranks have a process, or the job has ended.
    pub fn wait_for_ranks(&mut self, count: usize) -> Vec<(u32, i32)> {
        let (mut looks, mut longest) = (0, Duration::ZERO);
        let found = poll(LIMIT, || {
            let begin = Instant::now();
            let ranks = self.ranks();
            (looks, longest) = (looks + 1, longest.max(begin.elapsed()));
            (ranks.len() >= count || matches!(self.child.try_wait(), Ok(Some(_)))).then_some(ranks)
        });
        found.unwrap_or_else(|| {
            panic!("no {count} ranks, {looks} looks of up to {longest:?}: {}", self.situation())
        })
    }

    /// What it said, and what every thread of it does now.
    pub fn situation(&self) -> String {
        format!("{}\n{}", self.err.text(), proc::tree(self.pid()))
    }

    /// What `bdrun top --json` answers, if it does.
    pub fn top(&self) -> Option<Value> {
        let words = ["top", "--json", "--job", &self.pid().to_string()];
        let asked = limited(Command::new(env!("CARGO_BIN_EXE_bdrun")).args(words), LIMIT);
        serde_json::from_slice(&asked.stdout).ok()
    }

    /// Whether this was printed on standard output by now.
    pub fn has_printed(&self, text: &str) -> bool {
        self.out.text().contains(text)
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        matches!(proc::state(self.pid()), 'Z' | '?')
    }

    /// Wait until `top` tells of a rank that this is true of; false if the job ends before.
    pub fn sees(&self, is_so: impl Fn(&Value) -> bool) -> bool {
        let look = || {
            let ended = self.has_ended();
            let is_so = || Some(self.top()?["ranks"].as_array()?.iter().any(&is_so));
            let seen = is_so().unwrap_or(false);
            (seen || ended).then_some(seen)
        };
        poll(LIMIT, look).unwrap_or_else(|| panic!("no such rank: {}", self.situation()))
    }

    /// Wait until a rank is out of RAM, or a part of it.
    pub fn wait_until_out(&self) {
        assert!(self.sees(is_out), "it has ended: {}", self.situation());
    }

    /// Whether a rank is out of RAM now, or a part of it.
    pub fn has_one_out(&self) -> bool {
        let is_so = || Some(self.top()?["ranks"].as_array()?.iter().any(is_out));
        is_so().unwrap_or(false)
    }

    /// Wait until a rank is held, or out of RAM; false if the job ends before.
    pub fn sees_held_or_out(&self) -> bool {
        self.sees(|rank| rank["activity"] == "held" || is_out(rank))
    }

    /// Wait until the master has heard that all ranks have ended: its threads that make ranks end then.
    pub fn wait_for_all_ends(&self) {
        let threads = format!("/proc/{}/task", self.pid());
        let spawns = || {
            let threads = std::fs::read_dir(&threads).expect("its threads").flatten();
            let name = |path: PathBuf| std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            threads.into_iter().any(|thread| name(thread.path()).trim_end() == "bdrun-spawner")
        };
        assert!(poll(LIMIT, || (!spawns()).then_some(())).is_some(), "no end is heard: {}", self.situation());
    }

    /// Wait until this was printed on standard output.
    pub fn wait_for_output(&self, text: &str) {
        self.wait_for(&self.out, text);
    }

    /// Wait until this was printed on standard error.
    pub fn wait_for_error(&self, text: &str) {
        self.wait_for(&self.err, text);
    }

    fn wait_for(&self, stream: &Collector, text: &str) {
        // Who has ended prints nothing more.
        let look = || {
            let ended = stream.thread.is_finished();
            let seen = stream.text().contains(text);
            (seen || ended).then_some(seen)
        };
        assert!(
            poll(LIMIT, look) == Some(true),
            "{text} was not printed; {} {}",
            self.out.text(),
            self.err.text()
        );
    }

    /// Send a signal to the master.
    pub fn signal(&self, signal: i32) {
        proc::kill(self.pid(), signal);
    }

    /// Sends the signal again and again until it has ended.
    pub fn signal_until_it_ends(&mut self, signal: i32) {
        let begin = Instant::now();
        while self.child.try_wait().expect("wait for bdrun").is_none() {
            assert!(begin.elapsed() < self.limit, "no end: {} {}", self.out.text(), self.err.text());
            self.signal(signal);
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Wait for its end, and see that nothing of it is left.
    pub fn wait(mut self) -> Outcome {
        let status = poll(self.limit, || self.child.try_wait().expect("wait for bdrun"));
        let Some(status) = status else {
            panic!("no end within {:?}: {} {}", self.limit, self.out.text(), self.situation());
        };
        let wall = self.begin.elapsed();
        self.leaves_nothing();
        // The pipes' other ends are closed: no process of the job is left.
        for collector in [&self.out, &self.err] {
            let ended = poll(LIMIT, || collector.thread.is_finished().then_some(()));
            assert!(ended.is_some(), "somebody still holds the pipes");
        }
        let stats = std::fs::read(self.stats.path().join("stats.json")).ok();
        use std::os::unix::process::ExitStatusExt;
        Outcome {
            code: status.code(),
            signal: status.signal(),
            stdout: self.out.text(),
            stderr: self.err.text(),
            stats: stats.map(|bytes| serde_json::from_slice(&bytes).expect("--stats is the documented JSON")),
            wall,
        }
    }

    /// No process, no file in scratch, with or without a name.
    fn leaves_nothing(&self) {
        let left = || {
            let files = files(&self.scratch);
            let open = proc::open_below(&self.scratch);
            let processes = proc::marked(self.pid(), &self.mark);
            (!files.is_empty() || !open.is_empty() || !processes.is_empty())
                .then(|| format!("processes {processes:?}, files {files:?}, unlinked files {open:?}"))
        };
        if poll(LIMIT, || left().is_none().then_some(())).is_none() {
            panic!("left behind: {:?}; {}", left(), self.err.text());
        }
    }
}

/// Of those that move themselves it is not told how much is out.
fn is_out(rank: &Value) -> bool {
    rank["activity"] == "out" || rank["out"].as_u64() > Some(0)
}

impl Drop for Job {
    fn drop(&mut self) {
        // Nothing to do for one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a job ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub stats: Option<Stats>,
    pub wall: Duration,
}

impl Outcome {
    /// What `--stats` wrote.
    pub fn stats(&self) -> &Stats {
        self.stats.as_ref().unwrap_or_else(|| panic!("no --stats file: {self:?}"))
    }

    /// It ended with this code, and standard error says all of this.
    pub fn failed_with(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "'{word}' is not said: {}", self.stderr);
        }
        self
    }
}

/// The output of any command; a failure if it takes longer than `limit`.
pub fn limited(command: &mut Command, limit: Duration) -> std::process::Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start a program");
    if poll(limit, || child.try_wait().expect("wait for a program")).is_none() {
        child.kill().expect("kill it");
        panic!("no end within {limit:?}: {:?}", child.wait_with_output());
    }
    // Its output fits the pipes, or it would not have ended.
    child.wait_with_output().expect("read its output")
}
