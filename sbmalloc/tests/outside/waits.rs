//! Programs that wait with a timeout, in every call that has one.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a call is to wait, ms.
fn wait_ms() -> i64 {
    std::env::var("WAIT_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn spec(ms: i64) -> libc::timespec {
    libc::timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 }
}

fn val(ms: i64) -> libc::timeval {
    libc::timeval { tv_sec: ms / 1000, tv_usec: ms % 1000 * 1000 }
}

/// So much later by a clock.
fn until(clock: i32, ms: i64) -> libc::timespec {
    // SAFETY: the kernel fills in one timespec.
    unsafe {
        let mut time = std::mem::zeroed();
        assert_eq!(libc::clock_gettime(clock, &mut time), 0);
        let nanos = time.tv_nsec + ms % 1000 * 1_000_000;
        libc::timespec {
            tv_sec: time.tv_sec + ms / 1000 + nanos / 1_000_000_000,
            tv_nsec: nanos % 1_000_000_000,
        }
    }
}

/// A call by its number: what it returned, or the error below 0.
fn raw(number: i64, a: [usize; 6]) -> i64 {
    // SAFETY: whoever calls this hands over what the call may use.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if result == -1 { -i64::from(errno()) } else { result }
}

/// A page that the kernel can read but not write, with this at its beginning.
fn read_only<T: Copy>(content: T) -> usize {
    // SAFETY: new memory, large enough, written before it is protected.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<T>().write(content);
        assert_eq!(libc::mprotect(at, 4096, libc::PROT_READ), 0);
        at as usize
    }
}

fn pipe() -> [i32; 2] {
    let mut fds = [0; 2];
    // SAFETY: the kernel fills in two numbers.
    assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
    fds
}

/// Two sockets, of which the first waits for so long.
fn sockets(kind: i32, option: i32, ms: i64) -> [i32; 2] {
    let mut fds = [0; 2];
    // SAFETY: the kernel fills in two numbers.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }, 0);
    set_timeout(fds[0], option, ms);
    fds
}

fn set_timeout(fd: i32, option: i32, ms: i64) {
    let time = val(ms);
    // SAFETY: the kernel reads one timeval.
    let result = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const time).cast(), size_of_val(&time) as u32)
    };
    assert_eq!(result, 0);
}

/// Fills what is behind a socket to the brim.
fn fill(fd: i32) {
    let bytes = [1u8; 4096];
    // SAFETY: the buffer is at least so long.
    while unsafe { libc::send(fd, bytes.as_ptr().cast(), 4096, libc::MSG_DONTWAIT) } > 0 {}
    // SAFETY: as above.
    while unsafe { libc::send(fd, bytes.as_ptr().cast(), 1, libc::MSG_DONTWAIT) } > 0 {}
}

/// A listening socket with an address of the kernel's own choice.
fn listener(backlog: i32) -> (i32, libc::sockaddr_un, u32) {
    // SAFETY: structures of the sizes told.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), 2), 0);
        let mut len = size_of_val(&address) as u32;
        assert_eq!(libc::getsockname(fd, (&raw mut address).cast(), &mut len), 0);
        assert_eq!(libc::listen(fd, backlog), 0);
        (fd, address, len)
    }
}

/// Makes a call; what it returned.
type Make = Box<dyn Fn() -> i64 + Send>;

/// A call with a timeout, which makes it return that.
struct Call {
    name: &'static str,
    returns: i64,
    call: Make,
}

const AGAIN: i64 = -(libc::EAGAIN as i64);
const TIMED_OUT: i64 = -(libc::ETIMEDOUT as i64);

fn calls(ms: i64) -> Vec<Call> {
    let mut all = vec![];
    let mut add = |name, returns, call: Make| all.push(Call { name, returns, call });
    polls(ms, &mut add);
    selects(ms, &mut add);
    sleeps(ms, &mut add);
    queues(ms, &mut add);
    networks(ms, &mut add);
    all
}

type Add<'a> = &'a mut dyn FnMut(&'static str, i64, Make);

fn polls(ms: i64, add: Add) {
    let never = pipe()[0];
    // SAFETY: makes a descriptor.
    let epoll = unsafe { libc::epoll_create1(0) } as usize;
    let event = || [0u8; 64];
    #[cfg(target_arch = "x86_64")]
    add(
        "epoll_wait",
        0,
        Box::new(move || {
            raw(libc::SYS_epoll_wait, [epoll, event().as_mut_ptr() as usize, 1, ms as usize, 0, 0])
        }),
    );
    add(
        "epoll_pwait",
        0,
        Box::new(move || {
            let mask = 0u64;
            let mask = &raw const mask as usize;
            raw(libc::SYS_epoll_pwait, [epoll, event().as_mut_ptr() as usize, 1, ms as usize, mask, 8])
        }),
    );
    add(
        "epoll_pwait2",
        0,
        Box::new(move || {
            let time = spec(ms);
            let time_at = &raw const time as usize;
            raw(libc::SYS_epoll_pwait2, [epoll, event().as_mut_ptr() as usize, 1, time_at, 0, 0])
        }),
    );
    let fds = move || libc::pollfd { fd: never, events: libc::POLLIN, revents: 0 };
    add(
        "poll",
        0,
        Box::new(move || {
            // SAFETY: one pollfd.
            i64::from(unsafe { libc::poll(&mut fds(), 1, ms as i32) })
        }),
    );
    add(
        "ppoll",
        0,
        Box::new(move || {
            let (mut fds, mut time) = (fds(), spec(ms));
            raw(libc::SYS_ppoll, [&raw mut fds as usize, 1, &raw mut time as usize, 0, 8, 0])
        }),
    );
    let time = read_only(spec(ms));
    add(
        "ppoll with a constant",
        0,
        Box::new(move || {
            let mut fds = fds();
            raw(libc::SYS_ppoll, [&raw mut fds as usize, 1, time, 0, 8, 0])
        }),
    );
}

fn selects(ms: i64, add: Add) {
    let never = pipe()[0];
    let set = move || {
        let mut set = [0u64; 16];
        set[never as usize / 64] |= 1 << (never % 64);
        set
    };
    #[cfg(target_arch = "x86_64")]
    add(
        "select",
        0,
        Box::new(move || {
            let (mut set, mut time) = (set(), val(ms));
            let count = never as usize + 1;
            raw(libc::SYS_select, [count, set.as_mut_ptr() as usize, 0, 0, &raw mut time as usize, 0])
        }),
    );
    add(
        "pselect",
        0,
        Box::new(move || {
            let (mut set, mut time) = (set(), spec(ms));
            let count = never as usize + 1;
            raw(libc::SYS_pselect6, [count, set.as_mut_ptr() as usize, 0, 0, &raw mut time as usize, 0])
        }),
    );
    let time = read_only(spec(ms));
    add(
        "pselect with a constant",
        0,
        Box::new(move || {
            let mut set = set();
            let count = never as usize + 1;
            let result = raw(libc::SYS_pselect6, [count, set.as_mut_ptr() as usize, 0, 0, time, 0]);
            // What is ready, which is nothing, is told there.
            if result == 0 && set != [0; 16] { -1000 } else { result }
        }),
    );
}

fn sleeps(ms: i64, add: Add) {
    add(
        "nanosleep",
        0,
        Box::new(move || {
            let time = spec(ms);
            raw(libc::SYS_nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0])
        }),
    );
    add(
        "clock_nanosleep",
        0,
        Box::new(move || {
            let (clock, time) = (libc::CLOCK_MONOTONIC as usize, spec(ms));
            raw(libc::SYS_clock_nanosleep, [clock, 0, &raw const time as usize, 0, 0, 0])
        }),
    );
    add(
        "clock_nanosleep until",
        0,
        Box::new(move || {
            let clock = libc::CLOCK_MONOTONIC;
            let (flags, time) = (libc::TIMER_ABSTIME as usize, until(clock, ms));
            raw(libc::SYS_clock_nanosleep, [clock as usize, flags, &raw const time as usize, 0, 0, 0])
        }),
    );
    static WORD: AtomicU32 = AtomicU32::new(0);
    let word = WORD.as_ptr() as usize;
    add(
        "futex",
        TIMED_OUT,
        Box::new(move || {
            let time = spec(ms);
            raw(
                libc::SYS_futex,
                [word, libc::FUTEX_WAIT as usize, 0, &raw const time as usize, 0, u32::MAX as usize],
            )
        }),
    );
    add(
        "futex until",
        TIMED_OUT,
        Box::new(move || {
            let time = until(libc::CLOCK_MONOTONIC, ms);
            let (op, time_at) = (libc::FUTEX_WAIT_BITSET as usize, &raw const time as usize);
            raw(libc::SYS_futex, [word, op, 0, time_at, 0, u32::MAX as usize])
        }),
    );
    add(
        "timerfd",
        8,
        Box::new(move || {
            let mut count = 0u64;
            let time = libc::itimerspec { it_interval: spec(0), it_value: spec(ms) };
            // SAFETY: structures on the stack; the descriptor is closed again.
            unsafe {
                let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
                assert_eq!(libc::timerfd_settime(fd, 0, &time, ptr::null_mut()), 0);
                let result = libc::read(fd, (&raw mut count).cast(), 8);
                libc::close(fd);
                result as i64
            }
        }),
    );
}

fn queues(ms: i64, add: Add) {
    add(
        "sigtimedwait",
        AGAIN,
        Box::new(move || {
            let (set, time) = (1u64 << (libc::SIGUSR2 - 1), spec(ms));
            let (set_at, time_at) = (&raw const set as usize, &raw const time as usize);
            raw(libc::SYS_rt_sigtimedwait, [set_at, 0, time_at, 8, 0, 0])
        }),
    );
    // SAFETY: makes a set of semaphores, which is removed at the end.
    let semaphores = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
    assert!(semaphores >= 0);
    SEMAPHORES.store(semaphores as u32, Ordering::SeqCst);
    add(
        "semtimedop",
        AGAIN,
        Box::new(move || {
            let op = libc::sembuf { sem_num: 0, sem_op: -1, sem_flg: 0 };
            let time = spec(ms);
            let (op_at, time_at) = (&raw const op as usize, &raw const time as usize);
            raw(libc::SYS_semtimedop, [semaphores as usize, op_at, 1, time_at, 0, 0])
        }),
    );
    let name = std::ffi::CString::new(format!("/sbmalloc-waits-{}", std::process::id())).expect("name");
    // SAFETY: structures on the stack; the queue goes with the process.
    let queue = unsafe {
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        (attributes.mq_maxmsg, attributes.mq_msgsize) = (2, 64);
        let queue = libc::mq_open(name.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600, &raw mut attributes);
        libc::mq_unlink(name.as_ptr());
        queue
    };
    if queue < 0 {
        return println!("no message queues here");
    }
    add(
        "mq_timedreceive",
        TIMED_OUT,
        Box::new(move || {
            let time = until(libc::CLOCK_REALTIME, ms);
            let (to, time_at) = ([0u8; 64].as_mut_ptr() as usize, &raw const time as usize);
            raw(libc::SYS_mq_timedreceive, [queue as usize, to, 64, 0, time_at, 0])
        }),
    );
}

static SEMAPHORES: AtomicU32 = AtomicU32::new(0);

fn networks(ms: i64, add: Add) {
    let buffer = || [0u8; 64].as_mut_ptr() as usize;
    let [a, _] = sockets(libc::SOCK_STREAM, libc::SO_RCVTIMEO, ms);
    let a = a as usize;
    add("read of a socket", AGAIN, Box::new(move || raw(libc::SYS_read, [a, buffer(), 64, 0, 0, 0])));
    add("recv", AGAIN, Box::new(move || raw(libc::SYS_recvfrom, [a, buffer(), 64, 0, 0, 0])));
    let [a, _] = sockets(libc::SOCK_DGRAM, libc::SO_RCVTIMEO, ms);
    add(
        "recvmsg",
        AGAIN,
        Box::new(move || {
            // SAFETY: an empty message.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            raw(libc::SYS_recvmsg, [a as usize, &raw mut message as usize, 0, 0, 0, 0])
        }),
    );
    let [a, b] = sockets(libc::SOCK_STREAM, libc::SO_SNDTIMEO, ms);
    fill(a);
    // The other end stays open.
    let _ = b;
    let a = a as usize;
    add("write to a socket", AGAIN, Box::new(move || raw(libc::SYS_write, [a, buffer(), 64, 0, 0, 0])));
    add("send", AGAIN, Box::new(move || raw(libc::SYS_sendto, [a, buffer(), 64, 0, 0, 0])));
    let (fd, ..) = listener(4);
    set_timeout(fd, libc::SO_RCVTIMEO, ms);
    add("accept", AGAIN, Box::new(move || raw(libc::SYS_accept4, [fd as usize, 0, 0, 0, 0, 0])));
    let (_, address, len) = listener(0);
    let connect = move |ms| {
        // SAFETY: makes a descriptor.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) };
        set_timeout(fd, libc::SO_SNDTIMEO, ms);
        (fd, raw(libc::SYS_connect, [fd as usize, &raw const address as usize, len as usize, 0, 0, 0]))
    };
    // One fits, and stays.
    assert_eq!(connect(1).1, 0);
    add(
        "connect",
        AGAIN,
        Box::new(move || {
            let (fd, result) = connect(ms);
            // SAFETY: our own descriptor.
            unsafe { libc::close(fd) };
            result
        }),
    );
}

/// Each call in a thread of its own, `WAIT_TIMES` times with the same arguments: none may return before its
/// time, nor other than by that.
pub fn waits() {
    let ms = wait_ms();
    let times: u32 = std::env::var("WAIT_TIMES").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let calls = calls(ms);
    let begun = Instant::now();
    println!("ready");
    let threads: Vec<_> = calls
        .into_iter()
        .map(|Call { name, returns, call }| {
            std::thread::spawn(move || {
                for time in 1..=times {
                    let begun = Instant::now();
                    let result = call();
                    let took = begun.elapsed();
                    // The kernel itself rounds what it leaves of a timeval down.
                    let right = result == returns
                        && took + Duration::from_millis(1) >= Duration::from_millis(ms as u64);
                    println!(
                        "{}{name}, time {time}: {result} after {} ms",
                        if right { "" } else { "WRONG " },
                        took.as_millis()
                    );
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    remove_semaphores();
    println!("all after {} ms", begun.elapsed().as_millis());
}

fn remove_semaphores() {
    let semaphores = SEMAPHORES.load(Ordering::SeqCst) as i32;
    // SAFETY: our own.
    unsafe { libc::semctl(semaphores, 0, libc::IPC_RMID) };
}

/// Waits again and again, by one instruction, for what comes long before the timeout, which so never comes;
/// for twice the timeout at least, and until it was stopped often enough.
pub fn fed() {
    // SAFETY: makes descriptors, and has one watched.
    let (epoll, event) = unsafe {
        let (epoll, event) = (libc::epoll_create1(0), libc::eventfd(0, 0));
        let mut what = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, event, &mut what), 0);
        (epoll, event)
    };
    println!("ready");
    let begun = Instant::now();
    let goes_on = move || begun.elapsed() < Duration::from_secs(6) || !crate::programs::is_enough(begun);
    let feeder = std::thread::spawn(move || {
        while goes_on() {
            std::thread::sleep(Duration::from_millis(100));
            // SAFETY: eight bytes.
            unsafe { libc::write(event, 1u64.to_ne_bytes().as_ptr().cast(), 8) };
        }
    });
    let mut least = i64::MAX;
    let mut bytes = [0u8; 64];
    while goes_on() {
        let to = bytes.as_mut_ptr() as usize;
        let before = Instant::now();
        let result = raw(libc::SYS_epoll_pwait, [epoll as usize, to, 1, 3000, 0, 8]);
        if result == 0 {
            least = least.min(before.elapsed().as_millis() as i64);
        }
        // SAFETY: eight bytes.
        unsafe { libc::read(event, to as *mut _, 8) };
    }
    feeder.join().expect("no panic");
    // On a busy machine the feeder may come late.
    println!("{}", if least >= 3000 { "right".to_owned() } else { format!("timed out after {least} ms") });
}

/// Waits for what comes while it is out for longer than it waits.
pub fn met() {
    let ms = wait_ms();
    // SAFETY: makes a descriptor, and has our input watched.
    let epoll = unsafe {
        let epoll = libc::epoll_create1(0);
        let mut what = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, 0, &mut what), 0);
        epoll as usize
    };
    let (fd, address, len) = listener(4);
    set_timeout(fd, libc::SO_RCVTIMEO, ms);
    // SAFETY: makes a set of semaphores, which is removed at the end.
    let semaphores = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
    SEMAPHORES.store(semaphores as u32, Ordering::SeqCst);
    let time = read_only(spec(ms));
    let event = || [0u8; 64].as_mut_ptr() as usize;
    let calls: [(&str, i64, Make); 6] = [
        (
            "epoll_pwait",
            1,
            Box::new(move || raw(libc::SYS_epoll_pwait, [epoll, event(), 1, ms as usize, 0, 8])),
        ),
        ("epoll_pwait2", 1, Box::new(move || raw(libc::SYS_epoll_pwait2, [epoll, event(), 1, time, 0, 8]))),
        (
            "ppoll with a constant",
            1,
            Box::new(move || {
                let mut fd = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
                raw(libc::SYS_ppoll, [&raw mut fd as usize, 1, time, 0, 8, 0])
            }),
        ),
        (
            "pselect with a constant",
            1,
            Box::new(move || {
                let mut set = [1u64; 1];
                raw(libc::SYS_pselect6, [1, set.as_mut_ptr() as usize, 0, 0, time, 0])
            }),
        ),
        (
            "semtimedop",
            0,
            Box::new(move || {
                let op = libc::sembuf { sem_num: 0, sem_op: -1, sem_flg: 0 };
                raw(libc::SYS_semtimedop, [semaphores as usize, &raw const op as usize, 1, time, 0, 0])
            }),
        ),
        (
            "sigtimedwait",
            i64::from(libc::SIGUSR2),
            Box::new(move || {
                let set = 1u64 << (libc::SIGUSR2 - 1);
                raw(libc::SYS_rt_sigtimedwait, [&raw const set as usize, 0, time, 8, 0, 0])
            }),
        ),
    ];
    let name: Vec<String> =
        address.sun_path[1..len as usize - 2].iter().map(|c| (*c as u8 as char).into()).collect();
    println!("semaphores {semaphores}");
    println!("address {}", name.concat());
    let accept = std::thread::spawn(move || {
        let result = raw(libc::SYS_accept4, [fd as usize, 0, 0, 0, 0, 0]);
        println!("{}accept: {result}", if result >= 0 { "" } else { "WRONG " });
    });
    let threads: Vec<_> = calls
        .into_iter()
        .map(|(name, returns, call)| {
            std::thread::spawn(move || {
                let result = call();
                println!("{}{name}: {result}", if result == returns { "" } else { "WRONG " });
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    println!("waits");
    threads.into_iter().chain([accept]).for_each(|thread| thread.join().expect("no panic"));
    remove_semaphores();
    println!("all");
}
