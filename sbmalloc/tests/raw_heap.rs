//! The heap by address, as a `malloc` is made of it; the test itself runs on the system's.

use sbmalloc::{Account, Denied, PAGE, held_bytes, raw};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The account is the process's, so the tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

/// A block, its first and last byte written.
#[derive(Clone, Copy)]
struct Block(*mut u8, usize);

// SAFETY: a block belongs to whoever holds it.
unsafe impl Send for Block {}

impl Block {
    fn new(size: usize) -> Option<Self> {
        let at = raw::alloc(size, 8);
        // SAFETY: `size` bytes, if any.
        (!at.is_null()).then(|| unsafe {
            at.write(size as u8);
            at.add(size - 1).write(size as u8);
            Self(at, size)
        })
    }

    fn free(self) {
        // SAFETY: allocated above, freed once.
        unsafe {
            assert!(
                self.0.read() == self.1 as u8 && self.0.add(self.1 - 1).read() == self.1 as u8,
                "damaged"
            );
            raw::free(self.0);
        }
    }
}

/// Bytes held once everything free is given back. Threads that have just ended give up their heaps a moment
/// after they were joined, so it asks again.
fn settled() -> usize {
    for _ in 0..6_000 {
        raw::trim();
        if held_bytes() < 4 << 20 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    held_bytes()
}

#[test]
fn blocks_are_known_by_their_address() {
    let _turn = turn();
    let local = 5u64;
    assert!(!raw::owns(std::ptr::from_ref(&local).cast()) && !raw::owns(std::ptr::null()));
    let boxed = Box::new(5u64);
    assert!(!raw::owns(std::ptr::from_ref(&*boxed).cast()));
    // SAFETY: null is allowed in all of these.
    unsafe {
        raw::free(std::ptr::null_mut());
        assert_eq!(raw::usable_size(std::ptr::null()), 0);
        let at = raw::realloc(std::ptr::null_mut(), 10, 8);
        assert!(raw::owns(at));
        raw::free(at);
    }
    for align in [1usize, 8, 16, 64, 4096, 32 << 10, 2 << 20] {
        for size in [0, 1, 16, 1000, 70_000, 3 << 20, (8 << 20) - 1, 8 << 20, 20 << 20] {
            // SAFETY: blocks are used within what is said to be usable, and freed once.
            unsafe {
                let mut at = raw::alloc_zeroed(size, align);
                assert!(!at.is_null() && (at as usize).is_multiple_of(align) && raw::owns(at));
                assert!(std::slice::from_raw_parts(at, size).iter().all(|&b| b == 0));
                let usable = raw::usable_size(at);
                assert!(usable >= size, "{usable} of {size}");
                at.write_bytes(0x5a, usable);
                for to in [size * 2 + 1, size / 2 + 1, size + (9 << 20), size.max(1)] {
                    let kept = raw::usable_size(at).min(to).min(size / 2 + 1);
                    at = raw::realloc(at, to, align);
                    assert!(!at.is_null() && (at as usize).is_multiple_of(align) && raw::owns(at));
                    assert!(std::slice::from_raw_parts(at, kept).iter().all(|&b| b == 0x5a));
                    assert!(raw::usable_size(at) >= to);
                }
                raw::free(at);
            }
        }
    }
}

#[test]
fn freed_memory_is_given_back() {
    let _turn = turn();
    let before = settled();
    let (to, from) = std::sync::mpsc::channel::<Block>();
    std::thread::scope(|s| {
        // Freed by another thread, while their own goes on and after it has ended.
        s.spawn(move || {
            (0..100_000).for_each(|i| to.send(Block::new(1 + i % 2_000).expect("memory")).expect("other"))
        });
        let mut held = 0;
        let late: Vec<Block> = from
            .iter()
            .enumerate()
            .filter_map(|(i, b)| {
                (i % 2 == 0).then_some(b).or_else(|| {
                    held = held.max(held_bytes());
                    b.free();
                    None
                })
            })
            .collect();
        assert!(held > before + (10 << 20));
        late.into_iter().for_each(Block::free);
    });
    let own: Vec<Block> = (0..100_000).map(|i| Block::new(1 + i % 2_000).expect("memory")).collect();
    let most = held_bytes();
    own.into_iter().for_each(Block::free);
    assert!(most > before + (90 << 20), "{most}, {before} before");
    let left = settled();
    assert!(left < before + (8 << 20), "{left} left of {most}, {before} before");
}

/// Grants what is left of a limit, when there is one.
struct Limit {
    limited: AtomicBool,
    left: AtomicUsize,
    /// The most that was asked for at once.
    most: AtomicUsize,
}

// SAFETY: it counts.
unsafe impl Account for Limit {
    fn charge(&self, bytes: usize) -> Result<(), Denied> {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        self.most.fetch_max(bytes, Ordering::Relaxed);
        if !self.limited.load(Ordering::Relaxed) {
            return Ok(());
        }
        let took =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        took.map(drop).map_err(|_| Denied { bytes })
    }
    fn uncharge(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[test]
fn a_refused_charge_is_null_and_what_is_freed_can_be_had_again() {
    let _turn = turn();
    static LIMIT: Limit =
        Limit { limited: AtomicBool::new(false), left: AtomicUsize::new(0), most: AtomicUsize::new(0) };
    sbmalloc::set_account(&LIMIT).expect("first");
    for size in [24, 500, 5_000, 50_000, 500_000] {
        let before = settled();
        LIMIT.left.store(24 << 20, Ordering::Relaxed);
        LIMIT.limited.store(true, Ordering::Relaxed);
        for round in 0..3 {
            let live: Vec<Block> = std::iter::from_fn(|| Block::new(size)).collect();
            let bytes = live.len() * size;
            assert!(bytes > 16 << 20 && bytes < 32 << 20, "round {round}: {bytes} bytes in blocks of {size}");
            assert!(held_bytes() <= before + (24 << 20));
            // Other threads are refused too, and recover.
            std::thread::scope(|s| {
                s.spawn(|| {
                    assert!(Block::new(size).is_none_or(|b| {
                        b.free();
                        true
                    }))
                })
                .join()
            })
            .expect("thread");
            live.into_iter().for_each(Block::free);
        }
        LIMIT.limited.store(false, Ordering::Relaxed);
    }

    // What there are no addresses for is not asked for: others would be evicted for nothing.
    const TIB: usize = 1 << 40;
    let most = LIMIT.most.load(Ordering::Relaxed);
    for size in [64 * TIB, 200 * TIB, isize::MAX as usize & !(PAGE - 1)] {
        assert!(raw::alloc(size, 8).is_null());
    }
    assert_eq!(LIMIT.most.load(Ordering::Relaxed), most);
    // Nobody has written to it, so it takes addresses only.
    let sizes = (1..).map(|n: usize| n << 30);
    let all: Vec<_> = sizes.map(|size| raw::alloc(size, 8)).take_while(|at| !at.is_null()).collect();
    assert_eq!(LIMIT.most.load(Ordering::Relaxed), all.len() << 30, "the one too large was asked for");
    // SAFETY: allocated above, freed once.
    all.into_iter().for_each(|at| unsafe { raw::free(at) });
}

#[test]
fn a_child_of_a_process_with_threads_may_allocate() {
    let _turn = turn();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for t in 1..=3usize {
            let stop = &stop;
            s.spawn(move || {
                let mut live = vec![None; 500];
                for i in (t..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let size = if i % 97 == 0 { 9 << 20 } else { 1 + i * 31 % 90_000 };
                    if let Some(old) = live[i * 7 % 500].replace(Block::new(size).expect("memory")) {
                        old.free();
                    }
                }
                live.into_iter().flatten().for_each(Block::free);
            });
        }
        let failed = (0..30).find(|_| {
            // SAFETY: the child only allocates from this heap, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends a child that hangs.
                unsafe { libc::alarm(600) };
                let right = (1..3_000).all(|i| {
                    let size = if i % 50 == 0 { 9 << 20 } else { i * 31 % 90_000 + 1 };
                    Block::new(size).is_some_and(|b| {
                        b.free();
                        true
                    })
                });
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!right)) };
            }
            let mut status = -1;
            // SAFETY: waits for the child made above.
            unsafe { libc::waitpid(child, &mut status, 0) != child || status != 0 }
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the child hung or was refused");
    });
}
