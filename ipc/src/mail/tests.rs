use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rustix::io::pwrite;

use super::*;

fn spill() -> OwnedFd {
    memfd_create("spill", MemfdFlags::CLOEXEC).unwrap()
}

/// No room in RAM: all go to scratch, to this file.
fn to_scratch(file: &OwnedFd) -> (Segment, Mail) {
    let file = file.try_clone().unwrap();
    (Segment::create(2, 1 << 30, 0, 2).unwrap(), Mail::create(file).unwrap())
}

fn data(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn the_spill_file_begins_anew_once_nothing_lies_there() {
    let (segment, mail) = to_scratch(&spill());
    let put = |bytes: &[u8]| mail.put(&segment, &[bytes]).unwrap();
    let (one, two) = (put(&[1; 5000]), put(&[2; 5000]));
    assert_eq!((one.kind, one.offset, two.offset), (Kind::Scratch, 0, 2 * PAGE));
    mail.release(&segment, &one);
    let three = put(&[3; 1]);
    assert_eq!(three.offset, 4 * PAGE, "not where one lies still");
    mail.release(&segment, &three);
    mail.release(&segment, &two);
    let again = put(&[4; 5000]);
    let mut read = [0; 5000];
    mail.get(&segment, &again, 0, &mut read).unwrap();
    assert_eq!((again.offset, read), (0, [4; 5000]));
}

#[test]
fn what_is_told_twice_or_too_long_takes_nobody_s_place() {
    let spill = Spill(AtomicU64::new(0));
    spill.end();
    let most = 1 << (Spill::PAGE_BITS + 12);
    assert_eq!((spill.begin(PAGE), spill.begin(most)), (0, Spill::NOWHERE));
    assert_eq!(spill.begin(PAGE), PAGE);
    (0..3).for_each(|_| spill.end());
    assert_eq!(spill.begin(PAGE), 0);
}

/// However it is cut, by who writes it and by who reads it, and on both sides of what is written at a time.
#[test]
fn what_lies_on_scratch_is_read_as_it_was_written() {
    let (segment, mail) = to_scratch(&spill());
    let most = 256 * BLOCK;
    for len in [1, BLOCK - 1, BLOCK, BLOCK + 1, 100 << 10, most - 1, most, most + 1, 2 * most + 5000] {
        let bytes = data(len);
        let (front, back) = bytes.split_at(bytes.len() / 3);
        let (second, third) = back.split_at(back.len().min(7));
        let place = mail.put(&segment, &[front, &[], second, third]).unwrap();
        assert_eq!(place.kind, Kind::Scratch);
        for offset in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, most, len / 2, len - 1, len] {
            for count in [0, 1, 100, BLOCK, BLOCK + 1, 3 * BLOCK - 1, most + 1, len] {
                let end = offset.saturating_add(count);
                if end <= len {
                    let mut read = vec![0; count as usize];
                    mail.get(&segment, &place, offset, &mut read).unwrap();
                    assert!(read == bytes[offset as usize..end as usize], "{count} of {len} from {offset}");
                }
            }
        }
        assert!(mail.get(&segment, &place, len, &mut [0]).is_err());
        mail.release(&segment, &place);
    }
}

/// A program that changes what it sends is wrong, but nothing on scratch is damaged: what lies there was in
/// memory at some time, and has its checksums.
#[test]
fn what_is_changed_while_it_is_written_matches_its_checksums() {
    let (segment, mail) = to_scratch(&spill());
    let (file, blocks) = (spill(), 300);
    ftruncate(&file, blocks * BLOCK + 100).unwrap();
    // SAFETY: nobody makes the file shorter. That it is changed meanwhile is what this is about: by system
    // calls, as by another process.
    let changed = unsafe { MmapOptions::new().map(&file) }.unwrap();
    let mut read = vec![0; changed.len()];
    let (passes, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let pass = passes.fetch_add(1, SeqCst);
                for block in 0..blocks {
                    _ = pwrite(&file, &[pass as u8], block * BLOCK + pass % BLOCK);
                }
            }
        });
        // Without a panic, which would wait for the thread.
        let mut told = Ok(());
        while told.is_ok() && passes.load(SeqCst) < 200 {
            told = mail.put(&segment, &[&changed]).and_then(|place| {
                let got = mail.get(&segment, &place, 0, &mut read);
                mail.release(&segment, &place);
                got
            });
        }
        is_over.store(true, SeqCst);
        told
    });
    told.unwrap();
}

/// In any order, as the gateway may: what was sent beside its frame comes later.
#[test]
fn what_is_written_in_pieces_is_whole() {
    let (segment, mail) = to_scratch(&spill());
    let bytes = data(10 * BLOCK + 100);
    let cuts = [0, BLOCK, 4 * BLOCK, 9 * BLOCK, bytes.len() as u64];
    let place = mail.reserve(&segment, bytes.len() as u64);
    for nth in [2, 0, 3, 1] {
        let [from, to] = [cuts[nth], cuts[nth + 1]].map(|at| at as usize);
        mail.write(&segment, &place, from as u64, &[&bytes[from..to]]).unwrap();
    }
    let mut read = vec![0; bytes.len()];
    mail.get(&segment, &place, 0, &mut read).unwrap();
    assert!(read == bytes);
    // Of a block of which a part is written the checksum would not be known.
    for (from, to) in [(1, BLOCK), (BLOCK, BLOCK + 1), (10 * BLOCK + 1, 10 * BLOCK + 100)] {
        let cut = &bytes[from as usize..to as usize];
        let written = mail.write(&segment, &place, from, &[cut]);
        assert!(matches!(written, Err(Error::Damaged(_))), "{from} to {to}: {written:?}");
    }
}

/// Whatever byte is another one, of the payload or of its checksums, and whichever part of its block is
/// wanted.
#[test]
fn damage_on_scratch_is_found() {
    let file = spill();
    let (segment, mail) = to_scratch(&file);
    let bytes = data(100 << 10);
    let before = mail.put(&segment, &[&bytes[..5000]]).unwrap();
    let place = mail.put(&segment, &[&bytes]).unwrap();
    let len = place.len;
    for at in [0, 1, BLOCK, 50_000, len - 1, len, len + 8 * 12 + 5, len + spilled::sums_of(len) - 1] {
        let mut byte = [0];
        assert_eq!(pread(&file, &mut byte, place.offset + at), Ok(1));
        assert_eq!(pwrite(&file, &[byte[0] ^ 4], place.offset + at), Ok(1));
        let mut read = vec![0; bytes.len()];
        let got = mail.get(&segment, &place, 0, &mut read);
        let said = got.as_ref().map_err(ToString::to_string).unwrap_err();
        assert!(matches!(got, Err(Error::Scratch { .. })) && said.contains("checksum"), "at {at}: {said}");
        // Another byte of that block, and the other blocks.
        let block = if at < len { at / BLOCK } else { (at - len) / 8 };
        for other in 0..len.div_ceil(BLOCK) {
            let got = mail.get(&segment, &place, other * BLOCK + 3, &mut [0; 5]);
            assert_eq!(got.is_err(), other == block, "{at}: block {other}");
        }
        assert_eq!(pwrite(&file, &byte, place.offset + at), Ok(1));
        mail.get(&segment, &place, 0, &mut read).unwrap();
        assert!(read == bytes);
    }
    // A page that was written elsewhere, checksums and all.
    let mut page = vec![0; 2 * PAGE as usize];
    let short = mail.put(&segment, &[&bytes[..5000]]).unwrap();
    assert_eq!(pread(&file, &mut page, before.offset), Ok(page.len()));
    assert_eq!(pwrite(&file, &page, short.offset), Ok(page.len()));
    assert!(mail.get(&segment, &short, 0, &mut [0; 5000]).is_err());
    // And what was never written.
    let empty = mail.reserve(&segment, 1 << 16);
    mail.put(&segment, &[&bytes]).unwrap();
    assert!(mail.get(&segment, &empty, 0, &mut [0; 9]).is_err());
}

#[test]
fn errors_of_scratch_are_told_as_such() {
    let file = spill();
    let [read_only, write_only] = [false, true].map(|writes| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        OwnedFd::from(std::fs::File::options().read(!writes).write(writes).open(path).unwrap())
    });
    let (segment, mail) = to_scratch(&write_only);
    let place = mail.put(&segment, &[&[5; 1000]]).unwrap();
    let error = mail.get(&segment, &place, 0, &mut [0; 1000]).unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("cannot read a message from scratch in /"), "{said}");
    assert!(said.contains("offset 0") && said.contains("Bad file descriptor"), "{said}");
    assert_eq!(error.reason(), Some((crate::control::FailureKind::Scratch, 0)));
    let (segment, mail) = to_scratch(&read_only);
    let error = mail.put(&segment, &[&[5; 1000]]).unwrap_err();
    assert!(error.to_string().starts_with("cannot write a message to scratch in /"), "{error}");
    // Wherever another process says that it lies.
    for offset in [1 << 40, Spill::NOWHERE, u64::MAX] {
        let nowhere = Place { kind: Kind::Scratch, offset, len: u64::MAX };
        for from in [0, 5, 1 << 40] {
            let got = mail.get(&segment, &nowhere, from, &mut [0; 9]);
            assert!(matches!(got, Err(Error::Scratch { .. })), "{offset}: {got:?}");
        }
    }
}

#[test]
fn the_limit_for_files_is_named() {
    // In a process of its own, in which it holds.
    const LIMITED: &str = "BDRUN_IPC_LIMITED";
    if std::env::var_os(LIMITED).is_some() {
        let made = [Segment::create(2, 1 << 20, 0, 2).map(drop), Mail::create(spill()).map(drop)];
        for made in made {
            let said = made.unwrap_err().to_string();
            assert!(said.contains("File too large") && said.contains("`ulimit -f`"), "{said}");
        }
        return;
    }
    let me = std::env::current_exe().unwrap();
    let limited = Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""])
        .arg(me)
        .args(["mail::tests::the_limit_for_files_is_named", "--exact"])
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&limited.stdout).into_owned() + &String::from_utf8_lossy(&limited.stderr);
    assert!(limited.status.success() && said.contains("1 passed"), "{}: {said}", limited.status);
}
