//! Real processes: this test program itself in other roles, as ranks of a supervisor.

mod figures;
mod freezing;
mod removal;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::*;
use crate::descriptors::Spare;
use crate::supervisor::{Config, Happening, SpawnSpec, Stdin, Supervisor, Usage};

const MIB: u64 = 1 << 20;

/// However busy the machine is: who waits does so for something that comes.
const LIMIT: Duration = Duration::from_secs(600);

/// What the master would hear.
enum Event {
    Happening(Happening),
    Measured(Measured),
}

impl From<Happening> for Event {
    fn from(happening: Happening) -> Self {
        Self::Happening(happening)
    }
}

impl From<Measured> for Event {
    fn from(measured: Measured) -> Self {
        Self::Measured(measured)
    }
}

/// A supervisor and a sampler.
struct Rig {
    supervisor: Supervisor,
    sampler: Sampler,
    events: Receiver<Event>,
    directory: PathBuf,
}

fn rig(rank_groups: bool) -> Rig {
    let (sender, events) = channel();
    let null = || std::fs::File::options().write(true).open("/dev/null").unwrap().into();
    let config = Config { rank_groups, outputs: Some((null(), null())), ..Config::default() };
    let supervisor = Supervisor::start(config, sender.clone()).unwrap();
    let sampler =
        Sampler::start(Duration::from_millis(5), Box::new(|_| Told::default()), Spare::new(64), sender)
            .unwrap();
    static RIGS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = RIGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("bdrun-measure-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    Rig { supervisor, sampler, events, directory }
}

impl Rig {
    /// Starts the role as a rank and waits until it says that it is ready.
    fn start(&self, rank: u32, role: &str) -> Group {
        let ready = self.directory.join(format!("{rank}.ready"));
        let _ = std::fs::remove_file(&ready);
        self.supervisor.spawn(program(rank, role, &ready));
        let group = loop {
            match self.next() {
                Event::Happening(Happening::Spawned { rank: of, group, .. }) if of == rank => break group,
                Event::Happening(Happening::SpawnFailed { error, .. }) => panic!("{error}"),
                _ => {}
            }
        };
        let deadline = Instant::now() + LIMIT;
        while !ready.exists() {
            assert!(Instant::now() < deadline, "{role} never became ready");
            std::thread::sleep(Duration::from_millis(2));
        }
        group
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(LIMIT).expect("something happens")
    }

    /// Waits until the rank's figures are as wanted; those figures, or the last ones after the limit.
    fn sample_until(&self, rank: u32, wanted: impl Fn(&Sample) -> bool) -> Sample {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Event::Measured(measured) = self.next()
                && let Some((_, sample)) = measured.samples.iter().find(|(of, _)| *of == rank)
                && (wanted(sample) || Instant::now() > deadline)
            {
                return *sample;
            }
        }
    }

    fn usage(&self, rank: u32) -> Usage {
        loop {
            if let Event::Happening(Happening::Exited { rank: of, usage, .. }) = self.next()
                && of == rank
            {
                return usage;
            }
        }
    }

    fn in_cgroups(&self) -> bool {
        match self.supervisor.permits().cgroups {
            Ok(()) => true,
            Err(why) => {
                bdrun_skipped::skipped("cgroup", why);
                false
            }
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.supervisor.kill_all();
        // Those that are just being killed may still write into it.
        for _ in 0..100 {
            if std::fs::remove_dir_all(&self.directory).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn program(rank: u32, role: &str, ready: &Path) -> SpawnSpec {
    let args = ["measure::tests::helper_program", "--exact", "--nocapture", "--test-threads=1"];
    SpawnSpec {
        rank,
        program: std::env::current_exe().unwrap(),
        args: args.map(Into::into).into(),
        env: vec![
            ("MEASURE_ROLE".into(), role.into()),
            ("MEASURE_READY".into(), ready.into()),
            // The allocator's own threads and arenas are not what is measured.
            ("MALLOC_ARENA_MAX".into(), "1".into()),
        ],
        fds: Vec::new(),
        stdin: Stdin::Null,
        stdout: None,
        stdout_is_new: false,
        stderr: None,
        directory: None,
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Not a test by itself: a rank.
#[test]
fn helper_program() {
    let Ok(role) = std::env::var("MEASURE_ROLE") else { return };
    let ready = PathBuf::from(std::env::var_os("MEASURE_READY").unwrap());
    let is_ready = || std::fs::write(&ready, "").unwrap();
    let sleep = || std::thread::sleep(Duration::from_secs(1000));
    match role.as_str() {
        "nothing" => {}
        "computes" => {
            on_first_processor();
            is_ready();
            loop {
                std::hint::spin_loop();
            }
        }
        "private" => keep(anonymous(64 * MIB, libc::MAP_PRIVATE)),
        "private and ends" => {
            keep(anonymous(64 * MIB, libc::MAP_PRIVATE));
            is_ready();
            let go = ready.with_extension("go");
            while !go.exists() {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::process::exit(0);
        }
        "shared" => keep(anonymous(48 * MIB, libc::MAP_SHARED)),
        "file" => keep(file(&ready.with_extension("data"), 32 * MIB)),
        "copies" => {
            let block = anonymous(64 * MIB, libc::MAP_PRIVATE);
            keep(anonymous(16 * MIB, libc::MAP_SHARED));
            for number in 0..3 {
                in_child(|| {
                    if number == 0 {
                        // Copies of its own.
                        touch(block, 16 * MIB);
                    }
                    sleep();
                });
            }
            // Until the first child has written is not waited for here but by the test.
        }
        "family" => {
            keep(anonymous(64 * MIB, libc::MAP_PRIVATE));
            for _ in 0..3 {
                in_child(sleep);
            }
        }
        "daemon" => {
            let child = in_child(|| {
                nix::unistd::setsid().unwrap();
                let between = nix::unistd::getpid();
                in_child(|| {
                    nix::unistd::setsid().unwrap();
                    keep(anonymous(48 * MIB, libc::MAP_PRIVATE));
                    while nix::unistd::getppid() == between {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    is_ready();
                    sleep();
                });
            });
            nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None).unwrap();
            sleep();
        }
        "worker" => {
            let child = in_child(|| {
                let begin = cpu_now();
                while cpu_now() - begin < Duration::from_millis(300) {}
            });
            nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None).unwrap();
        }
        "counter" => {
            let counter = |name: &str| {
                let path = ready.with_extension(name);
                for number in 0_u64.. {
                    std::fs::write(&path, number.to_string()).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            in_child(|| counter("child"));
            is_ready();
            counter("leader");
        }
        other => panic!("no role {other}"),
    }
    is_ready();
    sleep();
}

fn on_first_processor() {
    // SAFETY: a plain value, a macro that changes it, and a call that reads it.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    assert_eq!(done, 0);
}

fn keep(_block: *mut u8) {}

/// Touched memory, never given back.
fn anonymous(bytes: u64, sharing: i32) -> *mut u8 {
    // SAFETY: a new mapping, of which nobody else knows.
    let block = unsafe {
        let flags = sharing | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), bytes as usize, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(block, libc::MAP_FAILED);
    touch(block.cast(), bytes);
    block.cast()
}

fn touch(block: *mut u8, bytes: u64) {
    for at in (0..bytes as usize).step_by(4096) {
        // SAFETY: inside the mapping that the caller has made and keeps.
        unsafe { block.add(at).write_volatile(std::process::id() as u8 | 1) };
    }
}

/// A file, mapped and read.
fn file(path: &Path, bytes: u64) -> *mut u8 {
    use std::os::fd::AsRawFd;
    std::fs::write(path, vec![7_u8; bytes as usize]).unwrap();
    let file = std::fs::File::open(path).unwrap();
    // SAFETY: a new mapping of a file that nobody changes.
    unsafe {
        let block = libc::mmap(
            std::ptr::null_mut(),
            bytes as usize,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(block, libc::MAP_FAILED);
        for at in (0..bytes as usize).step_by(4096) {
            assert_eq!(block.cast::<u8>().add(at).read_volatile(), 7);
        }
        block.cast()
    }
}

/// Does it in a child, which then ends. Its number.
fn in_child(act: impl FnOnce()) -> i32 {
    // SAFETY: the harness runs this one test in one thread beside the main one, which waits; nothing is
    // locked.
    match unsafe { libc::fork() } {
        0 => {
            act();
            // SAFETY: ends the child without the harness's exit handlers.
            unsafe { libc::_exit(0) }
        }
        pid => {
            assert!(pid > 0);
            pid
        }
    }
}

fn cpu_now() -> Duration {
    proc::cpu(proc::clock(std::process::id() as i32).unwrap()).unwrap()
}

/// Whether the number is what was expected, give or take a thirtieth and a MiB of overheads.
fn near(found: u64, expected: u64) -> bool {
    found.abs_diff(expected) <= expected / 30 + MIB
}

/// This test program again, running only that test.
fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("measure::tests::{test}"), "--exact", "--nocapture", "--test-threads=1"]);
    command
}
