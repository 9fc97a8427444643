//! A disk that fills up, and one that forgets.

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
