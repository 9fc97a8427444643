//! A disk that fills up, and one that forgets; and a process that has no descriptor free.

use crate::driver::{PATIENCE, Subject, list};
use sbmalloc::other::{self, Image, OtherError};
use sbmalloc::{Errno, Store, StoreKind};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that holds so much, and of which a byte may be turned round when it is read.
struct Faulty {
    file: std::fs::File,
    room: AtomicU64,
    turned: AtomicU64,
}

impl Faulty {
    fn make(room: u64, turned: u64) -> &'static Self {
        let path =
            std::env::temp_dir().join(format!("sbmalloc-faulty-{}-{room}-{turned}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path).expect("file");
        std::fs::remove_file(path).expect("file");
        Box::leak(Box::new(Self { file, room: AtomicU64::new(room), turned: AtomicU64::new(turned) }))
    }
}

// SAFETY: what it does wrong it reports, or the checksums find it, which is what the tests are about.
unsafe impl Store for Faulty {
    unsafe fn write_at(&self, offset: u64, from: *const u8, len: usize) -> Result<usize, Errno> {
        if offset + len as u64 > self.room.load(Ordering::Relaxed) {
            return Err(Errno(libc::ENOSPC));
        }
        // SAFETY: this method's contract.
        let bytes = unsafe { std::slice::from_raw_parts(from, len) };
        self.file.write_at(bytes, offset).map_err(|_| Errno(libc::EIO))
    }

    unsafe fn read_at(&self, offset: u64, to: *mut u8, len: usize) -> Result<usize, Errno> {
        // SAFETY: this method's contract.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to, len) };
        let n = self.file.read_at(bytes, offset).map_err(|_| Errno(libc::EIO))?;
        if let Some(i) = self.turned.load(Ordering::Relaxed).checked_sub(offset)
            && i < n as u64
        {
            bytes[i as usize] ^= 0x10;
        }
        Ok(n)
    }

    fn punch(&self, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno(libc::EOPNOTSUPP))
    }

    fn ensure_len(&self, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn settle(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn drop_cache(&self) {}

    fn mapping_fd(&self, _: u64) -> i32 {
        -1
    }
}

const NOWHERE: u64 = u64::MAX;

#[test]
fn a_full_disk_harms_nobody() {
    let mut subject = Subject::start("sum");
    subject.wait_for("ready");
    let pid = subject.pid();
    std::thread::spawn(move || {
        for room in [0, 1 << 20, (20 << 20) - 4096, 63 << 20, (64 << 20) + 4096] {
            let faulty = Faulty::make(room, NOWHERE);
            let mut image = Image::with(StoreKind::Custom(faulty)).expect("image");
            let mut held = other::hold(pid, &mut || list(pid), PATIENCE).expect("held");
            let mut freed = 0;
            let error = held.evict(&mut image, &mut |f| freed = f).expect_err("full");
            let OtherError::NoSpace { dir } = &error else { panic!("{error}") };
            assert!(error.to_string().contains(&**dir) && !dir.is_empty());
            assert!(image.bytes() <= room && freed >= image.bytes(), "{freed} {image:?} {room}");
            assert!(image.is_empty() == (freed == 0));
            held.restore(&mut image, &mut |_| {}).expect("back");
            held.release().expect("released");
            // And there is room again.
            faulty.room.store(NOWHERE, Ordering::Relaxed);
            let mut held = other::hold(pid, &mut || list(pid), PATIENCE).expect("held");
            assert!(held.evict(&mut image, &mut |_| {}).expect("out").freed >= 64 << 20);
            held.restore(&mut image, &mut |_| {}).expect("back");
        }
    })
    .join()
    .expect("tracer");
    assert!(subject.succeed().contains("right"));
}

#[test]
fn a_damaged_byte_is_found() {
    for turned in [0, 4095, (30 << 20) + 1234, (64 << 20) - 1] {
        let mut subject = Subject::start("sum");
        subject.wait_for("ready");
        let pid = subject.pid();
        std::thread::spawn(move || {
            let faulty = Faulty::make(NOWHERE, turned);
            let mut image = Image::with(StoreKind::Custom(faulty)).expect("image");
            let mut held = other::hold(pid, &mut || list(pid), PATIENCE).expect("held");
            held.evict(&mut image, &mut |_| {}).expect("out");
            let error = held.restore(&mut image, &mut |_| {}).expect_err("damaged");
            let at = turned & !4095;
            assert!(matches!(error, OtherError::Corrupt { offset, .. } if offset == at), "{error}");
            // It cannot go on.
            assert_eq!(held.release(), Err(OtherError::StillOut));
        })
        .join()
        .expect("tracer");
        let (status, _) = subject.output();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }
}

/// Of what was dropped only zeros are not there, and those need no scratch: the rank may stay.
#[test]
fn zeros_that_left_a_full_disk_behind_keep_nobody() {
    let mut subject = Subject::start("zeros");
    subject.wait_for("ready");
    let pid = subject.pid();
    std::thread::spawn(move || {
        let faulty = Faulty::make(0, NOWHERE - 1);
        let mut image = Image::with(StoreKind::Custom(faulty)).expect("image");
        let mut held = other::hold(pid, &mut || list(pid), PATIENCE).expect("held");
        let mut freed = 0;
        let error = held.evict(&mut image, &mut |f| freed = f).expect_err("full");
        assert!(matches!(error, OtherError::NoSpace { .. }), "{error}");
        assert!(freed >= 64 << 20 && image.is_empty(), "{freed} {image:?}");
        held.release().expect("nothing is out");
    })
    .join()
    .expect("tracer");
    assert!(subject.succeed().contains("right"));
}

/// As long as this is there this process finds no descriptor free.
struct Scarce(libc::rlimit);

impl Scarce {
    fn begin() -> Self {
        let next = std::fs::File::open("/dev/null").expect("one is free");
        let next = std::os::fd::AsRawFd::as_raw_fd(&next) as libc::rlim_t;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel fills in two numbers.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
        Self::set(libc::rlimit { rlim_cur: next, ..limit });
        assert!(std::fs::File::open("/dev/null").is_err(), "none is free");
        Self(limit)
    }

    fn set(limit: libc::rlimit) {
        // SAFETY: reads two numbers.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        Self::set(self.0);
    }
}

/// Moves a program of its own while it has no descriptor free, in a process by itself, as that is so of all
/// of one.
pub fn scarce() {
    let mut subject = Subject::start("sum");
    subject.wait_for("ready");
    let pid = subject.pid();
    std::thread::spawn(move || {
        let mut held = other::hold(pid, &mut || list(pid), PATIENCE).expect("held");
        let mut image = Image::new().expect("scratch");
        let scarce = Scarce::begin();
        assert_eq!(held.evict(&mut image, &mut |_| {}), Err(OtherError::Busy));
        assert!(image.is_empty() && held.watch());
        drop(scarce);
        assert!(held.evict(&mut image, &mut |_| {}).expect("out").freed >= 64 << 20);
        let scarce = Scarce::begin();
        assert_eq!(held.restore(&mut image, &mut |_| {}), Err(OtherError::Busy));
        assert!(!image.is_empty() && held.watch());
        drop(scarce);
        held.restore(&mut image, &mut |_| {}).expect("back");
        held.release().expect("released");
    })
    .join()
    .expect("tracer");
    assert!(subject.succeed().contains("right"));
    println!("right");
}

#[test]
fn who_finds_no_descriptor_free_moves_nothing_and_loses_nothing() {
    assert!(Subject::start("scarce").succeed().contains("right"));
}
