//! bdrun's own standard input, which rank 0 has where it is given no other: what one try of the rank has read
//! of it may be gone for the next.

use std::fs::File;
use std::io::{self, IsTerminal, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// By this name it is opened once more, from its beginning.
pub(super) const AGAIN: &str = "/proc/self/fd/0";

/// What can be read again of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// There is nothing in it: a terminal, which no rank is given, a device, a pipe at its end.
    Nothing,
    /// All of it: a file, of which nothing was read before.
    File,
    /// Nothing.
    Once,
}

impl Input {
    /// Our own, before any rank has it.
    pub fn own() -> Self {
        let stdin = io::stdin();
        if stdin.is_terminal() { Self::Nothing } else { Self::of(&stdin) }
    }

    fn of(stdin: &impl AsFd) -> Self {
        let Ok(file) = stdin.as_fd().try_clone_to_owned().map(File::from) else { return Self::Once };
        let Ok(there) = file.metadata() else { return Self::Once };
        let kind = there.file_type();
        if kind.is_char_device() {
            Self::Nothing
        } else if kind.is_file() {
            // Somebody before us may have read some of it, and has left us the rest.
            if (&file).stream_position().is_ok_and(|at| at == 0) { Self::File } else { Self::Once }
        } else if is_at_its_end(&file) {
            Self::Nothing
        } else {
            Self::Once
        }
    }
}

/// Nobody writes to this pipe, and nothing is left in it.
fn is_at_its_end(pipe: &File) -> bool {
    let mut polled = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    let told = poll(&mut polled, PollTimeout::ZERO).ok().and_then(|_| polled[0].revents());
    told.is_some_and(|told| told.contains(PollFlags::POLLHUP) && !told.contains(PollFlags::POLLIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn what_can_be_read_again() {
        assert_eq!(Input::of(&File::open("/dev/null").unwrap()), Input::Nothing);
        let (read, mut write) = io::pipe().unwrap();
        assert_eq!(Input::of(&read), Input::Once);
        write.write_all(b"left").unwrap();
        drop(write);
        assert_eq!(Input::of(&read), Input::Once);
        io::copy(&mut read.try_clone().unwrap(), &mut io::sink()).unwrap();
        assert_eq!(Input::of(&read), Input::Nothing);
        let mut file = File::open("/proc/self/exe").unwrap();
        assert_eq!(Input::of(&file), Input::File);
        file.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(Input::of(&file), Input::Once);
    }
}
