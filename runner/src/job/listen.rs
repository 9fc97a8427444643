//! What the job's thread is told, and the thread that listens to the control sockets while that sleeps.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::attach::Asked;
use crate::holder::Report;
use crate::launch::Came;
use crate::measure::Measured;
use crate::nodes::Told;
use crate::post::Post;
use crate::supervisor::Happening;

/// In the place of a rank: the thread is to end.
const STOP: u64 = u64::MAX;

/// What comes by the job's post.
pub(super) enum Message {
    /// A rank's control socket has something to read.
    Control(u32),
    /// Parts were read.
    Came(Came),
    /// What independent ranks hold.
    Measured(Measured),
    /// What became of an order to an independent rank, in this try of it.
    Holder(u32, u32, Report),
    /// Something happened to a process.
    Supervisor(Happening),
    /// Somebody looks at the job.
    Asked(Asked),
    /// Something is said by the masters of other nodes.
    Nodes(Told),
    /// The journal and the job log are written, or cannot be: why.
    Journal(Result<(), String>),
}

impl From<Happening> for Message {
    fn from(happening: Happening) -> Self {
        Self::Supervisor(happening)
    }
}

impl From<Asked> for Message {
    fn from(asked: Asked) -> Self {
        Self::Asked(asked)
    }
}

impl From<Measured> for Message {
    fn from(measured: Measured) -> Self {
        Self::Measured(measured)
    }
}

/// The thread.
pub(super) struct Listener {
    epoll: Arc<Epoll>,
    wake: EventFd,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    pub fn start(post: Post<Message>) -> std::io::Result<Self> {
        let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        let theirs = epoll.clone();
        let thread =
            std::thread::Builder::new().name("control".into()).stack_size(128 << 10).spawn(move || {
                let mut ready = [EpollEvent::empty(); 64];
                loop {
                    // Interrupted: wait again.
                    let count = theirs.wait(&mut ready, EpollTimeout::NONE).unwrap_or(0);
                    for event in &ready[..count] {
                        if event.data() == STOP || !post.leave(Message::Control(event.data() as u32)) {
                            return;
                        }
                    }
                }
            })?;
        Ok(Self { epoll, wake, thread: Some(thread) })
    }

    /// Listen to a rank's socket, which is reported once for each time something comes in.
    pub fn add(&self, rank: u32, socket: BorrowedFd<'_>) -> nix::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        self.epoll.add(socket, EpollEvent::new(flags, u64::from(rank)))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The counter cannot overflow with one write.
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; there is nothing left to save.
            let _ = thread.join();
        }
    }
}
