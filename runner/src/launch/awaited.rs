//! What is waited for before there is a job that ends when its time is over: `--timeout` holds then too.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Something was not there in time. Inside the error that says so.
#[derive(Debug, thiserror::Error)]
#[error("the time given by --timeout is over")]
pub struct Late(Duration);

impl Late {
    /// The limit that was passed, if that is what is wrong.
    pub fn limit(error: &io::Error) -> Option<Duration> {
        error.get_ref()?.downcast_ref().map(|Self(limit)| *limit)
    }
}

/// The end of a time limit.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    end: Instant,
    limit: Duration,
}

impl Until {
    /// So long after now; none if there is no limit, or none that is ever passed.
    pub fn new(limit: Option<Duration>) -> Option<Self> {
        let limit = limit?;
        Some(Self { end: Instant::now().checked_add(limit)?, limit })
    }

    /// What is left of it.
    ///
    /// # Errors
    /// [`Late`] if nothing is.
    pub fn left(self) -> io::Result<Duration> {
        match self.end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::Error::new(io::ErrorKind::TimedOut, Late(self.limit))),
            left => Ok(left),
        }
    }
}

/// An input that is waited for no longer than that. Behind another buffer of its own nothing may lie.
#[derive(Debug)]
pub struct Awaited<I> {
    input: I,
    until: Option<Until>,
}

impl<I> Awaited<I> {
    pub fn new(input: I, until: Option<Until>) -> Self {
        Self { input, until }
    }

    /// From now on it is waited for however long it takes: somebody else sees to the limit.
    pub fn without_limit(&mut self) {
        self.until = None;
    }
}

impl<I: Read + AsFd> Read for Awaited<I> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.until {
            let mut asked = [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)];
            // Rounded up: not again and again when next to nothing is left.
            let left = |until: Until| until.left().map(|left| left.as_millis().saturating_add(1));
            loop {
                let patience = PollTimeout::try_from(left(until)?).unwrap_or(PollTimeout::MAX);
                match poll(&mut asked, patience) {
                    Ok(0) | Err(Errno::EINTR) => {}
                    // To read says what is wrong, if something is.
                    _ => break,
                }
            }
        }
        self.input.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_does_not_come_in_time_is_late() {
        let (reader, mut writer) = io::pipe().unwrap();
        let limit = Duration::from_millis(20);
        let mut input = Awaited::new(reader, Until::new(Some(Duration::from_secs(600))));
        let mut into = [0; 8];
        writer.write_all(b"abc").unwrap();
        assert_eq!(input.read(&mut into).unwrap(), 3);
        input.until = Until::new(Some(limit));
        let late = input.read(&mut into).unwrap_err();
        assert_eq!(Late::limit(&late), Some(limit));
        assert_eq!(Late::limit(&io::ErrorKind::TimedOut.into()), None, "a disk's");
        input.without_limit();
        drop(writer);
        assert_eq!(input.read(&mut into).unwrap(), 0, "its end");
        assert!(Until::new(Some(Duration::MAX)).is_none() && Until::new(None).is_none());
    }
}
