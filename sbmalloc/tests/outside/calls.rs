//! A program that sits in every kind of call that a bare stop would break off: a thread for each kind, and
//! feeders that end what has no timeout. None may return `EINTR` but to a handler.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

static STOP: AtomicBool = AtomicBool::new(false);
static BROKEN: AtomicUsize = AtomicUsize::new(0);
/// Times the handler ran.
static HANDLED: AtomicU32 = AtomicU32::new(0);

const WAIT: i64 = 40_000_000;

fn timespec() -> libc::timespec {
    libc::timespec { tv_sec: 0, tv_nsec: WAIT }
}

fn timeval() -> libc::timeval {
    libc::timeval { tv_sec: 0, tv_usec: WAIT / 1000 }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

extern "C" fn handler(_: i32) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// A thread that makes a call again and again; `call` returns the call's result.
fn kind(name: &'static str, call: impl Fn() -> i64 + Send + 'static) {
    std::thread::spawn(move || {
        // SAFETY: blocks the signals that the others are sent.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigfillset(&mut set);
            libc::pthread_sigmask(libc::SIG_SETMASK, &set, ptr::null_mut());
        }
        let mut times = 0;
        while !STOP.load(Ordering::SeqCst) {
            let result = call();
            times += 1;
            if result == -1 && errno() == libc::EINTR || result == -i64::from(libc::EINTR) {
                BROKEN.fetch_add(1, Ordering::SeqCst);
                println!("{name} was broken off, call {times}");
            } else if STOP.load(Ordering::SeqCst) {
                // What it waited for may be gone.
            } else if result == -1 && !matches!(errno(), libc::EAGAIN | libc::ETIMEDOUT | libc::EINPROGRESS) {
                println!("{name} failed: {}", std::io::Error::last_os_error());
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    });
}

/// A thread that does something every now and then.
fn feeder(f: impl Fn() + Send + 'static) {
    kind("nanosleep of a feeder", move || {
        // SAFETY: reads one timespec.
        let result = unsafe { libc::nanosleep(&timespec(), ptr::null_mut()) };
        f();
        i64::from(result)
    });
}

fn pipe() -> [i32; 2] {
    let mut fds = [0; 2];
    // SAFETY: the kernel fills in two numbers.
    assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
    fds
}

fn sockets(kind: i32) -> [i32; 2] {
    let mut fds = [0; 2];
    // SAFETY: the kernel fills in two numbers.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }, 0);
    fds
}

fn read(fd: i32) -> i64 {
    let mut bytes = [0u8; 4096];
    // SAFETY: the buffer has this length.
    unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) as i64 }
}

fn write(fd: i32, len: usize) -> i64 {
    let bytes = [1u8; 4096];
    // SAFETY: the buffer is at least so long.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), len) as i64 }
}

/// Fills what is behind a descriptor to the brim.
fn fill(fd: i32) {
    // SAFETY: flags of our own descriptor.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        while write(fd, 4096) > 0 {}
        while write(fd, 1) > 0 {}
        libc::fcntl(fd, libc::F_SETFL, flags);
    }
}

fn set_timeout(fd: i32, option: i32) {
    let time = timeval();
    // SAFETY: the kernel reads one timeval.
    unsafe {
        let at = (&raw const time).cast();
        assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, option, at, size_of_val(&time) as u32), 0);
    }
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

fn connect(address: &libc::sockaddr_un, len: u32, timeout: bool) -> i64 {
    // SAFETY: an address of this length; the descriptor is closed again.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        if timeout {
            set_timeout(fd, libc::SO_SNDTIMEO);
        }
        let result = i64::from(libc::connect(fd, ptr::from_ref(address).cast(), len));
        let error = errno();
        libc::close(fd);
        *libc::__errno_location() = error;
        result
    }
}

fn waiting() {
    let never = pipe()[0];
    // SAFETY (all below): the structures handed over live as long as the call.
    kind("poll", move || {
        let mut fd = libc::pollfd { fd: never, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        i64::from(unsafe { libc::poll(&mut fd, 1, 40) })
    });
    kind("ppoll", move || {
        let mut fd = libc::pollfd { fd: never, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        i64::from(unsafe { libc::ppoll(&mut fd, 1, &timespec(), ptr::null()) })
    });
    kind("select", move || {
        // SAFETY: sets on the stack.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::FD_SET(never, &mut set);
            i64::from(libc::select(never + 1, &mut set, ptr::null_mut(), ptr::null_mut(), &mut timeval()))
        }
    });
    kind("pselect", move || {
        // SAFETY: sets on the stack.
        unsafe {
            let (mut set, null) = (std::mem::zeroed(), ptr::null_mut());
            libc::FD_SET(never, &mut set);
            i64::from(libc::pselect(never + 1, &mut set, null, null, &timespec(), ptr::null()))
        }
    });
    // SAFETY: makes a descriptor.
    let epoll = unsafe { libc::epoll_create1(0) };
    for (name, with_mask) in [("epoll_wait", false), ("epoll_pwait", true)] {
        kind(name, move || {
            // SAFETY: one event and a mask on the stack.
            unsafe {
                let (mut event, mut mask) = (std::mem::zeroed(), std::mem::zeroed());
                libc::sigfillset(&mut mask);
                match with_mask {
                    true => i64::from(libc::epoll_pwait(epoll, &mut event, 1, 40, &mask)),
                    false => i64::from(libc::epoll_wait(epoll, &mut event, 1, 40)),
                }
            }
        });
    }
    // SAFETY: a timespec on the stack.
    kind("nanosleep", || i64::from(unsafe { libc::nanosleep(&timespec(), ptr::null_mut()) }));
    kind("clock_nanosleep", || {
        // SAFETY: timespecs on the stack. Returns the error itself.
        -i64::from(unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &timespec(), ptr::null_mut()) })
    });
    kind("clock_nanosleep until", || {
        // SAFETY: as above.
        unsafe {
            let mut time = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
            time.tv_nsec += WAIT;
            if time.tv_nsec >= 1_000_000_000 {
                (time.tv_sec, time.tv_nsec) = (time.tv_sec + 1, time.tv_nsec - 1_000_000_000);
            }
            let flags = libc::TIMER_ABSTIME;
            -i64::from(libc::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, &time, ptr::null_mut()))
        }
    });
    let word = Arc::new(AtomicU32::new(0));
    let waker = word.clone();
    for timeout in [false, true] {
        let word = word.clone();
        kind(if timeout { "futex with a timeout" } else { "futex" }, move || {
            let (time, at) = (timespec(), word.as_ptr());
            let time = if timeout { &raw const time } else { ptr::null() };
            // SAFETY: the word lives as long as the threads.
            unsafe { libc::syscall(libc::SYS_futex, at, libc::FUTEX_WAIT, 0, time) }
        });
    }
    // SAFETY: as above.
    feeder(move || unsafe {
        libc::syscall(libc::SYS_futex, waker.as_ptr(), libc::FUTEX_WAKE, 100);
    });
}

fn signals() {
    // SAFETY: sets on the stack; all threads that are not to get the signals block them.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()), 0);
    }
    kind("sigtimedwait", || {
        // SAFETY: as above.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGUSR2);
            i64::from(libc::sigtimedwait(&set, ptr::null_mut(), &timespec()))
        }
    });
    for (name, signal, with_info) in
        [("sigwaitinfo", libc::SIGRTMIN() + 1, true), ("sigwait", libc::SIGRTMIN() + 2, false)]
    {
        kind(name, move || {
            // SAFETY: as above.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::sigaddset(&mut set, signal);
                match with_info {
                    true => i64::from(libc::sigwaitinfo(&set, ptr::null_mut())),
                    false => -i64::from(libc::sigwait(&set, &mut 0)),
                }
            }
        });
        // SAFETY: a signal to ourselves, blocked by all.
        feeder(move || unsafe {
            libc::kill(libc::getpid(), signal);
        });
    }
    // These end by a handler only: then, and only then, they return.
    for (name, suspend) in [("pause", false), ("sigsuspend", true)] {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: masks on the stack.
            unsafe {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&mut all);
                let mut rest = all;
                libc::sigdelset(&mut rest, libc::SIGUSR1);
                libc::pthread_sigmask(libc::SIG_SETMASK, if suspend { &all } else { &rest }, ptr::null_mut());
                tell.send(libc::gettid()).expect("told");
                let mut before = HANDLED.load(Ordering::SeqCst);
                while !STOP.load(Ordering::SeqCst) {
                    let result = if suspend { libc::sigsuspend(&rest) } else { libc::pause() };
                    assert_eq!((result, errno()), (-1, libc::EINTR));
                    let now = HANDLED.load(Ordering::SeqCst);
                    if now == before {
                        BROKEN.fetch_add(1, Ordering::SeqCst);
                        println!("{name} returned without a signal");
                    }
                    before = now;
                }
            }
        });
        let thread = told.recv().expect("told");
        // By its number: it may have ended when all of them do.
        // SAFETY: a signal to ourselves.
        feeder(move || unsafe {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1);
        });
    }
}

fn descriptors() {
    let [from, to] = pipe();
    kind("read from a pipe", move || read(from));
    feeder(move || assert!(write(to, 7) == 7));
    let [from, to] = pipe();
    fill(to);
    kind("write to a full pipe", move || write(to, 512));
    feeder(move || assert!(read(from) > 0));
    let [from, to] = pipe();
    let [_rest, sink] = pipe();
    fill(sink);
    feeder(move || assert!(write(to, 7) == 7));
    // SAFETY: descriptors of our own.
    kind("splice to a full pipe", move || unsafe {
        let flags = 0;
        let _ = flags;
        libc::splice(from, ptr::null_mut(), sink, ptr::null_mut(), 64, 0) as i64
    });
    feeder(move || assert!(read(_rest) > 0));
    let ([from, to], [back, copy]) = (pipe(), pipe());
    // SAFETY: as above.
    kind("tee", move || unsafe {
        let n = libc::tee(from, copy, 64, 0) as i64;
        if n > 0 {
            read(from);
            read(back);
        }
        n
    });
    feeder(move || assert!(write(to, 7) == 7));
    // SAFETY: makes descriptors.
    unsafe {
        let event = libc::eventfd(0, 0);
        kind("read of an eventfd", move || read(event));
        feeder(move || {
            libc::write(event, 1u64.to_ne_bytes().as_ptr().cast(), 8);
        });
        let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
        let time = libc::itimerspec { it_interval: timespec(), it_value: timespec() };
        libc::timerfd_settime(timer, 0, &time, ptr::null_mut());
        kind("read of a timerfd", move || read(timer));
        let mut set = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGRTMIN() + 3);
        let signals = libc::signalfd(-1, &set, 0);
        kind("read of a signalfd", move || read(signals));
        feeder(move || {
            libc::kill(libc::getpid(), libc::SIGRTMIN() + 3);
        });
        let watch = libc::inotify_init1(0);
        // Without a name: who is killed leaves nothing behind.
        let name = std::env::temp_dir().join(format!("sbmalloc-outside-{}", libc::getpid()));
        let file = std::fs::File::create(&name).expect("file");
        std::fs::remove_file(name).expect("file");
        let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("path");
        assert!(libc::inotify_add_watch(watch, path.as_ptr(), libc::IN_MODIFY) >= 0);
        kind("read of an inotify", move || read(watch));
        feeder(move || file.write_all_at(b"x", 0).expect("file"));
    }
}

fn networks() {
    let [a, b] = sockets(libc::SOCK_STREAM);
    kind("recv", move || {
        let mut bytes = [0u8; 64];
        // SAFETY: the buffer has this length.
        unsafe { libc::recv(a, bytes.as_mut_ptr().cast(), 64, 0) as i64 }
    });
    feeder(move || assert!(write(b, 7) == 7));
    let [a, _b] = sockets(libc::SOCK_STREAM);
    set_timeout(a, libc::SO_RCVTIMEO);
    kind("recv with a timeout", move || {
        let mut bytes = [0u8; 64];
        // SAFETY: the buffer has this length.
        unsafe { libc::recv(a, bytes.as_mut_ptr().cast(), 64, 0) as i64 }
    });
    let [a, _b] = sockets(libc::SOCK_DGRAM);
    set_timeout(a, libc::SO_RCVTIMEO);
    kind("recvmsg with a timeout", move || {
        // SAFETY: an empty message.
        unsafe { libc::recvmsg(a, &mut std::mem::zeroed(), 0) as i64 }
    });
    let [a, b] = sockets(libc::SOCK_DGRAM);
    kind("recvmmsg", move || {
        // SAFETY: an empty message.
        unsafe { i64::from(libc::recvmmsg(a, &mut std::mem::zeroed(), 1, 0, &mut timespec())) }
    });
    feeder(move || assert!(write(b, 7) == 7));
    let [a, _b] = sockets(libc::SOCK_STREAM);
    set_timeout(a, libc::SO_SNDTIMEO);
    fill(a);
    kind("send with a timeout", move || {
        // SAFETY: the buffer has this length.
        unsafe { libc::send(a, [1u8; 64].as_ptr().cast(), 64, 0) as i64 }
    });
    let [a, b] = sockets(libc::SOCK_STREAM);
    fill(a);
    kind("send", move || {
        // SAFETY: the buffer has this length.
        unsafe { libc::send(a, [1u8; 64].as_ptr().cast(), 64, 0) as i64 }
    });
    feeder(move || assert!(read(b) > 0));
    let accept = |fd| {
        // SAFETY: no address wanted; the descriptor is closed again.
        unsafe {
            let result = libc::accept(fd, ptr::null_mut(), ptr::null_mut());
            if result >= 0 {
                libc::close(result);
            }
            i64::from(result)
        }
    };
    let (fd, address, len) = listener(4);
    kind("accept", move || accept(fd));
    feeder(move || assert!(connect(&address, len, false) == 0));
    let (fd, ..) = listener(4);
    set_timeout(fd, libc::SO_RCVTIMEO);
    kind("accept with a timeout", move || accept(fd));
    // One connection fits, and a second.
    let (_fd, address, len) = listener(0);
    std::thread::spawn(move || {
        // SAFETY: makes a descriptor, kept.
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            libc::connect(fd, (&raw const address).cast(), len);
        }
        kind("connect with a timeout", move || connect(&address, len, true));
    });
}

fn queues() {
    // SAFETY: structures on the stack; what is made is removed at once, or with the process.
    unsafe {
        let semaphores = libc::semget(libc::IPC_PRIVATE, 2, 0o600);
        assert!(semaphores >= 0);
        for timeout in [false, true] {
            kind(if timeout { "semtimedop" } else { "semop" }, move || {
                let mut op = libc::sembuf { sem_num: u16::from(timeout), sem_op: -1, sem_flg: 0 };
                let time = timespec();
                match timeout {
                    true => libc::syscall(libc::SYS_semtimedop, semaphores, &raw mut op, 1, &raw const time),
                    false => i64::from(libc::semop(semaphores, &mut op, 1)),
                }
            });
        }
        feeder(move || {
            let mut op = libc::sembuf { sem_num: 0, sem_op: 1, sem_flg: 0 };
            libc::semop(semaphores, &mut op, 1);
            if STOP.load(Ordering::SeqCst) {
                libc::semctl(semaphores, 0, libc::IPC_RMID);
            }
        });
        let (empty, full) = (libc::msgget(libc::IPC_PRIVATE, 0o600), libc::msgget(libc::IPC_PRIVATE, 0o600));
        let send = |queue, flags| {
            let message = [1i64; 128];
            i64::from(libc::msgsnd(queue, message.as_ptr().cast(), 512, flags))
        };
        let receive = |queue, flags| {
            let mut message = [0i64; 128];
            libc::msgrcv(queue, message.as_mut_ptr().cast(), 1000, 0, flags) as i64
        };
        while send(full, libc::IPC_NOWAIT) == 0 {}
        kind("msgrcv", move || receive(empty, 0));
        kind("msgsnd", move || send(full, 0));
        feeder(move || {
            send(empty, 0);
            receive(full, 0);
            if STOP.load(Ordering::SeqCst) {
                libc::msgctl(empty, libc::IPC_RMID, ptr::null_mut());
                libc::msgctl(full, libc::IPC_RMID, ptr::null_mut());
            }
        });
        let name = std::ffi::CString::new(format!("/sbmalloc-{}", libc::getpid())).expect("name");
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        (attributes.mq_maxmsg, attributes.mq_msgsize) = (2, 64);
        let flags = libc::O_CREAT | libc::O_RDWR;
        let queue = libc::mq_open(name.as_ptr(), flags, 0o600, &raw mut attributes);
        if queue < 0 {
            println!("no message queues here");
            return;
        }
        libc::mq_unlink(name.as_ptr());
        kind("mq_receive", move || libc::mq_receive(queue, [0; 64].as_mut_ptr(), 64, ptr::null_mut()) as i64);
        kind("mq_timedreceive", move || {
            let mut until = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_REALTIME, &mut until);
            until.tv_sec += 1;
            libc::mq_timedreceive(queue, [0; 64].as_mut_ptr(), 64, ptr::null_mut(), &until) as i64
        });
        feeder(move || {
            libc::mq_send(queue, [0; 8].as_ptr(), 8, 0);
        });
    }
}

fn processes() {
    for (name, by_id) in [("wait4", false), ("waitid", true)] {
        kind(name, move || {
            // SAFETY: the child only sleeps and ends.
            unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::nanosleep(&timespec(), ptr::null_mut());
                    libc::_exit(0);
                }
                match by_id {
                    true => i64::from(libc::waitid(
                        libc::P_PID,
                        pid as u32,
                        &mut std::mem::zeroed(),
                        libc::WEXITED,
                    )),
                    false => i64::from(libc::waitpid(pid, ptr::null_mut(), 0)),
                }
            }
        });
    }
    // SAFETY: files of our own.
    unsafe {
        let path =
            std::ffi::CString::new(format!("/tmp/sbmalloc-outside-lock-{}", libc::getpid())).expect("path");
        let flags = libc::O_CREAT | libc::O_RDWR;
        let [a, b] = [0; 2].map(|_| libc::open(path.as_ptr(), flags, 0o600));
        libc::unlink(path.as_ptr());
        // Two who take turns, so that one of them always waits.
        for fd in [a, b] {
            kind("flock", move || {
                let result = libc::flock(fd, libc::LOCK_EX);
                std::thread::sleep(Duration::from_millis(20));
                libc::flock(fd, libc::LOCK_UN);
                i64::from(result)
            });
            kind("fcntl, a lock", move || {
                let mut lock: libc::flock = std::mem::zeroed();
                lock.l_type = libc::F_WRLCK as i16;
                let result = libc::fcntl(fd, libc::F_OFD_SETLKW, &raw mut lock);
                std::thread::sleep(Duration::from_millis(20));
                lock.l_type = libc::F_UNLCK as i16;
                libc::fcntl(fd, libc::F_OFD_SETLK, &raw mut lock);
                i64::from(result)
            });
        }
    }
}

pub fn calls() {
    // Queues and semaphores outlive who made them, if that is killed; in a place of their own, which only
    // root can have, they do not.
    // SAFETY: a number.
    unsafe { libc::unshare(libc::CLONE_NEWIPC) };
    waiting();
    signals();
    descriptors();
    networks();
    queues();
    processes();
    println!("ready");
    // Until the driver closes our standard input.
    while read(0) != 0 {}
    STOP.store(true, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(200));
    println!("{} broken off", BROKEN.load(Ordering::SeqCst));
}
