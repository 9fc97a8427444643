//! Starts programs and moves them.

use sbmalloc::other::{self, Image, Moved, Refusal};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// However long one of its threads is without a processor: who gives up earlier moves nothing.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A program that runs, with a process group of its own.
pub struct Subject {
    child: Child,
}

/// A command that runs one of the programs of this binary.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", "program", "--nocapture", "--test-threads=1"]).env("OUTSIDE", program);
    let waits_for_signals = matches!(program, "calls" | "signals" | "met");
    let block = move || {
        // For all of its threads but those that let them in.
        // SAFETY: a set on the stack; async-signal-safe.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGUSR1);
            libc::sigaddset(&mut set, libc::SIGUSR2);
            for signal in libc::SIGRTMIN()..libc::SIGRTMAX() {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        Ok(())
    };
    if waits_for_signals {
        // SAFETY: see above.
        unsafe { command.pre_exec(block) };
    }
    command
}

impl Subject {
    pub fn start(program: &str) -> Self {
        Self::spawn(&mut command(program))
    }

    pub fn spawn(command: &mut Command) -> Self {
        let child = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self { child: child.expect("started") }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_some()
    }

    /// Says a line to it, if its input was not taken.
    #[allow(dead_code, reason = "programs that are moved whole need none")]
    pub fn tell(&self) {
        if let Some(mut input) = self.child.stdin.as_ref() {
            std::io::Write::write_all(&mut input, b"\n").expect("told");
        }
    }

    /// What it says, as it says it.
    pub fn out(&mut self) -> &mut std::process::ChildStdout {
        self.child.stdout.as_mut().expect("its output")
    }

    /// What it is told by; without this it is told its end.
    pub fn input(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("its input")
    }

    /// Waits for a line, so that the program is where it wants to be.
    pub fn wait_for(&mut self, line: &str) {
        self.line_with(line);
    }

    /// Waits for a line that begins like this; returns the rest of it.
    pub fn line_with(&mut self, beginning: &str) -> String {
        let (mut text, mut byte) = (vec![], [0]);
        while self.out().read(&mut byte).expect("read") == 1 {
            text.push(byte[0]);
            if byte[0] == b'\n' {
                let text = String::from_utf8_lossy(&text);
                // The test harness says what runs without ending the line.
                let last = text.trim_end().rsplit('\n').next().unwrap_or_default();
                if let Some(i) = last.find(beginning) {
                    return last[i + beginning.len()..].to_owned();
                }
            }
        }
        panic!("ended before it said {beginning:?}: {}", String::from_utf8_lossy(&text));
    }

    /// Waits for its end.
    pub fn output(mut self) -> (ExitStatus, String) {
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            out.read_to_string(&mut text).expect("its output");
        }
        (self.child.wait().expect("wait"), text)
    }

    /// Waits for its end, which must be a good one.
    pub fn succeed(self) -> String {
        let (status, text) = self.output();
        assert!(status.success(), "{status}: {text}");
        text
    }

    pub fn kill(mut self) {
        // SAFETY: a signal to a process group of our own child, which was not waited for.
        unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
        self.child.wait().expect("wait");
    }
}

/// The processes of a process group.
pub fn list(group: i32) -> std::io::Result<Vec<i32>> {
    let mut all = vec![];
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        // SAFETY: asks only.
        if unsafe { libc::getpgid(pid) } == group {
            all.push(pid);
        }
    }
    Ok(all)
}

/// Random numbers (xorshift), good enough to choose moments.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }
}

/// What became of many moves.
#[derive(Debug, Default)]
pub struct Tally {
    pub moves: usize,
    /// Refusals that do not last.
    pub later: usize,
    pub moved: Moved,
    pub slowest: Duration,
}

/// Moves a program at random moments, about `pause` apart, until it has ended or was moved `times` times. By
/// a thread of its own, which has no children.
pub fn move_about(subject: &mut Subject, times: usize, pause: Duration) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ u64::from(subject.child.id()));
    let mut image = Image::new().expect("scratch");
    let (pid, begun) = (subject.pid(), Instant::now());
    while tally.moves < times && !subject.has_ended() && begun.elapsed() < Duration::from_secs(1800) {
        std::thread::sleep(pause.mul_f64(random.below(2000) as f64 / 1000.0));
        let away = Duration::from_micros(random.below(3000));
        let image = &mut image;
        let result = std::thread::scope(|s| s.spawn(move || cycle(pid, image, away)).join().expect("cycle"));
        match result {
            Ok((moved, took)) => {
                tally.moves += 1;
                tally.moved = moved;
                tally.slowest = tally.slowest.max(took);
            }
            Err(Refusal::Gone) => {}
            Err(refusal) if !refusal.is_lasting() => tally.later += 1,
            Err(refusal) => panic!("{refusal}"),
        }
    }
    tally
}

/// Out and back once, by a thread of its own, which has no children; again as long as it cannot be just now.
pub fn once(pid: i32, image: &mut Image, away: Duration) -> Moved {
    let try_it = |image: &mut Image| {
        std::thread::scope(|s| s.spawn(move || cycle(pid, image, away)).join()).expect("cycle")
    };
    loop {
        match try_it(image) {
            Ok((moved, _)) => return moved,
            Err(refusal) => assert!(refusal.is_momentary() && refusal != Refusal::Gone, "{refusal}"),
        }
    }
}

/// Out and back once, if that can be within a few seconds: who executes another program just when it is held
/// may be waited for in vain.
pub fn cycle(pid: i32, image: &mut Image, away: Duration) -> Result<(Moved, Duration), Refusal> {
    let mut held = other::hold(pid, &mut || list(pid), Duration::from_secs(5))?;
    let gone = |e| match e {
        other::OtherError::Gone => Refusal::Gone,
        e => panic!("{e}"),
    };
    let mut last = 0;
    let moved = held.evict(image, &mut |freed| last = freed).map_err(gone)?;
    assert_eq!(last, moved.freed);
    std::thread::sleep(away);
    if !held.watch() {
        return Err(Refusal::Gone);
    }
    let took = held.stopping();
    held.restore(image, &mut |_| {}).map_err(gone)?;
    assert!(image.is_empty());
    held.release().map_err(gone)?;
    Ok((moved, took))
}
