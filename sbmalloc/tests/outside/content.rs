//! A program that keeps memory of many kinds, knows what is in it, and looks again and again.

use crate::driver::Random;
use std::ptr;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// A mapping, and what each of its pages was filled from; 0 for zeros.
struct Area {
    at: *mut u8,
    seeds: Vec<u64>,
    protection: i32,
}

fn fill(page: *mut u8, seed: u64) {
    let mut random = Random(seed);
    for i in 0..PAGE / 8 {
        let word = if seed == 0 { 0 } else { random.below(u64::MAX) };
        // SAFETY: within the page, which is writable.
        unsafe { page.cast::<u64>().add(i).write(word) };
    }
}

fn check(page: *const u8, seed: u64) -> bool {
    let mut random = Random(seed);
    (0..PAGE / 8).all(|i| {
        let word = if seed == 0 { 0 } else { random.below(u64::MAX) };
        // SAFETY: within the page, which is readable.
        unsafe { page.cast::<u64>().add(i).read() == word }
    })
}

impl Area {
    fn map(pages: usize) -> Self {
        // SAFETY: new memory where there is room.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), pages * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self { at: at.cast(), seeds: vec![0; pages], protection: libc::PROT_READ | libc::PROT_WRITE }
    }

    fn protect(&mut self, protection: i32) {
        // SAFETY: our own mapping.
        assert_eq!(unsafe { libc::mprotect(self.at.cast(), self.seeds.len() * PAGE, protection) }, 0);
        self.protection = protection;
    }

    fn page(&self, i: usize) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.at.add(i * PAGE) }
    }

    fn verify(&mut self) {
        let protection = self.protection;
        if protection & libc::PROT_READ == 0 {
            self.protect(libc::PROT_READ);
        }
        for (i, &seed) in self.seeds.iter().enumerate() {
            assert!(check(self.page(i), seed), "page {i} of {}, protection {protection}", self.seeds.len());
        }
        if self.protection != protection {
            self.protect(protection);
        }
    }

    fn rewrite(&mut self, random: &mut Random) {
        let protection = self.protection;
        self.protect(libc::PROT_READ | libc::PROT_WRITE);
        let from = random.below(self.seeds.len() as u64) as usize;
        for i in from..(from + 40).min(self.seeds.len()) {
            self.seeds[i] = if random.below(4) == 0 { 0 } else { random.below(u64::MAX) | 1 };
            fill(self.page(i), self.seeds[i]);
        }
        self.protect(protection);
    }

    fn forget(&mut self, random: &mut Random) {
        let from = random.below(self.seeds.len() as u64) as usize;
        let count = (random.below(64) as usize + 1).min(self.seeds.len() - from);
        let at = self.page(from).cast();
        // SAFETY: our own mapping, whose content is given up.
        assert_eq!(unsafe { libc::madvise(at, count * PAGE, libc::MADV_DONTNEED) }, 0);
        self.seeds[from..from + count].fill(0);
    }

    fn resize(&mut self, random: &mut Random) {
        let pages = random.below(600) as usize + 1;
        // SAFETY: our own mapping, to which there are no other pointers.
        let at = unsafe {
            libc::mremap(self.at.cast(), self.seeds.len() * PAGE, pages * PAGE, libc::MREMAP_MAYMOVE)
        };
        assert_ne!(at, libc::MAP_FAILED);
        self.at = at.cast();
        self.seeds.resize(pages, 0);
    }

    fn unmap(self) {
        // SAFETY: our own mapping, not used any more.
        assert_eq!(unsafe { libc::munmap(self.at.cast(), self.seeds.len() * PAGE) }, 0);
    }
}

/// The heap of brk, grown and shrunk behind the back of malloc, which is told by the pages it does not own.
fn grow(random: &mut Random) {
    // SAFETY: memory behind the present end of the heap, which is given back before anybody else asks.
    unsafe {
        let pages = random.below(100) as usize + 1;
        let at = libc::sbrk((pages * PAGE) as isize);
        if at as isize == -1 {
            return;
        }
        let start = (at as usize).next_multiple_of(PAGE) as *mut u8;
        let seeds: Vec<u64> = (0..pages - 1).map(|_| random.below(u64::MAX) | 1).collect();
        seeds.iter().enumerate().for_each(|(i, &s)| fill(start.add(i * PAGE), s));
        libc::usleep(1000);
        assert!(seeds.iter().enumerate().all(|(i, &s)| check(start.add(i * PAGE), s)), "brk");
        if libc::sbrk(0) as usize == at as usize + pages * PAGE {
            libc::sbrk(-((pages * PAGE) as isize));
        }
    }
}

fn deep(left: u32, seed: u64) {
    let mut page = [0u64; 1024];
    let mut random = Random(seed | 1);
    page.iter_mut().for_each(|w| *w = random.below(u64::MAX));
    if left > 0 {
        deep(left - 1, seed + 2);
    } else {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut random = Random(seed | 1);
    assert!(std::hint::black_box(&page).iter().all(|&w| w == random.below(u64::MAX)), "stack");
}

fn fork(areas: &mut [Area], random: &mut Random) {
    // SAFETY: the child has one thread, touches memory and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut random = Random(random.below(u64::MAX) | 1);
            for area in areas {
                area.verify();
                area.rewrite(&mut random);
                area.verify();
            }
        }));
        // SAFETY: ends the child.
        unsafe { libc::_exit(if result.is_ok() { 0 } else { 1 }) };
    }
    areas.iter_mut().for_each(|area| area.rewrite(random));
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "the child");
}

pub fn content() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut areas: Vec<Area> = (0..8).map(|i| Area::map(1 + i * 70)).collect();
    let mut huge = Area::map(2048);
    // SAFETY: our own mapping.
    unsafe { libc::madvise(huge.at.cast(), 2048 * PAGE, libc::MADV_HUGEPAGE) };
    for i in 0..2048 {
        huge.seeds[i] = i as u64 + 1;
        fill(huge.page(i), i as u64 + 1);
    }
    println!("ready");
    let begun = Instant::now();
    let mut rounds = 0;
    while !crate::programs::is_enough(begun) {
        let i = random.below(areas.len() as u64) as usize;
        match random.below(12) {
            0 => {
                let pages = random.below(600) as usize + 1;
                std::mem::replace(&mut areas[i], Area::map(pages)).unmap();
            }
            1 => areas[i].resize(&mut random),
            2 => areas[i].forget(&mut random),
            3 => areas[i].protect(libc::PROT_NONE),
            4 => areas[i].protect(libc::PROT_READ),
            5 => areas[i].protect(libc::PROT_READ | libc::PROT_WRITE),
            6 => grow(&mut random),
            7 => {
                let seed = random.below(u64::MAX);
                std::thread::spawn(move || deep(20, seed)).join().expect("deep");
            }
            8 if rounds % 10 == 0 => fork(&mut areas, &mut random),
            9 => {
                huge.rewrite(&mut random);
                huge.verify();
            }
            _ => areas[i].rewrite(&mut random),
        }
        areas.iter_mut().for_each(Area::verify);
        rounds += 1;
    }
    println!("right {rounds}");
}
