//! A terminal, and what is shown on it.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::skipped;

/// Both ends of a new one: that of the window, and that of the programs. No descriptor of it is inherited by
/// accident, at no moment: other tests start programs meanwhile.
pub fn both_ends() -> Option<(File, OwnedFd)> {
    let flags = libc::O_NOCTTY | libc::O_CLOEXEC;
    let open = || OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/ptmx");
    // SAFETY: the second call reads a number; the last makes a descriptor, which nobody else has.
    let other = |ours: &File| unsafe {
        let (window, unlocked) = (ours.as_raw_fd(), 0);
        if libc::ioctl(window, libc::TIOCSPTLCK, &raw const unlocked) != 0 {
            return None;
        }
        let theirs = libc::ioctl(window, libc::TIOCGPTPEER, libc::O_RDWR | flags);
        (theirs >= 0).then(|| OwnedFd::from_raw_fd(theirs))
    };
    let ends = open().ok().and_then(|ours| other(&ours).map(|theirs| (ours, theirs)));
    if ends.is_none() {
        skipped("pty", "no pseudo-terminals here");
    }
    ends
}

/// Reads until nobody is left who could write; a terminal says that with an error.
pub fn reading(mut file: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut shown, mut buffer) = (Vec::new(), [0; 1 << 16]);
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            shown.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    })
}
