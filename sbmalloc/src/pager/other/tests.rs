//! What needs a look inside, and programs that it is about: this binary runs itself again with `OTHER` set to
//! the name of one.

use super::space::Space;
use super::*;
use crate::sys::{self, PAGE};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

type BeforeCopy = dyn FnMut(&Space, &[Range<u64>]);

thread_local! {
    /// Nothing is heard of a call under way before it is waited for.
    pub(super) static IS_DEAF: Cell<bool> = const { Cell::new(false) };
    /// Told what was seen and is about to be copied.
    pub(super) static BEFORE_COPY: RefCell<Option<Box<BeforeCopy>>> = const { RefCell::new(None) };
}

pub(super) fn before_copy(space: &Space, ranges: &[Range<u64>]) {
    BEFORE_COPY.with_borrow_mut(|f| f.iter_mut().for_each(|f| f(space, ranges)));
}

/// A program of this binary, in a process group of its own; killed when this goes.
pub(super) struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Program {
    /// `test`: that which runs it.
    pub fn start(test: &str, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("OTHER", name);
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, said }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for a line with this in it; what follows.
    pub fn hear(&mut self, what: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.said.read_line(&mut line).expect("its output") > 0,
                "it ended before it said {what}"
            );
            if let Some((_, rest)) = line.split_once(what) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn tell(&mut self) {
        writeln!(self.child.stdin.as_mut().expect("its input")).expect("told");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: a signal to the process group of a child of ours, which was not waited for.
        unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
        // Not for ever: whoever traces it may hang, which is what a test is about.
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// In a program: waits until it is told.
pub(super) fn wait() {
    std::io::stdin().read_line(&mut String::new()).expect("told");
}

/// In a program: new memory, each word of which tells where it is.
pub(super) fn map(len: usize) -> usize {
    let at = sys::map_anon_aligned(len, PAGE).expect("memory");
    fill(at, len);
    at
}

pub(super) fn fill(at: usize, len: usize) {
    (0..len / 8).for_each(|i| put(at, i));
}

/// Nothing that a list of ranges has.
const fn word(i: usize) -> u64 {
    0xfeed_0000_0000_0000 | i as u64
}

fn put(at: usize, i: usize) {
    // SAFETY: a word of a mapping that the caller has made.
    unsafe { (at as *mut u64).add(i).write_volatile(word(i)) };
}

/// Whether a page of what was so filled holds what it did, or else whether it holds zeros.
pub(super) fn holds(at: usize, page: usize) -> Result<(), bool> {
    let words = page * PAGE / 8..(page + 1) * PAGE / 8;
    // SAFETY: as above.
    let get = |i: usize| unsafe { (at as *const u64).add(i).read_volatile() };
    match words.clone().all(|i| get(i) == word(i)) {
        true => Ok(()),
        false => Err(words.clone().all(|i| get(i) == 0)),
    }
}

/// The processes of a process group.
pub(super) fn list(group: i32) -> io::Result<Vec<i32>> {
    let all = std::fs::read_dir("/proc")?.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    // SAFETY: asks only.
    Ok(all.filter(|&pid: &i32| unsafe { libc::getpgid(pid) } == group).collect())
}

/// Runs something by a thread of its own, which has no children and may trace.
pub(super) fn traced<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| s.spawn(f).join().expect("no panic"))
}

/// Not a test: where the programs begin.
#[test]
fn program() {
    match std::env::var("OTHER").as_deref() {
        Ok("desk") => desk(),
        Ok(name) => panic!("no program {name}"),
        Err(_) => {}
    }
}

/// Where a list of ranges is written to lies something of its own.
fn desk() {
    const PIECE: usize = 2 << 20;
    let mut lowest = 0;
    let own = std::process::id() as i32;
    proc::each_range(own, &mut |vma| lowest = if vma.name == "[stack]" { vma.from as usize } else { lowest })
        .expect("mappings");
    // Nobody has got there: this is not the first thread, and that one waits.
    fill(lowest, together::DESK as usize);
    let at = map(24 * PIECE);
    (0..12).for_each(|i| sys::unmap(at + (2 * i + 1) * PIECE, PIECE));
    println!("ready");
    wait();
    for page in 0..together::DESK as usize / PAGE {
        assert_eq!(holds(lowest, page), Ok(()), "page {page} of the stack");
    }
    for page in (0..12).flat_map(|i| 2 * i * PIECE / PAGE..(2 * i + 1) * PIECE / PAGE) {
        assert_eq!(holds(at, page), Ok(()), "page {page}");
    }
    println!("right");
}

/// Ranges are dropped while others are copied, at last the stack on which their list lies.
#[test]
fn no_list_of_ranges_is_taken_for_what_was_there() {
    if !together::is_known() {
        return bdrun_skipped::skipped("kernel", "a process cannot drop many ranges at once");
    }
    let mut program = Program::start("pager::other::tests::program", "desk");
    program.hear("ready");
    let pid = program.pid();
    traced(|| {
        let mut held = hold(pid, &mut || list(pid), PATIENCE).expect("held");
        let mut image = Image::new().expect("scratch");
        IS_DEAF.set(true);
        held.evict(&mut image, &mut |_| {}).expect("out");
        held.restore(&mut image, &mut |_| {}).expect("back");
        held.release().expect("released");
    });
    program.tell();
    program.hear("right");
}
