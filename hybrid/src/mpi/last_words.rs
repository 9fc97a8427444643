//! What a rank has printed reaches who reads it before the rank ends the job.
//!
//! `MPI_Abort` and what the rank has printed go different ways to its launcher, which may see the first alone
//! (MPICH's proxy looks at one descriptor after the other, while the rank writes to both) and ends at once:
//! then nobody is told why.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, fstat};
use rustix::io::ioctl_fionread;

/// Who has not read it by then does not read at all.
const AT_MOST: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_micros(200);

/// Waits until what was printed was read, where it is read from a pipe.
pub fn are_heard() {
    let (mut out, errors) = (std::io::stdout(), std::io::stderr());
    let _ = out.flush();
    let until = Instant::now() + AT_MOST;
    wait(errors.as_fd(), until);
    wait(out.as_fd(), until);
}

/// Until a pipe is empty, or that time.
fn wait(pipe: BorrowedFd<'_>, until: Instant) {
    let is_pipe = fstat(pipe).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    while is_pipe && ioctl_fionread(pipe).is_ok_and(|unread| unread > 0) && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_pipe_is_waited_for_until_it_is_read_and_a_file_is_not() {
        let later = |time: u64| Instant::now() + Duration::from_millis(time);
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"it has no input").unwrap();
        let reads = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            reader.read_exact(&mut [0; 15]).unwrap();
            reader
        });
        wait(writer.as_fd(), later(60_000));
        assert_eq!(ioctl_fionread(&writer).unwrap(), 0);
        let reader = reads.join().unwrap();
        // Nobody reads.
        writer.write_all(b"x").unwrap();
        let until = later(20);
        wait(writer.as_fd(), until);
        assert!(Instant::now() >= until && ioctl_fionread(&reader).unwrap() == 1);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let until = later(60_000);
        wait(file.as_fd(), until);
        assert!(Instant::now() < until);
    }
}
