//! What needs a process of its own: other scratch directories, a small disk, a kernel that refuses
//! asynchronous I/O.
//!
//! The program runs itself again with the one test to make there; tests made only there are ignored
//! otherwise.

use crate::MIB;
use crate::common::{Block, arena, own_pages};
use crate::moves::Moves;
use sbmalloc::pager::PagerError;
use sbmalloc::{HugePolicy, PAGE, StoreKind, TrackerKind};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory for scratch directories, gone in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let base = std::env::var("TMPDIR").unwrap_or("/var/tmp".into());
        let path = Path::new(&base).join(format!("sbmalloc-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("a")).expect("directory");
        std::fs::create_dir_all(path.join("b")).expect("directory");
        Self(path)
    }
    fn list(&self) -> String {
        format!("{0}/a:{0}/b", self.0.display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// This program with some of its tests.
fn again(tests: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    // One after the other: on a busy disk a thread of another test may stay unstoppable for long.
    command.args(["--include-ignored", "--exact", "--test-threads=1"]).args(tests);
    command
}

/// Runs them. All must be made and pass.
fn pass(mut command: Command, tests: usize) {
    let output = command.output().expect("this program again");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains(&format!("{tests} passed")), "{text}");
}

#[test]
fn everything_again_on_two_directories() {
    let dir = Directory::new("two");
    let tests = [
        "children::both_directories_are_used",
        "freed_memory_comes_back_as_zeros",
        "writes_while_out_are_kept",
        "memory_allocated_while_out_is_ordinary",
    ];
    let mut command = again(&tests);
    command.env("BDRUN_SCRATCH", dir.list());
    pass(command, tests.len());
}

#[test]
#[ignore = "run by everything_again_on_two_directories"]
fn both_directories_are_used() {
    let list = std::env::var("BDRUN_SCRATCH").expect("the directories");
    for kind in [StoreKind::Auto, StoreKind::Direct, StoreKind::Buffered] {
        let (set, arena) = arena((TrackerKind::Hash, kind, HugePolicy::Never));
        // Not at a stripe's beginning.
        let _first = Block::new(&arena, 3 * MIB);
        let mut block = Block::new(&arena, 40 * MIB);
        block.fill(1);
        set.page_out().expect("evict");
        let mut blocks = vec![];
        for dir in list.split(':') {
            let of_dir = |fd: std::io::Result<std::fs::DirEntry>| {
                let path = fd.ok()?.path();
                std::fs::read_link(&path).ok()?.starts_with(dir).then(|| std::fs::metadata(&path).ok())?
            };
            let fds = std::fs::read_dir("/proc/self/fd").expect("/proc");
            blocks.push(fds.filter_map(of_dir).map(|file| file.blocks() * 512).max().unwrap_or(0));
        }
        // Of 3 to 43 MiB in stripes of 8 MiB; a file system may need a little more.
        let counted = arena.stats().on_scratch;
        assert_eq!(counted, blocks.iter().sum::<u64>(), "{kind:?}: {blocks:?}");
        assert!(blocks[0] >= 21 << 20 && blocks[1] >= 19 << 20, "{kind:?}: {blocks:?}");
        assert!(blocks.iter().sum::<u64>() < 42 << 20, "{kind:?}: {blocks:?}");
        block.check(1);
        set.page_in().expect("restore");
        block.check(1);
        // Across the border of two stripes, in one go and scattered.
        block.bytes_mut()[4 * MIB..6 * MIB].fill(7);
        set.page_out().expect("evict");
        assert!(block.bytes()[4 * MIB..6 * MIB].iter().all(|&b| b == 7));
        set.page_in().expect("restore");
        assert!(block.bytes()[4 * MIB..6 * MIB].iter().all(|&b| b == 7));
    }
}

#[test]
fn of_two_directories_the_full_one_is_named() {
    let dir = Directory::new("full");
    let small = std::ffi::CString::new(format!("{}/b", dir.0.display())).expect("no NUL");
    let mut command = again(&["children::the_second_directory_is_full"]);
    command.env("BDRUN_SCRATCH", dir.list());
    // SAFETY: only system calls, on strings made before.
    unsafe {
        command.pre_exec(move || {
            let (none, tmpfs) = (c"none".as_ptr(), c"tmpfs".as_ptr());
            let private = libc::MS_REC | libc::MS_PRIVATE;
            let made = libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(none, c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()) == 0
                && libc::mount(tmpfs, small.as_ptr(), tmpfs, 0, c"size=8M".as_ptr().cast()) == 0;
            if made { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    match command.output() {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            bdrun_skipped::skipped("mount", "mounting needs root")
        }
        _ => pass(command, 1),
    }
}

#[test]
#[ignore = "run by of_two_directories_the_full_one_is_named"]
fn the_second_directory_is_full() {
    let list = std::env::var("BDRUN_SCRATCH").expect("the directories");
    let full = list.split(':').nth(1).expect("two");
    for kind in [StoreKind::Auto, StoreKind::Direct, StoreKind::Buffered] {
        for tracker in [TrackerKind::Hash, TrackerKind::Uffd] {
            let (set, arena) = arena((tracker, kind, HugePolicy::Never));
            let mut block = Block::new(&arena, 64 * MIB);
            block.fill(1);
            for _ in 0..2 {
                match set.page_out() {
                    Err(PagerError::NoSpace { dir, needed }) => {
                        assert_eq!(dir, full, "{kind:?}");
                        assert!(needed > 0);
                    }
                    other => panic!("{kind:?}: {other:?}"),
                }
                assert!(!set.is_evicted());
                assert_eq!(own_pages(block.at.as_ptr(), block.len), block.len / PAGE);
                block.check(1);
            }
            // As much as fits: one stripe there.
            drop((block, arena));
            let (set, arena) = crate::common::arena((tracker, kind, HugePolicy::Never));
            let mut block = Block::new(&arena, 16 * MIB);
            block.fill(2);
            set.page_out().expect("it fits");
            block.check(2);
            set.page_in().expect("restore");
            block.check(2);
        }
    }
}

/// A filter that answers `io_setup` with an error, as containers, old kernels, and machines that have given
/// out all contexts do.
fn refuse_io_setup(errno: i32) -> std::io::Result<()> {
    const fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
    let mut filter = [
        // The number of the system call is the first word.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_io_setup as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is complete; both calls concern this process only.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program, 0, 0) == 0
    };
    if set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn without_asynchronous_io_transfers_are_made_by_calls() {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EAGAIN] {
        let mut command = again(&["children::io_setup_is_refused"]);
        command.env("SBMALLOC_REFUSED", errno.to_string());
        // SAFETY: only system calls.
        unsafe { command.pre_exec(move || refuse_io_setup(errno)) };
        if let Err(e) = command.output() {
            return bdrun_skipped::skipped("seccomp", format!("no system call filters here: {e}"));
        }
        pass(command, 1);
    }
}

#[test]
#[ignore = "run by without_asynchronous_io_transfers_are_made_by_calls"]
fn io_setup_is_refused() {
    let mut context = 0u64;
    // SAFETY: the kernel would write one word.
    let made = unsafe { libc::syscall(libc::SYS_io_setup, 1, &mut context) };
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let expected = std::env::var("SBMALLOC_REFUSED").expect("the error");
    assert_eq!((made, errno.to_string()), (-1, expected), "the filter works");
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Never));
    let mut block = Block::new(&arena, 40 * MIB);
    for round in 1..4 {
        block.fill(round);
        assert_eq!(set.page_out().expect("evict").bytes, block.len as u64);
        block.check(round);
        set.page_in().expect("restore");
        block.check(round);
    }
}
