//! Rare, structured traffic from a rank to its master: one Unix socket per rank, whole frames, limited in
//! length.

use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};

use crate::error::system;
use crate::wire;
use crate::{Error, Result};

/// Version of the frames and of the segment. Both sides must have the same.
pub const PROTOCOL: u32 = 20;

/// Longest frame in bytes.
pub const FRAME_LIMIT: usize = 64 << 10;

/// Longest text of a failure in bytes; longer ones are cut.
pub const TEXT_LIMIT: usize = 16 << 10;

/// What a rank tells.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// A process wants to be the rank: it is given the descriptors of the segment and the mail
    /// ([`crate::door`]).
    Hello {
        /// [`PROTOCOL`] of the rank's library.
        protocol: u32,
    },
    /// It cannot go on; the master ends the job with this text.
    Failed {
        /// Which of the documented reasons.
        kind: FailureKind,
        /// Bytes that were needed, where that is the matter; else 0.
        bytes: u64,
        /// For the user: cause and remedy.
        text: String,
    },
    /// It has mapped the segment and may be paged from now on.
    Attached,
    /// Its program begins our runtime, or an MPI: it may talk to other ranks from now on, which are no longer
    /// independent.
    Talks,
}

/// Reasons that have an exit code of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// Scratch is full.
    ScratchFull,
    /// Scratch cannot be read or written, or returned wrong data.
    Scratch,
    /// The rank holds more than it may.
    MemoryLimit,
    /// Something in the runtime itself.
    Runtime,
}

impl FailureKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ScratchFull, Self::Scratch, Self::MemoryLimit, Self::Runtime];
}

/// As [`Frame::Failed`], borrowed: the same bytes, made without allocating (the heap may be on scratch).
#[derive(Serialize)]
enum FailedRef<'a> {
    #[expect(dead_code, reason = "keeps the variants' numbers those of `Frame`")]
    Hello,
    Failed {
        kind: FailureKind,
        bytes: u64,
        text: &'a str,
    },
}

/// Send [`Frame::Failed`] without allocating.
pub fn send_failed(socket: BorrowedFd<'_>, kind: FailureKind, bytes: u64, text: &str) -> Result<()> {
    let mut buffer = [0u8; TEXT_LIMIT + 64];
    let mut cut = text.len().min(TEXT_LIMIT);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let frame = FailedRef::Failed { kind, bytes, text: &text[..cut] };
    let used = wire::encode_into(&frame, &mut buffer).map_err(|e| Error::Frame(e.to_string()))?;
    send(socket, &buffer[..used], SendFlags::NOSIGNAL).map_err(system("send on the control socket"))?;
    Ok(())
}

/// Send a frame; one system call, whole or not at all.
pub fn send_frame(socket: BorrowedFd<'_>, frame: &Frame) -> Result<()> {
    let bytes = wire::encode_frame(frame).map_err(|e| Error::Frame(e.to_string()))?;
    send(socket, &bytes, SendFlags::NOSIGNAL).map_err(system("send on the control socket"))?;
    Ok(())
}

/// Receive a frame if there is one; `None` at the end of the connection or when nothing is there
/// (non-blocking).
pub fn recv_frame(socket: BorrowedFd<'_>) -> Result<Option<Frame>> {
    let mut bytes = vec![0u8; FRAME_LIMIT];
    let n = match recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
        Ok((_, n)) => n,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(system("receive on the control socket")(errno)),
    };
    match bytes.get(..n) {
        None => Err(Error::Frame(format!("a frame of {n} bytes; at most {FRAME_LIMIT} are allowed"))),
        Some([]) => Ok(None),
        Some(frame) => wire::decode_frame(frame).map(Some).map_err(|e| Error::Frame(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn frames_cross_a_socket() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        send_frame(ours.as_fd(), &Frame::Hello { protocol: PROTOCOL }).unwrap();
        send_failed(ours.as_fd(), FailureKind::Scratch, 7, &"é".repeat(TEXT_LIMIT)).unwrap();
        assert_eq!(recv_frame(theirs.as_fd()).unwrap(), Some(Frame::Hello { protocol: PROTOCOL }));
        match recv_frame(theirs.as_fd()).unwrap() {
            Some(Frame::Failed { kind: FailureKind::Scratch, bytes: 7, text }) => {
                assert_eq!(text.len(), TEXT_LIMIT)
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(recv_frame(theirs.as_fd()).unwrap(), None);
        send(ours.as_fd(), &[0xff; 9], SendFlags::NOSIGNAL).unwrap();
        assert!(recv_frame(theirs.as_fd()).is_err());
        drop(ours);
        assert_eq!(recv_frame(theirs.as_fd()).unwrap(), None);
    }
}
