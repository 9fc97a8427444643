//! The descriptors of a job: handed to a process of a rank once it says hello, and to no other.
//!
//! A rank is started with its socket only: most programs have no use for more, and what they have open they
//! may spoil (a child of a shell that truncates whatever it finds). Each process that says hello is given new
//! descriptors, so a program that took the place of another by `exec` asks as the first did.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};

use crate::control::{Frame, PROTOCOL, send_frame};
use crate::error::system;
use crate::{Error, Result};

/// Segment, mail, spill.
const MOST: usize = 3;

/// Where the numbers of descriptors begin that are not in the way of those that programs choose themselves;
/// lower ones where the limit is low.
const NUMBERS: [i32; 5] = [200, 100, 50, 25, 10];

/// The system lets only so many descriptors be on their way at one time. How long, and how often, a rank asks
/// again.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// An answer: version, kind; little-endian in every version.
const WORDS: usize = 2;
const GIVEN: u32 = 1;
const LATER: u32 = 2;

/// What a rank is given, closed when it executes another program.
pub struct Given {
    /// See [`crate::segment`].
    pub segment: OwnedFd,
    /// See [`crate::mail`].
    pub mail: OwnedFd,
    /// As `mail`, on scratch.
    pub spill: OwnedFd,
}

fn answer(kind: u32) -> [u8; 4 * WORDS] {
    let mut bytes = [0; 4 * WORDS];
    for (place, word) in bytes.chunks_exact_mut(4).zip([PROTOCOL, kind]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// By the master, for a hello: segment, mail, spill. Never waits.
pub fn hand_over(socket: BorrowedFd<'_>, given: [BorrowedFd<'_>; MOST]) -> Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&given)), "more descriptors than there are");
    let sent = match sendmsg(socket, &[IoSlice::new(&answer(GIVEN))], &mut control, flags) {
        // Too many of this user's are on their way to processes that have not taken them yet, or there is no
        // memory now.
        Err(Errno::TOOMANYREFS | Errno::NOMEM | Errno::NOBUFS) => {
            send(socket, &answer(LATER), flags).map(drop)
        }
        sent => sent.map(drop),
    };
    match sent {
        // Whoever asked has gone, or asks again and again and does not listen: only itself waits then.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET | Errno::AGAIN) => Ok(()),
        Err(errno) => Err(system("hand the job's descriptors to a rank")(errno)),
    }
}

/// By a process of a rank: say hello, and take what it is given.
pub fn ask(socket: BorrowedFd<'_>) -> Result<Given> {
    let begun = Instant::now();
    loop {
        send_frame(socket, &Frame::Hello { protocol: PROTOCOL })?;
        if let Some(given) = take(socket)? {
            return Ok(given);
        }
        if begun.elapsed() > PATIENCE {
            return Err(system("take the job's descriptors")(Errno::TOOMANYREFS));
        }
        std::thread::sleep(PAUSE);
    }
}

/// An answer; `None` if it is to ask again.
fn take(socket: BorrowedFd<'_>) -> Result<Option<Given>> {
    let mut bytes = [0; 4 * WORDS];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => break got,
            Err(Errno::INTR) => {}
            // Somebody who has the socket too made it non-blocking.
            Err(Errno::AGAIN) => _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], None),
            Err(errno) => return Err(system("take the job's descriptors")(errno)),
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.bytes == 0 {
        return Err(Error::Frame("bdrun has gone".into()));
    }
    let mut words =
        bytes.chunks_exact(4).map(|word| word.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b)));
    let mut word = || words.next().unwrap_or_default();
    let (version, kind) = (word(), word());
    if version != PROTOCOL || got.bytes != bytes.len() {
        return Err(Error::Version(format!(
            "bdrun speaks version {version} of the protocol, this program {PROTOCOL}: build both from one \
             release"
        )));
    }
    if kind == LATER {
        return Ok(None);
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Error::TooMany { what: "open files in this process (ulimit -n)", most: open_files() });
    }
    let mut fds = fds.into_iter().map(out_of_the_way);
    let mut next = || fds.next().ok_or_else(|| Error::Frame("an answer without descriptors".into()));
    let (segment, mail, spill) = (next()?, next()?, next()?);
    Ok(Some(Given { segment, mail, spill }))
}

fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Programs put files of their own at low numbers, whatever is there.
#[must_use]
pub fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    NUMBERS.iter().find_map(|&least| fcntl_dupfd_cloexec(fd.as_fd(), least).ok()).unwrap_or(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::recv_frame;
    use rustix::fs::{MemfdFlags, fstat, memfd_create};
    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsRawFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn files() -> [OwnedFd; MOST] {
        std::array::from_fn(|_| memfd_create("x", MemfdFlags::CLOEXEC).unwrap())
    }

    /// What a rank gets if it is answered so.
    fn asked(reply: impl FnOnce(BorrowedFd<'_>)) -> Result<Given> {
        let (ours, theirs) = pair();
        reply(ours.as_fd());
        let given = ask(theirs.as_fd());
        assert_eq!(recv_frame(ours.as_fd()).unwrap(), Some(Frame::Hello { protocol: PROTOCOL }));
        given
    }

    #[test]
    fn whoever_asks_is_given_the_same_files_at_high_numbers() {
        let files = files();
        let lent = files.each_ref().map(AsFd::as_fd);
        let given = asked(|socket| hand_over(socket, lent).unwrap()).unwrap();
        let got = [given.segment, given.mail, given.spill];
        let inode = |fd: &OwnedFd| fstat(fd).unwrap().st_ino;
        assert!(got.iter().map(inode).eq(files.iter().map(inode)));
        for fd in got {
            assert!(fd.as_raw_fd() >= 200 && fcntl_getfd(&fd).unwrap().contains(FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn whoever_is_to_wait_asks_again() {
        let files = files();
        let lent = files.each_ref().map(AsFd::as_fd);
        let given = asked(|socket| {
            send(socket, &answer(LATER), SendFlags::NOSIGNAL).unwrap();
            hand_over(socket, lent).unwrap();
        });
        assert!(given.is_ok());
    }

    #[test]
    fn other_answers_are_errors() {
        let error = |bytes: &[u8]| {
            let asked = asked(|socket| _ = send(socket, bytes, SendFlags::NOSIGNAL).unwrap());
            asked.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let mut other = answer(GIVEN);
        other[0] += 1;
        assert!(error(&other).contains("build both from one release"));
        assert!(error(&answer(GIVEN)[..5]).contains("version"));
        assert!(error(&answer(GIVEN)).contains("without descriptors"));
        let (ours, theirs) = pair();
        drop(ours);
        assert!(ask(theirs.as_fd()).is_err());
        // Nobody listens: that is no matter of the master's.
        let (ours, theirs) = pair();
        drop(theirs);
        hand_over(ours.as_fd(), files().each_ref().map(AsFd::as_fd)).unwrap();
    }
}
