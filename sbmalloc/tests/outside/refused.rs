//! Programs that cannot be moved, or not now, and such as only look like it.

use std::io::Read;
use std::ptr;

pub fn run(name: &str) {
    let words: Vec<u64> = (0..1 << 20).collect();
    let possible = match name {
        // SAFETY: memory of our own.
        "locked" => unsafe { libc::mlockall(libc::MCL_CURRENT) == 0 },
        "locked a little" => locked(),
        "aio" => aio(),
        "ring idle" => Ring::make().is_some_and(|ring| ring.nop()),
        "ring busy" => Ring::make().is_some_and(|ring| ring.read_of_nothing()),
        "ring pinned" => Ring::make().is_some_and(|ring| ring.register()),
        "userfaultfd" => userfaultfd(),
        "seccomp" => seccomp(),
        "vfork" => true,
        other => panic!("no program {other:?}"),
    };
    if !possible {
        println!("not here: {}", std::io::Error::last_os_error());
        return;
    }
    println!("here");
    if name == "vfork" {
        vfork();
    }
    // Until the driver closes our standard input.
    std::io::stdin().read_to_end(&mut vec![]).expect("input");
    assert!(words.iter().enumerate().all(|(i, &w)| w == i as u64));
    println!("right");
}

fn locked() -> bool {
    let page = Box::leak(vec![1u8; 8192].into_boxed_slice());
    // SAFETY: memory of our own.
    unsafe { libc::mlock(page.as_ptr().cast(), 4096) == 0 }
}

fn aio() -> bool {
    let mut context = 0u64;
    // SAFETY: the kernel writes one number.
    unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) == 0 }
}

fn userfaultfd() -> bool {
    const USER_MODE_ONLY: i32 = 1;
    // SAFETY: makes a descriptor.
    unsafe { libc::syscall(libc::SYS_userfaultfd, USER_MODE_ONLY) >= 0 }
}

fn seccomp() -> bool {
    let allow = [libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW }];
    let program = libc::sock_fprog { len: 1, filter: allow.as_ptr().cast_mut() };
    // SAFETY: a filter that lets everything pass.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) == 0
    }
}

extern "C" fn child(_: *mut libc::c_void) -> i32 {
    let mut byte = 0_u8;
    // SAFETY: the parent's memory is used meanwhile, its stack is not.
    unsafe {
        // Until the driver says so.
        libc::read(0, (&raw mut byte).cast(), 1);
        libc::_exit(0)
    }
}

/// As vfork: the parent waits until the child has ended.
fn vfork() {
    let stack = Box::leak(vec![0u128; 4096].into_boxed_slice());
    // SAFETY: the child has a stack of its own.
    unsafe {
        let top = stack.as_mut_ptr_range().end.cast();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(child, top, flags, ptr::null_mut());
        assert!(pid > 0);
        assert_eq!(libc::waitpid(pid, ptr::null_mut(), 0), pid);
    }
}

/// An io_uring, as far as is needed to put one request into it.
struct Ring {
    fd: i32,
    /// The queue's words, and the requests.
    queue: *mut u8,
    requests: *mut u8,
    tail: usize,
    array: usize,
}

impl Ring {
    fn make() -> Option<Self> {
        let mut parameters = [0u32; 30];
        // SAFETY: the kernel fills `struct io_uring_params`; the mappings are the ring's.
        unsafe {
            let fd = libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) as i32;
            if fd < 0 {
                return None;
            }
            let (rw, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
            let queue = libc::mmap(ptr::null_mut(), 4096, rw, shared, fd, 0);
            let requests = libc::mmap(ptr::null_mut(), 4096, rw, shared, fd, 0x1000_0000);
            assert!(queue != libc::MAP_FAILED && requests != libc::MAP_FAILED);
            let (tail, array) = (parameters[11] as usize, parameters[16] as usize);
            Some(Self { fd, queue: queue.cast(), requests: requests.cast(), tail, array })
        }
    }

    fn submit(&self, operation: u8, fd: i32, at: *mut u8, len: u32) -> bool {
        // SAFETY: the first request and place of the queue.
        unsafe {
            self.requests.write_bytes(0, 64);
            self.requests.write(operation);
            self.requests.add(4).cast::<i32>().write(fd);
            self.requests.add(16).cast::<u64>().write(at as u64);
            self.requests.add(24).cast::<u32>().write(len);
            self.queue.add(self.array).cast::<u32>().write(0);
            self.queue.add(self.tail).cast::<u32>().write_volatile(1);
            libc::syscall(libc::SYS_io_uring_enter, self.fd, 1, 0, 0, 0, 0) == 1
        }
    }

    fn nop(&self) -> bool {
        self.submit(0, -1, ptr::null_mut(), 0)
    }

    fn read_of_nothing(&self) -> bool {
        let mut fds = [0; 2];
        // SAFETY: the kernel fills in two numbers.
        assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
        self.submit(22, fds[0], Box::leak(Box::new([0u8; 64])).as_mut_ptr(), 64)
    }

    fn register(&self) -> bool {
        let buffer = Box::leak(vec![1u8; 1 << 20].into_boxed_slice());
        let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: one buffer that lives as long as the process.
        unsafe { libc::syscall(libc::SYS_io_uring_register, self.fd, 0, &raw const part, 1) == 0 }
    }
}
