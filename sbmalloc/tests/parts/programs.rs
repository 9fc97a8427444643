//! Programs that need more than they are given, and know what their memory must hold.

use std::io::{Read, Seek, SeekFrom, Write};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

pub fn run(name: &str) {
    match name {
        "sweep" => sweep(4),
        "look" => look(),
        "random" => random(),
        "threads" => threads(),
        "forks" => forks(),
        "addresses" => addresses(),
        "calls" => calls(),
        "grow" => grow(),
        "locked" => locked(),
        "signals" => signals(),
        "sentry" => sentry(),
        "stack" => stack(),
        "full" => full(false),
        "all full" => full(true),
        "foreign" => foreign(),
        "begins" => begins(),
        "anew" => anew(),
        "scarce" => crate::limits::scarce(),
        "keeper" => crate::keeper(),
        "model" => crate::model::run(ready),
        name => panic!("no program {name}"),
    }
    println!("right");
}

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;
/// Words of a page.
const WORDS: usize = PAGE / 8;

/// Has its memory, and goes on once it was made smaller: it is told that while it stands for that. If that
/// may not be it is killed.
fn ready() {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).expect("told");
}

/// Until it holds no more than this, as whoever makes it smaller may be without a processor; for two minutes
/// in all, then it goes on as one that is not made smaller.
fn wait_for_room(bytes: usize) {
    static WAITED: AtomicU64 = AtomicU64::new(0);
    let held = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    };
    while held() > bytes && WAITED.fetch_add(1, Ordering::SeqCst) < 60_000 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// What a word must hold after some changes.
fn word(i: usize, round: u64) -> u64 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round.wrapping_mul(0xd1b5_4a32_d192_ed03)
}

fn filled(bytes: usize) -> Vec<u64> {
    (0..bytes / 8).map(|i| word(i, 0)).collect()
}

fn sweep(rounds: u64) {
    let mut memory = filled(128 * MIB);
    ready();
    for round in 0..rounds {
        for (i, at) in memory.iter_mut().enumerate() {
            assert_eq!(*at, word(i, round), "word {i} of round {round}");
            *at = word(i, round + 1);
        }
    }
}

fn look() {
    let memory = filled(128 * MIB);
    ready();
    for _ in 0..4 {
        assert!(memory.iter().enumerate().all(|(i, &at)| at == word(i, 0)));
    }
}

fn random() {
    let mut memory = filled(96 * MIB);
    let mut rounds = vec![0u8; memory.len() / WORDS];
    ready();
    let mut state = 88_172_645_463_325_252u64;
    for _ in 0..6000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let page = state as usize % rounds.len();
        let round = rounds[page];
        for (i, value) in memory.iter_mut().enumerate().skip(page * WORDS).take(WORDS) {
            assert_eq!(*value, word(i, round.into()), "word {i}");
            *value = word(i, u64::from(round) + 1);
        }
        rounds[page] += 1;
    }
}

fn threads() {
    let mut memory = filled(96 * MIB);
    ready();
    let part = memory.len() / 4;
    std::thread::scope(|s| {
        for (t, memory) in memory.chunks_mut(part).enumerate() {
            s.spawn(move || {
                for round in 0..3 {
                    for (i, at) in memory.iter_mut().enumerate() {
                        assert_eq!(*at, word(t * part + i, round));
                        *at = word(t * part + i, round + 1);
                    }
                    // Threads that come and go.
                    std::thread::spawn(|| std::hint::black_box(vec![1u8; 100_000])).join().expect("short");
                }
            });
        }
    });
}

fn forks() {
    let mut memory = filled(64 * MIB);
    ready();
    for round in 0..4 {
        // SAFETY: the child only looks at memory and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = memory.iter().enumerate().all(|(i, &at)| at == word(i, round));
            memory.iter_mut().step_by(WORDS).for_each(|at| *at = 1);
            let kept = memory.iter().step_by(WORDS).all(|&at| at == 1);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!(right && kept))) };
        }
        for (i, at) in memory.iter_mut().enumerate() {
            assert_eq!(*at, word(i, round), "the parent's");
            *at = word(i, round + 1);
        }
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child's");
    }
    // A child that runs another program.
    let said = std::process::Command::new("echo").arg("all well").output().expect("echo");
    assert_eq!(said.stdout, b"all well\n");
}

/// `count` pages of memory.
fn map(count: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let at = unsafe {
        libc::mmap(ptr::null_mut(), count * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// The pages of a mapping, by what each must hold in its first and last word: 0 for a page that was given up.
/// What is locked is moved, and grows as it is: the kernel makes the new pages within that call.
fn locked() {
    const PAGES: usize = 256;
    const MORE: usize = 64;
    // SAFETY: every access lies within mappings made here, of the length that is known at the time.
    unsafe {
        let mut regions: Vec<*mut u8> = (0..32).map(|_| map(PAGES)).collect();
        let at = |region: *mut u8, page: usize| region.add(page * PAGE).cast::<u64>();
        for (n, &region) in regions.iter().enumerate() {
            (0..PAGES).for_each(|page| at(region, page).write_volatile(word(page, n as u64)));
        }
        ready();
        for step in 0..80 {
            if step == 40 {
                // So does a child, and its parent waits.
                let child = libc::fork();
                if child > 0 {
                    let mut status = -1;
                    assert_eq!((libc::waitpid(child, &mut status, 0), status), (child, 0));
                    return;
                }
            }
            let n = step % regions.len();
            let region = &mut regions[n];
            assert_eq!(libc::mlock((*region).cast(), PAGES * PAGE), 0, "{}", std::io::Error::last_os_error());
            let there = map(PAGES + MORE);
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let (old, new) = (PAGES * PAGE, (PAGES + MORE) * PAGE);
            let moved = libc::mremap((*region).cast(), old, new, flags, there);
            assert_eq!(moved, there.cast(), "{}", std::io::Error::last_os_error());
            *region = there;
            for page in 0..PAGES + MORE {
                let holds = if page < PAGES { word(page, n as u64) } else { 0 };
                assert_eq!(at(there, page).read_volatile(), holds, "page {page} of region {n}");
            }
            assert_eq!(libc::munlock(there.cast(), new), 0);
            assert_eq!(libc::munmap(there.add(old).cast(), MORE * PAGE), 0);
        }
        libc::_exit(0);
    }
}

fn addresses() {
    // SAFETY: every access lies within mappings made here, of the length that is known at the time.
    unsafe {
        let mut at = map(16_384);
        let mut holds: Vec<u64> = (1..=16_384).collect();
        let put = |at: *mut u8, page: usize, value: u64| {
            at.add(page * PAGE).cast::<u64>().write_volatile(value);
            at.add(page * PAGE + PAGE - 8).cast::<u64>().write_volatile(value);
        };
        let get = |at: *mut u8, page: usize| {
            let first = at.add(page * PAGE).cast::<u64>().read_volatile();
            assert_eq!(first, at.add(page * PAGE + PAGE - 8).cast::<u64>().read_volatile());
            first
        };
        holds.iter().enumerate().for_each(|(i, &value)| put(at, i, value));
        ready();
        let mut state = 1u64;
        for step in 0..120 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (page, count) = ((state >> 33) as usize % holds.len(), 1 + (state >> 20) as usize % 600);
            let end = (page + count).min(holds.len());
            match step % 4 {
                0 => {
                    assert_eq!(
                        libc::madvise(at.add(page * PAGE).cast(), (end - page) * PAGE, libc::MADV_DONTNEED),
                        0
                    );
                    holds[page..end].fill(0);
                }
                1 => {
                    // Elsewhere, by an odd distance, and longer.
                    let more = holds.len() + 37;
                    let there = map(more + 5).add(5 * PAGE);
                    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                    let moved = libc::mremap(at.cast(), holds.len() * PAGE, more * PAGE, flags, there);
                    assert_eq!(moved, there.cast(), "{}", std::io::Error::last_os_error());
                    at = there;
                    holds.resize(more, 0);
                }
                2 => {
                    // The end is unmapped, and mapped again.
                    let keep = holds.len() - count.min(holds.len() / 2);
                    assert_eq!(libc::munmap(at.add(keep * PAGE).cast(), (holds.len() - keep) * PAGE), 0);
                    holds.truncate(keep);
                }
                _ => {
                    for (page, held) in holds.iter_mut().enumerate().take(end).skip(page) {
                        assert_eq!(get(at, page), *held, "page {page} in step {step}");
                        *held = state ^ page as u64;
                        put(at, page, *held);
                    }
                }
            }
        }
        for (page, &value) in holds.iter().enumerate() {
            assert_eq!(get(at, page), value, "page {page} at the end");
        }
    }
}

fn calls() {
    let memory = filled(48 * MIB);
    ready();
    let mut file = tempfile();
    // SAFETY: the bytes of initialised words.
    let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), memory.len() * 8) };
    file.write_all(bytes).expect("written from what is out");
    file.seek(SeekFrom::Start(0)).expect("rewound");
    let mut copy = filled(48 * MIB);
    copy.fill(7);
    // SAFETY: the bytes of words, any of which is one.
    let bytes = unsafe { std::slice::from_raw_parts_mut(copy.as_mut_ptr().cast::<u8>(), copy.len() * 8) };
    file.read_exact(bytes).expect("read into what is out");
    assert!(copy == memory);
}

fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("parts-{}", std::process::id()));
    let options = || std::fs::File::options().read(true).write(true).create_new(true).open(&path);
    let file = options().expect("a file");
    std::fs::remove_file(&path).expect("removed");
    file
}

fn grow() {
    let first = filled(32 * MIB);
    ready();
    // By brk, and by mappings.
    let mut pieces = vec![];
    for piece in 0..24 {
        // SAFETY: nothing else in this program uses brk at this moment.
        let at = unsafe { libc::sbrk(2 * MIB as isize) }.cast::<u64>();
        assert_ne!(at as isize, -1);
        // SAFETY: the new memory.
        let brk = unsafe { std::slice::from_raw_parts_mut(at, 2 * MIB / 8) };
        for (i, at) in brk.iter_mut().enumerate() {
            assert_eq!(*at, 0, "new memory is zeros");
            *at = word(i, piece);
        }
        pieces.push((brk, filled(2 * MIB)));
        wait_for_room(40 * MIB);
    }
    assert!(first.iter().enumerate().all(|(i, &at)| at == word(i, 0)));
    for (piece, (brk, mapped)) in pieces.iter().enumerate() {
        assert!(brk.iter().enumerate().all(|(i, &at)| at == word(i, piece as u64)));
        assert!(mapped.iter().enumerate().all(|(i, &at)| at == word(i, 0)));
    }
}

static HEARD: AtomicU64 = AtomicU64::new(0);

extern "C" fn hear(_: i32) {
    HEARD.fetch_add(1, Ordering::SeqCst);
}

fn signals() {
    // SAFETY: the handler only counts.
    unsafe {
        libc::signal(libc::SIGUSR1, hear as extern "C" fn(i32) as usize);
        libc::signal(libc::SIGALRM, hear as extern "C" fn(i32) as usize);
        let every = libc::timeval { tv_sec: 0, tv_usec: 2000 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        assert_eq!(libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &raw const timer, 0), 0);
    }
    sweep(3);
    assert!(HEARD.load(Ordering::SeqCst) > 20);
}

/// Looks at what is out as often as it can, and says at once if it is not what it was.
fn sentry() {
    let memory = filled(64 * MIB);
    ready();
    loop {
        for page in (0..memory.len()).step_by(WORDS) {
            // SAFETY: within the vector.
            if unsafe { ptr::read_volatile(&memory[page]) } != word(page, 0) {
                println!("wrong");
                std::process::exit(3);
            }
        }
    }
}

/// Until nobody tells it anything any more.
fn wait_for_the_end() {
    std::io::stdin().lines().for_each(drop);
}

/// Mappings of its own: from, to, and name.
fn mappings() -> Vec<(usize, usize, String)> {
    let text = std::fs::read_to_string("/proc/self/maps").expect("mappings");
    let own = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let is_own = words.next()? == "rw-p" && words.nth(2)? == "0";
        is_own.then_some((number(from)?, number(to)?, words.next().unwrap_or_default().to_owned()))
    };
    text.lines().filter_map(own).collect()
}

/// 64 MiB on the stack of the first thread, which grows wherever it is touched.
fn stack() {
    const PAGES: usize = 64 * MIB / PAGE;
    let limit = libc::rlimit { rlim_cur: 96 << 20, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: reads two numbers.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_STACK, &limit) }, 0);
    let lowest = mappings().into_iter().find(|(.., name)| name == "[stack]").expect("a stack").0;
    // SAFETY: below what is in use of a stack whose thread waits; the kernel makes it larger.
    let at = |page: usize| unsafe { (lowest as *mut u64).sub((page + 1) * WORDS) };
    // SAFETY: as above.
    (0..PAGES).for_each(|page| unsafe { at(page).write_volatile(word(page, 0)) });
    println!("ready");
    wait_for_the_end();
    // SAFETY: as above.
    assert!((0..PAGES).all(|page| unsafe { at(page).read_volatile() } == word(page, 0)));
}

/// Has pages wherever it may have some up to the end of its heap, or `everywhere`, and a child that grows.
fn full(everywhere: bool) {
    let len = 32 * MIB;
    // SAFETY: nothing else in this program uses brk at this moment.
    let heap = unsafe { libc::sbrk(len as isize) }.cast::<u64>();
    assert_ne!(heap as isize, -1);
    // SAFETY: the new memory.
    let heap = unsafe { std::slice::from_raw_parts_mut(heap, len / 8) };
    heap.iter_mut().enumerate().for_each(|(i, at)| *at = word(i, 0));
    let end = heap.as_ptr_range().end as usize;
    for (from, to, _) in mappings().into_iter().filter(|(from, ..)| everywhere || *from < end) {
        // SAFETY: pages of its own are made where there are none.
        unsafe { libc::madvise(from as *mut _, to - from, libc::MADV_POPULATE_WRITE) };
    }
    ready();
    // SAFETY: the child makes use of memory, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let more = filled(64 * MIB);
        wait_for_the_end();
        let right = more.iter().chain(heap.iter());
        let right = right.zip((0..more.len()).chain(0..heap.len())).all(|(&at, i)| at == word(i, 0));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's");
    assert!(heap.iter().enumerate().all(|(i, &at)| at == word(i, 0)));
}

/// A program for a processor of 32 bits that waits, however long, until there is something to be read on its
/// standard input, or its end, and ends with 7; if the call is broken off, with 2.
fn program_of_32_bits() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 84;
    #[rustfmt::skip]
    let code = [
        0x31, 0xdb, // xor ebx, ebx
        0xb8, 0x49, 0x01, 0, 0, // mov eax, 329: epoll_create1
        0xcd, 0x80, // int 0x80
        0x89, 0xc3, // mov ebx, eax
        0x83, 0xec, 0x10, // sub esp, 16
        0xc7, 0x04, 0x24, 0x01, 0, 0, 0, // mov dword [esp], 1: EPOLLIN
        0x89, 0xe6, // mov esi, esp
        0x31, 0xd2, // xor edx, edx
        0x6a, 0x01, 0x59, // push 1; pop ecx: EPOLL_CTL_ADD
        0xb8, 0xff, 0, 0, 0, // mov eax, 255: epoll_ctl
        0xcd, 0x80, // int 0x80
        0x89, 0xf1, // mov ecx, esi
        0x6a, 0x01, 0x5a, // push 1; pop edx
        0x83, 0xce, 0xff, // or esi, -1
        0xb8, 0, 0x01, 0, 0, // mov eax, 256: epoll_wait
        0xcd, 0x80, // int 0x80
        0x8d, 0x58, 0x06, // lea ebx, [eax + 6]
        0x6a, 0x01, 0x58, // push 1; pop eax: exit
        0xcd, 0x80,
    ];
    let size = HEADERS + code.len() as u32;
    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    let half = |file: &mut Vec<u8>, of: &[u16]| of.iter().for_each(|n| file.extend(n.to_le_bytes()));
    let words = |file: &mut Vec<u8>, of: &[u32]| of.iter().for_each(|n| file.extend(n.to_le_bytes()));
    // An executable for the 386, its entry, and where its one program header is.
    half(&mut file, &[2, 3]);
    words(&mut file, &[1, BASE + HEADERS, 52, 0, 0]);
    half(&mut file, &[52, 32, 1, 0, 0, 0]);
    // All of the file is loaded, to be read and executed.
    words(&mut file, &[1, 0, BASE, BASE, size, size, 5, 4096]);
    assert_eq!(file.len() as u32, HEADERS);
    file.extend(code);
    file
}

/// Has a program for another processor run until it is told.
fn foreign() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("parts-foreign-{}", std::process::id()));
    std::fs::write(&path, program_of_32_bits()).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let memory = filled(32 * MIB);
    ready();
    let child = std::process::Command::new(&path).stdin(std::process::Stdio::piped()).spawn();
    std::fs::remove_file(&path).expect("removed");
    let mut child = match child {
        Ok(child) => child,
        Err(e) => return println!("none: {e}"),
    };
    wait_for_the_end();
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("its end").code(), Some(7));
    assert!(memory.iter().enumerate().all(|(i, &at)| at == word(i, 0)));
}

/// Begins a thread for each line.
fn begins() {
    let memory = filled(48 * MIB);
    ready();
    let mut threads = vec![];
    for line in std::io::stdin().lines() {
        line.expect("a line");
        threads.push(std::thread::spawn(|| std::hint::black_box(vec![1u8; 100_000]).len()));
        println!("begun");
    }
    assert!(threads.into_iter().all(|thread| thread.join().expect("no panic") == 100_000));
    assert!(memory.iter().enumerate().all(|(i, &at)| at == word(i, 0)));
}

/// Makes memory for each line: at first such as any, then such as may only be read.
fn anew() {
    let memory = filled(32 * MIB);
    ready();
    let mut made = vec![];
    for (line, bytes) in std::io::stdin().lines().zip([crate::limits::LIKE_ANY, crate::limits::ONLY_READ]) {
        line.expect("a line");
        let count = bytes as usize / PAGE;
        let at = map(count);
        // SAFETY: a word of each page of a mapping that was just made.
        (0..count).for_each(|page| unsafe { at.add(page * PAGE).cast::<u64>().write(word(page, 1)) });
        if !made.is_empty() {
            // SAFETY: nobody writes to it any more.
            assert_eq!(unsafe { libc::mprotect(at.cast(), count * PAGE, libc::PROT_READ) }, 0);
        }
        made.push((at, count));
        println!("made");
    }
    wait_for_the_end();
    for (at, count) in made {
        // SAFETY: as above.
        let is_right = |page: usize| unsafe { at.add(page * PAGE).cast::<u64>().read() == word(page, 1) };
        assert!((0..count).all(is_right));
    }
    assert!(memory.iter().enumerate().all(|(i, &at)| at == word(i, 0)));
}
